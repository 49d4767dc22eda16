//! The least and the greatest of values, by the order that the format defines
//! for their column.

use std::cmp::Ordering;

use parquet::basic::{ConvertedType, LogicalType, SortOrder, Type};
use parquet::data_type::{ByteArray, FixedLenByteArray};
use parquet::file::statistics::{Statistics, ValueStatistics};
use parquet::schema::types::ColumnDescriptor;

use super::statistics::compare_signed;

/// How values of a column compare, as bytes that `PLAIN` has for them without a
/// length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// `false` before `true`.
    Bool,
    /// Numbers of 32 bits.
    I32,
    /// The same without sign.
    U32,
    /// Numbers of 64 bits.
    I64,
    /// The same without sign.
    U64,
    /// Floats of 32 bits; NaN has no place.
    F32,
    /// Floats of 64 bits; NaN has no place.
    F64,
    /// Byte by byte, without sign.
    Bytes,
    /// Big-endian numbers in two's complement.
    Decimal,
    /// None is defined.
    Undefined,
}

impl Order {
    /// That of a column.
    pub fn of(column: &ColumnDescriptor) -> Self {
        let decimal =
            matches!(column.logical_type_ref(), Some(LogicalType::Decimal { .. })) || column.converted_type() == ConvertedType::DECIMAL;
        match (column.physical_type(), column.sort_order()) {
            (Type::BOOLEAN, _) => Self::Bool,
            (Type::INT32, SortOrder::SIGNED) => Self::I32,
            (Type::INT32, SortOrder::UNSIGNED) => Self::U32,
            (Type::INT64, SortOrder::SIGNED) => Self::I64,
            (Type::INT64, SortOrder::UNSIGNED) => Self::U64,
            (Type::FLOAT, SortOrder::SIGNED) => Self::F32,
            (Type::DOUBLE, SortOrder::SIGNED) => Self::F64,
            (Type::BYTE_ARRAY | Type::FIXED_LEN_BYTE_ARRAY, SortOrder::UNSIGNED) => Self::Bytes,
            (Type::BYTE_ARRAY | Type::FIXED_LEN_BYTE_ARRAY, SortOrder::SIGNED) if decimal => Self::Decimal,
            _ => Self::Undefined,
        }
    }

    /// Whether writers that do not tell the order of their columns can have meant
    /// another: numbers with a sign have always been ordered as numbers.
    pub fn is_doubtful(self) -> bool {
        matches!(self, Self::U32 | Self::U64 | Self::Bytes | Self::Decimal)
    }

    /// How two values compare; `None` when they do not.
    pub fn compare(self, a: &[u8], b: &[u8]) -> Option<Ordering> {
        Some(match self {
            Self::Bool | Self::Bytes => a.cmp(b),
            Self::I32 => i32::from_le_bytes(word(a)?).cmp(&i32::from_le_bytes(word(b)?)),
            Self::U32 => u32::from_le_bytes(word(a)?).cmp(&u32::from_le_bytes(word(b)?)),
            Self::I64 => i64::from_le_bytes(word(a)?).cmp(&i64::from_le_bytes(word(b)?)),
            Self::U64 => u64::from_le_bytes(word(a)?).cmp(&u64::from_le_bytes(word(b)?)),
            Self::F32 => {
                let (a, b) = (f32::from_le_bytes(word(a)?), f32::from_le_bytes(word(b)?));
                (!a.is_nan() && !b.is_nan()).then(|| a.total_cmp(&b))?
            }
            Self::F64 => {
                let (a, b) = (f64::from_le_bytes(word(a)?), f64::from_le_bytes(word(b)?));
                (!a.is_nan() && !b.is_nan()).then(|| a.total_cmp(&b))?
            }
            Self::Decimal => compare_signed(a, b),
            Self::Undefined => return None,
        })
    }

    /// Whether a value is one that no end holds.
    pub fn is_nan(self, value: &[u8]) -> bool {
        match self {
            Self::F32 => word(value).map(f32::from_le_bytes).is_some_and(f32::is_nan),
            Self::F64 => word(value).map(f64::from_le_bytes).is_some_and(f64::is_nan),
            _ => false,
        }
    }
}

fn word<const N: usize>(value: &[u8]) -> Option<[u8; N]> {
    value.try_into().ok()
}

/// The ends of values that were seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ends {
    /// Least and greatest, NaN aside.
    seen: Option<(Vec<u8>, Vec<u8>)>,
    /// Whether some values have no place in the order.
    unknown: bool,
}

impl Ends {
    /// Sees a value.
    pub fn add(&mut self, order: Order, value: &[u8]) {
        if !order.is_nan(value) {
            self.widen(order, value, value);
        }
    }

    /// Sees the values that other ends are those of.
    pub fn fold(&mut self, order: Order, other: &Self) {
        self.unknown |= other.unknown;
        if let Some((low, high)) = &other.seen {
            self.widen(order, low, high);
        }
    }

    /// Sees values between these two.
    pub fn widen(&mut self, order: Order, low: &[u8], high: &[u8]) {
        let Some((least, most)) = &mut self.seen else {
            self.unknown |= order.compare(low, high).is_none();
            self.seen = Some((low.to_vec(), high.to_vec()));
            return;
        };
        match order.compare(low, least) {
            Some(Ordering::Less) => low.clone_into(least),
            Some(_) => {}
            None => self.unknown = true,
        }
        match order.compare(high, most) {
            Some(Ordering::Greater) => high.clone_into(most),
            Some(_) => {}
            None => self.unknown = true,
        }
    }

    /// Least and greatest; `None` when there are none, or not all are known.
    pub fn known(&self) -> Option<(&[u8], &[u8])> {
        self.seen.as_ref().filter(|_| !self.unknown).map(|(low, high)| (low.as_slice(), high.as_slice()))
    }

    /// As a column index has them: cut where they are long, zeros over both
    /// signs.
    pub fn stated(&self, column: &ColumnDescriptor) -> Option<Stated> {
        let order = Order::of(column);
        let (low, high) = self.known()?;
        if column.physical_type() == Type::FIXED_LEN_BYTE_ARRAY && low.len() > LONGEST {
            return None;
        }
        if column.physical_type() == Type::BYTE_ARRAY && order == Order::Bytes {
            let text = matches!(column.logical_type_ref(), Some(LogicalType::String)) || column.converted_type() == ConvertedType::UTF8;
            let (lower, upper) = (cut(low, text), raised(high, text)?);
            return Some(Stated { exact: (lower.len() == low.len(), high.len() <= LONGEST), low: lower, high: upper });
        }
        let (low, high) = wide(order, low, high);
        Some(Stated { low, high, exact: (true, true) })
    }

    /// As a chunk's statistics have them, with its NULLs.
    pub fn statistics(&self, column: &ColumnDescriptor, nulls: u64) -> Statistics {
        let stated = self.stated(column);
        let exact = stated.as_ref().map_or((false, false), |stated| stated.exact);
        let (low, high) = stated.map(|stated| (stated.low, stated.high)).unzip();
        macro_rules! statistics {
            ($kind:ident, $read:expr) => {
                Statistics::$kind(
                    ValueStatistics::new(low.and_then($read), high.and_then($read), None, Some(nulls), false)
                        .with_min_is_exact(exact.0)
                        .with_max_is_exact(exact.1),
                )
            };
        }
        match column.physical_type() {
            Type::BOOLEAN => statistics!(Boolean, |v: Vec<u8>| v.first().map(|byte| *byte != 0)),
            Type::INT32 => statistics!(Int32, |v: Vec<u8>| word(&v).map(i32::from_le_bytes)),
            Type::INT64 => statistics!(Int64, |v: Vec<u8>| word(&v).map(i64::from_le_bytes)),
            Type::INT96 => Statistics::Int96(ValueStatistics::new(None, None, None, Some(nulls), false)),
            Type::FLOAT => statistics!(Float, |v: Vec<u8>| word(&v).map(f32::from_le_bytes)),
            Type::DOUBLE => statistics!(Double, |v: Vec<u8>| word(&v).map(f64::from_le_bytes)),
            Type::BYTE_ARRAY => statistics!(ByteArray, |v: Vec<u8>| Some(ByteArray::from(v))),
            Type::FIXED_LEN_BYTE_ARRAY => statistics!(FixedLenByteArray, |v: Vec<u8>| Some(FixedLenByteArray::from(v))),
        }
    }
}

/// Ends as they are written: never tighter than the truth.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stated {
    /// No value is below it.
    pub low: Vec<u8>,
    /// No value is above it.
    pub high: Vec<u8>,
    /// Whether each is a value.
    pub exact: (bool, bool),
}

/// Longest byte array that is stated whole.
const LONGEST: usize = 64;

fn cut(value: &[u8], text: bool) -> Vec<u8> {
    let head = value.get(..LONGEST).unwrap_or(value);
    let whole = match std::str::from_utf8(head) {
        Err(error) if text && value.len() > LONGEST => head.get(..error.valid_up_to()).unwrap_or(head),
        _ => head,
    };
    whole.to_vec()
}

/// The value, or a short one above all with its head; `None` when there is none.
fn raised(value: &[u8], text: bool) -> Option<Vec<u8>> {
    if value.len() <= LONGEST {
        return Some(value.to_vec());
    }
    let mut head = cut(value, text);
    if text {
        let mut chars: Vec<char> = std::str::from_utf8(&head).ok()?.chars().collect();
        while let Some(last) = chars.pop() {
            if let Some(next) = (u32::from(last) + 1..=0x10_FFFF).take(0x801).find_map(char::from_u32) {
                chars.push(next);
                return Some(chars.into_iter().collect::<String>().into_bytes());
            }
        }
        return None;
    }
    while let Some(last) = head.pop() {
        if last < u8::MAX {
            head.push(last + 1);
            return Some(head);
        }
    }
    None
}

/// Ends with zeros over both signs: writers that take both for one state either.
pub fn wide(order: Order, low: &[u8], high: &[u8]) -> (Vec<u8>, Vec<u8>) {
    (zero(order, low, true), zero(order, high, false))
}

fn zero(order: Order, value: &[u8], low: bool) -> Vec<u8> {
    let is_zero = match order {
        Order::F32 => word(value).map(f32::from_le_bytes) == Some(0.0),
        Order::F64 => word(value).map(f64::from_le_bytes) == Some(0.0),
        _ => return value.to_vec(),
    };
    match (is_zero, order, low) {
        (true, Order::F32, true) => (-0.0f32).to_le_bytes().to_vec(),
        (true, Order::F64, true) => (-0.0f64).to_le_bytes().to_vec(),
        (true, _, false) => vec![0; value.len()],
        _ => value.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parquet::schema::parser::parse_message_type;
    use parquet::schema::types::{ColumnDescPtr, SchemaDescriptor};
    use proptest::prelude::*;

    use super::*;

    fn column(text: &str) -> ColumnDescPtr {
        SchemaDescriptor::new(Arc::new(parse_message_type(&format!("message m {{ OPTIONAL {text}; }}")).unwrap())).column(0)
    }

    fn stated(text: &str, values: &[&[u8]]) -> Option<Stated> {
        let column = column(text);
        let mut ends = Ends::default();
        values.iter().for_each(|value| ends.add(Order::of(&column), value));
        ends.stated(&column)
    }

    #[test]
    fn numbers_are_ordered_as_their_type_says() {
        let minus: &[u8] = &(-1i32).to_le_bytes();
        let (one, two): (&[u8], &[u8]) = (&1i32.to_le_bytes(), &2i32.to_le_bytes());
        let exact = |low: &[u8], high: &[u8]| Some(Stated { low: low.to_vec(), high: high.to_vec(), exact: (true, true) });
        assert_eq!(stated("INT32 n", &[one, minus, two]), exact(minus, two));
        assert_eq!(stated("INT32 n (INTEGER(32,false))", &[one, minus, two]), exact(one, minus));
        assert_eq!(stated("FIXED_LEN_BYTE_ARRAY (2) d (DECIMAL(3,1))", &[&[0, 1], &[255, 255], &[1, 0]]), exact(&[255, 255], &[1, 0]));
        assert_eq!(stated("FIXED_LEN_BYTE_ARRAY (2) d", &[&[0, 1], &[255, 255], &[1, 0]]), exact(&[0, 1], &[255, 255]));
        assert_eq!(stated("BOOLEAN b", &[&[1]]), exact(&[1], &[1]));
        assert_eq!(stated("INT96 t", &[&[0; 12]]), None);
        assert_eq!(stated("INT32 n", &[]), None);
    }

    #[test]
    fn floats_leave_nan_out_and_hold_both_zeros() {
        let bytes = |n: f64| n.to_le_bytes();
        let found = stated("DOUBLE d", &[&bytes(f64::NAN), &bytes(0.0), &bytes(-0.0)]).unwrap();
        assert_eq!((found.low.as_slice(), found.high.as_slice()), (bytes(-0.0).as_slice(), bytes(0.0).as_slice()));
        assert_eq!(stated("DOUBLE d", &[&bytes(f64::NAN)]), None);
        let found = stated("DOUBLE d", &[&bytes(0.0), &bytes(1.0)]).unwrap();
        assert_eq!(found.low, bytes(-0.0));
    }

    #[test]
    fn long_texts_are_cut_to_texts_that_hold() {
        let long = "é".repeat(40);
        let found = stated("BYTE_ARRAY s (STRING)", &[long.as_bytes()]).unwrap();
        assert_eq!(found.low, "é".repeat(32).into_bytes());
        assert_eq!(found.high, format!("{}ê", "é".repeat(31)).into_bytes());
        assert_eq!(found.exact, (false, false));
        assert_eq!(stated("BYTE_ARRAY s", &[&[255; 70]]), None);
        assert_eq!(stated("BYTE_ARRAY s (STRING)", &["\u{10ffff}".repeat(20).as_bytes()]), None);
        assert_eq!(stated("BYTE_ARRAY s (STRING)", &["\u{d7ff}".repeat(30).as_bytes()]).unwrap().high.len(), 63);
    }

    proptest! {
        #[test]
        fn no_byte_array_is_outside(values in prop::collection::vec(prop::collection::vec(250u8..=255, 0..90), 1..6), text in any::<bool>()) {
            let values: Vec<Vec<u8>> = values.into_iter().map(|v| if text { v.iter().map(|b| ['a', 'é', '\u{10ffff}', '\u{d7ff}', 'z', '~'][usize::from(b - 250)]).collect::<String>().into_bytes() } else { v }).collect();
            let slices: Vec<&[u8]> = values.iter().map(Vec::as_slice).collect();
            let kind = if text { "BYTE_ARRAY s (STRING)" } else { "BYTE_ARRAY s" };
            if let Some(found) = stated(kind, &slices) {
                prop_assert!(values.iter().all(|v| *v >= found.low && *v <= found.high));
                prop_assert!(found.low.len() <= 64 && found.high.len() <= 68);
                prop_assert!(!text || std::str::from_utf8(&found.high).is_ok() && std::str::from_utf8(&found.low).is_ok());
                prop_assert!(!found.exact.0 || values.contains(&found.low));
                prop_assert!(!found.exact.1 || values.contains(&found.high));
            }
        }
    }
}
