//! A table that is compacted, and the writer beside it.

use std::sync::{Arc, Mutex, PoisonError};

use afterwrite::lake::clock::{Chance, Clock, SystemChance, SystemClock};
use afterwrite::lake::iceberg::append::{self, Stamp};
use afterwrite::lake::iceberg::catalog::Catalog;
use afterwrite::lake::iceberg::catalog::memory::MemoryCatalog;
use afterwrite::lake::iceberg::lake::Lake;
use afterwrite::lake::iceberg::read;
use afterwrite::lake::iceberg::store::file_io;
use afterwrite::lake::iceberg::table::IcebergTable;
use afterwrite::lake::{Format, Table};
use afterwrite::model::ident::{MAIN, TableName};
use afterwrite::model::outcome::Outcome;
use afterwrite::model::partition::PartitionKey;
use afterwrite::model::plan::{AttemptId, Bound, Plan, ScopeFiles};
use anyhow::Context;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};

use super::stream::{Kind, Stream};
use super::{Silent, mixed};
use crate::fixture;
use crate::folder::Folder;

pub struct World {
    pub lake: Lake,
    pub name: TableName,
    pub carries: bool,
    /// Bytes rewritten between two commits of the writer.
    every: u64,
    /// Bytes rewritten since its last commit.
    since: Mutex<u64>,
    stream: Stream,
}

impl World {
    pub async fn new(
        folder: &Folder,
        kind: Kind,
        (files, rows): (usize, usize),
        interval: f64,
        carries: bool,
    ) -> anyhow::Result<Arc<Self>> {
        let io = file_io(&Default::default());
        let catalog: Arc<dyn Catalog> = Arc::new(MemoryCatalog::new("lake", io.clone()));
        let name = TableName::new("lake", "db", "t");
        let location = format!("file://{}/t", folder.path().display());
        let table = fixture::Table::plain().create_with(Arc::clone(&catalog), name.clone(), location, io).await;
        let lake = Lake::new([catalog]);
        let stream = Stream::new(table, kind, i64::try_from(files * rows)?);
        let world = Self { lake, name, carries, every: 0, since: Mutex::default(), stream };
        for file in 0..files {
            world.append(file, i64::try_from(file * rows)?, i64::try_from(rows)?).await?;
        }
        world.stream.begin().await?;
        let all = world.load().await?.scope(&PartitionKey::unpartitioned(0)).await?;
        let bytes: u64 = all.files.iter().map(|file| file.bytes).sum();
        Ok(Arc::new(Self { every: ((bytes as f64 * interval) as u64).max(1), ..world }))
    }

    async fn append(&self, file: usize, first: i64, rows: i64) -> anyhow::Result<()> {
        let ids: Vec<i64> = (first..first + rows).collect();
        // as good as random, so that it does not compress away
        let texts = ids.iter().map(|id| format!("{:016x}{:016x}", mixed(*id), mixed(id + 7)));
        let columns: Vec<ArrayRef> = vec![Arc::new(Int64Array::from(ids.clone())), Arc::new(StringArray::from_iter_values(texts))];
        let table = self.iceberg().await?;
        let schema = read::schema::arrow_schema(table.loaded.metadata.current_schema())?;
        let batch = RecordBatch::try_new(schema, columns)?;
        let staged = append::stage_append(&table, &batch, &AttemptId(format!("load-{file}")), &Silent).await?;
        let stamp = Stamp { now_ms: SystemClock.now_ms(), nonce: SystemChance.next() };
        match append::commit(&table, &staged, stamp, &Silent).await? {
            Outcome::Landed { .. } => Ok(()),
            lost => anyhow::bail!("the load did not land: {lost:?}"),
        }
    }

    async fn iceberg(&self) -> anyhow::Result<IcebergTable> {
        self.lake.table(&self.name, MAIN).await?.context("the table is gone")
    }

    pub async fn load(&self) -> anyhow::Result<Arc<dyn Table>> {
        self.lake.load(&self.name, MAIN).await?.context("the table is gone")
    }

    /// Live files beside those that the stream appended.
    pub fn left(&self, files: &ScopeFiles) -> usize {
        files.files.iter().filter(|file| !self.stream.appended(&file.path)).count()
    }

    /// So many bytes were rewritten: the writer commits what it would have meanwhile.
    pub async fn passed(&self, bytes: u64) -> anyhow::Result<()> {
        let due = {
            let mut since = self.since.lock().unwrap_or_else(PoisonError::into_inner);
            let due = (*since + bytes) / self.every;
            *since = (*since + bytes) % self.every;
            due
        };
        for _ in 0..due {
            self.stream.commit().await?;
        }
        Ok(())
    }

    /// The rows are those that the writer left: a wrong result is no figure.
    pub async fn check(&self) -> anyhow::Result<()> {
        let table = self.iceberg().await?;
        let files = table.scope(&PartitionKey::unpartitioned(0)).await?;
        let plan = Plan {
            table: table.view.ident,
            name: self.name.clone(),
            reference: MAIN.into(),
            snapshot_id: files.snapshot_id,
            sequence_number: files.sequence_number,
            scope: files.scope,
            reason: "check".into(),
            inputs: files.files,
            deletes: files.deletes.into_values().collect(),
            target_file_size: 1,
            bound: Bound { gb_hours: 1.0, millis: i64::MAX, memory: 1 << 30 },
        };
        let mut batches = read::open(&table, &plan, &Silent).await?;
        let mut found = Vec::new();
        while let Some(batch) = batches.next().await? {
            let ids = batch.column_by_name("id").and_then(|ids| ids.as_primitive_opt::<Int64Type>()).context("ids")?;
            let texts = batch.column_by_name("v").and_then(|texts| texts.as_string_opt::<i32>()).context("texts")?;
            found.extend((0..ids.len()).map(|row| (ids.value(row), Stream::is_new(texts.value(row)))));
        }
        found.sort_unstable();
        anyhow::ensure!(found == self.stream.expected(), "{} rows are left, and not those that the writer left", found.len());
        Ok(())
    }
}
