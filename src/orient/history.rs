//! What was heard of a table, and when. It depends on the moments of our looks,
//! so it is no part of a layout's identity; writers' clocks play no part in it.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::model::partition::PartitionKey;
use crate::model::writers::Cadence;

const HOUR_MS: f64 = 3_600_000.0;

/// Commits heard of a table and of some of its partitions.
#[derive(Clone, Debug, PartialEq)]
pub struct History {
    table: Heard,
    partitions: BTreeMap<PartitionKey, Heard>,
}

/// Commits heard of one scope.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Heard {
    /// Since when everything is known, in milliseconds since the epoch.
    pub known_since_ms: i64,
    /// Commits per hour, as of `rate_ms`.
    pub rate: f64,
    /// When `rate` was true.
    pub rate_ms: i64,
    /// When the last foreign commit was heard of; `None` when none was.
    pub last_foreign_ms: Option<i64>,
    /// Bytes that users wrote: data and delete files of foreign commits that are no rewrites.
    pub user_bytes: u64,
    /// Bytes that this product's rewrites wrote.
    pub rewritten_bytes: u64,
    /// Foreign commits that a rewrite could make fail.
    pub cadence: Cadence,
}

/// Who made a commit, as far as history cares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Author {
    /// A rewrite of this product, of any instance.
    Own,
    /// A foreign rewrite: a commit, but no user's bytes.
    Rewriter,
    /// Anyone else.
    User,
}

impl Heard {
    /// Nothing heard yet.
    pub fn nothing(since_ms: i64) -> Self {
        Self {
            known_since_ms: since_ms,
            rate: 0.0,
            rate_ms: since_ms,
            last_foreign_ms: None,
            user_bytes: 0,
            rewritten_bytes: 0,
            cadence: Cadence::default(),
        }
    }

    /// Foreign commits per hour now: `ln 2 · Σ 2^(−age / 1 h)`, which a steady
    /// rate converges to. A clock that went back counts as standing still.
    pub fn commit_rate(&self, now_ms: i64) -> f64 {
        let hours = now_ms.saturating_sub(self.rate_ms).max(0) as f64 / HOUR_MS;
        self.rate * (-hours).exp2()
    }

    /// Milliseconds since the last foreign commit; never negative.
    pub fn quiet_for_ms(&self, now_ms: i64) -> Option<i64> {
        self.last_foreign_ms.map(|last| now_ms.saturating_sub(last).max(0))
    }

    /// Bytes rewritten over bytes written by users; 0 when nothing is known of these.
    pub fn write_amplification(&self) -> f64 {
        if self.user_bytes == 0 { 0.0 } else { self.rewritten_bytes as f64 / self.user_bytes as f64 }
    }

    fn commit(&mut self, author: Author, bytes: u64, now_ms: i64) {
        match author {
            Author::Own => self.rewritten_bytes = self.rewritten_bytes.saturating_add(bytes),
            Author::User => self.user_bytes = self.user_bytes.saturating_add(bytes),
            Author::Rewriter => {}
        }
        if author != Author::Own {
            self.rate = self.commit_rate(now_ms) + std::f64::consts::LN_2;
            self.rate_ms = self.rate_ms.max(now_ms);
            self.last_foreign_ms = self.last_foreign_ms.max(Some(now_ms));
        }
    }
}

impl History {
    /// Of a table first seen now.
    pub fn new(now_ms: i64) -> Self {
        Self::from_parts(Heard::nothing(now_ms), [])
    }

    /// From its parts.
    pub fn from_parts(table: Heard, partitions: impl IntoIterator<Item = (PartitionKey, Heard)>) -> Self {
        Self { table, partitions: partitions.into_iter().collect() }
    }

    /// The table's own: a commit that touched many partitions counts once.
    pub fn table(&self) -> &Heard {
        &self.table
    }

    /// Those of the partitions of which anything was heard.
    pub fn partitions(&self) -> &BTreeMap<PartitionKey, Heard> {
        &self.partitions
    }

    /// A partition's; of one that was never touched, that nothing was heard
    /// since the table is known.
    pub fn partition(&self, key: &PartitionKey) -> Heard {
        self.partitions.get(key).copied().unwrap_or(Heard::nothing(self.table.known_since_ms))
    }

    /// A commit was heard that wrote these bytes into each of these partitions.
    pub fn commit(&mut self, author: Author, written: &BTreeMap<PartitionKey, u64>, now_ms: i64) {
        let total = written.values().fold(0, |sum: u64, bytes| sum.saturating_add(*bytes));
        self.table.commit(author, total, now_ms);
        for (key, bytes) in written {
            let mut heard = self.partition(key);
            heard.commit(author, *bytes, now_ms);
            self.partitions.insert(key.clone(), heard);
        }
    }

    /// A foreign commit took files or rows away in these partitions: one that a rewrite
    /// of the same files could make fail. `written_ms` is its writer's clock.
    pub fn contend<'a>(&mut self, partitions: impl IntoIterator<Item = &'a PartitionKey>, written_ms: i64, now_ms: i64) {
        for key in partitions {
            let mut heard = self.partition(key);
            heard.cadence.commit(written_ms, now_ms);
            self.partitions.insert(key.clone(), heard);
        }
    }

    /// Commits went by unseen and left these partitions different: their sums
    /// begin anew, with one foreign commit now.
    pub fn unseen(&mut self, touched: &BTreeSet<PartitionKey>, now_ms: i64) {
        let restarted = || {
            let mut heard = Heard::nothing(now_ms);
            heard.commit(Author::Rewriter, 0, now_ms);
            heard
        };
        self.table = restarted();
        for key in touched {
            self.partitions.insert(key.clone(), restarted());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3_600_000;

    fn key(spec_id: i32) -> PartitionKey {
        PartitionKey::unpartitioned(spec_id)
    }

    fn wrote(bytes: u64) -> BTreeMap<PartitionKey, u64> {
        BTreeMap::from([(key(1), bytes)])
    }

    #[test]
    fn a_commit_counts_half_after_an_hour() {
        let mut history = History::new(0);
        history.commit(Author::User, &wrote(10), HOUR);
        let heard = history.partition(&key(1));
        assert_eq!(heard.commit_rate(HOUR), std::f64::consts::LN_2);
        assert_eq!(heard.commit_rate(2 * HOUR), std::f64::consts::LN_2 / 2.0);
    }

    #[test]
    fn a_steady_rate_is_found() {
        let mut history = History::new(0);
        for minute in 0..6000 {
            history.commit(Author::User, &wrote(1), minute * 60_000);
        }
        let rate = history.table().commit_rate(6000 * 60_000 - 30_000);
        assert!((rate - 60.0).abs() < 0.01, "{rate}");
    }

    #[test]
    fn our_own_commits_are_no_activity_and_count_as_rewritten() {
        let mut history = History::new(0);
        history.commit(Author::User, &wrote(100), HOUR);
        history.commit(Author::Own, &wrote(50), 2 * HOUR);
        let heard = history.partition(&key(1));
        assert_eq!(heard.quiet_for_ms(3 * HOUR), Some(2 * HOUR));
        assert_eq!((heard.user_bytes, heard.rewritten_bytes, heard.write_amplification()), (100, 50, 0.5));
        assert_eq!(heard.commit_rate(HOUR), std::f64::consts::LN_2);
    }

    #[test]
    fn a_foreign_rewrite_is_activity_but_no_users_bytes() {
        let mut history = History::new(0);
        history.commit(Author::Rewriter, &wrote(100), HOUR);
        let heard = history.partition(&key(1));
        assert_eq!((heard.quiet_for_ms(HOUR), heard.user_bytes, heard.rewritten_bytes), (Some(0), 0, 0));
    }

    #[test]
    fn the_rhythm_of_commits_that_contend_is_kept_by_partition() {
        let mut history = History::new(0);
        for minute in 1..4 {
            history.commit(Author::User, &wrote(1), minute * 60_000);
            history.contend([&key(1)], minute * 60_000 - 7, minute * 60_000);
        }
        let (one, two) = (history.partition(&key(1)).cadence, history.partition(&key(2)).cadence);
        assert_eq!((one.commits, one.gap_ms, one.heard_ms, two), (3, 60_000, 180_000, Cadence::default()));
        history.unseen(&BTreeSet::from([key(1)]), HOUR);
        assert_eq!(history.partition(&key(1)).cadence, Cadence::default());
    }

    #[test]
    fn a_clock_that_goes_back_makes_nothing_negative() {
        let mut history = History::new(HOUR);
        history.commit(Author::User, &wrote(1), 5 * HOUR);
        history.commit(Author::User, &wrote(1), 2 * HOUR);
        let heard = history.partition(&key(1));
        assert_eq!(heard.quiet_for_ms(HOUR), Some(0));
        assert_eq!(heard.last_foreign_ms, Some(5 * HOUR));
        assert_eq!(heard.commit_rate(0), 2.0 * std::f64::consts::LN_2);
    }

    #[test]
    fn an_untouched_partition_is_known_since_the_table_is() {
        assert_eq!(History::new(7).partition(&key(3)), Heard::nothing(7));
    }

    #[test]
    fn unseen_commits_restart_what_they_touched() {
        let mut history = History::new(0);
        history.commit(Author::User, &BTreeMap::from([(key(1), 5), (key(2), 6)]), HOUR);
        history.unseen(&BTreeSet::from([key(1)]), 3 * HOUR);
        let (one, two) = (history.partition(&key(1)), history.partition(&key(2)));
        assert_eq!((one.known_since_ms, one.user_bytes, one.quiet_for_ms(3 * HOUR)), (3 * HOUR, 0, Some(0)));
        assert_eq!((two.known_since_ms, two.user_bytes, two.quiet_for_ms(3 * HOUR)), (0, 6, Some(2 * HOUR)));
    }
}
