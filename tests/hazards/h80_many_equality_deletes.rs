//! Equality deletes by the million, against the memory of the whole process: done
//! within the limit, or refused by name within the limit, never killed.

use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use iceberg::arrow::schema_to_arrow_schema;
use iceberg::spec::{DataContentType, DataFileBuilder, DataFileFormat, Struct};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;
use serde_json::Value;
use tokio::sync::OnceCell;

use crate::fixture::process::Place;
use crate::fixture::{File, Table, row};

const MIB: u64 = 1 << 20;
/// Rows of a batch of keys.
const PIECE: i64 = 50_000;

fn place(limit_mib: u64) -> Place {
    Place::new(&format!("[defaults]\nmemory_limit = \"{limit_mib}MiB\"\n[budget]\nconcurrent_jobs = 1\n"))
}

/// How a compaction ended, and the most memory that its process had.
struct Done {
    line: Value,
    peak: u64,
}

async fn compact(place: &Place) -> Done {
    let mut command = place.command(&["compact", "lake.ns.t", "--json"]);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut peak = 0;
    // a refusal tells of no peak: the system does, as long as the process lives
    while child.try_wait().unwrap().is_none() {
        peak = peak.max(most_resident(child.id()));
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let out = String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap();
    let line: Value = serde_json::from_str(out.trim()).unwrap_or_else(|e| panic!("{e}: {out}"));
    Done { peak: line["peak_memory"].as_u64().unwrap_or(0).max(peak), line }
}

fn most_resident(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    line.and_then(|l| l.trim().trim_end_matches(" kB").parse::<u64>().ok()).map_or(0, |kib| kib << 10)
}

/// Bytes that the process takes before it has anything to do.
async fn base() -> u64 {
    static BASE: OnceCell<u64> = OnceCell::const_new();
    let measure = async || {
        let place = place(64);
        let table = Table::plain().in_sqlite(place.path()).create().await;
        table.append([row(1, "a", 0)]).await;
        table.append([row(2, "b", 0)]).await;
        compact(&place).await.peak
    };
    *BASE.get_or_init(measure).await
}

impl Done {
    /// The process grew by no more than so many MiB, however it ended.
    async fn within(&self, limit_mib: u64) {
        let base = base().await;
        assert!(base > MIB && self.peak >= base / 2, "{base} {}", self.peak);
        let grown = self.peak.saturating_sub(base) / MIB;
        assert!(grown <= limit_mib, "grew by {grown} of {limit_mib} MiB: {}", self.line);
    }

    fn committed(&self, rows_deleted: u64) {
        assert_eq!((&self.line["result"], &self.line["rows_deleted"]), (&"committed".into(), &rows_deleted.into()), "{}", self.line);
    }

    fn refused(&self) -> &str {
        assert_eq!((&self.line["result"], &self.line["refusal"]), (&"refused".into(), &"too-many-deletes".into()), "{}", self.line);
        self.line["detail"].as_str().unwrap()
    }
}

/// `keys` deletes by one column, in files of `a_file` keys each, written compressed;
/// the bytes of the files.
async fn delete(table: &Table, column: (&str, i32), keys: i64, a_file: i64, key: impl Fn(std::ops::Range<i64>) -> ArrayRef) -> u64 {
    let base = table.load().await;
    let schema = Arc::new(schema_to_arrow_schema(base.loaded.metadata.current_schema()).unwrap());
    let schema = Arc::new(schema.project(&[schema.index_of(column.0).unwrap()]).unwrap());
    let mut written = 0;
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
        written += bytes.len() as u64;
        let path = format!("{}/data/deletes-{}-{from}.parquet", base.view.location, column.0);
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
    written
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
    let done = compact(&place).await;
    done.committed(1000);
    done.within(256).await;
    assert_eq!(table.rows().await, Vec::<String>::new());
}

/// A set of keys grows by doubling: the worst is just after.
#[tokio::test]
async fn h80_as_many_keys_as_are_admitted_stay_within_the_limit() {
    for (limit, keys) in [(96, 230_000), (192, 700_000)] {
        let place = place(limit);
        let table = twenty_files(&place).await;
        delete(&table, ("id", 1), keys, keys, longs).await;
        let done = compact(&place).await;
        done.committed(1000);
        done.within(limit).await;
    }
}

#[tokio::test]
async fn h80_three_million_keys_are_refused_before_they_are_read() {
    let place = place(128);
    let table = twenty_files(&place).await;
    delete(&table, ("id", 1), 3_000_000, 1_000_000, longs).await;
    let head = table.head().await;
    let done = compact(&place).await;
    assert!(done.refused().starts_with("3000000 equality deletes need about "), "{}", done.line);
    done.within(40).await;
    assert_eq!(table.head().await, head, "nothing was committed");
}

/// Keys of 1000 characters that compress well: their files do not tell what they
/// take in memory.
#[tokio::test]
async fn h80_wide_keys_that_compress_well_are_refused_while_they_are_read() {
    let place = place(128);
    let table = twenty_files(&place).await;
    let wide = |range: std::ops::Range<i64>| -> ArrayRef {
        Arc::new(StringArray::from_iter_values(range.map(|n| format!("{}{n:08}", "k".repeat(992)))))
    };
    let bytes = delete(&table, ("v", 2), 100_000, 50_000, wide).await;
    // they hold 100 MB, of which their files tell a tenth
    assert!(bytes <= 12 << 20, "{bytes}");
    let done = compact(&place).await;
    assert!(done.refused().starts_with("100000 equality deletes need about "), "{}", done.line);
    done.within(128).await;
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
    let done = compact(&place).await;
    done.committed(500);
    done.within(256).await;
    assert_eq!(table.rows().await.len(), 500);
}

/// Two sets of key columns, each of which would fit, share one limit.
#[tokio::test]
async fn h80_deletes_by_several_columns_share_the_limit() {
    let wide = |range: std::ops::Range<i64>| -> ArrayRef {
        Arc::new(StringArray::from_iter_values(range.map(|n| format!("{}{n:08}", "k".repeat(192)))))
    };
    for (by_id, by_v, fits) in [(200_000, 0, true), (0, 100_000, true), (200_000, 100_000, false)] {
        let place = place(96);
        let table = twenty_files(&place).await;
        delete(&table, ("id", 1), by_id, 200_000, longs).await;
        delete(&table, ("v", 2), by_v, 100_000, wide).await;
        let done = compact(&place).await;
        match fits {
            true => done.committed(if by_id > 0 { 1000 } else { 0 }),
            false => assert!(done.refused().starts_with("300000 equality deletes"), "{}", done.line),
        }
        done.within(96).await;
    }
}
