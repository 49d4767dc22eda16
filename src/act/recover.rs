//! Recovery: what a crash, a lost answer or a failed clean-up left behind.

use std::collections::HashMap;
use std::sync::Arc;

use serde::Serialize;

use super::attempt::{Attempt, AttemptState, Loss, is_work};
use super::commit::Look;
use super::job::{Job, JobState, Kind, Verdict};
use super::journal::{self, Holder, Journal, Query, Role};
use super::{Act, process, undo};
use crate::lake::clock::Clock;
use crate::lake::{Error, Table};
use crate::model::outcome::Resolution;
use crate::model::plan::{AttemptId, JobId, Plan};

/// What a recovery found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Recovered {
    /// Jobs whose snapshot turned out to be in the table.
    pub committed: Vec<JobId>,
    /// Jobs proven not to have landed, or given up by hand.
    pub ended: Vec<JobId>,
    /// Jobs that may have landed: an alarm while there are any.
    pub open: Vec<JobId>,
    /// Attempts whose files could not be removed yet: the store is out of reach,
    /// or the table is gone.
    pub litter: Vec<AttemptId>,
}

impl Act {
    /// Closes every job that nobody works on any more. Due at the start, and
    /// again at each interval; running it twice changes nothing.
    ///
    /// Invariants checked: a job of a living process is left alone; an attempt
    /// that may have asked the catalog is resolved on a fresh load before
    /// anything is removed, and shut out where it could still land; nothing is
    /// removed without proof. A job is taken over
    /// before it is looked at, so that a process that was only slow can no longer
    /// commit files that are removed here.
    ///
    /// A crash in between is taken up by the next recovery.
    pub async fn recover(&self) -> journal::Result<Recovered> {
        let mut recovered = Recovered::default();
        let dead = self.dead_holders().await?;
        for job in self.journal.jobs(Query::Unfinished).await? {
            if !self.is_left(&job, &dead).await? {
                continue;
            }
            self.journal.adopt(&job.id, &job.holder, &self.holder.id).await?;
            let list = match self.recover_job(&job).await {
                Ok(JobState::Committed) => &mut recovered.committed,
                Ok(JobState::Failed | JobState::Cancelled) => &mut recovered.ended,
                Ok(JobState::Requested | JobState::Inflight | JobState::Resolving) => &mut recovered.open,
                // another recovery was faster
                Err(journal::Error::TakenOver(_)) => continue,
                Err(error) => return Err(error),
            };
            list.push(job.id);
        }
        self.remove_litter(&dead).await?;
        recovered.litter = self.journal.litter().await?.into_iter().map(|a| a.id).collect();
        Ok(recovered)
    }

    /// Whether nobody works on a job.
    pub(super) async fn is_left(&self, job: &Job, dead: &[String]) -> journal::Result<bool> {
        if job.holder == self.holder.id {
            return Ok(!self.active.contains(&job.id));
        }
        Ok(dead.contains(&job.holder) || !self.journal.holders().await?.iter().any(|h| h.id == job.holder))
    }

    /// Resolves what may have been asked, then closes the job.
    async fn recover_job(&self, job: &Job) -> journal::Result<JobState> {
        let patience = self.settings.resolve_for;
        let mut reason = String::from("interrupted");
        let mut again = false;
        self.recover_claims(job).await?;
        let attempts = self.journal.attempts(&job.id).await?;
        for attempt in attempts.iter().filter(|attempt| is_work(attempt.number)) {
            let AttemptState::Committing { asserted } = &attempt.state else {
                continue;
            };
            let next = match self.within(patience, self.look(&job.plan, &job.kind, &attempt.id, asserted)).await {
                Ok(Look::Seen(Resolution::Landed { snapshot_id }, _)) => Some(AttemptState::Landed { snapshot_id }),
                Ok(Look::Seen(resolution @ Resolution::NotLanded, _)) => Some(AttemptState::Lost { loss: Loss::Seen(resolution) }),
                Ok(Look::Gone) => Some(AttemptState::GivenUp),
                Ok(Look::Seen(Resolution::Open { reason: open }, table)) => {
                    match self.shut_out(job, table.as_ref(), &attempt.id, asserted).await {
                        Ok(Some(Look::Seen(Resolution::Landed { snapshot_id }, _))) => Some(AttemptState::Landed { snapshot_id }),
                        Ok(Some(Look::Seen(resolution, _))) => Some(AttemptState::Lost { loss: Loss::Seen(resolution) }),
                        Ok(Some(Look::Gone)) => Some(AttemptState::GivenUp),
                        fenced => {
                            reason = fenced.err().map_or(open, |error| error.to_string());
                            again |= undo::may_ask_again(&job.kind, asserted);
                            job.cancel.then_some(AttemptState::GivenUp)
                        }
                    }
                }
                Err(error) => {
                    reason = error.to_string();
                    None
                }
            };
            match next {
                Some(next) => self.journal.step(&self.holder.id, &attempt.id, &next).await?,
                None => {
                    let (id, table) = (&job.id.0, &job.plan.name);
                    tracing::error!(job = id, %table, attempt = attempt.id.0, reason, "a commit may have landed and cannot be told yet");
                }
            }
        }
        if again && !job.cancel {
            self.undo_again(job, &attempts).await;
        }
        let verdict = if job.cancel { Verdict::Cancelled } else { Verdict::Failed { error: reason } };
        let state = self.close_by_journal(job, &verdict, &job.numbers).await?;
        if let (JobState::Committed, Kind::Undo { snapshot_id, .. }) = (state, &job.kind) {
            self.forget_undone(job.plan.table, *snapshot_id).await?;
        }
        Ok(state)
    }

    /// Looks what became of a job's claims; those of a table that is gone, or of a job
    /// that is given up by hand, are given up.
    async fn recover_claims(&self, job: &Job) -> journal::Result<()> {
        let asked = |attempt: &Attempt| !is_work(attempt.number) && matches!(attempt.state, AttemptState::Committing { .. });
        if !self.journal.attempts(&job.id).await?.iter().any(asked) {
            return Ok(());
        }
        let done = match self.within(self.settings.resolve_for, self.load(&job.plan)).await {
            Ok(Some(table)) => self.settle_claims(job, table.as_ref()).await? || !job.cancel,
            Ok(None) => false,
            Err(error) => {
                tracing::warn!(job = job.id.0, %error, "what became of a claim cannot be told yet");
                !job.cancel
            }
        };
        if !done {
            for attempt in self.journal.attempts(&job.id).await?.iter().filter(|attempt| asked(attempt)) {
                self.journal.step(&self.holder.id, &attempt.id, &AttemptState::GivenUp).await?;
            }
        }
        Ok(())
    }

    /// A fresh look for an attempt.
    pub(super) async fn look(&self, plan: &Plan, kind: &Kind, attempt: &AttemptId, asserted: &str) -> Result<Look, Error> {
        let Some(table) = self.load(plan).await? else {
            return Ok(Look::Gone);
        };
        let resolution = match kind {
            Kind::Rewrite => table.trace_attempt(attempt, asserted).await?,
            Kind::Undo { snapshot_id, .. } => {
                let named = self.journal.files(attempt).await?;
                undo::find(table.as_ref(), *snapshot_id, plan, asserted, &named)
            }
        };
        Ok(Look::Seen(resolution, table))
    }

    /// Removes the files of lost attempts, of jobs that nobody works on.
    async fn remove_litter(&self, dead: &[String]) -> journal::Result<()> {
        let mut tables: HashMap<String, Option<Arc<dyn Table>>> = HashMap::new();
        for attempt in self.journal.litter().await? {
            let AttemptState::Lost { loss } = &attempt.state else {
                continue;
            };
            let Some(job) = self.journal.job(&attempt.job).await? else {
                continue;
            };
            if !self.is_left(&job, dead).await? {
                continue;
            }
            let key = format!("{} {}", job.plan.table, job.plan.name);
            if !tables.contains_key(&key) {
                let table = self.within(self.settings.resolve_for, self.load(&job.plan)).await.unwrap_or_else(|error| {
                    tracing::warn!(table = %job.plan.name, %error, "left-over files stay until the table can be loaded");
                    None
                });
                tables.insert(key.clone(), table);
            }
            if let Some(Some(table)) = tables.get(&key) {
                self.clean(table.as_ref(), &attempt.id, loss).await;
            }
        }
        Ok(())
    }

    /// The entered processes that are dead.
    pub(super) async fn dead_holders(&self) -> journal::Result<Vec<String>> {
        let holders = self.journal.holders().await?;
        let now = self.clock.now_ms();
        let ttl = i64::try_from(self.settings.holder_ttl.as_millis()).unwrap_or(i64::MAX);
        let dead = |h: &Holder| h.id != self.holder.id && is_dead(h, &self.holder, now, ttl, process::is_alive);
        Ok(holders.into_iter().filter(dead).map(|h| h.id).collect())
    }
}

/// The unfinished jobs that nobody works on: what a process left that is dead or
/// gone. The next recovery closes them.
pub async fn interrupted(journal: &dyn Journal, clock: &dyn Clock) -> journal::Result<Vec<JobId>> {
    let looker = Holder { id: String::new(), role: Role::Command, host: process::host(), pid: process::pid(), beat_ms: 0 };
    let ttl = i64::try_from(super::Settings::default().holder_ttl.as_millis()).unwrap_or(i64::MAX);
    let holders = journal.holders().await?;
    let lives = |holder: &Holder| !is_dead(holder, &looker, clock.now_ms(), ttl, process::is_alive);
    let works = |job: &Job| holders.iter().any(|h| h.id == job.holder && lives(h));
    Ok(journal.jobs(Query::Unfinished).await?.into_iter().filter(|job| !works(job)).map(|job| job.id).collect())
}

/// Whether another process is dead: silent for too long, or gone from this machine.
fn is_dead(other: &Holder, own: &Holder, now_ms: i64, ttl_ms: i64, is_alive: impl Fn(u32) -> bool) -> bool {
    let silent = now_ms.saturating_sub(other.beat_ms) > ttl_ms;
    let here = !own.host.is_empty() && other.host == own.host;
    silent || (here && (other.pid == own.pid || !is_alive(other.pid)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holder(id: &str, host: &str, pid: u32) -> Holder {
        Holder { id: id.into(), role: Role::Serve, host: host.into(), pid, beat_ms: 1_000 }
    }

    #[test]
    fn a_process_is_dead_when_silent_or_gone_from_this_machine() {
        let own = holder("me", "here", 10);
        let dead = |other: Holder, now: i64, alive: bool| is_dead(&other, &own, now, 5_000, |_| alive);
        assert!(!dead(holder("a", "here", 11), 6_000, true));
        assert!(dead(holder("a", "here", 11), 6_001, true));
        assert!(dead(holder("a", "here", 11), 1_000, false));
        assert!(dead(holder("a", "here", 10), 1_000, true));
        assert!(!dead(holder("a", "there", 10), 6_000, false));
        assert!(dead(holder("a", "there", 10), 6_001, false));
    }
}
