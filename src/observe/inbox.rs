//! The inbox: any number of events about one branch of one table become one
//! look at it.
//!
//! What it promises:
//! * at most one look at a (table, branch) is under way;
//! * an accepted event is followed by a look that begins after it was heard;
//! * looks at one table begin at least `interval_ms` apart, and looks into one
//!   catalog at most `looks_per_second`, however many events come;
//! * memory is bounded: beyond `max_tables` the answer is [`Heard::Full`];
//! * a look that is dropped unfinished is made again.
//!
//! It is in memory only: after a crash the poller finds what was marked.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use uuid::Uuid;

use super::branches::Branches;
use super::ledger::{Ledger, Source};
use super::queue::{Hints, Key, Next, Queue};
use super::receipt::Receipt;
use crate::lake::clock::Clock;
use crate::model::event::{Door, Event, Heard};
use crate::model::ident::TableName;

/// Bounds of the inbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Tables that may wait for a look.
    pub max_tables: usize,
    /// Snapshot ids kept for one look; further ones are let go, the look is not.
    pub max_hints: usize,
    /// (table, snapshot) pairs remembered to recognise doubled events.
    pub remembered: usize,
    /// How long they are remembered, in milliseconds.
    pub remember_ms: i64,
    /// Least time between the beginnings of two looks at one table, in
    /// milliseconds; 0 for none.
    pub interval_ms: i64,
    /// Looks into one catalog a second, and at once after a pause; 0 for any number.
    pub looks_per_second: u32,
    /// First pause before a look is made again because it failed or did not find
    /// a snapshot that it was told of, in milliseconds; doubled each time.
    pub retry_ms: i64,
    /// Longest such pause, and the age at which a snapshot that was never found
    /// is no longer looked for, in milliseconds: the poller's longest interval.
    pub give_up_ms: i64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_tables: 100_000,
            max_hints: 64,
            remembered: 100_000,
            remember_ms: 600_000,
            interval_ms: 1_000,
            looks_per_second: 100,
            retry_ms: 250,
            give_up_ms: 60_000,
        }
    }
}

/// How much waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Depth {
    /// Tables marked for a look that has not begun.
    pub pending: usize,
    /// Looks under way.
    pub looking: usize,
    /// When the oldest event was heard whose look has not begun.
    pub oldest_heard_ms: Option<i64>,
}

/// Collects events, hands out looks. Clones share one inbox.
#[derive(Clone)]
pub struct Inbox {
    inner: Arc<Inner>,
}

struct Inner {
    clock: Arc<dyn Clock>,
    queue: Mutex<Queue>,
    wake: Notify,
    ledger: Arc<Ledger>,
    branches: Branches,
}

impl Inner {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inbox {
    /// An empty inbox.
    pub fn new(clock: Arc<dyn Clock>, limits: Limits) -> Self {
        let (queue, ledger, branches) = (Mutex::new(Queue::new(limits)), Arc::default(), Branches::default());
        Self { inner: Arc::new(Inner { clock, queue, wake: Notify::new(), ledger, branches }) }
    }

    /// Marks the event's table for a look. Never waits, never reads anything.
    pub fn hear(&self, event: Event) -> Heard {
        let catalog = if event.door == Door::Poll { event.table.catalog.as_str() } else { "" };
        let source = self.inner.ledger.source(event.door, catalog);
        source.received(event.heard_ms);
        self.hear_for(event, &source, None)
    }

    /// As [`Inbox::hear`], of a source that counts what it receives. The receipt is
    /// handed back once the table is known as it stood after the event was heard: a
    /// snapshot that the table does not have by then is looked for in memory only.
    /// It is not kept when the answer is [`Heard::Full`].
    pub fn hear_for(&self, event: Event, source: &Arc<Source>, receipt: Option<&Receipt>) -> Heard {
        let now_ms = self.inner.clock.now_ms();
        let mut receipt = receipt.cloned();
        let (heard, wakes) = self.inner.queue().hear(event, source, &mut receipt, now_ms);
        source.heard(heard);
        if wakes {
            self.inner.wake.notify_one();
        }
        if heard == Heard::Duplicate {
            receipt.into_iter().for_each(Receipt::hand_back);
        }
        heard
    }

    /// Whether a look at this branch of a table waits or is under way.
    pub fn is_marked(&self, table: &TableName, reference: &str) -> bool {
        self.inner.queue().is_marked(&Key::new((table.clone(), reference.to_owned())))
    }

    /// Whose events are heard.
    pub fn branches(&self) -> &Branches {
        &self.inner.branches
    }

    /// What each source has sent.
    pub fn ledger(&self) -> &Arc<Ledger> {
        &self.inner.ledger
    }

    /// The next look, when one is due. `None` once the inbox is closed. May be
    /// called by several tasks.
    pub async fn next(&self) -> Option<Look> {
        loop {
            let mut wake = std::pin::pin!(self.inner.wake.notified());
            wake.as_mut().enable();
            let pause = match self.step() {
                Step::Look(look) => return Some(*look),
                Step::Closed => return None,
                Step::Wait(pause) => pause,
            };
            match pause {
                None => wake.await,
                Some(ms) => {
                    let time = Duration::from_millis(u64::try_from(ms).unwrap_or(0).max(1));
                    tokio::select! {
                        biased;
                        () = wake => {}
                        () = self.inner.clock.sleep(time) => {}
                    }
                }
            }
        }
    }

    /// A look, when one is due now.
    pub fn try_next(&self) -> Option<Look> {
        match self.step() {
            Step::Look(look) => Some(*look),
            Step::Closed | Step::Wait(_) => None,
        }
    }

    fn step(&self) -> Step {
        let now_ms = self.inner.clock.now_ms();
        let mut queue = self.inner.queue();
        if queue.closed {
            return Step::Closed;
        }
        match queue.next(now_ms) {
            Next::Wait(pause) => Step::Wait(pause),
            Next::Look { key, hints, oldest_heard_ms, priority, attempt } => {
                self.inner.wake.notify_one();
                Step::Look(Box::new(Look {
                    name: key.0.clone(),
                    reference: key.1.clone(),
                    hints: hints.snapshots.keys().copied().collect(),
                    uuids: hints.uuids.iter().copied().collect(),
                    is_first: attempt == 0,
                    oldest_heard_ms,
                    priority,
                    ticket: Some(Ticket { inner: self.inner.clone(), key, hints, attempt }),
                }))
            }
        }
    }

    /// The look is over and the table is known as it stands.
    pub fn done(&self, mut look: Look) {
        if let Some(ticket) = look.ticket.take() {
            ticket.end(End::Done, look.oldest_heard_ms, look.priority);
        }
    }

    /// The look is over, but the table does not have these snapshots of the
    /// look's hints (yet). They are looked for again, with growing pauses, until
    /// they are older than [`Limits::give_up_ms`]; then they are let go in silence.
    pub fn unseen(&self, mut look: Look, snapshots: &[i64]) {
        if let Some(ticket) = look.ticket.take() {
            ticket.end(End::Unseen(snapshots), look.oldest_heard_ms, look.priority);
        }
    }

    /// The look failed: it is made again, with growing pauses, without end.
    /// Dropping a look does the same.
    pub fn failed(&self, look: Look) {
        drop(look);
    }

    /// How much waits.
    pub fn depth(&self) -> Depth {
        self.inner.queue().depth()
    }

    /// No look is handed out any more; those under way may end.
    pub fn close(&self) {
        self.inner.queue().closed = true;
        self.inner.wake.notify_waiters();
        self.inner.wake.notify_one();
    }
}

enum Step {
    Look(Box<Look>),
    Wait(Option<i64>),
    Closed,
}

/// One look to be made at a branch of a table. End it with [`Inbox::done`],
/// [`Inbox::unseen`] or [`Inbox::failed`].
#[must_use]
pub struct Look {
    /// The table's name.
    pub name: TableName,
    /// The branch.
    pub reference: String,
    /// The snapshots that events spoke of, ascending.
    pub hints: Vec<i64>,
    /// The uuids that events say the table has. One that is another's names a table
    /// that was dropped, renamed or made anew.
    pub uuids: Vec<Uuid>,
    /// It is not made again for what an earlier look did not find.
    pub is_first: bool,
    /// When the oldest of its events was heard, in milliseconds since the epoch.
    pub oldest_heard_ms: i64,
    /// The most files that one of its events says it added.
    pub priority: u64,
    ticket: Option<Ticket>,
}

impl Look {
    /// The snapshots that events spoke of and said to be of the table of this uuid.
    pub fn hints_of(&self, uuid: Uuid) -> Vec<i64> {
        let hints = self.ticket.iter().flat_map(|ticket| &ticket.hints.snapshots);
        hints.filter(|(_, hint)| hint.uuid == Some(uuid)).map(|(snapshot, _)| *snapshot).collect()
    }
}

impl std::fmt::Debug for Look {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "look at {}@{} for {:?}", self.name, self.reference, self.hints)
    }
}

impl Drop for Look {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            ticket.end(End::Failed, self.oldest_heard_ms, self.priority);
        }
    }
}

/// The right to end a look.
struct Ticket {
    inner: Arc<Inner>,
    key: Key,
    hints: Hints,
    attempt: u32,
}

enum End<'a> {
    Done,
    Unseen(&'a [i64]),
    Failed,
}

impl Ticket {
    fn end(self, end: End<'_>, oldest_heard_ms: i64, priority: u64) {
        let now_ms = self.inner.clock.now_ms();
        let mut queue = self.inner.queue();
        let owed = match end {
            End::Done => queue.end(&self.key, None, true, now_ms),
            End::Failed => {
                let again = queue.again(self.hints, oldest_heard_ms, priority, self.attempt, now_ms);
                queue.end(&self.key, Some(again), false, now_ms)
            }
            End::Unseen(snapshots) => {
                queue.forget(&self.key, snapshots);
                let young = queue.young(&self.hints, snapshots, now_ms);
                let oldest = young.snapshots.values().map(|hint| hint.heard_ms).min();
                let again = oldest.map(|oldest| queue.again(young, oldest, priority, self.attempt, now_ms));
                queue.end(&self.key, again, true, now_ms)
            }
        };
        drop(queue);
        owed.settle();
        self.inner.wake.notify_one();
    }
}
