//! How many rows a batch may have, so that its values stay within memory.

use parquet::basic::Type as Physical;
use parquet::file::metadata::{ColumnChunkMetaData, RowGroupMetaData};

use super::file::ParquetFile;
use crate::lake::Result;
use crate::model::refusal::Refusal;

/// Most rows of a batch.
const MAX_ROWS: u64 = 8192;
/// Decoded bytes aimed at for one batch.
const BATCH_BYTES: u64 = 8 << 20;
/// Bytes of a page by the defaults of writers.
const USUAL_PAGE: u64 = 1 << 20;
/// Shortest window of a column.
const LEAST_WINDOW: u64 = 16 << 10;
/// Longest window of a column.
const MOST_WINDOW: u64 = 4 << 20;
/// Decoded bytes aimed at for one batch of one column.
const COLUMN_BYTES: u64 = 1 << 20;
/// How much larger than its encoded pages a dictionary-encoded column is taken
/// to be where the file does not tell.
const DICTIONARY_FACTOR: u64 = 4;

/// Rows of a batch for some leaf columns of a row group.
///
/// A row group is held compressed while it is read, and one batch of it decoded.
///
/// Errs refused `TooLargeForMemory` when the row group does not fit in a third of
/// `memory`, or one row does not fit in a quarter.
pub fn batch_rows(file: &ParquetFile, group: usize, leaves: &[usize], memory: u64) -> Result<usize> {
    let Some(meta) = file.footer().row_groups().get(group) else { return Ok(1) };
    let chunks: Vec<&ColumnChunkMetaData> = leaves.iter().filter_map(|leaf| meta.columns().get(*leaf)).collect();
    let compressed: u64 = chunks.iter().map(|c| unsigned(c.compressed_size())).fold(0, u64::saturating_add);
    if compressed > memory / 3 {
        let why = format!("row group {group} has {compressed} compressed bytes, a third of the memory bound is {}", memory / 3);
        return Err(file.refuse(Refusal::TooLargeForMemory, why));
    }
    fitting(file, group, &chunks, memory)
}

/// Rows of a batch of these chunks.
fn fitting(file: &ParquetFile, group: usize, chunks: &[&ColumnChunkMetaData], memory: u64) -> Result<usize> {
    let rows = file.footer().row_groups().get(group).map_or(1, |meta| unsigned(meta.num_rows()).max(1));
    let decoded = chunks.iter().map(|c| decoded(c)).fold(0, u64::saturating_add);
    let row = decoded.div_ceil(rows).max(1);
    if row > memory / 4 {
        let why = format!("rows of row group {group} take about {row} bytes, a quarter of the memory bound is {}", memory / 4);
        return Err(file.refuse(Refusal::TooLargeForMemory, why));
    }
    Ok(rows_within(row, BATCH_BYTES.min(memory / 16)))
}

/// Bytes of the window through which one of so many columns is read.
pub fn held(columns: usize, memory: u64) -> u64 {
    let share = memory / 8 / u64::try_from(columns).unwrap_or(u64::MAX).max(1);
    share.clamp(LEAST_WINDOW, MOST_WINDOW)
}

/// Rows of a batch for some leaf columns of a row group that are read in step: of
/// each its dictionary, a page and what it was read through are held.
///
/// Errs refused `TooLargeForMemory` when these do not fit in a third of `memory`,
/// or one row not in a quarter.
pub fn lockstep_rows(file: &ParquetFile, group: usize, leaves: &[usize], memory: u64) -> Result<usize> {
    let Some(meta) = file.footer().row_groups().get(group) else { return Ok(1) };
    let chunks: Vec<&ColumnChunkMetaData> = leaves.iter().filter_map(|leaf| meta.columns().get(*leaf)).collect();
    let window = held(chunks.len(), memory);
    let needed = chunks.iter().map(|chunk| in_step(chunk, window)).fold(0, u64::saturating_add);
    if needed > memory / 3 {
        let why = format!(
            "reading {} columns of row group {group} takes about {needed} bytes, a third of the memory bound is {}",
            chunks.len(),
            memory / 3
        );
        return Err(file.refuse(Refusal::TooLargeForMemory, why));
    }
    fitting(file, group, &chunks, memory)
}

/// Bytes held while a column is read: a page and a dictionary, compressed and not,
/// of which neither is larger than the chunk, and few are larger than writers'
/// default.
fn in_step(chunk: &ColumnChunkMetaData, window: u64) -> u64 {
    let (compressed, whole) = (unsigned(chunk.compressed_size()), unsigned(chunk.uncompressed_size()));
    let dictionary = chunk.dictionary_page_offset().map_or(0, |at| unsigned(chunk.data_page_offset().saturating_sub(at)));
    let page = whole.min(USUAL_PAGE);
    let inflated = whole.min(dictionary.saturating_mul(2));
    compressed.min(window.max(page).max(dictionary)).saturating_add(page).saturating_add(inflated)
}

/// Bytes that a row of one column takes, about.
pub fn column_row(file: &ParquetFile, group: usize, leaves: &[usize]) -> u64 {
    let Some(meta) = file.footer().row_groups().get(group) else { return 1 };
    let decoded = leaves.iter().filter_map(|leaf| meta.columns().get(*leaf)).map(decoded).fold(0, u64::saturating_add);
    decoded.div_ceil(unsigned(meta.num_rows()).max(1)).max(1)
}

/// Rows of a batch of one column by itself, whose pages are read one by one.
///
/// Errs refused `TooLargeForMemory` when one row does not fit in half of `memory`.
pub fn column_rows(file: &ParquetFile, group: usize, leaves: &[usize], memory: u64) -> Result<usize> {
    let row = column_row(file, group, leaves);
    if row > memory / 2 {
        let why = format!("a column of row group {group} takes about {row} bytes a row, {} are allowed", memory / 2);
        return Err(file.refuse(Refusal::TooLargeForMemory, why));
    }
    Ok(rows_within(row, COLUMN_BYTES.min(memory / 32)))
}

/// Rows of `row` bytes that fit in `bytes`: at least one, at most a batch.
fn rows_within(row: u64, bytes: u64) -> usize {
    usize::try_from((bytes / row.max(1)).clamp(1, MAX_ROWS)).unwrap_or(1)
}

/// Bytes of a column chunk's values in Arrow arrays, offsets and nulls included.
fn decoded(chunk: &ColumnChunkMetaData) -> u64 {
    let values = unsigned(chunk.num_values());
    let bytes = match chunk.column_type() {
        Physical::BOOLEAN | Physical::INT32 | Physical::FLOAT => values.saturating_mul(4),
        Physical::INT64 | Physical::DOUBLE | Physical::INT96 => values.saturating_mul(8),
        // Decimals are widened to sixteen bytes.
        Physical::FIXED_LEN_BYTE_ARRAY => values.saturating_mul(unsigned(i64::from(chunk.column_descr().type_length())).max(16)),
        Physical::BYTE_ARRAY => byte_arrays(chunk, values),
    };
    bytes.saturating_add(values / 8)
}

fn byte_arrays(chunk: &ColumnChunkMetaData, values: u64) -> u64 {
    let encoded = unsigned(chunk.uncompressed_size());
    let data = match chunk.unencoded_byte_array_data_bytes() {
        Some(exact) => unsigned(exact),
        None if chunk.dictionary_page_offset().is_some() => encoded.saturating_mul(DICTIONARY_FACTOR),
        None => encoded,
    };
    data.saturating_add(values.saturating_mul(8))
}

/// Rows of a row group.
pub fn group_rows(group: &RowGroupMetaData) -> u64 {
    unsigned(group.num_rows())
}

fn unsigned(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_bounded_by_bytes_and_by_rows() {
        assert_eq!(rows_within(64 << 20, 8 << 20), 1);
        assert_eq!(rows_within(40_000, 8 << 20), 209);
        assert_eq!(rows_within(1, 8 << 20), 8192);
    }
}
