//! Laws of column metrics over encoded files.

use std::sync::Arc;

use arrow_array::{ArrayRef, Decimal128Array, FixedSizeBinaryArray, Float64Array, Int64Array, StringArray};
use iceberg::spec::{DataFile, Datum, PrimitiveType};
use proptest::prelude::*;

use super::support::{Lake, MEMORY, primitive};

const UUID: PrimitiveType = PrimitiveType::Uuid;
const DECIMAL: PrimitiveType = PrimitiveType::Decimal { precision: 30, scale: 3 };

#[derive(Clone, Debug)]
struct Row {
    text: Option<String>,
    double: Option<f64>,
    decimal: Option<i128>,
    uuid: Option<[u8; 16]>,
    number: Option<i64>,
}

fn row() -> impl Strategy<Value = Row> {
    let text = prop_oneof!["[a-c]{0,3}", "[\\x00-\u{10FFFF}]{0,20}", "\u{10FFFF}{14,18}", "[\u{D000}-\u{F000}]{16,17}"];
    let double = prop_oneof![Just(f64::NAN), Just(0.0), Just(-0.0), Just(f64::INFINITY), Just(f64::NEG_INFINITY), any::<f64>()];
    let decimal = -999_999_999_999_999_999_999_999_999_999i128..=999_999_999_999_999_999_999_999_999_999;
    let parts = (
        prop::option::of(text),
        prop::option::of(double),
        prop::option::of(decimal),
        prop::option::of(any::<[u8; 16]>()),
        prop::option::of(any::<i64>()),
    );
    parts.prop_map(|(text, double, decimal, uuid, number)| Row { text, double, decimal, uuid, number })
}

fn write(mode: &str, groups: &[Vec<Row>]) -> DataFile {
    let fields = vec![
        ("text", primitive(PrimitiveType::String)),
        ("double", primitive(PrimitiveType::Double)),
        ("decimal", primitive(DECIMAL)),
        ("uuid", primitive(UUID)),
        ("number", primitive(PrimitiveType::Long)),
    ];
    // Every batch becomes a row group of its own.
    let properties = [("write.metadata.metrics.default", mode), ("write.parquet.row-group-size-bytes", "1")];
    let lake = Lake::new(fields, &properties);
    let batches = groups.iter().map(|rows| {
        let columns: Vec<ArrayRef> = vec![
            Arc::new(StringArray::from_iter(rows.iter().map(|r| r.text.clone()))),
            Arc::new(Float64Array::from_iter(rows.iter().map(|r| r.double))),
            Arc::new(Decimal128Array::from_iter(rows.iter().map(|r| r.decimal)).with_precision_and_scale(30, 3).unwrap()),
            Arc::new(FixedSizeBinaryArray::try_from_sparse_iter_with_size(rows.iter().map(|r| r.uuid), 16).unwrap()),
            Arc::new(Int64Array::from_iter(rows.iter().map(|r| r.number))),
        ];
        lake.batch(columns)
    });
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let mut made = runtime.block_on(lake.encode("a", batches.collect(), u64::MAX, MEMORY)).unwrap();
    made.remove(0).data_file
}

/// Whether a value is inside the file's bounds, where it has any.
fn covers(file: &DataFile, id: i32, value: &Datum) -> bool {
    file.lower_bounds().get(&id).is_none_or(|lower| lower <= value) && file.upper_bounds().get(&id).is_none_or(|upper| upper >= value)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn bounds_exclude_no_value_and_counts_are_exact(
        mode in prop_oneof![Just("truncate(1)"), Just("truncate(16)"), Just("full")],
        groups in prop::collection::vec(prop::collection::vec(row(), 1..6), 1..4),
    ) {
        let file = write(mode, &groups);
        let rows: Vec<&Row> = groups.iter().flatten().collect();
        for row in &rows {
            let values = [
                (1, row.text.as_ref().map(Datum::string)),
                (2, row.double.filter(|v| !v.is_nan()).map(Datum::double)),
                (3, row.decimal.map(|v| Datum::try_from_bytes(&v.to_be_bytes(), DECIMAL).unwrap())),
                (4, row.uuid.map(|v| Datum::try_from_bytes(&v, UUID).unwrap())),
                (5, row.number.map(Datum::long)),
            ];
            for (id, value) in values {
                prop_assert!(value.as_ref().is_none_or(|v| covers(&file, id, v)), "{id} {value:?} {file:?}");
            }
        }
        let nulls = |of: fn(&Row) -> bool| rows.iter().filter(|r| of(r)).count() as u64;
        prop_assert_eq!(file.null_value_counts()[&1], nulls(|r| r.text.is_none()));
        prop_assert_eq!(file.null_value_counts()[&2], nulls(|r| r.double.is_none()));
        prop_assert_eq!(file.nan_value_counts()[&2], nulls(|r| r.double.is_some_and(f64::is_nan)));
        prop_assert_eq!(file.value_counts()[&5], rows.len() as u64);
        prop_assert_eq!(file.lower_bounds().contains_key(&5), rows.iter().any(|r| r.number.is_some()));
    }
}
