//! Deletes carried over: position deletes and vectors that another writer committed while
//! we rewrote their files become position deletes of the outputs, in format 3 vectors.

pub mod rows;

use iceberg::spec::{DataFile, FormatVersion};
use roaring::RoaringTreemap;

use self::rows::{Input, Moved};
use super::positions::{self, At};
use super::read::deleted::{left_out_bytes, position_bytes};
use super::read::file::Store;
use super::read::position;
use super::rewrite::Detail;
use super::table::IcebergTable;
use super::vectors;
use super::verify::carried::{self, Claim};
use crate::lake::{Commit, Error, Result, Written};
use crate::model::killpoint::KillPoint;
use crate::model::plan::{AttemptId, Late, Plan};
use crate::model::refusal::Refusal;

/// What a commit carries over.
#[derive(Debug, Default)]
pub struct Carried {
    /// Position-delete files or vectors of the outputs.
    pub files: Vec<DataFile>,
    /// Rows that they delete.
    pub rows: u64,
}

/// The rows that a rewrite left out of its inputs, as it hands them on: `None`
/// where they take more memory than may be held until the commit.
pub fn kept(deleted: Vec<RoaringTreemap>, plan: &Plan) -> Option<Vec<RoaringTreemap>> {
    rows::within(deleted, left_out_bytes(plan.bound.memory))
}

/// Writes the deletes that came since the plan (see [`Plan::late`]) anew as deletes of the
/// outputs: one position-delete file for each output that loses rows, in format 3 a vector
/// for each, all in one file.
///
/// Invariants checked, all by [`carried::prove`]:
/// * another reading of the late deletes finds the same rows of the inputs;
/// * as many rows of the outputs are deleted as of the inputs, and these rows are
///   equal, column by column, and in format 3 have the same ids;
/// * the files written name these rows and no others.
///
/// `None` when it cannot be done here and the work is to be planned again: the
/// format has no deletes, the rewrite does not tell which rows it left out,
/// there are more deletes than memory, or a row that was left out is deleted no more.
///
/// A crash leaves files of which the try's control was told; they are in no table
/// before the commit.
///
/// # Errors
/// [`Error::Proof`] when one does not hold; refusals about a delete file; store errors.
pub async fn over(table: &IcebergTable, late: &Late, written: &Written, detail: &Detail, commit: &Commit<'_>) -> Result<Option<Carried>> {
    let Some(deleted) = &detail.deleted else { return Ok(None) };
    if table.loaded.metadata.format_version() == FormatVersion::V1 {
        return Ok(None);
    }
    match carry(table, late, written, deleted, commit).await {
        Ok(carried) => Ok(carried),
        Err(Error::Refused(refused)) if matches!(refused.refusal, Refusal::TooManyDeletes | Refusal::TooLargeForMemory) => {
            tracing::info!(table = %late.came.name, why = refused.detail, "newer deletes are not carried over");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

async fn carry(
    table: &IcebergTable,
    late: &Late,
    written: &Written,
    deleted: &[RoaringTreemap],
    commit: &Commit<'_>,
) -> Result<Option<Carried>> {
    let memory = late.came.bound.memory / 2;
    let reader = Store::new(&table.loaded.io);
    let named = position::load(&reader, &late.came, position_bytes(memory), commit.control).await?;
    if !late.gone.deletes.is_empty() {
        let gone = match position::load(&reader, &late.gone, position_bytes(memory), commit.control).await {
            Err(Error::NotFound { .. }) => return Ok(None),
            gone => gone?,
        };
        if !gone.iter().zip(&named).all(|(gone, named)| gone.is_subset(named)) {
            return Ok(None);
        }
    }
    let moved = moved(&late.came, written, deleted, &named)?;
    drop(named);
    let files = write(table, &late.came, written, &moved, commit).await?;
    commit.control.reached(KillPoint::DeletesCarried);
    let claim = Claim { late, outputs: &written.outputs, deleted, moved: &moved, files: &files };
    carried::prove(table, &claim, memory, commit.control).await?;
    Ok(Some(Carried { files, rows: moved.count() }))
}

fn moved(came: &Plan, written: &Written, deleted: &[RoaringTreemap], named: &[RoaringTreemap]) -> Result<Moved> {
    let inputs: Vec<Input<'_>> =
        came.inputs.iter().enumerate().map(|(place, file)| Input { records: file.records, deleted: deleted.get(place) }).collect();
    let outputs: Vec<u64> = written.outputs.iter().map(|output| output.records).collect();
    let found = rows::find(&inputs, &outputs, named);
    found.ok_or_else(|| Error::Proof("the outputs do not have the rows that were not left out of the inputs".into()))
}

async fn write(table: &IcebergTable, came: &Plan, written: &Written, moved: &Moved, commit: &Commit<'_>) -> Result<Vec<DataFile>> {
    let attempt = AttemptId(format!("{}-deletes", commit.attempt.0));
    let hit: Vec<_> = written.outputs.iter().zip(&moved.to).filter(|(_, rows)| !rows.is_empty()).collect();
    for (output, rows) in &hit {
        let past_end = rows.max().filter(|row| *row >= output.records || i64::try_from(*row).is_err());
        if let Some(row) = past_end {
            return Err(Error::Proof(format!("{}: row {row} of {} rows is to be deleted", output.path, output.records)));
        }
    }
    if hit.is_empty() {
        return Ok(Vec::new());
    }
    if table.loaded.metadata.format_version() == FormatVersion::V3 {
        let rows: Vec<_> = hit.iter().map(|(output, rows)| (output.path.as_str(), *rows)).collect();
        return vectors::write(table, At { partition: &came.scope, attempt: &attempt, number: 0 }, &rows, commit.control).await;
    }
    let mut files = Vec::new();
    for (output, rows) in hit {
        commit.control.check()?;
        let rows = rows.iter().map(|row| (output.path.as_str(), i64::try_from(row).unwrap_or(i64::MAX)));
        let at = At { partition: &came.scope, attempt: &attempt, number: files.len() };
        files.push(positions::write(table, at, rows, commit.control).await?);
    }
    Ok(files)
}
