//! Which small files to merge: by size tier, so that every byte rises.
//!
//! Two rules hold for all automatic work. A merge drops files, and its outputs
//! lie in a higher tier than every input (or are small no more). So each byte is
//! rewritten at most once a tier, `1 + log₄(T/s)` times in all, and a chain of
//! merges comes to an end whatever asked for them.

use crate::model::layout::{SizeScale, TIERS, Tier};

/// What a merge would take and leave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Estimate {
    /// Data files taken.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Files that they become.
    pub outputs: u64,
    /// Delete files expected to go with them.
    pub deletes: u64,
}

impl Estimate {
    /// Data files fewer than before.
    pub fn reduction(&self) -> u64 {
        self.files.saturating_sub(self.outputs)
    }

    /// All files fewer than before, deletes included.
    pub fn gain(&self) -> u64 {
        self.reduction().saturating_add(self.deletes)
    }
}

/// A choice of size tiers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TierSet([bool; TIERS]);

impl TierSet {
    /// Whether the tier is chosen.
    pub fn contains(&self, tier: usize) -> bool {
        self.0.get(tier).copied().unwrap_or(false)
    }

    /// Whether no tier is chosen.
    pub fn is_empty(&self) -> bool {
        self.largest().is_none()
    }

    /// The chosen tier of the largest files.
    pub fn largest(&self) -> Option<usize> {
        self.0.iter().position(|chosen| *chosen)
    }

    fn set(&mut self, tier: usize, chosen: bool) {
        if let Some(slot) = self.0.get_mut(tier) {
            *slot = chosen;
        }
    }
}

/// The tiers that hold `tier_files` small files, counting the outputs of smaller
/// tiers that are merged along, less those whose files would not rise.
pub fn full_tiers(tiers: &[Tier; TIERS], scale: &SizeScale, tier_files: u32, max_job_bytes: u64) -> TierSet {
    let mut set = TierSet::default();
    for (index, tier) in tiers.iter().enumerate().rev() {
        let below = estimate(tiers, &set, scale, max_job_bytes);
        let arriving = if below.files > 0 && scale.tier(each(&below)) == index { below.outputs } else { 0 };
        if tier.files > 0 && u64::from(tier.files).saturating_add(arriving) >= u64::from(tier_files.max(1)) {
            set.set(index, true);
        }
    }
    only_rising(set, tiers, scale, max_job_bytes)
}

/// As many tiers, from the smallest up, as can be merged so that every file rises.
pub fn rising_tiers(tiers: &[Tier; TIERS], scale: &SizeScale, max_job_bytes: u64) -> TierSet {
    only_rising(every_tier(tiers), tiers, scale, max_job_bytes)
}

/// Every tier that holds a file, whether it rises by a merge or not.
pub fn every_tier(tiers: &[Tier; TIERS]) -> TierSet {
    let mut set = TierSet::default();
    for (index, tier) in tiers.iter().enumerate() {
        set.set(index, tier.files > 0);
    }
    set
}

/// Gives up the largest tiers until what is left drops files and rises.
fn only_rising(mut set: TierSet, tiers: &[Tier; TIERS], scale: &SizeScale, max_job_bytes: u64) -> TierSet {
    while let Some(largest) = set.largest() {
        let merged = estimate(tiers, &set, scale, max_job_bytes);
        if merged.reduction() > 0 && rises(scale, &merged, largest) {
            return set;
        }
        set.set(largest, false);
    }
    set
}

/// What merging the chosen tiers would take and leave, in jobs of at most
/// `max_job_bytes`.
pub fn estimate(tiers: &[Tier; TIERS], set: &TierSet, scale: &SizeScale, max_job_bytes: u64) -> Estimate {
    let mut sum = Estimate::default();
    for (index, tier) in tiers.iter().enumerate() {
        if set.contains(index) {
            sum.files = sum.files.saturating_add(tier.files.into());
            sum.bytes = sum.bytes.saturating_add(tier.bytes);
        }
    }
    sum.outputs = outputs(sum.files, sum.bytes, scale, max_job_bytes);
    sum
}

/// Files that `files` files of `bytes` bytes become in jobs of bounded size.
pub fn outputs(files: u64, bytes: u64, scale: &SizeScale, max_job_bytes: u64) -> u64 {
    if files == 0 {
        return 0;
    }
    let jobs = bytes.div_ceil(max_job_bytes.max(1)).max(1);
    jobs.saturating_mul(scale.outputs(bytes / jobs))
}

/// Whether the outputs of a merge lie above the tier of its largest inputs.
pub fn rises(scale: &SizeScale, merged: &Estimate, largest: usize) -> bool {
    let each = each(merged);
    !scale.is_small(each) || scale.tier(each) < largest
}

/// Size of one output; outputs are cut evenly.
fn each(merged: &Estimate) -> u64 {
    merged.bytes / merged.outputs.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const SCALE: SizeScale = SizeScale { target: 512 * MIB, small_permille: 750 };
    const JOB: u64 = 16 << 30;

    fn tiers(sizes: &[(u32, u64)]) -> [Tier; TIERS] {
        let mut tiers = [Tier::default(); TIERS];
        for (count, mib) in sizes {
            let tier = &mut tiers[SCALE.tier(mib * MIB)];
            tier.files += count;
            tier.bytes += u64::from(*count) * mib * MIB;
        }
        tiers
    }

    fn chosen(set: TierSet) -> Vec<usize> {
        (0..TIERS).filter(|tier| set.contains(*tier)).collect()
    }

    #[test]
    fn a_tier_is_merged_when_it_is_full_and_not_before() {
        assert_eq!(chosen(full_tiers(&tiers(&[(7, 1)]), &SCALE, 8, JOB)), [0usize; 0]);
        assert_eq!(chosen(full_tiers(&tiers(&[(8, 1)]), &SCALE, 8, JOB)), [4]);
    }

    #[test]
    fn a_full_tier_takes_no_larger_files_along() {
        assert_eq!(chosen(full_tiers(&tiers(&[(8, 1), (3, 40), (7, 130)]), &SCALE, 8, JOB)), [4]);
    }

    #[test]
    fn a_tier_that_the_merged_file_would_fill_is_merged_along() {
        // 8 × 1 MiB become 8 MiB, the eighth of their tier; 64 MiB, the eighth of theirs
        assert_eq!(chosen(full_tiers(&tiers(&[(8, 1), (7, 8), (7, 64)]), &SCALE, 8, JOB)), [1, 2, 4]);
    }

    #[test]
    fn files_that_would_stay_in_their_tier_are_left() {
        // 8 × 140 MiB = 2.1875 T become 2 files of 560 MiB; 8 × 142 MiB become 3 files of 379 MiB, still small
        assert_eq!(chosen(full_tiers(&tiers(&[(8, 140)]), &SCALE, 8, JOB)), [0]);
        assert_eq!(chosen(full_tiers(&tiers(&[(8, 142)]), &SCALE, 8, JOB)), [0usize; 0]);
        assert_eq!(chosen(full_tiers(&tiers(&[(9, 142)]), &SCALE, 8, JOB)), [0]);
    }

    #[test]
    fn rising_takes_every_tier_that_the_merged_file_leaves() {
        // 4 × 1 + 4 × 8 MiB = 36 MiB, above [8, 32); 36 + 40 MiB stays in [32, 128)
        assert_eq!(chosen(rising_tiers(&tiers(&[(4, 1), (4, 8)]), &SCALE, JOB)), [2, 4]);
        assert_eq!(chosen(rising_tiers(&tiers(&[(4, 1), (4, 8), (1, 40)]), &SCALE, JOB)), [2, 4]);
        assert_eq!(chosen(rising_tiers(&tiers(&[(1, 1), (1, 8)]), &SCALE, JOB)), [0usize; 0]);
        assert_eq!(chosen(rising_tiers(&tiers(&[]), &SCALE, JOB)), [0usize; 0]);
        assert_eq!(chosen(rising_tiers(&tiers(&[(1, 300)]), &SCALE, JOB)), [0usize; 0]);
    }

    #[test]
    fn an_estimate_counts_what_is_taken_and_left() {
        let tiers = tiers(&[(100, 10), (2, 40)]);
        let set = full_tiers(&tiers, &SCALE, 8, JOB);
        let merged = estimate(&tiers, &set, &SCALE, JOB);
        assert_eq!(merged, Estimate { files: 100, bytes: 1000 * MIB, outputs: 2, deletes: 0 });
        assert_eq!((merged.reduction(), Estimate { deletes: 3, ..merged }.gain()), (98, 101));
    }

    #[test]
    fn jobs_of_bounded_size_leave_more_files() {
        assert_eq!(outputs(100, 1000 * MIB, &SCALE, JOB), 2);
        assert_eq!(outputs(100, 1000 * MIB, &SCALE, 100 * MIB), 10);
        assert_eq!(outputs(0, 0, &SCALE, 0), 0);
        assert_eq!(outputs(1, u64::MAX, &SizeScale { target: 0, small_permille: 0 }, 0), u64::MAX);
    }

    #[test]
    fn a_job_too_small_for_two_files_merges_nothing() {
        assert_eq!(chosen(full_tiers(&tiers(&[(100, 10)]), &SCALE, 8, 10 * MIB)), [0usize; 0]);
        assert_eq!(chosen(rising_tiers(&tiers(&[(100, 10)]), &SCALE, 10 * MIB)), [0usize; 0]);
    }
}
