//! Each fault by itself, and a catalog that is down in every state.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use afterwrite::act::{Holder, Job, JobState, Journal, KillSwitch, Kind, Numbers, Query, Role, Verdict};
use afterwrite::lake::clock::Clock;
use afterwrite::model::killpoint::KillPoint;
use afterwrite::model::outcome::Conflict;
use afterwrite::model::plan::{JobId, Plan};

use super::fake::{Fault, Foreign};
use super::world::World;

#[tokio::test]
async fn a_lost_race_is_tried_again_on_a_fresh_load() {
    let world = World::new(4);
    world.lake.with(|s| s.faults.extend([Fault::Moved, Fault::ErrorBefore, Fault::Moved]));
    let result = world.act().await.run(&world.lake.plan(4), None).await;
    assert_eq!(result.verdict, Verdict::Committed);
    assert_eq!((result.numbers.tries, result.numbers.conflicts), (4, 2));
    world.check();
    assert!(world.journal.all_files().is_empty(), "files of lost tries are removed at once");
    world.settle().await;
}

#[tokio::test]
async fn a_rejected_commit_is_not_tried_again() {
    let world = World::new(4);
    world.lake.with(|s| s.faults.push_back(Fault::Rejected));
    let result = world.act().await.run(&world.lake.plan(4), None).await;
    assert_eq!((result.verdict, result.numbers.tries), (Verdict::Failed { error: "no".into() }, 1));
    world.settle().await;
}

#[tokio::test]
async fn an_unknown_try_is_known_before_the_next_begins() {
    let world = World::new(4);
    world.lake.with(|s| {
        s.faults.push_back(Fault::UnknownLost);
        s.on_load.extend([Foreign::Nothing, Foreign::Nothing, Foreign::Nothing, Foreign::Nothing, Foreign::Append]);
    });
    let result = world.act().await.run(&world.lake.plan(4), None).await;
    assert_eq!((result.verdict, result.numbers.tries), (Verdict::Committed, 2));
    world.settle().await;
}

#[tokio::test]
async fn a_commit_that_arrives_late_is_found() {
    let world = World::new(4);
    world.lake.with(|s| s.faults.push_back(Fault::UnknownLater));
    let result = world.act().await.run(&world.lake.plan(4), None).await;
    assert_eq!((result.verdict, result.numbers.tries), (Verdict::Committed, 1));
    world.settle().await;
}

#[tokio::test]
async fn a_commit_that_cannot_be_told_stays_open_and_keeps_its_files() {
    let world = World::new(4);
    world.lake.with(|s| s.faults.push_back(Fault::UnknownLost));
    let act = world.act().await;
    let result = act.run(&world.lake.plan(4), None).await;
    assert!(matches!(result.verdict, Verdict::Unresolved { .. }), "{:?}", result.verdict);
    assert_eq!(act.recover().await.unwrap().open, vec![result.job.clone().unwrap()]);
    assert_eq!(world.journal.all_files().len(), 4, "two outputs, a manifest and a metadata file");
    world.check();
    // A new job may take the same files: its commit moves the pointer, and that tells.
    assert_eq!(act.run(&world.lake.plan(4), None).await.verdict, Verdict::Committed);
    assert_eq!(act.recover().await.unwrap().ended, vec![result.job.unwrap()]);
    world.settle().await;
}

#[tokio::test]
async fn a_commit_that_cannot_be_told_is_shut_out_and_made_again() {
    let world = World::new(4);
    world.lake.with(|s| {
        s.fences = true;
        s.faults.push_back(Fault::UnknownLost);
    });
    let (act, began) = (world.act().await, Clock::now_ms(&*world.clock));
    let result = act.run(&world.lake.plan(4), None).await;
    assert_eq!((result.verdict, result.numbers.tries), (Verdict::Committed, 2));
    let patience = i64::try_from(World::settings().resolve_for.as_millis()).unwrap();
    let took = Clock::now_ms(&*world.clock) - began;
    assert!(took > patience / 4 && took <= patience / 2, "looked for, and the rest of the time left for another try: {took} ms");
    assert!(world.journal.all_files().is_empty(), "what was proven lost is removed");
    assert_eq!(act.recover().await.unwrap(), Default::default());
    world.settle().await;
}

#[tokio::test]
async fn a_commit_that_arrives_while_it_is_looked_for_is_not_shut_out() {
    let world = World::new(4);
    world.lake.with(|s| {
        s.fences = true;
        s.faults.push_back(Fault::UnknownLater);
    });
    let result = world.act().await.run(&world.lake.plan(4), None).await;
    assert_eq!((result.verdict, result.numbers.tries), (Verdict::Committed, 1));
    world.settle().await;
}

#[tokio::test]
async fn a_commit_that_cannot_be_told_is_given_up_by_hand_and_nothing_is_removed() {
    let world = World::new(4);
    world.lake.with(|s| s.faults.push_back(Fault::UnknownLost));
    let act = world.act().await;
    let job = act.run(&world.lake.plan(4), None).await.job.unwrap();
    assert!(world.journal.ask_cancel(&job).await.unwrap());
    assert_eq!(act.recover().await.unwrap().ended, vec![job.clone()]);
    let job = world.journal.job(&job).await.unwrap().unwrap();
    assert_eq!(job.state, JobState::Failed);
    assert_eq!(job.note, "given up: it is not known whether it landed; its files are left to orphan clean-up");
    assert_eq!(world.journal.all_files().len(), 4);
    world.check();
}

#[tokio::test]
async fn a_table_that_is_gone_drops_the_work() {
    let world = World::new(4);
    let plan = world.lake.plan(4);
    world.lake.recreate();
    let result = world.act().await.run(&plan, None).await;
    assert_eq!(result.verdict, Verdict::Dropped { conflict: Conflict::TableGone });
    world.settle().await;
}

#[tokio::test]
async fn a_table_dropped_while_its_commit_is_unknown_ends_the_job() {
    let world = World::new(4);
    world.lake.with(|s| {
        s.faults.push_back(Fault::UnknownLanded);
        s.on_load.extend([Foreign::Nothing, Foreign::Nothing, Foreign::Drop]);
    });
    let act = world.act().await;
    let result = act.run(&world.lake.plan(4), None).await;
    assert!(matches!(result.verdict, Verdict::Unresolved { .. }), "{:?}", result.verdict);
    assert_eq!(act.recover().await.unwrap().ended, vec![result.job.unwrap()]);
    world.check();
}

#[tokio::test]
async fn files_that_cannot_be_removed_now_are_removed_later() {
    let world = World::new(4);
    world.lake.with(|s| {
        s.faults.push_back(Fault::Rejected);
        s.removals_fail = 5;
    });
    let act = world.act().await;
    let result = act.run(&world.lake.plan(4), None).await;
    assert_eq!(result.verdict, Verdict::Failed { error: "no".into() });
    assert_eq!(world.journal.all_files().len(), 4);
    assert_eq!(act.recover().await.unwrap().litter.len(), 2);
    assert_eq!(act.recover().await.unwrap().litter, vec![]);
    world.settle().await;
}

/// H54: every state has a way out of a catalog that is down for ten minutes.
#[tokio::test]
async fn h54_a_catalog_down_for_ten_minutes_in_any_state_leaves_nothing_stuck() {
    for &point in KillPoint::ALL {
        for fault in Fault::ALL {
            let world = World::new(4);
            world.lake.with(|s| s.faults.push_back(fault));
            let (lake, clock) = (world.lake.clone(), world.clock.clone());
            let down = AtomicBool::new(false);
            let act = world
                .start(KillSwitch::calling(move |p| {
                    if p == point && !down.swap(true, Ordering::SeqCst) {
                        let now = Clock::now_ms(&*clock);
                        lake.with(|s| s.down_until = now + 600_000);
                    }
                }))
                .await;
            let _ = act.run(&world.lake.plan(4), None).await;
            assert!(act.leases().is_empty());
            act.recover().await.unwrap();
            world.check();
            let act = world.settle().await;
            world.compact_again(&act).await;
        }
    }
}

/// A job ends within its bound and what is allowed after it, whatever does not answer.
#[tokio::test]
async fn a_catalog_and_store_that_hang_in_any_state_hold_no_job() {
    let settings = World::settings();
    let allowed = 30 * settings.look_every + 2 * settings.commit_for + settings.resolve_for + settings.longest_wait;
    for point in KillPoint::ALL.iter().copied().map(Some).chain([None]) {
        for fault in [Fault::None, Fault::UnknownLost, Fault::Moved] {
            let world = World::new(4);
            world.lake.with(|s| {
                s.faults.push_back(fault);
                s.hung = point.is_none();
            });
            let lake = world.lake.clone();
            let act = world.start(KillSwitch::calling(move |p| lake.with(|s| s.hung |= Some(p) == point))).await;
            let plan = world.lake.plan(4);
            let began_ms = Clock::now_ms(&*world.clock);
            let result = act.run(&plan, None).await;
            let took_ms = Clock::now_ms(&*world.clock) - began_ms;
            let most_ms = plan.bound.millis + i64::try_from(allowed.as_millis()).unwrap();
            assert!(took_ms <= most_ms, "{point:?}, {fault:?}: {took_ms} ms of at most {most_ms}: {:?}", result.verdict);
            assert!(act.leases().is_empty());
            // recovery is not held either, and whoever comes once there are answers again ends it
            act.recover().await.unwrap();
            world.check();
            world.lake.with(|s| s.hung = false);
            let act = world.settle().await;
            world.compact_again(&act).await;
        }
    }
}

#[tokio::test]
async fn every_write_of_the_journal_may_fail() {
    for fault in Fault::ALL {
        for n in 0.. {
            let world = World::new(4);
            world.lake.with(|s| s.faults.push_back(fault));
            let act = world.act().await;
            let before = world.journal.writes();
            world.journal.fail_write(n);
            let result = act.run(&world.lake.plan(4), None).await;
            let passed = world.journal.writes() - before <= n;
            world.journal.mend();
            world.check();
            if result.verdict == Verdict::Committed && fault == Fault::None && !passed {
                assert_eq!(world.lake.with(|s| s.data_files()), 2);
            }
            let act = world.settle().await;
            world.compact_again(&act).await;
            if passed {
                break;
            }
        }
    }
}

#[tokio::test]
async fn recovery_leaves_a_running_job_alone() {
    let world = World::new(4);
    world.lake.with(|s| s.rewrite_ms = 1_000);
    let (first, plan) = (world.act().await, world.lake.plan(4));
    let running = tokio::spawn({
        let first = Arc::clone(&first);
        async move { first.run(&plan, None).await }
    });
    while world.journal.jobs(Query::Unfinished).await.unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    assert_eq!(first.recover().await.unwrap(), Default::default());
    assert_eq!(running.await.unwrap().verdict, Verdict::Committed);
}

#[tokio::test]
async fn a_job_of_another_process_is_left_alone_until_that_process_is_silent() {
    let world = World::new(4);
    let beat_ms = Clock::now_ms(&*world.clock);
    let other = Holder { id: "other".into(), role: Role::Command, host: "elsewhere".into(), pid: 1, beat_ms };
    world.journal.claim(&other, &[]).await.unwrap();
    let plan = world.lake.plan(4);
    let job = Job {
        id: JobId("theirs".into()),
        kind: Kind::Rewrite,
        plan: plan.clone(),
        state: JobState::Requested,
        holder: other.id.clone(),
        requested_ms: beat_ms,
        changed_ms: beat_ms,
        cancel: false,
        note: String::new(),
        numbers: Numbers::default(),
    };
    assert!(world.journal.request(&job, &[]).await.unwrap());
    let act = world.act().await;
    assert_eq!(act.recover().await.unwrap(), Default::default());
    assert_eq!(act.run(&plan, None).await.verdict, Verdict::Busy);
    world.clock.pass(30_001);
    assert_eq!(act.recover().await.unwrap().ended, vec![job.id]);
    assert_eq!(act.run(&plan, None).await.verdict, Verdict::Committed);
}

#[tokio::test]
async fn a_job_commits_from_the_tables_one_place_once_another_process_has_left_it() {
    let world = World::new(4);
    let beat_ms = Clock::now_ms(&*world.clock);
    let other = Holder { id: "other".into(), role: Role::Command, host: "elsewhere".into(), pid: 1, beat_ms };
    world.journal.claim(&other, &[]).await.unwrap();
    let plan = world.lake.plan(4);
    let theirs = Job {
        id: JobId("theirs".into()),
        kind: Kind::Rewrite,
        plan: Plan { inputs: vec![], ..plan.clone() },
        state: JobState::Requested,
        holder: other.id.clone(),
        requested_ms: beat_ms,
        changed_ms: beat_ms,
        cancel: false,
        note: String::new(),
        numbers: Numbers::default(),
    };
    assert!(world.journal.request(&theirs, &[]).await.unwrap());
    assert!(world.journal.take_place(&other.id, &theirs.id, &[]).await.unwrap());
    let act = world.act().await;
    assert_eq!(act.run(&plan, None).await.verdict, Verdict::Committed);
    // the other gives no sign of life, and is dead then
    assert!(Clock::now_ms(&*world.clock) - beat_ms > 30_000, "the place was not waited for");
    let jobs = world.journal.jobs(Query::Latest(9)).await.unwrap();
    let own: Vec<_> = jobs.iter().filter(|j| j.id != theirs.id).map(|j| (j.state, j.numbers.tries)).collect();
    assert_eq!(own, [(JobState::Committed, 1)], "nothing was tried meanwhile");
}

#[tokio::test]
async fn a_process_that_was_taken_for_dead_leases_nothing_until_it_is_entered_again() {
    let world = World::new(4);
    let act = world.act().await;
    let [own]: [Holder; 1] = world.journal.holders().await.unwrap().try_into().unwrap();
    let other = Holder { id: "other".into(), role: Role::Command, host: "elsewhere".into(), pid: 1, beat_ms: own.beat_ms };
    world.journal.claim(&other, std::slice::from_ref(&own.id)).await.unwrap();
    assert_eq!(act.run(&world.lake.plan(4), None).await.verdict, Verdict::Committed);
    let ids = async || world.journal.holders().await.unwrap().into_iter().map(|h| h.id).collect::<Vec<_>>();
    assert!(ids().await.contains(&own.id));

    // another serves by now: this one does nothing more
    world.journal.claim(&Holder { role: Role::Serve, ..other.clone() }, std::slice::from_ref(&own.id)).await.unwrap();
    let refused = act.run(&world.lake.plan(2), None).await;
    assert!(matches!(&refused.verdict, Verdict::Failed { error } if error.contains("in use by another `serve`")), "{:?}", refused.verdict);
    assert_eq!(refused.job, None);

    // one that has left stays away
    world.journal.release(&other.id).await.unwrap();
    act.leave().await.unwrap();
    act.beat().await.unwrap();
    assert_eq!(ids().await, Vec::<String>::new());
}
