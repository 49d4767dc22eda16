//! How many outputs, and where they end: pure.

use std::ops::Range;

use crate::model::layout::SizeScale;

/// Expected number of output files for `bytes` at a target size.
pub fn outputs(bytes: u64, target: u64) -> u64 {
    SizeScale { target, small_permille: 0 }.outputs(bytes)
}

/// Splits row groups of these sizes, in order, into `files` runs of about equal
/// bytes: each border lies at the row group's end that is nearest to its place.
/// No run is empty and none has more than `most` row groups; there are fewer
/// runs than asked when there are fewer row groups.
pub fn even(sizes: &[u64], files: u64, most: usize) -> Vec<Range<usize>> {
    let total: u128 = sizes.iter().map(|s| u128::from(*s)).sum();
    let needed = sizes.len().div_ceil(most.max(1)) as u64;
    let files = u128::from(files.max(needed).max(1));
    let mut runs = Vec::new();
    let (mut from, mut done) = (0, 0u128);
    for (position, size) in sizes.iter().enumerate() {
        let size = u128::from(*size);
        // The next border's place is `total · (runs + 1) / files`.
        let place = total * (runs.len() as u128 + 1);
        let past = (done * files + size * files / 2) >= place;
        let full = position - from >= most;
        if from < position && (full || (past && (runs.len() as u128) + 1 < files)) {
            runs.push(from..position);
            from = position;
        }
        done += size;
    }
    if from < sizes.len() {
        runs.push(from..sizes.len());
    }
    runs
}

/// Ends files of a stream whose total size is only estimated, so that all are
/// of about equal size and no small one is left over.
#[derive(Clone, Debug)]
pub struct Cutter {
    target: u64,
    /// Files still to be written, the present one included; decided when the
    /// first one ends.
    left: Option<u64>,
}

impl Cutter {
    /// A cutter for files of about this size.
    pub fn new(target: u64) -> Self {
        Self { target, left: None }
    }

    /// Whether the present file, of `file` bytes, should end when about `rest`
    /// bytes are still to come. Never when nothing is to come.
    pub fn ends(&mut self, file: u64, rest: u64) -> bool {
        if rest == 0 {
            return false;
        }
        let ahead = file.saturating_add(rest);
        let largest = self.target.saturating_add(self.target / 5 * 4);
        let mut files = self.left.unwrap_or_else(|| outputs(ahead, self.target));
        if ahead.div_ceil(files.max(1)) > largest {
            files = outputs(ahead, self.target);
        }
        if files < 2 || file < ahead.div_ceil(files) {
            return false;
        }
        self.left = Some(files - 1);
        true
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn row_groups_are_cut_where_the_files_come_out_even() {
        assert_eq!(even(&[10, 10, 10, 10], 2, 100), [0..2, 2..4]);
        assert_eq!(even(&[30, 10, 10, 10], 2, 100), [0..1, 1..4]);
        assert_eq!(even(&[10, 10, 10], 2, 100).len(), 2);
        assert_eq!(even(&[5], 3, 100).len(), 1);
        assert!(even(&[], 2, 100).is_empty());
    }

    #[test]
    fn a_stream_just_over_the_target_makes_one_file() {
        let mut cutter = Cutter::new(100);
        assert!((1..=105).all(|file| !cutter.ends(file, 105 - file)));
    }

    /// Streams `total` bytes in equal steps; the sizes of the files that come out.
    fn stream(total: u64, step: u64, target: u64, error: f64) -> Vec<u64> {
        let (mut cutter, mut files, mut file, mut done) = (Cutter::new(target), Vec::new(), 0, 0);
        while done < total {
            let next = step.min(total - done);
            (file, done) = (file + next, done + next);
            if cutter.ends(file, ((total - done) as f64 * error) as u64) {
                files.push(file);
                file = 0;
            }
        }
        files.extend((file > 0).then_some(file));
        files
    }

    proptest! {
        #[test]
        fn an_exact_estimate_gives_even_files_of_the_expected_number(total in 1u64..200_000, target in 1000u64..50_000) {
            let step = 10;
            let files = stream(total, step, target, 1.0);
            prop_assert_eq!(files.len() as u64, outputs(total, target));
            let (least, most) = (files.iter().min().unwrap(), files.iter().max().unwrap());
            prop_assert!(most - least <= step * (files.len() as u64 + 1), "{:?}", files);
        }

        #[test]
        fn a_poor_estimate_still_bounds_the_files(total in 1u64..200_000, target in 1000u64..50_000, error in 0.7f64..1.3) {
            let files = stream(total, 10, target, error);
            prop_assert!(files.iter().all(|f| *f <= target * 27 / 10), "{:?} {}", files, target);
        }

        #[test]
        fn even_runs_hold_every_row_group_once(sizes in prop::collection::vec(1u64..1000, 0..40), files in 1u64..8, most in 1usize..50) {
            let runs = even(&sizes, files, most);
            let whole: Vec<usize> = runs.iter().cloned().flatten().collect();
            prop_assert_eq!(whole, (0..sizes.len()).collect::<Vec<_>>());
            prop_assert!(runs.iter().all(|run| !run.is_empty() && run.len() <= most));
        }

        #[test]
        fn runs_are_even_within_a_row_group(sizes in prop::collection::vec(1u64..100, 20..60), files in 1u64..5) {
            let runs = even(&sizes, files, 1000);
            let bytes: Vec<u64> = runs.iter().map(|run| sizes[run.clone()].iter().sum()).collect();
            prop_assert_eq!(bytes.len() as u64, files);
            let share = sizes.iter().sum::<u64>() / files;
            prop_assert!(bytes.iter().all(|b| b.abs_diff(share) <= 101), "{:?} {}", bytes, share);
        }
    }
}
