//! Equality deletes: sets of keys, one for each set of key columns.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type};
use arrow_array::{ArrayRef, RecordBatch};
use arrow_row::{RowConverter, Rows, SortField};
use arrow_schema::{ArrowError, DataType, Field, Schema};
use futures::StreamExt;

use super::batches::{batch_rows, column_rows};
use super::convert;
use super::file::{ParquetFile, Store};
use super::identify::identify;
use super::manifests::{self, Kind};
use super::project::{Key, Projection, project};
use super::schema::arrow_schema;
use crate::lake::iceberg::table::IcebergTable;
use crate::lake::{Control, Error, Result};
use crate::model::file::{Content, FileKey};
use crate::model::plan::{LiveDelete, LiveFile, Plan};
use crate::model::refusal::{Refusal, Refused};

/// Bytes a key takes beside its own: table entry, pointer, allocation.
const BYTES_A_KEY: u64 = 80;
/// An allocation is larger than what it holds by one part in so many, at most.
const ROUNDED_UP: u64 = 8;
/// How much larger than its compressed file a file of keys is taken to be.
const INFLATION: u64 = 2;

/// The keys of all equality deletes that share one set of key columns. One set
/// serves all data files of a plan: a key keeps the highest sequence number of
/// the deletes that hold it, and a row goes when that is above its file's.
pub struct KeySet {
    /// The key columns: id, name and the type in which keys are compared.
    pub fields: Vec<Field>,
    converter: RowConverter,
    keys: HashMap<Box<[u8]>, i64>,
    bytes: u64,
}

/// Reads every equality-delete file of a plan.
///
/// Keys are compared as the specification's readers do: NULL equals NULL, every
/// NaN equals every NaN, −0.0 does not equal 0.0, and a narrower type is
/// promoted to the table's first.
///
/// Errs refused `TooManyDeletes` before or while loading when more than `budget`
/// bytes are needed, `ColumnType` or `Damaged`, `NotFound`, `Unreachable`, or what
/// `control` says.
pub async fn load(table: &IcebergTable, store: &Store, plan: &Plan, budget: u64, control: &dyn Control) -> Result<Vec<KeySet>> {
    let (deletes, records) = admitted(table, store, plan, budget).await?;
    let mut sets: HashMap<BTreeSet<i32>, KeySet> = HashMap::new();
    for (delete, ids) in deletes {
        let set = match sets.remove(&ids) {
            Some(set) => set,
            None => KeySet::new(key_fields(table, &ids)?)?,
        };
        let others = sets.values().map(|s| s.bytes).fold(0, u64::saturating_add);
        let limits = Limits { memory: plan.bound.memory, others, budget, records };
        sets.insert(ids, set.read(store, delete, &limits, control).await?);
    }
    let mut sets: Vec<(BTreeSet<i32>, KeySet)> = sets.into_iter().collect();
    sets.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(sets.into_iter().map(|(_, set)| set).collect())
}

/// Errs as [`load`] would before it has read a row: from the deletes' stated sizes,
/// their manifest entries and their footers. Gives the key columns of all sets, in
/// the order of the sets.
pub async fn foresee(table: &IcebergTable, store: &Store, plan: &Plan, budget: u64) -> Result<Vec<Field>> {
    let (deletes, _) = admitted(table, store, plan, budget).await?;
    let mut sets: BTreeMap<BTreeSet<i32>, KeySet> = BTreeMap::new();
    for (delete, ids) in deletes {
        let set = match sets.entry(ids) {
            Entry::Occupied(set) => set.into_mut(),
            Entry::Vacant(place) => {
                let fields = key_fields(table, place.key())?;
                place.insert(KeySet::new(fields)?)
            }
        };
        let file = ParquetFile::open(store, &delete.key.path, delete.bytes).await?;
        let projection = set.projection(&file)?;
        (0..file.footer().num_row_groups())
            .try_for_each(|group| set_rows(&file, group, &projection.leaves, plan.bound.memory).map(|_| ()))?;
    }
    Ok(sets.into_values().flat_map(|set| set.fields).collect())
}

/// A plan's equality-delete files, each with the ids of its key columns, and how
/// many keys they state; refused when these cannot fit.
async fn admitted<'p>(
    table: &IcebergTable,
    store: &Store,
    plan: &'p Plan,
    budget: u64,
) -> Result<(Vec<(&'p LiveDelete, BTreeSet<i32>)>, u64)> {
    let deletes: Vec<&LiveDelete> = plan.deletes.iter().filter(|d| d.content == Content::EqualityDeletes).collect();
    let records = deletes.iter().map(|d| d.records).fold(0, u64::saturating_add);
    let bytes = deletes.iter().map(|d| d.bytes).fold(0, u64::saturating_add);
    admit(records.saturating_mul(BYTES_A_KEY).saturating_add(bytes.saturating_mul(INFLATION)), budget, records)?;
    check(plan, &deletes)?;
    let paths = deletes.iter().map(|d| &*d.key.path).collect();
    let entries = manifests::find(table, store, plan.snapshot_id, Kind::Deletes, &paths).await?;
    let mut keyed = Vec::with_capacity(deletes.len());
    for delete in deletes {
        let ids = entries.get(&*delete.key.path).and_then(|e| e.equality_ids()).unwrap_or_default();
        if ids.is_empty() {
            return Err(Error::damaged(&delete.key.path, "an equality delete without key columns"));
        }
        keyed.push((delete, ids.into_iter().collect()));
    }
    Ok((keyed, records))
}

/// Rows of a batch of keys: beside the keys that stay a batch is held as it is
/// read, grown and encoded.
fn set_rows(file: &ParquetFile, group: usize, leaves: &[usize], memory: u64) -> Result<usize> {
    Ok(batch_rows(file, group, leaves, memory)?.min(column_rows(file, group, leaves, memory)?))
}

/// What bounds the loading of one delete file.
struct Limits {
    /// The plan's memory bound.
    memory: u64,
    /// Bytes that other key sets hold.
    others: u64,
    /// Bytes that all key sets may hold.
    budget: u64,
    /// Deletes of the plan, to be named in a refusal.
    records: u64,
}

fn admit(bytes: u64, budget: u64, records: u64) -> Result<()> {
    if bytes <= budget {
        return Ok(());
    }
    let why = format!("{records} equality deletes need about {bytes} bytes of memory, {budget} are allowed");
    Err(Refused::new(Refusal::TooManyDeletes, why).into())
}

/// All inputs are of one partition, so a delete that reaches one of them
/// reaches every other of lower data sequence. A plan that says otherwise is wrong.
fn check(plan: &Plan, deletes: &[&LiveDelete]) -> Result<()> {
    for file in &plan.inputs {
        for delete in deletes {
            if file.deletes.binary_search(&delete.key).is_ok() != reaches(delete, file) {
                let why = format!(
                    "sequence {} and equality delete {} of sequence {}: the plan contradicts the rule that a delete reaches older rows",
                    file.data_sequence, delete.key.path, delete.data_sequence
                );
                return Err(Error::damaged(&file.path, why));
            }
        }
    }
    Ok(())
}

fn reaches(delete: &LiveDelete, file: &LiveFile) -> bool {
    file.data_sequence < delete.data_sequence
}

/// The key columns' fields, from the newest schema that has each: a key column
/// may be dropped while its deletes still hold.
fn key_fields(table: &IcebergTable, ids: &BTreeSet<i32>) -> Result<Vec<Field>> {
    let metadata = &table.loaded.metadata;
    let mut schemas: Vec<_> = metadata.schemas_iter().collect();
    schemas.sort_by_key(|s| (s.schema_id() != metadata.current_schema_id(), -s.schema_id()));
    let mut fields = Vec::with_capacity(ids.len());
    for id in ids {
        let found = schemas.iter().find_map(|s| Some((s, s.field_by_id(*id)?)));
        let (schema, field) =
            found.ok_or_else(|| Refused::new(Refusal::Damaged, format!("equality delete key {id} is in no schema of the table")))?;
        let name = schema.name_by_field_id(*id).unwrap_or(&field.name);
        if !field.field_type.is_primitive() {
            return Err(Refused::new(Refusal::ColumnType, format!("equality delete key {name} is not primitive")).into());
        }
        let single = iceberg::spec::Schema::builder().with_fields([field.clone()]).build();
        let single = single.map_err(|e| Refused::new(Refusal::ColumnType, format!("equality delete key {name}: {e}")))?;
        let arrow = arrow_schema(&single)?;
        let arrow = arrow.fields().first().ok_or_else(|| Refused::new(Refusal::ColumnType, format!("equality delete key {name}")))?;
        fields.push(arrow.as_ref().clone().with_name(name).with_nullable(true));
    }
    Ok(fields)
}

impl KeySet {
    fn new(fields: Vec<Field>) -> Result<Self> {
        let sort = fields.iter().map(|f| SortField::new(f.data_type().clone())).collect();
        let converter = RowConverter::new(sort).map_err(|e| Refused::new(Refusal::ColumnType, format!("equality delete keys: {e}")))?;
        Ok(Self { fields, converter, keys: HashMap::new(), bytes: 0 })
    }

    /// Clears the flag of every row that a delete of this set removes from a
    /// file of data sequence `sequence`.
    ///
    /// Errs when a key does not convert.
    pub fn strike(&self, rows: &RecordBatch, keys: &[Key], sequence: i64, live: &mut [bool]) -> std::result::Result<(), ArrowError> {
        let encoded = self.encode(rows, keys)?;
        for (row, live) in encoded.iter().zip(live) {
            if *live && self.keys.get(row.as_ref()).is_some_and(|deleted| *deleted > sequence) {
                *live = false;
            }
        }
        Ok(())
    }

    fn encode(&self, rows: &RecordBatch, keys: &[Key]) -> std::result::Result<Rows, ArrowError> {
        let columns = self.fields.iter().zip(keys).map(|(field, key)| Ok(comparable(convert::key(rows, key, field.data_type())?)));
        self.converter.convert_columns(&columns.collect::<std::result::Result<Vec<_>, ArrowError>>()?)
    }

    async fn read(mut self, store: &Store, delete: &LiveDelete, limits: &Limits, control: &dyn Control) -> Result<Self> {
        let file = ParquetFile::open(store, &delete.key.path, delete.bytes).await?;
        let projection = self.projection(&file)?;
        let mut rows = 0u64;
        for group in 0..file.footer().num_row_groups() {
            let size = set_rows(&file, group, &projection.leaves, limits.memory)?;
            let mut stream = file.stream(group, &projection.leaves, size).await?;
            while let Some(batch) = stream.next().await {
                control.check()?;
                let batch = match batch {
                    Ok(batch) => batch,
                    Err(error) => return Err(file.error(error).await),
                };
                rows += u64::try_from(batch.num_rows()).unwrap_or(u64::MAX);
                let encoded = self.encode(&batch, &projection.keys).map_err(|e| Error::damaged(&file.path, e))?;
                self.absorb(&encoded, delete.data_sequence);
                admit(self.bytes.saturating_add(limits.others), limits.budget, limits.records)?;
            }
        }
        if rows != delete.records {
            return Err(Error::damaged(&file.path, format_args!("{rows} rows where the manifest states {}", delete.records)));
        }
        Ok(self)
    }

    fn projection(&self, file: &ParquetFile) -> Result<Projection> {
        let fields = identify(file.schema(), None).map_err(|e| Error::damaged(&file.path, e))?;
        let projection = project(&fields, &Schema::empty(), &self.fields, &HashMap::new()).map_err(|e| file.refuse(e.refusal, e.detail))?;
        match self.fields.iter().zip(&projection.keys).find(|(_, key)| !matches!(key, Key::Path(_))) {
            Some((field, _)) => Err(Error::damaged(&file.path, format_args!("an equality delete without its key column {}", field.name()))),
            None => Ok(projection),
        }
    }

    fn absorb(&mut self, encoded: &Rows, sequence: i64) {
        for row in encoded {
            let key: &[u8] = row.as_ref();
            match self.keys.get_mut(key) {
                Some(held) => *held = sequence.max(*held),
                None => {
                    let length = u64::try_from(key.len()).unwrap_or(0);
                    self.bytes += BYTES_A_KEY + length + length / ROUNDED_UP;
                    self.keys.insert(key.into(), sequence);
                }
            }
        }
    }
}

/// Whether any equality delete applies to a file.
pub fn applies(file: &LiveFile, kinds: &HashMap<&FileKey, Content>) -> bool {
    file.deletes.iter().any(|k| kinds.get(k) == Some(&Content::EqualityDeletes))
}

/// All NaNs become one: rows are then compared by their bytes.
fn comparable(array: ArrayRef) -> ArrayRef {
    match array.data_type() {
        DataType::Float32 => {
            Arc::new(array.as_primitive::<Float32Type>().unary::<_, Float32Type>(|v| if v.is_nan() { f32::NAN } else { v }))
        }
        DataType::Float64 => {
            Arc::new(array.as_primitive::<Float64Type>().unary::<_, Float64Type>(|v| if v.is_nan() { f64::NAN } else { v }))
        }
        _ => array,
    }
}
