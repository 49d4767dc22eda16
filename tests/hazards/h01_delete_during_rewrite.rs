//! A delete that lands while we rewrite must not be lost.

use std::sync::Arc;

use afterwrite::lake::Written;
use afterwrite::lake::iceberg::rewrite::Detail;
use afterwrite::model::outcome::{Conflict, Outcome};

use crate::fixture::{Table, row};

#[tokio::test]
async fn h01_a_row_deleted_by_position_during_rewrite_stays_deleted() {
    let t = Table::plain().past().create().await;
    let f1 = t.append([row(1, "a", 0), row(2, "b", 0)]).await;
    let plan = t.plan_all(&f1).await;
    let written = t.naive_rewrite(&plan).await;
    t.change().delete_positions(&[(&f1, 0)]).commit().await;

    let outcome = t.commit(&plan, &written, "a1").await;

    // the delete is carried over to the output
    assert!(matches!(outcome, Outcome::Landed { .. }), "{outcome:?}");
    assert_eq!(t.rows().await, ["2|b"]);
    t.compact(&f1, "a2").await;
    assert_eq!(t.rows().await, ["2|b"]);
}

#[tokio::test]
async fn h01_a_row_deleted_during_a_rewrite_that_does_not_say_where_its_rows_went_is_a_conflict() {
    let t = Table::plain().past().create().await;
    let f1 = t.append([row(1, "a", 0), row(2, "b", 0)]).await;
    let plan = t.plan_all(&f1).await;
    let written = t.naive_rewrite(&plan).await;
    let detail = written.detail.downcast_ref::<Detail>().unwrap();
    let untold = Detail { data_files: detail.data_files.clone(), read: None, columns: detail.columns.clone(), deleted: None };
    let written = Written { detail: Arc::new(untold), ..written };
    t.change().delete_positions(&[(&f1, 0)]).commit().await;

    let outcome = t.commit(&plan, &written, "a1").await;

    assert_eq!(outcome, Outcome::Conflict(Conflict::DeletesChanged { files: vec![f1.path.clone()] }));
    assert_eq!(t.rows().await, ["2|b"]);
}

#[tokio::test]
async fn h01_a_row_deleted_by_key_during_rewrite_stays_deleted() {
    let t = Table::plain().create().await;
    let f1 = t.append([row(1, "a", 0), row(2, "b", 0)]).await;
    let plan = t.plan_all(&f1).await;
    let written = t.naive_rewrite(&plan).await;
    t.change().delete_equal(&["id"], [row(1, "", 0)]).commit().await;

    let outcome = t.commit(&plan, &written, "a1").await;

    // the output is as old as its input: the delete reaches it too
    assert!(matches!(outcome, Outcome::Landed { .. }), "{outcome:?}");
    assert_eq!(t.rows().await, ["2|b"]);
}

#[tokio::test]
async fn h01_an_input_that_a_writer_replaced_is_a_conflict() {
    let t = Table::plain().create().await;
    let f1 = t.append([row(1, "a", 0)]).await;
    let plan = t.plan_all(&f1).await;
    let written = t.naive_rewrite(&plan).await;
    t.change().remove(&[&f1]).append([row(1, "changed", 0)]).commit().await;

    let outcome = t.commit(&plan, &written, "a1").await;

    assert_eq!(outcome, Outcome::Conflict(Conflict::InputGone { files: vec![f1.path.clone()] }));
    assert_eq!(t.rows().await, ["1|changed"]);
}

#[tokio::test]
async fn h01_an_append_during_rewrite_is_no_conflict() {
    let t = Table::plain().past().create().await;
    let f1 = t.append([row(1, "a", 0)]).await;
    let plan = t.plan_all(&f1).await;
    let written = t.naive_rewrite(&plan).await;
    t.append([row(2, "b", 0)]).await;

    assert!(matches!(t.commit(&plan, &written, "a1").await, Outcome::Landed { .. }));
    assert_eq!(t.rows().await, ["1|a", "2|b"]);
}
