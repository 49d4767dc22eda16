//! The live rows, file by file, row group by row group.

use std::collections::HashMap;

use arrow_array::{ArrayRef, BooleanArray, RecordBatch};
use arrow_schema::{Field, SchemaRef};
use async_trait::async_trait;
use iceberg::spec::{DEFAULT_SCHEMA_NAME_MAPPING, NameMapping};

use super::batches::group_rows;
use super::deleted::{key_bytes, position_bytes};
use super::equality::{self, KeySet};
use super::file::{ParquetFile, Store};
use super::identify::identify;
use super::lockstep::Lockstep;
use super::position::{self, Positions, strike_positions};
use super::project::{Key, Projection, project};
use super::schema::arrow_schema;
use super::{ReadSummary, RowSource, convert, partition};
use crate::lake::iceberg::hash::ColumnHasher;
use crate::lake::iceberg::table::IcebergTable;
use crate::lake::{Control, Error, Result};
use crate::model::file::{Content, FileKey};
use crate::model::plan::{LiveFile, Plan};
use crate::model::refusal::{Refusal, Refused};

/// Reads the inputs of a plan.
pub struct Reader<'a> {
    plan: &'a Plan,
    control: &'a dyn Control,
    store: Store,
    schema: SchemaRef,
    mapping: Option<NameMapping>,
    constants: HashMap<i32, ArrayRef>,
    positions: Positions,
    keys: Vec<KeySet>,
    kinds: HashMap<&'a FileKey, Content>,
    hasher: ColumnHasher,
    summary: ReadSummary,
    /// The input to open next.
    next_input: usize,
    current: Option<Current>,
    told: u64,
}

/// What the rows of an input become.
pub struct Target<'a> {
    /// The table's current schema.
    pub schema: &'a SchemaRef,
    /// Its name mapping, if any.
    pub mapping: Option<&'a NameMapping>,
    /// Identity partition values by field id.
    pub constants: &'a HashMap<i32, ArrayRef>,
}

impl Target<'_> {
    /// Opens an input, and finds its columns and those of `keys`.
    ///
    /// Errs refused `NoFieldIds`, `ColumnType` or `Damaged`, `NotFound`, `Unreachable`.
    pub async fn open(&self, store: &Store, input: &LiveFile, keys: &[Field]) -> Result<(ParquetFile, Projection)> {
        let file = ParquetFile::open(store, &input.path, input.bytes).await?;
        let rows = file.rows()?;
        if rows != input.records {
            return Err(Error::damaged(&input.path, format_args!("{rows} rows where the manifest states {}", input.records)));
        }
        let fields = identify(file.schema(), self.mapping).map_err(|e| Error::damaged(&input.path, e))?;
        let projection = project(&fields, self.schema, keys, self.constants).map_err(|e| file.refuse(e.refusal, e.detail))?;
        Ok((file, projection))
    }
}

/// The file being read.
struct Current {
    input: usize,
    file: ParquetFile,
    projection: Projection,
    /// Whether equality deletes apply: then the projection's keys are those of
    /// each key set, in the order of the sets.
    equality: bool,
    group: usize,
    stream: Option<Lockstep>,
    /// Rows of the file and of the group already read.
    rows: u64,
    group_rows: u64,
}

impl<'a> Reader<'a> {
    /// Loads the deletes; see [`super::open`].
    pub async fn open(table: &'a IcebergTable, plan: &'a Plan, control: &'a dyn Control) -> Result<Self> {
        position::check(plan)?;
        let store = Store::new(&table.loaded.io);
        let schema = arrow_schema(table.loaded.metadata.current_schema())?;
        let constants = partition::constants(table, &plan.scope, &schema)?;
        let memory = plan.bound.memory;
        let positions = position::load(&store, plan, position_bytes(memory), control).await?;
        let keys = equality::load(table, &store, plan, key_bytes(memory), control).await?;
        Ok(Self {
            plan,
            control,
            store,
            mapping: name_mapping(table)?,
            constants,
            positions,
            keys,
            kinds: plan.deletes.iter().map(|d| (&d.key, d.content)).collect(),
            hasher: ColumnHasher::new(&schema),
            schema,
            summary: ReadSummary::default(),
            next_input: 0,
            current: None,
            told: 0,
        })
    }

    /// Opens the next input; `None` after the last.
    async fn open_next(&mut self) -> Result<Option<Current>> {
        let Some(input) = self.plan.inputs.get(self.next_input) else { return Ok(None) };
        let place = self.next_input;
        self.next_input += 1;
        let equality = equality::applies(input, &self.kinds);
        let keys: Vec<Field> = match equality {
            true => self.keys.iter().flat_map(|set| set.fields.iter().cloned()).collect(),
            false => Vec::new(),
        };
        let to = Target { schema: &self.schema, mapping: self.mapping.as_ref(), constants: &self.constants };
        let (file, projection) = to.open(&self.store, input, &keys).await?;
        Ok(Some(Current { input: place, file, projection, equality, group: 0, stream: None, rows: 0, group_rows: 0 }))
    }

    /// The live rows of a batch of the current file, in the table's schema.
    fn live(&mut self, rows: &RecordBatch) -> Result<Option<RecordBatch>> {
        let Some(current) = &mut self.current else { return Ok(None) };
        let first = current.rows;
        let count = u64::try_from(rows.num_rows()).unwrap_or(u64::MAX);
        current.rows += count;
        current.group_rows += count;
        self.summary.rows_in += count;
        let damaged = |error| Error::damaged(&current.file.path, error);
        let deleted = self.positions.get(current.input).filter(|p| !p.is_empty());
        if deleted.is_none() && !current.equality {
            let batch = convert::batch(rows, &current.projection.nodes, &self.schema).map_err(damaged)?;
            self.hasher.update(&batch).map_err(damaged)?;
            return Ok(Some(batch));
        }
        let mut live = vec![true; rows.num_rows()];
        if let Some(deleted) = deleted {
            self.summary.rows_deleted_by_position += strike_positions(deleted, first, &mut live);
        }
        let sequence = self.plan.inputs.get(current.input).map_or(i64::MAX, |f| f.data_sequence);
        if current.equality {
            let mut keys: &[Key] = &current.projection.keys;
            for set in &self.keys {
                let (own, rest) = keys.split_at_checked(set.fields.len()).unwrap_or((keys, &[]));
                set.strike(rows, own, sequence, &mut live).map_err(damaged)?;
                keys = rest;
            }
        }
        let kept = live.iter().filter(|l| **l).count();
        self.summary.rows_deleted += count - u64::try_from(kept).unwrap_or(0);
        if kept == 0 {
            return Ok(None);
        }
        let rows = match kept == rows.num_rows() {
            true => rows.clone(),
            false => arrow_select::filter::filter_record_batch(rows, &BooleanArray::from(live)).map_err(damaged)?,
        };
        let batch = convert::batch(&rows, &current.projection.nodes, &self.schema).map_err(damaged)?;
        self.hasher.update(&batch).map_err(damaged)?;
        Ok(Some(batch))
    }

    fn tell(&mut self, rows: u64) {
        let fetched = self.store.fetched();
        self.control.progress(rows, fetched.saturating_sub(self.told));
        self.told = fetched;
    }
}

#[async_trait]
impl RowSource for Reader<'_> {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            self.control.check()?;
            if self.current.is_none() {
                self.current = self.open_next().await?;
            }
            let Some(current) = &mut self.current else { return Ok(None) };
            match current.next_rows(self.plan.bound.memory).await? {
                Some(rows) => {
                    let count = u64::try_from(rows.num_rows()).unwrap_or(u64::MAX);
                    let live = self.live(&rows)?;
                    self.tell(count);
                    if live.is_some() {
                        return Ok(live);
                    }
                }
                None => {
                    current.check_whole(&self.plan.inputs)?;
                    self.current = None;
                }
            }
        }
    }

    fn rows_read(&self) -> Option<u64> {
        Some(self.summary.rows_in)
    }

    fn finish(self: Box<Self>) -> ReadSummary {
        ReadSummary { bytes_read: self.store.fetched(), columns: self.hasher.finish(), ..self.summary }
    }
}

impl Current {
    /// The next rows of the file, deleted ones included; `None` after the last.
    async fn next_rows(&mut self, memory: u64) -> Result<Option<RecordBatch>> {
        loop {
            if let Some(stream) = self.stream.take() {
                let (stream, rows) = stream.next().await?;
                match rows {
                    Some(rows) => {
                        self.stream = Some(stream);
                        if rows.num_rows() > 0 {
                            return Ok(Some(rows));
                        }
                    }
                    None => self.end_group()?,
                }
                continue;
            }
            if self.group >= self.file.footer().num_row_groups() {
                return Ok(None);
            }
            self.stream = Some(Lockstep::open(&self.file, self.group, &self.projection.leaves, memory).await?);
        }
    }

    fn end_group(&mut self) -> Result<()> {
        let stated = self.file.footer().row_groups().get(self.group).map_or(0, group_rows);
        if stated != self.group_rows {
            let why = format!("row group {} holds {} rows where the footer states {stated}", self.group, self.group_rows);
            return Err(Error::damaged(&self.file.path, why));
        }
        self.stream = None;
        self.group_rows = 0;
        self.group += 1;
        Ok(())
    }

    fn check_whole(&self, inputs: &[LiveFile]) -> Result<()> {
        match inputs.get(self.input) {
            Some(input) if input.records == self.rows => Ok(()),
            _ => Err(Error::damaged(&self.file.path, format_args!("{} rows read are not those that the manifest states", self.rows))),
        }
    }
}

/// The table's name mapping, for files without field ids.
///
/// Errs refused `NoFieldIds` when the property cannot be read.
pub fn name_mapping(table: &IcebergTable) -> Result<Option<NameMapping>> {
    let Some(json) = table.loaded.metadata.properties().get(DEFAULT_SCHEMA_NAME_MAPPING) else { return Ok(None) };
    let mapping = serde_json::from_str(json)
        .map_err(|e| Refused::new(Refusal::NoFieldIds, format!("table property {DEFAULT_SCHEMA_NAME_MAPPING} cannot be read: {e}")))?;
    Ok(Some(mapping))
}
