//! An order-free hash of rows.

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_buffer::NullBuffer;
use arrow_schema::{ArrowError, DataType};
use xxhash_rust::xxh3::xxh3_128;

use super::shape;
use super::values::Values;

/// The hash of a batch's rows as a multiset: the sum modulo 2¹²⁸ of the rows'
/// hashes. It depends on values and on the order of columns, not on names, row
/// order or batch borders; add up the batches' values with `wrapping_add`.
///
/// Errs when a column's type cannot be hashed.
pub fn multiset_hash(batch: &RecordBatch) -> Result<u128, ArrowError> {
    let columns = Cells::all(batch.columns())?;
    let mut bytes = Vec::new();
    let mut sum = 0u128;
    for row in 0..batch.num_rows() {
        bytes.clear();
        columns.iter().try_for_each(|c| c.write(row, &mut bytes))?;
        sum = sum.wrapping_add(xxh3_128(&bytes));
    }
    Ok(sum)
}

/// A column, ready to give the canonical bytes of one row after another.
struct Cells<'a> {
    nulls: Option<NullBuffer>,
    kind: Kind<'a>,
}

enum Kind<'a> {
    Leaf(Values<'a>),
    Struct(Vec<Cells<'a>>),
    /// Lists and maps: offsets into the items.
    Items(&'a [i32], Vec<Cells<'a>>),
}

impl<'a> Cells<'a> {
    fn all(columns: &'a [ArrayRef]) -> Result<Vec<Self>, ArrowError> {
        columns.iter().map(Self::of).collect()
    }

    fn of(array: &'a ArrayRef) -> Result<Self, ArrowError> {
        let kind = match array.data_type() {
            DataType::Struct(_) => Kind::Struct(Self::all(array.as_struct().columns())?),
            DataType::List(_) => {
                let list = array.as_list::<i32>();
                Kind::Items(list.value_offsets(), vec![Self::of(list.values())?])
            }
            DataType::Map(..) => {
                let map = array.as_map();
                Kind::Items(map.value_offsets(), Self::all(map.entries().columns())?)
            }
            _ => Kind::Leaf(Values::of(array)?),
        };
        Ok(Self { nulls: array.logical_nulls(), kind })
    }

    fn write(&self, row: usize, bytes: &mut Vec<u8>) -> Result<(), ArrowError> {
        if self.nulls.as_ref().is_some_and(|n| n.is_null(row)) {
            bytes.push(0);
            return Ok(());
        }
        bytes.push(1);
        match &self.kind {
            Kind::Leaf(values) => {
                bytes.extend(values.length(row).map(u64::to_le_bytes).into_iter().flatten());
                values.bytes(row..row + 1, |value| bytes.extend_from_slice(value));
            }
            Kind::Struct(fields) => fields.iter().try_for_each(|f| f.write(row, bytes))?,
            Kind::Items(offsets, items) => {
                let place = |i: usize| offsets.get(i).and_then(|o| usize::try_from(*o).ok()).ok_or_else(shape);
                let range = place(row)?..place(row + 1)?;
                bytes.extend_from_slice(&u64::try_from(range.len()).unwrap_or(u64::MAX).to_le_bytes());
                for item in range {
                    items.iter().try_for_each(|i| i.write(item, bytes))?;
                }
            }
        }
        Ok(())
    }
}
