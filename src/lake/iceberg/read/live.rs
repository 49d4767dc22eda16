//! Which rows live, for readers that take columns one by one.

use std::collections::HashMap;

use arrow_array::ArrayRef;
use arrow_buffer::BooleanBuffer;
use arrow_schema::{Field, Schema};
use futures::StreamExt;

use super::batches::batch_rows;
use super::equality::{self, KeySet};
use super::file::{ParquetFile, Store};
use super::identify::identify;
use super::partition;
use super::position::{self, Positions, strike_positions};
use super::project::{Key, Projection, project};
use super::rows::name_mapping;
use super::schema::arrow_schema;
use crate::lake::iceberg::table::IcebergTable;
use crate::lake::{Control, Error, Result};
use crate::model::file::{Content, FileKey};
use crate::model::plan::Plan;

/// The deletes of a plan, loaded once for all its inputs.
pub struct Deletes<'a> {
    plan: &'a Plan,
    positions: Positions,
    keys: Vec<KeySet>,
    kinds: HashMap<&'a FileKey, Content>,
    mapping: Option<iceberg::spec::NameMapping>,
    constants: HashMap<i32, ArrayRef>,
}

/// Rows read, and rows left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Struck {
    /// Rows, deleted ones included.
    pub rows: u64,
    /// Rows left out because a delete applies.
    pub deleted: u64,
    /// Of those, rows that a position delete names.
    pub by_position: u64,
}

impl<'a> Deletes<'a> {
    /// Loads the deletes of a plan.
    ///
    /// Errs as [`super::open`] does.
    pub async fn load(table: &IcebergTable, plan: &'a Plan, store: &Store, control: &dyn Control) -> Result<Self> {
        position::check(plan)?;
        let memory = plan.bound.memory;
        let schema = arrow_schema(table.loaded.metadata.current_schema())?;
        Ok(Self {
            plan,
            positions: position::load(store, plan, memory / 8, control).await?,
            keys: equality::load(table, store, plan, memory / 8 * 3, control).await?,
            kinds: plan.deletes.iter().map(|d| (&d.key, d.content)).collect(),
            mapping: name_mapping(table)?,
            constants: partition::constants(table, &plan.scope, &schema)?,
        })
    }

    /// The rows of a row group of the `input`th input that live; `None` when all
    /// do. `first` is the row group's first row in the file.
    ///
    /// Errs as reading the key columns does.
    pub async fn live(
        &self,
        input: usize,
        file: &ParquetFile,
        group: usize,
        first: u64,
        struck: &mut Struck,
    ) -> Result<Option<BooleanBuffer>> {
        let Some(meta) = file.footer().row_groups().get(group) else { return Ok(None) };
        let positions = self.positions.get(input).filter(|p| !p.is_empty());
        let equality = self.plan.inputs.get(input).is_some_and(|f| equality::applies(f, &self.kinds));
        if positions.is_none() && !equality {
            return Ok(None);
        }
        let rows = usize::try_from(meta.num_rows()).map_err(|e| Error::damaged(&file.path, e))?;
        let mut live = vec![true; rows];
        if let Some(deleted) = positions {
            struck.by_position += strike_positions(deleted, first, &mut live);
        }
        if equality {
            self.strike_keys(input, file, group, &mut live).await?;
        }
        let live: BooleanBuffer = live.into();
        let gone = live.len() - live.count_set_bits();
        struck.deleted += u64::try_from(gone).unwrap_or(0);
        Ok((gone > 0).then_some(live))
    }

    async fn strike_keys(&self, input: usize, file: &ParquetFile, group: usize, live: &mut [bool]) -> Result<()> {
        let sequence = self.plan.inputs.get(input).map_or(i64::MAX, |f| f.data_sequence);
        let projection = self.projection(file)?;
        let size = batch_rows(file, group, &projection.leaves, self.plan.bound.memory)?;
        let mut stream = file.stream(group, &projection.leaves, size).await?;
        let mut left = live;
        while let Some(batch) = stream.next().await {
            let batch = match batch {
                Ok(batch) => batch,
                Err(error) => return Err(file.error(error).await),
            };
            let more = || Error::damaged(&file.path, format_args!("row group {group} holds more rows than the footer states"));
            let (these, rest) = left.split_at_mut_checked(batch.num_rows()).ok_or_else(more)?;
            let mut keys: &[Key] = &projection.keys;
            for set in &self.keys {
                let (own, others) = keys.split_at_checked(set.fields.len()).unwrap_or((keys, &[]));
                set.strike(&batch, own, sequence, these).map_err(|e| Error::damaged(&file.path, e))?;
                keys = others;
            }
            left = rest;
        }
        Ok(())
    }

    fn projection(&self, file: &ParquetFile) -> Result<Projection> {
        let keys: Vec<Field> = self.keys.iter().flat_map(|set| set.fields.iter().cloned()).collect();
        let fields = identify(file.schema(), self.mapping.as_ref()).map_err(|e| Error::damaged(&file.path, e))?;
        project(&fields, &Schema::empty(), &keys, &self.constants).map_err(|e| file.refuse(e.refusal, e.detail))
    }
}
