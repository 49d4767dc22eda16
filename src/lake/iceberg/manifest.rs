//! Manifest lists and manifests: projected to the fields that layouts, plans
//! and the delete join need, or whole, for proofs and commits.
//!
//! Fields are found by their Iceberg field ids, as the specification demands;
//! names, which differ between writers, count only where a file has no ids.

mod avro;
mod entry;
mod list;
mod partition;
#[cfg(test)]
mod tests;
mod whole;

use std::sync::Arc;

use iceberg::io::FileIO;
use iceberg::spec::TableMetadata;

use super::store::Store;
use super::table::IcebergTable;
use crate::lake::{Error, Result};
use crate::model::file::{Entry, ManifestRef};

pub use partition::{PartitionTypes, Unresolved};
pub use whole::{Unreadable, parse};

/// The field id of a position delete's `file_path` column.
pub const DELETE_FILE_PATH: i32 = 2_147_483_546;
/// The field id of a position delete's `pos` column.
pub const DELETE_POS: i32 = 2_147_483_545;
/// The field id of the metadata column `_file`, under which DuckDB states the
/// bounds of `file_path`.
pub const FILE_COLUMN: i32 = 2_147_483_646;

/// How a file is encoded, by its manifest entry and never by its name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum FileFormat {
    /// Apache Parquet.
    Parquet,
    /// Apache Avro.
    Avro,
    /// Apache ORC.
    Orc,
    /// Puffin: deletion vectors.
    Puffin,
    /// Any other, as the manifest spells it.
    Other(Arc<str>),
}

/// One manifest entry with all that the delete join and the gates need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScanEntry {
    /// Status, snapshot, content, identity, partition, records, bytes.
    pub entry: Entry,
    /// Data sequence number, inherited from the manifest where an ADDED entry
    /// leaves it out; 0 for every entry of a v1 manifest.
    pub sequence_number: i64,
    /// File sequence number, inherited likewise.
    pub file_sequence_number: i64,
    /// Encoding of the file.
    pub format: FileFormat,
    /// Field ids of an equality delete's columns; empty for all other content.
    pub equality_ids: Vec<i32>,
    /// The sort order that the writer claims, if any.
    pub sort_order_id: Option<i32>,
    /// The id of a data file's first row (format v3), as the entry itself states it:
    /// one that leaves it out counts on from the manifest's, which only the manifest
    /// list knows.
    pub first_row_id: Option<i64>,
    /// The one data file that a deletion vector, or a position-delete file
    /// written for one data file, refers to.
    pub referenced_data_file: Option<Arc<str>>,
    /// Lower bound of the `file_path` column of a position-delete file, raw
    /// bytes; it may be truncated.
    pub path_lower: Option<Arc<[u8]>>,
    /// Upper bound of the same column; it may be truncated or wrong.
    pub path_upper: Option<Arc<[u8]>>,
    /// Equal bounds stated under the id of `_file`, which no reader of `file_path`
    /// bounds sees.
    pub file_column: Option<Arc<[u8]>>,
    /// Whether the file carries encryption key metadata.
    pub encrypted: bool,
}

/// Every entry of a manifest, in file order, all statuses, with snapshot ids
/// and sequence numbers inherited.
///
/// # Errors
/// [`Error::NotFound`] when the manifest is gone, [`Error::Unreachable`] when the
/// store does not answer, and a `damaged` refusal that names the manifest when it
/// is not what the specification says.
pub async fn scan(table: &IcebergTable, manifest: &ManifestRef) -> Result<Vec<ScanEntry>> {
    let bytes = Store::new(&table.loaded.io).read(&manifest.path).await?;
    entry::scan(&bytes, manifest, &table.loaded.metadata)
}

/// Every entry of a manifest, in file order, all statuses, projected for layouts.
///
/// # Errors
/// As [`scan`].
pub async fn entries(table: &IcebergTable, manifest: &ManifestRef) -> Result<Vec<Entry>> {
    entries_of(&table.loaded.metadata, &table.loaded.io, manifest).await
}

/// As [`entries`], of a table of which only the metadata is at hand.
pub(super) async fn entries_of(metadata: &TableMetadata, io: &FileIO, manifest: &ManifestRef) -> Result<Vec<Entry>> {
    let bytes = Store::new(io).read(&manifest.path).await?;
    entry::layout(&bytes, manifest, metadata)
}

/// The manifest list of a snapshot, in file order.
///
/// # Errors
/// [`Error::NotFound`] when the snapshot or its list is gone; otherwise as [`scan`].
pub async fn list(table: &IcebergTable, snapshot_id: i64) -> Result<Vec<ManifestRef>> {
    list_of(&table.loaded.metadata, &table.loaded.io, &table.loaded.metadata_location, snapshot_id).await
}

/// As [`list()`], of a table of which only the metadata, read from `location`, is at hand.
pub(super) async fn list_of(metadata: &TableMetadata, io: &FileIO, location: &str, snapshot_id: i64) -> Result<Vec<ManifestRef>> {
    let snapshot =
        metadata.snapshot_by_id(snapshot_id).ok_or_else(|| Error::NotFound { path: format!("snapshot {snapshot_id} of {location}") })?;
    let path = snapshot.manifest_list();
    if path.is_empty() {
        return Err(Error::damaged(location, format!("snapshot {snapshot_id} has no manifest list")));
    }
    let bytes = Store::new(io).read(path).await?;
    list::read(&bytes, path, snapshot_id)
}
