//! The inbox's state and its rules, without time, tasks or locks of its own.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use uuid::Uuid;

use super::inbox::{Depth, Limits};
use super::ledger::Source;
use super::memory::Memory;
use super::owed::Owed;
use super::receipt::Receipt;
use crate::model::event::{Event, Heard};
use crate::model::ident::{MAIN, TableName};

/// Table and branch.
pub(super) type Key = Arc<(TableName, String)>;

/// What events of one table spoke of.
#[derive(Clone, Debug, Default)]
pub(super) struct Hints {
    /// Snapshots.
    pub(super) snapshots: BTreeMap<i64, Hint>,
    /// Uuids that the table is said to have; at most [`MOST_UUIDS`].
    pub(super) uuids: BTreeSet<Uuid>,
}

/// A snapshot that was heard of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hint {
    /// When it was first heard of.
    pub(super) heard_ms: i64,
    /// The uuid of its table, when it was said.
    pub(super) uuid: Option<Uuid>,
}

/// More tables than these were not under one name between two looks.
const MOST_UUIDS: usize = 8;

impl Hints {
    fn of(event: &Event, now_ms: i64) -> Self {
        let hint = |snapshot: &i64| (*snapshot, Hint { heard_ms: now_ms, uuid: event.uuid });
        Self { snapshots: event.snapshots.iter().map(hint).collect(), uuids: event.uuid.into_iter().collect() }
    }

    fn join(&mut self, new: Self, most: usize) {
        for (snapshot, hint) in new.snapshots {
            let first = self.snapshots.entry(snapshot).or_insert(hint);
            *first = Hint { heard_ms: hint.heard_ms.min(first.heard_ms), uuid: first.uuid.or(hint.uuid) };
        }
        self.uuids.extend(new.uuids);
        self.bound(most);
    }

    fn bound(&mut self, most: usize) {
        while self.snapshots.len() > most {
            self.snapshots.pop_first();
        }
        while self.uuids.len() > MOST_UUIDS {
            self.uuids.pop_first();
        }
    }
}

/// A table that waits for a look.
#[derive(Debug)]
pub(super) struct Pending {
    hints: Hints,
    heard_ms: i64,
    priority: u64,
    due_ms: i64,
    attempt: u32,
    place: Place,
    owed: Owed,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Place {
    /// Behind the look that is under way.
    Behind,
    /// In `waiting`, by its due time.
    Waiting(i64),
    /// In its catalog's lane, by its rank.
    Lane(i64),
}

#[derive(Debug, Default)]
struct Entry {
    pending: Option<Pending>,
    looking: bool,
    began_ms: Option<i64>,
    /// For the events that the look under way covers.
    owed: Owed,
}

/// The looks of one catalog that are due, and how many may begin.
#[derive(Debug)]
struct Lane {
    due: BTreeSet<(i64, Key)>,
    /// Thousandths of a look.
    tokens: i64,
    filled_ms: i64,
}

pub(super) enum Next {
    Look {
        key: Key,
        hints: Hints,
        oldest_heard_ms: i64,
        priority: u64,
        attempt: u32,
    },
    /// Milliseconds until something may be due; `None` until something is heard.
    Wait(Option<i64>),
}

#[derive(Debug)]
pub(super) struct Queue {
    limits: Limits,
    entries: HashMap<Key, Entry>,
    waiting: BTreeSet<(i64, Key)>,
    lanes: BTreeMap<String, Lane>,
    /// Entries kept only so that their interval is held.
    resting: VecDeque<(i64, Key)>,
    /// Snapshots heard of, with the uuid of their table when it was said.
    memory: Memory<(Key, i64), Option<Uuid>>,
    pending: usize,
    looking: usize,
    pub(super) closed: bool,
}

/// A look's head start for each doubling of the files that its event says were
/// added: more files go first, and no table waits for ever behind others.
const HEAD_START_MS: i64 = 250;

impl Queue {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            entries: HashMap::new(),
            waiting: BTreeSet::new(),
            lanes: BTreeMap::new(),
            resting: VecDeque::new(),
            memory: Memory::new(limits.remembered, limits.remember_ms),
            pending: 0,
            looking: 0,
            closed: false,
        }
    }

    /// Whether a look at this branch of a table waits or is under way.
    pub(super) fn is_marked(&self, key: &Key) -> bool {
        self.entries.get(key).is_some_and(|entry| entry.looking || entry.pending.is_some())
    }

    /// Marks the event's table. A receipt is kept unless the answer is
    /// [`Heard::Full`], or it is given back to be handed back at once. Says too whether a
    /// look is due earlier than before: else nobody need be woken.
    pub(super) fn hear(&mut self, event: Event, source: &Arc<Source>, receipt: &mut Option<Receipt>, now_ms: i64) -> (Heard, bool) {
        self.prune(now_ms);
        let hints = Hints::of(&event, now_ms);
        let Event { table, uuid, reference, snapshots, files_added, heard_ms, .. } = event;
        let key: Key = Arc::new((table, reference.unwrap_or_else(|| MAIN.to_owned())));
        if !snapshots.is_empty() && snapshots.iter().all(|snapshot| self.is_known(&key, *snapshot, uuid, now_ms)) {
            self.wait_along(&key, receipt);
            return (Heard::Duplicate, false);
        }
        let is_pending = self.entries.get(&key).is_some_and(|e| e.pending.is_some());
        if !is_pending && self.pending >= self.limits.max_tables {
            return (Heard::Full, false);
        }
        for snapshot in snapshots {
            self.memory.remember((key.clone(), snapshot), uuid, now_ms);
        }
        let owed = Owed::to(source, receipt.take(), heard_ms);
        let pending = Pending { hints, heard_ms, priority: files_added, due_ms: now_ms, attempt: 0, place: Place::Behind, owed };
        (Heard::Accepted, self.merge(&key, pending, now_ms))
    }

    /// Whether a snapshot was heard of, of the same table as far as both events say.
    fn is_known(&self, key: &Key, snapshot: i64, uuid: Option<Uuid>, now_ms: i64) -> bool {
        let known = self.memory.knows(&(key.clone(), snapshot), now_ms);
        known.is_some_and(|heard| heard.is_none() || uuid.is_none() || *heard == uuid)
    }

    /// What was heard of before waits for the look that it led to, should that not
    /// be over.
    fn wait_along(&mut self, key: &Key, receipt: &mut Option<Receipt>) {
        match self.entries.get_mut(key) {
            Some(Entry { pending: Some(pending), .. }) => pending.owed.add(receipt.take()),
            Some(entry) if entry.looking => entry.owed.add(receipt.take()),
            _ => {}
        }
    }

    /// Joins `new` with what is pending, and puts the table where it belongs. Whether its
    /// look is due earlier than before.
    fn merge(&mut self, key: &Key, new: Pending, now_ms: i64) -> bool {
        let most = self.limits.max_hints;
        let interval_ms = self.limits.interval_ms;
        let entry = self.entries.entry(key.clone()).or_default();
        let earliest = match entry.began_ms {
            Some(began) if began <= now_ms => began.saturating_add(interval_ms),
            _ => now_ms,
        };
        let due_ms = new.due_ms.max(earliest);
        let (place, earlier) = match entry.pending.as_mut() {
            None => {
                self.pending += 1;
                let pending = entry.pending.insert(Pending { due_ms, ..new });
                pending.hints.bound(most);
                (Place::Behind, true)
            }
            Some(old) => {
                let before = (old.due_ms, old.priority);
                old.hints.join(new.hints, most);
                old.heard_ms = old.heard_ms.min(new.heard_ms);
                old.priority = old.priority.max(new.priority);
                old.due_ms = old.due_ms.min(due_ms);
                old.attempt = old.attempt.min(new.attempt);
                old.owed.join(new.owed);
                // as with most events of a storm; what waited behind a look that has ended finds its place
                let is_placed = old.place != Place::Behind || entry.looking;
                if is_placed && before == (old.due_ms, old.priority) {
                    return false;
                }
                (old.place, old.due_ms < before.0)
            }
        };
        self.unplace(key, place);
        self.place(key, now_ms);
        earlier
    }

    fn unplace(&mut self, key: &Key, place: Place) {
        match place {
            Place::Behind => {}
            Place::Waiting(due) => {
                self.waiting.remove(&(due, key.clone()));
            }
            Place::Lane(rank) => {
                if let Some(lane) = self.lanes.get_mut(&key.0.catalog) {
                    lane.due.remove(&(rank, key.clone()));
                }
            }
        }
    }

    fn place(&mut self, key: &Key, now_ms: i64) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        let Some(pending) = entry.pending.as_mut() else { return };
        if entry.looking {
            pending.place = Place::Behind;
        } else if pending.due_ms > now_ms {
            pending.place = Place::Waiting(pending.due_ms);
            self.waiting.insert((pending.due_ms, key.clone()));
        } else {
            let doublings = i64::from(64 - pending.priority.leading_zeros());
            // by when it was due, not by what it looks for: a table that is looked at in vain, again and
            // again, for what was heard long ago would keep the others waiting
            let rank = pending.due_ms.saturating_sub(doublings * HEAD_START_MS);
            pending.place = Place::Lane(rank);
            let full = i64::from(self.limits.looks_per_second) * 1000;
            let lane = self.lanes.entry(key.0.catalog.clone());
            lane.or_insert_with(|| Lane { due: BTreeSet::new(), tokens: full, filled_ms: now_ms }).due.insert((rank, key.clone()));
        }
    }

    pub(super) fn next(&mut self, now_ms: i64) -> Next {
        self.prune(now_ms);
        while let Some((due, key)) = self.waiting.first().cloned() {
            if due > now_ms {
                break;
            }
            self.waiting.pop_first();
            self.place(&key, now_ms);
        }
        let rate = i64::from(self.limits.looks_per_second);
        let mut pause = self.waiting.first().map(|(due, _)| due.saturating_sub(now_ms));
        let mut best: Option<(i64, Key)> = None;
        for lane in self.lanes.values_mut() {
            lane.fill(rate, now_ms);
            let Some(first) = lane.due.first() else { continue };
            if rate > 0 && lane.tokens < 1000 {
                let wait = (1000 - lane.tokens).saturating_add(rate - 1) / rate;
                pause = Some(pause.map_or(wait, |p| p.min(wait)));
            } else if best.as_ref().is_none_or(|b| first < b) {
                best = Some(first.clone());
            }
        }
        let taken = best.and_then(|(rank, key)| self.begin(rank, key, now_ms));
        self.lanes.retain(|_, lane| !lane.due.is_empty() || lane.tokens < rate * 1000);
        taken.unwrap_or(Next::Wait(pause))
    }

    fn begin(&mut self, rank: i64, key: Key, now_ms: i64) -> Option<Next> {
        let lane = self.lanes.get_mut(&key.0.catalog)?;
        lane.due.remove(&(rank, key.clone()));
        if self.limits.looks_per_second > 0 {
            lane.tokens -= 1000;
        }
        let entry = self.entries.get_mut(&key)?;
        let Pending { hints, heard_ms, priority, attempt, owed, .. } = entry.pending.take()?;
        entry.owed = owed;
        entry.looking = true;
        entry.began_ms = Some(now_ms);
        self.pending -= 1;
        self.looking += 1;
        Some(Next::Look { key, hints, oldest_heard_ms: heard_ms, priority, attempt })
    }

    /// Ends a look; `again` is what it leaves to be done. Gives back what is owed for
    /// what it covered: all of it when it was `absorbed`, else nothing, and it waits
    /// for the next one.
    pub(super) fn end(&mut self, key: &Key, mut again: Option<Pending>, absorbed: bool, now_ms: i64) -> Owed {
        let Some(entry) = self.entries.get_mut(key) else { return Owed::default() };
        let mut owed = std::mem::take(&mut entry.owed);
        if let Some(again) = again.as_mut().filter(|_| !absorbed) {
            again.owed = std::mem::take(&mut owed);
        }
        entry.looking = false;
        self.looking = self.looking.saturating_sub(1);
        match again {
            Some(again) => {
                self.merge(key, again, now_ms);
            }
            None => self.place(key, now_ms),
        }
        if let Some(Entry { pending: None, began_ms: Some(began), .. }) = self.entries.get(key) {
            self.resting.push_back((began.saturating_add(self.limits.interval_ms), key.clone()));
        }
        owed
    }

    /// What a look leaves to be done, after a pause that doubles each time.
    pub(super) fn again(&self, hints: Hints, heard_ms: i64, priority: u64, attempt: u32, now_ms: i64) -> Pending {
        let factor = 1_i64.checked_shl(attempt.min(40)).unwrap_or(i64::MAX);
        let pause = self.limits.retry_ms.saturating_mul(factor).min(self.limits.give_up_ms);
        let due_ms = now_ms.saturating_add(pause);
        Pending { hints, heard_ms, priority, due_ms, attempt: attempt.saturating_add(1), place: Place::Behind, owed: Owed::default() }
    }

    /// Those of the snapshots that a look was told of and that are still worth
    /// looking for.
    pub(super) fn young(&self, hints: &Hints, snapshots: &[i64], now_ms: i64) -> Hints {
        let asked = snapshots.iter().filter_map(|s| hints.snapshots.get(s).map(|hint| (*s, *hint)));
        let snapshots: BTreeMap<i64, Hint> = asked.filter(|(_, h)| now_ms.saturating_sub(h.heard_ms) < self.limits.give_up_ms).collect();
        Hints { uuids: snapshots.values().filter_map(|h| h.uuid).collect(), snapshots }
    }

    /// An event that names them again is news again.
    pub(super) fn forget(&mut self, key: &Key, snapshots: &[i64]) {
        for snapshot in snapshots {
            self.memory.forget(&(key.clone(), *snapshot));
        }
    }

    pub(super) fn depth(&self) -> Depth {
        let oldest = self.entries.values().filter_map(|e| e.pending.as_ref().map(|p| p.heard_ms)).min();
        Depth { pending: self.pending, looking: self.looking, oldest_heard_ms: oldest }
    }

    /// Drops entries that nothing waits for and whose interval is over.
    fn prune(&mut self, now_ms: i64) {
        while let Some((until, key)) = self.resting.front() {
            if *until > now_ms {
                break;
            }
            let over = |e: &Entry| e.began_ms.is_none_or(|b| b.saturating_add(self.limits.interval_ms) <= now_ms);
            if self.entries.get(key).is_some_and(|e| e.pending.is_none() && !e.looking && over(e)) {
                self.entries.remove(key);
            }
            self.resting.pop_front();
        }
    }
}

impl Lane {
    fn fill(&mut self, rate: i64, now_ms: i64) {
        let elapsed = now_ms.saturating_sub(self.filled_ms).max(0);
        self.tokens = self.tokens.saturating_add(elapsed.saturating_mul(rate)).min(rate * 1000);
        self.filled_ms = now_ms;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::event::{Certainty, Door};
    use crate::observe::ledger::Ledger;

    /// Whether an event about one table wakes anybody.
    fn wakes(queue: &mut Queue, snapshot: i64, now_ms: i64) -> bool {
        let source = Ledger::default().source(Door::Grpc, "");
        let event = Event {
            door: Door::Grpc,
            table: TableName::new("lake", "db", "t"),
            uuid: None,
            reference: None,
            snapshots: vec![snapshot],
            certainty: Certainty::Hint,
            files_added: 0,
            heard_ms: now_ms,
        };
        let (heard, wakes) = queue.hear(event, &source, &mut None, now_ms);
        assert_eq!(heard, Heard::Accepted);
        wakes
    }

    #[test]
    fn a_storm_about_one_table_wakes_once_a_look() {
        let mut queue = Queue::new(Limits::default());
        assert_eq!([1, 2, 3].map(|n| wakes(&mut queue, n, 0)), [true, false, false]);
        let Next::Look { key, hints, .. } = queue.next(0) else { panic!("no look") };
        assert_eq!(hints.snapshots.len(), 3);
        assert_eq!([4, 5].map(|n| wakes(&mut queue, n, 10)), [true, false]);
        queue.end(&key, None, true, 20);
        assert!(matches!(queue.next(20), Next::Wait(Some(980))));
        assert!(!wakes(&mut queue, 6, 30));
        assert!(matches!(queue.next(1000), Next::Look { .. }));
    }

    #[test]
    fn what_waits_behind_a_look_that_failed_is_looked_at() {
        let mut queue = Queue::new(Limits { interval_ms: 0, ..Limits::default() });
        wakes(&mut queue, 1, 0);
        let Next::Look { key, hints, oldest_heard_ms, priority, attempt } = queue.next(0) else { panic!("no look") };
        wakes(&mut queue, 2, 10);
        let again = queue.again(hints, oldest_heard_ms, priority, attempt, 20);
        queue.end(&key, Some(again), false, 20);
        let Next::Look { hints, .. } = queue.next(20) else { panic!("no look") };
        assert_eq!(hints.snapshots.into_keys().collect::<Vec<_>>(), [1, 2]);
    }
}
