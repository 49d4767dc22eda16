//! The hard budgets: jobs reserve their upper bound and settle to what they used.
//!
//! A job is booked to every budget that concerns it, the overall one, its tenant's
//! and its table's, in GB-hours, bytes, commits and jobs at one time. It starts when
//! all of them hold it, and then none is passed: see `decide::bucket`.

mod booked;
mod derived;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::bucket::{Bucket, HOUR_MS};
use crate::model::economy::{Budgets, Limits};
use crate::model::ident::TableIdent;
use crate::model::plan::Bound;
use crate::model::policy::{BudgetLimits, Policy};

/// Nano-GB-hours in a GB-hour.
const NANO: f64 = 1e9;
/// A job may take this many times its estimate before it is stopped.
const SAFETY: f64 = 4.0;
/// At the least; a job that would not fit with less is cut smaller.
const LEAST_SAFETY: f64 = 2.0;
/// Time that every job is given beyond its estimate, in milliseconds.
const GRACE_MS: f64 = 60_000.0;
/// For so long a job that is stopped may still hold its memory, in milliseconds:
/// until it has heard of it, and until what it asked of the catalog is known. It is
/// reserved with the job. A catalog that hangs may hold a job for longer: that is a
/// debt, paid before the next job.
pub const LINGER_MS: i64 = 90_000;
/// Tables whose own budgets are kept; above it those that are full are let go.
const MOST_TABLES: usize = 10_000;

/// What may still be spent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Budget {
    budgets: Budgets,
    overall: Purse,
    tenants: BTreeMap<Arc<str>, Purse>,
    #[serde(with = "pairs")]
    tables: HashMap<TableIdent, Purse>,
    /// Since when all that was spent is known; always, when `None`.
    #[serde(default)]
    known_since_ms: Option<i64>,
}

/// What a job asks of the budgets: the most that it may use, and whose they are.
#[derive(Clone, Debug, PartialEq)]
pub struct Ask<'a> {
    /// Its upper bound.
    pub bound: &'a Bound,
    /// The bytes of the files that it may replace.
    pub bytes: u64,
    /// Its table; `None` asks the overall budget alone.
    pub table: Option<TableIdent>,
    /// The tenant of its table, if any.
    pub tenant: Option<&'a Arc<str>>,
}

/// What a job used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Used {
    /// GB-hours.
    pub gb_hours: f64,
    /// Bytes of the files that it replaced, or tried to.
    pub bytes: u64,
    /// Snapshots that it made, or may have made.
    pub commits: u64,
}

/// What a job before this process used.
#[derive(Clone, Debug, PartialEq)]
pub struct Spending {
    /// When it was booked, in milliseconds since the epoch.
    pub at_ms: i64,
    /// Its table; `None` when that is not known.
    pub table: Option<TableIdent>,
    /// The tenant of its table, if any.
    pub tenant: Option<Arc<str>>,
    /// What it used.
    pub used: Used,
}

/// A part of the budgets that is set aside for one job. Hand it back with
/// [`Budget::settle`].
#[must_use = "a reservation that is not settled holds its budget for ever"]
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reservation {
    amounts: Amounts,
    table: Option<TableIdent>,
    tenant: Option<Arc<str>>,
}

/// Of which budget.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Whose {
    /// A tenant's.
    Tenant(Arc<str>),
    /// The table's own.
    Table,
    /// The one that all jobs share.
    All,
}

impl fmt::Display for Whose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tenant(name) => write!(f, "the budget of tenant {name}"),
            Self::Table => f.write_str("the table's budget"),
            Self::All => f.write_str("the budget"),
        }
    }
}

impl Reservation {
    /// The same for a recording: it holds nothing of the budget.
    pub fn recorded(&self) -> Self {
        Self { amounts: self.amounts, table: self.table, tenant: self.tenant.clone() }
    }
}

/// A map whose keys are no texts, as a list in the order of its keys.
mod pairs {
    use std::collections::HashMap;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::{Purse, TableIdent};

    pub fn serialize<S: Serializer>(of: &HashMap<TableIdent, Purse>, to: S) -> Result<S::Ok, S::Error> {
        let mut all: Vec<(&TableIdent, &Purse)> = of.iter().collect();
        all.sort_unstable_by_key(|(table, _)| **table);
        all.serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<HashMap<TableIdent, Purse>, D::Error> {
        Ok(Vec::<(TableIdent, Purse)>::deserialize(from)?.into_iter().collect())
    }
}

/// [`Whose`] without a name: most asks are answered without one.
#[derive(Clone, Copy)]
enum Of {
    All,
    Tenant,
    Table,
}

impl Of {
    fn whose(self, ask: &Ask<'_>) -> Whose {
        match (self, ask.tenant) {
            (Self::Tenant, Some(name)) => Whose::Tenant(Arc::clone(name)),
            (Self::Table, _) => Whose::Table,
            _ => Whose::All,
        }
    }
}

/// What a budget counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum What {
    /// Memory times time.
    GbHours,
    /// Bytes replaced.
    Bytes,
    /// Snapshots made.
    Commits,
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::GbHours => "GB-hours",
            Self::Bytes => "bytes",
            Self::Commits => "commits",
        })
    }
}

/// Why a reservation was refused.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, thiserror::Error)]
pub enum Denied {
    /// All jobs that may run at one time are running.
    #[error("as many jobs run as may run at one time ({slots})")]
    NoSlot {
        /// `concurrent_jobs`.
        slots: usize,
    },
    /// The same, of a tenant or a table.
    #[error("as many jobs run as {whose} lets run at one time ({slots})")]
    Crowded {
        /// Whose budget.
        whose: Whose,
        /// Its `concurrent_jobs`.
        slots: usize,
    },
    /// The budget does not hold it yet.
    #[error("{whose} holds {available} of the {wanted} {what} that the job may need")]
    NotYet {
        /// Whose budget.
        whose: Whose,
        /// Of what.
        what: What,
        /// Asked for.
        wanted: f64,
        /// There.
        available: f64,
    },
    /// The budget can never hold it: the job must be made smaller or the budget larger.
    #[error("the job may need {wanted} {what}, and {whose} never holds more than {cap}: raise it or lower {}", lower(*.what))]
    Never {
        /// Whose budget.
        whose: Whose,
        /// Of what.
        what: What,
        /// Asked for.
        wanted: f64,
        /// The most that it can hold.
        cap: f64,
    },
    /// Others come first, and only so many are chosen.
    #[error("it is not among the {most} best, and no more are chosen")]
    Behind {
        /// `top_k`.
        most: usize,
    },
    /// Others gain more with what the budget holds.
    #[error("others together gain more with what the budget holds")]
    Outbid,
}

fn lower(what: What) -> &'static str {
    match what {
        What::GbHours => "the job's memory limit",
        What::Bytes => "max_job_size",
        What::Commits => "nothing else",
    }
}

impl Denied {
    /// Whether time alone does not mend it.
    pub fn is_for_good(&self) -> bool {
        matches!(self, Self::Never { .. })
    }
}

/// Amounts in the buckets' units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Amounts {
    nano: i128,
    bytes: i128,
    commits: i128,
}

impl Amounts {
    /// A job makes one snapshot at the most.
    fn asked(ask: &Ask<'_>) -> Self {
        Self { nano: nano(ask.bound.gb_hours, f64::ceil), bytes: ask.bytes.into(), commits: 1 }
    }

    fn of(&self, what: What) -> i128 {
        match what {
            What::GbHours => self.nano,
            What::Bytes => self.bytes,
            What::Commits => self.commits,
        }
    }
}

impl From<&Used> for Amounts {
    fn from(used: &Used) -> Self {
        Self { nano: nano(used.gb_hours, f64::ceil), bytes: used.bytes.into(), commits: used.commits.into() }
    }
}

/// The budgets of one holder.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Purse {
    buckets: Vec<(What, Bucket)>,
    slots: Option<usize>,
    running: usize,
}

impl Purse {
    /// Full, of a holder with these limits.
    fn full(limits: &Limits, hours: f64, now_ms: i64) -> Self {
        let mut buckets = Vec::new();
        if let Some(rate) = limits.gb_hours_per_hour {
            buckets.push((What::GbHours, Bucket::full(nano(rate, f64::floor), nano(rate * hours, f64::floor), now_ms)));
        }
        for (what, rate) in [(What::Bytes, limits.bytes_per_hour), (What::Commits, limits.commits_per_hour)] {
            buckets.extend(rate.map(|rate| (what, Bucket::full(rate.into(), (rate as f64 * hours) as i128, now_ms))));
        }
        Self { buckets, slots: limits.concurrent_jobs, running: 0 }
    }

    fn empty(mut self) -> Self {
        self.buckets = self.buckets.into_iter().map(|(what, bucket)| (what, bucket.empty())).collect();
        self
    }

    fn fill(&mut self, now_ms: i64) {
        self.buckets.iter_mut().for_each(|(_, bucket)| bucket.fill(now_ms));
    }

    fn never(&self, amounts: &Amounts, whose: impl FnOnce() -> Whose) -> Option<Denied> {
        let (what, bucket) = self.buckets.iter().find(|(what, bucket)| !bucket.can_hold(amounts.of(*what)))?;
        let scale = scale(*what);
        Some(Denied::Never { whose: whose(), what: *what, wanted: amounts.of(*what) as f64 / scale, cap: bucket.cap(scale) })
    }

    fn crowded(&self, whose: impl FnOnce() -> Whose) -> Option<Denied> {
        let slots = self.slots.filter(|slots| self.running >= *slots)?;
        Some(match whose() {
            Whose::All => Denied::NoSlot { slots },
            whose => Denied::Crowded { whose, slots },
        })
    }

    /// What it does not hold yet.
    fn short(&self, amounts: &Amounts, whose: impl FnOnce() -> Whose) -> Option<Denied> {
        let (what, bucket) = self.buckets.iter().find(|(what, bucket)| !bucket.holds(amounts.of(*what)))?;
        let scale = scale(*what);
        Some(Denied::NotYet { whose: whose(), what: *what, wanted: amounts.of(*what) as f64 / scale, available: bucket.level(scale) })
    }

    fn reserve(&mut self, amounts: &Amounts) {
        self.buckets.iter_mut().for_each(|(what, bucket)| bucket.reserve(amounts.of(*what)));
        self.running = self.running.saturating_add(1);
    }

    fn settle(&mut self, reserved: &Amounts, used: &Amounts, now_ms: i64) {
        self.fill(now_ms);
        self.buckets.iter_mut().for_each(|(what, bucket)| bucket.settle(reserved.of(*what), used.of(*what)));
        self.running = self.running.saturating_sub(1);
    }

    fn bucket(&self, of: What) -> Option<&Bucket> {
        self.buckets.iter().find(|(what, _)| *what == of).map(|(_, bucket)| bucket)
    }

    fn is_untouched(&self) -> bool {
        self.running == 0 && self.buckets.iter().all(|(_, bucket)| bucket.is_untouched())
    }
}

impl Budget {
    /// Full buckets. Each holds the unused budget of `carry_over_hours`, and of
    /// one hour at the least.
    pub fn new(budgets: &Budgets, now_ms: i64) -> Self {
        let (hours, limits) = (budgets.hours_held(), &budgets.overall);
        let overall =
            Limits { gb_hours_per_hour: Some(limits.gb_hours_per_hour), concurrent_jobs: Some(limits.concurrent_jobs), ..budgets.more };
        let own = budgets.tenants.iter().filter(|t| !t.limits.is_none());
        Self {
            overall: Purse::full(&overall, hours, now_ms),
            tenants: own.map(|t| (Arc::clone(&t.name), Purse::full(&t.limits, hours, now_ms))).collect(),
            tables: HashMap::new(),
            known_since_ms: None,
            budgets: budgets.clone(),
        }
    }

    /// The buckets as jobs before have left them. A process that begins anew spends
    /// no hour's budget twice. What was before `since_ms` is not known, and taken to
    /// have left nothing.
    pub fn after(budgets: &Budgets, since_ms: i64, spent: &[Spending], now_ms: i64) -> Self {
        let mut budget = Self { known_since_ms: Some(since_ms), ..Self::new(budgets, since_ms) };
        budget.overall = budget.overall.empty();
        budget.tenants = budget.tenants.into_iter().map(|(name, purse)| (name, purse.empty())).collect();
        let mut spent: Vec<(i64, &Spending)> = spent.iter().map(|s| (s.at_ms.min(now_ms), s)).collect();
        spent.sort_by_key(|(at_ms, _)| *at_ms);
        for (at_ms, spending) in spent {
            let table = spending.table.filter(|_| !budgets.per_table.is_none());
            if let Some(table) = table {
                budget.tables.entry(table).or_insert_with(|| of_table(budgets, Some(since_ms), since_ms));
            }
            let nothing = Reservation { amounts: Amounts::default(), table, tenant: spending.tenant.clone() };
            budget.settle_used(nothing, &spending.used, at_ms);
        }
        budget.fill(now_ms);
        budget
    }

    /// How far back to ask for what jobs have spent, in milliseconds: an empty bucket
    /// that nobody drew from would be full after half of it.
    pub fn remembers_ms(limits: &BudgetLimits) -> i64 {
        (2.0 * limits.carry_over_hours.max(1.0) * HOUR_MS as f64) as i64
    }

    /// Sets a job's upper bound aside in the overall budget alone.
    pub fn reserve(&mut self, bound: &Bound, now_ms: i64) -> Result<Reservation, Denied> {
        self.reserve_for(&Ask { bound, bytes: 0, table: None, tenant: None }, now_ms)
    }

    /// Sets what a job may use aside in every budget that concerns it, or in none.
    pub fn reserve_for(&mut self, ask: &Ask<'_>, now_ms: i64) -> Result<Reservation, Denied> {
        let amounts = Amounts::asked(ask);
        let table = ask.table.filter(|_| !self.budgets.per_table.is_none());
        let mut purses = self.open(table, ask.tenant, now_ms);
        purses.iter_mut().flatten().for_each(|(_, purse)| purse.fill(now_ms));
        let never = || purses.iter().flatten().find_map(|(of, purse)| purse.never(&amounts, || of.whose(ask)));
        let crowded = || purses.iter().flatten().find_map(|(of, purse)| purse.crowded(|| of.whose(ask)));
        let short = || purses.iter().flatten().find_map(|(of, purse)| purse.short(&amounts, || of.whose(ask)));
        if let Some(denied) = never().or_else(crowded).or_else(short) {
            return Err(denied);
        }
        purses.iter_mut().flatten().for_each(|(_, purse)| purse.reserve(&amounts));
        Ok(Reservation { amounts, table, tenant: ask.tenant.cloned() })
    }

    /// What it was made of.
    pub fn budgets(&self) -> &Budgets {
        &self.budgets
    }

    /// What no budget that concerns a job could ever hold of it.
    pub fn never(&mut self, ask: &Ask<'_>) -> Option<Denied> {
        let amounts = Amounts::asked(ask);
        let purses = self.purses(ask.table, ask.tenant);
        purses.iter().flatten().find_map(|(of, purse)| purse.never(&amounts, || of.whose(ask)))
    }

    /// Books the GB-hours that a job used and returns the rest. A job that used more
    /// than it had reserved leaves a debt.
    pub fn settle(&mut self, reservation: Reservation, gb_hours: f64, now_ms: i64) {
        self.settle_used(reservation, &Used { gb_hours, ..Used::default() }, now_ms);
    }

    /// Books all that a job used and returns the rest.
    pub fn settle_used(&mut self, reservation: Reservation, used: &Used, now_ms: i64) {
        let used = Amounts::from(used);
        for (_, purse) in self.purses(reservation.table, reservation.tenant.as_ref()).into_iter().flatten() {
            purse.settle(&reservation.amounts, &used, now_ms);
        }
    }

    /// GB-hours that can be reserved at the moment last passed in.
    pub fn available(&self) -> f64 {
        self.overall.bucket(What::GbHours).map_or(0.0, |bucket| bucket.level(NANO))
    }

    /// GB-hours that jobs under way have set aside.
    pub fn reserved(&self) -> f64 {
        self.overall.bucket(What::GbHours).map_or(0.0, |bucket| bucket.reserved(NANO))
    }

    /// Jobs that hold a reservation.
    pub fn running(&self) -> usize {
        self.overall.running
    }

    /// GB-hours that a tenant can reserve at the moment last passed in; `None` for a
    /// tenant without such a budget.
    pub fn available_to(&self, tenant: &str) -> Option<f64> {
        Some(self.tenants.get(tenant)?.bucket(What::GbHours)?.level(NANO))
    }

    /// The budgets that concern a job; its table's is opened when it is asked for the
    /// first time.
    fn open(&mut self, table: Option<TableIdent>, tenant: Option<&Arc<str>>, now_ms: i64) -> [Option<(Of, &mut Purse)>; 3] {
        if self.tables.len() > MOST_TABLES && table.is_some_and(|table| !self.tables.contains_key(&table)) {
            self.tables.values_mut().for_each(|purse| purse.fill(now_ms));
            self.tables.retain(|_, purse| !purse.is_untouched());
        }
        let own = tenant.and_then(|name| self.tenants.get_mut(name));
        let (budgets, since_ms) = (&self.budgets, self.known_since_ms);
        let of_table = table.map(|table| self.tables.entry(table).or_insert_with(|| of_table(budgets, since_ms, now_ms)));
        purses(&mut self.overall, own, of_table)
    }

    /// The budgets that concern a job, as far as they are open.
    fn purses(&mut self, table: Option<TableIdent>, tenant: Option<&Arc<str>>) -> [Option<(Of, &mut Purse)>; 3] {
        let own = tenant.and_then(|name| self.tenants.get_mut(name));
        let of_table = table.and_then(|table| self.tables.get_mut(&table));
        purses(&mut self.overall, own, of_table)
    }

    fn fill(&mut self, now_ms: i64) {
        self.overall.fill(now_ms);
        self.tenants.values_mut().chain(self.tables.values_mut()).for_each(|purse| purse.fill(now_ms));
    }
}

/// The overall one first.
fn purses<'b>(all: &'b mut Purse, own: Option<&'b mut Purse>, of_table: Option<&'b mut Purse>) -> [Option<(Of, &'b mut Purse)>; 3] {
    [Some((Of::All, all)), own.map(|purse| (Of::Tenant, purse)), of_table.map(|purse| (Of::Table, purse))]
}

/// The budget of a table that has spent nothing as far as is known: full, or what
/// has come since that is known.
fn of_table(budgets: &Budgets, known_since_ms: Option<i64>, now_ms: i64) -> Purse {
    let (limits, hours) = (&budgets.per_table, budgets.hours_held());
    match known_since_ms {
        None => Purse::full(limits, hours, now_ms),
        Some(since_ms) => {
            let mut purse = Purse::full(limits, hours, since_ms).empty();
            purse.fill(now_ms);
            purse
        }
    }
}

/// What one of a bucket's units is of the unit that people read.
fn scale(what: What) -> f64 {
    match what {
        What::GbHours => NANO,
        What::Bytes | What::Commits => 1.0,
    }
}

/// GB-hours of holding `memory` bytes for `millis`; a GB is 10⁹ bytes.
pub fn gb_hours(memory: u64, millis: i64) -> f64 {
    memory as f64 / 1e9 * millis.max(0) as f64 / HOUR_MS as f64
}

/// The most that the budget can ever hold.
pub fn cap_gb_hours(limits: &BudgetLimits) -> f64 {
    limits.gb_hours_per_hour * limits.carry_over_hours.max(1.0)
}

/// What one job may hold, in bytes: its share of what all jobs that run at one time
/// may hold together.
fn job_memory(policy: &Policy, limits: &BudgetLimits) -> u64 {
    let jobs = u64::try_from(limits.concurrent_jobs).unwrap_or(u64::MAX);
    policy.memory_limit / jobs.max(1)
}

/// The upper bound of a job over `bytes`: several times its estimate, within the
/// policy's time and what the budget can ever hold. Its GB-hours are those of its
/// time and of [`LINGER_MS`], at its share of the memory limit.
pub fn bound_for(policy: &Policy, limits: &BudgetLimits, bytes: u64) -> Bound {
    let wanted = estimate_ms(policy, bytes) * SAFETY + GRACE_MS;
    let millis = wanted.min(longest_ms(policy, limits)) as i64;
    let memory = job_memory(policy, limits);
    Bound { gb_hours: gb_hours(memory, millis.saturating_add(LINGER_MS)), millis, memory }
}

/// The most input bytes of one job: the policy's, and no more than a job's time
/// and the budget leave room for.
pub fn largest_job(policy: &Policy, limits: &BudgetLimits) -> u64 {
    let bytes = longest_ms(policy, limits) / LEAST_SAFETY * policy.cost.rewrite_bytes_per_hour / HOUR_MS as f64;
    policy.max_job_bytes.min(bytes as u64)
}

/// Time after which any job of the policy is stopped.
fn longest_ms(policy: &Policy, limits: &BudgetLimits) -> f64 {
    let memory_gb = job_memory(policy, limits).max(1) as f64 / 1e9;
    let affordable = (cap_gb_hours(limits) / memory_gb * HOUR_MS as f64).floor() - LINGER_MS as f64;
    affordable.min(policy.max_job_ms as f64).max(0.0)
}

fn estimate_ms(policy: &Policy, bytes: u64) -> f64 {
    bytes as f64 / policy.cost.rewrite_bytes_per_hour.max(1.0) * HOUR_MS as f64
}

/// Nano-GB-hours; what is no number is the most there is, which fits no budget.
fn nano(gb_hours: f64, round: fn(f64) -> f64) -> i128 {
    if gb_hours.is_nan() { i128::from(i64::MAX) } else { i128::from(round(gb_hours.max(0.0) * NANO) as i64) }
}

#[cfg(test)]
mod tests;
