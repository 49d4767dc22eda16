//! Partition values as text for paths, by the transform that made them.

use base64::Engine;
use chrono::{DateTime, Utc};
use iceberg::spec::{PrimitiveType, Transform};

use crate::model::partition::Value;

/// A value's text: dates and times by their transform, bytes in base 64,
/// anything else plain. `source` is the type of the source column, where known.
pub fn value(transform: Transform, source: Option<&PrimitiveType>, value: &Value) -> String {
    match (transform, value) {
        (Transform::Year, Value::Int(years)) => format!("{:04}", 1970 + i64::from(*years)),
        (Transform::Month, Value::Int(months)) => {
            let months = i64::from(*months);
            format!("{:04}-{:02}", 1970 + months.div_euclid(12), months.rem_euclid(12) + 1)
        }
        (Transform::Day, Value::Int(days)) => date(i64::from(*days)).unwrap_or_else(|| days.to_string()),
        (Transform::Hour, Value::Int(hours)) => hour(i64::from(*hours)).unwrap_or_else(|| hours.to_string()),
        (Transform::Identity, _) => identity(source, value),
        _ => plain(source, value),
    }
}

fn identity(source: Option<&PrimitiveType>, value: &Value) -> String {
    let text = match (source, value) {
        (Some(PrimitiveType::Date), Value::Int(days)) => date(i64::from(*days)),
        (Some(PrimitiveType::Time), Value::Long(micros)) => moment(*micros).map(|t| t.format("%H:%M:%S%.f").to_string()),
        (Some(PrimitiveType::TimestampNs), Value::Long(nanos)) => Some(nanosecond(*nanos).format("%Y-%m-%dT%H:%M:%S%.f").to_string()),
        (Some(PrimitiveType::TimestamptzNs), Value::Long(nanos)) => {
            Some(nanosecond(*nanos).format("%Y-%m-%dT%H:%M:%S%.f+00:00").to_string())
        }
        (Some(PrimitiveType::Timestamp), Value::Long(micros)) => moment(*micros).map(|t| t.format("%Y-%m-%dT%H:%M:%S%.f").to_string()),
        (Some(PrimitiveType::Timestamptz), Value::Long(micros)) => {
            moment(*micros).map(|t| t.format("%Y-%m-%dT%H:%M:%S%.f+00:00").to_string())
        }
        _ => None,
    };
    text.unwrap_or_else(|| plain(source, value))
}

fn plain(source: Option<&PrimitiveType>, value: &Value) -> String {
    match (source, value) {
        (_, Value::String(text)) => text.to_string(),
        (_, Value::Bytes(bytes)) => base64::engine::general_purpose::STANDARD.encode(bytes),
        (_, Value::Float(bits)) => format!("{:?}", f32::from_bits(*bits)),
        (_, Value::Double(bits)) => format!("{:?}", f64::from_bits(*bits)),
        (Some(PrimitiveType::Decimal { scale, .. }), Value::Decimal(unscaled)) => decimal(*unscaled, *scale as usize),
        (_, other) => other.to_string(),
    }
}

fn decimal(unscaled: i128, scale: usize) -> String {
    let digits = format!("{:0width$}", unscaled.unsigned_abs(), width = scale + 1);
    let (whole, fraction) = digits.split_at(digits.len().saturating_sub(scale));
    let sign = if unscaled < 0 { "-" } else { "" };
    if scale == 0 { format!("{sign}{whole}") } else { format!("{sign}{whole}.{fraction}") }
}

fn date(days: i64) -> Option<String> {
    DateTime::<Utc>::from_timestamp(days.checked_mul(86_400)?, 0).map(|t| t.format("%Y-%m-%d").to_string())
}

fn hour(hours: i64) -> Option<String> {
    DateTime::<Utc>::from_timestamp(hours.checked_mul(3600)?, 0).map(|t| t.format("%Y-%m-%d-%H").to_string())
}

fn moment(micros: i64) -> Option<DateTime<Utc>> {
    DateTime::<Utc>::from_timestamp_micros(micros)
}

fn nanosecond(nanos: i64) -> DateTime<Utc> {
    DateTime::<Utc>::from_timestamp_nanos(nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_read_as_their_transforms_made_them() {
        let bytes = Value::Bytes([0xFB, 0xFF].as_slice().into());
        let cases = [
            (Transform::Year, PrimitiveType::Date, Value::Int(54), "2024"),
            (Transform::Month, PrimitiveType::Date, Value::Int(-1), "1969-12"),
            (Transform::Month, PrimitiveType::Date, Value::Int(648), "2024-01"),
            (Transform::Day, PrimitiveType::Timestamp, Value::Int(19_727), "2024-01-05"),
            (Transform::Hour, PrimitiveType::Timestamp, Value::Int(-1), "1969-12-31-23"),
            (Transform::Identity, PrimitiveType::Date, Value::Int(19_727), "2024-01-05"),
            (Transform::Identity, PrimitiveType::Timestamptz, Value::Long(1), "1970-01-01T00:00:00.000001+00:00"),
            (Transform::Identity, PrimitiveType::TimestampNs, Value::Long(-1), "1969-12-31T23:59:59.999999999"),
            (Transform::Identity, PrimitiveType::TimestamptzNs, Value::Long(1), "1970-01-01T00:00:00.000000001+00:00"),
            (Transform::Hour, PrimitiveType::TimestampNs, Value::Int(-1), "1969-12-31-23"),
            (Transform::Identity, PrimitiveType::Decimal { precision: 9, scale: 2 }, Value::Decimal(-5), "-0.05"),
            (Transform::Identity, PrimitiveType::Double, Value::Double(1f64.to_bits()), "1.0"),
            (Transform::Identity, PrimitiveType::Boolean, Value::Bool(true), "true"),
            (Transform::Truncate(1), PrimitiveType::Binary, bytes, "+/8="),
            (Transform::Truncate(9), PrimitiveType::String, Value::String("a\"b".into()), "a\"b"),
            (Transform::Bucket(4), PrimitiveType::String, Value::Int(3), "3"),
        ];
        for (transform, source, held, expected) in cases {
            assert_eq!(value(transform, Some(&source), &held), expected);
        }
    }

    #[test]
    fn a_date_out_of_all_range_is_still_a_path() {
        assert_eq!(value(Transform::Hour, None, &Value::Int(i32::MAX)), "+246953-10-09-07");
        assert_eq!(value(Transform::Day, None, &Value::Int(i32::MIN)), "-2147483648");
    }
}
