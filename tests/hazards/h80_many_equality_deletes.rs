//! Equality deletes by the million, against the memory of the whole process: done
//! within the limit, or refused by name within the limit, never killed.

use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use iceberg::arrow::schema_to_arrow_schema;
use iceberg::spec::{DataContentType, DataFileBuilder, DataFileFormat, Struct};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;
use serde_json::Value;

use crate::fixture::process::Place;
use crate::fixture::{File, Table, row};

const MIB: u64 = 1 << 20;
/// Rows of a batch of keys.
const PIECE: i64 = 50_000;

fn place(limit_mib: u64) -> Place {
    Place::new(&format!("[defaults]\nmemory_limit = \"{limit_mib}MiB\"\n"))
}

async fn compact(place: &Place) -> Value {
    let ended = place.run(&["compact", "lake.ns.t", "--json"]).await;
    assert_eq!(ended.lines().len(), 1, "{ended:?}");
    ended.lines().remove(0)
}

/// Bytes that the process takes before it has anything to do.
async fn base() -> u64 {
    let place = place(64);
    let table = Table::plain().in_sqlite(place.path()).create().await;
    table.append([row(1, "a", 0)]).await;
    table.append([row(2, "b", 0)]).await;
    peak(&compact(&place).await)
}

fn peak(line: &Value) -> u64 {
    line["peak_memory"].as_u64().unwrap_or_else(|| panic!("{line}"))
}

/// The process grew by no more than so many MiB, however it ended.
async fn within(line: &Value, limit_mib: u64) {
    let grown = peak(line).saturating_sub(base().await) / MIB;
    assert!(grown <= limit_mib, "grew by {grown} of {limit_mib} MiB: {line}");
}

/// `keys` deletes by one column, in files of `a_file` keys each, written compressed.
async fn delete(table: &Table, column: (&str, i32), keys: i64, a_file: i64, key: impl Fn(std::ops::Range<i64>) -> ArrayRef) {
    let base = table.load().await;
    let schema = Arc::new(schema_to_arrow_schema(base.loaded.metadata.current_schema()).unwrap());
    let schema = Arc::new(schema.project(&[schema.index_of(column.0).unwrap()]).unwrap());
    for from in (0..keys).step_by(a_file as usize) {
        let to = (from + a_file).min(keys);
        let properties = WriterProperties::builder().set_compression(Compression::ZSTD(ZstdLevel::try_new(1).unwrap()));
        let mut bytes = Vec::new();
        let mut writer = ArrowWriter::try_new(&mut bytes, schema.clone(), Some(properties.build())).unwrap();
        for piece in (from..to).step_by(PIECE as usize) {
            let column = key(piece..(piece + PIECE).min(to));
            writer.write(&RecordBatch::try_new(schema.clone(), vec![column]).unwrap()).unwrap();
        }
        writer.close().unwrap();
        let path = format!("{}/data/deletes-{from}.parquet", base.view.location);
        let data = DataFileBuilder::default()
            .file_path(path.clone())
            .file_format(DataFileFormat::Parquet)
            .partition(Struct::empty())
            .partition_spec_id(0)
            .content(DataContentType::EqualityDeletes)
            .equality_ids(Some(vec![column.1]))
            .record_count((to - from) as u64)
            .file_size_in_bytes(bytes.len() as u64)
            .build()
            .unwrap();
        base.loaded.io.new_output(&path).unwrap().write(bytes.into()).await.unwrap();
        let partition = afterwrite::model::partition::PartitionKey::unpartitioned(0);
        table.change().add_delete(File { path, data, partition }).commit().await;
    }
}

fn longs(range: std::ops::Range<i64>) -> ArrayRef {
    // in no order, so that they compress as keys do
    Arc::new(Int64Array::from_iter_values(range.map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15_u64 as i64))))
}

/// Twenty files of fifty rows; keys below 500 are also deleted ones.
async fn twenty_files(place: &Place) -> Table {
    let table = Table::plain().in_sqlite(place.path()).create().await;
    for file in 0..20_i64 {
        let id = |n: i64| (file * 50 + n).wrapping_mul(0x9e37_79b9_7f4a_7c15_u64 as i64);
        table.append((0..50).map(|n| row(id(n), &format!("{:0>6}", file * 50 + n), 0))).await;
    }
    table
}

#[tokio::test]
async fn h80_a_million_keys_over_twenty_files_stay_within_256_mib() {
    let place = place(256);
    let table = twenty_files(&place).await;
    delete(&table, ("id", 1), 1_000_000, 250_000, longs).await;
    let line = compact(&place).await;
    assert_eq!((&line["result"], &line["rows_deleted"]), (&"committed".into(), &1000.into()), "{line}");
    within(&line, 256).await;
    assert_eq!(table.rows().await, Vec::<String>::new());
}

/// The set of keys grows by doubling: the worst is just after.
#[tokio::test]
async fn h80_as_many_keys_as_are_admitted_stay_within_the_limit() {
    for (limit, keys) in [(96, 230_000), (128, 460_000), (160, 560_000)] {
        let place = place(limit);
        let table = twenty_files(&place).await;
        delete(&table, ("id", 1), keys, keys, longs).await;
        let line = compact(&place).await;
        if line["result"] == "refused" {
            assert_eq!(line["refusal"], "too-many-deletes", "{line}");
        }
        within(&line, limit).await;
    }
}

#[tokio::test]
async fn h80_three_million_keys_are_refused_before_they_are_read() {
    let place = place(128);
    let table = twenty_files(&place).await;
    delete(&table, ("id", 1), 3_000_000, 1_000_000, longs).await;
    let rows = table.head().await;
    let line = compact(&place).await;
    assert_eq!((&line["result"], &line["refusal"]), (&"refused".into(), &"too-many-deletes".into()), "{line}");
    assert!(
        line["reason"].to_string().contains("3000000 equality deletes") || line.to_string().contains("3000000 equality deletes"),
        "{line}"
    );
    within(&line, 32).await;
    assert_eq!(table.head().await, rows, "nothing was committed");
}

/// Keys of 1000 characters that compress a hundredfold: their files do not tell
/// what they take in memory.
#[tokio::test]
async fn h80_wide_keys_that_compress_well_are_refused_while_they_are_read() {
    let place = place(128);
    let table = twenty_files(&place).await;
    let wide = |range: std::ops::Range<i64>| -> ArrayRef {
        Arc::new(StringArray::from_iter_values(range.map(|n| format!("{}{n:08}", "k".repeat(992)))))
    };
    delete(&table, ("v", 2), 200_000, 100_000, wide).await;
    let line = compact(&place).await;
    assert_eq!((&line["result"], &line["refusal"]), (&"refused".into(), &"too-many-deletes".into()), "{line}");
    within(&line, 128).await;
}

#[tokio::test]
async fn h80_wide_keys_that_fit_are_applied_within_the_limit() {
    let place = place(256);
    let table = twenty_files(&place).await;
    let wide = |range: std::ops::Range<i64>| -> ArrayRef {
        let text = |n: i64| if n % 100 == 0 { format!("{:0>6}", n / 100) } else { format!("{}{n:08}", "k".repeat(492)) };
        Arc::new(StringArray::from_iter_values(range.map(text)))
    };
    delete(&table, ("v", 2), 50_000, 25_000, wide).await;
    let line = compact(&place).await;
    assert_eq!((&line["result"], &line["rows_deleted"]), (&"committed".into(), &500.into()), "{line}");
    within(&line, 256).await;
    assert_eq!(table.rows().await.len(), 500);
}

/// Two sets of key columns share one budget.
#[tokio::test]
async fn h80_deletes_by_several_columns_share_the_limit() {
    let place = place(96);
    let table = twenty_files(&place).await;
    delete(&table, ("id", 1), 150_000, 150_000, longs).await;
    let wide = |range: std::ops::Range<i64>| -> ArrayRef {
        Arc::new(StringArray::from_iter_values(range.map(|n| format!("{}{n:08}", "k".repeat(92)))))
    };
    delete(&table, ("v", 2), 150_000, 150_000, wide).await;
    let line = compact(&place).await;
    if line["result"] == "refused" {
        assert_eq!(line["refusal"], "too-many-deletes", "{line}");
    }
    within(&line, 96).await;
}
