//! The budget is hard: whatever is asked for, it is never passed, what does not
//! fit waits with its reason, and nothing set aside is lost.

use afterwrite::act::{AttemptState, Journal, Query, Verdict};
use afterwrite::model::plan::{Bound, Plan};
use afterwrite::serve::backend::Backend;

use super::spy::Wrong;
use super::world::{World, append_small, data_files, snapshots};
use crate::fixture::{Table, row};

/// GB-hours that jobs have spent, by the journal.
async fn spent(world: &World) -> f64 {
    world.journal.jobs(Query::Latest(1000)).await.unwrap().iter().map(|j| j.numbers.gb_hours).sum()
}

#[tokio::test]
async fn jobs_never_run_more_than_so_many_at_a_time_and_the_rest_waits_with_its_reason() {
    let world = World::new("[defaults]\nact = true\ntarget_file_size = \"1MiB\"\n[budget]\nconcurrent_jobs = 2\n");
    let table = world.table(Table::partitioned_by_p(), "t").await;
    for p in 0..6 {
        // more files gain more: the last partition is the best
        append_small(&table, p * 100, 9 + p, p).await;
    }
    let before = table.rows().await;
    let process = world.start().await;
    let gate = process.seen.gate.lock().await;
    process.report(&table).await;
    process.until("two jobs", async || process.seen.rewrites() == 2).await;
    process
        .until("reasons", async || {
            let waiting = process.ooda.list_candidates(10).await.unwrap();
            waiting.len() == 4 && waiting.iter().all(|c| c.waits_for == "as many jobs run as may run at one time (2)")
        })
        .await;
    assert_eq!(process.ooda.health().jobs, 2);
    drop(gate);
    process.rest().await;
    // then all were done, best first, and never more than two at once
    assert_eq!((process.seen.rewrites(), process.seen.most_running.load(std::sync::atomic::Ordering::SeqCst)), (6, 2));
    let mut first = process.seen.inputs.lock().unwrap()[..2].to_vec();
    first.sort_unstable();
    assert_eq!(first, [13, 14]);
    assert_eq!((data_files(&table).await, table.rows().await), (6, before));
    assert!(process.ooda.list_candidates(10).await.unwrap().is_empty());
    process.nothing_is_stuck(&world).await;
    process.stop().await;
}

#[tokio::test]
async fn groups_of_one_partition_run_side_by_side() {
    let settings = "[defaults]\nact = true\ntarget_file_size = \"1MiB\"\nmax_job_size = \"8KiB\"\n[budget]\nconcurrent_jobs = 3\n";
    let world = World::new(settings);
    let table = world.table(Table::plain(), "t").await;
    append_small(&table, 0, 40, 0).await;
    let before = table.rows().await;
    let process = world.start().await;
    let gate = process.seen.gate.lock().await;
    process.report(&table).await;
    process.until("jobs", async || process.ooda.health().jobs == 3 && process.seen.rewrites() == 3).await;
    // no file is in two of them
    assert_eq!(process.act.leases().len() as u64, process.seen.inputs.lock().unwrap().iter().map(|files| *files as u64).sum::<u64>());
    drop(gate);
    process.rest().await;
    assert_eq!(process.seen.most_running.load(std::sync::atomic::Ordering::SeqCst), 3);
    assert_eq!(table.rows().await, before);
    assert!(data_files(&table).await <= 5, "{}", data_files(&table).await);
    process.nothing_is_stuck(&world).await;
    process.stop().await;
}

#[tokio::test]
async fn others_find_a_place_beside_a_partition_of_many_groups() {
    let settings = "[defaults]\nact = true\ntarget_file_size = \"1MiB\"\nmax_job_size = \"8KiB\"\n[budget]\nconcurrent_jobs = 3\n";
    let world = World::new(settings);
    let table = world.table(Table::partitioned_by_p(), "t").await;
    append_small(&table, 0, 80, 0).await;
    let process = world.start().await;
    let gate = process.seen.gate.lock().await;
    process.report(&table).await;
    process.until("jobs", async || process.seen.rewrites() == 3).await;
    // given another partition that waits while one has all places
    append_small(&table, 100, 9, 1).await;
    process.report(&table).await;
    let waits = async || process.ooda.list_candidates(10).await.unwrap().iter().any(|one| one.label == "p=1");
    process.until("one that waits", waits).await;
    // when the three end, and the next ones wait
    drop(gate);
    let gate = process.seen.gate.lock().await;
    process.until("the next jobs", async || process.seen.rewrites() == 6).await;
    let scopes: Vec<_> = process.seen.order.lock().unwrap().iter().map(|(_, scope)| scope.clone()).collect();
    assert!(scopes[..3].iter().all(|scope| *scope == scopes[0]));
    assert_eq!(scopes[3..].iter().filter(|scope| **scope != scopes[0]).count(), 1);
    drop(gate);
    process.rest().await;
    process.nothing_is_stuck(&world).await;
    process.stop().await;
}

#[tokio::test]
async fn gb_hours_are_never_passed_and_what_waits_is_done_as_the_budget_fills() {
    // a job's bound is one minute of half a GiB, and 90 s to end: 0.0224 GB-hours; the budget holds two and a half of them
    let world = World::new(
        "[defaults]\nact = true\ntarget_file_size = \"1MiB\"\nmemory_limit = \"8GiB\"\n\
         [budget]\ngb_hours_per_hour = 0.056\ncarry_over_hours = 1.0\nconcurrent_jobs = 16\n",
    );
    let table = world.table(Table::partitioned_by_p(), "t").await;
    for p in 0..5 {
        append_small(&table, p * 100, 9, p).await;
    }
    let process = world.start().await;
    let gate = process.seen.gate.lock().await;
    process.report(&table).await;
    process.until("jobs", async || process.seen.rewrites() == 2).await;
    process
        .until("a reason", async || {
            let waiting = process.ooda.list_candidates(10).await.unwrap();
            waiting.len() == 3 && waiting.iter().all(|c| c.waits_for.contains("GB-hours that the job may need"))
        })
        .await;
    drop(gate);
    process.until("the work's end", async || data_files(&table).await == 5).await;
    process.rest().await;
    assert_eq!(process.seen.most_running.load(std::sync::atomic::Ordering::SeqCst), 2);
    assert!(spent(&world).await <= 0.056 + 0.056);
    process.nothing_is_stuck(&world).await;
    process.stop().await;
}

#[tokio::test]
async fn what_a_command_beside_the_process_spends_is_booked_when_it_ends() {
    // a job's bound is 0.0224 GB-hours, and the budget holds a little more
    let world = World::new(
        "[defaults]\nact = true\ntarget_file_size = \"1MiB\"\nmemory_limit = \"2GiB\"\n\
         [budget]\ngb_hours_per_hour = 0.025\ncarry_over_hours = 1.0\nconcurrent_jobs = 4\n",
    );
    let table = world.table(Table::partitioned_by_p(), "t").await;
    let files = append_small(&table, 0, 9, 0).await;
    let process = world.start().await;
    // given half a GiB for a minute by hand, of a table that the process does not know yet
    let (act, seen) = world.command().await;
    let bound = Bound { gb_hours: 0.02, millis: 100_000, memory: 512 << 20 };
    let plan = Plan { reason: "request".into(), bound, ..table.plan_all(&files[0]).await };
    let gate = seen.gate.lock().await;
    let (done, ()) = tokio::join!(act.run(&plan, None), async {
        process.until("the command's job", async || seen.rewrites() == 1).await;
        process.clock_passes(60_000);
        drop(gate);
    });
    assert_eq!(done.verdict, Verdict::Committed);
    assert!((0.008..0.01).contains(&done.numbers.gb_hours), "{}", done.numbers.gb_hours);
    process.rounds().await;
    // then no job of the process fits before an hour has filled the budget
    append_small(&table, 100, 10, 1).await;
    process.report(&table).await;
    process
        .until("a reason", async || {
            let waiting = process.ooda.list_candidates(10).await.unwrap();
            waiting.len() == 1 && waiting[0].waits_for.contains("GB-hours that the job may need")
        })
        .await;
    assert_eq!((process.seen.rewrites(), process.ooda.health().jobs), (0, 0));
    process.pass(3_600_000).await;
    assert_eq!((process.seen.rewrites(), data_files(&table).await), (1, 2));
    act.leave().await.unwrap();
    process.nothing_is_stuck(&world).await;
    process.stop().await;
}

#[tokio::test]
async fn a_job_that_panics_gives_back_its_place_and_its_partition() {
    let world = World::new("[defaults]\nact = true\ntarget_file_size = \"1MiB\"\n[budget]\nconcurrent_jobs = 1\n");
    let table = world.table(Table::plain(), "t").await;
    append_small(&table, 0, 9, 0).await;
    let before = table.rows().await;
    let process = world.start().await;
    process.seen.wrong.lock().unwrap().extend([Wrong::RewritePanics; 2]);
    process.report(&table).await;
    process
        .until("three tries", async || {
            process.clock_passes(100);
            process.seen.rewrites() == 3
        })
        .await;
    process.rest().await;
    assert_eq!((process.seen.rewrites(), process.ooda.health().jobs), (3, 0));
    assert_eq!((data_files(&table).await, table.rows().await), (1, before));
    // the journal's open jobs are closed by the recovery that is due every half minute
    process.act.recover().await.unwrap();
    process.nothing_is_stuck(&world).await;
    process.stop().await;
}

#[tokio::test]
async fn work_in_several_jobs_is_not_lost_when_the_budget_ends_in_between() {
    // given a partition whose work is cut into jobs of a few files each, and budget for two and a half
    let world = World::new(
        "[defaults]\nact = true\ntarget_file_size = \"64KiB\"\nmax_job_size = \"160KiB\"\ncooldown = \"0s\"\nmemory_limit = \"2GiB\"\n\
         [budget]\ngb_hours_per_hour = 0.056\ncarry_over_hours = 1.0\nconcurrent_jobs = 4\n",
    );
    let table = world.table(Table::plain(), "t").await;
    for n in 0..32 {
        let noise: String = (0..1200_u64).map(|i| format!("{:016x}", (n * 1200 + i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))).collect();
        table.append([row(n as i64, &noise, 0)]).await;
    }
    let before = table.rows().await;
    let process = world.start().await;
    process.report(&table).await;
    process
        .until("all work", async || {
            process.clock_passes(5_000);
            // a job that a busy machine did not end within its time is done again
            process.ooda.is_at_rest() && process.seen.rewrites() >= 4 && data_files(&table).await <= 12
        })
        .await;
    process.rest().await;
    // then every job was within the budget, and all files were merged
    let inputs: usize = process.seen.inputs.lock().unwrap().iter().sum();
    assert!(inputs >= 32, "{inputs}");
    assert!(data_files(&table).await <= 12, "{}", data_files(&table).await);
    assert_eq!(table.rows().await, before);
    process.nothing_is_stuck(&world).await;
    process.stop().await;
}

#[tokio::test]
async fn a_place_that_becomes_free_is_taken_without_waiting_for_a_second() {
    let world = World::new("[defaults]\nact = true\ntarget_file_size = \"1MiB\"\n[budget]\nconcurrent_jobs = 1\n");
    let table = world.table(Table::partitioned_by_p(), "t").await;
    for p in 0..3 {
        // more files gain more: the last partition is the best
        append_small(&table, p * 100, 9 + p, p).await;
    }
    let process = world.start().await;
    process.report(&table).await;
    for left in [20, 11, 3] {
        process.while_the_clock_stands("a job", async || data_files(&table).await == left && process.ooda.health().jobs == 0).await;
        // far less than the second between two rounds
        process.clock_passes(50);
    }
    assert_eq!(process.seen.most_running.load(std::sync::atomic::Ordering::SeqCst), 1);
    assert_eq!(process.seen.inputs.lock().unwrap()[..], [11, 10, 9]);
    process.rest().await;
    process.nothing_is_stuck(&world).await;
    process.stop().await;
}

#[tokio::test]
async fn partitions_that_commit_together_are_one_snapshot_and_one_commit_of_the_budget() {
    let world = World::new(
        "[defaults]\nact = true\ntarget_file_size = \"1MiB\"\n[budget]\nconcurrent_jobs = 4\ncarry_over_hours = 1.0\n[budget.table]\ncommits_per_hour = 4\n",
    );
    let table = world.table(Table::partitioned_by_p(), "t").await;
    for p in 0..4 {
        append_small(&table, p * 100, 9, p).await;
    }
    let (before, count) = (table.rows().await, snapshots(&table).await);
    let process = world.start().await;
    // another commit is under way, and all wait for it
    let place = process.act.leases().committer(table.load().await.view.ident).await;
    process.report(&table).await;
    let proven = async || {
        let mut proven = 0;
        for job in world.journal.jobs(Query::Unfinished).await.unwrap() {
            let attempts = world.journal.attempts(&job.id).await.unwrap();
            proven += attempts.iter().filter(|attempt| attempt.state == AttemptState::Verified).count();
        }
        proven == 4
    };
    process.until("four proven rewrites", proven).await;
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    drop(place);
    process.rest().await;
    assert_eq!((data_files(&table).await, snapshots(&table).await), (4, count + 1));
    assert_eq!((table.rows().await, process.seen.joined.load(std::sync::atomic::Ordering::SeqCst)), (before, 3));
    world.layout_is_right(&process, &table).await;
    // the hour has three more
    for p in 4..7 {
        append_small(&table, p * 100, 9, p).await;
    }
    process.look_at(&table).await;
    process.rest().await;
    assert_eq!((data_files(&table).await, process.seen.rewrites()), (7, 7));
    process.nothing_is_stuck(&world).await;
    process.stop().await;
}
