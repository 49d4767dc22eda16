//! H74: a rewrite that takes longer than the writers' interval always conflicts.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use afterwrite::act::{Act, KillSwitch, MemoryJournal, Ports, Role, Settings, Verdict, Watcher};
use afterwrite::decide::plan::{Cause, Order, plans};
use afterwrite::lake::Table as _;
use afterwrite::lake::clock::{SystemChance, SystemClock};
use afterwrite::lake::iceberg::catalog::Answer;
use afterwrite::lake::iceberg::lake::Lake;
use afterwrite::model::ident::MAIN;
use afterwrite::model::outcome::Outcome;
use afterwrite::model::partition::PartitionKey;
use afterwrite::model::policy::{BudgetLimits, Policy};
use iceberg::TableRequirement;

use crate::fixture::{Bounds, Table, Watch, row};
use crate::flow::world::World;

#[tokio::test]
async fn h74_a_group_shrinks_on_conflict_until_it_lands_between_two_commits() {
    let world = World::new(16);
    world.lake.with(|s| {
        s.rewrite_ms = 312;
        s.writer_every_ms = Some(1_000);
    });
    let act = world.act().await;
    let (mut most, mut tries) = (16, 0);
    loop {
        tries += 1;
        let result = act.run(&world.lake.plan(most), None).await;
        world.check();
        match result.verdict {
            Verdict::Committed => break,
            Verdict::Replan { max_bytes: Some(bytes), .. } => most = usize::try_from(bytes / 10).unwrap(),
            verdict => panic!("{verdict:?}"),
        }
    }
    assert!(tries <= 5, "{tries} tries");
    assert!(most >= 2);
    world.lake.with(|s| s.writer_every_ms = None);
    world.settle().await;
}

/// The product's own rewrite and commit, slowed down, on a table that a writer
/// changes every 300 ms.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn h74_a_slow_rewrite_lands_under_a_stream_of_deletes_and_appends() {
    let t = Arc::new(Table::plain().create().await);
    for n in 0..16 {
        t.append((0..8).map(|i| row(n * 8 + i, "v", 0))).await;
    }
    let stop = Arc::new(AtomicBool::new(false));
    let writing = tokio::spawn(stream(Arc::clone(&t), Arc::clone(&stop)));
    let ports = Ports {
        format: Arc::new(Lake::new([Arc::clone(&t.port)])),
        journal: Arc::new(MemoryJournal::default()),
        clock: Arc::new(SystemClock),
        chance: Arc::new(SystemChance),
    };
    let act = Act::start(ports, Role::Command, Settings::default(), KillSwitch::default()).await.unwrap();
    // 16 files take about a second
    let slow: Watcher = Arc::new(|_| std::thread::sleep(Duration::from_millis(60)));
    let mut policy = Policy::default();
    let mut tries = 0;
    loop {
        tries += 1;
        assert!(tries <= 5, "not landed within five tries");
        let table = t.load().await;
        let scope = table.scope(&PartitionKey::unpartitioned(0)).await.unwrap();
        let name = &table.view.name;
        let limits = BudgetLimits::default();
        let order = Order { table: table.view.ident, name, reference: MAIN, policy: &policy, limits: &limits, cause: &Cause::Request };
        let plan = plans(&order, &scope).unwrap().remove(0);
        match act.run(&plan, Some(Arc::clone(&slow))).await.verdict {
            Verdict::Committed => break,
            Verdict::Replan { max_bytes, .. } => policy.max_job_bytes = max_bytes.unwrap_or(policy.max_job_bytes),
            verdict => panic!("{verdict:?}"),
        }
    }
    stop.store(true, Ordering::Relaxed);
    let (expected, commits) = writing.await.unwrap();
    assert!(commits >= 3, "the writer did not come in between");
    assert_eq!(t.rows().await, expected);
}

/// Deletes one row by its key, or appends one, until it is stopped: the rows that
/// the table must hold, and how often it committed.
async fn stream(t: Arc<Table>, stop: Arc<AtomicBool>) -> (Vec<String>, usize) {
    let (mut rows, mut commits): (BTreeSet<i64>, usize) = ((0..128).collect(), 0);
    // all that is left when the machine is slow and every old row is deleted
    let appends = |n: i64| n % 4 == 3 || n >= 128;
    for n in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
        loop {
            let base = t.load().await;
            let change =
                if appends(n) { t.change().append([row(1_000 + n, "v", 0)]) } else { t.change().delete_equal(&["id"], [row(n, "", 0)]) };
            let (_, updates) = change.stage(&base).await;
            let holds = vec![TableRequirement::RefSnapshotIdMatch { r#ref: MAIN.into(), snapshot_id: base.view.head }];
            match t.port.commit(&base.loaded, holds, updates, &Watch::default()).await.unwrap() {
                Answer::Landed(_) => break,
                Answer::Moved => {}
                other => panic!("{other:?}"),
            }
        }
        commits += 1;
        match appends(n) {
            true => assert!(rows.insert(1_000 + n)),
            false => assert!(rows.remove(&n)),
        }
    }
    let mut texts: Vec<String> = rows.iter().map(|id| format!("{id}|v")).collect();
    texts.sort();
    (texts, commits)
}

/// A delete file over several new files has bounds that span ours: what counts is
/// whether it names one of them.
#[tokio::test]
async fn h74_position_deletes_of_new_files_are_no_conflict_though_their_bounds_span_the_inputs() {
    for bounds in [Bounds::Exact, Bounds::Cut(16), Bounds::Inverted, Bounds::Absent] {
        let t = Table::plain().past().create().await;
        let before = t.append([row(1, "a", 0), row(2, "b", 0)]).await;
        let input = t.append([row(3, "c", 0), row(4, "d", 0)]).await;
        let plan = t.plan_files(&[&input]).await;
        let written = t.naive_rewrite(&plan).await;
        let after = t.append([row(5, "e", 0), row(6, "f", 0)]).await;
        assert!(before.path < input.path && input.path < after.path);
        t.change().delete_positions_with(&[(&before, 0), (&after, 1)], bounds).commit().await;

        let outcome = t.commit(&plan, &written, "a1").await;

        assert!(matches!(outcome, Outcome::Landed { .. }), "{bounds:?}: {outcome:?}");
        assert_eq!(t.rows().await, ["2|b", "3|c", "4|d", "5|e"]);
        // one that names an input too is carried over, and stays for the other file
        let plan = t.plan_files(&[&before]).await;
        let written = t.naive_rewrite(&plan).await;
        t.change().delete_positions_with(&[(&before, 1), (&after, 0)], bounds).commit().await;
        let watch = Watch::default();
        let outcome = t.commit_on(&t.load().await, &plan, &written, "a2", &watch).await.unwrap();
        assert!(matches!(outcome, Outcome::Landed { .. }), "{bounds:?}: {outcome:?}");
        assert_eq!(*watch.carried.lock().unwrap(), [1], "{bounds:?}");
        assert_eq!(t.rows().await, ["3|c", "4|d"]);
    }
}
