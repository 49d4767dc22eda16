//! What is remembered of one table and of each of its partitions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{Begun, Scope, Seen};
use crate::decide::budget::bound_for;
use crate::decide::round::Candidate;
use crate::decide::{self, Case, ScopeMemory, TableFacts};
use crate::model::decision::{Check, Decision, Reason, Verdict};
use crate::model::layout::PartitionLayout;
use crate::model::partition::PartitionKey;
use crate::model::policy::{BudgetLimits, Policy};
use crate::model::refusal::{Refusal, Refused};
use crate::model::table::{SpecInfo, TableView};
use crate::orient::state::TableState;
use crate::orient::{How, traits};
use crate::serve::backend::{Explained, label};
use crate::settings::Warning;

/// The first pause after work that did not land.
const HOLD_MS: i64 = 1_000;
/// The longest.
const LONGEST_HOLD_MS: i64 = 600_000;
/// A partition waits no longer than this for the look at what its work led to.
const AWAIT_MS: i64 = 60_000;

/// One table.
pub struct Page {
    pub(in crate::ooda) facts: TableFacts,
    pub(in crate::ooda) reference: String,
    pub(in crate::ooda) format_version: u8,
    pub(in crate::ooda) policy: Policy,
    pub(in crate::ooda) state: Arc<TableState>,
    pub(in crate::ooda) looked_at_ms: i64,
    pub(in crate::ooda) restored: bool,
    /// Whether any partition was judged.
    pub(in crate::ooda) judged: bool,
    /// Set by a proof that failed: nothing is rewritten here any more.
    pub(in crate::ooda) disproved: Option<Refused>,
    metadata_location: String,
    refused: Vec<Refused>,
    specs: BTreeMap<i32, Arc<SpecInfo>>,
    warnings: Vec<Warning>,
    scopes: BTreeMap<PartitionKey, ScopePage>,
    /// Partitions that wait for a look.
    awaiting: BTreeSet<PartitionKey>,
}

/// One partition of which more is known than its layout.
#[derive(Default, PartialEq)]
struct ScopePage {
    memory: ScopeMemory,
    refused: Option<Refused>,
    max_bytes: Option<u64>,
    in_flight: bool,
    awaits: Option<Await>,
    /// Tries in a row that did not land.
    tries: u32,
    held_until_ms: Option<i64>,
    due_ms: Option<i64>,
    decision: Option<Arc<Explained>>,
    candidate: Option<Candidate>,
    score: f64,
    waits_for: String,
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
    fn is_over(&self, view: &TableView, began_ms: i64) -> bool {
        match self.snapshot_id {
            Some(id) => view.snapshots.contains_key(&id) || began_ms > self.since_ms,
            None => began_ms >= self.since_ms,
        }
    }
}

impl Page {
    /// Of a table looked at for the first time.
    pub fn new(seen: Seen<'_>) -> Self {
        let Seen { view, policy, warnings, absorbed, began_ms } = seen;
        let state = Arc::clone(&absorbed.state);
        let bytes = state.layout.partitions().values().fold(0, |sum: u64, p| sum.saturating_add(p.data.bytes));
        Self {
            facts: facts(view, &state, bytes),
            reference: view.reference.clone(),
            format_version: view.format_version,
            policy,
            state,
            looked_at_ms: began_ms,
            restored: false,
            judged: false,
            disproved: None,
            metadata_location: view.metadata_location.clone(),
            refused: view.refused.clone(),
            specs: view.specs.clone(),
            warnings,
            scopes: BTreeMap::new(),
            awaiting: BTreeSet::new(),
        }
    }

    /// Another look's result; gives back the partitions to judge.
    pub fn take_in(&mut self, seen: Seen<'_>) -> BTreeSet<PartitionKey> {
        let Seen { view, policy, warnings, absorbed, began_ms } = seen;
        let (mut scopes, bytes) = self.changed(&absorbed.state);
        scopes.extend(absorbed.touched.iter().cloned());
        let facts = facts(view, &absorbed.state, bytes);
        let large = |facts: &TableFacts| facts.bytes >= policy.min_table_bytes;
        let all = self.policy != policy
            || self.refused != view.refused
            || large(&self.facts) != large(&facts)
            || self.state.layout.global_deletes() != absorbed.state.layout.global_deletes();
        if absorbed.foreign_snapshots > 0 || matches!(absorbed.how, How::Rebuilt(_)) {
            self.learn_of_deletes(&absorbed.state, &scopes);
        }
        // a refusal may have been mended by the commit, by the table's new metadata or by its settings
        let elsewhere = self.policy != policy || (scopes.is_empty() && self.metadata_location != view.metadata_location);
        let mut mended = scopes.clone();
        if self.state.layout.deletes().files > absorbed.state.layout.deletes().files {
            // what is gone may be the other partition's delete for which they were refused
            mended.extend(self.astray());
        }
        scopes.extend(self.forgive(if elsewhere { None } else { Some(&mended) }));
        scopes.extend(self.seen(view, began_ms));
        self.facts = facts;
        self.format_version = view.format_version;
        self.policy = policy;
        self.warnings = warnings;
        self.state = Arc::clone(&absorbed.state);
        self.looked_at_ms = began_ms;
        self.metadata_location.clone_from(&view.metadata_location);
        self.refused.clone_from(&view.refused);
        self.specs.clone_from(&view.specs);
        if all {
            // those that are gone are judged too, which closes them
            scopes.extend(self.partitions());
        }
        scopes
    }

    /// Partitions in which a state differs from the one known, and the table's
    /// live data bytes in it. Costs what differs, not what there is.
    fn changed(&self, now: &TableState) -> (BTreeSet<PartitionKey>, u64) {
        let mut changed = BTreeSet::new();
        let mut bytes = self.facts.bytes;
        let data = |p: Option<PartitionLayout>| p.map_or(0, |p| p.data.bytes);
        for differing in self.state.layout.partitions().diff(now.layout.partitions()) {
            bytes = bytes.saturating_sub(data(differing.before)).saturating_add(data(differing.after));
            changed.insert(differing.key);
        }
        (changed, bytes)
    }

    /// Takes back the refusals of these partitions, or of all; gives back whose.
    fn forgive(&mut self, of: Option<&BTreeSet<PartitionKey>>) -> Vec<PartitionKey> {
        let keys: Vec<PartitionKey> = match of {
            Some(keys) => keys.iter().cloned().collect(),
            None => self.scopes.keys().cloned().collect(),
        };
        let mut lifted = keys;
        lifted.retain(|key| self.scopes.get_mut(key).is_some_and(|scope| scope.refused.take().is_some()));
        lifted
    }

    /// Partitions refused for a delete of another one.
    fn astray(&self) -> impl Iterator<Item = PartitionKey> {
        let stray = |scope: &ScopePage| scope.refused.as_ref().is_some_and(|r| r.refusal == Refusal::StrayDelete);
        self.scopes.iter().filter(move |(_, scope)| stray(scope)).map(|(key, _)| key.clone())
    }

    /// Ends the waiting of those partitions that a look has shown.
    fn seen(&mut self, view: &TableView, began_ms: i64) -> Vec<PartitionKey> {
        let mut shown: Vec<PartitionKey> = self.awaiting.iter().cloned().collect();
        let scopes = &self.scopes;
        shown.retain(|key| scopes.get(key).and_then(|s| s.awaits).is_none_or(|awaits| awaits.is_over(view, began_ms)));
        for key in &shown {
            self.stop_awaiting(key);
        }
        shown
    }

    fn stop_awaiting(&mut self, key: &PartitionKey) {
        self.awaiting.remove(key);
        if let Some(scope) = self.scopes.get_mut(key) {
            scope.awaits = None;
        }
    }

    /// New deletes may apply where a finding of none had silenced the trigger.
    fn learn_of_deletes(&mut self, now: &TableState, changed: &BTreeSet<PartitionKey>) {
        if now.layout.global_deletes() != self.state.layout.global_deletes() {
            self.scopes.values_mut().for_each(|scope| scope.memory = scope.memory.after_new_delete());
            return;
        }
        let tallies = |p: PartitionLayout| (p.position_deletes, p.equality_deletes, p.deletion_vectors);
        let of = |state: &TableState, key| state.layout.partition(key).map(tallies);
        for key in changed {
            if let Some(scope) = self.scopes.get_mut(key).filter(|_| of(now, key) != of(&self.state, key)) {
                scope.memory = scope.memory.after_new_delete();
            }
        }
    }

    /// Every partition that is known.
    pub fn partitions(&self) -> BTreeSet<PartitionKey> {
        self.state.layout.partitions().keys().collect()
    }

    /// Judges a partition, and keeps the decision with the work that it asks for.
    /// `None` when it has no files any more.
    pub fn judge(&mut self, key: &PartitionKey, paused: bool, now_ms: i64, limits: &BudgetLimits) -> Option<Arc<Explained>> {
        self.judged = true;
        let mut scope = self.scopes.remove(key).unwrap_or_default();
        let Some(explained) = self.explain(key, &scope, paused, now_ms).map(Arc::new) else {
            self.close(key, &scope);
            return None;
        };
        scope.candidate = candidate(&explained.decision, &self.policy, limits);
        if scope.candidate.is_none() {
            (scope.score, scope.waits_for) = (0.0, String::new());
        }
        scope.decision = None;
        // of a partition about which nothing else is known the decision is made again when it is asked for
        if scope != ScopePage::default() || self.eligible_again(&explained.decision).is_some() {
            scope.decision = Some(Arc::clone(&explained));
            self.scopes.insert(key.clone(), scope);
        }
        Some(explained)
    }

    /// The decision on a partition as everything stands.
    fn explain(&self, key: &PartitionKey, scope: &ScopePage, paused: bool, now_ms: i64) -> Option<Explained> {
        let traits = traits::traits(&self.state, key, &self.policy.cost, now_ms)?;
        let refusals: Vec<Refused> = self.refused.iter().chain(&self.disproved).chain(&scope.refused).cloned().collect();
        let mut decision = decide::judge(&Case {
            now_ms,
            table: &self.facts,
            policy: &self.policy,
            refusals: &refusals,
            paused,
            in_flight: scope.in_flight || scope.awaits.is_some(),
            scope: key,
            traits: &traits,
            memory: &scope.memory_at(now_ms),
        });
        decision.checks.extend(self.warnings.iter().map(warned));
        let waits = matches!(decision.verdict, Verdict::Now { .. } | Verdict::Queued { .. }) && self.policy.act;
        let (score, waits_for) = if waits { (scope.score, scope.waits_for.clone()) } else { (0.0, String::new()) };
        Some(Explained { label: label(key, self.spec(key)), decision, score, waits_for })
    }

    /// A partition has no files any more.
    fn close(&mut self, key: &PartitionKey, scope: &ScopePage) {
        self.awaiting.remove(key);
        if scope.in_flight {
            self.scopes.insert(key.clone(), ScopePage { in_flight: true, ..ScopePage::default() });
        }
    }

    /// Marks a partition's candidate as under way.
    pub fn begin(&mut self, key: &PartitionKey) -> Option<Begun> {
        let scope = self.scopes.get_mut(key).filter(|scope| !scope.in_flight)?;
        let decision = scope.decision.as_ref()?.decision.clone();
        scope.candidate.take()?;
        scope.in_flight = true;
        Some(Begun {
            scope: Scope { name: self.facts.name.clone(), partition: key.clone() },
            table: self.facts.ident,
            reference: self.reference.clone(),
            decision,
            max_bytes: scope.max_bytes.unwrap_or(u64::MAX),
        })
    }

    /// Work has ended. Whether the partition is known.
    pub fn end(&mut self, key: &PartitionKey) -> bool {
        let Some(scope) = self.scopes.get_mut(key) else { return false };
        scope.in_flight = false;
        true
    }

    /// What earlier work has taught.
    pub fn memory(&self, key: &PartitionKey) -> ScopeMemory {
        self.scopes.get(key).map(|s| s.memory.clone()).unwrap_or_default()
    }

    /// Every partition's memory, to be kept over a restart.
    pub fn memories(&self) -> Vec<(PartitionKey, ScopeMemory)> {
        self.scopes.iter().filter(|(_, s)| s.memory != ScopeMemory::default()).map(|(k, s)| (k.clone(), s.memory.clone())).collect()
    }

    /// Changes a partition's memory.
    pub fn remember(&mut self, key: &PartitionKey, memory: ScopeMemory) {
        self.scopes.entry(key.clone()).or_default().memory = memory;
    }

    /// A plan or a rewrite was refused: until the partition changes.
    pub fn refuse(&mut self, key: &PartitionKey, refused: Refused) {
        self.scopes.entry(key.clone()).or_default().refused = Some(refused);
    }

    /// The next plan should not pass so many bytes.
    pub fn shrink(&mut self, key: &PartitionKey, max_bytes: Option<u64>) {
        self.scopes.entry(key.clone()).or_default().max_bytes = max_bytes;
    }

    /// Nothing is decided about a partition until a look has shown what came of
    /// its work.
    pub fn await_look(&mut self, key: &PartitionKey, awaits: Await) {
        self.scopes.entry(key.clone()).or_default().awaits = Some(awaits);
        self.awaiting.insert(key.clone());
    }

    /// Work did not land. After `free` tries in a row the partition is held, ever
    /// longer.
    pub fn hold(&mut self, key: &PartitionKey, free: u32, now_ms: i64) {
        let scope = self.scopes.entry(key.clone()).or_default();
        scope.tries = scope.tries.saturating_add(1);
        if let Some(beyond) = scope.tries.checked_sub(free.saturating_add(1)) {
            let pause = HOLD_MS.saturating_mul(1_i64.checked_shl(beyond.min(20)).unwrap_or(i64::MAX)).min(LONGEST_HOLD_MS);
            scope.held_until_ms = Some(now_ms.saturating_add(pause));
        }
    }

    /// Work landed, or was found not to be needed.
    pub fn release(&mut self, key: &PartitionKey) {
        if let Some(scope) = self.scopes.get_mut(key) {
            (scope.tries, scope.held_until_ms) = (0, None);
        }
    }

    /// Why the whole table is left alone.
    pub fn refusals(&self) -> Vec<Refused> {
        self.refused.iter().chain(&self.disproved).cloned().collect()
    }

    /// The spec of a partition.
    pub fn spec(&self, key: &PartitionKey) -> Option<&SpecInfo> {
        self.specs.get(&key.spec_id).map(Arc::as_ref)
    }

    /// The last decision on a partition.
    pub fn decision(&self, key: &PartitionKey, paused: bool, now_ms: i64) -> Option<Arc<Explained>> {
        let blank = ScopePage::default();
        let scope = self.scopes.get(key).unwrap_or(&blank);
        scope.decision.clone().or_else(|| self.explain(key, scope, paused, now_ms).map(Arc::new))
    }

    /// The work that a partition waits for.
    pub fn candidate(&self, key: &PartitionKey) -> Option<&Candidate> {
        self.scopes.get(key)?.candidate.as_ref()
    }

    /// A candidate's score, and what it waits for.
    pub fn place(&self, key: &PartitionKey) -> (f64, &str) {
        self.scopes.get(key).map_or((0.0, ""), |s| (s.score, &s.waits_for))
    }

    /// See [`Page::place`].
    pub fn set_place(&mut self, key: &PartitionKey, score: f64, waits_for: String) {
        if let Some(scope) = self.scopes.get_mut(key) {
            (scope.score, scope.waits_for) = (score, waits_for);
        }
    }

    /// When partitions are due again.
    pub fn due(&self) -> impl Iterator<Item = (PartitionKey, i64)> + '_ {
        self.scopes.iter().filter_map(|(key, s)| Some((key.clone(), s.due_ms?)))
    }

    /// When a partition is due again; not any more.
    pub fn take_due(&mut self, key: &PartitionKey) -> Option<i64> {
        self.scopes.get_mut(key)?.due_ms.take()
    }

    /// A partition is due again.
    pub fn set_due(&mut self, key: &PartitionKey, at_ms: i64) {
        if let Some(scope) = self.scopes.get_mut(key) {
            scope.due_ms = Some(at_ms);
        }
    }

    /// When a decision that only time holds up is due again.
    pub fn eligible_again(&self, decision: &Decision) -> Option<i64> {
        match &decision.verdict {
            Verdict::Not { reason: Reason::TooNew { until_ms } | Reason::CoolingDown { until_ms } | Reason::QuietWindow { until_ms } } => {
                Some(*until_ms)
            }
            Verdict::Not { reason: Reason::InFlight } => self.gives_up_at(&decision.scope),
            _ => None,
        }
    }

    /// When a partition no longer waits for a look.
    fn gives_up_at(&self, key: &PartitionKey) -> Option<i64> {
        self.scopes.get(key)?.awaits.map(|awaits| awaits.since_ms.saturating_add(AWAIT_MS))
    }

    /// Ends the waiting for a look that does not come.
    pub fn give_up(&mut self, key: &PartitionKey, now_ms: i64) {
        if self.gives_up_at(key).is_some_and(|at_ms| at_ms <= now_ms) {
            self.stop_awaiting(key);
        }
    }
}

impl ScopePage {
    /// The memory, with the pause after work that did not land.
    fn memory_at(&self, now_ms: i64) -> ScopeMemory {
        let held = self.held_until_ms.filter(|until| *until > now_ms);
        ScopeMemory { cooldown_until_ms: self.memory.cooldown_until_ms.max(held), ..self.memory.clone() }
    }
}

fn facts(view: &TableView, state: &TableState, bytes: u64) -> TableFacts {
    TableFacts {
        ident: view.ident,
        name: view.name.clone(),
        created_ms: view.created_ms,
        bytes,
        snapshot_id: state.layout.head().unwrap_or_default(),
    }
}

fn candidate(decision: &Decision, policy: &Policy, limits: &BudgetLimits) -> Option<Candidate> {
    let bytes = decision.traits.data_bytes.min(policy.max_job_bytes);
    Candidate::of(decision, policy.gain_weight, bound_for(policy, limits, bytes))
}

/// A table property that could not be used, among the checks.
fn warned(warning: &Warning) -> Check {
    Check { name: format!("property.{}", warning.property), value: 0.0, threshold: 0.0, passed: false, note: warning.message.clone() }
}
