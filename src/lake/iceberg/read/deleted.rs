//! Which rows of the inputs the deletes of a plan remove. Of the data files only
//! the key columns of equality deletes are read.

use arrow_schema::{Field, Schema};
use futures::StreamExt;
use roaring::RoaringTreemap;

use super::batches::batch_rows;
use super::equality::{self, KeySet};
use super::file::{ParquetFile, Store};
use super::identify::identify;
use super::project::{Key, project};
use super::schema::arrow_schema;
use super::{partition, position};
use crate::lake::iceberg::table::IcebergTable;
use crate::lake::{Control, Error, Result};
use crate::model::plan::{LiveFile, Plan};

/// Rows that deletes remove.
#[derive(Default)]
pub struct Deleted {
    /// Row numbers for each input of the plan; none past its end. Empty where
    /// the plan has no deletes.
    pub rows: Vec<RoaringTreemap>,
    /// Bytes fetched from the store.
    pub bytes_read: u64,
}

impl Deleted {
    /// How many rows.
    pub fn count(&self) -> u64 {
        self.rows.iter().map(RoaringTreemap::len).sum()
    }
}

/// The share of a plan's memory that position deletes may take.
pub fn position_bytes(memory: u64) -> u64 {
    memory / 8
}

/// The share of a plan's memory that the keys of equality deletes may take.
pub fn key_bytes(memory: u64) -> u64 {
    memory / 8 * 3
}

/// Finds the rows that a plan's deletes remove, by the rules of
/// [`super::open`], whose errors it has.
pub async fn find(table: &IcebergTable, plan: &Plan, control: &dyn Control) -> Result<Deleted> {
    position::check(plan)?;
    let store = Store::new(&table.loaded.io);
    let schema = arrow_schema(table.loaded.metadata.current_schema())?;
    let constants = partition::constants(table, &plan.scope, &schema)?;
    let memory = plan.bound.memory;
    let mut rows = position::load(&store, plan, position_bytes(memory), control).await?;
    let sets = equality::load(table, &store, plan, key_bytes(memory), control).await?;
    let kinds = plan.deletes.iter().map(|d| (&d.key, d.content)).collect();
    let keys: Vec<Field> = sets.iter().flat_map(|set| set.fields.iter().cloned()).collect();
    for (input, rows) in plan.inputs.iter().zip(&mut rows) {
        rows.remove_range(input.records..);
        if equality::applies(input, &kinds) {
            let file = ParquetFile::open(&store, &input.path, input.bytes).await?;
            let fields = identify(file.schema(), None).map_err(|e| Error::damaged(&input.path, e))?;
            let projection = project(&fields, &Schema::empty(), &keys, &constants).map_err(|e| file.refuse(e.refusal, e.detail))?;
            let by_key = ByKey { plan, control, input, file: &file, sets: &sets, keys: &projection.keys };
            by_key.strike(&projection.leaves, rows).await?;
        }
    }
    Ok(Deleted { rows, bytes_read: store.fetched() })
}

/// Equality deletes that apply to a file.
struct ByKey<'a> {
    plan: &'a Plan,
    control: &'a dyn Control,
    input: &'a LiveFile,
    file: &'a ParquetFile,
    sets: &'a [KeySet],
    keys: &'a [Key],
}

impl ByKey<'_> {
    async fn strike(&self, leaves: &[usize], rows: &mut RoaringTreemap) -> Result<()> {
        let damaged = |error| Error::damaged(&self.input.path, error);
        let mut first = 0u64;
        for group in 0..self.file.footer().num_row_groups() {
            let size = batch_rows(self.file, group, leaves, self.plan.bound.memory)?;
            let mut stream = self.file.stream(group, leaves, size).await?;
            while let Some(batch) = stream.next().await {
                self.control.check()?;
                let batch = match batch {
                    Ok(batch) => batch,
                    Err(error) => return Err(self.file.error(error).await),
                };
                let (mut live, mut keys) = (vec![true; batch.num_rows()], self.keys);
                for set in self.sets {
                    let (own, rest) = keys.split_at_checked(set.fields.len()).unwrap_or((keys, &[]));
                    set.strike(&batch, own, self.input.data_sequence, &mut live).map_err(damaged)?;
                    keys = rest;
                }
                rows.extend((first..).zip(&live).filter(|(_, live)| !**live).map(|(row, _)| row));
                first = first.saturating_add(u64::try_from(batch.num_rows()).unwrap_or(u64::MAX));
            }
        }
        if first != self.input.records {
            return Err(Error::damaged(&self.input.path, format_args!("{first} rows where the manifest states {}", self.input.records)));
        }
        Ok(())
    }
}
