//! H25: a rewrite deletes no input: whoever reads the snapshot before it goes on reading.

use crate::fixture::{Table, oracle, row};
use crate::whole::world::{ACTING, World, append_small, data_files};

#[tokio::test]
async fn h25_the_snapshot_before_a_rewrite_stays_readable() {
    let world = World::new(ACTING);
    let table = world.table(Table::plain(), "t").await;
    let files = append_small(&table, 0, 9, 0).await;
    table.change().delete_positions(&[(&files[4], 0)]).commit().await;
    let before = (table.head().await, table.rows().await);
    table.set_branch("before", before.0).await;
    let process = world.start().await;
    process.look_at(&table).await;
    process.rounds().await;
    assert_eq!((process.seen.rewrites(), data_files(&table).await), (1, 1));
    table.append([row(100, "later", 0)]).await;
    assert_eq!(oracle::rows(&table.load_branch("before").await).await, before.1);
    let live = oracle::live(&table.load_branch("before").await).await;
    assert_eq!(live.len(), 10, "nine data files and a delete");
    process.stop().await;
}
