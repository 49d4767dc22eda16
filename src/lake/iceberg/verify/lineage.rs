//! Row lineage of the outputs, row by row: what each live row of the inputs had, worked
//! out again from their manifests and files by code that the rewrite has no part in,
//! against what readers will find in the outputs.

use std::collections::{BTreeSet, VecDeque};

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef};
use futures::StreamExt;
use iceberg::spec::DataFile;
use parquet::arrow::async_reader::ParquetRecordBatchStream;
use roaring::RoaringTreemap;

use super::second::Second;
use super::{alone, failed, unproven};
use crate::lake::iceberg::lineage::{COLUMNS, LAST_UPDATED, ROW_ID};
use crate::lake::iceberg::read::file::{FileReader, ParquetFile, Store};
use crate::lake::{Error, Result};
use crate::model::plan::Plan;

/// Rows of a batch.
const BATCH: usize = 4096;

/// A row's id and the sequence number that last updated it; `None` where there is none.
type Row = [Option<i64>; 2];

/// Proves that the outputs store the lineage of the inputs' live rows, in order.
///
/// Invariants checked:
/// * the outputs' last two columns, and no others, are those of lineage;
/// * each row's `_row_id` is the one stored, else its file's first row id and its
///   position; absent only where the file has no first row id;
/// * each row's `_last_updated_sequence_number` is the one stored, else its file's data
///   sequence number;
/// * what the outputs' footers say of both leaves out no value.
///
/// Errs [`Error::Proof`] naming the first row that differs, and as reading does.
pub async fn same(store: &Store, plan: &Plan, outputs: &[DataFile], second: Option<&Second<'_>>) -> Result<()> {
    let (mut wanted, mut found) = (Wanted::new(store, plan, second), Found::new(store, outputs));
    let mut row = 0u64;
    loop {
        match (wanted.next().await?, found.next().await.map_err(unproven)?) {
            (None, None) => break,
            (wanted, found) if wanted == found => row += 1,
            (wanted, found) => {
                return Err(failed(&format!("live row {row}"), format_args!("its lineage is {wanted:?} and was written as {found:?}")));
            }
        }
    }
    for output in outputs {
        let file = ParquetFile::open(store, output.file_path(), output.file_size_in_bytes()).await.map_err(unproven)?;
        let roots = file.footer().file_metadata().schema_descr().root_schema().get_fields().len();
        let last: BTreeSet<usize> = (roots.saturating_sub(COLUMNS.len())..roots).collect();
        alone::hold(store, std::slice::from_ref(output), plan.bound.memory, Some(&last), false).await?;
    }
    Ok(())
}

/// The ids of some rows of a file, in order: the one stored, else the file's first row id
/// and the position; `None` where there is neither.
///
/// Errs as reading does.
pub async fn ids(store: &Store, (path, bytes): (&str, u64), first: Option<i64>, rows: &RoaringTreemap) -> Result<Vec<Option<i64>>> {
    let file = ParquetFile::open(store, path, bytes).await?;
    let stored = leaf(&file, ROW_ID);
    let (mut found, mut row) = (Vec::new(), 0u64);
    for group in 0..file.footer().num_row_groups() {
        let Some(mut walked) = Group::open(&file, group, [stored, None]).await? else { break };
        while let Some([id, _]) = walked.next(&file).await? {
            if rows.contains(row) {
                let position = i64::try_from(row).ok();
                found.push(id.or_else(|| first?.checked_add(position?)));
            }
            row = row.saturating_add(1);
        }
    }
    Ok(found)
}

/// The leaf of a column of the root, by field id.
fn leaf(file: &ParquetFile, id: i32) -> Option<usize> {
    let schema = file.footer().file_metadata().schema_descr();
    (0..schema.num_columns()).find(|place| {
        let column = schema.column(*place);
        let info = column.self_type().get_basic_info();
        column.path().parts().len() == 1 && info.has_id() && info.id() == id
    })
}

/// A stored column of one row group, value by value.
struct Stored {
    stream: Option<ParquetRecordBatchStream<FileReader>>,
    values: Option<ArrayRef>,
    next: usize,
}

impl Stored {
    /// One that the file does not have is NULL throughout.
    async fn open(file: &ParquetFile, group: usize, leaf: Option<usize>) -> Result<Self> {
        let stream = match leaf {
            Some(leaf) => Some(file.stream(group, &[leaf], BATCH).await?),
            None => None,
        };
        Ok(Self { stream, values: None, next: 0 })
    }

    async fn next(&mut self, file: &ParquetFile) -> Result<Option<i64>> {
        let Some(stream) = &mut self.stream else { return Ok(None) };
        while self.values.as_ref().is_none_or(|values| self.next >= values.len()) {
            let batch = match stream.next().await {
                Some(Ok(batch)) => batch,
                Some(Err(error)) => return Err(file.error(error).await),
                None => return Err(Error::damaged(&file.path, "a column of lineage ends before its row group")),
            };
            (self.values, self.next) = (batch.columns().first().cloned(), 0);
        }
        let values = self.values.as_ref().and_then(|values| values.as_primitive_opt::<Int64Type>());
        let values = values.ok_or_else(|| Error::damaged(&file.path, "a column of lineage that is not a long"))?;
        let value = values.is_valid(self.next).then(|| values.value(self.next));
        self.next += 1;
        Ok(value)
    }
}

/// A row group that is walked.
struct Group {
    stored: [Stored; 2],
    rows: u64,
    done: u64,
}

impl Group {
    async fn open(file: &ParquetFile, group: usize, leaves: [Option<usize>; 2]) -> Result<Option<Self>> {
        let Some(meta) = file.footer().row_groups().get(group) else { return Ok(None) };
        let rows = u64::try_from(meta.num_rows()).map_err(|e| Error::damaged(&file.path, e))?;
        let [ids, updated] = leaves;
        let stored = [Stored::open(file, group, ids).await?, Stored::open(file, group, updated).await?];
        Ok(Some(Self { stored, rows, done: 0 }))
    }

    /// What the next row stores.
    async fn next(&mut self, file: &ParquetFile) -> Result<Option<Row>> {
        if self.done == self.rows {
            return Ok(None);
        }
        self.done += 1;
        let [ids, updated] = &mut self.stored;
        Ok(Some([ids.next(file).await?, updated.next(file).await?]))
    }
}

/// The lineage of the inputs' live rows.
struct Wanted<'a> {
    store: &'a Store,
    plan: &'a Plan,
    second: Option<&'a Second<'a>>,
    input: usize,
    open: Option<Input>,
}

struct Input {
    file: ParquetFile,
    leaves: [Option<usize>; 2],
    group: usize,
    open: Option<Group>,
    dead: RoaringTreemap,
    /// The file's rows before the next one.
    row: u64,
}

impl<'a> Wanted<'a> {
    fn new(store: &'a Store, plan: &'a Plan, second: Option<&'a Second<'a>>) -> Self {
        Self { store, plan, second, input: 0, open: None }
    }

    async fn next(&mut self) -> Result<Option<Row>> {
        loop {
            let Some(live) = self.plan.inputs.get(self.input) else { return Ok(None) };
            let Some(input) = &mut self.open else {
                let file = ParquetFile::open(self.store, &live.path, live.bytes).await?;
                let leaves = [ROW_ID, LAST_UPDATED].map(|id| leaf(&file, id));
                self.open = Some(Input { file, leaves, group: 0, open: None, dead: RoaringTreemap::new(), row: 0 });
                continue;
            };
            let Some(group) = &mut input.open else {
                input.open = Group::open(&input.file, input.group, input.leaves).await?;
                if input.open.is_none() {
                    (self.open, self.input) = (None, self.input + 1);
                    continue;
                }
                if let Some(second) = self.second {
                    let dead = second.dead(self.input, &input.file, input.group, input.row).await?;
                    input.dead = dead.ok_or_else(|| failed(&live.path, "its deleted rows cannot be found a second time"))?;
                }
                continue;
            };
            let Some([id, updated]) = group.next(&input.file).await? else {
                (input.open, input.group) = (None, input.group + 1);
                continue;
            };
            let row = input.row;
            input.row += 1;
            if input.dead.contains(row) {
                continue;
            }
            let counted = || live.first_row_id.zip(i64::try_from(row).ok()).and_then(|(first, row)| first.checked_add(row));
            return Ok(Some([id.or_else(counted), updated.or(Some(live.data_sequence))]));
        }
    }
}

/// The lineage that the outputs store.
struct Found<'a> {
    store: &'a Store,
    left: VecDeque<&'a DataFile>,
    open: Option<(ParquetFile, [Option<usize>; 2])>,
    group: usize,
    walked: Option<Group>,
}

impl<'a> Found<'a> {
    fn new(store: &'a Store, outputs: &'a [DataFile]) -> Self {
        Self { store, left: outputs.iter().collect(), open: None, group: 0, walked: None }
    }

    async fn next(&mut self) -> Result<Option<Row>> {
        loop {
            let Some((file, leaves)) = &self.open else {
                let Some(output) = self.left.pop_front() else { return Ok(None) };
                let file = ParquetFile::open(self.store, output.file_path(), output.file_size_in_bytes()).await?;
                let leaves = last(&file)?;
                (self.open, self.group) = (Some((file, leaves)), 0);
                continue;
            };
            let Some(group) = &mut self.walked else {
                self.walked = Group::open(file, self.group, *leaves).await?;
                if self.walked.is_none() {
                    self.open = None;
                }
                continue;
            };
            match group.next(file).await? {
                Some(row) => return Ok(Some(row)),
                None => (self.walked, self.group) = (None, self.group + 1),
            }
        }
    }
}

/// The last two leaves of an output, which must be the columns of lineage as other
/// readers look for them.
fn last(file: &ParquetFile) -> Result<[Option<usize>; 2]> {
    let schema = file.footer().file_metadata().schema_descr();
    let first = schema.num_columns().saturating_sub(COLUMNS.len());
    for (place, (id, name)) in (first..).zip(COLUMNS) {
        let fits = leaf(file, id) == Some(place) && schema.columns().get(place).is_some_and(|column| column.name() == name);
        if !fits {
            return Err(failed(&file.path, format_args!("its column {place} is not {name}")));
        }
    }
    Ok([Some(first), Some(first + 1)])
}
