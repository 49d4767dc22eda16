//! What became of a commit: by its attempt id in the table, never by its answer
//! alone.

use iceberg::spec::{FormatVersion, Snapshot, TableMetadata};

use crate::lake::Result;
use crate::lake::asserted::{Asserted, AssertedHead};
use crate::lake::iceberg::catalog::{Answer, Loaded};
use crate::lake::iceberg::table::IcebergTable;
use crate::model::outcome::{Conflict, Outcome, Resolution};
use crate::model::plan::{ATTEMPT_KEY, AttemptId};

/// How far the format lets a snapshot's time lie before the metadata that it was
/// added to, in milliseconds: writers' clocks differ.
pub(super) const CLOCK_TOLERANCE_MS: i64 = 60_000;

/// How long after its base a commit to a table of format 1 may still arrive, by the
/// table's own clock, in milliseconds: no server works on one request for so long.
const LATEST_MS: i64 = 3_600_000;

/// Looks for an attempt in this state of the table.
///
/// A snapshot with the attempt's id: landed. A snapshot that may be younger than
/// the attempt and has lost its parent: it may descend from ours, which an expiry
/// may have dropped while our files live. Otherwise it is proven that no snapshot
/// of the table is ours or descends from ours, and what is left to show is that the
/// commit cannot come any more: by the pointer, or by the head, whichever the
/// catalog compares.
pub fn find_attempt(table: &IcebergTable, attempt: &AttemptId, asserted: &str) -> Resolution {
    let metadata = &table.loaded.metadata;
    if let Some(ours) = snapshot_of(metadata, attempt) {
        return Resolution::Landed { snapshot_id: ours.snapshot_id() };
    }
    let asserted = Asserted::parse(asserted);
    let found = match &asserted.head {
        None => by_pointer(table, &asserted.metadata_location),
        Some(base) => by_head(table, &asserted.metadata_location, base),
    };
    match found {
        Ok(()) => Resolution::NotLanded,
        Err(reason) => Resolution::Open { reason },
    }
}

/// The pointer has left the asserted metadata; the head must have, too, in a catalog
/// that does not promise to compare pointers.
fn by_pointer(table: &IcebergTable, asserted: &str) -> std::result::Result<(), String> {
    let base_ms = moved_from(table, asserted)?;
    let head = table.loaded.metadata.snapshot_for_ref(&table.view.reference);
    let stands = head.is_none_or(|head| head.timestamp_ms() <= base_ms);
    if stands && !table.catalog.asserts_pointer() {
        return Err("no snapshot has followed on the one the commit is based on: it may land yet".into());
    }
    uncut(&table.loaded.metadata, |s| s.timestamp_ms() < base_ms.saturating_sub(CLOCK_TOLERANCE_MS))
}

/// For catalogs that compare the branch's head. A head may come back by a rollback,
/// and with it a request that is still on its way. What does not come back is a
/// sequence number: once another snapshot has taken the one that ours would have,
/// the format forbids to add ours. Format 1 has no such number, and time must do.
fn by_head(table: &IcebergTable, asserted: &str, base: &AssertedHead) -> std::result::Result<(), String> {
    let metadata = &table.loaded.metadata;
    if table.loaded.metadata_location == asserted || table.view.head == base.snapshot_id {
        return Err("the branch still stands where the commit would change it: it may land yet".into());
    }
    if metadata.format_version() == FormatVersion::V1 {
        let base_ms = moved_from(table, asserted)?;
        if metadata.last_updated_ms().saturating_sub(base_ms) < LATEST_MS {
            return Err("a rollback could still bring back the snapshot that the commit is based on".into());
        }
        return uncut(metadata, |s| s.timestamp_ms() < base_ms.saturating_sub(CLOCK_TOLERANCE_MS));
    }
    match base.sequence_number {
        Some(before) if metadata.last_sequence_number() > before => uncut(metadata, |s| s.sequence_number() <= before),
        _ => Err("no snapshot has taken the sequence number that the commit would: it may land yet".into()),
    }
}

/// When the asserted metadata was made, in milliseconds, of a table that has other
/// metadata now.
fn moved_from(table: &IcebergTable, asserted: &str) -> std::result::Result<i64, String> {
    if table.loaded.metadata_location == asserted {
        return Err("the table still stands where the commit would change it: it may land yet".into());
    }
    let base = table.loaded.metadata.metadata_log().iter().find(|entry| entry.metadata_file == asserted);
    base.map(|entry| entry.timestamp_ms).ok_or_else(|| format!("the metadata log does not reach back to {asserted}"))
}

fn uncut(metadata: &TableMetadata, older: impl Fn(&Snapshot) -> bool) -> std::result::Result<(), String> {
    match parentless(metadata, older) {
        Some(cut) => Err(format!("the history is cut: the parent of snapshot {cut} is gone, and may have been ours")),
        None => Ok(()),
    }
}

/// The snapshot that carries an attempt's id, by itself or among others.
pub(super) fn snapshot_of<'a>(metadata: &'a TableMetadata, attempt: &AttemptId) -> Option<&'a Snapshot> {
    let carries = |s: &&Snapshot| s.summary().additional_properties.get(ATTEMPT_KEY).is_some_and(|carried| attempt.made(carried));
    metadata.snapshots().map(|s| s.as_ref()).find(carries)
}

/// The oldest snapshot, not known to be older than a commit, whose parent is not listed.
pub fn parentless(metadata: &TableMetadata, older: impl Fn(&Snapshot) -> bool) -> Option<i64> {
    let lost = |s: &Snapshot| s.parent_snapshot_id().is_some_and(|parent| metadata.snapshot_by_id(parent).is_none());
    let cut = metadata.snapshots().map(|s| s.as_ref()).filter(|s| lost(s) && !older(s));
    cut.min_by_key(|s| (s.sequence_number(), s.snapshot_id())).map(Snapshot::snapshot_id)
}

/// An answer made an outcome. A refusal counts only after a look at the table as it
/// is since then: a transport may have sent our request twice, and the second was
/// refused by what the first had done.
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
    Ok(match table.again().await {
        Err(e) => Outcome::Unknown { reason: format!("refused ({refused:?}), and the table cannot be looked at: {e}") },
        Ok(fresh) => after_refusal(table, fresh.as_ref(), attempt, refused),
    })
}

/// What a refusal means in view of the table as it is now.
fn after_refusal(table: &IcebergTable, fresh: Option<&Loaded>, attempt: &AttemptId, refused: Outcome) -> Outcome {
    let base = &table.loaded;
    let Some(fresh) = fresh.filter(|f| f.metadata.uuid() == base.metadata.uuid()) else {
        return Outcome::Conflict(Conflict::TableGone);
    };
    if let Some(ours) = snapshot_of(&fresh.metadata, attempt) {
        return Outcome::Landed { snapshot_id: ours.snapshot_id() };
    }
    let moved = matches!(refused, Outcome::Conflict(_));
    if let Some(why) = shows_too_little(table, fresh, moved) {
        return Outcome::Unknown { reason: format!("refused ({refused:?}), but {why}") };
    }
    match parentless(&fresh.metadata, |s| base.metadata.snapshot_by_id(s.snapshot_id()).is_some()) {
        Some(cut) => {
            Outcome::Unknown { reason: format!("refused ({refused:?}), but the parent of snapshot {cut} is gone and may have been ours") }
        }
        None => refused,
    }
}

/// Why a look cannot tell what became of a commit that was refused: a catalog behind a
/// cache may show the table as it was before our load, or between that and what
/// refused us, or where it stood, though it `moved`. A catalog that promises to compare
/// pointers is read at the pointer.
pub(super) fn shows_too_little(table: &IcebergTable, fresh: &Loaded, moved: bool) -> Option<&'static str> {
    let (base, now) = (&table.loaded.metadata, &fresh.metadata);
    let stands = fresh.metadata_location == table.loaded.metadata_location;
    if table.catalog.asserts_pointer() {
        return None;
    }
    if stands {
        return moved.then_some("the table is shown where it stood before");
    }
    if now.last_sequence_number() > base.last_sequence_number() {
        return None;
    }
    if !now.metadata_log().iter().any(|entry| entry.metadata_file == table.loaded.metadata_location) {
        return Some("the table is shown as it may have been before");
    }
    let head = now.snapshot_for_ref(&table.view.reference).map(|s| s.snapshot_id());
    (head == table.view.head).then_some("the branch still stands where the commit would change it")
}
