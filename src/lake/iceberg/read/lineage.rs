//! The two lineage columns of rows as they are read: what a file does not store is
//! counted from what its manifest entry says.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, Int64Array, RecordBatch, RecordBatchOptions};
use arrow_schema::ArrowError;

use crate::lake::iceberg::lineage::COLUMNS;
use crate::model::plan::LiveFile;

/// Fills the last two columns of live rows of a file. The rows were read from
/// `first` on, and those of `live` are left, or all without it.
///
/// Errs when there are no such columns, or ids beyond any.
pub fn fill(rows: &RecordBatch, file: &LiveFile, first: u64, live: Option<&[bool]>) -> Result<RecordBatch, ArrowError> {
    let missing = || ArrowError::SchemaError("rows without the columns of lineage".into());
    let place = rows.num_columns().checked_sub(COLUMNS.len()).ok_or_else(missing)?;
    let mut columns = rows.columns().to_vec();
    let stored = columns.split_off(place);
    let [ids, updated] = stored.as_slice() else { return Err(missing()) };
    columns.push(row_ids(ids, file.first_row_id, first, live)?);
    columns.push(filled(updated, |_| Ok(Some(file.data_sequence)))?);
    let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
    RecordBatch::try_new_with_options(rows.schema(), columns, &options)
}

fn row_ids(stored: &ArrayRef, first_id: Option<i64>, first: u64, live: Option<&[bool]>) -> Result<ArrayRef, ArrowError> {
    let Some(first_id) = first_id else { return Ok(Arc::clone(stored)) };
    let beyond = || ArrowError::ComputeError(format!("row ids from {first_id} on are beyond any"));
    let start = i64::try_from(first).ok().and_then(|first| first_id.checked_add(first)).ok_or_else(beyond)?;
    let places: Vec<usize> = match live {
        Some(live) => live.iter().enumerate().filter(|(_, lives)| **lives).map(|(place, _)| place).collect(),
        None => (0..stored.len()).collect(),
    };
    if places.len() != stored.len() {
        return Err(ArrowError::ComputeError(format!("{} rows live of which {} were read", places.len(), stored.len())));
    }
    let id = |row: usize| {
        let place = places.get(row).and_then(|place| i64::try_from(*place).ok());
        place.and_then(|place| start.checked_add(place)).map(Some).ok_or_else(beyond)
    };
    filled(stored, id)
}

/// A column with its NULLs filled.
fn filled(stored: &ArrayRef, fill: impl Fn(usize) -> Result<Option<i64>, ArrowError>) -> Result<ArrayRef, ArrowError> {
    let found = stored.as_primitive_opt::<Int64Type>().ok_or_else(|| ArrowError::SchemaError("lineage is not a long".into()))?;
    if found.null_count() == 0 {
        return Ok(Arc::clone(stored));
    }
    let values = found.iter().enumerate().map(|(row, value)| value.map_or_else(|| fill(row), |value| Ok(Some(value))));
    values.collect::<Result<Int64Array, _>>().map(|values| Arc::new(values) as ArrayRef)
}

#[cfg(test)]
mod tests {
    use arrow_schema::Schema;

    use super::*;
    use crate::lake::iceberg::lineage;

    fn file(first_row_id: Option<i64>) -> LiveFile {
        LiveFile { path: "f".into(), bytes: 1, records: 9, data_sequence: 4, sort_order_id: None, first_row_id, deletes: vec![] }
    }

    fn of(ids: [Option<i64>; 3], updated: [Option<i64>; 3], file: &LiveFile, live: Option<&[bool]>) -> [Vec<Option<i64>>; 2] {
        let columns: Vec<ArrayRef> = vec![Arc::new(Int64Array::from(ids.to_vec())), Arc::new(Int64Array::from(updated.to_vec()))];
        let rows = RecordBatch::try_new(lineage::with_columns(&Arc::new(Schema::empty())), columns).unwrap();
        let filled = fill(&rows, file, 5, live).unwrap();
        [0, 1].map(|column| filled.column(column).as_primitive::<Int64Type>().iter().collect())
    }

    #[test]
    fn what_is_stored_stays_and_the_rest_is_counted() {
        let live = [false, true, true, false, true];
        let [ids, updated] = of([None, Some(3), None], [Some(2), None, None], &file(Some(100)), Some(&live));
        assert_eq!(ids, [Some(106), Some(3), Some(109)]);
        assert_eq!(updated, [Some(2), Some(4), Some(4)]);
    }

    #[test]
    fn rows_of_a_file_without_ids_get_none_here() {
        let [ids, updated] = of([None; 3], [None; 3], &file(None), None);
        assert_eq!((ids, updated), (vec![None; 3], vec![Some(4); 3]));
    }
}
