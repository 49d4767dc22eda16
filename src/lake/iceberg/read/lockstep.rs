//! The rows of one row group, its columns decoded side by side.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{Fields, Schema, SchemaRef};
use parquet::errors::ParquetError;

use super::batches::{group_rows, held, lockstep_rows};
use super::column::Column;
use super::file::ParquetFile;
use super::window::Windows;
use crate::lake::iceberg::spread::{aside, spread};
use crate::lake::{Error, Result};

/// Batches of fewer rows are decoded on one core.
const FEW_ROWS: usize = 512;

/// Reads the columns of a row group in step.
pub struct Lockstep {
    file: ParquetFile,
    schema: SchemaRef,
    batch_rows: usize,
    /// Rows that are still to come, by the footer.
    left: usize,
    columns: Vec<Column>,
}

impl Lockstep {
    /// Some leaf columns, ascending, of one row group. It is fetched whole where
    /// its compressed bytes take no more than an eighth of `memory`; else every
    /// column reads its pages through a window.
    ///
    /// Errs refused `TooLargeForMemory` or `Damaged`, `NotFound` or `Unreachable`.
    pub async fn open(file: &ParquetFile, group: usize, leaves: &[usize], memory: u64) -> Result<Self> {
        let batch_rows = lockstep_rows(file, group, leaves, memory)?;
        let ranges = ranges(file, group, leaves);
        let bytes = ranges.iter().map(|r| r.end - r.start).fold(0, u64::saturating_add);
        let ahead = match bytes <= memory / 8 {
            true => Arc::new(file.fetch(&ranges).await?),
            false => Arc::default(),
        };
        let length = held(leaves.len(), memory);
        let mut roots: Vec<(usize, Vec<usize>)> = Vec::new();
        for leaf in leaves {
            let root = file.arrow().parquet_schema().get_column_root_idx(*leaf);
            match roots.last_mut() {
                Some((last, leaves)) if *last == root => leaves.push(*leaf),
                _ => roots.push((root, vec![*leaf])),
            }
        }
        let this = file.clone();
        let work = move || {
            let open = |(_, leaves): &(usize, Vec<usize>)| {
                let window = this.window(Arc::clone(&ahead), Windows { count: leaves.len(), length });
                Column::open(window, this.arrow(), group, leaves, batch_rows)
            };
            roots.iter().map(open).collect::<parquet::errors::Result<Vec<Column>>>()
        };
        let columns = match aside(work).await {
            Ok(Ok(columns)) => columns,
            Ok(Err(error)) => return Err(file.error(error).await),
            Err(stopped) => return Err(Error::Stopped(format!("{} was not opened: {stopped}", file.path))),
        };
        let fields: Option<Fields> = columns.iter().map(Column::field).collect();
        let fields = fields.ok_or_else(|| Error::damaged(&file.path, "a column was not projected"))?;
        let rows = file.footer().row_groups().get(group).map_or(0, group_rows);
        let left = usize::try_from(rows).unwrap_or(usize::MAX);
        Ok(Self { file: file.clone(), schema: Arc::new(Schema::new(fields)), batch_rows, left, columns })
    }

    /// The next rows; `None` after the last. Gives itself back.
    ///
    /// Errs refused `Damaged`, `NotFound` or `Unreachable`.
    pub async fn next(mut self) -> Result<(Self, Option<RecordBatch>)> {
        let file = self.file.clone();
        let work = move || {
            let rows = self.decode()?;
            Ok((self, rows))
        };
        match aside(work).await {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(error)) => Err(file.error(error).await),
            Err(stopped) => Err(Error::Stopped(format!("{} was not decoded: {stopped}", file.path))),
        }
    }

    fn decode(&mut self) -> parquet::errors::Result<Option<RecordBatch>> {
        let mut slots: Vec<(&mut Column, Option<ArrayRef>)> = self.columns.iter_mut().map(|column| (column, None)).collect();
        let one = |(column, rows): &mut (&mut Column, Option<ArrayRef>)| {
            *rows = column.next()?;
            Ok::<(), ParquetError>(())
        };
        match is_small(self.batch_rows, self.left) {
            true => slots.iter_mut().try_for_each(one)?,
            false => spread(slots.iter_mut().collect(), one)?,
        }
        self.left = self.left.saturating_sub(self.batch_rows);
        let found = slots.len();
        let rows: Vec<ArrayRef> = slots.into_iter().filter_map(|(_, rows)| rows).collect();
        match rows.len() {
            0 => Ok(None),
            // columns of unequal length are an error of the batch
            n if n == found => Ok(Some(RecordBatch::try_new(Arc::clone(&self.schema), rows)?)),
            _ => Err(ParquetError::General("its columns hold different numbers of rows".into())),
        }
    }
}

/// Whether the next batch, of at most so many rows of so many that are left, is decoded
/// sooner than threads for it begin.
fn is_small(most: usize, left: usize) -> bool {
    most.min(left) < FEW_ROWS
}

fn ranges(file: &ParquetFile, group: usize, leaves: &[usize]) -> Vec<Range<u64>> {
    let Some(meta) = file.footer().row_groups().get(group) else { return Vec::new() };
    let range = |leaf: &usize| meta.columns().get(*leaf).map(|chunk| chunk.byte_range());
    leaves.iter().filter_map(range).map(|(start, length)| start..start.saturating_add(length)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_as_small_as_the_rows_that_are_left() {
        assert!(is_small(8192, 100) && is_small(100, 8192) && is_small(8192, 0));
        assert!(!is_small(8192, 8192) && !is_small(FEW_ROWS, FEW_ROWS));
    }
}
