//! Tables come, go, and change their names.

use std::sync::Arc;

use afterwrite::model::decision::{Reason, Verdict};
use afterwrite::model::ident::{MAIN, TableName};
use afterwrite::model::refusal::Refusal;
use afterwrite::orient::Key;
use afterwrite::serve::backend::{Backend, Error};

use super::spy::Between;
use super::world::{ACTING, World, append_small, data_files, event};
use crate::fixture::process::over_rest;
use crate::fixture::{Bounds, Table};

#[tokio::test]
async fn a_table_created_again_under_a_name_is_another_table() {
    let world = World::new("[defaults]\nact = true\ntarget_file_size = \"1MiB\"\ncooldown = \"1h\"\n");
    let old = world.table(Table::plain(), "t").await;
    append_small(&old, 0, 9, 0).await;
    let gone = old.load().await.view.ident;
    let process = world.start().await;
    process.look_at(&old).await;
    assert_eq!(process.seen.rewrites(), 1);
    // when it is dropped and created again, and reported under the same name
    world.catalog.drop_table(&old.name);
    let new = world.table(Table::plain(), "t").await;
    append_small(&new, 0, 9, 0).await;
    process.ooda.hear(event(&new.name, &[], 0));
    process.rest().await;
    // then it does not inherit the cooldown, and the old one is forgotten
    assert_eq!((process.seen.rewrites(), data_files(&new).await), (2, 1));
    assert!(process.orient.state(&Key::new(gone, MAIN)).await.is_none());
    world.layout_is_right(&process, &new).await;
    process.stop().await;
}

#[tokio::test]
async fn a_table_that_its_catalog_set_back_is_known_as_it_stands_and_worked_on_again() {
    let world = World::new(ACTING);
    let table = world.table(Table::plain(), "t").await;
    append_small(&table, 0, 9, 0).await;
    let backup = table.load().await.view.metadata_location;
    let process = world.start().await;
    process.look_at(&table).await;
    append_small(&table, 100, 5, 0).await;
    process.look_at(&table).await;
    assert_eq!((process.seen.rewrites(), data_files(&table).await), (1, 6));
    // when the catalog is restored, and only a poll finds it
    world.catalog.drop_table(&table.name);
    world.catalog.register(&table.name, &backup);
    process.poller.once().await.unwrap();
    process
        .until("the rewrite", async || {
            process.clock_passes(1_000);
            process.seen.rewrites() == 2
        })
        .await;
    process.rest().await;
    assert_eq!((data_files(&table).await, table.rows().await.len()), (1, 9));
    world.layout_is_right(&process, &table).await;
    process.stop().await;
}

#[tokio::test]
async fn a_table_that_was_replaced_since_it_was_judged_is_not_worked_on_under_the_old_one_s_leave() {
    let world = World::new("[defaults]\ntarget_file_size = \"1MiB\"\n");
    let old = world.table(Table::plain().property("afterwrite.enabled", "true"), "t").await;
    append_small(&old, 0, 9, 0).await;
    let process = world.idle().await;
    process.ooda.look(&old.name, MAIN, &[]).await.unwrap();
    world.catalog.drop_table(&old.name);
    let new = world.table(Table::plain(), "t").await;
    append_small(&new, 0, 9, 0).await;
    process.ooda.round().await;
    process.until("the job's end", async || process.ooda.health().jobs == 0).await;
    assert_eq!((process.seen.rewrites(), data_files(&new).await), (0, 9));
}

#[tokio::test]
async fn a_renamed_table_keeps_its_state_and_what_its_partitions_remember() {
    let world = World::new("[defaults]\nact = true\ntarget_file_size = \"1MiB\"\ncooldown = \"1h\"\n");
    let mut table = world.table(Table::plain(), "t").await;
    append_small(&table, 0, 9, 0).await;
    let process = world.start().await;
    process.poller.once().await.unwrap();
    process.rest().await;
    let read = process.seen.manifests.load(std::sync::atomic::Ordering::SeqCst);
    let to = TableName::new("lake", "ns", "renamed");
    assert!(world.catalog.rename(&table.name, &to));
    // when the new name is looked at, then the old one
    process.ooda.hear(event(&to, &[], 0));
    process.rest().await;
    process.poller.once().await.unwrap();
    process.rest().await;
    table.name = to;
    assert_eq!(process.seen.manifests.load(std::sync::atomic::Ordering::SeqCst), read);
    assert_eq!((process.seen.rewrites(), process.ooda.health().tables), (1, 1));
    assert!(matches!(process.reason(&table).await, Reason::CoolingDown { .. }));
    append_small(&table, 100, 9, 0).await;
    process.pass(3_700_000).await;
    process.look_at(&table).await;
    assert_eq!((process.seen.rewrites(), data_files(&table).await), (2, 1));
    process.stop().await;
}

#[tokio::test]
async fn a_table_dropped_while_it_is_rewritten_ends_the_job_and_is_forgotten() {
    let world = World::new(ACTING);
    let table = world.table(Table::plain(), "t").await;
    append_small(&table, 0, 9, 0).await;
    let process = world.start().await;
    let (catalog, name) = (world.catalog.clone(), table.name.clone());
    let between: Between = Arc::new(move || {
        let (catalog, name) = (catalog.clone(), name.clone());
        Box::pin(async move { assert!(catalog.drop_table(&name)) })
    });
    *process.seen.between.lock().unwrap() = Some(between);
    process.look_at(&table).await;
    process.pass(600_000).await;
    assert_eq!((process.seen.rewrites(), process.ooda.health().tables, process.ooda.health().jobs), (1, 0, 0));
    assert!(matches!(process.ooda.get_layout(&table.name, MAIN).await, Err(Error::NotFound(_))));
    process.stop().await;
}

#[tokio::test]
async fn an_encrypted_table_is_watched_and_left_alone() {
    let world = World::new(ACTING);
    let table = world.table(Table::plain().property("encryption.key-id", "k"), "t").await;
    let process = world.start().await;
    process.ooda.hear(event(&table.name, &[], 0));
    process.rest().await;
    let layout = process.ooda.get_layout(&table.name, MAIN).await.unwrap();
    assert_eq!((layout.format_version, layout.refused[0].refusal.code()), (2, "encrypted"));
    process.stop().await;
}

#[tokio::test]
async fn a_refused_partition_is_judged_anew_when_a_commit_mends_it() {
    let world = World::new(ACTING);
    let table = world.table(Table::plain(), "t").await;
    let mut files = append_small(&table, 0, 9, 0).await;
    // given a file that is no Parquet
    let broken = files.remove(0);
    let io = world.catalog.io().clone();
    let bytes = io.new_input(&broken.path).unwrap().read().await.unwrap();
    io.new_output(&broken.path).unwrap().write(vec![0_u8; bytes.len()].into()).await.unwrap();
    let process = world.start().await;
    process.look_at(&table).await;
    process.pass(86_400_000).await;
    let Verdict::Not { reason: Reason::Refused(refused) } = process.verdict(&table).await else { panic!() };
    assert_eq!(refused.refusal.code(), "damaged");
    assert_eq!(process.seen.rewrites(), 1);
    // a change of the table's metadata may have mended it: one more try
    table.set_property("note", "checked").await;
    process.poller.once().await.unwrap();
    process.rest().await;
    process.pass(86_400_000).await;
    assert_eq!(process.seen.rewrites(), 2);
    // when its owner takes it out
    table.change().remove(&[&broken]).operation(iceberg::spec::Operation::Delete).commit().await;
    append_small(&table, 100, 1, 0).await;
    process.look_at(&table).await;
    assert_eq!((process.seen.rewrites(), data_files(&table).await), (3, 1));
    assert_eq!(table.rows().await.len(), 9);
    process.stop().await;
}

#[tokio::test]
async fn a_partition_refused_for_a_delete_of_another_is_judged_anew_once_that_is_gone() {
    let world = World::new(ACTING);
    let table = world.table(Table::partitioned_by_p(), "t").await;
    let old = append_small(&table, 0, 9, 1).await;
    table.evolve_spec(&[]).await;
    let new = append_small(&table, 20, 1, 1).await;
    let before = table.head().await;
    table.change().delete_positions_in(&new[0], &[(&old[0], 0)], Bounds::Exact).commit().await;
    let process = world.start().await;
    process.look_at(&table).await;
    let refused = async || {
        let verdicts = process.decisions(&table).await.into_iter().map(|d| d.verdict);
        verdicts.filter(|v| matches!(v, Verdict::Not { reason: Reason::Refused(r) } if r.refusal == Refusal::StrayDelete)).count()
    };
    assert_eq!((refused().await, process.seen.rewrites(), data_files(&table).await), (1, 0, 10));
    // when the delete is rolled back, which changes another partition
    table.set_main(before).await;
    process.look_at(&table).await;
    process.pass(86_400_000).await;
    assert_eq!((refused().await, process.seen.rewrites(), data_files(&table).await), (0, 1, 2));
    process.stop().await;
}

#[tokio::test]
async fn a_table_that_cannot_be_read_says_why() {
    if over_rest().is_some() {
        return; // such a catalog reads the metadata itself
    }
    let world = World::new(ACTING);
    let table = world.table(Table::plain(), "t").await;
    append_small(&table, 0, 1, 0).await;
    let io = world.catalog.io().clone();
    let location = table.load().await.view.metadata_location;
    let whole = io.new_input(&location).unwrap().read().await.unwrap();
    io.new_output(&location).unwrap().write(b"{}".to_vec().into()).await.unwrap();
    let process = world.start().await;
    process.ooda.hear(event(&table.name, &[], 0));
    process.rest().await;
    let error = process.ooda.why(&table.name, None).await.unwrap_err();
    assert!(matches!(&error, Error::Refused(refused) if refused.refusal.code() == "damaged"), "{error:?}");
    // and is taken in once it can
    io.new_output(&location).unwrap().write(whole).await.unwrap();
    process.look_at(&table).await;
    assert_eq!(process.decisions(&table).await.len(), 1);
    process.stop().await;
}
