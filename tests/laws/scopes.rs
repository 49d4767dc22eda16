//! Laws of how much one piece of work takes: a partition, what came to it since, a table.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use afterwrite::decide::budget::Budget;
use afterwrite::decide::plan::{Cause, Order, plans, plans_since};
use afterwrite::decide::round::{Candidate, Context, rank_by, start};
use afterwrite::decide::scope::join;
use afterwrite::model::economy::{Budgets, Norm, Ranking};
use afterwrite::model::ident::{TableIdent, TableName};
use afterwrite::model::partition::{PartitionKey, Value};
use afterwrite::model::plan::{Bound, Plan};
use afterwrite::model::policy::{BudgetLimits, CostModel, Policy, Scoping};
use proptest::prelude::*;

use super::fixed_point::worlds;

fn scopings() -> impl Strategy<Value = Scoping> {
    prop_oneof![Just(Scoping::Partition), Just(Scoping::Table), Just(Scoping::Snapshot), Just(Scoping::Hybrid)]
}

fn gain_per_cost(policy: &Policy, plans: &[Plan]) -> f64 {
    let gain: u64 = plans.iter().map(|p| p.inputs.len() as u64 - policy.scale.outputs(p.input_bytes())).sum();
    let bytes = plans.iter().map(Plan::input_bytes).sum();
    gain as f64 / policy.cost.gb_hours(bytes)
}

fn files(plans: &[Plan]) -> BTreeSet<Arc<str>> {
    plans.iter().flat_map(|plan| plan.inputs.iter().map(|f| Arc::clone(&f.path))).collect()
}

const COST: CostModel = CostModel { executor_memory_gb: 1.0, rewrite_bytes_per_hour: 1e12, startup_gbhr: 0.01 };

/// Candidates of a few partitions of four tables; none twice.
fn fleets() -> impl Strategy<Value = Vec<Candidate>> {
    let one = |(table, day, gain, milli): (u128, i32, u64, u32)| Candidate {
        table: TableIdent::iceberg(uuid::Uuid::from_u128(table)),
        scope: PartitionKey { spec_id: 0, tuple: Arc::from([Some(Value::Int(day))]) },
        urgent: false,
        gain,
        gb_hours: COST.startup_gbhr + f64::from(milli) / 1000.0,
        gain_weight: 0.7,
        bound: Bound { gb_hours: f64::from(milli) / 500.0, millis: 1, memory: 1 },
        context: Context::default(),
    };
    prop::collection::btree_map((0u128..4, 0i32..5), (1u64..50, 1u32..90), 0..14)
        .prop_map(move |all| all.into_iter().map(|((table, day), (gain, milli))| one((table, day, gain, milli))).collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn what_a_snapshot_takes_came_since_and_hybrid_gains_no_less_for_its_cost(mut world in worlds(), newer in 0i64..60, scope in scopings()) {
        let scope_files = world.scope();
        let name = TableName::new("lake", "sales", "orders");
        let limits = BudgetLimits::default();
        world.policy.max_job_bytes = 1 << 50;
        let plan = |scope: Scoping, since| {
            let policy = Policy { scope, ..world.policy.clone() };
            let order = Order { table: TableIdent::iceberg(uuid::Uuid::from_u128(7)), name: &name, reference: "main", policy: &policy, limits: &limits, cause: &Cause::Score };
            plans_since(&order, &scope_files, since).unwrap_or_default()
        };
        let (all, fresh) = (plan(Scoping::Partition, Some(newer)), plan(Scoping::Snapshot, Some(newer)));
        let sequences: BTreeMap<_, _> = scope_files.files.iter().map(|f| (Arc::clone(&f.path), f.data_sequence)).collect();
        prop_assert!(files(&fresh).iter().all(|path| sequences[path] > newer));
        // nothing is known of what came since: all of it
        prop_assert_eq!(plan(scope, None), all.clone());
        let hybrid = plan(Scoping::Hybrid, Some(newer));
        prop_assert!(hybrid == all || hybrid == fresh);
        let worth = |plans: &[Plan]| gain_per_cost(&world.policy, plans);
        // files with deletes on them gain by that, which is not weighed here
        if all.iter().chain(&fresh).all(|p| p.deletes.is_empty()) {
            prop_assert!(worth(&hybrid) >= worth(&all).max(worth(&fresh)) - 1e-9);
        }
        // no file is in two plans, whatever the scope
        let chosen = plan(scope, Some(newer));
        prop_assert_eq!(files(&chosen).len(), chosen.iter().map(|p| p.inputs.len()).sum::<usize>());
        let policy = Policy { scope, ..world.policy.clone() };
        let order = Order { table: TableIdent::iceberg(uuid::Uuid::from_u128(7)), name: &name, reference: "main", policy: &policy, limits: &limits, cause: &Cause::Request };
        prop_assert_eq!(plans_since(&order, &scope_files, Some(newer)).ok(), plans(&order, &scope_files).ok());
    }

    #[test]
    fn candidates_that_overlap_never_both_run_and_a_table_that_is_one_ranks_as_one(fleet in fleets(), scope in scopings(), gb_hours in 0.0f64..0.4) {
        let mut joined = fleet.clone();
        join(&mut joined, |_| Some((scope, COST)));
        let mut shuffled: Vec<Candidate> = fleet.iter().rev().cloned().collect();
        join(&mut shuffled, |_| Some((scope, COST)));
        shuffled.reverse();
        prop_assert_eq!(&joined, &shuffled);

        let mut tables: BTreeMap<TableIdent, Vec<&Candidate>> = BTreeMap::new();
        joined.iter().for_each(|c| tables.entry(c.table).or_default().push(c));
        for parts in tables.values() {
            let unit = parts[0].context.unit;
            prop_assert!(parts.iter().all(|c| c.context.unit == unit));
            let best = parts.iter().map(|c| c.gain as f64 / c.gb_hours).fold(0.0, f64::max);
            let gain: u64 = parts.iter().map(|c| c.gain).sum();
            let cost = parts.iter().map(|c| c.gb_hours).sum::<f64>() - COST.startup_gbhr * (parts.len() - 1) as f64;
            let wanted = parts.len() > 1 && match scope {
                Scoping::Table => true,
                Scoping::Hybrid => gain as f64 / cost > best,
                Scoping::Partition | Scoping::Snapshot => false,
            };
            prop_assert_eq!(unit.map(|u| u.gain), wanted.then_some(gain));
        }

        let ranked = rank_by(&Ranking { norm: Norm::Rank, ..Ranking::default() }, joined.clone());
        if scope == Scoping::Table {
            // the partitions of a table follow each other
            let order: Vec<TableIdent> = ranked.iter().map(|r| r.candidate.table).collect();
            let runs = order.windows(2).filter(|w| w[0] != w[1]).count() + usize::from(!order.is_empty());
            prop_assert_eq!(runs, tables.len());
        }
        let budgets = Budgets::of(&BudgetLimits { gb_hours_per_hour: gb_hours, carry_over_hours: 1.0, concurrent_jobs: 9 });
        let round = start(ranked, &mut Budget::new(&budgets, 0), 0);
        let started: BTreeSet<_> = round.started.iter().map(|(r, _)| (r.candidate.table, r.candidate.scope.clone())).collect();
        prop_assert_eq!(started.len(), round.started.len());
    }
}
