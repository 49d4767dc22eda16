//! A survivor of a rewritten manifest is the same entry as before but for its
//! status.

use iceberg::spec::ManifestStatus;

use crate::fixture::{Table, oracle, row};

#[tokio::test]
async fn h17_a_survivor_keeps_snapshot_id_both_sequence_numbers_and_every_metric() {
    for v1 in [false, true] {
        let spec = if v1 { Table::partitioned_by_p().v1() } else { Table::partitioned_by_p() };
        let t = spec.create().await;
        let made = t.change().append([row(1, "a", 7)]).append([row(2, "b", 7)]).commit().await;
        t.append([row(3, "c", 8)]).await;
        let [f1, f2] = made.data.as_slice() else { panic!() };
        let before = oracle::live(&t.load().await).await.into_iter().find(|l| l.file.file_path() == f2.path).unwrap();

        let plan = t.plan_files(&[f1]).await;
        let written = t.naive_rewrite(&plan).await;
        let _ = t.commit(&plan, &written, "a1").await;

        let after = oracle::live(&t.load().await).await.into_iter().find(|l| l.file.file_path() == f2.path).unwrap();
        assert_eq!(before.entry.status(), ManifestStatus::Added);
        assert_eq!(after.entry.status(), ManifestStatus::Existing);
        assert_eq!(after.entry.snapshot_id(), Some(made.snapshot_id));
        assert_eq!(after.entry.sequence_number, before.entry.sequence_number);
        assert_eq!(after.entry.file_sequence_number, before.entry.file_sequence_number);
        assert_eq!(after.file, before.file);
        assert_eq!((after.sequence, after.spec_id), (i64::from(!v1), 0));
        assert_eq!(t.rows().await, ["1|a|7", "2|b|7", "3|c|8"]);
    }
}

#[tokio::test]
async fn h17_manifests_that_hold_nothing_of_ours_are_carried_as_they_are() {
    let t = Table::plain().create().await;
    let f1 = t.append([row(1, "a", 0)]).await;
    let f2 = t.append([row(2, "b", 0)]).await;
    let before = oracle::live(&t.load().await).await;
    let plan = t.plan_files(&[&f1]).await;
    let written = t.naive_rewrite(&plan).await;
    let _ = t.commit(&plan, &written, "a1").await;
    let after = oracle::live(&t.load().await).await;
    let of = |all: &[oracle::Live]| all.iter().find(|l| l.file.file_path() == f2.path).unwrap().entry.clone();
    assert_eq!(of(&after), of(&before));
}
