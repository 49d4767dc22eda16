//! H26 and H27: a vector is part of its data file. One that came meanwhile is seen,
//! those of a rewritten file go with it, and their neighbours in the same Puffin file
//! stay.

use afterwrite::lake::iceberg::{rewrite, verify};
use afterwrite::lake::{Error, Written};
use afterwrite::model::outcome::{Conflict, Outcome};
use afterwrite::model::plan::{AttemptId, Plan};
use afterwrite::model::refusal::Refusal;
use iceberg::spec::DataContentType;

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

/// A try to commit that is to be planned again, for a file's deletes, and of which no
/// file is begun: the format takes no new position deletes that could follow the rows.
async fn nothing_is_carried(t: &Table, plan: &Plan, written: &Written, file: &File) {
    let (head, watch) = (t.head().await, Watch::default());
    let outcome = t.commit_on(&t.load().await, plan, written, "a1", &watch).await.unwrap();
    assert_eq!(outcome, Outcome::Conflict(Conflict::DeletesChanged { files: vec![file.path.clone()] }));
    assert_eq!(watch.written.lock().unwrap().as_slice(), [""; 0]);
    assert_eq!((watch.points.lock().unwrap().as_slice(), watch.carried.lock().unwrap().as_slice()), (&[][..], &[][..]));
    assert_eq!(t.head().await, head);
}

#[tokio::test]
async fn h26_a_vector_that_takes_the_place_of_a_planned_one_is_a_conflict() {
    let (t, files) = table().await;
    let old = t.vectors(&[(&files[0], &[0])]).await.remove(0);
    t.change().add_delete(old.clone()).commit().await;
    let plan = t.plan_all(&files[0]).await;
    let table = t.load().await;
    let written = rewrite::run(&table, &plan, &AttemptId("a1".into()), &Watch::default()).await.unwrap();
    verify::run(&table, &plan, &written).await.unwrap();
    let new = t.vectors(&[(&files[0], &[0, 1])]).await.remove(0);
    t.change().add_delete(new).remove(&[&old]).commit().await;
    nothing_is_carried(&t, &plan, &written, &files[0]).await;
    let before = t.lineage().await;
    let plan = t.plan_all(&files[0]).await;
    assert!(matches!(outcome(&t, &plan).await, Outcome::Landed { .. }));
    assert_eq!(t.lineage().await, before);
    assert_eq!(rows(&before), ["20|v|7", "2|v|7", "30|v|8", "3|v|8"]);
}

#[tokio::test]
async fn h26_position_deletes_that_somebody_adds_all_the_same_are_not_carried_over() {
    let (t, files) = table().await;
    let plan = t.plan_all(&files[0]).await;
    let written = rewrite::run(&t.load().await, &plan, &AttemptId("a1".into()), &Watch::default()).await.unwrap();
    t.change().delete_positions(&[(&files[0], 1)]).commit().await;
    nothing_is_carried(&t, &plan, &written, &files[0]).await;
}

#[tokio::test]
async fn h26_a_vector_that_came_meanwhile_is_a_conflict() {
    let (t, files) = table().await;
    let plan = t.plan_all(&files[0]).await;
    let table = t.load().await;
    let written = rewrite::run(&table, &plan, &AttemptId("a1".into()), &Watch::default()).await.unwrap();
    t.delete_by_vectors(&[(&files[1], &[0])]).await;
    nothing_is_carried(&t, &plan, &written, &files[1]).await;
    let before = t.lineage().await;
    let plan = t.plan_all(&files[0]).await;
    assert!(matches!(outcome(&t, &plan).await, Outcome::Landed { .. }));
    assert_eq!(t.lineage().await, before);
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
