//! H54: a job stuck in "committing". Every state is in `flow::faults`; here the
//! worst one, in which the answer is lost and the catalog is down.

use afterwrite::act::Verdict;
use afterwrite::lake::clock::Clock;

use crate::flow::fake::Fault;
use crate::flow::world::World;

#[tokio::test]
async fn h54_an_unknown_commit_and_a_catalog_down_for_ten_minutes_end_in_idle() {
    let world = World::new(4);
    let (lake, clock) = (world.lake.clone(), world.clock.clone());
    let act = world
        .start(afterwrite::act::KillSwitch::calling(move |point| {
            if point == afterwrite::model::killpoint::KillPoint::CatalogAnswered {
                let until = clock.now_ms() + 600_000;
                lake.with(|s| s.down_until = until);
            }
        }))
        .await;
    world.lake.with(|s| s.faults.push_back(Fault::UnknownLanded));
    let result = act.run(&world.lake.plan(4), None).await;
    assert!(matches!(result.verdict, Verdict::Unresolved { .. }), "{:?}", result.verdict);
    assert!(act.leases().is_empty());
    assert_eq!(act.recover().await.unwrap().open.len(), 1);
    world.clock.pass(600_000);
    assert_eq!(act.recover().await.unwrap().committed, vec![result.job.unwrap()]);
    world.settle().await;
}
