//! Writers win, and rows are right whoever was faster.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use afterwrite::act::{JobState, Journal, Query};
use afterwrite::lake::iceberg::catalog::memory::Fault;
use afterwrite::model::decision::{Reason, Verdict};
use afterwrite::serve::backend::Backend;
use iceberg::spec::Operation;

use super::spy::{Between, Wrong};
use super::world::{ACTING, Process, World, append_small, data_files, rows, snapshots};
use crate::fixture::{File, Spec, Table, row};

struct Scene {
    world: World,
    table: Arc<Table>,
    files: Vec<File>,
    process: Process,
}

async fn scene() -> Scene {
    scene_of(Table::plain()).await
}

async fn scene_of(spec: Spec) -> Scene {
    scene_in(World::new(ACTING), spec).await
}

async fn scene_in(world: World, spec: Spec) -> Scene {
    let table = Arc::new(world.table(spec, "t").await);
    let files = append_small(&table, 0, 9, 0).await;
    let process = world.start().await;
    Scene { world, table, files, process }
}

impl Scene {
    /// Does something between each of the first `times` rewrites and its commit.
    fn meanwhile<F: Future<Output = ()> + Send + 'static>(
        &self,
        times: usize,
        act: impl Fn(Arc<Table>, usize) -> F + Send + Sync + 'static,
    ) {
        let (table, done) = (Arc::clone(&self.table), AtomicUsize::new(0));
        let act = Arc::new(act);
        let between: Between = Arc::new(move || {
            let n = done.fetch_add(1, Ordering::SeqCst);
            let (table, act) = (Arc::clone(&table), Arc::clone(&act));
            Box::pin(async move {
                if n < times {
                    act(table, n).await;
                }
            })
        });
        *self.process.seen.between.lock().unwrap() = Some(between);
    }

    async fn end(self) {
        self.world.layout_is_right(&self.process, &self.table).await;
        self.process.nothing_is_stuck(&self.world).await;
        self.process.stop().await;
    }
}

#[tokio::test]
async fn a_row_deleted_while_its_file_is_rewritten_stays_deleted_and_costs_no_second_rewrite() {
    let s = scene().await;
    let victim = s.files[3].clone();
    s.meanwhile(1, move |table, _| {
        let victim = victim.clone();
        async move {
            table.change().delete_positions(&[(&victim, 0)]).commit().await;
        }
    });
    s.process.look_at(&s.table).await;
    s.process.pass(10_000).await;
    assert_eq!((s.process.seen.rewrites(), data_files(&s.table).await), (1, 1));
    let expected: Vec<String> = (0..9).filter(|id| *id != 3).map(|id| format!("{id}|v")).collect();
    assert_eq!(s.table.rows().await, expected);
    let job = s.world.journal.jobs(Query::Latest(1)).await.unwrap().remove(0);
    assert_eq!((job.state, job.numbers.deletes_carried, job.numbers.wasted_bytes), (JobState::Committed, 1, 0));
    s.end().await;
}

#[tokio::test]
async fn a_vector_that_comes_while_its_file_is_rewritten_is_carried_over() {
    let s = scene_of(Table::plain().v3()).await;
    let victim = s.files[3].clone();
    s.meanwhile(1, move |table, _| {
        let victim = victim.clone();
        async move { table.delete_by_vectors(&[(&victim, &[0])]).await }
    });
    let mut lineage = s.table.lineage().await;
    lineage.retain(|row| row.0 != "3|v");
    s.process.look_at(&s.table).await;
    s.process.pass(10_000).await;
    assert_eq!((s.process.seen.rewrites(), data_files(&s.table).await), (1, 1));
    assert_eq!((s.table.lineage().await, lineage.len()), (lineage, 8));
    let job = s.world.journal.jobs(Query::Latest(1)).await.unwrap().remove(0);
    assert_eq!((job.state, job.numbers.deletes_carried, job.numbers.wasted_bytes), (JobState::Committed, 1, 0));
    s.process.nothing_is_stuck(&s.world).await;
    s.process.stop().await;
}

#[tokio::test]
async fn a_delete_that_is_taken_back_while_its_file_is_rewritten_makes_the_work_be_planned_again() {
    let s = scene().await;
    let made = s.table.change().delete_equal(&["id"], [row(3, "", 0)]).commit().await;
    let delete = made.deletes[0].clone();
    s.meanwhile(1, move |table, _| {
        let delete = delete.clone();
        async move {
            table.change().remove(&[&delete]).commit().await;
        }
    });
    s.process.look_at(&s.table).await;
    s.process.pass(10_000).await;
    // in two jobs of half the size, so that the next try is the quicker; one file is left over
    assert_eq!(*s.process.seen.inputs.lock().unwrap(), [9, 4, 4]);
    assert_eq!(data_files(&s.table).await, 3);
    let expected: Vec<String> = (0..9).map(|id| format!("{id}|v")).collect();
    assert_eq!(s.table.rows().await, expected);
    s.end().await;
}

#[tokio::test]
async fn inputs_that_another_writer_replaced_meanwhile_are_left_to_it() {
    let s = scene().await;
    let files = s.files.clone();
    s.meanwhile(1, move |table, _| {
        let files = files.clone();
        async move {
            let all: Vec<&File> = files.iter().collect();
            table.change().remove(&all).append(rows(0..9, 0)).operation(Operation::Overwrite).commit().await;
        }
    });
    s.process.look_at(&s.table).await;
    s.process.pass(600_000).await;
    assert_eq!((s.process.seen.rewrites(), data_files(&s.table).await, snapshots(&s.table).await), (1, 1, 10));
    assert_eq!(s.table.rows().await.len(), 9);
    s.end().await;
}

#[tokio::test]
async fn an_append_meanwhile_costs_no_second_rewrite() {
    let s = scene().await;
    let catalog = s.world.catalog.clone();
    s.meanwhile(1, move |table, _| {
        let catalog = catalog.clone();
        async move {
            catalog.before_swap(Some(Arc::new({
                let catalog = catalog.clone();
                move |_| {
                    let (catalog, table) = (catalog.clone(), table.clone());
                    Box::pin(async move {
                        catalog.before_swap(None);
                        table.append([row(50, "v", 0)]).await;
                    })
                }
            })));
        }
    });
    s.process.look_at(&s.table).await;
    assert_eq!((s.process.seen.rewrites(), data_files(&s.table).await), (1, 2));
    assert_eq!(s.table.rows().await.len(), 10);
    s.end().await;
}

#[tokio::test]
async fn a_lost_answer_is_resolved_whether_the_commit_landed_or_not() {
    for (fault, foreign) in [(Fault::AppliedThenUnknown, false), (Fault::UnknownNotApplied, true)] {
        let s = scene().await;
        s.world.catalog.fail_next(fault.clone());
        s.process.report(&s.table).await;
        s.process.until("the commit", async || s.world.catalog.counts().commits >= 10).await;
        if foreign {
            // the pointer moves on, which proves that the lost one cannot land any more
            s.table.append([row(50, "v", 0)]).await;
        }
        s.process.rest().await;
        let left = if foreign { 2 } else { 1 };
        assert_eq!((s.process.seen.rewrites(), data_files(&s.table).await), (1, left), "{fault:?}");
        assert_eq!(s.table.rows().await.len(), 8 + left, "{fault:?}");
        s.end().await;
    }
}

#[tokio::test]
async fn a_writer_whose_deletes_cannot_be_carried_does_not_make_the_loop_spin() {
    // groups of one partition would run side by side
    let s = scene_in(World::new(&format!("{ACTING}[budget]\nconcurrent_jobs = 1\n")), Table::plain()).await;
    let mut deletes = Vec::new();
    for id in 0..9 {
        let made = s.table.change().delete_equal(&["id"], [row(100 + id, "", 0)]).commit().await;
        deletes.push(made.deletes[0].clone());
    }
    s.meanwhile(9, move |table, n| {
        let delete = deletes[n].clone();
        async move {
            // one that applied is taken back
            let live = crate::fixture::oracle::live(&table.load().await).await;
            if live.iter().any(|l| l.file.file_path() == delete.path) {
                table.change().remove(&[&delete]).commit().await;
            }
        }
    });
    s.process.look_at(&s.table).await;
    let at_once = s.process.seen.rewrites();
    assert!((1..=3).contains(&at_once), "{at_once}");
    for _ in 0..12 {
        s.process.pass(86_400_000).await;
    }
    assert!(s.process.seen.rewrites() <= 10, "{}", s.process.seen.rewrites());
    let deleted = s.table.load().await.view.snapshots.len();
    assert!(deleted >= 10);
    s.end().await;
}

#[tokio::test]
async fn a_file_that_is_missing_does_not_make_the_loop_spin() {
    let s = scene().await;
    s.process.seen.wrong.lock().unwrap().extend([Wrong::FileMissing; 100]);
    s.process.look_at(&s.table).await;
    for _ in 0..20 {
        s.process.pass(60_000).await;
    }
    // twenty minutes at 0, 0, 1, 2, 4, … seconds between two tries
    let tries = s.process.seen.rewrites();
    assert!((4..=16).contains(&tries), "{tries}");
    s.process.seen.wrong.lock().unwrap().clear();
    s.process.pass(600_000).await;
    assert_eq!(data_files(&s.table).await, 1);
    s.end().await;
}

#[tokio::test]
async fn a_rewrite_that_is_not_proven_leaves_the_whole_table_alone() {
    let world = World::new("[defaults]\nact = true\ntarget_file_size = \"1MiB\"\n[budget]\nconcurrent_jobs = 1\n");
    let table = world.table(Table::partitioned_by_p(), "t").await;
    append_small(&table, 0, 12, 7).await;
    append_small(&table, 100, 9, 8).await;
    let before = table.rows().await;
    let process = world.start().await;
    process.seen.wrong.lock().unwrap().push_back(Wrong::NotProven);
    process.look_at(&table).await;
    append_small(&table, 200, 9, 9).await;
    process.look_at(&table).await;
    process.pass(86_400_000).await;
    assert_eq!((process.seen.rewrites(), snapshots(&table).await), (1, 30));
    assert_eq!(table.rows().await.len(), before.len() + 9);
    for decision in process.decisions(&table).await {
        let Verdict::Not { reason: Reason::Refused(refused) } = decision.verdict else { panic!("{:?}", decision.verdict) };
        assert_eq!(refused.refusal.code(), "damaged");
    }
    assert_eq!(process.ooda.get_layout(&table.name, "main").await.unwrap().refused.len(), 1);
    process.nothing_is_stuck(&world).await;
    process.stop().await;
}
