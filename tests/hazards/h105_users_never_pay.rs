//! H105: our commit must not make a user's statement fail. A partition is kept out of
//! while a writer is expected there, by the rhythm of its commits or by a load that the
//! proxy saw; and whoever holds a table has it left alone.

use std::sync::Arc;

use afterwrite::act::{JobState, Journal, Query};
use afterwrite::lake::clock::Clock;
use afterwrite::model::decision::{Check, Decision, Reason, Verdict};
use afterwrite::model::writers::Hold;
use afterwrite::observe::proxy::clients::ClientId;
use afterwrite::observe::proxy::ledger::{End, Writing};
use afterwrite::observe::proxy::{Heeds, Ledger};
use afterwrite::ooda::lease::{Lease, Leases};
use afterwrite::serve::backend::Backend;
use iceberg::spec::Operation;

use crate::fixture::{File, Table, row};
use crate::whole::world::{Process, World, append_small, data_files, rows};

const MINUTE: i64 = 60_000;

fn world(more: &str) -> World {
    World::new(&format!("[defaults]\nact = true\ntarget_file_size = \"1MiB\"\ncooldown = \"0s\"\n{more}"))
}

/// A statement that rewrites a file, as copy-on-write does, and lands now. It fails where
/// the file is gone.
async fn merge(world: &World, table: &Table, file: &File) -> File {
    let change = table.change().remove(&[file]).append(rows(0..1, 0)).operation(Operation::Overwrite);
    change.at(world.clock.now_ms()).commit().await.data.remove(0)
}

/// A table whose one file was merged into each minute, five times, seen by a process.
async fn merged_each_minute(world: &World) -> (Table, Process, File) {
    let table = world.table(Table::plain(), "t").await;
    let mut file = table.append([row(0, "v", 0)]).await;
    let process = world.start().await;
    process.look_at(&table).await;
    for _ in 0..5 {
        process.clock_passes(MINUTE);
        file = merge(world, &table, &file).await;
        process.look_at(&table).await;
    }
    (table, process, file)
}

async fn check(process: &Process, table: &Table, name: &str) -> Option<Check> {
    process.decisions(table).await.remove(0).checks.into_iter().find(|check| check.name == name)
}

#[tokio::test]
async fn h105_work_waits_for_a_merge_that_is_expected_and_begins_right_after_it() {
    let world = world("");
    let (table, process, file) = merged_each_minute(&world).await;
    // what fires comes when the next merge is at work
    process.clock_passes(50_000);
    append_small(&table, 100, 9, 0).await;
    process.look_at(&table).await;
    assert!(matches!(process.reason(&table).await, Reason::KeptOut { .. }), "{:?}", process.decisions(&table).await);
    process.pass(5_000).await;
    assert_eq!(process.seen.rewrites(), 0);
    merge(&world, &table, &file).await;
    process.look_at(&table).await;
    process.rounds().await;
    assert_eq!((process.seen.rewrites(), data_files(&table).await), (1, 1));
    process.stop().await;
}

#[tokio::test]
async fn h105_a_writer_that_comes_no_more_is_not_waited_for() {
    let world = world("");
    let (table, process, _) = merged_each_minute(&world).await;
    process.clock_passes(50_000);
    append_small(&table, 100, 9, 0).await;
    process.look_at(&table).await;
    let Reason::KeptOut { until_ms } = process.reason(&table).await else { panic!("not kept out") };
    process.pass(until_ms - world.clock.now_ms() - 10_000).await;
    assert_eq!(process.seen.rewrites(), 0);
    process.pass(15_000).await;
    assert_eq!((process.seen.rewrites(), data_files(&table).await), (1, 1));
    process.stop().await;
}

#[tokio::test]
async fn h105_without_keeping_out_the_merge_would_have_lost_its_files() {
    let world = world("keep_out = \"0s\"\n");
    let (table, process, file) = merged_each_minute(&world).await;
    process.clock_passes(50_000);
    append_small(&table, 100, 9, 0).await;
    process.look_at(&table).await;
    process.rounds().await;
    assert_eq!(process.seen.rewrites(), 1);
    let live = crate::fixture::oracle::live(&table.load().await).await;
    assert!(live.iter().all(|l| l.file.file_path() != file.path));
    process.stop().await;
}

#[tokio::test]
async fn h105_appends_keep_nobody_out() {
    let world = world("");
    let table = world.table(Table::plain(), "t").await;
    let process = world.start().await;
    for n in 0..7 {
        process.clock_passes(MINUTE);
        table.change().append(rows(n..n + 1, 0)).at(world.clock.now_ms()).commit().await;
        process.look_at(&table).await;
    }
    process.clock_passes(MINUTE - 5_000);
    append_small(&table, 100, 2, 0).await;
    process.look_at(&table).await;
    process.rounds().await;
    assert!(check(&process, &table, "keep-out").await.is_none());
    assert_eq!(data_files(&table).await, 1, "{} rewrites", process.seen.rewrites());
    process.stop().await;
}

#[tokio::test]
async fn h105_merges_without_a_rest_keep_us_out_no_longer_than_the_settings_say() {
    let world = world("keep_out = \"2m\"\n");
    let table = world.table(Table::plain(), "t").await;
    let mut file = table.append([row(0, "v", 0)]).await;
    let process = world.start().await;
    process.look_at(&table).await;
    for n in 0..4 {
        process.clock_passes(10_000);
        file = merge(&world, &table, &file).await;
        process.look_at(&table).await;
        append_small(&table, 100 + 10 * n, 2, 0).await;
    }
    append_small(&table, 500, 2, 0).await;
    process.look_at(&table).await;
    let began_ms = world.clock.now_ms();
    while process.seen.rewrites() == 0 {
        process.clock_passes(9_000);
        file = merge(&world, &table, &file).await;
        process.look_at(&table).await;
        let kept_ms = world.clock.now_ms() - began_ms;
        assert!(kept_ms < 3 * MINUTE, "kept out for {kept_ms} ms");
    }
    let kept_ms = world.clock.now_ms() - began_ms;
    assert!(kept_ms > 100_000, "kept out for {kept_ms} ms");
    process.rest().await;
    process.stop().await;
}

/// A client's commit to main of the table.
fn writing(table: &Table, client: u64) -> Writing {
    Writing {
        request: 1,
        client: ClientId::numbered(client),
        table: table.name.clone(),
        uuid: None,
        reference: Some("main".into()),
        parent: None,
        adds: vec![1],
        touched: vec![],
        appends: false,
        since_ms: 0,
    }
}

#[tokio::test]
async fn h105_a_client_that_loaded_the_table_is_waited_for_until_it_commits() {
    let world = world("");
    let table = world.table(Table::plain(), "t").await;
    let process = world.start().await;
    let ledger = Arc::new(Ledger::default());
    process.ooda.set_clients(Arc::clone(&ledger));
    ledger.loaded(&table.name, ClientId::numbered(1), world.clock.now_ms());
    let files = append_small(&table, 0, 9, 0).await;
    process.look_at(&table).await;
    assert!(matches!(process.reason(&table).await, Reason::KeptOut { .. }));
    let told = check(&process, &table, "keep-out").await.unwrap();
    assert!(!told.passed && told.note.contains("(an estimate)"), "{told:?}");
    process.pass(10_000).await;
    assert_eq!(process.seen.rewrites(), 0);
    merge(&world, &table, &files[3]).await;
    ledger.ended(&writing(&table, 1), End::Landed, world.clock.now_ms());
    process.look_at(&table).await;
    process.rounds().await;
    assert_eq!((process.seen.rewrites(), data_files(&table).await), (1, 1));
    process.stop().await;
}

#[tokio::test]
async fn h105_a_commit_ends_the_waiting_of_every_partition_that_was_kept_out_of_for_its_load() {
    let world = world("");
    let table = world.table(Table::partitioned_by_p(), "t").await;
    table.append([row(50, "v", 5)]).await;
    let process = world.start().await;
    let ledger = Arc::new(Ledger::default());
    process.ooda.set_clients(Arc::clone(&ledger));
    process.look_at(&table).await;
    ledger.loaded(&table.name, ClientId::numbered(1), world.clock.now_ms());
    append_small(&table, 0, 9, 0).await;
    let files = append_small(&table, 20, 9, 1).await;
    process.look_at(&table).await;
    process.pass(2_000).await;
    let kept_out = |d: &Decision| matches!(d.verdict, Verdict::Not { reason: Reason::KeptOut { .. } });
    assert!(process.decisions(&table).await.iter().filter(|d| kept_out(d)).count() >= 2);
    assert_eq!(process.seen.rewrites(), 0);

    let mut judged = process.ooda.watch();
    table.change().remove(&[&files[3]]).append(rows(20..21, 1)).operation(Operation::Overwrite).commit().await;
    ledger.ended(&writing(&table, 1), End::Landed, world.clock.now_ms());
    process.report(&table).await;
    let began_ms = world.clock.now_ms();
    process.until("both rewrites", async || process.seen.rewrites() == 2).await;
    assert!(world.clock.now_ms() < began_ms + 10_000, "as long as the load itself would be waited for");
    process.rest().await;
    assert_eq!(data_files(&table).await, 3);
    // the partition that nobody asked about was not judged for it
    let of_the_rest = std::iter::from_fn(|| judged.try_recv().ok()).filter(|made| made.label.contains('5')).count();
    assert_eq!(of_the_rest, 0);
    process.stop().await;
}

#[tokio::test]
async fn h105_a_client_that_comes_before_work_has_begun_or_landed_is_waited_for_too() {
    let world = world("");
    let table = world.table(Table::plain(), "t").await;
    let files = append_small(&table, 0, 9, 0).await;
    let process = world.start().await;
    let ledger = Arc::new(Ledger::default());
    process.ooda.set_clients(Arc::clone(&ledger));
    let seen = Arc::clone(&process.seen);
    let gate = seen.gate.lock().await;
    process.report(&table).await;
    process.until("a rewrite", async || process.seen.rewrites() == 1).await;
    // its statement begins while we rewrite
    ledger.loaded(&table.name, ClientId::numbered(1), world.clock.now_ms());
    drop(gate);
    for _ in 0..20 {
        process.clock_passes(500);
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    let job = world.journal.jobs(Query::Latest(1)).await.unwrap().remove(0);
    assert_eq!((job.state, job.numbers.tries), (JobState::Inflight, 0), "the commit waits");
    merge(&world, &table, &files[3]).await;
    ledger.ended(&writing(&table, 1), End::Landed, world.clock.now_ms());
    process.report(&table).await;
    let ended = async || world.journal.jobs(Query::Latest(100)).await.unwrap().pop().unwrap().state.is_final();
    process.until("its end", ended).await;
    let first = world.journal.jobs(Query::Latest(100)).await.unwrap().pop().unwrap();
    assert_eq!((first.state, first.numbers.tries), (JobState::Failed, 0), "{}", first.note);
    assert_eq!(table.rows().await.len(), 9);
    process.rest().await;
    process.stop().await;
}

#[tokio::test]
async fn h105_a_commit_under_way_is_let_pass_although_its_client_was_never_seen() {
    let world = world("");
    let table = world.table(Table::plain(), "t").await;
    let files = append_small(&table, 0, 9, 0).await;
    let process = world.start().await;
    let ledger = Arc::new(Ledger::default());
    process.ooda.set_clients(Arc::clone(&ledger));
    let under_way = Writing { since_ms: world.clock.now_ms(), ..writing(&table, 1) };
    ledger.begun(&under_way);
    process.look_at(&table).await;
    process.pass(5_000).await;
    assert!(matches!(process.reason(&table).await, Reason::KeptOut { .. }));
    merge(&world, &table, &files[3]).await;
    ledger.ended(&under_way, End::Landed, world.clock.now_ms());
    process.report(&table).await;
    process.until("the rewrite", async || process.seen.rewrites() == 1).await;
    process.rest().await;
    assert_eq!((data_files(&table).await, table.rows().await.len()), (1, 9));
    process.stop().await;
}

#[tokio::test]
async fn h105_a_writer_that_commits_nothing_after_our_replace_is_told_as_an_estimate() {
    let world = world("keep_out = \"0s\"\n");
    let table = world.table(Table::plain(), "t").await;
    let process = world.start().await;
    let ledger = Arc::new(Ledger::default());
    process.ooda.set_clients(Arc::clone(&ledger));
    let client = ClientId::numbered(1);
    ledger.loaded(&table.name, client, world.clock.now_ms());
    process.clock_passes(10_000);
    ledger.ended(&writing(&table, 1), End::Landed, world.clock.now_ms());
    ledger.loaded(&table.name, client, world.clock.now_ms());
    append_small(&table, 0, 9, 0).await;
    process.look_at(&table).await;
    process.rounds().await;
    assert_eq!(process.seen.rewrites(), 1);
    assert_eq!(ledger.harmed(&table.name), 0);
    process.pass(5 * MINUTE).await;
    assert_eq!(ledger.harmed(&table.name), 1);
    append_small(&table, 100, 1, 0).await;
    process.look_at(&table).await;
    let told = check(&process, &table, "keep-out.harmed").await.unwrap();
    assert!(told.passed && told.value == 1.0 && told.note.contains("(an estimate)"), "{told:?}");
    process.stop().await;
}

#[tokio::test]
async fn h105_a_held_table_is_left_alone_until_it_is_given_back() {
    let world = world("");
    let table = world.table(Table::plain(), "t").await;
    append_small(&table, 0, 9, 0).await;
    let process = world.start().await;
    let until_ms = world.clock.now_ms() + 60 * MINUTE;
    let hold = |by: &str| Hold { by: by.into(), until_ms };
    assert_eq!(process.ooda.hold(&table.name, hold("backfill")).await.unwrap(), until_ms);
    process.look_at(&table).await;
    assert_eq!(process.reason(&table).await, Reason::Held { until_ms, by: "backfill".into() });
    process.pass(10 * MINUTE).await;
    assert_eq!(process.seen.rewrites(), 0);
    assert_eq!(process.ooda.release(&table.name, Some("another")).await.unwrap(), 0);
    process.rounds().await;
    assert_eq!(process.seen.rewrites(), 0);
    assert_eq!(process.ooda.release(&table.name, None).await.unwrap(), 1);
    process.rounds().await;
    assert_eq!((process.seen.rewrites(), data_files(&table).await), (1, 1));
    // one that nobody gives back is over in time
    append_small(&table, 100, 9, 0).await;
    process.ooda.hold(&table.name, Hold { by: "backfill".into(), until_ms: world.clock.now_ms() + 5 * MINUTE }).await.unwrap();
    process.look_at(&table).await;
    process.pass(4 * MINUTE).await;
    assert_eq!(process.seen.rewrites(), 1);
    process.pass(2 * MINUTE).await;
    assert_eq!((process.seen.rewrites(), data_files(&table).await), (2, 1));
    process.stop().await;
}

#[tokio::test]
async fn h105_a_hold_stops_what_is_under_way() {
    let world = world("");
    let table = world.table(Table::plain(), "t").await;
    append_small(&table, 0, 9, 0).await;
    let process = world.start().await;
    let seen = Arc::clone(&process.seen);
    let gate = seen.gate.lock().await;
    process.report(&table).await;
    process.until("a rewrite", async || process.seen.rewrites() == 1).await;
    let until_ms = world.clock.now_ms() + 60 * MINUTE;
    process.ooda.hold(&table.name, Hold { by: "backfill".into(), until_ms }).await.unwrap();
    drop(gate);
    process.rest().await;
    let job = world.journal.jobs(Query::Latest(1)).await.unwrap().remove(0);
    assert_eq!((job.state, data_files(&table).await), (JobState::Cancelled, 9), "{}", job.note);
    let reason = process.reason(&table).await;
    assert!(matches!(reason, Reason::Held { .. }), "{reason:?}");
    process.nothing_is_stuck(&world).await;
    process.stop().await;
}

/// Nothing tells the process of it before it asks: the table's property, and the lease of a
/// command in the journal, as they stand when the outputs are proven.
#[tokio::test]
async fn h105_a_hold_that_comes_after_the_rewrite_keeps_it_from_being_committed() {
    for by_property in [true, false] {
        let world = world("");
        let table = Arc::new(world.table(Table::plain(), "t").await);
        append_small(&table, 0, 9, 0).await;
        let process = world.start().await;
        let until_ms = world.clock.now_ms() / 1000 * 1000 + 60 * MINUTE;
        let (held, journal, now_ms) = (Arc::clone(&table), Arc::clone(&world.journal), world.clock.now_ms());
        *process.seen.between.lock().unwrap() = Some(Arc::new(move || {
            let (held, journal) = (Arc::clone(&held), Arc::clone(&journal));
            Box::pin(async move {
                if by_property {
                    let until = chrono::DateTime::from_timestamp_millis(until_ms).unwrap().to_rfc3339();
                    held.set_property("afterwrite.hold-until", &until).await;
                } else {
                    let hold = Hold { by: "backfill".into(), until_ms };
                    Leases::take(journal.as_ref(), Lease { table: held.name.clone(), hold }, now_ms).await.unwrap();
                }
            })
        }));
        process.look_at(&table).await;
        process.rounds().await;
        assert_eq!((process.seen.rewrites(), data_files(&table).await), (1, 9), "by property: {by_property}");
        let job = world.journal.jobs(Query::Latest(1)).await.unwrap().remove(0);
        assert_eq!((job.state, job.numbers.tries), (JobState::Cancelled, 0), "{}", job.note);
        process.look_at(&table).await;
        let reason = process.reason(&table).await;
        assert!(matches!(reason, Reason::Held { until_ms: told, .. } if told == until_ms), "{reason:?}");
        process.nothing_is_stuck(&world).await;
        process.stop().await;
    }
}

#[tokio::test]
async fn h105_a_table_property_holds_the_table_until_its_time() {
    let world = world("");
    let until_ms = world.clock.now_ms() / 1000 * 1000 + 30 * MINUTE;
    let until = chrono::DateTime::from_timestamp_millis(until_ms).unwrap().to_rfc3339();
    let table = world.table(Table::plain().property("afterwrite.hold-until", &until), "t").await;
    append_small(&table, 0, 9, 0).await;
    let process = world.start().await;
    process.look_at(&table).await;
    assert!(
        matches!(process.reason(&table).await, Reason::Held { until_ms: told, by } if told == until_ms && by.contains("afterwrite.hold-until"))
    );
    process.pass(29 * MINUTE).await;
    assert_eq!(process.seen.rewrites(), 0);
    process.pass(2 * MINUTE).await;
    assert_eq!((process.seen.rewrites(), data_files(&table).await), (1, 1));
    process.stop().await;
}
