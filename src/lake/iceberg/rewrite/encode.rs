//! Rows encoded anew, as the table's properties ask.

mod file;

use std::collections::HashMap;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use bytes::Bytes;
use parquet::arrow::ArrowSchemaConverter;
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::schema::types::SchemaDescriptor;

use self::file::{Cause, Encoded, Encoder, Flushed, Limits};
use super::cut::Cutter;
use super::job::{Job, Made};
use super::repack;
use super::sink::Sink;
use crate::lake::iceberg::properties::{Bounds, WriteProperties};
use crate::lake::iceberg::read::{ReadSummary, RowSource};
use crate::lake::iceberg::spread::aside;
use crate::lake::{Error, Output, Result};
use crate::model::file::Content;
use crate::model::refusal::{Refusal, Refused};
use crate::parquet::tap::{SMALL_PIECE, Tap};

/// Share of half a row group's memory that one column takes, values or none.
const COLUMN_BYTES: u64 = 6 << 10;
/// Memory that an empty dictionary takes.
const DICTIONARY_BYTES: u64 = 80 << 10;

/// Writes the rows of a source into files of about equal size, as many as their
/// bytes call for; none when there are no rows.
///
/// Memory held: a quarter of the plan's bound for the row group in progress,
/// as much again while it is sent, and two batches. Refused when the columns alone
/// or a single row would not fit.
pub async fn write(job: &Job<'_>, mut source: Box<dyn RowSource + '_>) -> Result<(Vec<Made>, ReadSummary)> {
    let mut stream = Stream::new(job, source.schema())?;
    let mut next = source.next().await?;
    while let Some(batch) = next {
        job.control.check()?;
        let read = source.rows_read();
        // the next rows are read while these are encoded
        let (pushed, following) = tokio::join!(stream.push(batch, read), source.next());
        pushed?;
        next = following?;
    }
    let made = stream.end().await?;
    Ok((made, source.finish()))
}

/// As the table asks for it, for files of a schema; without one that is the table's.
pub fn properties(job: &Job<'_>, schema: Option<&SchemaDescriptor>) -> WriterProperties {
    properties_as(job, &job.properties, schema.unwrap_or(&job.written))
}

fn properties_as(job: &Job<'_>, asked: &WriteProperties, schema: &SchemaDescriptor) -> WriterProperties {
    let bounds = Bounds {
        row_bytes: job.plan.input_bytes() / job.plan.input_records().max(1),
        dictionaries: usize::try_from(group_memory(job) / 2 / DICTIONARY_BYTES).unwrap_or(usize::MAX),
    };
    asked.writer(schema, &job.modes, bounds, &job.schema_text)
}

/// Encodes the rows of a source as a file of a schema that nests as the table's,
/// which is kept in memory; `None` when it takes more than `most` bytes. Also the
/// NaNs of its columns.
///
/// Memory held: as by [`write()`], and the file.
pub async fn hold(
    job: &Job<'_>,
    schema: &SchemaDescriptor,
    source: &mut (dyn RowSource + '_),
    most: u64,
) -> Result<Option<(Bytes, HashMap<i32, u64>)>> {
    let (tap, place) = (Tap::with_pieces(SMALL_PIECE), "a file in memory");
    let mut encoder = alone(job, schema, source, (tap.clone(), place))?;
    let mut bytes = Vec::new();
    while let Some(batch) = source.next().await? {
        job.control.check()?;
        encoder = blocking(place, move || encoder.push(batch)).await?;
        while let Some(piece) = tap.next_piece() {
            bytes.extend_from_slice(&piece);
        }
        if bytes.len() as u64 > most {
            return Ok(None);
        }
    }
    let (_, nans) = blocking(place, move || encoder.end()).await?;
    while let Some(piece) = tap.next_piece() {
        bytes.extend_from_slice(&piece);
    }
    bytes.extend_from_slice(&tap.rest());
    Ok((bytes.len() as u64 <= most).then(|| (bytes.into(), nans)))
}

/// The same into a file of its own, named as an output that is given up at once: its
/// path is free to be used by nobody else, and whoever called for the rewrite removes it.
///
/// Memory held: as by [`write()`].
pub async fn put_aside(job: &Job<'_>, schema: &SchemaDescriptor, source: &mut (dyn RowSource + '_)) -> Result<(Output, HashMap<i32, u64>)> {
    let mut sink = job.begin(0).await?;
    job.give_up(1);
    let path = sink.path().to_owned();
    let mut encoder = alone(job, schema, source, (sink.tap(), &path))?;
    while let Some(batch) = source.next().await? {
        job.control.check()?;
        encoder = blocking(&path, move || encoder.push(batch)).await?;
        sink.drain().await?;
    }
    let (footer, nans) = blocking(&path, move || encoder.end()).await?;
    let records = u64::try_from(footer.file_metadata().num_rows()).unwrap_or(0);
    let bytes = sink.close().await?;
    Ok((Output { path, bytes, records }, nans))
}

/// The encoder of a file whose pages are joined with others': its row groups and pages
/// are no larger than what is joined at one time.
fn alone(job: &Job<'_>, schema: &SchemaDescriptor, source: &(dyn RowSource + '_), (tap, place): (Tap, &str)) -> Result<Encoder> {
    admit(job, &source.schema())?;
    same_levels(&source.schema(), schema)?;
    let row_group = job.properties.row_group_bytes.min(repack::group_bytes(job.plan.bound.memory));
    let limits = Limits { memory: group_memory(job), row_group };
    let page = repack::page_bytes(job.plan.bound.memory) / 2;
    let (page_bytes, dict_bytes) = (job.properties.page_bytes.min(page), job.properties.dict_bytes.min(page));
    let asked = WriteProperties { page_bytes, dict_bytes, ..job.properties.clone() };
    let encoder = Encoder::new(tap, source.schema(), schema, properties_as(job, &asked, schema), limits, Flushed::default());
    encoder.map_err(|e| broken(place, e))
}

/// Memory for the row group in progress.
fn group_memory(job: &Job<'_>) -> u64 {
    job.plan.bound.memory / 4
}

/// Whether rows of this schema can be written at all: the table's columns are its
/// columns, and they fit the memory that a row group may take.
///
/// # Errors
/// Refused `TooLargeForMemory`; [`Error::Setup`] for other columns.
pub fn admit(job: &Job<'_>, schema: &SchemaRef) -> Result<()> {
    same_levels(schema, &job.written)?;
    let memory = group_memory(job);
    let columns = job.written.num_columns() as u64;
    let blooms = (job.properties.blooms.len() as u64).saturating_mul(job.properties.bloom_max_bytes);
    if columns.saturating_mul(COLUMN_BYTES).saturating_add(blooms) > memory / 2 {
        let detail =
            format!("{columns} columns and their bloom filters need more than half of the {memory} bytes that a row group may take");
        return Err(Refused::new(Refusal::TooLargeForMemory, detail).into());
    }
    Ok(())
}

/// The files of one rewrite, one at a time.
struct Stream<'a> {
    job: &'a Job<'a>,
    schema: SchemaRef,
    limits: Limits,
    made: Vec<Made>,
    open: Option<(Sink<'a>, Encoder)>,
    cutter: Cutter,
    /// Rows written so far, over all files.
    rows: u64,
    /// Bytes of the files that are closed.
    closed_bytes: u64,
    /// What flushed row groups took, and what they were estimated at.
    flushed: Flushed,
}

impl<'a> Stream<'a> {
    fn new(job: &'a Job<'a>, schema: SchemaRef) -> Result<Self> {
        admit(job, &schema)?;
        let limits = Limits { memory: group_memory(job), row_group: job.properties.row_group_bytes };
        let cutter = Cutter::new(job.plan.target_file_size);
        let flushed = Flushed { input_bytes: job.plan.input_bytes(), input_records: job.plan.input_records(), ..Flushed::default() };
        Ok(Self { job, schema, limits, made: Vec::new(), open: None, cutter, rows: 0, closed_bytes: 0, flushed })
    }

    /// Writes a batch; `read` are the inputs' rows read so far, where known.
    async fn push(&mut self, batch: RecordBatch, read: Option<u64>) -> Result<()> {
        let (mut sink, encoder) = match self.open.take() {
            Some(open) => open,
            None => self.begin().await?,
        };
        self.rows += batch.num_rows() as u64;
        let encoder = blocking(sink.path(), move || encoder.push(batch)).await?;
        sink.drain().await?;
        let file = encoder.size();
        let rest = self.rows_left(read).saturating_mul(self.closed_bytes.saturating_add(file).into()) / u128::from(self.rows.max(1));
        self.open = Some((sink, encoder));
        if self.cutter.ends(file, u64::try_from(rest).unwrap_or(u64::MAX)) {
            self.end_file().await?;
        }
        Ok(())
    }

    async fn begin(&mut self) -> Result<(Sink<'a>, Encoder)> {
        let sink = self.job.begin(self.made.len()).await?;
        let properties = properties(self.job, None);
        let encoder = Encoder::new(sink.tap(), self.schema.clone(), &self.job.written, properties, self.limits, self.flushed);
        let encoder = encoder.map_err(|e| broken(sink.path(), e))?;
        Ok((sink, encoder))
    }

    async fn end_file(&mut self) -> Result<()> {
        let Some((sink, encoder)) = self.open.take() else { return Ok(()) };
        self.flushed = encoder.flushed;
        let (footer, nans) = blocking(sink.path(), move || encoder.end()).await?;
        let made = self.job.end(sink, &footer, &nans).await?;
        self.closed_bytes = self.closed_bytes.saturating_add(made.output.bytes);
        self.made.push(made);
        Ok(())
    }

    async fn end(mut self) -> Result<Vec<Made>> {
        self.end_file().await?;
        Ok(self.made)
    }

    /// Live rows still to come, as far as can be told: the share of live rows
    /// so far, or the planned position deletes.
    fn rows_left(&self, read: Option<u64>) -> u128 {
        let all = self.job.plan.input_records();
        match read {
            Some(read) => u128::from(all.saturating_sub(read)) * u128::from(self.rows) / u128::from(read.max(1)),
            None => {
                let positions = self.job.plan.deletes.iter().filter(|d| d.content != Content::EqualityDeletes);
                let deleted: u64 = positions.map(|d| d.records).sum();
                u128::from(all.saturating_sub(deleted).saturating_sub(self.rows))
            }
        }
    }
}

/// Runs encoding work where it does not hold up other tasks.
async fn blocking<T: Send + 'static>(path: &str, work: impl FnOnce() -> Encoded<T> + Send + 'static) -> Result<T> {
    match aside(work).await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(Cause::Parquet(error))) => Err(broken(path, error)),
        Ok(Err(Cause::RowTooLarge { row, limit })) => {
            let detail = format!("{path}: rows of {row} bytes, more than the {limit} bytes that one may take");
            Err(Refused::new(Refusal::TooLargeForMemory, detail).into())
        }
        Err(stopped) => Err(Error::Stopped(format!("the encoder of {path} did not end: {stopped}"))),
    }
}

fn broken(path: &str, error: ParquetError) -> Error {
    Error::Setup(format!("{path} could not be encoded: {error}"))
}

/// The encoder takes nullability and nesting from the rows' Arrow schema and
/// the rest from the table's: they must tell the same, or levels would be wrong.
fn same_levels(rows: &SchemaRef, table: &SchemaDescriptor) -> Result<()> {
    let found = ArrowSchemaConverter::new().convert(rows).map_err(|e| Error::Setup(format!("the rows' schema: {e}")))?;
    if found.num_columns() != table.num_columns() {
        return Err(Error::Setup(format!("the rows have {} leaf columns, the table {}", found.num_columns(), table.num_columns())));
    }
    for (found, wanted) in found.columns().iter().zip(table.columns()) {
        let same = found.physical_type() == wanted.physical_type()
            && (found.max_def_level(), found.max_rep_level()) == (wanted.max_def_level(), wanted.max_rep_level())
            && found.self_type().get_basic_info().id() == wanted.self_type().get_basic_info().id();
        if !same {
            return Err(Error::Setup(format!("column {} of the rows is not the table's {}", found.path(), wanted.path())));
        }
    }
    Ok(())
}
