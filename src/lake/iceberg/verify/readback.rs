//! The outputs read back, plainly: no adapter, no deletes, every column by place.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_schema::{DataType, Field, FieldRef, Fields, Schema, SchemaRef};
use futures::stream::{self, StreamExt};
use iceberg::spec::DataFile;

use super::bounds::{self, Bounds};
use super::counts::stated;
use super::{failed, unproven};
use crate::lake::Result;
use crate::lake::iceberg::hash::RootHasher;
use crate::lake::iceberg::lineage;
use crate::lake::iceberg::read::ColumnHash;
use crate::lake::iceberg::read::file::{ParquetFile, Store};
use crate::lake::iceberg::read::scan::{ALL_GROUPS, AT_ONCE, Consumer, Limits, Opened, Root, Scan, keyed_footer};
use crate::lake::iceberg::read::schema::{children, field_id};

/// Reads every row of every output, column by column, checking what each
/// output's description states of it; the ordered hashes over all outputs in order.
/// `only`: the columns of the root to read, all without it.
///
/// Errs [`Error::Proof`](crate::lake::Error::Proof) when an output does not
/// decode, has another schema than the table, or contradicts its description.
pub async fn read(
    store: &Store,
    outputs: &[DataFile],
    schema: &SchemaRef,
    only: Option<&BTreeSet<usize>>,
    limits: Limits,
) -> Result<Vec<ColumnHash>> {
    let described = Arc::new(outputs.to_vec());
    let fields = schema.fields().iter().enumerate().filter(|(root, _)| only.is_none_or(|only| only.contains(root)));
    let consumers = fields.map(|(_, field)| Back::new(field, &described)).collect();
    let open = |described| open(store, described, schema, only);
    let files = stream::iter(outputs.iter().map(open)).buffered(AT_ONCE).boxed();
    let consumers = Scan::new(limits, files, None).run(consumers).await.map_err(unproven)?;
    let columns: Vec<Vec<ColumnHash>> = consumers.into_iter().map(Back::finish).collect::<Result<_>>()?;
    Ok(columns.into_iter().flatten().collect())
}

/// Opens every output, without reading its rows; the NULLs of each column as
/// their footers state them, where all do.
///
/// Errs as [`read`].
pub async fn look(store: &Store, outputs: &[DataFile], schema: &Schema) -> Result<HashMap<i32, u64>> {
    let mut sums: Option<HashMap<i32, u64>> = None;
    for described in outputs {
        let file = checked(store, described, schema).await.map_err(unproven)?;
        let stated = stated(file.footer());
        let told = |id: &i32| stated.get(id).copied().flatten();
        sums = Some(match sums {
            None => stated.keys().filter_map(|id| Some((*id, told(id)?))).collect(),
            Some(sums) => sums.into_iter().filter_map(|(id, sum)| Some((id, sum.checked_add(told(&id)?)?))).collect(),
        });
    }
    Ok(sums.unwrap_or_default())
}

/// Opens an output whose size, schema and rows are as described.
pub async fn checked(store: &Store, described: &DataFile, schema: &Schema) -> Result<ParquetFile> {
    let path = described.file_path();
    let size = store.size(path).await?;
    if size != described.file_size_in_bytes() {
        return Err(failed(path, format_args!("{size} bytes, described as {}", described.file_size_in_bytes())));
    }
    let file = ParquetFile::open_indexed(store, path, size).await?;
    let columns = lineage::table_columns(file.footer().file_metadata().schema_descr().root_schema()).len();
    same_fields(schema.fields(), file.schema().fields().get(..columns).unwrap_or_default(), path)?;
    bounds::all_have_columns(described, schema)?;
    let rows = file.rows()?;
    if rows != described.record_count() {
        return Err(failed(path, format_args!("{rows} rows, described as {}", described.record_count())));
    }
    Ok(file)
}

async fn open(store: &Store, described: &DataFile, schema: &Schema, only: Option<&BTreeSet<usize>>) -> Result<Opened> {
    opened(checked(store, described, schema).await?, schema, only)
}

/// An output, ready to be read; `only` as for [`read`].
///
/// Errs [`Error::Proof`](crate::lake::Error::Proof) when it has columns of its own.
pub fn opened(file: ParquetFile, schema: &Schema, only: Option<&BTreeSet<usize>>) -> Result<Opened> {
    let keyed = keyed_footer(file.arrow());
    let mut columns: Vec<Root> = schema.fields().iter().map(|_| Root { leaves: Vec::new(), to: None }).collect();
    for leaf in 0..lineage::table_leaves(file.footer().file_metadata().schema_descr()) {
        let root = columns.get_mut(file.arrow().parquet_schema().get_column_root_idx(leaf));
        root.ok_or_else(|| failed(&file.path, "more columns than the table has"))?.leaves.push(leaf);
    }
    let wanted = columns.into_iter().enumerate().filter(|(root, _)| only.is_none_or(|only| only.contains(root)));
    let columns = wanted.map(|(_, root)| root).collect();
    Ok(Opened { file, keyed, columns: Arc::new(columns), input: None, groups: ALL_GROUPS })
}

/// One column of the outputs.
struct Back {
    field: FieldRef,
    described: Arc<Vec<DataFile>>,
    hasher: RootHasher,
    current: Option<Output>,
}

/// The output that is being read.
struct Output {
    place: usize,
    bounds: Bounds,
    /// What was counted before it.
    before: Vec<(i32, u64, u64)>,
}

impl Back {
    fn new(field: &FieldRef, described: &Arc<Vec<DataFile>>) -> Self {
        Self { field: Arc::clone(field), described: Arc::clone(described), hasher: RootHasher::new(field), current: None }
    }

    fn end(&mut self) -> Result<()> {
        let Some(output) = self.current.take() else { return Ok(()) };
        output.bounds.finish()?;
        match self.described.get(output.place) {
            Some(described) => counts(described, &output.before, &self.hasher),
            None => Ok(()),
        }
    }

    fn finish(mut self) -> Result<Vec<ColumnHash>> {
        self.end()?;
        Ok(self.hasher.finish())
    }
}

impl Consumer for Back {
    fn rows(&mut self, file: usize, column: &ArrayRef) -> Result<()> {
        let described = self.described.get(file).ok_or_else(|| failed("", "more outputs than are described"))?;
        let mut output = match self.current.take() {
            Some(output) if output.place == file => output,
            before => {
                self.current = before;
                let bounds = Bounds::new(described, &self.field)?;
                self.end()?;
                Output { place: file, bounds, before: self.hasher.counts().collect() }
            }
        };
        output.bounds.check(column)?;
        self.current = Some(output);
        let path = |described: Option<&DataFile>| described.map_or(String::new(), |d| d.file_path().to_owned());
        self.hasher.update(column.as_ref()).map_err(|e| failed(&path(self.described.get(file)), e))
    }
}

/// Value and NULL counts of one output, as it is described, against those read.
fn counts(described: &DataFile, before: &[(i32, u64, u64)], hasher: &RootHasher) -> Result<()> {
    for ((id, nulls, values), (_, old_nulls, old_values)) in hasher.counts().zip(before) {
        let stated = (described.null_value_counts().get(&id), described.value_counts().get(&id));
        let found = (nulls - old_nulls, values - old_values);
        if stated.0.is_some_and(|n| *n != found.0) || stated.1.is_some_and(|v| *v != found.1) {
            let why = format!("column {id} has {} NULLs of {} values, described as {stated:?}", found.0, found.1);
            return Err(failed(described.file_path(), why));
        }
    }
    Ok(())
}

/// Columns read and columns read back, one by one; returns how many.
///
/// Errs [`Error::Proof`](crate::lake::Error::Proof) naming the first that differs.
pub fn same_columns(read: &[ColumnHash], back: &[ColumnHash]) -> Result<usize> {
    if read.len() != back.len() {
        return Err(failed("", format_args!("{} columns were read, {} read back", read.len(), back.len())));
    }
    match read.iter().zip(back).find(|(read, back)| read != back) {
        None => Ok(read.len()),
        Some((read, back)) => Err(failed(&format!("column {}", read.path), format_args!("read as {read:?}, read back as {back:?}"))),
    }
}

/// The file's schema is the table's: the same fields by id in the same places,
/// with the same types, and NULLs only where the table may have them. Names are
/// the writer's business. Columns of lineage behind them are proven by themselves.
fn same_fields(table: &Fields, file: &[FieldRef], path: &str) -> Result<()> {
    if table.len() != file.len() {
        return Err(failed(path, format_args!("{} fields where the table has {}", file.len(), table.len())));
    }
    table.iter().zip(file).try_for_each(|(table, file)| same_field(table, file, path))
}

fn same_field(table: &Field, file: &Field, path: &str) -> Result<()> {
    let differs =
        |what: &str| failed(path, format_args!("column {} has another {what} than the table's column {}", file.name(), table.name()));
    if field_id(table) != field_id(file) {
        return Err(differs("field id"));
    }
    if file.is_nullable() && !table.is_nullable() {
        return Err(differs("nullability"));
    }
    let (from, to) = (file.data_type(), table.data_type());
    let same_kind = match (from, to) {
        (DataType::Struct(_), DataType::Struct(_)) | (DataType::List(_), DataType::List(_)) | (DataType::Map(..), DataType::Map(..)) => {
            true
        }
        (DataType::Binary, DataType::LargeBinary) => true,
        (DataType::Timestamp(unit, zone), DataType::Timestamp(to_unit, to_zone)) => unit == to_unit && zone.is_some() == to_zone.is_some(),
        (from, to) => from == to,
    };
    let (below, table_below) = (children(from), children(to));
    if !same_kind || below.len() != table_below.len() {
        return Err(differs("type"));
    }
    table_below.iter().zip(below).try_for_each(|(table, file)| same_field(table, file, path))
}
