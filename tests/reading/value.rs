//! Rows as plain values, to and from Arrow: the naive side of every comparison.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::*;
use arrow_array::*;
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_schema::{DataType, FieldRef, SchemaRef, TimeUnit};

/// One value. Floats are kept as bits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    Null,
    Bool(bool),
    Int(i64),
    Decimal(i128),
    Float(u64),
    Text(String),
    Bytes(Vec<u8>),
    List(Vec<Value>),
    Struct(Vec<Value>),
    Map(Vec<(Value, Value)>),
}

impl Value {
    pub fn text(text: &str) -> Self {
        Self::Text(text.into())
    }
    pub fn float(value: f64) -> Self {
        Self::Float(value.to_bits())
    }
}

/// The usual row of `id, v`.
pub fn row(id: i64, v: &str) -> Vec<Value> {
    vec![Value::Int(id), Value::text(v)]
}

/// Rows as a batch.
pub fn batch(schema: &SchemaRef, rows: &[Vec<Value>]) -> RecordBatch {
    let column = |i: usize| rows.iter().map(|r| r[i].clone()).collect::<Vec<_>>();
    let columns = schema.fields().iter().enumerate().map(|(i, f)| array(f.data_type(), &column(i))).collect();
    let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
    RecordBatch::try_new_with_options(schema.clone(), columns, &options).unwrap()
}

/// A batch's rows.
pub fn rows(batch: &RecordBatch) -> Vec<Vec<Value>> {
    (0..batch.num_rows()).map(|row| batch.columns().iter().map(|c| value(c.as_ref(), row)).collect()).collect()
}

/// Values as an array.
pub fn array(data_type: &DataType, values: &[Value]) -> ArrayRef {
    let ints = || values.iter().map(|v| if let Value::Int(i) = v { Some(*i) } else { None });
    let small = || ints().map(|v| v.map(|v| v as i32));
    let bytes = || values.iter().map(|v| if let Value::Bytes(b) = v { Some(b.as_slice()) } else { None });
    let floats = || values.iter().map(|v| if let Value::Float(b) = v { Some(f64::from_bits(*b)) } else { None });
    match data_type {
        DataType::Boolean => {
            Arc::new(values.iter().map(|v| if let Value::Bool(b) = v { Some(*b) } else { None }).collect::<BooleanArray>())
        }
        DataType::Int32 => Arc::new(small().collect::<Int32Array>()),
        DataType::Int64 => Arc::new(ints().collect::<Int64Array>()),
        DataType::Date32 => Arc::new(small().collect::<Date32Array>()),
        DataType::Float32 => Arc::new(floats().map(|f| f.map(|f| f as f32)).collect::<Float32Array>()),
        DataType::Float64 => Arc::new(floats().collect::<Float64Array>()),
        DataType::Time64(_) => Arc::new(ints().collect::<Time64MicrosecondArray>()),
        DataType::Timestamp(TimeUnit::Microsecond, zone) => {
            Arc::new(ints().collect::<TimestampMicrosecondArray>().with_timezone_opt(zone.clone()))
        }
        DataType::Timestamp(TimeUnit::Millisecond, zone) => {
            Arc::new(ints().collect::<TimestampMillisecondArray>().with_timezone_opt(zone.clone()))
        }
        DataType::Timestamp(TimeUnit::Nanosecond, zone) => {
            Arc::new(ints().collect::<TimestampNanosecondArray>().with_timezone_opt(zone.clone()))
        }
        DataType::Decimal128(p, s) => {
            let decimals = values.iter().map(|v| if let Value::Decimal(d) = v { Some(*d) } else { None });
            Arc::new(decimals.collect::<Decimal128Array>().with_precision_and_scale(*p, *s).unwrap())
        }
        DataType::Utf8 => {
            Arc::new(values.iter().map(|v| if let Value::Text(t) = v { Some(t.as_str()) } else { None }).collect::<StringArray>())
        }
        DataType::Binary => Arc::new(bytes().collect::<BinaryArray>()),
        DataType::LargeBinary => Arc::new(bytes().collect::<LargeBinaryArray>()),
        DataType::FixedSizeBinary(width) => Arc::new(FixedSizeBinaryArray::try_from_sparse_iter_with_size(bytes(), *width).unwrap()),
        DataType::Struct(fields) => {
            let column = |i: usize| -> Vec<Value> {
                values.iter().map(|v| if let Value::Struct(s) = v { s[i].clone() } else { filler(&fields[i]) }).collect()
            };
            let columns = fields.iter().enumerate().map(|(i, f)| array(f.data_type(), &column(i))).collect();
            Arc::new(StructArray::try_new(fields.clone(), columns, validity(values)).unwrap())
        }
        DataType::List(element) => {
            let lists: Vec<&[Value]> = values.iter().map(|v| if let Value::List(l) = v { l.as_slice() } else { &[] }).collect();
            let items = array(element.data_type(), &lists.concat());
            let offsets = OffsetBuffer::from_lengths(lists.iter().map(|l| l.len()));
            Arc::new(ListArray::try_new(element.clone(), offsets, items, validity(values)).unwrap())
        }
        DataType::Map(entries, sorted) => {
            let maps: Vec<&[(Value, Value)]> = values.iter().map(|v| if let Value::Map(m) = v { m.as_slice() } else { &[] }).collect();
            let pairs: Vec<Value> = maps.concat().into_iter().map(|(k, v)| Value::Struct(vec![k, v])).collect();
            let offsets = OffsetBuffer::from_lengths(maps.iter().map(|m| m.len()));
            let DataType::Struct(fields) = entries.data_type() else { panic!() };
            let column =
                |i: usize| -> Vec<Value> { pairs.iter().map(|p| if let Value::Struct(s) = p { s[i].clone() } else { panic!() }).collect() };
            let columns = fields.iter().enumerate().map(|(i, f)| array(f.data_type(), &column(i))).collect();
            let items = StructArray::try_new(fields.clone(), columns, None).unwrap();
            Arc::new(MapArray::try_new(entries.clone(), offsets, items, validity(values), *sorted).unwrap())
        }
        other => panic!("{other}"),
    }
}

/// What lies below a NULL parent in a column that admits no NULL.
fn filler(field: &FieldRef) -> Value {
    if field.is_nullable() {
        return Value::Null;
    }
    match field.data_type() {
        DataType::Utf8 => Value::text(""),
        DataType::Float32 | DataType::Float64 => Value::float(0.0),
        DataType::Boolean => Value::Bool(false),
        DataType::List(_) => Value::List(Vec::new()),
        DataType::Struct(fields) => Value::Struct(fields.iter().map(filler).collect()),
        _ => Value::Int(0),
    }
}

fn validity(values: &[Value]) -> Option<NullBuffer> {
    values.contains(&Value::Null).then(|| values.iter().map(|v| *v != Value::Null).collect())
}

/// One value of an array.
pub fn value(array: &dyn Array, row: usize) -> Value {
    if array.is_null(row) {
        return Value::Null;
    }
    match array.data_type() {
        DataType::Boolean => Value::Bool(array.as_boolean().value(row)),
        DataType::Int32 => Value::Int(array.as_primitive::<Int32Type>().value(row).into()),
        DataType::Int64 => Value::Int(array.as_primitive::<Int64Type>().value(row)),
        DataType::Date32 => Value::Int(array.as_primitive::<Date32Type>().value(row).into()),
        DataType::Float32 => Value::float(array.as_primitive::<Float32Type>().value(row).into()),
        DataType::Float64 => Value::float(array.as_primitive::<Float64Type>().value(row)),
        DataType::Time64(_) => Value::Int(array.as_primitive::<Time64MicrosecondType>().value(row)),
        DataType::Timestamp(TimeUnit::Microsecond, _) => Value::Int(array.as_primitive::<TimestampMicrosecondType>().value(row)),
        DataType::Timestamp(TimeUnit::Nanosecond, _) => Value::Int(array.as_primitive::<TimestampNanosecondType>().value(row)),
        DataType::Decimal128(..) => Value::Decimal(array.as_primitive::<Decimal128Type>().value(row)),
        DataType::Utf8 => Value::text(array.as_string::<i32>().value(row)),
        DataType::Binary => Value::Bytes(array.as_binary::<i32>().value(row).into()),
        DataType::LargeBinary => Value::Bytes(array.as_binary::<i64>().value(row).into()),
        DataType::FixedSizeBinary(_) => Value::Bytes(array.as_fixed_size_binary().value(row).into()),
        DataType::Struct(_) => Value::Struct(array.as_struct().columns().iter().map(|c| value(c.as_ref(), row)).collect()),
        DataType::List(_) => {
            let items = array.as_list::<i32>().value(row);
            Value::List((0..items.len()).map(|i| value(items.as_ref(), i)).collect())
        }
        DataType::Map(..) => {
            let items = array.as_map().value(row);
            let pair = |i| (value(items.column(0).as_ref(), i), value(items.column(1).as_ref(), i));
            Value::Map((0..items.len()).map(pair).collect())
        }
        other => panic!("{other}"),
    }
}
