//! What fails around the loop does not end it.

use afterwrite::model::decision::Reason;
use afterwrite::serve::backend::Backend;

use super::spy::Wrong;
use super::world::{ACTING, World, append_small, data_files};
use crate::fixture::Table;

#[tokio::test]
async fn a_catalog_that_is_down_is_waited_for_and_its_work_is_done_when_it_is_back() {
    let world = World::new(ACTING);
    let table = world.table(Table::plain(), "t").await;
    append_small(&table, 0, 9, 0).await;
    let head = table.head().await;
    let process = world.start().await;
    assert!(!process.ooda.health().ready);
    world.catalog.set_unreachable(true);
    assert!(process.poller.once().await.is_err());
    process.ooda.hear(super::world::event(&table.name, &[head], 0));
    process.until("looks that fail", async || process.seen.loads() >= 3).await;
    let error = process.ooda.get_layout(&table.name, "main").await.unwrap_err().to_string();
    assert!(error.contains("could not be looked at yet"), "{error}");
    assert!(process.ooda.health().problems[0].contains("lake"));
    world.catalog.set_unreachable(false);
    process
        .until("the work", async || {
            process.clock_passes(100);
            data_files(&table).await == 1
        })
        .await;
    process.poller.once().await.unwrap();
    process.rest().await;
    assert!(process.ooda.health().ready);
    process.nothing_is_stuck(&world).await;
    process.stop().await;
}

#[tokio::test]
async fn a_catalog_that_goes_down_between_decision_and_plan_delays_the_work_and_no_more() {
    let world = World::new(ACTING);
    let table = world.table(Table::plain(), "t").await;
    append_small(&table, 0, 9, 0).await;
    let process = world.idle().await;
    process.ooda.look(&table.name, "main", &[]).await.unwrap();
    world.catalog.set_unreachable(true);
    process.ooda.round().await;
    process.until("the job's end", async || process.ooda.health().jobs == 0).await;
    process.ooda.round().await;
    assert!(matches!(process.reason(&table).await, Reason::CoolingDown { .. }));
    world.catalog.set_unreachable(false);
    process.clock_passes(2_000);
    process.ooda.round().await;
    process.until("the work", async || data_files(&table).await == 1).await;
}

#[tokio::test]
async fn a_journal_that_fails_at_any_write_costs_no_row_and_the_work_is_done_later() {
    for n in 0..16 {
        let world = World::new(ACTING);
        let table = world.table(Table::plain(), "t").await;
        append_small(&table, 0, 9, 0).await;
        let before = table.rows().await;
        let process = world.start().await;
        world.journal.fail_write(n);
        process.report(&table).await;
        process.rest().await;
        for _ in 0..4 {
            process.act.recover().await.unwrap();
            process.pass(120_000).await;
            process.poller.once().await.unwrap();
            process.rest().await;
        }
        assert_eq!((n, data_files(&table).await), (n, 1));
        assert_eq!(table.rows().await, before, "write {n}");
        process.act.recover().await.unwrap();
        process.nothing_is_stuck(&world).await;
        process.stop().await;
    }
}

#[tokio::test]
async fn a_look_that_panics_is_made_again_and_the_loop_goes_on() {
    let world = World::new(ACTING);
    let table = world.table(Table::plain(), "t").await;
    append_small(&table, 0, 9, 0).await;
    let process = world.start().await;
    process.seen.wrong.lock().unwrap().extend([Wrong::LoadPanics; 8]);
    process.report(&table).await;
    process
        .until("the work", async || {
            process.clock_passes(1_000);
            process.seen.rewrites() == 1 && data_files(&table).await == 1
        })
        .await;
    process.rest().await;
    process.nothing_is_stuck(&world).await;
    process.stop().await;
}
