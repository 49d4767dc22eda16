//! H75: a stale plan is rewritten for nothing.

use afterwrite::act::{JobState, Journal, Query, Verdict};
use afterwrite::model::outcome::Conflict;

use crate::flow::fake::Foreign;
use crate::flow::world::World;

#[tokio::test]
async fn h75_a_plan_whose_input_was_replaced_is_dropped_before_any_read() {
    let world = World::new(4);
    let plan = world.lake.plan(4);
    world.lake.with(|s| s.replace_input(false));
    let result = world.act().await.run(&plan, None).await;
    let gone = Conflict::InputGone { files: vec![plan.inputs[0].path.to_string()] };
    assert_eq!(result.verdict, Verdict::Dropped { conflict: gone });
    assert_eq!(world.lake.with(|s| s.reads), 0);
    assert!(world.journal.all_files().is_empty());
    let job = world.journal.jobs(Query::Latest(1)).await.unwrap().remove(0);
    assert_eq!(job.state, JobState::Failed);
}

#[tokio::test]
async fn h75_appends_do_not_make_a_plan_stale() {
    let world = World::new(4);
    let plan = world.lake.plan(4);
    world.lake.with(|s| s.append(2));
    assert_eq!(world.act().await.run(&plan, None).await.verdict, Verdict::Committed);
    world.settle().await;
}

#[tokio::test]
async fn h75_outputs_of_a_proven_conflict_are_removed_at_once() {
    let world = World::new(4);
    world.lake.with(|s| s.before_commit.push_back(Foreign::ReplaceInput));
    let before = world.lake.with(|s| s.store.len());
    let result = world.act().await.run(&world.lake.plan(4), None).await;
    assert!(matches!(result.verdict, Verdict::Dropped { .. }), "{:?}", result.verdict);
    assert_eq!(world.lake.with(|s| s.store.len()), before + 3, "only the other compactor's three files are new");
    assert!(world.journal.all_files().is_empty());
    world.settle().await;
}
