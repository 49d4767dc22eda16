//! The law of the budget: actual costs over any window never pass it.

use afterwrite::decide::budget::{Budget, LINGER_MS};
use afterwrite::model::plan::Bound;
use afterwrite::model::policy::BudgetLimits;
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    Wait(i64),
    Reserve(u32),
    /// Settles the oldest job at this share of its bound, in percent.
    Settle(u32),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step =
        prop_oneof![(-1000i64..4_000_000).prop_map(Step::Wait), (1u32..4000).prop_map(Step::Reserve), (0u32..=100).prop_map(Step::Settle)];
    prop::collection::vec(step, 0..120)
}

const MILLI: f64 = 1e-3;

proptest! {
    #[test]
    fn actual_costs_over_any_window_never_pass_the_budget(steps in steps(), rate in 1u32..3000, carry in 0u32..4, slots in 1usize..6) {
        let limits = BudgetLimits {
            gb_hours_per_hour: f64::from(rate) * MILLI,
            carry_over_hours: f64::from(carry),
            concurrent_jobs: slots,
        };
        let cap = f64::from(rate) * MILLI * f64::from(carry.max(1));
        let mut budget = Budget::new(&limits, 0);
        let (mut now, mut latest) = (0i64, 0i64);
        let mut running = std::collections::VecDeque::new();
        let mut spent: Vec<(i64, i64, f64)> = Vec::new();
        for step in steps {
            match step {
                Step::Wait(ms) => now += ms,
                Step::Reserve(milli) => {
                    let bound = Bound { gb_hours: f64::from(milli) * MILLI, millis: 0, memory: 0 };
                    if let Ok(reservation) = budget.reserve(&bound, now) {
                        running.push_back((reservation, bound.gb_hours, now.max(latest)));
                    }
                }
                Step::Settle(percent) => {
                    if let Some((reservation, bound, began)) = running.pop_front() {
                        let actual = bound * f64::from(percent) / 100.0;
                        budget.settle(reservation, actual, now);
                        spent.push((began, now.max(latest), actual));
                    }
                }
            }
            latest = latest.max(now);
            prop_assert!(running.len() <= slots);
            prop_assert_eq!(running.len(), budget.running());
            prop_assert!(budget.available() <= cap + 1e-9);
        }
        // booked when the job began, or when it was settled
        for at in [|s: &(i64, i64, f64)| s.0, |s: &(i64, i64, f64)| s.1] {
            for from in spent.iter().map(at) {
                for to in spent.iter().map(at).filter(|to| *to >= from) {
                    let sum: f64 = spent.iter().filter(|s| (from..=to).contains(&at(s))).map(|s| s.2).sum();
                    let allowed = limits.gb_hours_per_hour * (to - from) as f64 / 3_600_000.0 + cap;
                    prop_assert!(sum <= allowed + 1e-6, "{sum} spent of {allowed} from {from} to {to}");
                }
            }
        }
    }
}

#[test]
fn a_stopped_job_has_ended_within_the_time_that_is_reserved_for_it() {
    let settings = afterwrite::act::Settings::default();
    let lingers = settings.look_every * settings.grace_looks + settings.resolve_for;
    assert_eq!(lingers.as_millis(), u128::from(LINGER_MS.unsigned_abs()));
}
