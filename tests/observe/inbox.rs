use std::sync::Arc;
use std::time::Duration;

use afterwrite::model::event::Heard;
use afterwrite::observe::Inbox;
use afterwrite::observe::inbox::{Depth, Limits};

use super::{HandClock, event, free, name};

fn inbox(limits: Limits) -> (Arc<HandClock>, Inbox) {
    let clock = HandClock::at(1_000_000);
    (clock.clone(), Inbox::new(clock, limits))
}

#[test]
fn many_events_of_one_table_are_one_look_with_all_their_snapshots() {
    let (_, inbox) = inbox(free());
    for (snapshot, heard_ms) in [(7, 12), (9, 10), (8, 11)] {
        assert_eq!(inbox.hear(event("t", &[snapshot], heard_ms)), Heard::Accepted);
    }
    let look = inbox.try_next().unwrap();
    assert_eq!(
        (look.name.clone(), look.reference.as_str(), look.hints.as_slice(), look.oldest_heard_ms),
        (name("t"), "main", &[7, 8, 9][..], 10)
    );
    assert!(inbox.try_next().is_none());
    inbox.done(look);
    assert!(inbox.try_next().is_none());
    assert_eq!(inbox.depth(), Depth::default());
}

#[test]
fn branches_of_one_table_are_looked_at_apart() {
    let (_, inbox) = inbox(free());
    let mut other = event("t", &[1], 0);
    other.reference = Some("audit".into());
    inbox.hear(event("t", &[1], 1));
    inbox.hear(other);
    let looks = [inbox.try_next().unwrap(), inbox.try_next().unwrap()];
    assert_eq!(looks.each_ref().map(|l| l.reference.as_str()), ["audit", "main"]);
}

#[test]
fn an_event_heard_during_a_look_makes_one_more_look_after_it() {
    let (_, inbox) = inbox(free());
    inbox.hear(event("t", &[1], 0));
    let first = inbox.try_next().unwrap();
    inbox.hear(event("t", &[2], 0));
    inbox.hear(event("t", &[3], 0));
    assert!(inbox.try_next().is_none(), "at most one look at a table is under way");
    assert_eq!(inbox.depth(), Depth { pending: 1, looking: 1, oldest_heard_ms: Some(0) });
    inbox.done(first);
    let second = inbox.try_next().unwrap();
    assert_eq!(second.hints, [2, 3]);
    inbox.done(second);
    assert!(inbox.try_next().is_none());
}

#[test]
fn a_snapshot_heard_of_before_is_a_duplicate_for_a_while() {
    let (clock, inbox) = inbox(Limits { remember_ms: 500, ..free() });
    assert_eq!(inbox.hear(event("t", &[1, 2], 0)), Heard::Accepted);
    assert_eq!(inbox.hear(event("t", &[2], 0)), Heard::Duplicate);
    assert_eq!(inbox.hear(event("u", &[2], 0)), Heard::Accepted, "snapshot ids are a table's own");
    assert_eq!(inbox.hear(event("t", &[2, 3], 0)), Heard::Accepted, "one of them is new");
    assert_eq!(inbox.hear(event("t", &[], 0)), Heard::Accepted, "a bare name says that something is new");
    clock.pass(500);
    assert_eq!(inbox.hear(event("t", &[2], 0)), Heard::Accepted);
}

#[test]
fn a_full_inbox_says_so_and_still_takes_what_it_can_merge() {
    let (_, inbox) = inbox(Limits { max_tables: 2, ..free() });
    let heard = ["a", "b", "c", "a"].map(|t| inbox.hear(event(t, &[], 0)));
    assert_eq!(heard, [Heard::Accepted, Heard::Accepted, Heard::Full, Heard::Accepted]);
    inbox.done(inbox.try_next().unwrap());
    assert_eq!(inbox.hear(event("c", &[], 0)), Heard::Accepted);
}

#[test]
fn an_event_refused_because_the_inbox_is_full_is_no_duplicate_later() {
    let (_, inbox) = inbox(Limits { max_tables: 1, ..free() });
    inbox.hear(event("a", &[1], 0));
    assert_eq!(inbox.hear(event("b", &[1], 0)), Heard::Full);
    inbox.done(inbox.try_next().unwrap());
    assert_eq!(inbox.hear(event("b", &[1], 0)), Heard::Accepted);
}

#[test]
fn hints_are_bounded_and_the_look_is_made_all_the_same() {
    let (_, inbox) = inbox(Limits { max_hints: 3, ..free() });
    inbox.hear(event("t", &(0..100).collect::<Vec<_>>(), 0));
    assert_eq!(inbox.try_next().unwrap().hints, [97, 98, 99]);
}

#[test]
fn looks_at_one_table_begin_an_interval_apart() {
    let (clock, inbox) = inbox(Limits { interval_ms: 200, ..free() });
    inbox.hear(event("t", &[1], 0));
    inbox.done(inbox.try_next().expect("the first look does not wait"));
    inbox.hear(event("t", &[2], 0));
    clock.pass(199);
    assert!(inbox.try_next().is_none());
    clock.pass(1);
    assert_eq!(inbox.try_next().unwrap().hints, [2]);
}

#[test]
fn a_catalog_is_looked_into_so_often_a_second_and_others_do_not_wait_for_it() {
    let (clock, inbox) = inbox(Limits { looks_per_second: 2, ..free() });
    for table in ["a", "b", "c", "d"] {
        inbox.hear(event(table, &[], 0));
    }
    let mut other = event("z", &[], 5);
    other.table.catalog = "pond".into();
    inbox.hear(other);
    let taken: Vec<String> = std::iter::from_fn(|| inbox.try_next())
        .map(|look| {
            let table = look.name.table.clone();
            inbox.done(look);
            table
        })
        .collect();
    assert_eq!(taken, ["a", "b", "z"]);
    clock.pass(499);
    assert!(inbox.try_next().is_none());
    clock.pass(1);
    let third = inbox.try_next().unwrap();
    assert_eq!(third.name.table, "c");
    assert!(inbox.try_next().is_none());
}

#[test]
fn more_files_go_first_but_nobody_waits_for_ever() {
    let (clock, inbox) = inbox(free());
    let mut big = event("big", &[], 0);
    big.files_added = 1023;
    inbox.hear(event("small", &[], 0));
    clock.pass(1000);
    inbox.hear(big.clone());
    let look = inbox.try_next().unwrap();
    assert_eq!((look.name.table.as_str(), look.priority), ("big", 1023));
    inbox.done(look);
    clock.pass(1501);
    inbox.hear(big);
    assert_eq!(inbox.try_next().unwrap().name.table, "small", "ten doublings are a head start of 2.5 s");
}

#[test]
fn tables_that_are_looked_at_in_vain_keep_no_other_from_its_look() {
    let (clock, inbox) = inbox(Limits { looks_per_second: 2, retry_ms: 1, ..free() });
    let mut looked = Vec::new();
    for step in 0..8 {
        if step == 2 {
            inbox.hear(event("news", &[1], 0));
        }
        // what they are told of is never there, and is looked for again
        for table in ["a", "b", "c"] {
            inbox.hear(event(table, &[step], 0));
        }
        clock.pass(500);
        while let Some(look) = inbox.try_next() {
            looked.push(look.name.table.clone());
            let hints = look.hints.clone();
            if look.name.table == "news" { inbox.done(look) } else { inbox.unseen(look, &hints) }
        }
    }
    let at = looked.iter().position(|table| table == "news");
    assert!(at.is_some_and(|at| at < 8), "{looked:?}");
}

#[test]
fn a_look_dropped_unfinished_is_made_again_after_a_pause_that_doubles() {
    let (clock, inbox) = inbox(Limits { retry_ms: 100, give_up_ms: 350, ..free() });
    inbox.hear(event("t", &[1], 7));
    let mut pauses = Vec::new();
    for _ in 0..4 {
        drop(inbox.try_next().unwrap());
        let mut pause = 0;
        let look = loop {
            match inbox.try_next() {
                Some(look) => break look,
                None => {
                    clock.pass(50);
                    pause += 50;
                }
            }
        };
        assert_eq!((look.hints.as_slice(), look.oldest_heard_ms), (&[1][..], 7));
        pauses.push(pause);
        drop(look);
        clock.pass(350);
    }
    assert_eq!(pauses, [100, 350, 350, 350]);
}

#[tokio::test]
async fn a_waiting_loop_wakes_when_an_event_comes_and_when_time_passes() {
    let (clock, inbox) = inbox(Limits { interval_ms: 200, ..free() });
    let taker = inbox.clone();
    let taken = tokio::spawn(async move {
        let mut hints = Vec::new();
        while let Some(look) = taker.next().await {
            hints.push(look.hints.clone());
            taker.done(look);
        }
        hints
    });
    tokio::time::sleep(Duration::from_millis(20)).await;
    inbox.hear(event("t", &[1], 0));
    tokio::time::sleep(Duration::from_millis(20)).await;
    inbox.hear(event("t", &[2], 0));
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(inbox.depth().pending, 1);
    clock.pass(200);
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(inbox.depth().pending, 0);
    inbox.close();
    assert_eq!(taken.await.unwrap(), [vec![1], vec![2]]);
}

#[tokio::test]
async fn several_loops_share_the_looks_and_all_end_when_it_is_closed() {
    let (_, inbox) = inbox(free());
    let loops: Vec<_> = (0..3)
        .map(|_| {
            let inbox = inbox.clone();
            tokio::spawn(async move {
                let mut looks = 0;
                while let Some(look) = inbox.next().await {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                    inbox.done(look);
                    looks += 1;
                }
                looks
            })
        })
        .collect();
    for table in 0..30 {
        inbox.hear(event(&format!("t{table}"), &[], 0));
    }
    while inbox.depth() != Depth::default() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    inbox.close();
    let mut looks = Vec::new();
    for each in loops {
        looks.push(each.await.unwrap());
    }
    assert_eq!(looks.iter().sum::<i32>(), 30);
    assert!(looks.iter().all(|n| *n > 0), "{looks:?}");
}

#[test]
fn a_source_is_behind_by_the_events_whose_look_is_not_over() {
    let (clock, inbox) = inbox(free());
    let now = 1_000_000;
    let behind = |now_ms| {
        let rows = inbox.ledger().rows(now_ms);
        rows.into_iter().map(|row| (row.lag.unwrap(), row.staleness_ms.unwrap())).collect::<Vec<_>>()
    };
    for (table, snapshot, heard_ms) in [("t", 1, now), ("t", 2, now + 5), ("u", 3, now + 10)] {
        assert_eq!(inbox.hear(event(table, &[snapshot], heard_ms)), Heard::Accepted);
    }
    inbox.hear(event("t", &[1], now + 20));
    assert_eq!(behind(now + 30), [(3, 30)], "a duplicate waits for nothing of its own");
    let look = inbox.try_next().unwrap();
    assert_eq!(behind(now + 40), [(3, 40)], "a look under way is not over");
    inbox.failed(look);
    assert_eq!(behind(now + 50), [(3, 50)], "one that failed is not over either");
    clock.pass(60_000);
    while let Some(look) = inbox.try_next() {
        let hints = look.hints.clone();
        if look.name.table == "t" { inbox.done(look) } else { inbox.unseen(look, &hints) }
    }
    assert_eq!(behind(now + 60_000), [(0, 0)], "what is not there yet is not waited for");
}

#[test]
fn a_clock_set_back_does_not_silence_a_table() {
    let (clock, inbox) = inbox(Limits { interval_ms: 200, ..free() });
    inbox.hear(event("t", &[1], 0));
    inbox.done(inbox.try_next().unwrap());
    clock.pass(-900_000);
    inbox.hear(event("t", &[2], 0));
    assert_eq!(inbox.try_next().unwrap().hints, [2]);
}
