//! Reading the live rows of a plan's inputs, deletes applied by the
//! specification's rules.

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use async_trait::async_trait;

use crate::lake::Result;

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
