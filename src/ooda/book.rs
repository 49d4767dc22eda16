//! What the loop remembers of each table: a page a table, bounded by the tables
//! that exist. Layouts themselves live in `orient`'s cache.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use crate::act::Pauses;
use crate::decide::budget::bound_for;
use crate::decide::round::{Candidate, Round};
use crate::decide::{ScopeMemory, TableFacts};
use crate::lake::Error;
use crate::model::decision::{Decision, Verdict};
use crate::model::ident::{TableIdent, TableName};
use crate::model::partition::PartitionKey;
use crate::model::policy::{BudgetLimits, Policy};
use crate::model::refusal::Refused;
use crate::model::table::{SpecInfo, TableView};
use crate::orient::Absorbed;
use crate::orient::state::TableState;
use crate::settings::Warning;

/// A partition of a table by its name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Scope {
    /// The table.
    pub name: TableName,
    /// The partition.
    pub partition: PartitionKey,
}

/// Work that begins: everything that it needs to know.
pub struct Begun {
    pub(super) scope: Scope,
    pub(super) reference: String,
    pub(super) decision: Decision,
    pub(super) policy: Policy,
}

/// Everything remembered.
#[derive(Default)]
pub struct Book {
    pages: HashMap<TableName, Page>,
    due: BTreeMap<i64, BTreeSet<Scope>>,
    pauses: Pauses,
}

/// One table.
pub struct Page {
    pub(super) facts: TableFacts,
    pub(super) view: Arc<TableView>,
    pub(super) policy: Policy,
    pub(super) warnings: Vec<Warning>,
    pub(super) state: Arc<TableState>,
    pub(super) looked_at_ms: i64,
    pub(super) restored: bool,
    pub(super) trouble: Option<String>,
    /// Set by a proof that failed: nothing is rewritten here any more.
    pub(super) disproved: Option<Refused>,
    scopes: BTreeMap<PartitionKey, ScopePage>,
}

/// One partition.
#[derive(Default)]
struct ScopePage {
    memory: ScopeMemory,
    refused: Option<Refused>,
    max_bytes: Option<u64>,
    in_flight: bool,
    decision: Option<Decision>,
    candidate: Option<Candidate>,
    score: f64,
    waits_for: String,
}

impl Book {
    /// A look's result. Gives back the partitions to judge: those touched, or all
    /// when the policy, the refusals or the table changed.
    pub fn take_in(
        &mut self,
        view: &TableView,
        policy: Policy,
        warnings: Vec<Warning>,
        absorbed: &Absorbed,
        now_ms: i64,
    ) -> BTreeSet<PartitionKey> {
        let state = Arc::clone(&absorbed.state);
        let facts = TableFacts {
            ident: view.ident,
            name: view.name.clone(),
            created_ms: view.created_ms,
            bytes: state.layout.partitions().values().fold(0, |sum: u64, p| sum.saturating_add(p.data.bytes)),
            snapshot_id: state.layout.head().unwrap_or_default(),
        };
        let all: BTreeSet<PartitionKey> = state.layout.partitions().keys().cloned().collect();
        let before = self.pages.remove(&view.name).filter(|p| p.facts.ident == view.ident);
        let looked_at_ms = now_ms;
        let Some(mut page) = before else {
            let page = Page {
                facts,
                view: Arc::new(view.clone()),
                policy,
                warnings,
                state,
                looked_at_ms,
                restored: false,
                trouble: None,
                disproved: None,
                scopes: BTreeMap::new(),
            };
            self.pages.insert(view.name.clone(), page);
            return all;
        };
        let same_rules = page.policy == policy && page.view.refused == view.refused;
        let scopes = if same_rules { absorbed.touched.clone() } else { all };
        page.learn_of_deletes(&state, &absorbed.touched);
        for scope in &absorbed.touched {
            if let Some(known) = page.scopes.get_mut(scope) {
                known.refused = None;
            }
        }
        page.scopes.retain(|key, scope| scope.in_flight || state.layout.partition(key).is_some());
        Page { facts, view: Arc::new(view.clone()), policy, warnings, state, looked_at_ms, trouble: None, ..page }.enter(self);
        scopes
    }

    /// Why a table could not be looked at.
    pub fn trouble(&mut self, name: &TableName, error: &Error) {
        if let Some(page) = self.pages.get_mut(name) {
            page.trouble = Some(error.to_string());
        }
    }

    /// A table is gone; gives back its identity.
    pub fn remove(&mut self, name: &TableName) -> Option<TableIdent> {
        let page = self.pages.remove(name)?;
        let elsewhere = self.pages.values().any(|p| p.facts.ident == page.facts.ident);
        (!elsewhere).then_some(page.facts.ident)
    }

    /// A table's page.
    pub fn page(&self, name: &TableName) -> Option<&Page> {
        self.pages.get(name)
    }

    /// A table's page.
    pub fn page_mut(&mut self, name: &TableName) -> Option<&mut Page> {
        self.pages.get_mut(name)
    }

    /// Tables known.
    pub fn len(&self) -> usize {
        self.pages.len()
    }

    /// What is left alone by hand.
    pub fn pauses(&self) -> &Pauses {
        &self.pauses
    }

    /// Takes the pauses as they stand; tables whose pause changed are due at once.
    pub fn set_pauses(&mut self, pauses: Pauses) {
        if self.pauses == pauses {
            return;
        }
        let changed: Vec<Scope> = self
            .pages
            .iter()
            .filter(|(_, page)| self.pauses.holds(&page.facts.ident) != pauses.holds(&page.facts.ident))
            .flat_map(|(name, page)| page.state.layout.partitions().keys().map(|p| Scope { name: name.clone(), partition: p.clone() }))
            .collect();
        self.pauses = pauses;
        self.due.entry(i64::MIN).or_default().extend(changed);
    }

    /// A partition is judged again at a time.
    pub fn judge_again(&mut self, at_ms: i64, name: TableName, partition: PartitionKey) {
        self.due.entry(at_ms).or_default().insert(Scope { name, partition });
    }

    /// Takes out what is due.
    pub fn due(&mut self, now_ms: i64) -> BTreeMap<TableName, BTreeSet<PartitionKey>> {
        let later = self.due.split_off(&now_ms.saturating_add(1));
        let due = std::mem::replace(&mut self.due, later);
        let mut by_table: BTreeMap<TableName, BTreeSet<PartitionKey>> = BTreeMap::new();
        for scope in due.into_values().flatten() {
            by_table.entry(scope.name).or_default().insert(scope.partition);
        }
        by_table
    }

    /// Work that may start.
    pub fn pending(&self) -> Vec<Candidate> {
        let acting = self.pages.values().filter(|p| p.policy.act);
        acting.flat_map(|p| p.scopes.values()).filter(|s| !s.in_flight).filter_map(|s| s.candidate.clone()).collect()
    }

    /// Every candidate with what it waits for, best first.
    pub fn candidates(&self) -> Vec<(Scope, Candidate, f64, String)> {
        let mut all: Vec<_> = self
            .pages
            .iter()
            .flat_map(|(name, page)| page.scopes.iter().map(move |(key, scope)| (name, page, key, scope)))
            .filter_map(|(name, page, key, scope)| {
                let candidate = scope.candidate.clone()?;
                let waits_for = if page.policy.act { scope.waits_for.clone() } else { "act is off: this is advice".to_owned() };
                Some((Scope { name: name.clone(), partition: key.clone() }, candidate, scope.score, waits_for))
            })
            .collect();
        all.sort_by(|a, b| b.1.urgent.cmp(&a.1.urgent).then(b.2.total_cmp(&a.2)).then_with(|| a.0.cmp(&b.0)));
        all
    }

    /// Notes what each candidate of a round waits for.
    pub fn set_waits(&mut self, round: &Round) {
        let held = round.waiting.iter().chain(&round.never).map(|(ranked, denied)| (ranked, denied.to_string()));
        let started = round.started.iter().map(|(ranked, _)| (ranked, String::new()));
        for (ranked, waits_for) in held.chain(started) {
            let Some(scope) = self.scope_of(&ranked.candidate) else { continue };
            scope.score = ranked.score;
            scope.waits_for = waits_for;
        }
    }

    fn scope_of(&mut self, candidate: &Candidate) -> Option<&mut ScopePage> {
        let page = self.pages.values_mut().find(|p| p.facts.ident == candidate.table)?;
        page.scopes.get_mut(&candidate.scope)
    }

    /// Marks a candidate as under way.
    pub fn begin(&mut self, candidate: &Candidate) -> Option<Begun> {
        let page = self.pages.values_mut().find(|p| p.facts.ident == candidate.table)?;
        let name = page.facts.name.clone();
        let reference = page.view.reference.clone();
        let mut policy = page.policy.clone();
        let scope = page.scopes.get_mut(&candidate.scope)?;
        let decision = scope.decision.clone()?;
        scope.in_flight = true;
        scope.candidate = None;
        policy.max_job_bytes = policy.max_job_bytes.min(scope.max_bytes.unwrap_or(u64::MAX));
        Some(Begun { scope: Scope { name, partition: candidate.scope.clone() }, reference, decision, policy })
    }
}

impl Page {
    fn enter(self, book: &mut Book) {
        book.pages.insert(self.facts.name.clone(), self);
    }

    /// New deletes may apply where a finding of none had silenced the trigger.
    fn learn_of_deletes(&mut self, now: &TableState, touched: &BTreeSet<PartitionKey>) {
        let global = now.layout.global_deletes().files > self.state.layout.global_deletes().files;
        for (key, scope) in &mut self.scopes {
            let files = |state: &TableState| state.layout.partition(key).map_or(0, |p| p.delete_files());
            if global || (touched.contains(key) && files(now) > files(&self.state)) {
                scope.memory = scope.memory.after_new_delete();
            }
        }
    }

    /// What earlier work has taught.
    pub fn memory(&self, scope: &PartitionKey) -> ScopeMemory {
        self.scopes.get(scope).map(|s| s.memory.clone()).unwrap_or_default()
    }

    /// Every partition's memory, to be kept over a restart.
    pub fn memories(&self) -> Vec<(PartitionKey, ScopeMemory)> {
        self.scopes.iter().filter(|(_, s)| s.memory != ScopeMemory::default()).map(|(k, s)| (k.clone(), s.memory.clone())).collect()
    }

    /// Changes a partition's memory.
    pub fn remember(&mut self, scope: &PartitionKey, memory: ScopeMemory) {
        self.scopes.entry(scope.clone()).or_default().memory = memory;
    }

    /// Named reasons for which a partition is left alone.
    pub fn refusals(&self, scope: &PartitionKey) -> Vec<Refused> {
        let own = self.scopes.get(scope).and_then(|s| s.refused.clone());
        self.view.refused.iter().cloned().chain(self.disproved.clone()).chain(own).collect()
    }

    /// A plan or a rewrite was refused: until the partition changes.
    pub fn refuse(&mut self, scope: &PartitionKey, refused: Refused) {
        self.scopes.entry(scope.clone()).or_default().refused = Some(refused);
    }

    /// The next plan should not pass so many bytes. Gives back whether a bound
    /// was set before.
    pub fn shrink(&mut self, scope: &PartitionKey, max_bytes: Option<u64>) -> bool {
        std::mem::replace(&mut self.scopes.entry(scope.clone()).or_default().max_bytes, max_bytes).is_some()
    }

    /// Whether work is under way.
    pub fn in_flight(&self, scope: &PartitionKey) -> bool {
        self.scopes.get(scope).is_some_and(|s| s.in_flight)
    }

    /// Work has ended.
    pub fn end(&mut self, scope: &PartitionKey) {
        if let Some(scope) = self.scopes.get_mut(scope) {
            scope.in_flight = false;
        }
    }

    /// A partition has no files any more.
    pub fn close(&mut self, scope: &PartitionKey) {
        if !self.in_flight(scope) {
            self.scopes.remove(scope);
        }
    }

    /// The spec of a partition.
    pub fn spec(&self, scope: &PartitionKey) -> Option<&SpecInfo> {
        self.view.specs.get(&scope.spec_id).map(Arc::as_ref)
    }

    /// Keeps a decision, and the work that it asks for.
    pub fn keep(&mut self, decision: Decision, limits: &BudgetLimits) {
        let scope = self.scopes.entry(decision.scope.clone()).or_default();
        let bytes = decision.traits.data_bytes.min(self.policy.max_job_bytes);
        let bound = bound_for(&self.policy, limits, bytes);
        scope.candidate = Candidate::of(&decision, self.policy.gain_weight, bound);
        if !matches!(decision.verdict, Verdict::Queued { .. } | Verdict::Now { .. }) {
            scope.waits_for.clear();
        }
        scope.decision = Some(decision);
    }

    /// The last decision on each partition, ascending by key.
    pub fn decisions(&self) -> impl Iterator<Item = &Decision> {
        self.scopes.values().filter_map(|s| s.decision.as_ref())
    }
}
