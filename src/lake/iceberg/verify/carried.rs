//! The proof of deletes that are carried over: that those of the outputs delete the
//! rows that those of the inputs delete.

use iceberg::spec::{DataFile, FormatVersion};
use roaring::RoaringTreemap;

use super::second::Second;
use super::{failed, lineage, readback, unproven};
use crate::lake::iceberg::carry::rows::Moved;
use crate::lake::iceberg::read::file::Store;
use crate::lake::iceberg::read::picked::{self, Pick};
use crate::lake::iceberg::read::schema::arrow_schema;
use crate::lake::iceberg::read::vector;
use crate::lake::iceberg::table::IcebergTable;
use crate::lake::{Control, Output, Result};
use crate::model::file::{Content, FileKey};
use crate::model::plan::{Late, LiveDelete, LiveFile, Plan};

/// What is said of carried deletes.
pub struct Claim<'a> {
    /// The position deletes of the inputs that came since, and those that went.
    pub late: &'a Late,
    /// The outputs.
    pub outputs: &'a [Output],
    /// Rows that the rewrite left out of each input.
    pub deleted: &'a [RoaringTreemap],
    /// Rows of the inputs that the late deletes name, and the same of the outputs.
    pub moved: &'a Moved,
    /// Delete files of the outputs.
    pub files: &'a [DataFile],
}

/// Proves carried deletes. Nothing is written.
///
/// Invariants checked:
/// * the rows of the inputs are those that another reading of the late deletes
///   names and that the rewrite did not leave out, and it names every row that the
///   deletes name which went;
/// * the rows of the outputs are as many, and hold the same values in every column,
///   in order, and in format 3 have the same ids;
/// * the delete files, read back, name these rows of the outputs and no others.
///
/// Errs [`Error::Proof`](crate::lake::Error::Proof) when one does not hold; else as
/// reading the files does.
pub async fn prove(table: &IcebergTable, claim: &Claim<'_>, memory: u64, control: &dyn Control) -> Result<()> {
    same_named(table, claim).await?;
    let (from, to) = (&claim.moved.from, &claim.moved.to);
    let rows = |sets: &[RoaringTreemap]| sets.iter().map(RoaringTreemap::len).sum::<u64>();
    if rows(from) != rows(to) {
        return Err(failed("", format_args!("{} rows of the inputs are deleted anew, {} of the outputs", rows(from), rows(to))));
    }
    written_back(table, claim).await?;
    let came = &claim.late.came;
    let scope = &came.scope;
    let inputs = came.inputs.iter().zip(from);
    let inputs = inputs.map(|(file, rows)| Pick { path: &file.path, bytes: file.bytes, rows, indexed: false });
    let outputs = claim.outputs.iter().zip(to);
    let outputs = outputs.map(|(file, rows)| Pick { path: &file.path, bytes: file.bytes, rows, indexed: true });
    let read = picked::hashes(table, scope, inputs, memory, control).await?;
    let back = picked::hashes(table, scope, outputs, memory, control).await.map_err(unproven)?;
    readback::same_columns(&read, &back)?;
    if table.loaded.metadata.format_version() == FormatVersion::V3 {
        same_ids(table, claim).await?;
    }
    Ok(())
}

/// Rows of equal values differ by their ids.
async fn same_ids(table: &IcebergTable, claim: &Claim<'_>) -> Result<()> {
    let store = Store::new(&table.loaded.io);
    let (mut wanted, mut found) = (Vec::new(), Vec::new());
    for (input, rows) in claim.late.came.inputs.iter().zip(&claim.moved.from).filter(|(_, rows)| !rows.is_empty()) {
        wanted.extend(lineage::ids(&store, (&input.path, input.bytes), input.first_row_id, rows).await?);
    }
    for (output, rows) in claim.outputs.iter().zip(&claim.moved.to).filter(|(_, rows)| !rows.is_empty()) {
        found.extend(lineage::ids(&store, (&output.path, output.bytes), None, rows).await.map_err(unproven)?);
    }
    match wanted == found {
        true => Ok(()),
        false => Err(failed("", "rows are deleted of the outputs that have other ids than those of the inputs")),
    }
}

async fn same_named(table: &IcebergTable, claim: &Claim<'_>) -> Result<()> {
    let (came, gone) = (&claim.late.came, named(table, &claim.late.gone).await?);
    let named = named(table, came).await?;
    for (place, input) in came.inputs.iter().enumerate() {
        let still = |gone: &RoaringTreemap| named.get(place).is_some_and(|named| gone.is_subset(named));
        if !gone.get(place).is_none_or(still) {
            return Err(failed(&input.path, "a row that was left out is deleted no more, by another reading"));
        }
        let mut expected = named.get(place).cloned().unwrap_or_default();
        if let Some(deleted) = claim.deleted.get(place) {
            expected -= deleted;
        }
        if claim.moved.from.get(place) != Some(&expected) {
            return Err(failed(&input.path, "its newer deletes name other rows by another reading"));
        }
    }
    Ok(())
}

async fn written_back(table: &IcebergTable, claim: &Claim<'_>) -> Result<()> {
    let output = |output: &Output| LiveFile {
        path: output.path.as_str().into(),
        bytes: output.bytes,
        records: output.records,
        data_sequence: claim.late.came.sequence_number,
        sort_order_id: None,
        first_row_id: None,
        deletes: Vec::new(),
    };
    let delete = |file: &DataFile| {
        let vector = file.content_offset().zip(file.content_size_in_bytes());
        LiveDelete {
            key: FileKey { path: file.file_path().into(), offset: file.content_offset() },
            content: if vector.is_some() { Content::DeletionVector } else { Content::PositionDeletes },
            bytes: vector.map_or(file.file_size_in_bytes(), |(_, bytes)| u64::try_from(bytes).unwrap_or(0)),
            records: file.record_count(),
            data_sequence: claim.late.came.sequence_number,
        }
    };
    let deletes: Vec<LiveDelete> = claim.files.iter().map(delete).collect();
    // a vector is of the one file that its entry names
    let of = |path: &str| {
        let own = claim.files.iter().zip(&deletes).filter(|(file, _)| file.referenced_data_file().as_deref() == Some(path));
        own.map(|(_, delete)| delete.key.clone()).collect()
    };
    let inputs = claim.outputs.iter().map(output).map(|file| LiveFile { deletes: of(&file.path), ..file }).collect();
    let back = Plan { inputs, deletes, ..claim.late.came.clone() };
    let store = Store::new(&table.loaded.io);
    for vector in back.deletes.iter().filter(|delete| delete.content == Content::DeletionVector) {
        // the other reading passes over length and checksum
        vector::read(&store, vector).await.map_err(unproven)?;
    }
    let found = named(table, &back).await.map_err(unproven)?;
    let stated: u64 = claim.files.iter().map(DataFile::record_count).sum();
    if stated != claim.moved.count() {
        return Err(failed("", format_args!("{stated} deletes are written, {} rows are to be deleted", claim.moved.count())));
    }
    let none = RoaringTreemap::new();
    let differs = |(place, rows): &(usize, &RoaringTreemap)| found.get(*place).unwrap_or(&none) != *rows;
    match claim.moved.to.iter().enumerate().find(differs).and_then(|(place, _)| claim.outputs.get(place)) {
        Some(output) => Err(failed(&output.path, "the deletes written for it name other rows than were to be deleted")),
        None => Ok(()),
    }
}

/// The rows that the position deletes of a plan name, by the proof's own reading.
async fn named(table: &IcebergTable, plan: &Plan) -> Result<Vec<RoaringTreemap>> {
    let schema = arrow_schema(table.loaded.metadata.current_schema())?;
    let second = Second::load(table, &Store::new(&table.loaded.io), plan, &schema).await?;
    Ok(second.map(|second| second.named().to_vec()).unwrap_or_default())
}
