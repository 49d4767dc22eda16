//! What a partition remembers, so that work which gains nothing ends.

use serde::{Deserialize, Serialize};

use crate::model::layout::{TIERS, Tier};
use crate::model::policy::Policy;

/// Longest cooldown after rewrites that gained nothing.
pub const MAX_COOLDOWN_MS: i64 = 24 * 3_600_000;

/// What earlier work on a partition has taught.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScopeMemory {
    /// When it was last rewritten, or last planned in vain.
    pub last_rewrite_ms: Option<i64>,
    /// Until when it cools down beyond the policy's cooldown.
    pub cooldown_until_ms: Option<i64>,
    /// A plan found that no delete applies; holds until a new delete comes.
    pub silenced_deletes: bool,
    /// The most delete files on one data file, known from the join made before a
    /// plan.
    pub max_deletes_on_file: Option<u64>,
    /// What the last rewrite left.
    #[serde(default)]
    pub settled: Option<Settled>,
}

/// What a rewrite left of a partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settled {
    /// The sequence number of its files; later ones came since.
    pub sequence: i64,
    /// Small files by size tier, as the first look after it showed them.
    pub tiers: Option<[Tier; TIERS]>,
    /// Whether the next look is that one; not after a restart.
    #[serde(skip)]
    pub awaits: bool,
}

/// What a rewrite did, in the numbers that matter for the next decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gained {
    /// When it landed, in milliseconds since the epoch.
    pub at_ms: i64,
    /// Data files replaced.
    pub files_in: u64,
    /// Data files written.
    pub files_out: u64,
    /// Deletes that applied to the inputs and do not apply to the outputs.
    pub deletes_applied: u64,
}

impl Gained {
    /// Whether the layout is the better for it.
    pub fn any(&self) -> bool {
        self.files_out < self.files_in || self.deletes_applied > 0
    }
}

impl ScopeMemory {
    /// When the partition may be rewritten again; `None` when nothing holds it.
    /// A rewrite that seems to lie ahead of `now_ms` (a clock set back) counts
    /// from now.
    pub fn eligible_at(&self, cooldown_ms: i64, now_ms: i64) -> Option<i64> {
        let rewritten = self.last_rewrite_ms.map(|at| at.min(now_ms).saturating_add(cooldown_ms.max(0)));
        let held = self.cooldown_until_ms.map(|until| until.min(now_ms.saturating_add(MAX_COOLDOWN_MS)));
        rewritten.max(held)
    }

    /// After a rewrite landed: a gain restores the policy's cooldown, none
    /// doubles the one before.
    pub fn after_rewrite(&self, policy: &Policy, gained: &Gained) -> Self {
        let cooldown = if gained.any() { policy.cooldown_ms.max(0) } else { self.doubled(policy) };
        Self {
            last_rewrite_ms: Some(gained.at_ms),
            cooldown_until_ms: Some(gained.at_ms.saturating_add(cooldown)),
            silenced_deletes: self.silenced_deletes,
            max_deletes_on_file: None,
            settled: self.settled.clone(),
        }
    }

    /// After a plan came out empty: as after a rewrite that gained nothing. When
    /// the deletes rule had asked for it, that rule is silent from here on.
    pub fn after_empty_plan(&self, policy: &Policy, at_ms: i64, for_deletes: bool) -> Self {
        Self {
            last_rewrite_ms: Some(at_ms),
            cooldown_until_ms: Some(at_ms.saturating_add(self.doubled(policy))),
            silenced_deletes: self.silenced_deletes || for_deletes,
            max_deletes_on_file: self.max_deletes_on_file,
            settled: self.settled.clone(),
        }
    }

    /// After a rewrite whose outputs have a sequence number. In format 1 there are none.
    pub fn settle(&self, sequence: i64) -> Self {
        Self { settled: (sequence > 0).then_some(Settled { sequence, tiers: None, awaits: true }), ..self.clone() }
    }

    /// As a look after the rewrite shows the partition; what is known stays.
    pub fn shown(&mut self, tiers: &[Tier; TIERS]) {
        if let Some(settled) = self.settled.as_mut().filter(|settled| settled.awaits) {
            (settled.tiers, settled.awaits) = (Some(*tiers), false);
        }
    }

    /// After a new delete was seen that may apply to the partition.
    pub fn after_new_delete(&self) -> Self {
        Self { silenced_deletes: false, max_deletes_on_file: None, ..self.clone() }
    }

    /// Twice the last cooldown, at least the policy's and at least a second.
    fn doubled(&self, policy: &Policy) -> i64 {
        let last = match (self.last_rewrite_ms, self.cooldown_until_ms) {
            (Some(at), Some(until)) => until.saturating_sub(at).max(0),
            _ => 0,
        };
        last.saturating_mul(2).max(policy.cooldown_ms).clamp(1000, MAX_COOLDOWN_MS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gained(at_ms: i64, files_in: u64, files_out: u64, deletes_applied: u64) -> Gained {
        Gained { at_ms, files_in, files_out, deletes_applied }
    }

    fn cooldown(memory: &ScopeMemory) -> i64 {
        memory.cooldown_until_ms.unwrap() - memory.last_rewrite_ms.unwrap()
    }

    #[test]
    fn a_rewrite_that_gained_nothing_cools_down_twice_as_long_each_time() {
        let policy = Policy { cooldown_ms: 60_000, ..Policy::default() };
        let mut memory = ScopeMemory::default();
        let mut seen = Vec::new();
        for round in 0..13 {
            memory = memory.after_rewrite(&policy, &gained(round, 24, 24, 0));
            seen.push(cooldown(&memory) / 60_000);
        }
        assert_eq!(seen, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 1440, 1440]);
    }

    #[test]
    fn a_gain_restores_the_policys_cooldown() {
        let policy = Policy { cooldown_ms: 60_000, ..Policy::default() };
        let idle = gained(0, 3, 3, 0);
        let tired = ScopeMemory::default().after_rewrite(&policy, &idle).after_rewrite(&policy, &idle);
        assert_eq!(cooldown(&tired), 120_000);
        assert_eq!(cooldown(&tired.after_rewrite(&policy, &gained(9, 3, 2, 0))), 60_000);
        assert_eq!(cooldown(&tired.after_rewrite(&policy, &gained(9, 1, 1, 1))), 60_000);
    }

    #[test]
    fn without_a_cooldown_in_the_policy_a_vain_rewrite_still_waits() {
        let policy = Policy { cooldown_ms: 0, ..Policy::default() };
        let once = ScopeMemory::default().after_rewrite(&policy, &gained(5, 2, 2, 0));
        assert_eq!(cooldown(&once), 1000);
        assert_eq!(cooldown(&once.after_rewrite(&policy, &gained(9, 2, 2, 0))), 2000);
    }

    #[test]
    fn finding_no_delete_silences_until_a_new_delete_comes() {
        let policy = Policy::default();
        let silent = ScopeMemory { max_deletes_on_file: Some(3), ..Default::default() }.after_empty_plan(&policy, 7, true);
        assert!(silent.silenced_deletes);
        assert!(silent.after_rewrite(&policy, &gained(8, 2, 1, 0)).silenced_deletes);
        let heard = silent.after_new_delete();
        assert_eq!((heard.silenced_deletes, heard.max_deletes_on_file, heard.last_rewrite_ms), (false, None, Some(7)));
        assert!(!ScopeMemory::default().after_empty_plan(&policy, 7, false).silenced_deletes);
    }

    #[test]
    fn a_clock_set_back_does_not_hold_a_partition_for_ever() {
        let memory = ScopeMemory { last_rewrite_ms: Some(i64::MAX), cooldown_until_ms: Some(i64::MAX), ..Default::default() };
        assert_eq!(memory.eligible_at(60_000, 1_000), Some(1_000 + MAX_COOLDOWN_MS));
        let rewritten = ScopeMemory { last_rewrite_ms: Some(9_000), ..Default::default() };
        assert_eq!(rewritten.eligible_at(60_000, 1_000), Some(61_000));
        assert_eq!(ScopeMemory::default().eligible_at(60_000, 1_000), None);
    }
}
