//! Writing the outputs of a plan.

pub mod choose;
pub mod cut;
pub mod encode;
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

use self::choose::Choice;
use self::input::Input;
use self::job::{Job, Made};
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
}

/// Writes the outputs of a plan the cheapest way that gives good files.
///
/// Invariants checked:
/// * every path is told to `control` before its file is begun;
/// * the store, where it is local, has room for the outputs;
/// * row groups or pages are copied only where the file says the same as the
///   table in every column, no delete applies, and readers believe its
///   statistics.
///
/// A crash or an error leaves files that `control` was told of and nothing
/// else: inputs and metadata are never touched.
pub async fn run(table: &IcebergTable, plan: &Plan, attempt: &AttemptId, control: &dyn Control) -> Result<Written> {
    let job = Job::new(&table.loaded.io, &table.loaded.metadata, plan, attempt, control)?;
    space::check(table.loaded.metadata.location(), room(plan))?;
    let (choice, inputs) = choose(&job).await?;
    let (made, read, bytes_read) = match choice.path {
        Path::Splice | Path::RePack => {
            let nans =
                if job.leaves.iter().any(|leaf| leaf.is_float()) { input::nan_counts(table, plan).await? } else { Default::default() };
            let (made, bytes) = match choice.path {
                Path::Splice => splice::write(&job, &inputs, &nans).await?,
                _ => repack::write(&job, &inputs, &nans).await?,
            };
            (made, None, bytes)
        }
        Path::ReEncode => {
            let (made, read) = encode::write(&job, read::open(table, plan, control).await?).await?;
            let bytes = read.bytes_read;
            (made, Some(read), bytes)
        }
    };
    control.reached(KillPoint::Written);
    Ok(written(plan, choice, made, read, bytes_read))
}

async fn choose(job: &Job<'_>) -> Result<(Choice, Vec<Input>)> {
    if let Err(reason) = choose::by_plan(job.plan, job.sorted) {
        return Ok((Choice { path: Path::ReEncode, reason }, Vec::new()));
    }
    let inputs = Input::open_all(job.io, job.plan, job.control).await?;
    let footers: Vec<_> = inputs.iter().map(|input| (input.path.as_str(), &input.footer)).collect();
    let choice = choose::by_footers(job.plan, &job.columns, !job.properties.blooms.is_empty(), &footers);
    Ok((choice, inputs))
}

/// Room to ask for: the inputs' bytes and a quarter more, since another codec
/// or page layout may take more.
fn room(plan: &Plan) -> u64 {
    let bytes = plan.input_bytes();
    bytes.saturating_add(bytes / 4).saturating_add(1 << 20)
}

fn written(plan: &Plan, choice: Choice, made: Vec<Made>, read: Option<ReadSummary>, bytes_read: u64) -> Written {
    let (outputs, data_files): (Vec<_>, Vec<_>) = made.into_iter().map(|made| (made.output, made.data_file)).unzip();
    Written {
        path: choice.path,
        path_reason: choice.reason,
        outputs,
        rows_in: read.as_ref().map_or_else(|| plan.input_records(), |read| read.rows_in),
        rows_deleted: read.as_ref().map_or(0, |read| read.rows_deleted),
        bytes_read,
        detail: Arc::new(Detail { data_files, read }),
    }
}
