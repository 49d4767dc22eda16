//! A journal in memory, for simulations: it can be told to fail.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;

use super::{
    Blob, Change, Error, Holder, Journal, Kept, Pause, Pauses, Query, Result, Role, Step, check_attempt, check_holder, check_job, has_lease,
};
use crate::act::attempt::{Attempt, AttemptState};
use crate::act::job::{Job, JobState, Kind};
use crate::model::ident::TableIdent;
use crate::model::plan::{AttemptId, JobId};

/// See the module.
#[derive(Default)]
pub struct MemoryJournal {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    writes: u64,
    failing: BTreeSet<u64>,
    instance: Option<String>,
    holders: BTreeMap<String, Holder>,
    jobs: BTreeMap<JobId, Job>,
    kept: BTreeSet<JobId>,
    attempts: BTreeMap<AttemptId, Attempt>,
    files: BTreeMap<AttemptId, BTreeSet<String>>,
    pauses: BTreeSet<Pause>,
    blobs: BTreeMap<(String, String), Blob>,
    logs: BTreeMap<(String, String), BTreeMap<u64, Vec<u8>>>,
    places: BTreeSet<JobId>,
}

impl State {
    /// The unfinished jobs on a table of other processes that are entered and not dead.
    fn others<'a>(&'a self, table: &'a TableIdent, holder: &'a str, dead: &'a [String]) -> impl Iterator<Item = &'a Job> {
        let lives = move |other: &str| other != holder && self.holders.contains_key(other) && !dead.iter().any(|d| d == other);
        self.jobs.values().filter(move |j| j.plan.table == *table && !j.state.is_final() && lives(&j.holder))
    }
}

impl MemoryJournal {
    /// The `n`th write from now on (the first is 0) fails and writes nothing.
    pub fn fail_write(&self, n: u64) {
        let mut state = self.lock();
        let at = state.writes + n;
        state.failing.insert(at);
    }

    /// No write fails any more.
    pub fn mend(&self) {
        self.lock().failing.clear();
    }

    /// Writes so far, failed ones included.
    pub fn writes(&self) -> u64 {
        self.lock().writes
    }

    /// Every file for which some attempt answers.
    pub fn all_files(&self) -> BTreeSet<String> {
        self.lock().files.values().flatten().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> Result<MutexGuard<'_, State>> {
        let mut state = self.lock();
        let n = state.writes;
        state.writes += 1;
        if state.failing.remove(&n) {
            return Err(Error::Unavailable { path: "memory".into(), why: format!("write {n} was made to fail") });
        }
        Ok(state)
    }
}

#[async_trait]
impl Journal for MemoryJournal {
    async fn instance(&self, fresh: &str) -> Result<String> {
        Ok(self.write()?.instance.get_or_insert_with(|| fresh.into()).clone())
    }

    async fn claim(&self, holder: &Holder, dead: &[String]) -> Result<()> {
        let mut state = self.write()?;
        let other = state.holders.values().find(|h| h.role == Role::Serve && h.id != holder.id && !dead.contains(&h.id));
        if let (Role::Serve, Some(other)) = (holder.role, other) {
            return Err(Error::Held { holder: other.clone(), since_ms: holder.beat_ms - other.beat_ms });
        }
        state.holders.retain(|id, _| !dead.contains(id));
        state.holders.insert(holder.id.clone(), holder.clone());
        Ok(())
    }

    async fn beat(&self, holder: &str, now_ms: i64) -> Result<bool> {
        let mut state = self.lock();
        let entered = state.holders.get_mut(holder);
        Ok(entered.map(|holder| holder.beat_ms = now_ms).is_some())
    }

    async fn release(&self, holder: &str) -> Result<()> {
        self.write()?.holders.remove(holder);
        Ok(())
    }

    async fn holders(&self) -> Result<Vec<Holder>> {
        Ok(self.lock().holders.values().cloned().collect())
    }

    async fn request(&self, job: &Job, dead: &[String]) -> Result<bool> {
        let mut state = self.write()?;
        if job.state == JobState::Requested && state.others(&job.plan.table, &job.holder, dead).any(|o| has_lease(o, &job.plan)) {
            return Ok(false);
        }
        if state.jobs.contains_key(&job.id) || job.state != JobState::Requested {
            return Err(Error::Illegal { id: job.id.0.clone(), from: "absent".into(), to: job.state.code().into() });
        }
        state.jobs.insert(job.id.clone(), job.clone());
        Ok(true)
    }

    async fn take_place(&self, holder: &str, job: &JobId, dead: &[String]) -> Result<bool> {
        let mut state = self.write()?;
        let own = state.jobs.get(job).ok_or_else(|| Error::Absent(job.0.clone()))?;
        check_holder(job, &own.holder, holder)?;
        let table = own.plan.table;
        if state.others(&table, holder, dead).any(|o| state.places.contains(&o.id)) {
            return Ok(false);
        }
        state.places.insert(job.clone());
        Ok(true)
    }

    async fn leave_place(&self, holder: &str, job: &JobId) -> Result<()> {
        let mut state = self.write()?;
        if state.jobs.get(job).is_some_and(|j| j.holder == holder) {
            state.places.remove(job);
        }
        Ok(())
    }

    async fn advance(&self, step: Step<'_>) -> Result<()> {
        let mut state = self.write()?;
        let job = state.jobs.get_mut(step.job).ok_or_else(|| Error::Absent(step.job.0.clone()))?;
        check_holder(step.job, &job.holder, step.holder)?;
        check_job(step.job, job.state, step.to)?;
        let kept = job.state != step.to && step.to == JobState::Committed && job.kind == Kind::Rewrite;
        job.state = step.to;
        job.changed_ms = step.at_ms;
        job.note = step.note.into();
        if let Some(numbers) = step.numbers {
            job.numbers = numbers.clone();
        }
        if kept {
            state.kept.insert(step.job.clone());
        }
        Ok(())
    }

    async fn adopt(&self, job: &JobId, from: &str, to: &str) -> Result<()> {
        let mut state = self.write()?;
        if let Some(known) = state.jobs.get_mut(job).filter(|j| j.holder == from) {
            known.holder = to.into();
            state.places.remove(job);
        }
        Ok(())
    }

    async fn job(&self, id: &JobId) -> Result<Option<Job>> {
        Ok(self.lock().jobs.get(id).cloned())
    }

    async fn jobs(&self, query: Query) -> Result<Vec<Job>> {
        let state = self.lock();
        Ok(match query {
            Query::Unfinished => state.jobs.values().filter(|j| !j.state.is_final()).cloned().collect(),
            Query::Latest(n) => state.jobs.values().rev().take(usize::try_from(n).unwrap_or(usize::MAX)).cloned().collect(),
        })
    }

    async fn ask_cancel(&self, id: &JobId) -> Result<bool> {
        let mut state = self.write()?;
        let job = state.jobs.get_mut(id).ok_or_else(|| Error::Absent(id.0.clone()))?;
        if job.state.is_final() {
            return Ok(false);
        }
        job.cancel = true;
        Ok(true)
    }

    async fn is_cancelled(&self, id: &JobId) -> Result<bool> {
        Ok(self.lock().jobs.get(id).is_some_and(|j| j.cancel))
    }

    async fn begin(&self, holder: &str, attempt: &Attempt) -> Result<()> {
        let mut state = self.write()?;
        let job = state.jobs.get(&attempt.job).ok_or_else(|| Error::Absent(attempt.job.0.clone()))?;
        check_holder(&attempt.job, &job.holder, holder)?;
        if state.attempts.contains_key(&attempt.id) {
            return Err(Error::Illegal { id: attempt.id.0.clone(), from: "begun".into(), to: "begun".into() });
        }
        state.attempts.insert(attempt.id.clone(), attempt.clone());
        Ok(())
    }

    async fn step(&self, holder: &str, attempt: &AttemptId, to: &AttemptState) -> Result<()> {
        let mut guard = self.write()?;
        let state = &mut *guard;
        let known = state.attempts.get_mut(attempt).ok_or_else(|| Error::Absent(attempt.0.clone()))?;
        let job = state.jobs.get(&known.job).ok_or_else(|| Error::Absent(known.job.0.clone()))?;
        check_holder(&job.id, &job.holder, holder)?;
        check_attempt(attempt, &known.state, to)?;
        known.state = to.clone();
        if matches!(to, AttemptState::Landed { .. }) {
            state.files.remove(attempt);
        }
        Ok(())
    }

    async fn attempts(&self, job: &JobId) -> Result<Vec<Attempt>> {
        let mut attempts: Vec<Attempt> = self.lock().attempts.values().filter(|a| a.job == *job).cloned().collect();
        attempts.sort_by_key(|a| a.number);
        Ok(attempts)
    }

    async fn litter(&self) -> Result<Vec<Attempt>> {
        let state = self.lock();
        let has_files = |a: &&Attempt| state.files.get(&a.id).is_some_and(|f| !f.is_empty());
        Ok(state.attempts.values().filter(|a| a.state.is_lost()).filter(has_files).cloned().collect())
    }

    async fn name_file(&self, attempt: &AttemptId, path: &str) -> Result<()> {
        let mut state = self.write()?;
        if !state.attempts.contains_key(attempt) {
            return Err(Error::Absent(attempt.0.clone()));
        }
        state.files.entry(attempt.clone()).or_default().insert(path.into());
        Ok(())
    }

    async fn files(&self, attempt: &AttemptId) -> Result<Vec<String>> {
        Ok(self.lock().files.get(attempt).into_iter().flatten().cloned().collect())
    }

    async fn move_files(&self, from: &AttemptId, to: &AttemptId, paths: &[String]) -> Result<()> {
        let mut state = self.write()?;
        if !state.attempts.contains_key(to) {
            return Err(Error::Absent(to.0.clone()));
        }
        for path in paths {
            if state.files.get_mut(from).is_some_and(|files| files.remove(path)) {
                state.files.entry(to.clone()).or_default().insert(path.clone());
            }
        }
        Ok(())
    }

    async fn forget_files(&self, attempt: &AttemptId, paths: &[String]) -> Result<()> {
        let mut state = self.write()?;
        if let Some(files) = state.files.get_mut(attempt) {
            files.retain(|f| !paths.contains(f));
        }
        Ok(())
    }

    async fn pause(&self, pause: &Pause) -> Result<()> {
        let mut state = self.write()?;
        state.pauses.retain(|p| p.table != pause.table);
        state.pauses.insert(pause.clone());
        Ok(())
    }

    async fn resume(&self, table: Option<&TableIdent>) -> Result<bool> {
        let mut state = self.write()?;
        let before = state.pauses.len();
        state.pauses.retain(|p| p.table.as_ref() != table);
        Ok(state.pauses.len() < before)
    }

    async fn pauses(&self) -> Result<Pauses> {
        Ok(Pauses(self.lock().pauses.clone()))
    }

    async fn put_blob(&self, kind: &str, key: &str, blob: &Blob) -> Result<()> {
        let mut state = self.write()?;
        state.logs.remove(&(kind.into(), key.into()));
        state.blobs.insert((kind.into(), key.into()), blob.clone());
        Ok(())
    }

    async fn change_blob(&self, kind: &str, key: &str, change: &Change<'_>) -> Result<Option<Blob>> {
        let mut state = self.write()?;
        let at = (kind.to_owned(), key.to_owned());
        let after = change(state.blobs.get(&at))?;
        state.logs.remove(&at);
        Ok(match after {
            Some(after) => state.blobs.insert(at, after),
            None => state.blobs.remove(&at),
        })
    }

    async fn blob(&self, kind: &str, key: &str) -> Result<Option<Blob>> {
        Ok(self.lock().blobs.get(&(kind.into(), key.into())).cloned())
    }

    async fn drop_blob(&self, kind: &str, key: &str) -> Result<()> {
        let mut state = self.write()?;
        state.logs.remove(&(kind.into(), key.into()));
        state.blobs.remove(&(kind.into(), key.into()));
        Ok(())
    }

    async fn log_blob(&self, kind: &str, key: &str, at: u64, record: &[u8]) -> Result<()> {
        self.write()?.logs.entry((kind.into(), key.into())).or_default().insert(at, record.into());
        Ok(())
    }

    async fn blob_log(&self, kind: &str, key: &str) -> Result<Vec<Vec<u8>>> {
        let state = self.lock();
        Ok(state.logs.get(&(kind.into(), key.into())).into_iter().flat_map(|log| log.values().cloned()).collect())
    }

    async fn kept(&self) -> Result<Vec<Kept>> {
        let state = self.lock();
        let jobs = state.kept.iter().filter_map(|id| state.jobs.get(id));
        Ok(jobs
            .filter_map(|j| {
                let snapshot_id = j.numbers.snapshot_id?;
                Some(Kept {
                    table: j.plan.table,
                    job: j.id.clone(),
                    branch: j.numbers.branch.clone(),
                    snapshot_id,
                    bytes: j.numbers.bytes_in,
                })
            })
            .collect())
    }

    async fn forget_kept(&self, job: &JobId) -> Result<()> {
        self.write()?.kept.remove(job);
        Ok(())
    }

    async fn prune(&self, before_ms: i64) -> Result<u64> {
        let mut guard = self.write()?;
        let state = &mut *guard;
        let answers: BTreeSet<&JobId> =
            state.attempts.values().filter(|a| state.files.get(&a.id).is_some_and(|f| !f.is_empty())).map(|a| &a.job).collect();
        let gone: BTreeSet<JobId> = state
            .jobs
            .values()
            .filter(|j| j.state.is_final() && j.changed_ms < before_ms && !state.kept.contains(&j.id) && !answers.contains(&j.id))
            .map(|j| j.id.clone())
            .collect();
        state.jobs.retain(|id, _| !gone.contains(id));
        state.attempts.retain(|_, a| !gone.contains(&a.job));
        Ok(u64::try_from(gone.len()).unwrap_or(u64::MAX))
    }
}
