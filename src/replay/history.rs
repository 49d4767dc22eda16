//! What writers did to a table, from the snapshots that it still lists.

use std::collections::{BTreeMap, HashSet};

use super::trace::{Change, Deletes, Event, Lot, Trace, Traced};
use crate::lake::{Result, Table};
use crate::model::file::{Content, Entry, EntryStatus};
use crate::model::partition::PartitionKey;
use crate::model::table::{Operation, SnapshotInfo};

/// Makes a trace of a table's snapshots: the oldest of them as it stood, then what each
/// later one added and removed, at its writer's time. What rewrites did is left out. A
/// table whose snapshots were expired has a short history.
///
/// # Errors
/// When a manifest cannot be read.
pub async fn trace(table: &dyn Table, traced: Traced) -> Result<Trace> {
    let line = ancestry(table);
    let mut trace = Trace { tables: vec![traced], ..Trace::default() };
    let (mut latest, mut seen) = (i64::MIN, HashSet::new());
    for (place, snapshot) in line.iter().enumerate() {
        // no writer's clock makes time go back
        latest = latest.max(snapshot.timestamp_ms);
        let mut changes: BTreeMap<PartitionKey, Change> = BTreeMap::new();
        for manifest in table.manifests(snapshot.id).await? {
            let is_new = seen.insert(manifest.path.clone());
            if !is_new || (place > 0 && (manifest.added_snapshot_id != snapshot.id || snapshot.operation == Operation::Replace)) {
                continue;
            }
            for entry in table.entries(&manifest).await? {
                let is_base = place == 0 && entry.status != EntryStatus::Deleted;
                if is_base || (entry.snapshot_id == snapshot.id && entry.status != EntryStatus::Existing) {
                    note(changes.entry(entry.partition.clone()).or_default(), &entry, is_base);
                }
            }
        }
        // the first snapshot of all is a write like any other
        let is_base = place == 0 && snapshot.parent.is_some();
        let events = changes.into_iter().map(|(scope, change)| Event {
            at_ms: latest,
            table: 0,
            scope,
            change: Change { is_base, ..joined(change) },
        });
        trace.events.extend(events);
    }
    (trace.from_ms, trace.to_ms) = (line.first().map_or(0, |s| s.timestamp_ms), latest.max(0));
    Ok(trace)
}

/// The head and its ancestors, oldest first, as far as they are listed.
fn ancestry(table: &dyn Table) -> Vec<&SnapshotInfo> {
    let view = table.view();
    let mut line = Vec::new();
    let mut next = view.head;
    while let Some(snapshot) = next.and_then(|id| view.snapshots.get(&id)).filter(|_| line.len() <= view.snapshots.len()) {
        line.push(snapshot);
        next = snapshot.parent;
    }
    line.reverse();
    line
}

fn note(change: &mut Change, entry: &Entry, is_base: bool) {
    let came = is_base || entry.status == EntryStatus::Added;
    if entry.content == Content::Data {
        let (lots, records) = match came {
            true => (&mut change.adds, &mut change.records_in),
            false => (&mut change.removes, &mut change.records_out),
        };
        lots.push(Lot { bytes: entry.bytes, files: 1 });
        *records = records.saturating_add(entry.records);
        return;
    }
    let deletes: &mut Deletes = if came { &mut change.deletes_in } else { &mut change.deletes_out };
    deletes.files = deletes.files.saturating_add(1);
    let records = if entry.content == Content::EqualityDeletes { &mut deletes.keys } else { &mut deletes.positions };
    *records = records.saturating_add(entry.records);
}

/// Files of one size together.
fn joined(change: Change) -> Change {
    let by_size = |lots: &[Lot]| -> Vec<Lot> {
        let mut sizes: BTreeMap<u64, u64> = BTreeMap::new();
        lots.iter().for_each(|lot| *sizes.entry(lot.bytes).or_default() += lot.files);
        sizes.into_iter().map(|(bytes, files)| Lot { bytes, files }).collect()
    };
    Change { adds: by_size(&change.adds), removes: by_size(&change.removes), ..change }
}
