//! One table measured as it stands, by this product's own reader.

use serde::Serialize;

use crate::app::App;
use crate::lake;
use crate::lake::iceberg::hash::multiset_hash;
use crate::lake::iceberg::read;
use crate::lake::iceberg::scope;
use crate::lake::iceberg::table::IcebergTable;
use crate::lake::{Control, Table};
use crate::model::ident::{MAIN, TableName};
use crate::model::killpoint::KillPoint;
use crate::model::partition::PartitionKey;
use crate::model::plan::{Bound, Plan, ScopeFiles};
use crate::orient::history::Heard;
use crate::orient::state::TableState;
use crate::orient::{recompute, table_traits};
use crate::settings;

/// Times each measurement is repeated; the mean counts.
const PLANS: u32 = 5;
const SCANS: u32 = 3;
/// Memory of a scan, in bytes.
const MEMORY: u64 = 512 << 20;

/// One side of a comparison.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Side {
    /// Live data files.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Live rows: deleted ones not counted.
    pub rows: u64,
    /// Order-free hash of the live rows, in hexadecimal.
    pub row_hash: String,
    /// File entropy over the square of the target file size, from 0 to 1.
    pub entropy: f64,
    /// Time to plan a scan of the whole table, in milliseconds: metadata,
    /// manifests, and which deletes apply to which files.
    pub plan_ms: f64,
    /// Time to read every column of every row with deletes applied, in milliseconds.
    pub scan_ms: f64,
    /// Snapshots.
    pub commits: u64,
    /// Tries of the writer that lost to another commit.
    pub conflicts: u64,
    /// Bytes of the files that the sidecar replaced.
    pub rewritten_bytes: u64,
    /// Live delete files.
    #[serde(skip)]
    pub delete_files: u64,
}

/// What is known of a table besides what it holds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spent {
    /// See [`Side::conflicts`].
    pub conflicts: u64,
    /// See [`Side::rewritten_bytes`].
    pub rewritten_bytes: u64,
}

/// Measures a table.
///
/// # Errors
/// When it cannot be read.
pub async fn measure(app: &App, name: &TableName, spent: Spent) -> anyhow::Result<Side> {
    let table = load(app, name).await?;
    let view = table.view();
    let (policy, _) = settings::resolve(&app.settings, name, &view.properties);
    let layout = recompute(&table, policy.scale).await?;
    let scopes: Vec<PartitionKey> = layout.partitions().keys().collect();
    let now_ms = app.clock.now_ms();
    let heard = Heard::nothing(now_ms);
    let state = TableState { layout, heard, counted: imbl::OrdMap::new(), last_sequence_number: view.last_sequence_number };
    let traits = table_traits(&state, &policy.cost, now_ms);
    let plans = plan(&table, &scopes).await?;
    let (rows, hash) = contents(&table, &plans).await?;
    Ok(Side {
        files: traits.data_files,
        bytes: traits.data_bytes,
        rows,
        row_hash: format!("{hash:032x}"),
        entropy: traits.file_entropy_normalized,
        plan_ms: time_plans(app, name, &scopes).await?,
        scan_ms: time_scans(app, &table, &plans).await?,
        commits: view.snapshots.len() as u64,
        conflicts: spent.conflicts,
        rewritten_bytes: spent.rewritten_bytes,
        delete_files: traits.delete_file_count,
    })
}

async fn load(app: &App, name: &TableName) -> anyhow::Result<IcebergTable> {
    app.lake.table(name, MAIN).await?.ok_or_else(|| anyhow::anyhow!("{name} is gone"))
}

async fn time_plans(app: &App, name: &TableName, scopes: &[PartitionKey]) -> anyhow::Result<f64> {
    let began_ms = app.clock.now_ms();
    for _ in 0..PLANS {
        plan(&load(app, name).await?, scopes).await?;
    }
    Ok(mean(began_ms, app.clock.now_ms(), PLANS))
}

async fn time_scans(app: &App, table: &IcebergTable, plans: &[Plan]) -> anyhow::Result<f64> {
    let began_ms = app.clock.now_ms();
    for _ in 0..SCANS {
        for plan in plans {
            let mut rows = read::open(table, plan, &Unwatched).await?;
            while rows.next().await?.is_some() {}
        }
    }
    Ok(mean(began_ms, app.clock.now_ms(), SCANS))
}

fn mean(began_ms: i64, ended_ms: i64, times: u32) -> f64 {
    ended_ms.saturating_sub(began_ms).max(0) as f64 / f64::from(times)
}

/// Every live file with the deletes that apply to it, a plan for each partition.
async fn plan(table: &IcebergTable, scopes: &[PartitionKey]) -> lake::Result<Vec<Plan>> {
    let whole = |scope: ScopeFiles| Plan {
        table: table.view.ident,
        name: table.view.name.clone(),
        reference: table.view.reference.clone(),
        snapshot_id: scope.snapshot_id,
        sequence_number: scope.sequence_number,
        scope: scope.scope,
        reason: "scan".into(),
        inputs: scope.files,
        deletes: scope.deletes.into_values().collect(),
        target_file_size: u64::MAX,
        bound: Bound { gb_hours: 0.0, millis: 0, memory: MEMORY },
    };
    Ok(scope::read_many(table, scopes).await?.into_iter().map(whole).collect())
}

/// Live rows and their hash.
async fn contents(table: &IcebergTable, plans: &[Plan]) -> anyhow::Result<(u64, u128)> {
    let (mut count, mut hash) = (0, 0u128);
    for plan in plans {
        let mut rows = read::open(table, plan, &Unwatched).await?;
        while let Some(batch) = rows.next().await? {
            count += batch.num_rows() as u64;
            hash = hash.wrapping_add(multiset_hash(&batch)?);
        }
    }
    Ok((count, hash))
}

/// Reading that nobody stops.
struct Unwatched;

#[async_trait::async_trait]
impl Control for Unwatched {
    async fn will_write(&self, _: &str) -> lake::Result<()> {
        Ok(())
    }

    async fn will_commit(&self, _: &str) -> lake::Result<()> {
        Ok(())
    }

    fn check(&self) -> lake::Result<()> {
        Ok(())
    }

    fn progress(&self, _: u64, _: u64) {}

    fn reached(&self, _: KillPoint) {}
}
