//! Which manifests can hold files of a partition, by the manifest list's
//! partition summaries.

use std::cmp::Ordering;

use iceberg::spec::{Datum, FieldSummary, StructType, Type};

use super::tuple;
use crate::model::partition::{Tuple, Value};

/// Whether a manifest whose summaries are `summaries` may hold an entry of the
/// tuple. `fields` is the partition type of its spec, where one resolves.
///
/// Only a bound that is present, of the same type and surely beyond the value
/// rules a manifest out: everything else means it must be read.
pub fn may_hold(summaries: Option<&[FieldSummary]>, fields: Option<&StructType>, tuple: &Tuple) -> bool {
    let (Some(summaries), Some(fields)) = (summaries, fields) else { return true };
    if summaries.len() != tuple.len() || fields.fields().len() != tuple.len() {
        return true;
    }
    summaries.iter().zip(fields.fields()).zip(tuple.iter()).all(|((summary, field), value)| match value {
        None => summary.contains_null,
        Some(value) => {
            let bound = |bytes: &Option<_>| bound(bytes.as_deref().map(Vec::as_slice), &field.field_type);
            !below(value, bound(&summary.lower_bound)) && !above(value, bound(&summary.upper_bound))
        }
    })
}

fn bound(bytes: Option<&[u8]>, kind: &Type) -> Option<Value> {
    let datum = Datum::try_from_bytes(bytes?, kind.as_primitive_type()?.clone()).ok()?;
    tuple::from_literal(datum.literal())
}

fn below(value: &Value, lower: Option<Value>) -> bool {
    lower.is_some_and(|lower| order(value, &lower) == Some(Ordering::Less))
}

/// A cut upper bound understates: a value that it is a prefix of may be there.
fn above(value: &Value, upper: Option<Value>) -> bool {
    upper.is_some_and(|upper| {
        let cut = match (value, &upper) {
            (Value::String(v), Value::String(u)) => v.starts_with(u.as_ref()),
            (Value::Bytes(v), Value::Bytes(u)) => v.starts_with(u),
            _ => false,
        };
        !cut && order(value, &upper) == Some(Ordering::Greater)
    })
}

/// `None` where the types differ or the order is not one of plain numbers or
/// bytes.
fn order(a: &Value, b: &Value) -> Option<Ordering> {
    match (a, b) {
        (Value::Bool(a), Value::Bool(b)) => Some(a.cmp(b)),
        (Value::Int(a), Value::Int(b)) => Some(a.cmp(b)),
        (Value::Int(a), Value::Long(b)) => Some(i64::from(*a).cmp(b)),
        (Value::Long(a), Value::Int(b)) => Some(a.cmp(&i64::from(*b))),
        (Value::Long(a), Value::Long(b)) => Some(a.cmp(b)),
        (Value::String(a), Value::String(b)) => Some(a.as_bytes().cmp(b.as_bytes())),
        (Value::Bytes(a), Value::Bytes(b)) => Some(a.cmp(b)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use iceberg::spec::{NestedField, PrimitiveType};

    use super::*;

    fn fields(kind: PrimitiveType) -> StructType {
        StructType::new(vec![NestedField::optional(1000, "p", Type::Primitive(kind)).into()])
    }

    fn summary(lower: Datum, upper: Datum, contains_null: bool) -> Vec<FieldSummary> {
        vec![FieldSummary {
            contains_null,
            contains_nan: Some(false),
            lower_bound: Some(lower.to_bytes().unwrap()),
            upper_bound: Some(upper.to_bytes().unwrap()),
        }]
    }

    fn holds(summaries: &[FieldSummary], kind: PrimitiveType, value: Option<Value>) -> bool {
        may_hold(Some(summaries), Some(&fields(kind)), &Tuple::from([value]))
    }

    #[test]
    fn only_a_value_surely_outside_the_bounds_rules_a_manifest_out() {
        let s = summary(Datum::int(3), Datum::int(5), false);
        let held = [2, 3, 5, 6].map(|v| holds(&s, PrimitiveType::Int, Some(Value::Int(v))));
        assert_eq!(held, [false, true, true, false]);
        assert!(!holds(&s, PrimitiveType::Int, None));
        assert!(holds(&s, PrimitiveType::Int, Some(Value::Bool(true))));
        assert!(may_hold(None, Some(&fields(PrimitiveType::Int)), &Tuple::from([Some(Value::Int(9))])));
        assert!(may_hold(Some(&s), None, &Tuple::from([Some(Value::Int(9))])));
    }

    #[test]
    fn bounds_written_before_a_promotion_are_read_at_their_old_width() {
        let s = summary(Datum::int(3), Datum::int(5), false);
        let held = [4, 9].map(|v| holds(&s, PrimitiveType::Long, Some(Value::Long(v))));
        assert_eq!(held, [true, false]);
    }

    #[test]
    fn a_cut_string_bound_rules_nothing_out_that_it_is_a_prefix_of() {
        let s = summary(Datum::string("aa"), Datum::string("bbb"), true);
        let held = ["a", "bbbz", "bbc"].map(|v| holds(&s, PrimitiveType::String, Some(Value::String(v.into()))));
        assert_eq!(held, [false, true, false]);
        assert!(holds(&s, PrimitiveType::String, None));
    }
}
