//! Which rows of the inputs are deleted, found a second time: by other code than
//! that which leaves them out, as plainly as the specification says it.

use std::collections::{BTreeMap, HashMap};

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef};
use arrow_buffer::NullBuffer;
use arrow_schema::Schema;
use futures::StreamExt;
use iceberg::spec::{DataFile, MappedField, NameMapping};
use parquet::arrow::async_reader::ParquetRecordBatchStream;
use roaring::RoaringTreemap;

use super::failed;
use super::keys;
use crate::lake::iceberg::read::file::{FileReader, ParquetFile, Store};
use crate::lake::iceberg::read::manifests::{self, Kind};
use crate::lake::iceberg::read::{name_mapping, partition};
use crate::lake::iceberg::table::IcebergTable;
use crate::lake::{Error, Result};
use crate::model::file::Content;
use crate::model::plan::{LiveDelete, Plan};

/// Field ids of a position delete's path and position.
const POSITION: [i32; 2] = [2_147_483_546, 2_147_483_545];
/// Their names, for writers that leave the ids out.
const NAMES: [&str; 2] = ["file_path", "pos"];
/// Rows of a batch.
const BATCH: usize = 4096;

/// The deletes of a plan, read for the proof.
pub struct Second<'a> {
    plan: &'a Plan,
    /// Rows of each input that position deletes name.
    named: Vec<RoaringTreemap>,
    /// Keys by the columns that they are of, and the newest delete of each.
    keys: BTreeMap<Vec<i32>, HashMap<u128, i64>>,
    /// Partition values, for columns that files leave out.
    constants: HashMap<i32, ArrayRef>,
    /// Names of the columns of files without ids.
    mapping: Option<NameMapping>,
}

impl<'a> Second<'a> {
    /// Reads the deletes of a plan, `None` where it has none.
    ///
    /// Errs `NotFound`, `Unreachable`, or refused `Damaged`.
    pub async fn load(table: &IcebergTable, store: &Store, plan: &'a Plan, schema: &Schema) -> Result<Option<Self>> {
        if plan.deletes.is_empty() {
            return Ok(None);
        }
        let constants = partition::constants(table, &plan.scope, schema)?;
        let mut second = Self {
            plan,
            named: vec![RoaringTreemap::new(); plan.inputs.len()],
            keys: BTreeMap::new(),
            constants,
            mapping: name_mapping(table)?,
        };
        let by_key: Vec<&LiveDelete> = plan.deletes.iter().filter(|d| d.content == Content::EqualityDeletes).collect();
        let paths = by_key.iter().map(|d| &*d.key.path).collect();
        let entries = manifests::find(table, store, plan.snapshot_id, Kind::Deletes, &paths).await?;
        for delete in plan.deletes.iter().filter(|d| d.content == Content::PositionDeletes) {
            second.positions(store, delete).await?;
        }
        for delete in by_key {
            let mut ids = entries.get(&*delete.key.path).and_then(DataFile::equality_ids).unwrap_or_default();
            ids.sort_unstable();
            ids.dedup();
            second.add_keys(store, delete, ids).await?;
        }
        Ok(Some(second))
    }

    async fn positions(&mut self, store: &Store, delete: &LiveDelete) -> Result<()> {
        let file = ParquetFile::open(store, &delete.key.path, delete.bytes).await?;
        let find = |(id, name): (&i32, &&str)| leaf(&file, *id).or_else(|| named_leaf(&file, name));
        let [Some(path), Some(position)] = [0, 1].map(|at| POSITION.get(at).zip(NAMES.get(at)).and_then(find)) else {
            return Err(Error::damaged(&file.path, "no paths or no positions"));
        };
        let places: HashMap<&str, usize> = self.plan.inputs.iter().enumerate().map(|(place, input)| (&*input.path, place)).collect();
        for group in 0..file.footer().num_row_groups() {
            let mut columns = Columns::open(&file, group, &[Some(path), Some(position)], &[]).await?;
            while let Some((rows, arrays)) = columns.next().await? {
                let [paths, positions] = arrays.as_slice() else { continue };
                for row in 0..rows {
                    let told = keys::bytes(paths, row).zip(keys::integer(positions, row));
                    let (text, position) = told.ok_or_else(|| Error::damaged(&file.path, "a path or position that is none"))?;
                    let text = std::str::from_utf8(text).map_err(|e| Error::damaged(&file.path, e))?;
                    let place = places.get(text).copied();
                    let Some((place, input)) = place.and_then(|place| Some((place, self.plan.inputs.get(place)?))) else { continue };
                    let reached = input.data_sequence <= delete.data_sequence;
                    if let (true, Some(rows), Ok(position)) = (reached, self.named.get_mut(place), u64::try_from(position))
                        && position < input.records
                    {
                        rows.insert(position);
                    }
                }
            }
        }
        Ok(())
    }

    async fn add_keys(&mut self, store: &Store, delete: &LiveDelete, ids: Vec<i32>) -> Result<()> {
        let file = ParquetFile::open(store, &delete.key.path, delete.bytes).await?;
        let leaves: Vec<Option<usize>> = ids.iter().map(|id| leaf(&file, *id)).collect();
        if ids.is_empty() || leaves.contains(&None) {
            return Err(Error::damaged(&file.path, "an equality delete without its key columns"));
        }
        let held = self.keys.entry(ids).or_default();
        for group in 0..file.footer().num_row_groups() {
            let mut columns = Columns::open(&file, group, &leaves, &[]).await?;
            while let Some((rows, arrays)) = columns.next().await? {
                for key in keys::hashes(rows, &arrays).map_err(|why| Error::damaged(&file.path, why))? {
                    let newest = held.entry(key).or_insert(delete.data_sequence);
                    *newest = delete.data_sequence.max(*newest);
                }
            }
        }
        Ok(())
    }

    /// Checks that the rows of a row group that are left out are those that the
    /// deletes name; `dead` are their ordinals, `first` the row group's first row.
    ///
    /// Errs [`Error::Proof`] naming the first row that is not.
    pub async fn check(&self, place: usize, file: &ParquetFile, group: usize, first: u64, dead: &[u32]) -> Result<()> {
        let Some(expected) = self.dead(place, file, group, first).await? else { return Ok(()) };
        let found = dead.iter().map(|row| first.saturating_add(u64::from(*row)));
        let differ = expected ^ found.collect::<RoaringTreemap>();
        match differ.iter().next() {
            None => Ok(()),
            Some(row) => Err(failed(&file.path, format_args!("row {row} is left out by one reading of the deletes and kept by another"))),
        }
    }

    /// The deleted rows of a row group; `None` where columns have neither ids nor names
    /// that are mapped to some, so that keys cannot be found.
    async fn dead(&self, place: usize, file: &ParquetFile, group: usize, first: u64) -> Result<Option<RoaringTreemap>> {
        let Some(input) = self.plan.inputs.get(place) else { return Ok(None) };
        let rows = file.footer().row_groups().get(group).and_then(|meta| u64::try_from(meta.num_rows()).ok()).unwrap_or(0);
        let mut dead = RoaringTreemap::new();
        if let Some(named) = self.named.get(place) {
            let mut named = named.iter();
            named.advance_to(first);
            dead.extend(named.take_while(|row| *row < first.saturating_add(rows)));
        }
        for (ids, held) in &self.keys {
            if !held.values().any(|newest| *newest > input.data_sequence) {
                continue;
            }
            let leaves: Vec<Option<usize>> = match (has_ids(file), &self.mapping) {
                (Some(true), _) => ids.iter().map(|id| leaf(file, *id)).collect(),
                (Some(false), Some(mapping)) => ids.iter().map(|id| mapped_leaf(file, mapping, *id)).collect(),
                _ => return Ok(None),
            };
            let constants: Vec<Option<&ArrayRef>> = ids.iter().map(|id| self.constants.get(id)).collect();
            let mut columns = Columns::open(file, group, &leaves, &constants).await?;
            let mut row = first;
            while let Some((count, arrays)) = columns.next().await? {
                for key in keys::hashes(count, &arrays).map_err(|why| Error::damaged(&file.path, why))? {
                    if held.get(&key).is_some_and(|newest| *newest > input.data_sequence) {
                        dead.insert(row);
                    }
                    row += 1;
                }
            }
        }
        Ok(Some(dead))
    }

    /// How many rows of all inputs are deleted; `None` where that is not known.
    pub async fn count(&self, store: &Store) -> Result<Option<u64>> {
        let mut deleted = 0u64;
        for (place, input) in self.plan.inputs.iter().enumerate() {
            if self.keys.is_empty() {
                deleted = deleted.saturating_add(self.named.get(place).map_or(0, RoaringTreemap::len));
                continue;
            }
            let file = ParquetFile::open(store, &input.path, input.bytes).await?;
            let mut first = 0u64;
            for (group, meta) in file.footer().row_groups().iter().enumerate() {
                let Some(dead) = self.dead(place, &file, group, first).await? else { return Ok(None) };
                deleted = deleted.saturating_add(dead.len());
                first = first.saturating_add(u64::try_from(meta.num_rows()).unwrap_or(0));
            }
        }
        Ok(Some(deleted))
    }
}

/// The leaf column with a field id.
fn leaf(file: &ParquetFile, id: i32) -> Option<usize> {
    let columns = file.footer().file_metadata().schema_descr().columns();
    columns.iter().position(|column| {
        let info = column.self_type().get_basic_info();
        column.max_rep_level() == 0 && info.has_id() && info.id() == id
    })
}

fn named_leaf(file: &ParquetFile, name: &str) -> Option<usize> {
    file.footer().file_metadata().schema_descr().columns().iter().position(|column| column.path().string() == name)
}

/// The leaf column below structs whose names the mapping gives an id.
fn mapped_leaf(file: &ParquetFile, mapping: &NameMapping, id: i32) -> Option<usize> {
    fn leads(fields: &[&MappedField], parts: &[String], id: i32) -> bool {
        let Some((first, rest)) = parts.split_first() else { return false };
        let found = fields.iter().find(|field| field.names().contains(first));
        found.is_some_and(|field| match rest.is_empty() {
            true => field.field_id() == Some(id),
            false => leads(&field.fields().iter().map(AsRef::as_ref).collect::<Vec<_>>(), rest, id),
        })
    }
    let fields: Vec<&MappedField> = mapping.fields().iter().collect();
    let columns = file.footer().file_metadata().schema_descr().columns();
    columns.iter().position(|column| column.max_rep_level() == 0 && leads(&fields, column.path().parts(), id))
}

/// Whether the columns of a file have ids; `None` where only some of them do.
fn has_ids(file: &ParquetFile) -> Option<bool> {
    let columns = file.footer().file_metadata().schema_descr().columns();
    let having = columns.iter().filter(|column| column.self_type().get_basic_info().has_id()).count();
    if having == columns.len() { Some(true) } else { (having == 0).then_some(false) }
}

/// Leaf columns of a row group, each read by itself.
struct Columns<'a> {
    file: &'a ParquetFile,
    streams: Vec<Option<ParquetRecordBatchStream<FileReader>>>,
    constants: Vec<Option<&'a ArrayRef>>,
    left: usize,
}

impl<'a> Columns<'a> {
    /// A column that the file does not have is NULL, or the constant in its place.
    async fn open(file: &'a ParquetFile, group: usize, leaves: &[Option<usize>], constants: &[Option<&'a ArrayRef>]) -> Result<Self> {
        let mut streams = Vec::with_capacity(leaves.len());
        for leaf in leaves {
            streams.push(match leaf {
                Some(leaf) => Some(file.stream(group, &[*leaf], BATCH).await?),
                None => None,
            });
        }
        let rows = file.footer().row_groups().get(group).and_then(|meta| usize::try_from(meta.num_rows()).ok()).unwrap_or(0);
        Ok(Self { file, streams, constants: constants.to_vec(), left: rows })
    }

    /// The next rows, and the values of each column.
    async fn next(&mut self) -> Result<Option<(usize, Vec<keys::Column>)>> {
        let rows = self.left.min(BATCH);
        if rows == 0 {
            return Ok(None);
        }
        self.left -= rows;
        let mut arrays = Vec::with_capacity(self.streams.len());
        for (place, stream) in self.streams.iter_mut().enumerate() {
            let Some(stream) = stream else {
                let constant = self.constants.get(place).copied().flatten().cloned();
                arrays.push(constant.map_or(keys::Column::Null, keys::Column::Constant));
                continue;
            };
            let batch = match stream.next().await {
                Some(Ok(batch)) => batch,
                Some(Err(error)) => return Err(self.file.error(error).await),
                None => return Err(Error::damaged(&self.file.path, "a column ends before its row group")),
            };
            if batch.num_rows() != rows {
                return Err(Error::damaged(&self.file.path, "columns of different lengths"));
            }
            let root = batch.columns().first().ok_or_else(|| Error::damaged(&self.file.path, "a column is missing"))?;
            arrays.push(below(root));
        }
        Ok(Some((rows, arrays)))
    }
}

/// The only leaf below structs; NULL where one of them is.
fn below(root: &ArrayRef) -> keys::Column {
    let (mut array, mut nulls) = (root.clone(), root.nulls().cloned());
    while let Some(child) = array.as_struct_opt().and_then(|parent| parent.columns().first()).cloned() {
        nulls = NullBuffer::union(nulls.as_ref(), child.nulls());
        array = child;
    }
    keys::Column::Values(array, nulls)
}
