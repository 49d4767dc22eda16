//! Rewrites of several partitions whose commits fall together share a snapshot, and each
//! ends as one that commits alone.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use afterwrite::act::{Act, JobResult, JobState, Journal, KillSwitch, Query, Verdict};
use afterwrite::model::killpoint::KillPoint;
use afterwrite::model::outcome::Conflict;
use afterwrite::model::plan::Plan;

use super::fake::{Fault, Foreign};
use super::world::{Death, World, dying};

/// A table of five partitions of two files each, whose commits take so long that what
/// is done meanwhile waits.
fn world() -> World {
    let world = World::new(10);
    world.lake.with(|s| s.commit_ms = 50);
    world
}

/// Plans of the partitions, in this order.
fn plans<const N: usize>(world: &World, order: [i32; N]) -> Vec<Plan> {
    order.map(|n| world.lake.plan_of(n, 2 * usize::try_from(n).unwrap(), 2)).into()
}

async fn all(act: &Act, plans: &[Plan]) -> Vec<JobResult> {
    futures::future::join_all(plans.iter().map(|plan| act.run(plan, None))).await
}

/// Runs plans in a process that dies where it is told to; `None` when it did.
async fn run(world: &World, plans: Vec<Plan>, death: Death) -> Option<Vec<JobResult>> {
    let act = world.start(dying(death)).await;
    tokio::spawn(async move { all(&act, &plans).await }).await.ok()
}

fn verdicts(results: &[JobResult]) -> Vec<&Verdict> {
    results.iter().map(|r| &r.verdict).collect()
}

fn snapshots(results: &[JobResult]) -> BTreeSet<i64> {
    results.iter().filter_map(|r| r.numbers.snapshot_id).collect()
}

#[tokio::test]
async fn what_waits_while_one_commits_shares_the_next_snapshot() {
    let world = world();
    let results = run(&world, plans(&world, [0, 1, 2, 3, 4]), None).await.unwrap();
    assert_eq!(verdicts(&results), vec![&Verdict::Committed; 5]);
    assert_eq!(world.lake.with(|s| s.asked.clone()), [1, 4]);
    assert_eq!(snapshots(&results).len(), 2);
    let joined: Vec<_> = results.iter().map(|r| r.numbers.joined_to.clone()).collect();
    let lead = results[1].job.clone();
    assert_eq!(joined, [None, None, lead.clone(), lead.clone(), lead]);
    assert!(results.iter().all(|r| (r.numbers.tries, r.numbers.conflicts) == (1, 0)));
    let spent = world.journal.spent(0).await.unwrap();
    assert_eq!(spent.iter().filter(|s| s.commits).count(), 2, "a snapshot that several share is one");
    assert!(world.journal.all_files().is_empty());
    assert_eq!(world.lake.with(|s| s.data_files()), 10);
    world.check();
    world.settle().await;
}

#[tokio::test]
async fn two_rewrites_of_one_partition_do_not_share_a_snapshot() {
    let world = world();
    let both = vec![world.lake.plan_of(0, 0, 2), world.lake.plan_of(1, 2, 2), world.lake.plan_of(1, 4, 2), world.lake.plan_of(2, 6, 2)];
    let results = run(&world, both, None).await.unwrap();
    assert_eq!(verdicts(&results), vec![&Verdict::Committed; 4]);
    assert_eq!(world.lake.with(|s| s.asked.clone()), [1, 2, 1]);
    world.settle().await;
}

/// The first commits alone; the try that the others share meets the fault.
#[tokio::test]
async fn a_fault_of_a_shared_try_meets_each_as_it_would_alone() {
    for fault in Fault::ALL {
        let world = world();
        world.lake.with(|s| {
            s.fences = true;
            s.faults.extend([Fault::None, fault]);
        });
        let results = run(&world, plans(&world, [0, 1, 2, 3]), None).await.unwrap();
        assert_eq!(verdicts(&results), vec![&Verdict::Committed; 4], "{fault:?}");
        let asked = world.lake.with(|s| s.asked.clone());
        let expected = match fault {
            Fault::None | Fault::UnknownLanded | Fault::UnknownLater | Fault::ErrorLanded => vec![1, 3],
            // each comes back after a wait of its own: the first alone, and again the others together
            Fault::Moved => vec![1, 3, 1, 2],
            Fault::UnknownLost | Fault::ErrorBefore | Fault::Rejected => vec![1, 3, 1, 1, 1],
        };
        assert_eq!(asked, expected, "{fault:?}");
        let spent = world.journal.spent(0).await.unwrap();
        assert!(spent.iter().filter(|s| s.commits).count() >= snapshots(&results).len(), "{fault:?}");
        world.check();
        assert!(world.journal.all_files().is_empty(), "{fault:?}");
        world.settle().await;
    }
}

/// By a catalog that has no means to shut a lost request out.
#[tokio::test]
async fn all_stay_unknown_while_the_table_does_not_tell() {
    let world = world();
    world.lake.with(|s| s.faults.extend([Fault::None, Fault::UnknownLost]));
    let results = run(&world, plans(&world, [0, 1, 2, 3]), None).await.unwrap();
    let unknown = results.iter().filter(|r| matches!(r.verdict, Verdict::Unresolved { .. })).count();
    assert_eq!((unknown, &results[0].verdict), (3, &Verdict::Committed));
    let outputs = world.journal.all_files().iter().filter(|f| f.contains("/data/")).count();
    assert_eq!(outputs, 6, "nothing is removed");
    world.check();
    world.settle().await;
    let jobs = world.journal.jobs(Query::Latest(9)).await.unwrap();
    assert_eq!(jobs.iter().filter(|job| job.state == JobState::Failed).count(), 3);
}

#[tokio::test]
async fn one_whose_inputs_are_gone_falls_out_and_the_others_land_together() {
    // whose files are replaced is the last of those that share, or the one that leads them
    for (order, hit) in [([0, 1, 2, 4], 3), ([0, 4, 1, 2], 1)] {
        let world = world();
        // before the load of the shared try, which follows on those of the four plans and of the first try
        world.lake.with(|s| s.on_load.extend([[Foreign::Nothing; 5].as_slice(), &[Foreign::ReplaceLast]].concat()));
        let results = run(&world, plans(&world, order), None).await.unwrap();
        for (n, result) in results.iter().enumerate() {
            match &result.verdict {
                Verdict::Dropped { conflict: Conflict::InputGone { .. } } => assert_eq!(n, hit, "{order:?}"),
                Verdict::Committed => assert_ne!(n, hit, "{order:?}"),
                other => panic!("{order:?}: {other:?}"),
            }
        }
        assert_eq!(world.lake.with(|s| s.asked.clone()), [1, 2], "{order:?}");
        assert_eq!(snapshots(&results).len(), 2);
        let spent = world.journal.spent(0).await.unwrap();
        assert_eq!(spent.iter().filter(|s| s.commits).count(), 2, "the snapshot is booked to one of those in it");
        world.check();
        assert!(world.journal.all_files().is_empty(), "what fell out is removed");
        world.settle().await;
    }
}

#[tokio::test]
async fn one_that_is_cancelled_while_it_waits_falls_out() {
    let world = world();
    let act = world.act().await;
    let (journal, clock) = (Arc::clone(&world.journal), Arc::clone(&world.clock));
    let cancel = async {
        // while the first commits
        afterwrite::lake::clock::Clock::sleep(&*clock, std::time::Duration::from_millis(30)).await;
        let jobs = journal.jobs(Query::Unfinished).await.unwrap();
        let last = jobs.into_iter().find(|job| job.plan.scope.spec_id == 3).unwrap();
        assert!(journal.ask_cancel(&last.id).await.unwrap());
        last.id
    };
    let all_plans = plans(&world, [0, 1, 2, 3]);
    let (results, cancelled) = futures::join!(all(&act, &all_plans), cancel);
    for result in &results {
        let expected = if result.job.as_ref() == Some(&cancelled) { Verdict::Cancelled } else { Verdict::Committed };
        assert_eq!(result.verdict, expected);
    }
    assert_eq!(world.lake.with(|s| s.asked.clone()), [1, 2]);
    world.settle().await;
}

#[tokio::test]
async fn a_death_at_any_point_of_a_shared_try_leaves_rows_right_and_nothing_behind() {
    let mut died = HashSet::new();
    for &point in KillPoint::ALL {
        for fault in Fault::ALL {
            for passes in 0..9 {
                let world = world();
                world.lake.with(|s| s.faults.extend([Fault::None, fault]));
                if run(&world, plans(&world, [0, 1, 2, 3]), Some((point, passes))).await.is_none() {
                    died.insert((point, passes));
                }
                let act = world.settle().await;
                world.compact_again(&act).await;
            }
        }
    }
    for point in [KillPoint::DeletesCarried, KillPoint::ManifestsWritten, KillPoint::MetadataWritten, KillPoint::CatalogAnswered] {
        assert!(died.contains(&(point, 1)), "{point} was not passed by the shared try");
    }
    assert!(died.contains(&(KillPoint::OutcomeJournaled, 3)));
}

/// Each write to the journal fails once, those between the marks of two that share a try
/// among them.
#[tokio::test]
async fn a_journal_that_fails_at_any_write_of_a_shared_try_leaves_rows_right() {
    for n in 3..120 {
        for fault in [Fault::None, Fault::UnknownLanded, Fault::UnknownLost] {
            let world = world();
            world.lake.with(|s| s.faults.extend([Fault::None, fault]));
            world.journal.fail_write(n);
            let _ = run(&world, plans(&world, [0, 1, 2, 3]), None).await;
            let act = world.settle().await;
            world.compact_again(&act).await;
        }
    }
}

/// A defect ends the task that leads; the process and the tasks of the others live on.
#[tokio::test]
async fn those_whose_lead_is_gone_go_on_by_what_the_journal_shows() {
    for point in [KillPoint::DeletesCarried, KillPoint::ManifestsWritten, KillPoint::MetadataWritten, KillPoint::CatalogAnswered] {
        for fault in Fault::ALL {
            let world = world();
            world.lake.with(|s| {
                s.fences = true;
                s.faults.extend([Fault::None, fault]);
            });
            let act = world.start(dying(Some((point, 1)))).await;
            let tasks: Vec<_> = plans(&world, [0, 1, 2, 3])
                .into_iter()
                .map(|plan| {
                    let act = Arc::clone(&act);
                    tokio::spawn(async move { act.run(&plan, None).await })
                })
                .collect();
            let mut ends = Vec::new();
            for task in tasks {
                ends.push(task.await.ok().map(|result| result.verdict));
            }
            assert_eq!(ends.iter().filter(|end| end.is_none()).count(), 1, "{point} {fault:?}");
            let committed = ends.iter().flatten().filter(|verdict| **verdict == Verdict::Committed).count();
            // one may meet the fault alone then
            let refused = u32::from(fault == Fault::Rejected && matches!(point, KillPoint::DeletesCarried | KillPoint::ManifestsWritten));
            assert_eq!(committed, 3 - refused as usize, "{point} {fault:?}: {ends:?}");
            world.check();
            let act = world.settle().await;
            world.compact_again(&act).await;
        }
    }
}

/// A process sleeps at a point of its shared try, and another one recovers its jobs.
#[tokio::test]
async fn a_shared_try_whose_jobs_were_recovered_meanwhile_does_no_harm() {
    for &point in KillPoint::ALL {
        for pass in 0..4 {
            for fault in [Fault::None, Fault::UnknownLanded, Fault::UnknownLost, Fault::Moved] {
                let world = world();
                world.lake.with(|s| s.faults.extend([Fault::None, fault]));
                let other = world.act().await;
                let (passed, asleep) = (std::sync::atomic::AtomicU32::new(0), AtomicBool::new(false));
                let sleeper = KillSwitch::calling(move |p| {
                    if p == point && passed.fetch_add(1, Ordering::SeqCst) == pass && !asleep.swap(true, Ordering::SeqCst) {
                        futures::executor::block_on(other.recover()).unwrap();
                    }
                });
                let act = world.start(sleeper).await;
                let _ = all(&act, &plans(&world, [0, 1, 2, 3])).await;
                world.check();
                let act = world.settle().await;
                world.compact_again(&act).await;
            }
        }
    }
}

#[tokio::test]
async fn undoing_one_undoes_those_that_share_its_snapshot() {
    let world = world();
    let results = run(&world, plans(&world, [0, 1, 2, 3]), None).await.unwrap();
    let act = world.act().await;
    let last = world.journal.job(results[3].job.as_ref().unwrap()).await.unwrap().unwrap();
    let others: Vec<_> = act.undone_with(&last).await.unwrap().into_iter().map(|job| job.id).collect();
    assert_eq!(others, [results[1].job.clone().unwrap(), results[2].job.clone().unwrap()]);
    let undone = act.undo(&last.id).await.unwrap();
    assert_eq!(undone.verdict, Verdict::Committed);
    assert_eq!(world.lake.with(|s| s.data_files()), 10);
    world.check();
    let kept = world.journal.kept().await.unwrap();
    assert_eq!(kept.into_iter().map(|k| k.job).collect::<Vec<_>>(), [results[0].job.clone().unwrap()]);
    world.settle().await;
}

/// The undo's process dies, and recovery finds that it landed.
#[tokio::test]
async fn an_undo_that_is_recovered_undoes_all_that_share_the_snapshot() {
    let world = world();
    let results = run(&world, plans(&world, [0, 1, 2, 3]), None).await.unwrap();
    let job = results[2].job.clone().unwrap();
    let act = world.start(dying(Some((KillPoint::CatalogAnswered, 0)))).await;
    assert!(tokio::spawn(async move { act.undo(&job).await.map(|r| r.verdict) }).await.is_err());
    world.settle().await;
    let kept: Vec<_> = world.journal.kept().await.unwrap().into_iter().map(|k| k.job).collect();
    assert_eq!(kept, [results[0].job.clone().unwrap()]);
}
