//! What became of a commit is still told when the table's metadata has forgotten it:
//! by the metadata that followed on its base.

use std::path::Path;

use afterwrite::lake::iceberg::commit::{find_attempt, trace_attempt};
use afterwrite::lake::iceberg::table::IcebergTable;
use afterwrite::model::outcome::{Outcome, Resolution};
use afterwrite::model::plan::AttemptId;
use tempfile::TempDir;

use crate::fixture::process::local;
use crate::fixture::{Table, row};

/// A table that keeps the names of its last two metadata files only.
async fn forgetful(folder: &Path) -> Table {
    let table = Table::plain().property("write.metadata.previous-versions-max", "2").in_sqlite(folder).create().await;
    table.append([row(1, "a", 0)]).await;
    table
}

async fn appends(table: &Table, ids: impl IntoIterator<Item = i64>) {
    for id in ids {
        table.append([row(id, "v", 0)]).await;
    }
}

/// What the metadata alone tells of attempt `a1`, and what is told with its past.
async fn told(table: &Table, base: &IcebergTable) -> [Resolution; 2] {
    let (now, attempt, asserted) = (table.load().await, AttemptId("a1".into()), &base.view.metadata_location);
    [find_attempt(&now, &attempt, asserted), trace_attempt(&now, &attempt, asserted).await.unwrap()]
}

fn is_open(found: &Resolution) -> bool {
    matches!(found, Resolution::Open { .. })
}

#[tokio::test]
async fn h04_a_commit_that_never_arrived_is_proven_absent_however_far_its_base_is_past() {
    let folder = TempDir::new().unwrap();
    let table = forgetful(folder.path()).await;
    let base = table.load().await;
    appends(&table, 10..22).await;
    let [now, traced] = told(&table, &base).await;
    assert!(is_open(&now), "{now:?}");
    assert_eq!(traced, Resolution::NotLanded);
}

#[tokio::test]
async fn h04_a_base_that_is_still_the_pointer_is_not_traced() {
    let folder = TempDir::new().unwrap();
    let table = forgetful(folder.path()).await;
    let base = table.load().await;
    let [now, traced] = told(&table, &base).await;
    assert!(is_open(&now) && now == traced, "{now:?} {traced:?}");
}

#[tokio::test]
async fn h04_a_commit_that_landed_is_told_after_its_snapshot_has_expired() {
    let folder = TempDir::new().unwrap();
    let table = forgetful(folder.path()).await;
    let file = table.append([row(2, "b", 0)]).await;
    let plan = table.plan_all(&file).await;
    let written = table.naive_rewrite(&plan).await;
    let base = table.load().await;
    let Outcome::Landed { snapshot_id: ours } = table.commit(&plan, &written, "a1").await else { panic!("it did not land") };
    appends(&table, 10..14).await;
    table.expire(&[ours]).await;
    appends(&table, 20..24).await;
    let [now, traced] = told(&table, &base).await;
    assert!(is_open(&now), "{now:?}");
    assert_eq!(traced, Resolution::Landed { snapshot_id: ours });
}

#[tokio::test]
async fn h04_a_history_cut_by_others_is_told_from_one_that_may_be_ours() {
    let folder = TempDir::new().unwrap();
    let table = forgetful(folder.path()).await;
    let base = table.load().await;
    appends(&table, 10..12).await;
    let gone = table.head().await;
    appends(&table, 20..24).await;
    table.expire(&[gone]).await;
    let [now, traced] = told(&table, &base).await;
    assert!(is_open(&now), "{now:?}");
    assert_eq!(traced, Resolution::NotLanded);
}

#[tokio::test]
async fn h04_a_past_that_is_gone_or_leads_elsewhere_proves_nothing() {
    let folder = TempDir::new().unwrap();
    let table = forgetful(folder.path()).await;
    let base = table.load().await;
    appends(&table, 10..12).await;
    let between = table.load().await.view.metadata_location;
    appends(&table, 20..24).await;
    assert_eq!(told(&table, &base).await[1], Resolution::NotLanded);
    // the base itself need not be there
    std::fs::remove_file(local(&base.view.metadata_location)).unwrap();
    assert_eq!(told(&table, &base).await[1], Resolution::NotLanded);
    // a base that the table never stood on, as after a restored catalog
    let mut elsewhere = base.clone();
    elsewhere.view.metadata_location.push('x');
    assert!(is_open(&told(&table, &elsewhere).await[1]));
    // a file on the way that was removed, as `write.metadata.delete-after-commit` does
    std::fs::remove_file(local(&between)).unwrap();
    assert!(is_open(&told(&table, &base).await[1]));
}
