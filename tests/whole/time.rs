//! What only time holds up is judged again when its time has come, without any event.

use afterwrite::act::{Journal, Pause};
use afterwrite::model::decision::Reason;
use afterwrite::serve::backend::Backend;

use super::world::{World, append_small, data_files};
use crate::fixture::{Spec, Table};

fn acting(more: &str) -> World {
    World::new(&format!("[defaults]\nact = true\ntarget_file_size = \"1MiB\"\n{more}"))
}

async fn small(world: &World, spec: Spec) -> Table {
    let table = world.table(spec, "t").await;
    append_small(&table, 0, 9, 0).await;
    table
}

#[tokio::test]
async fn a_partition_is_compacted_once_its_writers_are_quiet() {
    let world = acting("quiet_window = \"10m\"\n");
    let table = small(&world, Table::plain()).await;
    let process = world.start().await;
    // a table seen for the first time has no history: the next commit is heard
    process.look_at(&table).await;
    assert_eq!(process.seen.rewrites(), 1);
    append_small(&table, 100, 9, 0).await;
    process.pass(600_000).await;
    process.look_at(&table).await;
    assert!(matches!(process.reason(&table).await, Reason::QuietWindow { .. }));
    process.pass(500_000).await;
    assert_eq!(process.seen.rewrites(), 1);
    process.pass(110_000).await;
    assert_eq!((process.seen.rewrites(), data_files(&table).await), (2, 1));
    process.stop().await;
}

#[tokio::test]
async fn a_stream_of_commits_keeps_one_due_time_a_partition() {
    let world = acting("quiet_window = \"10m\"\n");
    let table = small(&world, Table::plain()).await;
    let process = world.start().await;
    process.look_at(&table).await;
    append_small(&table, 100, 9, 0).await;
    process.pass(600_000).await;
    // when a commit comes within every window
    for id in 200..206 {
        append_small(&table, id, 1, 0).await;
        process.look_at(&table).await;
        process.pass(300_000).await;
    }
    assert_eq!(process.seen.rewrites(), 1);
    process.pass(310_000).await;
    assert_eq!((process.seen.rewrites(), data_files(&table).await), (2, 1));
    process.stop().await;
}

#[tokio::test]
async fn a_partition_is_compacted_again_when_it_has_cooled_down() {
    let world = acting("cooldown = \"1h\"\n");
    let table = small(&world, Table::plain()).await;
    let process = world.start().await;
    process.look_at(&table).await;
    append_small(&table, 100, 9, 0).await;
    process.look_at(&table).await;
    assert!(matches!(process.reason(&table).await, Reason::CoolingDown { .. }));
    process.pass(3_000_000).await;
    assert_eq!(process.seen.rewrites(), 1);
    process.pass(600_000).await;
    assert_eq!((process.seen.rewrites(), data_files(&table).await), (2, 1));
    process.stop().await;
}

#[tokio::test]
async fn a_table_is_compacted_when_it_is_old_enough() {
    let world = acting("min_table_age = \"1h\"\n");
    let table = small(&world, Table::plain()).await;
    let process = world.start().await;
    process.look_at(&table).await;
    assert!(matches!(process.reason(&table).await, Reason::TooNew { .. }));
    process.pass(3_500_000).await;
    assert_eq!(process.seen.rewrites(), 0);
    process.pass(200_000).await;
    assert_eq!(process.seen.rewrites(), 1);
    process.stop().await;
}

#[tokio::test]
async fn a_pause_holds_within_a_round_and_a_resume_lifts_it() {
    let world = acting("");
    let table = small(&world, Table::plain()).await;
    let ident = table.load().await.view.ident;
    world.journal.pause(&Pause { table: Some(ident), label: "t".into(), at_ms: 0 }).await.unwrap();
    // even the first look at a table knows of it
    let process = world.start().await;
    let mut watch = process.ooda.watch();
    process.look_at(&table).await;
    assert_eq!((process.reason(&table).await, process.seen.rewrites()), (Reason::Paused, 0));
    let first = watch.try_recv().unwrap();
    assert_eq!(first.decision.verdict, afterwrite::model::decision::Verdict::Not { reason: Reason::Paused });
    world.journal.resume(Some(&ident)).await.unwrap();
    process.rounds().await;
    assert_eq!((process.seen.rewrites(), data_files(&table).await), (1, 1));
    // everything is paused
    world.journal.pause(&Pause { table: None, label: "all".into(), at_ms: 0 }).await.unwrap();
    append_small(&table, 100, 9, 0).await;
    process.pass(600_000).await;
    process.look_at(&table).await;
    assert_eq!((process.reason(&table).await, process.seen.rewrites()), (Reason::Paused, 1));
    process.stop().await;
}

#[tokio::test]
async fn a_table_that_grows_large_enough_is_judged_in_all_its_partitions() {
    let world = acting("min_table_size = \"20KB\"\n");
    let table = world.table(Table::partitioned_by_p(), "t").await;
    append_small(&table, 0, 9, 7).await;
    let process = world.start().await;
    process.look_at(&table).await;
    assert_eq!(process.reason(&table).await, Reason::TooSmall);
    // when another partition grows
    let long: String = (0..400).map(|n| format!("{:x}", n * 7919)).collect();
    for n in 0..10 {
        let wide = (0..9).map(|id| crate::fixture::row(id, &format!("{id}{n}{long}"), 8));
        table.append(wide).await;
    }
    process.look_at(&table).await;
    // then the first one is compacted too
    let of_seven =
        process.ooda.list_partitions(&table.name, "main", afterwrite::serve::backend::Page { size: 10, after: None }).await.unwrap();
    assert_eq!(of_seven.rows[0].traits.data_files, 1);
    process.stop().await;
}

#[tokio::test]
async fn rounds_begin_at_most_once_a_second_while_no_place_becomes_free() {
    let world = acting("");
    let (one, other) = (small(&world, Table::plain()).await, world.table(Table::plain(), "other").await);
    append_small(&other, 0, 9, 0).await;
    // given a process that has made no round yet: the first one comes with the candidate
    let process = world.start().await;
    let gate = process.seen.gate.lock().await;
    process.report(&one).await;
    until_real(async || process.seen.rewrites() == 1).await;
    // when another candidate arrives in the same second
    process.report(&other).await;
    until_real(async || process.ooda.list_candidates(9).await.unwrap().iter().any(|c| c.table == other.name)).await;
    for _ in 0..9 {
        process.clock_passes(111);
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        assert_eq!(process.seen.rewrites(), 1);
    }
    // then it is taken up when the second is over
    process.clock_passes(1);
    until_real(async || process.seen.rewrites() == 2).await;
    drop(gate);
    process.stop().await;
}

/// Waits without moving the clock.
async fn until_real(mut holds: impl AsyncFnMut() -> bool) {
    for _ in 0..5_000 {
        if holds().await {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
    panic!("it did not come to that");
}

#[tokio::test]
async fn a_verdict_keeps_the_time_when_it_came_to_be() {
    let world = World::new("[defaults]\ntarget_file_size = \"1MiB\"\n");
    let table = world.table(Table::partitioned_by_p(), "t").await;
    append_small(&table, 0, 9, 7).await;
    append_small(&table, 100, 2, 8).await;
    let process = world.start().await;
    process.look_at(&table).await;
    let told = async |p: &str| {
        let why = process.ooda.why(&table.name, Some(p)).await.unwrap();
        (why[0].decided_ms, why[0].decision.at_ms, why[0].decision.traits.data_files)
    };
    let (first, other) = (told("p=7").await, told("p=8").await);
    assert_eq!((first.0, first.2, other.2), (first.1, 9, 2));
    // when the question comes later, the answer is what was decided then
    process.pass(600_000).await;
    let same = told("p=8").await;
    assert_eq!((told("p=7").await, same.0), (first, other.0));
    assert!(same.1 >= other.1 + 600_000, "{same:?} {other:?}");
    // when a commit changes the numbers and not the verdict
    append_small(&table, 200, 1, 7).await;
    process.look_at(&table).await;
    let again = told("p=7").await;
    assert_eq!((again.0, again.2, told("p=8").await.0), (first.0, 10, other.0));
    assert!(again.1 >= first.1 + 600_000, "{again:?} {first:?}");
    // when another verdict comes of it
    append_small(&table, 300, 7, 8).await;
    process.look_at(&table).await;
    let now = told("p=8").await;
    assert_eq!((now.0, now.2), (now.1, 9));
    assert!(now.0 > other.0);
    process.stop().await;
}
