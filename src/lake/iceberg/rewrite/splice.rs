//! Row groups put end to end: column chunks are copied byte for byte and
//! nothing is decoded.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use bytes::{Buf, Bytes};
use parquet::bloom_filter::Sbbf;
use parquet::column::writer::ColumnCloseResult;
use parquet::errors::ParquetError;
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{ChunkReader, Length};
use parquet::file::writer::SerializedFileWriter;

use super::cut;
use super::input::Input;
use super::job::{Job, Made};
use super::parts::{Group, MOST_GROUPS, nans_of, span};
use super::sink::Sink;
use crate::lake::iceberg::properties::{CREATED_BY, schema_note};
use crate::lake::{Error, Result};
use crate::parquet::tap::Tap;
use crate::parquet::{index, statistics};

/// A row group no larger than this is read in one request.
const ONE_READ: u64 = 8 << 20;
/// A bloom filter whose length the footer leaves out is looked for in this many
/// bytes.
const BLOOM_GUESS: u64 = (1 << 20) + 64;

/// Writes the inputs' row groups, in order, into as many files as their bytes
/// call for, all of about equal size. Statistics and bloom filters come along,
/// page indexes where all row groups of a file have them. `nans` are the inputs' NaN counts by path.
///
/// Memory held: one column chunk, or one small row group, twice.
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
        let properties = WriterProperties::builder()
            .set_created_by(CREATED_BY.to_owned())
            .set_key_value_metadata(Some(schema_note(&self.job.schema_text)))
            .build();
        let schema = first.input.footer.file_metadata().schema_descr().root_schema_ptr();
        let path = sink.path().to_owned();
        let failed = |e| Error::Setup(format!("{path} could not be written: {e}"));
        let mut writer = SerializedFileWriter::new(sink.tap(), schema, Arc::new(properties)).map_err(failed)?;
        let indexed = groups.iter().all(Group::is_indexed);
        for group in groups {
            self.job.control.check()?;
            self.group(*group, indexed, &mut writer, &mut sink).await?;
            self.job.control.progress(group.rows(), group.bytes());
        }
        let footer = writer.finish().map_err(failed)?;
        drop(writer);
        self.job.end(sink, &footer, &nans_of(self.job, groups, nans)).await
    }

    /// `indexed`: whether the file has page indexes. The footer's writer wants
    /// an offset index for every chunk of a file or for none.
    async fn group(&mut self, group: Group<'_>, indexed: bool, writer: &mut SerializedFileWriter<Tap>, sink: &mut Sink<'_>) -> Result<()> {
        let path = &group.input.path;
        let failed = |e: ParquetError| Error::damaged(path, format!("a row group cannot be copied: {e}"));
        let ranges = group.ranges()?;
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
                metadata: statistics::with_wide_zeros(chunk.clone()).map_err(failed)?,
                bloom_filter: self.bloom_filter(group.input, chunk).await?,
                column_index: group
                    .column_index(column)
                    .filter(|_| indexed)
                    .and_then(|told| index::with_wide_zeros(chunk.column_descr(), told)),
                offset_index: group.offset_index(column).filter(|_| indexed),
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
