//! The proof: that the outputs hold exactly the live rows of the inputs.
//!
//! Two halves that share no step of the reading. Counts: rows and NULLs of the
//! outputs, read back, against what the inputs' manifests and footers state.
//! Values: ordered hashes of the columns read back against those taken while
//! reading, by the proof itself where pages were re-packed, or, where row groups
//! were copied, the bytes of their chunks. A fault
//! of the reader that both sides of one half repeat is seen by the other.

mod bounds;
mod chunks;
mod counts;
mod readback;
mod reread;

use std::sync::Arc;

use tokio::sync::Semaphore;

use super::hash::row_hash;
use super::read::file::Store;
use super::read::scan::Limits;
use super::read::schema::arrow_schema;
use super::rewrite::Detail;
use super::spread::cores;
use super::table::IcebergTable;
use crate::lake::{Error, Proof, Result, Written};
use crate::model::file::Content;
use crate::model::plan::{Path, Plan};
use crate::model::refusal::Refusal;

/// Proves a rewrite from the rows read back. Nothing is written.
///
/// Invariants checked:
/// * rows: those of the inputs' manifests were read, and they less the deleted
///   ones are those read back; nothing is deleted without deletes, and no more
///   by position deletes than they name;
/// * NULLs of each column against the inputs' manifests, or footers: equal without
///   deletes, else fewer by at most the deleted rows;
/// * values: ordered hashes of every column, or bytes of every chunk;
/// * the outputs decode whole, in the table's schema by field ids, and their
///   sizes, counts and bounds as the manifests will state them hold.
///
/// Errs [`Error::Proof`] when one does not hold; `NotFound` or `Unreachable`, or a
/// refusal `Damaged` about an input.
pub async fn run(table: &IcebergTable, plan: &Plan, written: &Written) -> Result<Proof> {
    let detail = written.detail.downcast_ref::<Detail>().ok_or_else(|| failed("", "the rewrite's detail is of another format"))?;
    let store = Store::new(&table.loaded.io);
    let schema = arrow_schema(table.loaded.metadata.current_schema())?;
    same_outputs(written, detail)?;
    let limits = Limits { memory: plan.bound.memory / 2, permits: Arc::new(Semaphore::new(cores())) };
    let back = readback::read(&store, detail, &schema, limits.clone());
    let (back, read) = match (written.path, &detail.read) {
        (Path::ReEncode, Some(read)) => (back.await?, Some(read.clone())),
        (Path::RePack, None) => {
            tokio::try_join!(back, reread::read(table, plan, &schema, limits)).map(|(back, read)| (back, Some(read)))?
        }
        (Path::Splice, None) => (back.await?, None),
        _ => return Err(failed("", "the rewrite's path and its detail contradict each other")),
    };
    // each output was found to hold the rows that it is described with
    let rows = written.outputs.iter().map(|o| o.records).fold(0, u64::saturating_add);
    same_rows(plan, written, rows)?;
    let columns = match read {
        Some(read) if (read.rows_in, read.rows_deleted) != (written.rows_in, written.rows_deleted) => {
            return Err(failed("", "the inputs hold other rows than were rewritten"));
        }
        Some(read) => readback::same_columns(&read.columns, &back)?,
        None => chunks::same(&store, plan, &detail.data_files).await?,
    };
    let deleted = written.rows_deleted;
    let null_counts = counts::check(table, &store, plan, &schema, &back, deleted).await?;
    Ok(Proof { rows, null_counts, columns, hash: format!("{:032x}", row_hash(&back)) })
}

fn same_outputs(written: &Written, detail: &Detail) -> Result<()> {
    if written.outputs.len() != detail.data_files.len() {
        return Err(failed("", format_args!("{} outputs are written, {} described", written.outputs.len(), detail.data_files.len())));
    }
    for (output, file) in written.outputs.iter().zip(&detail.data_files) {
        let described = (file.file_path(), file.file_size_in_bytes(), file.record_count());
        if (output.path.as_str(), output.bytes, output.records) != described {
            return Err(failed(&output.path, format_args!("written as {output:?}, described as {described:?}")));
        }
    }
    Ok(())
}

fn same_rows(plan: &Plan, written: &Written, back: u64) -> Result<()> {
    let stated = plan.inputs.iter().map(|f| f.records).fold(0, u64::saturating_add);
    if written.rows_in != stated {
        return Err(failed("", format_args!("{} rows were read, the inputs' manifests state {stated}", written.rows_in)));
    }
    if stated.checked_sub(written.rows_deleted) != Some(back) {
        let deleted = written.rows_deleted;
        return Err(failed("", format_args!("{stated} rows of inputs less {deleted} deleted ones are not the {back} rows read back")));
    }
    let named = position_records(plan);
    let by_key = plan.deletes.iter().any(|d| d.content == Content::EqualityDeletes);
    if !by_key && written.rows_deleted > named {
        return Err(failed("", format_args!("{} rows were left out, the position deletes name {named}", written.rows_deleted)));
    }
    Ok(())
}

/// Rows that the plan's position deletes can remove at most.
fn position_records(plan: &Plan) -> u64 {
    let positions = plan.deletes.iter().filter(|d| d.content == Content::PositionDeletes);
    positions.map(|d| d.records).fold(0, u64::saturating_add)
}

/// A proof that failed, at a file or column.
fn failed(place: &str, what: impl std::fmt::Display) -> Error {
    Error::Proof(if place.is_empty() { what.to_string() } else { format!("{place}: {what}") })
}

/// An output that cannot be read back is a failed proof, not a damaged table.
fn unproven(error: Error) -> Error {
    match error {
        Error::Refused(refused) if refused.refusal == Refusal::Damaged => Error::Proof(refused.detail),
        Error::NotFound { path } => Error::Proof(format!("{path}: the output does not exist")),
        other => other,
    }
}
