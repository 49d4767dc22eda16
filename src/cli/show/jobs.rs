//! `jobs`.

use serde::Serialize;

use super::super::human;
use super::{json_lines, table};
use crate::model::estimate::{Estimate, Figures};
use crate::model::plan::Path;

/// A job and what became of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct JobRow {
    /// The job's id.
    pub job: String,
    /// `catalog.namespace.table`.
    pub table: String,
    /// The branch.
    pub branch: String,
    /// The partition's label.
    pub partition: String,
    /// Its state in the journal: `requested`, `inflight`, `resolving`, `committed`,
    /// `failed`, `cancelled`.
    pub state: String,
    /// Why it was made: a rule's name, `score`, or `request`.
    pub reason: String,
    /// Its last attempt.
    pub attempt: Option<String>,
    /// Files to replace.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// When it was made, in milliseconds since the epoch.
    pub created_ms: i64,
    /// When it last changed state.
    pub changed_ms: i64,
    /// How its outputs were made; `None` when none were.
    pub path: Option<Path>,
    /// Why so.
    pub path_reason: Option<String>,
    /// Its snapshot.
    pub snapshot_id: Option<String>,
    /// Rows deleted by others meanwhile, whose deletes it carried over to its files.
    pub deletes_carried: u64,
    /// Bytes that it wrote or read for nothing.
    pub wasted_bytes: u64,
    /// What went wrong, or that its process is gone; empty when nothing did.
    pub error: String,
    /// What it was expected to do, where that was estimated.
    pub estimate: Option<Estimate>,
    /// What it did, once it has committed.
    pub actual: Option<Figures>,
}

/// Jobs as a table or as JSON lines.
pub fn jobs(rows: &[JobRow], json: bool) -> String {
    if json {
        return json_lines(rows);
    }
    if rows.is_empty() {
        return "no jobs".to_owned();
    }
    let row = |r: &JobRow| {
        let result = r.snapshot_id.clone().unwrap_or_else(|| r.error.clone());
        vec![
            r.job.clone(),
            human::on(&r.table, &r.branch),
            r.partition.clone(),
            r.state.clone(),
            r.reason.clone(),
            path(r),
            human::count(r.files),
            human::bytes(r.bytes),
            human::moment(r.changed_ms),
            result,
        ]
    };
    let headings = ["job", "table", "partition", "state", "reason", "path", "files", "bytes", "changed", "snapshot or error"];
    table(&headings, &["files", "bytes"], rows.iter().map(row))
}

/// The way with its reason.
fn path(row: &JobRow) -> String {
    match (row.path, &row.path_reason) {
        (None, _) => "-".to_owned(),
        (Some(path), Some(why)) => format!("{}: {why}", path.name()),
        (Some(path), None) => path.name().to_owned(),
    }
}
