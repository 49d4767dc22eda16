//! Events may be lost, doubled, shuffled and invented: after one poll all is right.

use afterwrite::model::decision::Reason;
use afterwrite::observe::inbox::Limits;
use afterwrite::serve::backend::Backend;

use super::world::{ACTING, World, append_small, data_files, event};
use crate::fixture::{Table, row};

/// A small generator of numbers, for the same run every time.
pub struct Dice(pub u64);

impl Dice {
    pub fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

/// Writes 60 commits to 5 tables, with events lost (30 %), doubled (30 %),
/// invented (5 %) and sent late, in any order; then polls once.
async fn storm(toml: &str) {
    for seed in [91, 92, 93] {
        storm_of(toml, seed).await;
    }
}

async fn storm_of(toml: &str, seed: u64) {
    let world = World::new(toml);
    let mut tables = Vec::new();
    for n in 0..5 {
        tables.push(world.table(Table::partitioned_by_p(), &format!("t{n}")).await);
    }
    let process = world.start().await;
    let (mut dice, mut late) = (Dice(seed), Vec::new());
    let (mut lost, mut doubled, mut invented) = (0, 0, 0);
    for id in 0..60 {
        let table = &tables[dice.roll(5) as usize];
        let made = table.append([row(id, "v", dice.roll(2) as i64)]).await;
        if dice.roll(5) == 0 {
            table.change().delete_positions(&[(&made, 0)]).commit().await;
        }
        let copies = match dice.roll(100) {
            0..30 => 0,
            30..60 => 2,
            _ => 1,
        };
        lost += usize::from(copies == 0);
        doubled += usize::from(copies == 2);
        let head = table.head().await;
        late.extend((0..copies).map(|_| event(&table.name, &[head], 0)));
        if dice.roll(20) == 0 {
            invented += 1;
            late.push(event(&tables[dice.roll(5) as usize].name, &[dice.roll(1 << 30) as i64], 0));
        }
        if dice.roll(3) == 0 && !late.is_empty() {
            let at = dice.roll(late.len() as u64) as usize;
            process.ooda.hear(late.swap_remove(at));
        }
        tokio::task::yield_now().await;
    }
    while !late.is_empty() {
        let at = dice.roll(late.len() as u64) as usize;
        process.ooda.hear(late.swap_remove(at));
    }
    assert!(lost > 8 && doubled > 8 && invented > 0, "seed {seed}: {lost} lost, {doubled} doubled, {invented} invented");
    process.until("the looks", async || process.ooda.health().jobs == 0 && process.inbox.depth().looking == 0).await;
    // one listing, as each interval brings one, is all that is needed
    process.poller.once().await.unwrap();
    process.until("every head", async || process.knows_heads(&tables).await).await;
    // what was invented is looked for until then
    process.clock_passes(60_000);
    process.rest().await;
    for table in &tables {
        world.layout_is_right(&process, table).await;
    }
    process.nothing_is_stuck(&world).await;
    process.stop().await;
}

#[tokio::test]
async fn h91_after_one_poll_every_layout_is_that_of_a_recomputation() {
    storm("[defaults]\ntarget_file_size = \"1MiB\"\n").await;
}

#[tokio::test]
async fn h91_also_while_the_loop_compacts() {
    storm("[defaults]\nact = true\ncooldown = \"0s\"\ntarget_file_size = \"1MiB\"\n").await;
}

#[tokio::test]
async fn a_commit_without_an_event_is_found_and_compacted_by_the_poller() {
    let world = World::new(ACTING);
    let table = world.table(Table::plain(), "t").await;
    append_small(&table, 0, 9, 0).await;
    let process = world.start().await;
    assert_eq!(process.poller.once().await.unwrap().moved, std::slice::from_ref(&table.name));
    process.rest().await;
    assert_eq!((process.seen.rewrites(), data_files(&table).await), (1, 1));
    // and our own commit is no news
    assert_eq!(process.poller.once().await.unwrap().moved, []);
    process.stop().await;
}

#[tokio::test]
async fn a_table_reported_before_its_catalog_has_it_is_looked_for_until_it_is_there() {
    let world = World::new(ACTING);
    let process = world.start().await;
    let table = World::new(ACTING).table(Table::plain(), "t").await;
    process.ooda.hear(event(&table.name, &[42], process.ooda.now_ms()));
    process.until("a look", async || process.seen.loads() == 1).await;
    let table = world.table(Table::plain(), "t").await;
    process.until("another look", async || process.ooda.get_layout(&table.name, "main").await.is_ok()).await;
    process.stop().await;
}

#[tokio::test]
async fn h92_a_storm_of_reports_is_one_look_a_table_and_interval() {
    let world = World::new("[defaults]\ntarget_file_size = \"1MiB\"\n").with_limits(Limits {
        interval_ms: 60_000,
        looks_per_second: 0,
        ..Limits::default()
    });
    let mut tables = Vec::new();
    for n in 0..20 {
        let table = world.table(Table::plain(), &format!("t{n}")).await;
        append_small(&table, 0, 2, 0).await;
        tables.push(table);
    }
    let process = world.start().await;
    let before = process.seen.loads();
    for round in 0..100 {
        for table in &tables {
            process.ooda.hear(event(&table.name, &[], round));
        }
        tokio::task::yield_now().await;
    }
    process.until("the looks", async || process.seen.loads() - before == 20).await;
    for _ in 0..50 {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    assert_eq!(process.seen.loads() - before, 20);
    // what came meanwhile is one look more for each, once the interval is over
    process.clock_passes(60_000);
    process.until("the second looks", async || process.seen.loads() - before == 40).await;
    process.rest().await;
    assert_eq!(process.seen.loads() - before, 40);
    for table in &tables {
        world.layout_is_right(&process, table).await;
    }
    process.stop().await;
}

#[tokio::test]
async fn the_catalog_is_asked_no_more_than_the_work_needs() {
    // without a cooldown nothing but what the loop knows keeps it from planning again
    let world = World::new("[defaults]\nact = true\ntarget_file_size = \"1MiB\"\ncooldown = \"0s\"\n");
    let table = world.table(Table::plain(), "t").await;
    append_small(&table, 0, 9, 0).await;
    let process = world.start().await;
    let before = process.seen.loads();
    process.look_at(&table).await;
    // a look, a plan, the dequeue, the commit, and the look at our own commit
    assert_eq!(process.seen.loads() - before, 5);
    process.stop().await;
}

#[tokio::test]
async fn nothing_is_decided_about_a_partition_before_its_own_rewrite_was_seen() {
    let world = World::new("[defaults]\nact = true\ntarget_file_size = \"1MiB\"\ncooldown = \"0s\"\n");
    let table = world.table(Table::plain(), "t").await;
    append_small(&table, 0, 9, 0).await;
    let process = world.idle().await;
    process.ooda.look(&table.name, "main", &[]).await.unwrap();
    process.ooda.round().await;
    process.until("the work", async || data_files(&table).await == 1 && process.ooda.health().jobs == 0).await;
    // when rounds are made before the look at our own commit
    let loads = process.seen.loads();
    for _ in 0..3 {
        process.ooda.round().await;
        process.clock_passes(100);
    }
    assert_eq!((process.reason(&table).await, process.seen.loads() - loads), (Reason::InFlight, 0));
    // then that look frees it
    process.ooda.look(&table.name, "main", &[]).await.unwrap();
    assert_eq!(process.reason(&table).await, Reason::Healthy);
}
