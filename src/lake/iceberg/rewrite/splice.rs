//! Row groups put end to end: column chunks are copied byte for byte and
//! nothing is decoded.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use bytes::{Buf, Bytes};
use parquet::bloom_filter::Sbbf;
use parquet::column::writer::ColumnCloseResult;
use parquet::errors::ParquetError;
use parquet::file::metadata::{ColumnChunkMetaData, RowGroupMetaData};
use parquet::file::page_index::column_index::ColumnIndexMetaData;
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{ChunkReader, Length};
use parquet::file::writer::SerializedFileWriter;

use super::cut;
use super::input::Input;
use super::job::{Job, Made};
use super::sink::Sink;
use crate::lake::iceberg::properties::{CREATED_BY, schema_note};
use crate::lake::{Error, Result};
use crate::parquet::tap::Tap;

/// Most row groups that a Parquet file can number.
const MOST_GROUPS: usize = i16::MAX as usize;
/// A row group no larger than this is read in one request.
const ONE_READ: u64 = 8 << 20;
/// A bloom filter whose length the footer leaves out is looked for in this many
/// bytes.
const BLOOM_GUESS: u64 = (1 << 20) + 64;

/// Writes the inputs' row groups, in order, into as many files as their bytes
/// call for, all of about equal size. Page indexes, statistics and bloom
/// filters come along. `nans` are the inputs' NaN counts by path.
///
/// Memory held: one column chunk, or one small row group, twice.
pub async fn write(job: &Job<'_>, inputs: &[Input], nans: &HashMap<String, HashMap<i32, u64>>) -> Result<(Vec<Made>, u64)> {
    let groups: Vec<Group<'_>> = inputs.iter().flat_map(Group::all).filter(|group| group.meta.num_rows() > 0).collect();
    let sizes: Vec<u64> = groups.iter().map(|group| u64::try_from(group.meta.compressed_size()).unwrap_or(0)).collect();
    let files = cut::outputs(sizes.iter().sum(), job.plan.target_file_size);
    let mut made = Vec::new();
    let mut copy = Copy { job, read: 0 };
    for run in cut::even(&sizes, files, MOST_GROUPS) {
        let groups = groups.get(run).unwrap_or_default();
        made.push(copy.output(made.len(), groups, nans).await?);
    }
    Ok((made, copy.read))
}

/// A row group of an input.
#[derive(Clone, Copy)]
struct Group<'a> {
    input: &'a Input,
    position: usize,
    meta: &'a RowGroupMetaData,
}

impl<'a> Group<'a> {
    fn all(input: &'a Input) -> impl Iterator<Item = Self> {
        input.footer.row_groups().iter().enumerate().map(move |(position, meta)| Self { input, position, meta })
    }
}

struct Copy<'a> {
    job: &'a Job<'a>,
    read: u64,
}

impl Copy<'_> {
    async fn output(&mut self, number: usize, groups: &[Group<'_>], nans: &HashMap<String, HashMap<i32, u64>>) -> Result<Made> {
        let first = groups.first().ok_or_else(|| Error::Setup("an output without row groups".into()))?;
        let mut sink = self.job.begin(number).await?;
        let properties = WriterProperties::builder()
            .set_created_by(CREATED_BY.to_owned())
            .set_key_value_metadata(Some(schema_note(&self.job.schema_text)))
            .build();
        let schema = first.input.footer.file_metadata().schema_descr().root_schema_ptr();
        let path = sink.path().to_owned();
        let failed = |e| Error::Setup(format!("{path} could not be written: {e}"));
        let mut writer = SerializedFileWriter::new(sink.tap(), schema, Arc::new(properties)).map_err(failed)?;
        for group in groups {
            self.job.control.check()?;
            self.group(*group, &mut writer, &mut sink).await?;
            self.job
                .control
                .progress(u64::try_from(group.meta.num_rows()).unwrap_or(0), u64::try_from(group.meta.compressed_size()).unwrap_or(0));
        }
        let footer = writer.finish().map_err(failed)?;
        drop(writer);
        self.job.end(sink, &footer, &nans_of(self.job, groups, nans)).await
    }

    async fn group(&mut self, group: Group<'_>, writer: &mut SerializedFileWriter<Tap>, sink: &mut Sink<'_>) -> Result<()> {
        let path = &group.input.path;
        let failed = |e: ParquetError| Error::damaged(path, format!("a row group cannot be copied: {e}"));
        let ranges = group.meta.columns().iter().map(|chunk| range(path, chunk)).collect::<Result<Vec<_>>>()?;
        let whole = span(&ranges).filter(|span| span.end - span.start <= ONE_READ);
        let mut window = match whole {
            Some(span) => Some(self.window(group.input, span).await?),
            None => None,
        };
        let mut out = writer.next_row_group().map_err(failed)?;
        for (column, (chunk, range)) in group.meta.columns().iter().zip(ranges).enumerate() {
            let pages = match &mut window {
                Some(window) => window.clone(),
                None => self.window(group.input, range).await?,
            };
            let close = ColumnCloseResult {
                bytes_written: u64::try_from(chunk.compressed_size()).unwrap_or(0),
                rows_written: u64::try_from(group.meta.num_rows()).unwrap_or(0),
                metadata: chunk.clone(),
                bloom_filter: self.bloom_filter(group.input, chunk).await?,
                column_index: column_index(group, column),
                offset_index: offset_index(group, column),
            };
            out.append_column(&pages, close).map_err(failed)?;
            sink.drain().await?;
        }
        out.close().map_err(failed)?;
        sink.drain().await
    }

    async fn window(&mut self, input: &Input, range: Range<u64>) -> Result<Window> {
        let start = range.start;
        let bytes = input.bytes(range).await?;
        self.read += bytes.len() as u64;
        Ok(Window { start, bytes })
    }

    /// The chunk's bloom filter; dropped where the footer does not tell its
    /// length and it is not found whole in the usual one.
    async fn bloom_filter(&mut self, input: &Input, chunk: &ColumnChunkMetaData) -> Result<Option<Sbbf>> {
        let Some(start) = chunk.bloom_filter_offset().and_then(|offset| u64::try_from(offset).ok()) else { return Ok(None) };
        let told = chunk.bloom_filter_length().and_then(|length| u64::try_from(length).ok());
        let end = match told {
            Some(length) => start.saturating_add(length),
            None => start.saturating_add(BLOOM_GUESS).min(input.size),
        };
        let window = self.window(input, start..end.max(start)).await?;
        match Sbbf::read_from_column_chunk(chunk, &window) {
            Ok(filter) => Ok(filter),
            Err(_) if told.is_none() => Ok(None),
            Err(error) => Err(Error::damaged(&input.path, format!("bloom filter of {}: {error}", chunk.column_path()))),
        }
    }
}

/// NaN counts of an output: an input all of whose row groups went into it adds
/// its own, one without NaNs adds none wherever its row groups went. A column
/// is left out when an input does not tell.
fn nans_of(job: &Job<'_>, groups: &[Group<'_>], nans: &HashMap<String, HashMap<i32, u64>>) -> HashMap<i32, u64> {
    let mut parts: HashMap<&str, (usize, usize)> = HashMap::new();
    for group in groups {
        let all = group.input.footer.row_groups().iter().filter(|g| g.num_rows() > 0).count();
        parts.entry(&group.input.path).or_insert((0, all)).0 += 1;
    }
    let of_column = |id: i32| {
        parts.iter().try_fold(0u64, |sum, (path, (here, all))| match *nans.get(*path)?.get(&id)? {
            0 => Some(sum),
            count if here == all => sum.checked_add(count),
            _ => None,
        })
    };
    job.leaves.iter().filter(|leaf| leaf.is_float()).filter_map(|leaf| Some((leaf.id, of_column(leaf.id)?))).collect()
}

fn column_index(group: Group<'_>, column: usize) -> Option<ColumnIndexMetaData> {
    let index = group.input.footer.column_index()?.get(group.position)?.get(column)?;
    (!matches!(index, ColumnIndexMetaData::NONE)).then(|| index.clone())
}

fn offset_index(group: Group<'_>, column: usize) -> Option<parquet::file::page_index::offset_index::OffsetIndexMetaData> {
    group.input.footer.offset_index()?.get(group.position)?.get(column).cloned()
}

/// Where a chunk's pages lie, dictionary first.
fn range(path: &str, chunk: &ColumnChunkMetaData) -> Result<Range<u64>> {
    let start = chunk.dictionary_page_offset().unwrap_or_else(|| chunk.data_page_offset());
    let place = u64::try_from(start).ok().zip(u64::try_from(chunk.compressed_size()).ok());
    let end = place.and_then(|(start, length)| start.checked_add(length));
    match place.zip(end) {
        Some(((start, _), end)) => Ok(start..end),
        None => Err(Error::damaged(path, format!("column {} has no place in the file", chunk.column_path()))),
    }
}

fn span(ranges: &[Range<u64>]) -> Option<Range<u64>> {
    Some(ranges.iter().map(|r| r.start).min()?..ranges.iter().map(|r| r.end).max()?)
}

/// Bytes of a file from a position on.
#[derive(Clone)]
struct Window {
    start: u64,
    bytes: Bytes,
}

impl Length for Window {
    fn len(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }
}

impl ChunkReader for Window {
    type T = bytes::buf::Reader<Bytes>;

    fn get_read(&self, start: u64) -> parquet::errors::Result<Self::T> {
        let from = start.checked_sub(self.start).and_then(|from| usize::try_from(from).ok()).filter(|from| *from <= self.bytes.len());
        let from = from.ok_or_else(|| ParquetError::EOF(format!("byte {start} was not read")))?;
        Ok(self.bytes.slice(from..).reader())
    }

    fn get_bytes(&self, start: u64, length: usize) -> parquet::errors::Result<Bytes> {
        let from = start.checked_sub(self.start).and_then(|from| usize::try_from(from).ok());
        let end = from.and_then(|from| from.checked_add(length)).filter(|end| *end <= self.bytes.len());
        match from.zip(end) {
            Some((from, end)) => Ok(self.bytes.slice(from..end)),
            None => Err(ParquetError::EOF(format!("bytes {start} and {length} on were not read"))),
        }
    }
}
