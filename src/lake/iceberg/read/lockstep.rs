//! The rows of one row group, its columns decoded side by side.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{FieldRef, Schema};
use parquet::errors::ParquetError;
use tokio::runtime::Handle;

use super::batches::{group_rows, held, lockstep_rows};
use super::column::Column;
use super::file::ParquetFile;
use super::window::{Piece, Windows};
use crate::lake::iceberg::spread::{aside, spread};
use crate::lake::{Error, Result};

/// Batches of fewer rows are decoded on one core.
const FEW_ROWS: usize = 512;

/// Reads the columns of a row group in step.
pub struct Lockstep {
    file: ParquetFile,
    group: usize,
    batch_rows: usize,
    /// Rows that are still to come, by the footer.
    left: usize,
    /// Bytes fetched ahead, and of each window where they are not all.
    bytes: (Arc<Vec<Piece>>, u64),
    /// Fetches for windows that are opened on threads of no runtime.
    runtime: Handle,
    columns: Vec<Root>,
}

/// One column of the root. Its reader, with a context of its codec, lives from its first
/// rows to its last: where a batch holds all rows, few do at one time.
struct Root {
    leaves: Vec<usize>,
    field: Option<FieldRef>,
    reader: Option<Column>,
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
        let of = |leaf: &usize| file.arrow().parquet_schema().get_column_root_idx(*leaf);
        let roots = leaves.chunk_by(|a, b| of(a) == of(b));
        let columns = roots.map(|leaves| Root { leaves: leaves.to_vec(), field: None, reader: None }).collect();
        let rows = file.footer().row_groups().get(group).map_or(0, group_rows);
        let left = usize::try_from(rows).unwrap_or(usize::MAX);
        Ok(Self { file: file.clone(), group, batch_rows, left, bytes: (ahead, length), runtime: Handle::current(), columns })
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
        if self.left == 0 {
            return Ok(None);
        }
        let is_last = self.left <= self.batch_rows;
        let open = |leaves: &[usize]| {
            let (ahead, length) = &self.bytes;
            let windows = Windows { count: leaves.len(), length: *length };
            let window = self.file.window(Arc::clone(ahead), windows, &self.runtime);
            Column::open(window, self.file.arrow(), self.group, leaves, self.batch_rows)
        };
        let one = |(column, rows): &mut (&mut Root, Option<ArrayRef>)| {
            let mut reader = column.reader.take().map_or_else(|| open(&column.leaves), Ok)?;
            column.field = reader.field();
            *rows = reader.next()?;
            if !is_last {
                column.reader = Some(reader);
            } else if reader.next()?.is_some() {
                return Err(ParquetError::General("a column holds more rows than the footer states".into()));
            }
            Ok::<(), ParquetError>(())
        };
        let mut slots: Vec<(&mut Root, Option<ArrayRef>)> = self.columns.iter_mut().map(|column| (column, None)).collect();
        match is_small(self.batch_rows, self.left) {
            true => slots.iter_mut().try_for_each(one)?,
            false => spread(slots.iter_mut().collect(), one)?,
        }
        self.left = self.left.saturating_sub(self.batch_rows);
        let found = slots.len();
        let of = |(column, rows): (&mut Root, Option<ArrayRef>)| Some((column.field.clone()?, rows?));
        let (fields, rows): (Vec<FieldRef>, Vec<ArrayRef>) = slots.into_iter().filter_map(of).unzip();
        match rows.len() {
            0 => Ok(None),
            // columns of unequal length are an error of the batch
            n if n == found => Ok(Some(RecordBatch::try_new(Arc::new(Schema::new(fields)), rows)?)),
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
