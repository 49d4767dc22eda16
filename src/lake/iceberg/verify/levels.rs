//! Places in lists and maps, of the outputs against the inputs, as footers count
//! them: of such columns manifests tell nothing that writers agree on.
//!
//! A column chunk states how many entries it has: one for each element, and one for
//! each list that is NULL or empty. And where it counts its levels, how many of the
//! entries are values. Neither depends on the reader.

use std::collections::HashMap;

use arrow_schema::{DataType, Field, Schema};
use iceberg::spec::DataFile;
use parquet::file::metadata::ParquetMetaData;

use super::{counts, failed};
use crate::lake::Result;
use crate::lake::iceberg::read::file::{ParquetFile, Store};
use crate::lake::iceberg::read::schema::{children, field_id};
use crate::model::plan::Plan;

/// What footers state of one column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entries {
    /// Elements, and lists without any.
    all: u64,
    /// Those of them that hold a value; `None` where one footer does not tell.
    present: Option<u64>,
}

/// Compares every column inside a list or map that all inputs have.
///
/// Invariants checked:
/// * without deleted rows the outputs have as many entries, and as many that hold a
///   value;
/// * with them at least one entry less for each, and no value more.
///
/// Errs [`Error::Proof`](crate::lake::Error::Proof) naming the column.
pub async fn check(store: &Store, plan: &Plan, outputs: &[DataFile], schema: &Schema, deleted: u64) -> Result<()> {
    let columns = nested(schema);
    if columns.is_empty() {
        return Ok(());
    }
    let mut before = nothing(&columns);
    for input in &plan.inputs {
        let file = ParquetFile::open(store, &input.path, input.bytes).await?;
        before = joined(before, &stated(file.footer()));
    }
    let mut after = nothing(&columns);
    for output in outputs {
        let file = ParquetFile::open(store, output.file_path(), output.file_size_in_bytes()).await?;
        after = joined(after, &stated(file.footer()));
    }
    for id in columns {
        let (Some(before), Some(after)) = (before.get(&id), after.get(&id)) else { continue };
        if !holds(*before, *after, deleted) {
            let why = format!("{after:?} read back, the inputs state {before:?}, and {deleted} of their rows are deleted");
            return Err(failed(&format!("column {id}"), why));
        }
    }
    Ok(())
}

fn holds(before: Entries, after: Entries, deleted: u64) -> bool {
    let gone = before.all.checked_sub(after.all);
    let entries = gone.is_some_and(|gone| if deleted == 0 { gone == 0 } else { gone >= deleted });
    let values = match before.present.zip(after.present) {
        Some((before, after)) if deleted == 0 => before == after,
        Some((before, after)) => after <= before,
        None => true,
    };
    entries && values
}

/// Ids of the leaves inside a list or map.
fn nested(schema: &Schema) -> Vec<i32> {
    let flat = counts::flat(schema);
    let mut leaves = Vec::new();
    schema.fields().iter().for_each(|field| collect(field, &mut leaves));
    leaves.retain(|id| !flat.contains(id));
    leaves
}

fn collect(field: &Field, ids: &mut Vec<i32>) {
    match field.data_type() {
        DataType::Struct(_) | DataType::List(_) | DataType::Map(..) => {
            children(field.data_type()).iter().for_each(|below| collect(below, ids));
        }
        _ => ids.extend(field_id(field)),
    }
}

fn nothing(columns: &[i32]) -> HashMap<i32, Entries> {
    columns.iter().map(|id| (*id, Entries { all: 0, present: Some(0) })).collect()
}

/// With one file more. A column that it lacks is not told from here on: it may read
/// as NULL in each row, or in each element of a list that the file has.
fn joined(sums: HashMap<i32, Entries>, file: &HashMap<i32, Entries>) -> HashMap<i32, Entries> {
    let join = |(id, sum): (i32, Entries)| {
        let more = file.get(&id)?;
        let present = sum.present.zip(more.present).and_then(|(a, b)| a.checked_add(b));
        Some((id, Entries { all: sum.all.checked_add(more.all)?, present }))
    };
    sums.into_iter().filter_map(join).collect()
}

/// Entries of each column that has an id.
fn stated(footer: &ParquetMetaData) -> HashMap<i32, Entries> {
    let descriptor = footer.file_metadata().schema_descr();
    let column = |(leaf, column): (usize, &parquet::schema::types::ColumnDescPtr)| {
        let info = column.self_type().get_basic_info();
        let id = info.has_id().then(|| info.id())?;
        let mut sum = Entries { all: 0, present: Some(0) };
        for group in footer.row_groups() {
            let chunk = group.columns().get(leaf)?;
            let all = u64::try_from(chunk.num_values()).ok()?;
            let values = chunk.definition_level_histogram().and_then(|levels| values(levels.values(), all));
            sum = Entries { all: sum.all.checked_add(all)?, present: sum.present.zip(values).and_then(|(a, b)| a.checked_add(b)) };
        }
        Some((id, sum))
    };
    descriptor.columns().iter().enumerate().filter_map(column).collect()
}

/// The entries of the highest level, which are those that hold a value; `None` of counts
/// that are not those of all entries.
fn values(levels: &[i64], entries: u64) -> Option<u64> {
    let counts: Vec<u64> = levels.iter().map(|count| u64::try_from(*count).ok()).collect::<Option<_>>()?;
    let all = counts.iter().try_fold(0_u64, |sum, count| sum.checked_add(*count))?;
    counts.last().copied().filter(|_| all == entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_levels_are_believed_when_they_are_those_of_all_entries() {
        assert_eq!(values(&[1, 0, 2, 5], 8), Some(5));
        assert_eq!([values(&[1, 0, 2, 5], 7), values(&[], 0), values(&[-1, 2], 1), values(&[i64::MAX, i64::MAX, i64::MAX], 1)], [None; 4]);
    }

    #[test]
    fn entries_are_equal_without_deletes_and_fewer_with_them() {
        let of = |all, present| Entries { all, present };
        let before = of(10, Some(7));
        let found = [of(10, Some(7)), of(9, Some(7)), of(11, Some(7)), of(10, Some(6)), of(10, None)];
        assert_eq!(found.map(|after| holds(before, after, 0)), [true, false, false, false, true]);
        let found = [of(8, Some(7)), of(8, Some(2)), of(9, Some(7)), of(8, Some(8)), of(3, None)];
        assert_eq!(found.map(|after| holds(before, after, 2)), [true, true, false, false, true]);
    }

    #[test]
    fn a_column_that_one_file_lacks_is_not_told() {
        let file = HashMap::from([(1, Entries { all: 3, present: None })]);
        let sums = joined(nothing(&[1, 2]), &file);
        assert_eq!(sums, HashMap::from([(1, Entries { all: 3, present: None })]));
        assert_eq!(joined(sums, &nothing(&[1])), file);
    }
}
