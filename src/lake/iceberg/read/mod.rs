//! Reading the live rows of a plan's inputs, deletes applied by the
//! specification's rules.
//!
//! Parquet is read directly. Columns are matched by field id, never by name or
//! place; what cannot be carried exactly is refused by name.

mod batches;
mod column;
mod convert;
pub mod deleted;
mod equality;
pub mod file;
pub mod foresee;
mod identify;
pub mod live;
mod lockstep;
pub mod manifests;
pub mod partition;
mod position;
mod project;
mod projector;
mod rows;
pub mod scan;
pub mod schema;
mod window;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use async_trait::async_trait;

pub use batches::batch_rows;
pub use convert::key as key_column;
pub use project::Key;
pub use rows::name_mapping;

use crate::lake::iceberg::table::IcebergTable;
use crate::lake::{Control, Result};
use crate::model::plan::Plan;

/// Opens the live rows of a plan's inputs. The deletes are loaded here, once
/// for all inputs; the rows are read by and by. The source borrows all three.
///
/// Invariants checked:
/// * every row group of every input is read, and each file has the row count
///   that its manifest states;
/// * every delete file has the row count that its manifest states, and reaches
///   the inputs that the sequence rule says;
/// * every field of the table is found by its id, or is known to be absent.
///
/// Errs refused by name (`ColumnType`, `Damaged`, `DefaultValue`,
/// `DeletionVector`, `NoFieldIds`, `TooLargeForMemory`, `TooManyDeletes`),
/// `NotFound`, `Unreachable`, or what `control` says.
pub async fn open<'a>(table: &'a IcebergTable, plan: &'a Plan, control: &'a dyn Control) -> Result<Box<dyn RowSource + 'a>> {
    Ok(Box::new(rows::Reader::open(table, plan, control).await?))
}

/// The live rows of a plan's inputs, in file and row order, in the table's
/// current schema.
#[async_trait]
pub trait RowSource: Send {
    /// Arrow schema of the batches: the table's current schema, every field
    /// (nested ones too) with its field id in the metadata key `PARQUET:field_id`.
    fn schema(&self) -> SchemaRef;

    /// The next rows, never an empty batch; bounded by bytes as well as rows.
    async fn next(&mut self) -> Result<Option<RecordBatch>>;

    /// Rows of the inputs read so far, deleted ones included; `None` when the
    /// source cannot tell. Outputs are cut evenly by it.
    fn rows_read(&self) -> Option<u64> {
        None
    }

    /// What was read, after `next` gave `None`.
    fn finish(self: Box<Self>) -> ReadSummary;
}

/// What a [`RowSource`] read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadSummary {
    /// Rows of the inputs, deleted ones included.
    pub rows_in: u64,
    /// Rows left out because a delete applies.
    pub rows_deleted: u64,
    /// Of those, rows left out because a position delete names them.
    pub rows_deleted_by_position: u64,
    /// Bytes fetched from the store.
    pub bytes_read: u64,
    /// One entry a leaf column, in schema order, over the live rows.
    pub columns: Vec<ColumnHash>,
}

/// Ordered hash of one leaf column over rows in order, independent of batch
/// borders and of physical encoding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnHash {
    /// Field ids from the root to the leaf, joined by dots.
    pub path: String,
    /// Field id of the leaf.
    pub field_id: i32,
    /// NULL leaves (as the file format counts them: values with a definition
    /// level below the maximum).
    pub nulls: u64,
    /// Values, NULLs included.
    pub values: u64,
    /// The hash.
    pub hash: u128,
}
