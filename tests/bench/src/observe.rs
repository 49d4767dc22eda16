//! What a look at one small commit costs, on tables of very different sizes.

use std::sync::Arc;
use std::time::Instant;

use afterwrite::act::{Journal, SqliteJournal};
use afterwrite::app::JournalCheckpoints;
use afterwrite::lake::Format;
use afterwrite::model::ident::MAIN;
use afterwrite::model::layout::SizeScale;
use afterwrite::orient::checkpoint::{Checkpoints, InMemory};
use afterwrite::orient::{How, Orient};

use crate::figure::{Bench, Figure, median};
use crate::folder::Folder;
use crate::lake::{Grown, Place};

/// See the module.
pub const BENCH: Bench = Bench {
    name: "observe_ratio",
    also: &[],
    about: "cost of observing one small commit, largest to smallest median over tables of 1 k to 1 M files",
    run,
};

/// The sizes that files are held against.
pub const SCALE: SizeScale = SizeScale { target: 512 << 20, small_permille: 750 };

/// Commits looked at on each table.
const ROUNDS: usize = 60;

fn run(quick: bool) -> anyhow::Result<Vec<Figure>> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?.block_on(measure(quick))
}

async fn measure(quick: bool) -> anyhow::Result<Vec<Figure>> {
    let folder = Folder::new()?;
    let place = Place::on_disk(folder.path());
    let sizes: &[usize] = if quick { &[1_000, 10_000] } else { &[1_000, 10_000, 100_000, 1_000_000] };
    let rounds = if quick { 10 } else { ROUNDS };
    let journal: Arc<dyn Journal> = Arc::new(SqliteJournal::open(&folder.path().join("journal.db")).await?);
    let kinds: [(&str, Arc<dyn Checkpoints>); 2] =
        [("", Arc::new(JournalCheckpoints(journal))), ("_without_journal", Arc::new(InMemory::default()))];
    let mut tables = Vec::new();
    for size in sizes {
        tables.push(place.table(&format!("t{size}"), *size).await?);
    }
    let mut figures = Vec::new();
    for (kind, checkpoints) in kinds {
        let orient = Orient::new(1 << 30, checkpoints);
        for table in &tables {
            look(&orient, place.lake.as_ref(), table).await?;
        }
        let mut took = vec![Vec::new(); tables.len()];
        // in turns, so that what else the machine does meets all of them
        for _ in 0..rounds {
            for (table, took) in tables.iter_mut().zip(&mut took) {
                table.commit(5, true).await?;
                let began = Instant::now();
                let how = look(&orient, place.lake.as_ref(), table).await?;
                took.push(began.elapsed().as_secs_f64() * 1000.0);
                anyhow::ensure!(how == How::Incremental { snapshots: 1 }, "the look at {} was {how:?}", table.name);
            }
        }
        let medians: Vec<f64> = took.iter().map(|took| median(took)).collect();
        let (least, most) = (medians.iter().copied().fold(f64::MAX, f64::min), medians.iter().copied().fold(0.0, f64::max));
        figures.push(Figure::new(format!("observe_ratio{kind}"), most / least, "ratio"));
        for (size, median) in sizes.iter().zip(&medians) {
            figures.push(Figure::new(format!("observe_ms_{size}{kind}"), *median, "ms"));
        }
    }
    Ok(figures)
}

/// Load, walk, absorb, save: all of a look but the decision.
async fn look(orient: &Orient, lake: &dyn Format, table: &Grown) -> anyhow::Result<How> {
    let loaded = lake.glance(&table.name, MAIN).await?.ok_or_else(|| anyhow::anyhow!("{} is gone", table.name))?;
    Ok(orient.absorb(loaded.as_ref(), SCALE, 1_750_000_000_000).await?.how)
}
