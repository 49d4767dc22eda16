//! Rows at given places of files, read to be compared.

use std::ops::Range;

use arrow_schema::{Schema, SchemaRef};
use futures::StreamExt;
use parquet::arrow::arrow_reader::{RowSelection, RowSelector};
use roaring::RoaringTreemap;

use super::batches::batch_rows;
use super::file::{ParquetFile, Store};
use super::identify::identify;
use super::project::{Projection, project};
use super::rows::name_mapping;
use super::schema::arrow_schema;
use super::{ColumnHash, convert, partition};
use crate::lake::iceberg::hash::RootHasher;
use crate::lake::iceberg::table::IcebergTable;
use crate::lake::{Control, Error, Result};
use crate::model::partition::PartitionKey;
use crate::model::refusal::Refusal;

/// A file and the rows of it that are wanted.
#[derive(Clone, Copy, Debug)]
pub struct Pick<'a> {
    /// Its path.
    pub path: &'a str,
    /// Its size in bytes.
    pub bytes: u64,
    /// The rows.
    pub rows: &'a RoaringTreemap,
    /// Whether its page indexes are believed: then no other pages are read.
    pub indexed: bool,
}

/// Ordered hashes of every column of the table's current schema over the rows
/// picked, in file and row order. Columns are read as many at a time as `memory`
/// lets.
///
/// # Errors
/// Refused `TooLargeForMemory` when a column does not fit; `Damaged` when a file has
/// fewer rows; else as [`super::open`] does.
pub async fn hashes<'a>(
    table: &IcebergTable,
    scope: &PartitionKey,
    picks: impl Iterator<Item = Pick<'a>> + Send,
    memory: u64,
    control: &dyn Control,
) -> Result<Vec<ColumnHash>> {
    let schema = arrow_schema(table.loaded.metadata.current_schema())?;
    let constants = partition::constants(table, scope, &schema)?;
    let mapping = name_mapping(table)?;
    let store = Store::new(&table.loaded.io);
    let mut hashers: Vec<RootHasher> = schema.fields().iter().map(RootHasher::new).collect();
    for pick in picks.filter(|pick| !pick.rows.is_empty()) {
        let file = match pick.indexed {
            true => ParquetFile::open_indexed(&store, pick.path, pick.bytes).await?,
            false => ParquetFile::open(&store, pick.path, pick.bytes).await?,
        };
        if pick.rows.max() >= Some(file.rows()?) {
            return Err(Error::damaged(pick.path, "has fewer rows than are read of it"));
        }
        let fields = identify(file.schema(), mapping.as_ref()).map_err(|e| Error::damaged(pick.path, e))?;
        // runs of columns that are still to be read, the first one last
        let mut left = Vec::from([Range { start: 0, end: schema.fields().len() }]);
        while let Some(run) = left.pop() {
            let some: SchemaRef = Schema::new(schema.fields().get(run.clone()).unwrap_or_default().to_vec()).into();
            let projection = project(&fields, &some, &[], &constants).map_err(|e| file.refuse(e.refusal, e.detail))?;
            let columns = Columns { file: &file, schema: some, projection };
            match columns.sizes(memory) {
                Err(Error::Refused(refused)) if refused.refusal == Refusal::TooLargeForMemory && run.len() > 1 => {
                    let middle = run.start + run.len() / 2;
                    left.extend([middle..run.end, run.start..middle]);
                }
                Err(error) => return Err(error),
                Ok(sizes) => columns.hash(&sizes, pick.rows, hashers.get_mut(run).unwrap_or_default(), control).await?,
            }
        }
    }
    Ok(hashers.into_iter().flat_map(RootHasher::finish).collect())
}

/// Some columns of a file.
struct Columns<'a> {
    file: &'a ParquetFile,
    /// Of these columns.
    schema: SchemaRef,
    projection: Projection,
}

impl Columns<'_> {
    /// Rows of a batch, for each row group.
    fn sizes(&self, memory: u64) -> Result<Vec<usize>> {
        let groups = 0..self.file.footer().num_row_groups();
        groups.map(|group| batch_rows(self.file, group, &self.projection.leaves, memory)).collect()
    }

    async fn hash(&self, sizes: &[usize], rows: &RoaringTreemap, hashers: &mut [RootHasher], control: &dyn Control) -> Result<()> {
        let damaged = |error| Error::damaged(&self.file.path, error);
        let mut first = 0u64;
        for ((group, meta), size) in self.file.footer().row_groups().iter().enumerate().zip(sizes) {
            let count = u64::try_from(meta.num_rows()).unwrap_or(0);
            let end = first.saturating_add(count);
            let selection = selection(rows, first..end);
            first = end;
            let Some(selection) = selection else { continue };
            let mut stream = self.file.picked(group, &self.projection.leaves, *size, selection)?;
            while let Some(batch) = stream.next().await {
                control.check()?;
                let batch = match batch {
                    Ok(batch) => batch,
                    Err(error) => return Err(self.file.error(error).await),
                };
                let batch = convert::batch(&batch, &self.projection.nodes, &self.schema).map_err(damaged)?;
                for (hasher, column) in hashers.iter_mut().zip(batch.columns()) {
                    hasher.update(column.as_ref()).map_err(damaged)?;
                }
            }
        }
        Ok(())
    }
}

/// The rows of a row group that are picked; `None` when none is.
fn selection(rows: &RoaringTreemap, group: Range<u64>) -> Option<RowSelection> {
    let mut picked = rows.iter();
    picked.advance_to(group.start);
    let mut selectors: Vec<RowSelector> = Vec::new();
    let mut next = group.start;
    for row in picked.take_while(|row| *row < group.end) {
        match selectors.last_mut() {
            Some(last) if !last.skip && row == next => last.row_count += 1,
            _ => {
                let skipped = usize::try_from(row - next).ok()?;
                selectors.extend((skipped > 0).then(|| RowSelector::skip(skipped)));
                selectors.push(RowSelector::select(1));
            }
        }
        next = row + 1;
    }
    (!selectors.is_empty()).then(|| selectors.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selection_is_of_the_rows_within_its_row_group() {
        let rows: RoaringTreemap = [1, 10, 11, 14, 30].into_iter().collect();
        let wanted = vec![RowSelector::select(2), RowSelector::skip(2), RowSelector::select(1)];
        assert_eq!(selection(&rows, 10..20), Some(wanted.into()));
        assert_eq!(selection(&rows, 8..11), Some(vec![RowSelector::skip(2), RowSelector::select(1)].into()));
        assert_eq!(selection(&rows, 15..30), None);
    }
}
