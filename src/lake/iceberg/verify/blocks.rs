//! Row groups of the inputs beside the row groups of the outputs that hold the
//! same rows.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};
use iceberg::spec::DataFile;
use parquet::file::metadata::RowGroupMetaData;

use super::readback;
use super::second::Second;
use super::{failed, unproven};
use crate::lake::iceberg::read::file::{ParquetFile, Store};
use crate::lake::iceberg::read::live::{Deletes, Struck};
use crate::lake::iceberg::read::scan::AT_ONCE;
use crate::lake::{Error, Result};
use crate::model::plan::{LiveFile, Plan};
use crate::parquet::compare::Chunk;

/// A row group that has rows which count.
#[derive(Clone)]
pub struct Group {
    /// Its file.
    pub file: ParquetFile,
    /// Its file's place among its side's.
    pub place: usize,
    /// Its place in the file.
    pub group: usize,
    /// Rows that count.
    pub rows: u64,
    /// Ordinals of its other rows.
    dead: Arc<[u32]>,
    /// Its bytes, and where they begin in the file, once they are fetched whole.
    whole: Option<(u64, Bytes)>,
}

impl Group {
    /// What the footer says of it.
    pub fn meta(&self) -> Option<&RowGroupMetaData> {
        self.file.footer().row_groups().get(self.group)
    }

    /// Where a column's chunk lies.
    fn range(&self, column: usize) -> Range<u64> {
        let (start, length) = self.meta().and_then(|meta| meta.columns().get(column)).map_or((0, 0), |chunk| chunk.byte_range());
        start..start.saturating_add(length)
    }

    /// Bytes of a column's chunk.
    pub fn bytes(&self, column: usize) -> u64 {
        let range = self.range(column);
        range.end.saturating_sub(range.start)
    }

    /// From the first byte of any chunk to the last.
    pub fn span(&self) -> Range<u64> {
        let ranges = (0..self.meta().map_or(0, RowGroupMetaData::num_columns)).map(|column| self.range(column));
        ranges.reduce(|all, one| all.start.min(one.start)..all.end.max(one.end)).unwrap_or(0..0)
    }

    /// Fetches all chunks by one request.
    async fn fetch(&mut self) -> Result<()> {
        let span = self.span();
        self.whole = Some((span.start, self.file.bytes(span).await?));
        Ok(())
    }

    /// A column's chunk of each of several.
    pub async fn chunks(groups: &[Self], column: usize) -> Result<Vec<Chunk>> {
        let mut chunks = Vec::with_capacity(groups.len());
        for group in groups {
            chunks.push(group.chunk(column));
        }
        stream::iter(chunks).buffered(AT_ONCE).try_collect().await
    }

    /// Fetches several whole.
    pub async fn fetch_all(groups: &mut [Self]) -> Result<()> {
        let mut fetches = Vec::with_capacity(groups.len());
        for group in groups {
            fetches.push(group.fetch());
        }
        stream::iter(fetches).buffer_unordered(AT_ONCE).try_collect().await
    }

    /// A column's chunk.
    async fn chunk(&self, column: usize) -> Result<Chunk> {
        let range = self.range(column);
        let cut = |(start, bytes): &(u64, Bytes)| {
            let from = usize::try_from(range.start.checked_sub(*start)?).ok()?;
            let to = usize::try_from(range.end.checked_sub(*start)?).ok()?;
            (from <= to && to <= bytes.len()).then(|| bytes.slice(from..to))
        };
        let bytes = match self.whole.as_ref().and_then(cut) {
            Some(bytes) => bytes,
            None => self.file.bytes(range).await?,
        };
        Ok(Chunk { footer: Arc::clone(self.file.footer()), group: self.group, column, bytes, dead: Arc::clone(&self.dead) })
    }
}

/// Row groups with the same rows on both sides.
#[derive(Default)]
pub struct Block {
    /// Of the inputs.
    pub left: Vec<Group>,
    /// Of the outputs.
    pub right: Vec<Group>,
}

fn rows(groups: &[Group]) -> u64 {
    groups.iter().map(|group| group.rows).fold(0, u64::saturating_add)
}

/// Deletes that apply to the inputs, read twice.
pub type Applied<'a> = Option<(&'a Deletes<'a>, &'a Second<'a>)>;

/// Walks both sides in step.
pub struct Blocks<'a> {
    left: Walk<'a>,
    right: Walk<'a>,
    deletes: Applied<'a>,
    /// Rows of the inputs, and those of them that do not count.
    pub struck: Struck,
}

/// The row groups of files in order.
struct Walk<'a> {
    files: BoxStream<'a, Result<ParquetFile>>,
    current: Option<(ParquetFile, usize, u64)>,
    opened: usize,
}

impl<'a> Blocks<'a> {
    /// Those of a plan's inputs and its outputs.
    pub fn new(store: &'a Store, plan: &'a Plan, deletes: Applied<'a>, outputs: Vec<ParquetFile>) -> Self {
        let inputs = stream::iter(plan.inputs.iter().map(move |input| open(store, input))).buffered(AT_ONCE).boxed();
        let outputs = stream::iter(outputs.into_iter().map(Ok)).boxed();
        let walk = |files| Walk { files, current: None, opened: 0 };
        Self { left: walk(inputs), right: walk(outputs), deletes, struck: Struck::default() }
    }

    /// The next row groups that hold the same rows; `None` behind the last.
    ///
    /// Errs [`Error::Proof`] when rows are missing or too many, and as the inputs do.
    pub async fn next(&mut self) -> Result<Option<Block>> {
        let mut block = Block::default();
        loop {
            let (left, right) = (rows(&block.left), rows(&block.right));
            if left == right && !block.left.is_empty() {
                return Ok(Some(block));
            }
            if left <= right {
                match self.input().await? {
                    Some(group) => block.left.push(group),
                    None if right > 0 => return Err(failed("", "the outputs hold more rows than the inputs")),
                    None => break,
                }
            } else {
                match self.output().await? {
                    Some(group) => block.right.push(group),
                    None => return Err(failed("", "the outputs hold fewer rows than the inputs")),
                }
            }
        }
        match self.output().await? {
            None => Ok(None),
            Some(group) => Err(failed(&group.file.path, "a row group of rows that no input has")),
        }
    }

    async fn output(&mut self) -> Result<Option<Group>> {
        Ok(self.right.next().await?.map(|(group, _)| group))
    }

    /// The next row group of an input with a row that lives.
    async fn input(&mut self) -> Result<Option<Group>> {
        while let Some((mut group, first)) = self.left.next().await? {
            self.struck.rows = self.struck.rows.saturating_add(group.rows);
            let live = match self.deletes {
                Some((deletes, _)) => deletes.live(group.place, &group.file, group.group, first, &mut self.struck).await?,
                None => None,
            };
            if let Some(live) = live {
                let rows = 0..u32::try_from(live.len()).map_err(|e| Error::damaged(&group.file.path, e))?;
                group.dead = rows.zip(live.iter()).filter(|(_, lives)| !lives).map(|(row, _)| row).collect();
                group.rows = group.rows.saturating_sub(group.dead.len() as u64);
            }
            if let Some((_, second)) = self.deletes {
                second.check(group.place, &group.file, group.group, first, &group.dead).await?;
            }
            if group.rows > 0 {
                return Ok(Some(group));
            }
        }
        Ok(None)
    }
}

impl Walk<'_> {
    /// The next row group with rows, and the number of its first in the file.
    async fn next(&mut self) -> Result<Option<(Group, u64)>> {
        loop {
            let Some((file, group, first)) = &mut self.current else {
                let Some(file) = self.files.try_next().await? else { return Ok(None) };
                self.current = Some((file, 0, 0));
                self.opened += 1;
                continue;
            };
            let Some(meta) = file.footer().row_groups().get(*group) else {
                self.current = None;
                continue;
            };
            let rows = u64::try_from(meta.num_rows()).unwrap_or(0);
            let place = self.opened.saturating_sub(1);
            let found = Group { file: file.clone(), place, group: *group, rows, dead: Arc::default(), whole: None };
            let at = *first;
            (*group, *first) = (*group + 1, first.saturating_add(rows));
            if rows > 0 {
                return Ok(Some((found, at)));
            }
        }
    }
}

/// Opens an input that has the rows that its manifest states.
async fn open(store: &Store, input: &LiveFile) -> Result<ParquetFile> {
    let file = ParquetFile::open_indexed(store, &input.path, input.bytes).await?;
    let rows = file.rows()?;
    if rows != input.records {
        return Err(Error::damaged(&input.path, format_args!("{rows} rows where the manifest states {}", input.records)));
    }
    Ok(file)
}

/// Opens the outputs, each as it is described.
///
/// Errs as [`readback::read`] does.
pub async fn outputs(store: &Store, outputs: &[DataFile], schema: &arrow_schema::Schema) -> Result<Vec<ParquetFile>> {
    let mut opening = Vec::with_capacity(outputs.len());
    for described in outputs {
        opening.push(readback::checked(store, described, schema));
    }
    stream::iter(opening).buffered(AT_ONCE).try_collect().await.map_err(unproven)
}
