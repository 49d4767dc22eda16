//! Values of columns that files leave out: identity partition values, which Hive keeps
//! in folder names (tables migrated from it keep such files), and initial defaults.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::{
    ArrayRef, BooleanArray, Date32Array, Decimal128Array, FixedSizeBinaryArray, Float32Array, Float64Array, Int32Array, Int64Array,
    LargeBinaryArray, StringArray, Time64MicrosecondArray, TimestampMicrosecondArray, TimestampNanosecondArray, new_null_array,
};
use arrow_schema::{DataType, Schema, TimeUnit};
use iceberg::spec::{Literal, Transform};

use super::schema::{children, field_id};
use crate::lake::Result;
use crate::lake::iceberg::scope::tuple;
use crate::lake::iceberg::table::IcebergTable;
use crate::model::partition::{PartitionKey, Value};
use crate::model::refusal::{Refusal, Refused};

/// What columns hold that a file leaves out, by field id, each an array of one in the
/// type of the table's current schema: the values of identity partition fields, else
/// the initial defaults of columns that were added with one.
///
/// Errs refused `UnresolvedSpec`, `ColumnType` or `DefaultValue`.
pub fn constants(table: &IcebergTable, scope: &PartitionKey, schema: &Schema) -> Result<HashMap<i32, ArrayRef>> {
    let unresolved = |why: String| Refused::new(Refusal::UnresolvedSpec, why);
    let spec = table
        .loaded
        .metadata
        .partition_spec_by_id(scope.spec_id)
        .ok_or_else(|| unresolved(format!("partition spec {} is not in the metadata", scope.spec_id)))?;
    if spec.fields().len() != scope.tuple.len() {
        return Err(unresolved(format!("partition {scope} does not have the fields of its spec")).into());
    }
    let mut constants = HashMap::new();
    for (field, value) in spec.fields().iter().zip(scope.tuple.iter()) {
        if field.transform != Transform::Identity {
            continue;
        }
        let Some(data_type) = find(schema, field.source_id) else { continue };
        let array = match value {
            None => new_null_array(data_type, 1),
            Some(value) => one(value, data_type).ok_or_else(|| {
                Refused::new(Refusal::ColumnType, format!("partition value {value} of column {} as {data_type}", field.name))
            })?,
        };
        constants.insert(field.source_id, array);
    }
    add_defaults(table, schema, &mut constants)?;
    Ok(constants)
}

fn add_defaults(table: &IcebergTable, schema: &Schema, constants: &mut HashMap<i32, ArrayRef>) -> Result<()> {
    for (id, field) in table.loaded.metadata.current_schema().field_id_to_fields() {
        let (Some(default), Some(data_type)) = (&field.initial_default, find(schema, *id)) else { continue };
        if constants.contains_key(id) {
            continue;
        }
        let value = match default {
            Literal::Primitive(literal) => tuple::from_literal(literal).and_then(|value| one(&value, data_type)),
            _ => None,
        };
        let told = || Refused::new(Refusal::DefaultValue, format!("the initial default of column {} as {data_type}", field.name));
        constants.insert(*id, value.ok_or_else(told)?);
    }
    Ok(())
}

fn find(schema: &Schema, id: i32) -> Option<&DataType> {
    fn below(data_type: &DataType, id: i32) -> Option<&DataType> {
        children(data_type).into_iter().find_map(|f| if field_id(f) == Some(id) { Some(f.data_type()) } else { below(f.data_type(), id) })
    }
    schema.fields().iter().find_map(|f| if field_id(f) == Some(id) { Some(f.data_type()) } else { below(f.data_type(), id) })
}

/// One value as an array of one; `None` when it is not of that type.
pub fn one(value: &Value, data_type: &DataType) -> Option<ArrayRef> {
    Some(match (value, data_type) {
        (Value::Bool(v), DataType::Boolean) => Arc::new(BooleanArray::from(vec![*v])),
        (Value::Int(v), DataType::Int32) => Arc::new(Int32Array::from(vec![*v])),
        (Value::Int(v), DataType::Int64) => Arc::new(Int64Array::from(vec![i64::from(*v)])),
        (Value::Long(v), DataType::Int64) => Arc::new(Int64Array::from(vec![*v])),
        (Value::Int(v), DataType::Date32) => Arc::new(Date32Array::from(vec![*v])),
        (Value::Long(v), DataType::Time64(_)) => Arc::new(Time64MicrosecondArray::from(vec![*v])),
        (Value::Long(v), DataType::Timestamp(TimeUnit::Nanosecond, zone)) => {
            Arc::new(TimestampNanosecondArray::from(vec![*v]).with_timezone_opt(zone.clone()))
        }
        (Value::Long(v), DataType::Timestamp(TimeUnit::Microsecond, zone)) => {
            Arc::new(TimestampMicrosecondArray::from(vec![*v]).with_timezone_opt(zone.clone()))
        }
        (Value::Float(v), DataType::Float32) => Arc::new(Float32Array::from(vec![f32::from_bits(*v)])),
        (Value::Float(v), DataType::Float64) => Arc::new(Float64Array::from(vec![f64::from(f32::from_bits(*v))])),
        (Value::Double(v), DataType::Float64) => Arc::new(Float64Array::from(vec![f64::from_bits(*v)])),
        (Value::Decimal(v), DataType::Decimal128(p, s)) => Arc::new(Decimal128Array::from(vec![*v]).with_precision_and_scale(*p, *s).ok()?),
        (Value::String(v), DataType::Utf8) => Arc::new(StringArray::from(vec![v.as_ref()])),
        (Value::Bytes(v), DataType::LargeBinary) => Arc::new(LargeBinaryArray::from(vec![v.as_ref()])),
        (Value::Bytes(v), DataType::FixedSizeBinary(width)) if usize::try_from(*width).ok() == Some(v.len()) => {
            Arc::new(FixedSizeBinaryArray::try_from_iter(std::iter::once(v)).ok()?)
        }
        (Value::Uuid(v), DataType::FixedSizeBinary(16)) => {
            Arc::new(FixedSizeBinaryArray::try_from_iter(std::iter::once(v.to_be_bytes())).ok()?)
        }
        _ => return None,
    })
}
