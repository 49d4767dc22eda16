//! A large file is read whole, row group by row group, or not at all.

use afterwrite::lake::Error;
use afterwrite::model::refusal::Refusal;
use parquet::file::properties::WriterProperties;

use crate::reading::value::{Value, batch, row, rows};
use crate::reading::{Lake, read_plan};

#[tokio::test]
async fn h14_every_row_group_of_a_large_file_is_read_beside_a_tiny_one() {
    // given a file of ten row groups and a tail, and a tiny file
    let mut lake = Lake::id_v();
    let many: Vec<Vec<Value>> = (0..1013).map(|i| row(i, "a row of a large file")).collect();
    let groups = WriterProperties::builder().set_max_row_group_row_count(Some(100)).build();
    let large = batch(&lake.arrow(), &many);
    lake.append_batch(1, &large, groups);
    lake.append(2, &[row(5000, "tiny")]);
    // when they are read
    let (batches, summary) = lake.read().await.unwrap();
    // then every row is there, in file and row order
    let read: Vec<Vec<Value>> = batches.iter().flat_map(rows).collect();
    assert_eq!(read.len(), 1014);
    assert_eq!(read[..1013], many[..]);
    assert_eq!(read[1013], row(5000, "tiny"));
    assert_eq!((summary.rows_in, summary.rows_deleted), (1014, 0));
}

#[tokio::test]
async fn h14_a_row_count_other_than_the_manifests_is_refused() {
    // given a plan by a manifest that states one row more
    let mut lake = Lake::id_v();
    lake.append(1, &[row(1, "a"), row(2, "b")]);
    let table = lake.table().await;
    let mut plan = lake.plan();
    plan.inputs[0].records = 3;
    // when it is read
    let result = read_plan(&table, &plan).await;
    // then it is refused
    let Err(Error::Refused(refused)) = result else { panic!("{result:?}") };
    assert_eq!(refused.refusal, Refusal::Damaged);
    assert!(refused.detail.ends_with("2 rows where the manifest states 3"), "{}", refused.detail);
}
