//! What would be refused is known of what is only advised, at a bounded cost.

use std::sync::atomic::Ordering;

use afterwrite::model::decision::{Reason, Verdict};
use afterwrite::model::refusal::Refusal;
use afterwrite::serve::backend::Backend;

use super::world::{World, append_small, data_files, snapshots};
use crate::fixture::{Bounds, File, Table};

const ADVISED: &str = "[defaults]\ntarget_file_size = \"1MiB\"\n";

/// Overwrites a file by zeros.
async fn damage(world: &World, file: &File) {
    let io = world.catalog.io().clone();
    let bytes = io.new_input(&file.path).unwrap().read().await.unwrap();
    io.new_output(&file.path).unwrap().write(vec![0_u8; bytes.len()].into()).await.unwrap();
}

#[tokio::test]
async fn an_advised_table_shows_what_only_a_file_s_footer_refuses() {
    let world = World::new(ADVISED);
    let table = world.table(Table::plain(), "t").await;
    let broken = append_small(&table, 0, 9, 0).await.remove(0);
    damage(&world, &broken).await;
    let process = world.start().await;
    process.look_at(&table).await;
    let Reason::Refused(refused) = process.reason(&table).await else { panic!("not refused") };
    assert_eq!(refused.refusal.code(), "damaged");
    assert!(refused.detail.contains(&broken.path), "{refused}");
    assert_eq!((process.seen.rewrites(), snapshots(&table).await), (0, 9));
    assert!(process.ooda.list_candidates(9).await.unwrap().is_empty());
    // and it is advised again when its owner has taken the file out
    table.change().remove(&[&broken]).operation(iceberg::spec::Operation::Delete).commit().await;
    append_small(&table, 100, 1, 0).await;
    process.look_at(&table).await;
    assert!(matches!(process.verdict(&table).await, Verdict::Now { gain: 8, .. }));
    assert_eq!((process.seen.rewrites(), data_files(&table).await), (0, 9));
    process.nothing_is_stuck(&world).await;
    process.stop().await;
}

#[tokio::test]
async fn work_that_waits_for_budget_shows_what_would_refuse_it() {
    let world = World::new("[defaults]\nact = true\ntarget_file_size = \"1MiB\"\n[budget]\nconcurrent_jobs = 1\n");
    let table = world.table(Table::partitioned_by_p(), "t").await;
    append_small(&table, 0, 20, 7).await;
    let broken = append_small(&table, 100, 9, 8).await.remove(0);
    damage(&world, &broken).await;
    let process = world.start().await;
    let gate = process.seen.gate.lock().await;
    process.report(&table).await;
    let refused = async || {
        let why = process.ooda.why(&table.name, Some("p=8")).await;
        why.is_ok_and(|w| matches!(&w[0].decision.verdict, Verdict::Not { reason: Reason::Refused(_) }))
    };
    process.until("a refusal of what waits", refused).await;
    assert_eq!(process.seen.rewrites(), 1);
    drop(gate);
    process.rest().await;
    assert_eq!(process.seen.rewrites(), 1);
    process.stop().await;
}

#[tokio::test]
async fn each_candidate_is_looked_into_once_until_it_changes_and_few_at_a_time() {
    let world = World::new(ADVISED);
    let table = world.table(Table::partitioned_by_p(), "t").await;
    for n in 0..9 {
        let change = (0..50).fold(table.change(), |change, p| change.append([crate::fixture::row(p * 100 + n, "v", p)]));
        change.commit().await;
    }
    let process = world.start().await;
    let foreseen = || process.seen.foreseen.load(Ordering::SeqCst);
    process.report(&table).await;
    process.until("the first of them", async || foreseen() > 0).await;
    // in one round no more than so many
    for _ in 0..50 {
        tokio::time::sleep(std::time::Duration::from_millis(4)).await;
    }
    assert_eq!(foreseen(), 32);
    process.rest().await;
    assert_eq!((foreseen(), process.seen.most_foreseeing.load(Ordering::SeqCst)), (50, 4));
    // nothing is looked into again because time passes, or another partition changes
    process.pass(3_600_000).await;
    append_small(&table, 10_000, 1, 49).await;
    process.look_at(&table).await;
    process.pass(3_600_000).await;
    assert_eq!((foreseen(), process.seen.rewrites()), (51, 0));
    process.stop().await;
}

#[tokio::test]
async fn what_changes_all_the_time_keeps_no_other_candidate_from_being_looked_into() {
    let world = World::new(ADVISED);
    let table = world.table(Table::partitioned_by_p(), "t").await;
    let commit = async |parts: std::ops::Range<i64>, n: i64| {
        let change = parts.fold(table.change(), |change, p| change.append([crate::fixture::row(p * 100 + n, "v", p)]));
        change.commit().await
    };
    let broken = commit(0..40, 0).await.data.pop().unwrap();
    for n in 1..9 {
        commit(0..40, n).await;
    }
    damage(&world, &broken).await;
    let process = world.idle().await;
    let foreseen = || process.seen.foreseen.load(Ordering::SeqCst);
    for n in 0..6 {
        // as many as one round looks into have changed
        commit(0..32, 10 + n).await;
        process.ooda.look(&table.name, "main", &[]).await.unwrap();
        process.clock_passes(600_000);
        let before = usize::try_from(n).unwrap() * 32;
        let looked_into = async || {
            if foreseen() == before {
                process.ooda.round().await;
            }
            foreseen() == before + 32
        };
        process.until("a round of looks", looked_into).await;
    }
    let last = process.ooda.why(&table.name, Some("p=39")).await.unwrap().remove(0).decision.verdict;
    assert!(matches!(last, Verdict::Not { reason: Reason::Refused(_) }), "{last:?}");
}

#[tokio::test]
async fn an_advised_table_shows_at_once_what_a_delete_of_another_partition_refuses() {
    let world = World::new(ADVISED);
    let table = world.table(Table::partitioned_by_p(), "t").await;
    let files = append_small(&table, 0, 9, 7).await;
    let others = append_small(&table, 100, 9, 8).await;
    let process = world.start().await;
    process.look_at(&table).await;
    let verdict = async || process.ooda.why(&table.name, Some("p=7")).await.unwrap().remove(0).decision.verdict;
    assert!(matches!(verdict().await, Verdict::Now { .. }));
    // when a delete that names a file of p=7 comes to p=8
    table.change().delete_positions_in(&others[0], &[(&files[0], 0)], Bounds::Exact).commit().await;
    process.look_at(&table).await;
    let Verdict::Not { reason: Reason::Refused(refused) } = verdict().await else { panic!("{:?}", verdict().await) };
    assert_eq!(refused.refusal, Refusal::StrayDelete);
    process.stop().await;
}

#[tokio::test]
async fn a_store_that_does_not_answer_is_asked_again_later() {
    let world = World::new(ADVISED);
    let table = world.table(Table::plain(), "t").await;
    append_small(&table, 0, 9, 0).await;
    let process = world.idle().await;
    process.ooda.look(&table.name, "main", &[]).await.unwrap();
    world.catalog.set_unreachable(true);
    let looked = async || {
        process.ooda.round().await;
        process.until("the end of it", async || process.ooda.is_at_rest()).await;
    };
    looked().await;
    assert!(matches!(process.verdict(&table).await, Verdict::Now { .. }));
    world.catalog.set_unreachable(false);
    let loads = process.seen.loads();
    process.clock_passes(50_000);
    looked().await;
    assert_eq!(process.seen.loads(), loads);
    process.clock_passes(10_000);
    looked().await;
    assert_eq!((process.seen.loads(), process.seen.foreseen.load(Ordering::SeqCst)), (loads + 1, 1));
}
