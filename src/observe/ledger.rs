//! What each source of events has sent, and what became of it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;

use crate::model::event::{Door, Heard};

/// Records kept as examples of what was parked or dropped, a source.
const EXAMPLES: usize = 16;
/// Longest reason kept.
const LONGEST: usize = 400;

/// A record that led to no look, with the reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Example {
    /// When, in milliseconds since the epoch.
    pub at_ms: i64,
    /// Where it can be found, such as `topic/partition@offset`; may be empty.
    pub place: String,
    /// Why.
    pub reason: String,
}

/// One source as it stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Row {
    /// Its door.
    pub door: Door,
    /// The topic, path or catalog; empty for a door of one source.
    pub source: String,
    /// Records or bodies received.
    pub received: u64,
    /// Events that marked a table.
    pub accepted: u64,
    /// Events heard of before.
    pub duplicate: u64,
    /// Records that are about no commit.
    pub ignored: u64,
    /// Records that could not be read.
    pub parked: u64,
    /// Events that name nothing that is looked after.
    pub dropped: u64,
    /// Records not absorbed yet; `None` for a door that holds nothing back.
    pub lag: Option<u64>,
    /// Age of the oldest of them, in milliseconds; `None` also while all of them are
    /// still with their broker, which does not tell how old they are.
    pub staleness_ms: Option<i64>,
    /// When it was last heard, in milliseconds since the epoch.
    pub heard_ms: Option<i64>,
    /// What it does, such as where it listens; may be empty.
    pub state: String,
    /// What is wrong with it now.
    pub problem: Option<String>,
    /// The last records that were parked or dropped, newest first.
    pub examples: Vec<Example>,
}

#[derive(Default)]
struct Detail {
    state: String,
    problem: Option<String>,
    examples: VecDeque<Example>,
}

/// A source's figures. Shared by its door and by whoever shows them.
pub struct Source {
    door: Door,
    name: String,
    received: AtomicU64,
    accepted: AtomicU64,
    duplicate: AtomicU64,
    ignored: AtomicU64,
    parked: AtomicU64,
    dropped: AtomicU64,
    /// Negative for none.
    lag: AtomicI64,
    oldest_ms: AtomicI64,
    heard_ms: AtomicI64,
    detail: Mutex<Detail>,
}

impl Source {
    fn new(door: Door, name: &str) -> Self {
        let zero = AtomicU64::default;
        Self {
            door,
            name: name.to_owned(),
            received: zero(),
            accepted: zero(),
            duplicate: zero(),
            ignored: zero(),
            parked: zero(),
            dropped: zero(),
            lag: AtomicI64::new(-1),
            oldest_ms: AtomicI64::new(i64::MAX),
            heard_ms: AtomicI64::new(i64::MIN),
            detail: Mutex::default(),
        }
    }

    fn detail(&self) -> MutexGuard<'_, Detail> {
        self.detail.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A record or body came.
    pub fn received(&self, now_ms: i64) {
        self.received.fetch_add(1, Ordering::Relaxed);
        self.heard_ms.fetch_max(now_ms, Ordering::Relaxed);
    }

    /// An event was given to the inbox.
    pub fn heard(&self, heard: Heard) {
        match heard {
            Heard::Accepted => self.accepted.fetch_add(1, Ordering::Relaxed),
            Heard::Duplicate => self.duplicate.fetch_add(1, Ordering::Relaxed),
            Heard::Full => 0,
        };
    }

    /// A record is about no commit.
    pub fn ignored(&self) {
        self.ignored.fetch_add(1, Ordering::Relaxed);
    }

    /// A record cannot be read.
    pub fn parked(&self, example: Example) {
        self.parked.fetch_add(1, Ordering::Relaxed);
        self.keep(example);
    }

    /// An event names nothing that is looked after.
    pub fn dropped(&self, example: Example) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
        self.keep(example);
    }

    fn keep(&self, mut example: Example) {
        if let Some((cut, _)) = example.reason.char_indices().nth(LONGEST) {
            example.reason.truncate(cut);
        }
        let mut detail = self.detail();
        detail.examples.push_front(example);
        detail.examples.truncate(EXAMPLES);
    }

    /// How much waits, and when the oldest of it was written.
    pub fn set_lag(&self, records: u64, oldest_ms: Option<i64>) {
        self.lag.store(i64::try_from(records).unwrap_or(i64::MAX), Ordering::Relaxed);
        self.oldest_ms.store(oldest_ms.unwrap_or(i64::MAX), Ordering::Relaxed);
    }

    /// What it does from now on.
    pub fn set_state(&self, state: String) {
        self.detail().state = state;
    }

    /// What is wrong, or that nothing is any more.
    pub fn set_problem(&self, problem: Option<String>) {
        self.detail().problem = problem;
    }

    /// Its figures.
    pub fn row(&self, now_ms: i64) -> Row {
        let get = |n: &AtomicU64| n.load(Ordering::Relaxed);
        let lag = u64::try_from(self.lag.load(Ordering::Relaxed)).ok();
        let oldest = Some(self.oldest_ms.load(Ordering::Relaxed)).filter(|at| *at != i64::MAX);
        let (state, problem, examples) = {
            let detail = self.detail();
            (detail.state.clone(), detail.problem.clone(), detail.examples.iter().cloned().collect())
        };
        Row {
            door: self.door,
            source: self.name.clone(),
            received: get(&self.received),
            accepted: get(&self.accepted),
            duplicate: get(&self.duplicate),
            ignored: get(&self.ignored),
            parked: get(&self.parked),
            dropped: get(&self.dropped),
            lag,
            staleness_ms: match (lag, oldest) {
                (None, _) => None,
                (Some(0), _) => Some(0),
                (Some(_), oldest) => oldest.map(|at| now_ms.saturating_sub(at).max(0)),
            },
            heard_ms: Some(self.heard_ms.load(Ordering::Relaxed)).filter(|at| *at != i64::MIN),
            state,
            problem,
            examples,
        }
    }
}

/// The figures of every source, by door and name.
#[derive(Default)]
pub struct Ledger {
    sources: Mutex<BTreeMap<(Door, String), Arc<Source>>>,
}

impl Ledger {
    /// The source of that name; it is entered when it is new. Names come from
    /// settings and from this code, never from events.
    pub fn source(&self, door: Door, name: &str) -> Arc<Source> {
        let mut sources = self.sources.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (door, name.to_owned());
        Arc::clone(sources.entry(key).or_insert_with(|| Arc::new(Source::new(door, name))))
    }

    /// Every source as it stands, by door and name.
    pub fn rows(&self, now_ms: i64) -> Vec<Row> {
        let sources: Vec<Arc<Source>> = self.sources.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect();
        sources.iter().map(|source| source.row(now_ms)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_counts_what_became_of_its_records() {
        let ledger = Ledger::default();
        let topic = ledger.source(Door::Kafka, "commits");
        for heard in [Heard::Accepted, Heard::Duplicate, Heard::Duplicate] {
            ledger.source(Door::Kafka, "commits").received(5);
            topic.heard(heard);
        }
        topic.set_lag(7, Some(100));
        let row = ledger.rows(400).remove(0);
        assert_eq!((row.received, row.accepted, row.duplicate, row.parked), (3, 1, 2, 0));
        assert_eq!((row.lag, row.staleness_ms, row.heard_ms), (Some(7), Some(300), Some(5)));
        topic.set_lag(7, None);
        assert_eq!(topic.row(400).staleness_ms, None);
        topic.set_lag(0, None);
        assert_eq!(topic.row(400).staleness_ms, Some(0));
    }

    #[test]
    fn examples_are_few_short_and_newest_first() {
        let ledger = Ledger::default();
        let source = ledger.source(Door::Http, "/hudi/callback");
        for n in 0..40 {
            source.parked(Example { at_ms: n, place: String::new(), reason: "ü".repeat(1000) });
        }
        let row = source.row(0);
        assert_eq!((row.parked, row.examples.len(), row.examples[0].at_ms), (40, EXAMPLES, 39));
        assert_eq!(row.examples[0].reason.chars().count(), LONGEST);
    }

    #[test]
    fn a_door_that_holds_nothing_back_has_no_lag() {
        let row = Ledger::default().source(Door::Grpc, "").row(0);
        assert_eq!((row.lag, row.staleness_ms, row.heard_ms), (None, None, None));
    }
}
