use crate::laws::world::{MIB, World};
use afterwrite::decide::maturity::Gained;
use afterwrite::model::policy::Policy;

/// 24 files at their target with one position-delete file each.
fn file_granularity() -> World {
    let mut world = World::new(Policy::default());
    (0..24).for_each(|_| world.append(500 * MIB, 1000));
    world.delete_positions(200, |_| true);
    world
}

#[test]
fn h98_file_granularity_deletes_are_worked_on_once_in_ten_rounds() {
    let mut world = file_granularity();
    assert_eq!(world.potential(), (24, 24));
    let mut rounds_with_work = 0;
    for _ in 0..10 {
        world.pass_cooldown();
        rounds_with_work += u32::from(world.turn().planned.is_some());
    }
    assert_eq!((rounds_with_work, world.potential()), (1, (0, 23)));
}

#[test]
fn h98_a_rewrite_that_gained_nothing_is_tried_ever_more_rarely() {
    let mut world = file_granularity();
    let mut tries = 0;
    for _ in 0..1000 {
        world.now_ms += world.policy.cooldown_ms;
        if matches!(world.judge().verdict, afterwrite::model::decision::Verdict::Now { .. }) {
            tries += 1;
            let gained = Gained { at_ms: world.now_ms, files_in: 24, files_out: 24, deletes_applied: 0 };
            world.memory = world.memory.after_rewrite(&world.policy, &gained);
        }
    }
    // after 0, 1, 3, 7, … cooldowns: ten in a thousand
    assert_eq!(tries, 10);
}

#[test]
fn h98_files_that_merge_into_as_many_are_left_alone() {
    let mut world = World::new(Policy { queue_min_reduction: Some(0), tier_files: 2, ..Policy::default() });
    // 2 × 380 MiB become 2 × 380 MiB
    world.append(380 * MIB, 1);
    world.append(380 * MIB, 1);
    for _ in 0..10 {
        world.pass_cooldown();
        assert_eq!(world.turn().planned, None);
    }
}
