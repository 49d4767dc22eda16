//! How much of a table a job takes, on real tables.

use super::world::{World, append_small, data_files};
use crate::fixture::Table;

/// The inputs of each job of a partition that is written to twice.
async fn inputs(scope: &str) -> Vec<usize> {
    let rules = "rules = [\"entropy\"]\nqueue_min_reduction = \"off\"\n";
    let world =
        World::new(&format!("[defaults]\nact = true\ncooldown = \"0s\"\ntarget_file_size = \"1MiB\"\nscope = \"{scope}\"\n{rules}"));
    let table = world.table(Table::plain(), "t").await;
    append_small(&table, 0, 8, 0).await;
    let process = world.start().await;
    process.look_at(&table).await;
    process.rounds().await;
    append_small(&table, 100, 8, 0).await;
    process.look_at(&table).await;
    process.rounds().await;
    let before = table.rows().await.len();
    let inputs = process.seen.inputs.lock().unwrap().clone();
    process.stop().await;

    // what is remembered of the last rewrite is there after a restart
    append_small(&table, 200, 8, 0).await;
    let process = world.start().await;
    process.look_at(&table).await;
    process.rounds().await;
    assert_eq!(table.rows().await.len(), before + 8);
    let more = process.seen.inputs.lock().unwrap().clone();
    let left = data_files(&table).await;
    assert_eq!(left, 24 + inputs.len() + more.len() - inputs.iter().chain(&more).sum::<usize>());
    process.stop().await;
    [inputs, more].concat()
}

#[tokio::test]
async fn in_snapshot_scope_a_job_takes_what_came_since_the_last_one() {
    assert_eq!(inputs("partition").await, [8, 9, 9]);
    assert_eq!(inputs("snapshot").await, [8, 8, 8]);
    assert_eq!(inputs("table").await, [8, 9, 9]);
}

#[tokio::test]
async fn in_hybrid_scope_a_job_takes_what_gains_most_for_its_cost() {
    // the file that was made is small: to take it along gains a file for few bytes
    assert_eq!(inputs("hybrid").await, [8, 9, 9]);
}
