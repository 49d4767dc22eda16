//! Which row groups are joined into one, and which stay as they are: pure.

use std::ops::Range;

use super::super::cut;

/// Row groups of at least this many rows scan as fast as larger ones.
pub const HEALTHY_ROWS: u64 = 120_000;
/// Row groups of at least this many compressed bytes count as healthy with fewer rows.
pub const HEALTHY_BYTES: u64 = 64 << 20;
/// Joined row groups have about this many rows: they scan as fast as larger ones, prune
/// better, and take less memory. Half as many again are better in one than in two: each
/// costs a scan its dictionaries.
const GROUP_ROWS: u64 = 1 << 19;

/// What matters of a row group here.
#[derive(Clone, Copy, Debug, Default)]
pub struct Size {
    /// Its rows that are not deleted.
    pub rows: u64,
    /// Its bytes.
    pub bytes: u64,
    /// Whether it may stay as it is.
    pub stays: bool,
}

impl Size {
    fn of(sizes: &[Self]) -> Self {
        let sum = |of: fn(&Self) -> u64| sizes.iter().map(of).fold(0, u64::saturating_add);
        Self { rows: sum(|size| size.rows), bytes: sum(|size| size.bytes), stays: false }
    }

    /// Whether row groups of this size scan as well as larger ones.
    pub fn is_healthy(self) -> bool {
        self.rows >= HEALTHY_ROWS || self.bytes >= HEALTHY_BYTES
    }
}

/// Runs of row groups to be joined, in order: those that stay are runs by themselves,
/// what lies between them is cut into runs of about equal rows, none above `most` bytes
/// by more than a row group. A run that is too small to scan well takes the smaller of
/// its neighbours along, where both keep within `most`.
pub fn joints(sizes: &[Size], most: u64) -> Vec<Range<usize>> {
    let (mut runs, mut from) = (Vec::new(), 0);
    for stay in (0..sizes.len()).filter(|place| sizes.get(*place).is_some_and(|size| size.stays)) {
        runs.extend(between(sizes, from..stay, most));
        runs.push(stay..stay + 1);
        from = stay + 1;
    }
    runs.extend(between(sizes, from..sizes.len(), most));
    mended(sizes, runs, most)
}

/// Runs of row groups none of which stays.
fn between(sizes: &[Size], run: Range<usize>, most: u64) -> Vec<Range<usize>> {
    let own = sizes.get(run.clone()).unwrap_or_default();
    let all = Size::of(own);
    let by_rows = (all.rows.saturating_add(GROUP_ROWS / 2) / GROUP_ROWS).max(1);
    let wanted = by_rows.max(all.bytes.div_ceil(most.max(1)));
    let size = |size: &Size| if by_rows == wanted { size.rows } else { size.bytes };
    let cut = cut::even(&own.iter().map(size).collect::<Vec<_>>(), wanted, usize::MAX);
    cut.into_iter().map(|cut| run.start + cut.start..run.start + cut.end).collect()
}

fn mended(sizes: &[Size], mut runs: Vec<Range<usize>>, most: u64) -> Vec<Range<usize>> {
    let of = |run: &Range<usize>| Size::of(sizes.get(run.clone()).unwrap_or_default());
    let mut place = 0;
    while let Some(run) = runs.get(place).map(of) {
        let fits = |neighbour: &usize| runs.get(*neighbour).is_some_and(|other| of(other).bytes.saturating_add(run.bytes) <= most);
        let neighbours = place.checked_sub(1).into_iter().chain([place + 1]).filter(fits);
        let smaller = neighbours.min_by_key(|neighbour| runs.get(*neighbour).map(|other| of(other).rows));
        let Some(neighbour) = smaller.filter(|_| !run.is_healthy()) else {
            place += 1;
            continue;
        };
        let first = place.min(neighbour);
        let taken = runs.remove(first + 1);
        if let Some(run) = runs.get_mut(first) {
            run.end = taken.end;
        }
        place = first;
    }
    runs
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MOST: u64 = 128 << 20;

    fn small(rows: u64) -> Size {
        Size { rows, bytes: rows * 30, stays: false }
    }

    fn healthy(rows: u64) -> Size {
        Size { stays: true, ..small(rows) }
    }

    #[test]
    fn row_groups_that_stay_lie_between_those_that_are_joined() {
        let run = |count| vec![small(30_000); count];
        let sizes = [run(10), vec![healthy(500_000), healthy(130_000)], run(5)].concat();
        assert_eq!(joints(&sizes, MOST), [0..10, 10..11, 11..12, 12..17]);
        // as many rows as two row groups should have
        let sizes = [vec![healthy(200_000)], run(34)].concat();
        assert_eq!(joints(&sizes, MOST), [0..1, 1..18, 18..35]);
        assert_eq!(joints(&[healthy(200_000), healthy(200_000)], MOST), [0..1, 1..2]);
        assert!(joints(&[], MOST).is_empty());
    }

    #[test]
    fn a_run_too_small_to_scan_well_takes_its_smaller_neighbour_along() {
        let sizes = [healthy(900_000), small(2000), small(2000), healthy(200_000), small(5), healthy(300_000)];
        assert_eq!(joints(&sizes, MOST), [0..1, 1..5, 5..6]);
        let ends = |sizes: &[Size]| joints(sizes, MOST).into_iter().map(|run| (run.start, run.end)).collect::<Vec<_>>();
        assert_eq!(ends(&[small(7), healthy(900_000)]), [(0, 2)]);
        // one that cannot stay is no reason to leave a small one
        let large = Size { stays: false, ..healthy(1_000_000) };
        assert_eq!(ends(&[large, small(9), small(9)]), [(0, 3)]);
        // together they would be larger than a row group may be
        assert_eq!(joints(&[healthy(200_000), small(7)], 200_000 * 30), [0..1, 1..2]);
    }

    proptest! {
        #[test]
        fn every_row_group_is_in_one_run_and_none_that_is_small_is_left(
            given in prop::collection::vec((1u64..400_000, any::<bool>()), 0..60),
            most in prop_oneof![Just(u64::MAX), 1_000_000u64..40_000_000],
        ) {
            let sizes: Vec<Size> = given.iter().map(|(rows, may)| Size { stays: *may && *rows >= HEALTHY_ROWS, ..small(*rows) }).collect();
            let runs = joints(&sizes, most);
            prop_assert!(runs.iter().all(|run| run.start < run.end));
            prop_assert_eq!(runs.iter().flat_map(Clone::clone).collect::<Vec<_>>(), (0..sizes.len()).collect::<Vec<_>>());
            let of = |run: &Range<usize>| Size::of(&sizes[run.clone()]);
            for pair in runs.windows(2) {
                let small = pair.iter().any(|run| !of(run).is_healthy());
                prop_assert!(!small || of(&pair[0]).bytes + of(&pair[1]).bytes > most, "{:?}", runs);
            }
        }
    }
}
