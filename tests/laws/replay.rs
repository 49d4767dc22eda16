//! Laws of playing a trace, and of tuning on it.

use std::collections::BTreeMap;
use std::sync::Arc;

use afterwrite::model::economy::{Budgets, Limits, Norm, Ranking, Select};
use afterwrite::model::ident::{TableIdent, TableName};
use afterwrite::model::partition::{PartitionKey, Value};
use afterwrite::model::policy::{BudgetLimits, Policy};
use afterwrite::replay::play::{Setup, play};
use afterwrite::replay::trace::{Change, Deletes, Event, Lot, Trace, Traced};
use afterwrite::replay::tune::{Objective, tune};
use proptest::prelude::*;

const MIB: u64 = 1 << 20;

fn scope(day: i32) -> PartitionKey {
    PartitionKey { spec_id: 0, tuple: Arc::from([Some(Value::Int(day))]) }
}

fn traced(n: usize, policy: &Policy) -> Traced {
    Traced {
        ident: TableIdent::iceberg(uuid::Uuid::from_u128(n as u128)),
        branch: None,
        name: TableName::new("lake", "db", &format!("t{n}")),
        tenant: None,
        properties: BTreeMap::new(),
        policy: policy.clone(),
        created_ms: 0,
    }
}

/// Three tables of some partitions, written to for a day or so.
fn traces() -> impl Strategy<Value = Trace> {
    let lot = (0u32..24, 1u64..30).prop_map(|(power, files)| Lot { bytes: 1 << power, files });
    let change = (prop::collection::vec(lot, 0..3), any::<bool>(), 0u64..3).prop_map(|(adds, removes, deletes)| Change {
        removes: if removes { adds.iter().map(|lot| Lot { files: 1, ..*lot }).collect() } else { Vec::new() },
        records_in: adds.iter().map(|lot| lot.files * 10).sum(),
        deletes_in: Deletes { files: deletes, positions: deletes * 3, keys: 0 },
        adds,
        ..Change::default()
    });
    let event = (0i64..40_000_000, 0usize..3, 0i32..3, change).prop_map(|(at_ms, table, day, change)| Event {
        at_ms,
        table,
        scope: scope(day),
        change,
    });
    let budgets = (1u32..400, 0u32..3, 1usize..4).prop_map(|(milli, carry, concurrent_jobs)| Budgets {
        more: Limits { commits_per_hour: Some(40), ..Limits::default() },
        ..Budgets::of(&BudgetLimits { gb_hours_per_hour: f64::from(milli) / 100.0, carry_over_hours: f64::from(carry), concurrent_jobs })
    });
    let ranking = prop_oneof![Just(Select::Greedy), Just(Select::Exact), Just(Select::TopK(2))].prop_map(|select| Ranking {
        norm: Norm::Rank,
        select,
        ..Ranking::default()
    });
    (prop::collection::vec(event, 0..120), budgets, ranking, 2u32..12).prop_map(|(mut events, budgets, ranking, tier_files)| {
        events.sort_by_key(|event| event.at_ms);
        let scale = afterwrite::model::layout::SizeScale { target: 4 * MIB, small_permille: 750 };
        let policy = Policy { act: true, tier_files, scale, ..Policy::default() };
        Trace {
            tables: (0..3).map(|n| traced(n, &policy)).collect(),
            events,
            from_ms: 0,
            to_ms: 50_000_000,
            budgets,
            ranking,
            ..Trace::default()
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn a_trace_is_played_alike_every_time_within_its_budget_and_never_for_nothing(trace in traces()) {
        let setup = Setup::of(&trace);
        let played = play(&trace, &setup);
        prop_assert_eq!(&played, &play(&trace, &setup));
        let limits = &trace.budgets.overall;
        let most = limits.gb_hours_per_hour * (played.hours + limits.carry_over_hours.max(1.0));
        prop_assert!(played.gb_hours <= most + 1e-9, "{} of {most}", played.gb_hours);
        prop_assert!(played.jobs as f64 <= 40.0 * (played.hours + limits.carry_over_hours.max(1.0)));
        // a job drops files or applies deletes
        prop_assert!(played.jobs <= played.files_dropped + played.deletes_applied);

        let mut idle = setup.clone();
        idle.policies.iter_mut().for_each(|policy| policy.act = false);
        let idle = play(&trace, &idle);
        prop_assert_eq!((idle.jobs, idle.lost, idle.gb_hours), (0, 0, 0.0));
        if trace.events.iter().all(|event| event.change.removes.is_empty()) {
            prop_assert!(played.files_at_end <= idle.files_at_end && played.mean_files <= idle.mean_files + 1e-9);
        }
    }

    #[test]
    fn what_is_tuned_does_no_worse_by_its_objective_and_a_seed_finds_the_same(trace in traces(), seed in any::<u64>()) {
        let now = Setup::of(&trace);
        let weight = |t: &afterwrite::replay::totals::Totals| t.mean_files + t.mean_delete_files;
        for objective in [Objective::Files, Objective::GbHours, Objective::Balanced] {
            let tuned = tune(&trace, &now, objective, 5, seed);
            let again = tune(&trace, &now, objective, 5, seed);
            prop_assert_eq!((&tuned.policies, &tuned.best, tuned.tried), (&again.policies, &again.best, again.tried));
            prop_assert_eq!(&tuned.best, &play(&trace, &Setup { policies: tuned.policies.clone(), ..now.clone() }));
            let (best, now) = (&tuned.best, &tuned.now);
            match objective {
                Objective::Files => prop_assert!(weight(best) <= weight(now) && best.gb_hours <= now.gb_hours),
                Objective::GbHours => prop_assert!(best.gb_hours <= now.gb_hours && weight(best) <= weight(now)),
                Objective::Balanced => {}
            }
            prop_assert!(tuned.tried <= 6);
        }
    }
}
