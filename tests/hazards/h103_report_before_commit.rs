//! A report may come before its commit, or be of one that never happens.

use afterwrite::model::event::Heard;
use afterwrite::observe::Inbox;
use afterwrite::observe::inbox::{Depth, Limits};

use crate::observe::{HandClock, event};

fn limits() -> Limits {
    Limits { interval_ms: 0, retry_ms: 250, give_up_ms: 10_000, ..Limits::default() }
}

#[test]
fn h103_a_commit_two_seconds_after_its_report_is_found() {
    let clock = HandClock::at(0);
    let inbox = Inbox::new(clock.clone(), limits());
    inbox.hear(event("t", &[7], 0));
    let mut looks = Vec::new();
    for now in 0..5000_i64 {
        if let Some(look) = inbox.try_next() {
            looks.push(now);
            if now < 2000 { inbox.unseen(look, &[7]) } else { inbox.done(look) }
        }
        clock.pass(1);
    }
    assert_eq!(looks, [0, 250, 750, 1750, 3750]);
    assert_eq!(inbox.depth(), Depth::default());
}

#[test]
fn h103_a_commit_that_never_happens_is_let_go_after_the_poll_interval() {
    let clock = HandClock::at(0);
    let inbox = Inbox::new(clock.clone(), limits());
    inbox.hear(event("t", &[7], 0));
    let mut looks = Vec::new();
    for now in 0..60_000_i64 {
        if let Some(look) = inbox.try_next() {
            looks.push(now);
            inbox.unseen(look, &[7]);
        }
        clock.pass(1);
    }
    assert_eq!(looks, [0, 250, 750, 1750, 3750, 7750, 15_750]);
    assert_eq!(inbox.depth(), Depth::default());
}

#[test]
fn h103_the_true_report_after_a_vain_one_is_no_duplicate() {
    let clock = HandClock::at(0);
    let inbox = Inbox::new(clock.clone(), limits());
    inbox.hear(event("t", &[7], 0));
    let look = inbox.try_next().unwrap();
    inbox.unseen(look, &[7]);
    clock.pass(10);
    assert_eq!(inbox.hear(event("t", &[7], 10)), Heard::Accepted);
    let look = inbox.try_next().expect("a fresh report does not wait for the back-off");
    inbox.done(look);
    assert!(inbox.try_next().is_none());
}

#[test]
fn h103_snapshots_that_were_found_are_not_looked_for_again() {
    let clock = HandClock::at(0);
    let inbox = Inbox::new(clock.clone(), limits());
    inbox.hear(event("t", &[7, 8], 0));
    let look = inbox.try_next().unwrap();
    inbox.unseen(look, &[8]);
    clock.pass(250);
    assert_eq!(inbox.try_next().unwrap().hints, [8]);
}
