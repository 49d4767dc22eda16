//! The head of a table's branch: its snapshot and its manifest list, with the
//! partition summaries that the projected reader leaves out.

use iceberg::spec::{FormatVersion, ManifestContentType, ManifestFile, ManifestList, SchemaRef, SnapshotRef, StructType, TableMetadata};

use crate::lake::iceberg::store::Store;
use crate::lake::iceberg::table::IcebergTable;
use crate::lake::{Error, Result};
use crate::model::file::ManifestRef;
use crate::model::refusal::{Refusal, Refused};

/// A branch's head snapshot with its manifests.
pub struct Head {
    /// The snapshot.
    pub snapshot: SnapshotRef,
    /// Its manifest list, in file order.
    pub manifests: Vec<ManifestFile>,
}

/// Reads the manifest list of the branch that the table was loaded for. `None`
/// when the branch has no snapshot.
///
/// # Errors
/// [`Error::NotFound`] and [`Error::Unreachable`] from the store; refusals
/// `damaged` and `encrypted`, naming the file.
pub async fn read(table: &IcebergTable) -> Result<Option<Head>> {
    let metadata = &table.loaded.metadata;
    let Some(snapshot) = metadata.snapshot_for_ref(&table.view.reference) else { return Ok(None) };
    let manifests = manifests_of(table, snapshot).await?;
    Ok(Some(Head { snapshot: snapshot.clone(), manifests }))
}

/// The manifest list of one snapshot.
///
/// # Errors
/// As [`read`].
pub async fn manifests_of(table: &IcebergTable, snapshot: &SnapshotRef) -> Result<Vec<ManifestFile>> {
    let path = snapshot.manifest_list();
    if path.is_empty() {
        let why = format!("snapshot {} has no manifest list", snapshot.snapshot_id());
        return Err(Error::damaged(&table.loaded.metadata_location, why));
    }
    if snapshot.encryption_key_id().is_some() {
        return Err(Refused::new(Refusal::Encrypted, format!("{path}: manifest list has a key id")).into());
    }
    let bytes = Store::new(&table.loaded.io).read(path).await?;
    let version = table.loaded.metadata.format_version();
    let list = ManifestList::parse_with_version(&bytes, version)
        .or_else(|e| match version {
            // A table upgraded from v1 keeps its old lists.
            FormatVersion::V1 => Err(e),
            _ => ManifestList::parse_with_version(&bytes, FormatVersion::V1).map_err(|_| e),
        })
        .map_err(|e| Error::damaged(path, e))?;
    let manifests: Vec<_> = list.consume_entries().into_iter().collect();
    if let Some(encrypted) = manifests.iter().find(|m| m.key_metadata.is_some()) {
        return Err(Refused::new(Refusal::Encrypted, format!("{}: manifest has key metadata", encrypted.manifest_path)).into());
    }
    Ok(manifests)
}

/// A manifest list's row as the projected reader takes it.
pub fn reference(manifest: &ManifestFile) -> ManifestRef {
    let files = manifest.added_files_count.zip(manifest.existing_files_count);
    let records = manifest.added_rows_count.zip(manifest.existing_rows_count);
    ManifestRef {
        path: manifest.manifest_path.as_str().into(),
        bytes: u64::try_from(manifest.manifest_length).unwrap_or(0),
        spec_id: manifest.partition_spec_id,
        deletes: manifest.content == ManifestContentType::Deletes,
        added_snapshot_id: manifest.added_snapshot_id,
        sequence_number: manifest.sequence_number,
        live_files: files.map(|(a, e)| u64::from(a) + u64::from(e)),
        live_records: records.and_then(|(a, e)| a.checked_add(e)),
    }
}

/// Whether the list says that no entry of the manifest is live. An absent count
/// says nothing.
pub fn is_empty(manifest: &ManifestFile) -> bool {
    manifest.added_files_count == Some(0) && manifest.existing_files_count == Some(0)
}

/// The partition type of a spec in the current schema or, for a dropped source
/// column, in the newest older one that gives every field a type.
pub fn partition_type(metadata: &TableMetadata, spec_id: i32) -> Option<StructType> {
    let spec = metadata.partition_spec_by_id(spec_id)?;
    schemas(metadata).find_map(|schema| spec.partition_type(schema).ok())
}

/// The current schema, then the older ones, newest first.
pub fn schemas(metadata: &TableMetadata) -> impl Iterator<Item = &SchemaRef> {
    let mut older: Vec<_> = metadata.schemas_iter().collect();
    older.sort_by_key(|s| std::cmp::Reverse(s.schema_id()));
    std::iter::once(metadata.current_schema()).chain(older)
}

/// Whether a spec has no field, or only void ones. A spec that the metadata does
/// not list is none.
pub fn is_unpartitioned(metadata: &TableMetadata, spec_id: i32) -> bool {
    metadata.partition_spec_by_id(spec_id).is_some_and(|s| s.is_unpartitioned())
}
