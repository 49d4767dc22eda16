//! Taking a replace snapshot of ours back.

use iceberg::TableUpdate;
use iceberg::spec::{Operation, Snapshot};

use super::asked::Asked;
use super::resolve::shows_too_little;
use super::{branch, requirements};
use crate::lake::iceberg::catalog::Answer;
use crate::lake::iceberg::table::IcebergTable;
use crate::lake::{Commit, Result};
use crate::model::killpoint::KillPoint;
use crate::model::outcome::{Conflict, Outcome};
use crate::model::plan::ATTEMPT_KEY;

/// Rolls the branch back from our replace snapshot to its parent. Both hold the
/// same rows.
///
/// Invariants checked:
/// * the snapshot is the head of the branch, on this base and in the swap: no
///   writer's commit is taken back with it;
/// * it is a replace that carries an attempt id of this product;
/// * its parent is still listed.
///
/// Crash: the swap is atomic; no file is written but by the catalog, none is
/// removed.
///
/// # Errors
/// Only when the catalog was not asked.
pub async fn undo(table: &IcebergTable, snapshot_id: i64, commit: &Commit<'_>) -> Result<Outcome> {
    let metadata = &table.loaded.metadata;
    let head = metadata.snapshot_for_ref(&table.view.reference);
    let parent = match head.map(|h| parent_of(table, h, snapshot_id)) {
        Some(Ok(parent)) => parent,
        Some(Err(reason)) => return Ok(Outcome::Rejected { reason }),
        None => return Ok(Outcome::Rejected { reason: format!("branch {} has no snapshot", table.view.reference) }),
    };
    let updates = vec![TableUpdate::SetSnapshotRef { ref_name: table.view.reference.clone(), reference: branch(table, parent)? }];
    let control = Asked::new(commit.control);
    let answer = table.catalog.commit(&table.loaded, requirements(table, snapshot_id), updates, &control).await;
    commit.control.reached(KillPoint::CatalogAnswered);
    settle(table, parent, control.answer(answer)?).await
}

fn parent_of(table: &IcebergTable, head: &Snapshot, snapshot_id: i64) -> std::result::Result<i64, String> {
    if head.snapshot_id() != snapshot_id {
        return Err(format!("snapshot {snapshot_id} is not the head of {}: snapshot {} is", table.view.reference, head.snapshot_id()));
    }
    let ours = head.summary().additional_properties.contains_key(ATTEMPT_KEY);
    if head.summary().operation != Operation::Replace || !ours {
        return Err(format!("snapshot {snapshot_id} is not a rewrite of ours"));
    }
    let parent = head.parent_snapshot_id().filter(|id| table.loaded.metadata.snapshot_by_id(*id).is_some());
    parent.ok_or_else(|| format!("the parent of snapshot {snapshot_id} is expired"))
}

/// A refusal counts only when a fresh look does not show the branch where we put
/// it.
async fn settle(table: &IcebergTable, parent: i64, answer: Answer) -> Result<Outcome> {
    let refused = match answer {
        Answer::Landed(_) => return Ok(Outcome::Landed { snapshot_id: parent }),
        Answer::Unknown(reason) => return Ok(Outcome::Unknown { reason }),
        Answer::Moved => Outcome::Conflict(Conflict::MetadataMoved),
        Answer::Rejected(reason) => Outcome::Rejected { reason },
    };
    let fresh = match table.again().await {
        Ok(Some(fresh)) if fresh.metadata.uuid() == table.loaded.metadata.uuid() => fresh,
        Ok(_) => return Ok(Outcome::Conflict(Conflict::TableGone)),
        Err(e) => return Ok(Outcome::Unknown { reason: format!("refused ({refused:?}), and the table cannot be looked at: {e}") }),
    };
    let head = fresh.metadata.snapshot_for_ref(&table.view.reference).map(|h| h.snapshot_id());
    if head == Some(parent) {
        return Ok(Outcome::Landed { snapshot_id: parent });
    }
    let moved = matches!(refused, Outcome::Conflict(_));
    Ok(match shows_too_little(table, &fresh, moved) {
        Some(why) => Outcome::Unknown { reason: format!("refused ({refused:?}), but {why}") },
        None => refused,
    })
}
