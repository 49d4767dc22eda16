//! The law of the budget: actual costs over any window never pass it.

use std::collections::BTreeMap;
use std::sync::Arc;

use afterwrite::decide::budget::{Ask, Budget, LINGER_MS, Spending, Used};
use afterwrite::model::economy::{Budgets, Limits, Tenant};
use afterwrite::model::ident::TableIdent;
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
        let mut budget = Budget::new(&Budgets::of(&limits), 0);
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

#[derive(Clone, Debug)]
enum Move {
    Wait(i64),
    /// A job of a table: GB-hours in thousandths, bytes.
    Reserve(u128, u32, u64),
    /// Settles the oldest job at this share of its bound, in percent; whether it commits.
    Settle(u64, bool),
    /// The process ends, and what ran is closed at its bound; another begins.
    Restart,
    /// The same, and the other cannot read what was spent.
    Blind,
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let one = prop_oneof![
        4 => (0i64..2_000_000).prop_map(Move::Wait),
        6 => (0u128..4, 1u32..2500, 1u64..900).prop_map(|(table, milli, bytes)| Move::Reserve(table, milli, bytes)),
        5 => (0u64..=100, any::<bool>()).prop_map(|(percent, commits)| Move::Settle(percent, commits)),
        1 => Just(Move::Restart),
        1 => Just(Move::Blind),
    ];
    prop::collection::vec(one, 0..90)
}

fn table(n: u128) -> TableIdent {
    TableIdent::iceberg(uuid::Uuid::from_u128(n))
}

/// The first two tables are a tenant's.
fn tenant(n: u128) -> Option<Arc<str>> {
    (n < 2).then(|| "sales".into())
}

fn spending(at_ms: i64, n: u128, used: Used) -> Spending {
    Spending { at_ms, table: Some(table(n)), tenant: tenant(n), used }
}

/// Whether what was spent over every window is within a rate and what is held over.
fn within(spent: &[(i64, f64)], rate: f64, hours: f64) -> bool {
    spent.iter().all(|(from, _)| {
        spent.iter().map(|(to, _)| to).filter(|to| *to >= from).all(|to| {
            let sum: f64 = spent.iter().filter(|(at, _)| (from..=to).contains(&at)).map(|(_, used)| used).sum();
            sum <= rate * ((to - from) as f64 / 3_600_000.0 + hours) + 1e-6
        })
    })
}

fn all_within(spent: &[Spending], limits: &Limits, hours: f64, of: impl Fn(&Spending) -> bool) -> bool {
    let series = |used: fn(&Used) -> f64| spent.iter().filter(|s| of(s)).map(|s| (s.at_ms, used(&s.used))).collect::<Vec<_>>();
    limits.gb_hours_per_hour.is_none_or(|rate| within(&series(|u| u.gb_hours), rate, hours))
        && limits.bytes_per_hour.is_none_or(|rate| within(&series(|u| u.bytes as f64), rate as f64, hours))
        && limits.commits_per_hour.is_none_or(|rate| within(&series(|u| u.commits as f64), rate as f64, hours))
}

proptest! {
    #[test]
    fn no_budget_of_anybody_is_passed_over_any_window_nor_across_restarts(moves in moves(), carry in 0u32..4) {
        let of_tenant = Limits { gb_hours_per_hour: Some(2.0), bytes_per_hour: Some(900), commits_per_hour: Some(3), concurrent_jobs: Some(2) };
        let per_table = Limits { gb_hours_per_hour: Some(1.5), bytes_per_hour: Some(700), commits_per_hour: Some(2), concurrent_jobs: Some(1) };
        let budgets = Budgets {
            overall: BudgetLimits { gb_hours_per_hour: 3.0, carry_over_hours: f64::from(carry), concurrent_jobs: 4 },
            more: Limits { bytes_per_hour: Some(1500), commits_per_hour: Some(5), ..Limits::default() },
            per_table,
            tenants: vec![Tenant { name: "sales".into(), patterns: vec![], limits: of_tenant, quota_objects: None }],
        };
        let hours = budgets.hours_held();
        let mut budget = Budget::new(&budgets, 0);
        let mut now = 0;
        let mut running = std::collections::VecDeque::new();
        let mut spent: Vec<Spending> = Vec::new();
        for one in moves {
            match one {
                Move::Wait(ms) => now += ms,
                Move::Reserve(n, milli, bytes) => {
                    let bound = Bound { gb_hours: f64::from(milli) * MILLI, millis: 0, memory: 0 };
                    let whose = tenant(n);
                    let ask = Ask { bound: &bound, bytes, table: Some(table(n)), tenant: whose.as_ref() };
                    if let Ok(reservation) = budget.reserve_for(&ask, now) {
                        running.push_back((reservation, n, Used { gb_hours: bound.gb_hours, bytes, commits: 1 }));
                    }
                }
                Move::Settle(percent, commits) => {
                    if let Some((reservation, n, most)) = running.pop_front() {
                        let share = |whole: f64| whole * percent as f64 / 100.0;
                        let used = Used { gb_hours: share(most.gb_hours), bytes: share(most.bytes as f64) as u64, commits: u64::from(commits) };
                        budget.settle_used(reservation, &used, now);
                        spent.push(spending(now, n, used));
                    }
                }
                Move::Restart => {
                    spent.extend(running.drain(..).map(|(_, n, most)| spending(now, n, most)));
                    let since = now - Budget::remembers_ms(&budgets.overall);
                    let known: Vec<Spending> = spent.iter().filter(|s| s.at_ms >= since).cloned().collect();
                    budget = Budget::after(&budgets, since, &known, now);
                }
                Move::Blind => {
                    spent.extend(running.drain(..).map(|(_, n, most)| spending(now, n, most)));
                    budget = Budget::after(&budgets, now, &[], now);
                }
            }
            let mut at_once: BTreeMap<u128, usize> = BTreeMap::new();
            running.iter().for_each(|(_, n, _)| *at_once.entry(*n).or_default() += 1);
            prop_assert!(running.len() <= 4 && at_once.values().all(|jobs| *jobs <= 1));
            prop_assert!(running.iter().filter(|(_, n, _)| tenant(*n).is_some()).count() <= 2);
        }
        let overall = Limits { gb_hours_per_hour: Some(3.0), ..budgets.more };
        prop_assert!(all_within(&spent, &overall, hours, |_| true), "overall: {spent:?}");
        prop_assert!(all_within(&spent, &of_tenant, hours, |s| s.tenant.is_some()), "tenant: {spent:?}");
        for n in 0..4 {
            prop_assert!(all_within(&spent, &per_table, hours, |s| s.table == Some(table(n))), "table {n}: {spent:?}");
        }
    }
}

#[test]
fn a_stopped_job_has_ended_within_the_time_that_is_reserved_for_it() {
    let settings = afterwrite::act::Settings::default();
    let lingers = settings.look_every * settings.grace_looks + settings.resolve_for;
    assert_eq!(lingers.as_millis(), u128::from(LINGER_MS.unsigned_abs()));
}
