//! The unit of planning is the file: from the plan to the commit a file goes whole
//! or not at all, however its size stands to the target.

use std::collections::{BTreeMap, BTreeSet};

use afterwrite::decide::plan::{Cause, Order, plans};
use afterwrite::lake::iceberg::{rewrite, verify};
use afterwrite::model::decision::Reason;
use afterwrite::model::ident::MAIN;
use afterwrite::model::layout::SizeScale;
use afterwrite::model::outcome::Outcome;
use afterwrite::model::plan::{AttemptId, Plan};
use afterwrite::model::policy::{BudgetLimits, Policy};

use crate::fixture::{File, Row, Table, Watch, oracle, row};

const KB: u64 = 1000;

fn policy(max_job: u64) -> Policy {
    Policy { scale: SizeScale { target: 10 * KB, small_permille: 750 }, max_job_bytes: max_job, ..Policy::default() }
}

async fn planned(t: &Table, like: &File, policy: &Policy) -> Result<Vec<Plan>, Reason> {
    let table = t.load().await;
    let (limits, cause) = (BudgetLimits::default(), Cause::Request);
    let order = Order { table: table.view.ident, name: &table.view.name, reference: MAIN, policy, limits: &limits, cause: &cause };
    plans(&order, &t.scope(&like.partition).await)
}

/// Rewrites, proves and commits; the outputs' rows.
async fn carry_out(t: &Table, plan: &Plan, n: usize) -> Vec<u64> {
    let table = t.load().await;
    let written = rewrite::run(&table, plan, &AttemptId(format!("a{n}.0")), &Watch::default()).await.unwrap();
    verify::run(&table, plan, &written).await.unwrap();
    assert!(matches!(t.commit(plan, &written, &format!("a{n}.1")).await, Outcome::Landed { .. }));
    written.outputs.iter().map(|o| o.records).collect()
}

/// Rows that a file of about so many bytes holds, and do not compress.
fn noise(from: i64, bytes: u64) -> Vec<Row> {
    let text = |n: i64| {
        let mut state = n as u64 + 1;
        let mut letter = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            char::from(b'!' + (state >> 33) as u8 % 90)
        };
        (0..90).map(|_| letter()).collect::<String>()
    };
    (from..from + bytes as i64 / 110).map(|n| row(n, &text(n), 0)).collect()
}

async fn large_and_tiny() -> (Table, File, File) {
    let t = Table::plain().past().create().await;
    let large = t.append(noise(0, 11 * KB)).await;
    let tiny = t.append([row(-1, "tiny", 0)]).await;
    let bytes = large.data.file_size_in_bytes();
    assert!((10 * KB..13 * KB).contains(&bytes), "{bytes}");
    (t, large, tiny)
}

async fn live(t: &Table) -> BTreeMap<String, u64> {
    oracle::live(&t.load().await).await.iter().map(|l| (l.file.file_path().to_owned(), l.file.record_count())).collect()
}

#[tokio::test]
async fn h14_a_file_just_over_the_target_is_left_whole_where_it_is_not_asked_for() {
    let (t, large, tiny) = large_and_tiny().await;
    let before = t.rows().await;
    let second = t.append([row(-2, "tiny too", 0)]).await;
    let plans = planned(&t, &large, &policy(1 << 30)).await.unwrap();
    let inputs: Vec<&str> = plans.iter().flat_map(|p| &p.inputs).map(|f| f.path.as_ref()).collect();
    assert_eq!(inputs, [tiny.path.as_str(), second.path.as_str()]);
    assert_eq!(carry_out(&t, &plans[0], 1).await, [2]);
    assert_eq!(live(&t).await.get(&large.path), Some(&large.data.record_count()));
    assert_eq!(t.rows().await.len(), before.len() + 1);
}

#[tokio::test]
async fn h14_a_file_just_over_the_target_that_is_rewritten_loses_no_tail() {
    let (t, large, tiny) = large_and_tiny().await;
    t.change().delete_positions(&[(&large, 0)]).commit().await;
    let before = t.rows().await;
    let plans = planned(&t, &large, &policy(1 << 30)).await.unwrap();
    assert_eq!(plans.iter().map(|p| p.inputs.len()).collect::<Vec<_>>(), [2]);
    let rows = carry_out(&t, &plans[0], 1).await;
    assert_eq!((rows.iter().sum::<u64>(), t.rows().await), (before.len() as u64, before));
    let live = live(&t).await;
    assert!(!live.contains_key(&large.path) && !live.contains_key(&tiny.path));
    assert_eq!(live.values().sum::<u64>(), large.data.record_count());
}

#[tokio::test]
async fn h14_a_file_that_is_cut_into_several_outputs_keeps_every_row() {
    let (t, large, _) = large_and_tiny().await;
    let before = t.rows().await;
    for (n, target) in [10 * KB, 4 * KB, KB].into_iter().enumerate() {
        let plan = Plan { target_file_size: target, ..t.plan_all(&large).await };
        let rows = carry_out(&t, &plan, n).await;
        assert_eq!(rows.iter().sum::<u64>(), before.len() as u64, "{rows:?}");
        assert_eq!(t.rows().await, before);
    }
}

#[tokio::test]
async fn h14_jobs_smaller_than_a_file_take_none_of_it() {
    let (t, large, _) = large_and_tiny().await;
    for n in 0..12 {
        t.append(noise(1000 + n * 100, 3 * KB)).await;
    }
    t.change().delete_positions(&[(&large, 0)]).commit().await;
    let before = t.rows().await;
    let plans = planned(&t, &large, &policy(10 * KB)).await.unwrap();
    assert!(plans.len() >= 3, "{}", plans.len());
    let mut seen = BTreeSet::new();
    for (n, plan) in plans.iter().enumerate() {
        assert!(plan.input_bytes() <= 10 * KB);
        assert!(plan.inputs.iter().all(|f| f.path.as_ref() != large.path && seen.insert(f.path.clone())));
        carry_out(&t, plan, n).await;
        assert_eq!(t.rows().await, before);
    }
    assert_eq!(live(&t).await.get(&large.path), Some(&large.data.record_count()));
}
