//! Laws of the loop over one partition.

use super::world::{MIB, World};
use afterwrite::model::policy::Policy;
use proptest::prelude::*;

/// A random partition: files of all tiers, equality and position deletes.
pub fn worlds() -> impl Strategy<Value = World> {
    let file = (0u32..30, 1u64..4).prop_map(|(power, times)| (1u64 << power) * times);
    let files = prop::collection::vec((file, 0u64..2000), 0..60);
    let deletes = prop::collection::vec((any::<bool>(), 1u64..500, 1usize..7), 0..6);
    let policy = (0u32..12, 0u64..6, 1u64..3).prop_map(|(tier_files, queue, jobs)| Policy {
        tier_files,
        queue_min_reduction: queue.checked_sub(1),
        max_job_bytes: jobs * 2048 * MIB,
        ..Policy::default()
    });
    (policy, files, deletes).prop_map(|(policy, files, deletes)| {
        let mut world = World::new(policy);
        files.iter().for_each(|(bytes, records)| world.append(*bytes, *records));
        for (by_key, records, every) in deletes {
            if by_key { world.delete_keys(records) } else { world.delete_positions(records, |place| place % every == 0) }
        }
        world
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn every_rewrite_lowers_the_potential_until_nothing_is_asked(mut world in worlds()) {
        let mut turns = 0;
        loop {
            world.pass_cooldown();
            let before = world.potential();
            let silent = world.memory.silenced_deletes;
            match world.turn().planned {
                None => break,
                Some(Ok(_)) => prop_assert!(world.potential() < before, "{:?} after {before:?}", world.potential()),
                Some(Err(reason)) => prop_assert!(!silent && world.memory.silenced_deletes, "an empty plan that silences nothing: {reason:?}"),
            }
            turns += 1;
            prop_assert!(turns <= 24);
        }
    }

    #[test]
    fn equal_commits_are_rewritten_once_a_tier_and_leave_no_full_tier(
        kib in prop_oneof![300u64..8192, 300u64..512 * 1024], commits in 1u32..300,
    ) {
        let policy = Policy::default();
        let bytes = kib << 10;
        let law = 1.0 + ((policy.scale.target as f64) / bytes as f64).log(4.0).max(0.0);
        let mut world = World::new(policy);
        for commit in 1..=commits {
            world.append(bytes, 1);
            world.settle(4);
            // beyond the target, full files outweigh a tier's reduction
            let up_to_target = u64::from(commit) * bytes <= world.policy.scale.target;
            prop_assert!(!up_to_target || world.fullest_tier() <= 8, "{:?}", world.sizes());
        }
        prop_assert!(f64::from(world.most_rewrites()) <= law, "{} rewrites, law {law}", world.most_rewrites());
    }
}

#[test]
fn ten_upsert_checkpoints_bring_at_most_two_rewrites() {
    let mut world = World::new(Policy::default());
    for _ in 0..10 {
        world.upsert(20_000, 180);
        world.pass_cooldown();
        let _ = world.turn();
    }
    assert!(world.rewrites >= 1 && world.rewrites <= 2, "{} rewrites", world.rewrites);
}
