//! Bounds and NaN counts of an output, as its manifest entry will state them,
//! against its values: a bound that leaves out a value makes readers skip it.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type};
use arrow_array::{Array, ArrayRef, BooleanArray, RecordBatch, Scalar};
use arrow_ord::cmp::{gt, lt};
use arrow_schema::{ArrowError, DataType, FieldRef, Fields, Schema};
use iceberg::spec::{DataFile, Datum, PrimitiveLiteral};

use super::failed;
use crate::lake::Result;
use crate::lake::iceberg::read::partition::one;
use crate::lake::iceberg::read::schema::field_id;
use crate::lake::iceberg::read::{Key, key_column};
use crate::model::partition::Value;

/// The stated bounds of one column of the root, with what is below it, in one output.
pub struct Bounds {
    path: String,
    columns: Vec<Column>,
}

struct Column {
    id: i32,
    key: Key,
    data_type: DataType,
    lower: Option<Scalar<ArrayRef>>,
    upper: Option<Scalar<ArrayRef>>,
    nans: u64,
    /// NaNs as stated.
    stated: Option<u64>,
    /// The last dictionary, none of whose values lies outside the bounds.
    dictionary: Option<ArrayRef>,
}

/// Checks that every bound in a file's description is of a column that has one
/// by the specification, and is a value.
///
/// Errs [`Error::Proof`](crate::lake::Error::Proof) when one is not.
pub fn all_have_columns(described: &DataFile, schema: &Schema) -> Result<()> {
    let mut leaves = Vec::new();
    collect(schema.fields(), &[], &mut leaves);
    let ids: BTreeSet<i32> = leaves.into_iter().map(|(id, ..)| id).collect();
    let strange = |id: &&i32| !ids.contains(*id);
    if let Some((id, _)) = described.lower_bounds().iter().chain(described.upper_bounds()).find(|(_, bound)| bound.is_nan()) {
        return Err(failed(described.file_path(), format_args!("column {id} is bounded by NaN")));
    }
    match described.lower_bounds().keys().chain(described.upper_bounds().keys()).find(strange) {
        Some(id) => Err(failed(described.file_path(), format_args!("a bound of column {id} inside a list or map, or of no column"))),
        None => Ok(()),
    }
}

impl Bounds {
    /// The bounds in a file's description, for arrays of one field of the table.
    ///
    /// Errs [`Error::Proof`](crate::lake::Error::Proof) on one of another type.
    pub fn new(described: &DataFile, field: &FieldRef) -> Result<Self> {
        let mut leaves = Vec::new();
        collect(&Fields::from(vec![Arc::clone(field)]), &[], &mut leaves);
        let mut columns = Vec::with_capacity(leaves.len());
        for (id, path, data_type) in leaves {
            let scalar = |bound: Option<&Datum>| bound.map(|b| bound_array(b, &data_type)).transpose();
            let typed = |e: String| failed(described.file_path(), format_args!("column {id}: {e}"));
            let lower = scalar(described.lower_bounds().get(&id)).map_err(typed)?;
            let upper = scalar(described.upper_bounds().get(&id)).map_err(typed)?;
            let stated = described.nan_value_counts().get(&id).copied();
            columns.push(Column { id, key: Key::Path(path), data_type, lower, upper, nans: 0, stated, dictionary: None });
        }
        Ok(Self { path: described.file_path().to_owned(), columns })
    }

    /// Checks that no value of the next rows lies outside its bounds.
    ///
    /// Errs [`Error::Proof`](crate::lake::Error::Proof) naming the column.
    pub fn check(&mut self, rows: &ArrayRef) -> Result<()> {
        for column in &mut self.columns {
            if column.lower.is_none() && column.upper.is_none() && !column.data_type.is_floating() {
                continue;
            }
            let holds = column.holds(rows).map_err(|e| failed(&self.path, format_args!("column {}: {e}", column.id)))?;
            if !holds {
                return Err(failed(&self.path, format_args!("column {} has a value outside its stated bounds", column.id)));
            }
        }
        Ok(())
    }

    /// Checks the NaN counts after the last batch.
    ///
    /// Errs [`Error::Proof`](crate::lake::Error::Proof) naming the column.
    pub fn finish(self) -> Result<()> {
        for column in &self.columns {
            if column.stated.is_some_and(|n| n != column.nans) {
                let why = format!("column {} has {} NaNs, described as {:?}", column.id, column.nans, column.stated);
                return Err(failed(&self.path, why));
            }
        }
        Ok(())
    }
}

impl Column {
    fn holds(&mut self, rows: &ArrayRef) -> std::result::Result<bool, ArrowError> {
        let Some(keyed) = rows.as_any_dictionary_opt() else { return self.between(rows) };
        let values = keyed.values();
        let same = |held: &ArrayRef| held.to_data().ptr_eq(&values.to_data());
        if self.dictionary.as_ref().is_some_and(same) {
            return Ok(true);
        }
        if self.between(values)? {
            self.dictionary = Some(Arc::clone(values));
            return Ok(true);
        }
        // A dictionary may hold what no row has.
        self.between(&arrow_select::take::take(values, keyed.keys(), None)?)
    }

    fn between(&mut self, rows: &ArrayRef) -> std::result::Result<bool, ArrowError> {
        let batch = RecordBatch::try_from_iter_with_nullable([("c", Arc::clone(rows), true)])?;
        let values = key_column(&batch, &self.key, &self.data_type)?;
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
