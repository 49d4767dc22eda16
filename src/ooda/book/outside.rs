//! Statistics that others told, of tables and partitions, until they expire. What is told
//! of a table is kept over a restart, with when it was told. It holds for all of its branches.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Book, Branch, Page, Scope};
use crate::decide::filter::is_at_limit;
use crate::decide::mode::is_pressed;
use crate::model::ident::{TableIdent, TableName};
use crate::model::mode::Mode;
use crate::model::outside::{Outside, Stat, Told};
use crate::model::partition::PartitionKey;

/// Scopes of which anything is told, at most.
const MOST: usize = 1_000_000;

/// A number as it was told.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Sample {
    value: f64,
    told_ms: i64,
    until_ms: i64,
}

/// What was told of one scope.
type Row = BTreeMap<Stat, Sample>;

/// What was told of one table.
#[derive(Debug, Default)]
struct OfTable {
    whole: Row,
    partitions: BTreeMap<PartitionKey, Row>,
}

/// Everything that was told.
#[derive(Debug, Default)]
pub struct Outsiders {
    tables: HashMap<TableName, OfTable>,
    /// No sample expires before.
    next_ms: i64,
    scopes: usize,
    /// Tables of which something else is told than is kept.
    changed: BTreeSet<TableName>,
}

/// What is told of one table, as it is kept; of the table itself without a partition.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KeptTold(Vec<(Option<PartitionKey>, Row)>);

impl KeptTold {
    /// Whether nothing is told.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// One scope's numbers; of the whole table without a partition.
#[derive(Clone, Debug, PartialEq)]
pub struct Telling {
    /// The partition.
    pub partition: Option<PartitionKey>,
    /// The numbers.
    pub stats: Vec<(Stat, f64)>,
    /// When they expire, in milliseconds since the epoch.
    pub until_ms: i64,
}

impl Outsiders {
    /// What is told of a partition: of it, else of its table.
    pub fn of(&self, name: &TableName, partition: &PartitionKey, now_ms: i64) -> Outside {
        let mut outside = Outside::default();
        let Some(table) = self.tables.get(name) else { return outside };
        let own = table.partitions.get(partition).into_iter().flatten();
        for (stat, sample) in table.whole.iter().chain(own).filter(|(_, sample)| sample.until_ms > now_ms) {
            outside.set(*stat, Told { value: sample.value, age_ms: now_ms.saturating_sub(sample.told_ms).max(0) });
        }
        outside
    }

    /// The quota in use that is told of a whole table.
    fn quota_used(&self, name: &TableName, now_ms: i64) -> Option<f64> {
        let sample = self.tables.get(name)?.whole.get(&Stat::QuotaUsed).filter(|sample| sample.until_ms > now_ms)?;
        Some(sample.value)
    }

    /// Takes a telling. Whether there was room for it, and whether it changed anything.
    fn tell(&mut self, name: &TableName, telling: &Telling, now_ms: i64) -> Option<bool> {
        let table = self.tables.entry(name.clone()).or_default();
        let row = match &telling.partition {
            None => &mut table.whole,
            Some(key) => table.partitions.entry(key.clone()).or_default(),
        };
        if row.is_empty() && !telling.stats.is_empty() {
            if self.scopes >= MOST {
                return None;
            }
            self.scopes += 1;
        }
        let mut changed = false;
        for (stat, value) in &telling.stats {
            let sample = Sample { value: *value, told_ms: now_ms, until_ms: telling.until_ms };
            let before = row.insert(*stat, sample);
            changed |= before.is_none_or(|b| b.value != *value || b.until_ms <= now_ms);
        }
        self.expires(telling.until_ms);
        self.changed.insert(name.clone());
        Some(changed)
    }

    /// Something expires at a time.
    fn expires(&mut self, until_ms: i64) {
        self.next_ms = if self.next_ms == 0 { until_ms } else { self.next_ms.min(until_ms) };
    }

    /// What is told of a table, to be kept.
    fn kept(&self, name: &TableName) -> KeptTold {
        let Some(table) = self.tables.get(name) else { return KeptTold::default() };
        let rows = std::iter::once((None, &table.whole)).chain(table.partitions.iter().map(|(key, row)| (Some(key.clone()), row)));
        KeptTold(rows.filter(|(_, row)| !row.is_empty()).map(|(key, row)| (key, row.clone())).collect())
    }

    /// Takes what was kept of a table and has not expired; what was told since stands.
    fn restore(&mut self, name: &TableName, kept: KeptTold, now_ms: i64) {
        for (key, row) in kept.0 {
            for (stat, sample) in row.into_iter().filter(|(_, sample)| sample.until_ms > now_ms) {
                let table = self.tables.entry(name.clone()).or_default();
                let row = match &key {
                    None => &mut table.whole,
                    Some(key) => table.partitions.entry(key.clone()).or_default(),
                };
                self.scopes += usize::from(row.is_empty());
                row.entry(stat).or_insert(sample);
                self.expires(sample.until_ms);
            }
        }
    }

    /// Forgets what has expired; gives back of which scopes, `None` for a whole table.
    fn expire(&mut self, now_ms: i64) -> Vec<(TableName, Option<PartitionKey>)> {
        let mut expired = Vec::new();
        if self.next_ms == 0 || now_ms < self.next_ms {
            return expired;
        }
        let (mut next_ms, mut scopes) = (i64::MAX, 0);
        let mut sweep = |row: &mut Row| {
            let before = row.len();
            row.retain(|_, sample| sample.until_ms > now_ms);
            next_ms = row.values().map(|sample| sample.until_ms).fold(next_ms, i64::min);
            scopes += usize::from(!row.is_empty());
            row.len() < before
        };
        let changed = &mut self.changed;
        self.tables.retain(|name, table| {
            let before = expired.len();
            if sweep(&mut table.whole) {
                expired.push((name.clone(), None));
            }
            table.partitions.retain(|key, row| {
                if sweep(row) {
                    expired.push((name.clone(), Some(key.clone())));
                }
                !row.is_empty()
            });
            if expired.len() > before {
                changed.insert(name.clone());
            }
            !table.whole.is_empty() || !table.partitions.is_empty()
        });
        (self.next_ms, self.scopes) = (if next_ms == i64::MAX { 0 } else { next_ms }, scopes);
        expired
    }

    /// A table is gone.
    pub fn forget(&mut self, name: &TableName) {
        if let Some(table) = self.tables.remove(name) {
            let rows = std::iter::once(&table.whole).chain(table.partitions.values());
            self.scopes = self.scopes.saturating_sub(rows.filter(|row| !row.is_empty()).count());
        }
    }
}

impl Book {
    /// Takes what was told of a table; what changes by it is judged again. Gives back of
    /// how many scopes it was taken: fewer when there is no room for more.
    pub fn tell(&mut self, name: &TableName, tellings: &[Telling], now_ms: i64) -> usize {
        let mut taken = 0;
        for telling in tellings {
            let Some(changed) = self.outside.tell(name, telling, now_ms) else { break };
            taken += 1;
            if changed {
                self.judge_anew(name, telling.partition.as_ref(), now_ms);
            }
        }
        taken
    }

    /// What is told of the tables of which something else is told than is kept.
    pub fn take_told(&mut self) -> Vec<(TableName, TableIdent, KeptTold)> {
        let mut told = Vec::new();
        for name in std::mem::take(&mut self.outside.changed) {
            // what is told of a table that is gone went with it
            let Some(ident) = self.pages.of(&name).next().map(|page| page.facts.ident) else { continue };
            let restored = self.pages.of(&name).all(|page| page.restored);
            match restored {
                true => told.push((name.clone(), ident, self.outside.kept(&name))),
                // what was kept of it before is not read yet
                false => drop(self.outside.changed.insert(name)),
            }
        }
        told
    }

    /// What is told of a table could not be kept: it is tried again.
    pub fn told_is_not_kept(&mut self, name: TableName) {
        self.outside.changed.insert(name);
    }

    /// See [`Book::take_told`]: what was told of a table before a restart.
    pub fn restore_told(&mut self, name: &TableName, kept: KeptTold, now_ms: i64) {
        self.outside.restore(name, kept, now_ms);
    }

    /// What has come to another mind by the passing of time alone: numbers that have
    /// expired, and tenants whose use of their quota has passed a bound.
    pub fn pass(&mut self, now_ms: i64) {
        for (name, partition) in self.outside.expire(now_ms) {
            self.judge_anew(&name, partition.as_ref(), now_ms);
        }
        let asks = |page: &Page| page.policy.pace.mode == Mode::QuotaPressure || page.policy.quota_limit.is_some();
        let asks = self.pages.iter().filter(|(_, page)| asks(page)).map(|(name, page)| Branch::new(name, &page.reference));
        for of in asks.collect::<Vec<_>>() {
            let Some(page) = self.pages.get(&of.table, &of.name) else { continue };
            let used = self.outside.quota_used(&of.table, now_ms).or_else(|| self.quota_used(page.tenant.as_ref()));
            let pressed = (is_pressed(&page.policy.pace, used), is_at_limit(&page.policy, used));
            if let Some(page) = self.pages.get_mut(&of.table, &of.name) {
                page.unjudged |= std::mem::replace(&mut page.pressed, pressed) != pressed;
            }
        }
    }

    fn judge_anew(&mut self, name: &TableName, partition: Option<&PartitionKey>, now_ms: i64) {
        let Some(partition) = partition else { return self.pages.of_mut(name).for_each(|page| page.unjudged = true) };
        let branches: Vec<Arc<str>> = self.pages.of(name).map(|page| Arc::clone(&page.reference)).collect();
        for branch in branches {
            self.call(&Scope { name: name.clone(), branch, partition: partition.clone() }, now_ms);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::partition::Value;

    fn name() -> TableName {
        TableName::new("lake", "ns", "t")
    }

    fn key(n: i32) -> PartitionKey {
        PartitionKey { spec_id: 0, tuple: Arc::from([Some(Value::Int(n))]) }
    }

    fn telling(partition: Option<i32>, stat: Stat, value: f64, until_ms: i64) -> Telling {
        Telling { partition: partition.map(key), stats: vec![(stat, value)], until_ms }
    }

    #[test]
    fn a_partition_is_known_by_what_is_told_of_it_else_of_its_table_until_it_expires() {
        let mut outside = Outsiders::default();
        assert_eq!(outside.tell(&name(), &telling(None, Stat::ReadRate, 5.0, 100), 0), Some(true));
        outside.tell(&name(), &telling(Some(1), Stat::ReadRate, 7.0, 50), 10);
        outside.tell(&name(), &telling(Some(1), Stat::OpenCalls, 9.0, 60), 20);
        let at = |outside: &Outsiders, n, now, stat| outside.of(&name(), &key(n), now).get(stat).map(|t| (t.value, t.age_ms));
        assert_eq!(at(&outside, 1, 30, Stat::ReadRate), Some((7.0, 20)));
        assert_eq!(at(&outside, 2, 30, Stat::ReadRate), Some((5.0, 30)));
        assert_eq!(at(&outside, 2, 30, Stat::OpenCalls), None);
        // expired, though not swept yet
        assert_eq!(at(&outside, 1, 50, Stat::ReadRate), Some((5.0, 50)));
        assert_eq!(outside.expire(49), vec![]);
        assert_eq!(outside.expire(50), vec![(name(), Some(key(1)))]);
        assert_eq!((outside.scopes, outside.next_ms), (2, 60));
        assert_eq!(outside.expire(1000).len(), 2);
        assert_eq!((outside.scopes, outside.next_ms, outside.tables.len()), (0, 0, 0));
    }

    #[test]
    fn what_was_told_is_there_again_as_old_as_it_is_and_what_was_told_since_stands() {
        let mut before = Outsiders::default();
        before.tell(&name(), &telling(None, Stat::ReadRate, 5.0, 100), 0);
        before.tell(&name(), &telling(Some(1), Stat::ReadRate, 7.0, 40), 10);
        before.tell(&name(), &telling(Some(2), Stat::OpenCalls, 9.0, 200), 20);
        let kept: KeptTold = postcard::from_bytes(&postcard::to_stdvec(&before.kept(&name())).unwrap()).unwrap();
        let mut again = Outsiders::default();
        again.tell(&name(), &telling(None, Stat::ReadRate, 6.0, 90), 50);
        again.restore(&name(), kept, 50);
        let at = |n, stat| again.of(&name(), &key(n), 60).get(stat).map(|t| (t.value, t.age_ms));
        assert_eq!((at(1, Stat::ReadRate), at(2, Stat::ReadRate)), (Some((6.0, 10)), Some((6.0, 10))));
        assert_eq!((at(2, Stat::OpenCalls), again.scopes, again.next_ms), (Some((9.0, 40)), 2, 90));
        // all of it expires as if it had been told here
        assert_eq!((again.expire(200).len(), again.scopes), (2, 0));
        assert!(again.kept(&name()).is_empty() && again.changed.contains(&name()));
    }

    #[test]
    fn what_is_told_again_changes_nothing_and_lasts_longer() {
        let mut outside = Outsiders::default();
        outside.tell(&name(), &telling(None, Stat::ReadRate, 5.0, 100), 0);
        assert_eq!(outside.tell(&name(), &telling(None, Stat::ReadRate, 5.0, 200), 50), Some(false));
        assert_eq!(outside.expire(150), vec![]);
        assert_eq!(outside.of(&name(), &key(1), 150).value(Stat::ReadRate), Some(5.0));
        assert_eq!(outside.tell(&name(), &telling(None, Stat::ReadRate, 5.0, 900), 300), Some(true));
        outside.forget(&name());
        assert_eq!(outside.scopes, 0);
    }

    proptest! {
        #[test]
        fn scopes_are_counted_and_nothing_outlives_its_time(
            steps in prop::collection::vec((proptest::option::of(0i32..3), 0usize..5, 1i64..50, any::<bool>()), 0..60),
        ) {
            let mut outside = Outsiders::default();
            for (now, (partition, stat, lasts, sweep)) in (0i64..).step_by(7).zip(steps) {
                outside.tell(&name(), &telling(partition, Stat::ALL[stat], 1.0, now + lasts), now);
                if sweep {
                    outside.expire(now);
                }
                let rows = outside.tables.values().flat_map(|t| std::iter::once(&t.whole).chain(t.partitions.values()));
                prop_assert_eq!(outside.scopes, rows.clone().filter(|row| !row.is_empty()).count());
                let first = rows.flat_map(|row| row.values()).map(|s| s.until_ms).min();
                prop_assert!(first.is_none_or(|first| outside.next_ms <= first && outside.next_ms > 0));
            }
        }
    }
}
