//! The outputs read back, plainly: no adapter, no deletes, every column by place.

use arrow_schema::{DataType, Field, Fields, Schema, SchemaRef};
use futures::StreamExt;
use iceberg::spec::DataFile;

use super::bounds::Bounds;
use super::{failed, unproven};
use crate::lake::Result;
use crate::lake::iceberg::hash::ColumnHasher;
use crate::lake::iceberg::read::file::{ParquetFile, Store};
use crate::lake::iceberg::read::schema::{children, field_id};
use crate::lake::iceberg::read::{ColumnHash, batch_rows};
use crate::lake::iceberg::rewrite::Detail;
use crate::model::plan::Plan;

/// What the outputs hold.
pub struct Readback {
    /// Rows.
    pub rows: u64,
    /// Ordered hashes over all outputs in order.
    pub columns: Vec<ColumnHash>,
}

/// Reads every row of every output, checking what each output's description
/// states of it.
///
/// Errs [`Error::Proof`](crate::lake::Error::Proof) when an output does not
/// decode, has another schema than the table, or contradicts its description.
pub async fn read(store: &Store, plan: &Plan, detail: &Detail, schema: &SchemaRef) -> Result<Readback> {
    let mut hasher = ColumnHasher::new(schema);
    let mut rows = 0;
    for described in &detail.data_files {
        rows += file(store, plan, described, schema, &mut hasher).await.map_err(unproven)?;
    }
    Ok(Readback { rows, columns: hasher.finish() })
}

async fn file(store: &Store, plan: &Plan, described: &DataFile, schema: &Schema, hasher: &mut ColumnHasher) -> Result<u64> {
    let path = described.file_path();
    let size = store.size(path).await?;
    if size != described.file_size_in_bytes() {
        return Err(failed(path, format_args!("{size} bytes, described as {}", described.file_size_in_bytes())));
    }
    let file = ParquetFile::open(store, path, size).await?;
    same_fields(schema.fields(), file.schema().fields(), path)?;
    let leaves: Vec<usize> = (0..file.footer().file_metadata().schema_descr().num_columns()).collect();
    let before: Vec<(i32, u64, u64)> = hasher.counts().collect();
    let mut bounds = Bounds::new(described, schema)?;
    let mut rows = 0;
    for (index, group) in file.footer().row_groups().iter().enumerate() {
        let mut stream = file.stream(index, &leaves, batch_rows(&file, index, &leaves, plan.bound.memory)?).await?;
        let mut in_group = 0;
        while let Some(batch) = stream.next().await {
            let batch = match batch {
                Ok(batch) => batch,
                Err(error) => return Err(file.error(error).await),
            };
            in_group += u64::try_from(batch.num_rows()).unwrap_or(u64::MAX);
            hasher.update(&batch).map_err(|e| failed(path, e))?;
            bounds.check(&batch)?;
        }
        if u64::try_from(group.num_rows()).ok() != Some(in_group) {
            return Err(failed(path, format_args!("row group {index} holds {in_group} rows, its footer states {}", group.num_rows())));
        }
        rows += in_group;
    }
    if rows != described.record_count() {
        return Err(failed(path, format_args!("{rows} rows, described as {}", described.record_count())));
    }
    bounds.finish()?;
    counts(described, &before, hasher)?;
    Ok(rows)
}

/// Value and NULL counts of one output, as it is described, against those read.
fn counts(described: &DataFile, before: &[(i32, u64, u64)], hasher: &ColumnHasher) -> Result<()> {
    for ((id, nulls, values), (_, old_nulls, old_values)) in hasher.counts().zip(before) {
        let stated = (described.null_value_counts().get(&id), described.value_counts().get(&id));
        let found = (nulls - old_nulls, values - old_values);
        if stated.0.is_some_and(|n| *n != found.0) || stated.1.is_some_and(|v| *v != found.1) {
            let why = format!("column {id} has {} NULLs of {} values, described as {stated:?}", found.0, found.1);
            return Err(failed(described.file_path(), why));
        }
    }
    Ok(())
}

/// Columns read and columns read back, one by one; returns how many.
///
/// Errs [`Error::Proof`](crate::lake::Error::Proof) naming the first that differs.
pub fn same_columns(read: &[ColumnHash], back: &[ColumnHash]) -> Result<usize> {
    if read.len() != back.len() {
        return Err(failed("", format_args!("{} columns were read, {} read back", read.len(), back.len())));
    }
    match read.iter().zip(back).find(|(read, back)| read != back) {
        None => Ok(read.len()),
        Some((read, back)) => Err(failed(&format!("column {}", read.path), format_args!("read as {read:?}, read back as {back:?}"))),
    }
}

/// The file's schema is the table's: the same fields by id in the same places,
/// with the same types, and NULLs only where the table may have them. Names are
/// the writer's business.
fn same_fields(table: &Fields, file: &Fields, path: &str) -> Result<()> {
    if table.len() != file.len() {
        return Err(failed(path, format_args!("{} fields where the table has {}", file.len(), table.len())));
    }
    table.iter().zip(file).try_for_each(|(table, file)| same_field(table, file, path))
}

fn same_field(table: &Field, file: &Field, path: &str) -> Result<()> {
    let differs =
        |what: &str| failed(path, format_args!("column {} has another {what} than the table's column {}", file.name(), table.name()));
    if field_id(table) != field_id(file) {
        return Err(differs("field id"));
    }
    if file.is_nullable() && !table.is_nullable() {
        return Err(differs("nullability"));
    }
    let (from, to) = (file.data_type(), table.data_type());
    let same_kind = match (from, to) {
        (DataType::Struct(_), DataType::Struct(_)) | (DataType::List(_), DataType::List(_)) | (DataType::Map(..), DataType::Map(..)) => {
            true
        }
        (DataType::Binary, DataType::LargeBinary) => true,
        (DataType::Timestamp(unit, zone), DataType::Timestamp(to_unit, to_zone)) => unit == to_unit && zone.is_some() == to_zone.is_some(),
        (from, to) => from == to,
    };
    let (below, table_below) = (children(from), children(to));
    if !same_kind || below.len() != table_below.len() {
        return Err(differs("type"));
    }
    table_below.iter().zip(below).try_for_each(|(table, file)| same_field(table, file, path))
}
