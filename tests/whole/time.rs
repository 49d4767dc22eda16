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
