//! `plan` and `compact`.

use serde::Serialize;

use super::super::exit::Exit;
use super::super::human;
use super::{json_lines, table};
use crate::model::plan::{Path, Plan};
use crate::model::requests::Requests;

/// What a compaction would do with one partition.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PlanRow {
    /// `catalog.namespace.table`.
    pub table: String,
    /// The branch.
    pub branch: String,
    /// The partition's label.
    pub partition: String,
    /// The partition spec.
    pub spec_id: i32,
    /// The snapshot planned on.
    pub snapshot_id: Option<String>,
    /// `rewrite`, `leave`, `refused`, `failed`.
    pub verdict: String,
    /// The rule, or the reason for leaving it alone.
    pub reason: String,
    /// The reason in words, for a refusal.
    pub detail: String,
    /// Files to replace.
    pub files_in: u64,
    /// Their bytes.
    pub bytes_in: u64,
    /// Their rows, deleted ones included.
    pub rows_in: u64,
    /// Delete files applied.
    pub delete_files: u64,
    /// Bound on the cost, in GB-hours.
    pub gb_hours: f64,
    /// The files to replace.
    pub inputs: Vec<String>,
}

impl PlanRow {
    /// A plan as a row.
    pub fn planned(plan: &Plan, label: &str, verdict: &str) -> Self {
        Self {
            table: plan.name.to_string(),
            branch: plan.reference.clone(),
            partition: label.to_owned(),
            spec_id: plan.scope.spec_id,
            snapshot_id: Some(plan.snapshot_id.to_string()),
            verdict: verdict.to_owned(),
            reason: plan.reason.clone(),
            detail: String::new(),
            files_in: plan.inputs.len() as u64,
            bytes_in: plan.input_bytes(),
            rows_in: plan.input_records(),
            delete_files: plan.deletes.len() as u64,
            gb_hours: plan.bound.gb_hours,
            inputs: plan.inputs.iter().map(|f| f.path.to_string()).collect(),
        }
    }
}

/// Plans as a table or as JSON lines.
pub fn plans(rows: &[PlanRow], json: bool) -> String {
    if json {
        return json_lines(rows);
    }
    if rows.is_empty() {
        return "nothing to plan: the table has no partition with live files".to_owned();
    }
    let headings = ["partition", "verdict", "reason", "files", "bytes", "rows", "deletes", "bound"];
    let row = |r: &PlanRow| {
        let reason = if r.detail.is_empty() { r.reason.clone() } else { format!("{}: {}", r.reason, r.detail) };
        vec![
            r.partition.clone(),
            r.verdict.clone(),
            reason,
            human::count(r.files_in),
            human::bytes(r.bytes_in),
            human::count(r.rows_in),
            human::count(r.delete_files),
            human::gb_hours(r.gb_hours),
        ]
    };
    table(&headings, &["files", "bytes", "rows", "deletes", "bound"], rows.iter().map(row))
}

/// What a compaction did with one partition: the sum of its jobs.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CompactRow {
    /// `catalog.namespace.table`.
    pub table: String,
    /// The branch.
    pub branch: String,
    /// The partition's label.
    pub partition: String,
    /// The partition spec.
    pub spec_id: i32,
    /// `committed`, `planned` (a dry run), `left`, `refused`, `conflict`, `busy`,
    /// `disproved`, `stopped`, `cancelled`, `unreachable`, `unknown`, `failed`; of
    /// several jobs that of the one that went worst.
    pub result: String,
    /// The rule or request that asked for it, or why it was left alone.
    pub decision: String,
    /// The refusal's stable name.
    pub refusal: Option<String>,
    /// What was found, in words: a refusal's detail, a conflict, an error.
    pub detail: String,
    /// The job's id, for `undo` and `cancel`; of several the last.
    pub job: Option<String>,
    /// The attempt's id; of several the last.
    pub attempt: Option<String>,
    /// How the outputs were made; of several the dearest way.
    pub path: Option<Path>,
    /// Why so.
    pub path_reason: Option<String>,
    /// Files replaced, or that were to be; of a partition that was refused before it
    /// was planned those it holds, and `None` where not even they were read.
    pub files_in: Option<u64>,
    /// Files written.
    pub files_out: u64,
    /// Bytes of the former.
    pub bytes_in: Option<u64>,
    /// Bytes of the latter.
    pub bytes_out: u64,
    /// Rows written.
    pub rows: u64,
    /// Rows dropped because deletes applied to them.
    pub rows_deleted: u64,
    /// Rows deleted by others meanwhile, whose deletes were carried over to the new files.
    pub deletes_carried: u64,
    /// Bytes written or read for nothing, of jobs that did not land.
    pub wasted_bytes: u64,
    /// Wall time.
    pub seconds: f64,
    /// Of it, writing the outputs.
    pub rewrite_s: f64,
    /// Of it, the proof alone, after the outputs were written.
    pub proof_s: f64,
    /// Of it, the commit.
    pub commit_s: f64,
    /// Highest resident memory of the process, in bytes; `None` where it cannot be told.
    pub peak_memory: Option<u64>,
    /// Requests to object stores: by the rewrite, the proof and the tries to commit.
    pub requests: Requests,
    /// The snapshot committed; of several the last.
    pub snapshot_id: Option<String>,
    /// The jobs, when there were several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub jobs: Vec<CompactJob>,
}

/// One of the jobs of a partition; its fields are those of [`CompactRow`].
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[allow(missing_docs, reason = "said once, of the row")]
pub struct CompactJob {
    /// How a command exits for it.
    #[serde(skip)]
    pub exit: Exit,
    #[serde(skip)]
    pub decision: String,
    pub result: String,
    pub refusal: Option<String>,
    pub detail: String,
    pub job: Option<String>,
    pub attempt: Option<String>,
    pub path: Option<Path>,
    pub path_reason: Option<String>,
    pub files_in: u64,
    pub files_out: u64,
    pub bytes_in: u64,
    pub bytes_out: u64,
    pub rows: u64,
    pub rows_deleted: u64,
    pub deletes_carried: u64,
    pub wasted_bytes: u64,
    pub seconds: f64,
    pub rewrite_s: f64,
    pub proof_s: f64,
    pub commit_s: f64,
    pub peak_memory: Option<u64>,
    pub requests: Requests,
    pub snapshot_id: Option<String>,
}

impl CompactRow {
    /// This partition with what its jobs did.
    #[must_use]
    pub fn of(self, jobs: Vec<CompactJob>) -> Self {
        // the first of those that went worst
        let Some(worst) = jobs.iter().rev().max_by_key(|j| j.exit) else { return self };
        let dearest = jobs.iter().filter(|j| j.path.is_some()).max_by_key(|j| j.path.map(price));
        let sum = |of: fn(&CompactJob) -> u64| jobs.iter().map(of).fold(0, u64::saturating_add);
        let time = |of: fn(&CompactJob) -> f64| jobs.iter().map(of).sum();
        let last = |of: fn(&CompactJob) -> Option<&String>| jobs.iter().rev().find_map(of).cloned();
        let row = Self {
            result: worst.result.clone(),
            decision: worst.decision.clone(),
            refusal: worst.refusal.clone(),
            detail: worst.detail.clone(),
            job: last(|j| j.job.as_ref()),
            attempt: last(|j| j.attempt.as_ref()),
            path: dearest.and_then(|j| j.path),
            path_reason: dearest.and_then(|j| j.path_reason.clone()),
            files_in: Some(sum(|j| j.files_in)),
            files_out: sum(|j| j.files_out),
            bytes_in: Some(sum(|j| j.bytes_in)),
            bytes_out: sum(|j| j.bytes_out),
            rows: sum(|j| j.rows),
            rows_deleted: sum(|j| j.rows_deleted),
            deletes_carried: sum(|j| j.deletes_carried),
            wasted_bytes: sum(|j| j.wasted_bytes),
            seconds: time(|j| j.seconds),
            rewrite_s: time(|j| j.rewrite_s),
            proof_s: time(|j| j.proof_s),
            commit_s: time(|j| j.commit_s),
            peak_memory: jobs.iter().filter_map(|j| j.peak_memory).max(),
            requests: jobs.iter().map(|j| j.requests).fold(Requests::default(), Requests::and),
            snapshot_id: last(|j| j.snapshot_id.as_ref()),
            ..self
        };
        Self { jobs: if jobs.len() > 1 { jobs } else { Vec::new() }, ..row }
    }
}

/// The ways to write outputs, the cheapest first.
fn price(path: Path) -> u8 {
    match path {
        Path::Splice => 0,
        Path::RePack => 1,
        Path::ReEncode => 2,
    }
}

/// Compactions as a table or as JSON lines.
pub fn compacts(rows: &[CompactRow], json: bool) -> String {
    if json {
        return json_lines(rows);
    }
    if rows.is_empty() {
        return "nothing to compact: the table has no partition with live files".to_owned();
    }
    let headings = ["partition", "result", "why", "path", "files", "bytes", "rows", "time", "snapshot"];
    let row = |r: &CompactRow| {
        let change = |a: String, b: String| if r.attempt.is_some() { format!("{a} → {b}") } else { a };
        let known = |n: Option<u64>, how: fn(u64) -> String| n.map_or_else(|| "-".to_owned(), how);
        vec![
            r.partition.clone(),
            r.result.clone(),
            why(r),
            r.path.map_or_else(|| "-".to_owned(), |p| p.name().to_owned()),
            change(known(r.files_in, human::count), human::count(r.files_out)),
            change(known(r.bytes_in, human::bytes), human::bytes(r.bytes_out)),
            human::count(r.rows),
            human::seconds(r.seconds),
            r.snapshot_id.clone().unwrap_or_else(|| "-".to_owned()),
        ]
    };
    table(&headings, &["files", "bytes", "rows", "time"], rows.iter().map(row))
}

fn why(row: &CompactRow) -> String {
    let name = row.refusal.as_ref().unwrap_or(&row.decision);
    let name = if row.jobs.is_empty() { name.clone() } else { format!("{name}, {}", human::some(row.jobs.len() as u64, "job")) };
    let carried = (row.deletes_carried > 0).then(|| format!("{} carried over", human::some(row.deletes_carried, "delete")));
    let detail = [carried, Some(row.detail.clone()).filter(|d| !d.is_empty())].into_iter().flatten().collect::<Vec<_>>().join("; ");
    if detail.is_empty() { name } else { format!("{name}: {detail}") }
}
