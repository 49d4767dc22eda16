//! What is known of a table: the layout at its head, and what was heard of it.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

use imbl::OrdMap;
use serde::{Deserialize, Serialize};

use super::history::{Heard, History};
use super::pack;
use super::partitions::Partitions;
use crate::model::file::{Content, ManifestRef};
use crate::model::ident::TableIdent;
use crate::model::layout::{Drift, PartitionLayout, SizeScale, Tally};
use crate::model::partition::PartitionKey;
use crate::model::table::TableView;

/// Everything kept about one table and branch. A change makes a new state that
/// shares what it did not touch; a reader sees one snapshot's state.
#[derive(Clone, Debug)]
pub struct TableState {
    /// A function of the head snapshot alone, but for what was heard of partitions.
    pub layout: TableLayout,
    /// What was heard of the table, and when: no part of the layout's identity.
    pub heard: Heard,
    /// True counts of those manifests of the head whose row in the manifest
    /// list leaves them out or misstates them, by path.
    pub counted: OrdMap<Arc<str>, Counts>,
    /// The highest sequence number that the table had given out when it was
    /// looked at: a view with a lower one is an older load.
    pub last_sequence_number: i64,
}

impl TableState {
    /// What was heard of a partition; of one that was never touched, that nothing
    /// was heard since the table is known.
    pub fn heard_of(&self, key: &PartitionKey) -> Heard {
        self.layout.partitions.heard(key).unwrap_or(Heard::nothing(self.heard.known_since_ms))
    }

    /// What was heard of the table and of some of its partitions.
    pub fn history(&self, of: impl IntoIterator<Item = PartitionKey>) -> History {
        let heard = |key: PartitionKey| Some((key.clone(), self.layout.partitions.heard(&key)?));
        History::from_parts(self.heard, of.into_iter().filter_map(heard))
    }

    /// Approximate memory in bytes.
    pub fn weight(&self) -> u64 {
        let counted = self.counted.keys().fold(0, |sum, path| sum + path.len() as u64 + 64);
        self.layout.weight() + counted
    }
}

/// Live files and records of one manifest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Live files.
    pub files: u64,
    /// Their records.
    pub records: u64,
}

/// The layout of every partition of a table at one snapshot.
///
/// A partition that is not in it is unknown or gone, never empty: two layouts
/// are equal exactly when the live files sum up equally in every partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableLayout {
    of: Head,
    partitions: Partitions,
    data: Counts,
    deletes: Counts,
}

/// Whose layout it is, and what the head's metadata alone says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// The table.
    pub ident: TableIdent,
    /// The branch.
    pub reference: Arc<str>,
    /// The sizes by which files are sorted into sums.
    pub scale: SizeScale,
    /// The snapshot; `None` for a table without any.
    pub snapshot: Option<i64>,
    /// Ids of the specs without a field that is not void.
    pub unpartitioned: BTreeSet<i32>,
    /// Manifests of the snapshot.
    pub manifest_count: u64,
    /// Bytes of those manifests.
    pub metadata_bytes: u64,
}

/// Tells one layout of a table from the next: those of one head and scale are one
/// function of the head, and a fault in either shows in the sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    head: Option<i64>,
    scale: SizeScale,
    data: Counts,
    deletes: Counts,
}

/// A file as far as a layout is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSize {
    /// Rows, or a kind of deletes.
    pub content: Content,
    /// Bytes.
    pub bytes: u64,
    /// Rows or deletes.
    pub records: u64,
}

impl TableLayout {
    /// The layout of a table without a snapshot.
    pub fn empty(ident: TableIdent, reference: &str, scale: SizeScale) -> Self {
        Self::of_head(Head {
            ident,
            reference: reference.into(),
            scale,
            snapshot: None,
            unpartitioned: BTreeSet::new(),
            manifest_count: 0,
            metadata_bytes: 0,
        })
    }

    /// A layout with a head and, so far, no partition.
    pub fn of_head(of: Head) -> Self {
        Self { of, partitions: Partitions::default(), data: Counts::default(), deletes: Counts::default() }
    }

    /// A file enters a partition.
    pub fn add(&mut self, key: &PartitionKey, file: FileSize) -> Result<(), Drift> {
        self.alter(key, &[file], &[])
    }

    /// A file leaves a partition, and the partition the layout with its last file.
    pub fn remove(&mut self, key: &PartitionKey, file: FileSize) -> Result<(), Drift> {
        self.alter(key, &[], &[file])
    }

    /// Files enter a partition, then files leave it. An error changes nothing.
    pub fn alter(&mut self, key: &PartitionKey, enter: &[FileSize], leave: &[FileSize]) -> Result<(), Drift> {
        let scale = self.of.scale;
        let (mut data, mut deletes) = (self.data, self.deletes);
        self.partitions.edit(key, |layout| {
            for FileSize { content, bytes, records } in enter.iter().copied() {
                let total = if content == Content::Data { &mut data } else { &mut deletes };
                *total = total.plus(records).ok_or(Drift { content, bytes, records, motion: "enters" })?;
                layout.add(&scale, content, bytes, records)?;
            }
            for FileSize { content, bytes, records } in leave.iter().copied() {
                let total = if content == Content::Data { &mut data } else { &mut deletes };
                *total = total.minus(records).ok_or(Drift { content, bytes, records, motion: "leaves" })?;
                layout.remove(&scale, content, bytes, records)?;
            }
            Ok(())
        })?;
        (self.data, self.deletes) = (data, deletes);
        Ok(())
    }

    /// Notes what was heard of partitions, as far as they hold files: history
    /// never outgrows the layout.
    pub fn hear(&mut self, history: &History) {
        for (key, heard) in history.partitions() {
            self.partitions.hear(key, heard);
        }
    }

    /// Puts a packed partition in place of the one before; `None` takes it out.
    /// Gives `None` when the bytes are none, or a total would leave its range;
    /// the layout is void then.
    pub(super) fn restore(&mut self, key: &[u8], row: Option<&[u8]>) -> Option<()> {
        pack::read_key(key)?;
        if let Some((before, _)) = self.partitions.row(key) {
            for (content, tally) in tallies(&before) {
                let total = self.total_mut(content);
                *total = Counts { files: total.files.checked_sub(tally.files)?, records: total.records.checked_sub(tally.records)? };
            }
        }
        let Some(row) = row else {
            self.partitions.remove(key);
            return Some(());
        };
        let (now, _) = pack::read_row(row).filter(|(layout, _)| !layout.is_empty())?;
        for (content, tally) in tallies(&now) {
            let total = self.total_mut(content);
            *total = total.join(tally.files, tally.records)?;
        }
        self.partitions.put(key, row);
        Some(())
    }

    /// Moves the layout to a view's head, whose manifest list is `manifests`.
    pub fn set_head(&mut self, view: &TableView, manifests: &[ManifestRef]) {
        self.of.snapshot = view.head;
        self.of.manifest_count = manifests.len() as u64;
        self.of.metadata_bytes = manifests.iter().fold(0, |sum, m| sum.saturating_add(m.bytes));
        self.set_specs(view);
    }

    /// Takes over everything but the partitions, as it was saved.
    pub(super) fn set_figures(&mut self, head: Head) {
        self.of = head;
    }

    /// Takes over which specs are unpartitioned.
    pub fn set_specs(&mut self, view: &TableView) {
        self.of.unpartitioned = unpartitioned(view);
    }

    fn total_mut(&mut self, content: Content) -> &mut Counts {
        if content == Content::Data { &mut self.data } else { &mut self.deletes }
    }
}

/// Reading.
impl TableLayout {
    /// The table.
    pub fn ident(&self) -> TableIdent {
        self.of.ident
    }

    /// The branch.
    pub fn reference(&self) -> &str {
        &self.of.reference
    }

    /// The sizes by which files are sorted into sums.
    pub fn scale(&self) -> SizeScale {
        self.of.scale
    }

    /// The snapshot whose layout this is; `None` for a table without any.
    pub fn head(&self) -> Option<i64> {
        self.of.snapshot
    }

    /// Everything but the partitions.
    pub fn head_figures(&self) -> Head {
        self.of.clone()
    }

    /// See [`Mark`].
    pub fn mark(&self) -> Mark {
        Mark { head: self.of.snapshot, scale: self.of.scale, data: self.data, deletes: self.deletes }
    }

    /// One partition; `None` when it holds no live file.
    pub fn partition(&self, key: &PartitionKey) -> Option<PartitionLayout> {
        self.partitions.get(key)
    }

    /// All partitions that hold a live file, in key order.
    pub fn partitions(&self) -> &Partitions {
        &self.partitions
    }

    /// Live data files and their rows.
    pub fn data(&self) -> Counts {
        self.data
    }

    /// Live delete files and vectors, and their records.
    pub fn deletes(&self) -> Counts {
        self.deletes
    }

    /// Manifests of the head.
    pub fn manifest_count(&self) -> u64 {
        self.of.manifest_count
    }

    /// Bytes of those manifests.
    pub fn metadata_bytes(&self) -> u64 {
        self.of.metadata_bytes
    }

    /// Ids of the specs without a field that is not void.
    pub fn unpartitioned(&self) -> &BTreeSet<i32> {
        &self.of.unpartitioned
    }

    /// Approximate memory in bytes.
    pub fn weight(&self) -> u64 {
        size_of::<Self>() as u64 + self.partitions.weight()
    }

    /// Equality deletes that reach every partition: those of unpartitioned specs.
    pub fn global_deletes(&self) -> Tally {
        let mut sum = Tally::default();
        for spec_id in &self.of.unpartitioned {
            let from = PartitionKey::unpartitioned(*spec_id);
            for (_, layout) in self.partitions.range(Bound::Included(&from)).take_while(|(key, _)| key.spec_id == *spec_id) {
                sum.files += layout.equality_deletes.files;
                sum.bytes = sum.bytes.saturating_add(layout.equality_deletes.bytes);
                sum.records = sum.records.saturating_add(layout.equality_deletes.records);
            }
        }
        sum
    }

    /// Partitions whose files differ between two layouts, whatever their scales.
    pub fn differing(&self, other: &Self) -> BTreeSet<PartitionKey> {
        let mut keys = BTreeSet::new();
        for (key, layout) in self.partitions.iter() {
            if !other.partition(&key).is_some_and(|o| tallies(&o) == tallies(&layout)) {
                keys.insert(key);
            }
        }
        keys.extend(other.partitions.keys().filter(|key| !self.partitions.contains_key(key)));
        keys
    }
}

/// A partition's sums by the kind of file.
fn tallies(layout: &PartitionLayout) -> [(Content, Tally); 4] {
    [
        (Content::Data, layout.data),
        (Content::PositionDeletes, layout.position_deletes),
        (Content::EqualityDeletes, layout.equality_deletes),
        (Content::DeletionVector, layout.deletion_vectors),
    ]
}

impl Counts {
    /// One file more.
    pub fn plus(self, records: u64) -> Option<Self> {
        self.join(1, records)
    }

    /// One file less; `None` when there is none, or too few records.
    pub fn minus(self, records: u64) -> Option<Self> {
        Some(Self { files: self.files.checked_sub(1)?, records: self.records.checked_sub(records)? })
    }

    /// Many files more.
    pub fn join(self, files: u64, records: u64) -> Option<Self> {
        Some(Self { files: self.files.checked_add(files)?, records: self.records.checked_add(records)? })
    }
}

/// The view's specs without a field that is not void.
pub fn unpartitioned(view: &TableView) -> BTreeSet<i32> {
    view.specs.values().filter(|s| s.unpartitioned).map(|s| s.id).collect()
}
