//! How fast manifest entries are read, on one core.

use std::time::Instant;

use afterwrite::model::ident::MAIN;

use crate::figure::{Bench, Figure, median};
use crate::lake::{ENTRIES, Place, SNAPSHOTS};
use crate::process;

/// See the module.
pub const BENCH: Bench = Bench {
    name: "manifest_entries_per_s",
    also: &["manifest_entries_per_core_s"],
    about: "manifest entries read a second on one core, statistics of 12 columns in each",
    run,
};

fn run(quick: bool) -> anyhow::Result<Vec<Figure>> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(measure(quick))
}

async fn measure(quick: bool) -> anyhow::Result<Vec<Figure>> {
    let place = Place::in_memory();
    let (files, rounds) = if quick { (SNAPSHOTS, 2) } else { (SNAPSHOTS * 100, 15) };
    let mut table = place.table("t", files).await?;
    table.commit(ENTRIES, true).await?;
    let loaded = place.lake.glance(&table.name, MAIN).await?.ok_or_else(|| anyhow::anyhow!("gone"))?;
    let head = loaded.view().head.ok_or_else(|| anyhow::anyhow!("no head"))?;
    let manifests = loaded.manifests(head).await?;
    let (mut rates, mut of_core) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let (began, on_core) = (Instant::now(), process::on_core()?);
        let mut entries = 0;
        for manifest in &manifests {
            entries += loaded.entries(manifest).await?.len();
        }
        rates.push(entries as f64 / began.elapsed().as_secs_f64());
        of_core.push(entries as f64 / (process::on_core()? - on_core));
    }
    // the second leaves out the time in which others had the core
    Ok(vec![
        Figure::new("manifest_entries_per_s", median(&rates), "1/s"),
        Figure::new("manifest_entries_per_core_s", median(&of_core), "1/s"),
    ])
}
