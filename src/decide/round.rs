//! Rounds: everything that is pending, ranked and started while the budget lasts.

use super::budget::{Budget, Denied, Reservation};
use super::score::{norm, weighted_sum};
use crate::model::decision::{Decision, Verdict};
use crate::model::ident::TableIdent;
use crate::model::partition::PartitionKey;
use crate::model::plan::Bound;

/// Work that waits for a round.
#[derive(Clone, Debug, PartialEq)]
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
}

impl Candidate {
    /// The work that a decision asks for; `None` when it asks for none.
    pub fn of(decision: &Decision, gain_weight: f64, bound: Bound) -> Option<Self> {
        let (urgent, gain, gb_hours) = match &decision.verdict {
            Verdict::Now { gb_hours, gain, .. } => (true, *gain, *gb_hours),
            Verdict::Queued { gb_hours, gain } => (false, *gain, *gb_hours),
            Verdict::Not { .. } => return None,
        };
        Some(Self { table: decision.table, scope: decision.scope.clone(), urgent, gain, gb_hours, gain_weight, bound })
    }
}

/// A candidate with its score among the candidates of its round.
#[derive(Clone, Debug, PartialEq)]
pub struct Ranked {
    /// The candidate.
    pub candidate: Candidate,
    /// `S = w·norm(ΔF) − (1 − w)·norm(GBHr)`.
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

/// Ranks candidates: urgent ones first, then by score, ties by table uuid, spec
/// id and partition. The order given does not matter.
pub fn rank(candidates: Vec<Candidate>) -> Vec<Ranked> {
    let gains = norm(&candidates.iter().map(|c| c.gain as f64).collect::<Vec<_>>());
    let costs = norm(&candidates.iter().map(|c| c.gb_hours).collect::<Vec<_>>());
    let scores = gains.iter().zip(&costs);
    let mut ranked: Vec<Ranked> = candidates
        .into_iter()
        .zip(scores)
        .map(|(candidate, (gain, cost))| Ranked { score: weighted_sum(*gain, *cost, candidate.gain_weight), candidate })
        .collect();
    ranked.sort_by(|a, b| {
        let key = |r: &Ranked| (r.candidate.table, r.candidate.scope.clone());
        b.candidate.urgent.cmp(&a.candidate.urgent).then_with(|| b.score.total_cmp(&a.score)).then_with(|| key(a).cmp(&key(b)))
    });
    ranked
}

/// Starts what fits, best first; skips what does not fit and goes on down.
pub fn start(ranked: Vec<Ranked>, budget: &mut Budget, now_ms: i64) -> Round {
    let mut round = Round::default();
    for ranked in ranked {
        match budget.reserve(&ranked.candidate.bound, now_ms) {
            Ok(reservation) => round.started.push((ranked, reservation)),
            Err(denied @ Denied::Never { .. }) => round.never.push((ranked, denied)),
            Err(denied) => round.waiting.push((ranked, denied)),
        }
    }
    round
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::judge;
    use crate::decide::testing::Given;
    use crate::model::partition::Value;
    use crate::model::policy::BudgetLimits;
    use std::sync::Arc;

    fn candidate(day: i32, gain: u64, gb_hours: f64) -> Candidate {
        Candidate {
            table: TableIdent::iceberg(uuid::Uuid::from_u128(7)),
            scope: PartitionKey { spec_id: 0, tuple: Arc::from([Some(Value::Int(day))]) },
            urgent: false,
            gain,
            gb_hours,
            gain_weight: 0.7,
            bound: Bound { gb_hours, millis: 0, memory: 0 },
        }
    }

    fn openhouse() -> Vec<Candidate> {
        vec![candidate(0, 98, 0.777_778), candidate(1, 16, 1.055_556), candidate(2, 4990, 1.888_889)]
    }

    fn gains(ranked: &[Ranked]) -> Vec<u64> {
        ranked.iter().map(|r| r.candidate.gain).collect()
    }

    fn budget(gb_hours: f64, concurrent_jobs: usize) -> Budget {
        Budget::new(&BudgetLimits { gb_hours_per_hour: gb_hours, carry_over_hours: 1.0, concurrent_jobs }, 0)
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
            round.never.iter().map(|(r, d)| (r.candidate.gain, *d)).collect::<Vec<_>>(),
            [(100, Denied::Never { wanted: 1.5, cap: 1.0 })]
        );
        assert_eq!(round.started.len(), 1);
    }

    #[test]
    fn what_has_no_slot_waits() {
        let mut budget = budget(10.0, 1);
        let round = start(rank(openhouse()), &mut budget, 0);
        assert_eq!(round.started.len(), 1);
        assert_eq!(round.waiting.iter().map(|(_, d)| *d).collect::<Vec<_>>(), [Denied::NoSlot { slots: 1 }, Denied::NoSlot { slots: 1 }]);
    }

    #[test]
    fn urgent_work_goes_first_whatever_its_score() {
        let mut candidates = openhouse();
        candidates[1].urgent = true;
        assert_eq!(gains(&rank(candidates)), [16, 4990, 98]);
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
}
