//! Partition tuples: Avro values made comparable across manifests.
//!
//! Manifests of one spec may differ in the width of a value, when a column was
//! promoted between them. Tuples are therefore typed by the table, at its widest,
//! and two manifests never disagree about which partition a file is in.

use std::fmt;
use std::sync::Arc;

use iceberg::spec::{
    Literal, NestedFieldRef, PartitionField, PartitionSpec, PrimitiveLiteral, PrimitiveType, Struct, StructType, TableMetadata, Transform,
    Type,
};
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value as Json;

use super::avro::field_id;
use crate::model::partition::{Tuple, Value};

/// The types of a spec's tuple, in field order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionTypes {
    fields: Vec<Field>,
}

/// One field of a spec.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Field {
    id: i32,
    name: String,
    /// `None`: a void field, whose value is always NULL.
    kind: Option<Kind>,
}

/// Why a spec's types cannot be told: the source column is in no schema that the
/// metadata still lists, or the transform is not known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("partition spec {spec_id}: {why}")]
pub struct Unresolved {
    /// The spec.
    pub spec_id: i32,
    /// The field concerned, and what is missing.
    pub why: String,
}

/// How a value is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Bool,
    Int,
    Long,
    Float,
    Double,
    Decimal,
    String,
    Bytes,
    Uuid,
}

impl PartitionTypes {
    /// Resolves a spec's types: each source column is looked for in the current
    /// schema, then in older ones, newest first, because a dropped column still
    /// types the partitions of old files.
    ///
    /// # Errors
    /// [`Unresolved`] with the field.
    pub fn resolve(metadata: &TableMetadata, spec_id: i32) -> Result<Self, Unresolved> {
        let unresolved = |why: String| Unresolved { spec_id, why };
        let spec = metadata.partition_spec_by_id(spec_id).ok_or_else(|| unresolved("the metadata does not list it".into()))?;
        let mut fields = Vec::with_capacity(spec.fields().len());
        for field in spec.fields() {
            let kind = match field.transform {
                Transform::Void => None,
                transform => Some(kind_of(metadata, field.source_id, transform).ok_or_else(|| {
                    unresolved(format!("no schema gives field `{}` ({transform} of column id {}) a type", field.name, field.source_id))
                })?),
            };
            fields.push(Field { id: field.field_id, name: field.name.clone(), kind });
        }
        Ok(Self { fields })
    }

    /// The types of a spec whose values are typed already, as one manifest's are by its
    /// own header.
    pub fn typed(spec: &PartitionSpec, types: &StructType) -> Self {
        let field = |(field, typed): (&PartitionField, &NestedFieldRef)| Field {
            id: field.field_id,
            name: field.name.clone(),
            kind: if field.transform == Transform::Void { None } else { Kind::of(&typed.field_type) },
        };
        Self { fields: spec.fields().iter().zip(types.fields()).map(field).collect() }
    }

    /// A tuple as the crate's manifest writers want it.
    ///
    /// # Errors
    /// A text, when the tuple is not one of this spec.
    pub fn to_struct(&self, tuple: &Tuple) -> Result<Struct, String> {
        if tuple.len() != self.fields.len() {
            return Err(format!("a tuple of {} values for a spec of {} fields", tuple.len(), self.fields.len()));
        }
        Ok(tuple.iter().map(|value| value.as_ref().map(literal)).collect())
    }
}

fn literal(value: &Value) -> Literal {
    Literal::Primitive(match value {
        Value::Bool(v) => PrimitiveLiteral::Boolean(*v),
        Value::Int(v) => PrimitiveLiteral::Int(*v),
        Value::Long(v) => PrimitiveLiteral::Long(*v),
        Value::Float(v) => PrimitiveLiteral::Float(f32::from_bits(*v).into()),
        Value::Double(v) => PrimitiveLiteral::Double(f64::from_bits(*v).into()),
        Value::Decimal(v) => PrimitiveLiteral::Int128(*v),
        Value::String(v) => PrimitiveLiteral::String(v.to_string()),
        Value::Bytes(v) => PrimitiveLiteral::Binary(v.to_vec()),
        Value::Uuid(v) => PrimitiveLiteral::UInt128(*v),
    })
}

fn kind_of(metadata: &TableMetadata, source_id: i32, transform: Transform) -> Option<Kind> {
    let mut older: Vec<_> = metadata.schemas_iter().collect();
    older.sort_by_key(|schema| std::cmp::Reverse(schema.schema_id()));
    std::iter::once(metadata.current_schema())
        .chain(older)
        .filter_map(|schema| schema.field_by_id(source_id))
        .find_map(|column| kind_of_result(&column.field_type, transform))
}

fn kind_of_result(source: &Type, transform: Transform) -> Option<Kind> {
    if transform == Transform::Unknown {
        return None;
    }
    Kind::of(&transform.result_type(source).ok()?)
}

/// How one manifest's partition records become tuples.
pub struct Columns(Vec<Column>);

struct Column {
    at: usize,
    name: String,
    kind: Option<Kind>,
}

impl Columns {
    /// Joins a manifest's partition record schema with the table's types. Without
    /// types (an unresolved spec) values are typed by Avro alone, in the record's
    /// order: good enough to tell partitions apart.
    ///
    /// # Errors
    /// A text that names the field which the record lacks.
    pub fn of(record: &Json, types: Option<&PartitionTypes>) -> Result<Self, String> {
        let avro = record.get("fields").and_then(Json::as_array).map(Vec::as_slice).unwrap_or_default();
        let Some(types) = types else {
            let by_avro = |(at, field)| Column { at, name: field_name(field), kind: field.get("type").and_then(kind_by_avro) };
            return Ok(Self(avro.iter().enumerate().map(by_avro).collect()));
        };
        let with_ids = avro.iter().any(|field| field_id(field).is_some());
        let mut columns = Vec::with_capacity(types.fields.len());
        for (index, field) in types.fields.iter().enumerate() {
            let at = match with_ids {
                true => avro.iter().position(|f| field_id(f) == Some(i64::from(field.id))),
                false => (index < avro.len()).then_some(index),
            };
            match (at, field.kind) {
                (Some(at), kind) => columns.push(Column { at, name: field.name.clone(), kind }),
                (None, None) => columns.push(Column { at: usize::MAX, name: field.name.clone(), kind: None }),
                (None, Some(_)) => return Err(format!("the partition record lacks field `{}` (id {})", field.name, field.id)),
            }
        }
        Ok(Self(columns))
    }

    /// One record as a tuple.
    ///
    /// # Errors
    /// A text that names the field whose value is not of its type.
    pub fn tuple(&self, raw: &RawTuple) -> Result<Tuple, String> {
        self.0
            .iter()
            .map(|column| match (column.kind, raw.0.get(column.at)) {
                (Some(kind), Some(Some(raw))) => {
                    kind.value(raw).map(Some).ok_or_else(|| format!("partition field `{}` is no {kind:?}: {raw:?}", column.name))
                }
                _ => Ok(None),
            })
            .collect()
    }
}

impl Kind {
    /// `None` for a type that is not primitive.
    fn of(kind: &Type) -> Option<Self> {
        Some(match kind.as_primitive_type()? {
            PrimitiveType::Boolean => Self::Bool,
            PrimitiveType::Int | PrimitiveType::Date => Self::Int,
            PrimitiveType::Long
            | PrimitiveType::Time
            | PrimitiveType::Timestamp
            | PrimitiveType::Timestamptz
            | PrimitiveType::TimestampNs
            | PrimitiveType::TimestamptzNs => Self::Long,
            PrimitiveType::Float => Self::Float,
            PrimitiveType::Double => Self::Double,
            PrimitiveType::Decimal { .. } => Self::Decimal,
            PrimitiveType::String => Self::String,
            PrimitiveType::Uuid => Self::Uuid,
            PrimitiveType::Fixed(_) | PrimitiveType::Binary => Self::Bytes,
        })
    }

    /// Also widens: int to long, float to double.
    fn value(self, raw: &Raw) -> Option<Value> {
        Some(match (self, raw) {
            (Self::Bool, Raw::Bool(v)) => Value::Bool(*v),
            (Self::Int, Raw::Number(v)) => Value::Int(i32::try_from(*v).ok()?),
            (Self::Long, Raw::Number(v)) => Value::Long(*v),
            (Self::Float, Raw::Float(v)) => Value::Float(float_bits(*v)),
            (Self::Double, Raw::Float(v)) => Value::Double(double_bits(f64::from(*v))),
            (Self::Double, Raw::Double(v)) => Value::Double(double_bits(*v)),
            (Self::Decimal, Raw::Bytes(v)) => Value::Decimal(unscaled(v)?),
            (Self::String, Raw::String(v)) => Value::String(Arc::from(v.as_str())),
            (Self::Bytes, Raw::Bytes(v)) => Value::Bytes(Arc::from(v.as_slice())),
            (Self::Uuid, Raw::Bytes(v)) => Value::Uuid(u128::from_be_bytes(v.as_slice().try_into().ok()?)),
            (Self::Uuid, Raw::String(v)) => Value::Uuid(uuid::Uuid::parse_str(v).ok()?.as_u128()),
            _ => return None,
        })
    }
}

/// All NaNs are one partition, so they are one bit pattern.
fn float_bits(v: f32) -> u32 {
    if v.is_nan() { 0x7fc0_0000 } else { v.to_bits() }
}

fn double_bits(v: f64) -> u64 {
    if v.is_nan() { 0x7ff8_0000_0000_0000 } else { v.to_bits() }
}

/// Two's complement, big-endian, of any length up to sixteen bytes that matter.
pub(super) fn unscaled(bytes: &[u8]) -> Option<i128> {
    let sign = if bytes.first()? & 0x80 == 0 { 0x00 } else { 0xff };
    let (extension, digits) = bytes.split_at(bytes.len().saturating_sub(16));
    let mut full = [sign; 16];
    full.get_mut(16 - digits.len()..)?.copy_from_slice(digits);
    let value = i128::from_be_bytes(full);
    let fits = extension.iter().all(|b| *b == sign) && (value < 0) == (sign == 0xff);
    fits.then_some(value)
}

fn field_name(field: &Json) -> String {
    field.get("name").and_then(Json::as_str).unwrap_or("?").to_owned()
}

fn kind_by_avro(schema: &Json) -> Option<Kind> {
    match schema {
        Json::Array(union) => union.iter().find_map(kind_by_avro),
        Json::String(name) => match name.as_str() {
            "boolean" => Some(Kind::Bool),
            "int" => Some(Kind::Int),
            "long" => Some(Kind::Long),
            "float" => Some(Kind::Float),
            "double" => Some(Kind::Double),
            "string" => Some(Kind::String),
            "bytes" | "fixed" => Some(Kind::Bytes),
            _ => None,
        },
        Json::Object(map) => match map.get("logicalType").and_then(Json::as_str) {
            Some("decimal") => Some(Kind::Decimal),
            Some("uuid") => Some(Kind::Uuid),
            _ => map.get("type").and_then(kind_by_avro),
        },
        _ => None,
    }
}

/// A partition record as Avro holds it, in the record's order.
pub struct RawTuple(Vec<Option<Raw>>);

/// One value as Avro holds it.
#[derive(Debug)]
enum Raw {
    Bool(bool),
    Number(i64),
    Float(f32),
    Double(f64),
    String(String),
    Bytes(Vec<u8>),
}

impl<'de> Deserialize<'de> for RawTuple {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        d.deserialize_map(TupleVisitor)
    }
}

struct TupleVisitor;

impl<'de> Visitor<'de> for TupleVisitor {
    type Value = RawTuple;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a partition record")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RawTuple, A::Error> {
        let mut values = Vec::new();
        while map.next_key::<IgnoredAny>()?.is_some() {
            values.push(map.next_value::<Option<Raw>>()?);
        }
        Ok(RawTuple(values))
    }
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        d.deserialize_any(RawVisitor)
    }
}

struct RawVisitor;

impl Visitor<'_> for RawVisitor {
    type Value = Raw;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a partition value of a primitive type")
    }

    fn visit_bool<E>(self, v: bool) -> Result<Raw, E> {
        Ok(Raw::Bool(v))
    }

    fn visit_i64<E>(self, v: i64) -> Result<Raw, E> {
        Ok(Raw::Number(v))
    }

    fn visit_f32<E>(self, v: f32) -> Result<Raw, E> {
        Ok(Raw::Float(v))
    }

    fn visit_f64<E>(self, v: f64) -> Result<Raw, E> {
        Ok(Raw::Double(v))
    }

    fn visit_str<E>(self, v: &str) -> Result<Raw, E> {
        Ok(Raw::String(v.to_owned()))
    }

    fn visit_bytes<E>(self, v: &[u8]) -> Result<Raw, E> {
        Ok(Raw::Bytes(v.to_vec()))
    }
}
