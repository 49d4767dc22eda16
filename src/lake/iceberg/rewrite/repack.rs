//! Healthy row groups put together from many small ones: pages move, values
//! are not decoded but in pages that are small or hold deleted rows, and in columns
//! whose pages cannot be joined.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use futures::stream::{self, Stream, StreamExt, TryStreamExt};
use parquet::basic::{Compression, ZstdLevel};
use parquet::bloom_filter::Sbbf;
use parquet::column::writer::ColumnCloseResult;
use parquet::errors::ParquetError;
use parquet::file::properties::{WriterProperties, WriterPropertiesPtr};
use parquet::file::writer::SerializedFileWriter;
use roaring::RoaringTreemap;

use super::choose::orders_defined;
use super::encode;
use super::input::Input;
use super::job::{Job, Made};
use super::lineage;
use super::parts::{Group, nans_of, span};
use super::sink::Sink;
use super::splice::bloom_filter;
use crate::lake::iceberg::properties::{CREATED_BY, WriteProperties, schema_note};
use crate::lake::iceberg::spread::{aside, core, cores};
use crate::lake::iceberg::store::local;
use crate::lake::{Error, Result};
use crate::parquet::anew;
use crate::parquet::chunk::Part;
use crate::parquet::ends::Order;
use crate::parquet::fault::{Failure, Fault};
use crate::parquet::repack::{Joined, Wish, join_looking};
use crate::parquet::statistics;
use crate::parquet::tap::Tap;
use crate::parquet::whole;

mod joints;
mod steps;

pub use joints::{HEALTHY_BYTES, HEALTHY_ROWS, Size};
use steps::{Step, steps};
pub use steps::{column_bytes, copied_column_bytes, group_bytes};

/// Pages of fewer rows are put together.
const SMALL_ROWS: u64 = 4000;
/// Row groups read at one time.
const READS_AT_ONCE: usize = 8;
/// Bytes between chunks that are read along rather than asked for apart.
const GAP: u64 = 1 << 20;
/// Most columns joined at one time: each holds pages.
const JOINED_AT_ONCE: usize = 8;
/// Columns read and joined at one time where they are joined one by one.
const READ_AND_JOINED_AT_ONCE: usize = 2;

/// What came of an attempt to re-pack.
pub enum Packed {
    /// The outputs.
    Made(Vec<Made>),
    /// Pages that cannot be joined, not even alone. The outputs begun are given
    /// up.
    Unfit(String),
}

/// What it took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spent {
    /// Bytes read.
    pub bytes_read: u64,
    /// Row groups that were copied whole.
    pub copied: usize,
}

/// Writes the inputs' row groups, in order, joined into ones of about
/// half a million rows or the table's size, into files of about equal bytes. Healthy
/// ones that lose no row are copied whole between them. `nans` are the inputs' NaN
/// counts by path, `deleted` the deleted rows of each input.
///
/// A column whose pages cannot be joined, not even those of one row group, is decoded
/// and encoded anew there, and so are the columns `anew` everywhere.
///
/// Memory held: the pages of one row group as they are joined, of the next as it
/// is read and of the last as it is written, and one page a core decompressed. What
/// lies near waits for no network: the next is then read while the last is written,
/// and neither while pages are joined.
/// Row groups that are too large for that are read, joined and written column by
/// column. Row groups whose pages cannot be joined are joined with fewer others,
/// at last with none.
///
/// Errs with a refusal `Damaged` on pages that contradict themselves or their
/// footer.
pub async fn write(
    job: &Job<'_>,
    inputs: &[Input],
    nans: &HashMap<String, HashMap<i32, u64>>,
    deleted: &[RoaringTreemap],
    anew: &[usize],
) -> Result<(Packed, Spent)> {
    let groups = Group::with_rows(inputs, deleted);
    let steps = steps(job, &groups);
    let properties = Arc::new(encode::properties(job, inputs.first().map(|input| input.footer.file_metadata().schema_descr())));
    let packing = Packing { job, wish: wish(job), deleted, anew, properties, read: AtomicU64::new(0) };
    let copied = steps.iter().filter(|step| step.whole).count();
    let mut files = Files { job, nans, deleted, made: Vec::new(), open: None, held: None };
    let mut ahead = None;
    let far = inputs.iter().any(|input| local::path(&input.path).is_none());
    for (place, step) in steps.iter().enumerate() {
        job.control.check()?;
        let own = groups.get(step.groups.clone()).unwrap_or_default();
        let next = steps.get(place + 1).filter(|next| !next.by_column).and_then(|next| groups.get(next.groups.clone()));
        let unfit = match step.by_column {
            true => packing.by_column(own, step, &mut files).await?,
            false => {
                let chunks = match ahead.take() {
                    Some(chunks) => chunks,
                    None => packing.read(own).await?,
                };
                let packed = if far {
                    let (packed, read, written) =
                        futures::join!(packing.pack(own, &chunks, step.whole), packing.read_ahead(next), files.write());
                    written?;
                    ahead = read?;
                    packed?
                } else {
                    packing.pack(own, &chunks, step.whole).await?
                };
                match packed {
                    Ok(columns) => {
                        files.hold(step, own, columns);
                        None
                    }
                    Err(_) if own.len() > 1 => packing.halves(own, &chunks, step, &mut files).await?,
                    Err(why) => Some(why),
                }
            }
        };
        if let Some(why) = unfit {
            job.give_up(files.begun());
            return Ok((Packed::Unfit(why), Spent { bytes_read: packing.read.into_inner(), copied: 0 }));
        }
        if !far {
            let (read, written) = futures::join!(packing.read_ahead(next), files.write());
            written?;
            ahead = read?;
        }
    }
    files.write().await?;
    Ok((Packed::Made(files.end().await?), Spent { bytes_read: packing.read.into_inner(), copied }))
}

fn wish(job: &Job<'_>) -> Wish {
    let memory = usize::try_from(job.plan.bound.memory).unwrap_or(usize::MAX);
    let page = page_bytes(job.plan.bound.memory);
    Wish { codec: codec(&job.properties), page, chunk: memory / 5, small_rows: SMALL_ROWS }
}

/// Most bytes of a page that is joined with others: it is held compressed and not, as
/// it was and as it becomes.
pub fn page_bytes(memory: u64) -> usize {
    usize::try_from(memory).unwrap_or(usize::MAX) / (12 * at_once().max(2))
}

/// Columns joined at one time.
fn at_once() -> usize {
    cores().min(JOINED_AT_ONCE)
}

/// The table's codec. Zstandard's default level gains nothing on ids over the
/// fastest one: where the table names no level, that one serves.
fn codec(wanted: &WriteProperties) -> Compression {
    match wanted.compression {
        Compression::ZSTD(_) if !wanted.level_is_set => Compression::ZSTD(ZstdLevel::default()),
        other => other,
    }
}

/// What joining row groups takes.
struct Packing<'a> {
    job: &'a Job<'a>,
    wish: Wish,
    deleted: &'a [RoaringTreemap],
    /// Columns that are encoded anew.
    anew: &'a [usize],
    /// How.
    properties: WriterPropertiesPtr,
    /// Bytes read so far.
    read: AtomicU64,
}

/// A column, or why it cannot be joined.
type Column = std::result::Result<Joined, String>;
/// A row group's columns, or why they cannot be joined.
type Columns = std::result::Result<Vec<Joined>, String>;

impl Packing<'_> {
    /// The bytes of the chunks of row groups.
    async fn read(&self, groups: &[Group<'_>]) -> Result<Vec<Vec<Bytes>>> {
        let reads: Vec<_> = groups.iter().map(|group| self.counted(chunks(*group))).collect();
        stream::iter(reads).buffered(READS_AT_ONCE).try_collect().await
    }

    /// The same of the next step's, where there is one.
    async fn read_ahead(&self, next: Option<&[Group<'_>]>) -> Result<Option<Vec<Vec<Bytes>>>> {
        match next {
            Some(next) => self.read(next).await.map(Some),
            None => Ok(None),
        }
    }

    async fn counted(&self, read: impl Future<Output = Result<Vec<Bytes>>>) -> Result<Vec<Bytes>> {
        let bytes = read.await?;
        self.read.fetch_add(bytes.iter().map(|chunk| chunk.len() as u64).sum(), Ordering::Relaxed);
        Ok(bytes)
    }

    /// Reads, joins and writes one column after the other. Tells why where one
    /// cannot be joined.
    async fn by_column<'a>(&self, groups: &[Group<'a>], step: &Step, files: &mut Files<'a, '_>) -> Result<Option<String>> {
        files.write().await?;
        let dead = self.dead(groups);
        let count = self.job.columns.num_columns();
        let mut columns = Vec::with_capacity(count);
        for column in 0..count {
            let dead = &dead;
            columns.push(async move {
                self.job.control.check()?;
                let read: Vec<_> = groups.iter().map(|group| self.counted(chunk(*group, column))).collect();
                let chunks: Vec<Vec<Bytes>> = stream::iter(read).buffered(READS_AT_ONCE).try_collect().await?;
                let parts = parts(groups, chunks.into_iter().map(|mut chunk| chunk.pop()), dead, column)?;
                let whole = self.whole(groups, column, step.whole).await?;
                let means = Means { whole, ..self.means(groups, column, true) };
                let (column, result) = joined(column, parts, means).await?;
                settled(groups, column, result)
            });
        }
        files.put(step.file, groups.to_vec(), stream::iter(columns).buffered(READ_AND_JOINED_AT_ONCE)).await
    }

    /// Whether the ends of a column are looked for where its statistics are not
    /// believed, for the order of its values is not told.
    fn looks(&self, groups: &[Group<'_>], column: usize) -> bool {
        let id = groups
            .first()
            .and_then(|group| group.meta.columns().get(column))
            .map(|chunk| chunk.column_descr().self_type().get_basic_info());
        let kept = id.is_none_or(|id| !id.has_id() || !self.job.properties.no_statistics.contains(&id.id()));
        kept && groups.iter().any(|group| !orders_defined(&group.input.footer))
    }

    /// How a column is joined; `last` is whether there is no other way to try.
    fn means(&self, groups: &[Group<'_>], column: usize, last: bool) -> Means {
        let anew = self.anew.contains(&column);
        let properties = (anew || last).then(|| Arc::clone(&self.properties));
        Means { wish: self.wish, look: self.looks(groups, column), anew, properties, whole: None }
    }

    /// What goes with a chunk that is copied whole, where `whole` says so: a bloom
    /// filter where the table wants one. `None` where the chunk is not to be copied.
    async fn whole(&self, groups: &[Group<'_>], column: usize, whole: bool) -> Result<Option<Copied>> {
        let chunk = groups.first().filter(|_| whole).and_then(|group| Some((group.input, group.meta.columns().get(column)?)));
        let Some((input, meta)) = chunk else { return Ok(None) };
        if !self.anew.contains(&column) {
            return Ok(Some(Copied { bloom_filter: None }));
        }
        let (bloom_filter, bytes) = bloom_filter(input, meta).await?;
        self.read.fetch_add(bytes, Ordering::Relaxed);
        Ok(bloom_filter.map(|filter| Copied { bloom_filter: Some(filter) }))
    }

    fn dead(&self, groups: &[Group<'_>]) -> Vec<Arc<[u32]>> {
        groups.iter().map(|group| group.dead_rows(self.deleted)).collect()
    }

    /// Joins what did not join at once, by halves, each written before the next.
    /// Tells why where a row group does not fit even alone.
    async fn halves<'a>(
        &self,
        groups: &[Group<'a>],
        chunks: &[Vec<Bytes>],
        step: &Step,
        files: &mut Files<'a, '_>,
    ) -> Result<Option<String>> {
        let mut left = halved(groups, chunks);
        while let Some((groups, chunks)) = left.pop() {
            self.job.control.check()?;
            files.write().await?;
            match self.pack(groups, chunks, false).await? {
                Ok(columns) => files.hold(step, groups, columns),
                Err(_) if groups.len() > 1 => left.extend(halved(groups, chunks)),
                Err(why) => return Ok(Some(why)),
            }
        }
        Ok(None)
    }

    async fn pack(&self, groups: &[Group<'_>], chunks: &[Vec<Bytes>], whole: bool) -> Result<Columns> {
        let columns = self.job.columns.num_columns();
        let dead = self.dead(groups);
        let mut joining = Vec::with_capacity(columns);
        for column in 0..columns {
            let parts = parts(groups, chunks.iter().map(|chunks| chunks.get(column).cloned()), &dead, column)?;
            let bytes: usize = parts.iter().map(|part| part.bytes.len()).sum();
            let whole = self.whole(groups, column, whole).await?;
            let means = Means { whole, ..self.means(groups, column, groups.len() == 1) };
            joining.push((std::cmp::Reverse(bytes), joined(column, parts, means)));
        }
        // The largest first, so that no core waits for one at the end.
        joining.sort_by_key(|(bytes, _)| *bytes);
        let mut joining = stream::iter(joining.into_iter().map(|(_, joining)| joining)).buffer_unordered(at_once());
        let (mut packed, mut bytes) = (Vec::with_capacity(columns), 0u64);
        while let Some(result) = joining.next().await {
            let (column, result) = result?;
            match settled(groups, column, result)? {
                Ok(joined) => {
                    bytes = bytes.saturating_add(joined.bytes.len() as u64);
                    packed.push((column, joined));
                }
                Err(why) => return Ok(Err(why)),
            }
            // Another codec, or values instead of ids, may take more.
            if groups.len() > 1 && bytes > self.job.plan.bound.memory / 5 {
                return Ok(Err("they take too much memory together".into()));
            }
        }
        packed.sort_by_key(|(column, _)| *column);
        Ok(Ok(packed.into_iter().map(|(_, joined)| joined).collect()))
    }
}

type Loaded<'a, 'b> = (&'a [Group<'b>], &'a [Vec<Bytes>]);

/// Two halves, the first one last.
fn halved<'a, 'b>(groups: &'a [Group<'b>], chunks: &'a [Vec<Bytes>]) -> Vec<Loaded<'a, 'b>> {
    let middle = groups.len() / 2;
    let (front, back) = groups.split_at(middle);
    let (front_chunks, back_chunks) = chunks.split_at(middle.min(chunks.len()));
    vec![(back, back_chunks), (front, front_chunks)]
}

/// Damage is an error, anything else a reason to join fewer.
fn settled(groups: &[Group<'_>], column: usize, result: std::result::Result<Joined, Failure>) -> Result<Column> {
    let rows: u64 = groups.iter().map(Group::live).sum();
    let failure = match result {
        Ok(joined) if joined.rows == rows => return Ok(Ok(joined)),
        Ok(joined) => Fault::damaged(format_args!("{} rows where the footers state {rows}", joined.rows)).into(),
        Err(failure) => failure,
    };
    let group = groups.get(failure.part.unwrap_or(0));
    let path = group.map_or("", |group| group.input.path.as_str());
    let name = group.and_then(|group| group.meta.columns().get(column)).map_or_else(String::new, |chunk| chunk.column_path().string());
    match failure.fault {
        Fault::Damaged(what) => Err(Error::damaged(path, format!("column {name}: {what}"))),
        Fault::Unfit(what) => Ok(Err(format!("{path}: column {name}: {what}"))),
    }
}

/// The bytes of one chunk of a row group.
async fn chunk(group: Group<'_>, column: usize) -> Result<Vec<Bytes>> {
    match group.ranges()?.into_iter().nth(column) {
        Some(range) => Ok(vec![group.input.bytes(range).await?]),
        None => Ok(Vec::new()),
    }
}

/// The bytes of a row group's chunks: in one request where they lie close.
async fn chunks(group: Group<'_>) -> Result<Vec<Bytes>> {
    let ranges = group.ranges()?;
    let close = |span: &Range<u64>| span.end.saturating_sub(span.start) <= group.bytes().saturating_add(GAP);
    let Some(span) = span(&ranges).filter(close) else {
        let mut chunks = Vec::with_capacity(ranges.len());
        for range in ranges {
            chunks.push(group.input.bytes(range).await?);
        }
        return Ok(chunks);
    };
    let all = group.input.bytes(span.clone()).await?;
    let place = |at: u64| usize::try_from(at.saturating_sub(span.start)).unwrap_or(usize::MAX).min(all.len());
    Ok(ranges.into_iter().map(|range| all.slice(place(range.start)..place(range.end))).collect())
}

/// A column's chunks, one a row group.
fn parts(groups: &[Group<'_>], chunks: impl Iterator<Item = Option<Bytes>>, dead: &[Arc<[u32]>], column: usize) -> Result<Vec<Part>> {
    let part = |((group, bytes), dead): ((&Group<'_>, Option<Bytes>), &Arc<[u32]>)| {
        let chunk = group.meta.columns().get(column).cloned().zip(bytes);
        let (mut meta, bytes) =
            chunk.ok_or_else(|| Error::damaged(&group.input.path, format!("a row group without its column {column}")))?;
        let (mut column_index, offset_index) = (group.column_index(column), group.offset_index(column));
        if !orders_defined(&group.input.footer) && Order::of(meta.column_descr()).is_doubtful() {
            column_index = None;
            meta = statistics::without_ends(meta).map_err(|e| Error::damaged(&group.input.path, e))?;
        }
        Ok(Part { bytes, meta, rows: group.rows(), dead: dead.clone(), column_index, offset_index })
    };
    groups.iter().zip(chunks).zip(dead).map(part).collect()
}

/// How the chunks of a column become one.
struct Means {
    wish: Wish,
    /// Whether ends are looked for.
    look: bool,
    /// Whether its values are decoded in any case.
    anew: bool,
    /// How they are encoded then, and where the pages cannot be joined.
    properties: Option<WriterPropertiesPtr>,
    /// Whether it is one chunk that is copied as it is, where it can be.
    whole: Option<Copied>,
}

/// What goes with a chunk that is copied.
struct Copied {
    bloom_filter: Option<Sbbf>,
}

impl Means {
    fn apply(&self, parts: &[Part]) -> std::result::Result<Joined, Failure> {
        if let (Some(copied), [part]) = (&self.whole, parts)
            && let Ok(joined) = whole::copy(part, self.wish.page, copied.bloom_filter.clone())
        {
            return Ok(joined);
        }
        let joined = match self.anew {
            true => Err(Fault::unfit("its values are to be encoded anew").into()),
            false => join_looking(parts, &self.wish, self.look),
        };
        match (joined, &self.properties) {
            (Err(Failure { fault: Fault::Unfit(_), .. }), Some(properties)) => anew::encode(parts, &self.wish, properties),
            (joined, _) => joined,
        }
    }
}

/// Joins a column where it does not hold up other tasks.
async fn joined(column: usize, parts: Vec<Part>, means: Means) -> Result<(usize, std::result::Result<Joined, Failure>)> {
    let _core = core().await;
    let done = aside(move || means.apply(&parts)).await;
    done.map(|joined| (column, joined)).map_err(|stopped| Error::Stopped(format!("joining pages did not end: {stopped}")))
}

/// The files of one rewrite, one at a time.
struct Files<'a, 'j> {
    job: &'a Job<'j>,
    nans: &'a HashMap<String, HashMap<i32, u64>>,
    deleted: &'a [RoaringTreemap],
    made: Vec<Made>,
    open: Option<Open<'a, 'j>>,
    /// A row group that is joined and not yet written.
    held: Option<Held<'a>>,
}

/// A file in the making.
struct Open<'a, 'j> {
    file: usize,
    groups: Vec<Group<'a>>,
    sink: Sink<'j>,
    writer: SerializedFileWriter<Tap>,
}

struct Held<'a> {
    file: usize,
    groups: Vec<Group<'a>>,
    columns: Vec<Joined>,
}

impl<'a, 'j> Files<'a, 'j> {
    /// Files begun so far.
    fn begun(&self) -> usize {
        self.made.len() + usize::from(self.open.is_some())
    }

    /// Holds a row group until the next one is joined.
    fn hold(&mut self, step: &Step, groups: &[Group<'a>], columns: Vec<Joined>) {
        self.held = Some(Held { file: step.file, groups: groups.to_vec(), columns });
    }

    /// Writes what is held.
    async fn write(&mut self) -> Result<()> {
        let Some(held) = self.held.take() else { return Ok(()) };
        let columns = held.columns.into_iter().map(|joined| Ok(Ok(joined)));
        self.put(held.file, held.groups, stream::iter(columns)).await.map(drop)
    }

    /// Writes a row group from its columns in order; ends the file before where it
    /// goes into another. Tells why where a column cannot be joined: the file is
    /// then of no use.
    async fn put(&mut self, file: usize, groups: Vec<Group<'a>>, columns: impl Stream<Item = Result<Column>>) -> Result<Option<String>> {
        if self.open.as_ref().is_some_and(|open| open.file != file) {
            self.close().await?;
        }
        let mut open = match self.open.take() {
            Some(open) => open,
            None => self.begin(file, &groups).await?,
        };
        let rows: u64 = groups.iter().map(Group::live).sum();
        let path = open.sink.path().to_owned();
        let failed = |e| broken(&path, e);
        let mut out = open.writer.next_row_group().map_err(failed)?;
        let mut columns = std::pin::pin!(columns);
        while let Some(column) = columns.next().await {
            match column? {
                Ok(joined) => {
                    out.append_column(&joined.bytes, closed(&joined, rows)).map_err(failed)?;
                }
                Err(why) => {
                    drop(out);
                    self.open = Some(open);
                    return Ok(Some(why));
                }
            }
            open.sink.drain().await?;
        }
        if self.job.lineage {
            lineage::write(&mut out, &lineage::columns(self.job, &groups, self.deleted).await?).map_err(failed)?;
        }
        out.close().map_err(failed)?;
        open.sink.drain().await?;
        groups.iter().for_each(|group| self.job.control.progress(group.rows(), group.bytes()));
        open.groups.extend(groups);
        self.open = Some(open);
        Ok(None)
    }

    async fn begin(&mut self, file: usize, groups: &[Group<'a>]) -> Result<Open<'a, 'j>> {
        let first = groups.first().ok_or_else(|| Error::Setup("an output without row groups".into()))?;
        let sink = self.job.begin(self.made.len()).await?;
        let properties = WriterProperties::builder()
            .set_created_by(CREATED_BY.to_owned())
            .set_key_value_metadata(Some(schema_note(&self.job.schema_text)));
        let properties = lineage::properties(self.job, properties, true).build();
        let schema = self.job.file_schema(first.input.footer.file_metadata().schema_descr())?;
        let writer = SerializedFileWriter::new(sink.tap(), schema, Arc::new(properties)).map_err(|e| broken(sink.path(), e))?;
        Ok(Open { file, groups: Vec::new(), sink, writer })
    }

    async fn close(&mut self) -> Result<()> {
        let Some(mut open) = self.open.take() else { return Ok(()) };
        let footer = open.writer.finish().map_err(|e| broken(open.sink.path(), e))?;
        drop(open.writer);
        self.made.push(self.job.end(open.sink, &footer, &nans_of(self.job, &open.groups, self.nans)).await?);
        Ok(())
    }

    async fn end(mut self) -> Result<Vec<Made>> {
        self.close().await?;
        Ok(self.made)
    }
}

fn closed(joined: &Joined, rows: u64) -> ColumnCloseResult {
    ColumnCloseResult {
        bytes_written: joined.bytes.len() as u64,
        rows_written: rows,
        metadata: joined.meta.clone(),
        bloom_filter: joined.bloom_filter.clone(),
        column_index: joined.column_index.clone(),
        offset_index: Some(joined.offset_index.clone()),
    }
}

fn broken(path: &str, error: ParquetError) -> Error {
    Error::Setup(format!("{path} could not be written: {error}"))
}
