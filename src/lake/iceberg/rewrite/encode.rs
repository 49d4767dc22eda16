//! Rows encoded anew, as the table's properties ask.

use std::collections::HashMap;

use arrow_array::{Array, RecordBatch};
use arrow_schema::SchemaRef;
use parquet::arrow::ArrowSchemaConverter;
use parquet::arrow::arrow_writer::{ArrowWriter, ArrowWriterOptions};
use parquet::errors::ParquetError;
use parquet::file::metadata::ParquetMetaData;
use parquet::file::properties::WriterProperties;
use parquet::schema::types::SchemaDescriptor;

use super::cut::Cutter;
use super::job::{Job, Made};
use super::sink::Sink;
use crate::lake::iceberg::metrics::nan;
use crate::lake::iceberg::properties::Bounds;
use crate::lake::iceberg::read::{ReadSummary, RowSource};
use crate::lake::{Error, Result};
use crate::model::file::Content;
use crate::model::refusal::{Refusal, Refused};
use crate::parquet::tap::Tap;

/// Row groups of more rows than this gain nothing.
const MOST_ROWS: usize = 1 << 20;
/// Share of half a row group's memory that one column takes, values or none.
const COLUMN_BYTES: u64 = 6 << 10;
/// Memory that an empty dictionary takes.
const DICTIONARY_BYTES: u64 = 80 << 10;

/// Writes the rows of a source into files of about equal size, as many as their
/// bytes call for; none when there are no rows.
///
/// Memory held: a quarter of the plan's bound for the row group in progress,
/// as much again while it is sent, and a batch. Refused when the columns alone
/// or a single row would not fit.
pub async fn write(job: &Job<'_>, mut source: Box<dyn RowSource + '_>) -> Result<(Vec<Made>, ReadSummary)> {
    let mut stream = Stream::new(job, source.schema())?;
    while let Some(batch) = source.next().await? {
        job.control.check()?;
        stream.push(batch, source.rows_read()).await?;
    }
    let made = stream.end().await?;
    Ok((made, source.finish()))
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
        same_levels(&schema, &job.columns)?;
        let memory = job.plan.bound.memory / 4;
        let columns = job.columns.num_columns() as u64;
        let blooms = (job.properties.blooms.len() as u64).saturating_mul(job.properties.bloom_max_bytes);
        if columns.saturating_mul(COLUMN_BYTES).saturating_add(blooms) > memory / 2 {
            let detail =
                format!("{columns} columns and their bloom filters need more than half of the {memory} bytes that a row group may take");
            return Err(Refused::new(Refusal::TooLargeForMemory, detail).into());
        }
        let limits = Limits { memory, row_group: job.properties.row_group_bytes };
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
        let bounds = Bounds {
            row_bytes: self.job.plan.input_bytes() / self.job.plan.input_records().max(1),
            dictionaries: usize::try_from(self.limits.memory / 2 / DICTIONARY_BYTES).unwrap_or(usize::MAX),
        };
        let properties = self.job.properties.writer(&self.job.columns, &self.job.modes, bounds, &self.job.schema_text);
        let encoder = Encoder::new(sink.tap(), self.schema.clone(), self.job.columns.clone(), properties, self.limits, self.flushed);
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
                let positions = self.job.plan.deletes.iter().filter(|d| d.content == Content::PositionDeletes);
                let deleted: u64 = positions.map(|d| d.records).sum();
                u128::from(all.saturating_sub(deleted).saturating_sub(self.rows))
            }
        }
    }
}

/// When a row group ends.
#[derive(Clone, Copy)]
struct Limits {
    /// Bytes in memory.
    memory: u64,
    /// Bytes in the file, as estimated while it grows.
    row_group: u64,
}

/// Bytes of flushed row groups: in the file, and as estimated before; and the
/// inputs' bytes and rows, by which the first row group's size is judged.
#[derive(Clone, Copy, Default)]
struct Flushed {
    actual: u64,
    estimated: u64,
    input_bytes: u64,
    input_records: u64,
}

impl Flushed {
    /// Bytes in the file of rows that are encoded and not yet compressed.
    fn expect(&self, encoded: u64, rows: u64) -> u64 {
        let share = |part: u64, whole: u64, of: u64| u128::from(of) * u128::from(part) / u128::from(whole.max(1));
        let expected = match (self.estimated, self.input_records) {
            (0, 0) => u128::from(encoded),
            (0, records) => share(rows, records, self.input_bytes).min(encoded.into()),
            (estimated, _) => share(self.actual, estimated, encoded),
        };
        u64::try_from(expected).unwrap_or(u64::MAX)
    }
}

/// The encoder of one file. Works on a blocking thread.
struct Encoder {
    writer: ArrowWriter<Tap>,
    nans: HashMap<i32, u64>,
    limits: Limits,
    flushed: Flushed,
}

impl Encoder {
    fn new(
        tap: Tap,
        schema: SchemaRef,
        columns: SchemaDescriptor,
        properties: WriterProperties,
        limits: Limits,
        flushed: Flushed,
    ) -> std::result::Result<Self, ParquetError> {
        let options = ArrowWriterOptions::new().with_properties(properties).with_parquet_schema(columns).with_skip_arrow_metadata(true);
        let writer = ArrowWriter::try_new_with_options(tap, schema, options)?;
        Ok(Self { writer, nans: HashMap::new(), limits, flushed })
    }

    /// Encodes a batch in steps small enough for the limits to be kept.
    fn push(mut self, batch: RecordBatch) -> Encoded<Self> {
        nan::add(&batch, &mut self.nans);
        let bytes: u64 = batch.columns().iter().map(|c| c.to_data().get_slice_memory_size().unwrap_or(0) as u64).sum();
        let row = bytes / (batch.num_rows() as u64).max(1);
        if row > self.limits.memory.saturating_mul(2) {
            return Err(Cause::RowTooLarge { row, limit: self.limits.memory.saturating_mul(2) });
        }
        let step_bytes = (self.limits.memory / 4).min(self.limits.row_group / 2);
        let step = usize::try_from(step_bytes / row.max(1)).unwrap_or(usize::MAX).max(1);
        let mut from = 0;
        while from < batch.num_rows() {
            let rows = step.min(batch.num_rows() - from);
            self.writer.write(&batch.slice(from, rows))?;
            from += rows;
            let full = self.writer.in_progress_size() as u64 >= self.limits.row_group
                || self.writer.memory_size() as u64 >= self.limits.memory
                || self.writer.in_progress_rows() >= MOST_ROWS;
            if full {
                self.flush()?;
            }
        }
        Ok(self)
    }

    fn flush(&mut self) -> std::result::Result<(), ParquetError> {
        let (estimated, before) = (self.writer.in_progress_size(), self.writer.bytes_written());
        self.writer.flush()?;
        self.flushed.estimated += estimated as u64;
        self.flushed.actual += self.writer.bytes_written().saturating_sub(before) as u64;
        Ok(())
    }

    /// The file's size if it ended here, as far as can be told.
    fn size(&self) -> u64 {
        let expected = self.flushed.expect(self.writer.in_progress_size() as u64, self.writer.in_progress_rows() as u64);
        (self.writer.bytes_written() as u64).saturating_add(expected)
    }

    fn end(mut self) -> Encoded<(ParquetMetaData, HashMap<i32, u64>)> {
        Ok((self.writer.finish()?, self.nans))
    }
}

type Encoded<T> = std::result::Result<T, Cause>;

/// Why the encoder gave up.
enum Cause {
    Parquet(ParquetError),
    RowTooLarge { row: u64, limit: u64 },
}

impl From<ParquetError> for Cause {
    fn from(error: ParquetError) -> Self {
        Self::Parquet(error)
    }
}

/// Runs encoding work where it does not hold up other tasks.
async fn blocking<T: Send + 'static>(path: &str, work: impl FnOnce() -> Encoded<T> + Send + 'static) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_compressed_yet_is_expected_at_the_size_that_it_had_in_the_inputs() {
        let none = Flushed::default();
        let inputs = Flushed { input_bytes: 1_000, input_records: 100, ..none };
        assert_eq!([none.expect(700, 50), inputs.expect(700, 50), inputs.expect(300, 50)], [700, 500, 300]);
        // once a row group is flushed, its own ratio counts
        assert_eq!(Flushed { actual: 20, estimated: 200, ..inputs }.expect(700, 50), 70);
    }
}
