//! One file, encoded column by column on all cores.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::{FieldRef, SchemaRef};
use parquet::arrow::arrow_writer::{ArrowColumnChunk, ArrowColumnWriter, ArrowRowGroupWriterFactory, compute_leaves};
use parquet::errors::ParquetError;
use parquet::file::metadata::ParquetMetaData;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::SchemaDescriptor;

use crate::lake::iceberg::metrics::nan;
use crate::lake::iceberg::spread::spread;
use crate::parquet::tap::Tap;

/// Row groups of more rows than this gain nothing.
const MOST_ROWS: usize = 1 << 20;

/// When a row group ends.
#[derive(Clone, Copy)]
pub struct Limits {
    /// Bytes in memory.
    pub memory: u64,
    /// Bytes in the file, as estimated while it grows.
    pub row_group: u64,
}

/// Bytes of flushed row groups: in the file, and as estimated before; and the
/// inputs' bytes and rows, by which the first row group's size is judged.
#[derive(Clone, Copy, Default)]
pub struct Flushed {
    /// Bytes in the file.
    pub actual: u64,
    /// Bytes as estimated.
    pub estimated: u64,
    /// Bytes of the inputs.
    pub input_bytes: u64,
    /// Rows of the inputs.
    pub input_records: u64,
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

/// The encoder of one file. Works on a blocking thread, and on one more for each
/// further core.
pub struct Encoder {
    writer: SerializedFileWriter<Tap>,
    columns: ArrowRowGroupWriterFactory,
    schema: SchemaRef,
    group: Option<Group>,
    nans: HashMap<i32, u64>,
    limits: Limits,
    /// What the row groups took that have ended.
    pub flushed: Flushed,
}

/// The row group in progress.
struct Group {
    roots: Vec<Root>,
    rows: usize,
}

/// The writers of the leaves of one column of the root.
struct Root {
    field: FieldRef,
    leaves: Vec<ArrowColumnWriter>,
}

impl Root {
    fn write(&mut self, column: &ArrayRef) -> Result<(), ParquetError> {
        let leaves = compute_leaves(&self.field, column)?;
        if leaves.len() != self.leaves.len() {
            return Err(ParquetError::General(format!("column {} has other leaves than the table's", self.field.name())));
        }
        self.leaves.iter_mut().zip(&leaves).try_for_each(|(writer, leaf)| writer.write(leaf))
    }
}

impl Encoder {
    /// An encoder that writes into `tap`.
    ///
    /// Errs when the schemas do not go together.
    pub fn new(
        tap: Tap,
        schema: SchemaRef,
        columns: &SchemaDescriptor,
        properties: WriterProperties,
        limits: Limits,
        flushed: Flushed,
    ) -> Result<Self, ParquetError> {
        let writer = SerializedFileWriter::new(tap, columns.root_schema_ptr(), Arc::new(properties))?;
        let columns = ArrowRowGroupWriterFactory::new(&writer, Arc::clone(&schema));
        Ok(Self { writer, columns, schema, group: None, nans: HashMap::new(), limits, flushed })
    }

    /// Encodes a batch in steps small enough for the limits to be kept.
    ///
    /// Errs when a row is too large, or cannot be encoded.
    pub fn push(mut self, batch: RecordBatch) -> Encoded<Self> {
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
            self.write(&batch.slice(from, rows))?;
            from += rows;
            if self.is_full() {
                self.flush()?;
            }
        }
        Ok(self)
    }

    fn write(&mut self, rows: &RecordBatch) -> Result<(), ParquetError> {
        let group = match &mut self.group {
            Some(group) => group,
            empty => empty.insert(begin(&self.columns, &self.writer, &self.schema)?),
        };
        group.rows += rows.num_rows();
        let columns = group.roots.iter_mut().zip(rows.columns()).collect();
        spread(columns, |(root, column): (&mut Root, &ArrayRef)| root.write(column))
    }

    fn is_full(&self) -> bool {
        let Some(group) = &self.group else { return false };
        let memory: usize = group.writers().map(ArrowColumnWriter::memory_size).sum();
        group.estimated() >= self.limits.row_group || memory as u64 >= self.limits.memory || group.rows >= MOST_ROWS
    }

    /// Ends the row group in progress: its columns on all cores, then one after
    /// the other into the file.
    fn flush(&mut self) -> Result<(), ParquetError> {
        let Some(group) = self.group.take() else { return Ok(()) };
        let (estimated, before) = (group.estimated(), self.writer.bytes_written());
        let writers = group.roots.into_iter().flat_map(|root| root.leaves);
        let mut columns: Vec<(Option<ArrowColumnWriter>, Option<ArrowColumnChunk>)> = writers.map(|writer| (Some(writer), None)).collect();
        spread(columns.iter_mut().collect(), |(writer, chunk): &mut (Option<_>, Option<_>)| {
            *chunk = writer.take().map(ArrowColumnWriter::close).transpose()?;
            Ok::<(), ParquetError>(())
        })?;
        let mut out = self.writer.next_row_group()?;
        for chunk in columns.into_iter().filter_map(|(_, chunk)| chunk) {
            chunk.append_to_row_group(&mut out)?;
        }
        out.close()?;
        self.flushed.estimated += estimated;
        self.flushed.actual += self.writer.bytes_written().saturating_sub(before) as u64;
        Ok(())
    }

    /// The file's size if it ended here, as far as can be told.
    pub fn size(&self) -> u64 {
        let (encoded, rows) = self.group.as_ref().map_or((0, 0), |group| (group.estimated(), group.rows as u64));
        (self.writer.bytes_written() as u64).saturating_add(self.flushed.expect(encoded, rows))
    }

    /// Ends the file: its footer, and the NaNs of its columns.
    ///
    /// Errs when what is left cannot be encoded.
    pub fn end(mut self) -> Encoded<(ParquetMetaData, HashMap<i32, u64>)> {
        self.flush()?;
        Ok((self.writer.finish()?, self.nans))
    }
}

impl Group {
    fn writers(&self) -> impl Iterator<Item = &ArrowColumnWriter> {
        self.roots.iter().flat_map(|root| &root.leaves)
    }

    /// Bytes that it takes in the file, as far as can be told.
    fn estimated(&self) -> u64 {
        self.writers().map(|w| w.get_estimated_total_bytes() as u64).sum()
    }
}

/// Begins a row group.
fn begin(columns: &ArrowRowGroupWriterFactory, writer: &SerializedFileWriter<Tap>, schema: &SchemaRef) -> Result<Group, ParquetError> {
    let mut roots: Vec<Root> = schema.fields().iter().map(|field| Root { field: Arc::clone(field), leaves: Vec::new() }).collect();
    let number = writer.flushed_row_groups().len();
    for (leaf, column) in columns.create_column_writers(number)?.into_iter().enumerate() {
        let root = roots.get_mut(writer.schema_descr().get_column_root_idx(leaf));
        root.ok_or_else(|| ParquetError::General("the table has more columns than the rows".into()))?.leaves.push(column);
    }
    Ok(Group { roots, rows: 0 })
}

/// What came of encoding.
pub type Encoded<T> = std::result::Result<T, Cause>;

/// Why the encoder gave up.
pub enum Cause {
    /// The encoder failed.
    Parquet(ParquetError),
    /// A row does not fit.
    RowTooLarge {
        /// Its bytes.
        row: u64,
        /// What it may take.
        limit: u64,
    },
}

impl From<ParquetError> for Cause {
    fn from(error: ParquetError) -> Self {
        Self::Parquet(error)
    }
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
