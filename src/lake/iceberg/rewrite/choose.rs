//! Which way outputs are made: a pure function of plan, schema and footers.

use parquet::basic::{ColumnOrder, Encoding};
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData};
use parquet::schema::types::SchemaDescriptor;

use super::schema;
use crate::model::plan::{Path, Plan};
use crate::parquet::trust;

/// A way with the finding that decided it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The way.
    pub path: Path,
    /// The finding.
    pub reason: String,
}

/// Row groups of at least this many rows scan as fast as larger ones.
const HEALTHY_ROWS: u64 = 120_000;
/// Row groups of at least this many compressed bytes count as healthy with
/// fewer rows.
const HEALTHY_BYTES: u64 = 64 << 20;

/// What the plan alone decides: `Err` with the reason to encode anew.
pub fn by_plan(plan: &Plan, sorted: bool) -> Result<(), String> {
    if let Some(file) = plan.inputs.iter().find(|file| !file.deletes.is_empty()) {
        return Err(format!("deletes apply to {}", file.path));
    }
    if sorted {
        return Err("the table has a sort order".into());
    }
    // A file has at least one row group.
    healthy(plan.inputs.len() as u64, plan.input_records(), plan.input_bytes())
}

/// What the footers of all inputs decide. `inputs` pairs each with its path.
pub fn by_footers(plan: &Plan, table: &SchemaDescriptor, inputs: &[(&str, &ParquetMetaData)]) -> Choice {
    match splices(plan, table, inputs) {
        Ok(reason) => Choice { path: Path::Splice, reason },
        Err(reason) => Choice { path: Path::ReEncode, reason },
    }
}

fn splices(plan: &Plan, table: &SchemaDescriptor, inputs: &[(&str, &ParquetMetaData)]) -> Result<String, String> {
    let Some((_, first)) = inputs.first() else { return Err("there is no input".into()) };
    let first = first.file_metadata().schema_descr();
    let (mut groups, mut rows, mut bytes) = (0u64, 0u64, 0u64);
    for (path, footer) in inputs {
        let said = |why: String| format!("{path}: {why}");
        let file = footer.file_metadata();
        if let Some(why) = trust::distrust(file.created_by()) {
            return Err(said(why));
        }
        if let Some(why) = schema::difference(table, file.schema_descr()) {
            return Err(said(why));
        }
        if file.schema_descr().root_schema().get_fields() != first.root_schema().get_fields() {
            return Err(said("its schema is spelled differently from the first input's".into()));
        }
        orders_defined(footer).map_err(said)?;
        for group in footer.row_groups() {
            for chunk in group.columns() {
                movable(chunk, plan.bound.memory).map_err(|why| said(format!("column {}: {why}", chunk.column_path())))?;
            }
            groups += 1;
            rows = rows.saturating_add(u64::try_from(group.num_rows()).unwrap_or(0));
            bytes = bytes.saturating_add(u64::try_from(group.compressed_size()).unwrap_or(0));
        }
    }
    healthy(groups, rows, bytes)?;
    Ok(format!(
        "{groups} row groups of {} rows and {} bytes on average, one schema, no deletes",
        rows / groups.max(1),
        bytes / groups.max(1)
    ))
}

fn healthy(groups: u64, rows: u64, bytes: u64) -> Result<(), String> {
    let (rows, bytes) = (rows / groups.max(1), bytes / groups.max(1));
    if rows >= HEALTHY_ROWS || bytes >= HEALTHY_BYTES {
        return Ok(());
    }
    Err(format!("row groups hold at most {rows} rows and {bytes} bytes on average, fewer than {HEALTHY_ROWS} and {HEALTHY_BYTES}"))
}

/// Without a defined order of a column its statistics mean nothing, and the
/// output would define it.
fn orders_defined(footer: &ParquetMetaData) -> Result<(), String> {
    let columns = footer.file_metadata().schema_descr().num_columns();
    match footer.file_metadata().column_orders() {
        Some(orders) if orders.len() == columns && orders.iter().all(|o| matches!(o, ColumnOrder::TYPE_DEFINED_ORDER(_))) => Ok(()),
        _ => Err("it does not define the order of its columns".into()),
    }
}

/// Whether a column chunk can be copied whole.
fn movable(chunk: &ColumnChunkMetaData, memory: u64) -> Result<(), String> {
    if chunk.file_path().is_some_and(|path| !path.is_empty()) {
        return Err("its pages lie in another file".into());
    }
    let has_dictionary = chunk.encodings().any(|e| matches!(e, Encoding::PLAIN_DICTIONARY | Encoding::RLE_DICTIONARY));
    match chunk.dictionary_page_offset() {
        None if has_dictionary => return Err("it does not tell where its dictionary is".into()),
        Some(offset) if offset <= 0 || offset >= chunk.data_page_offset() => {
            return Err("its dictionary is not in front of its pages".into());
        }
        _ => {}
    }
    match u64::try_from(chunk.compressed_size()) {
        Ok(bytes) if bytes <= memory / 4 => Ok(()),
        Ok(bytes) => Err(format!("{bytes} bytes of it would have to be held in memory")),
        Err(_) => Err("its size is negative".into()),
    }
}

#[cfg(test)]
mod tests;
