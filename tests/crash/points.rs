//! Every kill point of an attempt, passed by the real binary.

use std::time::Duration;

use afterwrite::act::{JobState, Journal, Query};
use afterwrite::model::claim::CLAIM_PREFIX;
use afterwrite::model::killpoint::KillPoint;
use iceberg::spec::Operation;

use super::signals::EAGER;
use super::world::{NAME, World};
use crate::fixture::process::{Ended, arrive, finish, over_rest, overtake};

/// Whether a process ended as by `kill -9`, with nothing said.
pub fn killed(ended: &Ended) -> bool {
    ended.signal == Some(9) && ended.out.is_empty()
}

/// Clean-up begins only after a conflict: a writer who comes first, and changes no row.
async fn prepare(world: &World, point: KillPoint) {
    if point == KillPoint::CleanupBegun {
        let before = world.table.load().await.view.metadata_location;
        world.table.change().rewrite_manifests().operation(Operation::Append).commit().await;
        let after = world.table.load().await.view.metadata_location;
        overtake(&world.place, &before, &after).await;
    }
}

/// The points that a commit can be made to pass by itself: deletes are carried over
/// only where a writer comes in between (see `carried`).
pub fn points() -> impl Iterator<Item = KillPoint> {
    KillPoint::ALL.iter().copied().filter(|point| *point != KillPoint::DeletesCarried)
}

/// Ends a `compact` at a point.
pub async fn crash(world: &World, point: KillPoint) {
    prepare(world, point).await;
    let ended = world.compact_killed_at(point.code()).await;
    assert!(killed(&ended), "{point} was not passed: {ended:?}");
}

/// Whether the commit of the first partition has landed by then.
pub fn has_landed(point: KillPoint) -> bool {
    matches!(point, KillPoint::CatalogAnswered | KillPoint::OutcomeJournaled)
}

#[tokio::test]
async fn a_compaction_killed_at_any_point_is_closed_by_the_next() {
    for point in points() {
        let world = World::new().await;
        crash(&world, point).await;
        assert_eq!(world.seen().await, world.rows, "{point}");
        assert!(!world.jobs().await[0].state.is_final(), "{point}");

        let ended = world.compact().await.expect(0);

        let mut results = ended.each("result");
        results.sort_by_key(|r| r.to_string());
        // what the first partition comes to; a new point has to be decided on here
        let first = match point {
            KillPoint::CatalogAnswered | KillPoint::OutcomeJournaled => "left",
            KillPoint::Requested | KillPoint::Inflight | KillPoint::OutputNamed | KillPoint::OutputBegun => "committed",
            KillPoint::Written | KillPoint::Verified | KillPoint::ManifestsWritten | KillPoint::MetadataWritten => "committed",
            KillPoint::DeletesCarried => "committed",
            KillPoint::CleanupBegun => "committed",
        };
        let mut expected = [first, "committed"];
        expected.sort_unstable();
        assert_eq!(results, expected, "{point}");
        assert!(ended.err.contains("recovered: 1 job of a dead process "), "{point}: {}", ended.err);
        world.assert_whole(2).await;
        let jobs = world.jobs().await;
        let states: Vec<JobState> = jobs.iter().rev().map(|j| j.state).collect();
        let expected =
            if has_landed(point) { vec![JobState::Committed; 2] } else { vec![JobState::Failed, JobState::Committed, JobState::Committed] };
        assert_eq!(states, expected, "{point}");
    }
}

#[tokio::test]
async fn jobs_side_by_side_killed_at_any_point_are_closed_by_the_next() {
    for point in points() {
        let world = World::side_by_side().await;
        crash(&world, point).await;
        assert_eq!(world.seen().await, world.rows, "{point}");

        let ended = world.compact().await.expect(0);

        assert!(ended.each("result").iter().all(|result| result == "left" || result == "committed"), "{point}: {}", ended.out);
        assert!(world.jobs().await.iter().all(|job| job.state.is_final()), "{point}");
        world.assert_whole(2).await;
    }
}

/// Nobody else commits: the pointer stands where the lost request would change it.
#[tokio::test]
async fn a_table_that_stands_still_is_free_again_after_a_kill_at_any_point() {
    for point in points() {
        let world = World::of_one_partition().await;
        crash(&world, point).await;

        let recovered = world.place.run(&["compact", NAME, "--json"]).await.expect(0);

        let landed = has_landed(point);
        assert_eq!(recovered.each("result"), [if landed { "left" } else { "committed" }], "{point}: {}", recovered.err);
        assert!(world.jobs().await.iter().all(|job| job.state.is_final()), "{point}");
        world.assert_whole(1).await;
    }
}

/// A recovery passes two of the points itself.
#[tokio::test]
async fn a_recovery_that_is_killed_too_is_closed_by_the_next() {
    for point in points() {
        let world = World::new().await;
        crash(&world, point).await;
        let named_files = !has_landed(point) && !matches!(point, KillPoint::Requested | KillPoint::Inflight);
        for (again, passed) in [(KillPoint::OutcomeJournaled, true), (KillPoint::CleanupBegun, named_files)] {
            let ended = world.compact_killed_at(again.code()).await;
            assert_eq!(killed(&ended), passed, "{again} after {point}: {ended:?}");
            assert_eq!(world.seen().await, world.rows, "{again} after {point}");
        }
        world.compact().await.expect(0);
        world.assert_whole(2).await;
    }
}

#[tokio::test]
async fn serve_closes_at_its_start_what_a_dead_process_left() {
    for point in [KillPoint::Verified, KillPoint::CatalogAnswered] {
        let world = World::new().await;
        crash(&world, point).await;
        let serving = world.place.serve().await;
        let journal = world.place.journal().await;
        assert_eq!(journal.jobs(Query::Unfinished).await.unwrap(), []);
        assert_eq!(journal.litter().await.unwrap(), []);
        journal.close().await;
        assert_eq!(serving.terminate().await, Some(0));
        world.place.assert_settled().await;
        world.place.assert_accounted(&world.table, &world.before).await;
        assert_eq!(world.seen().await, world.rows);
    }
}

#[tokio::test]
async fn serve_killed_at_any_point_of_its_own_work_is_closed_by_its_next_start() {
    for point in points() {
        let world = World::new().await;
        prepare(&world, point).await;
        world.place.configure(EAGER);
        let mut serve = world.place.command(&["serve", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"]);
        serve.env("AFTERWRITE_KILL_AT", point.code());
        let ended = tokio::time::timeout(Duration::from_secs(120), finish(serve)).await;
        let ended = ended.unwrap_or_else(|_| panic!("{point} was not passed"));
        assert!(killed(&ended), "{point}: {ended:?}");
        assert_eq!(world.seen().await, world.rows, "{point}");
        assert!(!world.jobs().await[0].state.is_final(), "{point}");

        // the next one only closes what there is
        world.place.configure("");
        let serving = world.place.serve().await;
        let journal = world.place.journal().await;
        assert_eq!(journal.jobs(Query::Unfinished).await.unwrap(), [], "{point}");
        assert_eq!(journal.litter().await.unwrap(), [], "{point}");
        journal.close().await;
        assert_eq!(serving.terminate().await, Some(0), "{point}");
        world.place.assert_settled().await;
        world.place.assert_accounted(&world.table, &world.before).await;
        assert_eq!(world.seen().await, world.rows, "{point}");
        let landed = if has_landed(point) { JobState::Committed } else { JobState::Failed };
        assert!(world.jobs().await.iter().any(|job| job.state == landed), "{point}");
    }
}

/// Each of several sidecars writes a property before it rewrites, which a SQL catalog
/// takes with a metadata file.
#[tokio::test]
async fn serve_killed_as_it_claims_a_table_leaves_no_file() {
    for arrives in [false, true] {
        let world = World::new().await;
        let stood = world.table.load().await.view.metadata_location;
        world.place.configure(&format!("claims = true\n{EAGER}"));
        let mut serve = world.place.command(&["serve", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"]);
        serve.env("AFTERWRITE_KILL_AT", KillPoint::MetadataWritten.code());
        let ended = tokio::time::timeout(Duration::from_secs(120), finish(serve)).await.unwrap();
        assert!(killed(&ended), "{ended:?}");
        assert!(world.jobs().await.iter().all(|job| job.state == JobState::Requested), "none had begun");
        let claim =
            world.place.files().into_iter().filter(|f| !world.before.contains(f)).find(|f| f.to_string_lossy().ends_with(".metadata.json"));
        match claim {
            Some(claim) if arrives => arrive(&world.place, &stood, &format!("file://{}", claim.display())).await,
            found => assert!(found.is_some() || over_rest().is_some(), "no metadata was written"),
        }

        world.place.configure("");
        let serving = world.place.serve().await;
        assert_eq!(serving.terminate().await, Some(0));
        world.place.assert_settled().await;
        world.place.assert_accounted(&world.table, &world.before).await;
        assert_eq!(world.seen().await, world.rows);
        let claims = world.table.load().await.view.properties.keys().filter(|key| key.starts_with(CLAIM_PREFIX)).count();
        assert_eq!(claims, usize::from(arrives && over_rest().is_none()));
        assert!(world.jobs().await.iter().all(|job| job.state == JobState::Failed));
    }
}

#[tokio::test]
async fn an_undo_killed_at_any_point_it_passes_is_closed_by_the_next_command() {
    let points =
        [KillPoint::Requested, KillPoint::Inflight, KillPoint::MetadataWritten, KillPoint::CatalogAnswered, KillPoint::OutcomeJournaled];
    for point in points {
        let world = World::new().await;
        world.compact().await.expect(0);
        let (head, last) = (world.table.head().await, world.jobs().await.remove(0));
        assert_eq!(last.numbers.snapshot_id, Some(head));

        let ended = world.place.run_killed_at(point.code(), &["undo", &last.id.0, "--json"]).await;
        assert!(killed(&ended), "{point} was not passed: {ended:?}");
        assert_eq!(world.seen().await, world.rows);

        // the same again undoes it, or finds it undone
        // over REST, what was not told is asked for again on the way
        let undone = has_landed(point) || over_rest().is_some() && point == KillPoint::MetadataWritten;
        world.place.run(&["undo", &last.id.0]).await.expect(if undone { 4 } else { 0 });
        assert_ne!(world.table.head().await, head, "{point}");
        assert_eq!(world.seen().await, world.rows, "{point}");
        world.place.assert_settled().await;
        world.place.assert_accounted(&world.table, &world.before).await;
        let again = world.compact().await.expect(0);
        assert_eq!(again.each("result").iter().filter(|r| *r == "committed").count(), 1, "{point}");
    }
}

#[tokio::test]
async fn jobs_tell_of_work_that_nobody_does_and_change_nothing() {
    let world = World::new().await;
    crash(&world, KillPoint::Verified).await;
    let files = world.place.files();
    let shown = world.place.run(&["jobs", "--json"]).await.expect(0);
    assert_eq!(shown.each("state"), ["inflight"]);
    assert_eq!(shown.each("error"), ["its process is gone; the next `compact` or `serve` closes it"]);
    assert_eq!(world.place.files(), files);
    world.place.run(&["compact", NAME, "--dry-run"]).await.expect(0);
    assert_eq!(world.place.files(), files);

    let job = world.jobs().await.remove(0).id.0;
    let asked = world.place.run(&["cancel", &job]).await.expect(0);
    assert_eq!(asked.out, format!("job {job} is asked to stop; its process is gone; the next `compact` or `serve` closes it\n"));
    world.compact().await.expect(0);
    let states: Vec<JobState> = world.jobs().await.iter().rev().map(|j| j.state).collect();
    assert_eq!(states, [JobState::Cancelled, JobState::Committed, JobState::Committed]);
    world.assert_whole(2).await;
}
