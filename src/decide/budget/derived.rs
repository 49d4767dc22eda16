//! An overall budget that follows what a cluster has free.
//!
//! A GB that is free for an hour is a GB-hour: the rate is the share of what is free, and
//! never more than the settings'. When less is free, less of what was not used is carried
//! over, so that no more is begun than `rate × carry_over` at the present rate.

use super::{Budget, NANO, What, nano};

impl Budget {
    /// From here on all jobs may spend so many GB-hours an hour, and no more than the
    /// settings have it. What is set aside stays so, and is a debt where it is more.
    pub fn derive(&mut self, gb_hours_per_hour: f64, now_ms: i64) {
        let most = self.budgets.overall.gb_hours_per_hour;
        let rate = if gb_hours_per_hour.is_finite() { gb_hours_per_hour.clamp(0.0, most) } else { 0.0 };
        let hours = self.budgets.hours_held();
        for (_, bucket) in self.overall.buckets.iter_mut().filter(|(what, _)| *what == What::GbHours) {
            bucket.change(nano(rate, f64::floor), nano(rate * hours, f64::floor), now_ms);
        }
    }

    /// The most GB-hours that can be held at the present rate.
    pub fn room(&self) -> f64 {
        self.overall.bucket(What::GbHours).map_or(0.0, |bucket| bucket.room(NANO))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::economy::Budgets;
    use crate::model::plan::Bound;
    use crate::model::policy::BudgetLimits;

    const HOUR: i64 = 3_600_000;

    fn budget(gb_hours_per_hour: f64, carry_over_hours: f64) -> Budget {
        Budget::new(&Budgets::of(&BudgetLimits { gb_hours_per_hour, carry_over_hours, concurrent_jobs: 99 }), 0)
    }

    fn bound(gb_hours: f64) -> Bound {
        Bound { gb_hours, millis: 1, memory: 1 }
    }

    #[test]
    fn what_is_free_bounds_what_may_be_spent_and_never_raises_it() {
        let mut budget = budget(8.0, 2.0);
        budget.derive(2.0, 0);
        assert_eq!((budget.available(), budget.room()), (4.0, 4.0));
        let held = budget.reserve(&bound(4.0), 0).unwrap();
        assert!(budget.reserve(&bound(0.1), 0).is_err());
        budget.settle(held, 4.0, 0);
        budget.derive(100.0, HOUR);
        // an hour at 2 came in, and what the settings allow can come from here on
        assert_eq!((budget.available(), budget.room()), (2.0, 16.0));
        let _held = budget.reserve(&bound(2.0), HOUR).unwrap();
        assert!(budget.reserve(&bound(8.0), 2 * HOUR).is_ok());
    }

    #[test]
    fn when_nothing_is_free_nothing_begins_and_it_is_no_matter_for_good() {
        let mut budget = budget(8.0, 1.0);
        budget.derive(0.0, 0);
        let denied = budget.reserve(&bound(1.0), 5 * HOUR).unwrap_err();
        assert!(!denied.is_for_good(), "{denied}");
        budget.derive(f64::NAN, 5 * HOUR);
        assert!(budget.reserve(&bound(1.0), 9 * HOUR).is_err());
        budget.derive(8.0, 9 * HOUR);
        assert!(budget.reserve(&bound(8.0), 10 * HOUR).is_ok());
    }

    proptest! {
        #[test]
        fn no_more_is_spent_than_came_in_at_the_rates_that_held(
            steps in prop::collection::vec((0.0f64..10.0, 0i64..HOUR, 0.0f64..4.0, 0.0f64..1.0), 1..40),
        ) {
            let mut budget = budget(8.0, 1.0);
            budget.derive(0.0, 0);
            let (mut now, mut rate, mut came, mut spent) = (0, 0.0f64, 0.0, 0.0);
            for (next, wait, wanted, part) in steps {
                now += wait;
                came += rate * wait as f64 / HOUR as f64;
                rate = next.min(8.0);
                budget.derive(next, now);
                // what is begun never passes what the present rate can hold
                prop_assert!(budget.available() + budget.reserved() <= rate + 1e-6);
                if let Ok(held) = budget.reserve(&bound(wanted), now) {
                    prop_assert!(wanted <= rate + 1e-6);
                    budget.settle(held, wanted * part, now);
                    spent += wanted * part;
                }
                prop_assert!(spent <= came + 1e-6, "{spent} of {came}");
            }
        }
    }
}
