//! What the product's process holds at most while it compacts what takes the most memory:
//! tables of many columns, of huge values, of many deleted rows. The limit is the same
//! for all; the figures say how much of it was used.

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use afterwrite::lake::clock::{Chance, Clock, SystemChance, SystemClock};
use afterwrite::lake::iceberg::append::{self, Definition, Stamp};
use afterwrite::lake::iceberg::catalog::Catalog;
use afterwrite::lake::iceberg::catalog::sql::{Options, SqlCatalog};
use afterwrite::lake::iceberg::lake::Lake;
use afterwrite::lake::iceberg::read;
use afterwrite::lake::iceberg::table::IcebergTable;
use afterwrite::model::ident::{MAIN, TableName};
use afterwrite::model::outcome::Outcome;
use afterwrite::model::plan::AttemptId;
use anyhow::Context;
use arrow_array::{ArrayRef, BinaryArray, Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use serde_json::Value;

use crate::carry::{Silent, mixed};
use crate::figure::{Bench, Figure};
use crate::folder::Folder;

/// See the module.
pub const BENCH: Bench = Bench {
    name: "memory",
    about: "peak memory of the process that compacts wide tables, huge values, and files with millions of deleted rows, and its share of memory_limit",
    also: &["memory_wide", "memory_values", "memory_deletes"],
    run,
};

/// `memory_limit` of every case.
const LIMIT: u64 = 512 << 20;

/// What a table holds.
struct Case {
    name: &'static str,
    files: usize,
    rows: usize,
    /// Columns of whole numbers beside `id`.
    columns: usize,
    /// Bytes of one value of `blob`; 0 for no such column.
    value: usize,
    /// Rows that are deleted by position.
    deleted: i64,
}

fn cases(quick: bool) -> [Case; 3] {
    let of = |name, files, rows, columns, value, deleted| Case { name, files, rows, columns, value, deleted };
    match quick {
        true => [of("wide", 4, 20, 200, 0, 0), of("values", 4, 4, 0, 1 << 20, 0), of("deletes", 4, 20_000, 0, 0, 10_000)],
        false => [of("wide", 16, 200, 5_000, 0, 0), of("values", 8, 8, 0, 16 << 20, 0), of("deletes", 16, 500_000, 0, 0, 4_000_000)],
    }
}

fn run(quick: bool) -> anyhow::Result<Vec<Figure>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let program =
        std::env::var("AFTERWRITE_BIN").context("AFTERWRITE_BIN names the program whose memory is measured; `tests/bench/run` sets it")?;
    let mut figures = Vec::new();
    for case in cases(quick) {
        let folder = Folder::new()?;
        runtime.block_on(load(&case, folder.path())).with_context(|| format!("loading {}", case.name))?;
        let (peak, seconds) = compacted(&program, folder.path())?;
        figures.push(Figure::new(format!("memory_{}_peak", case.name), peak as f64, "bytes"));
        figures.push(Figure::new(format!("memory_{}_of_limit", case.name), peak as f64 / LIMIT as f64, "x memory_limit"));
        figures.push(Figure::new(format!("memory_{}_wall", case.name), seconds, "s"));
    }
    Ok(figures)
}

/// Compacts the table by the program: its peak memory and seconds.
fn compacted(program: &str, folder: &Path) -> anyhow::Result<(u64, f64)> {
    let at = folder.display();
    let settings = format!(
        "[catalog.lake]\ntype = \"sql\"\nuri = \"sqlite://{at}/catalog.db\"\nwarehouse = \"file://{at}\"\n\n[journal]\npath = \"{at}/journal.db\"\n\n\
         [budget]\nconcurrent_jobs = 1\n\n[defaults]\nmemory_limit = \"{LIMIT}\"\n"
    );
    let config = folder.join("afterwrite.toml");
    std::fs::write(&config, settings)?;
    let done = Command::new(program).arg("--config").arg(&config).args(["--json", "compact", "lake.db.t"]).output()?;
    let told = String::from_utf8_lossy(&done.stdout);
    anyhow::ensure!(done.status.success(), "{told}{}", String::from_utf8_lossy(&done.stderr));
    let row: Value = serde_json::from_str(told.lines().next().context("nothing was told")?)?;
    anyhow::ensure!(row["result"] == "committed", "{row}");
    let peak = row["peak_memory"].as_u64().with_context(|| format!("no peak memory in {row}"))?;
    Ok((peak, row["seconds"].as_f64().unwrap_or_default()))
}

async fn load(case: &Case, folder: &Path) -> anyhow::Result<()> {
    let options = Options {
        name: "lake".into(),
        uri: format!("sqlite://{}/catalog.db", folder.display()),
        warehouse: Some(format!("file://{}", folder.display())),
        create_if_missing: true,
        ..Options::default()
    };
    let catalog: Arc<dyn Catalog> = Arc::new(SqlCatalog::open(options, Arc::new(SystemChance)).await?);
    let name = TableName::new("lake", "db", "t");
    let mut fields = vec![Field::new("id", DataType::Int64, false)];
    fields.extend((0..case.columns).map(|n| Field::new(format!("c{n}"), DataType::Int64, true)));
    fields.extend((case.value > 0).then(|| Field::new("blob", DataType::Binary, false)));
    let columns = Schema::new(fields);
    let location = format!("file://{}/t", folder.display());
    append::create(catalog.as_ref(), &name, Definition { location, columns: &columns, month_of: None, properties: HashMap::new() }).await?;
    let lake = Lake::new([catalog]);
    for file in 0..case.files {
        let table = table(&lake, &name).await?;
        let schema = read::schema::arrow_schema(table.loaded.metadata.current_schema())?;
        let batch = batch(case, file, &schema)?;
        let staged = append::stage_append(&table, &batch, &AttemptId(format!("load-{file}")), &Silent).await?;
        land(&table, &staged).await?;
    }
    // in several commits, as deletes come
    for part in 0..4 {
        let keys = (0..case.deleted).filter(|key| key % 4 == part).map(|key| key * total(case) / case.deleted.max(1)).collect();
        if case.deleted > 0 {
            let table = table(&lake, &name).await?;
            let staged = append::stage_delete(&table, "id", &keys, &AttemptId(format!("delete-{part}")), &Silent).await?;
            land(&table, &staged).await?;
        }
    }
    Ok(())
}

fn total(case: &Case) -> i64 {
    i64::try_from(case.files * case.rows).unwrap_or(i64::MAX)
}

fn batch(case: &Case, file: usize, schema: &arrow_schema::SchemaRef) -> anyhow::Result<RecordBatch> {
    let first = i64::try_from(file * case.rows)?;
    let ids: Vec<i64> = (first..first + i64::try_from(case.rows)?).collect();
    let mut columns: Vec<ArrayRef> = vec![Arc::new(Int64Array::from(ids.clone()))];
    for column in 0..i64::try_from(case.columns)? {
        let values = ids.iter().map(|id| (mixed(id * 31 + column) >> 20) as i64);
        columns.push(Arc::new(Int64Array::from_iter_values(values)));
    }
    if case.value > 0 {
        // as good as random, so that it does not compress away
        let values = ids.iter().map(|id| {
            let words = (0..case.value as i64 / 8).map(|word| mixed(id * 7_919 + word));
            words.flat_map(u64::to_le_bytes).collect::<Vec<u8>>()
        });
        let blobs: ArrayRef = Arc::new(BinaryArray::from_iter_values(values));
        let wanted = schema.fields().last().context("a column")?.data_type();
        let blobs = match wanted {
            DataType::LargeBinary => Arc::new(arrow_array::LargeBinaryArray::from_iter_values(
                blobs.as_any().downcast_ref::<BinaryArray>().context("binary")?.iter().flatten(),
            )) as ArrayRef,
            _ => blobs,
        };
        columns.push(blobs);
    }
    Ok(RecordBatch::try_new(Arc::clone(schema), columns)?)
}

async fn table(lake: &Lake, name: &TableName) -> anyhow::Result<IcebergTable> {
    lake.table(name, MAIN).await?.context("the table is gone")
}

async fn land(table: &IcebergTable, staged: &append::Staged) -> anyhow::Result<()> {
    let stamp = Stamp { now_ms: SystemClock.now_ms(), nonce: SystemChance.next() };
    match append::commit(table, staged, stamp, &Silent).await? {
        Outcome::Landed { .. } => Ok(()),
        lost => anyhow::bail!("the writer's commit did not land: {lost:?}"),
    }
}
