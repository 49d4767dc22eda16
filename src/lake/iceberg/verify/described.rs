//! Copied outputs whose description follows from the inputs' manifests: their
//! rows need not be decoded to know that no reader would skip a live one.

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap, HashSet};

use iceberg::spec::{DataFile, Datum, PrimitiveLiteral};

use super::chunks::Part;
use crate::lake::iceberg::read::manifests::Entries;
use crate::model::plan::Plan;

/// Whether an output's description follows from those of its parts, `flat` being
/// the columns that are not inside a list or map.
///
/// Invariants checked:
/// * counts of values, NULLs and NaNs are the sums of the inputs' counts; of an
///   input that is here in part only zeros can be told;
/// * bounds are no narrower than those of any input, and every input has one or
///   holds nothing but NULL.
pub fn follows(plan: &Plan, entries: &Entries, output: &DataFile, parts: &BTreeMap<usize, Part>, flat: &HashSet<i32>) -> bool {
    let mut inputs = Vec::with_capacity(parts.len());
    for (place, part) in parts {
        match plan.inputs.get(*place).and_then(|input| entries.get(&*input.path)) {
            Some(entry) => inputs.push((entry, part.here == part.all)),
            None => return false,
        }
    }
    let values = output.value_counts().iter().all(|(id, stated)| match flat.contains(id) {
        true => *stated == output.record_count(),
        false => sum(&inputs, *id, DataFile::value_counts) == Some(*stated),
    });
    let follow =
        |counts: fn(&DataFile) -> &HashMap<i32, u64>| counts(output).iter().all(|(id, stated)| sum(&inputs, *id, counts) == Some(*stated));
    let within = |bounds: fn(&DataFile) -> &HashMap<i32, Datum>, holds: fn(&Datum, &Datum) -> bool| {
        bounds(output).iter().all(|(id, stated)| {
            inputs.iter().all(|(input, _)| match bounds(input).get(id) {
                Some(bound) => bound.data_type() == stated.data_type() && holds(stated, bound),
                None => input.null_value_counts().get(id) == Some(&input.record_count()),
            })
        })
    };
    values
        && follow(DataFile::null_value_counts)
        && follow(DataFile::nan_value_counts)
        && within(DataFile::lower_bounds, |stated, bound| compare(stated, bound, -0.0).is_some_and(Ordering::is_le))
        && within(DataFile::upper_bounds, |stated, bound| compare(stated, bound, 0.0).is_some_and(Ordering::is_ge))
}

/// How a bound compares with an input's, which if zero is read as the `zero` that
/// holds both: a zero of one sign is not the other.
fn compare(stated: &Datum, bound: &Datum, zero: f64) -> Option<Ordering> {
    let floats = |stated: f64, bound: f64| {
        let bound = if bound == 0.0 { zero } else { bound };
        (!stated.is_nan() && !bound.is_nan()).then(|| stated.total_cmp(&bound))
    };
    match (stated.literal(), bound.literal()) {
        (PrimitiveLiteral::Float(stated), PrimitiveLiteral::Float(bound)) => floats(stated.0.into(), bound.0.into()),
        (PrimitiveLiteral::Double(stated), PrimitiveLiteral::Double(bound)) => floats(stated.0, bound.0),
        _ => stated.partial_cmp(bound),
    }
}

/// The sum of a column's counts; `None` when one is not told.
fn sum(inputs: &[(&DataFile, bool)], id: i32, counts: fn(&DataFile) -> &HashMap<i32, u64>) -> Option<u64> {
    inputs.iter().try_fold(0u64, |sum, (input, whole)| match *counts(input).get(&id)? {
        0 => Some(sum),
        count if *whole => sum.checked_add(count),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use iceberg::spec::{DataContentType, DataFileBuilder, DataFileFormat, Struct};
    use uuid::Uuid;

    use super::*;
    use crate::model::ident::{TableIdent, TableName};
    use crate::model::partition::PartitionKey;
    use crate::model::plan::{Bound, LiveFile};

    fn file(path: &str, records: u64, nulls: u64, bounds: Option<(i64, i64)>) -> DataFile {
        let map = |bound: Option<i64>| bound.map(|b| (1, Datum::long(b))).into_iter().collect::<HashMap<_, _>>();
        DataFileBuilder::default()
            .file_path(path.into())
            .file_format(DataFileFormat::Parquet)
            .content(DataContentType::Data)
            .partition(Struct::empty())
            .partition_spec_id(0)
            .file_size_in_bytes(1)
            .record_count(records)
            .value_counts(HashMap::from([(1, records)]))
            .null_value_counts(HashMap::from([(1, nulls)]))
            .lower_bounds(map(bounds.map(|b| b.0)))
            .upper_bounds(map(bounds.map(|b| b.1)))
            .build()
            .unwrap()
    }

    fn plan() -> Plan {
        let live =
            |path: &str| LiveFile { path: path.into(), bytes: 1, records: 1, data_sequence: 1, sort_order_id: None, deletes: Vec::new() };
        Plan {
            table: TableIdent::iceberg(Uuid::from_u128(1)),
            name: TableName::new("c", "n", "t"),
            reference: "main".into(),
            snapshot_id: 1,
            sequence_number: 1,
            scope: PartitionKey::unpartitioned(0),
            reason: "request".into(),
            inputs: vec![live("a"), live("b")],
            deletes: Vec::new(),
            target_file_size: 1,
            bound: Bound { gb_hours: 1.0, millis: 1, memory: 1 },
        }
    }

    /// Whether `output` follows from whole inputs `a` and `b`.
    fn holds(a: &DataFile, b: &DataFile, output: &DataFile, here_of_b: usize) -> bool {
        let entries = Entries::from([("a".to_owned(), a.clone()), ("b".to_owned(), b.clone())]);
        let parts = BTreeMap::from([(0, Part { here: 1, all: 1 }), (1, Part { here: here_of_b, all: 2 })]);
        follows(&plan(), &entries, output, &parts, &HashSet::from([1]))
    }

    #[test]
    fn sums_and_bounds_that_hold_every_input_follow() {
        let (a, b) = (file("a", 10, 1, Some((5, 9))), file("b", 10, 2, Some((-3, 7))));
        assert!(holds(&a, &b, &file("o", 20, 3, Some((-3, 9))), 2));
        assert!(holds(&a, &b, &file("o", 20, 3, Some((-4, 10))), 2));
        assert!(holds(&a, &b, &file("o", 20, 3, None), 2));
        for wrong in [file("o", 20, 4, Some((-3, 9))), file("o", 20, 3, Some((-2, 9))), file("o", 20, 3, Some((-3, 8)))] {
            assert!(!holds(&a, &b, &wrong, 2), "{wrong:?}");
        }
    }

    #[test]
    fn a_zero_holds_another_of_the_other_sign_only_where_it_is_wider() {
        let holds = |stated: f64, bound: f64, zero: f64| compare(&Datum::double(stated), &Datum::double(bound), zero);
        assert_eq!(holds(-0.0, 0.0, -0.0), Some(Ordering::Equal));
        assert_eq!(holds(0.0, -0.0, -0.0), Some(Ordering::Greater), "a lower bound above the input's");
        assert_eq!(holds(0.0, 0.0, -0.0), Some(Ordering::Greater), "the input may hold both");
        assert_eq!(holds(-0.0, 0.0, 0.0), Some(Ordering::Less), "an upper bound below the input's");
        assert_eq!(holds(f64::NAN, 0.0, 0.0), None);
    }

    #[test]
    fn an_input_without_a_bound_must_hold_nothing_but_null() {
        let (a, none) = (file("a", 10, 0, Some((5, 9))), file("b", 10, 10, None));
        assert!(holds(&a, &none, &file("o", 20, 10, Some((5, 9))), 2));
        assert!(!holds(&a, &file("b", 10, 9, None), &file("o", 20, 9, Some((5, 9))), 2));
    }

    #[test]
    fn counts_of_an_input_that_is_split_cannot_be_told_unless_they_are_zero() {
        let (a, b) = (file("a", 10, 1, Some((5, 9))), file("b", 10, 2, Some((-3, 7))));
        assert!(!holds(&a, &b, &file("o", 15, 3, Some((-3, 9))), 1));
        assert!(holds(&a, &file("b", 10, 0, Some((6, 7))), &file("o", 15, 1, Some((5, 9))), 1));
    }
}
