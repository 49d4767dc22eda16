//! A commit gives way to clients that may be at a statement of their own, and is not made
//! in a table that somebody holds.

use std::time::Duration;

use async_trait::async_trait;

use super::job::{Kind, Verdict};
use super::{Act, Work};
use crate::model::ident::TableName;
use crate::model::plan::Plan;
use crate::model::table::TableView;

/// Until when the commit of a plan that is ready since a moment should wait,
/// as it looks now; `None` when nothing is in its way. Moments are in milliseconds since
/// the epoch.
pub type Courtesy = dyn Fn(&Plan, i64, i64) -> Option<i64> + Send + Sync;

/// Who knows whether a table is to be left alone.
#[async_trait]
pub trait Holds: Send + Sync {
    /// Whether no rewrite may commit to the table now, as it was just loaded. Asked before
    /// each try, since a hold may come after all that looked at it before.
    async fn holds(&self, table: &TableView) -> bool;
}

/// How often it is asked.
const EVERY: Duration = Duration::from_millis(100);

impl Act {
    /// Sets for whom commits wait; once.
    pub fn set_courtesy(&self, courtesy: Box<Courtesy>) {
        let _ = self.courtesy.set(courtesy);
    }

    /// Sets who knows what is held; once.
    pub fn set_holds(&self, holds: Box<dyn Holds>) {
        let _ = self.holds.set(holds);
    }

    /// Cancels a rewrite of a table, just loaded, that is held.
    ///
    /// # Errors
    /// The end of such a rewrite.
    pub(super) async fn heed_holds(&self, work: &Work, table: &TableView) -> Result<(), Verdict> {
        if let (Kind::Rewrite, Some(holds)) = (&work.job.kind, self.holds.get())
            && holds.holds(table).await
        {
            tracing::info!(job = work.job.id.0, table = %table.name, "the table is held: a rewrite that was ready is not committed");
            work.stop.cancel();
            return Err(Verdict::Cancelled);
        }
        Ok(())
    }

    /// Waits while somebody is in the way. What stops the job ends the waiting too: a
    /// writer that took the inputs away, its bound in time, somebody who cancels it.
    pub(super) async fn give_way(&self, work: &Work) -> Result<(), Verdict> {
        let Some(courtesy) = self.courtesy.get() else { return Ok(()) };
        let since_ms = self.clock.now_ms();
        loop {
            let now_ms = self.clock.now_ms();
            if courtesy(&work.job.plan, since_ms, now_ms).is_none_or(|until| until <= now_ms) {
                return Ok(());
            }
            if self.is_asked_to_stop(&work.job.id).await {
                work.stop.cancel();
            }
            work.stop.check(self.clock.elapsed_ms()).map_err(|e| self.halted(work, e))?;
            self.clock.sleep(EVERY).await;
        }
    }

    /// Asks every rewrite of a table to stop; gives back how many there are.
    pub fn stop_rewrites(&self, table: &TableName) -> usize {
        self.stop_rewrites_of(table, |_| true)
    }

    /// Asks these rewrites of a table to stop; gives back how many there are.
    pub fn stop_rewrites_of(&self, table: &TableName, of: impl Fn(&Plan) -> bool) -> usize {
        let rewrites = self.active.rewrites(table, of);
        rewrites.iter().for_each(|(_, stop)| stop.cancel());
        rewrites.len()
    }
}
