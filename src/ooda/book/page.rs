//! What is remembered of one table and of each of its partitions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::given::{Commits, partition_age_ms};
use super::log::Standing;
use super::scope::{Await, ScopePage, position_deletes_came};
use super::trust::{priced, trusted, warned};
use super::{Begun, Clients, Scope, Seen};
use crate::decide::budget::Denied;
use crate::decide::learn::Learned;
use crate::decide::round::Candidate;
use crate::decide::{self, Case, ScopeMemory, TableFacts};
use crate::model::decision::{Decision, Reason, Verdict};
use crate::model::economy::{Budgets, Prices};
use crate::model::ident::beside_main;
use crate::model::layout::{PartitionLayout, Tally};
use crate::model::outside::Outside;
use crate::model::partition::PartitionKey;
use crate::model::policy::Policy;
use crate::model::refusal::{Refusal, Refused};
use crate::model::table::{SpecInfo, TableView};
use crate::model::window;
use crate::model::writers::{Hold, Sidecar, Writers};
use crate::orient::{How, Key, Mark, TableState, traits};
use crate::replay::recorder::Recorder;
use crate::serve::backend::{Explained, label};
use crate::settings::Warning;

/// One branch of a table.
pub struct Page {
    pub(in crate::ooda) facts: TableFacts,
    pub(in crate::ooda) reference: Arc<str>,
    pub(in crate::ooda) format_version: u8,
    pub(in crate::ooda) policy: Policy,
    /// Whose it is.
    pub(in crate::ooda) tenant: Option<Arc<str>>,
    /// The engine of its last writer.
    pub(in crate::ooda) engine: Arc<str>,
    /// Its live files and manifests.
    pub(in crate::ooda) objects: u64,
    /// Tells the state that the page was written from.
    pub(in crate::ooda) mark: Mark,
    pub(in crate::ooda) looked_at_ms: i64,
    pub(in crate::ooda) restored: bool,
    /// Whether every partition is to be judged again, whatever it holds.
    pub(in crate::ooda) unjudged: bool,
    /// Whether the tenant used as much of its quota as makes work due, and as forbids it,
    /// when it was asked last.
    pub(in crate::ooda) pressed: (bool, bool),
    /// Whether any partition was judged.
    pub(in crate::ooda) judged: bool,
    /// Set by a proof that failed: nothing is rewritten here any more.
    pub(in crate::ooda) disproved: Option<Refused>,
    global_deletes: Tally,
    metadata_location: String,
    refused: Vec<Refused>,
    specs: BTreeMap<i32, Arc<SpecInfo>>,
    commits: Commits,
    warnings: Vec<Warning>,
    /// The sidecar that rewrote in it last, unless that is this one.
    sidecar: Option<Sidecar>,
    scopes: BTreeMap<PartitionKey, ScopePage>,
    /// Partitions that wait for a look.
    awaiting: BTreeSet<PartitionKey>,
    /// Until when its clients were last found to be writing.
    pub(super) clients_until_ms: i64,
}

/// What a judgement goes by, beside the page.
#[derive(Clone, Copy)]
pub struct Known<'a> {
    /// The table's state.
    pub state: &'a TableState,
    /// Whether the partition is held back by hand.
    pub paused: bool,
    /// Scans of the table an hour.
    pub read_rate: Option<f64>,
    /// What is known of its clients.
    pub clients: Clients,
    /// The lease on the table that lasts longest.
    pub hold: Option<&'a Hold>,
    /// How much of its quota the tenant uses.
    pub quota_used: Option<f64>,
    /// What others told.
    pub outside: Outside,
    /// What jobs have shown of our estimates.
    pub learned: Option<&'a Learned>,
    /// What resources cost.
    pub prices: Option<&'a Prices>,
    /// Who records the decision.
    pub recorder: Option<&'a Recorder>,
    /// The moment.
    pub now_ms: i64,
}

impl Page {
    /// Of a table looked at for the first time.
    pub fn new(seen: Seen<'_>) -> Self {
        let Seen { view, policy, warnings, tenant, absorbed, sidecar, began_ms } = seen;
        let state = &absorbed.state;
        Self {
            facts: facts(view, state, data_bytes(state)),
            reference: view.reference.as_str().into(),
            format_version: view.format_version,
            policy,
            tenant,
            engine: view.engine(),
            objects: 0,
            mark: state.layout.mark(),
            global_deletes: state.layout.global_deletes(),
            looked_at_ms: began_ms,
            restored: false,
            unjudged: false,
            pressed: (false, false),
            judged: false,
            disproved: None,
            metadata_location: view.metadata_location.clone(),
            refused: view.refused.clone(),
            specs: view.specs.clone(),
            commits: Commits::of(view),
            warnings,
            sidecar,
            scopes: BTreeMap::new(),
            awaiting: BTreeSet::new(),
            clients_until_ms: 0,
        }
    }

    /// Another look's result; gives back the partitions to judge.
    pub fn take_in(&mut self, seen: Seen<'_>) -> BTreeSet<PartitionKey> {
        let Seen { view, policy, warnings, tenant, absorbed, sidecar, began_ms } = seen;
        let now = &absorbed.state;
        let before = absorbed.before.as_deref().filter(|before| before.layout.mark() == self.mark);
        let (mut scopes, bytes) = self.changed(before, now);
        scopes.extend(absorbed.touched.iter().cloned());
        let facts = facts(view, now, bytes);
        let global_deletes = now.layout.global_deletes();
        let large = |facts: &TableFacts| facts.bytes >= policy.min_table_bytes;
        let other = |sidecar: &Option<Sidecar>| sidecar.as_ref().map(|s| (s.instance.clone(), s.claims_until_ms));
        let all = self.policy != policy
            || other(&self.sidecar) != other(&sidecar)
            || self.refused != view.refused
            || large(&self.facts) != large(&facts)
            || self.global_deletes != global_deletes;
        if absorbed.foreign_snapshots > 0 || matches!(absorbed.how, How::Rebuilt(_)) {
            self.learn_of_deletes(before, now, &scopes);
        }
        // a refusal may have been mended by the commit, by the table's new metadata or by its settings
        let elsewhere = self.policy != policy || (scopes.is_empty() && self.metadata_location != view.metadata_location);
        let mut mended = scopes.clone();
        if before.is_none_or(|before| before.layout.deletes().files > now.layout.deletes().files) {
            // what is gone may be the other partition's delete for which they were refused
            mended.extend(self.astray());
        }
        if before.is_some_and(|before| position_deletes_came(before, now, &scopes)) {
            // they may name files of the other partitions
            self.look_again(&scopes);
        }
        scopes.extend(self.forgive(if elsewhere { None } else { Some(&mended) }));
        scopes.extend(self.seen(view, began_ms));
        self.facts = facts;
        self.format_version = view.format_version;
        self.engine = view.engine();
        (self.policy, self.tenant) = (policy, tenant);
        (self.warnings, self.sidecar) = (warnings, sidecar);
        (self.mark, self.global_deletes) = (now.layout.mark(), global_deletes);
        self.looked_at_ms = began_ms;
        self.metadata_location.clone_from(&view.metadata_location);
        self.refused.clone_from(&view.refused);
        self.specs.clone_from(&view.specs);
        self.commits = Commits::of(view);
        if all {
            // those that are gone are judged too, which closes them
            scopes.extend(self.partitions(now));
        }
        scopes
    }

    /// The metadata location of the last look, unless somebody waits for what a later
    /// one takes in.
    pub fn settled_at(&self) -> Option<&str> {
        (self.restored && self.awaiting.is_empty()).then_some(&self.metadata_location)
    }

    /// Under which its state is known.
    pub fn key(&self) -> Key {
        Key::new(self.facts.ident, &self.reference)
    }

    /// Partitions in which a state differs from the one known, and the table's live
    /// data bytes in it. Costs what differs, not what there is; `before` is the one
    /// known, and without it all may differ.
    fn changed(&self, before: Option<&TableState>, now: &TableState) -> (BTreeSet<PartitionKey>, u64) {
        let Some(before) = before else {
            return match now.layout.mark() == self.mark {
                true => (BTreeSet::new(), self.facts.bytes),
                false => (self.partitions(now), data_bytes(now)),
            };
        };
        let mut changed = BTreeSet::new();
        let mut bytes = self.facts.bytes;
        let data = |p: Option<PartitionLayout>| p.map_or(0, |p| p.data.bytes);
        for differing in before.layout.partitions().diff(now.layout.partitions()) {
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
        lifted.retain(|key| self.scopes.get_mut(key).is_some_and(ScopePage::lift));
        lifted
    }

    /// Has the candidates of all but these partitions looked into again.
    fn look_again(&mut self, but: &BTreeSet<PartitionKey>) {
        let waits = |(key, scope): &(&PartitionKey, &mut ScopePage)| scope.candidate.is_some() && !but.contains(*key);
        let mut waiting: Vec<&mut ScopePage> = self.scopes.iter_mut().filter(waits).map(|(_, scope)| scope).collect();
        let others = waiting.len().saturating_sub(1);
        waiting.iter_mut().for_each(|scope| scope.look_again(others));
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
    /// Without the state before, any partition may have some.
    fn learn_of_deletes(&mut self, before: Option<&TableState>, now: &TableState, changed: &BTreeSet<PartitionKey>) {
        let Some(before) = before.filter(|_| now.layout.global_deletes() == self.global_deletes) else {
            self.scopes.values_mut().for_each(|scope| scope.memory = scope.memory.after_new_delete());
            return;
        };
        let tallies = |p: PartitionLayout| (p.position_deletes, p.equality_deletes, p.deletion_vectors);
        let of = |state: &TableState, key| state.layout.partition(key).map(tallies);
        for key in changed {
            if let Some(scope) = self.scopes.get_mut(key).filter(|_| of(now, key) != of(before, key)) {
                scope.memory = scope.memory.after_new_delete();
            }
        }
    }

    /// Every partition of a state, and those of which something is known beside it.
    pub fn partitions(&self, state: &TableState) -> BTreeSet<PartitionKey> {
        state.layout.partitions().keys().chain(self.scopes.keys().cloned()).collect()
    }

    /// Judges a partition, and keeps the verdict with the work that it asks for;
    /// `stood` is the verdict before, where it is known elsewhere. `None` when the
    /// partition has no files any more.
    pub fn judge(&mut self, key: &PartitionKey, known: Known<'_>, stood: Option<Standing>, budgets: &Budgets) -> Option<Arc<Explained>> {
        self.judged = true;
        let mut scope = self.scopes.remove(key).unwrap_or_default();
        scope.standing = scope.standing.take().or(stood);
        if let Some(layout) = known.state.layout.partition(key).filter(|_| scope.awaits.is_none()) {
            scope.memory.shown(&layout.small);
        }
        let Some(explained) = self.explain(key, &scope, known) else {
            self.close(key, &scope);
            return None;
        };
        scope.mind_others(&explained.decision, &self.policy);
        scope.candidate = Candidate::wanted(&explained.decision, &self.policy, budgets, self.tenant.as_ref());
        scope.candidate.iter_mut().for_each(|candidate| candidate.context.branch = beside_main(&self.reference));
        if scope.candidate.is_none() {
            scope.rest();
        }
        scope.standing = None;
        // of a partition about which nothing else is known the decision is made again when it is asked for
        if scope != ScopePage::default() || self.eligible_again(&explained.decision).is_some() {
            scope.standing = Some(Standing::of(&explained));
            self.scopes.insert(key.clone(), scope);
        }
        Some(Arc::new(explained))
    }

    /// The decision on a partition as everything stands.
    fn explain(&self, key: &PartitionKey, scope: &ScopePage, known: Known<'_>) -> Option<Explained> {
        let mut traits = traits::traits(known.state, key, &self.policy.cost, known.now_ms)?;
        (traits.read_rate, traits.quota_used, traits.outside) = (known.read_rate, known.quota_used, known.outside);
        traits.commits_since_rewrite = Some(self.commits.since(scope.memory.last_rewrite_ms));
        traits.partition_age_ms = partition_age_ms(key, self.spec(key), known.now_ms);
        traits.writers = Writers {
            cadence: traits.writers.cadence,
            loaded_until_ms: known.clients.busy_until_ms,
            kept_out_since_ms: scope.kept_out_since_ms,
            hold: known.hold.cloned(),
            harmed: known.clients.harmed,
            sidecar: self.sidecar.clone(),
        };
        let refusals: Vec<Refused> = self.refused.iter().chain(&self.disproved).chain(&scope.refused).cloned().collect();
        let memory = scope.memory_at(known.now_ms);
        let case = Case {
            now_ms: known.now_ms,
            table: &self.facts,
            policy: &self.policy,
            refusals: &refusals,
            paused: known.paused,
            in_flight: scope.in_flight || scope.awaits.is_some(),
            scope: key,
            traits: &traits,
            memory: &memory,
        };
        let mut decision = decide::judge(&case);
        if let Some(recorder) = known.recorder {
            recorder.judged(&case, beside_main(&self.reference), &decision);
        }
        decision.checks.extend(self.warnings.iter().map(warned));
        decision
            .checks
            .extend(known.learned.map(|learned| trusted(&self.policy.cost, &decision, &self.engine, learned)).unwrap_or_default());
        decision.checks.extend(known.prices.and_then(|prices| priced(prices, &decision, known.read_rate)));
        decision.snapshot_id = known.state.layout.head().unwrap_or_default();
        let decided_ms = Standing::since(scope.standing.as_ref(), &decision.verdict, known.now_ms);
        let label = label(key, self.spec(key));
        let branch = Arc::clone(&self.reference);
        let explained = Explained { branch, label, decision, decided_ms, score: 0.0, waits_for: String::new(), last_job: None };
        Some(self.placed(scope, explained))
    }

    /// A decision with the partition's place in the last round.
    fn placed(&self, scope: &ScopePage, made: Explained) -> Explained {
        let waits = matches!(made.decision.verdict, Verdict::Now { .. } | Verdict::Queued { .. }) && self.policy.act;
        let (score, waits_for) = if waits { (scope.score, scope.waits_for()) } else { (0.0, String::new()) };
        Explained { score, waits_for, ..made }
    }

    /// A partition has no files any more.
    fn close(&mut self, key: &PartitionKey, scope: &ScopePage) {
        self.awaiting.remove(key);
        if scope.in_flight {
            self.scopes.insert(key.clone(), ScopePage::of_work());
        }
    }

    /// Marks a partition's candidate as under way.
    pub fn begin(&mut self, key: &PartitionKey) -> Option<Begun> {
        let begun = self.begun(key, false)?;
        let scope = self.scopes.get_mut(key).filter(|scope| !scope.in_flight)?;
        scope.candidate.take()?;
        (scope.kept_out_since_ms, scope.closes_ms) = (None, None);
        scope.in_flight = true;
        Some(begun)
    }

    /// A candidate that nobody has looked into yet, marked as being looked into.
    pub fn begin_foresight(&mut self, key: &PartitionKey, number: u64) -> Option<Begun> {
        let begun = self.begun(key, true)?;
        self.scopes.get_mut(key)?.foresight.begin(number);
        Some(begun)
    }

    /// Whether a partition's candidate is yet to be looked into.
    pub fn asks_for_foresight(&self, key: &PartitionKey, now_ms: i64) -> bool {
        self.may_work() && self.scopes.get(key).is_some_and(|scope| scope.asks_for_foresight(now_ms))
    }

    /// The partition, if the look into its candidate with this number still stands.
    pub fn end_foresight(&mut self, key: &PartitionKey, number: u64) -> Option<&mut ScopePage> {
        self.scopes.get_mut(key).filter(|scope| scope.foresight.is(number))
    }

    /// Nothing stands in the way of a partition that was only looked into: what was
    /// refused for a while is not held for it any longer than the next time.
    pub fn unburden(&mut self, key: &PartitionKey) {
        if !self.policy.act {
            self.release(key);
        }
    }

    fn begun(&self, key: &PartitionKey, foresight: bool) -> Option<Begun> {
        let scope = self.scopes.get(key).filter(|scope| scope.candidate.is_some())?;
        Some(Begun {
            scope: Scope { name: self.facts.name.clone(), branch: Arc::clone(&self.reference), partition: key.clone() },
            table: self.facts.ident,
            verdict: scope.standing.as_ref()?.verdict.clone(),
            max_bytes: scope.max_bytes.unwrap_or(u64::MAX),
            foresight,
            tenant: self.tenant.clone(),
        })
    }

    /// Whether work may begin on any partition: what is to be judged again first, or
    /// is left alone as a whole, does not begin on an old word.
    pub fn may_work(&self) -> bool {
        !self.unjudged && self.disproved.is_none() && self.refused.is_empty()
    }

    /// Work has ended. Whether the partition is known.
    pub fn end(&mut self, key: &PartitionKey) -> bool {
        let Some(scope) = self.scopes.get_mut(key) else { return false };
        scope.in_flight = false;
        true
    }

    pub(super) fn scope(&self, key: &PartitionKey) -> Option<&ScopePage> {
        self.scopes.get(key)
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

    /// A plan or a rewrite was refused: until the partition changes or, where that
    /// passes by itself, for a while.
    pub fn refuse(&mut self, key: &PartitionKey, refused: Refused, now_ms: i64) {
        self.scopes.entry(key.clone()).or_default().refuse(refused, now_ms);
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
        self.scopes.entry(key.clone()).or_default().hold(free, now_ms);
    }

    /// Work landed, or was found not to be needed.
    pub fn release(&mut self, key: &PartitionKey) {
        if let Some(scope) = self.scopes.get_mut(key) {
            scope.release();
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

    /// The last decision on a partition, and whether it is the one that is kept: as it
    /// was made where more is known than the layout, which alone leads to the same
    /// decision whenever it is asked for.
    pub fn decision(&self, key: &PartitionKey, known: Known<'_>, kept: Option<&Arc<Explained>>) -> Option<(Explained, bool)> {
        match (self.scopes.get(key), kept) {
            (Some(scope), Some(kept)) => Some((self.placed(scope, kept.as_ref().clone()), true)),
            (Some(scope), None) => Some((self.explain(key, scope, known)?, false)),
            (None, kept) => {
                let standing = kept.map(|kept| Standing::of(kept));
                Some((self.explain(key, &ScopePage::of_verdict(standing), known)?, false))
            }
        }
    }

    /// The work that a partition waits for.
    pub fn candidate(&self, key: &PartitionKey) -> Option<&Candidate> {
        self.scopes.get(key)?.candidate.as_ref()
    }

    /// A candidate's score, and what it waits for.
    pub fn place(&self, key: &PartitionKey) -> (f64, String) {
        self.scopes.get(key).map_or((0.0, String::new()), |s| (s.score, s.waits_for()))
    }

    /// Since when the last verdict on a partition stands, in milliseconds since the epoch.
    pub fn stands_since(&self, key: &PartitionKey) -> Option<i64> {
        Some(self.scopes.get(key)?.standing.as_ref()?.since_ms)
    }

    /// See [`Page::place`].
    pub fn set_place(&mut self, key: &PartitionKey, score: f64, denied: Option<Denied>) {
        if let Some(scope) = self.scopes.get_mut(key) {
            (scope.score, scope.denied, scope.dropped) = (score, denied, None);
        }
    }

    /// A rewrite of a partition was dropped, for the reason that is given.
    pub fn set_dropped(&mut self, key: &PartitionKey, why: &str) {
        self.set_place(key, 0.0, None);
        if let Some(scope) = self.scopes.get_mut(key) {
            scope.dropped = Some(why.into());
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
        self.scopes.entry(key.clone()).or_default().due_ms = Some(at_ms);
    }

    /// When a decision that only time holds up is due again.
    pub fn eligible_again(&self, decision: &Decision) -> Option<i64> {
        match &decision.verdict {
            Verdict::Not {
                reason:
                    Reason::TooNew { until_ms }
                    | Reason::CoolingDown { until_ms }
                    | Reason::QuietWindow { until_ms }
                    | Reason::Held { until_ms, .. }
                    | Reason::KeptOut { until_ms }
                    | Reason::OutsideWindows { until_ms }
                    | Reason::NotDue { until_ms },
            } => Some(*until_ms),
            // what waits for budget may begin no more then
            Verdict::Now { .. } | Verdict::Queued { .. } => {
                let urgent = matches!(decision.verdict, Verdict::Now { .. });
                let closes = [
                    window::closes_ms(&self.policy.windows, decision.at_ms),
                    decide::mode::closes_ms(&self.policy.pace, decision.at_ms, urgent),
                    self.scopes.get(&decision.scope).and_then(|scope| scope.closes_ms),
                ];
                closes.into_iter().flatten().min()
            }
            Verdict::Not { reason: Reason::Healthy | Reason::NothingToGain | Reason::OwnFilter { .. } } => {
                decide::own::again_ms(&self.policy, &decision.traits, decision.at_ms)
            }
            Verdict::Not { reason: Reason::InFlight } => self.scopes.get(&decision.scope)?.gives_up_at(),
            Verdict::Not { reason: Reason::Refused(_) } => self.scopes.get(&decision.scope)?.lifts_ms,
            _ => None,
        }
    }

    /// Ends the waiting for a look that does not come, and lifts what passes by itself.
    pub fn give_up(&mut self, key: &PartitionKey, now_ms: i64) {
        let Some(scope) = self.scopes.get_mut(key) else { return };
        if scope.lifts_ms.is_some_and(|at_ms| at_ms <= now_ms) {
            scope.lift();
        }
        if scope.gives_up_at().is_some_and(|at_ms| at_ms <= now_ms) {
            self.stop_awaiting(key);
        }
    }
}

/// Live data bytes over all partitions.
fn data_bytes(state: &TableState) -> u64 {
    state.layout.partitions().values().fold(0, |sum: u64, p| sum.saturating_add(p.data.bytes))
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
