//! What reading the rows of a plan would refuse, told from footers, manifests and
//! stated sizes, before a row is read.

use arrow_schema::{Field, Schema, SchemaRef};
use futures::stream::{self, StreamExt, TryStreamExt};

use super::batches::{batch_rows, lockstep_rows};
use super::deleted::{key_bytes, position_bytes};
use super::file::Store;
use super::rows::{Target, name_mapping};
use super::schema::arrow_schema;
use super::{equality, partition, position};
use crate::lake::Result;
use crate::lake::iceberg::table::IcebergTable;
use crate::model::plan::Plan;

/// Footers read at one time.
const AT_ONCE: usize = 8;

/// Errs as [`super::open`] and the rows after it would, in that order, before a row
/// is read. `admit` says whether rows of their schema can be written, which shows
/// before the first of them.
pub async fn rows(table: &IcebergTable, plan: &Plan, admit: impl FnOnce(&SchemaRef) -> Result<()>) -> Result<()> {
    position::check(plan)?;
    let schema = arrow_schema(table.loaded.metadata.current_schema())?;
    let constants = partition::constants(table, &plan.scope, &schema)?;
    let store = Store::new(&table.loaded.io);
    let keys = keys(table, &store, plan).await?;
    let mapping = name_mapping(table)?;
    admit(&schema)?;
    let target = Target { schema: &schema, mapping: mapping.as_ref(), constants: &constants };
    let (target, store, keys) = (&target, &store, keys.as_slice());
    let kinds = plan.deletes.iter().map(|d| (&d.key, d.content)).collect();
    let mut inputs = Vec::with_capacity(plan.inputs.len());
    for input in &plan.inputs {
        let keys = if equality::applies(input, &kinds) { keys } else { &[] };
        inputs.push(async move {
            let (file, projection) = target.open(store, input, keys).await?;
            let groups = 0..file.footer().num_row_groups();
            groups.map(|group| lockstep_rows(&file, group, &projection.leaves, plan.bound.memory)).try_for_each(|rows| rows.map(|_| ()))
        });
    }
    stream::iter(inputs).buffered(AT_ONCE).try_collect().await
}

/// Errs as [`super::deleted::find`] would, before a row is read.
pub async fn deletes(table: &IcebergTable, plan: &Plan) -> Result<()> {
    if plan.deletes.is_empty() {
        return Ok(());
    }
    position::check(plan)?;
    let schema = arrow_schema(table.loaded.metadata.current_schema())?;
    let constants = partition::constants(table, &plan.scope, &schema)?;
    let store = Store::new(&table.loaded.io);
    let keys = keys(table, &store, plan).await?;
    let nothing: SchemaRef = Schema::empty().into();
    let target = Target { schema: &nothing, mapping: None, constants: &constants };
    let (target, store, keys) = (&target, &store, keys.as_slice());
    let kinds = plan.deletes.iter().map(|d| (&d.key, d.content)).collect();
    let mut inputs = Vec::new();
    for input in plan.inputs.iter().filter(|input| equality::applies(input, &kinds)) {
        inputs.push(async move {
            let (file, projection) = target.open(store, input, keys).await?;
            let groups = 0..file.footer().num_row_groups();
            groups.map(|group| batch_rows(&file, group, &projection.leaves, plan.bound.memory)).try_for_each(|rows| rows.map(|_| ()))
        });
    }
    stream::iter(inputs).buffered(AT_ONCE).try_collect().await
}

/// The columns by which the plan's equality deletes delete.
async fn keys(table: &IcebergTable, store: &Store, plan: &Plan) -> Result<Vec<Field>> {
    let memory = plan.bound.memory;
    position::foresee(store, plan, position_bytes(memory)).await?;
    equality::foresee(table, store, plan, key_bytes(memory)).await
}
