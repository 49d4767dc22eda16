//! Apache Amoro's health score of a table, for those who know it from there.
//!
//! `pf = min(n, 12)/12 · min(b, 96 MiB)/96 MiB` over the `n` files of `b` bytes that are at
//! most 0.75 · 128 MiB large, 0 for fewer than two; then
//! `small = ⌈40 − 40·pf·(1 − min(b/n, 96 MiB)/96 MiB)⌉`,
//! `equality = ⌈40 − 40·pf·min(e/r, 0.1)/0.1⌉` and `position = ⌈20 − 20·pf·min(p/r, 0.2)/0.2⌉`.

use super::{Case, check};
use crate::model::decision::Check;
use crate::model::preset::Preset;
use crate::model::traits::Traits;

const UNDERSIZED: f64 = 96.0 * 1024.0 * 1024.0;
const FRAGMENTS: f64 = 12.0;

/// Its three parts; 40, 40 and 20 at best.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Health {
    /// Of small files, at most 40.
    pub small: u32,
    /// Of equality deletes, at most 40.
    pub equality: u32,
    /// Of position deletes, at most 20.
    pub position: u32,
}

impl Health {
    /// Of a scope whose small files are those of at most 96 MiB.
    pub fn of(traits: &Traits) -> Self {
        let (n, bytes) = (traits.small_file_count as f64, traits.small_bytes as f64);
        let factor = if traits.small_file_count <= 1 { 0.0 } else { n.min(FRAGMENTS) / FRAGMENTS * (bytes.min(UNDERSIZED) / UNDERSIZED) };
        let records = traits.records as f64;
        let share = |deleted: u64| if traits.records == 0 { 0.0 } else { deleted as f64 / records };
        let average = if n > 0.0 { (bytes / n).min(UNDERSIZED) / UNDERSIZED } else { 1.0 };
        let score = |most: f64, penalty: f64| (most - most * factor * penalty).ceil().clamp(0.0, most) as u32;
        Self {
            small: score(40.0, 1.0 - average),
            equality: score(40.0, share(traits.equality_delete_records).min(0.1) / 0.1),
            position: score(20.0, share(traits.position_delete_records).min(0.2) / 0.2),
        }
    }

    /// All of it, at most 100.
    pub fn sum(&self) -> u32 {
        self.small + self.equality + self.position
    }
}

/// Shows it where the policy is Amoro's.
pub fn shown(case: &Case<'_>, checks: &mut Vec<Check>) {
    let Some(preset) = case.policy.preset else { return };
    checks.push(check(&format!("preset.{}", preset.name()), 1.0, 1.0, true, preset.meaning()));
    if preset == Preset::Amoro {
        let health = Health::of(case.traits);
        let note = format!(
            "small files {} of 40, equality deletes {} of 40, position deletes {} of 20",
            health.small, health.equality, health.position
        );
        checks.push(check("preset.amoro-health", health.sum().into(), 100.0, health.sum() == 100, note));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MIB: u64 = 1 << 20;

    fn health(files: u64, mib: u64, equality: u64, position: u64) -> Health {
        Health::of(&Traits {
            small_file_count: files,
            small_bytes: files * mib * MIB,
            records: 100,
            equality_delete_records: equality,
            position_delete_records: position,
            ..Traits::default()
        })
    }

    #[test]
    fn the_vectors_hold() {
        assert_eq!(health(100, 1, 0, 0), Health { small: 1, equality: 40, position: 20 });
        assert_eq!(health(20, 50, 5, 10), Health { small: 21, equality: 20, position: 10 });
    }

    #[test]
    fn what_holds_nothing_or_one_file_is_healthy() {
        assert_eq!([health(0, 0, 0, 0).sum(), health(1, 1, 100, 100).sum()], [100, 100]);
        assert_eq!(Health::of(&Traits::default()).sum(), 100);
    }

    proptest! {
        #[test]
        fn it_stays_within_its_parts_and_falls_with_deletes(files in 0u64..1000, mib in 0u64..96, equality in 0u64..200, position in 0u64..200) {
            let one = health(files, mib, equality, position);
            prop_assert!(one.small <= 40 && one.equality <= 40 && one.position <= 20);
            let more = health(files, mib, equality + 1, position + 1);
            prop_assert!(more.equality <= one.equality && more.position <= one.position && more.small == one.small);
        }
    }
}
