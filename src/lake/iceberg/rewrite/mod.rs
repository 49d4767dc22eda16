//! Writing the outputs of a plan.

pub mod choose;
pub mod cut;
pub mod encode;
pub mod foresee;
mod human;
pub mod input;
pub mod job;
mod parts;
pub mod place;
pub mod repack;
pub mod schema;
mod sink;
mod space;
pub mod splice;

use std::sync::Arc;

use iceberg::spec::DataFile;

use self::choose::{Asked, Choice};
use self::input::Input;
use self::job::{Job, Made};
use self::repack::Packed;
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
}

/// Writes the outputs of a plan the cheapest way that gives good files.
///
/// Invariants checked:
/// * every path is told to `control` before its file is begun;
/// * the store, where it is local, has room for the outputs;
/// * row groups or pages are copied only where the file says the same as the
///   table in every column, and readers believe its statistics; row groups only
///   where no delete applies, pages only where none of their rows is deleted;
/// * pages that turn out not to fit are encoded anew, never refused.
///
/// A crash or an error leaves files that `control` was told of and nothing
/// else: inputs and metadata are never touched.
pub async fn run(table: &IcebergTable, plan: &Plan, attempt: &AttemptId, control: &dyn Control) -> Result<Written> {
    let job = Job::new(&table.loaded.io, &table.loaded.metadata, plan, attempt, control)?;
    space::check(&job.place(), room(plan))?;
    let (choice, inputs) = choose(&job).await?;
    let (choice, done) = match moved(table, &job, choice, &inputs).await? {
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
}

/// Copies row groups or pages, where that is the choice. Without outputs the
/// rows are to be encoded anew, by the choice that is handed back.
async fn moved(table: &IcebergTable, job: &Job<'_>, choice: Choice, inputs: &[Input]) -> Result<(Choice, Option<Done>)> {
    if choice.path == Path::ReEncode {
        return Ok((choice, None));
    }
    let floats = job.leaves.iter().any(|leaf| leaf.is_float());
    let nans = if floats { input::nan_counts(table, job.plan).await? } else { Default::default() };
    if choice.path == Path::Splice {
        let (made, bytes_read) = splice::write(job, inputs, &nans).await?;
        return Ok((choice, Some(Done { made, read: None, rows_deleted: 0, bytes_read })));
    }
    let deleted = match job.plan.inputs.iter().all(|file| file.deletes.is_empty()) {
        true => Deleted::default(),
        false => deleted::find(table, job.plan, job.control).await?,
    };
    match repack::write(job, inputs, &nans, &deleted.rows).await? {
        (Packed::Made(made), bytes) => {
            let bytes_read = bytes.saturating_add(deleted.bytes_read);
            Ok((choice, Some(Done { made, read: None, rows_deleted: deleted.count(), bytes_read })))
        }
        (Packed::Unfit(why), _) => {
            let reason = format!("{}; re-packing was given up: {why}", choice.reason);
            Ok((Choice { path: Path::ReEncode, reason }, None))
        }
    }
}

async fn encoded(table: &IcebergTable, job: &Job<'_>) -> Result<Done> {
    let (made, read) = encode::write(job, read::open(table, job.plan, job.control).await?).await?;
    let (rows_deleted, bytes_read) = (read.rows_deleted, read.bytes_read);
    Ok(Done { made, read: Some(read), rows_deleted, bytes_read })
}

/// The share of a job's memory that footers may take: rows are encoded anew
/// from one file after the other.
const FOOTERS_SHARE: u64 = 8;

async fn choose(job: &Job<'_>) -> Result<(Choice, Vec<Input>)> {
    if let Err(reason) = choose::by_plan(job.sorted) {
        return Ok((Choice { path: Path::ReEncode, reason }, Vec::new()));
    }
    let most = usize::try_from(job.plan.bound.memory / FOOTERS_SHARE).unwrap_or(usize::MAX);
    let Some(inputs) = Input::open_within(job.io, job.plan, job.control, most).await? else {
        let reason = format!("the footers of {} files take more than {most} bytes of memory", job.plan.inputs.len());
        return Ok((Choice { path: Path::ReEncode, reason }, Vec::new()));
    };
    let footers: Vec<_> = inputs.iter().map(|input| (input.path.as_str(), &input.footer)).collect();
    let choice = choose::by_footers(job.plan, &job.columns, &Asked::of(&job.properties), &footers);
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
        detail: Arc::new(Detail { data_files, read: done.read, columns: Columns::of(&table.loaded.metadata) }),
    }
}
