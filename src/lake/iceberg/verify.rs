//! The proof: that the outputs hold exactly the live rows of the inputs.
//!
//! Two halves that share no step of the reading. Counts: rows and NULLs of the
//! outputs, read back, against what the inputs' manifests and footers state.
//! Values: ordered hashes of the columns read back against those taken while
//! reading; where pages were re-packed, the pages of both sides, value by value
//! unless their bytes are equal; where row groups were copied, the bytes of their
//! chunks. A fault of the reader that both sides of one half repeat is seen by the
//! other.

mod alone;
mod blocks;
mod blooms;
mod bounds;
pub mod carried;
mod chunks;
mod counts;
mod described;
mod keys;
mod levels;
mod lineage;
mod odd;
mod pages;
mod readback;
mod reread;
mod second;
mod stated;
mod told;
mod vectors;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use arrow_schema::{Schema, SchemaRef};
use iceberg::spec::DataFile;

use self::second::Second;
use super::hash::row_hash;
use super::lineage::{COLUMNS, is_kept};
use super::metrics::leaf::leaves;
use super::properties::WriteProperties;
use super::read::file::Store;
use super::read::live::Deletes;
use super::read::manifests::{self, Entries};
use super::read::scan::Limits;
use super::read::schema::arrow_schema;
use super::read::{ColumnHash, ReadSummary};
use super::rewrite::Detail;
use super::store::local;
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
/// * which rows are deleted, row by row, found by a second reading of the deletes;
/// * NULLs of each column against the inputs' manifests, or footers: equal without
///   deletes, else fewer by at most the deleted rows; inside lists and maps, entries and
///   values against the inputs' footers;
/// * values: ordered hashes of every column, pages and their values in order (hashes
///   where an input's pages cannot be held beside them), or bytes of every chunk;
/// * the outputs have the table's schema by field ids, and the sizes, counts and
///   bounds that the manifests will state of them hold: by their rows, all of which
///   decode, or, where chunks are copied, by what the inputs' manifests state;
/// * in format v3, the lineage of every live row, worked out again from manifests and
///   files;
/// * statistics, page indexes and bloom filters of the outputs leave out no value;
///   those of copied chunks are the inputs', bit by bit.
///
/// Errs [`Error::Proof`] when one does not hold; `NotFound` or `Unreachable`, or a
/// refusal `Damaged` about an input.
pub async fn run(table: &IcebergTable, plan: &Plan, written: &Written) -> Result<Proof> {
    let detail = written.detail.downcast_ref::<Detail>().ok_or_else(|| failed("", "the rewrite's detail is of another format"))?;
    let store = Store::new(&table.loaded.io);
    let schema = arrow_schema(table.loaded.metadata.current_schema())?;
    same_outputs(written, detail)?;
    let proof = Proving { table, plan, written, outputs: &detail.data_files, store, schema };
    let proven = match (written.path, &detail.read) {
        (Path::ReEncode, Some(read)) => proof.by_values(read).await,
        (Path::RePack, None) => proof.by_pages().await,
        (Path::Splice, None) => proof.by_bytes().await,
        _ => Err(failed("", "the rewrite's path and its detail contradict each other")),
    }?;
    let proven = if is_kept(&table.loaded.metadata) {
        proof.lineage().await?;
        Proof { columns: proven.columns + COLUMNS.len(), ..proven }
    } else {
        proven
    };
    // they are about to be replaced
    local::forget(plan.inputs.iter().filter_map(|input| local::path(&input.path)).collect()).await;
    Ok(proven)
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
    /// reader took.
    async fn by_values(&self, read: &ReadSummary) -> Result<Proof> {
        let back = readback::read(&self.store, self.outputs, &self.schema, None, self.limits(1)).await?;
        let second = Second::load(self.table, &self.store, self.plan, &self.schema).await?;
        self.same_count(second.as_ref(), read.rows_deleted).await?;
        let proof = self.same_values(read, &back, &self.entries().await?).await?;
        if let Some(second) = &second {
            self.same_rows_left(read, second).await?;
        }
        alone::hold(&self.store, self.outputs, self.plan.bound.memory, None, false).await?;
        Ok(proof)
    }

    /// The lineage of every row: independent of how the outputs were made.
    async fn lineage(&self) -> Result<()> {
        let second = Second::load(self.table, &self.store, self.plan, &self.schema).await?;
        lineage::same(&self.store, self.plan, self.outputs, second.as_ref()).await
    }

    /// The rows that the rewrite's reader gave are those that are left of the inputs
    /// where the deleted rows are known by another reading of the deletes: as many
    /// deleted ones prove nothing, they may be others.
    async fn same_rows_left(&self, read: &ReadSummary, second: &Second<'_>) -> Result<()> {
        let deletes = reread::deletes(self.table, self.plan, &self.store).await?;
        let again = reread::read(self.table, self.plan, &self.schema, (&deletes, Some(second)), self.limits(2)).await?;
        self.same_deleted(again.rows_in, again.rows_deleted)?;
        let differ = read.columns.len() != again.columns.len() || read.rows_deleted != again.rows_deleted;
        match read.columns.iter().zip(&again.columns).find(|(read, again)| read != again) {
            Some((column, _)) => {
                Err(failed(&format!("column {}", column.path), "the rows that were written are not those that no delete names"))
            }
            None if differ => Err(failed("", "the rewrite read other columns or rows than the proof")),
            None => Ok(()),
        }
    }

    /// As many rows were left out as the second reading of the deletes names.
    async fn same_count(&self, second: Option<&Second<'_>>, left_out: u64) -> Result<()> {
        let Some(second) = second else { return Ok(()) };
        match second.count(&self.store).await? {
            Some(deleted) if deleted != left_out => {
                Err(failed("", format_args!("{left_out} rows were left out, the deletes name {deleted}")))
            }
            _ => Ok(()),
        }
    }

    /// Pages of the outputs beside those of the inputs; ordered hashes of the
    /// columns that cannot be compared so.
    async fn by_pages(&self) -> Result<Proof> {
        let entries = self.entries().await?;
        let deletes = reread::deletes(self.table, self.plan, &self.store).await?;
        let second = Second::load(self.table, &self.store, self.plan, &self.schema).await?;
        let (plan, outputs, deleting) = (self.plan, self.outputs, second.as_ref().map(|second| (&deletes, second)));
        let blooms = self.blooms()?;
        let pages = pages::Pages {
            store: &self.store,
            plan,
            outputs,
            schema: &self.schema,
            entries: &entries,
            deletes: deleting,
            table: self.table,
            blooms: &blooms,
        };
        let Some(mut same) = pages.compare().await? else {
            let all: BTreeSet<usize> = (0..self.schema.fields().len()).collect();
            alone::hold(&self.store, self.outputs, self.plan.bound.memory, None, true).await?;
            let (read, back) = self.both(&all, (&deletes, second.as_ref())).await?;
            self.same_count(second.as_ref(), read.rows_deleted).await?;
            return self.same_values(&read, &back, &entries).await;
        };
        let filtered: BTreeSet<usize> = same.filtered.difference(&same.unfit).copied().collect();
        if !filtered.is_empty() {
            alone::hold(&self.store, self.outputs, self.plan.bound.memory, Some(&filtered), false).await?;
        }
        if !same.unfit.is_empty() {
            alone::hold(&self.store, self.outputs, self.plan.bound.memory, Some(&same.unfit), true).await?;
            let (read, back) = self.both(&same.unfit, (&deletes, second.as_ref())).await?;
            same.columns += readback::same_columns(&read.columns, &back)?;
            same.nulls.extend(back.iter().map(|column| (column.field_id, column.nulls)));
            same.hash ^= row_hash(&back);
            self.same_deleted(read.rows_in, read.rows_deleted)?;
        }
        // each output was found to hold the rows that it is described with
        let rows = same_rows(self.plan, self.written)?;
        self.same_deleted(same.struck.rows, same.struck.deleted)?;
        levels::check(&self.store, self.plan, self.outputs, &self.schema, self.written.rows_deleted).await?;
        let null_counts = self.counts(&entries, &same.nulls).await?;
        Ok(Proof { rows, null_counts, columns: same.columns, hash: format!("{:032x}", same.hash) })
    }

    /// Field ids of the columns that the table wants bloom filters for.
    fn blooms(&self) -> Result<Vec<i32>> {
        let metadata = &self.table.loaded.metadata;
        let properties = WriteProperties::parse(metadata.properties(), &leaves(metadata.current_schema()))?;
        Ok(properties.blooms.into_keys().collect())
    }

    /// Hashes of some columns of the root, as the proof reads them from the inputs
    /// and from the outputs.
    async fn both(&self, roots: &BTreeSet<usize>, deletes: (&Deletes<'_>, Option<&Second<'_>>)) -> Result<(ReadSummary, Vec<ColumnHash>)> {
        let fields: Vec<_> = roots.iter().filter_map(|root| self.schema.fields().get(*root).cloned()).collect();
        let some: SchemaRef = Arc::new(Schema::new(fields));
        let read = reread::read(self.table, self.plan, &some, deletes, self.limits(2));
        let back = readback::read(&self.store, self.outputs, &self.schema, Some(roots), self.limits(2));
        let (back, read) = tokio::try_join!(back, read)?;
        Ok((read, back))
    }

    fn limits(&self, parts: u64) -> Limits {
        Limits { memory: self.plan.bound.memory / parts }
    }

    async fn same_values(&self, read: &ReadSummary, back: &[ColumnHash], entries: &Entries) -> Result<Proof> {
        // each output was found to hold the rows that it is described with
        let rows = same_rows(self.plan, self.written)?;
        self.same_deleted(read.rows_in, read.rows_deleted)?;
        let columns = readback::same_columns(&read.columns, back)?;
        let nulls = back.iter().map(|c| (c.field_id, c.nulls)).collect();
        levels::check(&self.store, self.plan, self.outputs, &self.schema, self.written.rows_deleted).await?;
        let null_counts = self.counts(entries, &nulls).await?;
        Ok(Proof { rows, null_counts, columns, hash: format!("{:032x}", row_hash(back)) })
    }

    fn same_deleted(&self, rows: u64, deleted: u64) -> Result<()> {
        match (rows, deleted) == (self.written.rows_in, self.written.rows_deleted) {
            true => Ok(()),
            false => Err(failed("", "the inputs hold other rows than were rewritten")),
        }
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
            readback::read(&self.store, &doubted, &self.schema, None, self.limits(1)).await?;
        }
        let null_counts = self.counts(&entries, &nulls).await?;
        Ok(Proof { rows, null_counts, columns: copied.columns, hash: format!("{:032x}", copied.hash) })
    }

    /// The inputs' manifest entries.
    async fn entries(&self) -> Result<Entries> {
        manifests::inputs(self.table, &self.store, self.plan).await
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

/// Rows that the plan's position deletes and vectors can remove at most.
fn position_records(plan: &Plan) -> u64 {
    let positions = plan.deletes.iter().filter(|d| d.content != Content::EqualityDeletes);
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
