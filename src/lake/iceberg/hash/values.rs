//! The bytes of values, whatever array they lie in.

use std::ops::Range;

use arrow_array::Array;
use arrow_array::cast::AsArray;
use arrow_buffer::BooleanBuffer;
use arrow_schema::{ArrowError, DataType};

use super::shape;

/// The bytes of a primitive array's values.
pub enum Values<'a> {
    /// Values of one width, side by side.
    Fixed {
        /// Bytes of each.
        width: usize,
        /// All of them.
        data: &'a [u8],
    },
    /// Values between offsets.
    Small {
        /// Where each begins, and the last ends.
        offsets: &'a [i32],
        /// All of them.
        data: &'a [u8],
    },
    /// Values between wide offsets.
    Large {
        /// Where each begins, and the last ends.
        offsets: &'a [i64],
        /// All of them.
        data: &'a [u8],
    },
    /// One bit a value: hashed as a byte.
    Bits(&'a BooleanBuffer),
}

impl<'a> Values<'a> {
    /// The values of a primitive array.
    ///
    /// Errs on a type that is not hashed.
    pub fn of(array: &'a dyn Array) -> Result<Self, ArrowError> {
        Ok(match array.data_type() {
            DataType::Boolean => Self::Bits(array.as_boolean().values()),
            DataType::Utf8 => {
                Self::Small { offsets: array.as_string::<i32>().value_offsets(), data: array.as_string::<i32>().value_data() }
            }
            DataType::LargeUtf8 => {
                Self::Large { offsets: array.as_string::<i64>().value_offsets(), data: array.as_string::<i64>().value_data() }
            }
            DataType::Binary => {
                Self::Small { offsets: array.as_binary::<i32>().value_offsets(), data: array.as_binary::<i32>().value_data() }
            }
            DataType::LargeBinary => {
                Self::Large { offsets: array.as_binary::<i64>().value_offsets(), data: array.as_binary::<i64>().value_data() }
            }
            DataType::FixedSizeBinary(width) => {
                Self::Fixed { width: usize::try_from(*width).map_err(|_| shape())?, data: array.as_fixed_size_binary().value_data() }
            }
            other => {
                let width = other.primitive_width().ok_or_else(|| ArrowError::NotYetImplemented(format!("hash of {other}")))?;
                arrow_array::downcast_primitive_array!(
                    array => Self::Fixed { width, data: array.values().inner().as_slice() },
                    _ => return Err(shape())
                )
            }
        })
    }

    /// Whether all values have one width.
    pub fn is_fixed(&self) -> bool {
        matches!(self, Self::Fixed { .. } | Self::Bits(_))
    }

    /// The bytes of one value of those whose width varies; `None` for others, and
    /// for one that is not there.
    pub fn value(&self, row: usize) -> Option<&'a [u8]> {
        match self {
            Self::Fixed { .. } | Self::Bits(_) => None,
            Self::Small { offsets, data } => {
                data.get(usize::try_from(*offsets.get(row)?).ok()?..usize::try_from(*offsets.get(row + 1)?).ok()?)
            }
            Self::Large { offsets, data } => {
                data.get(usize::try_from(*offsets.get(row)?).ok()?..usize::try_from(*offsets.get(row + 1)?).ok()?)
            }
        }
    }

    /// The length of one value; `None` when all have one width.
    pub fn length(&self, row: usize) -> Option<u64> {
        match self {
            Self::Fixed { .. } | Self::Bits(_) => None,
            Self::Small { offsets, .. } => u64::try_from(i64::from(*offsets.get(row + 1)?) - i64::from(*offsets.get(row)?)).ok(),
            Self::Large { offsets, .. } => u64::try_from(offsets.get(row + 1)? - offsets.get(row)?).ok(),
        }
    }

    /// The bytes of some values, side by side, to `sink`.
    pub fn bytes(&self, rows: Range<usize>, mut sink: impl FnMut(&[u8])) {
        let span = |start: Option<usize>, end: Option<usize>, data: &'a [u8]| data.get(start?..end?);
        let bytes = match self {
            Self::Fixed { width, data } => span(rows.start.checked_mul(*width), rows.end.checked_mul(*width), data),
            Self::Small { offsets, data } => {
                let at = |row: usize| usize::try_from(*offsets.get(row)?).ok();
                span(at(rows.start), at(rows.end), data)
            }
            Self::Large { offsets, data } => {
                let at = |row: usize| usize::try_from(*offsets.get(row)?).ok();
                span(at(rows.start), at(rows.end), data)
            }
            Self::Bits(bits) => {
                let bytes: Vec<u8> = bits.slice(rows.start, rows.len()).iter().map(u8::from).collect();
                sink(&bytes);
                return;
            }
        };
        // An impossible span is hashed as something that no value has.
        sink(bytes.unwrap_or(b"\0out of bounds\0"));
    }
}
