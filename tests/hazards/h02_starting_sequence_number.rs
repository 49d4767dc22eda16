//! Outputs carry the sequence number of the planned snapshot; deletes newer than
//! it must survive our commits and go on to apply.

use afterwrite::model::outcome::Outcome;
use iceberg::spec::{FormatVersion, ManifestList};

use crate::fixture::{Table, oracle, row};

#[tokio::test]
async fn h02_outputs_carry_the_planned_sequence_number_whatever_came_between() {
    let t = Table::plain().create().await;
    let f1 = t.append([row(1, "a", 0), row(2, "b", 0)]).await;
    let plan = t.plan_all(&f1).await;
    let written = t.naive_rewrite(&plan).await;
    t.append([row(3, "c", 0)]).await;

    assert!(matches!(t.commit(&plan, &written, "a1").await, Outcome::Landed { .. }));

    let out = written.outputs[0].path.as_str();
    let live = oracle::live(&t.load().await).await;
    let sequences: Vec<i64> = live.iter().filter(|l| l.file.file_path() == out).map(|l| l.sequence).collect();
    assert_eq!(sequences, [1]);
    assert_eq!(live.iter().find(|l| l.file.file_path() == out).unwrap().entry.file_sequence_number, Some(3));
}

#[tokio::test]
async fn h02_a_delete_between_start_and_commit_is_neither_lost_nor_dropped() {
    let t = Table::plain().past().create().await;
    let f1 = t.append([row(1, "a", 0), row(2, "b", 0)]).await;
    let f2 = t.append([row(3, "c", 0)]).await;
    let plan = t.plan_files(&[&f2]).await;
    let written = t.naive_rewrite(&plan).await;
    let deleted = t.change().delete_equal(&["id"], [row(2, "", 0)]).append([row(4, "d", 0)]).commit().await;

    // Planned before the delete, which goes on to cover f1 and the output.
    assert!(matches!(t.commit(&plan, &written, "a1").await, Outcome::Landed { .. }));
    assert_eq!(t.rows().await, ["1|a", "3|c", "4|d"]);
    let delete = deleted.deletes[0].path.as_str();
    assert_eq!(oracle::live(&t.load().await).await.iter().filter(|l| l.file.file_path() == delete).count(), 1);

    // It goes with the last file that it covers.
    t.compact(&f1, "a3").await;
    assert_eq!(t.rows().await, ["1|a", "3|c", "4|d"]);
    assert_eq!(oracle::live(&t.load().await).await.iter().filter(|l| l.file.file_path() == delete).count(), 0);
}

#[tokio::test]
async fn h02_a_delete_after_our_commit_reaches_the_outputs() {
    let t = Table::plain().create().await;
    let f1 = t.append([row(1, "a", 0), row(2, "b", 0)]).await;
    t.compact(&f1, "a1").await;
    t.change().delete_equal(&["id"], [row(2, "", 0)]).commit().await;
    assert_eq!(t.rows().await, ["1|a"]);
}

#[tokio::test]
async fn h02_the_manifest_list_tells_how_old_the_outputs_are() {
    let t = Table::plain().past().create().await;
    let f1 = t.append([row(1, "a", 0), row(2, "b", 0)]).await;
    let plan = t.plan_all(&f1).await;
    let written = t.naive_rewrite(&plan).await;
    t.append([row(3, "c", 0)]).await;
    t.change().delete_equal(&["id"], [row(2, "", 0)]).commit().await;
    assert!(matches!(t.commit(&plan, &written, "a1").await, Outcome::Landed { .. }));

    // Writers drop delete files older than the lowest number of all data manifests:
    // a manifest that is said to be younger than its outputs would lose the delete.
    let table = t.load().await;
    let head = table.loaded.metadata.current_snapshot().unwrap();
    let bytes = table.loaded.io.new_input(head.manifest_list()).unwrap().read().await.unwrap();
    let list = ManifestList::parse_with_version(&bytes, FormatVersion::V2).unwrap();
    let ours: Vec<_> = list.entries().iter().filter(|m| m.added_snapshot_id == head.snapshot_id() && m.has_added_files()).collect();
    assert_eq!(ours.len(), 1);
    assert_eq!((ours[0].sequence_number, ours[0].min_sequence_number), (head.sequence_number(), plan.sequence_number));
    assert_eq!((head.sequence_number(), plan.sequence_number), (5, 2));
    assert_eq!(t.rows().await, ["1|a", "3|c"]);
}
