use crate::laws::world::{MIB, World};
use afterwrite::model::layout::SizeScale;
use afterwrite::model::policy::{Policy, Rule};

/// Every rule at its most eager: thresholds that can never be satisfied.
fn eager() -> Policy {
    Policy {
        rules: vec![
            Rule::SmallFiles { min_reduction_ratio: 0.0 },
            Rule::Entropy { min_entropy: 0.0, min_small_files: 0 },
            Rule::Deletes { min_ratio: 0.0, min_files_per_data_file: 0 },
        ],
        queue_min_reduction: Some(0),
        cooldown_ms: 0,
        tier_files: 0,
        scale: SizeScale { target: 512 * MIB, small_permille: 1000 },
        ..Policy::default()
    }
}

#[test]
fn h76_thresholds_that_no_rewrite_can_satisfy_still_come_to_rest() {
    // sizes from a fixed congruence: every tier, many times
    for seed in 0..40u64 {
        let mut world = World::new(eager());
        let mut state = seed;
        for _ in 0..50 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            world.append((state >> 34) % (1 << (10 + (state >> 60) * 2).min(29)), 100);
        }
        world.delete_keys(10);
        world.delete_positions(5, |place| place % 3 == 0);
        let turns = world.settle(16);
        assert!(turns >= 1);
        assert_eq!(world.turn().planned, None);
        assert_eq!(world.potential().0, 0, "no delete is left on any file");
    }
}

#[test]
fn h76_a_layout_that_cannot_be_bettered_is_left_alone() {
    let mut world = World::new(eager());
    world.append(300 * MIB, 1);
    world.append(300 * MIB, 1);
    assert_eq!(world.turn().planned, None);
    assert_eq!(world.rewrites, 0);
}
