//! Files read column by column: no row is ever put together, so that memory
//! depends neither on how many columns there are nor on how large a row group is.
//!
//! Row groups are taken in runs of some megabytes. The columns of a run are
//! decoded side by side, each by a reader of its own, while the next run is
//! fetched. A row group larger than a run is taken some columns at a time. Only a
//! column that is larger by itself is not fetched ahead: it reads its pages through
//! a window.

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, BooleanArray};
use arrow_buffer::BooleanBuffer;
use arrow_schema::{ArrowError, DataType, SchemaRef};
use async_trait::async_trait;
use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};
use parquet::arrow::arrow_reader::ArrowReaderMetadata;
use parquet::errors::ParquetError;
use tokio::runtime::Handle;

use super::batches::{column_row, column_rows, group_rows};
pub use super::column::keyed_footer;
use super::column::{Column, is_keyed};
use super::convert;
use super::file::ParquetFile;
pub use super::live::Deletes;
use super::live::Struck;
use super::project::Node;
pub use super::projector::Projector;
use super::window::{Piece, Windows};
use crate::lake::iceberg::spread::{aside, cores};
use crate::lake::{Error, Result};

/// Files whose footers are read, and row groups that are fetched, at one time.
pub const AT_ONCE: usize = 8;
/// Most bytes of a run.
const RUN: u64 = 16 << 20;
/// Most row groups of a run.
const RUN_GROUPS: usize = 512;
/// Longest window of a column that is not fetched ahead.
const WINDOW: u64 = 4 << 20;

/// Where the rows of one column of the root go.
pub trait Consumer: Send + 'static {
    /// Takes the next rows, all of the `file`th file.
    ///
    /// Errs with what they contradict.
    fn rows(&mut self, file: usize, column: &ArrayRef) -> Result<()>;
}

/// Somebody else's knowledge of which rows are deleted.
#[async_trait]
pub trait Witness: Sync {
    /// Hears which rows of a row group of the `input`th input are left out, by their
    /// ordinals; `first` is its first row in the file.
    ///
    /// Errs when they are others than it knows.
    async fn hear(&self, input: usize, file: &ParquetFile, group: usize, first: u64, dead: &[u32]) -> Result<()>;
}

/// An opened file, and how its columns are read.
pub struct Opened {
    /// The file.
    pub file: ParquetFile,
    /// Strings and byte arrays as dictionaries, where there are any.
    pub keyed: Option<ArrowReaderMetadata>,
    /// One for each consumer.
    pub columns: Arc<Vec<Root>>,
    /// Its place among the plan's inputs, where deletes may apply.
    pub input: Option<usize>,
    /// The row groups to read.
    pub groups: Range<usize>,
}

/// All row groups of a file.
pub const ALL_GROUPS: Range<usize> = 0..usize::MAX;

/// How a consumer's column is read of a file.
pub struct Root {
    /// The leaves to read: of one column of the file's root.
    pub leaves: Vec<usize>,
    /// How it becomes the table's: its node, and a schema of that one field;
    /// `None` when it is handed on as it is.
    pub to: Option<(Node, SchemaRef)>,
}

/// What bounds a scan.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes that it may hold.
    pub memory: u64,
}

/// A scan under way.
pub struct Scan<'a> {
    limits: Limits,
    files: BoxStream<'a, Result<Opened>>,
    deletes: Option<&'a Deletes<'a>>,
    witness: Option<&'a dyn Witness>,
    current: Option<Current>,
    opened: usize,
    /// Row groups to be read next, not fetched yet.
    waiting: VecDeque<Group>,
    /// A row group of which the columns from this place on are to be read next.
    begun: Option<(Group, usize)>,
    /// What was read, and left out.
    pub struck: Struck,
}

struct Current {
    place: usize,
    file: Arc<Opened>,
    group: usize,
    rows: u64,
}

/// What is fetched, and decoded, at one time: all columns of some row groups, or some
/// of one.
struct Run {
    groups: Vec<Group>,
    columns: Range<usize>,
}

/// A row group of a run.
#[derive(Clone)]
struct Group {
    place: usize,
    file: Arc<Opened>,
    group: usize,
    rows: u64,
    bytes: u64,
    live: Option<BooleanBuffer>,
    window: Windows,
    ahead: Arc<Vec<Piece>>,
}

impl<'a> Scan<'a> {
    /// A scan of files in their order; rows that `deletes` remove are left out.
    pub fn new(limits: Limits, files: BoxStream<'a, Result<Opened>>, deletes: Option<&'a Deletes<'a>>) -> Self {
        let (waiting, struck) = (VecDeque::new(), Struck::default());
        Self { limits, files, deletes, witness: None, current: None, opened: 0, waiting, begun: None, struck }
    }

    /// The same, with somebody who is told which rows are left out.
    pub fn heard_by(self, witness: Option<&'a dyn Witness>) -> Self {
        Self { witness, ..self }
    }

    /// Hands every row to the consumers, one for each column of the root, and
    /// gives them back.
    ///
    /// Errs with the first failure: `NotFound`, `Unreachable`, refused `Damaged` or
    /// `TooLargeForMemory`, or what a consumer says.
    pub async fn run<C: Consumer>(&mut self, mut consumers: Vec<C>) -> Result<Vec<C>> {
        let limits = self.limits;
        let mut next = self.fetch().await?;
        while let Some(run) = next {
            let decoded = decode(run, consumers, limits);
            (consumers, next) = tokio::try_join!(decoded, self.fetch())?;
        }
        Ok(consumers)
    }

    /// The next run; `None` after the last.
    async fn fetch(&mut self) -> Result<Option<Run>> {
        let most = RUN.min(self.limits.memory / 16).max(1);
        let run = match self.begun.take() {
            Some((group, from)) => self.slice(group, from, most),
            None => match self.some_groups(most).await? {
                groups if groups.is_empty() => return Ok(None),
                groups => match <[Group; 1]>::try_from(groups) {
                    Ok([group]) => self.slice(group, 0, most),
                    Err(groups) => Run { columns: 0..usize::MAX, groups },
                },
            },
        };
        let cores = u64::try_from(cores()).unwrap_or(1);
        let length = WINDOW.min(self.limits.memory / 16 / cores).max(64 << 10);
        let columns = run.columns;
        let fetched = run.groups.into_iter().map(|group| group.fetched(columns.clone(), most, length));
        let groups = stream::iter(fetched).buffered(AT_ONCE).try_collect().await?;
        Ok(Some(Run { groups, columns }))
    }

    /// The next row groups of no more than `most` bytes in all, or one that is larger.
    async fn some_groups(&mut self, most: u64) -> Result<Vec<Group>> {
        let (mut groups, mut bytes): (Vec<Group>, u64) = (Vec::new(), 0);
        while groups.len() < RUN_GROUPS {
            let Some(group) = self.next_group().await? else { break };
            if !groups.is_empty() && bytes.saturating_add(group.bytes) > most {
                self.waiting.push_front(group);
                break;
            }
            bytes = bytes.saturating_add(group.bytes);
            groups.push(group);
        }
        Ok(groups)
    }

    /// The columns of a row group from one on: as many as `most` bytes hold, at least
    /// one. What is left is begun.
    fn slice(&mut self, group: Group, from: usize, most: u64) -> Run {
        let (mut until, mut bytes) = (from, 0u64);
        let count = group.file.columns.len();
        while until < count {
            bytes = bytes.saturating_add(group.column_bytes(until));
            if bytes > most && until > from {
                break;
            }
            until += 1;
        }
        if until < count {
            self.begun = Some((group.clone(), until));
        }
        Run { groups: vec![group], columns: from..until }
    }

    async fn next_group(&mut self) -> Result<Option<Group>> {
        loop {
            if let Some(group) = self.waiting.pop_front() {
                return Ok(Some(group));
            }
            let Some(current) = &mut self.current else {
                let Some(file) = self.files.try_next().await? else { return Ok(None) };
                self.current = Some(Current { place: self.opened, file: Arc::new(file), group: 0, rows: 0 });
                self.opened += 1;
                continue;
            };
            let Some(meta) = current.file.file.footer().row_groups().get(current.group) else {
                self.current = None;
                continue;
            };
            let (group, rows, first) = (current.group, group_rows(meta), current.rows);
            current.group += 1;
            current.rows = current.rows.saturating_add(rows);
            if rows == 0 || !current.file.groups.contains(&group) {
                continue;
            }
            let file = Arc::clone(&current.file);
            let live = match (self.deletes, file.input) {
                (Some(deletes), Some(input)) => deletes.live(input, &file.file, group, first, &mut self.struck).await?,
                _ => None,
            };
            if let (Some(witness), Some(input)) = (self.witness, file.input) {
                let ordinals = 0..u32::try_from(rows).map_err(|e| Error::damaged(&file.file.path, e))?;
                let dead: Vec<u32> =
                    live.iter().flat_map(|live| ordinals.clone().zip(live).filter(|(_, lives)| !lives)).map(|(row, _)| row).collect();
                witness.hear(input, &file.file, group, first, &dead).await?;
            }
            self.struck.rows = self.struck.rows.saturating_add(rows);
            let bytes = file.ranges(group, 0..usize::MAX).iter().map(|r| r.end - r.start).fold(0, u64::saturating_add);
            let window = Windows { count: 1, length: 0 };
            return Ok(Some(Group { place: current.place, file, group, rows, bytes, live, window, ahead: Arc::default() }));
        }
    }
}

impl Opened {
    /// Where a row group's chunks lie, of the columns at these places.
    fn ranges(&self, group: usize, columns: Range<usize>) -> Vec<Range<u64>> {
        let columns = self.columns.iter().take(columns.end).skip(columns.start);
        let mut leaves: Vec<usize> = columns.flat_map(|c| c.leaves.iter().copied()).collect();
        leaves.sort_unstable();
        leaves.dedup();
        let Some(meta) = self.file.footer().row_groups().get(group) else { return Vec::new() };
        let range = |leaf: usize| meta.columns().get(leaf).map(|chunk| chunk.byte_range());
        leaves.into_iter().filter_map(range).map(|(start, length)| start..start.saturating_add(length)).collect()
    }
}

impl Group {
    /// With the bytes of these columns, where they are no more than `most`, else with
    /// windows of `length`.
    async fn fetched(mut self, columns: Range<usize>, most: u64, length: u64) -> Result<Self> {
        self.window = Windows { count: 1, length };
        let ranges = self.file.ranges(self.group, columns);
        if ranges.iter().map(|r| r.end - r.start).fold(0, u64::saturating_add) <= most {
            self.ahead = Arc::new(self.file.file.fetch(&ranges).await?);
        }
        Ok(self)
    }

    /// Compressed bytes of one column.
    fn column_bytes(&self, place: usize) -> u64 {
        let (Some(root), Some(meta)) = (self.file.columns.get(place), self.file.file.footer().row_groups().get(self.group)) else {
            return 0;
        };
        root.leaves.iter().filter_map(|leaf| meta.columns().get(*leaf)).map(|chunk| chunk.byte_range().1).fold(0, u64::saturating_add)
    }

    /// Decodes one column of the row group.
    fn column(&self, place: usize, to: &mut dyn Consumer, memory: u64) -> std::result::Result<(), Fault> {
        let Some(root) = self.file.columns.get(place) else { return Ok(()) };
        let file = &self.file.file;
        let batch = column_rows(file, self.group, &root.leaves, memory)?;
        let windows = Windows { count: root.leaves.len(), length: self.window.length };
        let window = file.window(Arc::clone(&self.ahead), windows, &Handle::current());
        let keyed = self.keyed(root);
        let mut column = Column::open(window, keyed.unwrap_or(file.arrow()), self.group, &root.leaves, batch)?;
        let mut done = 0usize;
        while let Some(rows) = column.next()? {
            let from = done;
            done += rows.len();
            let rows = match &self.live {
                None => rows,
                Some(live) if done > live.len() => return Err(self.miscounted(done)),
                Some(live) => kept(rows, live.slice(from, done - from)).map_err(|e| self.damaged(e))?,
            };
            if rows.is_empty() {
                continue;
            }
            let rows = match &root.to {
                Some((node, schema)) if keyed.is_none() => convert::root(&rows, node, schema).map_err(|e| self.damaged(e))?,
                _ => rows,
            };
            to.rows(self.place, &rows)?;
        }
        if u64::try_from(done) != Ok(self.rows) { Err(self.miscounted(done)) } else { Ok(()) }
    }

    /// The footer that gives keys into a dictionary, where all values are such and
    /// stay as they are.
    fn keyed(&self, root: &Root) -> Option<&ArrowReaderMetadata> {
        let (keyed, [leaf]) = (self.file.keyed.as_ref()?, root.leaves.as_slice()) else { return None };
        let same = root.to.as_ref().is_none_or(|(node, schema)| keeps_bytes(node, schema, &self.file.file, *leaf));
        let chunk = self.file.file.footer().row_groups().get(self.group)?.columns().get(*leaf)?;
        (same && chunk.column_descr().path().parts().len() == 1 && is_keyed(chunk)).then_some(keyed)
    }

    fn damaged(&self, error: ArrowError) -> Fault {
        Fault::Lake(Error::damaged(&self.file.file.path, error))
    }

    fn miscounted(&self, found: usize) -> Fault {
        let why = format!("row group {} holds {found} rows where the footer states {}", self.group, self.rows);
        Fault::Lake(Error::damaged(&self.file.file.path, why))
    }
}

/// Decodes a run, each column by its consumer's own reader.
async fn decode<C: Consumer>(run: Run, consumers: Vec<C>, limits: Limits) -> Result<Vec<C>> {
    let Run { groups, columns } = run;
    let (memory, groups) = (limits.memory, Arc::new(groups));
    let workers = workers(&groups, &columns, memory);
    let (mut begun, mut done): (Vec<_>, Vec<_>) = consumers.into_iter().enumerate().partition(|(place, _)| columns.contains(place));
    // the longest first, so that none is left alone at the end
    begun.sort_by_key(|(place, _)| Reverse(groups.iter().map(|group| group.column_bytes(*place)).fold(0, u64::saturating_add)));
    let one = |(place, consumer): (usize, C)| column(Arc::clone(&groups), place, consumer, memory);
    let mut decoding = stream::iter(begun.into_iter().map(one)).buffer_unordered(workers);
    while let Some(column) = decoding.try_next().await? {
        done.push(column);
    }
    done.sort_by_key(|(place, _)| *place);
    Ok(done.into_iter().map(|(_, consumer)| consumer).collect())
}

/// How many columns may be decoded at one time: fewer than there are cores where
/// each holds huge values, in its pages and its arrays.
fn workers(run: &[Group], columns: &Range<usize>, memory: u64) -> usize {
    let largest = run.iter().flat_map(|group| {
        let roots = group.file.columns.iter().take(columns.end).skip(columns.start);
        roots.map(|root| column_row(&group.file.file, group.group, &root.leaves))
    });
    let needed = largest.max().unwrap_or(1).saturating_mul(4);
    usize::try_from(memory / 2 / needed.max(1)).unwrap_or(usize::MAX).clamp(1, cores())
}

/// Decodes one column of a run, on a blocking thread.
async fn column<C: Consumer>(run: Arc<Vec<Group>>, place: usize, mut consumer: C, memory: u64) -> Result<(usize, C)> {
    type Failed = Box<(Fault, ParquetFile)>;
    let work = move || {
        for group in run.iter() {
            group.column(place, &mut consumer, memory).map_err(|fault| Box::new((fault, group.file.file.clone())))?;
        }
        Ok::<_, Failed>((place, consumer))
    };
    match aside(work).await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(failed)) => match *failed {
            (Fault::Lake(error), _) => Err(error),
            (Fault::Parquet(error), file) => Err(file.error(error).await),
        },
        Err(stopped) => Err(Error::Stopped(format!("a column was not read to its end: {stopped}"))),
    }
}

/// Why a column could not be read.
enum Fault {
    Parquet(ParquetError),
    Lake(Error),
}

impl From<ParquetError> for Fault {
    fn from(error: ParquetError) -> Self {
        Self::Parquet(error)
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::Lake(error)
    }
}

/// The rows that live.
fn kept(rows: ArrayRef, live: BooleanBuffer) -> std::result::Result<ArrayRef, ArrowError> {
    match live.count_set_bits() == rows.len() {
        true => Ok(rows),
        false => arrow_select::filter::filter(&rows, &BooleanArray::new(live, None)),
    }
}

/// Whether a column's values have the same bytes in the file as in the table.
fn keeps_bytes(node: &Node, table: &SchemaRef, file: &ParquetFile, leaf: usize) -> bool {
    let root = file.arrow().parquet_schema().get_column_root_idx(leaf);
    let (Node::Column { .. }, Some(from), Some(to)) = (node, file.schema().fields().get(root), table.fields().first()) else {
        return false;
    };
    let same = from.data_type() == to.data_type() || (from.data_type(), to.data_type()) == (&DataType::Binary, &DataType::LargeBinary);
    same && (to.is_nullable() || !from.is_nullable())
}
