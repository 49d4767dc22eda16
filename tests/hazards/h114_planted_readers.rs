//! Readers with planted faults: both what they read and what is read back carry
//! the same fault, so hashes agree; the inputs' manifests do not.

use std::collections::HashMap;
use std::sync::Arc;

use afterwrite::lake::iceberg::read::ReadSummary;
use afterwrite::model::plan::Path;
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, BooleanArray, ListArray, RecordBatch, StringArray, new_null_array};
use arrow_schema::DataType;
use arrow_select::filter::filter_record_batch;
use iceberg::spec::Datum;

use crate::reading::proving::{Rewrite, failure, prove, re_encode, re_encode_with, summary};
use crate::reading::value::{Value, row};
use crate::reading::{Lake, field};

fn lake() -> Lake {
    let mut lake = Lake::id_v();
    lake.append(1, &[row(1, "a"), vec![Value::Null, Value::text("null id")], row(3, "c")]);
    lake.append(2, &[row(4, "d"), vec![Value::Int(5), Value::Null]]);
    lake
}

fn with_delete() -> Lake {
    let mut lake = lake();
    lake.delete_ids(3, &[Some(3)]);
    lake
}

async fn honest(lake: &Lake) -> (Vec<RecordBatch>, ReadSummary) {
    lake.read().await.unwrap()
}

fn replace(batch: &RecordBatch, column: usize, array: ArrayRef) -> RecordBatch {
    let mut columns = batch.columns().to_vec();
    columns[column] = array;
    RecordBatch::try_new(batch.schema(), columns).unwrap()
}

#[tokio::test]
async fn h114_an_honest_reader_is_proven() {
    let mut lake = with_delete();
    let (batches, read) = honest(&lake).await;
    assert_eq!(summary(&batches, 5, 1).columns, read.columns);
    let rewrite = re_encode(&mut lake, &batches, read);
    let proof = prove(&lake, rewrite).await.unwrap();
    assert_eq!((proof.rows, proof.null_counts, proof.columns), (4, 2, 2));
}

#[tokio::test]
async fn h114_a_reader_that_null_fills_a_column_is_caught() {
    for mut lake in [lake(), with_delete()] {
        let (batches, read) = honest(&lake).await;
        let wrong: Vec<RecordBatch> = batches.iter().map(|b| replace(b, 1, new_null_array(&DataType::Utf8, b.num_rows()))).collect();
        let read = summary(&wrong, read.rows_in, read.rows_deleted);
        let rewrite = re_encode(&mut lake, &wrong, read);
        let why = failure(&lake, rewrite).await;
        assert!(why.starts_with("column 2:") && why.contains("NULLs read back, the inputs state 1"), "{why}");
    }
}

/// `id`, and a list of texts.
fn nested() -> Lake {
    let mut lake = Lake::new(serde_json::json!([
        {"id": 1, "name": "id", "required": false, "type": "long"},
        {"id": 2, "name": "words", "required": false, "type":
            {"type": "list", "element-id": 3, "element-required": false, "element": "string"}},
    ]));
    let list = |words: &[Option<&str>]| Value::List(words.iter().map(|word| word.map_or(Value::Null, Value::text)).collect());
    lake.append(1, &[vec![Value::Int(1), list(&[Some("a"), None])], vec![Value::Int(2), list(&[])], vec![Value::Int(3), Value::Null]]);
    lake.append(2, &[vec![Value::Int(4), list(&[Some("d")])]]);
    lake
}

#[tokio::test]
async fn h114_a_reader_that_loses_elements_of_lists_is_caught() {
    let mut deleting = nested();
    deleting.delete_ids(3, &[Some(2)]);
    let (batches, read) = honest(&deleting).await;
    let rewrite = re_encode(&mut deleting, &batches, read);
    assert_eq!(prove(&deleting, rewrite).await.unwrap().rows, 3);

    let mut lake = nested();
    let (batches, read) = honest(&lake).await;
    let rewrite = re_encode(&mut lake, &batches, read);
    assert_eq!(prove(&lake, rewrite).await.unwrap().rows, 4);
    // every list is NULL, or a NULL stands in the place of each element
    let lists = |b: &RecordBatch| new_null_array(b.column(1).data_type(), b.num_rows());
    let elements = |b: &RecordBatch| -> ArrayRef {
        let (field, offsets, values, nulls) = b.column(1).as_list::<i32>().clone().into_parts();
        Arc::new(ListArray::new(field, offsets, new_null_array(values.data_type(), values.len()), nulls))
    };
    for wrong in [&lists as &dyn Fn(&RecordBatch) -> ArrayRef, &elements] {
        let wrong: Vec<RecordBatch> = batches.iter().map(|b| replace(b, 1, wrong(b))).collect();
        let rewrite = re_encode(&mut lake, &wrong, summary(&wrong, 4, 0));
        let why = failure(&lake, rewrite).await;
        assert!(why.starts_with("column 3: Entries"), "{why}");
    }
}

#[tokio::test]
async fn h114_a_reader_that_drops_null_rows_with_equality_deletes_is_caught() {
    let mut lake = with_delete();
    let (batches, read) = honest(&lake).await;
    let keep = |b: &RecordBatch| BooleanArray::from_iter((0..b.num_rows()).map(|r| Some(!b.column(0).is_null(r))));
    let wrong: Vec<RecordBatch> = batches.iter().map(|b| filter_record_batch(b, &keep(b)).unwrap()).collect();
    let read = summary(&wrong, read.rows_in, read.rows_deleted + 1);
    let rewrite = re_encode(&mut lake, &wrong, read);
    let why = failure(&lake, rewrite).await;
    assert_eq!(why, "2 rows were left out, the deletes name 1");
}

#[tokio::test]
async fn h114_a_delete_with_a_null_key_may_drop_null_rows() {
    let mut lake = lake();
    lake.delete_ids(3, &[Some(3), None]);
    let (batches, read) = honest(&lake).await;
    assert_eq!(read.rows_deleted, 2);
    let rewrite = re_encode(&mut lake, &batches, read);
    assert_eq!(prove(&lake, rewrite).await.unwrap().rows, 3);
}

#[tokio::test]
async fn h114_a_reader_that_skips_a_row_group_is_caught() {
    let mut lake = lake();
    let (batches, _) = honest(&lake).await;
    let wrong = &batches[..1];
    // Whether it owns up to the rows, hides them, or calls them deleted.
    let rewrite = re_encode(&mut lake, wrong, summary(wrong, 3, 0));
    let why = failure(&lake, rewrite).await;
    assert!(why.contains("3 rows were read, the inputs' manifests state 5"), "{why}");
    let rewrite = re_encode(&mut lake, wrong, summary(wrong, 5, 0));
    let why = failure(&lake, rewrite).await;
    assert!(why.contains("5 rows of inputs less 0 deleted ones are not the 3 rows read back"), "{why}");
    let rewrite = re_encode(&mut lake, wrong, summary(wrong, 5, 2));
    let why = failure(&lake, rewrite).await;
    assert!(why.contains("2 rows were left out, the position deletes name 0"), "{why}");
}

#[tokio::test]
async fn h114_a_reader_that_deletes_more_than_the_positions_name_is_caught() {
    let mut lake = lake();
    let path = lake.data[0].file.file_path().to_owned();
    lake.delete_positions(2, &[(&path, 0)]);
    let (batches, _) = honest(&lake).await;
    let wrong = [batches[0].slice(1, 1), batches[1].clone()];
    let rewrite = re_encode(&mut lake, &wrong, summary(&wrong, 5, 2));
    let why = failure(&lake, rewrite).await;
    assert_eq!(why, "2 rows were left out, the deletes name 1");
}

#[tokio::test]
async fn h114_a_writer_that_changes_or_reorders_values_is_caught() {
    let mut lake = lake();
    let (batches, read) = honest(&lake).await;
    let changed: ArrayRef = Arc::new(StringArray::from(vec![Some("d"), Some("")]));
    let wrong = [batches[0].clone(), replace(&batches[1], 1, changed)];
    let rewrite = re_encode(&mut lake, &wrong, read.clone());
    let why = failure(&lake, rewrite).await;
    assert!(why.starts_with("column 2: read as"), "{why}");
    let swapped = [batches[1].clone(), batches[0].clone()];
    let rewrite = re_encode(&mut lake, &swapped, read);
    let why = failure(&lake, rewrite).await;
    assert!(why.starts_with("column 1: read as"), "{why}");
}

#[tokio::test]
async fn h114_a_bound_that_leaves_out_a_value_is_caught() {
    let mut lake = lake();
    let (batches, read) = honest(&lake).await;
    let bounds = |low: Datum, high: Datum, id: i32| (HashMap::from([(id, low)]), HashMap::from([(id, high)]));
    for (lower, upper, id) in
        [(Datum::long(2), Datum::long(5), 1), (Datum::long(1), Datum::long(4), 1), (Datum::string("a"), Datum::string("nul"), 2)]
    {
        let (lower, upper) = bounds(lower, upper, id);
        let rewrite = re_encode_with(&mut lake, &batches, read.clone(), |b| b.lower_bounds(lower).upper_bounds(upper));
        let why = failure(&lake, rewrite).await;
        assert!(why.ends_with(&format!("column {id} has a value outside its stated bounds")), "{why}");
    }
    let (lower, upper) = bounds(Datum::string(""), Datum::string("num"), 2);
    let rewrite = re_encode_with(&mut lake, &batches, read, |b| b.lower_bounds(lower).upper_bounds(upper));
    assert_eq!(prove(&lake, rewrite).await.unwrap().rows, 5);
}

#[tokio::test]
async fn h114_stated_counts_of_an_output_are_held_against_its_rows() {
    let mut lake = lake();
    let (batches, read) = honest(&lake).await;
    let rewrite = re_encode_with(&mut lake, &batches, read, |b| b.null_value_counts(HashMap::from([(1, 0)])));
    let why = failure(&lake, rewrite).await;
    assert!(why.contains("column 1 has 1 NULLs of 5 values"), "{why}");
}

#[tokio::test]
async fn h114_a_column_that_a_file_lacks_counts_as_null() {
    let mut lake = Lake::id_v();
    let narrow = Arc::new(arrow_schema::Schema::new(vec![field("id", DataType::Int64, true, 1)]));
    let rows = crate::reading::value::batch(&narrow, &[vec![Value::Int(1)], vec![Value::Int(2)]]);
    lake.append_batch(1, &rows, Default::default());
    lake.append(2, &[row(3, "c")]);
    let (batches, read) = honest(&lake).await;
    let rewrite = re_encode(&mut lake, &batches, read);
    assert_eq!(prove(&lake, rewrite).await.unwrap().null_counts, 2);
}

#[tokio::test]
async fn h114_a_table_of_which_every_row_is_deleted_is_proven_without_outputs() {
    let mut lake = Lake::id_v();
    lake.append(1, &[row(1, "a")]);
    lake.delete_ids(2, &[Some(1)]);
    let (batches, read) = honest(&lake).await;
    assert_eq!(batches.len(), 0);
    let all_gone = Rewrite { path: Path::ReEncode, outputs: Vec::new(), rows_in: 1, rows_deleted: 1, read: Some(read) };
    assert_eq!(prove(&lake, all_gone).await.unwrap().rows, 0);
}
