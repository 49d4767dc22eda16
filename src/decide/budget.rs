//! The hard budget: jobs reserve their upper bound and settle to what they used.
//!
//! A bucket in integers, filled by time that is passed in. What it holds plus
//! what is reserved never passes its cap, so that the actual costs over any
//! window are at most `rate × window + cap`, whenever they are booked.

use crate::model::plan::Bound;
use crate::model::policy::{BudgetLimits, Policy};

/// Nano-GB-hours in a GB-hour.
const NANO: f64 = 1e9;
/// Milliseconds in an hour: the bucket counts nano-GB-hours in this fraction, so
/// that filling it by the millisecond loses nothing.
const HOUR_MS: i128 = 3_600_000;
/// A job may take this many times its estimate before it is stopped.
const SAFETY: f64 = 4.0;
/// At the least; a job that would not fit with less is cut smaller.
const LEAST_SAFETY: f64 = 2.0;
/// Time that every job is given beyond its estimate, in milliseconds.
const GRACE_MS: f64 = 60_000.0;
/// For so long a job that is stopped may still hold its memory, in milliseconds:
/// until it has heard of it, and until what it asked of the catalog is known. It is
/// reserved with the job. A catalog that hangs may hold a job for longer: that is a
/// debt, paid before the next job.
pub const LINGER_MS: i64 = 90_000;

/// What may still be spent.
#[derive(Debug)]
pub struct Budget {
    rate: i128,
    cap: i128,
    level: i128,
    reserved: i128,
    running: usize,
    slots: usize,
    filled_at_ms: i64,
}

/// A part of the budget that is set aside for one job. Hand it back with
/// [`Budget::settle`].
#[must_use = "a reservation that is not settled holds its budget for ever"]
#[derive(Debug, PartialEq, Eq)]
pub struct Reservation {
    nano: i128,
}

/// Why a reservation was refused.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum Denied {
    /// All jobs that may run at one time are running.
    #[error("as many jobs run as may run at one time ({slots})")]
    NoSlot {
        /// `concurrent_jobs`.
        slots: usize,
    },
    /// The budget does not hold it yet.
    #[error("the budget holds {available} of the {wanted} GB-hours that the job may need")]
    NotYet {
        /// GB-hours asked for.
        wanted: f64,
        /// GB-hours there.
        available: f64,
    },
    /// The budget can never hold it: the job must be made smaller or the budget larger.
    #[error(
        "the job may need {wanted} GB-hours, and the budget never holds more than {cap}: raise the budget or lower the job's memory limit"
    )]
    Never {
        /// GB-hours asked for.
        wanted: f64,
        /// The most the budget can hold.
        cap: f64,
    },
}

impl Budget {
    /// A full bucket. It holds the unused budget of `carry_over_hours`, and of
    /// one hour at the least.
    pub fn new(limits: &BudgetLimits, now_ms: i64) -> Self {
        let rate = nano(limits.gb_hours_per_hour, f64::floor);
        let cap = nano(cap_gb_hours(limits), f64::floor).saturating_mul(HOUR_MS);
        Self { rate, cap, level: cap, reserved: 0, running: 0, slots: limits.concurrent_jobs, filled_at_ms: now_ms }
    }

    /// The bucket as jobs before have left it: each with the moment at which it was
    /// booked, in milliseconds, and its GB-hours. A process that begins anew spends
    /// no hour's budget twice. What was before `since_ms` is not known, and taken to
    /// have left nothing.
    pub fn after(limits: &BudgetLimits, since_ms: i64, spent: &[(i64, f64)], now_ms: i64) -> Self {
        let mut spent: Vec<(i64, f64)> = spent.iter().map(|(at_ms, used)| (*at_ms.min(&now_ms), *used)).collect();
        spent.sort_by_key(|(at_ms, _)| *at_ms);
        let mut budget = Self { level: 0, ..Self::new(limits, since_ms) };
        for (at_ms, used) in spent {
            budget.settle(Reservation { nano: 0 }, used, at_ms);
        }
        budget.fill(now_ms);
        budget
    }

    /// How far back to ask for what jobs have spent, in milliseconds: an empty bucket
    /// that nobody drew from would be full after half of it.
    pub fn remembers_ms(limits: &BudgetLimits) -> i64 {
        (2.0 * limits.carry_over_hours.max(1.0) * HOUR_MS as f64) as i64
    }

    /// Sets a job's upper bound aside.
    pub fn reserve(&mut self, bound: &Bound, now_ms: i64) -> Result<Reservation, Denied> {
        self.fill(now_ms);
        let nano = nano(bound.gb_hours, f64::ceil);
        let wanted = nano.saturating_mul(HOUR_MS);
        if wanted > self.cap {
            return Err(Denied::Never { wanted: bound.gb_hours, cap: gb_hours_of(self.cap) });
        }
        if self.running >= self.slots {
            return Err(Denied::NoSlot { slots: self.slots });
        }
        if wanted > self.level {
            return Err(Denied::NotYet { wanted: bound.gb_hours, available: self.available() });
        }
        self.level -= wanted;
        self.reserved += wanted;
        self.running += 1;
        Ok(Reservation { nano })
    }

    /// Books what a job used and returns the rest. A job that used more than it
    /// had reserved leaves a debt.
    pub fn settle(&mut self, reservation: Reservation, actual_gb_hours: f64, now_ms: i64) {
        self.fill(now_ms);
        let held = reservation.nano.saturating_mul(HOUR_MS);
        let used = nano(actual_gb_hours, f64::ceil).saturating_mul(HOUR_MS);
        self.reserved = self.reserved.saturating_sub(held);
        self.level = self.level.saturating_add(held).saturating_sub(used);
        self.running = self.running.saturating_sub(1);
    }

    /// GB-hours that can be reserved at the moment last passed in.
    pub fn available(&self) -> f64 {
        gb_hours_of(self.level.max(0))
    }

    /// GB-hours that jobs under way have set aside.
    pub fn reserved(&self) -> f64 {
        gb_hours_of(self.reserved)
    }

    /// Jobs that hold a reservation.
    pub fn running(&self) -> usize {
        self.running
    }

    /// Time that goes back fills nothing.
    fn fill(&mut self, now_ms: i64) {
        let elapsed = i128::from(now_ms) - i128::from(self.filled_at_ms);
        if elapsed > 0 {
            let room = self.cap - self.reserved - self.level;
            self.level += self.rate.saturating_mul(elapsed).min(room).max(0);
            self.filled_at_ms = now_ms;
        }
    }
}

/// GB-hours of holding `memory` bytes for `millis`; a GB is 10⁹ bytes.
pub fn gb_hours(memory: u64, millis: i64) -> f64 {
    memory as f64 / 1e9 * millis.max(0) as f64 / HOUR_MS as f64
}

/// The most that the budget can ever hold.
pub fn cap_gb_hours(limits: &BudgetLimits) -> f64 {
    limits.gb_hours_per_hour * limits.carry_over_hours.max(1.0)
}

/// The upper bound of a job over `bytes`: several times its estimate, within the
/// policy's time and what the budget can ever hold. Its GB-hours are those of its
/// time and of [`LINGER_MS`].
pub fn bound_for(policy: &Policy, limits: &BudgetLimits, bytes: u64) -> Bound {
    let wanted = estimate_ms(policy, bytes) * SAFETY + GRACE_MS;
    let millis = wanted.min(longest_ms(policy, limits)) as i64;
    Bound { gb_hours: gb_hours(policy.memory_limit, millis.saturating_add(LINGER_MS)), millis, memory: policy.memory_limit }
}

/// The most input bytes of one job: the policy's, and no more than a job's time
/// and the budget leave room for.
pub fn largest_job(policy: &Policy, limits: &BudgetLimits) -> u64 {
    let bytes = longest_ms(policy, limits) / LEAST_SAFETY * policy.cost.rewrite_bytes_per_hour / HOUR_MS as f64;
    policy.max_job_bytes.min(bytes as u64)
}

/// Time after which any job of the policy is stopped.
fn longest_ms(policy: &Policy, limits: &BudgetLimits) -> f64 {
    let memory_gb = policy.memory_limit.max(1) as f64 / 1e9;
    let affordable = (cap_gb_hours(limits) / memory_gb * HOUR_MS as f64).floor() - LINGER_MS as f64;
    affordable.min(policy.max_job_ms as f64).max(0.0)
}

fn estimate_ms(policy: &Policy, bytes: u64) -> f64 {
    bytes as f64 / policy.cost.rewrite_bytes_per_hour.max(1.0) * HOUR_MS as f64
}

/// Nano-GB-hours; what is no number is the most there is, which fits no budget.
fn nano(gb_hours: f64, round: fn(f64) -> f64) -> i128 {
    if gb_hours.is_nan() { i128::from(i64::MAX) } else { i128::from(round(gb_hours.max(0.0) * NANO) as i64) }
}

fn gb_hours_of(level: i128) -> f64 {
    level as f64 / HOUR_MS as f64 / NANO
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3_600_000;
    const LIMITS: BudgetLimits = BudgetLimits { gb_hours_per_hour: 2.0, carry_over_hours: 2.0, concurrent_jobs: 3 };

    fn bound(gb_hours: f64) -> Bound {
        Bound { gb_hours, millis: 0, memory: 0 }
    }

    #[test]
    fn a_reservation_is_taken_at_once_and_settled_to_the_actual_cost() {
        let mut budget = Budget::new(&LIMITS, 0);
        assert_eq!(budget.available(), 4.0);
        let held = budget.reserve(&bound(3.0), 0).unwrap();
        assert_eq!((budget.available(), budget.running()), (1.0, 1));
        budget.settle(held, 0.5, 0);
        assert_eq!((budget.available(), budget.running()), (3.5, 0));
    }

    #[test]
    fn a_job_waits_until_the_budget_holds_its_bound() {
        let mut budget = Budget::new(&LIMITS, 0);
        let held = budget.reserve(&bound(4.0), 0).unwrap();
        budget.settle(held, 4.0, 0);
        assert_eq!(budget.reserve(&bound(2.0), HOUR - 1).unwrap_err(), Denied::NotYet { wanted: 2.0, available: 1.999_999_444_444_444_4 });
        assert_eq!(budget.reserve(&bound(2.0), HOUR).map(|_| ()), Ok(()));
    }

    #[test]
    fn unused_budget_is_carried_over_up_to_its_cap() {
        let mut budget = Budget::new(&LIMITS, 0);
        let held = budget.reserve(&bound(4.0), 0).unwrap();
        budget.settle(held, 4.0, 0);
        budget.fill(1000 * HOUR);
        assert_eq!(budget.available(), 4.0);
    }

    #[test]
    fn what_is_reserved_counts_against_the_cap() {
        let mut budget = Budget::new(&LIMITS, 0);
        let held = budget.reserve(&bound(4.0), 0).unwrap();
        budget.fill(10 * HOUR);
        assert_eq!(budget.available(), 0.0);
        budget.settle(held, 1.0, 10 * HOUR);
        assert_eq!(budget.available(), 3.0);
    }

    #[test]
    fn no_more_jobs_run_than_may() {
        let mut budget = Budget::new(&LIMITS, 0);
        let held: Vec<_> = (0..3).map(|_| budget.reserve(&bound(0.1), 0).unwrap()).collect();
        assert_eq!(budget.reserve(&bound(0.1), 0), Err(Denied::NoSlot { slots: 3 }));
        for reservation in held {
            budget.settle(reservation, 0.0, 0);
        }
        assert_eq!(budget.reserve(&bound(0.1), 0).map(|_| ()), Ok(()));
    }

    #[test]
    fn a_job_that_can_never_fit_is_named_not_starved() {
        let mut budget = Budget::new(&LIMITS, 0);
        assert_eq!(budget.reserve(&bound(4.1), 0), Err(Denied::Never { wanted: 4.1, cap: 4.0 }));
        for gb_hours in [f64::NAN, f64::INFINITY] {
            assert!(matches!(budget.reserve(&bound(gb_hours), 0), Err(Denied::Never { .. })));
        }
    }

    #[test]
    fn an_overrun_is_a_debt() {
        let mut budget = Budget::new(&LIMITS, 0);
        let held = budget.reserve(&bound(1.0), 0).unwrap();
        budget.settle(held, 5.0, 0);
        assert_eq!(budget.available(), 0.0);
        budget.fill(HOUR);
        assert_eq!(budget.available(), 1.0);
    }

    #[test]
    fn a_clock_set_back_fills_nothing_and_breaks_nothing() {
        let mut budget = Budget::new(&LIMITS, HOUR);
        let held = budget.reserve(&bound(4.0), HOUR).unwrap();
        budget.settle(held, 4.0, 0);
        assert_eq!(budget.available(), 0.0);
        budget.fill(i64::MIN);
        budget.fill(2 * HOUR);
        assert_eq!(budget.available(), 2.0);
        budget.fill(i64::MAX);
        assert_eq!(budget.available(), 4.0);
    }

    #[test]
    fn filling_by_the_millisecond_loses_nothing() {
        let limits = BudgetLimits { gb_hours_per_hour: 0.000_001, carry_over_hours: 1.0, concurrent_jobs: 1 };
        let mut budget = Budget::new(&limits, 0);
        let held = budget.reserve(&bound(0.000_001), 0).unwrap();
        budget.settle(held, 0.000_001, 0);
        (0..=HOUR).for_each(|now| budget.fill(now));
        assert_eq!(budget.available(), 0.000_001);
    }

    #[test]
    fn a_bucket_begun_anew_is_what_the_jobs_before_have_left() {
        let after =
            |spent: &[(i64, f64)], now_ms| Budget::after(&LIMITS, now_ms - Budget::remembers_ms(&LIMITS), spent, now_ms).available();
        assert_eq!((Budget::remembers_ms(&LIMITS), after(&[], HOUR)), (4 * HOUR, 4.0));
        // full two hours after the first of four; 3 of 4 spent, one hour's 2 come back, 1.5 spent, half an hour's 1 come back
        let now = 10 * HOUR;
        assert_eq!(after(&[(now - HOUR / 2, 1.5), (now - 3 * HOUR / 2, 3.0)], now), 2.5);
        // what is said to end later than now was spent by now; what is more than there is, is a debt
        assert_eq!(after(&[(9 * now, 5.0)], now), 0.0);
        assert_eq!(after(&[(9 * now, f64::NAN)], now), 0.0);
        // nothing is known
        assert_eq!(Budget::after(&LIMITS, now, &[], now).available(), 0.0);
    }

    #[test]
    fn without_carry_over_one_hours_budget_can_be_used() {
        let limits = BudgetLimits { carry_over_hours: 0.0, ..LIMITS };
        assert_eq!(Budget::new(&limits, 0).available(), 2.0);
    }

    #[test]
    fn a_bound_is_several_times_the_estimate_within_the_jobs_time() {
        let mut policy = Policy { memory_limit: 1_000_000_000, max_job_ms: HOUR, ..Policy::default() };
        policy.cost.rewrite_bytes_per_hour = 3.6e9;
        // 10⁷ bytes take 10 s; four times that and a minute
        let expected = Bound { gb_hours: 190.0 / 3600.0, millis: 100_000, memory: 1_000_000_000 };
        assert_eq!(bound_for(&policy, &LIMITS, 10_000_000), expected);
        assert_eq!(bound_for(&policy, &LIMITS, 3_600_000_000).millis, HOUR);
    }

    #[test]
    fn every_job_up_to_the_largest_fits_the_budget_and_has_twice_its_estimate() {
        let mut policy = Policy { memory_limit: 4_000_000_000, max_job_ms: 10 * HOUR, max_job_bytes: u64::MAX, ..Policy::default() };
        policy.cost.rewrite_bytes_per_hour = 3.6e9;
        // 4 GB for at most one hour, 90 s of it to end, half of the rest needed
        let largest = largest_job(&policy, &LIMITS);
        assert_eq!(largest, 1_755_000_000);
        let bound = bound_for(&policy, &LIMITS, largest);
        assert_eq!((bound.gb_hours, bound.millis), (4.0, HOUR - LINGER_MS));
        assert_eq!(Budget::new(&LIMITS, 0).reserve(&bound, 0).map(|_| ()), Ok(()));
    }

    #[test]
    fn without_any_budget_no_job_is_large_enough() {
        let limits = BudgetLimits { gb_hours_per_hour: 0.0, ..LIMITS };
        assert_eq!(largest_job(&Policy::default(), &limits), 0);
    }
}
