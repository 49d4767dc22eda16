//! Taking a rewrite back, and what its files still cost.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::attempt::{self, Attempt, AttemptState, Loss};
use super::commit::{Effort, Look};
use super::control::Stop;
use super::job::{Job, JobResult, JobState, Kind, Numbers, Verdict};
use super::{Act, Work, journal, journal_failed};
use crate::lake::Table;
use crate::lake::asserted::Asserted;
use crate::model::ident::{TableIdent, beside_main};
use crate::model::killpoint::KillPoint;
use crate::model::location::Location;
use crate::model::outcome::Resolution;
use crate::model::plan::{AttemptId, JobId, Plan};
use crate::model::table::{SnapshotInfo, TableView};

/// Why a job cannot be undone.
#[derive(Debug, thiserror::Error)]
pub enum NotUndone {
    /// It made no snapshot.
    #[error("job `{job}` is {state} and made no snapshot: only committed rewrites are undone")]
    NotCommitted {
        /// The job.
        job: String,
        /// Its state.
        state: &'static str,
    },
    /// Other commits followed, or the table is gone.
    #[error("snapshot {snapshot_id} of job `{job}` is not the head of {table} any more: undoing it would take later commits back")]
    NotHead {
        /// The job.
        job: String,
        /// Its snapshot.
        snapshot_id: i64,
        /// The table.
        table: String,
    },
    /// The journal failed.
    #[error(transparent)]
    Journal(#[from] journal::Error),
    /// The lake failed.
    #[error(transparent)]
    Lake(#[from] crate::lake::Error),
}

impl Act {
    /// Rolls the branch back from a committed rewrite, while its snapshot is the
    /// head, and from those that share the snapshot with it. It is a job of its own, journaled and recovered like any other.
    ///
    /// Invariants checked: the rewrite is committed; its snapshot is the head of
    /// the branch, on a fresh load here and again by the commit.
    ///
    /// A crash leaves an undo job that recovery resolves by the branch's head. No
    /// file of the rewrite is removed: its snapshot still lists them.
    pub async fn undo(&self, job: &JobId) -> Result<JobResult, NotUndone> {
        let done = self.journal.job(job).await?.ok_or_else(|| journal::Error::Absent(job.0.clone()))?;
        let snapshot_id = match (done.state, &done.kind, done.numbers.snapshot_id) {
            (JobState::Committed, Kind::Rewrite, Some(id)) => id,
            _ => return Err(NotUndone::NotCommitted { job: job.0.clone(), state: done.state.code() }),
        };
        let head = self.within(self.settings.resolve_for, self.load(&done.plan)).await?.and_then(|t| t.view().head);
        if head != Some(snapshot_id) {
            return Err(NotUndone::NotHead { job: job.0.clone(), snapshot_id, table: done.plan.name.to_string() });
        }
        let kind = Kind::Undo { of: job.clone(), snapshot_id };
        let Some(mut work) = self.request(done.plan.clone(), kind, None).await? else {
            return Ok(JobResult::unstarted(&done.plan, Verdict::Busy));
        };
        work.numbers = Numbers { partition: done.numbers.partition, branch: done.numbers.branch, ..Numbers::default() };
        let ended = async {
            self.advance(&mut work, JobState::Inflight, "inflight").await?;
            self.kill.reached(KillPoint::Inflight);
            self.land(&mut work, &Effort::Undo { snapshot_id }).await
        };
        let ended = match ended.await {
            Err(verdict) => self.look_back(&work, verdict).await,
            landed => landed,
        };
        let result = self.settle(work, ended).await;
        if result.verdict == Verdict::Committed {
            self.forget_undone(done.plan.table, snapshot_id).await?;
        }
        Ok(result)
    }

    /// The other jobs whose files are in the snapshot of a job: undoing it undoes them too.
    /// None where the table does not list the snapshot.
    ///
    /// # Errors
    /// When the table or the journal cannot be read.
    pub async fn undone_with(&self, done: &Job) -> Result<Vec<Job>, NotUndone> {
        let table = self.within(self.settings.resolve_for, self.load(&done.plan)).await?;
        let snapshot = table.as_ref().zip(done.numbers.snapshot_id).and_then(|(t, id)| t.view().snapshots.get(&id));
        let mut others = Vec::new();
        for id in AttemptId::jobs(snapshot.and_then(|s| s.attempt.as_deref()).unwrap_or_default()) {
            if let Some(other) = self.journal.job(&id).await?.filter(|other| other.id != done.id) {
                others.push(other);
            }
        }
        Ok(others)
    }

    /// What the rewrites of a snapshot replaced is live again.
    pub(super) async fn forget_undone(&self, table: TableIdent, snapshot_id: i64) -> journal::Result<()> {
        for kept in self.journal.kept().await? {
            if kept.table == table && kept.snapshot_id == snapshot_id {
                self.journal.forget_kept(&kept.job).await?;
            }
        }
        Ok(())
    }

    /// Carries on with an undo that a process left, which may be asked for again. What
    /// comes of it is in the journal.
    pub(super) async fn undo_again(&self, job: &Job, attempts: &[Attempt]) {
        let Kind::Undo { snapshot_id, .. } = job.kind else { return };
        let stop = Arc::new(Stop::new(job.id.clone(), self.clock.elapsed_ms(), job.plan.bound.millis, None));
        self.active.enter(job, &stop);
        let tries = attempts.iter().map(|attempt| attempt.number).filter(|number| attempt::is_work(*number)).max().unwrap_or(0);
        let mut work = Work {
            stop,
            numbers: Numbers { tries, ..job.numbers.clone() },
            job: job.clone(),
            attempt: None,
            table: None,
            shared: false,
            alone: true,
            active: Arc::clone(&self.active),
        };
        let ended = match self.land(&mut work, &Effort::Undo { snapshot_id }).await {
            Err(verdict) => self.look_back(&work, verdict).await,
            landed => landed,
        };
        if let Err(verdict) = ended {
            tracing::warn!(job = job.id.0, table = %job.plan.name, outcome = verdict.note(), "an interrupted undo was asked for again and did not land");
        }
    }

    /// What became of the tries that were asked again, now that the last has ended so: an
    /// earlier one may have landed, for which the last was refused.
    async fn look_back(&self, work: &Work, verdict: Verdict) -> Result<i64, Verdict> {
        for attempt in self.journal.attempts(&work.job.id).await.map_err(journal_failed)? {
            let AttemptState::Committing { asserted } = &attempt.state else { continue };
            let look = self.look(&work.job.plan, &work.job.kind, &attempt.id, asserted);
            let next = match self.within(self.settings.resolve_for, look).await {
                Ok(Look::Seen(Resolution::Landed { snapshot_id }, _)) => AttemptState::Landed { snapshot_id },
                Ok(Look::Seen(resolution @ Resolution::NotLanded, _)) => AttemptState::Lost { loss: Loss::Seen(resolution) },
                _ => continue,
            };
            self.journal.step(&self.holder.id, &attempt.id, &next).await.map_err(journal_failed)?;
            if let AttemptState::Landed { snapshot_id } = next {
                return Ok(snapshot_id);
            }
        }
        Err(verdict)
    }

    /// Forgets what snapshots no longer keep alive, by a fresh view of the
    /// branch: the files that a rewrite replaced are kept while its parent is listed, or a
    /// snapshot off the branch, of another branch or a tag, which may name them too.
    pub async fn forget_expired(&self, view: &TableView) -> journal::Result<()> {
        let branch = beside_main(&view.reference).unwrap_or_default();
        for kept in self.journal.kept().await? {
            if kept.table == view.ident && *kept.branch == *branch && !keeps(view, kept.snapshot_id) {
                self.journal.forget_kept(&kept.job).await?;
            }
        }
        Ok(())
    }
}

/// Whether the files that a snapshot replaced may be kept alive: by its parent, or by a
/// snapshot that does not descend from what the branch still lists of its history.
fn keeps(view: &TableView, snapshot_id: i64) -> bool {
    let parent = view.snapshots.get(&snapshot_id).and_then(|s| s.parent);
    if parent.is_some_and(|p| view.snapshots.contains_key(&p)) {
        return true;
    }
    let mut line = BTreeSet::new();
    let mut next = view.head;
    while let Some(snapshot) = next.and_then(|id| view.snapshots.get(&id)).filter(|s| line.insert(s.id)) {
        next = snapshot.parent;
    }
    view.snapshots.values().any(|snapshot| {
        let (mut at, mut steps) = (Some(snapshot), 0);
        // a circle of parents ends nowhere
        while let Some(s) = at.filter(|s| !line.contains(&s.id) && steps <= view.snapshots.len()) {
            (at, steps) = (s.parent.and_then(|parent| view.snapshots.get(&parent)), steps + 1);
        }
        at.is_none_or(|s| !line.contains(&s.id))
    })
}

/// Whether an undo whose answer was lost may be asked for again before it is known what
/// became of the first: by a catalog that compares heads. Both take the branch from the
/// same snapshot to the same parent, so the second to arrive is refused; neither has a
/// file; and there is no means by which the first could be shut out of a table that
/// stands still.
pub(super) fn may_ask_again(kind: &Kind, asserted: &str) -> bool {
    matches!(kind, Kind::Undo { .. }) && Asserted::parse(asserted).head.is_some()
}

/// Where an undo stands that wrote the files `named`: it makes no snapshot.
///
/// Where the metadata file is ours to write, and the table still knows which
/// metadata followed the asserted one, that tells: it is the undo's, or it is not and never will be. Else the branch's
/// history does. The undo landed when the snapshot has left the branch. It did
/// not, and cannot any more, when the pointer has left the asserted base and the
/// snapshot is still in the branch. A history that is cut behind a snapshot as old as the
/// one that the rewrite was `planned` on shows that too; one that is cut before leaves it
/// open.
pub(super) fn find(table: &dyn Table, snapshot_id: i64, planned: &Plan, asserted: &str, named: &[String]) -> Resolution {
    let view = table.view();
    let planned = planned.sequence_number;
    if is_older(view.last_sequence_number, planned) {
        return Resolution::Open { reason: "the table is shown as it was before the rewrite that was to be undone".into() };
    }
    let asserted = Asserted::parse(asserted);
    // a catalog that compares heads writes the metadata itself, under a name that we do not know
    if let Some(head) = asserted.head {
        return by_branch((view.head, &view.snapshots), snapshot_id, planned, view.head == head.snapshot_id);
    }
    let asserted = asserted.metadata_location.as_str();
    if let Some(next) = successor(&table.history(), &view.metadata_location, asserted) {
        return if is_among(named, &next) { Resolution::Landed { snapshot_id } } else { Resolution::NotLanded };
    }
    by_branch((view.head, &view.snapshots), snapshot_id, planned, view.metadata_location == asserted)
}

/// The metadata location that followed the asserted one; `None` when none has,
/// or it is not known.
pub(super) fn successor(history: &[String], current: &str, asserted: &str) -> Option<String> {
    let at = history.iter().position(|location| location == asserted)?;
    let next = history.iter().map(String::as_str).chain([current]).nth(at.checked_add(1)?)?;
    (next != asserted).then(|| next.to_owned())
}

/// Whether a location is one of the paths, however these are spelled.
pub(super) fn is_among(paths: &[String], location: &str) -> bool {
    paths.iter().any(|path| Location::parse(path) == Location::parse(location))
}

/// Whether a table that has given out this number does not hold a rewrite that was planned
/// on one yet; in format 1 all have none.
fn is_older(last: i64, planned: i64) -> bool {
    planned > 0 && last <= planned
}

fn by_branch((head, snapshots): (Option<i64>, &BTreeMap<i64, SnapshotInfo>), snapshot_id: i64, planned: i64, stands: bool) -> Resolution {
    let mut at = head;
    let mut steps = 0;
    while let Some(id) = at.filter(|_| steps <= snapshots.len()) {
        if id == snapshot_id {
            return match stands {
                true => Resolution::Open { reason: "the table has not moved since, the request may still arrive".into() },
                false => Resolution::NotLanded,
            };
        }
        match snapshots.get(&id) {
            // a parent has the lower number, in format 1 all have none
            Some(snapshot) if planned > 0 && snapshot.sequence_number <= planned => break,
            Some(snapshot) => at = snapshot.parent,
            None => return Resolution::Open { reason: "the history is cut before the snapshot that was to be undone".into() },
        }
        steps += 1;
    }
    Resolution::Landed { snapshot_id }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::table::Operation;

    #[test]
    fn a_branch_that_is_as_old_as_the_plan_without_the_snapshot_has_left_it() {
        let info = |id, parent, sequence_number| SnapshotInfo {
            id,
            parent: Some(parent),
            sequence_number,
            timestamp_ms: 0,
            operation: Operation::Append,
            attempt: None,
            instance: None,
            engine: None,
        };
        // the rewrite 40, planned on 30, was to be undone; what is older than 30 has expired
        let of =
            |all: &[(i64, i64, i64)]| all.iter().map(|(id, parent, number)| (*id, info(*id, *parent, *number))).collect::<BTreeMap<_, _>>();
        let landed = Resolution::Landed { snapshot_id: 40 };
        let left = of(&[(30, 20, 3), (40, 30, 4), (50, 30, 5)]);
        assert_eq!(by_branch((Some(30), &left), 40, 3, false), landed);
        assert_eq!(by_branch((Some(50), &left), 40, 3, false), landed);
        let stays = of(&[(40, 30, 4), (50, 40, 5)]);
        assert_eq!(by_branch((Some(50), &stays), 40, 3, false), Resolution::NotLanded);
        assert!(matches!(by_branch((Some(40), &stays), 40, 3, true), Resolution::Open { .. }));
        // cut above the plan: it may have been in between
        assert!(matches!(by_branch((Some(60), &of(&[(60, 50, 6)])), 40, 3, false), Resolution::Open { .. }));
        // numbers that tell nothing
        assert!(matches!(by_branch((Some(30), &of(&[(30, 20, 0)])), 40, 0, false), Resolution::Open { .. }));
    }

    #[test]
    fn a_table_from_before_the_rewrite_tells_nothing_of_its_undo() {
        assert!(is_older(3, 3) && is_older(2, 3));
        assert!(!is_older(4, 3) && !is_older(0, 0));
    }

    #[test]
    fn what_followed_the_asserted_metadata_is_read_from_the_log() {
        let log = ["m1", "m2", "m3"].map(String::from);
        let next = |asserted| successor(&log, "m4", asserted);
        assert_eq!(["m1", "m3", "m4", "m0"].map(next), [Some("m2".into()), Some("m4".into()), None, None]);
        assert_eq!(successor(&[], "m4", "m4"), None);
    }
}
