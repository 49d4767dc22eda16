//! Jobs: what was asked for, where it stands, and what came of it.

use serde::{Deserialize, Serialize};
use uuid::Builder;

use crate::lake::Proof;
use crate::lake::clock::{Chance, Clock};
use crate::model::estimate::{Estimate, Figures};
use crate::model::ident::TableName;
use crate::model::outcome::Conflict;
use crate::model::partition::PartitionKey;
use crate::model::plan::{AttemptId, JobId, Path, Plan};
use crate::model::refusal::Refused;
use crate::model::requests::Requests;

/// The reason of a plan that a user asked for by hand: it runs on a paused table.
pub const REQUEST: &str = "request";

/// Where a job stands. Every state that is not final has a way out: through the
/// job's own task while it runs, through recovery afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JobState {
    /// Journaled; nothing is written.
    Requested,
    /// Its files are being written, proven or committed.
    Inflight,
    /// A commit may have landed; nothing is deleted or tried again until it is known.
    Resolving,
    /// Its snapshot is in the table.
    Committed,
    /// Proven not to be in the table, or given up by hand.
    Failed,
    /// Stopped by hand, nothing is in the table.
    Cancelled,
}

impl JobState {
    /// All members.
    pub const ALL: [JobState; 6] = [Self::Requested, Self::Inflight, Self::Resolving, Self::Committed, Self::Failed, Self::Cancelled];

    /// The name in the journal and in listings.
    pub fn code(self) -> &'static str {
        match self {
            Self::Requested => "requested",
            Self::Inflight => "inflight",
            Self::Resolving => "resolving",
            Self::Committed => "committed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// The state of that name.
    pub fn from_code(code: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|s| s.code() == code)
    }

    /// Whether nothing follows.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Committed | Self::Failed | Self::Cancelled)
    }

    /// Whether a job may step from this state to `next`. Staying is a step too,
    /// so that a repeated write is harmless.
    pub fn may_become(self, next: Self) -> bool {
        use JobState::{Cancelled, Committed, Failed, Inflight, Requested, Resolving};
        self == next
            || match self {
                Requested => matches!(next, Inflight | Failed | Cancelled),
                Inflight => matches!(next, Resolving | Committed | Failed | Cancelled),
                Resolving => matches!(next, Inflight | Committed | Failed | Cancelled),
                Committed | Failed | Cancelled => false,
            }
    }
}

/// What a job does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Kind {
    /// Replaces the plan's inputs.
    Rewrite,
    /// Rolls the branch back from a rewrite's snapshot.
    Undo {
        /// The job whose snapshot it is.
        of: JobId,
        /// The snapshot.
        snapshot_id: i64,
    },
}

/// A journaled job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// Its id; sorts by the time of the request.
    pub id: JobId,
    /// What it does.
    pub kind: Kind,
    /// The plan; for an undo, the plan of the job undone.
    pub plan: Plan,
    /// Where it stands.
    pub state: JobState,
    /// The process that runs it: see [`Holder`](super::journal::Holder).
    pub holder: String,
    /// When it was asked for, in milliseconds since the epoch.
    pub requested_ms: i64,
    /// When it last changed its state.
    pub changed_ms: i64,
    /// Whether somebody asked to stop it.
    pub cancel: bool,
    /// Why it is in its state, in words.
    pub note: String,
    /// What it did; filled in with its final state.
    pub numbers: Numbers,
}

/// What a job did, beside what it was expected to do.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Numbers {
    /// The snapshot that it made.
    pub snapshot_id: Option<i64>,
    /// The partition as the table names it; empty until the table was loaded.
    #[serde(default)]
    pub partition: String,
    /// The branch, where it is another than `main`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub branch: String,
    /// The path taken.
    pub path: Option<Path>,
    /// Why that path.
    pub path_reason: String,
    /// Files replaced.
    pub files_in: u64,
    /// Files made.
    pub files_out: u64,
    /// Bytes of the files replaced.
    pub bytes_in: u64,
    /// Bytes of the files made.
    pub bytes_out: u64,
    /// Rows read, deleted ones included.
    pub rows_in: u64,
    /// Rows written.
    pub rows_out: u64,
    /// Rows that the plan's deletes removed.
    pub rows_deleted: u64,
    /// Bytes read from the store.
    pub bytes_read: u64,
    /// What was asked of object stores: by the rewrite, the proof and the tries to commit.
    #[serde(default)]
    pub requests: Requests,
    /// Wall time in milliseconds.
    pub millis: i64,
    /// Milliseconds until the outputs were written, from the start of writing.
    #[serde(default)]
    pub rewrite_millis: i64,
    /// Milliseconds of the proof alone, after the outputs were written.
    #[serde(default)]
    pub proof_millis: i64,
    /// Milliseconds from the proof until the snapshot landed, waits between tries included.
    #[serde(default)]
    pub commit_millis: i64,
    /// Peak resident memory of the process until the job's end, in bytes, where
    /// the system tells.
    pub peak_memory: Option<u64>,
    /// GB-hours reserved.
    pub gb_hours_bound: f64,
    /// GB-hours spent: memory limit × wall time, never more than the bound.
    pub gb_hours: f64,
    /// Rows of the inputs that were deleted while they were rewritten, and whose
    /// deletes the commit carried over to the outputs.
    #[serde(default)]
    pub deletes_carried: u64,
    /// The job whose snapshot this one's files are in, where it is another's: commits of
    /// several partitions that fall together share one.
    #[serde(default)]
    pub joined_to: Option<JobId>,
    /// Tries to commit.
    pub tries: u32,
    /// Tries that lost to another commit.
    pub conflicts: u32,
    /// Bytes made, or read, for nothing.
    pub wasted_bytes: u64,
    /// What the proof found equal.
    pub proof: Option<Proof>,
    /// What it was expected to do, where that was estimated.
    #[serde(default)]
    pub estimate: Option<Estimate>,
}

impl Numbers {
    /// What it did, in the figures that are estimated.
    pub fn figures(&self) -> Figures {
        Figures {
            files: self.files_in.saturating_sub(self.files_out) as f64,
            bytes: self.bytes_out as f64,
            seconds: seconds(self.millis),
            gb_hours: self.gb_hours,
        }
    }
}

/// What became of a job, by what the caller must do.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "verdict", rename_all = "kebab-case")]
pub enum Verdict {
    /// The snapshot is in the table.
    Committed,
    /// Files of the plan belong to another job: ask again later. Nothing was journaled.
    Busy,
    /// The table is paused. Nothing was journaled.
    Paused,
    /// Another sidecar has claimed the table.
    Claimed {
        /// Its instance.
        by: String,
        /// Until when, in milliseconds since the epoch.
        until_ms: i64,
    },
    /// The plan no longer fits the table: plan again.
    Replan {
        /// What moved.
        conflict: Conflict,
        /// Input bytes that the next plan of the scope should not pass, so that
        /// it ends between two commits of the writers; `None` when nothing was
        /// rewritten yet.
        max_bytes: Option<u64>,
    },
    /// The inputs, or the table, are gone: drop the work.
    Dropped {
        /// What moved.
        conflict: Conflict,
    },
    /// The case is left alone, by name.
    Refused {
        /// The reason.
        refused: Refused,
    },
    /// The outputs did not hold the inputs' rows. A defect: nothing was committed.
    Disproved {
        /// What was found unequal.
        error: String,
    },
    /// The catalog or the store did not answer.
    Unreachable {
        /// Which, and why.
        error: String,
    },
    /// It could not be done now.
    Failed {
        /// Why.
        error: String,
    },
    /// Its bound was reached.
    Stopped {
        /// Which.
        error: String,
    },
    /// Stopped by hand.
    Cancelled,
    /// The commit may have landed. Recovery looks again; nothing was deleted.
    Unresolved {
        /// Why it is not known.
        reason: String,
    },
}

impl Verdict {
    /// The state in which the journal keeps a job with this verdict.
    pub fn state(&self) -> JobState {
        match self {
            Self::Committed => JobState::Committed,
            Self::Cancelled => JobState::Cancelled,
            Self::Unresolved { .. } => JobState::Resolving,
            _ => JobState::Failed,
        }
    }

    /// What the journal notes of it.
    pub fn note(&self) -> String {
        match self {
            Self::Committed => "committed".into(),
            Self::Busy => "files of the plan belong to another job".into(),
            Self::Paused => "the table is paused".into(),
            Self::Claimed { by, until_ms } => {
                format!("another sidecar, instance {by}, has claimed the table until {until_ms} (milliseconds since the epoch)")
            }
            Self::Replan { conflict, .. } => format!("plan again: {}", describe(conflict)),
            Self::Dropped { conflict } => format!("dropped: {}", describe(conflict)),
            Self::Refused { refused } => refused.to_string(),
            Self::Disproved { error } | Self::Failed { error } | Self::Unreachable { error } | Self::Stopped { error } => error.clone(),
            Self::Cancelled => "cancelled by hand".into(),
            Self::Unresolved { reason } => format!("may have landed: {reason}"),
        }
    }
}

/// A conflict in words.
pub fn describe(conflict: &Conflict) -> String {
    match conflict {
        Conflict::MetadataMoved => "other commits kept arriving first".into(),
        Conflict::DeletesChanged { files } => format!("the deletes that apply to {} changed", files.join(", ")),
        Conflict::InputGone { files } => format!("{} is no longer live as planned", files.join(", ")),
        Conflict::ColumnsChanged { columns } => format!("the table's columns changed: {}", columns.join(", ")),
        Conflict::TableGone => "the table was dropped, or another one stands under its name".into(),
    }
}

/// The end of [`Act::run`](super::Act::run): one object a scope.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct JobResult {
    /// The job; `None` when nothing was journaled.
    pub job: Option<JobId>,
    /// The last attempt.
    pub attempt: Option<AttemptId>,
    /// The table.
    pub table: TableName,
    /// The partition.
    pub scope: PartitionKey,
    /// Why it was planned.
    pub reason: String,
    /// What became of it.
    #[serde(flatten)]
    pub verdict: Verdict,
    /// What it did.
    #[serde(flatten)]
    pub numbers: Numbers,
}

impl JobResult {
    /// The result of a plan for which nothing was journaled.
    pub fn unstarted(plan: &Plan, verdict: Verdict) -> Self {
        Self {
            job: None,
            attempt: None,
            table: plan.name.clone(),
            scope: plan.scope.clone(),
            reason: plan.reason.clone(),
            verdict,
            numbers: Numbers::default(),
        }
    }

    /// Wall time in seconds.
    pub fn seconds(&self) -> f64 {
        seconds(self.numbers.millis)
    }
}

/// Milliseconds in seconds.
pub fn seconds(millis: i64) -> f64 {
    millis as f64 / 1000.0
}

/// A new job id: its time, then chance.
pub fn new_id(clock: &dyn Clock, chance: &dyn Chance) -> JobId {
    let millis = u64::try_from(clock.now_ms()).unwrap_or(0);
    let wide = (u128::from(chance.next()) << 64) | u128::from(chance.next());
    let mut random = [0u8; 10];
    random.iter_mut().zip(wide.to_be_bytes()).for_each(|(to, from)| *to = from);
    JobId(Builder::from_unix_timestamp_millis(millis, &random).into_uuid().to_string())
}

/// An id that no job entered at a time or later comes before.
pub fn first_id(at_ms: i64) -> JobId {
    let millis = u64::try_from(at_ms).unwrap_or(0);
    JobId(Builder::from_unix_timestamp_millis(millis, &[0; 10]).into_uuid().to_string())
}

/// GB-hours of holding `memory` bytes for `millis`.
pub fn gb_hours(memory: u64, millis: i64) -> f64 {
    memory as f64 / 1e9 * millis.max(0) as f64 / 3_600_000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_final_state_is_never_left() {
        for from in JobState::ALL.into_iter().filter(|s| s.is_final()) {
            for to in JobState::ALL {
                assert_eq!(from.may_become(to), from == to, "{from:?} to {to:?}");
            }
        }
    }

    #[test]
    fn every_other_state_has_a_way_out() {
        for from in JobState::ALL.into_iter().filter(|s| !s.is_final()) {
            assert!(from.may_become(JobState::Failed));
            assert!(from.may_become(JobState::Cancelled));
        }
    }

    #[test]
    fn nothing_is_committed_that_was_not_in_flight() {
        assert!(!JobState::Requested.may_become(JobState::Committed));
        assert!(!JobState::Requested.may_become(JobState::Resolving));
    }

    #[test]
    fn codes_are_read_back() {
        for state in JobState::ALL {
            assert_eq!(JobState::from_code(state.code()), Some(state));
        }
        assert_eq!(JobState::from_code("done"), None);
    }

    #[test]
    fn ids_are_in_the_order_of_time() {
        use crate::lake::clock::{SystemChance, SystemClock};
        let before = SystemClock.now_ms();
        let id = new_id(&SystemClock, &SystemChance);
        let after = SystemClock.now_ms();
        assert!(first_id(before) <= id && id < first_id(after + 1), "{id:?}");
    }

    #[test]
    fn gb_hours_are_memory_times_time() {
        assert_eq!(gb_hours(2_000_000_000, 1_800_000), 1.0);
        assert_eq!(gb_hours(2_000_000_000, -5), 0.0);
    }
}
