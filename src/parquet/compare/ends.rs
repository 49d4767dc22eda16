//! The least and the greatest of values that the proof has seen, and whether what
//! a file states of them holds.

use std::cmp::Ordering;

use parquet::basic::{ConvertedType, LogicalType, SortOrder, Type};
use parquet::schema::types::ColumnDescriptor;

/// How the values of a column compare, by the format's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Booleans, as a byte.
    Bool,
    /// Signed numbers.
    Signed,
    /// Numbers without sign.
    Unsigned,
    /// Floats.
    Float,
    /// Byte by byte.
    Bytes,
    /// Big-endian numbers of any length.
    BigEndian,
    /// Not at all.
    None,
}

impl Order {
    /// That of a column.
    pub fn of(column: &ColumnDescriptor) -> Self {
        let decimal =
            column.converted_type() == ConvertedType::DECIMAL || matches!(column.logical_type_ref(), Some(LogicalType::Decimal { .. }));
        match (column.physical_type(), column.sort_order()) {
            (_, SortOrder::UNDEFINED) | (Type::INT96, _) => Self::None,
            (Type::BOOLEAN, _) => Self::Bool,
            (Type::INT32 | Type::INT64, SortOrder::SIGNED) => Self::Signed,
            (Type::INT32 | Type::INT64, SortOrder::UNSIGNED) => Self::Unsigned,
            (Type::FLOAT | Type::DOUBLE, _) => Self::Float,
            (_, SortOrder::UNSIGNED) => Self::Bytes,
            (_, SortOrder::SIGNED) => {
                if decimal {
                    Self::BigEndian
                } else {
                    Self::None
                }
            }
        }
    }

    /// Whether a file that does not tell the order of its columns can have meant
    /// another.
    pub fn is_doubtful(self) -> bool {
        matches!(self, Self::Unsigned | Self::Bytes | Self::BigEndian)
    }

    /// How two values compare; `None` when they do not.
    pub fn compare(self, a: &[u8], b: &[u8]) -> Option<Ordering> {
        match self {
            Self::Bool | Self::Bytes => Some(a.cmp(b)),
            Self::Signed => Some(signed(a)?.cmp(&signed(b)?)),
            Self::Unsigned => Some(unsigned(a)?.cmp(&unsigned(b)?)),
            // a zero of one sign is not the other: some readers tell them apart
            Self::Float => {
                let (a, b) = (float(a)?, float(b)?);
                (!a.is_nan() && !b.is_nan()).then(|| a.total_cmp(&b))
            }
            Self::BigEndian => Some(big_endian(a, b)),
            Self::None => None,
        }
    }

    /// Of two bounds that both hold, the one that says more: the lower where they
    /// are `upper` ones.
    pub fn tighter(self, a: Vec<u8>, b: Vec<u8>, upper: bool) -> Vec<u8> {
        let less = self.compare(&a, &b).is_some_and(Ordering::is_lt);
        if less == upper { a } else { b }
    }

    /// Bounds as they are to be read: writers that take both zeros for one state
    /// either, so that values of both signs may lie at one that is zero.
    pub fn widened(self, low: Vec<u8>, high: Vec<u8>) -> (Vec<u8>, Vec<u8>) {
        let is_zero = |value: &[u8]| self == Self::Float && float(value) == Some(0.0);
        let zero = |value: &[u8], sign: u8| {
            let mut zero = vec![0; value.len()];
            zero.last_mut().into_iter().for_each(|byte| *byte = sign);
            zero
        };
        let low = if is_zero(&low) { zero(&low, 0x80) } else { low };
        let high = if is_zero(&high) { zero(&high, 0) } else { high };
        (low, high)
    }

    /// Whether a value is one that no bound holds.
    pub fn is_nan(self, value: &[u8]) -> bool {
        self == Self::Float && float(value).is_none_or(f64::is_nan)
    }
}

/// A number of four or eight bytes.
pub fn signed(value: &[u8]) -> Option<i64> {
    match value.len() {
        4 => value.try_into().ok().map(i32::from_le_bytes).map(i64::from),
        _ => value.try_into().ok().map(i64::from_le_bytes),
    }
}

fn unsigned(value: &[u8]) -> Option<u64> {
    match value.len() {
        4 => value.try_into().ok().map(u32::from_le_bytes).map(u64::from),
        _ => value.try_into().ok().map(u64::from_le_bytes),
    }
}

/// A float of four or eight bytes.
pub fn float(value: &[u8]) -> Option<f64> {
    match value.len() {
        4 => value.try_into().ok().map(f32::from_le_bytes).map(f64::from),
        _ => value.try_into().ok().map(f64::from_le_bytes),
    }
}

fn big_endian(a: &[u8], b: &[u8]) -> Ordering {
    let negative = |value: &[u8]| value.first().is_some_and(|byte| byte & 0x80 != 0);
    let fill = |value: &[u8]| if negative(value) { 0xff } else { 0 };
    match (negative(a), negative(b)) {
        (true, false) => Ordering::Less,
        (false, true) => Ordering::Greater,
        _ if a.len() == b.len() => a.cmp(b),
        _ => {
            let length = a.len().max(b.len());
            let wide =
                |value: &[u8]| -> Vec<u8> { std::iter::repeat_n(fill(value), length - value.len()).chain(value.iter().copied()).collect() };
            wide(a).cmp(&wide(b))
        }
    }
}

/// What is known of the ends of values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Ends {
    /// There is no value with a place in the order.
    #[default]
    None,
    /// No value is outside of these two.
    Within(Vec<u8>, Vec<u8>),
    /// Nothing.
    Unknown,
}

impl Ends {
    /// Adds a value.
    pub fn add(&mut self, order: Order, value: &[u8]) {
        if order.is_nan(value) {
            return;
        }
        match self {
            Self::Unknown => {}
            Self::None if order == Order::None => *self = Self::Unknown,
            Self::None => *self = Self::Within(value.to_vec(), value.to_vec()),
            Self::Within(low, high) => match (order.compare(value, low), order.compare(value, high)) {
                (Some(Ordering::Less), _) => value.clone_into(low),
                (_, Some(Ordering::Greater)) => value.clone_into(high),
                (Some(_), Some(_)) => {}
                _ => *self = Self::Unknown,
            },
        }
    }

    /// Adds the values that other ends hold.
    pub fn join(&mut self, order: Order, other: &Self) {
        match other {
            Self::None => {}
            Self::Within(low, high) => {
                self.add(order, low);
                self.add(order, high);
            }
            Self::Unknown => *self = Self::Unknown,
        }
    }

    /// Adds values of one width in `PLAIN`; how many are NaN.
    pub fn add_fixed(&mut self, order: Order, width: usize, bytes: &[u8]) -> u64 {
        let values = bytes.chunks_exact(width.max(1));
        let put = |ends: &mut Self, pair: Option<(Vec<u8>, Vec<u8>)>| {
            if let Some((low, high)) = pair {
                ends.add(order, &low);
                ends.add(order, &high);
            }
        };
        macro_rules! fold {
            ($kind:ty) => {{
                let mut numbers = values.filter_map(|value| value.try_into().ok().map(<$kind>::from_le_bytes));
                let first = numbers.next().map(|first| (first, first));
                let found = first.map(|first| numbers.fold(first, |(low, high), number| (low.min(number), high.max(number))));
                put(self, found.map(|(low, high)| (low.to_le_bytes().to_vec(), high.to_le_bytes().to_vec())));
                0
            }};
        }
        match (order, width) {
            (Order::Signed, 4) => fold!(i32),
            (Order::Signed, 8) => fold!(i64),
            (Order::Unsigned, 4) => fold!(u32),
            (Order::Unsigned, 8) => fold!(u64),
            _ => {
                let mut nans = 0;
                for value in values {
                    nans += u64::from(order.is_nan(value));
                    self.add(order, value);
                }
                nans
            }
        }
    }

    /// Whether no value is below a bound.
    pub fn above(&self, order: Order, bound: &[u8]) -> bool {
        match self {
            Self::None => true,
            Self::Within(low, _) => order.compare(bound, low).is_some_and(Ordering::is_le),
            Self::Unknown => false,
        }
    }

    /// Whether no value is above a bound.
    pub fn below(&self, order: Order, bound: &[u8]) -> bool {
        match self {
            Self::None => true,
            Self::Within(_, high) => order.compare(bound, high).is_some_and(Ordering::is_ge),
            Self::Unknown => false,
        }
    }
}
