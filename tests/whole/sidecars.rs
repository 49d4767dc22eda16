//! Several sidecars at the same tables, each with a journal of its own: one that sees
//! that another rewrites in a table leaves the table to it.

use std::sync::Arc;

use afterwrite::model::decision::{Reason, Verdict};

use super::world::{ACTING, Process, World, append_small};
use crate::fixture::Table;

const MINUTE: i64 = 60_000;

/// A machine of its own, at the same catalog.
fn beside(world: &World) -> World {
    World {
        catalog: world.catalog.clone(),
        clock: Arc::clone(&world.clock),
        journal: Arc::default(),
        checkpoints: Arc::default(),
        settings: Arc::clone(&world.settings),
        limits: world.limits,
        cache: world.cache,
    }
}

/// More small files than a rule lets lie, in one partition.
async fn grow(table: &Table, from: i64, p: i64) {
    append_small(table, from, 9, p).await;
}

async fn kept_out(process: &Process, table: &Table) -> usize {
    let kept_out = |verdict: &Verdict| matches!(verdict, Verdict::Not { reason: Reason::KeptOut { .. } });
    process.decisions(table).await.iter().filter(|decision| kept_out(&decision.verdict)).count()
}

#[tokio::test]
async fn what_one_sidecar_rewrites_is_left_to_it_and_taken_over_when_it_is_gone() {
    let world = World::new("[defaults]\nact = true\ncooldown = \"0s\"\ntarget_file_size = \"1MiB\"\n");
    let other = beside(&world);
    let table = world.table(Table::partitioned_by_p(), "t").await;
    let first = world.start().await;
    grow(&table, 0, 0).await;
    first.look_at(&table).await;
    assert_eq!(first.seen.rewrites(), 1);

    // the second hears of the table as soon as the first, and in other partitions too
    let second = other.start().await;
    assert_ne!(first.act.instance(), second.act.instance());
    grow(&table, 10, 0).await;
    grow(&table, 20, 1).await;
    second.look_at(&table).await;
    assert_eq!((second.seen.rewrites(), kept_out(&second, &table).await), (0, 2));
    first.look_at(&table).await;
    assert_eq!((first.seen.rewrites(), kept_out(&first, &table).await), (3, 0));

    // a commit later the first one is gone
    first.stop().await;
    grow(&table, 30, 1).await;
    second.look_at(&table).await;
    assert_eq!((second.seen.rewrites(), kept_out(&second, &table).await), (0, 2));
    second.pass(11 * MINUTE).await;
    assert_eq!((second.seen.rewrites(), kept_out(&second, &table).await), (1, 0));

    // and one that comes back leaves it to the second
    let first = world.start().await;
    grow(&table, 40, 0).await;
    first.look_at(&table).await;
    assert_eq!((first.seen.rewrites(), kept_out(&first, &table).await), (0, 2));
    second.look_at(&table).await;
    assert_eq!(second.seen.rewrites(), 2);
    assert_eq!(table.rows().await.len(), 45);
    for (process, world) in [(first, &world), (second, &other)] {
        process.nothing_is_stuck(world).await;
        process.stop().await;
    }
}

#[tokio::test]
async fn a_restart_with_the_same_journal_is_the_same_sidecar() {
    let world = World::new(ACTING);
    let table = world.table(Table::plain(), "t").await;
    grow(&table, 0, 0).await;
    let process = world.start().await;
    process.look_at(&table).await;
    process.stop().await;
    let process = world.start().await;
    world.clock.pass(MINUTE);
    grow(&table, 10, 0).await;
    process.look_at(&table).await;
    assert_eq!(kept_out(&process, &table).await, 0);
    process.stop().await;
}

#[tokio::test]
async fn two_sidecars_that_hear_of_every_commit_do_no_work_twice() {
    let world = World::new("[defaults]\nact = true\ncooldown = \"0s\"\ntarget_file_size = \"1MiB\"\n");
    let other = beside(&world);
    let table = world.table(Table::plain(), "t").await;
    let (first, second) = (world.start().await, other.start().await);
    grow(&table, 0, 0).await;
    first.look_at(&table).await;
    for round in 1..6 {
        for n in 0..9 {
            append_small(&table, round * 10 + n, 1, 0).await;
            // by turns, which hears first
            let (one, two) = if n % 2 == 0 { (&first, &second) } else { (&second, &first) };
            one.report(&table).await;
            two.report(&table).await;
        }
        first.rest().await;
        second.rest().await;
    }
    assert!(first.seen.rewrites() >= 5, "{}", first.seen.rewrites());
    assert_eq!((second.seen.rewrites(), table.rows().await.len()), (0, 54));
    first.stop().await;
    second.stop().await;
}
