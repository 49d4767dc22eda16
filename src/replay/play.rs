//! A policy at work on a trace, as a model.
//!
//! Decisions, ranking and budgets are those of the sidecar. What is a model: a job takes
//! its bytes over `rewrite_bytes_per_hour` and costs what the settings reckon; it makes
//! as many even files as the target asks for; it is lost when writers take files of its
//! partition away meanwhile. Nothing here depends on a clock or on chance.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};

use super::lines::{Key, key};
use super::part::{Group, Part};
use super::totals::{Level, Totals};
use super::trace::{Event, Trace, Traced};
use crate::decide::budget::{Ask, Budget, Denied, Reservation, Used, bound_for, largest_job};
use crate::decide::maturity::Gained;
use crate::decide::plan::Cause;
use crate::decide::round::{Candidate, rank_by, start_by};
use crate::decide::{Case, TableFacts, judge, scope};
use crate::model::decision::{Decision, Reason, Verdict};
use crate::model::economy::{Budgets, Prices, Ranking};
use crate::model::ident::TableIdent;
use crate::model::partition::PartitionKey;
use crate::model::policy::{CostModel, Policy, Scoping};
use crate::model::window;

/// Between two rounds while something waits for the budget alone, in milliseconds.
const AGAIN_MS: i64 = 60_000;
/// The shortest job, in milliseconds.
const SHORTEST_MS: f64 = 1000.0;
/// After a lost job its partition is judged again, in milliseconds.
const HELD_MS: i64 = 1000;

/// What is tried on a trace.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The policy of each table, in the order of the trace.
    pub policies: Vec<Policy>,
    /// The budgets.
    pub budgets: Budgets,
    /// How candidates are compared and chosen.
    pub ranking: Ranking,
    /// What resources cost.
    pub prices: Prices,
}

impl Setup {
    /// What was there when the trace was made.
    pub fn of(trace: &Trace) -> Self {
        Self {
            policies: trace.tables.iter().map(|table| table.policy.clone()).collect(),
            budgets: trace.budgets.clone(),
            ranking: trace.ranking,
            prices: trace.prices.clone(),
        }
    }
}

/// Plays a trace to its end.
pub fn play(trace: &Trace, setup: &Setup) -> Totals {
    let mut play = Play::new(trace, setup);
    let mut events = trace.events.iter().peekable();
    loop {
        let next = events.peek().map(|event| event.at_ms);
        let due = play.queue.peek().map(|Reverse((at_ms, _, _))| *at_ms);
        let now_ms = match (next, due) {
            (Some(next), Some(due)) => next.min(due),
            (Some(at_ms), None) | (None, Some(at_ms)) => at_ms,
            (None, None) => break,
        };
        if now_ms > trace.to_ms {
            break;
        }
        play.now_ms = play.now_ms.max(now_ms);
        while let Some(event) = events.next_if(|event| event.at_ms <= now_ms) {
            play.change(event);
        }
        play.due(now_ms);
        play.round();
    }
    play.totals_at(trace.to_ms);
    play.finish();
    play.end()
}

/// What happens at a time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Next {
    /// A job's group is done.
    Ends(usize),
    /// A partition is judged.
    Judge(usize),
    /// A round is made.
    Round,
}

struct Place {
    table: usize,
    scope: PartitionKey,
    part: Part,
    in_flight: bool,
    verdict: Verdict,
}

/// A partition's work under way.
struct Work {
    place: usize,
    candidate: Candidate,
    groups: std::vec::IntoIter<Group>,
    group: Group,
    reservation: Option<Reservation>,
    began_ms: i64,
    gb_hours: f64,
}

struct Play<'a> {
    trace: &'a Trace,
    setup: &'a Setup,
    now_ms: i64,
    budget: Budget,
    places: Vec<Place>,
    at: HashMap<(usize, PartitionKey), usize>,
    by_key: HashMap<Key, usize>,
    table_bytes: Vec<u64>,
    costs: HashMap<TableIdent, (Scoping, CostModel)>,
    pending: BTreeMap<Key, Candidate>,
    queue: BinaryHeap<Reverse<(i64, u64, Next)>>,
    numbered: u64,
    works: Vec<Option<Work>>,
    changed: bool,
    round_at_ms: Option<i64>,
    files: Level,
    deletes: Level,
    totals: Totals,
}

impl<'a> Play<'a> {
    fn new(trace: &'a Trace, setup: &'a Setup) -> Self {
        Self {
            trace,
            setup,
            now_ms: trace.from_ms,
            budget: Budget::new(&setup.budgets, trace.from_ms),
            places: Vec::new(),
            at: HashMap::new(),
            by_key: HashMap::new(),
            table_bytes: vec![0; trace.tables.len()],
            costs: trace.tables.iter().zip(&setup.policies).map(|(t, p)| (t.ident, (p.scope, p.cost))).collect(),
            pending: BTreeMap::new(),
            queue: BinaryHeap::new(),
            numbered: 0,
            works: Vec::new(),
            changed: false,
            round_at_ms: None,
            files: Level::default(),
            deletes: Level::default(),
            totals: Totals::default(),
        }
    }

    fn totals_at(&mut self, now_ms: i64) {
        (self.totals.mean_files, self.totals.mean_delete_files) = (self.files.mean(now_ms), self.deletes.mean(now_ms));
    }

    /// What was begun goes on to its end; nothing else begins.
    fn finish(&mut self) {
        while let Some(Reverse((at_ms, _, next))) = self.queue.pop() {
            if let Next::Ends(work) = next {
                self.now_ms = self.now_ms.max(at_ms);
                self.ends(work);
            }
        }
    }

    fn end(mut self) -> Totals {
        let (from, to) = (self.trace.from_ms, self.trace.to_ms);
        self.totals.files_at_end = self.files.value();
        self.totals.end(to - from, &self.setup.budgets, &self.setup.prices, 0);
        self.totals
    }

    fn push(&mut self, at_ms: i64, next: Next) {
        self.numbered += 1;
        self.queue.push(Reverse((at_ms, self.numbered, next)));
    }

    fn table(&self, place: usize) -> Option<(&'a Traced, &'a Policy, usize)> {
        let at = self.places.get(place)?.table;
        Some((self.trace.tables.get(at)?, self.setup.policies.get(at)?, at))
    }

    fn place_of(&mut self, event: &Event) -> Option<usize> {
        let key = (event.table, event.scope.clone());
        if let Some(at) = self.at.get(&key) {
            return Some(*at);
        }
        let (table, policy) = (self.trace.tables.get(event.table)?, self.setup.policies.get(event.table)?);
        let at = self.places.len();
        self.places.push(Place {
            table: event.table,
            scope: event.scope.clone(),
            part: Part::new(policy.scale),
            in_flight: false,
            verdict: Verdict::Not { reason: Reason::Healthy },
        });
        self.by_key.insert(Key::of(table.ident, table.branch.as_ref(), &event.scope), at);
        self.at.insert(key, at);
        Some(at)
    }

    /// Changes a partition, and what is known of all.
    fn alter<T>(&mut self, place: usize, how: impl FnOnce(&mut Part) -> T) -> Option<T> {
        let of = self.places.get_mut(place)?;
        let before = (of.part.files(), of.part.delete_files(), of.part.bytes());
        let done = how(&mut of.part);
        let after = (of.part.files(), of.part.delete_files(), of.part.bytes());
        self.files.set(self.files.value().saturating_sub(before.0).saturating_add(after.0), self.now_ms);
        self.deletes.set(self.deletes.value().saturating_sub(before.1).saturating_add(after.1), self.now_ms);
        if let Some(bytes) = self.table_bytes.get_mut(of.table) {
            *bytes = bytes.saturating_sub(before.2).saturating_add(after.2);
        }
        Some(done)
    }

    fn change(&mut self, event: &Event) {
        let Some(place) = self.place_of(event) else { return };
        let now_ms = self.now_ms;
        self.alter(place, |part| part.change(&event.change, now_ms));
        self.judge(place);
    }

    fn due(&mut self, now_ms: i64) {
        while let Some(Reverse((at_ms, _, next))) = self.queue.peek().copied() {
            if at_ms > now_ms {
                return;
            }
            self.queue.pop();
            match next {
                Next::Ends(work) => self.ends(work),
                Next::Judge(place) => self.judge(place),
                Next::Round => self.changed = true,
            }
        }
    }

    fn judge(&mut self, place: usize) {
        let Some((table, policy, at)) = self.table(place) else { return };
        let Some(of) = self.places.get_mut(place) else { return };
        let key = Key::of(table.ident, table.branch.as_ref(), &of.scope);
        if of.part.files() == 0 {
            self.pending.remove(&key);
            return;
        }
        let bytes = self.table_bytes.get(at).copied().unwrap_or(0);
        let facts =
            TableFacts { ident: table.ident, name: table.name.clone(), created_ms: table.created_ms, bytes, snapshot_id: self.now_ms };
        let decision = judge(&Case {
            now_ms: self.now_ms,
            table: &facts,
            policy,
            refusals: &[],
            paused: false,
            in_flight: of.in_flight,
            scope: &of.scope,
            traits: &of.part.traits(policy, self.now_ms),
            memory: &of.part.memory,
        });
        of.verdict = decision.verdict.clone();
        self.totals.decided(&decision.verdict);
        self.changed = true;
        match Candidate::wanted(&decision, policy, &self.setup.budgets, table.tenant.as_ref()).filter(|_| policy.act) {
            Some(mut candidate) => {
                candidate.context.branch.clone_from(&table.branch);
                self.pending.insert(key, candidate);
            }
            None => {
                self.pending.remove(&key);
            }
        }
        if let Some(at_ms) = again(&decision, policy).filter(|at_ms| *at_ms > self.now_ms) {
            self.push(at_ms, Next::Judge(place));
        }
    }

    fn round(&mut self) {
        if !std::mem::take(&mut self.changed) || self.pending.is_empty() {
            return;
        }
        let ranking = &self.setup.ranking;
        let mut pending: Vec<Candidate> = self.pending.values().cloned().collect();
        scope::join(&mut pending, |table| self.costs.get(table).copied());
        let ranked = rank_by(ranking, pending);
        let round = start_by(ranking.select, ranked, &mut self.budget, self.now_ms);
        // a job that ends makes a round of its own
        let for_budget = round.waiting.iter().any(|(_, denied)| !matches!(denied, Denied::NoSlot { .. } | Denied::Crowded { .. }));
        if for_budget && self.round_at_ms.is_none_or(|at_ms| at_ms <= self.now_ms) {
            let at_ms = self.now_ms.saturating_add(AGAIN_MS);
            self.round_at_ms = Some(at_ms);
            self.push(at_ms, Next::Round);
        }
        for (ranked, reservation) in round.started {
            self.begin(ranked.candidate, reservation);
        }
    }

    fn begin(&mut self, candidate: Candidate, reservation: Reservation) {
        let key = key(&candidate);
        self.pending.remove(&key);
        let found = self.by_key.get(&key).copied().and_then(|place| Some((place, self.table(place)?.1)));
        let Some((place, policy)) = found else { return self.budget.settle(reservation, 0.0, self.now_ms) };
        let limits = self.setup.budgets.narrowest(candidate.context.tenant.as_deref());
        let groups = self.places.get(place).and_then(|of| {
            let cause = Cause::of_verdict(&of.verdict, policy)?;
            Some((of.part.groups(&cause, policy, largest_job(policy, &limits)), cause.name() == "deletes"))
        });
        let (groups, for_deletes) = groups.unwrap_or_default();
        if groups.is_empty() {
            self.budget.settle(reservation, 0.0, self.now_ms);
            let now_ms = self.now_ms;
            if let Some(of) = self.places.get_mut(place) {
                of.part.memory = of.part.memory.after_empty_plan(policy, now_ms, for_deletes);
            }
            return self.judge(place);
        }
        if let Some(of) = self.places.get_mut(place) {
            of.in_flight = true;
        }
        let work = Work {
            place,
            candidate,
            groups: groups.into_iter(),
            group: Group::default(),
            reservation: Some(reservation),
            began_ms: self.now_ms,
            gb_hours: 0.0,
        };
        self.works.push(Some(work));
        self.go_on(self.works.len() - 1);
    }

    /// A work's next group, within its own reservation; or its end.
    fn go_on(&mut self, at: usize) {
        let Some(mut work) = self.works.get_mut(at).and_then(Option::take) else { return };
        let part = self.places.get(work.place).map(|of| &of.part);
        // what the groups before have left to do
        let group = part.and_then(|part| work.groups.find(|group| part.is_worth(group)));
        if let Some(reservation) = work.reservation.take() {
            self.budget.settle(reservation, 0.0, self.now_ms);
        }
        let (Some(group), Some((table, policy, _))) = (group, self.table(work.place)) else { return self.free(work.place) };
        let bound = bound_for(policy, &self.setup.budgets.narrowest(table.tenant.as_deref()), group.bytes);
        let ask = Ask { bound: &bound, bytes: group.bytes, table: Some(table.ident), tenant: work.candidate.context.tenant.as_ref() };
        match self.budget.reserve_for(&ask, self.now_ms) {
            Ok(reservation) => work.reservation = Some(reservation),
            Err(_) => return self.free(work.place),
        }
        let millis = (group.bytes as f64 / policy.cost.rewrite_bytes_per_hour.max(1.0) * 3_600_000.0).max(SHORTEST_MS);
        work.gb_hours = policy.cost.gb_hours(group.bytes).min(bound.gb_hours);
        (work.group, work.began_ms) = (group, self.now_ms);
        if let Some(slot) = self.works.get_mut(at) {
            *slot = Some(work);
        }
        self.push(self.now_ms.saturating_add(millis as i64), Next::Ends(at));
    }

    fn free(&mut self, place: usize) {
        if let Some(of) = self.places.get_mut(place) {
            of.in_flight = false;
        }
        self.judge(place);
    }

    fn ends(&mut self, at: usize) {
        let Some(work) = self.works.get_mut(at).and_then(Option::as_mut) else { return };
        let (place, began_ms, gb_hours) = (work.place, work.began_ms, work.gb_hours);
        let (group, reservation) = (std::mem::take(&mut work.group), work.reservation.take());
        let landed = self.places.get(place).is_some_and(|of| of.part.removed_ms <= began_ms);
        if let Some(reservation) = reservation {
            let used = Used { gb_hours, bytes: group.bytes, commits: u64::from(landed) };
            self.budget.settle_used(reservation, &used, self.now_ms);
        }
        self.changed = true;
        if !landed {
            self.totals.job(false, 0, 0, group.bytes, gb_hours);
            if let Some(work) = self.works.get_mut(at).and_then(Option::as_mut) {
                work.groups = Vec::new().into_iter();
            }
            if let Some(of) = self.places.get_mut(place) {
                of.in_flight = false;
            }
            return self.push(self.now_ms.saturating_add(HELD_MS), Next::Judge(place));
        }
        let Some((_, policy, _)) = self.table(place) else { return };
        let now_ms = self.now_ms;
        let done = self.alter(place, |part| {
            let files_out = part.outputs(&group);
            let (dropped, applied) = part.rewrite(&group);
            let gained = Gained { at_ms: now_ms, files_in: group.files, files_out, deletes_applied: applied };
            // any number above nothing: which files came since is known by their sizes
            part.memory = part.memory.after_rewrite(policy, &gained).settle(1);
            part.settle();
            (dropped, applied)
        });
        let (dropped, applied) = done.unwrap_or_default();
        self.totals.job(true, dropped, applied, group.bytes, gb_hours);
        self.go_on(at);
    }
}

/// When time alone changes a decision.
fn again(decision: &Decision, policy: &Policy) -> Option<i64> {
    match &decision.verdict {
        Verdict::Not {
            reason:
                Reason::TooNew { until_ms }
                | Reason::CoolingDown { until_ms }
                | Reason::QuietWindow { until_ms }
                | Reason::Held { until_ms, .. }
                | Reason::KeptOut { until_ms }
                | Reason::OutsideWindows { until_ms },
        } => Some(*until_ms),
        Verdict::Now { .. } | Verdict::Queued { .. } => window::closes_ms(&policy.windows, decision.at_ms),
        _ => None,
    }
}
