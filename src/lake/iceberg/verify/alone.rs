//! Chunks of the outputs by themselves: what footers, page indexes and bloom filters
//! tell readers to skip, against every value.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::stream::{self, StreamExt, TryStreamExt};
use iceberg::spec::DataFile;
use parquet::basic::Type;
use parquet::file::metadata::ColumnChunkMetaData;

use super::blooms;
use super::{failed, unproven};
use crate::lake::iceberg::read::file::{ParquetFile, Store};
use crate::lake::iceberg::spread::{aside, cores};
use crate::lake::{Error, Result};
use crate::model::refusal::Refusal;
use crate::parquet::compare::{Chunk, Trouble, visit};

/// Checks the columns of the outputs' roots, `only` some of them or all: no bound and
/// no bloom filter leaves out a value, and no index points elsewhere. Columns that
/// cannot be read by pages are passed where `passes`.
///
/// Memory held: a column's chunk, its bloom filter and one page, a core where they
/// are small.
///
/// Errs [`Error::Proof`] naming file and column.
pub async fn hold(store: &Store, outputs: &[DataFile], memory: u64, only: Option<&BTreeSet<usize>>, passes: bool) -> Result<()> {
    for described in outputs {
        let file = ParquetFile::open_indexed(store, described.file_path(), described.file_size_in_bytes()).await.map_err(unproven)?;
        let schema = file.footer().file_metadata().schema_descr();
        let wanted = |column: &usize| only.is_none_or(|only| only.contains(&schema.get_column_root_idx(*column)));
        let columns: Vec<usize> = (0..schema.num_columns()).filter(wanted).collect();
        for (group, meta) in file.footer().row_groups().iter().enumerate() {
            let bytes = |column: &usize| meta.columns().get(*column).map_or(0, |chunk| chunk.byte_range().1);
            let largest = columns.iter().map(bytes).max().unwrap_or(0).max(1);
            let workers = usize::try_from(memory / 8 / largest).unwrap_or(usize::MAX).clamp(1, cores());
            let mut work = Vec::with_capacity(columns.len());
            for column in &columns {
                work.push(holds(&file, (group, *column), memory, passes));
            }
            stream::iter(work).buffer_unordered(workers).try_collect::<Vec<()>>().await?;
        }
    }
    Ok(())
}

async fn holds(file: &ParquetFile, (group, column): (usize, usize), memory: u64, passes: bool) -> Result<()> {
    let Some(meta) = file.footer().row_groups().get(group).and_then(|group| group.columns().get(column)) else { return Ok(()) };
    let wrong = |what: &str| failed(&file.path, format_args!("row group {group} column {}: {what}", meta.column_path()));
    let filter = blooms::filter(file, meta, memory / 8).await.map_err(unproven)?;
    if filter.is_some() && meta.column_type() == Type::BOOLEAN {
        return Err(wrong("booleans have no bloom filter"));
    }
    let chunk = fetched(file, meta, (group, column), memory).await?;
    let most = usize::try_from(memory / 4).unwrap_or(usize::MAX);
    let work = move || match filter {
        Some(filter) => visit(&chunk, most, Some(&mut |value| filter.may_hold(value))),
        None => visit(&chunk, most, None),
    };
    let seen = aside(work).await;
    match seen.map_err(|stopped| Error::Stopped(format!("a column was not read to its end: {stopped}")))? {
        Ok(Some(_)) => Ok(()),
        Ok(None) => Err(wrong("its bloom filter denies a value that is there")),
        Err(Trouble::Unfit(_)) if passes => Ok(()),
        Err(Trouble::TooLarge(what)) => Err(file.refuse(Refusal::TooLargeForMemory, what)),
        Err(Trouble::Wrong(what) | Trouble::Unfit(what)) => Err(wrong(&what)),
    }
}

async fn fetched(file: &ParquetFile, meta: &ColumnChunkMetaData, (group, column): (usize, usize), memory: u64) -> Result<Chunk> {
    let (start, length) = meta.byte_range();
    if length > memory / 2 {
        return Err(file.refuse(Refusal::TooLargeForMemory, format_args!("{length} bytes of a column to be proven")));
    }
    let bytes = file.bytes(start..start.saturating_add(length)).await.map_err(unproven)?;
    Ok(Chunk { footer: Arc::clone(file.footer()), group, column, bytes, dead: Arc::default() })
}
