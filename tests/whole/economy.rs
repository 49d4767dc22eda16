//! Budgets of tenants and tables, work that waits for a person, and the backlog.

use std::sync::Arc;

use afterwrite::act::{Journal, Query};
use afterwrite::lake::clock::{Clock, SystemClock};
use afterwrite::model::decision::{Decision, Reason, Verdict};
use afterwrite::serve::backend::{Backend, BacklogRow};
use afterwrite::settings::Settings;

use super::world::{Process, World, append_small, data_files};
use crate::fixture::Table;

/// Everything acts, and there is a catalog of which settings may speak.
const LAKE: &str = "[catalog.lake]\ntype = \"sql\"\nuri = \"sqlite:///c.db\"\nwarehouse = \"file:///w\"\n";

fn acting(more: &str) -> String {
    format!("{LAKE}[defaults]\nact = true\ntarget_file_size = \"1MiB\"\n{more}")
}

/// The only tenant is that of the tables whose names begin with `a`.
fn tenant(keys: &str) -> String {
    acting(&format!("[[tenant]]\nname = \"a\"\nmatch = \"lake.**.a*\"\n{keys}"))
}

async fn waits(process: &Process) -> Vec<(String, String)> {
    let waiting = process.ooda.list_candidates(10).await.unwrap();
    waiting.into_iter().map(|c| (c.table.table, c.waits_for)).collect()
}

async fn row(process: &Process, tenant: &str, act: bool) -> BacklogRow {
    let told = process.ooda.backlog().await.unwrap();
    told.rows.into_iter().find(|row| row.tenant == tenant && row.act == act).unwrap()
}

#[tokio::test]
async fn a_tenant_that_has_made_its_commits_waits_and_nobody_else_does_also_after_a_restart() {
    let world = World::new(&tenant("commits_per_hour = 1\n[budget]\ncarry_over_hours = 0\n"));
    let tables = [world.table(Table::plain(), "a1").await, world.table(Table::plain(), "a2").await, world.table(Table::plain(), "b").await];
    for table in &tables {
        append_small(table, 0, 9, 0).await;
    }
    let process = world.start().await;
    for table in &tables {
        process.report(table).await;
    }
    let expected = "the budget of tenant a holds 0";
    process
        .until("one job of each", async || {
            process.seen.rewrites() == 2
                && process.ooda.health().jobs == 0
                && waits(&process).await.iter().any(|w| w.1.starts_with(expected))
        })
        .await;
    let files = async || [data_files(&tables[0]).await + data_files(&tables[1]).await, data_files(&tables[2]).await];
    assert_eq!(files().await, [10, 1]);
    process.stop().await;

    let process = world.start().await;
    for table in &tables {
        process.report(table).await;
    }
    process.until("a reason", async || waits(&process).await.iter().any(|w| w.1.starts_with(expected))).await;
    assert_eq!((process.seen.rewrites(), files().await), (0, [10, 1]));
    process.pass(3_600_000).await;
    assert_eq!((process.seen.rewrites(), files().await), (1, [2, 1]));
    process.nothing_is_stuck(&world).await;
    process.stop().await;
}

#[tokio::test]
async fn each_tables_jobs_at_one_time_are_bounded() {
    let world = World::new(&acting("[budget]\nconcurrent_jobs = 8\n[budget.table]\nconcurrent_jobs = 1\n"));
    let table = world.table(Table::partitioned_by_p(), "t").await;
    append_small(&table, 0, 9, 0).await;
    append_small(&table, 100, 9, 1).await;
    let process = world.start().await;
    let gate = process.seen.gate.lock().await;
    process.report(&table).await;
    let crowded = "as many jobs run as the table's budget lets run at one time (1)";
    let is_crowded = async || waits(&process).await == [("t".to_owned(), crowded.to_owned())];
    process.until("a reason", async || process.seen.rewrites() == 1 && is_crowded().await).await;
    drop(gate);
    process.until("the work's end", async || data_files(&table).await == 2).await;
    process.rest().await;
    assert_eq!(process.seen.most_running.load(std::sync::atomic::Ordering::SeqCst), 1);
    process.nothing_is_stuck(&world).await;
    process.stop().await;
}

#[tokio::test]
async fn jobs_are_cut_to_the_bytes_that_a_budget_can_hold() {
    let world = World::new(&acting("[budget]\nbytes_per_hour = \"1B\"\n"));
    let table = world.table(Table::plain(), "t").await;
    append_small(&table, 0, 9, 0).await;
    let process = world.start().await;
    process.report(&table).await;
    process.rounds().await;
    // no two files fit a job, so there is nothing to do, and nothing is tried
    assert_eq!((process.seen.rewrites(), data_files(&table).await), (0, 9));
    process.stop().await;
}

#[tokio::test]
async fn what_is_too_dear_waits_for_a_person_and_is_counted() {
    let world = World::new(&acting("review_above_gb_hours = 0\nreview_min_gain = 8\n"));
    let (dear, little) = (world.table(Table::plain(), "dear").await, world.table(Table::plain(), "little").await);
    append_small(&dear, 0, 9, 0).await;
    append_small(&little, 0, 8, 0).await;
    let process = world.start().await;
    process.look_at(&dear).await;
    process.look_at(&little).await;
    assert!(matches!(process.verdict(&dear).await, Verdict::Review { gain: 8, .. }));
    assert_eq!(process.reason(&little).await, Reason::TooDear);
    assert_eq!((process.seen.rewrites(), data_files(&dear).await), (0, 9));
    let told = row(&process, "", true).await;
    assert_eq!((told.candidates, told.review, told.bytes), (0, 1, 0));
    process.stop().await;
}

#[tokio::test]
async fn the_backlog_tells_what_waits_for_how_long_and_what_it_costs() {
    let prices = "[prices]\ngb_hour = 1000.0\n[defaults]\ntarget_file_size = \"1MiB\"\nqueue_min_reduction = 1\n";
    let world = World::new(&format!("{LAKE}{prices}[[tenant]]\nname = \"a\"\nmatch = \"lake.**.a*\"\nquota_objects = 100\n"));
    let (mine, other) = (world.table(Table::plain(), "a").await, world.table(Table::plain(), "b").await);
    append_small(&mine, 0, 9, 0).await;
    append_small(&other, 0, 4, 0).await;
    let process = world.start().await;
    process.ooda.set_reads(Box::new(|table, _| (table.table == "a").then_some(3.0)));
    process.look_at(&mine).await;
    process.look_at(&other).await;
    process.clock_passes(5_000);
    let (told, others) = (row(&process, "a", false).await, row(&process, "", false).await);
    assert_eq!((told.candidates, told.urgent, told.review, told.files), (1, 1, 0, 8));
    assert_eq!((others.candidates, others.urgent, others.files), (1, 0, 3));
    assert!(told.oldest_ms >= 5_000 && told.bytes > 0 && told.drain_seconds.is_none(), "{told:?}");
    assert!((told.cost - told.gb_hours * 1000.0).abs() < 1e-9, "{told:?}");
    assert_eq!(row(&process, "a", true).await.drain_seconds, Some(0.0));
    // nine data files, and a manifest each
    let decisions: Vec<Decision> = process.decisions(&mine).await;
    assert_eq!((decisions[0].traits.quota_used, decisions[0].traits.read_rate), (Some(0.18), Some(3.0)));
    assert_eq!(process.decisions(&other).await[0].traits.quota_used, None);
    process.stop().await;
}

#[tokio::test]
async fn what_is_done_is_the_pace_at_which_the_rest_drains() {
    let world = World::new(&acting(""));
    let table = world.table(Table::plain(), "t").await;
    append_small(&table, 0, 9, 0).await;
    let process = world.start().await;
    process.look_at(&table).await;
    assert_eq!(data_files(&table).await, 1);
    let done = row(&process, "", true).await.bytes_per_hour;
    assert!(done > 0.0);
    process.stop().await;
    // a process that begins anew knows it from the journal
    let process = world.start().await;
    process.rounds().await;
    let known = row(&process, "", true).await.bytes_per_hour;
    assert!(known > 0.0 && known <= done, "{known} of {done}");
    process.stop().await;
}

#[tokio::test]
async fn what_a_job_was_expected_to_do_is_kept_beside_what_it_did_and_taught() {
    let world = World::new(&acting("queue_min_reduction = 1\n"));
    let (table, other) = (world.table(Table::plain(), "t").await, world.table(Table::plain(), "u").await);
    append_small(&table, 0, 9, 0).await;
    let process = world.start().await;
    process.look_at(&table).await;
    let jobs = world.journal.jobs(Query::Latest(9)).await.unwrap();
    assert_eq!(jobs.len(), 1);
    let numbers = &jobs[0].numbers;
    let (estimate, actual) = (numbers.estimate.unwrap(), numbers.figures());
    // nothing was known before the first job
    assert_eq!(estimate.plain, estimate.corrected);
    assert_eq!((estimate.plain.files, actual.files, estimate.plain.bytes), (8.0, 8.0, numbers.bytes_in as f64));
    assert!(actual.bytes < estimate.plain.bytes && actual.bytes > 0.0);
    process.stop().await;

    // given another process, and another table with as large a job, of which only advice is wanted
    let world =
        World { settings: Arc::new(Settings::read(&format!("{LAKE}[defaults]\ntarget_file_size = \"1MiB\"\n"), []).unwrap()), ..world };
    append_small(&other, 0, 9, 0).await;
    let process = world.start().await;
    process.look_at(&other).await;
    let checks = process.decisions(&other).await.remove(0).checks;
    let files = checks.iter().find(|c| c.name == "estimate.files").expect("a check of the files fewer");
    // the estimate of the files was right, so nothing is corrected, and its error is none
    assert_eq!((files.value, files.threshold, files.passed), (8.0, 0.0, true));
    process.stop().await;
}

#[tokio::test]
async fn work_begins_only_in_its_windows_also_when_it_waited_for_budget() {
    // given a window that closes at the next full hour, and one job at a time
    let now = SystemClock.now_ms();
    let hour = (now / 3_600_000).rem_euclid(24);
    let window = format!("{hour:02}:00-{:02}:00", hour + 1);
    let world = World::new(&acting(&format!("windows = \"{window}\"\n[budget]\nconcurrent_jobs = 1\n")));
    world.clock.pass((now.div_euclid(3_600_000) + 1) * 3_600_000 - 20_000 - world.clock.now_ms());
    let table = world.table(Table::partitioned_by_p(), "t").await;
    append_small(&table, 0, 9, 0).await;
    append_small(&table, 100, 10, 1).await;
    let process = world.start().await;
    let gate = process.seen.gate.lock().await;
    process.report(&table).await;
    process.until("a job, and another that waits", async || process.seen.rewrites() == 1 && waits(&process).await.len() == 1).await;
    // when the window closes while one waits, then that one does not begin
    process.clock_passes(20_000);
    process.until("its end", async || waits(&process).await.is_empty()).await;
    drop(gate);
    process.rounds().await;
    assert_eq!((process.seen.rewrites(), data_files(&table).await), (1, 10));
    let reasons: Vec<_> = process.decisions(&table).await.into_iter().map(|d| d.verdict).collect();
    assert!(reasons.iter().any(|v| matches!(v, Verdict::Not { reason: Reason::OutsideWindows { .. } })), "{reasons:?}");
    process.pass(23 * 3_600_000).await;
    assert_eq!((process.seen.rewrites(), data_files(&table).await), (2, 2));
    process.nothing_is_stuck(&world).await;
    process.stop().await;
}
