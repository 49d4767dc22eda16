//! NULL counts of the outputs against what the inputs' manifests and footers
//! state: the half of the proof that the reader has no part in.

use std::collections::{BTreeSet, HashMap};

use arrow_array::{Array, ArrayRef};
use arrow_schema::{DataType, Fields, Schema};
use iceberg::spec::{DEFAULT_SCHEMA_NAME_MAPPING, DataFile, MappedField, NameMapping};
use parquet::file::metadata::ParquetMetaData;

use super::{failed, position_records};
use crate::lake::Result;
use crate::lake::iceberg::read::file::{ParquetFile, Store};
use crate::lake::iceberg::read::manifests::{self, Entries, Kind};
use crate::lake::iceberg::read::partition::constants;
use crate::lake::iceberg::read::schema::field_id;
use crate::lake::iceberg::table::IcebergTable;
use crate::model::file::Content;
use crate::model::plan::{LiveDelete, LiveFile, Plan};

/// Compares every column that is not inside a list or map (writers count those
/// differently; see [`levels`](super::levels)) and whose NULLs all inputs tell; returns how many.
///
/// Invariants checked:
/// * without deletes the counts are equal;
/// * with deletes no NULL is new, and no more are gone than rows;
/// * where no equality delete has a NULL key for a column, its NULLs can only be
///   gone by position deletes.
///
/// Errs [`Error::Proof`](crate::lake::Error::Proof) naming the column.
pub async fn check(
    table: &IcebergTable,
    store: &Store,
    plan: &Plan,
    schema: &Schema,
    entries: &Entries,
    back: &HashMap<i32, u64>,
    deleted: u64,
) -> Result<usize> {
    let columns = flat(schema);
    let stated = inputs(table, store, plan, schema, entries, &columns).await?;
    let never_null = keys_without_null(table, store, plan).await?;
    let by_position = position_records(plan).min(deleted);
    let mut compared = 0;
    for id in columns {
        let (Some(Some(nulls)), Some(found)) = (stated.get(&id), back.get(&id)) else { continue };
        let most = if never_null.contains(&id) { by_position } else { deleted };
        if nulls.checked_sub(*found).is_none_or(|gone| gone > most) {
            let why = format!("{found} NULLs read back, the inputs state {nulls}, and at most {most} of their rows are deleted");
            return Err(failed(&format!("column {id}"), why));
        }
        compared += 1;
    }
    Ok(compared)
}

/// Ids of the columns that are not inside a list or map.
pub fn flat(schema: &Schema) -> Vec<i32> {
    let mut columns = Vec::new();
    collect(schema.fields(), &mut columns);
    columns
}

/// NULLs of each column of an output as its footer states them, where it does.
pub fn stated(footer: &ParquetMetaData) -> HashMap<i32, Option<u64>> {
    leaves_by_id(footer).into_iter().map(|(id, leaf)| (id, footer_nulls(footer, leaf))).collect()
}

fn collect(fields: &Fields, ids: &mut Vec<i32>) {
    for field in fields {
        match field.data_type() {
            DataType::Struct(below) => collect(below, ids),
            DataType::List(_) | DataType::Map(..) => {}
            _ => ids.extend(field_id(field)),
        }
    }
}

/// NULLs of each column over all inputs; `None` where one of them does not tell.
async fn inputs(
    table: &IcebergTable,
    store: &Store,
    plan: &Plan,
    schema: &Schema,
    entries: &Entries,
    columns: &[i32],
) -> Result<HashMap<i32, Option<u64>>> {
    let constants = constants(table, &plan.scope, schema)?;
    let mapping = table.loaded.metadata.properties().get(DEFAULT_SCHEMA_NAME_MAPPING);
    let mapping: Option<NameMapping> = mapping.and_then(|json| serde_json::from_str(json).ok());
    let mut sums: HashMap<i32, Option<u64>> = columns.iter().map(|id| (*id, Some(0))).collect();
    for input in &plan.inputs {
        let Some(entry) = entries.get(&*input.path) else { continue };
        if entry.record_count() != input.records {
            return Err(failed(
                &input.path,
                format_args!("planned with {} rows, its manifest states {}", input.records, entry.record_count()),
            ));
        }
        let counts = file_nulls(store, input, entry, &constants, mapping.as_ref(), columns).await?;
        for (id, sum) in &mut sums {
            *sum = sum.zip(counts.get(id).copied().flatten()).and_then(|(a, b)| a.checked_add(b));
        }
    }
    Ok(sums)
}

/// NULLs of each column of one input: by its manifest entry, else by its footer.
async fn file_nulls(
    store: &Store,
    input: &LiveFile,
    entry: &DataFile,
    constants: &HashMap<i32, ArrayRef>,
    mapping: Option<&NameMapping>,
    columns: &[i32],
) -> Result<HashMap<i32, Option<u64>>> {
    let mut counts: HashMap<i32, Option<u64>> = HashMap::new();
    let mut silent = Vec::new();
    for id in columns {
        match entry.null_value_counts().get(id) {
            Some(nulls) => drop(counts.insert(*id, Some(*nulls))),
            None => silent.push(*id),
        }
    }
    if silent.is_empty() {
        return Ok(counts);
    }
    let file = ParquetFile::open(store, &input.path, input.bytes).await?;
    let mut leaves = leaves_by_id(file.footer());
    if leaves.is_empty() {
        leaves = mapping.map(|mapping| leaves_by_name(file.footer(), mapping)).unwrap_or_default();
    }
    for id in silent {
        let nulls = match (leaves.get(&id), constants.get(&id)) {
            _ if leaves.is_empty() => None,
            (Some(leaf), _) => footer_nulls(file.footer(), *leaf),
            (None, Some(value)) => Some(if value.is_null(0) { input.records } else { 0 }),
            (None, None) => Some(input.records),
        };
        counts.insert(id, nulls);
    }
    Ok(counts)
}

/// Parquet's leaf columns by field id; none for a file without ids.
fn leaves_by_id(footer: &ParquetMetaData) -> HashMap<i32, usize> {
    let columns = footer.file_metadata().schema_descr().columns().iter().enumerate();
    let infos = columns.map(|(leaf, column)| (column.self_type().get_basic_info(), leaf));
    infos.filter(|(info, _)| info.has_id()).map(|(info, leaf)| (info.id(), leaf)).collect()
}

/// The same of a file without ids, by the table's name mapping; none inside a list
/// or map.
fn leaves_by_name(footer: &ParquetMetaData, mapping: &NameMapping) -> HashMap<i32, usize> {
    let columns = footer.file_metadata().schema_descr().columns().iter().enumerate();
    let mapped = columns.filter(|(_, column)| column.max_rep_level() == 0).filter_map(|(leaf, column)| {
        let mut fields: Vec<&MappedField> = mapping.fields().iter().collect();
        let mut id = None;
        for part in column.path().parts() {
            let field = fields.iter().find(|field| field.names().contains(part))?;
            id = field.field_id();
            fields = field.fields().iter().map(AsRef::as_ref).collect();
        }
        Some((id?, leaf))
    });
    mapped.collect()
}

fn footer_nulls(footer: &ParquetMetaData, leaf: usize) -> Option<u64> {
    let required = footer.file_metadata().schema_descr().columns().get(leaf)?.max_def_level() == 0;
    let mut nulls = 0u64;
    for group in footer.row_groups() {
        if required || group.num_rows() == 0 {
            continue;
        }
        nulls = nulls.checked_add(group.columns().get(leaf)?.statistics()?.null_count_opt()?)?;
    }
    Some(nulls)
}

/// Columns that are a key of every equality delete of the plan, none of whose
/// keys is NULL there: a row with NULL there is deleted by none of them.
async fn keys_without_null(table: &IcebergTable, store: &Store, plan: &Plan) -> Result<BTreeSet<i32>> {
    let deletes: Vec<&LiveDelete> = plan.deletes.iter().filter(|d| d.content == Content::EqualityDeletes).collect();
    let paths = deletes.iter().map(|d| &*d.key.path).collect();
    let entries = manifests::find(table, store, plan.snapshot_id, Kind::Deletes, &paths).await?;
    let mut common: Option<BTreeSet<i32>> = None;
    for delete in deletes {
        let file = ParquetFile::open(store, &delete.key.path, delete.bytes).await?;
        let leaves = leaves_by_id(file.footer());
        let ids = entries.get(&*delete.key.path).and_then(DataFile::equality_ids).unwrap_or_default();
        let filled = |id: &i32| leaves.get(id).and_then(|leaf| footer_nulls(file.footer(), *leaf)) == Some(0);
        let filled: BTreeSet<i32> = ids.into_iter().filter(filled).collect();
        common = Some(common.map_or_else(|| filled.clone(), |c| c.intersection(&filled).copied().collect()));
    }
    Ok(common.unwrap_or_default())
}
