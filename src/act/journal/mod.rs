//! The journal: what was asked for, what was begun, and where it stands.
//!
//! It is written before the deed, so that a crash at any point leaves a trace of
//! every file and every question to a catalog. It saves work; it does not carry
//! safety: without it, files that never landed are orphans, and commits are
//! validated all the same.

pub mod memory;
mod rows;
mod schema;
pub mod sqlite;

#[cfg(test)]
mod race_tests;
#[cfg(test)]
pub(crate) mod tests;

use std::collections::{BTreeSet, HashSet};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::attempt::{Attempt, AttemptState};
use super::job::{Job, JobState, Kind, Numbers, REQUEST};
use crate::model::ident::TableIdent;
use crate::model::plan::{AttemptId, JobId, Plan};

pub use memory::MemoryJournal;
pub use sqlite::SqliteJournal;

/// The result of a call to the journal.
pub type Result<T> = std::result::Result<T, Error>;

/// What can go wrong with a journal.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It cannot be opened, read or written now.
    #[error("{path}: {why}")]
    Unavailable {
        /// The journal.
        path: String,
        /// The cause.
        why: String,
    },
    /// A newer version of the product wrote it.
    #[error(
        "{path} was made by a newer version of afterwrite (schema {found}, this one knows {known}): use that version, or another journal"
    )]
    Newer {
        /// The journal.
        path: String,
        /// Its schema's version.
        found: i64,
        /// The newest schema known here.
        known: i64,
    },
    /// The file is something else.
    #[error("{path} is a database of another program, not a journal: give another path")]
    Foreign {
        /// The file.
        path: String,
    },
    /// Another process serves from the journal.
    #[error(
        "the journal is in use by another `serve` (process {} on {}, last heard {}): stop it, or use another journal",
        .holder.pid, .holder.host, heard(*.since_ms)
    )]
    Held {
        /// Who.
        holder: Holder,
        /// Milliseconds since its last beat.
        since_ms: i64,
    },
    /// A step that the state machine does not have: a defect, or another
    /// process ended the job first.
    #[error("`{id}` cannot go from {from} to {to}")]
    Illegal {
        /// The job or attempt.
        id: String,
        /// Its state.
        from: String,
        /// The state asked for.
        to: String,
    },
    /// Another process took the job over: this one must not touch it any more.
    #[error("job `{0}` was taken over by another process")]
    TakenOver(String),
    /// No job or attempt of that id.
    #[error("the journal has no job `{0}`: `jobs` lists them")]
    Absent(String),
    /// A record that cannot be written, or read back, exactly.
    #[error("record `{id}` is not readable: {why}")]
    Unreadable {
        /// Its key.
        id: String,
        /// The cause.
        why: String,
    },
}

impl From<Error> for crate::lake::Error {
    fn from(error: Error) -> Self {
        Self::Journal(error.to_string())
    }
}

fn heard(since_ms: i64) -> String {
    format!("{} s ago", since_ms.max(0) / 1000)
}

/// What a process does with the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Serves: at most one lives.
    Serve,
    /// Runs one command.
    Command,
}

/// A process that runs jobs of the journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// Random, new at every start.
    pub id: String,
    /// What it does.
    pub role: Role,
    /// Its machine.
    pub host: String,
    /// Its process id there.
    pub pid: u32,
    /// Its last sign of life, in milliseconds since the epoch.
    pub beat_ms: i64,
}

/// One step of a job.
#[derive(Clone, Debug)]
pub struct Step<'a> {
    /// The process that steps it: it must hold the job.
    pub holder: &'a str,
    /// The job.
    pub job: &'a JobId,
    /// Its next state.
    pub to: JobState,
    /// When, in milliseconds since the epoch.
    pub at_ms: i64,
    /// Why.
    pub note: &'a str,
    /// What it did; `None` leaves what is known.
    pub numbers: Option<&'a Numbers>,
}

/// Which jobs to list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Query {
    /// Those without a final state, oldest first.
    Unfinished,
    /// The last so many, newest first.
    Latest(u32),
}

/// A rewrite that ended, without its plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Ended {
    /// Its id.
    pub id: JobId,
    /// Its final state.
    pub state: JobState,
    /// When it ended, in milliseconds since the epoch.
    pub changed_ms: i64,
    /// What it did.
    pub numbers: Numbers,
}

/// A table, or everything, is left alone by hand.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Pause {
    /// The table; `None` pauses all.
    pub table: Option<TableIdent>,
    /// Its name when it was paused.
    pub label: String,
    /// Since when, in milliseconds since the epoch.
    pub at_ms: i64,
}

/// All pauses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Pauses(pub BTreeSet<Pause>);

impl Pauses {
    /// Whether a table is to be left alone.
    pub fn holds(&self, table: &TableIdent) -> bool {
        self.0.iter().any(|p| p.table.is_none_or(|t| t == *table))
    }
}

/// Bytes that a rewrite replaced and that older snapshots still keep alive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Kept {
    /// The table.
    pub table: TableIdent,
    /// The job.
    pub job: JobId,
    /// Its branch; empty for `main`.
    pub branch: String,
    /// Its snapshot.
    pub snapshot_id: i64,
    /// Bytes of the files that it replaced.
    pub bytes: u64,
}

/// What a rewrite cost, or may have cost where nobody noted more.
#[derive(Clone, Debug, PartialEq)]
pub struct Spent {
    /// The job.
    pub job: JobId,
    /// Whether somebody asked for it by hand.
    pub by_hand: bool,
    /// Whether it has ended, so that this is all.
    pub ended: bool,
    /// When it changed last, in milliseconds since the epoch.
    pub at_ms: i64,
    /// The table.
    pub table: Option<TableIdent>,
    /// Its name at the time.
    pub name: String,
    /// GB-hours: the bound, until they are known.
    pub gb_hours: f64,
    /// Bytes of the files that it replaced, or was to replace.
    pub bytes: u64,
    /// Whether it made a snapshot, or may have; one that several share is the first's.
    pub commits: bool,
}

impl Spent {
    fn of(job: &Job) -> Self {
        let numbers = &job.numbers;
        Self {
            job: job.id.clone(),
            by_hand: job.plan.reason == REQUEST,
            ended: job.state.is_final(),
            at_ms: job.changed_ms,
            table: Some(job.plan.table),
            name: job.plan.name.to_string(),
            gb_hours: if numbers.millis == 0 { job.plan.bound.gb_hours } else { numbers.gb_hours },
            bytes: numbers.bytes_in,
            commits: numbers.joined_to.is_none() && !matches!(job.state, JobState::Failed | JobState::Cancelled),
        }
    }
}

/// A stored value with the version of its encoding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blob {
    /// Version of the encoding, by its writer.
    pub version: u32,
    /// The value.
    pub bytes: Vec<u8>,
}

/// What becomes of a stored value; see [`Journal::change_blob`].
pub type Change<'a> = dyn Fn(Option<&Blob>) -> Result<Option<Blob>> + Sync + 'a;

/// The journal. Every write is durable when its call returns.
///
/// Only the process that holds a job steps it and its attempts. One that was
/// taken for dead and comes back is refused with [`Error::TakenOver`] before it
/// can ask a catalog: the files that it would commit may be gone.
#[async_trait]
pub trait Journal: Send + Sync {
    /// The lasting id of this instance; `fresh` becomes it when there is none.
    async fn instance(&self, fresh: &str) -> Result<String>;

    /// Enters a process and removes the dead ones. Errs with [`Error::Held`]
    /// when it would serve and another process that is not `dead` does.
    async fn claim(&self, holder: &Holder, dead: &[String]) -> Result<()>;
    /// A sign of life: `false` when the process is not entered, or no more.
    async fn beat(&self, holder: &str, now_ms: i64) -> Result<bool>;
    /// A process leaves.
    async fn release(&self, holder: &str) -> Result<()>;
    /// Every process entered.
    async fn holders(&self) -> Result<Vec<Holder>>;

    /// Enters a new job as it stands, which must be `requested`, and with it the
    /// lease on its inputs: `false`, and nothing is entered, while an unfinished job
    /// of another process has one of them. Processes that are not entered, or that
    /// are `dead`, lease nothing. One step: of two that ask at once, one is told so.
    async fn request(&self, job: &Job, dead: &[String]) -> Result<bool>;
    /// Steps a job. Errs with [`Error::Illegal`] where the state machine has no
    /// such step.
    async fn advance(&self, step: Step<'_>) -> Result<()>;
    /// Takes the table's one place to commit for a job: `false` while an unfinished
    /// job of another process that is entered and not `dead` has it. One step.
    async fn take_place(&self, holder: &str, job: &JobId, dead: &[String]) -> Result<bool>;
    /// Gives the place back, if the job has it. Its end, and its adoption, do too.
    async fn leave_place(&self, holder: &str, job: &JobId) -> Result<()>;
    /// Takes a job over from a dead process; does nothing when that does not hold it.
    async fn adopt(&self, job: &JobId, from: &str, to: &str) -> Result<()>;
    /// One job.
    async fn job(&self, id: &JobId) -> Result<Option<Job>>;
    /// Several jobs.
    async fn jobs(&self, query: Query) -> Result<Vec<Job>>;
    /// Asks that a job be stopped: `false` when it has ended already.
    async fn ask_cancel(&self, id: &JobId) -> Result<bool>;
    /// Whether somebody asked to stop a job.
    async fn is_cancelled(&self, id: &JobId) -> Result<bool>;

    /// Enters a new attempt.
    async fn begin(&self, holder: &str, attempt: &Attempt) -> Result<()>;
    /// Steps an attempt; one that landed no longer answers for its files.
    async fn step(&self, holder: &str, attempt: &AttemptId, to: &AttemptState) -> Result<()>;
    /// A job's attempts, by number.
    async fn attempts(&self, job: &JobId) -> Result<Vec<Attempt>>;
    /// Lost attempts that still answer for files.
    async fn litter(&self) -> Result<Vec<Attempt>>;

    /// A file is about to be begun.
    async fn name_file(&self, attempt: &AttemptId, path: &str) -> Result<()>;
    /// The files for which an attempt answers, ascending.
    async fn files(&self, attempt: &AttemptId) -> Result<Vec<String>>;
    /// Another attempt answers for some files from now on.
    async fn move_files(&self, from: &AttemptId, to: &AttemptId, paths: &[String]) -> Result<()>;
    /// Files are removed.
    async fn forget_files(&self, attempt: &AttemptId, paths: &[String]) -> Result<()>;

    /// Leaves a table, or all, alone.
    async fn pause(&self, pause: &Pause) -> Result<()>;
    /// Lifts a pause: `false` when there was none.
    async fn resume(&self, table: Option<&TableIdent>) -> Result<bool>;
    /// All pauses.
    async fn pauses(&self) -> Result<Pauses>;

    /// Stores a value, in place of the one before and of its log.
    async fn put_blob(&self, kind: &str, key: &str, blob: &Blob) -> Result<()>;
    /// Changes a value in one step: what `change` makes of what stands there is
    /// stored in its place, with an empty log; nothing is, where it makes `None`.
    /// Returns what stood there.
    async fn change_blob(&self, kind: &str, key: &str, change: &Change<'_>) -> Result<Option<Blob>>;
    /// Reads a value.
    async fn blob(&self, kind: &str, key: &str) -> Result<Option<Blob>>;
    /// Removes a value and its log.
    async fn drop_blob(&self, kind: &str, key: &str) -> Result<()>;
    /// Adds a record to a value's log, behind `at` others; one that stands there
    /// already is replaced.
    async fn log_blob(&self, kind: &str, key: &str, at: u64, record: &[u8]) -> Result<()>;
    /// A value's log, oldest record first.
    async fn blob_log(&self, kind: &str, key: &str) -> Result<Vec<Vec<u8>>>;

    /// What committed jobs replaced and snapshots keep alive.
    async fn kept(&self) -> Result<Vec<Kept>>;
    /// What a job replaced is no longer kept alive.
    async fn forget_kept(&self, job: &JobId) -> Result<()>;
    /// What rewrites cost that changed last at a time or later.
    async fn spent(&self, since_ms: i64) -> Result<Vec<Spent>> {
        let jobs = self.jobs(Query::Latest(u32::MAX)).await?;
        let rewrites = jobs.iter().filter(|job| job.kind == Kind::Rewrite && job.changed_ms >= since_ms);
        Ok(rewrites.map(Spent::of).collect())
    }
    /// What rewrites cost that were asked for by hand and entered under this id or a later
    /// one.
    async fn spent_by_hand(&self, from: &JobId) -> Result<Vec<Spent>> {
        let jobs = self.jobs(Query::Latest(u32::MAX)).await?;
        let rewrites = jobs.iter().filter(|job| job.kind == Kind::Rewrite && job.id >= *from);
        Ok(rewrites.map(Spent::of).filter(|spent| spent.by_hand).collect())
    }
    /// The rewrites of a table that ended, newest first, at most so many.
    async fn ended(&self, table: &TableIdent, most: u32) -> Result<Vec<Ended>> {
        let jobs = self.jobs(Query::Latest(u32::MAX)).await?.into_iter();
        let ended = jobs.filter(|job| job.kind == Kind::Rewrite && job.plan.table == *table && job.state.is_final());
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        Ok(ended.take(most).map(|job| Ended { id: job.id, state: job.state, changed_ms: job.changed_ms, numbers: job.numbers }).collect())
    }
    /// Drops ended jobs that changed last before a time, answer for no files
    /// and keep nothing alive. Returns how many.
    async fn prune(&self, before_ms: i64) -> Result<u64>;
}

/// Only the holder of a job touches it.
fn check_holder(id: &JobId, holds: &str, asks: &str) -> Result<()> {
    if holds == asks { Ok(()) } else { Err(Error::TakenOver(id.0.clone())) }
}

/// Whether a job has a lease that a plan needs. Two branches may replace the same files: each
/// in its own history.
fn has_lease(other: &Job, plan: &Plan) -> bool {
    let held: HashSet<&str> = other.plan.inputs.iter().map(|f| f.path.as_ref()).collect();
    let same = (other.plan.table, &other.plan.reference) == (plan.table, &plan.reference);
    same && !other.state.is_final() && plan.inputs.iter().any(|f| held.contains(f.path.as_ref()))
}

/// The gate of [`Journal::advance`].
pub(super) fn check_job(id: &JobId, from: JobState, to: JobState) -> Result<()> {
    if from.may_become(to) {
        return Ok(());
    }
    Err(Error::Illegal { id: id.0.clone(), from: from.code().into(), to: to.code().into() })
}

/// The gate of [`Journal::step`].
pub(super) fn check_attempt(id: &AttemptId, from: &AttemptState, to: &AttemptState) -> Result<()> {
    if from.may_become(to) {
        return Ok(());
    }
    Err(Error::Illegal { id: id.0.clone(), from: text(&id.0, from)?, to: text(&id.0, to)? })
}

/// A record as JSON.
pub(super) fn text<T: Serialize>(id: &str, value: &T) -> Result<String> {
    serde_json::to_string(value).map_err(|e| Error::Unreadable { id: id.into(), why: e.to_string() })
}

/// A record from JSON.
pub(super) fn parse<T: serde::de::DeserializeOwned>(id: &str, text: &str) -> Result<T> {
    serde_json::from_str(text).map_err(|e| Error::Unreadable { id: id.into(), why: e.to_string() })
}
