//! The way back from a look to whoever waits for it.

use std::sync::Arc;

/// Waits until what it heard was absorbed.
pub trait Awaits: Send + Sync {
    /// A look that began after this was heard has been absorbed, or has found that
    /// there is nothing to absorb. Called at most once for a receipt given in.
    fn absorbed(&self, ticket: i64);
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
