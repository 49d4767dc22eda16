//! Schema evolution, physical types of other writers, and files of tables
//! migrated from Hive.

use std::sync::Arc;

use afterwrite::lake::iceberg::read;
use afterwrite::lake::{Control, Error, Result};
use afterwrite::model::killpoint::KillPoint;
use afterwrite::model::partition::{PartitionKey, Value as PartitionValue};
use afterwrite::model::refusal::Refusal;
use arrow_schema::{DataType, Field, Schema, TimeUnit};
use parquet::data_type::{ByteArray, ByteArrayType, FixedLenByteArray, FixedLenByteArrayType, Int32Type, Int64Type, Int96, Int96Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use serde_json::json;

use super::value::{Value, batch, row};
use super::{Lake, NullCounts, Placed, describe, field, fields};
use iceberg::spec::DataContentType;

async fn read_as(file_type: DataType, table_type: serde_json::Value, value: Value) -> std::result::Result<Value, (Refusal, String)> {
    let mut lake = Lake::new(json!([{"id": 1, "name": "c", "required": false, "type": table_type}]));
    let schema = Arc::new(Schema::new(vec![field("c", file_type, true, 1)]));
    lake.append_batch(1, &batch(&schema, &[vec![value]]), WriterProperties::builder().build());
    match lake.read().await {
        Ok(_) => Ok(lake.values().await[0][0].clone()),
        Err(_) => Err(lake.refusal().await),
    }
}

#[tokio::test]
async fn promoted_columns_are_read_exactly() {
    let millis = DataType::Timestamp(TimeUnit::Millisecond, None);
    assert_eq!(read_as(DataType::Int32, json!("long"), Value::Int(-7)).await, Ok(Value::Int(-7)));
    assert_eq!(read_as(DataType::Float32, json!("double"), Value::float(1.5)).await, Ok(Value::float(1.5)));
    assert_eq!(read_as(DataType::Decimal128(9, 2), json!("decimal(38, 2)"), Value::Decimal(-123)).await, Ok(Value::Decimal(-123)));
    assert_eq!(read_as(millis, json!("timestamp"), Value::Int(-1)).await, Ok(Value::Int(-1000)));
    assert_eq!(read_as(DataType::Utf8, json!("binary"), Value::text("ab")).await, Ok(Value::Bytes(b"ab".into())));
    assert_eq!(read_as(DataType::Binary, json!("string"), Value::Bytes(b"ab".into())).await, Ok(Value::text("ab")));
}

#[tokio::test]
async fn what_would_lose_is_refused_by_name() {
    let nanos = DataType::Timestamp(TimeUnit::Nanosecond, None);
    for (file, table, value) in [
        (DataType::Int64, "int", Value::Int(1)),
        (nanos, "timestamp", Value::Int(1)),
        (DataType::Decimal128(9, 2), "decimal(9, 3)", Value::Decimal(1)),
        (DataType::Date32, "timestamp", Value::Int(1)),
        (DataType::Int32, "string", Value::Int(1)),
    ] {
        let (refusal, detail) = read_as(file, json!(table), value).await.unwrap_err();
        assert_eq!(refusal, Refusal::ColumnType);
        assert!(detail.contains("column c"), "{detail}");
    }
    // Bytes that are no text.
    let (refusal, _) = read_as(DataType::Binary, json!("string"), Value::Bytes(vec![0xff])).await.unwrap_err();
    assert_eq!(refusal, Refusal::Damaged);
}

#[tokio::test]
async fn nested_fields_added_dropped_renamed_and_moved_are_matched_by_id() {
    let list = |inner: Vec<arrow_schema::Field>| DataType::List(Arc::new(field("element", DataType::Struct(fields(inner)), true, 3)));
    let old = list(vec![field("gone", DataType::Int32, true, 4), field("a", DataType::Int32, true, 5)]);
    let only_gone = DataType::Struct(fields(vec![field("old", DataType::Utf8, true, 11)]));
    let file =
        Arc::new(Schema::new(vec![field("other", DataType::Utf8, true, 1), field("l", old, true, 2), field("p", only_gone, true, 10)]));
    let mut lake = Lake::new(json!([
        {"id": 10, "name": "point", "required": false, "type": {"type": "struct", "fields": [
            {"id": 12, "name": "new", "required": false, "type": "int"}]}},
        {"id": 2, "name": "items", "required": false, "type": {"type": "list", "element-id": 3, "element-required": false,
            "element": {"type": "struct", "fields": [
                {"id": 6, "name": "gone", "required": false, "type": "string"},
                {"id": 5, "name": "renamed", "required": false, "type": "long"}]}}},
    ]));
    let item = |a: i64| Value::Struct(vec![Value::Int(99), Value::Int(a)]);
    let rows = [
        vec![Value::text("x"), Value::List(vec![item(1), Value::Null]), Value::Struct(vec![Value::text("o")])],
        vec![Value::text("y"), Value::List(vec![]), Value::Null],
        vec![Value::text("z"), Value::Null, Value::Struct(vec![Value::Null])],
    ];
    lake.append_batch(1, &batch(&file, &rows), WriterProperties::builder().build());
    let item = |a: i64| Value::Struct(vec![Value::Null, Value::Int(a)]);
    // A struct whose fields are all new is still NULL only where it was NULL.
    let wanted = [
        vec![Value::Struct(vec![Value::Null]), Value::List(vec![item(1), Value::Null])],
        vec![Value::Null, Value::List(vec![])],
        vec![Value::Struct(vec![Value::Null]), Value::Null],
    ];
    assert_eq!(lake.values().await, wanted);
}

#[tokio::test]
async fn a_missing_required_column_is_refused() {
    let mut lake = Lake::new(json!([{"id": 1, "name": "id", "required": false, "type": "long"}]));
    lake.append(1, &[vec![Value::Int(1)]]);
    lake.evolve(json!([
        {"id": 1, "name": "id", "required": false, "type": "long"},
        {"id": 2, "name": "must", "required": true, "type": "long"},
    ]));
    let (refusal, detail) = lake.refusal().await;
    assert_eq!(refusal, Refusal::Damaged);
    assert!(detail.contains("required column must is missing"), "{detail}");
}

#[tokio::test]
async fn a_null_in_a_required_column_is_refused() {
    let mut lake = Lake::new(json!([{"id": 1, "name": "id", "required": true, "type": "long"}]));
    let schema = Arc::new(Schema::new(vec![field("id", DataType::Int64, true, 1)]));
    lake.append_batch(1, &batch(&schema, &[vec![Value::Null]]), WriterProperties::builder().build());
    assert_eq!(lake.refusal().await.0, Refusal::Damaged);
}

#[tokio::test]
async fn an_identity_partition_column_that_files_leave_out_is_filled() {
    let mut lake = Lake::new(json!([
        {"id": 1, "name": "id", "required": false, "type": "long"},
        {"id": 2, "name": "v", "required": false, "type": "string"},
        {"id": 3, "name": "day", "required": true, "type": "date"},
    ]));
    lake.specs = json!([{"spec-id": 0, "fields": [{"source-id": 3, "field-id": 1000, "name": "day", "transform": "identity"}]}]);
    lake.scope = PartitionKey { spec_id: 0, tuple: Arc::from([Some(PartitionValue::Int(19_000))]) };
    let usual = Lake::id_v();
    let rows = batch(&usual.arrow(), &[row(1, "a")]);
    let path = lake.path("data");
    super::write(&path, &rows, WriterProperties::builder().build());
    let tuple = iceberg::spec::Struct::from_iter([Some(iceberg::spec::Literal::date(19_000))]);
    let file = describe(&path, DataContentType::Data, &NullCounts::of(&rows)).partition(tuple).build().unwrap();
    lake.data.push(Placed { file, sequence: 1 });
    assert_eq!(lake.values().await, [[Value::Int(1), Value::text("a"), Value::Int(19_000)]]);
    // The proof knows where the column comes from.
    let (batches, read) = lake.read().await.unwrap();
    let rewrite = super::proving::re_encode(&mut lake, &batches, read);
    assert_eq!(super::proving::prove(&lake, rewrite).await.unwrap().null_counts, 3);
}

#[tokio::test]
async fn nulls_of_files_without_ids_are_counted_by_name() {
    // given a migrated file with neither ids nor counts in its manifest
    let mut lake = Lake::id_v();
    let mapping = json!([{"field-id": 1, "names": ["id"]}, {"field-id": 2, "names": ["v", "old v"]}]);
    lake.properties.insert("schema.name-mapping.default".into(), mapping.to_string());
    let bare = Schema::new(vec![Field::new("id", DataType::Int64, true), Field::new("old v", DataType::Utf8, true)]);
    let rows = batch(&Arc::new(bare), &[row(1, "a"), row(2, "b")]);
    let path = lake.path("data");
    super::write(&path, &rows, WriterProperties::builder().build());
    let file = describe(&path, DataContentType::Data, &NullCounts(Default::default(), 2)).build().unwrap();
    lake.data.push(Placed { file, sequence: 1 });
    let (batches, read) = lake.read().await.unwrap();
    let rewrite = super::proving::re_encode(&mut lake, &batches, read);
    assert_eq!(super::proving::prove(&lake, rewrite).await.unwrap().null_counts, 2);
    // then a reader that finds no column under the old name is caught
    let blind = batch(&lake.arrow(), &[vec![Value::Int(1), Value::Null], vec![Value::Int(2), Value::Null]]);
    let read = super::proving::summary(std::slice::from_ref(&blind), 2, 0);
    let rewrite = super::proving::re_encode(&mut lake, &[blind], read);
    let why = super::proving::failure(&lake, rewrite).await;
    assert!(why.contains("column 2: 2 NULLs read back, the inputs state 0"), "{why}");
}

#[tokio::test]
async fn physical_types_of_other_writers_are_read() {
    let message = "message m {
        optional int96 t = 1;
        optional int32 d9 (DECIMAL(9, 2)) = 2;
        optional int64 d18 (DECIMAL(18, 2)) = 3;
        optional binary d20 (DECIMAL(20, 2)) = 4;
        optional fixed_len_byte_array(20) d38 (DECIMAL(38, 2)) = 5;
        optional int32 tm (TIME_MILLIS) = 6;
        optional int32 small (INT_16) = 7;
    }";
    let mut lake = Lake::new(json!([
        {"id": 1, "name": "t", "required": false, "type": "timestamptz"},
        {"id": 2, "name": "d9", "required": false, "type": "decimal(9, 2)"},
        {"id": 3, "name": "d18", "required": false, "type": "decimal(18, 2)"},
        {"id": 4, "name": "d20", "required": false, "type": "decimal(20, 2)"},
        {"id": 5, "name": "d38", "required": false, "type": "decimal(38, 2)"},
        {"id": 6, "name": "tm", "required": false, "type": "time"},
        {"id": 7, "name": "small", "required": false, "type": "int"},
    ]));
    let path = lake.path("data");
    let out = std::fs::File::create(path.trim_start_matches("file://")).unwrap();
    let mut writer = SerializedFileWriter::new(out, Arc::new(parse_message_type(message).unwrap()), Arc::default()).unwrap();
    let mut group = writer.next_row_group().unwrap();
    // The year 3000, which nanoseconds in 64 bits cannot hold, and one microsecond.
    let mut time = Int96::new();
    time.set_data(1000, 0, 2_816_788);
    macro_rules! column {
        ($kind:ty, $value:expr) => {{
            let mut column = group.next_column().unwrap().unwrap();
            column.typed::<$kind>().write_batch(&[$value], Some(&[1]), None).unwrap();
            column.close().unwrap();
        }};
    }
    let mut wide = vec![0xff; 20];
    wide[19] = 0x85;
    column!(Int96Type, time);
    column!(Int32Type, -123);
    column!(Int64Type, 123_456);
    column!(ByteArrayType, ByteArray::from(vec![0xff, 0x85]));
    column!(FixedLenByteArrayType, FixedLenByteArray::from(wide));
    column!(Int32Type, 1500);
    column!(Int32Type, -9);
    group.close().unwrap();
    writer.close().unwrap();
    let file = describe(&path, DataContentType::Data, &NullCounts(Default::default(), 1)).build().unwrap();
    lake.data.push(Placed { file, sequence: 1 });
    let wanted = vec![
        Value::Int(32_503_680_000_000_001),
        Value::Decimal(-123),
        Value::Decimal(123_456),
        Value::Decimal(-123),
        Value::Decimal(-123),
        Value::Int(1_500_000),
        Value::Int(-9),
    ];
    assert_eq!(lake.values().await, [wanted]);
}

#[tokio::test]
async fn a_deletion_vector_is_refused() {
    let mut lake = Lake::id_v();
    lake.append(1, &[row(1, "a")]);
    lake.delete_ids(2, &[Some(1)]);
    let table = lake.table().await;
    let mut plan = lake.plan();
    plan.deletes[0].content = afterwrite::model::file::Content::DeletionVector;
    let result = super::read_plan(&table, &plan).await;
    let Err(Error::Refused(refused)) = result else { panic!("{result:?}") };
    assert_eq!(refused.refusal, Refusal::DeletionVector);
}

#[tokio::test]
async fn a_missing_file_is_told_from_a_damaged_one() {
    let mut lake = Lake::id_v();
    let path = lake.append(1, &[row(1, "a")]);
    let local = path.trim_start_matches("file://").to_owned();
    let table = lake.table().await;
    let plan = lake.plan();
    let bytes = std::fs::read(&local).unwrap();
    std::fs::write(&local, vec![7; bytes.len()]).unwrap();
    assert_eq!(lake.refusal().await.0, Refusal::Damaged);
    std::fs::remove_file(&local).unwrap();
    let result = super::read_plan(&table, &plan).await;
    assert!(matches!(&result, Err(Error::NotFound { path: p }) if *p == path), "{result:?}");
}

/// Stops after some batches.
struct Stop(std::sync::atomic::AtomicU32);

#[async_trait::async_trait]
impl Control for Stop {
    async fn will_write(&self, _: &str) -> Result<()> {
        Ok(())
    }
    async fn will_commit(&self, _: &str) -> Result<()> {
        Ok(())
    }
    fn check(&self) -> Result<()> {
        match self.0.fetch_sub(1, std::sync::atomic::Ordering::Relaxed) {
            0 => Err(Error::Stopped("by the test".into())),
            _ => Ok(()),
        }
    }
    fn progress(&self, _: u64, _: u64) {}
    fn reached(&self, _: KillPoint) {}
}

#[tokio::test]
async fn a_stop_is_heard_between_batches() {
    let mut lake = Lake::id_v();
    for i in 0..5 {
        lake.append(1, &[row(i, "a")]);
    }
    let (table, plan, control) = (lake.table().await, lake.plan(), Stop(2.into()));
    let mut source = read::open(&table, &plan, &control).await.unwrap();
    assert!(source.next().await.unwrap().is_some());
    let mut end = source.next().await;
    while let Ok(Some(_)) = end {
        end = source.next().await;
    }
    assert!(matches!(end, Err(Error::Stopped(_))), "{end:?}");
    assert!(source.rows_read().unwrap() < 5);
}
