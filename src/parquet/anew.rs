//! Chunks of one column decoded and encoded anew into one: where their pages cannot
//! be joined, or the chunk is to have what joined pages do not.

use std::sync::Arc;

use parquet::basic::Type;
use parquet::column::reader::ColumnReaderImpl;
use parquet::column::writer::{ColumnCloseResult, ColumnWriterImpl};
use parquet::data_type::{
    BoolType, ByteArrayType, DataType, DoubleType, FixedLenByteArrayType, FloatType, Int32Type, Int64Type, Int96Type,
};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterPropertiesPtr;
use parquet::file::serialized_reader::SerializedPageReader;
use parquet::file::writer::{SerializedPageWriter, TrackedWrite};

use super::body;
use super::chunk::Part;
use super::fault::{Failure, Fault};
use super::header::Header;
use super::pieces::Pieces;
use super::repack::{Joined, Wish};
use super::window::Window;

/// Rows decoded at a time, where they are not large.
const BATCH: u64 = 4096;
/// Bytes of values decoded at a time, about.
const BATCH_BYTES: u64 = 1 << 20;

/// Decodes the chunks of one column, in order and without their dead rows, into one
/// chunk as `properties` ask. All have the same column.
///
/// Invariants checked:
/// * each part's pages carry right checksums, where they carry any, and hold the rows
///   that its footer states;
/// * no page is opened, and no chunk made, that is larger than `wish` allows.
///
/// Errs `Damaged` when a part contradicts itself, `Unfit` when it is too large.
pub fn encode(parts: &[Part], wish: &Wish, properties: &WriterPropertiesPtr) -> Result<Joined, Failure> {
    let first = parts.first().ok_or_else(|| Fault::unfit("nothing to encode"))?;
    for (place, part) in parts.iter().enumerate() {
        check(part, wish.page).map_err(|fault| fault.of(place))?;
    }
    match first.meta.column_type() {
        Type::BOOLEAN => typed::<BoolType>(parts, wish, properties),
        Type::INT32 => typed::<Int32Type>(parts, wish, properties),
        Type::INT64 => typed::<Int64Type>(parts, wish, properties),
        Type::INT96 => typed::<Int96Type>(parts, wish, properties),
        Type::FLOAT => typed::<FloatType>(parts, wish, properties),
        Type::DOUBLE => typed::<DoubleType>(parts, wish, properties),
        Type::BYTE_ARRAY => typed::<ByteArrayType>(parts, wish, properties),
        Type::FIXED_LEN_BYTE_ARRAY => typed::<FixedLenByteArrayType>(parts, wish, properties),
    }
}

/// Walks the pages of a part.
fn check(part: &Part, most: usize) -> Result<(), Fault> {
    let (mut at, mut values) = (0usize, 0u64);
    let stated = u64::try_from(part.meta.num_values()).map_err(|_| Fault::damaged("a negative number of values"))?;
    while values < stated {
        let (header, length) = Header::read(part.bytes.get(at..).unwrap_or_default())?;
        let start = at.saturating_add(length);
        let body = start.checked_add(header.compressed).and_then(|end| part.bytes.get(start..end));
        let body = body.ok_or_else(|| Fault::damaged("a page ends after its column chunk"))?;
        body::check(&header, body)?;
        if header.uncompressed > most {
            return Err(Fault::unfit(format_args!("a page of {} bytes", header.uncompressed)));
        }
        values = values.saturating_add(header.kind.data().map_or(0, |(values, _)| values.into()));
        at = start.saturating_add(header.compressed);
    }
    Ok(())
}

fn typed<T: DataType>(parts: &[Part], wish: &Wish, properties: &WriterPropertiesPtr) -> Result<Joined, Failure> {
    let Some(first) = parts.first() else { return Err(Fault::unfit("nothing to encode").into()) };
    let mut out = TrackedWrite::new(Vec::new());
    let mut writer =
        ColumnWriterImpl::<T>::new(first.meta.column_descr_ptr(), properties.clone(), Box::new(SerializedPageWriter::new(&mut out)));
    for (place, part) in parts.iter().enumerate() {
        copy::<T>(part, &mut writer).map_err(|fault| fault.of(place))?;
        if writer.get_total_bytes_written() > wish.chunk as u64 {
            return Err(Fault::unfit(format_args!("its values take more than {} bytes", wish.chunk)).into());
        }
    }
    let close = writer.close().map_err(Fault::unfit)?;
    let bytes = out.into_inner().map_err(Fault::unfit)?;
    if bytes.len() > wish.chunk {
        return Err(Fault::unfit(format_args!("its values take more than {} bytes", wish.chunk)).into());
    }
    joined(bytes, close)
}

fn joined(bytes: Vec<u8>, close: ColumnCloseResult) -> Result<Joined, Failure> {
    let mut pieces = Pieces::default();
    pieces.push(bytes.into());
    pieces.finish();
    Ok(Joined {
        bytes: pieces,
        meta: close.metadata,
        rows: close.rows_written,
        column_index: close.column_index,
        offset_index: close.offset_index.ok_or_else(|| Fault::unfit("no index of its pages"))?,
        bloom_filter: close.bloom_filter,
    })
}

/// Hands the values of a part to the writer.
fn copy<T: DataType>(part: &Part, writer: &mut ColumnWriterImpl<'_, T>) -> Result<(), Fault> {
    let column = part.meta.column_descr_ptr();
    let start = part.meta.dictionary_page_offset().unwrap_or_else(|| part.meta.data_page_offset());
    let window = Window { start: u64::try_from(start).map_err(Fault::damaged)?, bytes: part.bytes.clone() };
    let rows = usize::try_from(part.rows).map_err(Fault::damaged)?;
    let pages = SerializedPageReader::new(Arc::new(window), &part.meta, rows, None).map_err(told)?;
    let mut reader = ColumnReaderImpl::<T>::new(column.clone(), Box::new(pages));
    let row_bytes = u64::try_from(part.meta.uncompressed_size()).unwrap_or(0) / part.rows.max(1);
    let batch = usize::try_from((BATCH_BYTES / row_bytes.max(1)).clamp(1, BATCH)).unwrap_or(1);
    let most = (column.max_def_level(), column.max_rep_level());
    let mut rest = Rest { dead: &part.dead, next: 0 };
    let (mut definition, mut repetition, mut values) = (Vec::new(), Vec::new(), Vec::new());
    loop {
        definition.clear();
        repetition.clear();
        values.clear();
        let (read, ..) = reader.read_records(batch, Some(&mut definition), Some(&mut repetition), &mut values).map_err(told)?;
        if read == 0 {
            break;
        }
        rest.keep(read, most, (&mut definition, &mut repetition), &mut values);
        if most.0 == 0 && values.is_empty() || most.0 > 0 && definition.is_empty() {
            continue;
        }
        let levels = |most: i16, levels| (most > 0).then_some(levels);
        writer.write_batch(&values, levels(most.0, definition.as_slice()), levels(most.1, repetition.as_slice())).map_err(Fault::unfit)?;
    }
    if rest.next == part.rows { Ok(()) } else { Err(Fault::damaged(format_args!("{} rows in a row group of {}", rest.next, part.rows))) }
}

/// What a decoder says is of the bytes.
fn told(error: ParquetError) -> Fault {
    match error {
        ParquetError::NYI(why) => Fault::unfit(why),
        other => Fault::damaged(other),
    }
}

/// The rows of a part that were not read yet.
struct Rest<'a> {
    /// Rows to be left out, ascending.
    dead: &'a [u32],
    /// The next row.
    next: u64,
}

impl Rest<'_> {
    /// Of the next rows leaves those that are not dead. `most` are the highest levels.
    fn keep<V>(&mut self, rows: usize, most: (i16, i16), (definition, repetition): (&mut Vec<i16>, &mut Vec<i16>), values: &mut Vec<V>) {
        let from = self.next;
        self.next = self.next.saturating_add(rows as u64);
        let dead = self.dead;
        let place = |row: u64| dead.partition_point(|dead| u64::from(*dead) < row);
        let dead = dead.get(place(from)..place(self.next)).unwrap_or_default();
        if dead.is_empty() {
            return;
        }
        let lives = |row: u64| dead.binary_search_by_key(&row, |dead| u64::from(*dead)).is_err();
        if most.0 == 0 {
            let mut row = from;
            values.retain(|_| {
                row += 1;
                lives(row - 1)
            });
            return;
        }
        // which levels stay, by the rows that they are of
        let (mut row, mut kept) = (from, Vec::with_capacity(definition.len()));
        for place in 0..definition.len() {
            if place > 0 && repetition.get(place).is_none_or(|level| *level == 0) {
                row += 1;
            }
            kept.push(lives(row));
        }
        let mut of_values = definition.iter().zip(&kept).filter(|(level, _)| **level == most.0).map(|(_, kept)| *kept);
        values.retain(|_| of_values.next().unwrap_or(true));
        for levels in [definition, repetition] {
            let mut kept = kept.iter();
            levels.retain(|_| kept.next().copied().unwrap_or(true));
        }
    }
}

#[cfg(test)]
mod tests;
