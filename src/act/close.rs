//! The end of a job: what its attempts add up to, and what goes with it.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use super::attempt::{Attempt, AttemptState, Loss, is_work};
use super::job::{Job, JobState, Numbers, Verdict};
use super::journal::{self, Step};
use super::{Act, Work};
use crate::lake::Table;
use crate::model::killpoint::KillPoint;
use crate::model::plan::AttemptId;

/// What the attempts of a job add up to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// One is in the table.
    Landed {
        /// Its snapshot.
        snapshot_id: i64,
    },
    /// One may be in the table.
    Open,
    /// One may be in the table, and nobody will look again.
    GivenUp,
    /// None is in the table, proven for each.
    Lost,
}

/// What the attempts of a job add up to. Only [`Ending::Lost`] lets outputs go. A claim
/// of which it is not known what became keeps a job open that has nothing in the table.
pub(super) fn ending(attempts: &[Attempt]) -> Ending {
    let mut ending = Ending::Lost;
    for attempt in attempts {
        match attempt.state {
            AttemptState::Landed { snapshot_id } => return Ending::Landed { snapshot_id },
            AttemptState::Committing { .. } => ending = Ending::Open,
            AttemptState::GivenUp if is_work(attempt.number) && ending == Ending::Lost => ending = Ending::GivenUp,
            _ => {}
        }
    }
    ending
}

impl Act {
    /// Closes a job of this process; the verdict that holds in the end.
    pub(super) async fn close(&self, work: &Work, verdict: Verdict) -> Verdict {
        let closed = self.close_by_journal(&work.job, &verdict, &work.numbers).await;
        match closed {
            Ok(state) => {
                if state.is_final() && !work.stop.hung.load(Ordering::Relaxed) {
                    self.tidy(work).await;
                }
                match state {
                    _ if state == verdict.state() => verdict,
                    JobState::Committed => Verdict::Committed,
                    JobState::Failed | JobState::Cancelled => Verdict::Failed { error: verdict.note() },
                    JobState::Requested | JobState::Inflight | JobState::Resolving => Verdict::Unresolved { reason: verdict.note() },
                }
            }
            Err(error) => {
                tracing::error!(job = work.job.id.0, %error, "a job's end could not be journaled; recovery will");
                if matches!(error, journal::Error::TakenOver(_)) {
                    self.name_again(work).await;
                }
                match verdict {
                    Verdict::Committed => Verdict::Unresolved { reason: format!("it landed, and the journal does not know: {error}") },
                    other => other,
                }
            }
        }
    }

    /// Journals the end that the attempts show; `verdict` only says why.
    ///
    /// Invariants checked: outputs are marked as lost only when every try to
    /// commit is proven lost or never asked; a job is committed only when one of
    /// its attempts landed; one that may have landed keeps the job open.
    ///
    /// Attempts are stepped before the job, so that a crash in between is closed
    /// by the same function again.
    pub(super) async fn close_by_journal(&self, job: &Job, verdict: &Verdict, numbers: &Numbers) -> journal::Result<JobState> {
        let attempts = self.journal.attempts(&job.id).await?;
        let mut numbers = numbers.clone();
        let mut note = verdict.note();
        let (rest, to) = match ending(&attempts) {
            Ending::Landed { snapshot_id } => {
                numbers.snapshot_id = Some(snapshot_id);
                note = Verdict::Committed.note();
                (Some(AttemptState::Landed { snapshot_id }), JobState::Committed)
            }
            // no commit of one that had not begun: its claim may have landed
            Ending::Open if job.state == JobState::Requested => (None, JobState::Requested),
            Ending::Open => (None, JobState::Resolving),
            Ending::GivenUp => {
                note = "given up: it is not known whether it landed; its files are left to orphan clean-up".into();
                (Some(AttemptState::GivenUp), JobState::Failed)
            }
            Ending::Lost => {
                let to = if *verdict == Verdict::Cancelled { JobState::Cancelled } else { JobState::Failed };
                (Some(AttemptState::Lost { loss: Loss::NeverAsked }), to)
            }
        };
        if let Some(rest) = rest {
            for attempt in attempts.iter().filter(|a| matches!(a.state, AttemptState::Writing | AttemptState::Verified)) {
                self.journal.step(&self.holder.id, &attempt.id, &own_end(attempt, &rest)).await?;
            }
        }
        let step = Step { holder: &self.holder.id, job: &job.id, to, at_ms: self.clock.now_ms(), note: &note, numbers: Some(&numbers) };
        self.journal.advance(step).await?;
        self.kill.reached(KillPoint::OutcomeJournaled);
        Ok(to)
    }

    /// Another process recovered this job while it was still at work. Files that
    /// were begun after they had been removed there are named again, so that the
    /// next recovery finds them; for an attempt that landed this changes nothing.
    async fn name_again(&self, work: &Work) {
        let named = std::mem::take(&mut *work.stop.named.lock().unwrap_or_else(PoisonError::into_inner));
        for (attempt, path) in named {
            if let Err(error) = self.journal.name_file(&attempt, &path).await {
                tracing::warn!(attempt = attempt.0, path, %error, "a file may be left to orphan clean-up");
            }
        }
    }

    /// Removes what the job's lost attempts left, as far as it can be reached now.
    async fn tidy(&self, work: &Work) {
        let Some(table) = &work.table else {
            return;
        };
        match self.journal.litter().await {
            Ok(litter) => {
                for attempt in litter.iter().filter(|a| a.job == work.job.id) {
                    if let AttemptState::Lost { loss } = &attempt.state
                        && !self.clean(table.as_ref(), &attempt.id, loss).await
                    {
                        break;
                    }
                }
            }
            Err(error) => tracing::warn!(job = work.job.id.0, %error, "left-over files stay until recovery"),
        }
    }

    /// Removes the files of an attempt that is proven not to have landed. What
    /// cannot be removed now stays journaled. Whether the store answered in time.
    ///
    /// A crash in between leaves all of them journaled; removing one twice is
    /// harmless.
    pub(super) async fn clean(&self, table: &dyn Table, attempt: &AttemptId, loss: &Loss) -> bool {
        let Some(proof) = loss.proof(attempt) else {
            return true;
        };
        let done = async {
            let files = self.journal.files(attempt).await?;
            let Some((first, rest)) = files.split_first() else {
                return Ok(());
            };
            table.remove_outputs(&proof, std::slice::from_ref(first)).await?;
            self.kill.reached(KillPoint::CleanupBegun);
            table.remove_outputs(&proof, rest).await?;
            self.journal.forget_files(attempt, &files).await?;
            Ok::<(), crate::lake::Error>(())
        };
        // what it came to, should it end in time
        let ended = self.within(self.settings.commit_for, async { Ok(done.await) }).await;
        let in_time = ended.is_ok();
        if let Err(error) = ended.and_then(|done| done) {
            tracing::warn!(attempt = attempt.0, %error, "left-over files stay until recovery");
        }
        in_time
    }
}

/// The end of an attempt that did not ask, when its job ends: outputs share the
/// fate of the tries, a try that never asked is lost in any case.
fn own_end(attempt: &Attempt, rest: &AttemptState) -> AttemptState {
    match attempt.number {
        0 => rest.clone(),
        _ => AttemptState::Lost { loss: Loss::NeverAsked },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::outcome::Resolution;
    use crate::model::plan::JobId;

    fn attempts(states: &[AttemptState]) -> Vec<Attempt> {
        let numbered = states.iter().zip(0u32..);
        numbered
            .map(|(s, number)| Attempt { id: AttemptId(format!("j.{number}")), job: JobId("j".into()), number, state: s.clone() })
            .collect()
    }

    fn lost() -> AttemptState {
        AttemptState::Lost { loss: Loss::Seen(Resolution::NotLanded) }
    }

    #[test]
    fn outputs_go_only_when_every_try_is_lost() {
        let committing = AttemptState::Committing { asserted: "m".into() };
        let verified = AttemptState::Verified;
        assert_eq!(ending(&attempts(&[verified.clone(), lost(), lost()])), Ending::Lost);
        assert_eq!(ending(&attempts(&[verified.clone(), lost(), committing.clone()])), Ending::Open);
        assert_eq!(ending(&attempts(&[verified.clone(), committing, AttemptState::GivenUp])), Ending::Open);
        assert_eq!(ending(&attempts(&[verified.clone(), AttemptState::GivenUp, lost()])), Ending::GivenUp);
        assert_eq!(ending(&attempts(&[verified, lost(), AttemptState::Landed { snapshot_id: 7 }])), Ending::Landed { snapshot_id: 7 });
        assert_eq!(ending(&[]), Ending::Lost);
    }

    #[test]
    fn a_try_that_never_asked_is_lost_beside_one_that_landed() {
        let all = attempts(&[AttemptState::Verified, AttemptState::Writing]);
        let landed = AttemptState::Landed { snapshot_id: 7 };
        let ends: Vec<AttemptState> = all.iter().map(|a| own_end(a, &landed)).collect();
        assert_eq!(ends, vec![landed, AttemptState::Lost { loss: Loss::NeverAsked }]);
    }
}
