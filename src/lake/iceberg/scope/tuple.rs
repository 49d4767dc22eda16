//! Partition tuples between the crate's literals and the model's values.

use iceberg::spec::{Literal, PrimitiveLiteral, PrimitiveType, Struct, StructType, Type};

use crate::model::partition::{Tuple, Value};

/// One literal as the model has it; `None` for the crate's two markers of a
/// value out of range.
pub fn from_literal(literal: &PrimitiveLiteral) -> Option<Value> {
    Some(match literal {
        PrimitiveLiteral::Boolean(v) => Value::Bool(*v),
        PrimitiveLiteral::Int(v) => Value::Int(*v),
        PrimitiveLiteral::Long(v) => Value::Long(*v),
        PrimitiveLiteral::Float(v) => Value::Float(v.0.to_bits()),
        PrimitiveLiteral::Double(v) => Value::Double(v.0.to_bits()),
        PrimitiveLiteral::String(v) => Value::String(v.as_str().into()),
        PrimitiveLiteral::Binary(v) => Value::Bytes(v.as_slice().into()),
        PrimitiveLiteral::Int128(v) => Value::Decimal(*v),
        PrimitiveLiteral::UInt128(v) => Value::Uuid(*v),
        PrimitiveLiteral::AboveMax | PrimitiveLiteral::BelowMin => return None,
    })
}

/// A tuple as a struct of the given partition type, promoted where the type was.
/// Errs, naming the field, where value and type do not fit.
pub fn to_struct(tuple: &Tuple, fields: &StructType) -> Result<Struct, String> {
    if tuple.len() != fields.fields().len() {
        return Err(format!("a tuple of {} values under a spec of {} fields", tuple.len(), fields.fields().len()));
    }
    tuple
        .iter()
        .zip(fields.fields())
        .map(|(value, field)| match (value, field.field_type.as_ref()) {
            (None, _) => Ok(None),
            (Some(value), Type::Primitive(kind)) => to_literal(value, kind)
                .map(|l| Some(Literal::Primitive(l)))
                .ok_or_else(|| format!("partition field `{}` is {kind}, its value {value} is not", field.name)),
            (Some(_), _) => Err(format!("partition field `{}` is not a primitive", field.name)),
        })
        .collect()
}

fn to_literal(value: &Value, kind: &PrimitiveType) -> Option<PrimitiveLiteral> {
    use PrimitiveType as T;
    Some(match (value, kind) {
        (Value::Bool(v), T::Boolean) => PrimitiveLiteral::Boolean(*v),
        (Value::Int(v), T::Int | T::Date) => PrimitiveLiteral::Int(*v),
        (Value::Int(v), T::Long) => PrimitiveLiteral::Long((*v).into()),
        (Value::Long(v), T::Long | T::Time | T::Timestamp | T::Timestamptz | T::TimestampNs | T::TimestamptzNs) => {
            PrimitiveLiteral::Long(*v)
        }
        (Value::Float(v), T::Float) => PrimitiveLiteral::Float(f32::from_bits(*v).into()),
        (Value::Float(v), T::Double) => PrimitiveLiteral::Double(f64::from(f32::from_bits(*v)).into()),
        (Value::Double(v), T::Double) => PrimitiveLiteral::Double(f64::from_bits(*v).into()),
        (Value::Decimal(v), T::Decimal { .. }) => PrimitiveLiteral::Int128(*v),
        (Value::String(v), T::String) => PrimitiveLiteral::String(v.to_string()),
        (Value::Bytes(v), T::Binary | T::Fixed(_)) => PrimitiveLiteral::Binary(v.to_vec()),
        (Value::Uuid(v), T::Uuid) => PrimitiveLiteral::UInt128(*v),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tuple_becomes_a_struct_of_the_promoted_type_or_an_error() {
        use iceberg::spec::NestedField;
        let long = StructType::new(vec![NestedField::optional(1000, "p", Type::Primitive(PrimitiveType::Long)).into()]);
        let made = to_struct(&Tuple::from([Some(Value::Int(7))]), &long).unwrap();
        assert_eq!(made.fields(), [Some(Literal::Primitive(PrimitiveLiteral::Long(7)))]);
        assert_eq!(
            to_struct(&Tuple::from([Some(Value::Bool(true))]), &long).unwrap_err(),
            "partition field `p` is long, its value true is not"
        );
        assert_eq!(to_struct(&Tuple::from([]), &long).unwrap_err(), "a tuple of 0 values under a spec of 1 fields");
    }
}
