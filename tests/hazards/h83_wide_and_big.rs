//! Wide tables and big values: batches are bounded by bytes, not only by rows.

use afterwrite::model::refusal::Refusal;
use serde_json::json;

use crate::reading::value::{Value, row};
use crate::reading::{Lake, MIB};

#[tokio::test]
async fn h83_five_thousand_columns() {
    let fields: Vec<_> =
        (1..=5000).map(|id| json!({"id": id, "name": format!("feature_{id}"), "required": false, "type": "long"})).collect();
    let mut lake = Lake::new(json!(fields));
    let rows: Vec<Vec<Value>> = (0..10).map(|r| (0..5000).map(|c| Value::Int(r * 10_000 + c)).collect()).collect();
    lake.append(1, &rows);
    assert_eq!(lake.values().await, rows);
}

#[tokio::test]
async fn h83_a_cell_of_64_mib_is_read_and_does_not_share_its_batch_with_many_others() {
    let mut lake = Lake::id_v();
    lake.memory = 1024 * MIB;
    let big = "x".repeat(64 << 20);
    lake.append(1, &[row(1, "a"), row(2, &big), row(3, "c")]);
    let (batches, summary) = lake.read().await.unwrap();
    assert_eq!(summary.rows_in, 3);
    assert_eq!(batches.iter().map(|b| b.num_rows()).collect::<Vec<_>>(), [1, 1, 1]);
}

#[tokio::test]
async fn h83_a_cell_that_does_not_fit_is_refused() {
    let mut lake = Lake::id_v();
    lake.memory = 16 * MIB;
    lake.append(1, &[row(1, &"x".repeat(8 << 20))]);
    let (refusal, detail) = lake.refusal().await;
    assert_eq!(refusal, Refusal::TooLargeForMemory);
    assert!(detail.contains("row group 0"), "{detail}");
}
