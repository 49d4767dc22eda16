//! Decisions as they were made, within a bound over all tables.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::Scope;
use crate::model::decision::Verdict;
use crate::model::ident::TableIdent;
use crate::serve::backend::Explained;
use crate::telemetry::verdict_names;

/// Decisions kept, over all tables.
const MOST: usize = 10_000;

/// A verdict that stands, and since when.
#[derive(Clone, Debug, PartialEq)]
pub struct Standing {
    /// The verdict.
    pub verdict: Verdict,
    /// When it came to be, in milliseconds since the epoch.
    pub since_ms: i64,
}

impl Standing {
    /// What a decision leaves standing.
    pub fn of(made: &Explained) -> Self {
        Self { verdict: made.decision.verdict.clone(), since_ms: made.decided_ms }
    }

    /// Since when a verdict made now stands: the same rule, or the same reason, with
    /// other numbers is the same verdict.
    pub fn since(standing: Option<&Self>, verdict: &Verdict, now_ms: i64) -> i64 {
        let same = standing.filter(|s| verdict_names(&s.verdict) == verdict_names(verdict));
        same.map_or(now_ms, |s| s.since_ms)
    }
}

/// The decisions that are kept: the oldest go first.
#[derive(Default)]
pub struct Log {
    made: VecDeque<(Scope, Arc<Explained>)>,
    last: HashMap<Scope, Arc<Explained>>,
}

impl Log {
    /// Keeps a decision; it is the last one of its partition.
    pub fn keep(&mut self, scope: Scope, made: Arc<Explained>) {
        self.last.insert(scope.clone(), Arc::clone(&made));
        self.made.push_back((scope, made));
        if self.made.len() > MOST
            && let Some((scope, oldest)) = self.made.pop_front()
            && self.last.get(&scope).is_some_and(|last| Arc::ptr_eq(last, &oldest))
        {
            self.last.remove(&scope);
        }
    }

    /// The last decision on a partition, if it is kept.
    pub fn last(&self, scope: &Scope, table: TableIdent) -> Option<&Arc<Explained>> {
        self.last.get(scope).filter(|made| made.decision.table == table)
    }

    /// What the last decision on a partition left standing.
    pub fn standing(&self, scope: &Scope, table: TableIdent) -> Option<Standing> {
        self.last(scope, table).map(|made| Standing::of(made))
    }

    /// A partition has no files any more: what is decided next is decided anew.
    pub fn close(&mut self, scope: &Scope) {
        self.last.remove(scope);
    }

    /// The decisions on a partition, newest first.
    pub fn of(&self, scope: &Scope, table: TableIdent) -> impl Iterator<Item = &Arc<Explained>> {
        let of = move |(s, made): &&(Scope, Arc<Explained>)| s == scope && made.decision.table == table;
        self.made.iter().rev().filter(of).map(|(_, made)| made)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::decision::{Decision, Reason};
    use crate::model::ident::TableName;
    use crate::model::partition::{PartitionKey, Value};
    use crate::model::traits::Traits;

    fn table() -> TableIdent {
        TableIdent::iceberg(uuid::Uuid::from_u128(7))
    }

    fn scope(n: i32) -> Scope {
        let partition = PartitionKey { spec_id: 0, tuple: Arc::from([Some(Value::Int(n))]) };
        Scope { name: TableName::new("lake", "ns", "t"), branch: "main".into(), partition }
    }

    fn made(n: i32, at_ms: i64) -> Arc<Explained> {
        let decision = Decision {
            table: table(),
            name: scope(n).name,
            scope: scope(n).partition,
            snapshot_id: 1,
            at_ms,
            verdict: Verdict::Not { reason: Reason::Healthy },
            act: false,
            checks: vec![],
            traits: Traits::default(),
            eligible_ms: None,
        };
        Arc::new(Explained {
            branch: "main".into(),
            label: String::new(),
            decision,
            decided_ms: at_ms,
            score: 0.0,
            waits_for: String::new(),
            last_job: None,
        })
    }

    #[test]
    fn no_more_decisions_are_kept_than_the_bound_and_the_oldest_go_first() {
        let mut log = Log::default();
        for at_ms in 0..MOST as i64 + 5 {
            log.keep(scope(at_ms as i32), made(at_ms as i32, at_ms));
        }
        assert_eq!((log.made.len(), log.last.len()), (MOST, MOST));
        assert_eq!((log.last(&scope(4), table()).is_some(), log.last(&scope(5), table()).is_some()), (false, true));
        // one that is decided about again and again is kept by its last decision
        for at_ms in 0..MOST as i64 {
            log.keep(scope(1), made(1, at_ms));
        }
        assert_eq!((log.made.len(), log.last.len()), (MOST, 1));
        assert_eq!(log.last(&scope(1), table()).unwrap().decision.at_ms, MOST as i64 - 1);
    }

    #[test]
    fn the_decisions_on_a_partition_of_a_table_are_told_newest_first() {
        let mut log = Log::default();
        [1, 2, 3].into_iter().for_each(|at_ms| log.keep(scope(1), made(1, at_ms)));
        log.keep(scope(2), made(2, 4));
        let all: Vec<i64> = log.of(&scope(1), table()).map(|e| e.decision.at_ms).collect();
        assert_eq!((log.last(&scope(1), table()).unwrap().decision.at_ms, all), (3, vec![3, 2, 1]));
        // another table under the name has none
        let other = TableIdent::iceberg(uuid::Uuid::from_u128(8));
        assert_eq!((log.last(&scope(1), other).is_none(), log.of(&scope(1), other).count()), (true, 0));
        log.close(&scope(1));
        assert!(log.last(&scope(1), table()).is_none());
    }

    #[test]
    fn a_verdict_stands_while_only_its_numbers_change() {
        let now = |gain| Verdict::Now { rule: "small-files".into(), gb_hours: 1.0, gain };
        let standing = Standing { verdict: now(3), since_ms: 5 };
        assert_eq!(Standing::since(Some(&standing), &now(4), 9), 5);
        assert_eq!(Standing::since(Some(&standing), &Verdict::Queued { gb_hours: 1.0, gain: 4, rule: None }, 9), 9);
        assert_eq!(Standing::since(None, &now(4), 9), 9);
    }
}
