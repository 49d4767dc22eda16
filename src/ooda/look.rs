//! One look at a table: a load, and each branch that is looked after taken in from it.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::book::{Due, Gone, Seen};
use super::{Looked, Loop};
use crate::lake::{Error, Glanced, Table};
use crate::model::ident::{MAIN, TableName};
use crate::model::partition::PartitionKey;
use crate::model::plan::Plan;
use crate::model::policy::Policy;
use crate::model::refusal::Refusal;
use crate::orient::{self, Absorbed, How, TableState};
use crate::settings::Warning;
use crate::telemetry;

/// What the last look at a table left of its branches, and where the catalog stood then.
struct Known {
    at: String,
    branches: Vec<(orient::Key, Arc<TableState>)>,
}

/// A table that was just loaded, with what its settings mean.
#[derive(Clone, Copy)]
struct Found<'a> {
    name: &'a TableName,
    policy: &'a Policy,
    warnings: &'a [Warning],
    tenant: Option<&'a Arc<str>>,
    began_ms: i64,
}

impl Loop {
    /// Takes a table in as it stands now, with every branch that is looked after, and judges
    /// what changed, and what is due of it. `hints` are snapshots that were heard of;
    /// `reference` is the branch whose state is asked for.
    ///
    /// # Errors
    /// When the table cannot be loaded, or its `main` or the branch that is asked for cannot
    /// be read.
    pub async fn look(&self, name: &TableName, reference: &str, hints: &[i64]) -> Result<Looked, Error> {
        let began_ms = self.now();
        let known = self.known(name, hints).await;
        let found = match self.parts.format.glance_since(name, MAIN, known.as_ref().map(|known| known.at.as_str())).await? {
            Glanced::Same => match known {
                Some(known) => return Ok(self.look_ended_as_before(name, reference, known, began_ms)),
                None => self.parts.format.glance(name, MAIN).await?,
            },
            Glanced::At(table) => Some(table),
            Glanced::Gone => None,
        };
        let Some(table) = found else {
            let gone = self.book().remove(name);
            self.parts.inbox.branches().forget(name);
            self.forget(gone).await;
            self.yield_to_writers(name, MAIN, None).await;
            // a table may be reported before its catalog has it
            return Ok(Looked { how: telemetry::Looked::Gone, unseen: hints.to_vec(), older: false, failed: None, state: None });
        };
        let view = table.view();
        let (policy, warnings, tenant) = self.resolve(name, &view.properties);
        self.record_table(view, tenant.as_ref());
        self.parts.inbox.branches().found(name, &policy.branches);
        let found = Found { name, policy: &policy, warnings: &warnings, tenant: tenant.as_ref(), began_ms };
        let (mut looked, mut absent) = (BTreeMap::new(), BTreeMap::new());
        for branch in &policy.branches {
            match on_branch(&table, branch) {
                Ok(seen) => drop(looked.insert(branch.as_str(), self.look_at(&found, seen.as_ref()).await)),
                Err(why) => drop(absent.insert(Arc::from(branch.as_str()), why)),
            }
        }
        let left = self.book().set_branches(name, &policy.branches, absent);
        self.forget_branches(name, left).await;
        self.changed.notify_one();
        telemetry::store_requests("look", &table.requests());
        let unseen = hints.iter().copied().filter(|id| !view.snapshots.contains_key(id)).collect();
        let asked = looked.remove(reference).transpose()?;
        let main = if reference == MAIN { None } else { looked.remove(MAIN).transpose()? };
        let (mut told, mut failed) = (Vec::new(), None);
        for (branch, looked) in looked {
            match looked {
                Ok(looked) => told.push(looked),
                Err(error) => {
                    self.book().trouble(name, branch, &error);
                    failed = Some(error);
                }
            }
        }
        let all = || asked.iter().chain(&main).chain(&told);
        let how = all().map(|absorbed| looked_as(&absorbed.how)).max().unwrap_or(telemetry::Looked::Unchanged);
        let older = all().any(|absorbed| absorbed.how == How::Stale);
        Ok(Looked { how, unseen, older, failed, state: asked.map(|absorbed| absorbed.state) })
    }

    /// Takes one branch of a loaded table in.
    async fn look_at(&self, found: &Found<'_>, table: &dyn Table) -> Result<Absorbed, Error> {
        let (Found { name, policy, began_ms, .. }, view) = (*found, table.view());
        let absorbed = self.parts.orient.absorb(table, policy.scale, self.now()).await?;
        self.parts.roster.looked(name, &view.metadata_location);
        self.honour(name, policy);
        self.note(table, &absorbed).await;
        let sidecar = view.another_sidecar(self.parts.act.instance(), self.now());
        let (policy, warnings, tenant) = (policy.clone(), found.warnings.to_vec(), found.tenant.cloned());
        let taken = self.book().take_in(Seen { view, policy, warnings, tenant, absorbed: &absorbed, sidecar, began_ms });
        self.forget(taken.replaced).await;
        self.restore(name, view.ident, &view.reference, &absorbed).await;
        let due = self.book().due_of(name, &view.reference, self.now());
        self.judge_due(name, &view.reference, Due { scopes: &taken.scopes | &due.scopes, ..due }, &absorbed.state);
        self.yield_to_writers(name, &view.reference, Some(&absorbed)).await;
        Ok(absorbed)
    }

    /// Where a table was at its last look, with its states, if a look that finds it there
    /// has nothing to do but to judge what is due: nobody waits for a later look, and
    /// what was heard of are heads.
    async fn known(&self, name: &TableName, hints: &[i64]) -> Option<Known> {
        let (keys, at) = {
            let book = self.book();
            let mut at = None;
            for page in book.pages(name) {
                let here = page.settled_at().filter(|_| book.troubled(name, &page.reference).is_none())?;
                if at.replace(here).is_some_and(|other| other != here) {
                    return None;
                }
            }
            let keys: Vec<(orient::Key, orient::Mark)> = book.pages(name).map(|page| (page.key(), page.mark)).collect();
            (keys, at?.to_owned())
        };
        let mut branches = Vec::with_capacity(keys.len());
        for (key, mark) in keys {
            let state = self.parts.orient.glimpse(&key).await.filter(|state| state.layout.mark() == mark)?;
            branches.push((key, state));
        }
        let is_head = |id: &i64| branches.iter().any(|(_, state)| state.layout.head() == Some(*id));
        hints.iter().all(is_head).then_some(Known { at, branches })
    }

    /// A look found the table where it was.
    fn look_ended_as_before(&self, name: &TableName, reference: &str, known: Known, began_ms: i64) -> Looked {
        let mut asked = None;
        for (key, state) in known.branches {
            self.parts.orient.stands(&key);
            let due = self.book().seen_again(name, &key.reference, began_ms, self.now());
            self.judge_due(name, &key.reference, due, &state);
            asked = asked.or(Some(state).filter(|_| *key.reference == *reference));
        }
        self.parts.roster.looked(name, &known.at);
        self.changed.notify_one();
        Looked { how: telemetry::Looked::Unchanged, unseen: Vec::new(), older: false, failed: None, state: asked }
    }

    /// Stops the rewrites under way of what changed on a branch, where they can no longer land;
    /// all of a table that is gone.
    pub(super) async fn yield_to_writers(&self, name: &TableName, branch: &str, absorbed: Option<&Absorbed>) {
        let changed = |scope: &PartitionKey| match absorbed {
            Some(Absorbed { how: How::Unchanged | How::Stale, .. }) => false,
            Some(Absorbed { how: How::Incremental { .. } | How::Undone { .. }, touched, .. }) => touched.contains(scope),
            Some(Absorbed { how: How::Rebuilt(_), .. }) | None => true,
        };
        let of = |plan: &Plan| absorbed.is_none_or(|_| plan.reference == branch) && changed(&plan.scope);
        if let Err(error) = self.parts.act.yield_to_writers(name, of).await {
            tracing::warn!(table = %name, %error, "whether the rewrites under way can still land is left to their commits");
        }
    }

    async fn note(&self, table: &dyn Table, absorbed: &Absorbed) {
        telemetry::manifests_read(absorbed.manifests_read);
        if absorbed.how == How::Rebuilt(crate::orient::lineage::Reason::Drift) {
            telemetry::drifted();
        }
        if let Err(error) = self.parts.act.forget_expired(table.view()).await {
            tracing::warn!(%error, "replaced files cannot be counted");
        }
    }

    async fn forget(&self, gone: Option<Gone>) {
        let Some(Gone { ident, branches }) = gone else { return };
        for branch in branches.iter().filter(|branch| ***branch != *MAIN) {
            self.forget_branch(&orient::Key::new(ident, branch)).await;
        }
        if let Err(error) = self.parts.orient.forget(&ident).await {
            tracing::warn!(table = %ident, %error, "the state of a dropped table stays");
        }
        if let Some(recorder) = self.recorder.get() {
            recorder.forget(&ident);
        }
        self.forget_memory(ident).await;
    }

    /// Forgets branches that are gone, or not looked after any more, and stops what is under
    /// way on them.
    async fn forget_branches(&self, name: &TableName, left: Vec<orient::Key>) {
        for key in left {
            tracing::info!(table = %name, branch = %key.reference, "the branch is not there any more, or not looked after");
            self.parts.act.stop_rewrites_of(name, |plan| plan.reference == *key.reference);
            self.forget_branch(&key).await;
        }
    }

    async fn forget_branch(&self, key: &orient::Key) {
        if let Err(error) = self.parts.orient.forget_branch(key).await {
            tracing::warn!(table = %key.ident, branch = %key.reference, %error, "the state of a branch stays");
        }
        self.forget_branch_memory(key.ident, &key.reference).await;
    }
}

/// A loaded table as seen from a branch; why not when that is not there.
fn on_branch(table: &Arc<dyn Table>, branch: &str) -> Result<Arc<dyn Table>, String> {
    if branch == MAIN {
        return Ok(Arc::clone(table));
    }
    let Some(seen) = table.on(branch) else { return Err(format!("there is no branch `{branch}`")) };
    match seen.view().refused.iter().find(|refused| refused.refusal == Refusal::Branch) {
        Some(refused) => Err(refused.detail.clone()),
        None => Ok(seen),
    }
}

fn looked_as(how: &How) -> telemetry::Looked {
    match how {
        How::Unchanged | How::Stale => telemetry::Looked::Unchanged,
        How::Incremental { .. } | How::Undone { .. } => telemetry::Looked::Absorbed,
        How::Rebuilt(_) => telemetry::Looked::Rebuilt,
    }
}
