//! Tries to commit, and looks at those whose outcome is not known.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::attempt::{self, AttemptState, Loss};
use super::backoff::Backoff;
use super::control::Watch;
use super::job::{Job, JobState, Verdict};
use super::join::{Asked, Turn};
use super::{Act, Work, journal_failed, undo};
use crate::lake::{Commit, Error, Table, Written};
use crate::model::killpoint::KillPoint;
use crate::model::outcome::{Conflict, Outcome, Resolution};
use crate::model::plan::AttemptId;
use crate::model::table::TableView;

/// What is to be committed.
pub(super) enum Effort<'a> {
    /// The outputs of a plan in place of its inputs.
    Rewrite {
        /// The outputs.
        written: &'a Arc<Written>,
    },
    /// The branch goes back from a snapshot to its parent.
    Undo {
        /// The snapshot.
        snapshot_id: i64,
    },
}

/// What a try came to.
pub(super) enum Tried {
    /// The catalog's answer, journaled.
    Answered(Outcome),
    /// It may have landed.
    Unknown { reason: String },
    /// The catalog could not be reached and was not asked.
    NotAsked(Error),
}

/// What a look at an attempt shows.
pub(super) enum Look {
    /// The table tells.
    Seen(Resolution, Arc<dyn Table>),
    /// The table is gone, or another one stands under its name.
    Gone,
}

impl Act {
    /// Tries until the effort has landed, cannot land, or its time is over. Each
    /// try is on a fresh load, and is known to have landed or not before the
    /// next begins, but for those that may be asked twice.
    pub(super) async fn land(&self, work: &mut Work, effort: &Effort<'_>) -> Result<i64, Verdict> {
        let until = self.after(self.settings.commit_for);
        let mut waits = Backoff::new(self.settings.wait, self.settings.longest_wait);
        loop {
            // tries that are answered at once leave no time for the look beside them
            if self.is_asked_to_stop(&work.job.id).await {
                work.stop.cancel();
            }
            work.stop.check(self.clock.elapsed_ms()).map_err(|e| self.halted(work, e))?;
            work.shared = false;
            let tried = self.try_in_turn(work, effort).await?;
            // no rewrite fails by another's
            work.alone |= work.shared && !matches!(&tried, Some(Tried::Answered(Outcome::Conflict(_))));
            let last = match tried {
                None => Verdict::Replan { conflict: Conflict::MetadataMoved, max_bytes: None },
                Some(Tried::Answered(Outcome::Landed { snapshot_id })) => return Ok(snapshot_id),
                Some(Tried::Answered(Outcome::Conflict(conflict))) => self.after_conflict(work, conflict)?,
                Some(Tried::Answered(Outcome::Rejected { reason })) if work.shared => Verdict::Failed { error: reason },
                Some(Tried::Answered(Outcome::Rejected { reason })) => return Err(Verdict::Failed { error: reason }),
                Some(Tried::Answered(Outcome::Unknown { reason }) | Tried::Unknown { reason }) => {
                    if let Some(snapshot_id) = self.resolve(work, reason).await? {
                        return Ok(snapshot_id);
                    }
                    Verdict::Failed { error: "the commit did not land".into() }
                }
                Some(Tried::NotAsked(error)) => self.halted(work, error),
            };
            if self.clock.elapsed_ms() >= until {
                return Err(last);
            }
            self.clock.sleep(waits.next(self.chance.next())).await;
        }
    }

    /// One try from the table's one place to commit, of this process and of all that
    /// share the journal; `None` while another process has it. Another job that has the place
    /// may take this one along.
    ///
    /// Should the journal not take the place back, the job's end does.
    async fn try_in_turn(&self, work: &mut Work, effort: &Effort<'_>) -> Result<Option<Tried>, Verdict> {
        work.stop.carried.store(0, Ordering::Relaxed);
        let _here = match self.turn(work, effort).await {
            Turn::Own(place) => place,
            Turn::Taken(answer) => return self.taken_along(work, answer).await.map(Some),
        };
        let dead = self.dead_holders().await.map_err(journal_failed)?;
        if !self.journal.take_place(&self.holder.id, &work.job.id, &dead).await.map_err(journal_failed)? {
            return Ok(None);
        }
        let tried = self.try_once(work, effort).await;
        if let Err(error) = self.journal.leave_place(&self.holder.id, &work.job.id).await {
            tracing::warn!(job = work.job.id.0, %error, "the place to commit is kept until the job ends");
        }
        tried.map(Some)
    }

    /// Whether a conflict is worth another try; what to say if it was the last.
    fn after_conflict(&self, work: &mut Work, conflict: Conflict) -> Result<Verdict, Verdict> {
        work.numbers.conflicts += 1;
        match conflict {
            Conflict::MetadataMoved => Ok(Verdict::Replan { conflict, max_bytes: None }),
            Conflict::DeletesChanged { .. } => Err(Verdict::Replan { conflict, max_bytes: Some((work.job.plan.input_bytes() / 2).max(1)) }),
            Conflict::ColumnsChanged { .. } => Err(Verdict::Replan { conflict, max_bytes: None }),
            Conflict::InputGone { .. } | Conflict::TableGone => Err(Verdict::Dropped { conflict }),
        }
    }

    /// One try, with its own attempt, for the job and those that it takes along.
    ///
    /// An error after the catalog may have been asked is an unknown outcome. A
    /// crash inside is told apart by the journal: `writing` was never asked,
    /// `committing` is resolved.
    async fn try_once(&self, work: &mut Work, effort: &Effort<'_>) -> Result<Tried, Verdict> {
        let table = match self.read(&work.stop, self.load(&work.job.plan)).await {
            Ok(Some(table)) => table,
            Ok(None) => return Err(Verdict::Dropped { conflict: Conflict::TableGone }),
            Err(error @ Error::Unreachable { .. }) => return Ok(Tried::NotAsked(error)),
            Err(error) => return Err(self.halted(work, error)),
        };
        work.turn_to(&table);
        self.heed_holds(work, table.view()).await?;
        work.numbers.tries += 1;
        let id = attempt::id(&work.job.id, work.numbers.tries);
        self.begin(work, &id, work.numbers.tries).await?;
        let taken = self.take_along(work, effort).await;
        work.shared = !taken.is_empty();
        let stop = Arc::clone(&work.stop);
        let watch = Watch::new(self, &stop, &id, false);
        let commit =
            Commit { attempt: &id, instance: &self.instance, control: &watch, now_ms: self.clock.now_ms(), nonce: self.chance.next() };
        let (told, others) = match effort {
            Effort::Undo { snapshot_id } => (self.watched(&stop, table.undo(*snapshot_id, &commit)).await, None),
            Effort::Rewrite { written } if taken.is_empty() => {
                (self.watched(&stop, table.commit(&work.job.plan, written, &commit)).await, None)
            }
            Effort::Rewrite { written } => {
                let (own, others) = self.commit_with(work, &table, written, &commit, taken).await;
                (own, Some(others))
            }
        };
        self.kill.reached(KillPoint::CatalogAnswered);
        let first = watch.asked().then(|| work.job.id.clone());
        let asked = match others {
            None => Asked { asked: watch.asked(), first },
            Some(others) => Asked { asked: watch.asked(), first: self.tell(&table, others, first) },
        };
        self.conclude(work, table.as_ref(), &id, asked, told).await
    }

    /// Journals what became of a try.
    pub(super) async fn conclude(
        &self,
        work: &mut Work,
        table: &dyn Table,
        id: &AttemptId,
        asked: Asked,
        told: crate::lake::Result<Outcome>,
    ) -> Result<Tried, Verdict> {
        let Asked { asked, first } = asked;
        work.numbers.joined_to = first.filter(|first| asked && *first != work.job.id);
        match told {
            Ok(Outcome::Unknown { reason }) => self.unknown(work, table.view(), id, asked, reason).await,
            Err(error) if asked => self.unknown(work, table.view(), id, asked, error.to_string()).await,
            Ok(outcome) => {
                self.answered(work, table, id, &outcome).await?;
                Ok(Tried::Answered(outcome))
            }
            Err(error) => {
                self.lose(work, table, id, Loss::NeverAsked).await?;
                match error {
                    Error::Unreachable { .. } | Error::NotFound { .. } => Ok(Tried::NotAsked(error)),
                    error => Err(self.halted(work, error)),
                }
            }
        }
    }

    /// Journals the catalog's answer, then removes what it proved lost.
    async fn answered(&self, work: &mut Work, table: &dyn Table, id: &AttemptId, outcome: &Outcome) -> Result<(), Verdict> {
        match outcome {
            Outcome::Landed { snapshot_id } => {
                let landed = AttemptState::Landed { snapshot_id: *snapshot_id };
                self.journal.step(&self.holder.id, id, &landed).await.map_err(journal_failed)?;
                self.kill.reached(KillPoint::OutcomeJournaled);
                Ok(())
            }
            _ => self.lose(work, table, id, Loss::Answered(outcome.clone())).await,
        }
    }

    pub(super) async fn lose(&self, work: &Work, table: &dyn Table, id: &AttemptId, loss: Loss) -> Result<(), Verdict> {
        self.journal.step(&self.holder.id, id, &AttemptState::Lost { loss: loss.clone() }).await.map_err(journal_failed)?;
        self.kill.reached(KillPoint::OutcomeJournaled);
        if !work.stop.hung.load(Ordering::Relaxed) {
            // what hangs is not tried again by this job
            let hangs = !self.clean(table, id, &loss).await;
            work.stop.hung.fetch_or(hangs, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Journals that the outcome is not known. A catalog that answered without
    /// our having been told that it would be asked counts as asked.
    async fn unknown(&self, work: &mut Work, base: &TableView, id: &AttemptId, asked: bool, reason: String) -> Result<Tried, Verdict> {
        if !asked {
            let committing = AttemptState::Committing { asserted: base.metadata_location.clone() };
            self.journal.step(&self.holder.id, id, &committing).await.map_err(journal_failed)?;
        }
        self.advance(work, JobState::Resolving, &format!("may have landed: {reason}")).await?;
        Ok(Tried::Unknown { reason })
    }

    /// Looks at the table until it shows whether the last try landed: its
    /// snapshot, or `None` when it is proven not to have, or may be asked again. A
    /// try that the table leaves open for half of the time is shut out from then on,
    /// so that the job has time left to make it anew. Deletes nothing before.
    async fn resolve(&self, work: &mut Work, reason: String) -> Result<Option<i64>, Verdict> {
        let (until, half) = (self.after(self.settings.resolve_for), self.after(self.settings.resolve_for / 2));
        let mut waits = Backoff::new(self.settings.wait, self.settings.longest_wait);
        let id = attempt::id(&work.job.id, work.numbers.tries);
        let attempts = self.journal.attempts(&work.job.id).await.map_err(journal_failed)?;
        let asserted = attempts.into_iter().find_map(|a| match a.state {
            AttemptState::Committing { asserted } if a.id == id => Some(asserted),
            _ => None,
        });
        let Some(asserted) = asserted else {
            return Err(Verdict::Unresolved { reason });
        };
        loop {
            let left = until.saturating_sub(self.clock.elapsed_ms()).max(millis(self.settings.longest_wait));
            let left = Duration::from_millis(u64::try_from(left).unwrap_or(0));
            let mut seen = self.within(left, self.look(&work.job.plan, &work.job.kind, &id, &asserted)).await;
            let wait = waits.next(self.chance.next());
            let next = self.after(wait);
            let is_last = next > until;
            if let (true, Ok(Look::Seen(Resolution::Open { .. }, table))) = (next > half, &seen) {
                match self.shut_out(&work.job, table.as_ref(), &id, &asserted).await {
                    Ok(Some(found)) => seen = Ok(found),
                    Ok(None) => {}
                    Err(error) => tracing::warn!(job = work.job.id.0, %error, "a commit that may have landed could not be shut out yet"),
                }
            }
            let open = match seen {
                Ok(Look::Seen(Resolution::Landed { snapshot_id }, _)) => {
                    self.journal.step(&self.holder.id, &id, &AttemptState::Landed { snapshot_id }).await.map_err(journal_failed)?;
                    self.kill.reached(KillPoint::OutcomeJournaled);
                    return Ok(Some(snapshot_id));
                }
                Ok(Look::Seen(resolution @ Resolution::NotLanded, table)) => {
                    self.lose(work, table.as_ref(), &id, Loss::Seen(resolution)).await?;
                    self.advance(work, JobState::Inflight, "the last try did not land").await?;
                    return Ok(None);
                }
                Ok(Look::Seen(Resolution::Open { reason }, _)) if undo::may_ask_again(&work.job.kind, &asserted) => {
                    self.advance(work, JobState::Inflight, &format!("asked again: {reason}")).await?;
                    return Ok(None);
                }
                Ok(Look::Seen(Resolution::Open { reason }, _)) => reason,
                Ok(Look::Gone) => "the table is gone, or another one stands under its name".into(),
                Err(error) => error.to_string(),
            };
            if is_last {
                let (job, table) = (&work.job.id.0, &work.job.plan.name);
                tracing::error!(job, %table, attempt = id.0, reason, open, "a commit may have landed and cannot be told yet");
                return Err(Verdict::Unresolved { reason: format!("{reason}; {open}") });
            }
            if let Err(error) = self.beat().await {
                tracing::warn!(%error, "no sign of life could be given");
            }
            self.clock.sleep(wait).await;
        }
    }

    /// Shuts out an attempt that the table leaves open, and looks once more: what is
    /// seen then is final. `None` when it cannot be shut out, and stays open.
    ///
    /// # Errors
    /// Those of the catalog: nothing is proven.
    pub(super) async fn shut_out(&self, job: &Job, table: &dyn Table, id: &AttemptId, asserted: &str) -> Result<Option<Look>, Error> {
        let work = async {
            if !table.fence(asserted).await? {
                return Ok(None);
            }
            Ok(Some(match self.look(&job.plan, &job.kind, id, asserted).await? {
                Look::Seen(Resolution::Open { .. }, table) => Look::Seen(Resolution::NotLanded, table),
                told => told,
            }))
        };
        self.within(self.settings.resolve_for, work).await
    }

    /// The moment after a time, on the clock that nobody sets.
    pub(super) fn after(&self, time: Duration) -> i64 {
        self.clock.elapsed_ms().saturating_add(millis(time))
    }
}

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}
