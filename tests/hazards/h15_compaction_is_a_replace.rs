//! A compaction that only appends doubles every row.

use afterwrite::lake::iceberg::table::IcebergTable;
use afterwrite::model::plan::{ATTEMPT_KEY, INSTANCE_KEY};
use iceberg::spec::{ManifestStatus, Operation};

use crate::fixture::{Table, oracle, row};

fn property(table: &IcebergTable, key: &str) -> Option<String> {
    table.loaded.metadata.current_snapshot().unwrap().summary().additional_properties.get(key).cloned()
}

#[tokio::test]
async fn h15_four_files_of_fifty_rows_become_one_of_two_hundred_and_four_tombstones() {
    for spec in [Table::plain(), Table::plain().v1()] {
        let t = spec.create().await;
        let mut files = vec![];
        for n in 0..4 {
            files.push(t.append((0..50).map(|i| row(n * 50 + i, "v", 0))).await);
        }
        let before = t.rows().await;

        let ours = t.compact(&files[0], "a1").await;

        let table = t.load().await;
        let head = table.loaded.metadata.current_snapshot().unwrap();
        assert_eq!((head.snapshot_id(), &head.summary().operation), (ours, &Operation::Replace));
        let entries = oracle::entries(&table).await;
        let of = |status| entries.iter().filter(|(_, e)| e.status() == status).count();
        assert_eq!([of(ManifestStatus::Added), of(ManifestStatus::Existing), of(ManifestStatus::Deleted)], [1, 0, 4]);
        assert!(entries.iter().all(|(_, e)| e.snapshot_id() == Some(ours)));
        assert_eq!(before.len(), 200);
        assert_eq!(t.rows().await, before);
        let expected = [("added-data-files", "1"), ("deleted-data-files", "4"), ("added-records", "200"), ("deleted-records", "200")];
        for (key, value) in
            expected.into_iter().chain([("total-data-files", "1"), ("total-records", "200"), ("changed-partition-count", "1")])
        {
            assert_eq!(property(&table, key).as_deref(), Some(value), "{key}");
        }
        assert_eq!(property(&table, ATTEMPT_KEY).as_deref(), Some("a1"));
        assert_eq!(property(&table, INSTANCE_KEY).as_deref(), Some("instance-1"));
    }
}

#[tokio::test]
async fn h15_every_file_written_was_announced_before_the_swap() {
    use crate::fixture::Watch;
    use afterwrite::model::killpoint::KillPoint;
    let t = Table::plain().create().await;
    let f1 = t.append([row(1, "a", 0)]).await;
    let (plan, watch) = (t.plan_all(&f1).await, Watch::default());
    let written = t.naive_rewrite(&plan).await;
    let base = t.load().await;

    let _ = t.commit_on(&base, &plan, &written, "a1", &watch).await.unwrap();

    let table = t.load().await;
    let told = watch.written.lock().unwrap().clone();
    // a REST catalog writes the metadata itself, and is asked for the head
    let writes_metadata = crate::fixture::process::over_rest().is_none();
    assert_eq!(told.len(), if writes_metadata { 3 } else { 2 }, "a manifest, the list, the metadata: {told:?}");
    assert_eq!(told.contains(&table.view.metadata_location), writes_metadata);
    let asserted = watch.asserted.lock().unwrap().clone();
    assert!(asserted.len() == 1 && asserted[0].starts_with(&base.view.metadata_location), "{asserted:?}");
    assert_eq!(asserted[0] == base.view.metadata_location, writes_metadata, "{asserted:?}");
    assert_eq!(*watch.points.lock().unwrap(), [KillPoint::ManifestsWritten, KillPoint::MetadataWritten, KillPoint::CatalogAnswered]);
}

#[tokio::test]
async fn h15_outputs_that_lost_rows_are_not_committed() {
    let t = Table::plain().create().await;
    let f1 = t.append([row(1, "a", 0), row(2, "b", 0)]).await;
    let plan = t.plan_all(&f1).await;
    let mut written = t.naive_rewrite(&plan).await;
    written.rows_in = 3;
    let base = t.load().await;
    let error = t.commit_on(&base, &plan, &written, "a1", &crate::fixture::Watch::default()).await.unwrap_err();
    assert!(matches!(error, afterwrite::lake::Error::Proof(_)), "{error}");
    assert_eq!(t.rows().await, ["1|a", "2|b"]);
}

#[tokio::test]
async fn h15_undo_takes_back_our_head_and_nothing_else() {
    use crate::fixture::Watch;
    use afterwrite::lake::Commit;
    use afterwrite::lake::iceberg::commit::undo;
    use afterwrite::model::outcome::Outcome;
    use afterwrite::model::plan::AttemptId;
    let t = Table::plain().create().await;
    let f1 = t.append([row(1, "a", 0)]).await;
    let before = t.head().await;
    let ours = t.compact(&f1, "a1").await;
    let (attempt, watch) = (AttemptId("u1".into()), Watch::default());
    let commit = Commit { attempt: &attempt, instance: "i", control: &watch, now_ms: 0, nonce: 9 };

    let outcome = undo(&t.load().await, ours, &commit).await.unwrap();

    assert_eq!(outcome, Outcome::Landed { snapshot_id: before });
    assert_eq!((t.head().await, t.rows().await), (before, vec!["1|a".to_owned()]));
    // A foreign snapshot is never rolled back, nor ours under a newer one.
    assert!(matches!(undo(&t.load().await, before, &commit).await.unwrap(), Outcome::Rejected { .. }));
    let f2 = t.append([row(2, "b", 0)]).await;
    let ours = t.compact(&f2, "a2").await;
    t.append([row(3, "c", 0)]).await;
    assert!(matches!(undo(&t.load().await, ours, &commit).await.unwrap(), Outcome::Rejected { .. }));
    assert_eq!(t.rows().await, ["1|a", "2|b", "3|c"]);
}
