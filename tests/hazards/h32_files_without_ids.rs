//! Files without field ids: by a complete name mapping, or refused.

use std::sync::Arc;

use afterwrite::model::refusal::Refusal;
use arrow_array::RecordBatch;
use arrow_schema::{DataType, Field, Schema};
use parquet::file::properties::WriterProperties;
use serde_json::json;

use crate::reading::Lake;
use crate::reading::value::{Value, batch};

fn nested() -> Lake {
    Lake::new(json!([
        {"id": 1, "name": "id", "required": false, "type": "long"},
        {"id": 2, "name": "point", "required": false, "type": {"type": "struct", "fields": [
            {"id": 3, "name": "x", "required": false, "type": "long"},
            {"id": 4, "name": "y", "required": false, "type": "long"},
        ]}},
        {"id": 5, "name": "tags", "required": false, "type":
            {"type": "list", "element-id": 6, "element-required": false, "element": "string"}},
    ]))
}

const MAPPING: &str = r#"[
    {"field-id": 1, "names": ["id", "ident"]},
    {"field-id": 2, "names": ["point"], "fields": [{"field-id": 3, "names": ["x", "x_old"]}, {"field-id": 4, "names": ["y"]}]},
    {"field-id": 5, "names": ["tags"], "fields": [{"field-id": 6, "names": ["element"]}]}
]"#;

/// A file as a writer without field ids leaves it: old names, another order, the
/// list's element called `item`.
fn bare() -> RecordBatch {
    let point = DataType::Struct(vec![Field::new("y", DataType::Int64, true), Field::new("x_old", DataType::Int64, true)].into());
    let schema = Arc::new(Schema::new(vec![
        Field::new("point", point, true),
        Field::new("ident", DataType::Int64, true),
        Field::new("tags", DataType::List(Arc::new(Field::new("item", DataType::Utf8, true))), true),
    ]));
    let tags = Value::List(vec![Value::text("a"), Value::Null]);
    batch(
        &schema,
        &[vec![Value::Struct(vec![Value::Int(20), Value::Int(10)]), Value::Int(1), tags], vec![Value::Null, Value::Int(2), Value::Null]],
    )
}

fn wanted() -> Vec<Vec<Value>> {
    vec![
        vec![Value::Int(1), Value::Struct(vec![Value::Int(10), Value::Int(20)]), Value::List(vec![Value::text("a"), Value::Null])],
        vec![Value::Int(2), Value::Null, Value::Null],
    ]
}

fn with_mapping(mapping: Option<&str>) -> Lake {
    let mut lake = nested();
    if let Some(mapping) = mapping {
        lake.properties.insert("schema.name-mapping.default".into(), mapping.into());
    }
    lake.append_batch(1, &bare(), WriterProperties::builder().build());
    lake
}

#[tokio::test]
async fn h32_a_name_mapping_finds_flat_and_nested_columns() {
    assert_eq!(with_mapping(Some(MAPPING)).values().await, wanted());
}

#[tokio::test]
async fn h32_without_a_mapping_the_file_is_refused() {
    let (refusal, detail) = with_mapping(None).refusal().await;
    assert_eq!(refusal, Refusal::NoFieldIds);
    assert!(detail.contains("data-001.parquet") && detail.contains("column id"), "{detail}");
}

#[tokio::test]
async fn h32_a_mapping_that_misses_a_nested_name_is_refused_not_read_as_null() {
    let (refusal, detail) = with_mapping(Some(&MAPPING.replace(", \"x_old\"", ""))).refusal().await;
    assert_eq!(refusal, Refusal::NoFieldIds);
    assert!(detail.contains("column point.x") && detail.contains("x_old"), "{detail}");
}

#[tokio::test]
async fn h32_a_mapping_that_misses_a_list_element_is_refused() {
    let mapping = MAPPING.replace(r#", "fields": [{"field-id": 6, "names": ["element"]}]"#, "");
    let (refusal, detail) = with_mapping(Some(&mapping)).refusal().await;
    assert_eq!(refusal, Refusal::NoFieldIds);
    assert!(detail.contains("tags.element"), "{detail}");
}

#[tokio::test]
async fn h32_a_mapping_that_does_not_parse_is_refused() {
    let (refusal, detail) = with_mapping(Some("[{")).refusal().await;
    assert_eq!(refusal, Refusal::NoFieldIds);
    assert!(detail.contains("schema.name-mapping.default"), "{detail}");
}

#[tokio::test]
async fn h32_a_column_added_after_a_mapped_file_is_null() {
    let mut lake = with_mapping(Some(MAPPING));
    let mut fields = lake.schemas[0]["fields"].clone();
    fields.as_array_mut().unwrap().push(json!({"id": 7, "name": "late", "required": false, "type": "int"}));
    lake.evolve(fields);
    let wanted: Vec<Vec<Value>> = wanted()
        .into_iter()
        .map(|mut r| {
            r.push(Value::Null);
            r
        })
        .collect();
    assert_eq!(lake.values().await, wanted);
}
