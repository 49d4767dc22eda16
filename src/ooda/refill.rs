//! Between two rounds: a place that becomes free is taken by the best that the last
//! round left waiting. Nothing is ranked anew, so that small jobs need not wait for a
//! round each.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use crate::decide::round::{Ranked, Round, start_by};
use crate::model::economy::Select;

use super::Loop;

/// Of what waits, so many may follow before the next round.
const AT_HAND: usize = 256;

impl Loop {
    /// Sleeps, and fills the places that become free meanwhile.
    pub(super) async fn rest_and_refill(self: &Arc<Self>, pause: Duration) {
        let over = self.parts.clock.sleep(pause);
        tokio::pin!(over);
        loop {
            tokio::select! {
                biased;
                () = &mut over => return,
                () = self.freed.notified() => self.refill(),
            }
        }
    }

    /// Remembers who is next after a round, best first. Another selection than the
    /// greedy one weighs all that waits, which is a round's work.
    pub(super) fn set_next(&self, round: &Round) {
        let next = match self.parts.settings.ranking.select {
            Select::Greedy => round.waiting.iter().take(AT_HAND).map(|(ranked, _)| ranked.clone()).collect(),
            Select::Exact | Select::TopK(_) => Vec::new(),
        };
        *self.next.lock().unwrap_or_else(PoisonError::into_inner) = next;
    }

    fn refill(self: &Arc<Self>) {
        let next = std::mem::take(&mut *self.next.lock().unwrap_or_else(PoisonError::into_inner));
        let next: Vec<Ranked> = {
            let book = self.book();
            next.into_iter().filter_map(|ranked| Some(Ranked { candidate: book.ready(&ranked.candidate)?, ..ranked })).collect()
        };
        let round = start_by(Select::Greedy, next, &mut self.budget(), self.now());
        self.begin_all(round);
    }
}
