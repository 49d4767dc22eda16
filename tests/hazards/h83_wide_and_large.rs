//! Wide tables and large values are written within the memory limit, or refused.

use std::sync::Arc;

use afterwrite::lake::Error;
use afterwrite::model::refusal::Refusal;
use arrow_array::{ArrayRef, Int64Array, LargeBinaryArray, RecordBatch, StringArray};
use iceberg::spec::PrimitiveType;

use crate::rewrite::support::{Lake, noise, primitive};

const MIB: u64 = 1 << 20;

fn wide() -> (Lake, RecordBatch) {
    let names: Vec<String> = (0..5000).map(|n| format!("c{n}")).collect();
    let lake = Lake::new(names.iter().map(|name| (name.as_str(), primitive(PrimitiveType::Long))).collect(), &[]);
    let columns = (0..5000).map(|n| -> ArrayRef { Arc::new(Int64Array::from_iter_values(n..n + 10)) }).collect();
    let batch = lake.batch(columns);
    (lake, batch)
}

fn cells(lake: &Lake, size: usize, rows: usize) -> RecordBatch {
    let cell = "x".repeat(size);
    lake.batch(vec![Arc::new(StringArray::from_iter_values((0..rows).map(|_| &cell)))])
}

async fn refusal(lake: &Lake, batch: RecordBatch, memory: u64) -> Refusal {
    match lake.encode("refused", vec![batch], 512 * MIB, memory).await {
        Err(Error::Refused(refused)) => refused.refusal,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("written"),
    }
}

#[tokio::test]
async fn h83_five_thousand_columns_of_ten_rows_are_one_row_group() {
    let (lake, batch) = wide();
    let made = lake.encode("a", vec![batch.clone()], 512 * MIB, 256 * MIB).await.unwrap();
    let read = lake.read(&made[0].output.path).await;
    assert_eq!(read.footer.num_row_groups(), 1);
    assert_eq!(read.rows, batch);
    assert_eq!(made[0].data_file.lower_bounds().len(), 100);
    assert_eq!(refusal(&lake, batch, 64 * MIB).await, Refusal::TooLargeForMemory);
}

#[tokio::test]
async fn h83_many_batches_of_a_wide_table_are_one_row_group() {
    let (lake, batch) = wide();
    let made = lake.encode("a", vec![batch; 20], 512 * MIB, 256 * MIB).await.unwrap();
    assert_eq!((made[0].output.records, made[0].data_file.split_offsets().unwrap().len()), (200, 1));
}

#[tokio::test]
async fn h83_row_groups_end_by_memory_before_they_end_by_rows() {
    let lake = Lake::new(vec![("blob", primitive(PrimitiveType::Binary))], &[]);
    let batches: Vec<_> =
        (0..6).map(|n| lake.batch(vec![Arc::new(LargeBinaryArray::from_iter_values(noise(n, 16 << 20).chunks(4 << 20)))])).collect();
    let made = lake.encode("a", batches, 512 * MIB, 64 * MIB).await.unwrap();
    let read = lake.read(&made[0].output.path).await;
    let rows: Vec<i64> = read.footer.row_groups().iter().map(|group| group.num_rows()).collect();
    assert!(rows.iter().all(|rows| *rows <= 5) && rows.iter().sum::<i64>() == 24, "{rows:?}");
}

#[tokio::test]
async fn h83_a_cell_of_64_mib_is_written_or_refused() {
    let lake = Lake::new(vec![("json", primitive(PrimitiveType::String))], &[]);
    let batch = cells(&lake, 64 << 20, 1);
    let made = lake.encode("a", vec![batch.clone(), batch.clone()], 512 * MIB, 512 * MIB).await.unwrap();
    let read = lake.read(&made[0].output.path).await;
    assert_eq!(read.rows.num_rows(), 2);
    assert_eq!(read.rows.slice(1, 1), batch);
    assert_eq!(refusal(&lake, batch, 64 * MIB).await, Refusal::TooLargeForMemory);
}
