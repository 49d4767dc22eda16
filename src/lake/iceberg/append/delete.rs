//! Position deletes: the rows that hold given keys, found in the live files.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema};
use futures::{StreamExt, TryStreamExt, stream};
use iceberg::spec::{DataContentType, DataFile, DataFileBuilder, DataFileFormat, Datum, ManifestContentType};
use parquet::arrow::{ArrowWriter, PARQUET_FIELD_ID_META_KEY};

use super::{Made, Staged};
use crate::lake::iceberg::manifest::{self, DELETE_FILE_PATH, ScanEntry};
use crate::lake::iceberg::read::file::{ParquetFile, Store as Reader};
use crate::lake::iceberg::rewrite::place::Places;
use crate::lake::iceberg::scope::head;
use crate::lake::iceberg::store::Store;
use crate::lake::iceberg::table::IcebergTable;
use crate::lake::{Control, Error, Result};
use crate::model::file::EntryStatus;
use crate::model::partition::PartitionKey;
use crate::model::plan::AttemptId;

/// The field id of a position delete's `pos` column.
const DELETE_POS: i32 = 2_147_483_545;
/// Data files read at one time.
const PARALLEL_READS: usize = 4;
/// Keys read at one time.
const BATCH_ROWS: usize = 8192;

/// Finds every row of the live files whose `column`, of type long, holds one of
/// `keys`, and writes the position deletes, one file for each partition that has
/// such rows. Rows that are deleted already are found again: give no key twice.
///
/// The deletes hold for the files that are live in this load: [`super::commit`]
/// refuses them where one is gone.
///
/// A crash leaves files of which `control` was told.
///
/// # Errors
/// [`Error::Setup`] when there is no such column; `damaged` refusals; store errors.
pub async fn stage_delete(
    table: &IcebergTable,
    column: &str,
    keys: &BTreeSet<i64>,
    attempt: &AttemptId,
    control: &dyn Control,
) -> Result<Staged> {
    let metadata = &table.loaded.metadata;
    let field = metadata.current_schema().field_by_name(column);
    let id = field.map(|f| f.id).ok_or_else(|| Error::Setup(format!("{} has no column `{column}`", table.view.name)))?;
    let reader = Reader::new(&table.loaded.io);
    let finds = live_files(table).await?.into_iter().map(|file| {
        let reader = reader.clone();
        async move {
            let found = find(&reader, &file, id, keys).await?;
            Ok::<_, Error>((file.entry.partition, file.entry.key.path, found))
        }
    });
    let mut by_partition: BTreeMap<PartitionKey, Positions> = BTreeMap::new();
    let mut finds = stream::iter(finds).buffered(PARALLEL_READS);
    while let Some((partition, path, found)) = finds.try_next().await? {
        by_partition.entry(partition).or_default().extend(found.into_iter().map(|at| (path.to_string(), at)));
    }
    let mut staged = Staged::default();
    for (partition, positions) in by_partition.into_iter().filter(|(_, positions)| !positions.is_empty()) {
        staged.targets.extend(positions.iter().map(|(path, _)| path.clone()));
        let file = write(table, &partition, &positions, attempt, control).await?;
        staged.deletes.push(Made { spec_id: partition.spec_id, file });
    }
    staged.targets.dedup();
    Ok(staged)
}

/// Data files and positions, in the order that the format asks for.
type Positions = BTreeSet<(String, i64)>;

/// The live data files of the head.
pub(super) async fn live_files(table: &IcebergTable) -> Result<Vec<ScanEntry>> {
    let Some(head) = head::read(table).await? else { return Ok(Vec::new()) };
    let mut live = Vec::new();
    for data in head.manifests.iter().filter(|m| m.content == ManifestContentType::Data && !head::is_empty(m)) {
        let entries = manifest::scan(table, &head::reference(data)).await?;
        live.extend(entries.into_iter().filter(|e| e.entry.status != EntryStatus::Deleted));
    }
    Ok(live)
}

/// The positions in one file of the rows that hold one of the keys.
async fn find(reader: &Reader, file: &ScanEntry, id: i32, keys: &BTreeSet<i64>) -> Result<Vec<i64>> {
    let path = &file.entry.key.path;
    let parquet = ParquetFile::open(reader, path, file.entry.bytes).await?;
    let columns = parquet.footer().file_metadata().schema_descr().columns();
    let is_key = |info: &parquet::schema::types::BasicTypeInfo| info.has_id() && info.id() == id;
    let leaf = columns.iter().position(|c| is_key(c.self_type().get_basic_info()));
    let leaf = leaf.ok_or_else(|| Error::damaged(path, format!("no column has the field id {id}")))?;
    let (mut found, mut position) = (Vec::new(), 0);
    for group in 0..parquet.footer().num_row_groups() {
        let mut batches = parquet.stream(group, &[leaf], BATCH_ROWS).await?;
        while let Some(batch) = batches.next().await {
            let batch = match batch {
                Ok(batch) => batch,
                Err(error) => return Err(parquet.error(error).await),
            };
            let column = batch.columns().first().and_then(|c| c.as_primitive_opt::<Int64Type>());
            let column = column.ok_or_else(|| Error::damaged(path, format!("field {id} is not a long")))?;
            for key in column {
                if key.is_some_and(|key| keys.contains(&key)) {
                    found.push(position);
                }
                position += 1;
            }
        }
    }
    Ok(found)
}

/// Writes one partition's deletes and describes the file.
async fn write(
    table: &IcebergTable,
    partition: &PartitionKey,
    positions: &Positions,
    attempt: &AttemptId,
    control: &dyn Control,
) -> Result<DataFile> {
    let metadata = &table.loaded.metadata;
    let spec = metadata.partition_spec_by_id(partition.spec_id);
    let spec = spec.ok_or_else(|| Error::damaged(&table.loaded.metadata_location, format!("no partition spec {}", partition.spec_id)))?;
    let path = Places::new(metadata, spec, &partition.tuple, attempt)?.path(0);
    let encoded = encode(positions).map_err(|e| Error::Setup(format!("{path}: {e}")))?;
    let bytes = encoded.len() as u64;
    control.will_write(&path).await?;
    Store::new(&table.loaded.io).write(&path, encoded.into()).await?;
    let tuple = table.partition_types(partition.spec_id)?.to_struct(&partition.tuple).map_err(|why| Error::damaged(&path, why))?;
    let bounds = |path: Option<&(String, i64)>, at: Option<i64>| -> HashMap<i32, Datum> {
        let path = path.map(|(path, _)| (DELETE_FILE_PATH, Datum::string(path)));
        path.into_iter().chain(at.map(|at| (DELETE_POS, Datum::long(at)))).collect()
    };
    let at = || positions.iter().map(|(_, at)| *at);
    let rows = positions.len() as u64;
    DataFileBuilder::default()
        .content(DataContentType::PositionDeletes)
        .file_path(path.clone())
        .file_format(DataFileFormat::Parquet)
        .partition(tuple)
        .partition_spec_id(partition.spec_id)
        .record_count(rows)
        .file_size_in_bytes(bytes)
        .value_counts(HashMap::from([(DELETE_FILE_PATH, rows), (DELETE_POS, rows)]))
        .null_value_counts(HashMap::from([(DELETE_FILE_PATH, 0), (DELETE_POS, 0)]))
        .lower_bounds(bounds(positions.first(), at().min()))
        .upper_bounds(bounds(positions.last(), at().max()))
        .build()
        .map_err(|e| Error::Setup(format!("{path}: the file cannot be described: {e}")))
}

fn encode(positions: &Positions) -> anyhow::Result<Vec<u8>> {
    let field = |name: &str, kind, id: i32| {
        Field::new(name, kind, false).with_metadata(HashMap::from([(PARQUET_FIELD_ID_META_KEY.to_owned(), id.to_string())]))
    };
    let schema = Schema::new(vec![field("file_path", DataType::Utf8, DELETE_FILE_PATH), field("pos", DataType::Int64, DELETE_POS)]);
    let paths: ArrayRef = Arc::new(StringArray::from_iter_values(positions.iter().map(|(path, _)| path)));
    let places: ArrayRef = Arc::new(Int64Array::from_iter_values(positions.iter().map(|(_, at)| *at)));
    let batch = RecordBatch::try_new(Arc::new(schema), vec![paths, places])?;
    let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), None)?;
    writer.write(&batch)?;
    Ok(writer.into_inner()?)
}
