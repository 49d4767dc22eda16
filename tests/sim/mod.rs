//! A simulation of the product's own loop, reader, rewrite and commit on real
//! Parquet files and manifests, in one thread, from a seed. Only catalog, store,
//! journal, clock and chance are replaced; see `checks` for what must hold after
//! each step, `writers` for what others do, `gate` for what goes wrong. The product
//! lists no store, so that what is listed stale are the tables of the catalog.
//!
//! Hours of it, in a binary of its own that is quick to build and to run:
//! `AFTERWRITE_SIM_SEEDS=100000 AFTERWRITE_SIM_STEPS=200 cargo test --release
//! --test simulation sim::long -- --ignored --nocapture`; a failure is repeated with
//! `AFTERWRITE_SIM_FROM=<seed> AFTERWRITE_SIM_SEEDS=1`, and told word by word with
//! `AFTERWRITE_SIM_TRACE=1`.

mod account;
mod catalog;
mod chance;
mod checks;
mod clock;
mod deletes;
mod evolving;
mod foreign;
mod gate;
mod journal;
mod model;
mod mutants;
mod process;
mod reader;
mod run;
mod store;
mod world;
mod writers;

use std::future::Future;
use std::ops::RangeInclusive;
use std::pin::pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use run::{Ended, run};

/// The seeds and the steps of each that every test run makes.
const SEEDS: u64 = 200;
const STEPS: u64 = 45;

/// The result of a future that waits for nothing.
fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(done) => done,
        Poll::Pending => panic!("a foreign writer had to wait"),
    }
}

/// A lock that a panic elsewhere does not spoil: the first failure is the one to tell.
fn hold<T: ?Sized>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

fn words(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "without words".into())
}

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| text.parse().unwrap_or_else(|e| panic!("{variable}={text}: {e}")))
}

/// Fails with the seed, the shortest run of it that fails, and how to repeat it.
fn expect_right(seed: u64, steps: u64, ended: &Ended) {
    let Some(why) = &ended.failure else { return };
    let least = shortest(seed, steps, ended.steps);
    panic!(
        "seed {seed} fails at step {} (shortest run that fails: {least} steps)\nrepeat: AFTERWRITE_SIM_FROM={seed} AFTERWRITE_SIM_SEEDS=1 \
         AFTERWRITE_SIM_STEPS={least} cargo test --test simulation sim::long -- --ignored --nocapture\n{why}",
        ended.steps
    );
}

/// Failures of the peace afterwards may need fewer steps: by halves.
fn shortest(seed: u64, steps: u64, failed_at: u64) -> u64 {
    let (mut right, mut wrong) = (0, failed_at.min(steps));
    for _ in 0..number("AFTERWRITE_SIM_HALVINGS", 7) {
        let middle = (right + wrong) / 2;
        if middle == right {
            break;
        }
        if run(seed, middle).failure.is_some() { wrong = middle } else { right = middle }
    }
    wrong
}

/// Several tests, so that they run side by side.
#[test]
fn rows_files_budget_and_peace_hold_for_the_first_seeds() {
    hold_for(1..=SEEDS / 4);
}

#[test]
fn rows_files_budget_and_peace_hold_for_the_second_seeds() {
    hold_for(SEEDS / 4 + 1..=SEEDS / 2);
}

#[test]
fn rows_files_budget_and_peace_hold_for_the_third_seeds() {
    hold_for(SEEDS / 2 + 1..=SEEDS / 4 * 3);
}

#[test]
fn rows_files_budget_and_peace_hold_for_the_last_seeds() {
    hold_for(SEEDS / 4 * 3 + 1..=SEEDS);
}

fn hold_for(seeds: RangeInclusive<u64>) {
    let (mut all, count) = (Ended::default(), seeds.end() + 1 - seeds.start());
    for seed in seeds {
        let ended = run(seed, STEPS);
        expect_right(seed, STEPS, &ended);
        all.add(ended);
    }
    // the simulation is worth nothing when nothing happens in it
    assert!(all.ours > count, "{all}");
    assert!(all.foreign > 20 * count, "{all}");
    assert!(all.deaths > count / 4, "{all}");
    for what in HAPPENS {
        assert!(all.tally.contains_key(what), "no {what}: {all}");
    }
}

/// What so many seeds cannot be without.
const HAPPENS: [&str; 43] = [
    "appends",
    "upserts",
    "deletes of rows",
    "vectors",
    "global equality deletes",
    "overwrites",
    "foreign compactions",
    "schema changes",
    "columns that come back",
    "spec changes",
    "upgrades",
    "expiries",
    "expiries while a job runs",
    "expiries of what a job was planned on",
    "spec changes in format 1",
    "rollbacks",
    "snapshots whose lineage was checked",
    "conflicts",
    "deletes carried over",
    "rewrites that shared a snapshot",
    "answers lost",
    "commits lost",
    "commits delayed",
    "commits sent twice",
    "stale answers",
    "looks that fail",
    "reads that fail",
    "writes that fail",
    "journal entries that fail",
    "events lost",
    "events late",
    "events twice",
    "events invented",
    "events out of order",
    "clocks set ahead",
    "clocks set back",
    "restarts as asked",
    "holds",
    "compactions by hand",
    "undone rewrites",
    "deaths at a point",
    "deaths at a call",
    "rewrites of a branch beside main",
];

#[test]
fn the_same_seed_is_the_same_run() {
    for seed in [2, 3, 5, 1001, 1002, 1010] {
        let (first, second) = (run(seed, STEPS), run(seed, STEPS));
        assert_eq!(
            (first.hash, first.steps, first.ours, first.failure),
            (second.hash, second.steps, second.ours, second.failure),
            "{seed}"
        );
    }
}

/// The long form; see the module.
#[test]
#[ignore = "runs for as long as it is told to"]
fn long() {
    let (from, seeds, steps) =
        (number("AFTERWRITE_SIM_FROM", 1), number("AFTERWRITE_SIM_SEEDS", 1000), number("AFTERWRITE_SIM_STEPS", STEPS));
    let mut all = Ended::default();
    for seed in from..from + seeds {
        let ended = run(seed, steps);
        if ended.failure.is_some() {
            eprintln!("after {} steps", all.steps);
        }
        expect_right(seed, steps, &ended);
        all.add(ended);
        if (seed - from + 1).is_multiple_of(100) {
            eprintln!("seeds {from}..={seed}: {all}");
        }
    }
    eprintln!("{seeds} seeds from {from}, all right: {all}");
}
