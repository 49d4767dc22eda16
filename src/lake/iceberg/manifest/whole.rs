//! Manifests with all that they say of each file, as the crate's own types: its
//! parser builds a tree of named values for each record, which takes ten times as long.

use std::collections::HashMap;

use iceberg::metadata_columns::get_metadata_field;
use iceberg::spec::{
    DataContentType, DataFile, DataFileBuilder, Datum, FormatVersion, ManifestEntry, ManifestMetadata, ManifestStatus, Schema,
};
use serde::Deserialize;

use super::avro::{Blob, Container};
use super::entry::{name, partition_record};
use super::partition::{Columns, PartitionTypes, RawTuple};

/// Why a manifest cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// Its header, or a value that its header types.
    #[error("{0}")]
    Crate(#[from] iceberg::Error),
    /// Anything else.
    #[error("{0}")]
    Text(String),
}

impl From<String> for Unreadable {
    fn from(why: String) -> Self {
        Self::Text(why)
    }
}

/// One record of a manifest, by canonical names.
#[derive(Deserialize)]
struct Row {
    status: i32,
    snapshot_id: Option<i64>,
    sequence_number: Option<i64>,
    file_sequence_number: Option<i64>,
    data_file: File,
}

#[derive(Deserialize)]
struct File {
    #[serde(default)]
    content: i32,
    file_path: String,
    file_format: String,
    partition: RawTuple,
    record_count: i64,
    file_size_in_bytes: i64,
    column_sizes: Option<Vec<Count>>,
    value_counts: Option<Vec<Count>>,
    null_value_counts: Option<Vec<Count>>,
    nan_value_counts: Option<Vec<Count>>,
    lower_bounds: Option<Vec<Bound>>,
    upper_bounds: Option<Vec<Bound>>,
    key_metadata: Option<Blob>,
    split_offsets: Option<Vec<i64>>,
    equality_ids: Option<Vec<i32>>,
    sort_order_id: Option<i32>,
    first_row_id: Option<i64>,
    referenced_data_file: Option<String>,
    content_offset: Option<i64>,
    content_size_in_bytes: Option<i64>,
}

#[derive(Deserialize)]
struct Count {
    key: i32,
    value: i64,
}

#[derive(Deserialize)]
struct Bound {
    key: i32,
    value: Blob,
}

/// What the header says, and the entries of the files that are `wanted` by their paths,
/// in file order, all statuses. Nothing is inherited from the manifest list.
///
/// Partition values and bounds are typed by the manifest's own schema. Counts below
/// zero, and bounds of columns that it does not list, are left out.
///
/// # Errors
/// When the manifest is not what the specification says, or its own schema does not
/// type its partition spec.
pub fn parse(bytes: &[u8], wanted: impl Fn(&str) -> bool) -> Result<(ManifestMetadata, Vec<ManifestEntry>), Unreadable> {
    let container = Container::open(bytes, name)?;
    let metadata = ManifestMetadata::parse(&container.meta)?;
    let types = PartitionTypes::typed(&metadata.partition_spec, &metadata.partition_spec.partition_type(&metadata.schema)?);
    let record = partition_record(&container.schema).ok_or_else(|| "the schema holds no partition record".to_owned())?;
    let columns = Columns::of(record, Some(&types))?;
    let mut entries = Vec::new();
    for row in container.records::<Row>()? {
        if wanted(&row.data_file.file_path) {
            let path = row.data_file.file_path.clone();
            entries.push(entry(row, &metadata, &types, &columns).map_err(|why| format!("{path}: {why}"))?);
        }
    }
    Ok((metadata, entries))
}

fn entry(row: Row, metadata: &ManifestMetadata, types: &PartitionTypes, columns: &Columns) -> Result<ManifestEntry, Unreadable> {
    let file = row.data_file;
    let partition = types.to_struct(&columns.tuple(&file.partition)?)?;
    let size = |what: &str, value: i64| u64::try_from(value).map_err(|_| format!("{what} is {value}"));
    let mut data = DataFileBuilder::default();
    if let Some(order) = file.sort_order_id {
        data.sort_order_id(order);
    }
    data.content(DataContentType::try_from(file.content)?)
        .file_path(file.file_path)
        .file_format(file.file_format.parse()?)
        .partition(partition)
        .partition_spec_id(metadata.partition_spec.spec_id())
        .record_count(size("record_count", file.record_count)?)
        .file_size_in_bytes(size("the size", file.file_size_in_bytes)?)
        .column_sizes(counts(file.column_sizes))
        .value_counts(counts(file.value_counts))
        .null_value_counts(counts(file.null_value_counts))
        .nan_value_counts(counts(file.nan_value_counts))
        .lower_bounds(bounds(file.lower_bounds, &metadata.schema)?)
        .upper_bounds(bounds(file.upper_bounds, &metadata.schema)?)
        .key_metadata(file.key_metadata.map(|key| key.0))
        .split_offsets(file.split_offsets)
        .equality_ids(file.equality_ids)
        .first_row_id(file.first_row_id)
        .referenced_data_file(file.referenced_data_file)
        .content_offset(file.content_offset)
        .content_size_in_bytes(file.content_size_in_bytes);
    let data_file: DataFile = data.build().map_err(|e| e.to_string())?;
    let (sequence_number, file_sequence_number) = match metadata.format_version {
        FormatVersion::V1 => (Some(0), Some(0)),
        _ => (row.sequence_number, row.file_sequence_number),
    };
    Ok(ManifestEntry {
        status: ManifestStatus::try_from(row.status)?,
        snapshot_id: row.snapshot_id,
        sequence_number,
        file_sequence_number,
        data_file,
    })
}

fn counts(stated: Option<Vec<Count>>) -> HashMap<i32, u64> {
    let known = |count: Count| Some((count.key, u64::try_from(count.value).ok()?));
    stated.into_iter().flatten().filter_map(known).collect()
}

fn bounds(stated: Option<Vec<Bound>>, schema: &Schema) -> Result<HashMap<i32, Datum>, Unreadable> {
    let stated = stated.unwrap_or_default();
    let mut bounds = HashMap::with_capacity(stated.len());
    for bound in stated {
        let Some(field) = schema.field_by_id(bound.key).or_else(|| get_metadata_field(bound.key).ok()) else { continue };
        let kind = field.field_type.as_primitive_type().ok_or_else(|| format!("a bound of `{}`, which is not primitive", field.name))?;
        bounds.insert(bound.key, Datum::try_from_bytes(&bound.value.0, kind.clone())?);
    }
    Ok(bounds)
}
