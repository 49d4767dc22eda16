//! What is remembered of one partition beside its layout.

use std::collections::BTreeSet;

use super::log::Standing;
use crate::decide::ScopeMemory;
use crate::decide::budget::Denied;
use crate::decide::keep_out::Busy;
use crate::decide::round::Candidate;
use crate::model::partition::PartitionKey;
use crate::model::refusal::{Refusal, Refused};
use crate::model::table::TableView;
use crate::orient::TableState;
use crate::telemetry::verdict_names;

/// The first pause after work that did not land.
const HOLD_MS: i64 = 1_000;
/// The longest.
const LONGEST_HOLD_MS: i64 = 600_000;
/// A partition waits no longer than this for the look at what its work led to.
const AWAIT_MS: i64 = 60_000;

/// One partition of which more is known than its layout.
#[derive(Default, PartialEq)]
pub struct ScopePage {
    pub(super) memory: ScopeMemory,
    pub(super) refused: Option<Refused>,
    /// When a refusal that passes by itself is lifted.
    pub(super) lifts_ms: Option<i64>,
    pub(super) max_bytes: Option<u64>,
    pub(super) in_flight: bool,
    pub(super) awaits: Option<Await>,
    /// Tries in a row that did not land.
    tries: u32,
    held_until_ms: Option<i64>,
    pub(super) due_ms: Option<i64>,
    /// Since when it is kept out of for others.
    pub(super) kept_out_since_ms: Option<i64>,
    /// When the next writer is expected.
    pub(super) busy: Option<Busy>,
    /// When work that may begin now should begin no more, for others' sake.
    pub(super) closes_ms: Option<i64>,
    /// The last verdict.
    pub(super) standing: Option<Standing>,
    pub(super) candidate: Option<Candidate>,
    pub(super) score: f64,
    pub(super) denied: Option<Denied>,
    /// Why its last rewrite was dropped, told until the next round.
    pub(super) dropped: Option<Box<str>>,
    pub(super) foresight: Foresight,
    /// Its candidate is not looked into before.
    rests_until_ms: Option<i64>,
    /// For how long it rested last.
    rest_ms: i64,
}

/// What is known of the plan that a candidate would make.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Foresight {
    /// Nothing.
    #[default]
    None,
    /// It is being looked into, under this number.
    UnderWay(u64),
    /// It was looked into, as asked for by this rule.
    Done(String),
}

/// What is known of a partition is older than what its work found or made:
/// nothing is decided until a look has shown it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Await {
    /// The snapshot that the work made, if any.
    pub snapshot_id: Option<i64>,
    /// Since when, in milliseconds since the epoch.
    pub since_ms: i64,
}

impl Await {
    /// Whether a look that began at a time and saw these snapshots is enough.
    pub fn is_over(&self, view: &TableView, began_ms: i64) -> bool {
        match self.snapshot_id {
            Some(id) => view.snapshots.contains_key(&id) || began_ms > self.since_ms,
            None => began_ms >= self.since_ms,
        }
    }
}

impl Foresight {
    /// Something is looked into from here on.
    pub fn begin(&mut self, number: u64) {
        *self = Self::UnderWay(number);
    }

    /// Whether it is being looked into under this number.
    pub fn is(&self, number: u64) -> bool {
        *self == Self::UnderWay(number)
    }
}

impl ScopePage {
    /// Of a partition of which nothing is known but that work on it is under way.
    pub fn of_work() -> Self {
        Self { in_flight: true, ..Self::default() }
    }

    /// What stands in its candidate's way; empty for nothing.
    pub fn waits_for(&self) -> String {
        let dropped = || self.dropped.as_deref().unwrap_or_default().to_owned();
        self.denied.as_ref().map_or_else(dropped, ToString::to_string)
    }

    /// Of a partition of which nothing is known but its last verdict.
    pub fn of_verdict(standing: Option<Standing>) -> Self {
        Self { standing, ..Self::default() }
    }

    /// The memory, with the pause after work that did not land.
    pub fn memory_at(&self, now_ms: i64) -> ScopeMemory {
        let held = self.held_until_ms.filter(|until| *until > now_ms);
        ScopeMemory { cooldown_until_ms: self.memory.cooldown_until_ms.max(held), ..self.memory.clone() }
    }

    /// See [`Page::refuse`](super::Page::refuse).
    pub fn refuse(&mut self, refused: Refused, now_ms: i64) {
        self.lifts_ms = None;
        // space comes back without the partition changing
        if refused.refusal == Refusal::NoSpace {
            self.hold(0, now_ms);
            self.lifts_ms = self.held_until_ms;
        }
        self.refused = Some(refused);
    }

    /// What was found of the partition may hold no longer; whether it was a refusal.
    pub fn lift(&mut self) -> bool {
        (self.foresight, self.lifts_ms) = (Foresight::None, None);
        self.refused.take().is_some()
    }

    /// It asks for no work.
    pub fn rest(&mut self) {
        (self.score, self.denied, self.dropped) = (0.0, None, None);
        // what is refused asks for it again as soon as it changes
        if self.refused.is_none() {
            (self.foresight, self.rests_until_ms, self.rest_ms) = (Foresight::None, None, 0);
        }
    }

    /// See [`Page::hold`](super::Page::hold).
    pub fn hold(&mut self, free: u32, now_ms: i64) {
        self.tries = self.tries.saturating_add(1);
        if let Some(beyond) = self.tries.checked_sub(free.saturating_add(1)) {
            let pause = HOLD_MS.saturating_mul(1_i64.checked_shl(beyond.min(20)).unwrap_or(i64::MAX)).min(LONGEST_HOLD_MS);
            self.held_until_ms = Some(now_ms.saturating_add(pause));
        }
    }

    /// See [`Page::release`](super::Page::release).
    pub fn release(&mut self) {
        (self.tries, self.held_until_ms) = (0, None);
    }

    /// When it no longer waits for a look.
    pub fn gives_up_at(&self) -> Option<i64> {
        self.awaits.map(|awaits| awaits.since_ms.saturating_add(AWAIT_MS))
    }

    /// Whether its candidate is yet to be looked into, as it is asked for now.
    pub fn asks_for_foresight(&self, now_ms: i64) -> bool {
        let Some(standing) = self.standing.as_ref().filter(|_| self.candidate.is_some()) else { return false };
        let known = match &self.foresight {
            Foresight::None => false,
            Foresight::UnderWay(_) => true,
            Foresight::Done(rule) => *rule == verdict_names(&standing.verdict).1,
        };
        !known && self.rests_until_ms.is_none_or(|until| until <= now_ms)
    }

    /// Its candidate was looked into, as asked for by this rule; `None` when that came
    /// to nothing. It is not looked into again before it has rested.
    pub fn foreseen(&mut self, rule: Option<String>, now_ms: i64, rest_ms: i64) {
        self.foresight = rule.map_or(Foresight::None, Foresight::Done);
        (self.rests_until_ms, self.rest_ms) = (Some(now_ms.saturating_add(rest_ms)), rest_ms);
    }

    /// What was found on looking into its candidate may hold no longer, as for `others`
    /// at the same time: it is looked into again when all could have rested in turn.
    pub fn look_again(&mut self, others: usize) {
        if self.foresight != Foresight::None {
            self.foresight = Foresight::None;
            let longer = self.rest_ms.saturating_mul(i64::try_from(others).unwrap_or(i64::MAX));
            self.rests_until_ms = self.rests_until_ms.map(|until| until.saturating_add(longer));
        }
    }
}

/// Whether any of these partitions has other position deletes than before.
pub fn position_deletes_came(before: &TableState, now: &TableState, of: &BTreeSet<PartitionKey>) -> bool {
    let tally = |state: &TableState, key| state.layout.partition(key).map(|p| p.position_deletes).unwrap_or_default();
    of.iter().any(|key| {
        let deletes = tally(now, key);
        deletes.files > 0 && deletes != tally(before, key)
    })
}
