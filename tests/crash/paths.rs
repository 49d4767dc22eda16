//! The same kill points on each way to write outputs, and in format 3: what small row
//! groups of format 2 are given is killed in `points`, here the rest.

use afterwrite::act::JobState;
use afterwrite::model::killpoint::KillPoint;

use super::points::{crash, has_landed, points};
use super::world::World;

/// Whether a recovery passes the point itself, or finds nothing to do after it: the
/// table cannot serve for another point then.
fn is_last(point: KillPoint) -> bool {
    has_landed(point) || point == KillPoint::CleanupBegun
}

async fn is_closed_after_a_kill_at_any_point(make: impl AsyncFn() -> World, path: &str) {
    let (last, before): (Vec<KillPoint>, Vec<KillPoint>) = points().partition(|point| is_last(*point));
    let world = make().await;
    for (past, point) in before.iter().enumerate() {
        crash(&world, *point).await;
        assert_eq!(world.seen().await, world.rows, "{point}");
        let states: Vec<JobState> = world.jobs().await.iter().map(|j| j.state).collect();
        assert!(!states[0].is_final(), "{point}: {states:?}");
        assert_eq!(states[1..], vec![JobState::Failed; past], "the command at {point} closed what the one before it left");
    }
    let ended = world.compact().await.expect(0);
    assert_eq!((ended.each("result"), ended.each("path")), (vec!["committed".into()], vec![path.into()]), "{}", ended.out);
    world.assert_whole(1).await;
    for point in last {
        let world = make().await;
        crash(&world, point).await;
        assert_eq!(world.seen().await, world.rows, "{point}");

        let ended = world.compact().await.expect(0);

        assert_eq!(ended.each("result"), [if has_landed(point) { "left" } else { "committed" }], "{point}: {}", ended.err);
        world.assert_whole(1).await;
    }
}

#[tokio::test]
async fn a_rewrite_that_copies_row_groups_killed_at_any_point_is_closed_by_the_next() {
    is_closed_after_a_kill_at_any_point(World::to_splice, "splice").await;
}

#[tokio::test]
async fn a_rewrite_that_encodes_anew_killed_at_any_point_is_closed_by_the_next() {
    is_closed_after_a_kill_at_any_point(World::to_encode, "re-encode").await;
}

#[tokio::test]
async fn a_rewrite_in_format_3_killed_at_any_point_is_closed_by_the_next() {
    is_closed_after_a_kill_at_any_point(World::of_format_3, "re-pack").await;
}
