//! Jobs that people run beside the process, on the same journal: what they spend is
//! booked when they end. It is theirs to decide, so they are never held back for it.

use std::collections::BTreeSet;
use std::sync::{MutexGuard, PoisonError};

use crate::act::Spent;
use crate::act::job::first_id;
use crate::model::plan::JobId;
use crate::telemetry;

use super::Loop;

/// A job may show in the journal so much later than its id says, in milliseconds.
const LATE_MS: i64 = 60_000;

/// What of them is booked.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// When the journal was read last.
    read_ms: i64,
    /// Under way then.
    open: BTreeSet<JobId>,
    /// Booked, of those that the journal may tell of again.
    booked: BTreeSet<JobId>,
}

impl Known {
    /// Nothing of what came before is to be booked.
    pub(super) fn since(now_ms: i64) -> Self {
        Self { read_ms: now_ms, ..Self::default() }
    }

    /// The first job that is to be asked for.
    fn first(&self) -> JobId {
        let late = first_id(self.read_ms.saturating_sub(LATE_MS));
        self.open.first().cloned().map_or(late.clone(), |open| open.min(late))
    }

    /// Takes what the journal tells of jobs since [`Known::first`]; those that are to be
    /// booked.
    fn take(&mut self, mut spent: Vec<Spent>, now_ms: i64) -> Vec<Spent> {
        self.read_ms = now_ms;
        spent.retain(|spent| !self.booked.contains(&spent.job));
        let (ended, open): (Vec<Spent>, Vec<Spent>) = spent.into_iter().partition(|spent| spent.ended);
        self.open = open.into_iter().map(|spent| spent.job).collect();
        self.booked.extend(ended.iter().map(|spent| spent.job.clone()));
        let first = self.first();
        self.booked.retain(|job| *job >= first);
        ended
    }
}

impl Loop {
    /// Jobs that the budgets begin with, at their bound where they had not ended.
    pub(super) fn know_by_hand(&self, spent: &[Spent], now_ms: i64) {
        let booked = spent.iter().filter(|spent| spent.by_hand).map(|spent| spent.job.clone()).collect();
        *self.known_by_hand() = Known { booked, ..Known::since(now_ms) };
    }

    /// Books what jobs by hand have spent that ended since the last time.
    pub(super) async fn book_by_hand(&self) {
        let (now_ms, first) = (self.now(), self.known_by_hand().first());
        let spent = match self.parts.act.journal().spent_by_hand(&first).await {
            Ok(spent) => spent,
            Err(error) => {
                tracing::warn!(%error, "what jobs by hand have spent cannot be read: it is booked later");
                return;
            }
        };
        let ended = self.known_by_hand().take(spent, now_ms);
        for spending in ended.iter().map(|spent| self.spending(spent)) {
            if spending.used.commits > 0 {
                self.rewrote(spending.tenant.as_ref(), spending.used.bytes, spending.at_ms);
            }
            telemetry::budget_spent(spending.used.gb_hours);
            self.budget().book(&spending, now_ms);
        }
    }

    fn known_by_hand(&self) -> MutexGuard<'_, Known> {
        self.by_hand.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3_600_000;

    fn spent(job: &JobId, ended: bool) -> Spent {
        Spent { job: job.clone(), by_hand: true, ended, at_ms: 0, table: None, name: "t".into(), gb_hours: 1.0, bytes: 1, commits: true }
    }

    #[test]
    fn a_job_is_booked_once_when_it_ends_however_long_it_takes() {
        let mut known = Known::since(HOUR);
        let [long, short] = [HOUR + 10, HOUR + 20].map(first_id);
        assert_eq!(known.take(vec![spent(&long, false), spent(&short, true)], HOUR + 1_000), [spent(&short, true)]);
        assert_eq!(known.take(vec![spent(&long, false), spent(&short, true)], HOUR + 2_000), []);
        // it is still asked for when all that came with it is forgotten
        assert_eq!(known.take(vec![spent(&long, false)], 9 * HOUR), []);
        assert_eq!((known.first(), known.booked.len()), (long.clone(), 1));
        assert_eq!(known.take(vec![spent(&long, true), spent(&short, true)], 9 * HOUR + 1_000), [spent(&long, true)]);
        assert_eq!((known.first(), known.booked.len()), (first_id(9 * HOUR + 1_000 - LATE_MS), 0));
    }

    #[test]
    fn a_job_that_shows_late_is_found() {
        let mut known = Known::default();
        assert_eq!(known.take(vec![], HOUR), []);
        assert!(known.first() <= first_id(HOUR - LATE_MS));
    }
}
