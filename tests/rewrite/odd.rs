//! Files and columns that pages cannot be taken of, among others: they alone are
//! decoded, rows keep their order, and the proof sees every value.

use std::sync::Arc;

use afterwrite::lake::iceberg::rewrite::{Detail, foresee, run};
use afterwrite::lake::iceberg::verify;
use afterwrite::lake::{Error, Written};
use afterwrite::model::plan::{AttemptId, Path, Plan};
use arrow_schema::{DataType, Schema, SchemaRef};
use bytes::Bytes;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::bloom_filter::Sbbf;
use parquet::data_type::ByteArray;
use parquet::file::metadata::{PageIndexPolicy, ParquetMetaData, ParquetMetaDataReader};
use parquet::file::properties::WriterProperties;
use serde_json::json;

use crate::reading::value::{Value, batch, row, rows};
use crate::reading::{Free, Lake, field};

const ROWS: i64 = 3000;

async fn rewrite(lake: &Lake, plan: &Plan) -> Written {
    let table = lake.table().await;
    foresee::run(&table, plan).await.unwrap();
    let written = run(&table, plan, &AttemptId("a1".into()), &Free).await.unwrap();
    let proof = verify::run(&table, plan, &written).await.unwrap();
    assert_eq!(proof.rows, written.rows_in - written.rows_deleted, "{}", written.path_reason);
    written
}

fn bytes(written: &Written) -> Bytes {
    assert_eq!(written.outputs.len(), 1);
    std::fs::read(written.outputs[0].path.strip_prefix("file://").unwrap()).unwrap().into()
}

fn footer(file: &Bytes) -> ParquetMetaData {
    ParquetMetaDataReader::new().with_page_index_policy(PageIndexPolicy::Optional).parse_and_finish(file).unwrap()
}

/// The rows of the only output.
fn back(written: &Written) -> Vec<Vec<Value>> {
    let reader = ParquetRecordBatchReaderBuilder::try_new(bytes(written)).unwrap().build().unwrap();
    reader.flat_map(|batch| rows(&batch.unwrap())).collect()
}

/// The usual rows from a number on, with texts that repeat and a NULL here and there.
fn numbered(from: i64) -> Vec<Vec<Value>> {
    let some = |id: i64| if id % 101 == 7 { vec![Value::Int(id), Value::Null] } else { row(id, &format!("v{}", id % 40)) };
    (from..from + ROWS).map(some).collect()
}

fn id_v(id: DataType) -> SchemaRef {
    Arc::new(Schema::new(vec![field("id", id, true, 1), field("v", DataType::Utf8, true, 2)]))
}

fn properties() -> WriterProperties {
    WriterProperties::builder().set_max_row_group_row_count(Some(1000)).build()
}

/// Four files, of which one has a column before it was promoted.
fn promoted() -> (Lake, Vec<String>) {
    let mut lake = Lake::id_v();
    let kinds = [DataType::Int64, DataType::Int32, DataType::Int64, DataType::Int64];
    let paths = kinds.into_iter().zip(0..).map(|(kind, file)| {
        let schema = id_v(kind);
        lake.append_batch(1, &batch(&schema, &numbered(file * ROWS)), properties())
    });
    let paths = paths.collect();
    (lake, paths)
}

#[tokio::test]
async fn a_file_before_a_promotion_is_decoded_alone_and_rows_keep_their_order() {
    let (lake, _) = promoted();
    let plan = lake.plan();
    let written = rewrite(&lake, &plan).await;
    assert_eq!((written.path, written.rows_in), (Path::RePack, 4 * ROWS as u64), "{}", written.path_reason);
    let said = "; 1 of 4 files are decoded first: ";
    assert!(written.path_reason.contains(said) && written.path_reason.ends_with("column id has another type than the table"));
    assert_eq!(back(&written), (0..4).flat_map(|file| numbered(file * ROWS)).collect::<Vec<_>>());
    let footer = footer(&bytes(&written));
    assert_eq!(footer.num_row_groups(), 1);
    assert!(footer.column_index().is_some() && footer.offset_index().is_some());
    let ends = footer.row_group(0).column(0).statistics().unwrap();
    assert_eq!(ends.max_bytes_opt(), Some(&(4 * ROWS - 1).to_le_bytes()[..]));
}

#[tokio::test]
async fn deletes_reach_odd_files_as_they_reach_others() {
    let (mut lake, paths) = promoted();
    let positions = [(&*paths[0], 5), (&*paths[1], 0), (&*paths[1], 2999), (&*paths[3], 17)];
    lake.delete_positions(2, &positions);
    lake.delete_ids(3, &[Some(ROWS + 10), Some(1), None]);
    let plan = lake.plan();
    let written = rewrite(&lake, &plan).await;
    assert_eq!((written.path, written.rows_deleted), (Path::RePack, 6), "{}", written.path_reason);
    let gone = [5, ROWS, 2 * ROWS - 1, 3 * ROWS + 17, ROWS + 10, 1];
    let left = (0..4).flat_map(|file| numbered(file * ROWS)).filter(|row| !gone.iter().any(|id| row[0] == Value::Int(*id)));
    assert_eq!(back(&written), left.collect::<Vec<_>>());
}

#[tokio::test]
async fn files_of_before_a_column_was_added_or_without_ids_stand_beside_the_others() {
    let mut lake = Lake::id_v();
    lake.properties.insert(
        "schema.name-mapping.default".into(),
        json!([{"field-id": 1, "names": ["id"]}, {"field-id": 2, "names": ["v"]}]).to_string(),
    );
    let only_id = Arc::new(Schema::new(vec![field("id", DataType::Int64, true, 1)]));
    let before: Vec<Vec<Value>> = (0..ROWS).map(|id| vec![Value::Int(id)]).collect();
    lake.append_batch(1, &batch(&only_id, &before), properties());
    lake.append_batch(1, &batch(&id_v(DataType::Int64), &numbered(ROWS)), properties());
    let bare = |name: &str, kind| arrow_schema::Field::new(name, kind, true);
    let nameless = Arc::new(Schema::new(vec![bare("id", DataType::Int64), bare("v", DataType::Utf8)]));
    lake.append_batch(1, &batch(&nameless, &numbered(2 * ROWS)), properties());
    lake.append_batch(1, &batch(&id_v(DataType::Int64), &numbered(3 * ROWS)), properties());
    let plan = lake.plan();
    let written = rewrite(&lake, &plan).await;
    assert_eq!(written.path, Path::RePack, "{}", written.path_reason);
    assert!(written.path_reason.contains("; 2 of 4 files are decoded first: "), "{}", written.path_reason);
    let first = (0..ROWS).map(|id| vec![Value::Int(id), Value::Null]);
    let rest = (1..4).flat_map(|file| numbered(file * ROWS));
    assert_eq!(back(&written), first.chain(rest).collect::<Vec<_>>());
}

#[tokio::test]
async fn nans_of_an_odd_file_are_counted_by_its_rows() {
    let mut lake = Lake::new(json!([{"id": 1, "name": "f", "required": false, "type": "double"}]));
    let floats = |nans: usize| (0..50).map(|n| vec![Value::float(if n < nans { f64::NAN } else { n as f64 })]).collect::<Vec<_>>();
    let of = |kind| Arc::new(Schema::new(vec![field("f", kind, true, 1)]));
    lake.append_batch(1, &batch(&of(DataType::Float64), &floats(3)), properties());
    let odd = lake.append_batch(1, &batch(&of(DataType::Float32), &floats(4)), properties());
    lake.delete_positions(2, &[(&odd, 0)]);
    let plan = lake.plan();
    let written = rewrite(&lake, &plan).await;
    assert_eq!((written.path, written.rows_deleted), (Path::RePack, 1), "{}", written.path_reason);
    let file = &written.detail.downcast_ref::<Detail>().unwrap().data_files[0];
    // three of the other file's, whose manifest may not tell them, and three that are left of the odd one's
    assert!(file.nan_value_counts().get(&1).is_none_or(|nans| *nans == 6), "{:?}", file.nan_value_counts());
}

#[tokio::test]
async fn odd_files_above_their_share_of_memory_are_put_aside_while_the_rest_is_joined() {
    let wide = |file: i64| -> Vec<Vec<Value>> { (file * ROWS..(file + 1) * ROWS).map(|id| row(id, &format!("{id:02100}"))).collect() };
    let mut lake = Lake::id_v();
    let mut paths = Vec::new();
    for (kind, file) in [DataType::Int64, DataType::Int32, DataType::Int64, DataType::Int64].into_iter().zip(0..) {
        let pages = WriterProperties::builder().set_max_row_group_row_count(Some(500)).set_dictionary_enabled(false);
        let pages = pages.set_data_page_row_count_limit(100).set_write_batch_size(50).build();
        paths.push(lake.append_batch(1, &batch(&id_v(kind), &wide(file)), pages));
    }
    lake.delete_positions(2, &[(&*paths[1], 17)]);
    let mut plan = lake.plan();
    plan.bound.memory = 48 << 20;
    assert!(plan.inputs.iter().all(|input| input.bytes > plan.bound.memory / 8 && input.bytes < plan.bound.memory / 4));
    let written = rewrite(&lake, &plan).await;
    assert_eq!((written.path, written.rows_deleted), (Path::RePack, 1), "{}", written.path_reason);
    assert!(written.path_reason.contains("; 1 of 4 files are decoded first: "), "{}", written.path_reason);
    let left = (0..4).flat_map(wide).filter(|row| row[0] != Value::Int(ROWS + 17));
    assert_eq!(back(&written), left.collect::<Vec<_>>());
    // what was put aside is none of the outputs, and whoever asked was told of it
    let output = written.outputs[0].path.strip_prefix("file://").unwrap();
    assert!(output.ends_with("/00001-aw-a1.parquet"), "{output}");
    let aside = std::fs::read(output.replace("/00001-", "/00000-")).unwrap();
    assert_eq!(footer(&aside.into()).file_metadata().num_rows(), ROWS - 1);
}

#[tokio::test]
async fn the_proof_sees_a_value_of_an_odd_file_that_was_changed() {
    let (lake, paths) = promoted();
    let plan = lake.plan();
    let table = lake.table().await;
    let written = run(&table, &plan, &AttemptId("a1".into()), &Free).await.unwrap();
    assert_eq!(written.path, Path::RePack);
    // the odd file says otherwise of one row than when it was read
    let mut other = numbered(ROWS);
    other[1234] = row(ROWS + 1235, "v15");
    let whole = std::fs::read(paths[1].strip_prefix("file://").unwrap()).unwrap();
    crate::reading::write(&paths[1], &batch(&id_v(DataType::Int32), &other), properties());
    let changed = std::fs::read(paths[1].strip_prefix("file://").unwrap()).unwrap();
    let mut plan = plan;
    plan.inputs[1].bytes = changed.len() as u64;
    let error = verify::run(&table, &plan, &written).await.unwrap_err();
    assert!(matches!(&error, Error::Proof(why) if why.starts_with("column 1: read as ")), "{error}");
    std::fs::write(paths[1].strip_prefix("file://").unwrap(), &whole).unwrap();
    plan.inputs[1].bytes = whole.len() as u64;
    verify::run(&table, &plan, &written).await.unwrap();
}

#[tokio::test]
async fn only_the_column_that_wants_a_bloom_filter_is_encoded_anew() {
    let mut lake = Lake::id_v();
    lake.properties.insert("write.parquet.bloom-filter-enabled.column.v".into(), "true".into());
    let mut paths = Vec::new();
    for file in 0..3 {
        paths.push(lake.append_batch(1, &batch(&id_v(DataType::Int64), &numbered(file * ROWS)), properties()));
    }
    lake.delete_positions(2, &[(&paths[1], 3)]);
    let plan = lake.plan();
    let written = rewrite(&lake, &plan).await;
    assert_eq!((written.path, written.rows_deleted), (Path::RePack, 1), "{}", written.path_reason);
    assert!(written.path_reason.ends_with("; 1 columns are encoded anew: the table wants bloom filters"), "{}", written.path_reason);
    let file = bytes(&written);
    let footer = footer(&file);
    assert!(footer.row_groups().iter().all(|group| group.column(0).bloom_filter_offset().is_none()));
    for group in footer.row_groups() {
        let filter = Sbbf::read_from_column_chunk(group.column(1), &file).unwrap().unwrap();
        assert!((0..40).all(|n| filter.check(&ByteArray::from(format!("v{n}").into_bytes()))));
    }
    let left = (0..3).flat_map(|file| numbered(file * ROWS)).filter(|row| row[0] != Value::Int(ROWS + 3));
    assert_eq!(back(&written), left.collect::<Vec<_>>());
}
