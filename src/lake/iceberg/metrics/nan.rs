//! NaN counts from rows: footers have none.

use std::collections::HashMap;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type};
use arrow_array::{Array, ArrayRef, OffsetSizeTrait, RecordBatch};
use arrow_buffer::{BooleanBufferBuilder, NullBuffer, OffsetBuffer};
use arrow_schema::{DataType, Field};

/// The metadata key under which Arrow fields carry their Parquet field id.
pub const FIELD_ID: &str = "PARQUET:field_id";

/// Adds the NaNs of a batch to `counts`, by field id. Every float column gets
/// an entry, a zero too. Values under a NULL parent do not count.
pub fn add(batch: &RecordBatch, counts: &mut HashMap<i32, u64>) {
    for (field, column) in batch.schema_ref().fields().iter().zip(batch.columns()) {
        walk(field, column, None, counts);
    }
}

fn walk(field: &Field, array: &ArrayRef, above: Option<&NullBuffer>, counts: &mut HashMap<i32, u64>) {
    let live = NullBuffer::union(above, array.logical_nulls().as_ref());
    let is_live = |row: usize| live.as_ref().is_none_or(|nulls| nulls.is_valid(row));
    match array.data_type() {
        DataType::Float32 => {
            let values = array.as_primitive::<Float32Type>().values();
            note(field, values.iter().enumerate().filter(|(row, v)| v.is_nan() && is_live(*row)).count(), counts);
        }
        DataType::Float64 => {
            let values = array.as_primitive::<Float64Type>().values();
            note(field, values.iter().enumerate().filter(|(row, v)| v.is_nan() && is_live(*row)).count(), counts);
        }
        DataType::Struct(fields) => {
            for (child, column) in fields.iter().zip(array.as_struct().columns()) {
                walk(child, column, live.as_ref(), counts);
            }
        }
        DataType::List(child) => {
            let list = array.as_list::<i32>();
            walk(child, list.values(), Some(&reached(list.offsets(), live.as_ref(), list.values().len())), counts);
        }
        DataType::LargeList(child) => {
            let list = array.as_list::<i64>();
            walk(child, list.values(), Some(&reached(list.offsets(), live.as_ref(), list.values().len())), counts);
        }
        DataType::Map(entries, _) => {
            let map = array.as_map();
            let inner: ArrayRef = std::sync::Arc::new(map.entries().clone());
            walk(entries, &inner, Some(&reached(map.offsets(), live.as_ref(), inner.len())), counts);
        }
        _ => {}
    }
}

/// Which elements belong to a live row of their list.
fn reached<O: OffsetSizeTrait>(offsets: &OffsetBuffer<O>, live: Option<&NullBuffer>, elements: usize) -> NullBuffer {
    let mut bits = BooleanBufferBuilder::new(elements);
    for (row, range) in offsets.windows(2).enumerate() {
        let [from, to] = range else { continue };
        let (from, to) = (from.as_usize(), to.as_usize());
        bits.append_n(from.saturating_sub(bits.len()), false);
        bits.append_n(to.saturating_sub(from), live.is_none_or(|nulls| nulls.is_valid(row)));
    }
    bits.append_n(elements.saturating_sub(bits.len()), false);
    NullBuffer::new(bits.finish())
}

fn note(field: &Field, nans: usize, counts: &mut HashMap<i32, u64>) {
    if let Some(id) = field.metadata().get(FIELD_ID).and_then(|id| id.parse().ok()) {
        *counts.entry(id).or_insert(0) += nans as u64;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{Float64Array, ListArray, StructArray};
    use arrow_schema::Schema;

    use super::*;

    fn field(name: &str, kind: DataType, id: i32) -> Field {
        Field::new(name, kind, true).with_metadata(HashMap::from([(FIELD_ID.to_owned(), id.to_string())]))
    }

    #[test]
    fn nans_count_only_where_a_value_lives() {
        let nan = f64::NAN;
        let flat: ArrayRef = Arc::new(Float64Array::from(vec![Some(nan), None, Some(1.0)]));
        let inner: ArrayRef = Arc::new(Float64Array::from(vec![nan, nan, nan]));
        let child = Arc::new(field("x", DataType::Float64, 3));
        let parent = StructArray::new(vec![child.clone()].into(), vec![inner], Some(vec![true, false, false].into()));
        let element = Arc::new(field("element", DataType::Float64, 5));
        let elements: ArrayRef = Arc::new(Float64Array::from(vec![nan, nan, 0.0, nan]));
        // The second list is NULL over an element; the last element is reached by none.
        let list =
            ListArray::new(element.clone(), OffsetBuffer::new(vec![0, 1, 2, 3].into()), elements, Some(vec![true, false, true].into()));
        let schema = Schema::new(vec![
            field("f", DataType::Float64, 1),
            field("s", DataType::Struct(vec![child].into()), 2),
            field("l", DataType::List(element), 4),
        ]);
        let batch = RecordBatch::try_new(Arc::new(schema), vec![flat, Arc::new(parent), Arc::new(list)]).unwrap();
        let mut counts = HashMap::new();
        add(&batch, &mut counts);
        assert_eq!(counts, HashMap::from([(1, 1), (3, 1), (5, 1)]));
        let mut of_slice = HashMap::new();
        add(&batch.slice(1, 2), &mut of_slice);
        assert_eq!(of_slice, HashMap::from([(1, 0), (3, 0), (5, 0)]));
    }
}
