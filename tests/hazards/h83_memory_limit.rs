//! The process grows by no more than the memory limit, whatever the input: told
//! by the peak of the binary, less that of a compaction of next to nothing.

use std::sync::Arc;

use arrow_array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray};
use arrow_schema::SchemaRef;
use iceberg::arrow::schema_to_arrow_schema;
use iceberg::spec::{DataContentType, DataFileBuilder, DataFileFormat, NestedField, PrimitiveType, Schema, Struct, Type};
use serde_json::Value;

use crate::fixture::files::{FILE_PATH, POS, batches_file};
use crate::fixture::process::Place;
use crate::fixture::{File, Table, row};

const MIB: u64 = 1 << 20;

/// Compacts a table; the line that tells of it.
async fn compact(place: &Place) -> Value {
    let ended = place.run(&["compact", "lake.ns.t", "--json"]).await;
    assert_eq!(ended.lines().len(), 1, "{ended:?}");
    ended.lines().remove(0)
}

fn place(limit_mib: u64) -> Place {
    Place::new(&format!("[defaults]\nmemory_limit = \"{limit_mib}MiB\"\n"))
}

/// Bytes that the process takes before it has anything to do.
async fn base() -> u64 {
    let place = place(64);
    let table = Table::plain().in_sqlite(place.path()).create().await;
    table.append([row(1, "a", 0)]).await;
    table.append([row(2, "b", 0)]).await;
    peak(&compact(&place).await, "committed")
}

fn peak(line: &Value, result: &str) -> u64 {
    assert_eq!(line["result"], result, "{line}");
    line["peak_memory"].as_u64().unwrap()
}

/// Checks how a compaction ended: refused by that name, or done and grown by no
/// more than so many MiB.
async fn within(line: &Value, result: &str, refusal: &str, limit_mib: u64) {
    if result == "refused" {
        assert_eq!((&line["result"], &line["refusal"]), (&result.into(), &refusal.into()), "{line}");
        return;
    }
    let grown = peak(line, result).saturating_sub(base().await) / MIB;
    assert!(grown <= limit_mib, "grew by {grown} MiB: {line}");
}

fn batch(schema: &SchemaRef, columns: Vec<ArrayRef>) -> RecordBatch {
    RecordBatch::try_new(Arc::clone(schema), columns).unwrap()
}

fn arrow(schema: &Schema) -> SchemaRef {
    Arc::new(schema_to_arrow_schema(schema).unwrap())
}

async fn table(place: &Place, columns: &[(&str, PrimitiveType)]) -> (Table, SchemaRef) {
    let table = Table::plain().columns(columns).in_sqlite(place.path()).create().await;
    let schema = arrow(table.load().await.loaded.metadata.current_schema());
    (table, schema)
}

async fn append(table: &Table, batches: Vec<RecordBatch>) {
    table.change().append_batches(0, Struct::empty(), batches).commit().await;
}

/// Numbers without a pattern, always the same.
fn noise(seed: u64) -> impl Iterator<Item = u64> {
    let mut state = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    std::iter::repeat_with(move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    })
}

#[tokio::test]
async fn h83_three_hundred_columns_stay_within_the_limit() {
    for (limit, result) in [(64, "committed"), (512, "committed")] {
        let place = place(limit);
        let names: Vec<String> = (0..300).map(|n| format!("c{n}")).collect();
        let columns: Vec<(&str, PrimitiveType)> = names.iter().map(|n| (n.as_str(), PrimitiveType::Double)).collect();
        let (table, schema) = table(&place, &columns).await;
        for file in 0..3 {
            let column =
                |c: u64| -> ArrayRef { Arc::new(Float64Array::from_iter_values(noise(file * 1000 + c).take(20_000).map(|n| n as f64))) };
            append(&table, vec![batch(&schema, (0..300).map(column).collect())]).await;
        }
        let line = compact(&place).await;
        within(&line, result, "too-large-for-memory", limit).await;
    }
}

/// At the default limit.
#[tokio::test]
async fn h83_five_thousand_columns_of_ten_rows_are_compacted() {
    let place = Place::new("");
    let names: Vec<String> = (0..5_000).map(|n| format!("c{n}")).collect();
    let columns: Vec<(&str, PrimitiveType)> = names.iter().map(|n| (n.as_str(), PrimitiveType::Long)).collect();
    let (table, schema) = table(&place, &columns).await;
    for file in 0..3 {
        let column = |c: i64| -> ArrayRef { Arc::new(Int64Array::from_iter_values((0..10).map(|row| file * 1_000_000 + c * 10 + row))) };
        append(&table, vec![batch(&schema, (0..5_000).map(column).collect())]).await;
    }
    let line = compact(&place).await;
    within(&line, "committed", "", 512).await;
    assert_eq!((line["rows"].as_u64(), line["files_out"].as_u64()), (Some(30), Some(1)));
}

#[tokio::test]
async fn h83_a_row_group_larger_than_the_limit_stays_within_it() {
    let place = place(256);
    let (table, schema) = table(&place, &[("text", PrimitiveType::String)]).await;
    let text = |seed: u64| -> ArrayRef {
        let line = |n: u64| format!("{n:016x}").repeat(64);
        Arc::new(StringArray::from_iter_values(noise(seed).take(8 << 10).map(line)))
    };
    append(&table, (0..40).map(|seed| batch(&schema, vec![text(seed)])).collect()).await;
    append(&table, vec![batch(&schema, vec![text(99)])]).await;
    let line = compact(&place).await;
    within(&line, "committed", "", 256).await;
}

#[tokio::test]
async fn h83_cells_of_64_mib_are_rewritten_within_a_limit_that_holds_them_or_refused() {
    for (limit, result) in [(64, "refused"), (768, "committed")] {
        let place = place(limit);
        let (table, schema) = table(&place, &[("id", PrimitiveType::Long), ("text", PrimitiveType::String)]).await;
        for file in 0..2i64 {
            let cells: ArrayRef =
                Arc::new(StringArray::from_iter_values([0u8, 1].map(|n| char::from(b'a' + n).to_string().repeat(64 << 20))));
            append(&table, vec![batch(&schema, vec![Arc::new(Int64Array::from(vec![file, file + 10])), cells])]).await;
        }
        let line = compact(&place).await;
        within(&line, result, "too-large-for-memory", limit).await;
    }
}

/// Deletes the first `count` rows of a file.
async fn delete_first(table: &Table, file: &File, count: i64) {
    let schema = arrow(
        &Schema::builder()
            .with_fields([
                NestedField::required(FILE_PATH, "file_path", Type::Primitive(PrimitiveType::String)).into(),
                NestedField::required(POS, "pos", Type::Primitive(PrimitiveType::Long)).into(),
            ])
            .build()
            .unwrap(),
    );
    let piece = |from: i64| {
        let to = (from + 100_000).min(count);
        let paths: ArrayRef = Arc::new(StringArray::from_iter_values((from..to).map(|_| &file.path)));
        batch(&schema, vec![paths, Arc::new(Int64Array::from_iter_values(from..to))])
    };
    let pieces: Vec<RecordBatch> = (0..count).step_by(100_000).map(piece).collect();
    let base = table.load().await;
    let path = format!("{}/data/deletes.parquet", base.view.location);
    let written = batches_file(&base, path, 0, Struct::empty(), &pieces).await;
    let data = DataFileBuilder::default()
        .file_path(written.path.clone())
        .file_format(DataFileFormat::Parquet)
        .partition(Struct::empty())
        .partition_spec_id(0)
        .content(DataContentType::PositionDeletes)
        .record_count(written.data.record_count())
        .file_size_in_bytes(written.data.file_size_in_bytes())
        .build()
        .unwrap();
    table.change().add_delete(File { data, ..written }).commit().await;
}

#[tokio::test]
async fn h80_five_million_position_deletes_stay_within_the_limit() {
    let place = place(128);
    let (table, schema) = table(&place, &[("id", PrimitiveType::Long)]).await;
    let numbers = |from: i64| batch(&schema, vec![Arc::new(Int64Array::from_iter_values(from..from + 5_000_010))]);
    let first = table.change().append_batches(0, Struct::empty(), vec![numbers(0)]).commit().await;
    append(&table, vec![numbers(6_000_000)]).await;
    delete_first(&table, &first.data[0], 5_000_000).await;
    let line = compact(&place).await;
    within(&line, "committed", "", 128).await;
    assert_eq!((line["rows"].as_u64(), line["rows_deleted"].as_u64()), (Some(5_000_020), Some(5_000_000)));
}
