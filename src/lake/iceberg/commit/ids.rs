//! Row ids of format v3 in manifests and manifest lists.

use iceberg::spec::{DataContentType, DataFile, DataFileBuilder, FormatVersion, ManifestContentType, ManifestFile, TableMetadata};

use crate::lake::iceberg::lineage;
use crate::lake::{Error, Result};

/// The row ids that a snapshot gives out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The first: the table's next.
    pub first: u64,
    /// How many.
    pub rows: u64,
}

/// A manifest list to be written.
pub struct Listed {
    /// Its manifests.
    pub manifests: Vec<ManifestFile>,
    /// The row ids that its snapshot gives out; `None` before format v3.
    pub ids: Option<Range>,
}

/// Gives the first row id to every data manifest that has none: those that this
/// snapshot wrote, and those from before the table was upgraded. Each takes as many
/// ids as it has live rows, though files in it may have their own.
///
/// # Errors
/// `damaged`, when such a manifest does not state its rows; [`Error::Setup`] when ids
/// are used up.
pub fn assign(metadata: &TableMetadata, mut manifests: Vec<ManifestFile>) -> Result<Listed> {
    if !lineage::is_kept(metadata) {
        return Ok(Listed { manifests, ids: None });
    }
    let first = metadata.next_row_id();
    let mut next = first;
    for manifest in manifests.iter_mut().filter(|m| m.content == ManifestContentType::Data && m.first_row_id.is_none()) {
        let rows = manifest.added_rows_count.zip(manifest.existing_rows_count).and_then(|(added, kept)| added.checked_add(kept));
        let rows =
            rows.ok_or_else(|| Error::damaged(&manifest.manifest_path, "the manifest list does not state its rows, which need ids"))?;
        manifest.first_row_id = Some(next);
        next = next
            .checked_add(rows)
            .filter(|next| i64::try_from(*next).is_ok())
            .ok_or_else(|| Error::Setup("the table's row ids are used up".into()))?;
    }
    Ok(Listed { manifests, ids: Some(Range { first, rows: next - first }) })
}

/// Walks the live entries of one manifest and makes the row ids that they inherit
/// their own: in another manifest they would inherit others.
pub struct Inherited {
    kept: bool,
    next: Option<i64>,
}

impl Inherited {
    /// For the entries of a manifest of the base, in order.
    pub fn of(metadata: &TableMetadata, manifest: &ManifestFile) -> Self {
        let next = manifest.first_row_id.and_then(|first| i64::try_from(first).ok());
        Self { kept: metadata.format_version() >= FormatVersion::V3, next }
    }

    /// Enters the id into the next live file.
    ///
    /// # Errors
    /// `damaged`, when the file cannot be described anew.
    pub fn enter(&mut self, file: &mut DataFile, manifest: &ManifestFile) -> Result<()> {
        if !self.kept || file.content_type() != DataContentType::Data {
            return Ok(());
        }
        let rows = i64::try_from(file.record_count()).ok();
        let (id, next) = lineage::inherited(file.first_row_id(), self.next, rows);
        self.next = next;
        if id != file.first_row_id() {
            *file = with_id(file, manifest.partition_spec_id, id)?;
        }
        Ok(())
    }
}

/// Every field is named: the crate's builder would give a forgotten one its default.
fn with_id(file: &DataFile, spec_id: i32, id: Option<i64>) -> Result<DataFile> {
    let mut builder = DataFileBuilder::default();
    if let Some(order) = file.sort_order_id() {
        builder.sort_order_id(order);
    }
    builder
        .content(file.content_type())
        .file_path(file.file_path().to_owned())
        .file_format(file.file_format())
        .partition(file.partition().clone())
        .partition_spec_id(spec_id)
        .record_count(file.record_count())
        .file_size_in_bytes(file.file_size_in_bytes())
        .column_sizes(file.column_sizes().clone())
        .value_counts(file.value_counts().clone())
        .null_value_counts(file.null_value_counts().clone())
        .nan_value_counts(file.nan_value_counts().clone())
        .lower_bounds(file.lower_bounds().clone())
        .upper_bounds(file.upper_bounds().clone())
        .key_metadata(file.key_metadata().map(<[u8]>::to_vec))
        .split_offsets(file.split_offsets().map(<[i64]>::to_vec))
        .equality_ids(file.equality_ids())
        .first_row_id(id)
        .referenced_data_file(file.referenced_data_file())
        .content_offset(file.content_offset())
        .content_size_in_bytes(file.content_size_in_bytes())
        .build()
        .map_err(|e| Error::damaged(file.file_path(), e))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use iceberg::TableCreation;
    use iceberg::spec::{DataFileFormat, Schema, Struct, TableMetadataBuilder};

    use super::*;

    fn metadata(version: FormatVersion) -> TableMetadata {
        let creation = TableCreation::builder()
            .name("t".into())
            .location("memory:/t".into())
            .schema(Schema::builder().build().unwrap())
            .properties(HashMap::new())
            .format_version(version)
            .build();
        TableMetadataBuilder::from_table_creation(creation).unwrap().build().unwrap().metadata
    }

    fn manifest(content: ManifestContentType, first_row_id: Option<u64>, rows: Option<(u64, u64)>) -> ManifestFile {
        ManifestFile {
            manifest_path: "m".into(),
            manifest_length: 1,
            partition_spec_id: 3,
            content,
            sequence_number: 1,
            min_sequence_number: 1,
            added_snapshot_id: 1,
            added_files_count: Some(1),
            existing_files_count: Some(1),
            deleted_files_count: Some(0),
            added_rows_count: rows.map(|(added, _)| added),
            existing_rows_count: rows.map(|(_, existing)| existing),
            deleted_rows_count: Some(9),
            partitions: None,
            key_metadata: None,
            first_row_id,
        }
    }

    #[test]
    fn data_manifests_without_ids_get_them_in_order_and_no_others() {
        let (data, deletes) = (ManifestContentType::Data, ManifestContentType::Deletes);
        let rows = Some((10, 5));
        let listed =
            vec![manifest(data, None, rows), manifest(deletes, None, rows), manifest(data, Some(4), rows), manifest(data, None, rows)];
        let assigned = assign(&metadata(FormatVersion::V3), listed.clone()).unwrap();
        let firsts: Vec<_> = assigned.manifests.iter().map(|m| m.first_row_id).collect();
        assert_eq!(firsts, [Some(0), None, Some(4), Some(15)]);
        assert_eq!(assigned.ids, Some(Range { first: 0, rows: 30 }));
        let before = assign(&metadata(FormatVersion::V2), listed).unwrap();
        assert_eq!((before.manifests[0].first_row_id, before.ids), (None, None));
    }

    #[test]
    fn a_manifest_that_does_not_state_its_rows_gets_no_ids() {
        assert!(assign(&metadata(FormatVersion::V3), vec![manifest(ManifestContentType::Data, None, None)]).is_err());
        let all = manifest(ManifestContentType::Data, None, Some((i64::MAX as u64, 1)));
        assert!(assign(&metadata(FormatVersion::V3), vec![all]).is_err());
    }

    fn file(first_row_id: Option<i64>) -> DataFile {
        DataFileBuilder::default()
            .file_path("f".into())
            .file_format(DataFileFormat::Parquet)
            .content(DataContentType::Data)
            .partition(Struct::empty())
            .partition_spec_id(3)
            .file_size_in_bytes(1)
            .record_count(7)
            .key_metadata(Some(vec![1]))
            .split_offsets(Some(vec![4]))
            .sort_order_id(2)
            .first_row_id(first_row_id)
            .build()
            .unwrap()
    }

    /// The ids of survivors, one after the other.
    fn kept(version: FormatVersion, first: Option<u64>, own: [Option<i64>; 3]) -> Vec<Option<i64>> {
        let from = manifest(ManifestContentType::Data, first, None);
        let mut ids = Inherited::of(&metadata(version), &from);
        let enter = |own| {
            let mut entered = file(own);
            ids.enter(&mut entered, &from).unwrap();
            assert_eq!(entered, file(entered.first_row_id()), "nothing else is another");
            entered.first_row_id()
        };
        own.map(enter).to_vec()
    }

    #[test]
    fn survivors_keep_the_ids_that_they_had_as_their_own() {
        let own = [None, Some(50), None];
        assert_eq!(kept(FormatVersion::V3, Some(100), own), [Some(100), Some(50), Some(107)]);
        assert_eq!(kept(FormatVersion::V3, None, own), [None; 3]);
        assert_eq!(kept(FormatVersion::V2, Some(100), own), own);
    }
}
