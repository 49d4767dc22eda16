//! The jobs that this process is at, and which of them a writer has overtaken.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::Act;
use super::control::Stop;
use super::job::{Job, Kind, describe};
use crate::lake::{Error, Glanced};
use crate::model::ident::TableName;
use crate::model::outcome::Conflict;
use crate::model::plan::{JobId, Plan};
use crate::model::table::TableView;

/// The jobs under way, in the order in which they were asked for.
#[derive(Default)]
pub(super) struct Active {
    jobs: Mutex<BTreeMap<JobId, Running>>,
}

/// A job under way.
#[derive(Clone)]
struct Running {
    /// What it rewrites; `None` when it does something else.
    plan: Option<Arc<Plan>>,
    stop: Arc<Stop>,
}

impl Active {
    pub(super) fn enter(&self, job: &Job, stop: &Arc<Stop>) {
        let plan = matches!(job.kind, Kind::Rewrite).then(|| Arc::new(job.plan.clone()));
        self.lock().insert(job.id.clone(), Running { plan, stop: Arc::clone(stop) });
    }

    pub(super) fn remove(&self, job: &JobId) {
        self.lock().remove(job);
    }

    pub(super) fn contains(&self, job: &JobId) -> bool {
        self.lock().contains_key(job)
    }

    /// What a job rewrites.
    pub(super) fn plan(&self, job: &JobId) -> Option<Arc<Plan>> {
        self.lock().get(job)?.plan.clone()
    }

    /// Some rewrites of a table, with what stops them.
    pub(super) fn rewrites(&self, table: &TableName, of: impl Fn(&Plan) -> bool) -> Vec<(Arc<Plan>, Arc<Stop>)> {
        let jobs = self.lock();
        let rewrites = jobs.values().filter_map(|job| Some((job.plan.clone()?, Arc::clone(&job.stop))));
        rewrites.filter(|(plan, stop)| plan.name == *table && of(plan) && stop.overtaken().is_none()).collect()
    }

    /// Where rewrites are under way that nothing has overtaken: table, branch, and the
    /// snapshot that they were planned on.
    fn places(&self) -> BTreeSet<(TableName, String, i64)> {
        let jobs = self.lock();
        let rewrites = jobs.values().filter(|job| job.stop.overtaken().is_none()).filter_map(|job| job.plan.as_ref());
        rewrites.map(|plan| (plan.name.clone(), plan.reference.clone(), plan.snapshot_id)).collect()
    }

    /// A panic elsewhere leaves the map whole: each change is one call.
    fn lock(&self) -> MutexGuard<'_, BTreeMap<JobId, Running>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Act {
    /// Where rewrites are under way: table, branch, and the snapshot that they were
    /// planned on.
    pub fn under_way(&self) -> BTreeSet<(TableName, String, i64)> {
        self.active.places()
    }

    /// Writers win: stops those of these rewrites of a table that can no
    /// longer land, because an input of theirs is not live any more or the table is
    /// gone. Gives back how many. Without such a rewrite under way nothing is read.
    ///
    /// A rewrite whose commit is being asked for ends as the catalog says; deletes
    /// that came are for its commit to carry over, or to refuse.
    ///
    /// # Errors
    /// When the table cannot be read; no job is stopped for that.
    pub async fn yield_to_writers(&self, table: &TableName, of: impl Fn(&Plan) -> bool) -> Result<usize, Error> {
        let mut stopped = 0;
        for (plan, stop) in self.active.rewrites(table, of) {
            let now = match self.load(&plan).await? {
                None => Err(Conflict::TableGone),
                Some(now) => plan.late(&now.scope(&plan.scope).await?),
            };
            if let Err(by @ (Conflict::InputGone { .. } | Conflict::TableGone)) = now {
                tracing::info!(job = stop.job.0, %table, why = describe(&by), "a rewrite that can no longer land is stopped");
                stop.overtake(by);
                stopped += 1;
            }
        }
        Ok(stopped)
    }

    /// Looks at a table again and again, and yields to writers whenever it has moved: for
    /// whoever has no loop that looks. A look that fails is made again. Never ends.
    pub async fn keep_yielding(&self, seen: &TableView, every: Duration) -> Infallible {
        let mut at = seen.metadata_location.clone();
        loop {
            self.clock.sleep(every).await;
            let now = match self.format.glance_since(&seen.name, &seen.reference, Some(&at)).await {
                Ok(Glanced::Same) | Err(_) => continue,
                Ok(Glanced::At(table)) => table.view().metadata_location.clone(),
                Ok(Glanced::Gone) => String::new(),
            };
            if now != at && self.yield_to_writers(&seen.name, |_| true).await.is_ok() {
                at = now;
            }
        }
    }
}
