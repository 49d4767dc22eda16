//! Outputs whose inputs the proof reads itself, column by column.

use std::collections::HashMap;
use std::sync::Arc;

use afterwrite::model::plan::Path;
use arrow_array::{ArrayRef, StringArray};
use arrow_schema::DataType;
use iceberg::spec::Datum;
use parquet::file::properties::WriterProperties;

use super::proving::{Rewrite, failure, prove, re_encode, re_encode_with, splice};
use super::value::{Value, batch, row, rows};
use super::{Lake, field};

/// Three files: with and without dictionaries, one of several row groups; NULLs.
fn lake() -> Lake {
    let mut lake = Lake::id_v();
    let numbered = |from: i64| -> Vec<Vec<Value>> {
        (from..from + 40)
            .map(|id| if id % 9 == 4 { vec![Value::Int(id), Value::Null] } else { row(id, ["x", "yy", ""][id as usize % 3]) })
            .collect()
    };
    lake.append(1, &numbered(0));
    let schema = Arc::new(arrow_schema::Schema::new(vec![field("id", DataType::Int64, true, 1), field("v", DataType::Utf8, true, 2)]));
    let plain = WriterProperties::builder().set_dictionary_enabled(false).set_max_row_group_row_count(Some(7));
    lake.append_batch(1, &batch(&schema, &numbered(40)), plain.build());
    lake.append_batch(1, &batch(&schema, &numbered(80)), WriterProperties::builder().set_max_row_group_row_count(Some(13)).build());
    lake
}

fn as_re_packed(rewrite: Rewrite) -> Rewrite {
    Rewrite { path: Path::RePack, read: None, ..rewrite }
}

#[tokio::test]
async fn rows_moved_without_decoding_are_proven_whatever_their_encoding() {
    let mut lake = lake();
    let (batches, read) = lake.read().await.unwrap();
    let rewrite = re_encode(&mut lake, &batches, read);
    let proof = prove(&lake, as_re_packed(rewrite)).await.unwrap();
    assert_eq!((proof.rows, proof.null_counts, proof.columns), (120, 2, 2));
}

#[tokio::test]
async fn rows_that_deletes_remove_are_left_out_of_the_proof() {
    let mut lake = lake();
    let second = lake.data[1].file.file_path().to_owned();
    lake.delete_positions(2, &[(&second, 0), (&second, 13), (&second, 39)]);
    lake.delete_ids(2, &[Some(3), Some(41), Some(85), Some(1000)]);
    let (batches, read) = lake.read().await.unwrap();
    assert_eq!((read.rows_in, read.rows_deleted), (120, 6));
    let rewrite = re_encode(&mut lake, &batches, read);
    assert_eq!(prove(&lake, as_re_packed(rewrite)).await.unwrap().rows, 114);
    // a rewrite that kept a deleted row and dropped a live one in its place
    let mut wrong: Vec<Vec<Value>> = batches.iter().flat_map(rows).collect();
    wrong[0][0] = Value::Int(3);
    let schema = batches[0].schema();
    let (_, read) = lake.read().await.unwrap();
    let rewrite = re_encode(&mut lake, &[batch(&schema, &wrong)], read);
    let why = failure(&lake, as_re_packed(rewrite)).await;
    assert!(why.ends_with("row group 0 column id: another value than there should be"), "{why}");
}

#[tokio::test]
async fn one_other_value_among_many_is_seen() {
    let mut lake = lake();
    let (batches, read) = lake.read().await.unwrap();
    // the last of the small row groups that has as many rows
    let place = batches.len() - 2;
    let last = &batches[place];
    let texts: Vec<Option<&str>> = last.column(1).as_any().downcast_ref::<StringArray>().unwrap().iter().collect();
    let changed: ArrayRef = Arc::new(StringArray::from_iter(texts.iter().enumerate().map(|(i, t)| if i == 2 { Some("z") } else { *t })));
    let mut wrong = batches.clone();
    let columns = vec![last.column(0).clone(), changed];
    wrong[place] = arrow_array::RecordBatch::try_new(last.schema(), columns).unwrap();
    let rewrite = re_encode(&mut lake, &wrong, read);
    let why = failure(&lake, as_re_packed(rewrite)).await;
    assert!(why.contains(" column v: another value than there should be"), "{why}");
}

#[tokio::test]
async fn bounds_are_held_against_values_that_are_keys_into_a_dictionary() {
    let mut lake = lake();
    let (batches, read) = lake.read().await.unwrap();
    let bounds = |low: &str, high: &str| (HashMap::from([(2, Datum::string(low))]), HashMap::from([(2, Datum::string(high))]));
    for (low, high, holds) in [("", "yy", true), ("", "y", false), ("a", "yy", false)] {
        let (lower, upper) = bounds(low, high);
        let rewrite = re_encode_with(&mut lake, &batches, read.clone(), |b| b.lower_bounds(lower).upper_bounds(upper));
        assert_eq!(prove(&lake, as_re_packed(rewrite)).await.is_ok(), holds, "{low}..{high}");
    }
}

#[tokio::test]
async fn copied_outputs_whose_bounds_do_not_follow_from_the_manifests_are_decoded() {
    let mut lake = lake();
    // the inputs' manifests state no bounds
    let described = |rewrite: Rewrite, low: i64| {
        let file = rewrite.outputs[0].clone();
        let mut builder =
            super::describe(file.file_path(), iceberg::spec::DataContentType::Data, &super::NullCounts(Default::default(), 120));
        let lower = HashMap::from([(1, Datum::long(low))]);
        Rewrite { outputs: vec![builder.lower_bounds(lower).build().unwrap()], ..rewrite }
    };
    let rewrite = splice(&mut lake);
    let right = described(rewrite, 0);
    assert_eq!(prove(&lake, right).await.unwrap().rows, 120);
    let rewrite = splice(&mut lake);
    let wrong = described(rewrite, 1);
    let why = failure(&lake, wrong).await;
    assert!(why.ends_with("column 1 has a value outside its stated bounds"), "{why}");
}
