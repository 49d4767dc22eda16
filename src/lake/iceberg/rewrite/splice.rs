//! Row groups put end to end: column chunks are copied byte for byte and
//! nothing is decoded.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use futures::stream::{self, StreamExt};
use parquet::bloom_filter::Sbbf;
use parquet::column::writer::ColumnCloseResult;
use parquet::errors::ParquetError;
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;

use super::cut;
use super::input::Input;
use super::job::{Job, Made};
use super::lineage;
use super::parts::{Group, MOST_GROUPS, nans_of};
use crate::lake::iceberg::properties::{CREATED_BY, schema_note};
use crate::lake::iceberg::store::local;
use crate::lake::{Error, Result};
use crate::parquet::window::Window;
use crate::parquet::{index, statistics};

/// Columns of a row group that lie close are read in one request of so many bytes at
/// most; one that is larger is read alone.
const ONE_READ: u64 = 8 << 20;
/// Bytes between columns that are read along rather than asked for apart.
const GAP: u64 = 1 << 20;
/// Requests under way at one time, where each waits for a network.
const AT_ONCE: u64 = 8;
/// A bloom filter whose length the footer leaves out is looked for in this many
/// bytes.
const BLOOM_GUESS: u64 = (1 << 20) + 64;

/// Writes the inputs' row groups, in order, into as many files as their bytes
/// call for, all of about equal size. Statistics and bloom filters come along,
/// page indexes where all row groups of a file have them. `nans` are the inputs' NaN counts by path.
///
/// Memory held: what one request brings, twice; where requests run ahead, an eighth
/// of the plan's bound more.
pub async fn write(job: &Job<'_>, inputs: &[Input], nans: &HashMap<String, HashMap<i32, u64>>) -> Result<(Vec<Made>, u64)> {
    let groups = Group::with_rows(inputs, &[]);
    let sizes: Vec<u64> = groups.iter().map(Group::bytes).collect();
    let files = cut::outputs(sizes.iter().sum(), job.plan.target_file_size);
    let mut made = Vec::new();
    let mut copy = Copy { job, read: 0 };
    for run in cut::even(&sizes, files, MOST_GROUPS) {
        let groups = groups.get(run).unwrap_or_default();
        made.push(copy.output(made.len(), groups, nans).await?);
    }
    Ok((made, copy.read))
}

struct Copy<'a> {
    job: &'a Job<'a>,
    read: u64,
}

impl Copy<'_> {
    async fn output(&mut self, number: usize, groups: &[Group<'_>], nans: &HashMap<String, HashMap<i32, u64>>) -> Result<Made> {
        let first = groups.first().ok_or_else(|| Error::Setup("an output without row groups".into()))?;
        let mut sink = self.job.begin(number).await?;
        let indexed = groups.iter().all(Group::is_indexed);
        let properties = WriterProperties::builder()
            .set_created_by(CREATED_BY.to_owned())
            .set_key_value_metadata(Some(schema_note(&self.job.schema_text)));
        let properties = lineage::properties(self.job, properties, indexed).build();
        let schema = self.job.file_schema(first.input.footer.file_metadata().schema_descr())?;
        let path = sink.path().to_owned();
        let failed = |e| Error::Setup(format!("{path} could not be written: {e}"));
        let mut writer = SerializedFileWriter::new(sink.tap(), schema, Arc::new(properties)).map_err(failed)?;
        let reads: Vec<Vec<Read<'_>>> = groups.iter().map(|group| reads(*group, self.job.columns.num_columns())).collect::<Result<_>>()?;
        let at_once = self.at_once(reads.iter().flatten());
        let counts: Vec<usize> = reads.iter().map(Vec::len).collect();
        let mut fetched = stream::iter(reads.into_iter().flatten().map(fetched)).buffered(at_once);
        for (group, count) in groups.iter().zip(counts) {
            self.job.control.check()?;
            let broken = |e: ParquetError| Error::damaged(&group.input.path, format!("a row group cannot be copied: {e}"));
            let mut out = writer.next_row_group().map_err(broken)?;
            for _ in 0..count {
                let Some(fetched) = fetched.next().await else { break };
                let fetched = fetched?;
                self.read = self.read.saturating_add(fetched.bytes);
                for (chunk, bloom_filter) in fetched.columns.clone().zip(fetched.blooms) {
                    let close = closed(group, chunk, bloom_filter, indexed).map_err(broken)?;
                    out.append_column(&fetched.window, close).map_err(broken)?;
                    sink.drain().await?;
                }
            }
            if self.job.lineage {
                lineage::write(&mut out, &lineage::columns(self.job, &[*group], &[]).await?).map_err(broken)?;
            }
            out.close().map_err(broken)?;
            sink.drain().await?;
            self.job.control.progress(group.rows(), group.bytes());
        }
        drop(fetched);
        let footer = writer.finish().map_err(failed)?;
        drop(writer);
        self.job.end(sink, &footer, &nans_of(self.job, groups, nans)).await
    }

    /// How many requests run ahead: none on a local disk, and no more than there is
    /// memory for.
    fn at_once<'r>(&self, mut reads: impl Iterator<Item = &'r Read<'r>> + Clone) -> usize {
        if reads.clone().all(|read| local::path(&read.group.input.path).is_some()) {
            return 1;
        }
        let largest = reads.by_ref().map(|read| read.span.end.saturating_sub(read.span.start)).max().unwrap_or(1);
        usize::try_from((self.job.plan.bound.memory / 8 / largest.max(1)).clamp(1, AT_ONCE)).unwrap_or(1)
    }
}

/// Neighbouring columns of a row group that one request brings.
struct Read<'a> {
    group: Group<'a>,
    columns: Range<usize>,
    span: Range<u64>,
}

/// The requests for the first so many columns of a row group, in their order.
fn reads(group: Group<'_>, columns: usize) -> Result<Vec<Read<'_>>> {
    let mut reads: Vec<Read<'_>> = Vec::new();
    for (column, range) in group.ranges()?.into_iter().enumerate().take(columns) {
        let joins = |read: &&mut Read<'_>| {
            let span = read.span.start.min(range.start)..read.span.end.max(range.end);
            let apart = range.start.saturating_sub(read.span.end).max(read.span.start.saturating_sub(range.end));
            span.end.saturating_sub(span.start) <= ONE_READ && apart <= GAP
        };
        match reads.last_mut().filter(joins) {
            Some(read) => {
                read.span = read.span.start.min(range.start)..read.span.end.max(range.end);
                read.columns.end = column + 1;
            }
            None => reads.push(Read { group, columns: column..column + 1, span: range }),
        }
    }
    Ok(reads)
}

/// What a request brought.
struct Fetched {
    columns: Range<usize>,
    window: Window,
    blooms: Vec<Option<Sbbf>>,
    bytes: u64,
}

async fn fetched(read: Read<'_>) -> Result<Fetched> {
    let input = read.group.input;
    let window = window(input, read.span).await?;
    let (mut blooms, mut bytes) = (Vec::with_capacity(read.columns.len()), window.bytes.len() as u64);
    for chunk in read.group.meta.columns().get(read.columns.clone()).unwrap_or_default() {
        let (bloom, more) = bloom_filter(input, chunk).await?;
        blooms.push(bloom);
        bytes = bytes.saturating_add(more);
    }
    Ok(Fetched { columns: read.columns, window, blooms, bytes })
}

/// What the output says of a chunk. `indexed`: whether the file has page indexes. The
/// footer's writer wants an offset index for every chunk of a file or for none.
fn closed(group: &Group<'_>, column: usize, bloom_filter: Option<Sbbf>, indexed: bool) -> parquet::errors::Result<ColumnCloseResult> {
    let chunk = group.meta.columns().get(column).ok_or_else(|| ParquetError::General(format!("no column {column}")))?;
    let told = group.column_index(column).filter(|_| indexed);
    Ok(ColumnCloseResult {
        bytes_written: u64::try_from(chunk.compressed_size()).unwrap_or(0),
        rows_written: u64::try_from(group.meta.num_rows()).unwrap_or(0),
        metadata: statistics::with_wide_zeros(chunk.clone())?,
        bloom_filter,
        column_index: told.and_then(|told| index::with_wide_zeros(chunk.column_descr(), told)),
        offset_index: group.offset_index(column).filter(|_| indexed),
    })
}

async fn window(input: &Input, range: Range<u64>) -> Result<Window> {
    let start = range.start;
    Ok(Window { start, bytes: input.bytes(range).await? })
}

/// The chunk's bloom filter, and the bytes read for it; dropped where the footer does
/// not tell its length and it is not found whole in the usual one.
pub async fn bloom_filter(input: &Input, chunk: &ColumnChunkMetaData) -> Result<(Option<Sbbf>, u64)> {
    let Some(start) = chunk.bloom_filter_offset().and_then(|offset| u64::try_from(offset).ok()) else { return Ok((None, 0)) };
    let told = chunk.bloom_filter_length().and_then(|length| u64::try_from(length).ok());
    let end = match told {
        Some(length) => start.saturating_add(length),
        None => start.saturating_add(BLOOM_GUESS).min(input.size),
    };
    let window = window(input, start..end.max(start)).await?;
    let bytes = window.bytes.len() as u64;
    match Sbbf::read_from_column_chunk(chunk, &window) {
        Ok(filter) => Ok((filter, bytes)),
        Err(_) if told.is_none() => Ok((None, bytes)),
        Err(error) => Err(Error::damaged(&input.path, format!("bloom filter of {}: {error}", chunk.column_path()))),
    }
}
