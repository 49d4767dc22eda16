//! H06: a crash between the catalog's answer and the journal.

use afterwrite::act::{JobState, Journal, Query};
use afterwrite::model::killpoint::KillPoint;

use crate::flow::world::World;

#[tokio::test]
async fn h06_a_restart_finds_that_the_commit_landed_and_deletes_nothing() {
    let world = World::new(4);
    assert_eq!(world.run(world.lake.plan(4), Some((KillPoint::CatalogAnswered, 0))).await, None);
    let files = world.lake.with(|s| s.store.clone());
    let act = world.act().await;
    let recovered = act.recover().await.unwrap();
    assert_eq!((recovered.committed.len(), recovered.ended.len(), recovered.open.len()), (1, 0, 0));
    assert_eq!(world.lake.with(|s| s.store.clone()), files);
    let job = world.journal.jobs(Query::Latest(1)).await.unwrap().remove(0);
    assert_eq!(job.state, JobState::Committed);
    assert!(job.numbers.snapshot_id.is_some());
    assert_eq!(act.recover().await.unwrap(), Default::default());
    world.settle().await;
}
