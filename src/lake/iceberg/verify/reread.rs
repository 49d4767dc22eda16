//! The inputs read for the proof, where the rewrite has not decoded them: column
//! by column, by a reader that the rewrite has no part in.

use arrow_array::ArrayRef;
use arrow_schema::SchemaRef;
use async_trait::async_trait;
use futures::stream::{self, StreamExt};

use super::second::Second;
use crate::lake::iceberg::hash::RootHasher;
use crate::lake::iceberg::read::ReadSummary;
use crate::lake::iceberg::read::file::{ParquetFile, Store};
use crate::lake::iceberg::read::scan::{AT_ONCE, Consumer, Deletes, Limits, Opened, Projector, Scan, Witness};
use crate::lake::iceberg::table::IcebergTable;
use crate::lake::{Control, Error, Result};
use crate::model::killpoint::KillPoint;
use crate::model::plan::{LiveFile, Plan};

/// Loads the deletes of a plan.
///
/// Errs as [`read::open`](crate::lake::iceberg::read::open) does.
pub async fn deletes<'a>(table: &IcebergTable, plan: &'a Plan, store: &Store) -> Result<Deletes<'a>> {
    Deletes::load(table, plan, store, &Silent).await
}

/// Reads every live row of the inputs in these columns of the table, for its
/// counts and hashes: those that `deletes` leave and `second` knows to be left.
///
/// Errs [`Error::Proof`] when these are not the same rows, and as
/// [`read::open`](crate::lake::iceberg::read::open) does.
pub async fn read(
    table: &IcebergTable,
    plan: &Plan,
    schema: &SchemaRef,
    (deletes, second): (&Deletes<'_>, Option<&Second<'_>>),
    limits: Limits,
) -> Result<ReadSummary> {
    let store = Store::new(&table.loaded.io);
    let projector = Projector::new(table, plan, schema)?;
    let open = |(place, input)| open(&store, &projector, place, input);
    let files = stream::iter(plan.inputs.iter().enumerate().map(open)).buffered(AT_ONCE).boxed();
    let mut scan = Scan::new(limits, files, Some(deletes)).heard_by(second.map(|second| second as &dyn Witness));
    let hashers = scan.run(schema.fields().iter().map(|f| Hashed(RootHasher::new(f))).collect()).await?;
    let struck = scan.struck;
    drop(scan);
    Ok(ReadSummary {
        rows_in: struck.rows,
        rows_deleted: struck.deleted,
        rows_deleted_by_position: struck.by_position,
        bytes_read: store.fetched(),
        columns: hashers.into_iter().flat_map(|h| h.0.finish()).collect(),
    })
}

async fn open(store: &Store, projector: &Projector, place: usize, input: &LiveFile) -> Result<Opened> {
    let file = ParquetFile::open(store, &input.path, input.bytes).await?;
    let rows = file.rows()?;
    if rows != input.records {
        return Err(Error::damaged(&input.path, format_args!("{rows} rows where the manifest states {}", input.records)));
    }
    projector.open(file, place)
}

struct Hashed(RootHasher);

impl Consumer for Hashed {
    fn rows(&mut self, _file: usize, column: &ArrayRef) -> Result<()> {
        self.0.update(column.as_ref()).map_err(|e| Error::Setup(format!("a column cannot be hashed: {e}")))
    }
}

#[async_trait]
impl Witness for Second<'_> {
    async fn hear(&self, input: usize, file: &ParquetFile, group: usize, first: u64, dead: &[u32]) -> Result<()> {
        self.check(input, file, group, first, dead).await
    }
}

/// The proof writes nothing and tells no progress.
struct Silent;

#[async_trait]
impl Control for Silent {
    async fn will_write(&self, _path: &str) -> Result<()> {
        Ok(())
    }

    async fn will_commit(&self, _asserted: &str) -> Result<()> {
        Ok(())
    }

    fn check(&self) -> Result<()> {
        Ok(())
    }

    fn progress(&self, _rows: u64, _bytes: u64) {}

    fn reached(&self, _point: KillPoint) {}
}
