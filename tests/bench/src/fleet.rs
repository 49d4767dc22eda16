//! What a whole fleet takes in memory: 100,000 tables with 10 M partitions.

use std::sync::Arc;

use afterwrite::orient::Orient;

use crate::figure::{Bench, Figure};
use crate::observe::SCALE;
use crate::partitions::{Made, Nowhere};
use crate::process::resident;

/// See the module.
pub const BENCH: Bench = Bench {
    name: "fleet_gib",
    also: &["fleet_told_gib"],
    about: "growth of resident memory over 100,000 tables with 100 partitions each, written into once",
    run,
};

fn run(quick: bool) -> anyhow::Result<Vec<Figure>> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(measure(quick))
}

async fn measure(quick: bool) -> anyhow::Result<Vec<Figure>> {
    let (tables, each) = if quick { (1_000, 100) } else { (100_000, 100) };
    let orient = Orient::new(u64::MAX, Arc::new(Nowhere));
    let before = resident()?;
    for table in 0..tables {
        let absorbed = orient.absorb(&Made::table(table, each), SCALE, 1_750_000_000_000 + table as i64).await?;
        anyhow::ensure!(absorbed.state.layout.partitions().len() == each, "{} partitions", absorbed.state.layout.partitions().len());
    }
    let gib = |bytes: f64| bytes / f64::from(1 << 30);
    let told = gib(orient.cached_bytes() as f64);
    Ok(vec![Figure::new("fleet_gib", gib((resident()? - before) as f64), "GiB"), Figure::new("fleet_told_gib", told, "GiB")])
}
