//! Receipts: handed back when, and only when, a look that covers the event has
//! been absorbed.

use std::sync::{Arc, Mutex};

use afterwrite::model::event::{Door, Event, Heard};
use afterwrite::observe::inbox::Limits;
use afterwrite::observe::receipt::{Awaits, Receipt};
use afterwrite::observe::{Entrance, Inbox, Roster};

use super::{HandClock, event, free, name};

/// Notes what comes back.
#[derive(Default)]
struct Desk(Mutex<Vec<i64>>);

impl Awaits for Desk {
    fn absorbed(&self, ticket: i64) {
        self.0.lock().unwrap().push(ticket);
    }
}

impl Desk {
    fn back(&self) -> Vec<i64> {
        let mut back = std::mem::take(&mut *self.0.lock().unwrap());
        back.sort_unstable();
        back
    }
}

struct World {
    clock: Arc<HandClock>,
    inbox: Inbox,
    desk: Arc<Desk>,
}

impl World {
    fn new(limits: Limits) -> Self {
        let clock = HandClock::at(1_000_000);
        Self { inbox: Inbox::new(clock.clone(), limits), clock, desk: Arc::default() }
    }

    fn hear(&self, table: &str, snapshots: &[i64], ticket: i64) -> Heard {
        let receipt = Receipt::new(self.desk.clone(), ticket);
        let source = self.inbox.ledger().source(Door::Kafka, "topic");
        self.inbox.hear_for(event(table, snapshots, 0), &source, Some(&receipt))
    }
}

#[test]
fn every_event_merged_into_a_look_is_receipted_when_it_is_absorbed() {
    let world = World::new(free());
    for ticket in 0..3 {
        assert_eq!(world.hear("t", &[ticket], ticket), Heard::Accepted);
    }
    world.hear("u", &[], 9);
    let look = world.inbox.try_next().unwrap();
    assert_eq!((look.name.clone(), world.desk.back()), (name("t"), vec![]));
    world.inbox.done(look);
    assert_eq!(world.desk.back(), [0, 1, 2]);
}

#[test]
fn an_event_heard_during_a_look_waits_for_the_next_one() {
    let world = World::new(free());
    world.hear("t", &[1], 1);
    let first = world.inbox.try_next().unwrap();
    world.hear("t", &[2], 2);
    world.inbox.done(first);
    assert_eq!(world.desk.back(), [1]);
    world.inbox.done(world.inbox.try_next().unwrap());
    assert_eq!(world.desk.back(), [2]);
}

#[test]
fn a_look_that_fails_keeps_its_receipts_for_the_next_one() {
    let world = World::new(free());
    world.hear("t", &[1], 1);
    world.inbox.failed(world.inbox.try_next().unwrap());
    world.hear("t", &[2], 2);
    assert!(world.desk.back().is_empty());
    world.clock.pass(1000);
    world.inbox.done(world.inbox.try_next().unwrap());
    assert_eq!(world.desk.back(), [1, 2]);
}

#[test]
fn a_duplicate_waits_for_the_look_of_the_first() {
    let world = World::new(free());
    world.hear("t", &[1], 1);
    assert_eq!(world.hear("t", &[1], 2), Heard::Duplicate);
    let look = world.inbox.try_next().unwrap();
    assert_eq!(world.hear("t", &[1], 3), Heard::Duplicate);
    assert!(world.desk.back().is_empty());
    world.inbox.done(look);
    assert_eq!(world.desk.back(), [1, 2, 3]);
    assert_eq!(world.hear("t", &[1], 4), Heard::Duplicate);
    assert_eq!(world.desk.back(), [4], "its look is over");
}

#[test]
fn a_snapshot_that_is_not_there_is_receipted_and_still_looked_for() {
    let world = World::new(free());
    world.hear("t", &[7], 1);
    world.inbox.unseen(world.inbox.try_next().unwrap(), &[7]);
    assert_eq!(world.desk.back(), [1]);
    world.clock.pass(1000);
    let again = world.inbox.try_next().unwrap();
    assert_eq!(again.hints, [7]);
    world.inbox.done(again);
    assert!(world.desk.back().is_empty());
}

#[test]
fn a_full_inbox_keeps_no_receipt_and_a_closed_one_hands_none_back() {
    let world = World::new(Limits { max_tables: 1, ..free() });
    world.hear("t", &[1], 1);
    assert_eq!(world.hear("u", &[1], 2), Heard::Full);
    let look = world.inbox.try_next().unwrap();
    world.hear("t", &[2], 3);
    world.inbox.close();
    drop(look);
    drop(world.inbox);
    assert!(world.desk.back().is_empty());
}

/// The same commit through four doors: one look, one unit of work.
#[test]
fn one_commit_heard_through_every_door_is_one_look() {
    let world = World::new(free());
    let entrance = Entrance::new(world.inbox.clone(), Arc::new(Roster::new(["lake".to_owned()])), world.clock.clone(), vec!["lake".into()]);
    let through = |door: Door| Event { door, ..event("t", &[42], 1_000_000) };
    let (kafka, http) = (entrance.ledger().source(Door::Kafka, "commits"), entrance.ledger().source(Door::Http, "/v1/commits"));
    let receipt = Receipt::new(world.desk.clone(), 5);
    let heard = [
        world.inbox.hear(through(Door::Grpc)),
        entrance.hear(&kafka, through(Door::Kafka), Some(&receipt)),
        entrance.hear(&http, through(Door::Http), None),
        // a listing names no snapshot: it joins what waits
        world.inbox.hear(Event { snapshots: vec![], ..through(Door::Poll) }),
    ];
    assert_eq!(heard, [Heard::Accepted, Heard::Duplicate, Heard::Duplicate, Heard::Accepted]);
    let look = world.inbox.try_next().unwrap();
    assert_eq!(look.hints, [42]);
    world.inbox.done(look);
    assert!(world.inbox.try_next().is_none());
    assert_eq!(world.desk.back(), [5]);
    let rows: Vec<(Door, String, u64, u64)> =
        world.inbox.ledger().rows(0).into_iter().map(|r| (r.door, r.source, r.accepted, r.duplicate)).collect();
    let row = |door, source: &str, accepted, duplicate| (door, source.to_owned(), accepted, duplicate);
    assert_eq!(
        rows,
        [row(Door::Grpc, "", 1, 0), row(Door::Http, "/v1/commits", 0, 1), row(Door::Kafka, "commits", 0, 1), row(Door::Poll, "lake", 1, 0)]
    );
}

/// A side to which the first that is open says all: what joins it, and what comes back.
#[derive(Default)]
struct Joining(Mutex<(Vec<i64>, Vec<i64>)>);

impl Awaits for Joining {
    fn absorbed(&self, ticket: i64) {
        self.0.lock().unwrap().1.push(ticket);
    }

    fn joins(&self, later: i64, first: i64) -> bool {
        assert!(first <= later);
        self.0.lock().unwrap().0.push(later);
        true
    }
}

#[test]
fn of_a_table_that_cannot_be_looked_at_a_side_waits_for_no_more_than_the_first() {
    let (world, sides) = (World::new(free()), [Arc::<Joining>::default(), Arc::default()]);
    let source = world.inbox.ledger().source(Door::Kafka, "topic");
    let hear = |side: usize, ticket: i64| {
        let side: Arc<Joining> = Arc::clone(&sides[side]);
        assert_eq!(world.inbox.hear_for(event("t", &[ticket], 0), &source, Some(&Receipt::new(side, ticket))), Heard::Accepted);
    };
    for ticket in 0..100 {
        hear(0, ticket);
        hear(1, 1_000 - ticket);
        if ticket % 10 == 0 {
            let look = world.inbox.try_next().unwrap();
            world.inbox.failed(look);
            world.clock.pass(3_600_000);
        }
    }
    let told = |side: usize| std::mem::take(&mut *sides[side].0.lock().unwrap());
    for (side, first) in [(0, 0), (1, 901)] {
        let (joined, back) = told(side);
        assert_eq!((joined.len(), joined.contains(&first), back), (99, false, vec![]));
    }
    let look = world.inbox.try_next().unwrap();
    world.inbox.done(look);
    assert_eq!([told(0).1, told(1).1], [vec![0], vec![901]]);
}
