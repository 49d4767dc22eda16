//! What a look owes to those whose events it covers.

use std::sync::Arc;

use super::ledger::Source;
use super::receipt::Receipt;

/// Receipts to be handed back, and how much of each source waits. Bounded by sources and
/// partitions: a table that cannot be looked at for long holds no more than its first.
#[derive(Debug, Default)]
pub(super) struct Owed {
    receipts: Vec<Receipt>,
    waits: Vec<Waits>,
}

/// Events of one source: bounded by the sources, not by the events.
#[derive(Debug)]
struct Waits {
    source: Arc<Source>,
    events: u64,
    since_ms: i64,
}

impl Owed {
    /// For an event of this source, heard then.
    pub(super) fn to(source: &Arc<Source>, receipt: Option<Receipt>, since_ms: i64) -> Self {
        source.waits_since(since_ms);
        Self { receipts: receipt.into_iter().collect(), waits: vec![Waits { source: Arc::clone(source), events: 1, since_ms }] }
    }

    /// For an event that was heard of before.
    pub(super) fn add(&mut self, receipt: Option<Receipt>) {
        receipt.into_iter().for_each(|receipt| self.keep(receipt));
    }

    /// Of those of one partition one is kept, whatever number of events a look covers.
    fn keep(&mut self, receipt: Receipt) {
        if !self.receipts.iter_mut().any(|kept| kept.join(&receipt)) {
            self.receipts.push(receipt);
        }
    }

    /// Takes what another one owes too.
    pub(super) fn join(&mut self, other: Self) {
        other.receipts.into_iter().for_each(|receipt| self.keep(receipt));
        for new in other.waits {
            match self.waits.iter_mut().find(|old| Arc::ptr_eq(&old.source, &new.source)) {
                None => self.waits.push(new),
                Some(old) => {
                    old.events = old.events.saturating_add(new.events);
                    // of each source one time is noted, its oldest
                    new.source.waits_no_more(0, new.since_ms.max(old.since_ms));
                    old.since_ms = old.since_ms.min(new.since_ms);
                }
            }
        }
    }

    /// The look was absorbed.
    pub(super) fn settle(self) {
        self.receipts.into_iter().for_each(Receipt::hand_back);
        for Waits { source, events, since_ms } in self.waits {
            source.waits_no_more(events, since_ms);
        }
    }
}
