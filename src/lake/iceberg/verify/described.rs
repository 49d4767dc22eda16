//! Copied outputs whose description follows from the inputs' manifests: their
//! rows need not be decoded to know that no reader would skip a live one.

use std::collections::{BTreeMap, HashMap, HashSet};

use iceberg::spec::{DataFile, Datum};

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
        && within(DataFile::lower_bounds, |stated, bound| stated <= bound)
        && within(DataFile::upper_bounds, |stated, bound| stated >= bound)
}

/// The sum of a column's counts; `None` when one is not told.
fn sum(inputs: &[(&DataFile, bool)], id: i32, counts: fn(&DataFile) -> &HashMap<i32, u64>) -> Option<u64> {
    inputs.iter().try_fold(0u64, |sum, (input, whole)| match *counts(input).get(&id)? {
        0 => Some(sum),
        count if *whole => sum.checked_add(count),
        _ => None,
    })
}
