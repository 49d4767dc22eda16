//! Rows by the partition that they belong to.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Date32Type, Int32Type};
use arrow_array::{Array, ArrayRef, RecordBatch, UInt32Array};
use arrow_schema::DataType;
use arrow_select::take::take_record_batch;
use iceberg::spec::{PartitionSpec, Schema};
use iceberg::transform::create_transform_function;

use crate::lake::{Error, Result};
use crate::model::partition::{Tuple, Value};

/// Splits rows by a spec's transforms; rows keep their order within a partition.
/// `rows` has the columns of `schema`, in its order.
///
/// # Errors
/// [`Error::Setup`] for a spec whose values are not 32-bit integers: others are not
/// written here.
pub fn split(schema: &Schema, spec: &PartitionSpec, rows: &RecordBatch) -> Result<BTreeMap<Tuple, RecordBatch>> {
    let columns =
        spec.fields().iter().map(|field| transformed(schema, field.source_id, &field.transform, rows)).collect::<Result<Vec<_>>>()?;
    let mut places: BTreeMap<Tuple, Vec<u32>> = BTreeMap::new();
    for row in 0..rows.num_rows() {
        let tuple: Tuple = columns.iter().map(|column| value(column, row)).collect();
        places.entry(tuple).or_default().push(u32::try_from(row).map_err(failed)?);
    }
    let part = |(tuple, rows_of): (Tuple, Vec<u32>)| Ok((tuple, take_record_batch(rows, &UInt32Array::from(rows_of)).map_err(failed)?));
    places.into_iter().map(part).collect()
}

/// A partition field's value for each row.
fn transformed(schema: &Schema, source_id: i32, transform: &iceberg::spec::Transform, rows: &RecordBatch) -> Result<ArrayRef> {
    let place = schema.as_struct().fields().iter().position(|field| field.id == source_id);
    let source = place.and_then(|at| rows.columns().get(at)).ok_or_else(|| failed(format!("no column has the id {source_id}")))?;
    let values = create_transform_function(transform).and_then(|f| f.transform(Arc::clone(source))).map_err(failed)?;
    match values.data_type() {
        DataType::Int32 | DataType::Date32 => Ok(values),
        other => Err(failed(format!("{transform} gives {other}; only 32-bit integers are written"))),
    }
}

fn value(column: &ArrayRef, row: usize) -> Option<Value> {
    if column.is_null(row) {
        return None;
    }
    let days = || column.as_primitive_opt::<Date32Type>().map(|dates| dates.value(row));
    column.as_primitive_opt::<Int32Type>().map(|ints| ints.value(row)).or_else(days).map(Value::Int)
}

fn failed(why: impl std::fmt::Display) -> Error {
    Error::Setup(format!("the rows cannot be partitioned: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::{Date32Array, Int64Array};
    use arrow_schema::Field;
    use iceberg::spec::{NestedField, PrimitiveType, Transform, Type};

    fn schema() -> Schema {
        let fields = [
            NestedField::required(1, "k", Type::Primitive(PrimitiveType::Long)).into(),
            NestedField::optional(2, "d", Type::Primitive(PrimitiveType::Date)).into(),
        ];
        Schema::builder().with_fields(fields).build().unwrap()
    }

    fn spec(schema: &Schema, transform: Option<Transform>) -> PartitionSpec {
        let mut spec = PartitionSpec::builder(schema.clone()).with_spec_id(0);
        if let Some(transform) = transform {
            spec = spec.add_partition_field("d", "d_month", transform).unwrap();
        }
        spec.build().unwrap()
    }

    fn rows(days: &[Option<i32>]) -> RecordBatch {
        let arrow = arrow_schema::Schema::new(vec![Field::new("k", DataType::Int64, false), Field::new("d", DataType::Date32, true)]);
        let keys: ArrayRef = Arc::new(Int64Array::from_iter_values(0..days.len() as i64));
        RecordBatch::try_new(Arc::new(arrow), vec![keys, Arc::new(Date32Array::from(days.to_vec()))]).unwrap()
    }

    fn keys(split: &BTreeMap<Tuple, RecordBatch>) -> Vec<(Option<Value>, Vec<i64>)> {
        let of = |batch: &RecordBatch| batch.column(0).as_primitive::<arrow_array::types::Int64Type>().values().to_vec();
        split.iter().map(|(tuple, batch)| (tuple.first().cloned().flatten(), of(batch))).collect()
    }

    #[test]
    fn rows_are_split_by_month_since_1970_and_keep_their_order() {
        let schema = schema();
        // 1970-01-31, 1970-02-01, 1969-12-31, NULL, 1970-01-01
        let split = split(&schema, &spec(&schema, Some(Transform::Month)), &rows(&[Some(30), Some(31), Some(-1), None, Some(0)])).unwrap();
        let expected =
            vec![(None, vec![3]), (Some(Value::Int(-1)), vec![2]), (Some(Value::Int(0)), vec![0, 4]), (Some(Value::Int(1)), vec![1])];
        assert_eq!(keys(&split), expected);
    }

    #[test]
    fn rows_of_an_unpartitioned_table_stay_together() {
        let schema = schema();
        let split = split(&schema, &spec(&schema, None), &rows(&[Some(30), None])).unwrap();
        assert_eq!(keys(&split), vec![(None, vec![0, 1])]);
    }
}
