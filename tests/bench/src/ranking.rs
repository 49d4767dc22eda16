//! How long a round over a whole fleet takes: ranking every candidate, and asking the
//! budgets for each.

use std::sync::Arc;
use std::time::Instant;

use afterwrite::decide::budget::Budget;
use afterwrite::decide::round::{Candidate, Context, front, rank_by, start_by};
use afterwrite::model::economy::{Budgets, Limits, Norm, Ranking, Tenant};
use afterwrite::model::ident::TableIdent;
use afterwrite::model::partition::{PartitionKey, Value};
use afterwrite::model::plan::Bound;
use afterwrite::model::policy::BudgetLimits;

use crate::figure::{Bench, Figure, median};

/// See the module.
pub const BENCH: Bench = Bench {
    name: "ranking_round_s",
    about: "ranking 1 M candidates of 10,000 tables and asking the budgets of all, of 100 tenants and of each table for them, on one core",
    also: &["ranking_round_by_rank_s", "pareto_front_s"],
    run,
};

fn run(quick: bool) -> anyhow::Result<Vec<Figure>> {
    let (count, times) = if quick { (10_000, 1) } else { (1_000_000, 5) };
    let given = candidates(count);
    let mut figures = Vec::new();
    for (name, norm) in [("ranking_round_s", Norm::MinMax), ("ranking_round_by_rank_s", Norm::Rank)] {
        let ranking = Ranking { norm, write_amplification_weight: 0.1, quota_weights: true, read_weights: true, ..Ranking::default() };
        let mut seconds = Vec::new();
        for _ in 0..times {
            let (pending, mut budget) = (given.clone(), Budget::new(&budgets(), 0));
            let began = Instant::now();
            let round = start_by(ranking.select, rank_by(&ranking, pending), &mut budget, 0);
            seconds.push(began.elapsed().as_secs_f64());
            let all = round.started.len() + round.waiting.len() + round.never.len();
            anyhow::ensure!(all == given.len() && !round.started.is_empty(), "{all} candidates after a round of {}", given.len());
        }
        figures.push(Figure::new(name, median(&seconds), "s"));
    }
    let began = Instant::now();
    let on = front(&given).into_iter().filter(|on| *on).count();
    figures.push(Figure::new("pareto_front_s", began.elapsed().as_secs_f64(), "s"));
    anyhow::ensure!(on > 0, "no candidate is on the front");
    Ok(figures)
}

fn budgets() -> Budgets {
    let limits =
        Limits { gb_hours_per_hour: Some(4.0), bytes_per_hour: Some(1 << 40), commits_per_hour: Some(1000), concurrent_jobs: Some(4) };
    let tenant = |n: usize| Tenant { name: format!("tenant-{n}").into(), patterns: vec![], limits, quota_objects: Some(1_000_000) };
    Budgets {
        overall: BudgetLimits { gb_hours_per_hour: 100.0, carry_over_hours: 2.0, concurrent_jobs: 64 },
        more: Limits { bytes_per_hour: Some(1 << 44), commits_per_hour: Some(100_000), ..Limits::default() },
        per_table: Limits { commits_per_hour: Some(60), ..Limits::default() },
        tenants: (0..100).map(tenant).collect(),
    }
}

/// Of as many sizes as chance gives; the same every time.
pub fn candidates(count: usize) -> Vec<Candidate> {
    let tenants: Vec<Arc<str>> = (0..100).map(|n| Arc::from(format!("tenant-{n}"))).collect();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut chance = move |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    let mut one = |n: usize| {
        let table = n % 10_000;
        let gb_hours = chance(1_000_000) as f64 / 1e6;
        Candidate {
            table: TableIdent::iceberg(uuid(table as u128)),
            scope: PartitionKey { spec_id: 0, tuple: Arc::from([Some(Value::Int((n / 10_000) as i32))]) },
            urgent: chance(1000) == 0,
            gain: chance(5000),
            gb_hours,
            gain_weight: 0.7,
            bound: Bound { gb_hours, millis: 60_000, memory: 1 << 29 },
            context: Context {
                branch: None,
                tenant: tenants.get(table % 100).cloned(),
                bytes: chance(1 << 34),
                write_amplification: chance(100) as f64 / 10.0,
                read_rate: chance(50) as f64,
                quota_used: Some(chance(100) as f64 / 100.0),
                unit: None,
                terms: None,
            },
        }
    };
    (0..count).map(&mut one).collect()
}

fn uuid(n: u128) -> uuid::Uuid {
    uuid::Uuid::from_u128(n)
}
