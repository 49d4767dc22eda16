//! H29: a rewrite of what was rewritten is no other table.

use afterwrite::lake::iceberg::{rewrite, verify};
use afterwrite::model::outcome::Outcome;
use afterwrite::model::plan::AttemptId;

use crate::fixture::{File, Table, Watch, row};
use crate::whole::world::data_files;

async fn rewritten(t: &Table, like: &File, attempt: &str) {
    let (table, mut plan) = (t.load().await, t.plan_all(like).await);
    plan.bound.memory = 256 << 20;
    let written = rewrite::run(&table, &plan, &AttemptId(format!("{attempt}.0")), &Watch::default()).await.unwrap();
    verify::run(&table, &plan, &written).await.unwrap();
    let outcome = t.commit(&plan, &written, attempt).await;
    assert!(matches!(outcome, Outcome::Landed { .. }), "{outcome:?}");
}

#[tokio::test]
async fn h29_a_rewrite_of_what_was_rewritten_changes_no_row() {
    let t = Table::plain().past().create().await;
    let mut files = vec![];
    for n in 0..8 {
        files.push(t.append((0..500).map(|id| row(n * 500 + id, "v", 0))).await);
    }
    t.change().delete_positions(&[(&files[1], 3)]).commit().await;
    let rows = t.rows().await;
    assert_eq!(rows.len(), 3_999);
    for attempt in ["a1", "a2", "a3"] {
        rewritten(&t, &files[0], attempt).await;
        assert_eq!((t.rows().await == rows, data_files(&t).await), (true, 1), "{attempt}");
    }
}
