//! A commit is heard, judged, compacted and learned from.

use std::sync::Arc;

use afterwrite::model::decision::{Reason, Verdict};
use afterwrite::model::event::Heard;
use afterwrite::model::ident::MAIN;
use afterwrite::model::plan::Path;
use afterwrite::serve::backend::{Answer, Backend, Explained};

use super::world::{ACTING, World, append_small, data_files, event, snapshots};
use crate::fixture::{Table, row};

fn rule(verdict: &Verdict) -> Option<&str> {
    match verdict {
        Verdict::Now { rule, .. } => Some(rule),
        _ => None,
    }
}

#[tokio::test]
async fn a_reported_commit_is_compacted_at_once_and_every_row_stays() {
    let world = World::new(ACTING);
    let table = world.table(Table::partitioned_by_p(), "t").await;
    append_small(&table, 0, 9, 7).await;
    append_small(&table, 100, 2, 8).await;
    let before = table.rows().await;
    let process = world.start().await;
    let mut watch = process.ooda.watch();
    // when the last commit is reported
    let answer = process.report(&table).await;
    process.rest().await;
    // then the full partition is one file, the other as it was, and no row is lost
    assert_eq!(answer, Answer { heard: Heard::Accepted, note: String::new() });
    assert_eq!(table.rows().await, before);
    assert_eq!((data_files(&table).await, snapshots(&table).await), (3, 12));
    world.layout_is_right(&process, &table).await;
    process.nothing_is_stuck(&world).await;
    // and the decision is told to who watches, and kept with its checks
    let mut told: Vec<Arc<Explained>> = Vec::new();
    while let Ok(next) = watch.try_recv() {
        told.push(next);
    }
    let fired = told.iter().find(|e| rule(&e.decision.verdict) == Some("small-files")).unwrap();
    assert_eq!((fired.label.as_str(), fired.decision.act), ("p=7", true));
    let why = process.ooda.why(&table.name, Some("p=7")).await.unwrap();
    assert!(matches!(why[0].decision.verdict, Verdict::Not { reason: Reason::CoolingDown { .. } }), "{:?}", why[0].decision.verdict);
    assert!(why.iter().any(|e| e.decision == fired.decision));
    let tier = fired.decision.checks.iter().find(|c| c.name == "small-files.tier").unwrap();
    assert_eq!((tier.value, tier.threshold, tier.passed), (9.0, 8.0, true));
    let other = process.ooda.why(&table.name, Some("p=8")).await.unwrap();
    assert_eq!(other[0].decision.verdict, Verdict::Not { reason: Reason::Healthy });
    // and what the last job did, where there was one
    let last = why[0].last_job.as_ref().unwrap();
    assert_eq!((last.state.as_str(), last.path), ("committed", Some(Path::RePack)));
    assert!(last.path_reason.ends_with("; one schema, no deletes"), "{}", last.path_reason);
    assert_eq!(other[0].last_job, None);
    assert!(process.ooda.why(&table.name, Some("p=9")).await.is_err());
    process.stop().await;
}

#[tokio::test]
async fn without_leave_to_act_nothing_is_written_and_the_advice_is_shown() {
    let world = World::new("[defaults]\ntarget_file_size = \"1MiB\"\n");
    let table = world.table(Table::plain(), "t").await;
    append_small(&table, 0, 9, 0).await;
    let process = world.start().await;
    process.look_at(&table).await;
    process.pass(600_000).await;
    assert_eq!((snapshots(&table).await, process.seen.rewrites()), (9, 0));
    let decision = process.decisions(&table).await.remove(0);
    assert_eq!((rule(&decision.verdict), decision.act), (Some("small-files"), false));
    let candidates = process.ooda.list_candidates(10).await.unwrap();
    assert_eq!(candidates.len(), 1);
    assert_eq!((candidates[0].gain, candidates[0].waits_for.as_str()), (8, "act is off: this is advice"));
    process.stop().await;
}

#[tokio::test]
async fn a_table_property_gives_leave_and_takes_it_back() {
    let world = World::new("[defaults]\ntarget_file_size = \"1MiB\"\n");
    let table = world.table(Table::plain(), "t").await;
    append_small(&table, 0, 9, 0).await;
    let process = world.start().await;
    process.look_at(&table).await;
    assert_eq!(process.seen.rewrites(), 0);
    // when the table's owner switches it on, by nothing but a property
    table.set_property("afterwrite.enabled", "true").await;
    process.poller.once().await.unwrap();
    process.rest().await;
    assert_eq!((process.seen.rewrites(), data_files(&table).await), (1, 1));
    // and off again
    table.set_property("afterwrite.enabled", "false").await;
    append_small(&table, 100, 9, 0).await;
    process.clock_passes(600_000);
    process.look_at(&table).await;
    assert_eq!(process.reason(&table).await, Reason::Disabled);
    assert_eq!((process.seen.rewrites(), data_files(&table).await), (1, 10));
    process.stop().await;
}

#[tokio::test]
async fn leave_taken_back_after_the_decision_holds_before_a_byte_is_read() {
    let world = World::new("[defaults]\ntarget_file_size = \"1MiB\"\n");
    let table = world.table(Table::plain().property("afterwrite.enabled", "true"), "t").await;
    append_small(&table, 0, 9, 0).await;
    let process = world.idle().await;
    // given a decision to compact
    process.ooda.look(&table.name, MAIN, &[]).await.unwrap();
    assert_eq!(process.ooda.list_candidates(1).await.unwrap().len(), 1);
    // when leave is taken back before the job begins
    table.set_property("afterwrite.enabled", "false").await;
    process.ooda.round().await;
    process.until("the job's end", async || process.ooda.health().jobs == 0).await;
    assert_eq!((process.seen.rewrites(), snapshots(&table).await), (0, 9));
}

#[tokio::test]
async fn h70_own_commits_do_not_retrigger() {
    let world = World::new("[defaults]\nact = true\ntarget_file_size = \"1MiB\"\ncooldown = \"0s\"\n");
    let table = world.table(Table::plain(), "t").await;
    append_small(&table, 0, 20, 0).await;
    let process = world.start().await;
    process.look_at(&table).await;
    for _ in 0..5 {
        process.poller.once().await.unwrap();
        process.report(&table).await;
        process.pass(3_600_000).await;
    }
    assert_eq!((process.seen.rewrites(), data_files(&table).await, snapshots(&table).await), (1, 1, 21));
    process.stop().await;
}

#[tokio::test]
async fn h97_deletes_that_apply_to_nothing_are_planned_once_and_then_left_until_a_new_one_comes() {
    let world = World::new("[defaults]\nact = true\ntarget_file_size = \"1KiB\"\ncooldown = \"1s\"\n");
    let table = world.table(Table::plain(), "t").await;
    // given files at their target, and deletes older than all of them
    let wide = |from: i64| (from..from + 60).map(|id| row(id, &format!("{id:>040}"), 0)).collect::<Vec<_>>();
    let old = table.append(wide(0)).await;
    table.change().delete_equal(&["id"], (0..60).map(|id| row(id, "", 0))).commit().await;
    table.change().remove(&[&old]).operation(iceberg::spec::Operation::Delete).commit().await;
    table.append(wide(1000)).await;
    let process = world.start().await;
    process.look_at(&table).await;
    let loads = process.seen.loads();
    for _ in 0..10 {
        process.pass(86_400_000).await;
    }
    // then the first plan found nothing and nothing was planned again
    assert_eq!((process.seen.rewrites(), process.seen.loads() - loads), (0, 0));
    assert_eq!(process.reason(&table).await, Reason::NothingToGain);
    // and a delete that does apply is acted upon
    table.change().delete_equal(&["id"], (1000..1030).map(|id| row(id, "", 0))).commit().await;
    let before = table.rows().await;
    process.look_at(&table).await;
    assert_eq!((process.seen.rewrites(), table.rows().await), (1, before));
    process.stop().await;
}

#[tokio::test]
async fn an_event_of_another_branch_is_answered_with_why_and_not_looked_at() {
    let world = World::new(ACTING);
    let table = world.table(Table::plain(), "t").await;
    append_small(&table, 0, 1, 0).await;
    let process = world.start().await;
    let mut said = event(&table.name, &[1], 0);
    said.reference = Some("audit".into());
    let answer = process.ooda.hear(said);
    assert_eq!(answer.note, "branch `audit` is not looked after: only `main` is");
    process.rest().await;
    assert_eq!(process.seen.loads(), 0);
    assert!(process.ooda.get_layout(&table.name, "audit").await.is_err());
    process.stop().await;
}

#[tokio::test]
async fn a_delete_that_reaches_every_partition_is_judged_in_all_of_them() {
    let world = World::new("[defaults]\ntarget_file_size = \"1KiB\"\ncooldown = \"0s\"\n");
    let table = world.table(Table::partitioned_by_p(), "t").await;
    for p in 0..3 {
        table.append((p * 100..p * 100 + 60).map(|id| row(id, &format!("{id:>040}"), p))).await;
    }
    let process = world.start().await;
    process.look_at(&table).await;
    assert!(process.decisions(&table).await.iter().all(|d| d.verdict == Verdict::Not { reason: Reason::Healthy }));
    // when rows of all partitions are deleted by one file that belongs to none of them
    let everywhere = table.evolve_spec(&[]).await;
    table.change().delete_equal_under(everywhere, &["id"], (0..260).map(|id| row(id, "", 0))).commit().await;
    process.look_at(&table).await;
    let fired = process.decisions(&table).await.iter().filter(|d| rule(&d.verdict) == Some("deletes")).count();
    assert_eq!((fired, process.ooda.list_candidates(10).await.unwrap().len()), (3, 3));
    process.stop().await;
}

#[tokio::test]
async fn a_look_at_a_table_that_stands_still_reads_nothing_and_the_next_commit_is_seen() {
    let world = World::new("[defaults]\ntarget_file_size = \"1MiB\"\n");
    let table = world.table(Table::plain(), "t").await;
    append_small(&table, 0, 9, 0).await;
    let process = world.start().await;
    process.look_at(&table).await;
    let read = |process: &super::world::Process| process.seen.manifests.load(std::sync::atomic::Ordering::SeqCst);
    let (before, unmoved) = (read(&process), process.seen.unmoved.load(std::sync::atomic::Ordering::SeqCst));
    let looked_at = process.ooda.get_layout(&table.name, MAIN).await.unwrap().looked_at_ms;
    process.clock_passes(70_000);
    // as the poller asks for it: what was heard before would be passed over as a duplicate
    process.ooda.look(&table.name, MAIN, &[]).await.unwrap();
    assert_eq!(read(&process), before);
    assert!(process.seen.unmoved.load(std::sync::atomic::Ordering::SeqCst) > unmoved);
    assert!(process.ooda.get_layout(&table.name, MAIN).await.unwrap().looked_at_ms >= looked_at + 70_000);
    assert_eq!(rule(&process.verdict(&table).await), Some("small-files"));
    // a commit is seen by the next look
    append_small(&table, 100, 1, 0).await;
    process.look_at(&table).await;
    assert_eq!(process.ooda.get_layout(&table.name, MAIN).await.unwrap().snapshot_id, Some(table.head().await));
    process.stop().await;
}
