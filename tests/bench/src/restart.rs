//! How soon a table is known again after a restart, from its checkpoint.

use std::sync::Arc;
use std::time::Instant;

use afterwrite::act::{Journal, SqliteJournal};
use afterwrite::app::JournalCheckpoints;
use afterwrite::model::ident::MAIN;
use afterwrite::orient::{How, Orient};

use crate::figure::{Bench, Figure, median};
use crate::folder::Folder;
use crate::lake::Place;
use crate::observe::SCALE;

/// See the module.
pub const BENCH: Bench = Bench {
    name: "restart_s",
    also: &["first_look_s"],
    about: "first look after a restart at a table of 1 M files with a checkpoint and a log",
    run,
};

fn run(quick: bool) -> anyhow::Result<Vec<Figure>> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?.block_on(measure(quick))
}

async fn measure(quick: bool) -> anyhow::Result<Vec<Figure>> {
    let folder = Folder::new()?;
    let place = Place::on_disk(folder.path());
    let mut table = place.table("t", if quick { 10_000 } else { 1_000_000 }).await?;
    let path = folder.path().join("journal.db");
    let began = Instant::now();
    {
        let journal: Arc<dyn Journal> = Arc::new(SqliteJournal::open(&path).await?);
        let orient = Orient::new(1 << 30, Arc::new(JournalCheckpoints(journal)));
        let loaded = place.lake.glance(&table.name, MAIN).await?.ok_or_else(|| anyhow::anyhow!("gone"))?;
        orient.absorb(loaded.as_ref(), SCALE, 0).await?;
    }
    let rebuild = began.elapsed().as_secs_f64();
    let mut took = Vec::new();
    for _ in 0..if quick { 3 } else { 9 } {
        let began = Instant::now();
        let journal: Arc<dyn Journal> = Arc::new(SqliteJournal::open(&path).await?);
        let orient = Orient::new(1 << 30, Arc::new(JournalCheckpoints(journal)));
        let loaded = place.lake.glance(&table.name, MAIN).await?.ok_or_else(|| anyhow::anyhow!("gone"))?;
        let absorbed = orient.absorb(loaded.as_ref(), SCALE, 0).await?;
        took.push(began.elapsed().as_secs_f64());
        anyhow::ensure!(
            absorbed.manifests_read <= 1 && !matches!(absorbed.how, How::Rebuilt(_)),
            "read {} manifests: {:?}",
            absorbed.manifests_read,
            absorbed.how
        );
        table.commit(5, true).await?;
    }
    Ok(vec![Figure::new("restart_s", median(&took), "s"), Figure::new("first_look_s", rebuild, "s")])
}
