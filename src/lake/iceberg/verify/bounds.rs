//! Bounds and NaN counts of an output, as its manifest entry will state them,
//! against its values: a bound that leaves out a value makes readers skip it.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type};
use arrow_array::{Array, ArrayRef, BooleanArray, RecordBatch, Scalar};
use arrow_ord::cmp::{gt, lt};
use arrow_schema::{ArrowError, DataType, Fields, Schema};
use iceberg::spec::{DataFile, Datum, PrimitiveLiteral};

use super::failed;
use crate::lake::Result;
use crate::lake::iceberg::read::partition::one;
use crate::lake::iceberg::read::schema::field_id;
use crate::lake::iceberg::read::{Key, key_column};
use crate::model::partition::Value;

/// The stated bounds of one output.
pub struct Bounds<'a> {
    described: &'a DataFile,
    columns: Vec<Column>,
}

struct Column {
    id: i32,
    key: Key,
    data_type: DataType,
    lower: Option<Scalar<ArrayRef>>,
    upper: Option<Scalar<ArrayRef>>,
    nans: u64,
}

impl<'a> Bounds<'a> {
    /// The bounds in a file's description, for batches of the table's schema.
    ///
    /// Errs [`Error::Proof`](crate::lake::Error::Proof) on a bound of a column that
    /// has none by the specification, or of another type.
    pub fn new(described: &'a DataFile, schema: &Schema) -> Result<Self> {
        let mut leaves = Vec::new();
        collect(schema.fields(), &[], &mut leaves);
        let mut columns = Vec::with_capacity(leaves.len());
        let mut bounds = 0;
        for (id, path, data_type) in leaves {
            let lower = described.lower_bounds().get(&id);
            let upper = described.upper_bounds().get(&id);
            bounds += usize::from(lower.is_some()) + usize::from(upper.is_some());
            let scalar = |bound: Option<&Datum>| bound.map(|b| bound_array(b, &data_type)).transpose();
            let typed = |e: String| failed(described.file_path(), format_args!("column {id}: {e}"));
            let (lower, upper) = (scalar(lower).map_err(typed)?, scalar(upper).map_err(typed)?);
            columns.push(Column { id, key: Key::Path(path), data_type, lower, upper, nans: 0 });
        }
        if bounds != described.lower_bounds().len() + described.upper_bounds().len() {
            return Err(failed(described.file_path(), "a bound of a column inside a list or map, or of no column"));
        }
        Ok(Self { described, columns })
    }

    /// Checks that no value of a batch lies outside its bounds.
    ///
    /// Errs [`Error::Proof`](crate::lake::Error::Proof) naming the column.
    pub fn check(&mut self, batch: &RecordBatch) -> Result<()> {
        let path = self.described.file_path();
        for column in &mut self.columns {
            if column.lower.is_none() && column.upper.is_none() && !column.data_type.is_floating() {
                continue;
            }
            let holds = column.holds(batch).map_err(|e| failed(path, format_args!("column {}: {e}", column.id)))?;
            if !holds {
                return Err(failed(path, format_args!("column {} has a value outside its stated bounds", column.id)));
            }
        }
        Ok(())
    }

    /// Checks the NaN counts after the last batch.
    ///
    /// Errs [`Error::Proof`](crate::lake::Error::Proof) naming the column.
    pub fn finish(self) -> Result<()> {
        for column in &self.columns {
            let stated = self.described.nan_value_counts().get(&column.id);
            if stated.is_some_and(|n| *n != column.nans) {
                let why = format!("column {} has {} NaNs, described as {stated:?}", column.id, column.nans);
                return Err(failed(self.described.file_path(), why));
            }
        }
        Ok(())
    }
}

impl Column {
    fn holds(&mut self, batch: &RecordBatch) -> std::result::Result<bool, ArrowError> {
        let values = key_column(batch, &self.key, &self.data_type)?;
        let (values, nans) = without_nans(values);
        self.nans += nans;
        let values = comparable(values)?;
        let none = |array: BooleanArray| array.true_count() == 0;
        let above = self.lower.as_ref().map_or(Ok(true), |lower| lt(&values, lower).map(none))?;
        let below = self.upper.as_ref().map_or(Ok(true), |upper| gt(&values, upper).map(none))?;
        Ok(above && below)
    }
}

/// Leaves that are not inside a list or map: id, place, type.
fn collect(fields: &Fields, parent: &[usize], leaves: &mut Vec<(i32, Vec<usize>, DataType)>) {
    for (index, field) in fields.iter().enumerate() {
        let mut path = parent.to_vec();
        path.push(index);
        match field.data_type() {
            DataType::Struct(below) => collect(below, &path, leaves),
            DataType::List(_) | DataType::Map(..) => {}
            other => leaves.extend(field_id(field).map(|id| (id, path, other.clone()))),
        }
    }
}

fn bound_array(bound: &Datum, data_type: &DataType) -> std::result::Result<Scalar<ArrayRef>, String> {
    let value = match bound.literal() {
        PrimitiveLiteral::Boolean(v) => Some(Value::Bool(*v)),
        PrimitiveLiteral::Int(v) => Some(Value::Int(*v)),
        PrimitiveLiteral::Long(v) => Some(Value::Long(*v)),
        PrimitiveLiteral::Float(v) => Some(Value::Float(v.to_bits())),
        PrimitiveLiteral::Double(v) => Some(Value::Double(v.to_bits())),
        PrimitiveLiteral::String(v) => Some(Value::String(v.as_str().into())),
        PrimitiveLiteral::Binary(v) => Some(Value::Bytes(v.as_slice().into())),
        PrimitiveLiteral::Int128(v) => Some(Value::Decimal(*v)),
        PrimitiveLiteral::UInt128(v) => Some(Value::Bytes(v.to_be_bytes().as_slice().into())),
        PrimitiveLiteral::AboveMax | PrimitiveLiteral::BelowMin => None,
    };
    // A bound of fixed bytes may be shorter than the values.
    let data_type = if matches!(data_type, DataType::FixedSizeBinary(_)) { &DataType::LargeBinary } else { data_type };
    let array = value.and_then(|v| one(&v, data_type)).ok_or_else(|| format!("a bound {bound} of another type"))?;
    Ok(Scalar::new(array))
}

fn comparable(values: ArrayRef) -> std::result::Result<ArrayRef, ArrowError> {
    match values.data_type() {
        DataType::FixedSizeBinary(_) => arrow_cast::cast(&values, &DataType::LargeBinary),
        _ => Ok(values),
    }
}

/// NaNs become NULL, for bounds leave them out; and how many there were.
fn without_nans(values: ArrayRef) -> (ArrayRef, u64) {
    let before = values.null_count();
    let values: ArrayRef = match values.data_type() {
        DataType::Float32 => {
            Arc::new(values.as_primitive::<Float32Type>().unary_opt::<_, Float32Type>(|v| if v.is_nan() { None } else { Some(v) }))
        }
        DataType::Float64 => {
            Arc::new(values.as_primitive::<Float64Type>().unary_opt::<_, Float64Type>(|v| if v.is_nan() { None } else { Some(v) }))
        }
        _ => return (values, 0),
    };
    let nans = values.null_count().saturating_sub(before);
    (values, u64::try_from(nans).unwrap_or(0))
}
