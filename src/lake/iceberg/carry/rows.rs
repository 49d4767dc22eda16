//! Where the rows of the inputs lie in the outputs: pure.
//!
//! Every way of writing outputs keeps the rows in the order of the plan's inputs
//! and leaves out the deleted ones. So the deleted rows of each input and the rows
//! of each output say where every row went.

use roaring::RoaringTreemap;

/// The rows of an input.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// How many, deleted ones included.
    pub records: u64,
    /// Those that the rewrite left out; `None` when there is none.
    pub deleted: Option<&'a RoaringTreemap>,
}

impl Input<'_> {
    fn is_deleted(&self, row: u64) -> bool {
        self.deleted.is_some_and(|deleted| deleted.contains(row))
    }

    /// Rows before this one that are in the outputs.
    fn live_before(&self, row: u64) -> u64 {
        let below = |deleted: &RoaringTreemap| row.checked_sub(1).map_or(0, |last| deleted.rank(last));
        row.saturating_sub(self.deleted.map_or(0, below))
    }
}

/// Rows of the inputs and where they lie in the outputs, in the same order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Moved {
    /// Rows of each input.
    pub from: Vec<RoaringTreemap>,
    /// The same rows in each output.
    pub to: Vec<RoaringTreemap>,
}

impl Moved {
    /// How many.
    pub fn count(&self) -> u64 {
        self.from.iter().map(RoaringTreemap::len).sum()
    }
}

/// Finds the rows of each input in the outputs of so many rows each. Rows that the
/// rewrite left out, and those past an input's end, lie nowhere and are dropped.
///
/// `None` when the outputs do not have as many rows as the inputs have live ones.
pub fn find(inputs: &[Input<'_>], outputs: &[u64], rows: &[RoaringTreemap]) -> Option<Moved> {
    let mut moved = Moved { from: Vec::with_capacity(inputs.len()), to: vec![RoaringTreemap::new(); outputs.len()] };
    // the output that is being filled, and the live rows before it
    let (mut at, mut before) = (0, 0u64);
    let mut live = 0u64;
    for (place, input) in inputs.iter().enumerate() {
        let mut from = RoaringTreemap::new();
        for row in rows.get(place).into_iter().flatten().take_while(|row| *row < input.records) {
            if input.is_deleted(row) {
                continue;
            }
            let ordinal = live.checked_add(input.live_before(row))?;
            while ordinal - before >= *outputs.get(at)? {
                before = before.checked_add(*outputs.get(at)?)?;
                at += 1;
            }
            from.insert(row);
            moved.to.get_mut(at)?.insert(ordinal - before);
        }
        moved.from.push(from);
        live = live.checked_add(input.live_before(input.records))?;
    }
    let written = outputs.iter().try_fold(0u64, |sum, rows| sum.checked_add(*rows))?;
    (written == live).then_some(moved)
}

/// Sets of rows, unless they take more than so many bytes.
pub fn within(rows: Vec<RoaringTreemap>, bytes: u64) -> Option<Vec<RoaringTreemap>> {
    (bytes_of(&rows) <= bytes).then_some(rows)
}

/// Bytes that sets of rows take, about.
pub fn bytes_of(rows: &[RoaringTreemap]) -> u64 {
    rows.iter().map(|rows| u64::try_from(rows.serialized_size()).unwrap_or(u64::MAX)).fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn set(rows: &[u64]) -> RoaringTreemap {
        rows.iter().copied().collect()
    }

    fn input(records: u64, deleted: &RoaringTreemap) -> Input<'_> {
        Input { records, deleted: Some(deleted) }
    }

    #[test]
    fn a_row_lies_behind_the_live_rows_before_it() {
        let (first, second) = (set(&[1, 2]), set(&[0]));
        // 0 3 4 | 1 2: outputs of two and three rows
        let moved = find(&[input(5, &first), input(3, &second)], &[2, 3], &[set(&[3, 4]), set(&[2])]).unwrap();
        assert_eq!(moved, Moved { from: vec![set(&[3, 4]), set(&[2])], to: vec![set(&[1]), set(&[0, 2])] });
        assert_eq!(moved.count(), 3);
    }

    #[test]
    fn rows_that_are_in_no_output_are_dropped() {
        let deleted = set(&[1]);
        let moved = find(&[input(3, &deleted)], &[2], &[set(&[1, 2, 3, 1 << 40])]).unwrap();
        assert_eq!(moved, Moved { from: vec![set(&[2])], to: vec![set(&[1])] });
    }

    #[test]
    fn outputs_without_rows_are_passed_over() {
        let none = RoaringTreemap::new();
        let moved = find(&[input(2, &none), input(1, &none)], &[0, 2, 0, 1], &[set(&[1]), set(&[0])]).unwrap();
        assert_eq!(moved.to, vec![set(&[]), set(&[1]), set(&[]), set(&[0])]);
        assert_eq!(find(&[input(1, &set(&[0]))], &[], &[set(&[0])]).unwrap().count(), 0);
    }

    #[test]
    fn outputs_of_other_rows_than_the_live_ones_are_no_map() {
        let deleted = set(&[0]);
        for outputs in [&[1][..], &[3], &[2, 1], &[]] {
            assert_eq!(find(&[input(3, &deleted)], outputs, &[set(&[2])]), None);
            assert_eq!(find(&[input(3, &deleted)], outputs, &[]), None);
        }
    }

    #[test]
    fn sets_are_kept_within_their_bytes() {
        let rows = vec![set(&[1, 2, 3])];
        let bytes = bytes_of(&rows);
        assert_eq!(within(rows.clone(), bytes), Some(rows.clone()));
        assert_eq!(within(rows, bytes - 1), None);
    }

    /// Rows, those that the rewrite left out, those that are deleted later; past the
    /// end of the file too.
    type File = (u64, Vec<u64>, Vec<u64>);

    /// Random inputs, and where outputs end.
    fn world() -> impl Strategy<Value = (Vec<File>, Vec<usize>)> {
        let rows = |most: u64| prop::collection::vec(0..most + 3, 0..12);
        let input = (0u64..30).prop_flat_map(move |records| (Just(records), rows(records), rows(records)));
        (prop::collection::vec(input, 1..6), prop::collection::vec(0usize..120, 0..5))
    }

    proptest! {
        #[test]
        fn the_rows_left_are_those_of_the_naive_model((files, cuts) in world()) {
            // every row has a name of its own
            let deleted: Vec<RoaringTreemap> = files.iter().map(|(n, d, _)| d.iter().copied().filter(|r| r < n).collect()).collect();
            let late: Vec<RoaringTreemap> = files.iter().map(|(_, _, l)| set(l)).collect();
            let name = |file: usize, row: u64| (file, row);
            let written: Vec<(usize, u64)> = files.iter().enumerate()
                .flat_map(|(file, (n, _, _))| (0..*n).map(move |row| name(file, row)))
                .filter(|(file, row)| !deleted[*file].contains(*row)).collect();
            let mut ends: Vec<usize> = cuts.iter().map(|cut| (*cut).min(written.len())).chain([written.len()]).collect();
            ends.sort_unstable();
            let starts = [0].into_iter().chain(ends.iter().copied());
            let outputs: Vec<Vec<(usize, u64)>> = starts.zip(&ends).map(|(start, end)| written[start..*end].to_vec()).collect();

            let inputs: Vec<Input<'_>> = files.iter().zip(&deleted).map(|((n, _, _), d)| input(*n, d)).collect();
            let sizes: Vec<u64> = outputs.iter().map(|o| o.len() as u64).collect();
            let moved = find(&inputs, &sizes, &late).unwrap();

            let left: Vec<(usize, u64)> = outputs.iter().zip(&moved.to)
                .flat_map(|(rows, gone)| rows.iter().enumerate().filter(|(at, _)| !gone.contains(*at as u64)).map(|(_, row)| *row)).collect();
            let naive: Vec<(usize, u64)> = written.iter().copied().filter(|(file, row)| !late[*file].contains(*row)).collect();
            prop_assert_eq!(left, naive);
            // and both sides name the same rows in the same order
            let from: Vec<_> = moved.from.iter().enumerate().flat_map(|(file, rows)| rows.iter().map(move |row| name(file, row))).collect();
            let to: Vec<_> = outputs.iter().zip(&moved.to).flat_map(|(rows, at)| at.iter().map(|at| rows[at as usize])).collect();
            prop_assert_eq!(from, to);
        }
    }
}
