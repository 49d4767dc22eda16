//! H03: a lost answer is treated as a failure, and live files are cleaned up.

use afterwrite::act::Verdict;

use crate::flow::fake::Fault;
use crate::flow::world::World;

#[tokio::test]
async fn h03_a_commit_that_landed_with_its_answer_lost_keeps_its_files() {
    for fault in [Fault::UnknownLanded, Fault::ErrorLanded] {
        let world = World::new(4);
        world.lake.with(|s| s.faults.push_back(fault));
        let result = world.act().await.run(&world.lake.plan(4), None).await;
        assert_eq!((result.verdict, result.numbers.tries), (Verdict::Committed, 1));
        assert_eq!(world.lake.with(|s| s.data_files()), 2);
        world.check();
        world.settle().await;
    }
}
