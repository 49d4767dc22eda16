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
mod described;
mod readback;
mod reread;

use std::collections::{BTreeSet, HashMap};

use arrow_schema::SchemaRef;
use iceberg::spec::DataFile;

use super::hash::row_hash;
use super::read::ReadSummary;
use super::read::file::Store;
use super::read::manifests::{self, Entries, Kind};
use super::read::scan::Limits;
use super::read::schema::arrow_schema;
use super::rewrite::Detail;
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
/// * the outputs have the table's schema by field ids, and the sizes, counts and
///   bounds that the manifests will state of them hold: by their rows, all of which
///   decode, or, where chunks are copied, by what the inputs' manifests state.
///
/// Errs [`Error::Proof`] when one does not hold; `NotFound` or `Unreachable`, or a
/// refusal `Damaged` about an input.
pub async fn run(table: &IcebergTable, plan: &Plan, written: &Written) -> Result<Proof> {
    let detail = written.detail.downcast_ref::<Detail>().ok_or_else(|| failed("", "the rewrite's detail is of another format"))?;
    let store = Store::new(&table.loaded.io);
    let schema = arrow_schema(table.loaded.metadata.current_schema())?;
    same_outputs(written, detail)?;
    let proof = Proving { table, plan, written, outputs: &detail.data_files, store, schema };
    match (written.path, &detail.read) {
        (Path::ReEncode, read @ Some(_)) | (Path::RePack, read @ None) => proof.by_values(read.as_ref()).await,
        (Path::Splice, None) => proof.by_bytes().await,
        _ => Err(failed("", "the rewrite's path and its detail contradict each other")),
    }
}

/// What is to be proven.
struct Proving<'a> {
    table: &'a IcebergTable,
    plan: &'a Plan,
    written: &'a Written,
    outputs: &'a [DataFile],
    store: Store,
    schema: SchemaRef,
}

impl Proving<'_> {
    /// Ordered hashes of the columns read back, against those that the rewrite's
    /// reader took, or the proof takes itself.
    async fn by_values(&self, read: Option<&ReadSummary>) -> Result<Proof> {
        let memory = self.plan.bound.memory;
        let back = |memory: u64| readback::read(&self.store, self.outputs, &self.schema, Limits { memory });
        let (back, read) = match read {
            Some(read) => (back(memory).await?, read.clone()),
            None => {
                let half = memory / 2;
                tokio::try_join!(back(half), reread::read(self.table, self.plan, &self.schema, Limits { memory: half }))?
            }
        };
        // each output was found to hold the rows that it is described with
        let rows = same_rows(self.plan, self.written)?;
        if (read.rows_in, read.rows_deleted) != (self.written.rows_in, self.written.rows_deleted) {
            return Err(failed("", "the inputs hold other rows than were rewritten"));
        }
        let columns = readback::same_columns(&read.columns, &back)?;
        let nulls = back.iter().map(|c| (c.field_id, c.nulls)).collect();
        let null_counts = self.counts(&self.entries().await?, &nulls).await?;
        Ok(Proof { rows, null_counts, columns, hash: format!("{:032x}", row_hash(&back)) })
    }

    /// Bytes of the copied chunks. Rows are decoded only of outputs whose
    /// description does not follow from the inputs' manifests.
    async fn by_bytes(&self) -> Result<Proof> {
        if let Some(input) = self.plan.inputs.iter().find(|input| !input.deletes.is_empty()) {
            return Err(failed(&input.path, "its row groups are copied, and deletes apply to it"));
        }
        let nulls = readback::look(&self.store, self.outputs, &self.schema).await?;
        let rows = same_rows(self.plan, self.written)?;
        let copied = chunks::same(&self.store, self.plan, self.outputs, self.plan.bound.memory).await?;
        let entries = self.entries().await?;
        let flat = counts::flat(&self.schema).into_iter().collect();
        let doubted = self.outputs.iter().zip(&copied.parts);
        let doubted = doubted.filter(|(output, parts)| !described::follows(self.plan, &entries, output, parts, &flat));
        let doubted: Vec<DataFile> = doubted.map(|(output, _)| output.clone()).collect();
        if !doubted.is_empty() {
            readback::read(&self.store, &doubted, &self.schema, Limits { memory: self.plan.bound.memory }).await?;
        }
        let null_counts = self.counts(&entries, &nulls).await?;
        Ok(Proof { rows, null_counts, columns: copied.columns, hash: format!("{:032x}", copied.hash) })
    }

    /// The inputs' manifest entries.
    async fn entries(&self) -> Result<Entries> {
        let paths: BTreeSet<&str> = self.plan.inputs.iter().map(|f| &*f.path).collect();
        let kind = Kind::Data { spec_id: self.plan.scope.spec_id };
        manifests::find(self.table, &self.store, self.plan.snapshot_id, kind, &paths).await
    }

    async fn counts(&self, entries: &Entries, nulls: &HashMap<i32, u64>) -> Result<usize> {
        counts::check(self.table, &self.store, self.plan, &self.schema, entries, nulls, self.written.rows_deleted).await
    }
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

/// The rows read back, which are those of the inputs less the deleted ones.
fn same_rows(plan: &Plan, written: &Written) -> Result<u64> {
    let back = written.outputs.iter().map(|o| o.records).fold(0, u64::saturating_add);
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
    Ok(back)
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
