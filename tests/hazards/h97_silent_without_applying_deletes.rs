use crate::laws::world::{MIB, World};
use afterwrite::model::decision::{Reason, Verdict};
use afterwrite::model::policy::Policy;

fn verdict(world: &World) -> Verdict {
    world.judge().verdict
}

/// One large file and deletes that apply to nothing, as old writers leave them.
fn dangling() -> World {
    let mut world = World::new(Policy::default());
    world.append(500 * MIB, 1000);
    (0..23).for_each(|_| world.dangling_delete(100));
    world
}

#[test]
fn h97_a_trigger_on_deletes_that_apply_to_nothing_asks_once_and_is_silent() {
    let mut world = dangling();
    assert_eq!(world.turn().planned, Some(Err(Reason::NothingToGain)));
    for _ in 0..10 {
        world.pass_cooldown();
        assert_eq!(world.turn().planned, None);
        assert_eq!(verdict(&world), Verdict::Not { reason: Reason::NothingToGain });
    }
    assert_eq!((world.rewrites, world.live_deletes()), (0, 23));
}

#[test]
fn h97_a_new_delete_breaks_the_silence() {
    let mut world = dangling();
    let _ = world.turn();
    world.pass_cooldown();
    world.delete_keys(200);
    assert_eq!(world.turn().planned.map(|p| p.map(|plans| plans.len())), Some(Ok(1)));
    assert_eq!(world.potential(), (0, 1));
}

#[test]
fn h97_the_trigger_is_silent_once_every_covered_file_is_replaced() {
    let mut world = World::new(Policy::default());
    (0..24).for_each(|_| world.append(MIB, 1000));
    world.delete_positions(100, |place| place < 23);
    world.settle(2);
    assert_eq!((world.rewrites, world.live_deletes()), (1, 0));
    assert_eq!(verdict(&world), Verdict::Not { reason: Reason::Healthy });
}
