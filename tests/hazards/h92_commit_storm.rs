//! Thousands of commits must not become thousands of catalog loads.

use afterwrite::model::event::Heard;
use afterwrite::observe::Inbox;
use afterwrite::observe::inbox::{Depth, Limits};

use crate::observe::{HandClock, event};

#[test]
fn h92_ten_thousand_events_in_a_second_are_at_most_one_load_a_table_and_window() {
    // given a storm of 10,000 commits to 100 tables in one second, and a loop
    // that looks as soon as it may
    let clock = HandClock::at(1_000_000);
    let inbox = Inbox::new(clock.clone(), Limits { interval_ms: 1000, looks_per_second: 1000, ..Limits::default() });
    let mut loads = Vec::new();
    let mut heard = 0_i64;
    // when three seconds pass, the storm being the first
    for _ in 0..3 {
        let mut window = 0;
        for _ in 0..1000 {
            for _ in 0..10 {
                if heard < 10_000 {
                    assert_eq!(inbox.hear(event(&format!("t{}", heard % 100), &[heard], 0)), Heard::Accepted);
                    heard += 1;
                }
            }
            while let Some(look) = inbox.try_next() {
                window += 1;
                inbox.done(look);
            }
            clock.pass(1);
        }
        loads.push(window);
    }
    // then every table is loaded once in its window, once more for what came
    // meanwhile, and not again
    assert_eq!(loads, [100, 100, 0]);
    assert_eq!(inbox.depth(), Depth::default());
}

#[test]
fn h92_a_storm_over_many_tables_is_held_to_the_catalogs_rate() {
    let clock = HandClock::at(1_000_000);
    let inbox = Inbox::new(clock.clone(), Limits { looks_per_second: 50, ..Limits::default() });
    for table in 0..10_000 {
        assert_eq!(inbox.hear(event(&format!("t{table}"), &[], 0)), Heard::Accepted);
    }
    let mut loads = Vec::new();
    for _ in 0..3 {
        let mut window = 0;
        for _ in 0..1000 {
            clock.pass(1);
            while let Some(look) = inbox.try_next() {
                window += 1;
                inbox.done(look);
            }
        }
        loads.push(window);
    }
    assert_eq!(loads, [99, 50, 50], "fifty saved up and one every 20 ms");
    assert_eq!(inbox.depth().pending, 10_000 - 199);
}
