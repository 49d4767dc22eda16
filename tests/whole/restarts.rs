//! A process ends, another one begins.

use std::sync::atomic::Ordering;

use afterwrite::act::{Journal, Query};
use afterwrite::model::decision::Reason;
use afterwrite::serve::backend::Backend;

use super::world::{World, append_small, data_files, event, snapshots};
use crate::fixture::{Table, row};

fn world() -> World {
    World::new("[defaults]\nact = true\ntarget_file_size = \"1MiB\"\ncooldown = \"1h\"\n")
}

#[tokio::test]
async fn a_restart_reads_no_manifest_again_and_keeps_the_cooldown() {
    let world = world();
    let table = world.table(Table::plain(), "t").await;
    append_small(&table, 0, 9, 0).await;
    let process = world.start().await;
    process.look_at(&table).await;
    assert_eq!(process.seen.rewrites(), 1);
    assert!(process.seen.manifests.load(Ordering::SeqCst) > 0);
    process.stop().await;

    let process = world.start().await;
    process.ooda.hear(event(&table.name, &[], 0));
    process.rest().await;
    assert_eq!(process.seen.manifests.load(Ordering::SeqCst), 0);
    assert!(matches!(process.reason(&table).await, Reason::CoolingDown { .. }));
    append_small(&table, 100, 9, 0).await;
    process.look_at(&table).await;
    assert_eq!(process.seen.rewrites(), 0);
    process.pass(3_700_000).await;
    assert_eq!((process.seen.rewrites(), data_files(&table).await), (1, 1));
    process.stop().await;
}

#[tokio::test]
async fn a_delete_that_came_while_nobody_listened_is_acted_upon() {
    let world = World::new("[defaults]\nact = true\ntarget_file_size = \"1KiB\"\ncooldown = \"1s\"\n");
    let table = world.table(Table::plain(), "t").await;
    // given a partition whose deletes were found to apply to nothing
    let wide = |from: i64| (from..from + 60).map(|id| row(id, &format!("{id:>040}"), 0)).collect::<Vec<_>>();
    let old = table.append(wide(0)).await;
    table.change().delete_equal(&["id"], (0..60).map(|id| row(id, "", 0))).commit().await;
    table.change().remove(&[&old]).operation(iceberg::spec::Operation::Delete).commit().await;
    table.append(wide(1000)).await;
    let process = world.start().await;
    process.look_at(&table).await;
    process.pass(86_400_000).await;
    assert_eq!(process.reason(&table).await, Reason::NothingToGain);
    process.stop().await;
    // when a delete that applies comes before the next process starts
    table.change().delete_equal(&["id"], (1000..1030).map(|id| row(id, "", 0))).commit().await;
    let process = world.start().await;
    process.look_at(&table).await;
    assert_eq!(process.seen.rewrites(), 1);
    process.stop().await;
}

#[tokio::test]
async fn an_end_waits_for_the_job_under_way_and_begins_no_other() {
    let world = World::new("[defaults]\nact = true\ntarget_file_size = \"1MiB\"\n[budget]\nconcurrent_jobs = 1\n");
    let table = world.table(Table::partitioned_by_p(), "t").await;
    for p in 0..4 {
        append_small(&table, p * 100, 9, p).await;
    }
    let process = world.start().await;
    let seen = process.seen.clone();
    let gate = seen.gate.lock().await;
    process.report(&table).await;
    process.until("a job", async || seen.rewrites() == 1).await;
    let (stopped, ()) = tokio::join!(process.stop(), async {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        drop(gate);
    });
    let () = stopped;
    assert_eq!((seen.rewrites(), snapshots(&table).await), (1, 37));
    assert_eq!(world.journal.jobs(Query::Unfinished).await.unwrap(), vec![]);
    assert_eq!(world.journal.holders().await.unwrap(), vec![]);
}

#[tokio::test]
async fn an_end_does_not_go_on_to_the_next_job_of_a_partition() {
    let world = World::new("[defaults]\nact = true\ntarget_file_size = \"1MiB\"\nmax_job_size = \"8KiB\"\n[budget]\nconcurrent_jobs = 1\n");
    let table = world.table(Table::plain(), "t").await;
    append_small(&table, 0, 40, 0).await;
    let process = world.start().await;
    let seen = process.seen.clone();
    let gate = seen.gate.lock().await;
    process.report(&table).await;
    process.until("a job", async || seen.rewrites() == 1).await;
    tokio::join!(process.stop(), async {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        drop(gate);
    });
    assert_eq!((seen.rewrites(), snapshots(&table).await), (1, 41));
    // and the next process takes up what is left
    let process = world.start().await;
    process.pass(61_000).await;
    process.look_at(&table).await;
    assert!(process.seen.rewrites() >= 2);
    assert_eq!(table.rows().await.len(), 40);
    process.stop().await;
}

#[tokio::test]
async fn a_process_that_begins_anew_has_no_more_to_spend_than_the_one_before_had_left() {
    // a job's bound is 0.0224 GB-hours, one minute of it and 90 s to end; the budget holds a little more
    let world = World::new(
        "[defaults]\nact = true\ntarget_file_size = \"1MiB\"\nmemory_limit = \"2GiB\"\n[budget]\ngb_hours_per_hour = 0.025\ncarry_over_hours = 1.0\nconcurrent_jobs = 4\n",
    );
    let table = world.table(Table::partitioned_by_p(), "t").await;
    append_small(&table, 0, 9, 0).await;
    append_small(&table, 100, 10, 1).await;
    let process = world.start().await;
    let gate = process.seen.gate.lock().await;
    process.report(&table).await;
    process.until("a job", async || process.seen.rewrites() == 1).await;
    // half a GiB for most of a minute
    process.clock_passes(50_000);
    drop(gate);
    process.until("its end", async || process.ooda.health().jobs == 0).await;
    assert_eq!(process.seen.rewrites(), 1);
    process.stop().await;

    let process = world.start().await;
    process.report(&table).await;
    process
        .until("a reason", async || {
            let waiting = process.ooda.list_candidates(10).await.unwrap();
            waiting.len() == 1 && waiting[0].waits_for.contains("GB-hours that the job may need")
        })
        .await;
    assert_eq!((process.seen.rewrites(), data_files(&table).await), (0, 10));
    process.pass(3_600_000).await;
    assert_eq!((process.seen.rewrites(), data_files(&table).await), (1, 2));
    process.stop().await;
}
