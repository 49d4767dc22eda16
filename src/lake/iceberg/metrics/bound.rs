//! Bounds from footer statistics: never tighter than the truth.

use iceberg::spec::{Datum, PrimitiveLiteral, PrimitiveType};
use parquet::basic::Type as Physical;
use parquet::file::statistics::Statistics;

/// The end of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// No value is below it.
    Lower,
    /// No value is above it.
    Upper,
}

/// A bound folded over row groups. One row group that says nothing of its
/// values leaves the whole without a bound.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Fold {
    /// No value was seen yet.
    #[default]
    Empty,
    /// Holds over all values seen.
    Known(Datum),
    /// Some values are not covered.
    Unknown,
}

impl Fold {
    /// Widens by a row group's bound; `None` is a row group that has values but
    /// no bound.
    pub fn widen(&mut self, end: End, bound: Option<Datum>) {
        *self = match (std::mem::take(self), bound) {
            (Self::Unknown, _) | (_, None) => Self::Unknown,
            (Self::Empty, Some(new)) => Self::Known(new),
            (Self::Known(old), Some(new)) => match (old.partial_cmp(&new), end) {
                (None, _) => Self::Unknown,
                (Some(order), End::Lower) if order.is_le() => Self::Known(old),
                (Some(order), End::Upper) if order.is_ge() => Self::Known(old),
                _ => Self::Known(new),
            },
        };
    }

    /// The bound, if it holds over all values.
    pub fn known(self) -> Option<Datum> {
        match self {
            Self::Known(bound) => Some(bound),
            Self::Empty | Self::Unknown => None,
        }
    }
}

/// One end of a column chunk's range as a value of the column's current type,
/// decoded at the file's own width. `None` when the statistics do not give one
/// that holds.
pub fn of_statistics(statistics: &Statistics, kind: &PrimitiveType, length: i32, end: End) -> Option<Datum> {
    let (bytes, exact) = match end {
        End::Lower => (statistics.min_bytes_opt()?, statistics.min_is_exact()),
        End::Upper => (statistics.max_bytes_opt()?, statistics.max_is_exact()),
    };
    let physical = statistics.physical_type();
    // Before the sort orders were defined, byte arrays were compared as signed.
    let by_bytes = matches!(physical, Physical::BYTE_ARRAY | Physical::FIXED_LEN_BYTE_ARRAY);
    if statistics.is_min_max_deprecated() && by_bytes {
        return None;
    }
    let value = match (kind, physical) {
        (PrimitiveType::Boolean, Physical::BOOLEAN)
        | (PrimitiveType::Int | PrimitiveType::Date | PrimitiveType::Long, Physical::INT32)
        | (PrimitiveType::Long | PrimitiveType::Time | PrimitiveType::Timestamp | PrimitiveType::Timestamptz, Physical::INT64)
        | (PrimitiveType::TimestampNs | PrimitiveType::TimestamptzNs, Physical::INT64)
        | (PrimitiveType::Float | PrimitiveType::Double, Physical::FLOAT)
        | (PrimitiveType::Double, Physical::DOUBLE)
        | (PrimitiveType::Binary, Physical::BYTE_ARRAY) => Datum::try_from_bytes(bytes, kind.clone()).ok()?,
        (PrimitiveType::String, Physical::BYTE_ARRAY) => return text(bytes, end),
        // some writers cut bounds of a fixed length, and there are readers that fail on them
        (PrimitiveType::Fixed(_), Physical::FIXED_LEN_BYTE_ARRAY) if usize::try_from(length) == Ok(bytes.len()) => {
            Datum::try_from_bytes(bytes, kind.clone()).ok()?
        }
        (PrimitiveType::Uuid, Physical::FIXED_LEN_BYTE_ARRAY) if exact && bytes.len() == 16 => {
            Datum::try_from_bytes(bytes, kind.clone()).ok()?
        }
        (PrimitiveType::Decimal { .. }, Physical::INT32) => decimal(i32::from_le_bytes(bytes.try_into().ok()?).into(), kind)?,
        (PrimitiveType::Decimal { .. }, Physical::INT64) => decimal(i64::from_le_bytes(bytes.try_into().ok()?).into(), kind)?,
        (PrimitiveType::Decimal { .. }, Physical::FIXED_LEN_BYTE_ARRAY) if exact && usize::try_from(length) == Ok(bytes.len()) => {
            Datum::try_from_bytes(bytes, kind.clone()).ok()?
        }
        _ => return None,
    };
    number(value, end)
}

/// NaN bounds nothing; a zero is widened over both of its signs, which the
/// table format tells apart and Parquet writers do not.
fn number(value: Datum, end: End) -> Option<Datum> {
    match value.literal() {
        _ if value.is_nan() => None,
        PrimitiveLiteral::Float(v) if v.0 == 0.0 => Some(Datum::float(if end == End::Lower { -0.0f32 } else { 0.0 })),
        PrimitiveLiteral::Double(v) if v.0 == 0.0 => Some(Datum::double(if end == End::Lower { -0.0f64 } else { 0.0 })),
        _ => Some(value),
    }
}

fn decimal(unscaled: i128, kind: &PrimitiveType) -> Option<Datum> {
    Datum::try_from_bytes(&unscaled.to_be_bytes(), kind.clone()).ok()
}

/// A writer may have cut a lower bound inside a code point: what is whole is
/// still below every value. An upper bound that is not text holds for nothing.
fn text(bytes: &[u8], end: End) -> Option<Datum> {
    match (std::str::from_utf8(bytes), end) {
        (Ok(text), _) => Some(Datum::string(text)),
        (Err(error), End::Lower) => {
            let whole = bytes.get(..error.valid_up_to())?;
            std::str::from_utf8(whole).ok().map(Datum::string)
        }
        (Err(_), End::Upper) => None,
    }
}

/// Cuts a text to `length` code points, or bytes to `length` bytes. A lower
/// bound becomes a prefix. An upper bound becomes the least prefix that is
/// above all values with the old one, or `None` when there is no such prefix.
pub fn truncate(bound: Datum, length: usize, end: End) -> Option<Datum> {
    match bound.literal() {
        PrimitiveLiteral::String(text) => match text.char_indices().nth(length) {
            None => Some(bound),
            Some((cut, _)) => {
                let prefix = text.get(..cut)?;
                if end == End::Lower { Some(Datum::string(prefix)) } else { text_above(prefix).map(Datum::string) }
            }
        },
        PrimitiveLiteral::Binary(bytes) if bytes.len() > length => {
            let prefix = bytes.get(..length)?;
            let cut = if end == End::Lower { prefix.to_vec() } else { bytes_above(prefix)? };
            Datum::try_from_bytes(&cut, bound.data_type().clone()).ok()
        }
        _ => Some(bound),
    }
}

/// The least text of at most as many code points that is above every text that
/// begins with `prefix`.
fn text_above(prefix: &str) -> Option<String> {
    let mut chars: Vec<char> = prefix.chars().collect();
    while let Some(last) = chars.pop() {
        let next = if last == '\u{D7FF}' { Some('\u{E000}') } else { char::from_u32(u32::from(last) + 1) };
        if let Some(next) = next {
            chars.push(next);
            return Some(chars.into_iter().collect());
        }
    }
    None
}

fn bytes_above(prefix: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = prefix.to_vec();
    while let Some(last) = bytes.pop() {
        if last < u8::MAX {
            bytes.push(last + 1);
            return Some(bytes);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_cut_upper_bound_is_rounded_up_or_dropped() {
        let cut = |text: &str| truncate(Datum::string(text), 2, End::Upper);
        assert_eq!(cut("ab"), Some(Datum::string("ab")));
        assert_eq!(cut("abc"), Some(Datum::string("ac")));
        assert_eq!(cut("a\u{10FFFF}c"), Some(Datum::string("b")));
        assert_eq!(cut("a\u{D7FF}c"), Some(Datum::string("a\u{E000}")));
        assert_eq!(cut("\u{10FFFF}\u{10FFFF}c"), None);
        let cut = |bytes: &[u8]| truncate(Datum::binary(bytes.to_vec()), 2, End::Upper);
        assert_eq!(cut(&[1, 2, 3]), Some(Datum::binary(vec![1, 3])));
        assert_eq!(cut(&[1, 255, 3]), Some(Datum::binary(vec![2])));
        assert_eq!(cut(&[255, 255, 3]), None);
    }

    #[test]
    fn a_bound_cut_below_its_fixed_length_bounds_nothing() {
        use parquet::data_type::FixedLenByteArray;
        let end = |bytes: &[u8]| Some(FixedLenByteArray::from(bytes.to_vec()));
        let cut = Statistics::fixed_len_byte_array(end(b"aaaaa"), end(b"cccd"), None, Some(0), false);
        let of = |which| of_statistics(&cut, &PrimitiveType::Fixed(5), 5, which);
        assert_eq!((of(End::Lower), of(End::Upper)), (Some(Datum::fixed(b"aaaaa".to_vec())), None));
    }

    #[test]
    fn a_row_group_without_a_bound_leaves_none() {
        let mut fold = Fold::default();
        fold.widen(End::Upper, Some(Datum::int(3)));
        fold.widen(End::Upper, Some(Datum::int(2)));
        assert_eq!(fold.clone().known(), Some(Datum::int(3)));
        fold.widen(End::Upper, None);
        fold.widen(End::Upper, Some(Datum::int(9)));
        assert_eq!(fold.known(), None);
    }

    #[test]
    fn zero_covers_both_signs_and_nan_covers_nothing() {
        let statistics = Statistics::double(Some(0.0), Some(-0.0), None, Some(0), false);
        let bound = |end| of_statistics(&statistics, &PrimitiveType::Double, 0, end).unwrap().to_bytes().unwrap().into_vec();
        assert_eq!(bound(End::Lower), (-0.0f64).to_le_bytes());
        assert_eq!(bound(End::Upper), 0.0f64.to_le_bytes());
        let nan = Statistics::float(Some(f32::NAN), Some(1.0), None, Some(0), false);
        assert_eq!(of_statistics(&nan, &PrimitiveType::Float, 0, End::Lower), None);
    }

    #[test]
    fn statistics_from_before_the_sort_orders_bound_no_bytes() {
        let old = |deprecated| {
            let statistics = Statistics::byte_array(Some("a".into()), Some("b".into()), None, Some(0), deprecated);
            of_statistics(&statistics, &PrimitiveType::String, 0, End::Lower)
        };
        assert_eq!((old(true), old(false)), (None, Some(Datum::string("a"))));
    }

    proptest! {
        #[test]
        fn a_cut_bound_excludes_no_text(text in "[\\x00-\u{10FFFF}]{0,6}", tail in "[\\x00-\u{10FFFF}]{0,3}", length in 1usize..5) {
            let value = format!("{text}{tail}");
            let lower = truncate(Datum::string(&value), length, End::Lower).unwrap();
            prop_assert!(lower <= Datum::string(&value));
            if let Some(upper) = truncate(Datum::string(&value), length, End::Upper) {
                prop_assert!(upper >= Datum::string(&value));
            }
        }

        #[test]
        fn a_cut_bound_excludes_no_bytes(bytes in prop::collection::vec(prop_oneof![Just(255u8), any::<u8>()], 0..6), length in 1usize..5) {
            let value = Datum::binary(bytes);
            prop_assert!(truncate(value.clone(), length, End::Lower).unwrap() <= value);
            if let Some(upper) = truncate(value.clone(), length, End::Upper) {
                prop_assert!(upper >= value);
            }
        }
    }
}
