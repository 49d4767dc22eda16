use crate::laws::world::{MIB, World};
use afterwrite::model::policy::Policy;

/// Commits of `bytes` up to the target; the most rewritten byte's rewrites.
fn small_commits(bytes: u64) -> World {
    let mut world = World::new(Policy::default());
    for _ in 0..(512 * MIB / bytes) {
        world.append(bytes, 1);
        world.settle(6);
        assert!(world.fullest_tier() <= 8, "{:?}", world.sizes());
    }
    world
}

#[test]
fn h113_commits_of_1_mib_are_rewritten_at_most_1_plus_log4_times() {
    let world = small_commits(MIB);
    // 1 + log₄ 512 = 5.5
    assert!(world.most_rewrites() <= 5, "{}", world.most_rewrites());
    assert!(world.sizes().len() <= 24, "{:?}", world.sizes());
}

#[test]
fn h113_commits_of_a_quarter_mib_are_rewritten_at_most_1_plus_log4_times() {
    let world = small_commits(MIB / 4);
    // 1 + log₄ 2048 = 6.5
    assert!(world.most_rewrites() <= 6, "{}", world.most_rewrites());
    assert!(world.sizes().len() <= 32, "{:?}", world.sizes());
}

#[test]
fn h113_the_first_eight_small_files_are_not_merged_with_what_was_merged_before() {
    let mut world = World::new(Policy { queue_min_reduction: None, ..Policy::default() });
    (0..8).for_each(|_| world.append(MIB, 1));
    world.settle(1);
    assert_eq!(world.sizes(), [8 * MIB]);
    (0..7).for_each(|_| world.append(MIB, 1));
    world.policy.rules.truncate(1);
    assert_eq!(world.settle(1), 0);
    world.append(MIB, 1);
    world.settle(1);
    assert_eq!((world.sizes(), world.most_rewrites()), (vec![8 * MIB, 8 * MIB], 1));
}
