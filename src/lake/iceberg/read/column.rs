//! One column of the root of one row group, decoded by itself.

use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_array::RecordBatchReader;
use arrow_schema::{DataType, Field, FieldRef, Schema};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder};
use parquet::basic::{Encoding, PageType};
use parquet::errors::ParquetError;
use parquet::file::metadata::ColumnChunkMetaData;

use super::window::{Failure, Window};

/// The arrays of one root column of a row group, in order.
pub struct Column {
    reader: ParquetRecordBatchReader,
    failure: Failure,
}

impl Column {
    /// The leaves `leaves` of one root column.
    pub fn open(
        bytes: Window,
        footer: &ArrowReaderMetadata,
        group: usize,
        leaves: &[usize],
        batch_rows: usize,
    ) -> parquet::errors::Result<Self> {
        let mask = ProjectionMask::leaves(footer.parquet_schema(), leaves.iter().copied());
        let failure = bytes.failure();
        let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(bytes, footer.clone());
        let reader = builder.with_row_groups(vec![group]).with_projection(mask).with_batch_size(batch_rows).build();
        Ok(Self { reader: reader.map_err(|error| failure.behind(error))?, failure })
    }

    /// The column, as its arrays come.
    pub fn field(&self) -> Option<FieldRef> {
        self.reader.schema().fields().first().cloned()
    }

    /// The next rows; `None` after the last.
    pub fn next(&mut self) -> parquet::errors::Result<Option<ArrayRef>> {
        let Some(batch) = self.reader.next() else { return Ok(None) };
        let batch = batch.map_err(|error| self.failure.behind(error))?;
        match batch.columns() {
            [column] => Ok(Some(Arc::clone(column))),
            _ => Err(ParquetError::General("one column was asked for".into())),
        }
    }
}

/// Whether every value of a chunk is a key into its dictionary.
pub fn is_keyed(chunk: &ColumnChunkMetaData) -> bool {
    if chunk.dictionary_page_offset().is_none() {
        return false;
    }
    let keyed = |e: Encoding| matches!(e, Encoding::PLAIN_DICTIONARY | Encoding::RLE_DICTIONARY);
    if let Some(mask) = chunk.page_encoding_stats_mask() {
        return mask.is_only(Encoding::RLE_DICTIONARY) || mask.is_only(Encoding::PLAIN_DICTIONARY);
    }
    let data = |t: PageType| matches!(t, PageType::DATA_PAGE | PageType::DATA_PAGE_V2);
    chunk.page_encoding_stats().is_some_and(|pages| pages.iter().filter(|p| data(p.page_type)).all(|p| keyed(p.encoding)))
}

/// The footer read so that strings and byte arrays of the root come as
/// dictionaries; `None` where there are none, or the reader does not take it so.
pub fn keyed_footer(footer: &ArrowReaderMetadata) -> Option<ArrowReaderMetadata> {
    let fields: Vec<FieldRef> = footer.schema().fields().iter().map(as_keyed).collect();
    if fields.iter().zip(footer.schema().fields()).all(|(to, from)| to.data_type() == from.data_type()) {
        return None;
    }
    let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true).with_schema(Arc::new(Schema::new(fields)));
    ArrowReaderMetadata::try_new(Arc::clone(footer.metadata()), options).ok()
}

fn as_keyed(field: &FieldRef) -> FieldRef {
    match field.data_type() {
        DataType::Utf8 | DataType::Binary => {
            let keyed = DataType::Dictionary(Box::new(DataType::Int32), Box::new(field.data_type().clone()));
            Arc::new(Field::new(field.name(), keyed, field.is_nullable()).with_metadata(field.metadata().clone()))
        }
        _ => Arc::clone(field),
    }
}
