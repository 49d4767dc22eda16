//! Keys of equality deletes in a form in which equal ones are equal bytes.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, Time32MillisecondType,
    Time64MicrosecondType, TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType, UInt8Type, UInt16Type,
};
use arrow_array::{Array, ArrayRef};
use arrow_buffer::NullBuffer;
use arrow_schema::{DataType, TimeUnit};
use xxhash_rust::xxh3::Xxh3;

/// A key column over some rows.
pub enum Column {
    /// NULL in all of them.
    Null,
    /// One value, in an array of one, in all of them.
    Constant(ArrayRef),
    /// A value for each, and which of them are NULL.
    Values(ArrayRef, Option<NullBuffer>),
}

/// Hashes of the keys of some rows.
///
/// Errs on a type that has no keys.
pub fn hashes(rows: usize, columns: &[Column]) -> Result<Vec<u128>, String> {
    let mut states: Vec<Xxh3> = vec![Xxh3::new(); rows];
    for column in columns {
        let mut bytes = Vec::new();
        for (row, state) in states.iter_mut().enumerate() {
            bytes.clear();
            put(column, row, &mut bytes)?;
            state.update(&(bytes.len() as u64).to_le_bytes());
            state.update(&bytes);
        }
    }
    Ok(states.iter().map(Xxh3::digest128).collect())
}

/// The array, and the place in it; `None` for NULL.
fn place(column: &Column, row: usize) -> Option<(&ArrayRef, usize)> {
    match column {
        Column::Null => None,
        Column::Constant(array) => (!array.is_null(0)).then_some((array, 0)),
        Column::Values(array, nulls) => {
            let null = nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) || row >= array.len();
            (!null && *array.data_type() != DataType::Null).then_some((array, row))
        }
    }
}

/// Appends a value: nothing for NULL, a mark in front of any other.
fn put(column: &Column, row: usize, out: &mut Vec<u8>) -> Result<(), String> {
    let Some((array, row)) = place(column, row) else { return Ok(()) };
    out.push(1);
    if let Some(number) = whole(array, row) {
        out.extend_from_slice(&number.to_le_bytes());
        return Ok(());
    }
    if let Some(text) = slice(array, row) {
        out.extend_from_slice(text);
        return Ok(());
    }
    let float = match array.data_type() {
        DataType::Float32 => f64::from(array.as_primitive::<Float32Type>().value(row)),
        DataType::Float64 => array.as_primitive::<Float64Type>().value(row),
        other => return Err(format!("a key of type {other}")),
    };
    // every NaN is every other
    let float = if float.is_nan() { f64::NAN } else { float };
    out.extend_from_slice(&float.to_bits().to_le_bytes());
    Ok(())
}

/// The bytes of a text or byte string.
pub fn bytes(column: &Column, row: usize) -> Option<&[u8]> {
    let (array, row) = place(column, row)?;
    slice(array, row)
}

fn slice(array: &ArrayRef, row: usize) -> Option<&[u8]> {
    Some(match array.data_type() {
        DataType::Utf8 => array.as_string::<i32>().value(row).as_bytes(),
        DataType::LargeUtf8 => array.as_string::<i64>().value(row).as_bytes(),
        DataType::Binary => array.as_binary::<i32>().value(row),
        DataType::LargeBinary => array.as_binary::<i64>().value(row),
        DataType::FixedSizeBinary(_) => array.as_fixed_size_binary().value(row),
        _ => return None,
    })
}

/// A whole number.
pub fn integer(column: &Column, row: usize) -> Option<i128> {
    let (array, row) = place(column, row)?;
    whole(array, row)
}

/// Numbers, in the widest form, times in microseconds.
fn whole(array: &ArrayRef, row: usize) -> Option<i128> {
    let micros = |millis: i128| millis * 1000;
    Some(match array.data_type() {
        DataType::Boolean => i128::from(array.as_boolean().value(row)),
        DataType::Int8 => array.as_primitive::<Int8Type>().value(row).into(),
        DataType::Int16 => array.as_primitive::<Int16Type>().value(row).into(),
        DataType::Int32 => array.as_primitive::<Int32Type>().value(row).into(),
        DataType::Int64 => array.as_primitive::<Int64Type>().value(row).into(),
        DataType::UInt8 => array.as_primitive::<UInt8Type>().value(row).into(),
        DataType::UInt16 => array.as_primitive::<UInt16Type>().value(row).into(),
        DataType::Date32 => array.as_primitive::<Date32Type>().value(row).into(),
        DataType::Decimal128(..) => array.as_primitive::<Decimal128Type>().value(row),
        DataType::Time32(TimeUnit::Millisecond) => micros(array.as_primitive::<Time32MillisecondType>().value(row).into()),
        DataType::Time64(TimeUnit::Microsecond) => array.as_primitive::<Time64MicrosecondType>().value(row).into(),
        DataType::Timestamp(TimeUnit::Millisecond, _) => micros(array.as_primitive::<TimestampMillisecondType>().value(row).into()),
        // where one side of a comparison has nanoseconds, the other has
        DataType::Timestamp(TimeUnit::Nanosecond, _) => array.as_primitive::<TimestampNanosecondType>().value(row).into(),
        DataType::Timestamp(TimeUnit::Microsecond, _) => array.as_primitive::<TimestampMicrosecondType>().value(row).into(),
        _ => return None,
    })
}
