//! Writing the outputs of a plan.

pub mod choose;
pub mod cut;
pub mod encode;
pub mod foresee;
mod human;
pub mod input;
pub mod job;
mod lineage;
mod odd;
mod parts;
pub mod place;
pub mod repack;
pub mod schema;
mod sink;
mod space;
pub mod splice;

use std::collections::HashMap;
use std::sync::Arc;

use iceberg::spec::DataFile;
use parquet::file::metadata::ParquetMetaData;
use parquet::schema::types::SchemaDescriptor;
use roaring::RoaringTreemap;

use self::choose::{Asked, Choice};
use self::input::Input;
use self::job::{Job, Made};
use self::repack::Packed;
use super::carry;
use super::columns::Columns;
use super::read::deleted::{self, Deleted};
use super::read::{self, ReadSummary};
use super::table::IcebergTable;
use crate::lake::{Control, Result, Written};
use crate::model::killpoint::KillPoint;
use crate::model::plan::{AttemptId, Path, Plan};

/// What a rewrite hands to the proof and to the commit.
pub struct Detail {
    /// The outputs as manifests will describe them, in row order.
    pub data_files: Vec<DataFile>,
    /// What was read, for re-encoded outputs; `None` when pages were moved: the
    /// proof compares the bytes of spliced chunks, and reads the inputs itself
    /// for re-packed ones.
    pub read: Option<ReadSummary>,
    /// The columns that the outputs have.
    pub columns: Columns,
    /// The rows left out of each input; an input of which nothing is told lost none.
    /// With the rows of the outputs this says where every row went. `None` where it
    /// takes too much memory to be kept.
    pub deleted: Option<Vec<RoaringTreemap>>,
}

/// Writes the outputs of a plan the cheapest way that gives good files.
///
/// Invariants checked:
/// * every path is told to `control` before its file is begun;
/// * the store, where it is local, has room for the outputs;
/// * row groups or pages are copied only where the file says the same as the
///   table in every column, and readers believe its statistics; row groups only
///   where no delete applies, pages only where none of their rows is deleted;
/// * pages that turn out not to fit are encoded anew, never refused: alone where the
///   others can still be joined, by column or by file.
///
/// A crash or an error leaves files that `control` was told of and nothing
/// else: inputs and metadata are never touched. So do files that were put aside and
/// are none of the outputs: the caller removes them.
pub async fn run(table: &IcebergTable, plan: &Plan, attempt: &AttemptId, control: &dyn Control) -> Result<Written> {
    let job = Job::new(&table.loaded.io, &table.loaded.metadata, plan, attempt, control)?;
    space::check(&job.place(), room(plan))?;
    let (choice, inputs) = choose(&job).await?;
    let (choice, done) = match moved(table, &job, choice, inputs).await? {
        (choice, Some(done)) => (choice, done),
        (choice, None) => (choice, encoded(table, &job).await?),
    };
    control.reached(KillPoint::Written);
    Ok(written(table, plan, choice, done))
}

/// Outputs, and what was read for them.
struct Done {
    made: Vec<Made>,
    read: Option<ReadSummary>,
    rows_deleted: u64,
    bytes_read: u64,
    deleted: Option<Vec<RoaringTreemap>>,
}

/// Copies row groups or pages, where that is the choice. Without outputs the
/// rows are to be encoded anew, by the choice that is handed back.
async fn moved(table: &IcebergTable, job: &Job<'_>, mut choice: Choice, mut inputs: Vec<Input>) -> Result<(Choice, Option<Done>)> {
    if choice.path == Path::ReEncode {
        return Ok((choice, None));
    }
    let floats = job.leaves.iter().any(|leaf| leaf.is_float());
    let mut nans = if floats { input::nan_counts(table, job.plan).await? } else { Default::default() };
    if choice.path == Path::Splice {
        let (made, bytes_read) = splice::write(job, &inputs, &nans).await?;
        return Ok((choice, Some(Done { made, read: None, rows_deleted: 0, bytes_read, deleted: Some(Vec::new()) })));
    }
    let Some(replaced) = replaced(table, job, &choice, &mut inputs, &mut nans).await? else {
        return Ok((given_up(choice, "the files to be decoded first take too much room"), None));
    };
    let deleted = deleted_rows(table, job, &choice.odd).await?;
    match repack::write(job, &inputs, &nans, &deleted.rows, &choice.anew).await? {
        (Packed::Made(made), spent) => {
            let bytes_read = replaced.bytes_read.saturating_add(spent.bytes_read).saturating_add(deleted.bytes_read);
            if spent.copied > 0 {
                choice.reason.push_str(&format!("; {} healthy row groups are copied whole", spent.copied));
            }
            let rows_deleted = replaced.rows_deleted.saturating_add(deleted.count());
            let deleted = left_out(replaced.deleted, deleted.rows).and_then(|rows| carry::kept(rows, job.plan));
            Ok((choice, Some(Done { made, read: None, rows_deleted, bytes_read, deleted })))
        }
        (Packed::Unfit(why), _) => Ok((given_up(choice, &why), None)),
    }
}

fn given_up(choice: Choice, why: &str) -> Choice {
    Choice::whole(Path::ReEncode, format!("{}; re-packing was given up: {why}", choice.reason))
}

/// The deleted rows of each input; none of those that are odd, which have lost them
/// already.
async fn deleted_rows(table: &IcebergTable, job: &Job<'_>, odd: &[usize]) -> Result<Deleted> {
    let others: Vec<usize> = (0..job.plan.inputs.len()).filter(|place| !odd.contains(place)).collect();
    let alone = odd::alone(job.plan, &others);
    if alone.inputs.iter().all(|file| file.deletes.is_empty()) {
        return Ok(Deleted::default());
    }
    let found = deleted::find(table, &alone, job.control).await?;
    let mut rows = vec![RoaringTreemap::new(); job.plan.inputs.len()];
    for (place, found) in others.into_iter().zip(found.rows) {
        if let Some(rows) = rows.get_mut(place) {
            *rows = found;
        }
    }
    Ok(Deleted { rows, ..found })
}

/// Puts odd inputs, encoded as the others are, in their places; what was read of
/// them, or `None` when there is no room for them.
async fn replaced(
    table: &IcebergTable,
    job: &Job<'_>,
    choice: &Choice,
    inputs: &mut [Input],
    nans: &mut HashMap<String, HashMap<i32, u64>>,
) -> Result<Option<ReadSummary>> {
    let mut read = ReadSummary { deleted: Some(vec![RoaringTreemap::new(); job.plan.inputs.len()]), ..ReadSummary::default() };
    if choice.odd.is_empty() {
        return Ok(Some(read));
    }
    // positions in their files are lost, and with them what row ids are counted from
    if job.lineage {
        return Ok(None);
    }
    let model = choose::model(&job.columns, job.lineage, &footers(inputs)).map(|schema| schema.root_schema_ptr());
    let Some(model) = model.map(SchemaDescriptor::new) else { return Ok(None) };
    let Some(encoded) = odd::encode(table, job, &model, &choice.odd).await? else { return Ok(None) };
    for (place, odd) in choice.odd.iter().zip(encoded) {
        read.bytes_read = read.bytes_read.saturating_add(odd.read.bytes_read);
        read.rows_deleted = read.rows_deleted.saturating_add(odd.read.rows_deleted);
        read.deleted = read.deleted.zip(odd.read.deleted).map(|(mut all, own)| {
            all.iter_mut().skip(*place).zip(own).take(1).for_each(|(rows, own)| *rows = own);
            all
        });
        nans.insert(odd.input.path.clone(), odd.nans);
        if let Some(input) = inputs.get_mut(*place) {
            *input = odd.input;
        }
    }
    Ok(Some(read))
}

/// The rows left out of each input: those of odd ones, and of the others.
fn left_out(odd: Option<Vec<RoaringTreemap>>, others: Vec<RoaringTreemap>) -> Option<Vec<RoaringTreemap>> {
    let mut rows = odd?;
    rows.iter_mut().zip(others).for_each(|(rows, more)| *rows |= more);
    Some(rows)
}

fn footers(inputs: &[Input]) -> Vec<(&str, &ParquetMetaData)> {
    inputs.iter().map(|input| (input.path.as_str(), &input.footer)).collect()
}

async fn encoded(table: &IcebergTable, job: &Job<'_>) -> Result<Done> {
    let (made, mut read) = encode::write(job, read::open(table, job.plan, job.control).await?).await?;
    let (rows_deleted, bytes_read) = (read.rows_deleted, read.bytes_read);
    let deleted = read.deleted.take();
    Ok(Done { made, read: Some(read), rows_deleted, bytes_read, deleted })
}

/// The share of a job's memory that footers may take: rows are encoded anew
/// from one file after the other.
const FOOTERS_SHARE: u64 = 8;

async fn choose(job: &Job<'_>) -> Result<(Choice, Vec<Input>)> {
    let most = usize::try_from(job.plan.bound.memory / FOOTERS_SHARE).unwrap_or(usize::MAX);
    let Some(inputs) = Input::open_within(job.io, job.plan, job.control, most).await? else {
        let reason = format!("the footers of {} files take more than {most} bytes of memory", job.plan.inputs.len());
        return Ok((Choice::whole(Path::ReEncode, reason), Vec::new()));
    };
    let asked = Asked::of(&job.properties).with_lineage(job.lineage);
    let choice = choose::by_footers(job.plan, &job.columns, &asked, &footers(&inputs));
    Ok((choice, inputs))
}

/// Room to ask for: the inputs' bytes and a quarter more, since another codec
/// or page layout may take more.
fn room(plan: &Plan) -> u64 {
    let bytes = plan.input_bytes();
    bytes.saturating_add(bytes / 4).saturating_add(1 << 20)
}

fn written(table: &IcebergTable, plan: &Plan, choice: Choice, done: Done) -> Written {
    let (outputs, data_files): (Vec<_>, Vec<_>) = done.made.into_iter().map(|made| (made.output, made.data_file)).unzip();
    Written {
        path: choice.path,
        path_reason: choice.reason,
        outputs,
        rows_in: done.read.as_ref().map_or_else(|| plan.input_records(), |read| read.rows_in),
        rows_deleted: done.rows_deleted,
        bytes_read: done.bytes_read,
        detail: Arc::new(Detail { data_files, read: done.read, columns: Columns::of(&table.loaded.metadata), deleted: done.deleted }),
    }
}
