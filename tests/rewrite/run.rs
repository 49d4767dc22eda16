//! Whole rewrites of tables on disk: chosen, written, and proven by the proof.

use std::sync::Arc;

use afterwrite::lake::iceberg::rewrite::{Detail, run};
use afterwrite::lake::iceberg::verify;
use afterwrite::lake::{Error, Written};
use afterwrite::model::plan::{AttemptId, Path, Plan};
use afterwrite::model::refusal::Refusal;
use arrow_array::{Float64Array, Int64Array, RecordBatch};
use parquet::file::properties::WriterProperties;
use serde_json::json;

use crate::reading::value::{Value, row};
use crate::reading::{Free, Lake};

async fn rewrite(lake: &Lake, plan: &Plan) -> Written {
    let table = lake.table().await;
    let written = run(&table, plan, &AttemptId("a1".into()), &Free).await.unwrap();
    let live = written.rows_in - written.rows_deleted;
    assert_eq!(verify::run(&table, plan, &written).await.unwrap().rows, live);
    assert_eq!(written.outputs.iter().map(|output| output.records).sum::<u64>(), live);
    written
}

#[tokio::test]
async fn small_files_with_deletes_are_encoded_anew_and_proven() {
    let mut lake = Lake::id_v();
    let first = lake.append(1, &[row(1, "a"), row(2, "b"), vec![Value::Null, Value::text("n")]]);
    lake.append(2, &[row(3, "c"), row(4, "d")]);
    lake.delete_positions(3, &[(&first, 0)]);
    lake.delete_ids(4, &[Some(3)]);
    let plan = lake.plan();
    let written = rewrite(&lake, &plan).await;
    assert_eq!((written.path, written.rows_in, written.rows_deleted, written.outputs.len()), (Path::ReEncode, 5, 2, 1));
    assert!(written.path_reason.starts_with("deletes apply to "), "{}", written.path_reason);
}

#[tokio::test]
async fn a_partition_whose_rows_are_all_deleted_has_no_output() {
    let mut lake = Lake::id_v();
    lake.append(1, &[row(1, "a"), row(2, "b")]);
    lake.delete_ids(2, &[Some(1), Some(2)]);
    let plan = lake.plan();
    let written = run(&lake.table().await, &plan, &AttemptId("a1".into()), &Free).await.unwrap();
    assert_eq!((written.outputs.len(), written.rows_in, written.rows_deleted), (0, 2, 2));
}

#[tokio::test]
async fn healthy_row_groups_are_spliced_and_proven() {
    let mut lake = Lake::new(json!([
        {"id": 1, "name": "n", "required": false, "type": "long"},
        {"id": 2, "name": "f", "required": false, "type": "double"},
    ]));
    for file in 0..2i64 {
        let numbers = Int64Array::from_iter_values(file * 120_000..(file + 1) * 120_000);
        let floats = Float64Array::from_iter_values((0..120_000).map(f64::from));
        let rows = RecordBatch::try_new(lake.arrow(), vec![Arc::new(numbers), Arc::new(floats)]).unwrap();
        lake.append_batch(1, &rows, WriterProperties::builder().build());
    }
    let plan = lake.plan();
    let written = rewrite(&lake, &plan).await;
    assert_eq!((written.path, written.outputs.len(), written.rows_in), (Path::Splice, 1, 240_000));
    let detail = written.detail.downcast_ref::<Detail>().unwrap();
    assert!(detail.read.is_none());
    assert_eq!(detail.data_files[0].file_path(), written.outputs[0].path);
}

#[tokio::test]
async fn outputs_that_the_disk_cannot_hold_are_refused_before_any_is_begun() {
    let mut lake = Lake::id_v();
    lake.append(1, &[row(1, "a")]);
    let mut plan = lake.plan();
    plan.inputs[0].bytes = 1 << 62;
    let Err(Error::Refused(refused)) = run(&lake.table().await, &plan, &AttemptId("a1".into()), &Free).await else { panic!("not refused") };
    assert_eq!(refused.refusal, Refusal::NoSpace);
}
