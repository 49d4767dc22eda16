//! Position deletes reach files of their own commit, and are read whatever the
//! bounds in their manifest entries say.

use std::sync::Arc;

use afterwrite::lake::Error;
use afterwrite::model::refusal::Refusal;
use arrow_schema::{DataType, Schema};
use iceberg::spec::DataContentType;
use parquet::basic::Encoding;
use parquet::file::properties::WriterProperties;

use crate::reading::value::{Value, batch, row};
use crate::reading::{Lake, NullCounts, Placed, describe, field, fields, path_bounds, read_plan, write};

#[tokio::test]
async fn h20_a_position_delete_of_the_same_commit_applies() {
    let mut lake = Lake::id_v();
    let f1 = lake.append(1, &[row(1, "a"), row(2, "b")]);
    lake.delete_positions(1, &[(&f1, 0)]);
    assert_eq!(lake.values().await, [row(2, "b")]);
}

#[tokio::test]
async fn h20_inverted_and_cut_path_bounds_lose_no_delete() {
    let mut lake = Lake::id_v();
    let f1 = lake.append(1, &[row(1, "a"), row(2, "b")]);
    let f2 = lake.append(1, &[row(3, "c"), row(4, "d")]);
    // given one delete file with inverted bounds, and one over both with bounds cut to sixteen bytes
    let (lower, upper) = path_bounds("z", "a");
    lake.delete_positions_with(2, &[(&f1, 0)], |b| b.lower_bounds(lower).upper_bounds(upper));
    let (lower, upper) = path_bounds(&f1[..16], &f2[..16]);
    lake.delete_positions_with(2, &[(&f1, 1), (&f2, 1)], |b| b.lower_bounds(lower).upper_bounds(upper));
    assert_eq!(lake.values().await, [row(3, "c")]);
}

#[tokio::test]
async fn h20_another_spelling_of_the_path_is_refused_by_name() {
    // given a delete that engines which compare text do not apply
    let mut lake = Lake::id_v();
    let f1 = lake.append(1, &[row(1, "a"), row(2, "b")]);
    let spelled = f1.replace("file:///", "file:/");
    lake.delete_positions(2, &[(&spelled, 1), ("file:///elsewhere/data-001.parquet", 0)]);
    let result = read_plan(&lake.table().await, &lake.plan()).await;
    let Err(Error::Refused(refused)) = result else { panic!("{result:?}") };
    assert_eq!((refused.refusal, refused.detail.contains(&spelled)), (Refusal::StrayDelete, true));
}

#[tokio::test]
async fn h20_an_older_position_delete_does_not_reach_a_newer_file() {
    let mut lake = Lake::id_v();
    let f1 = lake.append(1, &[row(1, "a")]);
    let f2 = lake.append(3, &[row(2, "b")]);
    lake.delete_positions(2, &[(&f1, 0), (&f2, 0)]);
    assert_eq!(lake.values().await, [row(2, "b")]);
}

#[tokio::test]
async fn h20_positions_beyond_the_end_delete_nothing_and_repeats_count_once() {
    let mut lake = Lake::id_v();
    let f1 = lake.append(1, &[row(1, "a"), row(2, "b")]);
    lake.delete_positions(2, &[(&f1, 1), (&f1, 1), (&f1, 900)]);
    lake.delete_positions(3, &[(&f1, 1)]);
    let (_, summary) = lake.read().await.unwrap();
    assert_eq!((summary.rows_in, summary.rows_deleted, summary.rows_deleted_by_position), (2, 1, 1));
    assert_eq!(lake.values().await, [vec![Value::Int(1), Value::text("a")]]);
}

#[tokio::test]
async fn h20_a_delete_file_of_another_writer_with_the_row_column_is_read() {
    // given a file as Trino encodes paths, that also carries the deleted rows
    let mut lake = Lake::id_v();
    let f1 = lake.append(1, &[row(1, "a"), row(2, "b")]);
    let deleted_row = DataType::Struct(fields(vec![field("id", DataType::Int64, true, 1)]));
    let schema = Arc::new(Schema::new(vec![
        field("row", deleted_row, true, 2_147_483_544),
        field("pos", DataType::Int64, false, 2_147_483_545),
        field("file_path", DataType::Utf8, false, 2_147_483_546),
    ]));
    let rows = batch(&schema, &[vec![Value::Struct(vec![Value::Int(1)]), Value::Int(0), Value::text(&f1)]]);
    let path = lake.path("pos");
    let encoded = WriterProperties::builder()
        .set_dictionary_enabled(false)
        .set_column_encoding("file_path".into(), Encoding::DELTA_LENGTH_BYTE_ARRAY);
    write(&path, &rows, encoded.build());
    let file = describe(&path, DataContentType::PositionDeletes, &NullCounts(Default::default(), 1)).build().unwrap();
    lake.deletes.push(Placed { file, sequence: 2 });
    assert_eq!(lake.values().await, [row(2, "b")]);
}
