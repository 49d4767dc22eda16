//! Without trouble, and with the trouble that a plan itself can be in.

use std::sync::{Arc, Mutex};

use afterwrite::act::{JobState, Journal, Pause, Progress, Query, Verdict};
use afterwrite::model::outcome::Conflict;
use afterwrite::model::plan::Path;

use super::fake::{Fault, Foreign};
use super::world::World;

#[tokio::test]
async fn a_plan_becomes_a_snapshot_with_the_same_rows() {
    let world = World::new(4);
    world.lake.with(|s| s.delete_row(false));
    let act = world.act().await;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let watcher = {
        let seen = Arc::clone(&seen);
        Arc::new(move |p: Progress| seen.lock().unwrap().push((p.rows, p.proven)))
    };
    let result = act.run(&world.lake.plan(4), Some(watcher)).await;
    assert_eq!(result.verdict, Verdict::Committed);
    let n = &result.numbers;
    assert_eq!((n.files_in, n.files_out, n.bytes_in, n.bytes_out), (4, 2, 40, 44));
    assert_eq!((n.rows_in, n.rows_out, n.rows_deleted), (12, 11, 1));
    assert_eq!((n.tries, n.conflicts, n.wasted_bytes, n.path), (1, 0, 0, Some(Path::ReEncode)));
    assert_eq!((n.millis, n.gb_hours), (40, 40.0 / 3_600_000.0));
    assert_eq!(n.proof.as_ref().map(|p| p.rows), Some(11));
    assert_eq!(*seen.lock().unwrap(), vec![(2, false), (5, false), (8, false), (11, false), (11, true)]);
    assert_eq!(world.lake.with(|s| s.data_files()), 2);
    let job = world.journal.job(result.job.as_ref().unwrap()).await.unwrap().unwrap();
    assert_eq!((job.state, job.numbers), (JobState::Committed, n.clone()));
    assert!(world.journal.all_files().is_empty());
    let kept = world.journal.kept().await.unwrap();
    assert_eq!(kept.iter().map(|k| (k.snapshot_id, k.bytes)).collect::<Vec<_>>(), vec![(n.snapshot_id.unwrap(), 40)]);
    world.settle().await;
}

#[tokio::test]
async fn the_result_is_one_flat_object() {
    let world = World::new(2);
    let result = world.act().await.run(&world.lake.plan(2), None).await;
    let json = serde_json::to_value(&result).unwrap();
    assert_eq!(json["verdict"], "committed");
    assert_eq!(json["path"], "re-encode");
    assert_eq!(json["rows_in"], 6);
    assert_eq!(json["snapshot_id"], result.numbers.snapshot_id.unwrap());
    assert_eq!(json["attempt"], format!("{}.1", result.job.unwrap().0));
}

#[tokio::test]
async fn no_file_is_in_two_jobs_at_once() {
    let world = World::new(3);
    let act = world.act().await;
    let _lease = act.leases().take(&world.lake.plan(1)).unwrap();
    let result = act.run(&world.lake.plan(2), None).await;
    assert_eq!((result.verdict, result.job), (Verdict::Busy, None));
    assert_eq!(world.journal.jobs(Query::Latest(9)).await.unwrap(), vec![]);
}

#[tokio::test]
async fn a_paused_table_is_left_alone_unless_it_is_asked_for() {
    let world = World::new(3);
    let act = world.act().await;
    let pause = Pause { table: None, label: "all".into(), at_ms: 0 };
    world.journal.pause(&pause).await.unwrap();
    assert_eq!(act.run(&world.lake.plan(3), None).await.verdict, Verdict::Paused);
    let mut by_hand = world.lake.plan(3);
    by_hand.reason = "request".into();
    assert_eq!(act.run(&by_hand, None).await.verdict, Verdict::Committed);
}

#[tokio::test]
async fn a_job_past_its_bound_is_stopped_and_its_files_removed() {
    let world = World::new(4);
    world.lake.with(|s| s.rewrite_ms = 1_000);
    let mut plan = world.lake.plan(4);
    plan.bound.millis = 2_500;
    let result = world.act().await.run(&plan, None).await;
    assert_eq!(result.verdict, Verdict::Stopped { error: "stopped: the job's bound of 2 s is reached".into() });
    assert_eq!(result.numbers.wasted_bytes, 30);
    world.settle().await;
}

#[tokio::test]
async fn a_clock_that_is_set_neither_stops_a_job_nor_makes_it_dear() {
    for millis in [86_400_000, -100_000] {
        let world = World::new(4);
        let clock = Arc::clone(&world.clock);
        let watcher = Arc::new(move |_: Progress| clock.set_ahead(millis));
        let result = world.act().await.run(&world.lake.plan(4), Some(watcher)).await;
        assert_eq!((result.verdict, result.numbers.millis), (Verdict::Committed, 40));
        assert_eq!(result.numbers.gb_hours, 40.0 / 3_600_000.0);
    }
}

#[tokio::test]
async fn a_job_is_cancelled_from_another_process() {
    let world = World::new(4);
    world.lake.with(|s| s.rewrite_ms = 10_000);
    let act = world.act().await;
    let journal = world.journal.clone();
    let watcher = Arc::new(move |_: Progress| {
        let journal = Arc::clone(&journal);
        futures::executor::block_on(async move {
            let job = journal.jobs(Query::Unfinished).await.unwrap().remove(0);
            assert!(journal.ask_cancel(&job.id).await.unwrap());
        });
    });
    let result = act.run(&world.lake.plan(4), Some(watcher)).await;
    assert_eq!(result.verdict, Verdict::Cancelled);
    let job = world.journal.job(&result.job.unwrap()).await.unwrap().unwrap();
    assert_eq!(job.state, JobState::Cancelled);
    assert!(!world.journal.ask_cancel(&job.id).await.unwrap());
    world.settle().await;
}

#[tokio::test]
async fn a_rewrite_that_is_not_proven_is_never_committed() {
    let world = World::new(4);
    world.lake.with(|s| s.disproved = true);
    let result = world.act().await.run(&world.lake.plan(4), None).await;
    assert_eq!(result.verdict, Verdict::Disproved { error: "the proof failed, nothing was committed: rows differ".into() });
    assert_eq!(world.lake.with(|s| s.data_files()), 4);
    assert_eq!(result.numbers.wasted_bytes, 48);
    world.settle().await;
}

#[tokio::test]
async fn a_file_that_the_rewrite_did_not_hand_over_goes_although_the_outputs_land() {
    let world = World::new(4);
    world.lake.with(|s| {
        s.spare = true;
        s.removals_fail = 1;
    });
    let result = world.act().await.run(&world.lake.plan(4), None).await;
    assert_eq!(result.verdict, Verdict::Committed);
    let spare = format!("mem://lake/t/data/{}.0-9.parquet", result.job.unwrap().0);
    assert!(world.lake.with(|s| s.store.contains_key(&spare)));
    world.settle().await;
    assert!(!world.lake.with(|s| s.store.contains_key(&spare)));
}

#[tokio::test]
async fn an_output_that_was_not_named_is_never_committed() {
    let world = World::new(2);
    world.lake.with(|s| s.unnamed = true);
    let result = world.act().await.run(&world.lake.plan(2), None).await;
    assert!(matches!(&result.verdict, Verdict::Failed { error } if error.ends_with("without naming it first")), "{:?}", result.verdict);
    assert_eq!(world.lake.with(|s| s.data_files()), 2);
}

#[tokio::test]
async fn a_row_deleted_during_the_rewrite_stays_deleted() {
    let world = World::new(4);
    world.lake.with(|s| s.before_commit.push_back(Foreign::DeleteOldRow));
    world.lake.with(|s| s.faults.push_back(Fault::None));
    let result = world.act().await.run(&world.lake.plan(4), None).await;
    let Verdict::Replan { conflict: Conflict::DeletesChanged { files }, max_bytes } = &result.verdict else {
        panic!("{:?}", result.verdict);
    };
    assert_eq!(
        (files.len(), *max_bytes, result.numbers.conflicts),
        (1, Some(20), 2),
        "the swap lost to the delete, the next load showed it"
    );
    world.settle().await;
}

#[tokio::test]
async fn what_replaced_files_cost_is_known_until_their_snapshots_expire() {
    let world = World::new(3);
    let act = world.act().await;
    assert_eq!(act.run(&world.lake.plan(3), None).await.verdict, Verdict::Committed);
    let table = afterwrite::lake::Format::load(&world.lake, &super::fake::name(), "main").await.unwrap().unwrap();
    let mut view = table.view().clone();
    act.forget_expired(&view).await.unwrap();
    assert_eq!(world.journal.kept().await.unwrap().len(), 1);
    let head = view.head.unwrap();
    view.snapshots.retain(|id, _| *id == head);
    act.forget_expired(&view).await.unwrap();
    assert_eq!(world.journal.kept().await.unwrap(), vec![]);
}
