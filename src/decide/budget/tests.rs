//! Budgets: one, and several.

use super::*;
use crate::model::economy::Tenant;

const HOUR: i64 = 3_600_000;
const LIMITS: BudgetLimits = BudgetLimits { gb_hours_per_hour: 2.0, carry_over_hours: 2.0, concurrent_jobs: 3 };

fn of(limits: &BudgetLimits) -> Budgets {
    Budgets::of(limits)
}

fn bound(gb_hours: f64) -> Bound {
    Bound { gb_hours, millis: 0, memory: 0 }
}

#[test]
fn a_reservation_is_taken_at_once_and_settled_to_the_actual_cost() {
    let mut budget = Budget::new(&of(&LIMITS), 0);
    assert_eq!(budget.available(), 4.0);
    let held = budget.reserve(&bound(3.0), 0).unwrap();
    assert_eq!((budget.available(), budget.running()), (1.0, 1));
    budget.settle(held, 0.5, 0);
    assert_eq!((budget.available(), budget.running()), (3.5, 0));
}

#[test]
fn a_job_waits_until_the_budget_holds_its_bound() {
    let mut budget = Budget::new(&of(&LIMITS), 0);
    let held = budget.reserve(&bound(4.0), 0).unwrap();
    budget.settle(held, 4.0, 0);
    assert_eq!(
        budget.reserve(&bound(2.0), HOUR - 1).unwrap_err(),
        Denied::NotYet { whose: Whose::All, what: What::GbHours, wanted: 2.0, available: 1.999_999_444_444_444_4 }
    );
    assert_eq!(budget.reserve(&bound(2.0), HOUR).map(|_| ()), Ok(()));
}

#[test]
fn unused_budget_is_carried_over_up_to_its_cap() {
    let mut budget = Budget::new(&of(&LIMITS), 0);
    let held = budget.reserve(&bound(4.0), 0).unwrap();
    budget.settle(held, 4.0, 0);
    budget.fill(1000 * HOUR);
    assert_eq!(budget.available(), 4.0);
}

#[test]
fn what_is_reserved_counts_against_the_cap() {
    let mut budget = Budget::new(&of(&LIMITS), 0);
    let held = budget.reserve(&bound(4.0), 0).unwrap();
    budget.fill(10 * HOUR);
    assert_eq!(budget.available(), 0.0);
    budget.settle(held, 1.0, 10 * HOUR);
    assert_eq!(budget.available(), 3.0);
}

#[test]
fn no_more_jobs_run_than_may() {
    let mut budget = Budget::new(&of(&LIMITS), 0);
    let held: Vec<_> = (0..3).map(|_| budget.reserve(&bound(0.1), 0).unwrap()).collect();
    assert_eq!(budget.reserve(&bound(0.1), 0), Err(Denied::NoSlot { slots: 3 }));
    for reservation in held {
        budget.settle(reservation, 0.0, 0);
    }
    assert_eq!(budget.reserve(&bound(0.1), 0).map(|_| ()), Ok(()));
}

#[test]
fn a_job_that_can_never_fit_is_named_not_starved() {
    let mut budget = Budget::new(&of(&LIMITS), 0);
    assert_eq!(budget.reserve(&bound(4.1), 0), Err(Denied::Never { whose: Whose::All, what: What::GbHours, wanted: 4.1, cap: 4.0 }));
    for gb_hours in [f64::NAN, f64::INFINITY] {
        assert!(matches!(budget.reserve(&bound(gb_hours), 0), Err(Denied::Never { .. })));
    }
}

#[test]
fn an_overrun_is_a_debt() {
    let mut budget = Budget::new(&of(&LIMITS), 0);
    let held = budget.reserve(&bound(1.0), 0).unwrap();
    budget.settle(held, 5.0, 0);
    assert_eq!(budget.available(), 0.0);
    budget.fill(HOUR);
    assert_eq!(budget.available(), 1.0);
}

#[test]
fn a_clock_set_back_fills_nothing_and_breaks_nothing() {
    let mut budget = Budget::new(&of(&LIMITS), HOUR);
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
    let mut budget = Budget::new(&of(&limits), 0);
    let held = budget.reserve(&bound(0.000_001), 0).unwrap();
    budget.settle(held, 0.000_001, 0);
    (0..=HOUR).for_each(|now| budget.fill(now));
    assert_eq!(budget.available(), 0.000_001);
}

#[test]
fn a_bucket_begun_anew_is_what_the_jobs_before_have_left() {
    let spending = |(at_ms, gb_hours): &(i64, f64)| Spending {
        at_ms: *at_ms,
        table: None,
        tenant: None,
        used: Used { gb_hours: *gb_hours, ..Used::default() },
    };
    let after = |spent: &[(i64, f64)], now_ms| {
        let spent: Vec<Spending> = spent.iter().map(spending).collect();
        Budget::after(&of(&LIMITS), now_ms - Budget::remembers_ms(&LIMITS), &spent, now_ms).available()
    };
    assert_eq!((Budget::remembers_ms(&LIMITS), after(&[], HOUR)), (4 * HOUR, 4.0));
    // full two hours after the first of four; 3 of 4 spent, one hour's 2 come back, 1.5 spent, half an hour's 1 come back
    let now = 10 * HOUR;
    assert_eq!(after(&[(now - HOUR / 2, 1.5), (now - 3 * HOUR / 2, 3.0)], now), 2.5);
    // what is said to end later than now was spent by now; what is more than there is, is a debt
    assert_eq!(after(&[(9 * now, 5.0)], now), 0.0);
    assert_eq!(after(&[(9 * now, f64::NAN)], now), 0.0);
    // nothing is known
    assert_eq!(Budget::after(&of(&LIMITS), now, &[], now).available(), 0.0);
}

#[test]
fn without_carry_over_one_hours_budget_can_be_used() {
    let limits = BudgetLimits { carry_over_hours: 0.0, ..LIMITS };
    assert_eq!(Budget::new(&of(&limits), 0).available(), 2.0);
}

#[test]
fn a_bound_is_several_times_the_estimate_within_the_jobs_time() {
    let mut policy = Policy { memory_limit: 3_000_000_000, max_job_ms: HOUR, ..Policy::default() };
    policy.cost.rewrite_bytes_per_hour = 3.6e9;
    // 10⁷ bytes take 10 s; four times that and a minute
    let expected = Bound { gb_hours: 190.0 / 3600.0, millis: 100_000, memory: 1_000_000_000 };
    assert_eq!(bound_for(&policy, &LIMITS, 10_000_000), expected);
    assert_eq!(bound_for(&policy, &LIMITS, 3_600_000_000).millis, HOUR);
}

#[test]
fn jobs_side_by_side_hold_no_more_than_the_memory_limit_together() {
    let policy = Policy { memory_limit: 1 << 30, ..Policy::default() };
    let each = |concurrent_jobs| bound_for(&policy, &BudgetLimits { concurrent_jobs, ..LIMITS }, 1).memory;
    assert_eq!([0, 1, 2, 3, 1024].map(each), [1 << 30, 1 << 30, 512 << 20, (1 << 30) / 3, 1 << 20]);
}

#[test]
fn every_job_up_to_the_largest_fits_the_budget_and_has_twice_its_estimate() {
    let mut policy = Policy { memory_limit: 12_000_000_000, max_job_ms: 10 * HOUR, max_job_bytes: u64::MAX, ..Policy::default() };
    policy.cost.rewrite_bytes_per_hour = 3.6e9;
    // 4 GB for at most one hour, 90 s of it to end, half of the rest needed
    let largest = largest_job(&policy, &LIMITS);
    assert_eq!(largest, 1_755_000_000);
    let bound = bound_for(&policy, &LIMITS, largest);
    assert_eq!((bound.gb_hours, bound.millis), (4.0, HOUR - LINGER_MS));
    assert_eq!(Budget::new(&of(&LIMITS), 0).reserve(&bound, 0).map(|_| ()), Ok(()));
}

#[test]
fn without_any_budget_no_job_is_large_enough() {
    let limits = BudgetLimits { gb_hours_per_hour: 0.0, ..LIMITS };
    assert_eq!(largest_job(&Policy::default(), &limits), 0);
}

/// Overall 10 GB-hours, 1000 bytes and 10 commits an hour; a tenant and each table less.
fn shared() -> Budgets {
    let sales = Limits { gb_hours_per_hour: Some(3.0), concurrent_jobs: Some(2), ..Limits::default() };
    Budgets {
        overall: BudgetLimits { gb_hours_per_hour: 10.0, carry_over_hours: 1.0, concurrent_jobs: 9 },
        more: Limits { bytes_per_hour: Some(1000), commits_per_hour: Some(4), ..Limits::default() },
        per_table: Limits { gb_hours_per_hour: Some(2.0), commits_per_hour: Some(2), ..Limits::default() },
        tenants: vec![Tenant { name: "sales".into(), patterns: vec![], limits: sales, quota_objects: None }],
    }
}

fn table(n: u128) -> Option<TableIdent> {
    Some(TableIdent::iceberg(uuid::Uuid::from_u128(n)))
}

/// Asks for a job of a tenant's table.
fn ask(budget: &mut Budget, gb_hours: f64, bytes: u64, n: u128, tenant: Option<&Arc<str>>) -> Result<Reservation, Denied> {
    budget.reserve_for(&Ask { bound: &bound(gb_hours), bytes, table: table(n), tenant }, 0)
}

#[test]
fn a_job_is_booked_to_all_the_budgets_that_concern_it_or_to_none() {
    let mut budget = Budget::new(&shared(), 0);
    let sales: Arc<str> = "sales".into();
    let held = ask(&mut budget, 1.5, 400, 1, Some(&sales)).unwrap();
    assert_eq!((budget.available(), budget.available_to("sales")), (8.5, Some(1.5)));
    let denied = |what, whose, wanted, available| Err(Denied::NotYet { whose, what, wanted, available });
    let tenants = Whose::Tenant(Arc::clone(&sales));
    // the tenant has enough, its table has not; then the other way round; then nobody has the bytes
    assert_eq!(ask(&mut budget, 1.0, 0, 1, Some(&sales)), denied(What::GbHours, Whose::Table, 1.0, 0.5));
    assert_eq!(ask(&mut budget, 1.6, 0, 2, Some(&sales)), denied(What::GbHours, tenants, 1.6, 1.5));
    assert_eq!(ask(&mut budget, 1.0, 601, 3, None), denied(What::Bytes, Whose::All, 601.0, 600.0));
    assert_eq!((budget.available(), budget.running()), (8.5, 1));
    budget.settle_used(held, &Used { gb_hours: 0.5, bytes: 100, commits: 1 }, 0);
    assert_eq!((budget.available(), budget.available_to("sales"), budget.running()), (9.5, Some(2.5), 0));
    assert_eq!(ask(&mut budget, 1.0, 900, 3, None).map(|_| ()), Ok(()));
}

#[test]
fn commits_and_jobs_at_one_time_are_budgets_too() {
    let mut budget = Budget::new(&shared(), 0);
    let sales: Arc<str> = "sales".into();
    let held: Vec<_> = (1..=2).map(|n| ask(&mut budget, 0.1, 1, n, Some(&sales)).unwrap()).collect();
    let crowded = Denied::Crowded { whose: Whose::Tenant(Arc::clone(&sales)), slots: 2 };
    assert_eq!(crowded.to_string(), "as many jobs run as the budget of tenant sales lets run at one time (2)");
    assert_eq!(ask(&mut budget, 0.1, 1, 3, Some(&sales)), Err(crowded));
    for reservation in held {
        budget.settle_used(reservation, &Used { gb_hours: 0.1, bytes: 1, commits: 1 }, 0);
    }
    // a job that made no snapshot gives its commit back
    let none = ask(&mut budget, 0.1, 1, 1, None).unwrap();
    budget.settle_used(none, &Used::default(), 0);
    let last = ask(&mut budget, 0.1, 1, 1, None).unwrap();
    budget.settle_used(last, &Used { commits: 1, ..Used::default() }, 0);
    let short = ask(&mut budget, 0.1, 1, 1, None).unwrap_err();
    assert_eq!(short.to_string(), "the table's budget holds 0 of the 1 commits that the job may need");
}

#[test]
fn what_a_budget_can_never_hold_is_told_before_what_it_does_not_hold_yet() {
    let mut budget = Budget::new(&shared(), 0);
    let held = ask(&mut budget, 2.0, 1000, 1, None).unwrap();
    let never = ask(&mut budget, 2.5, 1, 1, None).unwrap_err();
    assert_eq!((never.is_for_good(), ask(&mut budget, 0.1, 1, 2, None).unwrap_err().is_for_good()), (true, false));
    assert_eq!(
        never.to_string(),
        "the job may need 2.5 GB-hours, and the table's budget never holds more than 2: raise it or lower the job's memory limit"
    );
    assert_eq!(
        ask(&mut budget, 0.1, 1001, 2, None).unwrap_err().to_string(),
        "the job may need 1001 bytes, and the budget never holds more than 1000: raise it or lower max_job_size"
    );
    budget.settle(held, 0.0, 0);
}

#[test]
fn every_budget_is_as_the_jobs_before_have_left_it() {
    let (now, sales): (i64, Arc<str>) = (100 * HOUR, "sales".into());
    let spending = |at_ms, gb_hours, n| Spending {
        at_ms,
        table: table(n),
        tenant: (n < 10).then(|| Arc::clone(&sales)),
        used: Used { gb_hours, bytes: 300, commits: 2 },
    };
    let spent = [spending(now, 1.0, 1), spending(now, 2.0, 11)];
    let mut budget = Budget::after(&shared(), now - 2 * HOUR, &spent, now);
    assert_eq!((budget.available(), budget.available_to("sales")), (7.0, Some(2.0)));
    let asked = |budget: &mut Budget, gb_hours, bytes, n| {
        let asked = budget.reserve_for(&Ask { bound: &bound(gb_hours), bytes, table: table(n), tenant: None }, now);
        asked.map(|held| budget.settle(held, 0.0, now)).map_err(|d| d.to_string())
    };
    // both tables have made their two commits, all four together, and 600 of 1000 bytes are spent
    assert!(asked(&mut budget, 0.1, 1, 1).unwrap_err().starts_with("the budget holds 0 of the 1 commits"));
    let mut budget = Budget::after(
        &Budgets { more: Limits { bytes_per_hour: Some(1000), ..Limits::default() }, ..shared() },
        now - 2 * HOUR,
        &spent,
        now,
    );
    assert!(asked(&mut budget, 0.1, 1, 11).unwrap_err().starts_with("the table's budget holds 0 of the"));
    assert!(asked(&mut budget, 0.1, 401, 12).unwrap_err().starts_with("the budget holds 400 of the 401 bytes"));
    assert_eq!(asked(&mut budget, 2.0, 400, 12), Ok(()));
}

#[test]
fn a_table_of_which_nothing_is_known_has_what_has_come_since() {
    let now = 100 * HOUR;
    let asked = |budget: &mut Budget, n, at_ms| {
        let asked = budget.reserve_for(&Ask { bound: &bound(0.0), bytes: 1, table: table(n), tenant: None }, at_ms);
        asked.map(|held| budget.settle(held, 0.0, at_ms)).map_err(|d| d.to_string())
    };
    let per_table = Limits { commits_per_hour: Some(2), ..Limits::default() };
    let budgets = Budgets { per_table, ..of(&LIMITS) };
    let mut blind = Budget::after(&budgets, now, &[], now);
    assert!(asked(&mut blind, 1, now).unwrap_err().starts_with("the table's budget holds 0 of the 1 commits"));
    assert!(asked(&mut blind, 2, now + HOUR / 2 - 1).unwrap_err().starts_with("the table's budget holds 0.99"));
    assert_eq!(asked(&mut blind, 3, now + HOUR / 2), Ok(()));
    let mut known = Budget::after(&budgets, now - Budget::remembers_ms(&LIMITS), &[], now);
    assert_eq!(asked(&mut known, 1, now), Ok(()));
}

#[test]
fn of_many_tables_those_that_spent_nothing_are_let_go_and_no_others() {
    let per_table = Limits { commits_per_hour: Some(2), ..Limits::default() };
    let mut budget = Budget::new(&Budgets { per_table, ..of(&LIMITS) }, 0);
    let bound = bound(0.0);
    let ask = |n: usize| Ask { bound: &bound, bytes: 1, table: table(n as u128), tenant: None };
    let used = |commits| Used { commits, ..Used::default() };
    let held = budget.reserve_for(&ask(0), 0).unwrap();
    for n in 1..=MOST_TABLES {
        let reserved = budget.reserve_for(&ask(n), 0).unwrap();
        budget.settle_used(reserved, &used(if n == 7 { 5 } else { 0 }), 0);
    }
    assert_eq!(budget.tables.len(), MOST_TABLES + 1);
    // one that is known makes no room, a new one does
    assert!(budget.reserve_for(&ask(7), 0).unwrap_err().to_string().starts_with("the table's budget holds"));
    assert_eq!(budget.tables.len(), MOST_TABLES + 1);
    let new = budget.reserve_for(&ask(MOST_TABLES + 1), 0).unwrap();
    let mut kept: Vec<_> = budget.tables.keys().copied().collect();
    kept.sort_unstable();
    assert_eq!(kept, [table(0), table(7), table(MOST_TABLES as u128 + 1)].map(Option::unwrap));
    assert!(budget.reserve_for(&ask(7), 0).is_err());
    [held, new].into_iter().for_each(|held| budget.settle_used(held, &used(0), 0));
}
