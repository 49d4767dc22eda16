//! Laws of ranking and of rounds.

use std::sync::Arc;

use afterwrite::decide::budget::Budget;
use afterwrite::decide::round::{Candidate, rank, start};
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
        };
        all.into_iter().enumerate().map(candidate).collect()
    })
}

fn keys<'c>(candidates: impl IntoIterator<Item = &'c Candidate>) -> Vec<(TableIdent, PartitionKey)> {
    candidates.into_iter().map(|c| (c.table, c.scope.clone())).collect()
}

proptest! {
    #[test]
    fn the_order_of_arrival_does_not_matter(
        (given, shuffled) in candidates().prop_flat_map(|c| (Just(c.clone()), Just(c).prop_shuffle())),
    ) {
        let (one, other) = (rank(given), rank(shuffled));
        prop_assert_eq!(keys(one.iter().map(|r| &r.candidate)), keys(other.iter().map(|r| &r.candidate)));
    }

    #[test]
    fn more_gain_never_ranks_lower(given in candidates(), place in any::<prop::sample::Index>(), more in 1u64..50) {
        prop_assume!(!given.is_empty());
        let place = place.index(given.len());
        let mut raised = given.clone();
        raised[place].gain += more;
        prop_assert!(rank_of(&raised, place) <= rank_of(&given, place));
    }

    #[test]
    fn more_cost_never_ranks_higher(given in candidates(), place in any::<prop::sample::Index>(), more in 0.1f64..9.0) {
        prop_assume!(!given.is_empty());
        let place = place.index(given.len());
        let mut dearer = given.clone();
        dearer[place].gb_hours += more;
        prop_assert!(rank_of(&dearer, place) >= rank_of(&given, place));
    }

    #[test]
    fn no_candidate_is_lost_or_doubled_and_the_budget_holds(given in candidates(), gb_hours in 0.0f64..8.0, concurrent_jobs in 0usize..9) {
        let mut budget = Budget::new(&BudgetLimits { gb_hours_per_hour: gb_hours, carry_over_hours: 1.0, concurrent_jobs }, 0);
        let round = start(rank(given.clone()), &mut budget, 0);
        let refused = round.waiting.iter().chain(&round.never).map(|(r, _)| &r.candidate);
        let mut all = keys(round.started.iter().map(|(r, _)| &r.candidate).chain(refused));
        let mut expected = keys(&given);
        all.sort();
        expected.sort();
        prop_assert_eq!(all, expected);
        prop_assert!(round.started.iter().map(|(r, _)| r.candidate.bound.gb_hours).sum::<f64>() <= gb_hours);
        prop_assert!(round.started.len() <= concurrent_jobs);
    }

    #[test]
    fn what_waits_would_not_have_fit_beside_what_started(given in candidates()) {
        let mut budget = Budget::new(&BudgetLimits { gb_hours_per_hour: 3.0, carry_over_hours: 1.0, concurrent_jobs: 100 }, 0);
        let round = start(rank(given), &mut budget, 0);
        let left = budget.available();
        prop_assert!(round.waiting.iter().all(|(r, _)| r.candidate.bound.gb_hours > left));
    }
}

fn rank_of(candidates: &[Candidate], place: usize) -> usize {
    let scope = &candidates[place].scope;
    rank(candidates.to_vec()).iter().position(|r| &r.candidate.scope == scope).unwrap()
}
