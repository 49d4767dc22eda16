//! A rollback may take away a delete that we applied.

use afterwrite::model::outcome::{Conflict, Outcome};

use crate::fixture::{Table, row};

#[tokio::test]
async fn h111_a_row_restored_by_rollback_stays_restored() {
    let t = Table::plain().past().create().await;
    let f1 = t.append([row(1, "a", 0), row(2, "b", 0)]).await;
    let before = t.head().await;
    t.change().delete_positions(&[(&f1, 0)]).commit().await;
    let plan = t.plan_all(&f1).await;
    let written = t.naive_rewrite(&plan).await;
    t.set_main(before).await;

    let outcome = t.commit(&plan, &written, "a1").await;

    assert_eq!(outcome, Outcome::Conflict(Conflict::DeletesChanged { files: vec![f1.path.clone()] }));
    assert_eq!(t.rows().await, ["1|a", "2|b"]);
    t.compact(&f1, "a2").await;
    assert_eq!(t.rows().await, ["1|a", "2|b"]);
}

#[tokio::test]
async fn h111_an_expired_start_snapshot_is_no_obstacle() {
    let t = Table::plain().create().await;
    let f1 = t.append([row(1, "a", 0)]).await;
    let plan = t.plan_all(&f1).await;
    let written = t.naive_rewrite(&plan).await;
    t.append([row(2, "b", 0)]).await;
    t.expire(&[plan.snapshot_id]).await;
    assert!(matches!(t.commit(&plan, &written, "a1").await, Outcome::Landed { .. }));
    assert_eq!(t.rows().await, ["1|a", "2|b"]);
}

#[tokio::test]
async fn h111_a_fast_forward_to_another_history_is_judged_by_state_alone() {
    let t = Table::plain().create().await;
    let f1 = t.append([row(1, "a", 0)]).await;
    let staged = t.change().branch("audit").append([row(2, "b", 0)]).commit().await;
    let plan = t.plan_all(&f1).await;
    let written = t.naive_rewrite(&plan).await;
    t.set_main(staged.snapshot_id).await;
    assert!(matches!(t.commit(&plan, &written, "a1").await, Outcome::Landed { .. }));
    assert_eq!(t.rows().await, ["1|a", "2|b"]);
}

#[tokio::test]
async fn h111_a_replaced_or_recreated_table_is_not_committed_to() {
    let t = Table::plain().create().await;
    let f1 = t.append([row(1, "a", 0)]).await;
    let plan = t.plan_all(&f1).await;
    let written = t.naive_rewrite(&plan).await;
    t.change().replace_table().append([row(9, "z", 0)]).commit().await;
    assert_eq!(t.commit(&plan, &written, "a1").await, Outcome::Conflict(Conflict::InputGone { files: vec![f1.path.clone()] }));

    let other = Table::plain().create().await;
    other.append([row(9, "z", 0)]).await;
    assert_eq!(other.commit(&plan, &written, "a1").await, Outcome::Conflict(Conflict::TableGone));
    assert_eq!((t.rows().await, other.rows().await), (vec!["9|z".to_owned()], vec!["9|z".to_owned()]));
}
