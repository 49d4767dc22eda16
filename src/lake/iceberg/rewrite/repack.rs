//! Healthy row groups put together from many small ones: pages move, values
//! are not decoded.

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

use super::cut;
use super::input::Input;
use super::job::{Job, Made};
use super::parts::{Group, MOST_GROUPS, nans_of, span};
use super::sink::Sink;
use crate::lake::iceberg::properties::{CREATED_BY, schema_note};
use crate::lake::{Error, Result};
use crate::model::refusal::{Refusal, Refused};
use crate::parquet::chunk::Part;
use crate::parquet::fault::{Failure, Fault};
use crate::parquet::repack::{Joined, Wish, join};
use crate::parquet::tap::Tap;

/// Row groups of about this many rows scan best and still prune.
const MOST_ROWS: u64 = 1 << 20;
/// Row groups read at one time.
const READS_AT_ONCE: usize = 8;
/// Bytes between chunks that are read along rather than asked for apart.
const GAP: u64 = 1 << 20;

/// The share of a job's memory that one row group in the making may take, read
/// and written each.
pub fn group_bytes(memory: u64) -> u64 {
    memory / 6
}

/// Writes the inputs' row groups, in order, joined into ones of about
/// [`MOST_ROWS`] rows or the table's size, into files of about equal bytes.
/// `nans` are the inputs' NaN counts by path. Also the bytes read.
///
/// Memory held: the pages of one row group read and written, and one page a
/// core decompressed. Row groups whose pages cannot be joined are joined with
/// fewer others, at last with none.
///
/// Errs with a refusal `Damaged` on pages that contradict themselves or their
/// footer.
pub async fn write(job: &Job<'_>, inputs: &[Input], nans: &HashMap<String, HashMap<i32, u64>>) -> Result<(Vec<Made>, u64)> {
    let groups = Group::with_rows(inputs);
    let sizes: Vec<u64> = groups.iter().map(Group::bytes).collect();
    let files = cut::outputs(sizes.iter().sum(), job.plan.target_file_size);
    let mut made = Vec::new();
    let mut packing = Packing { job, wish: wish(job), read: 0 };
    for run in cut::even(&sizes, files, MOST_GROUPS) {
        let groups = groups.get(run).unwrap_or_default();
        made.push(packing.output(made.len(), groups, nans).await?);
    }
    Ok((made, packing.read))
}

fn wish(job: &Job<'_>) -> Wish {
    let memory = usize::try_from(job.plan.bound.memory).unwrap_or(usize::MAX);
    Wish { codec: codec(job.properties.compression), page: memory / 8, chunk: memory / 4 }
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
    let (rows, bytes) = groups.iter().fold((0u64, 0u64), |(rows, bytes), group| (rows + group.rows(), bytes + group.bytes()));
    let wanted = rows.div_ceil(MOST_ROWS).max(bytes.div_ceil(most_bytes.max(1)));
    let sizes: Vec<u64> =
        groups.iter().map(|group| if rows.div_ceil(MOST_ROWS) == wanted { group.rows() } else { group.bytes() }).collect();
    cut::even(&sizes, wanted, usize::MAX)
}

struct Packing<'a> {
    job: &'a Job<'a>,
    wish: Wish,
    read: u64,
}

impl Packing<'_> {
    async fn output(&mut self, number: usize, groups: &[Group<'_>], nans: &HashMap<String, HashMap<i32, u64>>) -> Result<Made> {
        let first = groups.first().ok_or_else(|| Error::Setup("an output without row groups".into()))?;
        let mut sink = self.job.begin(number).await?;
        let properties = WriterProperties::builder()
            .set_created_by(CREATED_BY.to_owned())
            .set_key_value_metadata(Some(schema_note(&self.job.schema_text)))
            .build();
        let schema = first.input.footer.file_metadata().schema_descr().root_schema_ptr();
        let path = sink.path().to_owned();
        let failed = |e| broken(&path, e);
        let mut writer = SerializedFileWriter::new(sink.tap(), schema, Arc::new(properties)).map_err(failed)?;
        let most_bytes = self.job.properties.row_group_bytes.min(group_bytes(self.job.plan.bound.memory));
        for joint in joints(groups, most_bytes) {
            self.joint(groups.get(joint).unwrap_or_default(), &mut writer, &mut sink).await?;
        }
        let footer = writer.finish().map_err(failed)?;
        drop(writer);
        self.job.end(sink, &footer, &nans_of(self.job, groups, nans)).await
    }

    /// Joins row groups into one, or into several where they do not join.
    async fn joint(&mut self, groups: &[Group<'_>], writer: &mut SerializedFileWriter<Tap>, sink: &mut Sink<'_>) -> Result<()> {
        let mut left = vec![groups];
        while let Some(groups) = left.pop() {
            self.job.control.check()?;
            match self.pack(groups).await? {
                Packed::Joined(columns) => {
                    append(groups, columns, writer, sink).await?;
                    groups.iter().for_each(|group| self.job.control.progress(group.rows(), group.bytes()));
                }
                Packed::Unfit(_) if groups.len() > 1 => {
                    let (front, back) = groups.split_at(groups.len() / 2);
                    left.extend([back, front]);
                }
                Packed::Unfit(why) => return Err(Refused::new(Refusal::Damaged, why).into()),
            }
        }
        Ok(())
    }

    async fn pack(&mut self, groups: &[Group<'_>]) -> Result<Packed> {
        let reads: Vec<_> = groups.iter().map(|group| chunks(*group)).collect();
        let chunks: Vec<Vec<Bytes>> = stream::iter(reads).buffered(READS_AT_ONCE).try_collect().await?;
        self.read += chunks.iter().flatten().map(|chunk| chunk.len() as u64).sum::<u64>();
        let columns = groups.first().map_or(0, |group| group.meta.num_columns());
        let mut joining = Vec::with_capacity(columns);
        for column in 0..columns {
            let parts = parts(groups, &chunks, column)?;
            joining.push(joined(parts, self.wish));
        }
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let mut joining = stream::iter(joining).buffered(cores);
        let (mut packed, mut bytes) = (Vec::with_capacity(columns), 0u64);
        while let Some(result) = joining.next().await {
            match result? {
                Ok(joined) => {
                    bytes = bytes.saturating_add(joined.bytes.len() as u64);
                    packed.push(joined);
                }
                Err(failure) => return unfit(groups, packed.len(), failure),
            }
            // Another codec, or values instead of ids, may take more.
            if groups.len() > 1 && bytes > group_bytes(self.job.plan.bound.memory).saturating_mul(2) {
                return Ok(Packed::Unfit("they take too much memory together".into()));
            }
        }
        Ok(Packed::Joined(packed))
    }
}

/// A row group's columns, or why they cannot be joined.
enum Packed {
    Joined(Vec<Joined>),
    Unfit(String),
}

/// Damage is an error, anything else a reason to join fewer.
fn unfit(groups: &[Group<'_>], column: usize, failure: Failure) -> Result<Packed> {
    let group = groups.get(failure.part.unwrap_or(0));
    let path = group.map_or("", |group| group.input.path.as_str());
    let name = group.and_then(|group| group.meta.columns().get(column)).map_or_else(String::new, |chunk| chunk.column_path().string());
    match failure.fault {
        Fault::Damaged(what) => Err(Error::damaged(path, format!("column {name}: {what}"))),
        Fault::Unfit(what) => Ok(Packed::Unfit(format!("{path}: column {name}: {what}"))),
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

fn parts(groups: &[Group<'_>], chunks: &[Vec<Bytes>], column: usize) -> Result<Vec<Part>> {
    let part = |(group, chunks): (&Group<'_>, &Vec<Bytes>)| {
        let chunk = group.meta.columns().get(column).cloned().zip(chunks.get(column).cloned());
        let (meta, bytes) = chunk.ok_or_else(|| Error::damaged(&group.input.path, format!("a row group without its column {column}")))?;
        let (column_index, offset_index) = (group.column_index(column), group.offset_index(column));
        Ok(Part { bytes, meta, rows: group.rows(), column_index, offset_index })
    };
    groups.iter().zip(chunks).map(part).collect()
}

/// Joins a column where it does not hold up other tasks.
async fn joined(parts: Vec<Part>, wish: Wish) -> Result<std::result::Result<Joined, Failure>> {
    let done = tokio::task::spawn_blocking(move || join(&parts, &wish)).await;
    done.map_err(|stopped| Error::Stopped(format!("joining pages did not end: {stopped}")))
}

async fn append(groups: &[Group<'_>], columns: Vec<Joined>, writer: &mut SerializedFileWriter<Tap>, sink: &mut Sink<'_>) -> Result<()> {
    let rows: u64 = groups.iter().map(Group::rows).sum();
    let path = sink.path().to_owned();
    let failed = |e| broken(&path, e);
    let mut out = writer.next_row_group().map_err(failed)?;
    for joined in columns {
        let close = ColumnCloseResult {
            bytes_written: joined.bytes.len() as u64,
            rows_written: rows,
            metadata: joined.meta,
            bloom_filter: None,
            column_index: joined.column_index,
            offset_index: Some(joined.offset_index),
        };
        out.append_column(&joined.bytes, close).map_err(failed)?;
        sink.drain().await?;
    }
    out.close().map_err(failed)?;
    sink.drain().await
}

fn broken(path: &str, error: ParquetError) -> Error {
    Error::Setup(format!("{path} could not be written: {error}"))
}
