//! How the values of a partition field read.

use iceberg::spec::{PartitionField, PrimitiveType, TableMetadata, Transform, Type};

use crate::model::form::Form;

/// By the field's transform and, where that keeps the type, by its column in the
/// current schema or, when it was dropped, in the newest that has it.
pub(super) fn of(metadata: &TableMetadata, field: &PartitionField) -> Form {
    match field.transform {
        Transform::Year => Form::Year,
        Transform::Month => Form::Month,
        Transform::Day => Form::Day,
        Transform::Hour => Form::Hour,
        Transform::Identity | Transform::Truncate(_) => column(metadata, field.source_id).map_or(Form::Plain, kept),
        Transform::Bucket(_) | Transform::Void | Transform::Unknown => Form::Plain,
    }
}

fn column(metadata: &TableMetadata, id: i32) -> Option<&PrimitiveType> {
    let mut older: Vec<_> = metadata.schemas_iter().collect();
    older.sort_by_key(|schema| std::cmp::Reverse(schema.schema_id()));
    let found = std::iter::once(metadata.current_schema()).chain(older).find_map(|schema| schema.field_by_id(id))?;
    match found.field_type.as_ref() {
        Type::Primitive(primitive) => Some(primitive),
        _ => None,
    }
}

fn kept(primitive: &PrimitiveType) -> Form {
    match primitive {
        PrimitiveType::Date => Form::Day,
        PrimitiveType::Time => Form::Time,
        PrimitiveType::Timestamp => Form::Micros { zoned: false },
        PrimitiveType::Timestamptz => Form::Micros { zoned: true },
        PrimitiveType::TimestampNs => Form::Nanos { zoned: false },
        PrimitiveType::TimestamptzNs => Form::Nanos { zoned: true },
        PrimitiveType::Decimal { scale, .. } => Form::Decimal { scale: *scale },
        _ => Form::Plain,
    }
}
