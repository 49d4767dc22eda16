//! What a recording holds: one JSON object a line.
//!
//! A line says what was decided and everything that it depended on. Long lists are told
//! by a print of them: whoever makes the decision again compares prints.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::decide::budget::{Budget, Denied, Reservation, Used};
use crate::decide::round::{Candidate, Ranked, Round};
use crate::decide::{Case, ScopeMemory, TableFacts};
use crate::model::decision::{Decision, Verdict};
use crate::model::economy::{Prices, Ranking};
use crate::model::ident::{TableIdent, TableName, beside_main};
use crate::model::layout::{SizeScale, TIERS, Tier};
use crate::model::partition::PartitionKey;
use crate::model::plan::{Bound, Plan};
use crate::model::policy::Policy;
use crate::model::refusal::Refused;
use crate::model::traits::Traits;

/// The version of the lines below. A recording of another one is not read.
pub const VERSION: u32 = 1;

/// One line.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Line {
    /// A file, or a process, begins.
    Begins(Box<Begins>),
    /// A table's settings, before the first decision that they led to.
    Table(Box<Table>),
    /// A decision about a partition.
    Judged(Box<Judged>),
    /// A round that started something, or that found other candidates than the one before.
    Round(Box<RoundMade>),
    /// A job's own bound was asked for in place of what was held for it.
    Exchanged(Box<Exchanged>),
    /// A job gave back what it did not use.
    Settled(Box<Settled>),
    /// A job ended.
    Job(Box<Job>),
    /// A partition has no files any more.
    Closed(Box<Closed>),
}

/// See [`Line::Begins`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Begins {
    /// [`VERSION`].
    pub version: u32,
    /// The program that writes.
    pub program: String,
    /// When, in milliseconds since the epoch.
    pub at_ms: i64,
    /// How candidates are compared and chosen.
    pub ranking: Ranking,
    /// What resources cost.
    pub prices: Prices,
    /// The budgets as they stand.
    pub budget: Budget,
}

/// See [`Line::Table`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Table {
    /// Identity.
    pub ident: TableIdent,
    /// Its name.
    pub name: TableName,
    /// Whose it is.
    pub tenant: Option<Arc<str>>,
    /// Those of its properties that a policy may come from.
    pub properties: BTreeMap<String, String>,
    /// What its settings mean.
    pub policy: Policy,
}

/// See [`Line::Judged`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Judged {
    /// When, in milliseconds since the epoch.
    pub at_ms: i64,
    /// The table.
    pub table: TableIdent,
    /// The branch; `None` for `main`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<Arc<str>>,
    /// The partition.
    pub scope: PartitionKey,
    /// Oldest known time of the table.
    pub created_ms: i64,
    /// Live data bytes of the table.
    pub bytes: u64,
    /// The snapshot judged.
    pub snapshot_id: i64,
    /// Refusals of the table and of the partition.
    pub refusals: Vec<Refused>,
    /// Whether it was paused.
    pub paused: bool,
    /// Whether work on it was under way.
    pub in_flight: bool,
    /// What earlier work had taught.
    pub memory: ScopeMemory,
    /// Its traits.
    pub traits: Traits,
    /// What was decided.
    pub verdict: Verdict,
    /// A print of every check.
    pub checks: u64,
}

impl Judged {
    /// A decision with what it was made of.
    pub fn of(case: &Case<'_>, branch: Option<Arc<str>>, decision: &Decision) -> Self {
        Self {
            at_ms: case.now_ms,
            table: case.table.ident,
            branch,
            scope: case.scope.clone(),
            created_ms: case.table.created_ms,
            bytes: case.table.bytes,
            snapshot_id: case.table.snapshot_id,
            refusals: case.refusals.to_vec(),
            paused: case.paused,
            in_flight: case.in_flight,
            memory: case.memory.clone(),
            traits: case.traits.clone(),
            verdict: decision.verdict.clone(),
            checks: print(&decision.checks),
        }
    }

    /// The facts of its table, under its name.
    pub fn facts(&self, name: &TableName) -> TableFacts {
        TableFacts { ident: self.table, name: name.clone(), created_ms: self.created_ms, bytes: self.bytes, snapshot_id: self.snapshot_id }
    }

    /// The decision made again, under a policy.
    pub fn again(&self, facts: &TableFacts, policy: &Policy) -> Decision {
        crate::decide::judge(&Case {
            now_ms: self.at_ms,
            table: facts,
            policy,
            refusals: &self.refusals,
            paused: self.paused,
            in_flight: self.in_flight,
            scope: &self.scope,
            traits: &self.traits,
            memory: &self.memory,
        })
    }
}

/// A candidate's name: its table and partition, and its branch where that is another than
/// `main`. A line has it as a list of these.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// The table.
    pub table: TableIdent,
    /// The branch; `None` for `main`.
    pub branch: Option<Arc<str>>,
    /// The partition.
    pub scope: PartitionKey,
}

impl Serialize for Key {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.branch {
            None => (&self.table, &self.scope).serialize(serializer),
            Some(branch) => (&self.table, &self.scope, branch).serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct List;

        impl<'de> Visitor<'de> for List {
            type Value = Key;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a table, a partition, and maybe a branch")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Key, A::Error> {
                let table = list.next_element()?.ok_or_else(|| A::Error::invalid_length(0, &self))?;
                let scope = list.next_element()?.ok_or_else(|| A::Error::invalid_length(1, &self))?;
                Ok(Key { table, scope, branch: list.next_element()? })
            }
        }

        deserializer.deserialize_seq(List)
    }
}

impl Key {
    /// Of a partition on a table's branch.
    pub fn of(table: TableIdent, branch: Option<&Arc<str>>, scope: &PartitionKey) -> Self {
        Self { table, branch: branch.cloned(), scope: scope.clone() }
    }
}

/// The name of a candidate.
pub fn key(of: &Candidate) -> Key {
    Key::of(of.table, of.context.branch.as_ref(), &of.scope)
}

/// See [`Line::Round`].
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RoundMade {
    /// When, in milliseconds since the epoch.
    pub at_ms: i64,
    /// Candidates that are new, or other than in the round before.
    pub changed: Vec<Candidate>,
    /// Candidates of the round before that wait no more.
    pub gone: Vec<Key>,
    /// Those that were started, best first.
    pub started: Vec<Key>,
    /// A print of all candidates in their order, with their scores.
    pub order: u64,
    /// A print of what each of the others waited for.
    pub waits: u64,
}

impl RoundMade {
    /// What became of a round, without its candidates.
    pub fn of(at_ms: i64, order: u64, round: &Round) -> Self {
        let waits: Vec<(Key, &Denied)> = round.waiting.iter().chain(&round.never).map(|(r, denied)| (key(&r.candidate), denied)).collect();
        Self {
            at_ms,
            started: round.started.iter().map(|(r, _)| key(&r.candidate)).collect(),
            order,
            waits: print(&waits),
            ..Self::default()
        }
    }
}

/// A print of candidates in their order, with their scores.
pub fn order(ranked: &[Ranked]) -> u64 {
    let all: Vec<(Key, f64)> = ranked.iter().map(|r| (key(&r.candidate), r.score)).collect();
    print(&all)
}

/// See [`Line::Exchanged`].
#[derive(Debug, Serialize, Deserialize)]
pub struct Exchanged {
    /// When, in milliseconds since the epoch.
    pub at_ms: i64,
    /// What was given back.
    pub back: Option<Reservation>,
    /// Asked for: the job's upper bound,
    pub bound: Bound,
    /// the bytes that it may replace,
    pub bytes: u64,
    /// its table,
    pub table: Option<TableIdent>,
    /// and its tenant.
    pub tenant: Option<Arc<str>>,
    /// Why it was not granted; `None` when it was.
    pub denied: Option<Denied>,
}

impl Clone for Exchanged {
    fn clone(&self) -> Self {
        Self {
            back: self.back.as_ref().map(Reservation::recorded),
            bound: self.bound,
            tenant: self.tenant.clone(),
            denied: self.denied.clone(),
            ..*self
        }
    }
}

/// See [`Line::Settled`].
#[derive(Debug, Serialize, Deserialize)]
pub struct Settled {
    /// When, in milliseconds since the epoch.
    pub at_ms: i64,
    /// What was given back.
    pub reservation: Reservation,
    /// What was used of it.
    pub used: Used,
}

impl Clone for Settled {
    fn clone(&self) -> Self {
        Self { reservation: self.reservation.recorded(), ..*self }
    }
}

/// See [`Line::Closed`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Closed {
    /// When, in milliseconds since the epoch.
    pub at_ms: i64,
    /// The table.
    pub table: TableIdent,
    /// The branch; `None` for `main`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<Arc<str>>,
    /// The partition.
    pub scope: PartitionKey,
}

/// See [`Line::Job`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// When it ended, in milliseconds since the epoch.
    pub at_ms: i64,
    /// The table.
    pub table: TableIdent,
    /// The branch; `None` for `main`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<Arc<str>>,
    /// The partition.
    pub scope: PartitionKey,
    /// Why: a rule's name, or `score`.
    pub reason: String,
    /// Its snapshot, when it landed.
    pub snapshot_id: Option<i64>,
    /// Small files replaced, by size tier.
    pub small: [Tier; TIERS],
    /// Other files replaced,
    pub large_files: u64,
    /// and their bytes.
    pub large_bytes: u64,
    /// Delete files that it applied.
    pub deletes: u64,
    /// Files made.
    pub files_out: u64,
    /// Bytes of the files made.
    pub bytes_out: u64,
    /// Wall time in milliseconds.
    pub millis: i64,
    /// GB-hours spent.
    pub gb_hours: f64,
    /// Requests to object stores.
    pub requests: u64,
}

impl Job {
    /// Files replaced.
    pub fn files_in(&self) -> u64 {
        self.small.iter().map(|tier| u64::from(tier.files)).sum::<u64>().saturating_add(self.large_files)
    }

    /// Bytes of the files replaced.
    pub fn bytes_in(&self) -> u64 {
        self.small.iter().map(|tier| tier.bytes).sum::<u64>().saturating_add(self.large_bytes)
    }

    /// What a plan takes: a job before it has run.
    pub fn planned(plan: &Plan, scale: &SizeScale) -> Self {
        let mut small = [Tier::default(); TIERS];
        let (mut large_files, mut large_bytes) = (0_u64, 0_u64);
        for file in &plan.inputs {
            match small.get_mut(scale.tier(file.bytes)).filter(|_| scale.is_small(file.bytes)) {
                Some(tier) => *tier = Tier { files: tier.files.saturating_add(1), bytes: tier.bytes.saturating_add(file.bytes) },
                None => (large_files, large_bytes) = (large_files.saturating_add(1), large_bytes.saturating_add(file.bytes)),
            }
        }
        Self {
            at_ms: 0,
            table: plan.table,
            branch: beside_main(&plan.reference),
            scope: plan.scope.clone(),
            reason: plan.reason.clone(),
            snapshot_id: None,
            small,
            large_files,
            large_bytes,
            deletes: plan.deletes.len() as u64,
            files_out: 0,
            bytes_out: 0,
            millis: 0,
            gb_hours: 0.0,
            requests: 0,
        }
    }
}

/// A print of a value: FNV-1a over its JSON. Equal values have equal prints, on every
/// machine.
pub fn print<T: Serialize>(of: &T) -> u64 {
    struct Fnv(u64);

    impl std::io::Write for Fnv {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            for byte in bytes {
                self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
            }
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    let mut fnv = Fnv(0xcbf2_9ce4_8422_2325);
    // what JSON cannot say, such as a key that is no text, is in none of these values
    let _ = serde_json::to_writer(&mut fnv, of);
    fnv.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::partition::Value;

    #[test]
    fn a_key_names_its_branch_where_that_is_not_main_and_reads_back_equal() {
        let table = TableIdent::iceberg(uuid::Uuid::from_u128(7));
        let scope = PartitionKey { spec_id: 3, tuple: Arc::from([Some(Value::Decimal(i128::MIN)), Some(Value::Uuid(u128::MAX)), None]) };
        let main = Key::of(table, None, &scope);
        let audit = Key { branch: Some("audit".into()), ..main.clone() };
        for key in [&main, &audit] {
            let text = serde_json::to_string(key).unwrap();
            assert_eq!(&serde_json::from_str::<Key>(&text).unwrap(), key, "{text}");
        }
        // as recordings without branches have it
        assert_eq!(serde_json::to_string(&main).unwrap(), serde_json::to_string(&(table, scope)).unwrap());
        assert!(main < audit);
    }
}
