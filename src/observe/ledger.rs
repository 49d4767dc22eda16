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
    /// Records not absorbed yet, those still with their broker among them; events
    /// whose look is not over, at a door without a broker.
    pub lag: Option<u64>,
    /// Age of the oldest of them, in milliseconds; `None` while all of them are
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
    /// By the broker's word; negative without one.
    lag: AtomicI64,
    oldest_ms: AtomicI64,
    heard_ms: AtomicI64,
    /// Events whose look is not over.
    waiting: AtomicU64,
    /// Since when tables wait for a look because of this source, and how many.
    since: Mutex<BTreeMap<i64, u64>>,
    detail: Mutex<Detail>,
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "source {} of {:?}", self.name, self.door)
    }
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
            waiting: zero(),
            since: Mutex::default(),
            detail: Mutex::default(),
        }
    }

    fn detail(&self) -> MutexGuard<'_, Detail> {
        self.detail.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn since(&self) -> MutexGuard<'_, BTreeMap<i64, u64>> {
        self.since.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An event of it waits for a look.
    pub(super) fn waits_since(&self, heard_ms: i64) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let mut since = self.since();
        let tables = since.entry(heard_ms).or_default();
        *tables = tables.saturating_add(1);
    }

    /// So many of its events wait no more, and one time is noted no more.
    pub(super) fn waits_no_more(&self, events: u64, since_ms: i64) {
        self.waiting.fetch_sub(events, Ordering::Relaxed);
        let mut since = self.since();
        if let Some(tables) = since.get_mut(&since_ms) {
            *tables = tables.saturating_sub(1);
            if *tables == 0 {
                since.remove(&since_ms);
            }
        }
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

    /// How much waits by a broker's word, and when the oldest of it was written.
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

    /// How much waits, and since when: by a broker's word, or by what was heard.
    fn behind(&self) -> (u64, Option<i64>) {
        match u64::try_from(self.lag.load(Ordering::Relaxed)) {
            Ok(lag) => (lag, Some(self.oldest_ms.load(Ordering::Relaxed)).filter(|at| *at != i64::MAX)),
            Err(_) => (self.waiting.load(Ordering::Relaxed), self.since().first_key_value().map(|(at, _)| *at)),
        }
    }

    /// Its figures.
    pub fn row(&self, now_ms: i64) -> Row {
        let get = |n: &AtomicU64| n.load(Ordering::Relaxed);
        let (lag, oldest) = self.behind();
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
            lag: Some(lag),
            staleness_ms: match lag {
                0 => Some(0),
                _ => oldest.map(|at| now_ms.saturating_sub(at).max(0)),
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
    fn a_source_that_was_never_heard_is_not_behind() {
        let row = Ledger::default().source(Door::Grpc, "").row(0);
        assert_eq!((row.lag, row.staleness_ms, row.heard_ms), (Some(0), Some(0), None));
    }

    #[test]
    fn a_door_without_a_broker_is_behind_by_the_looks_that_are_not_over() {
        let source = Ledger::default().source(Door::Grpc, "");
        source.waits_since(100);
        source.waits_since(100);
        source.waits_since(250);
        let behind = |now_ms| (source.row(now_ms).lag, source.row(now_ms).staleness_ms);
        assert_eq!(behind(400), (Some(3), Some(300)));
        source.waits_no_more(1, 100);
        assert_eq!(behind(400), (Some(2), Some(300)));
        source.waits_no_more(1, 100);
        assert_eq!(behind(400), (Some(1), Some(150)));
        source.waits_no_more(1, 250);
        assert_eq!(behind(400), (Some(0), Some(0)));
    }
}
