//! What a partition takes in memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use afterwrite::lake::{Commit, Control, Error, NotLanded, Proof, Result, Table, Written};
use afterwrite::model::file::{Content, Entry, EntryStatus, FileKey, ManifestRef};
use afterwrite::model::ident::{TableIdent, TableName};
use afterwrite::model::outcome::{Outcome, Resolution};
use afterwrite::model::partition::{PartitionKey, Value};
use afterwrite::model::plan::{AttemptId, Plan, ScopeFiles};
use afterwrite::model::table::{Operation, SnapshotInfo, TableView};
use afterwrite::orient::checkpoint::{Checkpoints, Saved};
use afterwrite::orient::{Key, Orient};
use async_trait::async_trait;

use crate::figure::{Bench, Figure};
use crate::observe::SCALE;
use crate::process::resident;

/// See the module.
pub const BENCH: Bench = Bench {
    name: "partition_bytes",
    also: &["partition_bytes_told"],
    about: "growth of resident memory over 1 M partitions by day and bucket, each with a history, divided",
    run,
};

/// Partitions that one commit writes into.
const EACH: usize = 8_000;

fn run(quick: bool) -> anyhow::Result<Vec<Figure>> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(measure(quick))
}

async fn measure(quick: bool) -> anyhow::Result<Vec<Figure>> {
    let partitions = if quick { 16_000 } else { 1_000_000 };
    let orient = Orient::new(u64::MAX, Arc::new(Nowhere));
    // the first look's own allocations are no partition's
    orient.absorb(&Made::new(0, 0), SCALE, 0).await?;
    let before = resident()?;
    let mut most = 0;
    // first all partitions appear, then every one of them is written into again
    let commits = partitions / EACH;
    let mut figures = Vec::new();
    for (name, from, to) in [("partition_bytes_fresh", 1, commits), ("partition_bytes", commits + 1, 2 * commits)] {
        for commit in from..=to {
            let absorbed = orient.absorb(&Made::new(commit, commits), SCALE, 1_750_000_000_000 + commit as i64).await?;
            most = absorbed.state.layout.partitions().len();
        }
        figures.push(Figure::new(name, (resident()? - before) as f64 / most as f64, "bytes"));
    }
    anyhow::ensure!(most == partitions, "{most} partitions");
    let told = orient.cached_bytes() as f64 / most as f64;
    figures.push(Figure::new("partition_bytes_told", told, "bytes"));
    Ok(figures)
}

/// A table after so many commits, of which each adds one file to some partitions.
pub struct Made {
    view: TableView,
    commits: usize,
    each: usize,
}

impl Made {
    fn new(commit: usize, commits: usize) -> Self {
        let snapshot = |id: usize| SnapshotInfo {
            id: id as i64,
            parent: (id > 1).then(|| id as i64 - 1),
            sequence_number: id as i64,
            timestamp_ms: 0,
            operation: Operation::Append,
            attempt: None,
            instance: None,
            engine: None,
        };
        let view = TableView {
            ident: TableIdent::iceberg(uuid::Uuid::from_u128(7)),
            name: TableName::new("lake", "db", "t"),
            metadata_location: String::new(),
            location: String::new(),
            format_version: 2,
            reference: "main".into(),
            head: (commit > 0).then_some(commit as i64),
            snapshots: (1..=commit).map(|id| (id as i64, snapshot(id))).collect(),
            last_sequence_number: commit as i64,
            specs: BTreeMap::new(),
            properties: BTreeMap::new(),
            created_ms: 0,
            refused: Vec::new(),
        };
        Self { view, commits, each: EACH }
    }

    /// Another table after its first commit, into so many partitions.
    pub fn table(number: usize, each: usize) -> Self {
        let mut made = Self { each, ..Self::new(1, 1) };
        made.view.ident = TableIdent::iceberg(uuid::Uuid::from_u128(1000 + number as u128));
        made.view.name.table = format!("t{number}");
        made
    }
}

#[async_trait]
impl Table for Made {
    fn view(&self) -> &TableView {
        &self.view
    }

    async fn manifests(&self, snapshot_id: i64) -> Result<Vec<ManifestRef>> {
        let row = |id: i64| ManifestRef {
            path: id.to_string().into(),
            bytes: 1_000_000,
            spec_id: 1,
            deletes: false,
            added_snapshot_id: id,
            sequence_number: id,
            live_files: Some(self.each as u64),
            live_records: Some(self.each as u64 * 10_000),
        };
        Ok((1..=snapshot_id).map(row).collect())
    }

    async fn entries(&self, manifest: &ManifestRef) -> Result<Vec<Entry>> {
        let commit = manifest.added_snapshot_id as usize - 1;
        let first = (commit % self.commits) * self.each;
        let entry = |n: usize| Entry {
            status: EntryStatus::Added,
            snapshot_id: manifest.added_snapshot_id,
            content: Content::Data,
            key: FileKey { path: format!("memory://t/data/{commit}-{n}.parquet").into(), offset: None },
            partition: PartitionKey {
                spec_id: 1,
                tuple: [Some(Value::Int(20_000 + (n / 64) as i32)), Some(Value::Int((n % 64) as i32))].into(),
            },
            records: 10_000,
            bytes: 3_000_000 + (n as u64 * 7_919) % 1_000_000,
        };
        Ok((first..first + self.each).map(entry).collect())
    }

    async fn scope(&self, _: &PartitionKey) -> Result<ScopeFiles> {
        Err(never())
    }

    async fn rewrite(&self, _: &Plan, _: &AttemptId, _: &dyn Control) -> Result<Written> {
        Err(never())
    }

    async fn verify(&self, _: &Plan, _: &Written) -> Result<Proof> {
        Err(never())
    }

    async fn commit(&self, _: &Plan, _: &Written, _: &Commit<'_>) -> Result<Outcome> {
        Err(never())
    }

    fn find_attempt(&self, _: &AttemptId, _: &str) -> Resolution {
        Resolution::Open { reason: "never asked".into() }
    }

    async fn undo(&self, _: i64, _: &Commit<'_>) -> Result<Outcome> {
        Err(never())
    }

    async fn remove_outputs(&self, _: &NotLanded, _: &[String]) -> Result<()> {
        Err(never())
    }
}

fn never() -> Error {
    Error::Setup("only looked at".into())
}

/// Checkpoints that take no memory.
pub struct Nowhere;

#[async_trait]
impl Checkpoints for Nowhere {
    async fn load(&self, _: &Key) -> Result<Option<Saved>> {
        Ok(None)
    }

    async fn save(&self, _: &Key, _: Vec<u8>) -> Result<()> {
        Ok(())
    }

    async fn append(&self, _: &Key, _: u64, _: Vec<u8>) -> Result<()> {
        Ok(())
    }

    async fn remove(&self, _: &TableIdent) -> Result<()> {
        Ok(())
    }
}
