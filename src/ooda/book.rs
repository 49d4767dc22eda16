//! What the loop remembers of each table: a page a table, bounded by the tables
//! that exist and the partitions that ask for something. It holds no layout: those
//! are `orient`'s, in memory within a bound, and handed in where they are needed.

mod branches;
mod count;
mod given;
mod keep_out;
mod log;
mod outside;
mod page;
mod pages;
mod scope;
mod trust;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use crate::act::Pauses;
use crate::decide;
use crate::decide::budget::Denied;
use crate::decide::learn::Learned;
use crate::decide::round::{Candidate, Round};
use crate::lake::Error;
use crate::model::decision::Verdict;
use crate::model::economy::{Budgets, Prices};
use crate::model::ident::{MAIN, TableIdent, TableName, beside_main};
use crate::model::outside::Stat;
use crate::model::partition::PartitionKey;
use crate::model::policy::{Policy, Scoping};
use crate::model::refusal::Refused;
use crate::model::table::TableView;
use crate::model::writers::Sidecar;
use crate::orient::{Absorbed, How, TableState};
use crate::replay::recorder::Recorder;
use crate::serve::backend::Explained;
use crate::settings::Warning;

use super::hold::{Hold, Holds};
use super::keep_out::Clients;
use super::lease::Leases;

use log::Log;
use outside::Outsiders;
pub use outside::{KeptTold, Telling};
pub use page::{Known, Page};
pub use pages::Branch;
use pages::Pages;
pub use scope::Await;

/// Names of tables that could never be looked at, kept with the reason.
const TROUBLES: usize = 10_000;

/// A partition of a table's branch by its name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Scope {
    /// The table.
    pub name: TableName,
    /// The branch.
    pub branch: Arc<str>,
    /// The partition.
    pub partition: PartitionKey,
}

/// Work that begins: everything that it needs to know.
pub struct Begun {
    pub(super) scope: Scope,
    pub(super) table: TableIdent,
    pub(super) verdict: Verdict,
    /// Input bytes that its plans should not pass.
    pub(super) max_bytes: u64,
    /// Whether it is only looked into.
    pub(super) foresight: bool,
    /// Whose it is.
    pub(super) tenant: Option<Arc<str>>,
}

/// What a partition is judged by, beside what the book knows.
#[derive(Clone, Copy)]
pub struct Asked<'a> {
    /// The table's state.
    pub state: &'a TableState,
    /// Scans of the table an hour.
    pub read_rate: Option<f64>,
    /// What is known of its clients.
    pub clients: Clients,
    /// What resources cost.
    pub prices: Option<&'a Prices>,
    /// Who records the decision.
    pub recorder: Option<&'a Recorder>,
    /// The moment.
    pub now_ms: i64,
}

/// Partitions of a table that are to be judged again.
#[derive(Debug, Default)]
pub struct Due {
    /// Every one.
    pub all: bool,
    /// These.
    pub scopes: BTreeSet<PartitionKey>,
}

/// One look's result.
pub struct Seen<'a> {
    /// The table.
    pub view: &'a TableView,
    /// What its settings mean.
    pub policy: Policy,
    /// Properties that could not be used.
    pub warnings: Vec<Warning>,
    /// Whose it is.
    pub tenant: Option<Arc<str>>,
    /// Its layout.
    pub absorbed: &'a Absorbed,
    /// The sidecar that rewrote in it last, unless that is this one.
    pub sidecar: Option<Sidecar>,
    /// When the look began.
    pub began_ms: i64,
}

/// What a look leaves to be done.
#[derive(Default)]
pub struct Taken {
    /// The partitions to judge: those that changed, or all when something
    /// changed that all depend on.
    pub scopes: BTreeSet<PartitionKey>,
    /// The table that stood under the name before, and is gone.
    pub replaced: Option<Gone>,
}

/// A table that is gone, of which nothing need be known any more.
pub struct Gone {
    /// The table.
    pub ident: TableIdent,
    /// Its branches that were known.
    pub branches: Vec<Arc<str>>,
}

/// Why a table could not be looked at.
#[derive(Clone, Debug)]
pub enum Trouble {
    /// It is left alone by name.
    Refused(Refused),
    /// It cannot be read now.
    Failed(String),
}

/// A candidate with its place among the others.
pub struct Waiting {
    /// The partition.
    pub scope: Scope,
    /// The work.
    pub candidate: Candidate,
    /// Its score in the last round.
    pub score: f64,
    /// What stands in its way.
    pub waits_for: String,
    /// No other candidate gains as much for as little.
    pub on_front: bool,
    /// The point of that front which the weights choose.
    pub chosen: bool,
}

/// The tables of one tenant together.
#[derive(Default)]
struct Quota {
    /// Objects that they may have; `None` for as many as they like.
    total: Option<u64>,
    /// Live ones, as far as tables are known.
    used: u64,
}

/// Everything remembered.
#[derive(Default)]
pub struct Book {
    pages: Pages,
    /// Branches that are looked after and not there, with the reason.
    absent: BTreeMap<TableName, BTreeMap<Arc<str>, String>>,
    /// The name under which a table was looked at last.
    names: HashMap<TableIdent, TableName>,
    /// Partitions to be judged again, by the time; each at most once.
    due: BTreeSet<(i64, Scope)>,
    /// Partitions that have a candidate.
    waiting: BTreeSet<Scope>,
    /// Partitions whose work waits for a person.
    reviews: BTreeSet<Scope>,
    /// Partitions that are kept out of for a client that loaded their table.
    kept_out: BTreeMap<Branch, BTreeSet<PartitionKey>>,
    quotas: HashMap<Arc<str>, Quota>,
    /// What others told.
    outside: Outsiders,
    /// What jobs have shown of our estimates.
    pub(super) learned: Learned,
    /// Whether candidates are compared by corrected estimates.
    corrects: bool,
    troubles: HashMap<Branch, Trouble>,
    log: Log,
    /// Looks into candidates so far.
    foresights: u64,
    /// The last candidate that was looked into: those that follow come first.
    foreseen: Option<Scope>,
    pauses: Pauses,
    holds: Holds,
    leases: Leases,
}

impl Book {
    /// One that is empty, with the quotas of tenants; `corrects` when candidates are
    /// compared by corrected estimates.
    pub fn new(budgets: &Budgets, corrects: bool) -> Self {
        let quotas = budgets.tenants.iter().map(|t| (Arc::clone(&t.name), Quota { total: t.quota_objects, used: 0 }));
        Self { quotas: quotas.collect(), corrects, ..Self::default() }
    }

    /// Live objects of a tenant over its quota; `None` where it has none.
    fn quota_used(&self, tenant: Option<&Arc<str>>) -> Option<f64> {
        let quota = self.quotas.get(tenant?)?;
        Some(quota.used as f64 / quota.total?.max(1) as f64)
    }

    /// A table has other objects than before.
    fn count_objects(&mut self, tenant: Option<&Arc<str>>, before: u64, now: u64) {
        if let Some(quota) = tenant.and_then(|name| self.quotas.get_mut(name)) {
            quota.used = quota.used.saturating_sub(before).saturating_add(now);
        }
    }

    /// A look's result on a branch: what it leaves to be done.
    pub fn take_in(&mut self, seen: Seen<'_>) -> Taken {
        let (name, branch, ident) = (seen.view.name.clone(), Arc::<str>::from(seen.view.reference.as_str()), seen.view.ident);
        self.troubles.remove(&Branch::new(&name, &branch));
        let is_known = |page: &Page| page.facts.ident == ident;
        let known = self.pages.get(&name, &branch).is_some_and(is_known);
        if known && seen.absorbed.how == How::Stale {
            return Taken::default();
        }
        let replaced = if self.pages.of(&name).any(is_known) { None } else { self.remove(&name) };
        self.names.insert(ident, name.clone());
        let (tenant, before) = (seen.tenant.clone(), self.objects(&name));
        let objects = objects(&seen.absorbed.state);
        let scopes = match self.pages.get_mut(&name, &branch) {
            Some(page) => page.take_in(seen),
            None => {
                let state = Arc::clone(&seen.absorbed.state);
                let page = Page::new(seen);
                let all = page.partitions(&state);
                self.pages.insert(name.clone(), page);
                all
            }
        };
        if let Some(page) = self.pages.get_mut(&name, &branch) {
            page.objects = objects;
        }
        self.count_objects(tenant.as_ref(), before, self.objects(&name));
        Taken { scopes, replaced }
    }

    /// Live files and manifests of a table: branches share most of theirs, so those of the
    /// branch that has most.
    fn objects(&self, name: &TableName) -> u64 {
        self.pages.of(name).map(|page| page.objects).max().unwrap_or(0)
    }

    /// A look found a table where it was; what of a branch of it is due.
    pub fn seen_again(&mut self, name: &TableName, branch: &str, began_ms: i64, now_ms: i64) -> Due {
        if let Some(page) = self.pages.get_mut(name, branch) {
            page.looked_at_ms = began_ms;
        }
        self.due_of(name, branch, now_ms)
    }

    /// Why a branch could not be looked at. What is known of it stays.
    pub fn trouble(&mut self, name: &TableName, branch: &str, error: &Error) {
        let of = Branch::new(name, branch);
        if self.troubles.len() >= TROUBLES && !self.troubles.contains_key(&of) {
            return;
        }
        let trouble = match error {
            Error::Refused(refused) => Trouble::Refused(refused.clone()),
            other => Trouble::Failed(other.to_string()),
        };
        self.troubles.insert(of, trouble);
    }

    /// See [`Book::trouble`].
    pub fn troubled(&self, name: &TableName, branch: &str) -> Option<&Trouble> {
        self.troubles.get(&Branch::new(name, branch))
    }

    /// A table is gone; gives it back, unless it is known under another name.
    pub fn remove(&mut self, name: &TableName) -> Option<Gone> {
        self.absent.remove(name);
        let branches: Vec<Arc<str>> = self.pages.of(name).map(|page| Arc::clone(&page.reference)).collect();
        let mut ident = None;
        for branch in &branches {
            ident = self.remove_branch(name, branch).map(|page| page.facts.ident).or(ident);
        }
        self.troubles.retain(|of, _| of.table != *name);
        let ident = ident?;
        self.outside.forget(name);
        if self.names.get(&ident) != Some(name) {
            return None;
        }
        self.names.remove(&ident);
        Some(Gone { ident, branches })
    }

    /// The name under which a table was looked at last.
    pub fn name_of(&self, ident: &TableIdent) -> Option<&TableName> {
        self.names.get(ident)
    }

    /// A branch's page.
    pub fn page(&self, name: &TableName, branch: &str) -> Option<&Page> {
        self.pages.get(name, branch)
    }

    /// The pages of a table, by its branches.
    pub fn pages(&self, name: &TableName) -> impl Iterator<Item = &Page> {
        self.pages.of(name)
    }

    /// A branch's page, if the table of that name is still this one.
    pub fn page_mut(&mut self, name: &TableName, branch: &str, ident: TableIdent) -> Option<&mut Page> {
        self.pages.get_mut(name, branch).filter(|page| page.facts.ident == ident)
    }

    /// Tables known.
    pub fn len(&self) -> usize {
        self.pages.tables()
    }

    /// Judges a partition by a table's state, keeps the decision, and marks when it
    /// is due again. `None` when it has no files, and when the state is not the one
    /// that the page was written from: then all are judged at the next round.
    pub fn judge(&mut self, scope: Scope, asked: Asked<'_>, budgets: &Budgets) -> Option<Arc<Explained>> {
        let Asked { state, now_ms, .. } = asked;
        let Scope { name, branch, partition } = &scope;
        let page = self.pages.get_mut(name, branch)?;
        if page.mark != state.layout.mark() || page.facts.ident != state.layout.ident() {
            page.unjudged = true;
            return None;
        }
        if let Some(at_ms) = page.take_due(partition) {
            self.due.remove(&(at_ms, scope.clone()));
        }
        page.give_up(partition, now_ms);
        let (table, tenant) = (page.facts.ident, page.tenant.clone());
        let known = self.known(&scope, table, tenant.as_ref(), asked);
        let known = Known { learned: Some(&self.learned), hold: self.leases.longest(name, now_ms), ..known };
        let page = self.pages.get_mut(name, branch)?;
        let Some(explained) = page.judge(partition, known, self.log.standing(&scope, table), budgets) else {
            self.waiting.remove(&scope);
            self.reviews.remove(&scope);
            self.forget_kept_out(&scope);
            self.log.close(&scope);
            if let Some(recorder) = asked.recorder {
                recorder.closed(table, beside_main(branch), partition, now_ms);
            }
            return None;
        };
        match explained.decision.verdict {
            Verdict::Review { .. } => self.reviews.insert(scope.clone()),
            _ => self.reviews.remove(&scope),
        };
        match page.candidate(partition).is_some() {
            true => self.waiting.insert(scope.clone()),
            false => self.waiting.remove(&scope),
        };
        if let Some(at_ms) = page.eligible_again(&explained.decision) {
            page.set_due(partition, at_ms);
            self.due.insert((at_ms, scope.clone()));
        }
        self.note_kept_out(&scope, &explained.decision);
        self.log.keep(scope.clone(), Arc::clone(&explained));
        Some(explained)
    }

    /// Every partition to be judged by a state when all are due; from then on they are
    /// not. `None` when the page was written from another state.
    pub fn take_all(&mut self, name: &TableName, branch: &str, state: &TableState) -> Option<BTreeSet<PartitionKey>> {
        let page = self.pages.get_mut(name, branch).filter(|page| page.mark == state.layout.mark())?;
        page.unjudged = false;
        Some(page.partitions(state))
    }

    /// The last decision on a partition of a table, whose state this is, and as far as
    /// they are kept those before it, newest first.
    pub fn decisions(&self, scope: &Scope, asked: Asked<'_>, earlier: usize) -> Vec<Explained> {
        let Some(page) = self.of(scope) else { return Vec::new() };
        let table = page.facts.ident;
        let known = self.known(scope, table, page.tenant.as_ref(), asked);
        let known = Known { learned: Some(&self.learned), hold: self.leases.longest(&scope.name, asked.now_ms), ..known };
        let Some((last, kept)) = page.decision(&scope.partition, known, self.log.last(scope, table)) else { return Vec::new() };
        // one that was made again for the question comes before all that are kept
        let before = self.log.of(scope, table).skip(usize::from(kept)).take(earlier);
        std::iter::once(last).chain(before.map(|made| made.as_ref().clone())).collect()
    }

    /// What a judgement goes by, beside the page.
    fn known<'a>(&self, scope: &Scope, table: TableIdent, tenant: Option<&Arc<str>>, asked: Asked<'a>) -> Known<'a> {
        let Asked { state, read_rate, clients, recorder, now_ms, .. } = asked;
        let outside = self.outside.of(&scope.name, &scope.partition, now_ms);
        Known {
            state,
            paused: self.is_paused(table, &scope.partition, state),
            read_rate: outside.value(Stat::ReadRate).or(read_rate),
            clients,
            hold: None,
            quota_used: outside.value(Stat::QuotaUsed).or_else(|| self.quota_used(tenant)),
            outside,
            learned: None,
            prices: asked.prices,
            recorder,
            now_ms,
        }
    }

    /// By hand, or because `undo` left it so.
    fn is_paused(&self, table: TableIdent, partition: &PartitionKey, state: &TableState) -> bool {
        let now = state.layout.partition(partition);
        self.pauses.holds(&table) || self.holds.keeps(table, state.layout.reference(), partition, now.as_ref())
    }

    /// Takes the pauses, and what `undo` keeps, as they stand; what changed by it is
    /// due at once.
    pub fn set_pauses(&mut self, pauses: Pauses, holds: Holds, now_ms: i64) {
        if (&self.pauses, &self.holds) == (&pauses, &holds) {
            return;
        }
        let kept = std::mem::replace(&mut self.holds, holds);
        let other = |hold: &&Hold, than: &Holds| !than.iter().any(|h| h == *hold);
        let changed = kept.iter().filter(|h| other(h, &self.holds)).chain(self.holds.iter().filter(|h| other(h, &kept)));
        let named = changed.filter_map(|hold| {
            let name = self.names.get(&hold.table)?.clone();
            Some(Scope { name, branch: hold.branch.as_str().into(), partition: hold.partition.clone() })
        });
        for scope in named.collect::<Vec<_>>() {
            self.call(&scope, now_ms);
        }
        let before = std::mem::replace(&mut self.pauses, pauses);
        for page in self.pages.values_mut() {
            let ident = &page.facts.ident;
            page.unjudged |= before.holds(ident) != self.pauses.holds(ident);
        }
    }

    /// The page of a partition.
    fn of(&self, scope: &Scope) -> Option<&Page> {
        self.pages.get(&scope.name, &scope.branch)
    }

    /// Marks a partition as due.
    fn call(&mut self, scope: &Scope, now_ms: i64) {
        let Some(page) = self.pages.get_mut(&scope.name, &scope.branch) else { return };
        if let Some(at_ms) = page.take_due(&scope.partition) {
            self.due.remove(&(at_ms, scope.clone()));
        }
        page.set_due(&scope.partition, now_ms);
        self.due.insert((now_ms, scope.clone()));
    }

    /// Partitions that are due, by branch. They stay so until they are judged.
    pub fn due(&self, now_ms: i64) -> BTreeMap<Branch, Due> {
        let mut by_branch: BTreeMap<Branch, Due> = BTreeMap::new();
        for (_, scope) in self.due.iter().take_while(|(at_ms, _)| *at_ms <= now_ms) {
            let of = Branch { table: scope.name.clone(), name: Arc::clone(&scope.branch) };
            by_branch.entry(of).or_default().scopes.insert(scope.partition.clone());
        }
        for (name, page) in self.pages.iter().filter(|(_, page)| page.unjudged) {
            by_branch.entry(Branch { table: name.clone(), name: Arc::clone(&page.reference) }).or_default().all = true;
        }
        by_branch
    }

    /// See [`Book::due`].
    pub fn due_of(&self, name: &TableName, branch: &str, now_ms: i64) -> Due {
        self.due(now_ms).remove(&Branch::new(name, branch)).unwrap_or_default()
    }

    /// Work that may start.
    pub fn pending(&mut self, now_ms: i64) -> Vec<Candidate> {
        let pages = &self.pages;
        let of_scope = |scope: &Scope| pages.get(&scope.name, &scope.branch);
        self.waiting.retain(|scope| of_scope(scope).is_some_and(|page| page.candidate(&scope.partition).is_some()));
        let ready = |scope: &Scope| {
            let page = of_scope(scope).filter(|page| page.policy.act && page.may_work())?;
            // a table under two names is worked on under the one looked at last
            let named = self.names.get(&page.facts.ident) == Some(&scope.name);
            let mut candidate = page.candidate(&scope.partition).filter(|_| named).cloned()?;
            if self.corrects {
                self.correct(&mut candidate, &page.engine);
            }
            let told = self.outside.of(&scope.name, &scope.partition, now_ms).value(Stat::QuotaUsed);
            candidate.context.quota_used = told.or_else(|| self.quota_used(page.tenant.as_ref()));
            Some(candidate)
        };
        let mut pending: Vec<Candidate> = self.waiting.iter().filter_map(ready).collect();
        let of = |table: &TableIdent| {
            self.names.get(table).and_then(|name| pages.of(name).next()).map(|page| (page.policy.scope, page.policy.cost))
        };
        if pages.values().any(|page| matches!(page.policy.scope, Scoping::Table | Scoping::Hybrid)) {
            decide::scope::join(&mut pending, of);
        }
        pending
    }

    /// Notes what each candidate of a round waits for.
    pub fn set_waits(&mut self, round: &Round) {
        let held = round.waiting.iter().chain(&round.never).map(|(ranked, denied)| (ranked, Some(denied.clone())));
        let started = round.started.iter().map(|(ranked, _)| (ranked, None::<Denied>));
        for (ranked, denied) in held.chain(started) {
            let name = self.names.get(&ranked.candidate.table);
            if let Some(page) = name.and_then(|name| self.pages.get_mut(name, branch_of(&ranked.candidate))) {
                page.set_place(&ranked.candidate.scope, ranked.score, denied);
            }
        }
    }

    /// Marks a candidate as under way.
    pub fn begin(&mut self, candidate: &Candidate) -> Option<Begun> {
        let name = self.names.get(&candidate.table)?.clone();
        let begun = self.pages.get_mut(&name, branch_of(candidate))?.begin(&candidate.scope)?;
        self.waiting.remove(&begun.scope);
        Some(begun)
    }

    /// Candidates that nobody has looked into yet, at most so many; they are looked
    /// into from here on, each under a number. All come in turn.
    pub fn begin_foresights(&mut self, most: usize, now_ms: i64) -> Vec<(u64, Begun)> {
        let asks = |scope: &&Scope| self.of(scope).is_some_and(|page| page.asks_for_foresight(&scope.partition, now_ms));
        let last = self.foreseen.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let first = self.foreseen.iter().flat_map(|last| self.waiting.range(..=last));
        let chosen: Vec<Scope> = self.waiting.range((last, Bound::Unbounded)).chain(first).filter(asks).take(most).cloned().collect();
        self.foreseen = chosen.last().cloned().or(self.foreseen.take());
        let mut begun = Vec::with_capacity(chosen.len());
        for scope in chosen {
            self.foresights = self.foresights.wrapping_add(1);
            let page = self.pages.get_mut(&scope.name, &scope.branch);
            begun.extend(page.and_then(|page| page.begin_foresight(&scope.partition, self.foresights)).map(|b| (self.foresights, b)));
        }
        begun
    }

    /// Whether a candidate is yet to be looked into.
    pub fn asks_for_foresight(&self, now_ms: i64) -> bool {
        self.waiting.iter().any(|scope| self.of(scope).is_some_and(|page| page.asks_for_foresight(&scope.partition, now_ms)))
    }

    /// Something was learned of a partition: it is judged at the next round.
    pub fn learned(&mut self, scope: &Scope, table: TableIdent, now_ms: i64) {
        if self.page_mut(&scope.name, &scope.branch, table).is_some() {
            self.call(scope, now_ms);
        }
    }

    /// Work has ended: the partition is free, and is judged at the next round.
    pub fn free(&mut self, scope: &Scope, table: TableIdent, now_ms: i64) {
        let Some(page) = self.page_mut(&scope.name, &scope.branch, table) else { return };
        if page.end(&scope.partition) {
            self.call(scope, now_ms);
        }
    }
}

/// The branch of a candidate.
fn branch_of(candidate: &Candidate) -> &str {
    candidate.context.branch.as_deref().unwrap_or(MAIN)
}

/// Live data and delete files of a table, and its manifests.
fn objects(state: &TableState) -> u64 {
    let layout = &state.layout;
    layout.data().files.saturating_add(layout.deletes().files).saturating_add(layout.manifest_count())
}
