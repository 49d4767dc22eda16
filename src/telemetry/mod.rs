//! Every metric and span name, once. Elsewhere nothing is recorded but through
//! the functions of this module, so that a name, a label or a unit can be looked
//! up, changed and documented in one place.

mod log;
mod names;
mod proxy;
pub mod span;

pub use log::{Format, init as init_log};
pub use names::{ALL, Kind, Metric};
pub use proxy::{Healed, proxy_answered, proxy_healed, proxy_scanned, proxy_untapped};

use metrics::{counter, gauge, histogram};
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder};
use names::*;

use crate::model::decision::{Reason, Verdict};
use crate::model::event::{Door, Heard};
use crate::model::outcome::{Conflict, Outcome};
use crate::model::plan::Path;
use crate::model::requests::Requests;

/// Buckets of durations, in seconds.
const SECONDS: [f64; 14] = [0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 300.0, 1800.0];

/// A recorder with this project's buckets, not yet installed.
///
/// # Errors
/// When a bucket list is empty, which it is not.
pub fn recorder() -> Result<PrometheusRecorder, BuildError> {
    let builder = PrometheusBuilder::new().set_buckets_for_metric(Matcher::Suffix("_seconds".into()), &SECONDS)?;
    Ok(builder.build_recorder())
}

/// Installs the recorder of the process and describes every metric.
///
/// # Errors
/// When the process has a recorder already.
pub fn install() -> anyhow::Result<PrometheusHandle> {
    let recorder = recorder()?;
    let handle = recorder.handle();
    metrics::set_global_recorder(recorder).map_err(|_| anyhow::anyhow!("this process records its metrics elsewhere already"))?;
    describe_all();
    Ok(handle)
}

/// Tells the recorder the kind and meaning of every metric, and makes those
/// without labels appear at zero.
pub fn describe_all() {
    for metric in ALL {
        match metric.kind {
            Kind::Counter => metrics::describe_counter!(metric.name, metric.help),
            Kind::Gauge => metrics::describe_gauge!(metric.name, metric.help),
            Kind::Histogram => metrics::describe_histogram!(metric.name, metric.help),
        }
        match (metric.labelled, metric.kind) {
            (false, Kind::Counter) => counter!(metric.name).absolute(0),
            (false, Kind::Gauge) => gauge!(metric.name).set(0.0),
            _ => {}
        }
    }
}

/// An event was heard at a door.
pub fn event_heard(door: Door, heard: Heard) {
    let result = match heard {
        Heard::Accepted => "accepted",
        Heard::Duplicate => "duplicate",
        Heard::Full => "full",
    };
    counter!(EVENTS, "door" => door_name(door), "result" => result).increment(1);
}

/// An event could not be read, or names an unknown catalog.
pub fn event_rejected(door: Door) {
    counter!(EVENTS, "door" => door_name(door), "result" => "rejected").increment(1);
}

/// A door's stable name.
pub fn door_name(door: Door) -> &'static str {
    match door {
        Door::Grpc => "grpc",
        Door::Http => "http",
        Door::Kafka => "kafka",
        Door::Proxy => "proxy",
        Door::Poll => "poll",
        Door::Cli => "cli",
        Door::Own => "own",
    }
}

/// What a source has sent since the process began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceFigures {
    /// Records or bodies received.
    pub received: u64,
    /// Events that marked a table.
    pub accepted: u64,
    /// Events heard of before.
    pub duplicate: u64,
    /// Records that are about no commit.
    pub ignored: u64,
    /// Records that could not be read.
    pub parked: u64,
    /// Events that name nothing that is looked after.
    pub dropped: u64,
    /// Records not absorbed yet, where any are held back.
    pub lag: Option<u64>,
    /// Age of the oldest of them, in milliseconds.
    pub staleness_ms: Option<i64>,
}

/// A source as it stands.
pub fn source(door: Door, source: &str, figures: &SourceFigures) {
    let door = door_name(door);
    let results = [
        ("received", figures.received),
        ("accepted", figures.accepted),
        ("duplicate", figures.duplicate),
        ("ignored", figures.ignored),
        ("parked", figures.parked),
        ("dropped", figures.dropped),
    ];
    for (result, count) in results {
        counter!(SOURCE_EVENTS, "door" => door, "source" => source.to_owned(), "result" => result).absolute(count);
    }
    if let Some(lag) = figures.lag {
        gauge!(SOURCE_LAG, "door" => door, "source" => source.to_owned()).set(lag as f64);
    }
    if let Some(ms) = figures.staleness_ms {
        gauge!(SOURCE_STALENESS, "door" => door, "source" => source.to_owned()).set(ms as f64 / 1000.0);
    }
}

/// A catalog was asked for its tables.
pub fn catalog_listed(catalog: &str, answered: bool) {
    let result = if answered { "ok" } else { "failed" };
    counter!(LISTINGS, "catalog" => catalog.to_owned(), "result" => result).increment(1);
    gauge!(CATALOG_UP, "catalog" => catalog.to_owned()).set(if answered { 1.0 } else { 0.0 });
}

/// A poll found a table moved of which no door had told.
pub fn commit_missed(catalog: &str) {
    counter!(COMMITS_MISSED, "catalog" => catalog.to_owned()).increment(1);
}

/// What a look led to; of several branches the last of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Looked {
    /// The table was already known as it stands.
    Unchanged,
    /// Commits were absorbed from the manifests that they added.
    Absorbed,
    /// The state was made anew from all manifests.
    Rebuilt,
    /// No table has the name.
    Gone,
    /// The table is refused by name.
    Refused,
    /// The catalog or store did not answer.
    Failed,
}

/// A look is over.
pub fn looked(result: Looked, seconds: f64) {
    let result = match result {
        Looked::Unchanged => "unchanged",
        Looked::Absorbed => "absorbed",
        Looked::Rebuilt => "rebuilt",
        Looked::Gone => "gone",
        Looked::Refused => "refused",
        Looked::Failed => "failed",
    };
    counter!(LOOKS, "result" => result).increment(1);
    histogram!(LOOK_SECONDS).record(seconds);
}

/// Manifests were read.
pub fn manifests_read(count: u64) {
    counter!(MANIFESTS_READ).increment(count);
}

/// A layout did not match its table and was rebuilt.
pub fn drifted() {
    counter!(DRIFTS).increment(1);
}

/// How much the layout cache holds.
pub fn cache_size(tables: u64, bytes: u64) {
    gauge!(CACHE_TABLES).set(tables as f64);
    gauge!(CACHE_BYTES).set(bytes as f64);
}

/// How much waits to be looked at, and for how long the oldest event has waited.
pub fn inbox_depth(pending: usize, looking: usize, staleness_seconds: f64) {
    gauge!(INBOX_PENDING).set(pending as f64);
    gauge!(INBOX_LOOKING).set(looking as f64);
    gauge!(STALENESS_SECONDS).set(staleness_seconds);
}

/// A decision was made.
pub fn decided(verdict: &Verdict) {
    let (name, reason) = verdict_names(verdict);
    counter!(DECISIONS, "verdict" => name, "reason" => reason).increment(1);
}

/// A verdict's name, and its rule's or reason's.
pub fn verdict_names(verdict: &Verdict) -> (&'static str, String) {
    match verdict {
        Verdict::Now { rule, .. } => ("now", rule.clone()),
        Verdict::Queued { rule, .. } => ("queued", rule.clone().unwrap_or_else(|| "score".to_owned())),
        Verdict::Review { .. } => ("review", "cost".to_owned()),
        Verdict::Not { reason } => ("not", reason_name(reason).to_owned()),
    }
}

/// A reason's stable name; a refusal's is its code.
pub fn reason_name(reason: &Reason) -> &'static str {
    match reason {
        Reason::Refused(refused) => refused.refusal.code(),
        other => other.name(),
    }
}

/// Candidates that wait, and the files that they would save together; `act` when
/// that is carried out and not only advised.
pub fn candidates(act: bool, count: u64, files: u64) {
    let act = if act { "true" } else { "false" };
    gauge!(CANDIDATES, "act" => act).set(count as f64);
    gauge!(CANDIDATE_FILES, "act" => act).set(files as f64);
}

/// A share of the backlog, in figures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BacklogFigures {
    /// Candidates.
    pub candidates: u64,
    /// Those beside them that wait for a person.
    pub review: u64,
    /// How long the oldest candidate has waited.
    pub oldest_seconds: f64,
    /// Bytes to be rewritten.
    pub bytes: u64,
    /// Estimated GB-hours.
    pub gb_hours: f64,
    /// How long it takes; `None` when nothing is being done.
    pub drain_seconds: Option<f64>,
    /// What it costs, in money.
    pub cost: f64,
}

/// What waits of a tenant; see [`candidates`] for `act`.
pub fn backlog(tenant: &str, act: bool, figures: &BacklogFigures) {
    let act = if act { "true" } else { "false" };
    let gauges = [
        (BACKLOG_CANDIDATES, figures.candidates as f64),
        (BACKLOG_REVIEW, figures.review as f64),
        (BACKLOG_OLDEST, figures.oldest_seconds),
        (BACKLOG_BYTES, figures.bytes as f64),
        (BACKLOG_GB_HOURS, figures.gb_hours),
        (BACKLOG_DRAIN, figures.drain_seconds.unwrap_or(f64::INFINITY)),
        (BACKLOG_COST, figures.cost),
    ];
    for (name, value) in gauges {
        gauge!(name, "tenant" => tenant.to_owned(), "act" => act).set(value);
    }
}

/// How far what is expected of jobs is off.
pub fn estimate_error(quantity: &'static str, error: f64) {
    gauge!(ESTIMATE_ERROR, "quantity" => quantity).set(error);
}

/// The budget, in GB-hours.
pub fn budget(available: f64, reserved: f64) {
    gauge!(BUDGET_AVAILABLE).set(available);
    gauge!(BUDGET_RESERVED).set(reserved);
}

/// A job settled to its actual cost.
pub fn budget_spent(gb_hours: f64) {
    counter_f64(BUDGET_SPENT, gb_hours);
}

/// Counters hold whole numbers: fractions go up as millionths.
fn counter_f64(name: &'static str, value: f64) {
    counter!(name).increment((value.max(0.0) * 1e6).round() as u64);
}

/// A commit was answered.
pub fn commit_answered(outcome: &Outcome, seconds: f64) {
    let name = match outcome {
        Outcome::Landed { .. } => "landed",
        Outcome::Conflict(_) => "conflict",
        Outcome::Rejected { .. } => "rejected",
        Outcome::Unknown { .. } => "unknown",
    };
    counter!(COMMITS, "outcome" => name).increment(1);
    histogram!(COMMIT_SECONDS).record(seconds);
    if let Outcome::Conflict(conflict) = outcome {
        conflicted(conflict);
    }
}

/// The table moved under a job.
pub fn conflicted(conflict: &Conflict) {
    let kind = match conflict {
        Conflict::MetadataMoved => "metadata-moved",
        Conflict::DeletesChanged { .. } => "deletes-changed",
        Conflict::InputGone { .. } => "input-gone",
        Conflict::ColumnsChanged { .. } => "columns-changed",
        Conflict::TableGone => "table-gone",
    };
    counter!(CONFLICTS, "kind" => kind).increment(1);
}

/// Commits whose outcome is not known yet.
pub fn unknown_outcomes_open(count: usize) {
    gauge!(UNKNOWN_OPEN).set(count as f64);
}

/// How a job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobEnd {
    /// Its snapshot is in the table.
    Committed,
    /// It failed; nothing landed.
    Failed,
    /// It was stopped by hand or at its bound.
    Cancelled,
    /// The table moved; it is dropped or planned again.
    Yielded,
}

/// A job ended.
pub fn job_ended(end: JobEnd, seconds: f64) {
    let result = match end {
        JobEnd::Committed => "committed",
        JobEnd::Failed => "failed",
        JobEnd::Cancelled => "cancelled",
        JobEnd::Yielded => "yielded",
    };
    counter!(JOBS, "result" => result).increment(1);
    histogram!(JOB_SECONDS).record(seconds);
}

/// Jobs run now.
pub fn jobs_running(count: usize) {
    gauge!(JOBS_RUNNING).set(count as f64);
}

/// Estimate: a client that is known to write had loaded a table before a replace of ours
/// landed, and committed nothing after.
pub fn writer_harmed() {
    counter!(WRITERS_HARMED).increment(1);
}

/// What a rewrite did.
pub fn rewritten(path: Path, bytes_in: u64, bytes_out: u64, files_in: u64, files_out: u64) {
    let path = path.name();
    counter!(REWRITTEN_BYTES, "path" => path).increment(bytes_in);
    counter!(WRITTEN_BYTES, "path" => path).increment(bytes_out);
    counter!(REPLACED_FILES).increment(files_in);
    counter!(WRITTEN_FILES).increment(files_out);
}

/// A rewrite landed in the snapshot of another.
pub fn commit_joined() {
    counter!(COMMITS_JOINED).increment(1);
}

/// A job landed and carried over the deletes of so many rows.
pub fn deletes_carried(rows: u64) {
    counter!(DELETES_CARRIED).increment(rows);
}

/// A job did not land, and made or read so many bytes for nothing.
pub fn wasted(bytes: u64) {
    counter!(WASTED_BYTES).increment(bytes);
}

/// Bytes were read from the store for a rewrite and its proof.
pub fn bytes_read(bytes: u64) {
    counter!(READ_BYTES).increment(bytes);
}

/// What object stores were asked by a `job` or a `look`.
pub fn store_requests(by: &'static str, requests: &Requests) {
    for (kind, count) in requests.kinds().into_iter().filter(|(_, count)| *count > 0) {
        counter!(STORE_REQUESTS, "kind" => kind, "by" => by).increment(count);
    }
}

/// Bytes of files that we replaced and that old snapshots keep alive.
pub fn kept_alive(bytes: u64) {
    gauge!(KEPT_ALIVE_BYTES).set(bytes as f64);
}

/// So much money was spent by a job.
pub fn cost_spent(money: f64) {
    counter!(COST_SPENT).increment((money * 1e6).round().max(0.0) as u64);
}

/// What a cluster has free was read.
pub fn capacity_free(gb: f64) {
    gauge!(CAPACITY_FREE).set(gb);
}

/// What storing replaced files costs a month.
pub fn cost_kept(a_month: f64) {
    gauge!(COST_KEPT).set(a_month);
}

/// A client of `WatchDecisions` was too slow and missed decisions.
pub fn watcher_missed(count: u64) {
    counter!(WATCH_MISSED).increment(count);
}

#[cfg(test)]
mod tests;
