//! Claims on tables, before their first byte is read: see [`crate::model::claim`].

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;

use super::attempt::{self, Attempt, AttemptState, Loss};
use super::backoff::Backoff;
use super::job::{Job, REQUEST};
use super::{Act, Verdict, Work, journal, journal_failed, undo};
use crate::lake::{Control, Marked, Result as LakeResult, Table};
use crate::model::claim::{Claim, key, of_another, over, own_until_ms};
use crate::model::killpoint::KillPoint;
use crate::model::outcome::{Conflict, Outcome, Resolution};
use crate::model::plan::AttemptId;

/// A claim lasts this much longer than the bound of the job it is made for, so that the
/// jobs that follow need none of their own.
const BEYOND_MS: i64 = 600_000;
/// What a job may still take after its bound: tries to commit, and the look at an
/// outcome that is not known.
const AFTER_BOUND_MS: i64 = 300_000;
/// A claim that ends sooner is as good as over: another may be written before it is longer.
const SOON_MS: i64 = 60_000;
/// Times a claim is written before the work is left for later.
const TRIES: u32 = 6;

impl Act {
    /// Makes sure that no other sidecar rewrites in the table while this job does, where
    /// the settings say that there may be one; a job that somebody asked for by hand
    /// asks nobody. Gives the table back as it stands then.
    ///
    /// A claim that turns out not to be alone is taken back, and tried again after a wait
    /// by chance: two that wrote theirs at once do not meet for ever. One that stood before
    /// serves other jobs too: it is made longer, and never taken back, since whoever writes
    /// one beside it sees it.
    pub(super) async fn claim(&self, work: &mut Work, table: Arc<dyn Table>) -> Result<Arc<dyn Table>, Verdict> {
        if !self.settings.claims || work.job.plan.reason == REQUEST {
            return Ok(table);
        }
        // one at a time: two jobs write the same property
        let _turn = self.leases.committer(work.job.plan.table).await;
        let mut waits = Backoff::new(self.settings.wait, self.settings.longest_wait);
        let mut wrote = false;
        for number in 0..=TRIES {
            let fresh = self.read(&work.stop, self.load(&work.job.plan)).await.map_err(|e| self.halted(work, e))?;
            let table = fresh.ok_or(Verdict::Dropped { conflict: Conflict::TableGone })?;
            work.turn_to(&table);
            self.settle_claims(&work.job, table.as_ref()).await.map_err(journal_failed)?;
            if number == TRIES {
                break;
            }
            let now_ms = self.clock.now_ms();
            let properties = &table.view().properties;
            let needed_ms = now_ms.saturating_add(work.job.plan.bound.millis).saturating_add(AFTER_BOUND_MS);
            let own_ms = own_until_ms(properties, &self.instance, now_ms);
            let stood = !wrote && own_ms.is_some_and(|until| until >= now_ms.saturating_add(SOON_MS));
            match of_another(properties, &self.instance, now_ms) {
                // a claim that was there first
                Some(other) if !wrote => return Err(claimed(other)),
                Some(_) => {
                    self.mark(work, table.as_ref(), number, &BTreeMap::new(), &[key(&self.instance)]).await?;
                    wrote = false;
                    self.clock.sleep(waits.next(self.chance.next())).await;
                }
                None if own_ms.is_some_and(|until| until >= needed_ms) => return Ok(table),
                None => {
                    let until = needed_ms.saturating_add(BEYOND_MS).to_string();
                    let set = BTreeMap::from([(key(&self.instance), until)]);
                    wrote |= self.mark(work, table.as_ref(), number, &set, &over(properties, now_ms)).await? && !stood;
                }
            }
        }
        Err(Verdict::Replan { conflict: Conflict::MetadataMoved, max_bytes: None })
    }

    /// Writes a claim, or takes it back. Gives back whether it may stand.
    async fn mark(
        &self,
        work: &mut Work,
        table: &dyn Table,
        number: u32,
        set: &BTreeMap<String, String>,
        remove: &[String],
    ) -> Result<bool, Verdict> {
        let id = attempt::claim_id(&work.job.id, number);
        let entered = Attempt { id: id.clone(), job: work.job.id.clone(), number: attempt::CLAIM, state: AttemptState::Writing };
        self.journal.begin(&self.holder.id, &entered).await.map_err(journal_failed)?;
        let control = Marking { act: self, work, attempt: &id };
        let marked = self.watched(&work.stop, table.mark(set, remove, &control)).await.map_err(|e| self.halted(work, e))?;
        let lost = match marked {
            Marked::Landed => {
                self.settled(&id).await.map_err(journal_failed)?;
                return Ok(true);
            }
            Marked::Unknown { .. } => return Ok(true),
            Marked::Moved => Outcome::Conflict(Conflict::MetadataMoved),
            Marked::Rejected { reason } => Outcome::Rejected { reason },
        };
        self.lose(work, table, &id, Loss::Answered(lost.clone())).await?;
        match lost {
            Outcome::Rejected { reason } => Err(Verdict::Failed {
                error: format!(
                    "the claim on the table cannot be written into its properties, without which no sidecar of several may rewrite there: {reason}"
                ),
            }),
            _ => Ok(false),
        }
    }

    /// Looks what became of claims of which it is not known, on a fresh load: the file of
    /// one that the table has not, and can have no more, goes. Gives back whether all are
    /// known.
    ///
    /// # Errors
    /// Those of the journal.
    pub(super) async fn settle_claims(&self, job: &Job, table: &dyn Table) -> journal::Result<bool> {
        let mut known = true;
        for attempt in self.journal.attempts(&job.id).await? {
            let (attempt::CLAIM, AttemptState::Committing { asserted }) = (attempt.number, &attempt.state) else { continue };
            let files = self.journal.files(&attempt.id).await?;
            match self.find_claim(table, asserted, &files).await {
                Found::Ours => self.settled(&attempt.id).await?,
                // its file goes with what the job leaves
                Found::Lost => {
                    let loss = Loss::Seen(Resolution::NotLanded);
                    self.journal.step(&self.holder.id, &attempt.id, &AttemptState::Lost { loss }).await?;
                }
                Found::Cut => self.journal.step(&self.holder.id, &attempt.id, &AttemptState::GivenUp).await?,
                Found::Open => known = false,
            }
        }
        Ok(known)
    }

    /// Where a claim stands that wrote these files. One that may still arrive is shut out.
    async fn find_claim(&self, table: &dyn Table, asserted: &str, files: &[String]) -> Found {
        // the catalog writes the metadata itself, and nothing of ours can be left
        if files.is_empty() {
            return Found::Ours;
        }
        let stands = &table.view().metadata_location;
        if undo::is_among(files, stands) {
            return Found::Ours;
        }
        match undo::successor(&table.history(), stands, asserted) {
            Some(next) if undo::is_among(files, &next) => Found::Ours,
            Some(_) => Found::Lost,
            None if stands == asserted => match self.within(self.settings.resolve_for, table.fence(asserted)).await {
                Ok(true) => Found::Lost,
                Ok(false) => Found::Open,
                Err(error) => {
                    tracing::warn!(table = %table.view().name, %error, "a claim whose answer was lost could not be shut out yet");
                    Found::Open
                }
            },
            None => Found::Cut,
        }
    }

    /// The file of a claim that stands is the table's.
    async fn settled(&self, id: &AttemptId) -> journal::Result<()> {
        let files = self.journal.files(id).await?;
        self.journal.forget_files(id, &files).await?;
        self.journal.step(&self.holder.id, id, &AttemptState::GivenUp).await
    }
}

/// What became of a claim.
enum Found {
    /// It stood: the table has its file.
    Ours,
    /// Another commit came first.
    Lost,
    /// It may still arrive.
    Open,
    /// The table has forgotten what followed.
    Cut,
}

fn claimed(other: Claim) -> Verdict {
    Verdict::Claimed { by: other.instance, until_ms: other.until_ms }
}

/// The control of a claim. Its metadata file is journaled like any other.
struct Marking<'a> {
    act: &'a Act,
    work: &'a Work,
    attempt: &'a AttemptId,
}

#[async_trait]
impl Control for Marking<'_> {
    async fn will_write(&self, path: &str) -> LakeResult<()> {
        Ok(self.act.journal.name_file(self.attempt, path).await?)
    }

    async fn will_commit(&self, asserted: &str) -> LakeResult<()> {
        self.check()?;
        let asked = AttemptState::Committing { asserted: asserted.to_owned() };
        Ok(self.act.journal.step(&self.act.holder.id, self.attempt, &asked).await?)
    }

    fn check(&self) -> LakeResult<()> {
        self.work.stop.check(self.act.clock.elapsed_ms())
    }

    fn progress(&self, _rows: u64, _bytes: u64) {}

    fn reached(&self, point: KillPoint) {
        self.act.kill.reached(point);
    }
}
