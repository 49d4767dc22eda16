//! The partitions of one table, packed: an ordered map that shares with earlier
//! versions of itself what did not change.

use std::ops::Bound;
use std::sync::Arc;

use imbl::OrdMap;
use imbl::ordmap::DiffItem;

use super::history::Heard;
use super::pack;
use crate::model::layout::{Drift, PartitionLayout};
use crate::model::partition::PartitionKey;

/// Packed partitions in the order of their keys. A partition without a live file
/// is not among them.
#[derive(Clone, Debug, Default)]
pub struct Partitions {
    rows: OrdMap<Arc<[u8]>, Arc<[u8]>>,
    bytes: u64,
}

/// One partition in two versions of a table; `None` where it has no live file.
#[derive(Clone, Debug, PartialEq)]
pub struct Differing {
    /// The partition.
    pub key: PartitionKey,
    /// Its sums before.
    pub before: Option<PartitionLayout>,
    /// Its sums now.
    pub after: Option<PartitionLayout>,
}

impl Partitions {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// One partition's sums.
    pub fn get(&self, key: &PartitionKey) -> Option<PartitionLayout> {
        self.row(&pack::key(key)).map(|(layout, _)| layout)
    }

    /// What was heard of one partition, if anything.
    pub fn heard(&self, key: &PartitionKey) -> Option<Heard> {
        self.row(&pack::key(key))?.1
    }

    /// Whether the partition is there.
    pub fn contains_key(&self, key: &PartitionKey) -> bool {
        self.rows.contains_key(pack::key(key).as_slice())
    }

    /// Every partition, in the order of keys.
    pub fn iter(&self) -> impl Iterator<Item = (PartitionKey, PartitionLayout)> + '_ {
        self.rows.iter().map(|(key, row)| unpack(key, row))
    }

    /// Every key, in order.
    pub fn keys(&self) -> impl Iterator<Item = PartitionKey> + '_ {
        self.rows.keys().map(|key| unpack_key(key))
    }

    /// Every partition's sums, in the order of keys.
    pub fn values(&self) -> impl Iterator<Item = PartitionLayout> + '_ {
        self.rows.values().map(|row| unpack_row(row).0)
    }

    /// The partitions from a key on, in order.
    pub fn range(&self, from: Bound<&PartitionKey>) -> impl Iterator<Item = (PartitionKey, PartitionLayout)> + '_ {
        let from = from.map(pack::key);
        let from = from.as_ref().map(Vec::as_slice);
        self.rows.range::<_, [u8]>((from, Bound::Unbounded)).map(|(key, row)| unpack(key, row))
    }

    /// The partitions that differ between this version and a later one, in sums
    /// or in what was heard. Costs what differs where one came from the other.
    pub fn diff<'a>(&'a self, now: &'a Self) -> impl Iterator<Item = Differing> + 'a {
        let sums = |row: &Arc<[u8]>| Some(unpack_row(row).0);
        self.rows.diff(&now.rows).map(move |item| match item {
            DiffItem::Add(key, row) => Differing { key: unpack_key(key), before: None, after: sums(row) },
            DiffItem::Remove(key, row) => Differing { key: unpack_key(key), before: sums(row), after: None },
            DiffItem::Update { old: (key, old), new: (_, new) } => Differing { key: unpack_key(key), before: sums(old), after: sums(new) },
        })
    }

    /// Approximate memory in bytes.
    pub fn weight(&self) -> u64 {
        self.bytes
    }

    /// Changes one partition's sums; it comes into being with its first file and
    /// goes with its last. An error changes nothing.
    pub(super) fn edit(&mut self, key: &PartitionKey, change: impl FnOnce(&mut PartitionLayout) -> Result<(), Drift>) -> Result<(), Drift> {
        let key = pack::key(key);
        let (mut layout, heard) = self.row(&key).unwrap_or_default();
        change(&mut layout)?;
        match layout.is_empty() {
            true => self.remove(&key),
            false => self.put(&key, &pack::row(&layout, heard.as_ref())),
        }
        Ok(())
    }

    /// Notes what was heard of a partition, if it is there.
    pub(super) fn hear(&mut self, key: &PartitionKey, heard: &Heard) {
        let key = pack::key(key);
        if let Some((layout, _)) = self.row(&key) {
            self.put(&key, &pack::row(&layout, Some(heard)));
        }
    }

    /// Packed keys and rows, in order.
    pub(super) fn packed(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.rows.iter().map(|(key, row)| (&**key, &**row))
    }

    /// Packed keys with their rows in a later version where that has others;
    /// `None` for a partition that is gone.
    pub(super) fn packed_diff<'a>(&'a self, now: &'a Self) -> impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)> {
        self.rows.diff(&now.rows).map(|item| match item {
            DiffItem::Add(key, row) | DiffItem::Update { new: (key, row), .. } => (&**key, Some(&**row)),
            DiffItem::Remove(key, _) => (&**key, None),
        })
    }

    /// Puts a packed partition in place of the one before. Both must be what
    /// [`pack`] made.
    pub(super) fn put(&mut self, key: &[u8], row: &[u8]) {
        let weight = weight_of(key, row);
        let before = match self.rows.get_mut(key) {
            Some(held) => std::mem::replace(held, row.into()),
            None => {
                self.rows.insert(key.into(), row.into());
                self.bytes = self.bytes.saturating_add(weight);
                return;
            }
        };
        self.bytes = self.bytes.saturating_sub(weight_of(key, &before)).saturating_add(weight);
    }

    /// Removes a packed partition.
    pub(super) fn remove(&mut self, key: &[u8]) {
        if let Some(row) = self.rows.remove(key) {
            self.bytes = self.bytes.saturating_sub(weight_of(key, &row));
        }
    }

    pub(super) fn row(&self, key: &[u8]) -> Option<(PartitionLayout, Option<Heard>)> {
        self.rows.get(key).map(|row| unpack_row(row))
    }
}

/// Two are equal when the sums of all partitions are, whatever was heard.
impl PartialEq for Partitions {
    fn eq(&self, other: &Self) -> bool {
        let same = |row: &[u8], other: &[u8]| row == other || unpack_row(row).0 == unpack_row(other).0;
        let mut pairs = self.packed().zip(other.packed());
        self.len() == other.len() && pairs.all(|((key, row), (other_key, other))| key == other_key && same(row, other))
    }
}

impl Eq for Partitions {}

fn unpack(key: &[u8], row: &[u8]) -> (PartitionKey, PartitionLayout) {
    (unpack_key(key), unpack_row(row).0)
}

/// Every key held was packed here, or read once when it came from a checkpoint.
fn unpack_key(key: &[u8]) -> PartitionKey {
    pack::read_key(key).unwrap_or_else(|| PartitionKey::unpartitioned(0))
}

/// As for keys.
fn unpack_row(row: &[u8]) -> (PartitionLayout, Option<Heard>) {
    pack::read_row(row).unwrap_or_default()
}

/// Two allocations with their counters, and a place in a node of the map, which
/// is a little over half full.
fn weight_of(key: &[u8], row: &[u8]) -> u64 {
    let allocated = |bytes: &[u8]| (bytes.len() + 24).next_multiple_of(16);
    (allocated(key) + allocated(row) + 3 * size_of::<Arc<[u8]>>()) as u64
}
