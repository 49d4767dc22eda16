//! The layout from scratch: every live entry of every manifest of the head.

use futures::TryStreamExt;

use super::delta::{Reads, entries_of};
use super::state::{FileSize, TableLayout};
use crate::lake::{Error, Result, Table};
use crate::model::file::{Entry, EntryStatus, ManifestRef};
use crate::model::layout::SizeScale;

/// The layout of a table's head, computed from all its manifests. The measure
/// of every other way to it.
pub async fn recompute(table: &dyn Table, scale: SizeScale) -> Result<TableLayout> {
    recompute_watched(table, scale, &|_, _| ()).await
}

/// As [`recompute`]; `watch` is told how many manifests were read, of how many.
pub async fn recompute_watched(table: &dyn Table, scale: SizeScale, watch: &(dyn Fn(u64, u64) + Sync)) -> Result<TableLayout> {
    let manifests = head_manifests(table).await?;
    let total = manifests.len() as u64;
    let mut done = 0;
    watch(done, total);
    gather(table, scale, &manifests, |_, _| {
        done += 1;
        watch(done, total);
    })
    .await
}

/// The manifest list of the head; empty for a table without a snapshot.
pub async fn head_manifests(table: &dyn Table) -> Result<Vec<ManifestRef>> {
    match table.view().head {
        Some(head) => table.manifests(head).await,
        None => Ok(Vec::new()),
    }
}

/// Reads all of `manifests`, the head's, into a new layout. Errs when a manifest
/// cannot be read, or when its sums pass any bound.
pub async fn rebuild(table: &dyn Table, scale: SizeScale, manifests: &[ManifestRef], reads: &mut Reads) -> Result<TableLayout> {
    gather(table, scale, manifests, |manifest, entries| reads.note(manifest, entries)).await
}

async fn gather(
    table: &dyn Table,
    scale: SizeScale,
    manifests: &[ManifestRef],
    mut read: impl FnMut(&ManifestRef, &[Entry]) + Send,
) -> Result<TableLayout> {
    let view = table.view();
    let mut layout = TableLayout::empty(view.ident, &view.reference, scale);
    let mut all = entries_of(table, manifests);
    while let Some((manifest, entries)) = all.try_next().await? {
        read(manifest, &entries);
        for entry in entries.iter().filter(|e| e.status != EntryStatus::Deleted) {
            let added = layout.add(&entry.partition, FileSize::from(entry));
            added.map_err(|drift| Error::damaged(&manifest.path, format!("{}: {drift}", entry.key.path)))?;
        }
    }
    layout.set_head(view, manifests);
    Ok(layout)
}
