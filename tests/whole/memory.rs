//! Layouts are held in memory within `[cache] memory`, and nowhere beside it.

use afterwrite::model::decision::Verdict;
use afterwrite::model::ident::MAIN;
use afterwrite::model::traits::Traits;
use afterwrite::orient::Key;
use afterwrite::serve::backend::{Backend, Page};

use super::world::{World, append_small};
use crate::fixture::Table;

const TABLES: usize = 6;
const ADVISED: &str = "[defaults]\ntarget_file_size = \"1MiB\"\n";

/// Traits without what depends on the moment.
fn timeless(traits: Traits) -> Traits {
    Traits { commit_rate: 0.0, quiet_for_ms: None, known_since_ms: None, metadata_bytes: 0, ..traits }
}

/// What is told of tables with a partition that asks for work, one that does not,
/// and one that comes to it by a second commit; and the bytes of layouts held.
async fn told(cache: u64) -> (Vec<(String, Verdict, Traits)>, u64) {
    let world = World::new(ADVISED).with_cache(cache);
    let process = world.start().await;
    let mut tables = Vec::new();
    for n in 0..TABLES {
        let table = world.table(Table::partitioned_by_p(), &format!("t{n}")).await;
        append_small(&table, 0, 9, 7).await;
        append_small(&table, 100, 2 + n as i64 % 3, 8).await;
        append_small(&table, 200, 7, 9).await;
        process.look_at(&table).await;
        tables.push(table);
    }
    for table in &tables {
        append_small(table, 300, 2, 9).await;
        process.look_at(table).await;
    }
    process.rounds().await;
    let mut told = Vec::new();
    for table in &tables {
        let why = process.ooda.why(&table.name, None).await.unwrap();
        told.extend(why.into_iter().map(|e| (e.label, e.decision.verdict, timeless(e.decision.traits))));
        let rows = process.ooda.list_partitions(&table.name, MAIN, Page { size: 10, after: None }).await.unwrap().rows;
        let verdict = |label: &str| told.iter().rfind(|t| t.0 == label).unwrap().1.clone();
        told.extend(rows.into_iter().map(|r| (format!("row {}", r.label), verdict(&r.label), timeless(r.traits))).collect::<Vec<_>>());
        assert_eq!(process.ooda.get_layout(&table.name, MAIN).await.unwrap().partitions, 3);
    }
    let held = process.orient.cached_bytes();
    process.stop().await;
    (told, held)
}

#[tokio::test]
async fn a_small_cache_bounds_the_layouts_that_are_held_and_changes_no_answer() {
    let (free, weight) = told(64 << 20).await;
    assert_eq!(free.len(), TABLES * 6);
    assert_eq!(free.iter().filter(|t| matches!(t.1, Verdict::Now { gain: 8, .. })).count(), TABLES * 4);
    // a cache for a quarter of the tables, and one for none
    for cache in [weight / 4, 0] {
        let (small, held) = told(cache).await;
        assert!(held <= cache, "{held} bytes are held, {cache} may be");
        assert_eq!(small, free);
    }
}

#[tokio::test]
async fn the_layouts_alive_are_those_of_the_cache() {
    for (cache, most) in [(64 << 20, TABLES), (0, 0)] {
        let world = World::new(ADVISED).with_cache(cache);
        let process = world.start().await;
        let mut states = Vec::new();
        for n in 0..TABLES {
            let table = world.table(Table::partitioned_by_p(), &format!("t{n}")).await;
            append_small(&table, 0, 9, 7).await;
            process.look_at(&table).await;
            let key = Key::of(&table.load().await.view);
            states.push(std::sync::Arc::downgrade(&process.orient.state(&key).await.unwrap()));
        }
        process.rounds().await;
        process.orient.cached_bytes();
        let live = states.iter().filter(|state| state.strong_count() > 0).count();
        assert_eq!(live, most, "with {cache} bytes");
        process.stop().await;
    }
}
