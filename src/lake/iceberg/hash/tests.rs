use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::builder::{Int64Builder, ListBuilder};
use arrow_array::*;
use arrow_buffer::NullBuffer;
use arrow_schema::{DataType, Field, Fields, Schema};
use parquet::arrow::PARQUET_FIELD_ID_META_KEY;

use super::*;

fn field(name: &str, data_type: DataType, nullable: bool, id: i32) -> Field {
    Field::new(name, data_type, nullable).with_metadata(HashMap::from([(PARQUET_FIELD_ID_META_KEY.into(), id.to_string())]))
}

fn one(data_type: DataType, array: ArrayRef) -> RecordBatch {
    RecordBatch::try_new(Arc::new(Schema::new(vec![field("c", data_type, true, 1)])), vec![array]).unwrap()
}

fn hash(batches: &[RecordBatch]) -> Vec<ColumnHash> {
    let mut hasher = ColumnHasher::new(&batches[0].schema());
    batches.iter().for_each(|b| hasher.update(b).unwrap());
    hasher.finish()
}

type Lists = Vec<Option<Vec<Option<i64>>>>;

fn lists(values: Lists) -> RecordBatch {
    let element = Arc::new(field("element", DataType::Int64, true, 2));
    let mut builder = ListBuilder::new(Int64Builder::new()).with_field(element.clone());
    for list in values {
        match list {
            Some(list) => builder.append_value(list),
            None => builder.append_null(),
        }
    }
    one(DataType::List(element), Arc::new(builder.finish()))
}

#[test]
fn every_shape_of_a_list_has_a_hash_of_its_own() {
    let shapes: Vec<Lists> = vec![
        vec![Some(vec![Some(1)]), Some(vec![Some(2)])],
        vec![Some(vec![Some(1), Some(2)])],
        vec![Some(vec![Some(1), Some(2)]), Some(vec![])],
        vec![Some(vec![]), Some(vec![Some(1), Some(2)])],
        vec![Some(vec![Some(1), Some(2)]), None],
        vec![None],
        vec![Some(vec![])],
        vec![Some(vec![None])],
        vec![Some(vec![None, None])],
        vec![Some(vec![None]), Some(vec![None])],
        vec![None, None],
        vec![],
    ];
    let hashes: Vec<u128> = shapes.into_iter().map(|s| hash(&[lists(s)])[0].hash).collect();
    for (i, a) in hashes.iter().enumerate() {
        for (j, b) in hashes.iter().enumerate() {
            assert_eq!(a == b, i == j, "shapes {i} and {j}");
        }
    }
}

#[test]
fn nulls_and_values_count_as_the_file_format_does() {
    let column = &hash(&[lists(vec![Some(vec![Some(1), None]), Some(vec![]), None])])[0];
    assert_eq!((column.path.as_str(), column.field_id, column.nulls, column.values), ("1.2", 2, 3, 4));
}

#[test]
fn batch_borders_do_not_matter() {
    let whole = lists(vec![Some(vec![Some(1), None]), None, None, Some(vec![]), Some(vec![Some(7), Some(8)]), None]);
    for cut in 0..=6 {
        assert_eq!(hash(&[whole.slice(0, cut), whole.slice(cut, 6 - cut)]), hash(std::slice::from_ref(&whole)), "cut at {cut}");
    }
    let text = one(DataType::Utf8, Arc::new(StringArray::from(vec![Some("ab"), None, Some(""), Some("c"), None])));
    let flags = one(DataType::Boolean, Arc::new(BooleanArray::from(vec![Some(true), None, Some(false), Some(true), None])));
    for whole in [text, flags] {
        for cut in 0..=5 {
            assert_eq!(hash(&[whole.slice(0, cut), whole.slice(cut, 5 - cut)]), hash(std::slice::from_ref(&whole)), "cut at {cut}");
        }
    }
}

#[test]
fn the_width_of_offsets_does_not_matter() {
    let values = [Some(b"ab".as_slice()), None, Some(b"")];
    let small = one(DataType::Binary, Arc::new(BinaryArray::from_iter(values)));
    let large = one(DataType::LargeBinary, Arc::new(LargeBinaryArray::from_iter(values)));
    assert_eq!(hash(std::slice::from_ref(&small)), hash(std::slice::from_ref(&large)));
    assert_eq!(multiset_hash(&small).unwrap(), multiset_hash(&large).unwrap());
}

#[test]
fn where_one_value_ends_and_the_next_begins_matters() {
    let text = |values: Vec<&str>| one(DataType::Utf8, Arc::new(StringArray::from(values)));
    assert_ne!(hash(&[text(vec!["ab", "c"])])[0].hash, hash(&[text(vec!["a", "bc"])])[0].hash);
    assert_ne!(multiset_hash(&text(vec!["ab"])).unwrap(), multiset_hash(&text(vec!["a"])).unwrap());
}

#[test]
fn what_lies_under_a_null_does_not_matter_and_zero_is_not_null() {
    let with =
        |hidden: i64| one(DataType::Int64, Arc::new(Int64Array::new(vec![1, hidden].into(), Some(NullBuffer::from(vec![true, false])))));
    assert_eq!(hash(&[with(5)]), hash(&[with(6)]));
    assert_eq!(multiset_hash(&with(5)).unwrap(), multiset_hash(&with(6)).unwrap());
    let zero = one(DataType::Int64, Arc::new(Int64Array::from(vec![1, 0])));
    assert_ne!(hash(&[with(0)])[0].hash, hash(&[zero])[0].hash);
}

#[test]
fn floats_count_by_their_bits() {
    let doubles = |v: f64| one(DataType::Float64, Arc::new(Float64Array::from(vec![v])));
    let of = |v: f64| hash(&[doubles(v)])[0].hash;
    assert_ne!(of(0.0), of(-0.0));
    assert_eq!(of(f64::NAN), of(f64::NAN));
    assert_ne!(of(f64::NAN), of(f64::from_bits(f64::NAN.to_bits() | 1)));
}

#[test]
fn a_null_struct_is_not_a_struct_of_nulls() {
    let fields: Fields = vec![field("n", DataType::Int64, true, 2)].into();
    let of = |valid: bool| {
        let child: ArrayRef = Arc::new(Int64Array::from(vec![None]));
        let array = StructArray::try_new(fields.clone(), vec![child], Some(NullBuffer::from(vec![valid]))).unwrap();
        hash(&[one(DataType::Struct(fields.clone()), Arc::new(array))])
    };
    assert_ne!(of(true)[0].hash, of(false)[0].hash);
    assert_eq!((of(true)[0].nulls, of(false)[0].nulls), (1, 1));
}

#[test]
fn the_multiset_hash_is_blind_to_order_and_borders_but_not_to_repeats() {
    let numbers = |v: Vec<i64>| one(DataType::Int64, Arc::new(Int64Array::from(v)));
    let of = |v: Vec<i64>| multiset_hash(&numbers(v)).unwrap();
    assert_eq!(of(vec![1, 2, 3]), of(vec![3, 1, 2]));
    assert_eq!(of(vec![1, 2, 3]), of(vec![1]).wrapping_add(of(vec![2, 3])));
    assert_ne!(of(vec![1, 1, 2]), of(vec![1, 2, 2]));
    assert_ne!(of(vec![1, 1]), 0);
}

#[test]
fn a_value_that_moves_to_another_column_changes_both_hashes() {
    let of = |a: i64, b: i64| {
        let schema = Arc::new(Schema::new(vec![field("a", DataType::Int64, true, 1), field("b", DataType::Int64, true, 2)]));
        let columns: Vec<ArrayRef> = vec![Arc::new(Int64Array::from(vec![a])), Arc::new(Int64Array::from(vec![b]))];
        RecordBatch::try_new(schema, columns).unwrap()
    };
    assert_ne!(multiset_hash(&of(1, 2)).unwrap(), multiset_hash(&of(2, 1)).unwrap());
    assert_ne!(row_hash(&hash(&[of(1, 2)])), row_hash(&hash(&[of(2, 1)])));
}

#[test]
fn keys_into_a_dictionary_hash_as_the_values_they_stand_for() {
    let text = [Some("b"), None, Some("a"), Some("b"), Some("")];
    let plain = one(DataType::Utf8, Arc::new(StringArray::from(text.to_vec())));
    let hasher = |arrays: &[ArrayRef]| {
        let mut hasher = RootHasher::new(&Arc::new(field("c", DataType::Utf8, true, 1)));
        arrays.iter().for_each(|a| hasher.update(a.as_ref()).unwrap());
        hasher.finish()
    };
    let keyed: ArrayRef = Arc::new(text.into_iter().collect::<DictionaryArray<arrow_array::types::Int32Type>>());
    assert_eq!(hasher(std::slice::from_ref(&keyed)), hash(std::slice::from_ref(&plain)));
    // a second dictionary, whose keys mean other values, after the first
    let values: ArrayRef = Arc::new(StringArray::from(vec!["", "a", "b"]));
    let other: ArrayRef = Arc::new(DictionaryArray::new(Int32Array::from(vec![Some(2), None, Some(1), Some(2), Some(0)]), values));
    assert_eq!(hasher(&[keyed.slice(0, 2), other.slice(2, 3)]), hash(std::slice::from_ref(&plain)));
    let wrong: ArrayRef = Arc::new(DictionaryArray::new(Int32Array::from(vec![0]), Arc::new(StringArray::from(vec!["b", "a"]))));
    assert_ne!(hasher(&[wrong])[0].hash, hasher(&[keyed.slice(2, 1)])[0].hash);
}

#[test]
fn many_rows_hash_on_all_cores_as_few_do_on_one() {
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..2000));
    let texts: ArrayRef = Arc::new(StringArray::from_iter_values((0..2000).map(|n| n.to_string())));
    let fields = vec![field("n", DataType::Int64, true, 1), field("t", DataType::Utf8, true, 2)];
    let whole = RecordBatch::try_new(Arc::new(Schema::new(fields)), vec![numbers, texts]).unwrap();
    let pieces: Vec<RecordBatch> = (0..2000).step_by(100).map(|from| whole.slice(from, 100)).collect();
    assert_eq!(hash(&pieces), hash(&[whole]));
}
