//! H74: a rewrite that takes longer than the writers' interval always conflicts.

use afterwrite::act::Verdict;

use crate::flow::world::World;

#[tokio::test]
async fn h74_a_group_shrinks_on_conflict_until_it_lands_between_two_commits() {
    let world = World::new(16);
    world.lake.with(|s| {
        s.rewrite_ms = 312;
        s.writer_every_ms = Some(1_000);
    });
    let act = world.act().await;
    let (mut most, mut tries) = (16, 0);
    loop {
        tries += 1;
        let result = act.run(&world.lake.plan(most), None).await;
        world.check();
        match result.verdict {
            Verdict::Committed => break,
            Verdict::Replan { max_bytes: Some(bytes), .. } => most = usize::try_from(bytes / 10).unwrap(),
            verdict => panic!("{verdict:?}"),
        }
    }
    assert!(tries <= 5, "{tries} tries");
    assert!(most >= 2);
    world.lake.with(|s| s.writer_every_ms = None);
    world.settle().await;
}
