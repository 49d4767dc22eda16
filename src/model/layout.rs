//! The layout of a partition: sums over its live files, as a group.
//!
//! Every field is an integer, so that a file which leaves is subtracted exactly
//! and the state after any sequence of commits equals a recomputation from
//! scratch, bit for bit.

use serde::{Deserialize, Serialize};

use super::file::Content;

/// Number of size tiers below the target; smaller files share the last.
pub const TIERS: usize = 12;

/// The sizes that decide which sums a file enters. A change of either makes
/// every layout of the table stale.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SizeScale {
    /// Target file size `T` in bytes, at least 1.
    pub target: u64,
    /// Files below `small_permille / 1000 · T` are small (`ρ = 0.75` → 750).
    pub small_permille: u32,
}

impl SizeScale {
    /// Smallest size in bytes that is not small: `⌈ρT⌉`.
    pub fn small_below(&self) -> u64 {
        let bytes = (u128::from(self.target) * u128::from(self.small_permille)).div_ceil(1000);
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }

    /// Whether a file of this size is small.
    pub fn is_small(&self, bytes: u64) -> bool {
        bytes < self.small_below()
    }

    /// The size tier: tier `i` holds sizes in `[T/4^(i+1), T/4^i)`; sizes of at
    /// least `T` are in tier 0 and the smallest share the last tier.
    pub fn tier(&self, bytes: u64) -> usize {
        let mut upper = self.target / 4;
        let mut tier = 0;
        while tier + 1 < TIERS && bytes < upper {
            upper /= 4;
            tier += 1;
        }
        tier
    }

    /// Files that rewriting `bytes` is expected to make: Apache Iceberg's rule
    /// with its default ratios, in its integer arithmetic.
    ///
    /// One below the target. Else the remainder over whole targets becomes a
    /// file of its own when it exceeds `0.75 T`, and is spread over the others
    /// when that leaves their mean below `1.1 T`.
    pub fn outputs(&self, bytes: u64) -> u64 {
        let target = self.target.max(1);
        let (whole, rest) = (bytes / target, bytes % target);
        if whole == 0 {
            return 1;
        }
        let wide = u128::from;
        let rest_fills_a_file = 4 * wide(rest) > 3 * wide(target);
        let rest_can_be_spread = 10 * wide(bytes / whole) < 11 * wide(target);
        if !rest_fills_a_file && rest_can_be_spread { whole } else { bytes.div_ceil(target) }
    }
}

/// Count, bytes and records of one kind of file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Tally {
    /// Files.
    pub files: u64,
    /// Bytes.
    pub bytes: u64,
    /// Rows, deleted positions, or deleted keys.
    pub records: u64,
}

/// Count and bytes of the small files of one size tier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Tier {
    /// Files.
    pub files: u32,
    /// Bytes.
    pub bytes: u64,
}

/// Sums over the live files of one partition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionLayout {
    /// Live data files.
    pub data: Tally,
    /// Data files below `ρT`, by size tier.
    pub small: [Tier; TIERS],
    /// Data files with `s < T`: how many.
    pub under_target: u64,
    /// Data files with `s < T`: `Σ s`.
    pub under_target_bytes: u64,
    /// Data files with `s < T`: `Σ s²`.
    pub under_target_squares: u128,
    /// Position-delete files.
    pub position_deletes: Tally,
    /// Equality-delete files.
    pub equality_deletes: Tally,
    /// Deletion vectors.
    pub deletion_vectors: Tally,
}

/// A file was to leave a layout that does not hold it: the state has drifted
/// from the table and must be rebuilt.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("layout drifted: a sum of {content:?} would leave its range when a file of {bytes} bytes and {records} records {motion}")]
pub struct Drift {
    /// Kind of the file.
    pub content: Content,
    /// Its size in bytes.
    pub bytes: u64,
    /// Its records.
    pub records: u64,
    /// `enters` or `leaves`.
    pub motion: &'static str,
}

impl PartitionLayout {
    /// A file enters. Errs when a sum would overflow.
    pub fn add(&mut self, scale: &SizeScale, content: Content, bytes: u64, records: u64) -> Result<(), Drift> {
        self.step(scale, content, bytes, records, Step::Enter).ok_or(Drift { content, bytes, records, motion: "enters" })
    }

    /// A file leaves. Errs when a sum would fall below zero.
    pub fn remove(&mut self, scale: &SizeScale, content: Content, bytes: u64, records: u64) -> Result<(), Drift> {
        self.step(scale, content, bytes, records, Step::Leave).ok_or(Drift { content, bytes, records, motion: "leaves" })
    }

    /// Whether no live file is left.
    pub fn is_empty(&self) -> bool {
        self == &Self::default()
    }

    /// Delete files and vectors of the partition.
    pub fn delete_files(&self) -> u64 {
        self.position_deletes.files + self.equality_deletes.files + self.deletion_vectors.files
    }

    /// Small data files over all tiers.
    pub fn small_files(&self) -> u64 {
        self.small.iter().map(|t| u64::from(t.files)).sum()
    }

    /// Bytes of the small data files over all tiers.
    pub fn small_bytes(&self) -> u64 {
        self.small.iter().map(|t| t.bytes).sum()
    }

    /// Works on a copy so that a refused step changes nothing.
    fn step(&mut self, scale: &SizeScale, content: Content, bytes: u64, records: u64, step: Step) -> Option<()> {
        let mut next = self.clone();
        let tally = match content {
            Content::Data => &mut next.data,
            Content::PositionDeletes => &mut next.position_deletes,
            Content::EqualityDeletes => &mut next.equality_deletes,
            Content::DeletionVector => &mut next.deletion_vectors,
        };
        tally.files = step.u64(tally.files, 1)?;
        tally.bytes = step.u64(tally.bytes, bytes)?;
        tally.records = step.u64(tally.records, records)?;
        if content == Content::Data {
            if scale.is_small(bytes) {
                let tier = next.small.get_mut(scale.tier(bytes))?;
                tier.files = u32::try_from(step.u64(tier.files.into(), 1)?).ok()?;
                tier.bytes = step.u64(tier.bytes, bytes)?;
            }
            if bytes < scale.target {
                let square = u128::from(bytes) * u128::from(bytes);
                next.under_target = step.u64(next.under_target, 1)?;
                next.under_target_bytes = step.u64(next.under_target_bytes, bytes)?;
                next.under_target_squares = match step {
                    Step::Enter => next.under_target_squares.checked_add(square)?,
                    Step::Leave => next.under_target_squares.checked_sub(square)?,
                };
            }
        }
        *self = next;
        Some(())
    }
}

#[derive(Clone, Copy)]
enum Step {
    Enter,
    Leave,
}

impl Step {
    fn u64(self, sum: u64, value: u64) -> Option<u64> {
        match self {
            Self::Enter => sum.checked_add(value),
            Self::Leave => sum.checked_sub(value),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const SCALE: SizeScale = SizeScale { target: 512 * MIB, small_permille: 750 };

    #[test]
    fn a_file_that_leaves_is_subtracted_exactly() {
        let mut layout = PartitionLayout::default();
        layout.add(&SCALE, Content::Data, 7 * MIB, 10).unwrap();
        let before = layout.clone();
        layout.add(&SCALE, Content::Data, 400 * MIB, 3).unwrap();
        layout.add(&SCALE, Content::EqualityDeletes, 11, 2).unwrap();
        layout.remove(&SCALE, Content::EqualityDeletes, 11, 2).unwrap();
        layout.remove(&SCALE, Content::Data, 400 * MIB, 3).unwrap();
        assert_eq!(layout, before);
    }

    #[test]
    fn a_file_that_was_never_there_cannot_leave_and_changes_nothing() {
        let mut layout = PartitionLayout::default();
        layout.add(&SCALE, Content::Data, MIB, 10).unwrap();
        let before = layout.clone();
        assert!(layout.remove(&SCALE, Content::Data, 2 * MIB, 1).is_err());
        assert_eq!(layout, before);
    }

    #[test]
    fn tiers_are_factors_of_four_below_the_target() {
        let tiers = [512, 511, 128, 127, 32, 31, 8, 7].map(|mib| SCALE.tier(mib * MIB));
        assert_eq!(tiers, [0, 0, 0, 1, 1, 2, 2, 3]);
        assert_eq!(SCALE.tier(0), TIERS - 1);
    }

    #[test]
    fn outputs_follow_icebergs_rule() {
        let outputs = [100, 512, 700, 1000, 1100, 5200, 5600].map(|mib| SCALE.outputs(mib * MIB));
        assert_eq!(outputs, [1, 1, 2, 2, 2, 10, 11]);
    }

    #[test]
    fn outputs_hold_at_the_ends_of_their_range() {
        let outputs = |target, bytes| SizeScale { target, small_permille: 750 }.outputs(bytes);
        assert_eq!([outputs(512, 0), outputs(1, 9), outputs(0, 9), outputs(u64::MAX, u64::MAX)], [1, 9, 9, 1]);
        // a remainder of exactly 0.75 T is no file of its own; a mean of exactly 1.1 T is too much
        assert_eq!([outputs(100, 1075), outputs(100, 1076), outputs(100, 109), outputs(100, 110)], [10, 11, 1, 2]);
    }

    #[test]
    fn small_means_below_three_quarters_of_the_target() {
        assert_eq!([383, 384].map(|mib| SCALE.is_small(mib * MIB)), [true, false]);
    }
}
