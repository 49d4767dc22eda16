//! Foreign events of several kinds, lost, doubled, shuffled and invented, through
//! the decoders and the entrance.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use afterwrite::model::event::{Door, Heard};
use afterwrite::model::wire::Wire;
use afterwrite::observe::decode::{Record, decode};
use afterwrite::observe::receipt::{Awaits, Receipt};
use afterwrite::serve::backend::Backend;
use serde_json::json;

use super::events::Dice;
use super::world::{Process, World};
use crate::fixture::{Table, row};

/// Where receipts come back to.
#[derive(Default)]
struct Desk(Mutex<BTreeSet<i64>>);

impl Awaits for Desk {
    fn absorbed(&self, ticket: i64) {
        assert!(self.0.lock().unwrap().insert(ticket), "a receipt comes back once");
    }
}

/// One commit as four systems tell of it.
fn told(table: &Table, snapshot: i64, location: &str) -> [(Wire, String); 4] {
    let name = &table.name;
    let report = json!({ "report-type": "commit-report", "table-name": name.to_string(), "snapshot-id": snapshot, "operation": "append" });
    let polaris = json!({ "event_type": "AFTER_UPDATE_TABLE", "namespace": name.namespace, "table_name": name.table });
    [
        (Wire::Json, json!({ "table": name.to_string(), "snapshots": [{ "snapshotId": snapshot.to_string() }] }).to_string()),
        (Wire::IcebergReport, report.to_string()),
        (Wire::Polaris, polaris.to_string()),
        (Wire::Hudi, json!({ "commitTime": "1", "basePath": location }).to_string()),
    ]
}

/// Reads and hears a record; gives back the tickets given in.
fn hear(process: &Process, desk: &Arc<Desk>, wire: Wire, body: &str, tickets: &mut i64) {
    let entrance = process.ooda.entrance().unwrap();
    let source = entrance.ledger().source(Door::Kafka, wire.name());
    source.received(0);
    for draft in decode(wire, &Record::of(body.as_bytes())).unwrap() {
        for event in entrance.resolve(draft, Door::Kafka, Some("lake")).unwrap() {
            let to: Arc<Desk> = Arc::clone(desk);
            assert_ne!(entrance.hear(&source, event, Some(&Receipt::new(to, *tickets))), Heard::Full);
            *tickets += 1;
        }
    }
}

#[tokio::test]
async fn foreign_events_that_are_lost_doubled_shuffled_and_invented_leave_every_layout_right() {
    let world = World::new("[defaults]\nact = true\ncooldown = \"0s\"\ntarget_file_size = \"1MiB\"\n");
    let (mut tables, mut locations) = (Vec::new(), Vec::new());
    for n in 0..4 {
        let table = world.table(Table::partitioned_by_p(), &format!("t{n}")).await;
        locations.push(table.load().await.view.location.clone());
        tables.push(table);
    }
    let process = world.start().await;
    process.poller.once().await.unwrap();
    let (mut dice, mut late, mut tickets) = (Dice(17), Vec::new(), 0);
    let desk = Arc::<Desk>::default();
    for id in 0..48 {
        let at = dice.roll(4) as usize;
        tables[at].append([row(id, "v", dice.roll(2) as i64)]).await;
        let head = tables[at].head().await;
        for (wire, body) in told(&tables[at], head, &locations[at]) {
            let copies = match dice.roll(100) {
                0..30 => 0,
                30..60 => 2,
                _ => 1,
            };
            late.extend((0..copies).map(|_| (wire, body.clone())));
        }
        if dice.roll(5) == 0 {
            let other = dice.roll(4) as usize;
            late.extend(told(&tables[other], dice.roll(1 << 40) as i64, &locations[other]));
        }
        for _ in 0..dice.roll(6) {
            if !late.is_empty() {
                let (wire, body) = late.swap_remove(dice.roll(late.len() as u64) as usize);
                hear(&process, &desk, wire, &body, &mut tickets);
            }
        }
        tokio::task::yield_now().await;
    }
    while !late.is_empty() {
        let (wire, body) = late.swap_remove(dice.roll(late.len() as u64) as usize);
        hear(&process, &desk, wire, &body, &mut tickets);
    }
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
    assert_eq!(desk.0.lock().unwrap().iter().copied().collect::<Vec<_>>(), (0..tickets).collect::<Vec<_>>());
    process.stop().await;
}

#[tokio::test]
async fn one_commit_told_by_four_systems_is_one_look_and_one_piece_of_work() {
    let world = World::new("[defaults]\nact = true\ncooldown = \"0s\"\ntarget_file_size = \"1MiB\"\n");
    let table = world.table(Table::plain(), "t").await;
    super::world::append_small(&table, 0, 9, 0).await;
    let process = world.start().await;
    process.poller.once().await.unwrap();
    process.rest().await;
    assert_eq!(process.seen.rewrites(), 1);
    super::world::append_small(&table, 9, 1, 0).await;
    let (head, location) = (table.head().await, table.load().await.view.location.clone());
    let (before, desk, mut tickets) = (process.seen.loads(), Arc::<Desk>::default(), 0);
    for (wire, body) in told(&table, head, &location) {
        hear(&process, &desk, wire, &body, &mut tickets);
    }
    process.rest().await;
    assert_eq!((process.seen.loads() - before, process.seen.rewrites(), tickets), (1, 1, 4));
    assert_eq!(desk.0.lock().unwrap().len(), 4);
    world.layout_is_right(&process, &table).await;
    process.stop().await;
}
