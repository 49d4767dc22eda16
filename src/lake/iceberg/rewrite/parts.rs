//! The inputs' row groups, as what copies of pages are made of.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use parquet::file::metadata::{ColumnChunkMetaData, RowGroupMetaData};
use parquet::file::page_index::column_index::ColumnIndexMetaData;
use parquet::file::page_index::offset_index::OffsetIndexMetaData;
use roaring::RoaringTreemap;

use super::input::Input;
use super::job::Job;
use crate::lake::{Error, Result};

/// Most row groups that a Parquet file can number.
pub const MOST_GROUPS: usize = i16::MAX as usize;

/// A row group of an input.
#[derive(Clone, Copy)]
pub struct Group<'a> {
    /// Its file.
    pub input: &'a Input,
    /// Its file's place among the inputs.
    pub number: usize,
    /// The number of its first row in the file.
    pub first_row: u64,
    /// How many of its rows are deleted.
    pub dead: u64,
    /// Its place in the file.
    pub position: usize,
    /// What the footer says of it.
    pub meta: &'a RowGroupMetaData,
}

impl<'a> Group<'a> {
    /// All row groups that have rows which are not deleted, in order. `deleted`
    /// has the deleted rows of each input, or nothing.
    pub fn with_rows(inputs: &'a [Input], deleted: &[RoaringTreemap]) -> Vec<Self> {
        let mut groups = Vec::new();
        for (number, input) in inputs.iter().enumerate() {
            let mut first_row = 0;
            for (position, meta) in input.footer.row_groups().iter().enumerate() {
                let mut group = Self { input, number, first_row, dead: 0, position, meta };
                group.dead =
                    deleted.get(number).map_or(0, |rows| rows.range_cardinality(first_row..first_row.saturating_add(group.rows())));
                first_row = first_row.saturating_add(group.rows());
                groups.push(group);
            }
        }
        groups.retain(|group| group.live() > 0);
        groups
    }

    /// Its rows that are not deleted.
    pub fn live(&self) -> u64 {
        self.rows().saturating_sub(self.dead)
    }

    /// Its deleted rows, counted from its first.
    pub fn dead_rows(&self, deleted: &[RoaringTreemap]) -> Arc<[u32]> {
        let Some(rows) = deleted.get(self.number).filter(|_| self.dead > 0) else { return Arc::default() };
        let mut rows = rows.iter();
        rows.advance_to(self.first_row);
        let end = self.first_row.saturating_add(self.rows());
        rows.take_while(|row| *row < end).filter_map(|row| u32::try_from(row - self.first_row).ok()).collect()
    }

    /// Its rows.
    pub fn rows(&self) -> u64 {
        u64::try_from(self.meta.num_rows()).unwrap_or(0)
    }

    /// Its bytes in the file.
    pub fn bytes(&self) -> u64 {
        u64::try_from(self.meta.compressed_size()).unwrap_or(0)
    }

    /// Where its chunks' pages lie, dictionaries first.
    ///
    /// Errs `Damaged` when a chunk has no place.
    pub fn ranges(&self) -> Result<Vec<Range<u64>>> {
        self.meta.columns().iter().map(|chunk| range(&self.input.path, chunk)).collect()
    }

    /// Whether every chunk has an offset index.
    pub fn is_indexed(&self) -> bool {
        (0..self.meta.num_columns()).all(|column| self.offset_index(column).is_some())
    }

    /// A chunk's column index, where it has one.
    pub fn column_index(&self, column: usize) -> Option<ColumnIndexMetaData> {
        let index = self.input.footer.column_index()?.get(self.position)?.get(column)?;
        (!matches!(index, ColumnIndexMetaData::NONE)).then(|| index.clone())
    }

    /// A chunk's offset index, where it has one.
    pub fn offset_index(&self, column: usize) -> Option<OffsetIndexMetaData> {
        self.input.footer.offset_index()?.get(self.position)?.get(column).cloned()
    }
}

fn range(path: &str, chunk: &ColumnChunkMetaData) -> Result<Range<u64>> {
    let start = chunk.dictionary_page_offset().unwrap_or_else(|| chunk.data_page_offset());
    let place = u64::try_from(start).ok().zip(u64::try_from(chunk.compressed_size()).ok());
    let end = place.and_then(|(start, length)| start.checked_add(length));
    match place.zip(end) {
        Some(((start, _), end)) => Ok(start..end),
        None => Err(Error::damaged(path, format!("column {} has no place in the file", chunk.column_path()))),
    }
}

/// The range from the first byte of any to the last.
pub fn span(ranges: &[Range<u64>]) -> Option<Range<u64>> {
    Some(ranges.iter().map(|r| r.start).min()?..ranges.iter().map(|r| r.end).max()?)
}

/// NaN counts of an output: an input all of whose row groups went into it adds
/// its own while no row is deleted, one without NaNs adds none wherever its row
/// groups went. A column is left out when an input does not tell.
pub fn nans_of(job: &Job<'_>, groups: &[Group<'_>], nans: &HashMap<String, HashMap<i32, u64>>) -> HashMap<i32, u64> {
    let mut parts: HashMap<&str, (usize, usize)> = HashMap::new();
    for group in groups {
        let all = group.input.footer.row_groups().iter().filter(|g| g.num_rows() > 0).count();
        parts.entry(&group.input.path).or_insert((0, all)).0 += usize::from(group.dead == 0);
    }
    let of_column = |id: i32| {
        parts.iter().try_fold(0u64, |sum, (path, (here, all))| match *nans.get(*path)?.get(&id)? {
            0 => Some(sum),
            count if here == all => sum.checked_add(count),
            _ => None,
        })
    };
    job.leaves.iter().filter(|leaf| leaf.is_float()).filter_map(|leaf| Some((leaf.id, of_column(leaf.id)?))).collect()
}
