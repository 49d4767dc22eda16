//! Position deletes: for each data file the set of deleted row numbers.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use futures::StreamExt;
use roaring::RoaringTreemap;

use super::batches::batch_rows;
use super::file::{ParquetFile, Store};
use super::identify::{FileField, identify};
use crate::lake::{Control, Error, Result};
use crate::model::file::{Content, FileKey};
use crate::model::location::Location;
use crate::model::plan::{LiveDelete, Plan};
use crate::model::refusal::{Refusal, Refused};

/// Reserved field id of a position delete's `file_path` column.
const PATH_ID: i32 = 2_147_483_546;
/// Reserved field id of a position delete's `pos` column.
const POS_ID: i32 = 2_147_483_545;
/// Bytes a deleted position takes in a bitmap when positions are scattered.
const BYTES_A_POSITION: u64 = 2;

/// Deleted row numbers by the place of the data file in the plan's inputs.
pub type Positions = Vec<RoaringTreemap>;

/// Reads every position-delete file of a plan, once and whole: bounds on paths
/// are not trusted, for they may be cut or inverted. A position counts for a
/// data file when it names that file's path and the plan lists the delete for it.
/// Positions beyond a file's end delete nothing.
///
/// Errs refused `StrayDelete` when a path is spelled otherwise than the input's,
/// `TooManyDeletes` before or while loading when more than `budget` bytes are
/// needed, `Damaged`, `NotFound`, `Unreachable`, or what `control` says.
pub async fn load(store: &Store, plan: &Plan, budget: u64, control: &dyn Control) -> Result<Positions> {
    let (deletes, records) = admitted(plan, budget)?;
    let mut loader = Loader::new(plan);
    for delete in deletes {
        loader.last = None;
        loader.applies = plan.inputs.iter().map(|f| f.deletes.binary_search(&delete.key).is_ok()).collect();
        read(store, delete, plan.bound.memory, control, &mut loader).await?;
        let held = loader.positions.iter().map(|p| u64::try_from(p.serialized_size()).unwrap_or(u64::MAX)).fold(0, u64::saturating_add);
        admit(held, budget, records)?;
    }
    Ok(loader.positions)
}

/// Errs as [`load`] would before it has read a row: from the deletes' stated sizes
/// and their footers.
pub async fn foresee(store: &Store, plan: &Plan, budget: u64) -> Result<()> {
    for delete in admitted(plan, budget)?.0 {
        let file = ParquetFile::open(store, &delete.key.path, delete.bytes).await?;
        let columns = columns(&file)?;
        (0..file.footer().num_row_groups())
            .try_for_each(|group| batch_rows(&file, group, &columns.leaves, plan.bound.memory).map(|_| ()))?;
    }
    Ok(())
}

/// A plan's position-delete files, and how many positions they state; refused when
/// these cannot fit.
fn admitted(plan: &Plan, budget: u64) -> Result<(Vec<&LiveDelete>, u64)> {
    let deletes: Vec<&LiveDelete> = plan.deletes.iter().filter(|d| d.content == Content::PositionDeletes).collect();
    let records = deletes.iter().map(|d| d.records).fold(0, u64::saturating_add);
    admit(records.saturating_mul(BYTES_A_POSITION), budget, records)?;
    Ok((deletes, records))
}

fn admit(bytes: u64, budget: u64, records: u64) -> Result<()> {
    if bytes <= budget {
        return Ok(());
    }
    let why = format!("{records} position deletes need about {bytes} bytes of memory, {budget} are allowed");
    Err(Refused::new(Refusal::TooManyDeletes, why).into())
}

async fn read(store: &Store, delete: &LiveDelete, memory: u64, control: &dyn Control, loader: &mut Loader) -> Result<()> {
    let file = ParquetFile::open(store, &delete.key.path, delete.bytes).await?;
    let Columns { leaves, path_place } = columns(&file)?;
    let mut rows = 0u64;
    for group in 0..file.footer().num_row_groups() {
        let size = batch_rows(&file, group, &leaves, memory)?;
        let mut stream = file.stream(group, &leaves, size).await?;
        while let Some(batch) = stream.next().await {
            control.check()?;
            let batch = match batch {
                Ok(batch) => batch,
                Err(error) => return Err(file.error(error).await),
            };
            rows += u64::try_from(batch.num_rows()).unwrap_or(u64::MAX);
            loader.absorb(&batch, path_place).map_err(|e| Error::damaged(&file.path, e))?;
            if let Some(stray) = &loader.stray {
                let why = format!("{} names {stray}, which the table spells otherwise", file.path);
                return Err(Refused::new(Refusal::StrayDelete, why).into());
            }
        }
    }
    if rows != delete.records {
        return Err(Error::damaged(&file.path, format_args!("{rows} rows where the manifest states {}", delete.records)));
    }
    Ok(())
}

/// The two columns of a position-delete file.
struct Columns {
    /// Their leaves, ascending.
    leaves: [usize; 2],
    /// Which of them is the path.
    path_place: usize,
}

fn columns(file: &ParquetFile) -> Result<Columns> {
    let fields = identify(file.schema(), None).map_err(|e| Error::damaged(&file.path, e))?;
    let path = column(&fields.fields, PATH_ID, "file_path").ok_or_else(|| Error::damaged(&file.path, "no file_path column"))?;
    let pos = column(&fields.fields, POS_ID, "pos").ok_or_else(|| Error::damaged(&file.path, "no pos column"))?;
    let leaves = [path.leaves.start.min(pos.leaves.start), path.leaves.start.max(pos.leaves.start)];
    Ok(Columns { leaves, path_place: usize::from(path.leaves.start > pos.leaves.start) })
}

fn column<'a>(fields: &'a [FileField], id: i32, name: &str) -> Option<&'a FileField> {
    let by_id = fields.iter().find(|f| f.id == Some(id));
    by_id.or_else(|| fields.iter().find(|f| f.id.is_none() && f.field.name() == name)).filter(|f| f.children.is_empty())
}

struct Loader {
    by_path: HashMap<Arc<str>, usize>,
    by_location: HashMap<Location, usize>,
    /// Another spelling of an input's path.
    stray: Option<Arc<str>>,
    positions: Positions,
    /// Whether the delete file being read applies to each input.
    applies: Vec<bool>,
    /// The last path looked up: paths come in runs.
    last: Option<(Arc<str>, Option<usize>)>,
}

impl Loader {
    fn new(plan: &Plan) -> Self {
        Self {
            by_path: plan.inputs.iter().enumerate().map(|(i, f)| (f.path.clone(), i)).collect(),
            stray: None,
            by_location: plan.inputs.iter().enumerate().map(|(i, f)| (Location::parse(&f.path), i)).collect(),
            positions: vec![RoaringTreemap::new(); plan.inputs.len()],
            applies: Vec::new(),
            last: None,
        }
    }

    fn absorb(&mut self, batch: &RecordBatch, path_place: usize) -> std::result::Result<(), String> {
        let paths = batch.columns().get(path_place).ok_or("no file_path column")?;
        let paths = arrow_cast::cast(paths, &arrow_schema::DataType::Utf8).map_err(|e| e.to_string())?;
        let paths = paths.as_string_opt::<i32>().ok_or("file_path is not text")?;
        let positions = batch.columns().get(1 - path_place).and_then(|c| c.as_primitive_opt::<Int64Type>()).ok_or("pos is not a long")?;
        for (path, position) in paths.iter().zip(positions.iter()) {
            let (path, position) = path.zip(position).ok_or("a NULL path or position")?;
            let position = u64::try_from(position).map_err(|_| format!("negative position {position}"))?;
            let Some(input) = self.input(path) else { continue };
            if self.applies.get(input) == Some(&true)
                && let Some(set) = self.positions.get_mut(input)
            {
                set.insert(position);
            }
        }
        Ok(())
    }

    fn input(&mut self, path: &str) -> Option<usize> {
        if let Some((last, input)) = &self.last
            && **last == *path
        {
            return *input;
        }
        let input = self.by_path.get(path).copied();
        if input.is_none()
            && let Some(place) = self.by_location.get(&Location::parse(path))
            && self.applies.get(*place) == Some(&true)
        {
            self.stray = Some(path.into());
        }
        self.last = Some((path.into(), input));
        input
    }
}

/// Clears the flags of deleted rows of a batch that starts at row `first`;
/// returns how many.
pub fn strike_positions(deleted: &RoaringTreemap, first: u64, live: &mut [bool]) -> u64 {
    let mut struck = 0;
    let mut positions = deleted.iter();
    positions.advance_to(first);
    for position in positions {
        let Some(flag) = usize::try_from(position - first).ok().and_then(|i| live.get_mut(i)) else { break };
        *flag = false;
        struck += 1;
    }
    struck
}

/// Checks that a plan's own lists agree, and that no delete of it is of a kind
/// that cannot be applied.
///
/// Errs refused `DeletionVector` or `Damaged`.
pub fn check(plan: &Plan) -> Result<()> {
    if let Some(vector) = plan.deletes.iter().find(|d| d.content == Content::DeletionVector) {
        return Err(Refused::new(Refusal::DeletionVector, vector.key.path.to_string()).into());
    }
    let known: BTreeSet<&FileKey> = plan.deletes.iter().map(|d| &d.key).collect();
    for file in &plan.inputs {
        if !file.deletes.is_sorted() {
            return Err(Error::damaged(&file.path, "the plan's deletes of it are not in order"));
        }
        if let Some(lost) = file.deletes.iter().find(|k| !known.contains(k)) {
            return Err(Error::damaged(&file.path, format_args!("the plan applies {} to it but does not list that delete", lost.path)));
        }
    }
    Ok(())
}
