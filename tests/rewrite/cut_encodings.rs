//! Deletes in pages of every encoding: only the pages that hold them are decoded.

use afterwrite::lake::Written;
use afterwrite::lake::iceberg::rewrite;
use afterwrite::lake::iceberg::verify;
use afterwrite::model::plan::{AttemptId, Path};
use arrow_select::concat::concat_batches;
use bytes::Bytes;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder};
use parquet::basic::{Compression, Encoding};
use parquet::file::metadata::{ParquetMetaDataOptions, ParquetMetaDataReader};
use parquet::file::properties::{WriterProperties, WriterVersion};
use parquet::schema::types::ColumnPath;

use crate::fixture::Watch;
use crate::reading::Lake;
use crate::reading::value::{Value, batch, rows};

const ROWS: i64 = 400;
/// Rows of a page.
const PAGE: i64 = 50;

/// Every physical type that has such encodings, flat and below lists and structs.
fn table() -> Lake {
    Lake::new(serde_json::json!([
        {"id": 1, "name": "n", "required": true, "type": "long"},
        {"id": 2, "name": "i", "required": false, "type": "int"},
        {"id": 3, "name": "f", "required": false, "type": "float"},
        {"id": 4, "name": "d", "required": false, "type": "double"},
        {"id": 5, "name": "s", "required": false, "type": "string"},
        {"id": 6, "name": "u", "required": false, "type": "fixed[5]"},
        {"id": 7, "name": "b", "required": false, "type": "boolean"},
        {"id": 8, "name": "l", "required": false, "type": {"type": "list", "element-id": 20, "element-required": false, "element": "long"}},
        {"id": 9, "name": "st", "required": false, "type": {"type": "struct", "fields": [
            {"id": 21, "name": "t", "required": false, "type": {"type": "list", "element-id": 22, "element-required": false, "element": "string"}},
        ]}},
    ]))
}

fn row(n: i64) -> Vec<Value> {
    let or_null = |value: Value, every: i64| if n % every == every - 1 { Value::Null } else { value };
    let text = |n: i64| Value::text(&format!("{}text-{}", "p".repeat((n % 4) as usize * 3), n * 7919 % 1000));
    let list = |each: &dyn Fn(i64) -> Value| Value::List((0..n % 4).map(|at| if at == 2 { Value::Null } else { each(n + at) }).collect());
    vec![
        Value::Int(n * n * 31 - 7),
        or_null(Value::Int(n % 100 * if n % 3 == 0 { -1 } else { 1 }), 9),
        or_null(Value::float(f64::from(n as f32 / 8.0)), 5),
        or_null(Value::float(if n % 50 == 0 { -0.0 } else { n as f64 / 16.0 }), 6),
        or_null(text(n), 7),
        or_null(Value::Bytes(format!("{:05}", n * 13 % 99_999).into_bytes()), 8),
        or_null(Value::Bool(n / 20 % 2 == 0), 11),
        or_null(list(&|n| Value::Int(n * 1_000_003)), 10),
        or_null(Value::Struct(vec![or_null(list(&text), 6)]), 13),
    ]
}

/// One column's encoding.
fn set(
    builder: parquet::file::properties::WriterPropertiesBuilder,
    path: &[&str],
    encoding: Encoding,
) -> parquet::file::properties::WriterPropertiesBuilder {
    builder.set_column_encoding(ColumnPath::new(path.iter().map(|part| (*part).to_owned()).collect()), encoding)
}

/// Encodings of numbers, of texts and of fixed bytes.
type Encodings = (Encoding, Encoding, Encoding);

fn properties(version: WriterVersion, (numbers, texts, fixed): Encodings, codec: Compression) -> WriterProperties {
    let builder = WriterProperties::builder()
        .set_writer_version(version)
        .set_dictionary_enabled(false)
        .set_data_page_row_count_limit(PAGE as usize)
        .set_write_batch_size(PAGE as usize)
        .set_compression(codec);
    let builder = [&["n"][..], &["i"], &["l", "list", "element"]].iter().fold(builder, |b, path| set(b, path, numbers));
    let builder = [&["s"][..], &["st", "t", "list", "element"]].iter().fold(builder, |b, path| set(b, path, texts));
    let builder = [&["f"][..], &["d"]].iter().fold(builder, |b, path| set(b, path, Encoding::BYTE_STREAM_SPLIT));
    let builder = set(builder, &["u"], fixed);
    set(builder, &["b"], if version == WriterVersion::PARQUET_2_0 { Encoding::RLE } else { Encoding::PLAIN }).build()
}

async fn rewritten(lake: &Lake) -> Written {
    let (table, plan) = (lake.table().await, lake.plan());
    let written = rewrite::run(&table, &plan, &AttemptId("a1.0".into()), &Watch::default()).await.unwrap();
    let proof = verify::run(&table, &plan, &written).await.unwrap();
    assert_eq!(proof.rows, written.outputs.iter().map(|output| output.records).sum::<u64>());
    written
}

/// Pages by column and encoding.
type Pages = Vec<(String, Encoding, i32)>;

fn read(lake: &Lake, written: &Written) -> (Vec<Vec<Value>>, Pages) {
    let (mut all, mut pages) = (Vec::new(), Vec::new());
    for output in &written.outputs {
        let bytes = Bytes::from(std::fs::read(output.path.trim_start_matches("file://")).unwrap());
        let options = ArrowReaderOptions::new().with_schema(lake.arrow());
        let metadata = ArrowReaderMetadata::load(&bytes, options).unwrap();
        let reader = ParquetRecordBatchReaderBuilder::new_with_metadata(bytes.clone(), metadata).build().unwrap();
        let batches: Vec<_> = reader.map(|batch| batch.unwrap()).collect();
        all.extend(rows(&concat_batches(&lake.arrow(), &batches).unwrap()));
        let whole = ParquetMetaDataOptions::new().with_encoding_stats_as_mask(false);
        let footer = ParquetMetaDataReader::new().with_metadata_options(Some(whole)).parse_and_finish(&bytes).unwrap();
        for chunk in footer.row_groups().iter().flat_map(|group| group.columns()) {
            let stats = chunk.page_encoding_stats().unwrap();
            pages.extend(stats.iter().map(|s| (chunk.column_path().string(), s.encoding, s.count)));
        }
    }
    (all, pages)
}

/// At page borders, in runs, a whole page, and one alone.
fn dead() -> Vec<i64> {
    let mut dead: Vec<i64> = vec![0, PAGE - 1, PAGE, 2 * PAGE - 1, 2 * PAGE, 230, 231, 232];
    dead.extend(5 * PAGE..6 * PAGE);
    dead
}

#[tokio::test]
async fn pages_of_any_encoding_are_cut_and_only_they_are_decoded() {
    use Encoding::{BYTE_STREAM_SPLIT, DELTA_BINARY_PACKED, DELTA_BYTE_ARRAY, DELTA_LENGTH_BYTE_ARRAY};
    let encodings =
        [(DELTA_BINARY_PACKED, DELTA_LENGTH_BYTE_ARRAY, DELTA_BYTE_ARRAY), (BYTE_STREAM_SPLIT, DELTA_BYTE_ARRAY, BYTE_STREAM_SPLIT)];
    for version in [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0] {
        for (encoding, codec) in encodings.into_iter().zip([Compression::SNAPPY, Compression::ZSTD(Default::default())]) {
            for by_key in [false, true] {
                let mut lake = table();
                let rows: Vec<Vec<Value>> = (0..ROWS).map(row).collect();
                let path = lake.append_batch(1, &batch(&lake.arrow(), &rows), properties(version, encoding, codec));
                lake.append_batch(1, &batch(&lake.arrow(), &rows), properties(version, encoding, codec));
                if by_key {
                    let keys: Vec<Vec<Value>> = dead().iter().map(|n| vec![row(*n)[0].clone()]).collect();
                    let key = crate::reading::field("n", arrow_schema::DataType::Int64, false, 1);
                    lake.delete_keys(2, vec![key], &keys);
                } else {
                    lake.delete_positions(2, &dead().iter().map(|n| (path.as_str(), *n)).collect::<Vec<_>>());
                }
                let written = rewritten(&lake).await;
                assert_eq!(written.path, Path::RePack, "{}", written.path_reason);
                let live = |cut: bool| {
                    rows.iter().enumerate().filter(move |(n, _)| !cut || !dead().contains(&(*n as i64))).map(|(_, row)| row.clone())
                };
                let expected: Vec<Vec<Value>> = live(true).chain(live(by_key)).collect();
                assert_eq!(written.rows_deleted, if by_key { 2 } else { 1 } * dead().len() as u64);
                let (found, pages) = read(&lake, &written);
                assert!(found == expected, "{version:?} {encoding:?}");
                // of eight pages four are cut and one is gone; the other file's stay
                let whole: i32 = pages.iter().filter(|(path, found, _)| path == "n" && *found == encoding.0).map(|(.., count)| count).sum();
                assert_eq!(whole, if by_key { 6 } else { 3 + 8 }, "{pages:?}");
                assert!(pages.iter().any(|(path, found, _)| path == "n" && *found == Encoding::PLAIN));
            }
        }
    }
}

#[tokio::test]
async fn a_file_without_deletes_keeps_its_encodings_beside_one_with_them() {
    let encoding = (Encoding::DELTA_BINARY_PACKED, Encoding::DELTA_BYTE_ARRAY, Encoding::DELTA_BYTE_ARRAY);
    let mut lake = table();
    let rows: Vec<Vec<Value>> = (0..ROWS).map(row).collect();
    let rows = batch(&lake.arrow(), &rows);
    let first = lake.append_batch(1, &rows, WriterProperties::builder().build());
    lake.append_batch(1, &rows, properties(WriterVersion::PARQUET_2_0, encoding, Compression::SNAPPY));
    lake.delete_positions(2, &[(&first, 3)]);
    let written = rewritten(&lake).await;
    assert_eq!(written.path, Path::RePack, "{}", written.path_reason);
    let (found, pages) = read(&lake, &written);
    assert_eq!(found.len(), 2 * ROWS as usize - 1);
    let whole: i32 = pages.iter().filter(|(path, found, _)| path == "s" && *found == encoding.1).map(|(.., count)| count).sum();
    assert_eq!(whole, 8);
}
