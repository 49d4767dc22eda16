//! Outputs with planted faults in what readers skip by (statistics, bloom filters,
//! bounds, page indexes), and rewrites that leave out other rows than the deletes
//! name: rows and counts agree, and the proof must not.

use std::collections::HashMap;
use std::fs::{self, File};
use std::sync::Arc;

use afterwrite::lake::iceberg::rewrite;
use afterwrite::lake::iceberg::verify;
use afterwrite::lake::{Error, Written};
use afterwrite::model::plan::{AttemptId, Path};
use arrow_array::{BooleanArray, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use arrow_select::concat::concat_batches;
use arrow_select::filter::filter_record_batch;
use bytes::Bytes;
use iceberg::spec::{DataContentType, Datum};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::bloom_filter::Sbbf;
use parquet::file::metadata::{ColumnChunkMetaData, ColumnChunkMetaDataBuilder};
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::statistics::Statistics;

use crate::fixture::Watch;
use crate::reading::proving::{Rewrite, failure, prove, re_encode, splice, summary};
use crate::reading::value::{Value, batch, row};
use crate::reading::{Lake, NullCounts, describe, write};
use crate::rewrite::faults::tampered;

/// `id long, d double`.
fn floats(values: &[f64]) -> Lake {
    let mut lake = Lake::new(serde_json::json!([
        {"id": 1, "name": "id", "required": false, "type": "long"},
        {"id": 2, "name": "d", "required": false, "type": "double"},
    ]));
    let rows: Vec<Vec<Value>> = (1..).zip(values).map(|(id, v)| vec![Value::Int(id), Value::float(*v)]).collect();
    lake.append(1, &rows);
    lake
}

/// Changes the footer's entry of the second column, without a trace in the size.
fn restate(path: &str, change: impl Fn(ColumnChunkMetaDataBuilder) -> ColumnChunkMetaDataBuilder) -> u64 {
    tampered(path, |footer| {
        let groups = footer.row_groups().iter().map(|group| {
            let mut columns = group.columns().to_vec();
            columns[1] = change(columns[1].clone().into_builder()).build().unwrap();
            group.clone().into_builder().set_column_metadata(columns).build().unwrap()
        });
        let groups = groups.collect();
        footer.into_builder().set_row_groups(groups).build()
    });
    fs::metadata(local(path)).unwrap().len()
}

fn local(path: &str) -> &str {
    path.trim_start_matches("file://")
}

/// An output described anew after its file was changed.
fn again(rewrite: Rewrite) -> Rewrite {
    let rows = rewrite.outputs[0].record_count();
    let path = rewrite.outputs[0].file_path();
    Rewrite { outputs: vec![describe(path, DataContentType::Data, &NullCounts(Default::default(), rows)).build().unwrap()], ..rewrite }
}

fn doubles(min: f64, max: f64) -> impl Fn(ColumnChunkMetaDataBuilder) -> ColumnChunkMetaDataBuilder {
    move |chunk| chunk.set_statistics(Statistics::double(Some(min), Some(max), None, Some(0), false))
}

/// A table whose only file is changed in its footer before it is described.
fn stated(values: &[f64], min: f64, max: f64) -> Lake {
    let mut lake = floats(values);
    let path = lake.data[0].file.file_path().to_owned();
    restate(&path, doubles(min, max));
    let rows = values.len() as u64;
    lake.data[0].file = describe(&path, DataContentType::Data, &NullCounts(Default::default(), rows)).build().unwrap();
    lake
}

#[tokio::test]
async fn h114_statistics_of_copied_chunks_are_held_by_their_bits() {
    // given statistics of NaN, as some writers leave them, copied as they are
    let mut lake = stated(&[1.0, f64::NAN, 3.0], f64::NAN, 3.0);
    let rewrite = splice(&mut lake);
    assert_eq!(prove(&lake, rewrite).await.unwrap().rows, 3);
    // and a zero made the other one, which leaves out the rows that are below it
    let mut lake = stated(&[-0.0, 1.0], -0.0, 1.0);
    let rewrite = splice(&mut lake);
    restate(rewrite.outputs[0].file_path(), doubles(0.0, 1.0));
    let why = failure(&lake, again(rewrite)).await;
    assert!(why.contains("column 1 has other statistics than"), "{why}");
    // and NaN made a value
    let mut lake = stated(&[1.0, f64::NAN, 3.0], f64::NAN, 3.0);
    let rewrite = splice(&mut lake);
    restate(rewrite.outputs[0].file_path(), doubles(2.0, 3.0));
    let why = failure(&lake, again(rewrite)).await;
    assert!(why.contains("column 1 has other statistics than"), "{why}");
}

#[tokio::test]
async fn h114_copied_bounds_that_are_zero_may_only_become_wider() {
    let mut lake = stated(&[-0.0, 0.0], 0.0, -0.0);
    let rewrite = splice(&mut lake);
    restate(rewrite.outputs[0].file_path(), doubles(-0.0, 0.0));
    assert_eq!(prove(&lake, again(rewrite)).await.unwrap().rows, 2);
}

#[tokio::test]
async fn h114_a_zero_of_one_sign_is_not_held_by_a_bound_of_the_other() {
    for path in [Path::ReEncode, Path::RePack, Path::Splice] {
        for (low, high, holds) in [(-0.0, 0.0, true), (0.0, 0.0, false), (-0.0, -0.0, false), (-1.0, f64::NAN, false), (-1.0, 1.0, true)] {
            let mut lake = floats(&[-0.0, 0.0]);
            let (batches, read) = lake.read().await.unwrap();
            let rewrite = match path {
                Path::ReEncode => re_encode(&mut lake, &batches, read),
                Path::RePack => Rewrite { path, read: None, ..re_encode(&mut lake, &batches, read) },
                Path::Splice => splice(&mut lake),
            };
            let mut builder = describe(rewrite.outputs[0].file_path(), DataContentType::Data, &NullCounts(Default::default(), 2));
            let bounds = (HashMap::from([(2, Datum::double(low))]), HashMap::from([(2, Datum::double(high))]));
            let outputs = vec![builder.lower_bounds(bounds.0).upper_bounds(bounds.1).build().unwrap()];
            let found = prove(&lake, Rewrite { outputs, ..rewrite }).await;
            assert_eq!(found.is_ok(), holds, "{path:?} {low}..{high}: {found:?}");
        }
    }
}

/// Three row groups with bloom filters.
fn filtered() -> WriterProperties {
    WriterProperties::builder().set_bloom_filter_enabled(true).set_bloom_filter_ndv(100).set_max_row_group_row_count(Some(100)).build()
}

fn chunk(path: &str, group: usize, column: usize) -> ColumnChunkMetaData {
    let reader = SerializedFileReader::new(File::open(local(path)).unwrap()).unwrap();
    reader.metadata().row_group(group).column(column).clone()
}

/// Changes the last byte of a chunk's bloom filter that has a bit, to none.
fn deny(path: &str, group: usize, column: usize) {
    let chunk = chunk(path, group, column);
    let start = chunk.bloom_filter_offset().unwrap() as usize;
    let end = start + chunk.bloom_filter_length().unwrap() as usize;
    let mut bytes = fs::read(local(path)).unwrap();
    let at = (start + 20..end).rev().find(|at| bytes[*at] != 0).unwrap();
    bytes[at] = 0;
    fs::write(local(path), bytes).unwrap();
}

fn numbered(lake: &mut Lake, properties: WriterProperties) {
    let rows: Vec<Vec<Value>> =
        (0..300).map(|id| if id % 7 == 3 { vec![Value::Int(id), Value::Null] } else { row(id, &format!("t{id}")) }).collect();
    let rows = batch(&lake.arrow(), &rows);
    lake.append_batch(1, &rows, properties);
}

#[tokio::test]
async fn h114_a_copied_bloom_filter_is_that_of_the_input() {
    let given = || {
        let mut lake = Lake::id_v();
        numbered(&mut lake, filtered());
        let rewrite = splice(&mut lake);
        (lake, rewrite)
    };
    let (lake, rewrite) = given();
    assert!(chunk(rewrite.outputs[0].file_path(), 2, 1).bloom_filter_offset().is_some());
    assert_eq!(prove(&lake, rewrite).await.unwrap().rows, 300);
    let (lake, rewrite) = given();
    deny(rewrite.outputs[0].file_path(), 1, 1);
    let why = failure(&lake, rewrite).await;
    assert!(why.contains("the bloom filter of \"v\" is not that of"), "{why}");
    // the filter of another chunk, whole and well
    let (lake, rewrite) = given();
    let path = rewrite.outputs[0].file_path().to_owned();
    let other = chunk(&path, 0, 0);
    let place = (other.bloom_filter_offset(), other.bloom_filter_length());
    // filters lie behind the row groups: they are kept by a footer written after all else
    let whole = fs::read(local(&path)).unwrap();
    let bytes = Bytes::from(whole.clone());
    let footer = parquet::file::metadata::ParquetMetaDataReader::new().parse_and_finish(&bytes).unwrap();
    let groups = footer.row_groups().iter().map(|group| {
        let mut columns = group.columns().to_vec();
        columns[1] = columns[1].clone().into_builder().set_bloom_filter_offset(place.0).set_bloom_filter_length(place.1).build().unwrap();
        group.clone().into_builder().set_column_metadata(columns).build().unwrap()
    });
    let groups = groups.collect();
    let mut out = whole;
    let footer = footer.into_builder().set_row_groups(groups).set_column_index(None).set_offset_index(None).build();
    parquet::file::metadata::ParquetMetaDataWriter::new(&mut out, &footer).finish().unwrap();
    fs::write(local(&path), out).unwrap();
    let why = failure(&lake, again(rewrite)).await;
    assert!(why.contains("the bloom filter of \"v\" is not that of"), "{why}");
}

/// All rows in one file with bloom filters.
fn re_encoded_with_filters(lake: &mut Lake, batches: &[RecordBatch]) -> Rewrite {
    let rows = concat_batches(&batches[0].schema(), batches).unwrap();
    let path = lake.path("out");
    write(&path, &rows, filtered());
    let file = describe(&path, DataContentType::Data, &NullCounts::of(&rows)).build().unwrap();
    let count = rows.num_rows() as u64;
    Rewrite { path: Path::ReEncode, outputs: vec![file], read: Some(summary(batches, count, 0)), rows_in: count, rows_deleted: 0 }
}

#[tokio::test]
async fn h114_a_bloom_filter_that_denies_a_value_is_caught() {
    let mut lake = Lake::id_v();
    numbered(&mut lake, WriterProperties::builder().build());
    let (batches, _) = lake.read().await.unwrap();
    let rewrite = re_encoded_with_filters(&mut lake, &batches);
    assert_eq!(prove(&lake, rewrite).await.unwrap().rows, 300);
    for (group, column) in [(0, 0), (2, 1)] {
        let rewrite = re_encoded_with_filters(&mut lake, &batches);
        deny(rewrite.outputs[0].file_path(), group, column);
        let why = failure(&lake, rewrite).await;
        assert!(
            why.ends_with(&format!("row group {group} column \"{}\": its bloom filter denies a value that is there", ["id", "v"][column])),
            "{why}"
        );
    }
    // joined pages have none
    let rewrite = Rewrite { path: Path::RePack, read: None, ..re_encoded_with_filters(&mut lake, &batches) };
    let why = failure(&lake, rewrite).await;
    assert!(why.ends_with("a bloom filter, which joined pages do not have"), "{why}");
    assert!(Sbbf::read_from_column_chunk(&chunk(lake.data[0].file.file_path(), 0, 0), &Bytes::new()).unwrap().is_none());
}

#[tokio::test]
async fn h114_a_rewrite_that_leaves_out_as_many_other_rows_is_caught() {
    let given = |by_key: bool| {
        let mut lake = Lake::id_v();
        let path = lake.append(1, &[row(1, "a"), row(2, "b"), row(3, "c")]);
        lake.append(1, &[row(4, "d")]);
        if by_key {
            lake.delete_ids(2, &[Some(2)])
        } else {
            lake.delete_positions(2, &[(&path, 1)])
        };
        lake
    };
    for by_key in [true, false] {
        let mut lake = given(by_key);
        let (batches, read) = lake.read().await.unwrap();
        assert_eq!((read.rows_in, read.rows_deleted), (4, 1));
        let rewrite = re_encode(&mut lake, &batches, read);
        assert_eq!(prove(&lake, rewrite).await.unwrap().rows, 3);
        // the third row is gone in place of the second, and the reader says that it was one
        let mut whole = given(by_key);
        whole.deletes.clear();
        let (batches, _) = whole.read().await.unwrap();
        let keep = BooleanArray::from(vec![true, true, false]);
        let wrong = [filter_record_batch(&batches[0], &keep).unwrap(), batches[1].clone()];
        let rewrite = re_encode(&mut lake, &wrong, summary(&wrong, 4, 1));
        let why = failure(&lake, rewrite).await;
        assert_eq!(why, "column 1: the rows that were written are not those that no delete names", "by key: {by_key}");
    }
}

#[tokio::test]
async fn h114_deletes_by_key_are_known_twice_in_files_without_ids() {
    let given = || {
        let mut lake = Lake::id_v();
        let mapping = r#"[{"field-id": 1, "names": ["id", "ident"]}, {"field-id": 2, "names": ["v"]}]"#;
        lake.properties.insert("schema.name-mapping.default".into(), mapping.into());
        let bare = [Field::new("v", DataType::Utf8, true), Field::new("ident", DataType::Int64, true)];
        let rows = [[Value::text("a"), Value::Int(1)], [Value::text("b"), Value::Int(2)], [Value::text("c"), Value::Int(3)]];
        let rows: Vec<Vec<Value>> = rows.into_iter().map(Vec::from).collect();
        lake.append_batch(1, &batch(&Arc::new(Schema::new(bare.to_vec())), &rows), WriterProperties::builder().build());
        lake.delete_ids(2, &[Some(2)]);
        lake
    };
    let mut lake = given();
    let (batches, read) = lake.read().await.unwrap();
    let rewrite = re_encode(&mut lake, &batches, read);
    assert_eq!(prove(&lake, rewrite).await.unwrap().rows, 2);
    let wrong = [batch(&batches[0].schema(), &[row(1, "a"), row(2, "b")])];
    let rewrite = re_encode(&mut lake, &wrong, summary(&wrong, 3, 2));
    let why = failure(&lake, rewrite).await;
    assert_eq!(why, "2 rows were left out, the deletes name 1");
    let rewrite = re_encode(&mut lake, &wrong, summary(&wrong, 3, 1));
    let why = failure(&lake, rewrite).await;
    assert_eq!(why, "column 1: the rows that were written are not those that no delete names");
}

fn rows_of(path: &str) -> Option<RecordBatch> {
    let bytes = Bytes::from(fs::read(local(path)).unwrap());
    let reader = ParquetRecordBatchReaderBuilder::try_new(bytes).ok()?;
    let schema = reader.schema().clone();
    let batches: Vec<RecordBatch> = reader.build().ok()?.collect::<Result<_, _>>().ok()?;
    concat_batches(&schema, &batches).ok()
}

/// Flips a bit in every other byte of an output, one after the other; how many faults were
/// seen, and how many changed no row.
async fn flipped(lake: &Lake, written: &Written) -> (usize, usize) {
    let (table, plan) = (lake.table().await, lake.plan());
    let path = &written.outputs[0].path;
    let (good, rows) = (fs::read(local(path)).unwrap(), rows_of(path).unwrap());
    let (mut seen, mut harmless) = (0, 0);
    for at in (0..good.len()).step_by(2) {
        let mut bad = good.clone();
        bad[at] ^= 1 << (at / 2 % 8);
        fs::write(local(path), &bad).unwrap();
        match verify::run(&table, &plan, written).await {
            Ok(_) => {
                // columns are known by their ids: names are not compared
                let found = rows_of(path).map(|rows| rows.columns().to_vec());
                assert!(found.as_deref() == Some(rows.columns()), "{:?}: byte {at} of {}", written.path, good.len());
                harmless += 1;
            }
            Err(Error::Proof(_) | Error::Refused(_) | Error::Stopped(_)) => seen += 1,
            Err(other) => panic!("{other}"),
        }
    }
    fs::write(local(path), good).unwrap();
    (seen, harmless)
}

#[tokio::test]
async fn h114_a_bit_flipped_anywhere_in_an_output_is_seen_or_changes_no_row() {
    // re-packed with and without deletes, and encoded anew
    for (deletes, filtered) in [(false, false), (true, false), (true, true)] {
        let mut lake = Lake::id_v();
        for from in [0, 30] {
            let rows: Vec<Vec<Value>> = (from..from + 30)
                .map(|id| if id % 9 == 4 { vec![Value::Int(id), Value::Null] } else { row(id, &format!("v{}", id % 4)) })
                .collect();
            lake.append(1, &rows);
        }
        if deletes {
            lake.delete_ids(2, &[Some(3), Some(40)]);
        }
        if filtered {
            lake.properties.insert("write.parquet.bloom-filter-enabled.column.v".into(), "true".into());
            lake.properties.insert("write.parquet.bloom-filter-max-bytes".into(), "64".into());
        }
        let (table, plan) = (lake.table().await, lake.plan());
        let written = rewrite::run(&table, &plan, &AttemptId("a1.0".into()), &Watch::default()).await.unwrap();
        assert_eq!(written.path, if filtered { Path::ReEncode } else { Path::RePack });
        assert!(verify::run(&table, &plan, &written).await.is_ok());
        let (seen, harmless) = flipped(&lake, &written).await;
        println!("{:?}: {seen} seen, {harmless} harmless", written.path);
        assert!(seen > harmless, "{:?}: {seen} seen, {harmless} harmless", written.path);
    }
}
