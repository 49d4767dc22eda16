//! The table's schema as Arrow carries it.

use std::sync::Arc;

use arrow_schema::extension::{EXTENSION_TYPE_NAME_KEY, ExtensionType, Uuid};
use arrow_schema::{DataType, Field, FieldRef, Fields, Schema, SchemaRef};
use iceberg::spec::{Literal, PrimitiveType, Schema as TableSchema, Type};
use parquet::arrow::PARQUET_FIELD_ID_META_KEY;

use crate::lake::Result;
use crate::model::refusal::{Refusal, Refused};

/// The Arrow schema of a table schema. Every field, nested ones too, has its
/// field id in the metadata key `PARQUET:field_id`; a uuid carries the Arrow
/// extension by which the Parquet writer knows its logical type.
///
/// Errs refused `ColumnType` or `DefaultValue`, naming the column.
pub fn arrow_schema(schema: &TableSchema) -> Result<SchemaRef> {
    for (id, field) in schema.field_id_to_fields() {
        let name = schema.name_by_field_id(*id).unwrap_or(&field.name);
        if matches!(&field.initial_default, Some(default) if !matches!(default, Literal::Primitive(_))) {
            return Err(Refused::new(Refusal::DefaultValue, format!("column {name} has an initial default with parts")).into());
        }
        let carried = match field.field_type.as_ref() {
            Type::Primitive(PrimitiveType::Fixed(length)) => *length > 0 && i32::try_from(*length).is_ok(),
            Type::Struct(fields) => !fields.fields().is_empty(),
            _ => true,
        };
        if !carried {
            return Err(Refused::new(Refusal::ColumnType, format!("column {name} of type {}", field.field_type)).into());
        }
    }
    let arrow = iceberg::arrow::schema_to_arrow_schema(schema)
        .map_err(|e| Refused::new(Refusal::ColumnType, format!("the table's schema has no Arrow form: {e}")))?;
    let fields: Fields = arrow.fields().iter().map(|f| mark_uuids(f, schema)).collect();
    Ok(Arc::new(Schema::new(fields)))
}

/// The field id in an Arrow field's metadata.
pub fn field_id(field: &Field) -> Option<i32> {
    field.metadata().get(PARQUET_FIELD_ID_META_KEY)?.parse().ok()
}

/// The fields below a field: of a struct, of a list its element, of a map key
/// and value; none of a primitive.
pub fn children(data_type: &DataType) -> Vec<&FieldRef> {
    match data_type {
        DataType::Struct(fields) => fields.iter().collect(),
        DataType::List(element) => vec![element],
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(fields) => fields.iter().collect(),
            _ => Vec::new(),
        },
        _ => Vec::new(),
    }
}

fn mark_uuids(field: &FieldRef, schema: &TableSchema) -> FieldRef {
    let data_type = match field.data_type() {
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(|f| mark_uuids(f, schema)).collect()),
        DataType::List(element) => DataType::List(mark_uuids(element, schema)),
        DataType::Map(entries, sorted) => DataType::Map(mark_uuids(entries, schema), *sorted),
        other => other.clone(),
    };
    let mut metadata = field.metadata().clone();
    let is_uuid = field_id(field)
        .and_then(|id| schema.field_by_id(id))
        .is_some_and(|f| matches!(f.field_type.as_ref(), Type::Primitive(PrimitiveType::Uuid)));
    if is_uuid {
        metadata.insert(EXTENSION_TYPE_NAME_KEY.into(), Uuid::NAME.into());
    }
    Arc::new(Field::new(field.name(), data_type, field.is_nullable()).with_metadata(metadata))
}
