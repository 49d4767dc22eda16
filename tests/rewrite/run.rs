//! Whole rewrites of tables on disk: chosen, written, and proven by the proof.

use std::sync::Arc;

use afterwrite::lake::iceberg::rewrite::{Detail, run};
use afterwrite::lake::iceberg::verify;
use afterwrite::lake::{Error, Written};
use afterwrite::model::plan::{AttemptId, Path, Plan};
use afterwrite::model::refusal::Refusal;
use arrow_array::{Float64Array, Int64Array, RecordBatch, StringArray};
use iceberg::spec::{DataContentType, Datum};
use parquet::basic::{Compression, Encoding};
use parquet::file::metadata::ParquetMetaDataReader;
use parquet::file::properties::WriterProperties;
use serde_json::json;

use crate::reading::value::{Value, row};
use crate::reading::{Free, Lake, NullCounts, describe};
use crate::rewrite::support::codec;

async fn rewrite(lake: &Lake, plan: &Plan) -> Written {
    let table = lake.table().await;
    let written = run(&table, plan, &AttemptId("a1".into()), &Free).await.unwrap();
    let live = written.rows_in - written.rows_deleted;
    assert_eq!(verify::run(&table, plan, &written).await.unwrap().rows, live);
    assert_eq!(written.outputs.iter().map(|output| output.records).sum::<u64>(), live);
    written
}

#[tokio::test]
async fn small_files_with_deletes_are_repacked_without_the_deleted_rows_and_proven() {
    let mut lake = Lake::id_v();
    let first = lake.append(1, &[row(1, "a"), row(2, "b"), vec![Value::Null, Value::text("n")]]);
    lake.append(2, &[row(3, "c"), row(4, "d")]);
    lake.delete_positions(3, &[(&first, 0)]);
    lake.delete_ids(4, &[Some(3)]);
    let plan = lake.plan();
    let written = rewrite(&lake, &plan).await;
    assert_eq!((written.path, written.rows_in, written.rows_deleted, written.outputs.len()), (Path::RePack, 5, 2, 1));
    assert_eq!(written.path_reason, "deletes apply to 2 of 2 files; one schema, pages that can be cut");
}

#[tokio::test]
async fn deletes_in_pages_of_differences_are_cut_and_proven() {
    let mut lake = Lake::new(json!([{"id": 1, "name": "n", "required": false, "type": "long"}]));
    let delta = || WriterProperties::builder().set_dictionary_enabled(false).set_encoding(Encoding::DELTA_BINARY_PACKED).build();
    let mut first = None;
    for file in 0..2i64 {
        let rows = RecordBatch::try_new(lake.arrow(), vec![Arc::new(Int64Array::from_iter_values((0..3000).map(|n| n + file)))]).unwrap();
        first = Some(lake.append_batch(1, &rows, delta()));
    }
    lake.delete_positions(3, &[(&first.unwrap(), 7)]);
    let plan = lake.plan();
    let written = rewrite(&lake, &plan).await;
    assert_eq!((written.path, written.rows_in, written.rows_deleted), (Path::RePack, 6000, 1));
    assert_eq!(written.path_reason, "deletes apply to 2 of 2 files; one schema, pages that can be cut");
}

#[tokio::test]
async fn pages_that_do_not_fit_are_encoded_anew_and_proven() {
    let mut lake = Lake::new(json!([{"id": 1, "name": "n", "required": false, "type": "string"}]));
    let text = "x".repeat(100_000);
    for _ in 0..2 {
        let texts = StringArray::from(vec![text.as_str(); 30]);
        let rows = RecordBatch::try_new(lake.arrow(), vec![Arc::new(texts)]).unwrap();
        lake.append_batch(
            1,
            &rows,
            WriterProperties::builder().set_dictionary_enabled(false).set_compression(Compression::ZSTD(Default::default())).build(),
        );
    }
    let mut plan = lake.plan();
    plan.bound.memory = 40 << 20;
    let written = rewrite(&lake, &plan).await;
    assert_eq!((written.path, written.rows_in, written.outputs.len()), (Path::ReEncode, 60, 1));
    assert!(written.path_reason.contains("; re-packing was given up: "), "{}", written.path_reason);
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

/// One row group: numbers with a NULL here and there, and texts.
fn numbered(lake: &Lake, rows: std::ops::Range<i64>) -> RecordBatch {
    let texts = StringArray::from_iter(rows.clone().map(|n| (n % 11 != 0).then(|| format!("v{}", n % 700))));
    RecordBatch::try_new(lake.arrow(), vec![Arc::new(Int64Array::from_iter_values(rows)), Arc::new(texts)]).unwrap()
}

/// The bytes of a column chunk, and whether it has a bloom filter.
type Chunk = (Vec<u8>, bool);

/// The chunks of every row group, with its rows.
fn chunks(file: &[u8]) -> Vec<(i64, Vec<Chunk>)> {
    let footer = ParquetMetaDataReader::new().parse_and_finish(&bytes::Bytes::copy_from_slice(file)).unwrap();
    let chunk = |chunk: &parquet::file::metadata::ColumnChunkMetaData| {
        let (start, length) = chunk.byte_range();
        (file[start as usize..(start + length) as usize].to_vec(), chunk.bloom_filter_offset().is_some())
    };
    footer.row_groups().iter().map(|group| (group.num_rows(), group.columns().iter().map(chunk).collect())).collect()
}

#[tokio::test]
async fn healthy_row_groups_are_copied_whole_between_small_ones_that_are_joined() {
    let mut lake = Lake::id_v();
    let sizes = [3000, 130_000, 70_000, 80_000, 140_000, 150_000];
    let (mut next, mut paths) = (0, Vec::new());
    for size in sizes {
        paths.push(lake.append_batch(1, &numbered(&lake, next..next + size), WriterProperties::builder().build()));
        next += size;
    }
    lake.delete_positions(2, &[(&paths[4], 9)]);
    let plan = lake.plan();
    let written = rewrite(&lake, &plan).await;
    assert_eq!((written.path, written.outputs.len(), written.rows_deleted), (Path::RePack, 1, 1), "{}", written.path_reason);
    assert!(written.path_reason.ends_with("; 1 healthy row groups are copied whole"), "{}", written.path_reason);
    let found = chunks(&std::fs::read(local(&written)).unwrap());
    // the first takes its neighbour along, for it is small; one has lost a row
    assert_eq!(found.iter().map(|(rows, _)| *rows).collect::<Vec<_>>(), [133_000, 290_000 - 1, 150_000]);
    let before = chunks(&std::fs::read(paths[5].strip_prefix("file://").unwrap()).unwrap());
    assert_eq!(found[2].1, before[0].1);
}

#[tokio::test]
async fn a_bloom_filter_goes_with_a_row_group_that_is_copied_and_is_made_for_joined_ones() {
    let mut lake = Lake::id_v();
    lake.properties.insert("write.parquet.bloom-filter-enabled.column.v".into(), "true".into());
    let blooms = WriterProperties::builder().set_column_bloom_filter_enabled("v".into(), true);
    lake.append_batch(1, &numbered(&lake, 0..130_000), blooms.build());
    for file in 0..5 {
        let from = 130_000 + file * 30_000;
        lake.append_batch(1, &numbered(&lake, from..from + 30_000), WriterProperties::builder().build());
    }
    let written = rewrite(&lake, &lake.plan()).await;
    assert!(written.path_reason.ends_with("; 1 healthy row groups are copied whole"), "{}", written.path_reason);
    let found = chunks(&std::fs::read(local(&written)).unwrap());
    let told: Vec<_> = found.iter().map(|(rows, chunks)| (*rows, chunks[0].1, chunks[1].1)).collect();
    assert_eq!(told, [(130_000, false, true), (150_000, false, true)]);
}

#[tokio::test]
async fn small_row_groups_are_repacked_and_proven() {
    let mut lake = Lake::new(json!([
        {"id": 1, "name": "n", "required": false, "type": "long"},
        {"id": 2, "name": "f", "required": false, "type": "double"},
    ]));
    for file in 0..4i64 {
        let numbers = Int64Array::from_iter((0..5000).map(|n| (n % 9 != 0).then_some(file + n % 50)));
        let floats = Float64Array::from_iter((0..5000).map(|n| Some(if n % 100 == 0 { f64::NAN } else { f64::from(n % 300) })));
        let rows = RecordBatch::try_new(lake.arrow(), vec![Arc::new(numbers), Arc::new(floats)]).unwrap();
        lake.append_batch(1, &rows, WriterProperties::builder().set_max_row_group_row_count(Some(2500)).build());
    }
    let plan = lake.plan();
    let written = rewrite(&lake, &plan).await;
    assert_eq!((written.path, written.outputs.len(), written.rows_in), (Path::RePack, 1, 20_000));
    assert!(written.path_reason.starts_with("8 of 8 row groups of 2500 rows and "), "{}", written.path_reason);
    let footer = ParquetMetaDataReader::new().parse_and_finish(&std::fs::File::open(local(&written)).unwrap()).unwrap();
    assert_eq!(footer.num_row_groups(), 1);
}

#[tokio::test]
async fn columns_that_a_writer_marked_required_are_repacked_and_proven() {
    let mut lake = Lake::new(json!([{"id": 1, "name": "n", "required": false, "type": "long"}]));
    let field = lake.arrow().field(0).clone().with_nullable(false);
    let schema = Arc::new(arrow_schema::Schema::new(vec![field]));
    for file in 0..3i64 {
        let rows = RecordBatch::try_new(schema.clone(), vec![Arc::new(Int64Array::from_iter_values((0..3000).map(|n| n + file)))]).unwrap();
        lake.append_batch(1, &rows, WriterProperties::builder().build());
    }
    let plan = lake.plan();
    let written = rewrite(&lake, &plan).await;
    assert_eq!((written.path, written.rows_in), (Path::RePack, 9000));
}

#[tokio::test]
async fn a_value_changed_in_a_repacked_output_fails_the_proof() {
    let mut lake = Lake::new(json!([{"id": 1, "name": "n", "required": false, "type": "long"}]));
    for file in 0..2i64 {
        let rows =
            RecordBatch::try_new(lake.arrow(), vec![Arc::new(Int64Array::from_iter_values((0..5000).map(|n| n * 3 + file)))]).unwrap();
        let properties = WriterProperties::builder().set_dictionary_enabled(false).set_compression(Compression::UNCOMPRESSED);
        lake.append_batch(1, &rows, properties.build());
    }
    lake.properties.insert("write.parquet.compression-codec".into(), "uncompressed".into());
    let (table, plan) = (lake.table().await, lake.plan());
    let written = run(&table, &plan, &AttemptId("a1".into()), &Free).await.unwrap();
    assert_eq!(written.path, Path::RePack);
    let mut bytes = std::fs::read(local(&written)).unwrap();
    let at = bytes.windows(8).position(|window| window == 300i64.to_le_bytes()).unwrap();
    bytes[at..at + 8].copy_from_slice(&301i64.to_le_bytes());
    std::fs::write(local(&written), bytes).unwrap();
    let Err(Error::Proof(why)) = verify::run(&table, &plan, &written).await else { panic!("not caught") };
    assert!(why.ends_with("row group 0 column n: another value than there should be"), "{why}");
}

fn local(written: &Written) -> String {
    written.outputs[0].path.trim_start_matches("file://").to_owned()
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

#[tokio::test]
async fn free_space_is_asked_where_the_outputs_go() {
    let mut lake = Lake::id_v();
    lake.append(1, &[row(1, "a")]);
    lake.properties.insert("write.data.path".into(), "s3://elsewhere/data".into());
    let mut plan = lake.plan();
    plan.inputs[0].bytes = 1 << 62;
    // The disk that holds the table would not do.
    let Err(error) = run(&lake.table().await, &plan, &AttemptId("a1".into()), &Free).await else { panic!("an input of 2^62 bytes") };
    assert!(!matches!(&error, Error::Refused(refused) if refused.refusal == Refusal::NoSpace), "{error}");
}

/// Takes the order of its one or two columns out of the footer of the last file.
fn forget_orders(lake: &mut Lake, rows: &RecordBatch) {
    let placed = lake.data.last_mut().unwrap();
    let path = placed.file.file_path().to_owned();
    let mut bytes = std::fs::read(path.trim_start_matches("file://")).unwrap();
    let columns = rows.num_columns() as u8;
    let ordered: Vec<u8> = [0x19, columns << 4 | 0x0C].into_iter().chain([0x1C, 0, 0].repeat(rows.num_columns())).chain([0]).collect();
    let footer = bytes.len() - 8;
    let length = u32::from_le_bytes(bytes[footer..footer + 4].try_into().unwrap());
    assert!(bytes[..footer].ends_with(&ordered), "{:x?}", &bytes[footer - 20..footer]);
    bytes.truncate(footer - ordered.len());
    bytes.push(0);
    bytes.extend((length - ordered.len() as u32 + 1).to_le_bytes());
    bytes.extend(b"PAR1");
    std::fs::write(path.trim_start_matches("file://"), bytes).unwrap();
    placed.file = describe(&path, DataContentType::Data, &NullCounts::of(rows)).partition_spec_id(0).build().unwrap();
}

#[tokio::test]
async fn files_that_do_not_tell_the_order_of_their_columns_are_repacked_with_bounds_of_our_own() {
    for rows in [3000i64, 150_000] {
        let mut lake = Lake::id_v();
        for file in 0..2i64 {
            let numbers = Int64Array::from_iter_values(file * rows..(file + 1) * rows);
            let texts = StringArray::from_iter_values((0..rows).map(|n| if n == 7 { "\u{fc}".into() } else { format!("v{}", n % 90) }));
            let batch = RecordBatch::try_new(lake.arrow(), vec![Arc::new(numbers), Arc::new(texts)]).unwrap();
            lake.append_batch(1, &batch, WriterProperties::builder().build());
            forget_orders(&mut lake, &batch);
        }
        let plan = lake.plan();
        let written = rewrite(&lake, &plan).await;
        assert_eq!((written.path, written.rows_in), (Path::RePack, rows as u64 * 2), "{}", written.path_reason);
        let footer = ParquetMetaDataReader::new().parse_and_finish(&std::fs::File::open(local(&written)).unwrap()).unwrap();
        assert!(footer.file_metadata().column_orders().is_some());
        for group in footer.row_groups() {
            let ends = group.column(1).statistics().unwrap();
            assert_eq!((ends.min_bytes_opt(), ends.max_bytes_opt()), (Some(&b"v0"[..]), Some("\u{fc}".as_bytes())));
            assert!(group.column(0).statistics().unwrap().min_bytes_opt().is_some());
        }
        let file = &written.detail.downcast_ref::<Detail>().unwrap().data_files[0];
        assert_eq!(file.upper_bounds().get(&2), Some(&Datum::string("\u{fc}")));
    }
}

#[tokio::test]
async fn healthy_row_groups_of_another_codec_get_the_tables() {
    for (set, path) in [("zstd", Path::RePack), ("snappy", Path::Splice)] {
        let mut lake = Lake::id_v();
        lake.properties.insert("write.parquet.compression-codec".into(), set.into());
        for file in 0..2i64 {
            let numbers = Int64Array::from_iter_values(file * 120_000..(file + 1) * 120_000);
            let texts = StringArray::from_iter_values((0..120_000).map(|n| format!("v{}", n % 90)));
            let batch = RecordBatch::try_new(lake.arrow(), vec![Arc::new(numbers), Arc::new(texts)]).unwrap();
            lake.append_batch(1, &batch, WriterProperties::builder().set_compression(Compression::SNAPPY).build());
        }
        let plan = lake.plan();
        let written = rewrite(&lake, &plan).await;
        assert_eq!(written.path, path, "{}", written.path_reason);
        let footer = ParquetMetaDataReader::new().parse_and_finish(&std::fs::File::open(local(&written)).unwrap()).unwrap();
        let codecs = footer.row_groups().iter().flat_map(|group| group.columns()).map(|chunk| codec(chunk.compression()));
        assert!(codecs.clone().count() > 0 && codecs.clone().all(|found| found == set.to_uppercase()));
    }
}
