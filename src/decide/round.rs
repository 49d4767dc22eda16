//! Rounds: everything that is pending, ranked and started while the budgets last.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::budget::{Ask, Budget, Denied, Reservation, bound_for};
use super::knapsack;
use super::own;
use super::score::{ascending, norm, rank_norm, weighted_sum};
use crate::model::decision::{Decision, Verdict};
use crate::model::economy::{Budgets, Norm, Ranking, Select};
use crate::model::ident::TableIdent;
use crate::model::partition::PartitionKey;
use crate::model::plan::Bound;
use crate::model::policy::Policy;

/// Work that waits for a round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Candidate {
    /// The table.
    pub table: TableIdent,
    /// The partition.
    pub scope: PartitionKey,
    /// A trigger fired: it goes before everything that was ranked.
    pub urgent: bool,
    /// Estimated reduction in files.
    pub gain: u64,
    /// Estimated cost in GB-hours.
    pub gb_hours: f64,
    /// The table's weight of gain against cost.
    pub gain_weight: f64,
    /// What its next job would reserve.
    pub bound: Bound,
    /// What the tables of its tenant share, beside the rest.
    pub context: Context,
}

/// What surrounds a candidate.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Context {
    /// The branch, where it is another than `main`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<Arc<str>>,
    /// The tenant of the table, if any.
    pub tenant: Option<Arc<str>>,
    /// Bytes of the files that its next job may replace.
    pub bytes: u64,
    /// Bytes rewritten so far for each byte that users wrote.
    pub write_amplification: f64,
    /// Scans of the table an hour; 0 where none is known.
    pub read_rate: f64,
    /// Live objects of the tenant over its quota, where it has one.
    pub quota_used: Option<f64>,
    /// What all candidates of its table come to, where they are compared as one.
    #[serde(default)]
    pub unit: Option<Unit>,
    /// Users' own traits that weigh in the ranking.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terms: Option<Arc<[Term]>>,
}

/// A user's own trait as a term of the score.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Term {
    /// The trait's name.
    pub name: Arc<str>,
    /// What it weighs, normalized over the candidates of which it is known.
    pub weight: f64,
    /// Its value.
    pub value: f64,
}

/// What several candidates gain and cost together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Unit {
    /// Estimated reduction in files.
    pub gain: u64,
    /// Estimated cost in GB-hours.
    pub gb_hours: f64,
}

impl Candidate {
    /// The work that a decision asks for; `None` when it asks for none.
    pub fn of(decision: &Decision, gain_weight: f64, bound: Bound) -> Option<Self> {
        let (urgent, gain, gb_hours) = match &decision.verdict {
            Verdict::Now { gb_hours, gain, .. } => (true, *gain, *gb_hours),
            Verdict::Queued { gb_hours, gain, .. } => (false, *gain, *gb_hours),
            Verdict::Review { .. } | Verdict::Not { .. } => return None,
        };
        let traits = &decision.traits;
        let context = Context {
            write_amplification: traits.write_amplification,
            read_rate: traits.read_rate.unwrap_or(0.0),
            quota_used: traits.quota_used,
            ..Context::default()
        };
        Some(Self { table: decision.table, scope: decision.scope.clone(), urgent, gain, gb_hours, gain_weight, bound, context })
    }

    /// The work that a decision on a tenant's table asks for, with what its next job
    /// would reserve; `None` when it asks for none.
    pub fn wanted(decision: &Decision, policy: &Policy, budgets: &Budgets, tenant: Option<&Arc<str>>) -> Option<Self> {
        let bytes = decision.traits.data_bytes.min(policy.max_job_bytes);
        let bound = bound_for(policy, &budgets.narrowest(tenant.map(AsRef::as_ref)), bytes);
        let candidate = Self::of(decision, policy.gain_weight, bound)?;
        let bytes = policy.cost.bytes(candidate.gb_hours).min(policy.max_job_bytes);
        let terms = own::terms(policy, &decision.checks);
        Some(Self { context: Context { tenant: tenant.cloned(), bytes, terms, ..candidate.context }, ..candidate })
    }

    /// What its next job asks of the budgets.
    pub fn ask(&self) -> Ask<'_> {
        Ask { bound: &self.bound, bytes: self.context.bytes, table: Some(self.table), tenant: self.context.tenant.as_ref() }
    }

    /// What it gains, as the ranking sees it.
    fn worth(&self, ranking: &Ranking) -> f64 {
        let reads = if ranking.read_weights { 1.0 + finite(self.context.read_rate) } else { 1.0 };
        self.context.unit.map_or(self.gain, |unit| unit.gain) as f64 * reads
    }

    /// What it costs, as the ranking sees it.
    fn cost(&self) -> f64 {
        self.context.unit.map_or(self.gb_hours, |unit| unit.gb_hours)
    }

    /// How much its gain weighs against its cost. The quota weight is AutoComp's,
    /// section 7: `w = 0.5 · (1 + used / total)`.
    fn weight(&self, ranking: &Ranking) -> f64 {
        match self.context.quota_used.filter(|_| ranking.quota_weights) {
            Some(used) => 0.5 * (1.0 + finite(used).clamp(0.0, 1.0)),
            None => self.gain_weight,
        }
    }
}

/// What is no number weighs nothing.
fn finite(value: f64) -> f64 {
    if value.is_finite() { value.max(0.0) } else { 0.0 }
}

/// A candidate with its score among the candidates of its round.
#[derive(Clone, Debug, PartialEq)]
pub struct Ranked {
    /// The candidate.
    pub candidate: Candidate,
    /// `S = w·norm(ΔF) − (1 − w)·norm(GBHr) − a·norm(write amplification) + Σ wₜ·norm(t)` over
    /// users' own traits t.
    pub score: f64,
}

/// What became of the candidates of a round; each is in exactly one list.
#[derive(Debug, Default)]
pub struct Round {
    /// Those whose bound is reserved, best first.
    pub started: Vec<(Ranked, Reservation)>,
    /// Those that wait for the next round, best first.
    pub waiting: Vec<(Ranked, Denied)>,
    /// Those whose bound no budget of these limits can ever hold.
    pub never: Vec<(Ranked, Denied)>,
}

/// Ranks candidates as by default.
pub fn rank(candidates: Vec<Candidate>) -> Vec<Ranked> {
    rank_by(&Ranking::default(), candidates)
}

/// Ranks candidates: urgent ones first, then by score, ties by table uuid, branch, spec
/// id and partition. The order given does not matter.
pub fn rank_by(ranking: &Ranking, candidates: Vec<Candidate>) -> Vec<Ranked> {
    let scores = scores(ranking, &candidates);
    // keys are sorted, and each candidate is moved once
    let mut order: Vec<(bool, i64, u32)> =
        candidates.iter().zip(&scores).zip(0..).map(|((c, score), at)| (!c.urgent, !ascending(*score), at)).collect();
    let identity = |at: u32| candidates.get(at as usize).map(|c| (c.table, &c.context.branch, &c.scope));
    order.sort_unstable_by(|a, b| (a.0, a.1).cmp(&(b.0, b.1)).then_with(|| identity(a.2).cmp(&identity(b.2))));
    // in the memory where they lie; room for the ranked at once: they are many, and large
    let mut given: Vec<Option<Candidate>> = candidates.into_iter().map(Some).collect();
    let mut take = |at: usize| Some(Ranked { candidate: given.get_mut(at)?.take()?, score: *scores.get(at)? });
    let mut ranked = Vec::with_capacity(order.len());
    ranked.extend(order.into_iter().filter_map(|(_, _, at)| take(at as usize)));
    ranked
}

fn scores(ranking: &Ranking, candidates: &[Candidate]) -> Vec<f64> {
    let all = |values: &[f64]| match ranking.norm {
        Norm::MinMax => norm(values),
        Norm::Rank => rank_norm(values),
    };
    let normed = |value: &dyn Fn(&Candidate) -> f64| all(&candidates.iter().map(value).collect::<Vec<_>>());
    let (gains, costs) = (normed(&|c| c.worth(ranking)), normed(&Candidate::cost));
    let amplified = finite(ranking.write_amplification_weight);
    let penalties = if amplified > 0.0 { normed(&|c| finite(c.context.write_amplification)) } else { Vec::new() };
    let penalty = |at: usize| penalties.get(at).map_or(0.0, |penalty| amplified * penalty);
    let sums = candidates.iter().zip(gains.iter().zip(&costs)).map(|(c, (gain, cost))| weighted_sum(*gain, *cost, c.weight(ranking)));
    let mut scores: Vec<f64> = sums.enumerate().map(|(at, sum)| sum - penalty(at)).collect();
    for (at, weighed) in own_terms(candidates, all) {
        if let Some(score) = scores.get_mut(at) {
            *score += weighed;
        }
    }
    scores
}

/// What users' own traits add to the scores of candidates, by their places.
fn own_terms(candidates: &[Candidate], normed: impl Fn(&[f64]) -> Vec<f64>) -> Vec<(usize, f64)> {
    let mut by_name: BTreeMap<&str, Vec<(usize, &Term)>> = BTreeMap::new();
    for (at, candidate) in candidates.iter().enumerate() {
        candidate
            .context
            .terms
            .iter()
            .flat_map(|terms| terms.iter())
            .for_each(|term| by_name.entry(&term.name).or_default().push((at, term)));
    }
    let mut weighed = Vec::new();
    for terms in by_name.into_values() {
        let norms = normed(&terms.iter().map(|(_, term)| term.value).collect::<Vec<_>>());
        let weight = |term: &Term| if term.weight.is_finite() { term.weight } else { 0.0 };
        weighed.extend(terms.into_iter().zip(norms).map(|((at, term), norm)| (at, weight(term) * norm)));
    }
    weighed
}

/// Which candidates no other one beats in both gain and cost. Where both weigh and all
/// weigh them alike, the best ranked is one of them.
pub fn front<'c>(candidates: impl IntoIterator<Item = &'c Candidate>) -> Vec<bool> {
    let dear = |cost: f64| if cost.is_nan() { f64::INFINITY } else { cost };
    let mut order: Vec<(f64, u64, usize)> = candidates.into_iter().zip(0..).map(|(c, at)| (dear(c.gb_hours), c.gain, at)).collect();
    order.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then_with(|| b.1.cmp(&a.1)));
    let mut on = vec![false; order.len()];
    let mut best: Option<(f64, u64)> = None;
    for (cost, gain, at) in order {
        // one as dear and as good as the best so far is beaten by nobody either
        if best.is_none_or(|(of, most)| gain > most || (gain, cost) == (most, of)) {
            best = Some((cost, gain));
            if let Some(slot) = on.get_mut(at) {
                *slot = true;
            }
        }
    }
    on
}

/// Starts what fits, best first; skips what does not fit and goes on down.
pub fn start(ranked: Vec<Ranked>, budget: &mut Budget, now_ms: i64) -> Round {
    start_by(Select::Greedy, ranked, budget, now_ms)
}

/// Starts what is chosen of the ranked, and fits.
pub fn start_by(select: Select, ranked: Vec<Ranked>, budget: &mut Budget, now_ms: i64) -> Round {
    let chosen = match select {
        Select::Exact => exact(&ranked, budget, now_ms),
        Select::Greedy | Select::TopK(_) => None,
    };
    // most wait, in a long queue
    let mut round = Round { waiting: Vec::with_capacity(ranked.len()), ..Round::default() };
    for (at, ranked) in ranked.into_iter().enumerate() {
        let passed_over = match (select, &chosen) {
            (Select::TopK(most), _) if at >= most => Some(Denied::Behind { most }),
            (_, Some(chosen)) if !chosen.get(at).copied().unwrap_or(false) => Some(Denied::Outbid),
            _ => None,
        };
        // what never fits is told so, whoever was chosen
        let asked = match passed_over {
            None => budget.reserve_for(&ranked.candidate.ask(), now_ms),
            Some(denied) => Err(budget.never(&ranked.candidate.ask()).unwrap_or(denied)),
        };
        match asked {
            Ok(reservation) => round.started.push((ranked, reservation)),
            Err(denied) if denied.is_for_good() => round.never.push((ranked, denied)),
            Err(denied) => round.waiting.push((ranked, denied)),
        }
    }
    round
}

/// Those that together gain most beside the urgent ones, which go first as always;
/// `None` when there are too many to try.
fn exact(ranked: &[Ranked], budget: &mut Budget, now_ms: i64) -> Option<Vec<bool>> {
    let urgent = ranked.iter().take_while(|r| r.candidate.urgent).count();
    let (first, rest) = ranked.split_at(urgent);
    let gains: Vec<u64> = rest.iter().map(|r| r.candidate.gain).collect();
    let mut held: Vec<Reservation> = first.iter().filter_map(|r| budget.reserve_for(&r.candidate.ask(), now_ms).ok()).collect();
    let asks: Vec<Ask<'_>> = rest.iter().map(|r| r.candidate.ask()).collect();
    let best = knapsack::best(&gains, &mut knapsack::Trial::of(budget, &asks, now_ms));
    for reservation in held.drain(..) {
        budget.settle(reservation, 0.0, now_ms);
    }
    best.map(|best| std::iter::repeat_n(true, urgent).chain(best).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::budget::{What, Whose};
    use crate::decide::judge;
    use crate::decide::testing::Given;
    use crate::model::economy::Budgets;
    use crate::model::partition::Value;
    use crate::model::policy::BudgetLimits;

    fn candidate(day: i32, gain: u64, gb_hours: f64) -> Candidate {
        Candidate {
            table: TableIdent::iceberg(uuid::Uuid::from_u128(7)),
            scope: PartitionKey { spec_id: 0, tuple: Arc::from([Some(Value::Int(day))]) },
            urgent: false,
            gain,
            gb_hours,
            gain_weight: 0.7,
            bound: Bound { gb_hours, millis: 0, memory: 0 },
            context: Context::default(),
        }
    }

    fn openhouse() -> Vec<Candidate> {
        vec![candidate(0, 98, 0.777_778), candidate(1, 16, 1.055_556), candidate(2, 4990, 1.888_889)]
    }

    fn gains(ranked: &[Ranked]) -> Vec<u64> {
        ranked.iter().map(|r| r.candidate.gain).collect()
    }

    fn budget(gb_hours: f64, concurrent_jobs: usize) -> Budget {
        Budget::new(&Budgets::of(&BudgetLimits { gb_hours_per_hour: gb_hours, carry_over_hours: 1.0, concurrent_jobs }), 0)
    }

    #[test]
    fn candidates_are_ranked_by_gain_against_cost() {
        let ranked = rank(openhouse());
        assert_eq!(gains(&ranked), [4990, 98, 16]);
        assert_eq!(ranked.iter().map(|r| (r.score * 1e5).round()).collect::<Vec<_>>(), [40_000.0, 1154.0, -7500.0]);
    }

    #[test]
    fn the_budget_is_never_passed_where_openhouse_would_pass_it() {
        let mut budget = budget(2.0, 9);
        let round = start(rank(openhouse()), &mut budget, 0);
        assert_eq!(round.started.iter().map(|(r, _)| r.candidate.gain).collect::<Vec<_>>(), [4990]);
        assert_eq!(round.waiting.iter().map(|(r, _)| r.candidate.gain).collect::<Vec<_>>(), [98, 16]);
        assert!(round.never.is_empty());
    }

    #[test]
    fn what_does_not_fit_is_skipped_and_the_next_is_taken() {
        let mut budget = budget(2.7, 9);
        let round = start(rank(vec![candidate(0, 10, 0.6), candidate(1, 100, 2.0), candidate(2, 50, 1.0)]), &mut budget, 0);
        assert_eq!(round.started.iter().map(|(r, _)| r.candidate.gain).collect::<Vec<_>>(), [100, 10]);
        assert_eq!(round.waiting.len(), 1);
    }

    #[test]
    fn what_can_never_fit_is_named_and_holds_nothing_up() {
        let mut budget = budget(1.0, 9);
        let round = start(rank(vec![candidate(0, 100, 1.5), candidate(1, 10, 0.5)]), &mut budget, 0);
        assert_eq!(
            round.never.iter().map(|(r, d)| (r.candidate.gain, d.clone())).collect::<Vec<_>>(),
            [(100, Denied::Never { whose: Whose::All, what: What::GbHours, wanted: 1.5, cap: 1.0 })]
        );
        assert_eq!(round.started.len(), 1);
    }

    #[test]
    fn what_has_no_slot_waits() {
        let mut budget = budget(10.0, 1);
        let round = start(rank(openhouse()), &mut budget, 0);
        assert_eq!(round.started.len(), 1);
        assert_eq!(
            round.waiting.iter().map(|(_, d)| d.clone()).collect::<Vec<_>>(),
            [Denied::NoSlot { slots: 1 }, Denied::NoSlot { slots: 1 }]
        );
    }

    #[test]
    fn urgent_work_goes_first_whatever_its_score() {
        let mut candidates = openhouse();
        candidates[1].urgent = true;
        assert_eq!(gains(&rank(candidates)), [16, 4990, 98]);
    }

    #[test]
    fn own_traits_weigh_normalized_among_those_of_which_they_are_known() {
        let with = |day, gain, terms: &[(&str, f64, f64)]| {
            let mut c = candidate(day, gain, 1.0);
            let term = |(name, weight, value): &(&str, f64, f64)| Term { name: (*name).into(), weight: *weight, value: *value };
            c.context.terms = Some(terms.iter().map(term).collect());
            c
        };
        // gains alone give 0.7, 0.35 and 0
        let plain = || vec![with(0, 30, &[]), with(1, 20, &[]), with(2, 10, &[])];
        assert_eq!(gains(&rank(plain())), [30, 20, 10]);
        let weighed = vec![
            with(0, 30, &[("waste", 0.4, 10.0)]),
            with(1, 20, &[("waste", 0.4, 1010.0), ("age", -1.0, 5.0)]),
            with(2, 10, &[("age", -1.0, 4.0)]),
        ];
        let ranked = rank(weighed);
        // 0.35 + 0.4 − 1, where the other who has an age has the least
        let scores: Vec<f64> = ranked.iter().map(|r| (r.score * 1e6).round() / 1e6).collect();
        assert_eq!((gains(&ranked), scores), (vec![30, 10, 20], vec![0.7, 0.0, -0.25]));
        assert_eq!(gains(&rank(vec![with(0, 2, &[("x", f64::NAN, 1.0)]), with(1, 1, &[("x", 9.0, f64::NAN)])])), [2, 1]);
    }

    #[test]
    fn own_traits_of_a_decision_are_the_terms_of_its_candidate() {
        use crate::model::expression::{Expression, Own, Type};
        let own = |name: &str, is: &str, weight: f64| {
            let is = Expression::of_type(is, &[], Type::Number).unwrap();
            Own { name: name.into(), is, meaning: String::new(), weight }
        };
        let mut given = Given::small_files(10);
        given.policy.own = vec![own("waste", "small_file_count * 2", 0.5), own("shown", "1", 0.0), own("unknown", "read_rate", 0.5)];
        let decision = judge(&given.case());
        let wanted = Candidate::wanted(&decision, &given.policy, &Budgets::default(), None).unwrap();
        assert_eq!(wanted.context.terms.as_deref(), Some([Term { name: "waste".into(), weight: 0.5, value: 20.0 }].as_slice()));
        let told = decision.checks.iter().find(|c| c.name == "trait.waste").unwrap();
        assert_eq!(told.note, "small_file_count * 2; weighs 0.5 in the ranking");
    }

    #[test]
    fn ties_break_by_table_then_spec_then_partition() {
        let tie = |table: u128, spec_id, day| {
            let mut c = candidate(day, 5, 1.0);
            c.table = TableIdent::iceberg(uuid::Uuid::from_u128(table));
            c.scope.spec_id = spec_id;
            c
        };
        let ranked = rank(vec![tie(2, 0, 0), tie(1, 1, 0), tie(1, 0, 9), tie(1, 0, 3)]);
        let keys: Vec<_> = ranked
            .iter()
            .map(|r| (r.candidate.table.uuid.as_u128(), r.candidate.scope.spec_id, r.candidate.scope.tuple[0].clone()))
            .collect();
        let day = |d| Some(Value::Int(d));
        assert_eq!(keys, [(1, 0, day(3)), (1, 0, day(9)), (1, 1, day(0)), (2, 0, day(0))]);
        assert!(ranked.iter().all(|r| r.score == 0.0));
    }

    #[test]
    fn a_decision_becomes_a_candidate_when_it_asks_for_work() {
        let bound = Bound { gb_hours: 1.0, millis: 2, memory: 3 };
        let now = Candidate::of(&judge(&Given::small_files(8).case()), 0.7, bound).unwrap();
        assert_eq!((now.urgent, now.gain, now.bound), (true, 7, bound));
        let mut given = Given::small_files(5);
        given.policy.queue_min_reduction = Some(1);
        let queued = Candidate::of(&judge(&given.case()), 0.7, bound).unwrap();
        assert_eq!((queued.urgent, queued.gain), (false, 4));
        assert_eq!(Candidate::of(&judge(&Given::of(&[]).case()), 0.7, bound), None);
    }

    #[test]
    fn ranks_keep_one_extreme_table_from_flattening_the_rest() {
        let given = vec![candidate(0, 10, 1.0), candidate(1, 12, 9.0), candidate(2, 1_000_000, 10.0)];
        assert_eq!(gains(&rank(given.clone())), [1_000_000, 10, 12]);
        let ranking = Ranking { norm: Norm::Rank, ..Ranking::default() };
        let ranked = rank_by(&ranking, given);
        assert_eq!(
            ranked.iter().map(|r| (r.candidate.gain, (r.score * 100.0).round())).collect::<Vec<_>>(),
            [(1_000_000, 40.0), (12, 20.0), (10, 0.0)]
        );
    }

    #[test]
    fn a_full_quota_weighs_gain_alone_and_an_empty_one_as_much_as_cost() {
        let ranking = Ranking { quota_weights: true, ..Ranking::default() };
        let used = |used: f64| {
            let mut given = vec![candidate(0, 0, 0.0), candidate(1, 10, 1.0)];
            given[1].context.quota_used = Some(used);
            rank_by(&ranking, given).into_iter().find(|r| r.candidate.gain == 10).unwrap().score
        };
        assert_eq!([0.0, 0.5, 1.0, 7.0, f64::NAN].map(used), [0.0, 0.5, 1.0, 1.0, 0.0]);
    }

    #[test]
    fn what_was_rewritten_often_and_what_is_seldom_read_come_later() {
        let mut given = vec![candidate(0, 10, 1.0), candidate(1, 10, 1.0)];
        given[0].context.write_amplification = 3.0;
        let ranking = Ranking { write_amplification_weight: 0.5, ..Ranking::default() };
        let scores = |ranking: &Ranking, given: &[Candidate]| -> Vec<(Option<Value>, f64)> {
            rank_by(ranking, given.to_vec()).into_iter().map(|r| (r.candidate.scope.tuple[0].clone(), r.score)).collect()
        };
        assert_eq!(scores(&ranking, &given), [(Some(Value::Int(1)), 0.0), (Some(Value::Int(0)), -0.5)]);
        given[0].context.read_rate = 4.0;
        let ranking = Ranking { read_weights: true, ..Ranking::default() };
        assert_eq!(scores(&ranking, &given), [(Some(Value::Int(0)), 0.7), (Some(Value::Int(1)), 0.0)]);
    }

    #[test]
    fn the_front_holds_what_nobody_beats_in_both_gain_and_cost() {
        let given = vec![
            candidate(0, 10, 1.0),
            candidate(1, 9, 1.0),
            candidate(2, 20, 3.0),
            candidate(3, 15, 4.0),
            candidate(4, 20, 3.0),
            candidate(5, 20, 5.0),
        ];
        let ranked = rank(given);
        let on: Vec<u64> =
            ranked.iter().zip(front(ranked.iter().map(|r| &r.candidate))).filter(|(_, on)| *on).map(|(r, _)| r.candidate.gain).collect();
        assert_eq!(on, [20, 20, 10]);
        assert_eq!(front([]), Vec::<bool>::new());
    }

    #[test]
    fn only_so_many_of_the_best_are_started_and_the_rest_is_told() {
        let mut budget = budget(9.0, 9);
        let round = start_by(Select::TopK(2), rank(openhouse()), &mut budget, 0);
        assert_eq!(round.started.iter().map(|(r, _)| r.candidate.gain).collect::<Vec<_>>(), [4990, 98]);
        assert_eq!(
            round.waiting.iter().map(|(r, d)| (r.candidate.gain, d.to_string())).collect::<Vec<_>>(),
            [(16, "it is not among the 2 best, and no more are chosen".to_owned())]
        );
    }

    #[test]
    fn the_exact_choice_gains_more_than_the_greedy_one_where_two_fit_beside_each_other() {
        let given = || vec![candidate(0, 100, 1.2), candidate(1, 70, 1.0), candidate(2, 60, 1.0), candidate(3, 5, 9.0)];
        let gain = |select| {
            let mut budget = budget(2.0, 9);
            let round = start_by(select, rank(given()), &mut budget, 0);
            let waits: Vec<String> = round.waiting.iter().map(|(_, denied)| denied.to_string()).collect();
            (round.started.iter().map(|(r, _)| r.candidate.gain).sum::<u64>(), waits, round.never.len())
        };
        assert_eq!(gain(Select::Greedy).0, 100);
        assert_eq!(gain(Select::Exact), (130, vec!["others together gain more with what the budget holds".to_owned()], 1));
    }

    #[test]
    fn a_trigger_is_not_passed_over_for_what_gains_more() {
        let mut given = vec![candidate(0, 1, 1.5), candidate(1, 70, 1.0), candidate(2, 3, 0.5)];
        given[0].urgent = true;
        let mut budget = budget(2.0, 9);
        let round = start_by(Select::Exact, rank(given), &mut budget, 0);
        assert_eq!(round.started.iter().map(|(r, _)| r.candidate.gain).collect::<Vec<_>>(), [1, 3]);
    }
}
