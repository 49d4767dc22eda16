use std::sync::Arc;
use std::sync::atomic::Ordering;

use afterwrite::lake::Error;
use arrow_array::builder::{Int32Builder, ListBuilder, MapBuilder, MapFieldNames, StringBuilder};
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{
    ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, FixedSizeBinaryArray, Float32Array, Float64Array, Int32Array,
    Int64Array, LargeBinaryArray, StringArray, StructArray, Time64MicrosecondArray, TimestampMicrosecondArray, TimestampNanosecondArray,
};
use arrow_schema::DataType;
use iceberg::spec::{ListType, MapType, NestedField, PrimitiveType, StructType};
use parquet::basic::{Encoding, PageType};

use super::support::{Lake, MEMORY, primitive};

fn every_type() -> Lake {
    let list = ListType::new(NestedField::list_element(31, primitive(PrimitiveType::Int), false).into());
    let map = MapType::new(
        NestedField::map_key_element(32, primitive(PrimitiveType::String)).into(),
        NestedField::map_value_element(33, primitive(PrimitiveType::Int), false).into(),
    );
    let inner = StructType::new(vec![NestedField::optional(34, "x", primitive(PrimitiveType::Long)).into()]);
    let fields = vec![
        ("bool", primitive(PrimitiveType::Boolean)),
        ("int", primitive(PrimitiveType::Int)),
        ("long", primitive(PrimitiveType::Long)),
        ("float", primitive(PrimitiveType::Float)),
        ("double", primitive(PrimitiveType::Double)),
        ("d9", primitive(PrimitiveType::Decimal { precision: 9, scale: 2 })),
        ("d18", primitive(PrimitiveType::Decimal { precision: 18, scale: 2 })),
        ("d38", primitive(PrimitiveType::Decimal { precision: 38, scale: 2 })),
        ("date", primitive(PrimitiveType::Date)),
        ("time", primitive(PrimitiveType::Time)),
        ("ts", primitive(PrimitiveType::Timestamp)),
        ("tz", primitive(PrimitiveType::Timestamptz)),
        ("ns", primitive(PrimitiveType::TimestampNs)),
        ("nz", primitive(PrimitiveType::TimestamptzNs)),
        ("text", primitive(PrimitiveType::String)),
        ("uuid", primitive(PrimitiveType::Uuid)),
        ("fixed", primitive(PrimitiveType::Fixed(3))),
        ("bytes", primitive(PrimitiveType::Binary)),
        ("list", list.into()),
        ("map", map.into()),
        ("struct", inner.into()),
    ];
    Lake::new(fields, &[])
}

fn fixed(width: i32, values: [Option<u8>; 3]) -> ArrayRef {
    let values = values.map(|v| v.map(|byte| vec![byte; width as usize]));
    Arc::new(FixedSizeBinaryArray::try_from_sparse_iter_with_size(values.into_iter(), width).unwrap())
}

fn nested(lake: &Lake) -> (ArrayRef, ArrayRef, ArrayRef) {
    let schema = lake.arrow();
    let kind = |name: &str| schema.field_with_name(name).unwrap().data_type().clone();
    let DataType::List(element) = kind("list") else { panic!() };
    let mut list = ListBuilder::new(Int32Builder::new()).with_field(element);
    list.append_value([Some(1), None]);
    list.append_null();
    list.append_value([]);
    let DataType::Map(entries, _) = kind("map") else { panic!() };
    let DataType::Struct(entry) = entries.data_type() else { panic!() };
    let names = MapFieldNames { entry: entries.name().clone(), key: entry[0].name().clone(), value: entry[1].name().clone() };
    let mut map = MapBuilder::new(Some(names), StringBuilder::new(), Int32Builder::new())
        .with_keys_field(entry[0].clone())
        .with_values_field(entry[1].clone());
    map.keys().append_value("k");
    map.values().append_null();
    map.append(true).unwrap();
    map.append(false).unwrap();
    map.append(true).unwrap();
    let DataType::Struct(fields) = kind("struct") else { panic!() };
    let inner: ArrayRef = Arc::new(Int64Array::from(vec![Some(5), Some(6), None]));
    let structs = StructArray::new(fields, vec![inner], Some(vec![true, false, true].into()));
    (Arc::new(list.finish()), Arc::new(map.finish()), Arc::new(structs))
}

fn columns(lake: &Lake) -> Vec<ArrayRef> {
    let decimal = |precision, values: [Option<i128>; 3]| -> ArrayRef {
        Arc::new(Decimal128Array::from(values.to_vec()).with_precision_and_scale(precision, 2).unwrap())
    };
    let (list, map, structs) = nested(lake);
    let bytes: ArrayRef = match lake.arrow().field_with_name("bytes").unwrap().data_type() {
        DataType::LargeBinary => Arc::new(LargeBinaryArray::from(vec![Some(b"\xFF".as_slice()), None, Some(b"")])),
        _ => Arc::new(BinaryArray::from(vec![Some(b"\xFF".as_slice()), None, Some(b"")])),
    };
    let zone = match lake.arrow().field_with_name("tz").unwrap().data_type() {
        DataType::Timestamp(_, Some(zone)) => zone.clone(),
        other => panic!("{other}"),
    };
    vec![
        Arc::new(BooleanArray::from(vec![Some(true), None, Some(false)])),
        Arc::new(Int32Array::from(vec![Some(i32::MIN), None, Some(i32::MAX)])),
        Arc::new(Int64Array::from(vec![Some(i64::MIN), None, Some(i64::MAX)])),
        Arc::new(Float32Array::from(vec![Some(f32::NAN), None, Some(-0.0)])),
        Arc::new(Float64Array::from(vec![Some(f64::INFINITY), None, Some(-0.0)])),
        decimal(9, [Some(-999_999_999), None, Some(1)]),
        decimal(18, [Some(-999_999_999_999_999_999), None, Some(1)]),
        decimal(38, [Some(-99_999_999_999_999_999_999_999_999_999_999_999_999), None, Some(1)]),
        Arc::new(Date32Array::from(vec![Some(-1), None, Some(20_000)])),
        Arc::new(Time64MicrosecondArray::from(vec![Some(0), None, Some(86_399_999_999)])),
        Arc::new(TimestampMicrosecondArray::from(vec![Some(-1), None, Some(1)])),
        Arc::new(TimestampMicrosecondArray::from(vec![Some(-1), None, Some(1)]).with_timezone(Arc::clone(&zone))),
        Arc::new(TimestampNanosecondArray::from(vec![Some(i64::MIN), None, Some(i64::MAX)])),
        Arc::new(TimestampNanosecondArray::from(vec![Some(-1), None, Some(1)]).with_timezone(zone)),
        Arc::new(StringArray::from(vec![Some("ü\u{10FFFF}"), None, Some("")])),
        fixed(16, [Some(0xAB), None, Some(0)]),
        fixed(3, [Some(0xFF), None, Some(0)]),
        bytes,
        list,
        map,
        structs,
    ]
}

#[tokio::test]
async fn every_type_comes_back_as_it_was() {
    let lake = every_type();
    let batch = lake.batch(columns(&lake));
    let made = lake.encode("a", vec![batch.clone()], 1 << 30, MEMORY).await.unwrap();
    let read = lake.read(&made[0].output.path).await;
    assert_eq!(read.rows, batch);
    assert_eq!(read.rows.column_by_name("struct").unwrap().as_struct().column(0).as_primitive::<Int64Type>().value(0), 5);
}

#[tokio::test]
async fn only_encodings_that_every_engine_reads_are_written() {
    let lake = every_type();
    let made = lake.encode("a", vec![lake.batch(columns(&lake))], 1 << 30, MEMORY).await.unwrap();
    let read = lake.read(&made[0].output.path).await;
    let file = read.footer.file_metadata();
    assert_eq!(file.created_by(), Some(concat!("afterwrite version ", env!("CARGO_PKG_VERSION"), " (build release)")));
    let keys: Vec<&str> = file.key_value_metadata().unwrap().iter().map(|kv| kv.key.as_str()).collect();
    assert_eq!(keys, ["iceberg.schema"]);
    let known = [Encoding::PLAIN, Encoding::RLE, Encoding::PLAIN_DICTIONARY, Encoding::RLE_DICTIONARY];
    for chunk in read.footer.row_groups().iter().flat_map(|group| group.columns()) {
        assert!(chunk.encodings().all(|e| known.contains(&e)), "{} {:?}", chunk.column_path(), chunk.encodings().collect::<Vec<_>>());
        assert!(chunk.page_encoding_stats().unwrap().iter().all(|page| page.page_type != PageType::DATA_PAGE_V2));
    }
}

#[tokio::test]
async fn every_output_is_told_before_it_is_begun() {
    let lake = Lake::new(vec![("n", primitive(PrimitiveType::Long))], &[]);
    let batch = lake.batch(vec![Arc::new(Int64Array::from_iter_values(0..100))]);
    let made = lake.encode("attempt-1", vec![batch], 1 << 30, MEMORY).await.unwrap();
    let path = "memory://wh/db/t/data/00000-aw-attempt-1.parquet";
    assert_eq!(made[0].output.path, path);
    assert_eq!((made[0].output.records, made[0].data_file.record_count()), (100, 100));
    assert_eq!(made[0].output.bytes, lake.io.new_input(path).unwrap().metadata().await.unwrap().size);
    assert_eq!(lake.watch.take(), [path, "output-named", "output-begun"]);
}

#[tokio::test]
async fn no_live_rows_make_no_output() {
    let lake = Lake::new(vec![("n", primitive(PrimitiveType::Long))], &[]);
    assert_eq!(lake.encode("a", Vec::new(), 1 << 20, MEMORY).await.unwrap().len(), 0);
    assert_eq!(lake.watch.take().len(), 0);
}

#[tokio::test]
async fn a_stop_is_heard_at_the_next_batch() {
    let lake = Lake::new(vec![("n", primitive(PrimitiveType::Long))], &[]);
    let batch = lake.batch(vec![Arc::new(Int64Array::from_iter_values(0..100))]);
    lake.watch.stop_at.store(2, Ordering::Relaxed);
    let error = lake.encode("a", vec![batch.clone(), batch.clone(), batch], 1 << 20, MEMORY).await.err().unwrap();
    assert!(matches!(error, Error::Stopped(_)), "{error}");
    assert_eq!(lake.watch.take().len(), 2);
}

#[tokio::test]
async fn rows_of_another_schema_are_not_written() {
    let lake = Lake::new(vec![("n", primitive(PrimitiveType::Long))], &[]);
    let other = Lake::new(vec![("n", primitive(PrimitiveType::Int))], &[]);
    let mut required = lake.arrow().field(0).clone().with_nullable(false);
    required.set_metadata(lake.arrow().field(0).metadata().clone());
    for schema in [other.arrow(), Arc::new(arrow_schema::Schema::new(vec![required]))] {
        let plan = super::support::plan(vec![super::support::live("x", 1, 1)], 1, MEMORY);
        let attempt = afterwrite::model::plan::AttemptId("a".into());
        let job = afterwrite::lake::iceberg::rewrite::job::Job::new(&lake.io, &lake.metadata, &plan, &attempt, &lake.watch).unwrap();
        let source = super::support::Rows { schema, batches: Default::default(), read: 0 };
        let error = afterwrite::lake::iceberg::rewrite::encode::write(&job, Box::new(source)).await.err().unwrap();
        assert_eq!(error.to_string(), "column \"n\" of the rows is not the table's \"n\"");
    }
}
