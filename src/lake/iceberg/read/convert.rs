//! Exact conversions from a file's arrays to the table's types.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Decimal128Type;
use arrow_array::{Array, ArrayRef, ListArray, MapArray, RecordBatch, RecordBatchOptions, StructArray, UInt64Array, new_null_array};
use arrow_buffer::NullBuffer;
use arrow_cast::cast::{CastOptions, cast_with_options};
use arrow_schema::{ArrowError, DataType, FieldRef, Fields, SchemaRef, TimeUnit};

use super::project::{Key, Node};

/// Whether every value of `from`, as a Parquet file may hold a column of type
/// `to`, is carried over exactly: equal types, the promotions of the
/// specification, and coarser units of time.
pub fn convertible(from: &DataType, to: &DataType) -> bool {
    use DataType::*;
    match (from, to) {
        (Null, to) => !to.is_nested(),
        (Int8 | Int16 | UInt8 | UInt16, Int32 | Int64) | (Int32, Int64) => true,
        (Float32, Float64) => true,
        (Decimal128(p, s) | Decimal256(p, s), Decimal128(to_p, to_s)) => s == to_s && p <= to_p,
        (Time32(TimeUnit::Millisecond), Time64(TimeUnit::Microsecond)) => true,
        (Timestamp(TimeUnit::Millisecond | TimeUnit::Microsecond, _), Timestamp(TimeUnit::Microsecond, _)) => true,
        (Timestamp(TimeUnit::Nanosecond, _), Timestamp(TimeUnit::Nanosecond, _)) => true,
        (Utf8 | Binary, Utf8 | Binary | LargeBinary) => true,
        (from, to) => from == to && !from.is_nested(),
    }
}

/// A batch of a file in the table's schema.
///
/// Errs when a value does not fit, or a required field holds a NULL.
pub fn batch(rows: &RecordBatch, nodes: &[Node], schema: &SchemaRef) -> Result<RecordBatch, ArrowError> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
    let columns = fields(rows.columns(), nodes, schema.fields(), rows.num_rows())?;
    RecordBatch::try_new_with_options(schema.clone(), columns, &options)
}

/// One column of a file as the table's; `schema` has that one field.
///
/// Errs when a value does not fit, or a required field holds a NULL.
pub fn root(column: &ArrayRef, node: &Node, schema: &SchemaRef) -> Result<ArrayRef, ArrowError> {
    let columns = fields(std::slice::from_ref(column), std::slice::from_ref(node), schema.fields(), column.len())?;
    RecordBatch::try_new(Arc::clone(schema), columns)?.columns().first().cloned().ok_or_else(misplaced)
}

/// One equality-delete key column of a batch, in the key's type.
///
/// Errs when a value does not fit.
pub fn key(rows: &RecordBatch, key: &Key, to: &DataType) -> Result<ArrayRef, ArrowError> {
    let path = match key {
        Key::Null => return Ok(new_null_array(to, rows.num_rows())),
        Key::Constant(value) => return repeat(value, rows.num_rows()),
        Key::Path(path) => path,
    };
    let mut columns = rows.columns();
    let mut nulls: Option<NullBuffer> = None;
    let mut leaf: Option<&ArrayRef> = None;
    for index in path {
        let array = columns.get(*index).ok_or_else(misplaced)?;
        nulls = NullBuffer::union(nulls.as_ref(), array.nulls());
        columns = array.as_struct_opt().map_or(&[], |s| s.columns());
        leaf = Some(array);
    }
    let leaf = value(leaf.ok_or_else(misplaced)?, to)?;
    if nulls.as_ref().map_or(0, NullBuffer::null_count) == leaf.null_count() {
        return Ok(leaf);
    }
    Ok(arrow_array::make_array(leaf.to_data().into_builder().nulls(nulls).build()?))
}

fn misplaced() -> ArrowError {
    ArrowError::SchemaError("a projected column is not where the file's schema says".into())
}

fn fields(columns: &[ArrayRef], nodes: &[Node], targets: &Fields, rows: usize) -> Result<Vec<ArrayRef>, ArrowError> {
    nodes.iter().zip(targets).map(|(node, target)| node_array(columns, node, target, rows)).collect()
}

fn node_array(columns: &[ArrayRef], node: &Node, target: &FieldRef, rows: usize) -> Result<ArrayRef, ArrowError> {
    match node {
        Node::Null => Ok(new_null_array(target.data_type(), rows)),
        Node::Constant(value) => repeat(value, rows),
        Node::Column { index, below } => column(columns.get(*index).ok_or_else(misplaced)?, below, target),
    }
}

fn column(array: &ArrayRef, below: &[Node], target: &FieldRef) -> Result<ArrayRef, ArrowError> {
    match target.data_type() {
        DataType::Struct(targets) => {
            let from = array.as_struct_opt().ok_or_else(misplaced)?;
            let columns = fields(from.columns(), below, targets, from.len())?;
            Ok(Arc::new(StructArray::try_new(targets.clone(), columns, from.nulls().cloned())?))
        }
        DataType::List(element) => {
            let from = array.as_list_opt::<i32>().ok_or_else(misplaced)?;
            let node = below.first().ok_or_else(misplaced)?;
            let values = node_array(std::slice::from_ref(from.values()), node, element, from.values().len())?;
            Ok(Arc::new(ListArray::try_new(element.clone(), from.offsets().clone(), values, from.nulls().cloned())?))
        }
        DataType::Map(entries, sorted) => {
            let from = array.as_map_opt().ok_or_else(misplaced)?;
            let DataType::Struct(targets) = entries.data_type() else { return Err(misplaced()) };
            let columns = fields(from.entries().columns(), below, targets, from.entries().len())?;
            let items = StructArray::try_new(targets.clone(), columns, None)?;
            Ok(Arc::new(MapArray::try_new(entries.clone(), from.offsets().clone(), items, from.nulls().cloned(), *sorted)?))
        }
        to => value(array, to),
    }
}

/// A primitive array in the table's type.
fn value(array: &ArrayRef, to: &DataType) -> Result<ArrayRef, ArrowError> {
    match (array.data_type(), to) {
        (from, to) if from == to => Ok(array.clone()),
        (DataType::Null, to) => Ok(new_null_array(to, array.len())),
        (DataType::Decimal128(..), DataType::Decimal128(precision, scale)) => {
            let wider = array.as_primitive::<Decimal128Type>().clone().with_precision_and_scale(*precision, *scale)?;
            Ok(Arc::new(wider))
        }
        (DataType::Timestamp(TimeUnit::Microsecond, _), DataType::Timestamp(TimeUnit::Microsecond, zone)) => {
            let micros = array.as_primitive::<arrow_array::types::TimestampMicrosecondType>().clone();
            Ok(Arc::new(micros.with_timezone_opt(zone.clone())))
        }
        (DataType::Timestamp(TimeUnit::Nanosecond, _), DataType::Timestamp(TimeUnit::Nanosecond, zone)) => {
            let nanos = array.as_primitive::<arrow_array::types::TimestampNanosecondType>().clone();
            Ok(Arc::new(nanos.with_timezone_opt(zone.clone())))
        }
        (DataType::Timestamp(TimeUnit::Millisecond, _), DataType::Timestamp(TimeUnit::Microsecond, zone)) => {
            let micros = array
                .as_primitive::<arrow_array::types::TimestampMillisecondType>()
                .try_unary::<_, arrow_array::types::TimestampMicrosecondType, _>(|millis| {
                millis.checked_mul(1000).ok_or_else(|| ArrowError::CastError(format!("timestamp of {millis} ms is out of range")))
            })?;
            Ok(Arc::new(micros.with_timezone_opt(zone.clone())))
        }
        (_, to) => cast_with_options(array, to, &CastOptions { safe: false, ..Default::default() }),
    }
}

fn repeat(value: &ArrayRef, rows: usize) -> Result<ArrayRef, ArrowError> {
    arrow_select::take::take(value, &UInt64Array::from(vec![0; rows]), None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::{Int32Array, TimestampMillisecondArray};

    #[test]
    fn only_exact_conversions_are_allowed() {
        use DataType::*;
        let micros = Timestamp(TimeUnit::Microsecond, None);
        assert!(convertible(&Int32, &Int64));
        assert!(convertible(&Decimal128(9, 2), &Decimal128(18, 2)));
        assert!(!convertible(&Decimal128(9, 2), &Decimal128(18, 3)));
        assert!(!convertible(&Decimal128(18, 2), &Decimal128(9, 2)));
        assert!(!convertible(&Int64, &Int32));
        assert!(!convertible(&Int32, &Date32));
        assert!(!convertible(&UInt32, &Int32));
        assert!(!convertible(&UInt32, &Int64));
        assert!(!convertible(&Timestamp(TimeUnit::Nanosecond, None), &micros));
        assert!(!convertible(&Date32, &micros));
        assert!(!convertible(&FixedSizeBinary(4), &FixedSizeBinary(5)));
        assert!(!convertible(&FixedSizeBinary(4), &LargeBinary));
        assert!(!convertible(&Int32, &Utf8));
    }

    #[test]
    fn milliseconds_out_of_range_are_an_error_not_a_wrap() {
        let array: ArrayRef = Arc::new(TimestampMillisecondArray::from(vec![i64::MAX]));
        assert!(value(&array, &DataType::Timestamp(TimeUnit::Microsecond, None)).is_err());
    }

    #[test]
    fn a_constant_fills_every_row() {
        let one: ArrayRef = Arc::new(Int32Array::from(vec![7]));
        assert_eq!(repeat(&one, 3).unwrap().as_ref(), &Int32Array::from(vec![7, 7, 7]) as &dyn Array);
    }
}
