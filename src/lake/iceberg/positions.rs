//! Position-delete files, written as the format asks for them.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema};
use iceberg::spec::{DataContentType, DataFile, DataFileBuilder, DataFileFormat, Datum};
use parquet::arrow::{ArrowWriter, PARQUET_FIELD_ID_META_KEY};
use parquet::file::properties::WriterProperties;

use super::manifest::{DELETE_FILE_PATH, DELETE_POS};
use super::properties::of_position_deletes;
use super::rewrite::place::Places;
use super::store::Store;
use super::table::IcebergTable;
use crate::lake::{Control, Error, Result};
use crate::model::partition::PartitionKey;
use crate::model::plan::AttemptId;

/// Rows encoded at one time.
const BATCH: usize = 64 << 10;

/// Where a position-delete file goes.
pub struct At<'a> {
    /// Partition of the data files that it names, and its own.
    pub partition: &'a PartitionKey,
    /// Whose file it is.
    pub attempt: &'a AttemptId,
    /// Which of the attempt's files of this partition.
    pub number: usize,
}

/// Writes the deletes of `rows`, data files and positions in ascending order, and
/// describes the file: bounds are whole, and a single data file is named.
///
/// A crash leaves a file of which `control` was told.
///
/// # Errors
/// [`Error::Setup`] when there are none; `damaged` refusals; store errors.
pub async fn write<'a>(
    table: &IcebergTable,
    at: At<'_>,
    rows: impl Iterator<Item = (&'a str, i64)> + Send,
    control: &dyn Control,
) -> Result<DataFile> {
    let metadata = &table.loaded.metadata;
    let spec_id = at.partition.spec_id;
    let spec = metadata.partition_spec_by_id(spec_id);
    let spec = spec.ok_or_else(|| Error::damaged(&table.loaded.metadata_location, format!("no partition spec {spec_id}")))?;
    let path = Places::new(metadata, spec, &at.partition.tuple, at.attempt)?.path(at.number);
    let properties = of_position_deletes(metadata.properties())?;
    let encoded = encode(rows, properties).map_err(|e| Error::Setup(format!("{path}: {e:#}")))?;
    let tuple = table.partition_types(spec_id)?.to_struct(&at.partition.tuple).map_err(|why| Error::damaged(&path, why))?;
    let Encoded { bytes, rows, paths, positions } = encoded;
    let size = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    control.will_write(&path).await?;
    Store::new(&table.loaded.io).write(&path, bytes.into()).await?;
    let bounds =
        |path: &str, at: i64| -> HashMap<i32, Datum> { [(DELETE_FILE_PATH, Datum::string(path)), (DELETE_POS, Datum::long(at))].into() };
    DataFileBuilder::default()
        .content(DataContentType::PositionDeletes)
        .file_path(path.clone())
        .file_format(DataFileFormat::Parquet)
        .partition(tuple)
        .partition_spec_id(spec_id)
        .record_count(rows)
        .file_size_in_bytes(size)
        .value_counts(HashMap::from([(DELETE_FILE_PATH, rows), (DELETE_POS, rows)]))
        .null_value_counts(HashMap::from([(DELETE_FILE_PATH, 0), (DELETE_POS, 0)]))
        .lower_bounds(bounds(&paths.0, positions.0))
        .upper_bounds(bounds(&paths.1, positions.1))
        .referenced_data_file((paths.0 == paths.1).then_some(paths.0))
        .build()
        .map_err(|e| Error::Setup(format!("{path}: the file cannot be described: {e}")))
}

/// Lowest and highest path, lowest and highest position.
type Ends<'a> = ((&'a str, &'a str), (i64, i64));

struct Encoded {
    bytes: Vec<u8>,
    rows: u64,
    /// Lowest and highest.
    paths: (String, String),
    positions: (i64, i64),
}

fn encode<'a>(rows: impl Iterator<Item = (&'a str, i64)>, properties: WriterProperties) -> anyhow::Result<Encoded> {
    let field = |name: &str, kind, id: i32| {
        Field::new(name, kind, false).with_metadata(HashMap::from([(PARQUET_FIELD_ID_META_KEY.to_owned(), id.to_string())]))
    };
    let schema =
        Arc::new(Schema::new(vec![field("file_path", DataType::Utf8, DELETE_FILE_PATH), field("pos", DataType::Int64, DELETE_POS)]));
    let mut writer = ArrowWriter::try_new(Vec::new(), Arc::clone(&schema), Some(properties))?;
    let mut ends: Option<Ends<'_>> = None;
    let (mut count, mut last) = (0u64, None);
    let mut rows = rows.peekable();
    while rows.peek().is_some() {
        let (mut paths, mut positions) = (Vec::new(), Vec::new());
        for (path, at) in rows.by_ref().take(BATCH) {
            anyhow::ensure!(last < Some((path, at)), "position deletes out of order: {path} at {at}");
            last = Some((path, at));
            ends = Some(match ends {
                None => ((path, path), (at, at)),
                Some(((first, _), (least, most))) => ((first, path), (least.min(at), most.max(at))),
            });
            paths.push(path);
            positions.push(at);
        }
        count = count.saturating_add(u64::try_from(positions.len())?);
        let columns: Vec<ArrayRef> = vec![Arc::new(StringArray::from(paths)), Arc::new(Int64Array::from(positions))];
        writer.write(&RecordBatch::try_new(Arc::clone(&schema), columns)?)?;
    }
    let ((first, last), positions) = ends.ok_or_else(|| anyhow::anyhow!("no row to delete"))?;
    Ok(Encoded { bytes: writer.into_inner()?, rows: count, paths: (first.to_owned(), last.to_owned()), positions })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_is_told_whole() {
        let rows = [("a", 3), ("a", 9), ("b", 1)];
        let encoded = encode(rows.into_iter(), WriterProperties::default()).unwrap();
        assert_eq!((encoded.rows, encoded.paths, encoded.positions), (3, ("a".into(), "b".into()), (1, 9)));
    }

    #[test]
    fn rows_out_of_order_and_no_rows_are_errors() {
        for rows in [vec![("b", 1), ("a", 2)], vec![("a", 2), ("a", 1)], vec![("a", 1), ("a", 1)], vec![]] {
            assert!(encode(rows.into_iter(), WriterProperties::default()).is_err());
        }
    }
}
