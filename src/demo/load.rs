//! Writers of the load: each plays it into one table, as a streaming engine would.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use async_trait::async_trait;

use super::generate::Load;
use super::tables::Kind;
use crate::app::App;
use crate::cli::progress::Progress;
use crate::lake::clock::{Chance, Clock, SystemChance};
use crate::lake::iceberg::append::{self, Staged, Stamp};
use crate::lake::iceberg::lake::Lake;
use crate::lake::iceberg::table::IcebergTable;
use crate::lake::{self, Control, Error, NotLanded, Table};
use crate::model::ident::{MAIN, TableName};
use crate::model::killpoint::KillPoint;
use crate::model::outcome::{Conflict, Outcome};
use crate::model::plan::AttemptId;
use crate::proto::v1;
use crate::serve::client::Client;

/// Tries of one commit.
const TRIES: u32 = 100;
/// Between two tries when the catalog is busy.
const PAUSE: Duration = Duration::from_millis(20);

/// One in `of` orders of some loads, by key.
pub fn some_orders(loads: &[Load], of: usize) -> BTreeSet<i64> {
    let keys = loads.iter().filter_map(|load| load.orders.columns().first()?.as_primitive_opt::<Int64Type>());
    keys.flat_map(|keys| keys.values().iter().copied()).step_by(of.max(1)).collect()
}

/// A writer of one table.
pub struct Writer {
    lake: Arc<Lake>,
    clock: Arc<dyn Clock>,
    name: TableName,
    kind: Kind,
    hook: Option<Client>,
    progress: Progress,
    conflicts: u64,
}

/// What one commit is to do.
enum Work<'a> {
    Append(&'a Load),
    Delete(&'a BTreeSet<i64>),
}

impl Writer {
    /// A writer that reports its commits through `hook`, if it has one.
    pub fn new(app: &App, name: TableName, kind: Kind, hook: Option<Client>, progress: Progress) -> Self {
        Self { lake: Arc::clone(&app.lake), clock: Arc::clone(&app.clock), name, kind, hook, progress, conflicts: 0 }
    }

    /// The table.
    pub fn name(&self) -> &TableName {
        &self.name
    }

    /// Tries that lost to another commit.
    pub fn conflicts(&self) -> u64 {
        self.conflicts
    }

    /// Appends a load, then deletes the rows of some orders, each in a commit of
    /// its own.
    ///
    /// # Errors
    /// When a commit fails for another reason than that the table moved.
    pub async fn play(&mut self, load: &Load, deleted: &BTreeSet<i64>) -> anyhow::Result<()> {
        self.land(&Work::Append(load)).await?;
        if !deleted.is_empty() {
            self.land(&Work::Delete(deleted)).await?;
        }
        Ok(())
    }

    /// Commits until it lands. Files are written once, unless the rows to delete
    /// have moved to other files.
    async fn land(&mut self, work: &Work<'_>) -> anyhow::Result<()> {
        let mut staged: Option<Staged> = None;
        for _ in 0..TRIES {
            let table = self.load().await?;
            let attempt = AttemptId(format!("demo-{:016x}", SystemChance.next()));
            let files = match staged.take() {
                Some(files) => files,
                None => self.stage(&table, work, &attempt).await?,
            };
            if files.is_empty() {
                return Ok(());
            }
            let named = Named::default();
            let stamp = Stamp { now_ms: self.clock.now_ms(), nonce: SystemChance.next() };
            let outcome = match append::commit(&table, &files, stamp, &named).await {
                Err(Error::Unreachable { .. }) => {
                    self.clock.sleep(PAUSE).await;
                    staged = Some(files);
                    continue;
                }
                outcome => outcome?,
            };
            let mut litter = named.paths();
            match &outcome {
                Outcome::Landed { snapshot_id } => return self.report(&table, *snapshot_id, &files).await,
                Outcome::Conflict(Conflict::MetadataMoved) => staged = Some(files),
                Outcome::Conflict(Conflict::InputGone { .. }) => litter.extend(files.paths()),
                lost => anyhow::bail!("{}: a commit of the load did not land: {lost:?}", self.name),
            }
            self.lost(&table, &attempt, &outcome, &litter).await?;
        }
        anyhow::bail!("{}: a commit of the load lost {TRIES} times", self.name)
    }

    async fn load(&self) -> anyhow::Result<IcebergTable> {
        let table = self.lake.table(&self.name, MAIN).await?;
        table.ok_or_else(|| anyhow::anyhow!("{} is gone", self.name))
    }

    async fn stage(&self, table: &IcebergTable, work: &Work<'_>, attempt: &AttemptId) -> lake::Result<Staged> {
        match work {
            Work::Append(load) => append::stage_append(table, (self.kind.rows)(load), attempt, &Named::default()).await,
            Work::Delete(keys) => append::stage_delete(table, self.kind.key, keys, attempt, &Named::default()).await,
        }
    }

    /// A try lost: what it wrote and the next will not use goes.
    async fn lost(&mut self, table: &IcebergTable, attempt: &AttemptId, outcome: &Outcome, litter: &[String]) -> anyhow::Result<()> {
        self.conflicts += 1;
        self.progress.line(&format!("{}: the writer lost to another commit and tries again", self.name));
        if let Some(proof) = NotLanded::from_outcome(attempt, outcome) {
            table.remove_outputs(&proof, litter).await?;
        }
        Ok(())
    }

    /// Tells the sidecar, as an engine's commit hook does.
    async fn report(&self, table: &IcebergTable, snapshot_id: i64, files: &Staged) -> anyhow::Result<()> {
        let Some(hook) = &self.hook else { return Ok(()) };
        let added =
            v1::FileCounts { data_files: files.data_files() as u64, delete_files: files.delete_files() as u64, ..Default::default() };
        let snapshot = v1::SnapshotChange { snapshot_id: snapshot_id.to_string(), added: Some(added), ..Default::default() };
        let event = v1::CommitEvent {
            table: self.name.to_string(),
            table_uuid: table.view.ident.uuid.to_string(),
            snapshots: vec![snapshot],
            sender: "afterwrite demo".to_owned(),
            ..Default::default()
        };
        hook.report(event).await?;
        Ok(())
    }
}

/// Remembers the files of one try.
#[derive(Default)]
struct Named(Mutex<Vec<String>>);

impl Named {
    fn paths(self) -> Vec<String> {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Control for Named {
    async fn will_write(&self, path: &str) -> lake::Result<()> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(path.to_owned());
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
