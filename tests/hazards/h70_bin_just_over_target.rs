use crate::laws::world::World;
use afterwrite::decide::plan::Cause;
use afterwrite::model::decision::Reason;
use afterwrite::model::layout::SizeScale;
use afterwrite::model::policy::Policy;

const KB: u64 = 1000;

fn just_over() -> World {
    let mut world = World::new(Policy {
        scale: SizeScale { target: 100 * KB, small_permille: 750 },
        tier_files: 2,
        queue_min_reduction: Some(1),
        ..Policy::default()
    });
    world.append(60 * KB, 1);
    world.append(45 * KB, 1);
    world
}

#[test]
fn h70_a_bin_just_over_the_target_is_rewritten_once_in_five_rounds() {
    let mut world = just_over();
    for _ in 0..5 {
        world.pass_cooldown();
        let _ = world.turn();
    }
    assert_eq!((world.rewrites, world.sizes()), (1, vec![105 * KB]));
}

#[test]
fn h70_a_request_made_five_times_rewrites_once() {
    let mut world = just_over();
    assert_eq!(world.carry_out(&Cause::Request).map(|plans| plans.len()), Ok(1));
    for _ in 0..4 {
        assert_eq!(world.carry_out(&Cause::Request), Err(Reason::NothingToGain));
    }
    assert_eq!(world.rewrites, 1);
}

#[test]
fn h70_the_plan_asks_for_one_output_not_for_a_cut_at_the_target() {
    let plans = just_over().plans(&Cause::Request).unwrap();
    assert_eq!(plans.iter().map(|p| p.target_file_size).collect::<Vec<_>>(), [105 * KB]);
}
