//! Laws of choosing inputs.

use super::fixed_point::worlds;
use super::world::World;
use afterwrite::decide::plan::Cause;
use afterwrite::model::decision::Verdict;
use afterwrite::model::plan::Plan;
use afterwrite::model::policy::Rule;
use proptest::prelude::*;
use std::collections::BTreeSet;

fn causes() -> [Cause; 5] {
    [
        Cause::Rule(Rule::SmallFiles { min_reduction_ratio: 0.1 }),
        Cause::Rule(Rule::Entropy { min_entropy: 0.6, min_small_files: 8 }),
        Cause::Rule(Rule::Deletes { min_ratio: 0.1, min_files_per_data_file: 3 }),
        Cause::Score,
        Cause::Request,
    ]
}

fn rises(world: &World, plan: &Plan) -> bool {
    let scale = world.policy.scale;
    let each = plan.input_bytes() / scale.outputs(plan.input_bytes());
    !scale.is_small(each) || plan.inputs.iter().all(|f| scale.tier(each) < scale.tier(f.bytes))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn no_file_is_in_two_plans_and_no_plan_is_idle(world in worlds()) {
        let scale = world.policy.scale;
        for cause in causes() {
            let mut seen = BTreeSet::new();
            for plan in world.plans(&cause).unwrap_or_default() {
                prop_assert!(plan.inputs.iter().all(|f| seen.insert(f.path.clone())), "a file twice");
                prop_assert!(plan.inputs.windows(2).all(|w| w[0].path < w[1].path), "inputs not ascending");
                prop_assert!(plan.deletes.windows(2).all(|w| w[0].key < w[1].key), "deletes not ascending");
                prop_assert!(plan.input_bytes() <= world.policy.max_job_bytes, "job too large");
                let applies: BTreeSet<_> = plan.inputs.iter().flat_map(|f| f.deletes.clone()).collect();
                prop_assert_eq!(applies, plan.deletes.iter().map(|d| d.key.clone()).collect::<BTreeSet<_>>());
                prop_assert!(plan.inputs.iter().all(|f| scale.is_small(f.bytes) || !f.deletes.is_empty()), "a mature file was chosen");
                let merges = plan.inputs.len() as u64 > scale.outputs(plan.input_bytes());
                prop_assert!(merges || !plan.deletes.is_empty(), "a plan that changes nothing");
                prop_assert!(cause == Cause::Request || !plan.deletes.is_empty() || rises(&world, &plan), "a file that does not rise");
                prop_assert_eq!(plan.check(&world.scope()), Ok(()));
            }
        }
    }

    #[test]
    fn a_decision_to_merge_has_a_plan(mut world in worlds()) {
        world.policy.max_job_bytes = 1 << 40;
        let decision = world.judge();
        if let Verdict::Now { rule, gain, .. } = &decision.verdict && rule != "deletes" {
            let cause = Cause::of(&decision, &world.policy).unwrap();
            let plans = world.plans(&cause).unwrap();
            let scale = world.policy.scale;
            let drop: u64 = plans.iter().map(|p| p.inputs.len() as u64 - scale.outputs(p.input_bytes())).sum();
            prop_assert_eq!(drop, *gain, "predicted and planned differ");
        }
    }

    #[test]
    fn the_same_view_gives_the_same_plans(world in worlds()) {
        prop_assert_eq!(world.judge(), world.judge());
        for cause in causes() {
            prop_assert_eq!(world.plans(&cause), world.plans(&cause));
        }
    }
}
