//! Position deletes: the rows that hold given keys, found in the live files.

use std::collections::{BTreeMap, BTreeSet};

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use futures::{StreamExt, TryStreamExt, stream};
use iceberg::spec::ManifestContentType;

use super::{Made, Staged};
use crate::lake::iceberg::manifest::{self, ScanEntry};
use crate::lake::iceberg::positions::{self, At};
use crate::lake::iceberg::read::file::{ParquetFile, Store as Reader};
use crate::lake::iceberg::scope::head;
use crate::lake::iceberg::table::IcebergTable;
use crate::lake::{Control, Error, Result};
use crate::model::file::EntryStatus;
use crate::model::partition::PartitionKey;
use crate::model::plan::AttemptId;

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
        let at = At { partition: &partition, attempt, number: 0 };
        let rows = positions.iter().map(|(path, at)| (path.as_str(), *at));
        let file = positions::write(table, at, rows, control).await?;
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
