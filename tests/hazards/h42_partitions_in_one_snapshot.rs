//! Rewrites of several partitions land in one snapshot, each validated by itself: who does
//! not fit falls out, and the rows of all stay as they are.

use afterwrite::lake::Written;
use afterwrite::lake::iceberg::{commit, rewrite, verify};
use afterwrite::model::outcome::{Conflict, Outcome, Resolution};
use afterwrite::model::plan::{ATTEMPT_KEY, AttemptId, Bound, Plan};
use iceberg::spec::{DataContentType, ManifestStatus, Transform};

use crate::fixture::{File, Spec, Table, Watch, oracle, row};

/// Two files in each of three partitions, of which an equality delete of all partitions
/// deletes one row each.
async fn partitions(spec: Spec) -> (Table, Vec<[File; 2]>) {
    let t = spec.create().await;
    let mut files = vec![];
    for p in 1..=3 {
        let first = t.append([row(1, "gone", p), row(10 * p, "a", p)]).await;
        let second = t.append([row(10 * p + 1, "b", p), row(10 * p + 2, "c", p)]).await;
        files.push([first, second]);
    }
    let all = t.evolve_spec(&[]).await;
    t.change().delete_equal_under(all, &["id"], [row(1, "", 0)]).commit().await;
    assert_eq!(t.evolve_spec(&[("p", "p", Transform::Identity)]).await, 0);
    (t, files)
}

async fn rewritten(t: &Table, files: &[File; 2]) -> (Plan, Written) {
    let plan = t.plan_all(&files[0]).await;
    assert_eq!(plan.inputs.len(), 2);
    let written = t.naive_rewrite(&plan).await;
    (plan, written)
}

/// By the product's own rewrite, which keeps row ids.
async fn made(t: &Table, like: &File, attempt: &str) -> (Plan, Written) {
    let plan = t.plan_all(like).await;
    let plan = Plan { bound: Bound { memory: 256 << 20, ..plan.bound }, ..plan };
    let table = t.load().await;
    let written = rewrite::run(&table, &plan, &AttemptId(attempt.into()), &Watch::default()).await.unwrap();
    verify::run(&table, &plan, &written).await.unwrap();
    (plan, written)
}

async fn deletes(t: &Table) -> usize {
    let live = oracle::live(&t.load().await).await;
    live.iter().filter(|l| l.file.content_type() != DataContentType::Data).count()
}

async fn summary(t: &Table, key: &str) -> Option<String> {
    t.load().await.loaded.metadata.current_snapshot().unwrap().summary().additional_properties.get(key).cloned()
}

fn landed(told: &afterwrite::lake::Result<Outcome>) -> i64 {
    match told {
        Ok(Outcome::Landed { snapshot_id }) => *snapshot_id,
        other => panic!("{other:?}"),
    }
}

fn specs() -> [Spec; 2] {
    [Table::partitioned_by_p().past(), Table::partitioned_by_p().v3().past()]
}

#[tokio::test]
async fn h42_partitions_that_land_together_take_the_delete_of_all_of_them_along() {
    for spec in specs() {
        let (t, files) = partitions(spec).await;
        let (a, b, c) = (rewritten(&t, &files[0]).await, rewritten(&t, &files[1]).await, rewritten(&t, &files[2]).await);
        let (before, count) = (t.rows().await, t.load().await.loaded.metadata.snapshots().count());
        let watches = [Watch::default(), Watch::default(), Watch::default()];
        let parts = [(&a.0, &a.1, "a.1", &watches[0]), (&b.0, &b.1, "b.1", &watches[1]), (&c.0, &c.1, "c.2", &watches[2])];
        let told = t.commit_joined(&parts).await;

        let head = t.head().await;
        assert_eq!(told.iter().map(landed).collect::<Vec<_>>(), [head; 3]);
        assert_eq!((t.rows().await, t.rows_by_path().await), (before.clone(), before));
        let table = t.load().await;
        assert_eq!(table.loaded.metadata.snapshots().count(), count + 1);
        assert_eq!(summary(&t, ATTEMPT_KEY).await.as_deref(), Some("a.1 b.1 c.2"));
        assert_eq!(deletes(&t).await, 0, "one by one the last would have taken it");
        let of = [summary(&t, "changed-partition-count").await, summary(&t, "added-data-files").await];
        assert_eq!(of, [Some("3".into()), Some("3".into())]);
        let of = [summary(&t, "deleted-data-files").await, summary(&t, "removed-equality-delete-files").await];
        assert_eq!(of, [Some("6".into()), Some("1".into())]);
        // every attempt was told that it asks, of the same base, and finds itself
        let asserted: Vec<_> = watches.iter().map(|w| w.asserted.lock().unwrap().clone()).collect();
        assert!(asserted[0].len() == 1 && asserted.iter().all(|told| *told == asserted[0]), "{asserted:?}");
        for attempt in ["a.1", "b.1", "c.2"] {
            let found = commit::find_attempt(&table, &AttemptId(attempt.into()), &asserted[0][0]);
            assert_eq!(found, Resolution::Landed { snapshot_id: head }, "{attempt}");
        }
        assert_eq!(commit::find_attempt(&table, &AttemptId("c.1".into()), &asserted[0][0]), Resolution::NotLanded);
        // metadata files belong to the first of them
        let written: Vec<_> = watches.iter().map(|w| w.written.lock().unwrap().len()).collect();
        assert!(written[0] > 0 && written[1..] == [0, 0], "{written:?}");
    }
}

#[tokio::test]
async fn h42_who_does_not_fit_falls_out_and_newer_deletes_of_the_others_are_carried_over() {
    for spec in [Table::partitioned_by_p(), Table::partitioned_by_p().past()] {
        let (t, files) = partitions(spec).await;
        let (a, b, c) = (made(&t, &files[0][0], "a.0").await, made(&t, &files[1][0], "b.0").await, made(&t, &files[2][0], "c.0").await);
        t.change().remove(&[&files[0][0]]).append_under(0, [row(10, "moved", 1)]).commit().await;
        t.change().delete_positions(&[(&files[1][1], 0)]).commit().await;
        t.change().delete_positions(&[(&files[2][0], 1)]).commit().await;
        let before = t.rows().await;
        let watches = [Watch::default(), Watch::default(), Watch::default()];
        let parts = [(&a.0, &a.1, "a.1", &watches[0]), (&b.0, &b.1, "b.1", &watches[1]), (&c.0, &c.1, "c.1", &watches[2])];
        let told = t.commit_joined(&parts).await;

        match &told[0] {
            Ok(Outcome::Conflict(Conflict::InputGone { files: gone })) => assert_eq!(*gone, [files[0][0].path.clone()]),
            other => panic!("{other:?}"),
        }
        assert_eq!(landed(&told[1]), landed(&told[2]));
        assert_eq!(t.rows().await, before);
        assert_eq!(summary(&t, ATTEMPT_KEY).await.as_deref(), Some("b.1 c.1"));
        // what carries the deletes over is each one's own; metadata files are not those of the
        // first, whose files are removed now
        let counts: Vec<_> = watches.iter().map(|w| (w.asserted.lock().unwrap().len(), w.carried.lock().unwrap().clone())).collect();
        assert_eq!(counts, [(0, vec![]), (1, vec![1]), (1, vec![1])]);
        let of = |n: usize, part: &str| watches[n].written.lock().unwrap().iter().filter(|f| f.contains(part)).count();
        assert_eq!([of(0, "/"), of(1, "-deletes"), of(2, "-deletes")], [0, 1, 1]);
        assert_eq!((of(2, "/metadata/"), of(1, "/metadata/") > 0), (0, true));
        // the equality delete stays for the file that stays
        assert_eq!(deletes(&t).await, 3);
        let head = t.load().await;
        let entries = oracle::entries(&head).await;
        let added =
            entries.iter().filter(|(_, e)| e.status() == ManifestStatus::Added && e.snapshot_id() == Some(landed(&told[1]))).count();
        assert_eq!(added, 4, "two outputs and what they carry");
        for (n, file) in files[1..].iter().flatten().enumerate() {
            assert!(oracle::live(&head).await.iter().all(|l| l.file.file_path() != file.path), "{n}");
        }
        let (plan, written) = made(&t, &files[0][1], "d.0").await;
        landed(&Ok(t.commit(&plan, &written, "d.1").await));
        assert_eq!(t.rows().await, before);
        assert_eq!(deletes(&t).await, 2, "the carried ones");
    }
}

/// In format 3 by vectors, and with the lineage of each row kept.
#[tokio::test]
async fn h42_newer_vectors_of_several_are_carried_over_in_one_snapshot() {
    let t = Table::partitioned_by_p().v3().create().await;
    let mut files = vec![];
    for p in 1..=3 {
        files.push([t.append([row(10 * p, "a", p), row(10 * p + 1, "b", p)]).await, t.append([row(10 * p + 2, "c", p)]).await]);
    }
    let (a, b, c) = (made(&t, &files[0][0], "a.0").await, made(&t, &files[1][0], "b.0").await, made(&t, &files[2][0], "c.0").await);
    t.delete_by_vectors(&[(&files[0][0], &[1]), (&files[2][0], &[0])]).await;
    let before = t.lineage().await;
    assert_eq!(before.len(), 7);
    let watch = Watch::default();
    let told = t.commit_joined(&[(&a.0, &a.1, "a.1", &watch), (&b.0, &b.1, "b.1", &watch), (&c.0, &c.1, "c.1", &watch)]).await;
    assert_eq!(told.iter().map(landed).collect::<Vec<_>>(), [t.head().await; 3]);
    assert_eq!((t.lineage().await, deletes(&t).await), (before, 2));
    assert_eq!(*watch.carried.lock().unwrap(), [1, 0, 1]);
    assert_eq!(summary(&t, "added-dvs").await.as_deref(), Some("2"));
}

/// Outputs carry the sequence number of their plan: a delete of all partitions that came after
/// one of the plans reaches its outputs, and stays.
#[tokio::test]
async fn h42_a_delete_that_came_after_one_of_the_plans_stays_for_its_outputs() {
    for spec in specs() {
        let (t, files) = partitions(spec).await;
        let a = rewritten(&t, &files[0]).await;
        let all = t.evolve_spec(&[]).await;
        t.change().delete_equal_under(all, &["id"], [row(10, "", 0), row(20, "", 0)]).commit().await;
        let (b, c) = (rewritten(&t, &files[1]).await, rewritten(&t, &files[2]).await);
        let before = t.rows().await;
        let watch = Watch::default();
        let told = t.commit_joined(&[(&b.0, &b.1, "b.1", &watch), (&a.0, &a.1, "a.1", &watch), (&c.0, &c.1, "c.1", &watch)]).await;
        assert_eq!(told.iter().map(landed).collect::<Vec<_>>(), [t.head().await; 3]);
        assert_eq!(t.rows().await, before);
        assert!(!before.iter().any(|row| row.starts_with("10|") || row.starts_with("20|")), "{before:?}");
        assert_eq!(deletes(&t).await, 1, "the older one goes");
    }
}

#[tokio::test]
async fn h42_specs_may_differ_and_one_partition_is_in_a_snapshot_once() {
    for spec in specs() {
        let (t, files) = partitions(spec).await;
        let bucket = t.evolve_spec(&[("id", "id_bucket", Transform::Bucket(2))]).await;
        let other = [t.append([row(40, "x", 9)]).await, t.append([row(40, "y", 9)]).await];
        assert_eq!(other[0].partition.spec_id, bucket);
        let (a, b) = (rewritten(&t, &files[0]).await, rewritten(&t, &other).await);
        let again = t.plan_files(&[&files[0][1]]).await;
        let twice = (t.naive_rewrite(&again).await, again);
        let before = t.rows().await;
        let watch = Watch::default();
        let told = t.commit_joined(&[(&a.0, &a.1, "a.1", &watch), (&b.0, &b.1, "b.1", &watch), (&twice.1, &twice.0, "c.1", &watch)]).await;
        assert_eq!(landed(&told[0]), landed(&told[1]));
        assert!(matches!(told[2], Err(afterwrite::lake::Error::Unreachable { .. })), "{:?}", told[2]);
        assert_eq!(t.rows().await, before);
        assert_eq!(summary(&t, ATTEMPT_KEY).await.as_deref(), Some("a.1 b.1"));
    }
}
