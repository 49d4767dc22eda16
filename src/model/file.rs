//! Files as manifests describe them, reduced to what layouts and plans need.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::partition::PartitionKey;

/// What a file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Content {
    /// Rows.
    Data,
    /// Positions of deleted rows (format v2).
    PositionDeletes,
    /// Keys of deleted rows.
    EqualityDeletes,
    /// A deletion vector in a Puffin file (format v3).
    DeletionVector,
}

/// Whether a manifest entry adds, keeps or removes its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EntryStatus {
    /// Carried over by a manifest rewrite.
    Existing,
    /// Added by the entry's snapshot.
    Added,
    /// Removed by the entry's snapshot.
    Deleted,
}

/// The identity of a live file. A Puffin file holds many deletion vectors, so
/// its path alone names none of them.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FileKey {
    /// The path exactly as the metadata spells it.
    pub path: Arc<str>,
    /// The blob's offset, for a deletion vector.
    pub offset: Option<i64>,
}

/// One manifest entry, projected to what layout traits need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Adds, keeps or removes.
    pub status: EntryStatus,
    /// The snapshot that added or removed the file (inherited from the
    /// manifest where the entry leaves it out).
    pub snapshot_id: i64,
    /// Rows, or a kind of deletes.
    pub content: Content,
    /// Identity.
    pub key: FileKey,
    /// The partition, by the manifest's spec.
    pub partition: PartitionKey,
    /// Rows, deleted positions, deleted keys, or a vector's cardinality.
    pub records: u64,
    /// File size in bytes; a deletion vector counts its own blob.
    pub bytes: u64,
}

/// One row of a manifest list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestRef {
    /// Manifest path as the list spells it.
    pub path: Arc<str>,
    /// Length in bytes.
    pub bytes: u64,
    /// Partition spec of all its entries.
    pub spec_id: i32,
    /// Whether it lists delete files.
    pub deletes: bool,
    /// The snapshot that wrote the manifest.
    pub added_snapshot_id: i64,
    /// The sequence number at which it was added (0 in format v1).
    pub sequence_number: i64,
    /// Live files, `added + existing`; `None` when the list leaves it out (v1).
    pub live_files: Option<u64>,
    /// Rows of the live files; `None` when the list leaves it out (v1).
    pub live_records: Option<u64>,
}
