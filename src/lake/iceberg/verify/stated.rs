//! What the description of an output states of a column, against what its pages
//! were found to hold.

use std::cmp::Ordering;

use iceberg::spec::{DataFile, Datum, PrimitiveLiteral};
use parquet::basic::Type;
use parquet::schema::types::SchemaDescriptor;

use super::failed;
use crate::lake::Result;
use crate::lake::iceberg::read::manifests::Entries;
use crate::model::plan::Plan;
use crate::parquet::compare::{Ends, Found, Order, float, signed};

/// A column of the outputs.
pub struct Leaf {
    /// The column of the root that it is of.
    pub root: usize,
    /// Its field id.
    pub id: Option<i32>,
    /// Its physical type.
    pub physical: Type,
    /// How its values compare.
    pub order: Order,
}

/// The columns of a file.
pub fn leaves(schema: &SchemaDescriptor) -> Vec<Leaf> {
    let leaf = |(place, column): (usize, &parquet::schema::types::ColumnDescPtr)| {
        let info = column.self_type().get_basic_info();
        Leaf {
            root: schema.get_column_root_idx(place),
            id: info.has_id().then(|| info.id()),
            physical: column.physical_type(),
            order: Order::of(column),
        }
    };
    schema.columns().iter().enumerate().map(leaf).collect()
}

/// Whether any output is described with a bound of this column.
pub fn has_bounds(outputs: &[DataFile], leaf: &Leaf) -> bool {
    let stated = |file: &DataFile, id: &i32| file.lower_bounds().contains_key(id) || file.upper_bounds().contains_key(id);
    leaf.id.is_some_and(|id| outputs.iter().any(|file| stated(file, &id)))
}

/// Whether NaNs of this column must be counted: an output states some, or none
/// where an input's manifest does not say that it has none.
pub fn must_count(outputs: &[DataFile], plan: &Plan, entries: &Entries, leaf: &Leaf) -> bool {
    let Some(id) = leaf.id.filter(|_| leaf.order == Order::Float) else { return false };
    let stated = outputs.iter().filter_map(|file| file.nan_value_counts().get(&id));
    let (some, told) = stated.fold((false, false), |(some, _), count| (some || *count > 0, true));
    let none = |path: &str| entries.get(path).and_then(|entry| entry.nan_value_counts().get(&id)) == Some(&0);
    told && (some || !plan.inputs.iter().all(|input| none(&input.path)))
}

/// Checks counts and bounds of one column of one output; `false` when it is not
/// known whether a bound holds. `counted`: whether NaNs were.
///
/// Errs [`Error::Proof`](crate::lake::Error::Proof) when one does not hold.
pub fn check(described: &DataFile, leaf: &Leaf, found: &Found, counted: bool) -> Result<bool> {
    let Some(id) = leaf.id else { return Ok(true) };
    let path = described.file_path();
    let stated = (described.null_value_counts().get(&id), described.value_counts().get(&id));
    if stated.0.is_some_and(|n| *n != found.nulls) || stated.1.is_some_and(|v| *v != found.values) {
        return Err(failed(
            path,
            format_args!("column {id} has {} NULLs of {} values, described as {stated:?}", found.nulls, found.values),
        ));
    }
    let nans = described.nan_value_counts().get(&id);
    if counted && nans.is_some_and(|n| *n != found.nans) {
        return Err(failed(path, format_args!("column {id} has {} NaNs, described as {nans:?}", found.nans)));
    }
    let (lower, upper) = (described.lower_bounds().get(&id), described.upper_bounds().get(&id));
    let (low, high) = match &found.ends {
        _ if lower.is_none() && upper.is_none() => return Ok(true),
        Ends::None => return Ok(true),
        Ends::Unknown => return Ok(false),
        Ends::Within(low, high) => (low, high),
    };
    let compared = |bound: Option<&Datum>, value: &[u8]| match bound {
        Some(bound) => compare(bound.literal(), value, leaf).map(Some),
        None => Some(None),
    };
    match compared(lower, low).zip(compared(upper, high)) {
        None => Ok(false),
        Some((lower, upper)) if lower.is_none_or(Ordering::is_le) && upper.is_none_or(Ordering::is_ge) => Ok(true),
        Some(_) => Err(failed(path, format_args!("column {id} has a value outside its stated bounds"))),
    }
}

/// How a bound compares with a value as Parquet has it; `None` when they do not.
fn compare(bound: &PrimitiveLiteral, value: &[u8], leaf: &Leaf) -> Option<Ordering> {
    match (bound, leaf.physical) {
        (PrimitiveLiteral::Boolean(bound), Type::BOOLEAN) => Some(bound.cmp(&(*value.first()? != 0))),
        (PrimitiveLiteral::Int(bound), Type::INT32) => Some(i64::from(*bound).cmp(&signed(value)?)),
        (PrimitiveLiteral::Long(bound), Type::INT32 | Type::INT64) => Some(bound.cmp(&signed(value)?)),
        // zeros of both signs are told apart, and NaN bounds nothing
        (PrimitiveLiteral::Float(bound), Type::FLOAT) => (!bound.is_nan()).then_some(f64::from(bound.0).total_cmp(&float(value)?)),
        (PrimitiveLiteral::Double(bound), Type::DOUBLE) => (!bound.is_nan()).then_some(bound.0.total_cmp(&float(value)?)),
        (PrimitiveLiteral::String(bound), Type::BYTE_ARRAY) => Some(bound.as_bytes().cmp(value)),
        (PrimitiveLiteral::Binary(bound), Type::BYTE_ARRAY | Type::FIXED_LEN_BYTE_ARRAY) => Some(bound.as_slice().cmp(value)),
        (PrimitiveLiteral::UInt128(bound), Type::FIXED_LEN_BYTE_ARRAY) => Some(bound.to_be_bytes().as_slice().cmp(value)),
        (PrimitiveLiteral::Int128(bound), physical) => Some(bound.cmp(&unscaled(value, physical)?)),
        _ => None,
    }
}

/// A decimal's number.
fn unscaled(value: &[u8], physical: Type) -> Option<i128> {
    if matches!(physical, Type::INT32 | Type::INT64) {
        return signed(value).map(i128::from);
    }
    let negative = value.first()? & 0x80 != 0;
    let mut wide = [if negative { 0xff } else { 0 }; 16];
    let start = wide.len().checked_sub(value.len())?;
    wide.get_mut(start..)?.copy_from_slice(value);
    Some(i128::from_be_bytes(wide))
}
