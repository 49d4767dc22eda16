//! Moments in nanoseconds (format 3): the same values on every way, bounds of eight bytes,
//! equality deletes by them.

use std::collections::HashMap;

use afterwrite::lake::iceberg::rewrite::{self, Detail};
use afterwrite::lake::iceberg::verify;
use afterwrite::model::plan::{AttemptId, Path};
use arrow_schema::{DataType, TimeUnit};
use iceberg::spec::Datum;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::file::properties::WriterProperties;
use serde_json::json;

use crate::reading::value::{self, Value, batch};
use crate::reading::{Free, Lake, field};

const AT: i64 = 1_700_000_000_123_456_789;

fn rows(file: i64, count: i64) -> Vec<Vec<Value>> {
    let at = |n: i64| if n % 7 == 3 { Value::Null } else { Value::Int(AT + n * 2 + file) };
    (0..count).map(|n| vec![at(n), Value::Int(i64::MIN + n)]).collect()
}

#[tokio::test]
async fn moments_in_nanoseconds_are_the_same_on_every_way() {
    for (way, count, filtered) in [(Path::Splice, 130_000, false), (Path::RePack, 10, false), (Path::ReEncode, 10, true)] {
        let mut lake = Lake::new(json!([
            {"id": 1, "name": "at", "required": false, "type": "timestamp_ns"},
            {"id": 2, "name": "zoned", "required": false, "type": "timestamptz_ns"},
        ]));
        for column in ["at", "zoned"].into_iter().filter(|_| filtered) {
            lake.properties.insert(format!("write.parquet.bloom-filter-enabled.column.{column}"), "true".into());
        }
        for file in 0..2 {
            let rows = batch(&lake.arrow(), &rows(file, count));
            lake.append_batch(1, &rows, WriterProperties::builder().build());
        }
        let mut expected = lake.values().await;
        if way != Path::Splice {
            let key = field("at", DataType::Timestamp(TimeUnit::Nanosecond, None), true, 1);
            lake.delete_keys(2, vec![key], &[vec![Value::Int(AT)], vec![Value::Int(AT + 3)]]);
            expected.retain(|row| ![Value::Int(AT), Value::Int(AT + 3)].contains(&row[0]));
            assert_eq!((lake.values().await.len(), expected.len()), (18, 18));
        }
        let (table, plan) = (lake.table().await, lake.plan());

        let written = rewrite::run(&table, &plan, &AttemptId("a1".into()), &Free).await.unwrap();
        verify::run(&table, &plan, &written).await.unwrap();

        assert_eq!(written.path, way);
        let [file] = written.detail.downcast_ref::<Detail>().unwrap().data_files.as_slice() else { panic!("{way:?}") };
        let bound = |bounds: &HashMap<i32, Datum>| bounds[&1].to_bytes().unwrap().to_vec();
        let known: Vec<i64> = expected.iter().filter_map(|row| if let Value::Int(at) = row[0] { Some(at) } else { None }).collect();
        let ends = (known.iter().min().unwrap().to_le_bytes().to_vec(), known.iter().max().unwrap().to_le_bytes().to_vec());
        assert_eq!((bound(file.lower_bounds()), bound(file.upper_bounds())), ends, "{way:?}");
        let output = std::fs::File::open(written.outputs[0].path.strip_prefix("file://").unwrap()).unwrap();
        let reader = ParquetRecordBatchReaderBuilder::try_new(output).unwrap().build().unwrap();
        let mut after: Vec<Vec<Value>> = reader.flat_map(|batch| value::rows(&batch.unwrap())).collect();
        expected.sort_by_key(|row| format!("{row:?}"));
        after.sort_by_key(|row| format!("{row:?}"));
        assert!(after == expected, "{way:?}");
    }
}
