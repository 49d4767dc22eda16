//! Work thrown away under a change stream: with deletes carried over to the new files,
//! and by a rewriter that fails on conflict and tries with half as much.
//!
//! Time is counted in bytes rewritten, so that the figures do not depend on the
//! machine: an interval of 0.5 means that the writer commits twice while all files
//! are rewritten once.

mod stream;
mod world;

use std::sync::Arc;

use afterwrite::act::{Act, KillSwitch, MemoryJournal, Ports, Role, Settings, Verdict};
use afterwrite::decide::plan::{Cause, Order, plans};
use afterwrite::lake::clock::{SystemChance, SystemClock};
use afterwrite::lake::{self, Commit, Control, Format, NotLanded, Pointer, Proof, Table, Written};
use afterwrite::model::file::{Entry, ManifestRef};
use afterwrite::model::ident::{MAIN, TableName};
use afterwrite::model::killpoint::KillPoint;
use afterwrite::model::outcome::{Outcome, Resolution};
use afterwrite::model::partition::PartitionKey;
use afterwrite::model::plan::{AttemptId, Plan, ScopeFiles};
use afterwrite::model::policy::{BudgetLimits, Policy};
use afterwrite::model::table::TableView;
use async_trait::async_trait;

use crate::figure::{Bench, Figure};
use crate::folder::Folder;
use stream::Kind;
use world::World;

/// See the module.
pub const BENCH: Bench = Bench {
    name: "carry",
    about: "bytes thrown away under change streams (position deletes, upserts, vectors), beside a rewriter that fails on conflict, by commit interval",
    also: &["carry_upserts", "carry_vectors"],
    run,
};

/// Commit intervals, in rewrites of all files.
const INTERVALS: [f64; 5] = [2.0, 1.0, 0.5, 0.25, 0.1];
/// Jobs after which nobody would go on.
const MOST_JOBS: usize = 60;

fn run(quick: bool) -> anyhow::Result<Vec<Figure>> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?.block_on(measure(quick))
}

async fn measure(quick: bool) -> anyhow::Result<Vec<Figure>> {
    let (files, rows) = if quick { (12, 500) } else { (64, 20_000) };
    let intervals = if quick { &INTERVALS[1..4] } else { &INTERVALS[..] };
    let mut figures = Vec::new();
    for (kind, interval) in Kind::ALL.into_iter().flat_map(|kind| intervals.iter().map(move |interval| (kind, *interval))) {
        for (whose, carries) in [("", true), ("_peer", false)] {
            let who = format!("carry{}{whose}", kind.suffix());
            let done = compact(kind, (files, rows), interval, carries).await?;
            let of = |name: &str, value: u64, unit| Figure::new(format!("{who}_{name}_every_{interval}"), value as f64, unit);
            figures.push(of("thrown_away", done.wasted, "bytes"));
            figures.push(of("landed", done.landed, "bytes"));
            figures.push(of("jobs", done.jobs, "jobs"));
            figures.push(of("deletes_carried", done.carried, "rows"));
            figures.push(of("left", done.left, "files"));
        }
    }
    Ok(figures)
}

/// What came of compacting one table.
#[derive(Default)]
struct Done {
    /// Bytes made or read for nothing.
    wasted: u64,
    /// Bytes of the files replaced.
    landed: u64,
    jobs: u64,
    carried: u64,
    /// Files that there are in the end, beside those that the stream appended: one when
    /// all were compacted.
    left: u64,
}

/// Compacts a table until there is nothing left to gain, or nobody would go on.
async fn compact(kind: Kind, size: (usize, usize), interval: f64, carries: bool) -> anyhow::Result<Done> {
    let folder = Folder::new()?;
    let world = World::new(&folder, kind, size, interval, carries).await?;
    let ports = Ports {
        format: Arc::new(Streamed(Arc::clone(&world))),
        journal: Arc::new(MemoryJournal::default()),
        clock: Arc::new(SystemClock),
        chance: Arc::new(SystemChance),
    };
    let act = Act::start(ports, Role::Command, Settings::default(), KillSwitch::default()).await?;
    let (mut policy, limits) = (Policy::default(), BudgetLimits::default());
    let mut done = Done::default();
    for _ in 0..MOST_JOBS {
        let table = world.load().await?;
        let files = table.scope(&PartitionKey::unpartitioned(0)).await?;
        if world.left(&files) <= 1 {
            break;
        }
        let (ident, name) = (table.view().ident, &world.name);
        let order = Order { table: ident, name, reference: MAIN, policy: &policy, limits: &limits, cause: &Cause::Request };
        let Ok(found) = plans(&order, &files) else { break };
        let Some(plan) = found.into_iter().next() else { break };
        let result = act.run(&plan, None).await;
        done.jobs += 1;
        done.wasted += result.numbers.wasted_bytes;
        match result.verdict {
            Verdict::Committed => {
                done.landed += plan.input_bytes();
                done.carried += result.numbers.deletes_carried;
            }
            Verdict::Replan { max_bytes, .. } => policy.max_job_bytes = max_bytes.unwrap_or(policy.max_job_bytes),
            verdict => anyhow::bail!("a job ended as {verdict:?}"),
        }
    }
    done.left = u64::try_from(world.left(&world.load().await?.scope(&PartitionKey::unpartitioned(0)).await?))?;
    world.check().await?;
    Ok(done)
}

pub fn mixed(n: i64) -> u64 {
    let mut x = n.unsigned_abs().wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// The lake with the writer in it.
struct Streamed(Arc<World>);

struct Under {
    table: Arc<dyn Table>,
    world: Arc<World>,
}

#[async_trait]
impl Format for Streamed {
    fn catalogs(&self) -> Vec<String> {
        self.0.lake.catalogs()
    }

    async fn list(&self, catalog: &str) -> lake::Result<Vec<Pointer>> {
        self.0.lake.list(catalog).await
    }

    async fn load(&self, name: &TableName, reference: &str) -> lake::Result<Option<Arc<dyn Table>>> {
        let table = self.0.lake.load(name, reference).await?;
        Ok(table.map(|table| Arc::new(Under { table, world: Arc::clone(&self.0) }) as Arc<dyn Table>))
    }
}

#[async_trait]
impl Table for Under {
    fn view(&self) -> &TableView {
        self.table.view()
    }

    async fn manifests(&self, snapshot_id: i64) -> lake::Result<Vec<ManifestRef>> {
        self.table.manifests(snapshot_id).await
    }

    async fn entries(&self, manifest: &ManifestRef) -> lake::Result<Vec<Entry>> {
        self.table.entries(manifest).await
    }

    async fn scope(&self, scope: &PartitionKey) -> lake::Result<ScopeFiles> {
        self.table.scope(scope).await
    }

    async fn rewrite(&self, plan: &Plan, attempt: &AttemptId, control: &dyn Control) -> lake::Result<Written> {
        let written = self.table.rewrite(plan, attempt, control).await?;
        self.world.passed(plan.input_bytes()).await.map_err(|e| lake::Error::Setup(format!("the writer: {e:#}")))?;
        Ok(written)
    }

    async fn verify(&self, plan: &Plan, written: &Written) -> lake::Result<Proof> {
        self.table.verify(plan, written).await
    }

    async fn commit(&self, plan: &Plan, written: &Written, commit: &Commit<'_>) -> lake::Result<Outcome> {
        if !self.world.carries
            && let Err(conflict) = plan.check(&self.table.scope(&plan.scope).await?)
        {
            return Ok(Outcome::Conflict(conflict));
        }
        self.table.commit(plan, written, commit).await
    }

    fn find_attempt(&self, attempt: &AttemptId, asserted: &str) -> Resolution {
        self.table.find_attempt(attempt, asserted)
    }

    async fn undo(&self, snapshot_id: i64, commit: &Commit<'_>) -> lake::Result<Outcome> {
        self.table.undo(snapshot_id, commit).await
    }

    async fn remove_outputs(&self, proof: &NotLanded, paths: &[String]) -> lake::Result<()> {
        self.table.remove_outputs(proof, paths).await
    }
}

/// The writer journals nothing.
pub struct Silent;

#[async_trait]
impl Control for Silent {
    async fn will_write(&self, _path: &str) -> lake::Result<()> {
        Ok(())
    }

    async fn will_commit(&self, _asserted: &str) -> lake::Result<()> {
        Ok(())
    }

    fn check(&self) -> lake::Result<()> {
        Ok(())
    }

    fn progress(&self, _rows: u64, _bytes: u64) {}

    fn reached(&self, _point: KillPoint) {}
}
