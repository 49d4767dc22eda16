//! The outputs of a rewrite as the commit enters them.

use std::collections::HashSet;

use iceberg::spec::{DataContentType, DataFile, DataFileBuilder, DataFileFormat, Struct};

use super::manifests;
use crate::lake::iceberg::columns::Columns;
use crate::lake::iceberg::rewrite::Detail;
use crate::lake::iceberg::scope::State;
use crate::lake::iceberg::scope::tuple;
use crate::lake::iceberg::table::IcebergTable;
use crate::lake::{Error, Result, Written};
use crate::model::file::FileKey;
use crate::model::location::Location;
use crate::model::outcome::Conflict;
use crate::model::plan::{CONFLICT_SAMPLE, Plan};

/// The outputs' data files, entered under the plan's partition and spec, without
/// a claim to be sorted.
///
/// Invariants checked:
/// * rows out = rows in − rows deleted, and rows in are the inputs' records: no
///   row is lost between planning and commit;
/// * each output is a Parquet data file of a path of its own, none an input's;
/// * each lies in the plan's partition.
///
/// # Errors
/// [`Error::Proof`] naming what does not hold; `unresolved-spec`.
pub fn entries(table: &IcebergTable, plan: &Plan, written: &Written, detail: &Detail) -> Result<Vec<DataFile>> {
    count_rows(plan, written, &detail.data_files)?;
    let (schema, spec) = manifests::schema_for(table, plan.scope.spec_id)?;
    let fields = spec.partition_type(&schema).map_err(|e| Error::damaged(&table.loaded.metadata_location, e))?;
    let partition = tuple::to_struct(&plan.scope.tuple, &fields).map_err(|e| Error::damaged(&table.loaded.metadata_location, e))?;
    let mut paths: HashSet<Location> = plan.inputs.iter().map(|f| Location::parse(&f.path)).collect();
    let mut entries = Vec::with_capacity(detail.data_files.len());
    for file in &detail.data_files {
        let wrong = |why: &str| Err(Error::Proof(format!("output {}: {why}", file.file_path())));
        if file.content_type() != DataContentType::Data || file.file_format() != DataFileFormat::Parquet {
            return wrong("is not a Parquet data file");
        }
        if !paths.insert(Location::parse(file.file_path())) {
            return wrong("its path is an input's or another output's");
        }
        if file.partition() != &partition {
            return wrong("its partition is not the plan's");
        }
        entries.push(entry(file, plan.scope.spec_id, partition.clone())?);
    }
    Ok(entries)
}

/// What the rewrite tells of its outputs.
///
/// # Errors
/// [`Error::Setup`], when they are of another table format.
pub fn detail(written: &Written) -> Result<&Detail> {
    written.detail.downcast_ref::<Detail>().ok_or_else(|| Error::Setup("outputs of another table format".into()))
}

/// Why the outputs would not read as the inputs do on this base.
///
/// Outputs have the columns of the schema when they were written. A column that
/// was dropped then and is in the schema again has its values in the inputs only. So
/// has one by which an equality delete deletes that came since, from a writer that
/// kept to the older schema: it reaches the outputs and finds NULLs there.
pub fn reads_otherwise(table: &IcebergTable, state: &State, plan: &Plan, columns: &Columns) -> Option<Conflict> {
    let changed = columns.changed(&table.loaded.metadata);
    if !changed.is_empty() {
        return Some(Conflict::ColumnsChanged { columns: changed });
    }
    // by number, not by name: a delete that was applied may have been entered anew
    let newer = state.reaching.iter().map(|r| &r.delete).filter(|d| d.data_sequence > plan.sequence_number);
    let newer: HashSet<&FileKey> = newer.map(|d| &d.key).collect();
    let strange =
        |key: &FileKey| newer.contains(key) && state.equality_ids.get(key).is_some_and(|ids| ids.iter().any(|id| !columns.keep(*id)));
    let inputs: HashSet<&str> = plan.inputs.iter().map(|f| f.path.as_ref()).collect();
    let hit = state.files.iter().filter(|f| inputs.contains(f.path.as_ref()) && f.deletes.iter().any(strange));
    let files: Vec<String> = hit.map(|f| f.path.to_string()).take(CONFLICT_SAMPLE).collect();
    (!files.is_empty()).then_some(Conflict::DeletesChanged { files })
}

fn count_rows(plan: &Plan, written: &Written, files: &[DataFile]) -> Result<()> {
    let rows_out = files.iter().try_fold(0u64, |sum, f| sum.checked_add(f.record_count()));
    let expected = written.rows_in.checked_sub(written.rows_deleted);
    if plan.input_records() != written.rows_in || rows_out.is_none() || rows_out != expected {
        return Err(Error::Proof(format!(
            "{} rows planned, {} read, {} deleted, {rows_out:?} written",
            plan.input_records(),
            written.rows_in,
            written.rows_deleted
        )));
    }
    Ok(())
}

/// Every field is named: the crate's builder would give a forgotten one its default.
fn entry(file: &DataFile, spec_id: i32, partition: Struct) -> Result<DataFile> {
    DataFileBuilder::default()
        .content(file.content_type())
        .file_path(file.file_path().to_owned())
        .file_format(file.file_format())
        .partition(partition)
        .partition_spec_id(spec_id)
        .record_count(file.record_count())
        .file_size_in_bytes(file.file_size_in_bytes())
        .column_sizes(file.column_sizes().clone())
        .value_counts(file.value_counts().clone())
        .null_value_counts(file.null_value_counts().clone())
        .nan_value_counts(file.nan_value_counts().clone())
        .lower_bounds(file.lower_bounds().clone())
        .upper_bounds(file.upper_bounds().clone())
        .split_offsets(file.split_offsets().map(<[i64]>::to_vec))
        .build()
        .map_err(|e| Error::damaged(file.file_path(), e))
}
