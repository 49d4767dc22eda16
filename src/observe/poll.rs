//! The poller: one cheap listing of a catalog at a time, whose pointers tell
//! which tables have moved. It bounds how long a commit that no event told of
//! stays unseen, and finds new and vanished tables.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::inbox::Inbox;
use super::roster::Roster;
use crate::lake::clock::{Chance, Clock};
use crate::lake::{self, Format, Pointer};
use crate::model::event::{Certainty, Door, Event, Heard};
use crate::model::ident::TableName;
use crate::telemetry;

/// How often a catalog is listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Shortest time between two listings, in milliseconds.
    pub min_ms: i64,
    /// Longest time between two listings, in milliseconds: the bound on how long
    /// a commit stays unseen while the catalog answers.
    pub max_ms: i64,
    /// How long a listing may take before the catalog counts as silent, in
    /// milliseconds.
    pub patience_ms: i64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { min_ms: 2_000, max_ms: 60_000, patience_ms: 30_000 }
    }
}

/// What one listing led to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Tables listed.
    pub tables: usize,
    /// Tables marked for a look because they are new or their pointer moved.
    pub moved: Vec<TableName>,
    /// Tables marked for a look because they are no longer listed. Such a look
    /// finds no table, or finds that the listing was wrong; a renamed table is
    /// recognised by its uuid when the look at its new name is made.
    pub vanished: Vec<TableName>,
    /// Tables that could not be marked, because the inbox is full: they are news
    /// again at the next listing.
    pub left: usize,
}

/// Polls one catalog.
pub struct Poller {
    /// The catalog's name.
    pub catalog: String,
    /// Where it is listed.
    pub format: Arc<dyn Format>,
    /// Where tables are marked.
    pub inbox: Inbox,
    /// Where pointers are kept.
    pub roster: Arc<Roster>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Spreads the polls of many processes.
    pub chance: Arc<dyn Chance>,
    /// How often.
    pub limits: Limits,
    /// The branches to look at when a pointer moves.
    pub references: Vec<String>,
    /// A proxy stands before the catalog: engines whose commits only a poll finds go
    /// around it.
    pub proxied: bool,
}

/// Moves in a row of one table that only polls found, before it is said.
const GOES_AROUND: u32 = 3;

impl Poller {
    /// Lists the catalog again and again until stopped. A catalog that does not
    /// answer is asked more and more rarely, and never given up.
    pub async fn run(&self, stop: CancellationToken) {
        let mut interval_ms = self.limits.min_ms;
        loop {
            let found = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                found = self.once() => found,
            };
            interval_ms = self.after(interval_ms, &found);
            if let Err(error) = &found {
                tracing::warn!(catalog = %self.catalog, %error, retry_in_ms = interval_ms, "the catalog could not be listed");
            }
            let pause = spread(interval_ms, self.chance.next());
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = self.clock.sleep(pause) => {}
                () = self.wanted() => {}
            }
        }
    }

    /// Somebody wants a listing, and the shortest time since the last one is over.
    async fn wanted(&self) {
        let wanted = self.roster.wanted(&self.catalog);
        wanted.notified().await;
        self.clock.sleep(Duration::from_millis(u64::try_from(self.limits.min_ms).unwrap_or(0))).await;
        // one listing is for all who wanted one until now
        let _served = wanted.notified().now_or_never();
    }

    /// Lists the catalog once and marks what moved.
    ///
    /// # Errors
    /// When the catalog does not answer; what was known stays as it is.
    pub async fn once(&self) -> Result<Found, lake::Error> {
        let pointers = match self.list().await {
            Ok(pointers) => pointers,
            Err(error) => {
                self.roster.failed(&self.catalog, error.to_string());
                telemetry::catalog_listed(&self.catalog, false);
                return Err(error);
            }
        };
        telemetry::catalog_listed(&self.catalog, true);
        let news = self.roster.listed(&self.catalog, pointers, self.clock.now_ms());
        news.missed.iter().for_each(|(name, in_a_row)| self.missed(name, *in_a_row));
        let mut found = Found { tables: news.tables, ..Found::default() };
        for pointer in news.moved {
            if self.mark(&pointer.name) {
                found.moved.push(pointer.name.clone());
                self.roster.marked(pointer);
            } else {
                found.left += 1;
            }
        }
        for name in news.vanished {
            if self.mark(&name) {
                found.vanished.push(name);
            } else {
                found.left += 1;
                self.roster.unmarked(name);
            }
        }
        Ok(found)
    }

    /// A known table moved, and no look knew. A door may have told of it just now.
    fn missed(&self, name: &TableName, in_a_row: u32) {
        if self.references.iter().any(|reference| self.inbox.is_marked(name, reference)) {
            return self.roster.told(name);
        }
        telemetry::commit_missed(&self.catalog);
        if self.proxied && in_a_row == GOES_AROUND {
            tracing::warn!(
                table = %name,
                "the last {in_a_row} moves of the table were found by polling and not told by the proxy before its catalog: does a writer go around it?"
            );
        }
    }

    /// A connection that hangs must not stop the polling.
    async fn list(&self) -> lake::Result<Vec<Pointer>> {
        let patience = Duration::from_millis(u64::try_from(self.limits.patience_ms).unwrap_or(0));
        tokio::select! {
            biased;
            listed = self.format.list(&self.catalog).instrument(telemetry::span::poll(&self.catalog)) => listed,
            () = self.clock.sleep(patience) => {
                let why = anyhow::anyhow!("no answer within {} ms", self.limits.patience_ms);
                Err(lake::Error::unreachable(format!("catalog {}", self.catalog), why))
            }
        }
    }

    fn mark(&self, name: &TableName) -> bool {
        self.references.iter().all(|reference| {
            let event = Event {
                door: Door::Poll,
                table: name.clone(),
                uuid: None,
                reference: Some(reference.clone()),
                snapshots: Vec::new(),
                certainty: Certainty::CatalogConfirmed,
                files_added: 0,
                heard_ms: self.clock.now_ms(),
            };
            let heard = self.inbox.hear(event);
            telemetry::event_heard(Door::Poll, heard);
            heard != Heard::Full
        })
    }

    /// The next interval: half as long after news, half as long again after none,
    /// double after a failure, within the limits.
    fn after(&self, interval_ms: i64, found: &Result<Found, lake::Error>) -> i64 {
        let next = match found {
            Err(_) => interval_ms.saturating_mul(2),
            Ok(found) if found.left > 0 => self.limits.min_ms,
            Ok(found) if found.moved.is_empty() && found.vanished.is_empty() => {
                interval_ms.saturating_add(interval_ms / 2).saturating_add(1)
            }
            Ok(_) => interval_ms / 2,
        };
        next.min(self.limits.max_ms).max(self.limits.min_ms)
    }
}

/// Up to a tenth shorter than asked for, never longer.
fn spread(interval_ms: i64, random: u64) -> Duration {
    let most = u64::try_from(interval_ms).unwrap_or(0).max(1);
    Duration::from_millis(most - random % (most / 10 + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_at_most_a_tenth_shorter() {
        let pauses = [0, 100, 101, u64::MAX].map(|r| spread(1000, r).as_millis());
        assert_eq!(pauses, [1000, 900, 1000, 1000 - (u64::MAX % 101) as u128]);
    }
}
