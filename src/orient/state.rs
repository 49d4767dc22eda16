//! What is known of a table: the layout at its head, and what was heard of it.

use std::collections::BTreeSet;
use std::sync::Arc;

use imbl::OrdMap;
use serde::{Deserialize, Serialize};

use super::history::History;
use crate::model::file::{Content, ManifestRef};
use crate::model::ident::TableIdent;
use crate::model::layout::{Drift, PartitionLayout, SizeScale, Tally};
use crate::model::partition::{PartitionKey, Value};
use crate::model::table::TableView;

/// Everything kept about one table and branch. A change makes a new state that
/// shares what it did not touch; a reader sees one snapshot's state.
#[derive(Clone, Debug)]
pub struct TableState {
    /// A function of the head snapshot alone.
    pub layout: TableLayout,
    /// What was heard, and when: no part of the layout's identity.
    pub history: History,
    /// True counts of those manifests of the head whose row in the manifest
    /// list leaves them out or misstates them, by path.
    pub counted: OrdMap<Arc<str>, Counts>,
    /// The highest sequence number that the table had given out when it was
    /// looked at: a view with a lower one is an older load.
    pub last_sequence_number: i64,
}

impl TableState {
    /// Approximate memory in bytes.
    pub fn weight(&self) -> u64 {
        let counted = self.counted.keys().fold(0, |sum, path| sum + path.len() as u64 + 64);
        self.layout.weight + self.history.weight() + counted
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
    partitions: OrdMap<PartitionKey, Arc<PartitionLayout>>,
    data: Counts,
    deletes: Counts,
    weight: u64,
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
        Self { of, partitions: OrdMap::new(), data: Counts::default(), deletes: Counts::default(), weight: 512 }
    }

    /// A file enters a partition.
    pub fn add(&mut self, key: &PartitionKey, file: FileSize) -> Result<(), Drift> {
        let FileSize { content, bytes, records } = file;
        let overflow = || Drift { content, bytes, records, motion: "enters" };
        let total = self.total(content);
        let next = total.plus(records).ok_or_else(overflow)?;
        match self.partitions.get_mut(key) {
            Some(layout) => Arc::make_mut(layout).add(&self.of.scale, content, bytes, records)?,
            None => {
                let mut layout = PartitionLayout::default();
                layout.add(&self.of.scale, content, bytes, records)?;
                self.put(key.clone(), layout);
            }
        }
        *self.total_mut(content) = next;
        Ok(())
    }

    /// A file leaves a partition, and the partition the layout with its last file.
    pub fn remove(&mut self, key: &PartitionKey, file: FileSize) -> Result<(), Drift> {
        let FileSize { content, bytes, records } = file;
        let drift = || Drift { content, bytes, records, motion: "leaves" };
        let next = self.total(content).minus(records).ok_or_else(drift)?;
        let layout = Arc::make_mut(self.partitions.get_mut(key).ok_or_else(drift)?);
        layout.remove(&self.of.scale, content, bytes, records)?;
        if layout.is_empty() {
            self.partitions.remove(key);
            self.weight = self.weight.saturating_sub(weight_of(key));
        }
        *self.total_mut(content) = next;
        Ok(())
    }

    /// Puts a whole partition that the layout does not hold; an empty one is left
    /// out. Errs when a total would overflow.
    pub fn restore(&mut self, key: PartitionKey, layout: PartitionLayout) -> Result<(), Drift> {
        let tallies = [
            (Content::Data, layout.data),
            (Content::PositionDeletes, layout.position_deletes),
            (Content::EqualityDeletes, layout.equality_deletes),
            (Content::DeletionVector, layout.deletion_vectors),
        ];
        for (content, tally) in tallies {
            let Tally { files, bytes, records } = tally;
            let next = self.total(content).join(files, records);
            *self.total_mut(content) = next.ok_or(Drift { content, bytes, records, motion: "enters" })?;
        }
        if !layout.is_empty() {
            self.put(key, layout);
        }
        Ok(())
    }

    /// Moves the layout to a view's head, whose manifest list is `manifests`.
    pub fn set_head(&mut self, view: &TableView, manifests: &[ManifestRef]) {
        self.of.snapshot = view.head;
        self.of.manifest_count = manifests.len() as u64;
        self.of.metadata_bytes = manifests.iter().fold(0, |sum, m| sum.saturating_add(m.bytes));
        self.set_specs(view);
    }

    /// Takes over which specs are unpartitioned.
    pub fn set_specs(&mut self, view: &TableView) {
        self.of.unpartitioned = unpartitioned(view);
    }

    fn put(&mut self, key: PartitionKey, layout: PartitionLayout) {
        self.weight = self.weight.saturating_add(weight_of(&key));
        self.partitions.insert(key, Arc::new(layout));
    }

    fn total(&self, content: Content) -> Counts {
        if content == Content::Data { self.data } else { self.deletes }
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

    /// One partition; `None` when it holds no live file.
    pub fn partition(&self, key: &PartitionKey) -> Option<&Arc<PartitionLayout>> {
        self.partitions.get(key)
    }

    /// All partitions that hold a live file, in key order.
    pub fn partitions(&self) -> &OrdMap<PartitionKey, Arc<PartitionLayout>> {
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
        self.weight
    }

    /// Equality deletes that reach every partition: those of unpartitioned specs.
    pub fn global_deletes(&self) -> Tally {
        let mut sum = Tally::default();
        for spec_id in &self.of.unpartitioned {
            let from = PartitionKey::unpartitioned(*spec_id);
            for (_, layout) in self.partitions.range(from..).take_while(|(key, _)| key.spec_id == *spec_id) {
                sum.files += layout.equality_deletes.files;
                sum.bytes = sum.bytes.saturating_add(layout.equality_deletes.bytes);
                sum.records = sum.records.saturating_add(layout.equality_deletes.records);
            }
        }
        sum
    }

    /// Partitions whose files differ between two layouts, whatever their scales.
    pub fn differing(&self, other: &Self) -> BTreeSet<PartitionKey> {
        let tallies = |l: &PartitionLayout| (l.data, l.position_deletes, l.equality_deletes, l.deletion_vectors);
        let mut keys = BTreeSet::new();
        for (key, layout) in &self.partitions {
            if !other.partition(key).is_some_and(|o| Arc::ptr_eq(o, layout) || tallies(o) == tallies(layout)) {
                keys.insert(key.clone());
            }
        }
        keys.extend(other.partitions.keys().filter(|key| !self.partitions.contains_key(*key)).cloned());
        keys
    }
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

/// Approximate memory of one partition: its key, its layout and the map's share.
fn weight_of(key: &PartitionKey) -> u64 {
    let fixed = size_of::<PartitionKey>() + size_of::<PartitionLayout>() + 64;
    let heap: usize = key.tuple.iter().map(|v| size_of::<Option<Value>>() + v.as_ref().map_or(0, heap_of)).sum();
    (fixed + heap) as u64
}

fn heap_of(value: &Value) -> usize {
    match value {
        Value::String(v) => v.len() + 16,
        Value::Bytes(v) => v.len() + 16,
        _ => 0,
    }
}
