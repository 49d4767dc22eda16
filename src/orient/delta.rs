//! What a snapshot changed, read from the manifests that it wrote itself.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::{StreamExt, TryStreamExt, stream};
use imbl::OrdMap;

use super::lineage::Reason;
use super::state::{Counts, FileSize, TableLayout};
use crate::lake::{Result, Table};
use crate::model::file::{Content, Entry, EntryStatus, ManifestRef};
use crate::model::layout::Drift;
use crate::model::partition::PartitionKey;

/// Manifests read at one time.
pub const READERS: usize = 8;

/// What was read, for the cost to be seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reads {
    /// Manifests whose entries were read.
    pub manifests: u64,
    /// Entries in them.
    pub entries: u64,
    /// True counts of those manifests whose row in the list leaves them out or
    /// misstates them.
    pub counted: BTreeMap<Arc<str>, Counts>,
}

/// Files that a snapshot added and removed, by partition; paths are not kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    moves: BTreeMap<PartitionKey, Moves>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Moves {
    added: Vec<FileSize>,
    removed: Vec<FileSize>,
}

/// Which way a change is applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The snapshot is taken in.
    Forward,
    /// The snapshot is taken back.
    Back,
}

impl Change {
    /// Reads what a snapshot changed: of the manifests in its list those that it
    /// added, of their entries those that are its own. Entries carried over, by
    /// a merge of manifests for instance, are not its own. `list` is the snapshot's
    /// manifest list, where it is at hand.
    pub async fn read(table: &dyn Table, snapshot_id: i64, list: Option<&[ManifestRef]>, reads: &mut Reads) -> Result<Self> {
        let added = |manifest: &&ManifestRef| manifest.added_snapshot_id == snapshot_id;
        let manifests: Vec<ManifestRef> = match list {
            Some(list) => list.iter().filter(added).cloned().collect(),
            None => table.manifests(snapshot_id).await?.iter().filter(added).cloned().collect(),
        };
        let mut change = Self::default();
        let mut entries = entries_of(table, &manifests);
        while let Some((manifest, entries)) = entries.try_next().await? {
            reads.note(manifest, &entries);
            for entry in entries.iter().filter(|e| e.snapshot_id == snapshot_id) {
                change.take(entry);
            }
        }
        Ok(change)
    }

    /// Applies the change to a layout. Files enter before files leave, so that
    /// only a true lack of a file is drift; after an error the layout is void.
    pub fn apply(&self, layout: &mut TableLayout, direction: Direction) -> std::result::Result<(), Drift> {
        for (key, moves) in &self.moves {
            let (enter, leave) = match direction {
                Direction::Forward => (&moves.added, &moves.removed),
                Direction::Back => (&moves.removed, &moves.added),
            };
            layout.alter(key, enter, leave)?;
        }
        Ok(())
    }

    /// The partitions it touched, with the bytes written into each.
    pub fn written(&self) -> BTreeMap<PartitionKey, u64> {
        let bytes = |moves: &Moves| moves.added.iter().fold(0, |sum: u64, file| sum.saturating_add(file.bytes));
        self.moves.iter().map(|(key, moves)| (key.clone(), bytes(moves))).collect()
    }

    /// The partitions in which it took data files away, or rows by position: a rewrite of
    /// the same files that lands first makes such a commit fail. Positions beside deletes
    /// by key are a stream's, of rows that the commit itself has brought.
    pub fn contended(&self) -> impl Iterator<Item = &PartitionKey> {
        let takes = |moves: &Moves| {
            let adds = |content: Content| moves.added.iter().any(|file| file.content == content);
            let by_position = adds(Content::PositionDeletes) || adds(Content::DeletionVector);
            moves.removed.iter().any(|file| file.content == Content::Data) || (by_position && !adds(Content::EqualityDeletes))
        };
        self.moves.iter().filter(move |(_, moves)| takes(moves)).map(|(key, _)| key)
    }

    /// The partitions it touched.
    pub fn touched(&self) -> impl Iterator<Item = &PartitionKey> {
        self.moves.keys()
    }

    fn take(&mut self, entry: &Entry) {
        if entry.status == EntryStatus::Existing {
            return;
        }
        let moves = match self.moves.get_mut(&entry.partition) {
            Some(moves) => moves,
            None => self.moves.entry(entry.partition.clone()).or_default(),
        };
        let file = FileSize::from(entry);
        if entry.status == EntryStatus::Added { moves.added.push(file) } else { moves.removed.push(file) }
    }
}

impl From<&Entry> for FileSize {
    fn from(entry: &Entry) -> Self {
        Self { content: entry.content, bytes: entry.bytes, records: entry.records }
    }
}

impl Reads {
    /// Adds what was read beside.
    pub fn join(&mut self, other: Self) {
        self.manifests += other.manifests;
        self.entries += other.entries;
        self.counted.extend(other.counted);
    }

    /// Notes a manifest that was read, and its true counts if its row in the
    /// list is not right.
    pub fn note(&mut self, manifest: &ManifestRef, entries: &[Entry]) {
        self.manifests += 1;
        self.entries += entries.len() as u64;
        let mut live = Counts::default();
        for entry in entries.iter().filter(|e| e.status != EntryStatus::Deleted) {
            live = live.plus(entry.records).unwrap_or(live);
        }
        if listed(manifest) != Some(live) {
            self.counted.insert(manifest.path.clone(), live);
        }
    }
}

/// Every manifest with its entries, a few at a time, in order.
pub fn entries_of<'a>(
    table: &'a dyn Table,
    manifests: &'a [ManifestRef],
) -> impl stream::TryStream<Ok = (&'a ManifestRef, Vec<Entry>), Error = crate::lake::Error> + Unpin + Send + 'a {
    let read = move |manifest: &'a ManifestRef| async move { Ok((manifest, table.entries(manifest).await?)) };
    Box::pin(stream::iter(manifests).map(read).buffered(READERS))
}

/// Holds a layout against the manifest list of its head: files and records, of
/// data and of deletes. `counted` has the true counts where the list's own are
/// known to be missing or wrong. Gives the reason not to trust the layout.
pub fn mistrust(layout: &TableLayout, manifests: &[ManifestRef], counted: &OrdMap<Arc<str>, Counts>) -> Option<Reason> {
    for (deletes, held) in [(false, layout.data()), (true, layout.deletes())] {
        let mut sum = Counts::default();
        for manifest in manifests.iter().filter(|m| m.deletes == deletes) {
            let Some(row) = counted.get(&manifest.path).copied().or_else(|| listed(manifest)) else {
                return Some(Reason::Uncounted);
            };
            match sum.join(row.files, row.records) {
                Some(joined) => sum = joined,
                None => return Some(Reason::Drift),
            }
        }
        if sum != held {
            return Some(Reason::Drift);
        }
    }
    None
}

fn listed(manifest: &ManifestRef) -> Option<Counts> {
    Some(Counts { files: manifest.live_files?, records: manifest.live_records? })
}
