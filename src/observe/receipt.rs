//! The way back from a look to whoever waits for it.

use std::sync::Arc;

/// Waits until what it heard was absorbed.
pub trait Awaits: Send + Sync {
    /// A look that began after this was heard has been absorbed, or has found that
    /// there is nothing to absorb. Called at most once for a receipt given in.
    fn absorbed(&self, ticket: i64);

    /// `later` comes back with `first`, if that can be noted here: then only `first` is
    /// handed back. For a side to which the first that is open says all.
    fn joins(&self, later: i64, first: i64) -> bool {
        let _ = (later, first);
        false
    }
}

/// Given in with an event; handed back when a look that covers the event has been
/// absorbed. One that is dropped instead says nothing: the process ends, and
/// whoever waits hears the event again.
#[derive(Clone)]
pub struct Receipt {
    to: Arc<dyn Awaits>,
    ticket: i64,
}

impl Receipt {
    /// A receipt for what the waiting side calls `ticket`.
    pub fn new(to: Arc<dyn Awaits>, ticket: i64) -> Self {
        Self { to, ticket }
    }

    /// Takes in another one that will be handed back at the same moment; false where they
    /// are of different sides, or the side wants each.
    pub(super) fn join(&mut self, other: &Self) -> bool {
        if !std::ptr::addr_eq(Arc::as_ptr(&self.to), Arc::as_ptr(&other.to)) {
            return false;
        }
        let (first, later) = (self.ticket.min(other.ticket), self.ticket.max(other.ticket));
        let joined = self.to.joins(later, first);
        if joined {
            self.ticket = first;
        }
        joined
    }

    /// Hands it back.
    pub fn hand_back(self) {
        self.to.absorbed(self.ticket);
    }
}

impl std::fmt::Debug for Receipt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Receipt({})", self.ticket)
    }
}
