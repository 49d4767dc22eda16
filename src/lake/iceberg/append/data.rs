//! Data files: rows encoded as rewrites encode them.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use async_trait::async_trait;

use super::split::split;
use super::{Made, Staged};
use crate::lake::iceberg::read::schema::arrow_schema;
use crate::lake::iceberg::read::{ReadSummary, RowSource};
use crate::lake::iceberg::rewrite::encode;
use crate::lake::iceberg::rewrite::job::Job;
use crate::lake::iceberg::table::IcebergTable;
use crate::lake::{Control, Error, Result};
use crate::model::partition::{PartitionKey, Tuple};
use crate::model::plan::{AttemptId, Bound, Plan};

/// Memory of the encoder, in bytes.
const MEMORY: u64 = 256 << 20;

/// Writes rows into data files, one for each partition, in no table yet. The rows
/// have the table's columns, in its order. The file names carry `attempt`, which
/// must be new.
///
/// A crash leaves files of which `control` was told.
///
/// # Errors
/// [`Error::Setup`] when the rows are not the table's; store errors.
pub async fn stage_append(table: &IcebergTable, rows: &RecordBatch, attempt: &AttemptId, control: &dyn Control) -> Result<Staged> {
    let metadata = &table.loaded.metadata;
    let schema = arrow_schema(metadata.current_schema())?;
    let rows =
        RecordBatch::try_new(schema, rows.columns().to_vec()).map_err(|e| Error::Setup(format!("rows for {}: {e}", table.view.name)))?;
    let mut staged = Staged::default();
    for (tuple, rows) in split(metadata.current_schema(), metadata.default_partition_spec(), &rows)? {
        let plan = order(table, tuple);
        let job = Job::new(&table.loaded.io, metadata, &plan, attempt, control)?;
        let (made, _) = encode::write(&job, Box::new(Given { schema: rows.schema(), rows: Some(rows) })).await?;
        let spec_id = plan.scope.spec_id;
        staged.data.extend(made.into_iter().map(|made| Made { spec_id, file: made.data_file }));
    }
    Ok(staged)
}

/// A plan without inputs: what the encoder needs to know of a partition.
fn order(table: &IcebergTable, tuple: Tuple) -> Plan {
    let metadata = &table.loaded.metadata;
    Plan {
        table: table.view.ident,
        name: table.view.name.clone(),
        reference: table.view.reference.clone(),
        snapshot_id: table.view.head.unwrap_or(-1),
        sequence_number: metadata.last_sequence_number(),
        scope: PartitionKey { spec_id: metadata.default_partition_spec_id(), tuple },
        reason: "append".into(),
        inputs: Vec::new(),
        deletes: Vec::new(),
        target_file_size: u64::MAX,
        bound: Bound { gb_hours: 0.0, millis: 0, memory: MEMORY },
    }
}

/// One batch as a source of rows.
struct Given {
    schema: SchemaRef,
    rows: Option<RecordBatch>,
}

#[async_trait]
impl RowSource for Given {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        Ok(self.rows.take().filter(|rows| rows.num_rows() > 0))
    }

    fn finish(self: Box<Self>) -> ReadSummary {
        ReadSummary::default()
    }
}
