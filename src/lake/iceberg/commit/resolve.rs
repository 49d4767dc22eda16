//! What became of a commit: by its attempt id in the table, never by its answer
//! alone.

use iceberg::spec::{Snapshot, TableMetadata};

use crate::lake::Result;
use crate::lake::iceberg::catalog::{Answer, Loaded};
use crate::lake::iceberg::table::IcebergTable;
use crate::model::outcome::{Conflict, Outcome, Resolution};
use crate::model::plan::{ATTEMPT_KEY, AttemptId};

/// How far the format lets a snapshot's time lie before the metadata that it was
/// added to, in milliseconds: writers' clocks differ.
const CLOCK_TOLERANCE_MS: i64 = 60_000;

/// Looks for an attempt in this state of the table.
///
/// * A snapshot has the attempt's id: landed.
/// * The pointer is the asserted one: the swap may still come.
/// * The branch's head is not newer than the asserted metadata, in a catalog that
///   compares heads, not pointers: it could still apply it.
/// * A snapshot that may be younger than the attempt has lost its parent: it may
///   descend from ours, which an expiry may have dropped while our files live.
/// * Otherwise it is proven that no snapshot of the table is ours or descends
///   from ours, and that the swap cannot come any more.
pub fn find_attempt(table: &IcebergTable, attempt: &AttemptId, asserted: &str) -> Resolution {
    let metadata = &table.loaded.metadata;
    if let Some(ours) = snapshot_of(metadata, attempt) {
        return Resolution::Landed { snapshot_id: ours.snapshot_id() };
    }
    let open = |reason: String| Resolution::Open { reason };
    if table.loaded.metadata_location == asserted {
        return open("the table still stands where the commit would change it: it may land yet".into());
    }
    let Some(base) = metadata.metadata_log().iter().find(|entry| entry.metadata_file == asserted) else {
        return open(format!("the metadata log does not reach back to {asserted}"));
    };
    let head = metadata.snapshot_for_ref(&table.view.reference);
    let stands = head.is_none_or(|head| head.timestamp_ms() <= base.timestamp_ms);
    if stands && !table.catalog.asserts_pointer() {
        return open("no snapshot has followed on the one the commit is based on: it may land yet".into());
    }
    let since = base.timestamp_ms.saturating_sub(CLOCK_TOLERANCE_MS);
    match parentless(metadata, |s| s.timestamp_ms() < since) {
        Some(cut) => open(format!("the history is cut: the parent of snapshot {cut} is gone, and may have been ours")),
        None => Resolution::NotLanded,
    }
}

fn snapshot_of<'a>(metadata: &'a TableMetadata, attempt: &AttemptId) -> Option<&'a Snapshot> {
    metadata.snapshots().map(|s| s.as_ref()).find(|s| s.summary().additional_properties.get(ATTEMPT_KEY) == Some(&attempt.0))
}

/// A snapshot, not known to be older than a commit, whose parent is not listed.
pub fn parentless(metadata: &TableMetadata, older: impl Fn(&Snapshot) -> bool) -> Option<i64> {
    let lost = |s: &Snapshot| s.parent_snapshot_id().is_some_and(|parent| metadata.snapshot_by_id(parent).is_none());
    metadata.snapshots().map(|s| s.as_ref()).find(|s| lost(s) && !older(s)).map(Snapshot::snapshot_id)
}

/// An answer made an outcome. A refusal counts only after a fresh look: a
/// transport may have sent our request twice, and the second was refused by what
/// the first had done.
///
/// # Errors
/// None of its own: a look that fails is an unknown outcome.
pub async fn settle(table: &IcebergTable, snapshot_id: i64, attempt: &AttemptId, answer: Answer) -> Result<Outcome> {
    let refused = match answer {
        Answer::Landed(_) => return Ok(Outcome::Landed { snapshot_id }),
        Answer::Unknown(reason) => return Ok(Outcome::Unknown { reason }),
        Answer::Moved => Outcome::Conflict(Conflict::MetadataMoved),
        Answer::Rejected(reason) => Outcome::Rejected { reason },
    };
    Ok(match table.catalog.load(&table.loaded.name).await {
        Err(e) => Outcome::Unknown { reason: format!("refused ({refused:?}), and the table cannot be looked at: {e}") },
        Ok(fresh) => after_refusal(&table.loaded, fresh.as_ref(), attempt, refused),
    })
}

/// What a refusal means in view of the table as it is now.
fn after_refusal(base: &Loaded, fresh: Option<&Loaded>, attempt: &AttemptId, refused: Outcome) -> Outcome {
    let Some(fresh) = fresh.filter(|f| f.metadata.uuid() == base.metadata.uuid()) else {
        return Outcome::Conflict(Conflict::TableGone);
    };
    if let Some(ours) = snapshot_of(&fresh.metadata, attempt) {
        return Outcome::Landed { snapshot_id: ours.snapshot_id() };
    }
    match parentless(&fresh.metadata, |s| base.metadata.snapshot_by_id(s.snapshot_id()).is_some()) {
        Some(cut) => {
            Outcome::Unknown { reason: format!("refused ({refused:?}), but the parent of snapshot {cut} is gone and may have been ours") }
        }
        None => refused,
    }
}
