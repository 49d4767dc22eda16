//! Rows beside which pages cannot be held, for an input spells the schema otherwise or
//! is not to be believed: ordered hashes of the columns of one block, both sides by
//! their values, and the outputs' chunks by themselves.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use futures::stream::{self, StreamExt};
use xxhash_rust::xxh3::xxh3_128;

use super::blocks::{Block, Group};
use super::pages::{Compared, Done, Pages};
use super::readback;
use super::reread::Hashed;
use super::{failed, unproven};
use crate::lake::iceberg::hash::RootHasher;
use crate::lake::iceberg::read::ColumnHash;
use crate::lake::iceberg::read::file::ParquetFile;
use crate::lake::iceberg::read::scan::{Limits, Opened, Projector, Scan};
use crate::lake::iceberg::rewrite::choose::movable;
use crate::lake::iceberg::spread::{aside, core};
use crate::lake::{Error, Result};
use crate::model::refusal::Refusal;
use crate::parquet::compare::{Trouble, visit};
use crate::parquet::{codec, trust};

/// Whether a row group's chunks lie where its footer says, in a codec that is known,
/// and its file's statistics can be believed.
pub fn takes_pages(group: &Group, memory: u64) -> bool {
    let believed = trust::distrust(group.file.footer().file_metadata().created_by()).is_none();
    let mut chunks = group.meta().into_iter().flat_map(|meta| meta.columns());
    believed && chunks.all(|chunk| movable(chunk, memory).is_ok() && codec::supported(chunk.compression()))
}

/// Compares one block by its values.
///
/// Memory held: as two scans take it, each of half the plan's bound; then one column
/// of the outputs.
///
/// Errs [`Error::Proof`] when rows differ or an output does not hold what is stated of
/// it, and as the inputs do.
pub async fn block(pages: &Pages<'_>, block: &Arc<Block>, columns: usize, done: &mut Done<'_>) -> Result<()> {
    let (left, right) = tokio::try_join!(inputs(pages, block), outputs(pages, block))?;
    readback::same_columns(&left, &right)?;
    let mut compared = Vec::with_capacity(columns);
    for column in 0..columns {
        compared.push(alone(pages, block, column).await?);
    }
    done.add_all(block, compared);
    Ok(())
}

/// The files of row groups, in order, with the places of the first and the last.
fn files(groups: &[Group]) -> BTreeMap<usize, (ParquetFile, Range<usize>)> {
    let mut files: BTreeMap<usize, (ParquetFile, Range<usize>)> = BTreeMap::new();
    for group in groups {
        let (_, range) = files.entry(group.place).or_insert_with(|| (group.file.clone(), group.group..group.group));
        range.end = group.group.saturating_add(1);
    }
    files
}

async fn inputs(pages: &Pages<'_>, block: &Block) -> Result<Vec<ColumnHash>> {
    let projector = Projector::new(pages.table, pages.plan, pages.schema)?;
    let opened = files(&block.left).into_iter().map(|(place, (file, groups))| Ok(Opened { groups, ..projector.open(file, place)? }));
    let opened: Vec<Result<Opened>> = opened.collect();
    let deletes = pages.deletes.map(|(deletes, _)| deletes);
    hashes(pages, Scan::new(limits(pages), stream::iter(opened).boxed(), deletes)).await
}

async fn outputs(pages: &Pages<'_>, block: &Block) -> Result<Vec<ColumnHash>> {
    let opened = |(file, groups)| Ok(Opened { groups, ..readback::opened(file, pages.schema, None)? });
    let opened: Vec<Result<Opened>> = files(&block.right).into_values().map(opened).collect();
    hashes(pages, Scan::new(limits(pages), stream::iter(opened).boxed(), None)).await.map_err(unproven)
}

fn limits(pages: &Pages<'_>) -> Limits {
    Limits { memory: pages.memory() / 2 }
}

async fn hashes(pages: &Pages<'_>, mut scan: Scan<'_>) -> Result<Vec<ColumnHash>> {
    let hashers = pages.schema.fields().iter().map(|field| Hashed(RootHasher::new(field))).collect();
    Ok(scan.run(hashers).await?.into_iter().flat_map(|hashed| hashed.0.finish()).collect())
}

/// The chunks of a column of the outputs, held against what is stated of them.
async fn alone(pages: &Pages<'_>, block: &Block, column: usize) -> Result<Compared> {
    let most = usize::try_from(pages.memory() / 8).unwrap_or(usize::MAX);
    if block.right.iter().map(|group| group.bytes(column)).fold(0, u64::saturating_add) > pages.memory() / 4 {
        return Ok(Compared { column, found: None, hash: 0 });
    }
    let chunks = Group::chunks(&block.right, column).await.map_err(unproven)?;
    let work = move || {
        let hash = chunks.iter().fold(0, |hash, chunk| xxh3_128(&chunk.bytes) ^ u128::rotate_left(hash, 1));
        let found = chunks.iter().enumerate().map(|(place, chunk)| visit(chunk, most, None).map_err(|trouble| (place, trouble)));
        (found.collect::<std::result::Result<Option<Vec<_>>, _>>(), hash)
    };
    let _core = core().await;
    let (found, hash) = aside(work).await.map_err(|stopped| Error::Stopped(format!("a column was not read to its end: {stopped}")))?;
    match found {
        Ok(found) => Ok(Compared { column, found, hash }),
        Err((_, Trouble::Unfit(_))) => Ok(Compared { column, found: None, hash: 0 }),
        Err((place, trouble)) => Err(told(block, (place, column), trouble)),
    }
}

fn told(block: &Block, (place, column): (usize, usize), trouble: Trouble) -> Error {
    let Some(group) = block.right.get(place) else { return failed("", "a row group is missing") };
    let name = group.meta().and_then(|meta| meta.columns().get(column)).map_or(String::new(), |chunk| chunk.column_path().string());
    let what = format!("row group {} column {name}", group.group);
    match trouble {
        Trouble::TooLarge(why) => group.file.refuse(Refusal::TooLargeForMemory, format_args!("{what}: {why}")),
        Trouble::Wrong(why) | Trouble::Unfit(why) => failed(&group.file.path, format_args!("{what}: {why}")),
    }
}
