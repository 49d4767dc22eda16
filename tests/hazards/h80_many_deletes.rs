//! Equality deletes in bounded memory: done, or refused before they are loaded.

use afterwrite::lake::Error;
use afterwrite::model::refusal::Refusal;
use arrow_schema::DataType;

use crate::reading::value::{Value, row};
use crate::reading::{Lake, MIB, field, read_plan};

/// Deletes of every third id below three times `count`, over twenty files.
fn lake(count: i64) -> Lake {
    let mut lake = Lake::id_v();
    for file in 0..20 {
        let rows: Vec<Vec<Value>> = (0..30).map(|i| row(file * 30 + i, "v")).collect();
        lake.append(1, &rows);
    }
    let keys: Vec<Vec<Value>> = (0..count).map(|i| vec![Value::Int(i * 3)]).collect();
    lake.delete_keys(2, vec![field("id", DataType::Int64, true, 1)], &keys);
    lake
}

#[tokio::test]
async fn h80_a_million_deletes_over_twenty_files_fit_in_256_mib() {
    let lake = lake(1_000_000);
    assert_eq!(lake.memory, 256 * MIB);
    let (_, summary) = lake.read().await.unwrap();
    assert_eq!((summary.rows_in, summary.rows_deleted), (600, 200));
}

#[tokio::test]
async fn h80_more_deletes_than_fit_are_refused_before_they_are_loaded() {
    let mut lake = lake(20_000);
    lake.memory = 2 * MIB;
    let table = lake.table().await;
    let plan = lake.plan();
    // The delete file is gone: it cannot have been loaded.
    std::fs::remove_file(plan.deletes[0].key.path.trim_start_matches("file://")).unwrap();
    let result = read_plan(&table, &plan).await;
    let Err(Error::Refused(refused)) = result else { panic!("{result:?}") };
    assert_eq!(refused.refusal, Refusal::TooManyDeletes);
    assert!(refused.detail.contains("20000 equality deletes"), "{}", refused.detail);
}

#[tokio::test]
async fn h80_more_position_deletes_than_fit_are_refused() {
    let mut lake = Lake::id_v();
    let path = lake.append(1, &[row(1, "a")]);
    let positions: Vec<(&str, i64)> = (0..1000).map(|i| (path.as_str(), i)).collect();
    lake.delete_positions(2, &positions);
    lake.memory = 1000;
    let (refusal, detail) = lake.refusal().await;
    assert_eq!(refusal, Refusal::TooManyDeletes);
    assert!(detail.contains("1000 position deletes"), "{detail}");
}
