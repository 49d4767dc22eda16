//! H26 and H27: a vector is part of its data file. One that came meanwhile follows the
//! rows to their new file, those of a rewritten file go with it, and their neighbours in
//! the same Puffin file stay.

use afterwrite::lake::iceberg::{rewrite, verify};
use afterwrite::lake::{Error, Written};
use afterwrite::model::outcome::{Conflict, Outcome};
use afterwrite::model::plan::{AttemptId, Bound, Plan};
use afterwrite::model::refusal::Refusal;
use iceberg::spec::{DataContentType, DataFileFormat};

use crate::fixture::{File, Table, Watch, oracle, row};

async fn outcome(t: &Table, plan: &Plan) -> Outcome {
    let table = t.load().await;
    let written = rewrite::run(&table, plan, &AttemptId("a1".into()), &Watch::default()).await.unwrap();
    verify::run(&table, plan, &written).await.unwrap();
    t.commit(plan, &written, "a1").await
}

/// The data files that live vectors refer to.
async fn referred(t: &Table) -> Vec<String> {
    let live = oracle::live(&t.load().await).await.into_iter();
    let mut of: Vec<_> =
        live.filter(|l| l.file.content_type() == DataContentType::PositionDeletes).filter_map(|l| l.file.referenced_data_file()).collect();
    of.sort();
    of
}

fn rows(lineage: &[crate::fixture::lineage::Traced]) -> Vec<&str> {
    lineage.iter().map(|row| row.0.as_str()).collect()
}

/// Three data files in two partitions.
async fn table() -> (Table, Vec<File>) {
    let t = Table::partitioned_by_p().v3().create().await;
    let mut files = vec![];
    for (id, p) in [(1, 7), (2, 7), (3, 8)] {
        files.push(t.append([row(id, "v", p), row(10 * id, "v", p)]).await);
    }
    (t, files)
}

#[tokio::test]
async fn h27_vectors_go_with_their_files_and_their_neighbours_stay() {
    let (t, files) = table().await;
    t.delete_by_vectors(&[(&files[0], &[0]), (&files[1], &[1]), (&files[2], &[0])]).await;
    let before = t.lineage().await;
    assert_eq!(rows(&before), ["10|v|7", "2|v|7", "30|v|8"]);
    let plan = t.plan_all(&files[0]).await;
    assert!(matches!(outcome(&t, &plan).await, Outcome::Landed { .. }));
    assert_eq!(t.lineage().await, before);
    assert_eq!(referred(&t).await, [files[2].path.clone()]);
    let summary = t.load().await.loaded.metadata.current_snapshot().unwrap().summary().additional_properties.clone();
    assert_eq!((summary["removed-dvs"].as_str(), summary["removed-position-deletes"].as_str()), ("2", "2"));
    // one file alone: its vector goes, the others in the same file stay
    let (t, files) = table().await;
    t.delete_by_vectors(&[(&files[0], &[0]), (&files[1], &[1]), (&files[2], &[0])]).await;
    let plan = t.plan_files(&[&files[0]]).await;
    assert!(matches!(outcome(&t, &plan).await, Outcome::Landed { .. }));
    assert_eq!(t.lineage().await, before);
    assert_eq!(referred(&t).await, [files[1].path.clone(), files[2].path.clone()]);
}

/// Lands with so many deletes carried over, each a vector of the output that is known to
/// the try's control before; no row changes, nor its lineage.
async fn lands_carrying(t: &Table, plan: &Plan, written: &Written, rows: u64) {
    let (before, watch) = (t.lineage().await, Watch::default());
    let outcome = t.commit_on(&t.load().await, plan, written, "a1.1", &watch).await.unwrap();
    assert!(matches!(outcome, Outcome::Landed { .. }), "{outcome:?}");
    assert_eq!(t.lineage().await, before);
    assert_eq!(*watch.carried.lock().unwrap(), [rows]);
    let head = t.load().await.loaded.metadata.current_snapshot().unwrap().sequence_number();
    let own: Vec<_> = written.outputs.iter().map(|output| output.path.clone()).collect();
    let live = oracle::live(&t.load().await).await.into_iter().filter(|l| l.file.content_type() == DataContentType::PositionDeletes);
    let live: Vec<_> = live.filter(|l| l.file.referenced_data_file().is_some_and(|path| own.contains(&path))).collect();
    assert_eq!(live.iter().map(|l| l.file.record_count()).sum::<u64>(), rows);
    for vector in live {
        assert_eq!((vector.file.file_format(), vector.sequence), (DataFileFormat::Puffin, head));
        assert!(watch.written.lock().unwrap().contains(&vector.file.file_path().to_owned()));
    }
}

/// The product's own rewrite of a plan, proven.
async fn rewritten(t: &Table, plan: &Plan) -> Written {
    let table = t.load().await;
    let written = rewrite::run(&table, plan, &AttemptId("a1".into()), &Watch::default()).await.unwrap();
    verify::run(&table, plan, &written).await.unwrap();
    written
}

fn roomy(plan: Plan) -> Plan {
    Plan { bound: Bound { memory: 256 << 20, ..plan.bound }, ..plan }
}

#[tokio::test]
async fn h26_a_vector_that_takes_the_place_of_a_planned_one_is_carried_over() {
    let (t, files) = table().await;
    let old = t.vectors(&[(&files[0], &[0])]).await.remove(0);
    t.change().add_delete(old.clone()).commit().await;
    let plan = roomy(t.plan_all(&files[0]).await);
    let written = rewritten(&t, &plan).await;
    let new = t.vectors(&[(&files[0], &[0, 1])]).await.remove(0);
    t.change().add_delete(new).remove(&[&old]).commit().await;
    // row 0 was left out already
    lands_carrying(&t, &plan, &written, 1).await;
    assert_eq!(rows(&t.lineage().await), ["20|v|7", "2|v|7", "30|v|8", "3|v|8"]);
    assert_eq!(referred(&t).await, [written.outputs[0].path.clone()]);
    let summary = t.load().await.loaded.metadata.current_snapshot().unwrap().summary().additional_properties.clone();
    let of = |key: &str| summary.get(key).map(String::as_str);
    assert_eq!([of("added-dvs"), of("removed-dvs"), of("added-position-delete-files")], [Some("1"), Some("1"), None]);
    // and the next compaction applies it
    t.append([row(5, "v", 7)]).await;
    let before = t.lineage().await;
    let plan = t.plan_all(&files[0]).await;
    let written = rewrite::run(&t.load().await, &plan, &AttemptId("a2".into()), &Watch::default()).await.unwrap();
    assert!(matches!(t.commit(&plan, &written, "a2").await, Outcome::Landed { .. }));
    assert_eq!((t.lineage().await, referred(&t).await), (before, vec![]));
}

#[tokio::test]
async fn h26_vectors_that_came_meanwhile_are_carried_over_and_their_neighbours_stay() {
    let (t, files) = table().await;
    let plan = roomy(t.plan_all(&files[0]).await);
    let written = rewritten(&t, &plan).await;
    t.delete_by_vectors(&[(&files[0], &[1]), (&files[1], &[0]), (&files[2], &[1])]).await;
    lands_carrying(&t, &plan, &written, 2).await;
    assert_eq!(rows(&t.lineage().await), ["1|v|7", "20|v|7", "3|v|8"]);
    let mut expected = vec![files[2].path.clone(), written.outputs[0].path.clone()];
    expected.sort();
    assert_eq!(referred(&t).await, expected);
}

#[tokio::test]
async fn h26_a_vector_over_position_deletes_of_before_is_carried_over() {
    let t = Table::partitioned_by_p().create().await;
    let first = t.append([row(1, "a", 7), row(2, "b", 7), row(3, "c", 7), row(4, "d", 7)]).await;
    t.append([row(5, "e", 7), row(6, "f", 7)]).await;
    t.change().delete_positions(&[(&first, 0)]).commit().await;
    t.upgrade().await;
    // the upgraded files get their row ids with the next commit
    t.append([row(9, "z", 8)]).await;
    let plan = roomy(t.plan_all(&first).await);
    let written = rewritten(&t, &plan).await;
    t.delete_by_vectors(&[(&first, &[0, 2])]).await;
    let watch = Watch::default();
    let outcome = t.commit_on(&t.load().await, &plan, &written, "a1.1", &watch).await.unwrap();
    assert!(matches!(outcome, Outcome::Landed { .. }), "{outcome:?}");
    assert_eq!(*watch.carried.lock().unwrap(), [1]);
    // the position deletes of before are gone with the file that they were of
    assert_eq!(referred(&t).await, [written.outputs[0].path.clone()]);
    assert_eq!(rows(&t.lineage().await), ["2|b|7", "4|d|7", "5|e|7", "6|f|7", "9|z|8"]);
}

#[tokio::test]
async fn h26_position_deletes_that_somebody_adds_all_the_same_are_carried_over_as_vectors() {
    let (t, files) = table().await;
    let plan = roomy(t.plan_all(&files[0]).await);
    let written = rewritten(&t, &plan).await;
    t.change().delete_positions(&[(&files[0], 1)]).commit().await;
    let watch = Watch::default();
    let outcome = t.commit_on(&t.load().await, &plan, &written, "a1.1", &watch).await.unwrap();
    assert!(matches!(outcome, Outcome::Landed { .. }), "{outcome:?}");
    assert_eq!(*watch.carried.lock().unwrap(), [1]);
    assert_eq!(rows(&t.lineage().await), ["1|v|7", "20|v|7", "2|v|7", "30|v|8", "3|v|8"]);
}

#[tokio::test]
async fn h26_a_vector_that_gives_rows_back_is_a_conflict() {
    let (t, files) = table().await;
    let old = t.vectors(&[(&files[0], &[0])]).await.remove(0);
    t.change().add_delete(old.clone()).commit().await;
    let plan = roomy(t.plan_all(&files[0]).await);
    let written = rewritten(&t, &plan).await;
    // row 0 is back, row 1 is gone
    let new = t.vectors(&[(&files[0], &[1])]).await.remove(0);
    t.change().add_delete(new).remove(&[&old]).commit().await;
    let (head, watch) = (t.head().await, Watch::default());
    let outcome = t.commit_on(&t.load().await, &plan, &written, "a1.1", &watch).await.unwrap();
    assert_eq!(outcome, Outcome::Conflict(Conflict::DeletesChanged { files: vec![files[0].path.clone()] }));
    assert_eq!((t.head().await, watch.carried.lock().unwrap().len()), (head, 0));
}

#[tokio::test]
async fn h26_a_vector_that_tells_of_another_file_carries_nothing() {
    let (t, files) = table().await;
    let plan = roomy(t.plan_all(&files[0]).await);
    let written = rewritten(&t, &plan).await;
    let vectors = t.vectors_that_tell(&[(&files[0], &files[1].path, &[0])]).await;
    t.change().add_delete(vectors[0].clone()).commit().await;
    let head = t.head().await;
    match t.commit_on(&t.load().await, &plan, &written, "a1.1", &Watch::default()).await {
        Err(Error::Refused(refused)) => assert_eq!(refused.refusal, Refusal::Damaged),
        other => panic!("{other:?}"),
    }
    assert_eq!(t.head().await, head);
}

#[tokio::test]
async fn h26_a_vector_takes_the_place_of_the_position_deletes_of_before_and_keys_still_delete() {
    let t = Table::partitioned_by_p().create().await;
    let first = t.append([row(1, "a", 7), row(2, "b", 7), row(3, "c", 7), row(4, "d", 7)]).await;
    let second = t.append([row(5, "e", 7), row(6, "f", 7)]).await;
    t.change().delete_positions(&[(&first, 0), (&second, 0)]).commit().await;
    t.upgrade().await;
    t.delete_by_vectors(&[(&first, &[0, 2])]).await;
    t.change().delete_equal(&["id"], [row(4, "", 7)]).commit().await;
    let plan = t.plan_all(&first).await;
    assert_eq!(plan.inputs.iter().map(|file| file.deletes.len()).collect::<Vec<_>>(), [2, 2]);
    assert!(matches!(outcome(&t, &plan).await, Outcome::Landed { .. }));
    assert_eq!(rows(&t.lineage().await), ["2|b|7", "6|f|7"]);
    let deletes = oracle::live(&t.load().await).await.into_iter().filter(|l| l.file.content_type() != DataContentType::Data);
    assert_eq!(deletes.count(), 0, "nothing is left that covers nothing");
}

#[tokio::test]
async fn h27_a_vector_that_its_own_file_says_is_anothers_is_refused() {
    let (t, files) = table().await;
    let vectors = t.vectors_that_tell(&[(&files[0], &files[1].path, &[0])]).await;
    t.change().add_delete(vectors[0].clone()).commit().await;
    let (table, plan) = (t.load().await, t.plan_all(&files[0]).await);
    let written = rewrite::run(&table, &plan, &AttemptId("a1".into()), &Watch::default()).await.unwrap();
    match verify::run(&table, &plan, &written).await {
        Err(Error::Refused(refused)) => assert_eq!(refused.refusal, Refusal::Damaged),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn h26_two_vectors_on_one_file_are_refused() {
    let (t, files) = table().await;
    for rows in [&[0][..], &[1]] {
        t.delete_by_vectors(&[(&files[0], rows)]).await;
    }
    match afterwrite::lake::iceberg::scope::read(&t.load().await, &files[0].partition).await {
        Err(Error::Refused(refused)) => assert_eq!(refused.refusal, Refusal::Damaged),
        other => panic!("{other:?}"),
    }
}
