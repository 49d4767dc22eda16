//! One partition's work: exact plans, jobs within the budget, and what they teach.

use std::sync::Arc;

use crate::act::{JobResult, Journal, Verdict as JobVerdict};
use crate::decide::budget::Reservation;
use crate::decide::maturity::Gained;
use crate::decide::plan::{Cause, Order, max_deletes_on_file, plans};
use crate::lake::Error;
use crate::model::decision::{Decision, Reason, Verdict};
use crate::model::event::{Certainty, Door, Event};
use crate::model::ident::{TableIdent, TableName};
use crate::model::plan::Plan;
use crate::model::policy::Rule;
use crate::model::refusal::{Refusal, Refused};
use crate::telemetry::{self, JobEnd};

use super::Loop;
use super::book::{Begun, Page, Scope};

/// The journal's kind of what partitions remember.
const MEMORY: &str = "scope-memory";
const MEMORY_VERSION: u32 = 1;

impl Loop {
    /// Carries out what a decision asked for, as far as the budget lasts; the
    /// rest is judged again.
    pub(super) async fn carry_out(self: Arc<Self>, begun: Begun, reservation: Reservation) {
        let planned = self.plan(&begun).await;
        self.budget().settle(reservation, 0.0, self.now());
        match planned {
            Ok(Ok(plans)) => {
                for plan in plans {
                    if !self.run_one(&begun, &plan).await {
                        break;
                    }
                }
            }
            Ok(Err(reason)) => self.found_nothing(&begun, reason),
            Err(error) => self.could_not_plan(&begun, &error),
        }
        self.end(&begun).await;
    }

    /// The exact files, from a fresh load.
    async fn plan(&self, begun: &Begun) -> Result<Result<Vec<Plan>, Reason>, Error> {
        let Some(table) = self.parts.format.load(&begun.scope.name, &begun.reference).await? else {
            return Ok(Err(Reason::NothingToGain));
        };
        let files = table.scope(&begun.scope.partition).await?;
        self.with_page(&begun.scope.name, |page| {
            let memory = page.memory(&begun.scope.partition);
            page.remember(
                &begun.scope.partition,
                crate::decide::ScopeMemory { max_deletes_on_file: Some(max_deletes_on_file(&files)), ..memory },
            );
        });
        let Some(cause) = Cause::of(&begun.decision, &begun.policy) else { return Ok(Err(Reason::NothingToGain)) };
        let view = table.view();
        let order = Order {
            table: view.ident,
            name: &view.name,
            reference: &begun.reference,
            policy: &begun.policy,
            limits: &self.limits,
            cause: &cause,
        };
        Ok(plans(&order, &files))
    }

    /// Runs one plan within its own reservation. Gives back whether the next
    /// plan of the partition should be tried.
    async fn run_one(&self, begun: &Begun, plan: &Plan) -> bool {
        let reserved = self.budget().reserve(&plan.bound, self.now());
        let Ok(reservation) = reserved else { return false };
        let result = self.parts.act.run(plan, None).await;
        self.budget().settle(reservation, result.numbers.gb_hours, self.now());
        tell(&result);
        self.learn(begun, plan, &result);
        if let Some(snapshot_id) = result.numbers.snapshot_id {
            self.hear_own(plan, snapshot_id);
        }
        result.verdict == JobVerdict::Committed
    }

    fn learn(&self, begun: &Begun, plan: &Plan, result: &JobResult) {
        let scope = &begun.scope.partition;
        let now_ms = self.now();
        match &result.verdict {
            JobVerdict::Committed => self.with_page(&begun.scope.name, |page| {
                let gained = Gained {
                    at_ms: now_ms,
                    files_in: result.numbers.files_in,
                    files_out: result.numbers.files_out,
                    deletes_applied: plan.inputs.iter().map(|f| f.deletes.len() as u64).sum(),
                };
                page.remember(scope, page.memory(scope).after_rewrite(&begun.policy, &gained));
                page.shrink(scope, None);
            }),
            JobVerdict::Refused { refused } => self.with_page(&begun.scope.name, |page| page.refuse(scope, refused.clone())),
            JobVerdict::Disproved { error } => {
                tracing::error!(table = %plan.name, %scope, %error, "a proof failed: nothing was committed, and the table is left alone from here on");
                self.with_page(&begun.scope.name, |page| {
                    page.disproved = Some(Refused::new(
                        Refusal::Damaged,
                        format!("a rewrite was disproved and not committed, please report it: {error}"),
                    ))
                });
            }
            JobVerdict::Replan { max_bytes, .. } => self.with_page(&begun.scope.name, |page| {
                page.shrink(scope, *max_bytes);
            }),
            JobVerdict::Busy | JobVerdict::Paused | JobVerdict::Dropped { .. } => {}
            JobVerdict::Failed { .. } | JobVerdict::Stopped { .. } | JobVerdict::Cancelled | JobVerdict::Unresolved { .. } => {
                tracing::warn!(table = %plan.name, %scope, verdict = %result.verdict.note(), "job did not land");
                // as after work that gained nothing: what fails again and again is tried ever more seldom
                self.with_page(&begun.scope.name, |page| {
                    page.remember(scope, page.memory(scope).after_empty_plan(&begun.policy, now_ms, false))
                });
            }
        }
    }

    fn found_nothing(&self, begun: &Begun, reason: Reason) {
        let scope = &begun.scope.partition;
        let for_deletes = asked_by_deletes(&begun.decision);
        let now_ms = self.now();
        self.with_page(&begun.scope.name, |page| match reason {
            Reason::Refused(refused) => page.refuse(scope, refused),
            _ => {
                // a bound that a lost race left may be why there is no plan: the next one is made without it
                let bounded = page.shrink(scope, None);
                page.remember(scope, page.memory(scope).after_empty_plan(&begun.policy, now_ms, for_deletes && !bounded));
            }
        });
    }

    fn could_not_plan(&self, begun: &Begun, error: &Error) {
        let scope = &begun.scope.partition;
        tracing::warn!(table = %begun.scope.name, %scope, %error, "the partition cannot be planned");
        let now_ms = self.now();
        self.with_page(&begun.scope.name, |page| match error {
            Error::Refused(refused) => page.refuse(scope, refused.clone()),
            _ => page.remember(scope, page.memory(scope).after_empty_plan(&begun.policy, now_ms, false)),
        });
    }

    /// The partition is free again: what it remembers is kept, and it is judged.
    async fn end(&self, begun: &Begun) {
        let Scope { name, partition } = begun.scope.clone();
        self.with_page(&name, |page| page.end(&partition));
        self.keep_memory(&name).await;
        self.judge(&name, [partition].into());
        self.changed.notify_one();
    }

    /// Our own commit is looked at like any other.
    fn hear_own(&self, plan: &Plan, snapshot_id: i64) {
        let event = Event {
            door: Door::Own,
            table: plan.name.clone(),
            uuid: Some(plan.table.uuid),
            reference: Some(plan.reference.clone()),
            snapshots: vec![snapshot_id],
            certainty: Certainty::CatalogConfirmed,
            files_added: 0,
            heard_ms: self.now(),
        };
        let _ = self.parts.inbox.hear(event);
    }

    async fn keep_memory(&self, name: &TableName) {
        let kept = self.book().page(name).map(|page| (page.facts.ident, page.memories()));
        let Some((ident, memories)) = kept else { return };
        let stored = match serde_json::to_vec(&memories) {
            Ok(bytes) => {
                let blob = crate::act::journal::Blob { version: MEMORY_VERSION, bytes };
                self.parts.act.journal().put_blob(MEMORY, &ident.to_string(), &blob).await.map_err(|e| e.to_string())
            }
            Err(error) => Err(error.to_string()),
        };
        if let Err(error) = stored {
            tracing::warn!(table = %name, %error, "what the partitions remember is not kept over a restart");
        }
    }

    /// What the partitions of a table remembered before a restart.
    pub(super) async fn restore(&self, name: &TableName, ident: TableIdent) {
        if self.book().page(name).is_none_or(|page| page.restored) {
            return;
        }
        let memories = remembered(self.parts.act.journal().as_ref(), ident).await;
        self.with_page(name, |page| {
            page.restored = true;
            for (scope, memory) in memories {
                if page.state.layout.partition(&scope).is_some() {
                    page.remember(&scope, memory);
                }
            }
        });
    }

    fn with_page(&self, name: &TableName, change: impl FnOnce(&mut Page)) {
        if let Some(page) = self.book().page_mut(name) {
            change(page);
        }
    }
}

async fn remembered(journal: &dyn Journal, ident: TableIdent) -> Vec<(crate::model::partition::PartitionKey, crate::decide::ScopeMemory)> {
    match journal.blob(MEMORY, &ident.to_string()).await {
        Ok(Some(blob)) if blob.version == MEMORY_VERSION => serde_json::from_slice(&blob.bytes).unwrap_or_default(),
        Ok(_) => Vec::new(),
        Err(error) => {
            tracing::warn!(table = %ident, %error, "what the partitions remembered cannot be read");
            Vec::new()
        }
    }
}

fn asked_by_deletes(decision: &Decision) -> bool {
    let name = Rule::Deletes { min_ratio: 0.0, min_files_per_data_file: 0 }.name();
    matches!(&decision.verdict, Verdict::Now { rule, .. } if rule == name)
}

fn tell(result: &JobResult) {
    let numbers = &result.numbers;
    let end = match &result.verdict {
        JobVerdict::Committed => JobEnd::Committed,
        JobVerdict::Cancelled | JobVerdict::Stopped { .. } => JobEnd::Cancelled,
        JobVerdict::Busy | JobVerdict::Paused | JobVerdict::Replan { .. } | JobVerdict::Dropped { .. } => JobEnd::Yielded,
        JobVerdict::Refused { .. } | JobVerdict::Disproved { .. } | JobVerdict::Failed { .. } | JobVerdict::Unresolved { .. } => {
            JobEnd::Failed
        }
    };
    telemetry::job_ended(end, result.seconds());
    telemetry::budget_spent(numbers.gb_hours);
    telemetry::bytes_read(numbers.bytes_read);
    if let (JobVerdict::Committed, Some(path)) = (&result.verdict, numbers.path) {
        telemetry::rewritten(path, numbers.bytes_in, numbers.bytes_out, numbers.files_in, numbers.files_out);
    }
    if let JobVerdict::Replan { conflict, .. } | JobVerdict::Dropped { conflict } = &result.verdict {
        telemetry::conflicted(conflict);
    }
}
