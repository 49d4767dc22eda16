//! H42: groups commit one by one, and a later failure is handled as if none had.

use afterwrite::act::{Journal, Query, Verdict};

use crate::flow::fake::{Fault, Foreign};
use crate::flow::world::World;

#[tokio::test]
async fn h42_a_group_that_fails_leaves_the_others_landed() {
    let world = World::new(6);
    let act = world.act().await;
    let all = world.lake.plan(6);
    let group = |from: usize| {
        let mut plan = all.clone();
        plan.inputs = plan.inputs.drain(from..from + 2).collect();
        plan
    };
    world.lake.with(|s| {
        s.faults.extend([Fault::None, Fault::None, Fault::Moved]);
        s.before_commit.extend([Foreign::Nothing, Foreign::Nothing]);
    });
    let first = act.run(&group(0), None).await;
    world.check();
    let mut stale = group(2);
    stale.inputs.iter_mut().for_each(|f| f.bytes += 1);
    let second = act.run(&stale, None).await;
    world.check();
    let third = act.run(&group(4), None).await;
    world.check();
    assert_eq!((first.verdict, third.verdict), (Verdict::Committed, Verdict::Committed));
    assert!(matches!(second.verdict, Verdict::Dropped { .. }), "{:?}", second.verdict);
    assert_eq!(world.journal.jobs(Query::Latest(9)).await.unwrap().len(), 3);
    world.settle().await;
}
