//! Branches beside `main`: what is kept of each, and what goes wrong on one.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use afterwrite::act::{JobState, Journal, Query, Verdict};
use afterwrite::decide::plan::{Cause, Order, plans};
use afterwrite::lake::Format;
use afterwrite::lake::iceberg::catalog::memory::Fault;
use afterwrite::lake::iceberg::lake::Lake;
use afterwrite::model::decision::Reason;
use afterwrite::model::partition::PartitionKey;
use afterwrite::model::plan::Plan;
use afterwrite::model::policy::{BudgetLimits, Policy};
use afterwrite::replay::exact::Replay;
use afterwrite::replay::play::{Setup, play};
use afterwrite::replay::read;
use afterwrite::replay::recorder::Recorder;
use afterwrite::replay::totals::{Recorded, Totals};
use afterwrite::replay::trace::Tracer;
use afterwrite::serve::backend::Backend;

use super::world::{World, append_small, event, rows};
use crate::fixture::{Table, behind, oracle};

/// Both branches act, and rest for an hour after a rewrite.
fn world() -> World {
    World::new("[defaults]\nact = true\ntarget_file_size = \"1MiB\"\ncooldown = \"1h\"\nbranches = [\"main\", \"audit\"]\n")
}

/// Nine small files on main, and nine more on a branch of it.
async fn given(world: &World) -> Table {
    let table = world.table(Table::plain(), "t").await;
    append_small(&table, 0, 9, 0).await;
    table.set_branch("audit", table.head().await).await;
    for id in 100..109 {
        table.change().branch("audit").append(rows([id], 0)).commit().await;
    }
    table
}

async fn both(table: &Table) -> [Vec<String>; 2] {
    [oracle::rows(&table.load().await).await, oracle::rows(&table.load_branch("audit").await).await]
}

/// A plan of all files of the branch.
async fn plan(world: &World, table: &Table) -> Plan {
    let lake = Lake::new([behind::port(&world.catalog).await]);
    let loaded = lake.load(&table.name, "audit").await.unwrap().unwrap();
    let view = loaded.view();
    let policy = Policy { tier_files: 2, ..Policy::default() };
    let (limits, cause) = (BudgetLimits::default(), Cause::Request);
    let order = Order { table: view.ident, name: &table.name, reference: "audit", policy: &policy, limits: &limits, cause: &cause };
    plans(&order, &loaded.scope(&PartitionKey::unpartitioned(0)).await.unwrap()).unwrap().remove(0)
}

#[tokio::test]
async fn each_branch_is_known_over_a_restart_and_rests_by_itself() {
    let world = world();
    let table = given(&world).await;
    let rows_before = both(&table).await;
    let process = world.start().await;
    process.look_at(&table).await;
    assert_eq!((process.seen.rewrites(), both(&table).await), (2, rows_before));
    let reason = async |process: &super::world::Process, branch: &str| {
        let told = process.ooda.why_on(&table.name, branch, None).await.unwrap();
        assert_eq!((told.len(), &*told[0].branch), (1, branch));
        told[0].decision.verdict.clone()
    };
    process.stop().await;

    let process = world.start().await;
    process.ooda.hear(event(&table.name, &[], 0));
    process.rest().await;
    assert_eq!(process.seen.manifests.load(Ordering::SeqCst), 0);
    for branch in ["main", "audit"] {
        let verdict = reason(&process, branch).await;
        assert!(matches!(verdict, afterwrite::model::decision::Verdict::Not { reason: Reason::CoolingDown { .. } }), "{verdict:?}");
    }
    process.stop().await;
}

#[tokio::test]
async fn a_branch_that_rests_lets_another_be_rewritten_over_a_restart_too() {
    let world = world();
    let table = world.table(Table::plain(), "t").await;
    // given a rewrite of one branch, where main has one file
    table.append(rows([0], 0)).await;
    table.set_branch("audit", table.head().await).await;
    for id in 100..109 {
        table.change().branch("audit").append(rows([id], 0)).commit().await;
    }
    let process = world.start().await;
    process.look_at(&table).await;
    assert_eq!(process.seen.rewrites(), 1);
    process.stop().await;
    // when main gets small files, and the branch too
    append_small(&table, 200, 9, 0).await;
    for id in 300..309 {
        table.change().branch("audit").append(rows([id], 0)).commit().await;
    }
    let before = both(&table).await;
    let process = world.start().await;
    process.look_at(&table).await;
    // then main alone is rewritten
    let files = async |branch: &str| oracle::live(&table.load_branch(branch).await).await.len();
    assert_eq!((process.seen.rewrites(), files("main").await, files("audit").await), (1, 1, 10));
    assert_eq!(both(&table).await, before);
    process.stop().await;
}

#[tokio::test]
async fn an_event_about_a_branch_that_is_looked_after_marks_the_table_once() {
    let world = world();
    let table = given(&world).await;
    let process = world.idle().await;
    let on = |branch: &str| afterwrite::model::event::Event { reference: Some(branch.into()), ..event(&table.name, &[], 0) };
    assert_eq!(process.ooda.hear(on("audit")).note, "");
    assert_eq!(process.ooda.hear(on("main")).note, "");
    assert_eq!(process.ooda.hear(on("dev")).note, "branch `dev` is not looked after: only `main` and `audit` are");
    assert_eq!(process.inbox.depth().pending, 1);
    // one load is for both
    let head = table.load_branch("audit").await.view.head.unwrap();
    let looked = process.ooda.look(&table.name, "audit", &[head]).await.unwrap();
    assert_eq!((looked.unseen, process.seen.loads()), (vec![], 1));
    for (branch, files) in [("main", 9), ("audit", 18)] {
        assert_eq!(process.ooda.get_layout(&table.name, branch).await.unwrap().traits.data_files, files);
    }
    process.stop().await;
}

#[tokio::test]
async fn what_becomes_of_a_commit_to_a_branch_is_known_from_the_branch() {
    for fault in [Some(Fault::AppliedThenUnknown), Some(Fault::UnknownNotApplied), None] {
        let world = world();
        let table = Arc::new(given(&world).await);
        let before = (both(&table).await, table.head().await);
        let plan = plan(&world, &table).await;
        let (act, _) = world.command().await;
        match &fault {
            Some(fault) => world.catalog.fail_next(fault.clone()),
            // a writer of the branch is faster
            None => {
                let (catalog, table) = (world.catalog.clone(), Arc::clone(&table));
                world.catalog.before_swap(Some(Arc::new(move |_| {
                    let (catalog, table) = (catalog.clone(), Arc::clone(&table));
                    Box::pin(async move {
                        catalog.before_swap(None);
                        table.change().branch("audit").append(rows([500], 0)).commit().await;
                    })
                })));
            }
        }
        let writer = async {
            // a commit whose outcome is open is told once the branch has moved
            if fault == Some(Fault::UnknownNotApplied) {
                let is_open =
                    async || world.journal.jobs(Query::Unfinished).await.unwrap().iter().any(|job| job.state == JobState::Resolving);
                while !is_open().await {
                    tokio::time::sleep(std::time::Duration::from_millis(2)).await;
                }
                table.change().branch("audit").append(rows([500], 0)).commit().await;
            }
        };
        let run = async {
            let mut run = Box::pin(act.run(&plan, None));
            loop {
                tokio::select! {
                    result = &mut run => return result,
                    () = tokio::time::sleep(std::time::Duration::from_millis(1)) => world.clock.pass(20),
                }
            }
        };
        let (result, ()) = tokio::join!(run, writer);
        assert_eq!(result.verdict, Verdict::Committed, "{fault:?}");
        assert_eq!((result.numbers.branch.as_str(), result.numbers.conflicts), ("audit", u32::from(fault.is_none())));
        let job = world.journal.jobs(Query::Latest(1)).await.unwrap().remove(0);
        assert_eq!((job.state, job.plan.reference.as_str()), (JobState::Committed, "audit"));
        let mut after = (both(&table).await, table.head().await);
        after.0[1].retain(|row| !row.starts_with("500|"));
        assert_eq!(after, before, "{fault:?}");
        let view = table.load_branch("audit").await.view;
        assert!(view.snapshots[&result.numbers.snapshot_id.unwrap()].attempt.is_some());

        // and back again, on that branch alone
        if fault == Some(Fault::AppliedThenUnknown) {
            let undone = act.undo(&result.job.unwrap()).await.unwrap();
            assert_eq!((undone.verdict, undone.numbers.branch.as_str()), (Verdict::Committed, "audit"));
            assert_eq!(table.load_branch("audit").await.view.head, Some(plan.snapshot_id));
            assert_eq!((both(&table).await, table.head().await), before);
        }
        act.leave().await.unwrap();
    }
}

#[tokio::test]
async fn what_another_branch_may_name_is_not_told_to_be_free() {
    let world = world();
    let table = given(&world).await;
    // given a branch that went on from files that main then replaces
    let process = world.start().await;
    process.ooda.hear(event(&table.name, &[], 0));
    process.rest().await;
    let kept = async || {
        let kept = world.journal.kept().await.unwrap();
        kept.into_iter().map(|k| k.branch).collect::<Vec<_>>()
    };
    let mut both_kept = kept().await;
    both_kept.sort();
    assert_eq!(both_kept, ["", "audit"]);
    // when all that main listed before its rewrite has expired
    let view = table.load().await.view;
    let audit = table.load_branch("audit").await.view.head.unwrap();
    let parent = view.snapshots[&audit].parent.unwrap();
    let old: Vec<i64> = view.snapshots.keys().copied().filter(|id| ![view.head.unwrap(), audit, parent].contains(id)).collect();
    table.expire(&old).await;
    process.ooda.hear(event(&table.name, &[], 0));
    process.rest().await;
    // then the branch's snapshots may still name them
    let mut still = kept().await;
    still.sort();
    assert_eq!(still, ["", "audit"]);
    // until it is gone with them
    table.remove_ref("audit").await;
    table.expire(&[audit, parent]).await;
    process.ooda.hear(event(&table.name, &[], 0));
    process.rest().await;
    assert!(!kept().await.contains(&String::new()));
    process.stop().await;
}

#[tokio::test]
async fn a_recording_of_two_branches_is_decided_again_as_it_was() {
    let world = world();
    let table = given(&world).await;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("record.jsonl");
    let recorder = Recorder::open(&path, 1 << 30, world.settings.ranking, world.settings.prices.clone()).unwrap();
    let process = world.start_recorded(recorder).await;
    process.look_at(&table).await;
    assert_eq!(process.seen.rewrites(), 2);
    process.stop().await;
    let (mut replay, mut tracer, mut recorded) = (Replay::default(), Tracer::default(), Recorded::default());
    read::each(&path, |line| {
        replay.line(&line);
        tracer.line(&line);
        recorded.line(&line);
    })
    .unwrap();
    let exact = replay.end();
    assert_eq!((exact.differing, exact.differences), (0, vec![]));
    // the model plays both: 9 files become one, and 18 on the branch
    let trace = tracer.end();
    let did = |totals: Totals| (totals.jobs, totals.lost, totals.files_dropped, totals.files_at_end);
    assert_eq!(trace.tables.iter().map(|t| t.branch.as_deref()).collect::<Vec<_>>(), [None, Some("audit")]);
    assert_eq!(did(play(&trace, &Setup::of(&trace))), (2, 0, 25, 2));
    assert_eq!(did(recorded.end()), (2, 0, 25, 2));
    let text = std::fs::read_to_string(&path).unwrap();
    let of = |kind: &str| text.lines().filter(|line| line.starts_with(&format!("{{\"{kind}\""))).count();
    let on = |kind: &str| text.lines().filter(|l| l.starts_with(&format!("{{\"{kind}\"")) && l.contains("\"audit\"")).count();
    assert_eq!((of("job"), on("job")), (2, 1));
    assert!(on("judged") > 0 && on("judged") < of("judged"));
}
