//! The head of a table's branch: its snapshot and its manifest list, with the
//! partition summaries that the projected reader leaves out.

use iceberg::spec::{
    FormatVersion, ManifestContentType, ManifestFile, ManifestList, PrimitiveType, SchemaRef, SnapshotRef, StructType, TableMetadata, Type,
};

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
    let list = parsed(&bytes, version).map_err(|e| Error::damaged(path, e))?;
    let manifests: Vec<_> = list.consume_entries().into_iter().collect();
    if let Some(encrypted) = manifests.iter().find(|m| m.key_metadata.is_some()) {
        return Err(Refused::new(Refusal::Encrypted, format!("{}: manifest has key metadata", encrypted.manifest_path)).into());
    }
    Ok(manifests)
}

/// A manifest list of a table that has this version now.
///
/// # Errors
/// When it is none.
pub fn parsed(bytes: &[u8], version: FormatVersion) -> iceberg::Result<ManifestList> {
    ManifestList::parse_with_version(bytes, version).or_else(|e| match version {
        // A table upgraded from v1 keeps its old lists.
        FormatVersion::V1 => Err(e),
        _ => ManifestList::parse_with_version(bytes, FormatVersion::V1).map_err(|_| e),
    })
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

/// Refuses a spec with a uuid among its partition values: the manifest writer
/// takes none, so a rewrite would be done and could not be committed.
///
/// # Errors
/// With [`Refusal::ColumnType`] for such a spec.
pub fn writable(metadata: &TableMetadata, spec_id: i32) -> Result<()> {
    let kind = partition_type(metadata, spec_id);
    let mut fields = kind.iter().flat_map(|kind| kind.fields());
    match fields.find(|f| matches!(*f.field_type, Type::Primitive(PrimitiveType::Uuid))) {
        Some(f) => {
            let found = format!("partition field {} of spec {spec_id} is a uuid, which manifests written here cannot hold", f.name);
            Err(Refused::new(Refusal::ColumnType, found).into())
        }
        None => Ok(()),
    }
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

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use iceberg::TableCreation;
    use iceberg::spec::{NestedField, Schema, TableMetadataBuilder, Transform, UnboundPartitionSpec};

    use super::*;

    fn partitioned_by_uuid(transform: Transform) -> TableMetadata {
        let fields = [NestedField::optional(1, "u", Type::Primitive(PrimitiveType::Uuid)).into()];
        let spec = UnboundPartitionSpec::builder().add_partition_field(1, "part", transform).unwrap().build();
        let creation = TableCreation::builder()
            .name("t".into())
            .location("memory:/t".into())
            .schema(Schema::builder().with_fields(fields).build().unwrap())
            .partition_spec(spec)
            .properties(HashMap::new())
            .build();
        TableMetadataBuilder::from_table_creation(creation).unwrap().build().unwrap().metadata
    }

    #[test]
    fn a_spec_whose_manifests_cannot_be_written_is_refused_before_any_work() {
        let metadata = partitioned_by_uuid(Transform::Identity);
        let refused = match writable(&metadata, metadata.default_partition_spec_id()) {
            Err(Error::Refused(refused)) => refused,
            other => panic!("{other:?}"),
        };
        assert_eq!(refused.refusal, Refusal::ColumnType);
        assert_eq!(refused.detail, "partition field part of spec 0 is a uuid, which manifests written here cannot hold");
    }

    #[test]
    fn a_bucket_of_a_uuid_is_a_number_and_is_no_obstacle() {
        let metadata = partitioned_by_uuid(Transform::Bucket(4));
        assert!(writable(&metadata, metadata.default_partition_spec_id()).is_ok());
    }
}
