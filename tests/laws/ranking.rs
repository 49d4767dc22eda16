//! Laws of ranking and of rounds.

use std::sync::Arc;

use afterwrite::decide::budget::Budget;
use afterwrite::decide::knapsack;
use afterwrite::decide::round::{Candidate, Context, Round, front, rank, rank_by, start, start_by};
use afterwrite::model::economy::{Budgets, Limits, Norm, Ranking, Select, Tenant};
use afterwrite::model::ident::TableIdent;
use afterwrite::model::partition::{self, PartitionKey};
use afterwrite::model::plan::Bound;
use afterwrite::model::policy::BudgetLimits;
use proptest::prelude::*;

fn costs() -> impl Strategy<Value = f64> {
    prop_oneof![8 => 0.0f64..4.0, 1 => Just(f64::NAN), 1 => Just(f64::INFINITY)]
}

/// Candidates of distinct scopes, with ties and with costs that are no number.
fn candidates() -> impl Strategy<Value = Vec<Candidate>> {
    prop::collection::vec((0u128..3, 0u64..20, costs(), prop::bool::weighted(0.1)), 0..40).prop_map(|all| {
        let candidate = |(day, (table, gain, gb_hours, urgent)): (usize, (u128, u64, f64, bool))| Candidate {
            table: TableIdent::iceberg(uuid::Uuid::from_u128(table)),
            scope: PartitionKey { spec_id: 0, tuple: Arc::from([Some(partition::Value::Int(day as i32))]) },
            urgent,
            gain,
            gb_hours,
            gain_weight: 0.7,
            bound: Bound { gb_hours, millis: 1, memory: 1 },
            context: Context {
                branch: None,
                tenant: (table == 1).then(|| "sales".into()),
                bytes: gain,
                write_amplification: (day % 3) as f64,
                read_rate: (day % 2) as f64,
                quota_used: (table == 1).then_some(0.5),
                unit: None,
                terms: None,
            },
        };
        all.into_iter().enumerate().map(candidate).collect()
    })
}

/// Every way to compare candidates.
fn rankings() -> impl Strategy<Value = Ranking> {
    let norm = prop_oneof![Just(Norm::MinMax), Just(Norm::Rank)];
    let select = prop_oneof![Just(Select::Greedy), Just(Select::Exact), (1usize..9).prop_map(Select::TopK)];
    (norm, select, 0.0f64..2.0, any::<bool>(), any::<bool>()).prop_map(
        |(norm, select, write_amplification_weight, quota_weights, read_weights)| Ranking {
            norm,
            select,
            write_amplification_weight,
            quota_weights,
            read_weights,
            corrected: false,
        },
    )
}

fn keys<'c>(candidates: impl IntoIterator<Item = &'c Candidate>) -> Vec<(TableIdent, PartitionKey)> {
    candidates.into_iter().map(|c| (c.table, c.scope.clone())).collect()
}

proptest! {
    #[test]
    fn the_order_of_arrival_does_not_matter(
        (given, shuffled) in candidates().prop_flat_map(|c| (Just(c.clone()), Just(c).prop_shuffle())), ranking in rankings(),
    ) {
        let (one, other) = (rank_by(&ranking, given), rank_by(&ranking, shuffled));
        prop_assert_eq!(keys(one.iter().map(|r| &r.candidate)), keys(other.iter().map(|r| &r.candidate)));
    }

    #[test]
    fn more_gain_never_ranks_lower(
        given in candidates(), place in any::<prop::sample::Index>(), more in 1u64..50, ranking in rankings(),
    ) {
        prop_assume!(!given.is_empty());
        let place = place.index(given.len());
        let mut raised = given.clone();
        raised[place].gain += more;
        let exact = Ranking { quota_weights: false, ..ranking };
        prop_assert!(rank_of(&exact, &raised, place) <= rank_of(&exact, &given, place));
    }

    #[test]
    fn more_cost_never_ranks_higher(
        given in candidates(), place in any::<prop::sample::Index>(), more in 0.1f64..9.0, ranking in rankings(),
    ) {
        prop_assume!(!given.is_empty());
        let place = place.index(given.len());
        let mut dearer = given.clone();
        dearer[place].gb_hours += more;
        let exact = Ranking { quota_weights: false, ..ranking };
        prop_assert!(rank_of(&exact, &dearer, place) >= rank_of(&exact, &given, place));
    }

    #[test]
    fn no_candidate_is_lost_or_doubled_and_the_budget_holds(
        given in candidates(), gb_hours in 0.0f64..8.0, concurrent_jobs in 0usize..9, ranking in rankings(),
    ) {
        let mut budget = Budget::new(&budgets(gb_hours, concurrent_jobs), 0);
        let round = start_by(ranking.select, rank_by(&ranking, given.clone()), &mut budget, 0);
        let refused = round.waiting.iter().chain(&round.never).map(|(r, _)| &r.candidate);
        let mut all = keys(round.started.iter().map(|(r, _)| &r.candidate).chain(refused));
        let mut expected = keys(&given);
        all.sort();
        expected.sort();
        prop_assert_eq!(all, expected);
        prop_assert!(round.started.iter().map(|(r, _)| r.candidate.bound.gb_hours).sum::<f64>() <= gb_hours);
        prop_assert!(round.started.len() <= concurrent_jobs);
        let of_tenant = || round.started.iter().map(|(r, _)| &r.candidate).filter(|c| c.context.tenant.is_some());
        prop_assert!(of_tenant().map(|c| c.bound.gb_hours).sum::<f64>() <= 2.0 && of_tenant().map(|c| c.context.bytes).sum::<u64>() <= 30);
    }

    #[test]
    fn the_exact_choice_gains_no_less_than_the_greedy_one(given in candidates(), gb_hours in 0.0f64..8.0, concurrent_jobs in 0usize..9) {
        let few: Vec<Candidate> = given.into_iter().take(knapsack::MOST).map(|c| Candidate { urgent: false, ..c }).collect();
        let gain = |select| {
            let mut budget = Budget::new(&budgets(gb_hours, concurrent_jobs), 0);
            let round: Round = start_by(select, rank(few.clone()), &mut budget, 0);
            round.started.iter().map(|(r, _)| r.candidate.gain).sum::<u64>()
        };
        prop_assert!(gain(Select::Exact) >= gain(Select::Greedy));
    }

    #[test]
    fn the_best_ranked_is_on_the_front_of_gain_against_cost(given in candidates(), weight in 0.05f64..0.95) {
        let plain = |c: Candidate| Candidate { urgent: false, gain_weight: weight, gb_hours: if c.gb_hours.is_finite() { c.gb_hours } else { 4.0 }, ..c };
        let ranked = rank(given.into_iter().map(plain).collect());
        let on = front(ranked.iter().map(|r| &r.candidate));
        prop_assert!(on.first().is_none_or(|on| *on));
        for (at, other) in ranked.iter().enumerate() {
            let beats = |r: &Candidate, c: &Candidate| r.gain >= c.gain && r.gb_hours <= c.gb_hours && (r.gain > c.gain || r.gb_hours < c.gb_hours);
            prop_assert_eq!(on[at], !ranked.iter().any(|r| beats(&r.candidate, &other.candidate)));
        }
    }

    #[test]
    fn what_waits_would_not_have_fit_beside_what_started(given in candidates()) {
        let mut budget = Budget::new(&Budgets::of(&BudgetLimits { gb_hours_per_hour: 3.0, carry_over_hours: 1.0, concurrent_jobs: 100 }), 0);
        let round = start(rank(given), &mut budget, 0);
        let left = budget.available();
        prop_assert!(round.waiting.iter().all(|(r, _)| r.candidate.bound.gb_hours > left));
    }
}

/// With a tenant of its own 2 GB-hours and 30 bytes.
fn budgets(gb_hours: f64, concurrent_jobs: usize) -> Budgets {
    let limits = Limits { gb_hours_per_hour: Some(2.0), bytes_per_hour: Some(30), ..Limits::default() };
    let sales = Tenant { name: "sales".into(), patterns: vec![], limits, quota_objects: None };
    Budgets { tenants: vec![sales], ..Budgets::of(&BudgetLimits { gb_hours_per_hour: gb_hours, carry_over_hours: 1.0, concurrent_jobs }) }
}

fn rank_of(ranking: &Ranking, candidates: &[Candidate], place: usize) -> usize {
    let scope = &candidates[place].scope;
    rank_by(ranking, candidates.to_vec()).iter().position(|r| &r.candidate.scope == scope).unwrap()
}
