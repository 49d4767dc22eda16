//! Healthy row groups put together from many small ones: pages move, values
//! are not decoded but in pages that are small or hold deleted rows.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures::stream::{self, StreamExt, TryStreamExt};
use parquet::basic::{Compression, ZstdLevel};
use parquet::column::writer::ColumnCloseResult;
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use roaring::RoaringTreemap;

use super::cut;
use super::input::Input;
use super::job::{Job, Made};
use super::parts::{Group, MOST_GROUPS, nans_of, span};
use super::sink::Sink;
use crate::lake::iceberg::properties::{CREATED_BY, schema_note};
use crate::lake::{Error, Result};
use crate::parquet::chunk::Part;
use crate::parquet::fault::{Failure, Fault};
use crate::parquet::repack::{Joined, Wish, join};
use crate::parquet::tap::Tap;

/// Row groups of about this many rows scan best and still prune.
const MOST_ROWS: u64 = 1 << 20;
/// Pages of fewer rows are put together.
const SMALL_ROWS: u64 = 4000;
/// Row groups read at one time.
const READS_AT_ONCE: usize = 8;
/// Bytes between chunks that are read along rather than asked for apart.
const GAP: u64 = 1 << 20;

/// The share of a job's memory that the pages of one row group in the making
/// may take as they are read.
pub fn group_bytes(memory: u64) -> u64 {
    memory / 6
}

/// What came of an attempt to re-pack.
pub enum Packed {
    /// The outputs.
    Made(Vec<Made>),
    /// Pages that cannot be joined, not even alone. The outputs begun are given
    /// up.
    Unfit(String),
}

/// Writes the inputs' row groups, in order, joined into ones of about
/// `MOST_ROWS` rows or the table's size, into files of about equal bytes.
/// `nans` are the inputs' NaN counts by path, `deleted` the deleted rows of each
/// input. Also the bytes read.
///
/// Memory held: the pages of one row group as they are joined, of the next as it
/// is read and of the last as it is written, and one page a core decompressed.
/// Row groups whose pages cannot be joined are joined with fewer others, at last
/// with none.
///
/// Errs with a refusal `Damaged` on pages that contradict themselves or their
/// footer.
pub async fn write(
    job: &Job<'_>,
    inputs: &[Input],
    nans: &HashMap<String, HashMap<i32, u64>>,
    deleted: &[RoaringTreemap],
) -> Result<(Packed, u64)> {
    let groups = Group::with_rows(inputs, deleted);
    let steps = steps(job, &groups);
    let packing = Packing { job, wish: wish(job), deleted };
    let mut files = Files { job, nans, made: Vec::new(), open: None, held: None };
    let (mut read, mut ahead) = (0u64, None);
    for (place, step) in steps.iter().enumerate() {
        job.control.check()?;
        let own = groups.get(step.groups.clone()).unwrap_or_default();
        let chunks = match ahead.take() {
            Some(chunks) => chunks,
            None => packing.read(own).await?,
        };
        read = read.saturating_add(chunks.iter().flatten().map(|chunk: &Bytes| chunk.len() as u64).sum::<u64>());
        let next = steps.get(place + 1).and_then(|next| groups.get(next.groups.clone()));
        let next = async {
            match next {
                Some(next) => packing.read(next).await.map(Some),
                None => Ok(None),
            }
        };
        let (packed, next, written) = futures::join!(packing.pack(own, &chunks), next, files.write());
        written?;
        ahead = next?;
        match packed? {
            Ok(columns) => files.hold(step, own, columns),
            Err(_) if own.len() > 1 => {
                if let Some(why) = packing.halves(own, &chunks, step, &mut files).await? {
                    job.give_up(files.begun());
                    return Ok((Packed::Unfit(why), read));
                }
            }
            Err(why) => {
                job.give_up(files.begun());
                return Ok((Packed::Unfit(why), read));
            }
        }
    }
    files.write().await?;
    Ok((Packed::Made(files.end().await?), read))
}

/// One row group to be made, of a file's.
struct Step {
    groups: Range<usize>,
    /// All row groups of the file.
    file: Range<usize>,
}

/// The row groups to be made, in order.
fn steps(job: &Job<'_>, groups: &[Group<'_>]) -> Vec<Step> {
    let sizes: Vec<u64> = groups.iter().map(live_bytes).collect();
    let files = cut::outputs(sizes.iter().sum(), job.plan.target_file_size);
    let most_bytes = job.properties.row_group_bytes.min(group_bytes(job.plan.bound.memory));
    let mut steps = Vec::new();
    for file in cut::even(&sizes, files, MOST_GROUPS) {
        for joint in joints(groups.get(file.clone()).unwrap_or_default(), most_bytes) {
            steps.push(Step { groups: file.start + joint.start..file.start + joint.end, file: file.clone() });
        }
    }
    steps
}

/// The share of a row group's bytes that its rows which stay take.
fn live_bytes(group: &Group<'_>) -> u64 {
    let share = u128::from(group.bytes()) * u128::from(group.live()) / u128::from(group.rows().max(1));
    u64::try_from(share).unwrap_or(u64::MAX).max(1)
}

fn wish(job: &Job<'_>) -> Wish {
    let memory = usize::try_from(job.plan.bound.memory).unwrap_or(usize::MAX);
    Wish { codec: codec(job.properties.compression), page: memory / 8, chunk: memory / 4, small_rows: SMALL_ROWS }
}

/// The table's codec. Zstandard's default level gains nothing on ids over the
/// fastest one.
fn codec(wanted: Compression) -> Compression {
    match wanted {
        Compression::ZSTD(level) if level.compression_level() == 3 => Compression::ZSTD(ZstdLevel::default()),
        other => other,
    }
}

/// Runs of row groups to be joined: of about equal rows, none above the limits
/// by more than a row group.
fn joints(groups: &[Group<'_>], most_bytes: u64) -> Vec<Range<usize>> {
    let (rows, bytes) = groups.iter().fold((0u64, 0u64), |(rows, bytes), group| (rows + group.live(), bytes + group.bytes()));
    let by_rows = rows.div_ceil(MOST_ROWS);
    let wanted = by_rows.max(bytes.div_ceil(most_bytes.max(1)));
    let size = |group: &Group<'_>| if by_rows == wanted { group.live() } else { group.bytes() };
    cut::even(&groups.iter().map(size).collect::<Vec<_>>(), wanted, usize::MAX)
}

/// What joining row groups takes.
struct Packing<'a> {
    job: &'a Job<'a>,
    wish: Wish,
    deleted: &'a [RoaringTreemap],
}

/// A row group's columns, or why they cannot be joined.
type Columns = std::result::Result<Vec<Joined>, String>;

impl Packing<'_> {
    /// The bytes of the chunks of row groups.
    async fn read(&self, groups: &[Group<'_>]) -> Result<Vec<Vec<Bytes>>> {
        let reads: Vec<_> = groups.iter().map(|group| chunks(*group)).collect();
        stream::iter(reads).buffered(READS_AT_ONCE).try_collect().await
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
            match self.pack(groups, chunks).await? {
                Ok(columns) => files.hold(step, groups, columns),
                Err(_) if groups.len() > 1 => left.extend(halved(groups, chunks)),
                Err(why) => return Ok(Some(why)),
            }
        }
        Ok(None)
    }

    async fn pack(&self, groups: &[Group<'_>], chunks: &[Vec<Bytes>]) -> Result<Columns> {
        let columns = groups.first().map_or(0, |group| group.meta.num_columns());
        let dead: Vec<Arc<[u32]>> = groups.iter().map(|group| group.dead_rows(self.deleted)).collect();
        let mut joining = Vec::with_capacity(columns);
        for column in 0..columns {
            let parts = parts(groups, chunks, &dead, column)?;
            let bytes: usize = parts.iter().map(|part| part.bytes.len()).sum();
            joining.push((std::cmp::Reverse(bytes), joined(column, parts, self.wish)));
        }
        // The largest first, so that no core waits for one at the end.
        joining.sort_by_key(|(bytes, _)| *bytes);
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let mut joining = stream::iter(joining.into_iter().map(|(_, joining)| joining)).buffer_unordered(cores);
        let (mut packed, mut bytes) = (Vec::with_capacity(columns), 0u64);
        let rows: u64 = groups.iter().map(Group::live).sum();
        while let Some(result) = joining.next().await {
            let (column, result) = result?;
            match result {
                Ok(joined) if joined.rows == rows => {
                    bytes = bytes.saturating_add(joined.bytes.len() as u64);
                    packed.push((column, joined));
                }
                Ok(joined) => {
                    let damage = Fault::damaged(format_args!("{} rows where the footers state {rows}", joined.rows));
                    return unfit(groups, column, damage.into());
                }
                Err(failure) => return unfit(groups, column, failure),
            }
            // Another codec, or values instead of ids, may take more.
            if groups.len() > 1 && bytes > self.job.plan.bound.memory / 4 {
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
fn unfit(groups: &[Group<'_>], column: usize, failure: Failure) -> Result<Columns> {
    let group = groups.get(failure.part.unwrap_or(0));
    let path = group.map_or("", |group| group.input.path.as_str());
    let name = group.and_then(|group| group.meta.columns().get(column)).map_or_else(String::new, |chunk| chunk.column_path().string());
    match failure.fault {
        Fault::Damaged(what) => Err(Error::damaged(path, format!("column {name}: {what}"))),
        Fault::Unfit(what) => Ok(Err(format!("{path}: column {name}: {what}"))),
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

fn parts(groups: &[Group<'_>], chunks: &[Vec<Bytes>], dead: &[Arc<[u32]>], column: usize) -> Result<Vec<Part>> {
    let part = |((group, chunks), dead): ((&Group<'_>, &Vec<Bytes>), &Arc<[u32]>)| {
        let chunk = group.meta.columns().get(column).cloned().zip(chunks.get(column).cloned());
        let (meta, bytes) = chunk.ok_or_else(|| Error::damaged(&group.input.path, format!("a row group without its column {column}")))?;
        let (column_index, offset_index) = (group.column_index(column), group.offset_index(column));
        Ok(Part { bytes, meta, rows: group.rows(), dead: dead.clone(), column_index, offset_index })
    };
    groups.iter().zip(chunks).zip(dead).map(part).collect()
}

/// Joins a column where it does not hold up other tasks.
async fn joined(column: usize, parts: Vec<Part>, wish: Wish) -> Result<(usize, std::result::Result<Joined, Failure>)> {
    let done = tokio::task::spawn_blocking(move || join(&parts, &wish)).await;
    done.map(|joined| (column, joined)).map_err(|stopped| Error::Stopped(format!("joining pages did not end: {stopped}")))
}

/// The files of one rewrite, one at a time.
struct Files<'a, 'j> {
    job: &'a Job<'j>,
    nans: &'a HashMap<String, HashMap<i32, u64>>,
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
        self.held = Some(Held { file: step.file.start, groups: groups.to_vec(), columns });
    }

    /// Writes what is held; ends the file before where it goes into another.
    async fn write(&mut self) -> Result<()> {
        let Some(held) = self.held.take() else { return Ok(()) };
        if self.open.as_ref().is_some_and(|open| open.file != held.file) {
            self.close().await?;
        }
        let mut open = match self.open.take() {
            Some(open) => open,
            None => self.begin(&held).await?,
        };
        let rows: u64 = held.groups.iter().map(Group::live).sum();
        let path = open.sink.path().to_owned();
        let failed = |e| broken(&path, e);
        let mut out = open.writer.next_row_group().map_err(failed)?;
        for joined in held.columns {
            out.append_column(&joined.bytes.clone(), closed(joined, rows)).map_err(failed)?;
            open.sink.drain().await?;
        }
        out.close().map_err(failed)?;
        open.sink.drain().await?;
        held.groups.iter().for_each(|group| self.job.control.progress(group.rows(), group.bytes()));
        open.groups.extend(held.groups);
        self.open = Some(open);
        Ok(())
    }

    async fn begin(&mut self, held: &Held<'a>) -> Result<Open<'a, 'j>> {
        let first = held.groups.first().ok_or_else(|| Error::Setup("an output without row groups".into()))?;
        let sink = self.job.begin(self.made.len()).await?;
        let properties = WriterProperties::builder()
            .set_created_by(CREATED_BY.to_owned())
            .set_key_value_metadata(Some(schema_note(&self.job.schema_text)))
            .build();
        let schema = first.input.footer.file_metadata().schema_descr().root_schema_ptr();
        let writer = SerializedFileWriter::new(sink.tap(), schema, Arc::new(properties)).map_err(|e| broken(sink.path(), e))?;
        Ok(Open { file: held.file, groups: Vec::new(), sink, writer })
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

fn closed(joined: Joined, rows: u64) -> ColumnCloseResult {
    ColumnCloseResult {
        bytes_written: joined.bytes.len() as u64,
        rows_written: rows,
        metadata: joined.meta,
        bloom_filter: None,
        column_index: joined.column_index,
        offset_index: Some(joined.offset_index),
    }
}

fn broken(path: &str, error: ParquetError) -> Error {
    Error::Setup(format!("{path} could not be written: {error}"))
}
