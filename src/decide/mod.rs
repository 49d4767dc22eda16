//! Decide: what to do about one partition, as a function of what is known of it.
//!
//! The order of the decision, for all work:
//!
//! 1. [`filter`]: refused, disabled, paused, too new, too small, cooling down,
//!    written to too recently, work under way, held ([`keep_out`]), a writer expected, users'
//!    [`own`]. The first that stops decides.
//! 2. [`trigger`]: the rules of the policy, in their order; the first that holds
//!    fires. A trigger skips the queue and nothing else.
//! 3. [`score`]: what no rule asks for is queued when it is worth a job.
//! 4. [`mode`]: what may only begin at its times, or is asked for by them; and when it is
//!    eligible [`next`].
//! 5. [`review`]: what is dearer than the settings let by themselves waits for a
//!    person.
//! 6. [`scope`], [`round`], [`knapsack`] and [`budget`]: what is pending is ranked, chosen and
//!    started while the budgets last.
//! 7. [`plan`] and [`select`]: the exact files, once the partition was read.
//! 8. [`maturity`] and [`learn`]: what a rewrite, or finding nothing, changes for next
//!    time.
//!
//! Nothing here reads a clock, a table or a random number: the same view gives
//! the same decision on every machine, with every check that led to it.

pub mod amoro;
pub mod backlog;
mod bucket;
pub mod budget;
pub mod cost;
pub mod filter;
pub mod keep_out;
pub mod knapsack;
pub mod learn;
pub mod maturity;
pub mod mode;
pub mod next;
pub mod own;
pub mod plan;
pub mod review;
pub mod round;
pub mod scope;
pub mod score;
pub mod select;
pub mod trigger;

use crate::model::decision::{Check, Decision, Reason, Verdict};
use crate::model::ident::{TableIdent, TableName};
use crate::model::partition::PartitionKey;
use crate::model::policy::Policy;
use crate::model::refusal::Refused;
use crate::model::traits::Traits;

pub use maturity::ScopeMemory;

/// Everything that the decision about one partition depends on.
#[derive(Clone, Debug)]
pub struct Case<'a> {
    /// The moment, in milliseconds since the epoch.
    pub now_ms: i64,
    /// The table.
    pub table: &'a TableFacts,
    /// What its settings ask for.
    pub policy: &'a Policy,
    /// Refusals of the table and of the partition.
    pub refusals: &'a [Refused],
    /// Whether the table, or everything, is paused by hand.
    pub paused: bool,
    /// Whether work on the partition is under way.
    pub in_flight: bool,
    /// The partition.
    pub scope: &'a PartitionKey,
    /// Its traits at the snapshot and the moment.
    pub traits: &'a Traits,
    /// What earlier work here has taught.
    pub memory: &'a ScopeMemory,
}

/// What the decision needs to know of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableFacts {
    /// Identity.
    pub ident: TableIdent,
    /// Its name at the moment.
    pub name: TableName,
    /// Oldest known time of the table, in milliseconds since the epoch.
    pub created_ms: i64,
    /// Live data bytes over all partitions.
    pub bytes: u64,
    /// The snapshot whose layout is judged.
    pub snapshot_id: i64,
}

/// Decides about one partition. Every check is recorded, also those behind the
/// one that decided, so that all of them can be explained.
pub fn judge(case: &Case<'_>) -> Decision {
    let mut checks = Vec::new();
    let stopped = filter::first_stop(case, &mut checks);
    let asked = trigger::first_fired(case, &mut checks);
    let worth = score::worth_queueing(case, &mut checks);
    let urgent = matches!(asked, trigger::Asked::Fired { .. });
    let verdict = match (stopped, asked, worth) {
        (Some(reason), _, _) => Verdict::Not { reason },
        (None, trigger::Asked::Fired { rule, estimate }, _) => {
            Verdict::Now { rule, gb_hours: case.policy.cost.gb_hours(estimate.bytes), gain: estimate.gain() }
        }
        (None, _, Some(estimate)) => {
            Verdict::Queued { gb_hours: case.policy.cost.gb_hours(estimate.bytes), gain: estimate.gain(), rule: None }
        }
        (None, trigger::Asked::InVain, None) => Verdict::Not { reason: Reason::NothingToGain },
        (None, trigger::Asked::Nothing, None) => Verdict::Not { reason: Reason::Healthy },
    };
    let verdict = mode::of(verdict, case, &mut checks);
    let verdict = review::of(verdict, case.policy, &mut checks);
    let eligible_ms = next::eligible_ms(case, &verdict, urgent);
    amoro::shown(case, &mut checks);
    own::shown(case, &mut checks);
    Decision {
        table: case.table.ident,
        name: case.table.name.clone(),
        scope: case.scope.clone(),
        snapshot_id: case.table.snapshot_id,
        at_ms: case.now_ms,
        verdict,
        act: case.policy.act,
        checks,
        traits: case.traits.clone(),
        eligible_ms,
    }
}

/// A check as it is recorded.
fn check(name: &str, value: f64, threshold: f64, passed: bool, note: impl Into<String>) -> Check {
    Check { name: name.into(), value, threshold, passed, note: note.into() }
}

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
