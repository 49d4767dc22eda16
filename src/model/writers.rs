//! What is known of others who write to a partition: how often they do, who may be
//! at it now, and who asked to be left alone.

use serde::{Deserialize, Serialize};

/// How often a partition is written by commits that a rewrite of the same files would
/// make fail: those that remove data files, or delete rows by position.
///
/// Mean and mean deviation are smoothed as in RFC 6298 (1/8 and 1/4 of what is new),
/// from the times that the snapshots carry; the moment of the last one is that of our
/// own clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cadence {
    /// Commits of the present rhythm; one with a gap far beyond it begins another.
    pub commits: u32,
    /// Mean time between two, in milliseconds; 0 before the second.
    pub gap_ms: i64,
    /// Mean deviation from it, in milliseconds.
    pub spread_ms: i64,
    /// When the last one was made, by its writer's clock.
    pub written_ms: i64,
    /// When the last one was heard of, in milliseconds since the epoch.
    pub heard_ms: i64,
}

/// So many times the mean gap without a commit is the end of a rhythm.
const BREAK: i64 = 8;

impl Cadence {
    /// One more commit. One that is not later than the last by its writer's clock says
    /// nothing of the gap.
    pub fn commit(&mut self, written_ms: i64, now_ms: i64) {
        let gap = written_ms.saturating_sub(self.written_ms);
        let first = Self { commits: 1, written_ms, heard_ms: now_ms, ..Self::default() };
        *self = match self.commits {
            0 => first,
            _ if gap <= 0 => Self { heard_ms: now_ms.max(self.heard_ms), ..*self },
            1 => Self { commits: 2, gap_ms: gap, spread_ms: gap / 2, ..first },
            _ if gap > self.gap_ms.saturating_mul(BREAK) => first,
            commits => Self {
                commits: commits.saturating_add(1),
                gap_ms: self.gap_ms.saturating_add(gap.saturating_sub(self.gap_ms) / 8).max(1),
                spread_ms: self
                    .spread_ms
                    .saturating_add(gap.saturating_sub(self.gap_ms).saturating_abs().saturating_sub(self.spread_ms) / 4),
                ..first
            },
        };
    }
}

/// Somebody's wish that a table be left alone for a while.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    /// Who asked.
    pub by: String,
    /// Until when, in milliseconds since the epoch.
    pub until_ms: i64,
}

/// Another sidecar that rewrites in a table, or is about to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sidecar {
    /// The lasting id of its instance.
    pub instance: String,
    /// When it made its last snapshot there, by its own clock, in milliseconds since
    /// the epoch; 0 where it is known by a claim alone.
    pub rewrote_ms: i64,
    /// Until when it claims the table, in milliseconds since the epoch; 0 where it does not.
    #[serde(default)]
    pub claims_until_ms: i64,
}

/// What is known of others at one partition and one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Writers {
    /// How often they write.
    pub cadence: Cadence,
    /// Until when a client that loaded the table, and has not committed since, may be
    /// writing: an estimate.
    pub loaded_until_ms: Option<i64>,
    /// Since when the partition has been kept out of for them, if it is.
    pub kept_out_since_ms: Option<i64>,
    /// The wish that lasts longest.
    pub hold: Option<Hold>,
    /// Clients that had loaded the table before a rewrite of ours landed and committed
    /// nothing after: an estimate of the statements that we made fail.
    pub harmed: u64,
    /// The sidecar that claims the table, or that made the newest rewrite in it, unless that
    /// is this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sidecar: Option<Sidecar>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(gaps: &[i64]) -> Cadence {
        let mut cadence = Cadence::default();
        let mut at = 1_000_000;
        cadence.commit(at, at + 5);
        for gap in gaps {
            at += gap;
            cadence.commit(at, at + 5);
        }
        cadence
    }

    #[test]
    fn a_steady_rhythm_is_learned_with_a_shrinking_spread() {
        assert_eq!((after(&[]).commits, after(&[]).gap_ms), (1, 0));
        assert_eq!((after(&[800]).gap_ms, after(&[800]).spread_ms), (800, 400));
        let steady = after(&[800; 20]);
        assert_eq!((steady.commits, steady.gap_ms), (21, 800));
        assert!(steady.spread_ms < 10, "{steady:?}");
        assert_eq!((steady.written_ms, steady.heard_ms), (1_016_000, 1_016_005));
    }

    #[test]
    fn a_changing_rhythm_is_followed() {
        let slower = after(&[100, 100, 100, 180, 180, 180, 180, 180, 180, 180, 180, 180, 180, 180, 180, 180, 180]);
        assert!((150..=180).contains(&slower.gap_ms), "{slower:?}");
    }

    #[test]
    fn a_long_silence_ends_a_rhythm() {
        assert_eq!(after(&[100, 100, 801]), Cadence { commits: 1, written_ms: 1_001_001, heard_ms: 1_001_006, ..Cadence::default() });
        assert_eq!(after(&[100, 100, 800]).commits, 4);
    }

    #[test]
    fn a_clock_that_goes_back_is_no_gap() {
        let before = after(&[100, 100]);
        let same = after(&[100, 100, 0]);
        assert_eq!(same, before);
        let back = after(&[100, 100, -50]);
        assert_eq!((back.commits, back.gap_ms, back.written_ms), (3, 100, before.written_ms));
    }

    proptest::proptest! {
        #[test]
        fn no_times_make_it_panic_or_negative(times in proptest::collection::vec((proptest::num::i64::ANY, proptest::num::i64::ANY), 0..12)) {
            let mut cadence = Cadence::default();
            for (written, heard) in times {
                cadence.commit(written, heard);
                proptest::prop_assert!(cadence.gap_ms >= 0 && cadence.spread_ms >= 0, "{:?}", cadence);
            }
        }
    }
}
