//! Laws of the inbox over any interleaving.

use std::collections::{BTreeMap, BTreeSet};

use afterwrite::model::event::Heard;
use afterwrite::observe::Inbox;
use afterwrite::observe::inbox::{Depth, Limits, Look};
use proptest::prelude::*;

use super::{HandClock, event};

#[derive(Clone, Debug)]
enum Act {
    Hear { table: u8, snapshots: Vec<i64> },
    Next,
    Done(usize),
    Unseen(usize),
    Fail(usize),
    Pass(i64),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => (0..4_u8, prop::collection::vec(0..6_i64, 0..3)).prop_map(|(table, snapshots)| Act::Hear { table, snapshots }),
        3 => Just(Act::Next),
        2 => (0..4_usize).prop_map(Act::Done),
        1 => (0..4_usize).prop_map(Act::Unseen),
        1 => (0..4_usize).prop_map(Act::Fail),
        2 => (0..400_i64).prop_map(Act::Pass),
    ]
}

/// What must be true of a table, kept beside the inbox.
#[derive(Default)]
struct Book {
    /// Tables for which an event was accepted after their last look began.
    owed: BTreeSet<String>,
    /// Snapshots accepted of each table.
    accepted: BTreeMap<String, BTreeSet<i64>>,
}

fn limits(interval_ms: i64, looks_per_second: u32, max_tables: usize) -> Limits {
    Limits { interval_ms, looks_per_second, max_tables, retry_ms: 50, give_up_ms: 600, ..Limits::default() }
}

fn take(looks: &mut Vec<Look>, at: usize) -> Option<Look> {
    (at < looks.len()).then(|| looks.swap_remove(at))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn no_accepted_event_is_lost_and_no_table_is_looked_at_twice_at_once(
        acts in prop::collection::vec(act(), 0..60),
        interval_ms in prop_oneof![Just(0_i64), Just(150)],
        looks_per_second in prop_oneof![Just(0_u32), Just(5)],
        max_tables in prop_oneof![Just(100_usize), Just(2)],
    ) {
        let clock = HandClock::at(1_000_000);
        let inbox = Inbox::new(clock.clone(), limits(interval_ms, looks_per_second, max_tables));
        let mut book = Book::default();
        let mut looks: Vec<Look> = Vec::new();
        for act in acts {
            match act {
                Act::Hear { table, snapshots } => {
                    let table = format!("t{table}");
                    match inbox.hear(event(&table, &snapshots, 0)) {
                        Heard::Accepted => {
                            book.owed.insert(table.clone());
                            book.accepted.entry(table).or_default().extend(snapshots);
                        }
                        Heard::Duplicate => {
                            let known = book.accepted.get(&table);
                            prop_assert!(!snapshots.is_empty() && snapshots.iter().all(|s| known.is_some_and(|k| k.contains(s))));
                        }
                        Heard::Full => prop_assert!(!book.owed.contains(&table), "what is pending is merged, never refused"),
                    }
                }
                Act::Next => {
                    if let Some(look) = inbox.try_next() {
                        prop_assert!(looks.iter().all(|l| l.name != look.name), "two looks at {} at once", look.name);
                        book.owed.remove(&look.name.table);
                        looks.push(look);
                    }
                }
                Act::Done(at) => {
                    if let Some(look) = take(&mut looks, at) {
                        inbox.done(look);
                    }
                }
                Act::Unseen(at) => {
                    if let Some(look) = take(&mut looks, at) {
                        let hints = look.hints.clone();
                        inbox.unseen(look, &hints);
                    }
                }
                Act::Fail(at) => {
                    if let Some(look) = take(&mut looks, at) {
                        book.owed.insert(look.name.table.clone());
                        inbox.failed(look);
                    }
                }
                Act::Pass(ms) => clock.pass(ms),
            }
            prop_assert_eq!(inbox.depth().looking, looks.len());
        }
        for look in looks.drain(..) {
            inbox.done(look);
        }
        for _ in 0..100 {
            clock.pass(200);
            while let Some(look) = inbox.try_next() {
                book.owed.remove(&look.name.table);
                inbox.done(look);
            }
        }
        prop_assert!(book.owed.is_empty(), "events of {:?} were lost", book.owed);
        prop_assert_eq!(inbox.depth(), Depth::default());
    }
}
