//! Which way outputs are made: a pure function of plan, schema and footers.

use parquet::basic::{ColumnOrder, Encoding, PageType};
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData};
use parquet::schema::types::SchemaDescriptor;

use super::{repack, schema};
use crate::model::plan::{Path, Plan};
use crate::parquet::{codec, trust};

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

/// Pages of fewer rows on average, and fewer bytes, cost more in every scan
/// than encoding anew costs once: joining row groups keeps their pages.
const PAGE_ROWS: u64 = 1000;
/// See [`PAGE_ROWS`].
const PAGE_BYTES: u64 = 64 << 10;

/// What the plan alone decides: `Err` with the reason to encode anew.
pub fn by_plan(plan: &Plan, sorted: bool) -> Result<(), String> {
    if let Some(file) = plan.inputs.iter().find(|file| !file.deletes.is_empty()) {
        return Err(format!("deletes apply to {}", file.path));
    }
    if sorted {
        return Err("the table has a sort order".into());
    }
    Ok(())
}

/// What the footers of all inputs decide. `inputs` pairs each with its path;
/// `blooms` tells whether the table wants bloom filters.
pub fn by_footers(plan: &Plan, table: &SchemaDescriptor, blooms: bool, inputs: &[(&str, &ParquetMetaData)]) -> Choice {
    let total = match copied(plan, table, inputs) {
        Ok(total) => total,
        Err(reason) => return Choice { path: Path::ReEncode, reason },
    };
    let Err(small) = total.healthy() else {
        return Choice { path: Path::Splice, reason: format!("{} row groups of {total}, one schema, no deletes", total.groups) };
    };
    match joined(plan, blooms, inputs, &total) {
        Ok(()) => Choice { path: Path::RePack, reason: format!("{small}; one schema, no deletes") },
        Err(why) => Choice { path: Path::ReEncode, reason: format!("{small}; {why}") },
    }
}

/// The row groups of all inputs together.
#[derive(Default)]
struct Total {
    groups: u64,
    rows: u64,
    bytes: u64,
}

impl Total {
    fn rows(&self) -> u64 {
        self.rows / self.groups.max(1)
    }

    fn bytes(&self) -> u64 {
        self.bytes / self.groups.max(1)
    }

    fn healthy(&self) -> Result<(), String> {
        if self.rows() >= HEALTHY_ROWS || self.bytes() >= HEALTHY_BYTES {
            return Ok(());
        }
        Err(format!("row groups hold {self}, fewer than {HEALTHY_ROWS} and {HEALTHY_BYTES}"))
    }
}

impl std::fmt::Display for Total {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} rows and {} bytes on average", self.rows(), self.bytes())
    }
}

/// Whether pages can be taken over at all.
fn copied(plan: &Plan, table: &SchemaDescriptor, inputs: &[(&str, &ParquetMetaData)]) -> Result<Total, String> {
    let Some((_, first)) = inputs.first() else { return Err("there is no input".into()) };
    let first = first.file_metadata().schema_descr();
    let mut total = Total::default();
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
            total.groups += 1;
            total.rows = total.rows.saturating_add(u64::try_from(group.num_rows()).unwrap_or(0));
            total.bytes = total.bytes.saturating_add(u64::try_from(group.compressed_size()).unwrap_or(0));
        }
    }
    Ok(total)
}

/// Whether row groups can be joined page by page.
fn joined(plan: &Plan, blooms: bool, inputs: &[(&str, &ParquetMetaData)], total: &Total) -> Result<(), String> {
    if blooms {
        return Err("the table wants bloom filters".into());
    }
    let (mut pages, mut values) = (0u64, 0u64);
    for (path, footer) in inputs {
        for (position, group) in footer.row_groups().iter().enumerate().filter(|(_, group)| group.num_rows() > 0) {
            let held = group.total_byte_size().max(group.compressed_size());
            if u64::try_from(held).unwrap_or(u64::MAX) > repack::group_bytes(plan.bound.memory) {
                return Err(format!("{path}: {held} bytes of a row group would have to be held in memory"));
            }
            for (place, chunk) in group.columns().iter().enumerate() {
                let index =
                    footer.offset_index().and_then(|index| index.get(position)?.get(place)).map(|index| index.page_locations().len());
                joinable(chunk, index.is_some_and(|pages| pages > 0))
                    .map_err(|why| format!("{path}: column {}: {why}", chunk.column_path()))?;
                pages = pages.saturating_add(index.unwrap_or_else(|| data_pages(chunk)).max(1) as u64);
                values = values.saturating_add(u64::try_from(group.num_rows()).unwrap_or(0));
            }
        }
    }
    let (rows, bytes) = (values / pages.max(1), total.bytes / pages.max(1));
    if rows < PAGE_ROWS && bytes < PAGE_BYTES {
        return Err(format!("pages hold {rows} rows and {bytes} bytes on average, fewer than {PAGE_ROWS} and {PAGE_BYTES}"));
    }
    Ok(())
}

/// Data pages of a chunk, as far as its footer tells.
fn data_pages(chunk: &ColumnChunkMetaData) -> usize {
    let stats = chunk.page_encoding_stats().into_iter().flatten();
    let data = stats.filter(|s| matches!(s.page_type, PageType::DATA_PAGE | PageType::DATA_PAGE_V2));
    data.map(|s| usize::try_from(s.count).unwrap_or(0)).sum()
}

/// Whether a column chunk's pages can be joined with others.
fn joinable(chunk: &ColumnChunkMetaData, indexed: bool) -> Result<(), String> {
    if !codec::supported(chunk.compression()) {
        return Err(format!("its codec is {}", chunk.compression()));
    }
    // Pages of nested columns may begin inside a row where no index says where.
    if chunk.column_descr().max_rep_level() > 0 && !indexed {
        return Err("it is nested and has no offset index".into());
    }
    Ok(())
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
