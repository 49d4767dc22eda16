//! Readers that follow a table's appends see rows twice when a rewrite is anything
//! but a replace.

use std::collections::HashMap;

use afterwrite::lake::iceberg::table::IcebergTable;
use afterwrite::lake::iceberg::{rewrite, verify};
use afterwrite::model::outcome::Outcome;
use afterwrite::model::plan::{AttemptId, Plan};
use iceberg::spec::{DataContentType, ManifestStatus, Operation};

use crate::fixture::{Table, Watch, oracle, row};

/// What an incremental append scan reads after `from`: the data files that append
/// snapshots added, as the format's readers choose them.
async fn appended_after(table: &IcebergTable, from: i64) -> Vec<String> {
    let metadata = &table.loaded.metadata;
    let (mut at, mut appends) = (table.view.head, vec![]);
    while let Some(id) = at.filter(|id| *id != from) {
        let snapshot = metadata.snapshot_by_id(id).unwrap();
        if snapshot.summary().operation == Operation::Append {
            appends.push(snapshot.snapshot_id());
        }
        at = snapshot.parent_snapshot_id();
    }
    let (entries, live) = (oracle::entries(table).await, oracle::live(table).await);
    let mut rows = vec![];
    for (_, entry) in entries {
        let is_new = entry.status() == ManifestStatus::Added && entry.snapshot_id().is_some_and(|id| appends.contains(&id));
        if is_new && entry.data_file().content_type() == DataContentType::Data {
            let data = live.iter().find(|l| l.file.file_path() == entry.file_path()).unwrap();
            rows.extend(oracle::rows_of(table, data, &live).await.into_iter().map(|r| r.join("|")));
        }
    }
    rows.sort();
    rows
}

/// The product's own rewrite, proof and commit.
async fn rewrite(t: &Table, plan: &Plan) -> i64 {
    let table = t.load().await;
    let written = rewrite::run(&table, plan, &AttemptId("a1.0".into()), &Watch::default()).await.unwrap();
    verify::run(&table, plan, &written).await.unwrap();
    match t.commit(plan, &written, "a1.1").await {
        Outcome::Landed { snapshot_id } => snapshot_id,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn h57_a_reader_of_appends_sees_nothing_of_a_rewrite_and_all_that_follows() {
    let t = Table::partitioned_by_p().past().create().await;
    let first = t.append([row(1, "a", 7), row(2, "b", 7), row(3, "c", 7)]).await;
    t.append([row(4, "d", 7)]).await;
    t.append([row(5, "e", 8)]).await;
    t.change().delete_positions(&[(&first, 0)]).commit().await;
    t.change().delete_equal(&["id"], [row(4, "", 7)]).commit().await;
    let (seen, rows) = (t.head().await, t.rows().await);
    let plan = t.plan_all(&first).await;

    let ours = rewrite(&t, &plan).await;

    assert_eq!(appended_after(&t.load().await, seen).await, Vec::<String>::new());
    assert_eq!(t.rows().await, rows);
    t.append([row(6, "f", 7)]).await;
    assert_eq!(appended_after(&t.load().await, seen).await, ["6|f|7"]);

    let table = t.load().await;
    let snapshot = table.loaded.metadata.snapshot_by_id(ours).unwrap();
    assert_eq!(snapshot.summary().operation, Operation::Replace);
    let said: HashMap<&str, &str> = snapshot.summary().additional_properties.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    let expected = [
        ("added-data-files", "1"),
        ("deleted-data-files", "2"),
        ("added-records", "2"),
        ("deleted-records", "4"),
        ("removed-delete-files", "2"),
        ("removed-position-deletes", "1"),
        ("removed-equality-deletes", "1"),
        ("total-data-files", "2"),
        ("total-records", "3"),
        ("total-delete-files", "0"),
        ("changed-partition-count", "1"),
    ];
    for (key, value) in expected {
        assert_eq!(said.get(key), Some(&value), "{key}: {said:?}");
    }
    assert!(!said.contains_key("added-delete-files") && !said.contains_key("added-position-deletes"), "{said:?}");
}
