//! Writers win early: a rewrite that can no longer land stops as soon as the loop
//! has looked at the commit that overtook it.

use std::sync::Arc;

use afterwrite::act::{Job, JobState, Journal, Query, Verdict};
use afterwrite::model::ident::{MAIN, TableName};
use afterwrite::observe::inbox::Limits;
use afterwrite::observe::proxy::Ledger;
use afterwrite::observe::proxy::clients::ClientId;
use afterwrite::observe::proxy::ledger::{End, Heeds, Writing};
use afterwrite::orient::Key;
use afterwrite::serve::backend::Backend;
use iceberg::spec::Operation;

use super::world::{ACTING, Process, World, append_small, event, rows};
use crate::fixture::{File, Table, row};
use crate::observe::free;

/// A rewrite of nine files that waits at its beginning.
struct Scene {
    world: World,
    table: Table,
    files: Vec<File>,
    process: Process,
}

impl Scene {
    async fn new(table: crate::fixture::Spec) -> Self {
        let world = World::new(ACTING);
        let table = world.table(table, "t").await;
        let files = append_small(&table, 0, 9, 0).await;
        let process = world.start().await;
        Self { world, table, files, process }
    }

    async fn begin(&self) {
        self.process.report(&self.table).await;
        self.process.until("a rewrite", async || self.process.seen.rewrites() == 1).await;
    }

    /// Waits until the loop has made what it makes of the table's head.
    async fn is_looked_at(&self) {
        let view = self.table.load().await.view;
        let known = async || {
            let depth = self.process.inbox.depth();
            let state = self.process.orient.state(&Key::of(&view)).await;
            depth.pending == 0 && depth.looking == 0 && state.is_some_and(|state| state.layout.head() == view.head)
        };
        self.process.until("a look", known).await;
    }

    async fn first_job(&self) -> Job {
        self.world.journal.jobs(Query::Latest(100)).await.unwrap().pop().unwrap()
    }

    /// Waits for the first job's end: its state, why, and its tries to commit.
    async fn ended(&self) -> (JobState, String, u32) {
        self.process.until("its end", async || self.first_job().await.state.is_final()).await;
        let job = self.first_job().await;
        (job.state, job.note, job.numbers.tries)
    }

    async fn end(self) {
        self.process.rest().await;
        self.process.nothing_is_stuck(&self.world).await;
        self.process.stop().await;
    }
}

#[tokio::test]
async fn a_rewrite_whose_input_is_replaced_stops_before_it_reads() {
    let s = Scene::new(Table::plain()).await;
    let seen = Arc::clone(&s.process.seen);
    let gate = seen.gate.lock().await;
    s.begin().await;
    s.table.change().remove(&[&s.files[2]]).append(rows(2..3, 0)).operation(Operation::Overwrite).commit().await;
    s.process.report(&s.table).await;
    s.is_looked_at().await;
    drop(gate);

    let gone = format!("dropped: {} is no longer live as planned", s.files[2].path);
    assert_eq!(s.ended().await, (JobState::Failed, gone, 0));
    assert_eq!(s.table.rows().await.len(), 9);
    s.end().await;
}

/// A commit of a client through the proxy, that is over.
fn landed(name: &TableName, base: i64, adds: i64, appends: bool, ledger: &Ledger) {
    let client = ClientId::numbered(1);
    let (table, reference, touched) = (name.clone(), Some(MAIN.to_owned()), Vec::new());
    let writing =
        Writing { request: 1, client, table, uuid: None, reference, parent: Some(base), adds: vec![adds], touched, appends, since_ms: 1 };
    ledger.begun(&writing);
    ledger.ended(&writing, End::Landed, 2);
}

#[tokio::test]
async fn a_rewrite_that_a_clients_commit_has_overtaken_stops_before_the_look_at_it_has_had_its_turn() {
    for appends in [false, true] {
        let world = World::new(ACTING).with_limits(Limits { interval_ms: 3_600_000, ..free() });
        let table = world.table(Table::plain(), "t").await;
        let files = append_small(&table, 0, 9, 0).await;
        let process = world.start().await;
        let ledger = Arc::<Ledger>::default();
        process.ooda.set_clients(Arc::clone(&ledger));
        let seen = Arc::clone(&process.seen);
        let gate = seen.gate.lock().await;
        process.report(&table).await;
        process.until("a rewrite", async || process.seen.rewrites() == 1).await;
        let base = table.head().await;
        table.change().remove(&[&files[2]]).append(rows(2..3, 0)).operation(Operation::Overwrite).commit().await;
        landed(&table.name, base, table.head().await, appends, &ledger);
        let loads = process.seen.loads();
        process.report(&table).await;
        for _ in 0..40 {
            process.clock_passes(100);
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        // one load, however many rounds were made; what only says that it appended is left to the look
        assert_eq!(process.seen.loads() - loads, usize::from(!appends));
        assert_eq!((process.inbox.depth().pending, process.inbox.depth().looking), (1, 0), "the look waits");
        drop(gate);
        let job = async || world.journal.jobs(Query::Latest(100)).await.unwrap().pop().unwrap();
        process.until("its end", async || job().await.state.is_final()).await;
        let job = job().await;
        assert_eq!((job.state, job.numbers.tries > 0), (JobState::Failed, appends), "{}", job.note);
        assert_eq!(table.rows().await.len(), 9);
        process.stop().await;
    }
}

#[tokio::test]
async fn a_rewrite_of_a_table_that_is_dropped_stops() {
    let s = Scene::new(Table::plain()).await;
    let seen = Arc::clone(&s.process.seen);
    let gate = seen.gate.lock().await;
    s.begin().await;
    s.world.catalog.drop_table(&s.table.name);
    s.process.ooda.hear(event(&s.table.name, &[1], 0));
    s.process.until("the look", async || s.process.ooda.tables() == 0 && s.process.inbox.depth().looking == 0).await;
    drop(gate);

    let gone = "dropped: the table was dropped, or another one stands under its name";
    assert_eq!(s.ended().await, (JobState::Failed, gone.to_owned(), 0));
    s.process.stop().await;
}

#[tokio::test]
async fn appends_deletes_and_what_becomes_of_other_partitions_stop_no_rewrite() {
    let s = Scene::new(Table::partitioned_by_p()).await;
    let other = s.table.append([row(50, "v", 8)]).await;
    let seen = Arc::clone(&s.process.seen);
    let gate = seen.gate.lock().await;
    s.begin().await;
    s.table.change().remove(&[&other]).append([row(51, "v", 8)]).operation(Operation::Overwrite).commit().await;
    s.table.change().append([row(52, "v", 0)]).delete_positions(&[(&s.files[1], 0)]).commit().await;
    s.process.report(&s.table).await;
    s.is_looked_at().await;
    drop(gate);

    assert_eq!(s.ended().await.0, JobState::Committed);
    let left: Vec<String> = (0..9).filter(|id| *id != 1).map(|id| format!("{id}|v|0")).collect();
    let expected = [left, vec!["51|v|8".into(), "52|v|0".into()]].concat();
    let mut found = s.table.rows().await;
    found.sort_by_key(|text| text.split('|').next().map(|id| id.parse::<i64>().unwrap()));
    assert_eq!(found, expected);
    s.end().await;
}

#[tokio::test]
async fn a_rewrite_that_no_loop_looks_after_yields_too() {
    let world = World::new(ACTING);
    let table = world.table(Table::plain(), "t").await;
    let files = append_small(&table, 0, 9, 0).await;
    let process = world.idle().await;
    let (plan, view) = (table.plan_all(&files[0]).await, table.load().await.view);
    let seen = Arc::clone(&process.seen);
    let gate = seen.gate.lock().await;
    let (act, looking) = (Arc::clone(&process.act), Arc::clone(&process.act));
    let job = tokio::spawn(async move { act.run(&plan, None).await });
    let looks = tokio::spawn(async move { looking.keep_yielding(&view, std::time::Duration::from_secs(2)).await });
    process.until("a rewrite", async || process.seen.rewrites() == 1).await;
    table.change().remove(&[&files[2]]).append(rows(2..3, 0)).operation(Operation::Overwrite).commit().await;
    for _ in 0..10 {
        process.clock_passes(1_000);
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    drop(gate);
    process.until("its end", async || job.is_finished()).await;
    let result = job.await.unwrap();
    assert!(matches!(result.verdict, Verdict::Dropped { .. }), "{:?}", result.verdict);
    assert_eq!((result.numbers.tries, table.rows().await.len()), (0, 9));
    looks.abort();
}
