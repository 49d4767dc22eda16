//! What became of a commit whose traces the present metadata does not hold any more:
//! by the metadata that followed on its base.

use std::collections::HashSet;
use std::sync::Arc;

use iceberg::spec::{MetadataLog, TableMetadata};

use super::resolve::{CLOCK_TOLERANCE_MS, find_attempt, parentless, snapshot_of};
use crate::lake::asserted::Asserted;
use crate::lake::iceberg::catalog::metadata_file;
use crate::lake::iceberg::store::Store;
use crate::lake::iceberg::table::IcebergTable;
use crate::lake::{Error, Result};
use crate::model::outcome::Resolution;
use crate::model::plan::AttemptId;

/// Metadata files read for one answer.
const MOST_FILES: usize = 256;

/// As [`find_attempt`]; what that leaves open is looked for in the table's earlier
/// metadata files, as far as they are still there.
///
/// A table's metadata says which one it followed on, so the log leads from the present
/// metadata back to the one that took the place of the asserted base. That one is the
/// attempt's, and then it has landed, whatever has expired since. Or it is another's:
/// then the attempt has not landed, and cannot any more, since it may only follow on
/// its base and that place is taken. A log that does not lead back there, as after a
/// restored catalog, proves nothing.
///
/// Only for catalogs that swap pointers: others do not promise that a log is kept.
///
/// # Errors
/// Those of the store, but for a file that is gone: that leaves it open.
pub async fn trace_attempt(table: &IcebergTable, attempt: &AttemptId, asserted: &str) -> Result<Resolution> {
    let found = find_attempt(table, attempt, asserted);
    let base = Asserted::parse(asserted);
    let moved = table.loaded.metadata_location != base.metadata_location;
    if !matches!(found, Resolution::Open { .. }) || base.head.is_some() || !table.catalog.asserts_pointer() || !moved {
        return Ok(found);
    }
    Ok(lead_back(table, attempt, &base.metadata_location).await?.unwrap_or(found))
}

/// Follows the log; `None` when it does not lead to an answer.
async fn lead_back(table: &IcebergTable, attempt: &AttemptId, base: &str) -> Result<Option<Resolution>> {
    let mut metadata = Arc::clone(&table.loaded.metadata);
    let mut read = HashSet::new();
    while read.len() < MOST_FILES {
        if let Some(ours) = snapshot_of(&metadata, attempt) {
            return Ok(Some(Resolution::Landed { snapshot_id: ours.snapshot_id() }));
        }
        let log = metadata.metadata_log();
        let at = log.iter().position(|entry| entry.metadata_file == base);
        if at.is_some_and(|at| at.saturating_add(1) == log.len()) {
            return Ok(proves_absence(table, &metadata, base).await?.then_some(Resolution::NotLanded));
        }
        let Some(next) = log.get(at.map_or(0, |at| at.saturating_add(1))) else { return Ok(None) };
        if !read.insert(next.metadata_file.clone()) {
            return Ok(None);
        }
        match earlier(table, &next.metadata_file).await? {
            Some(found) => metadata = Arc::new(found),
            None => return Ok(None),
        }
    }
    Ok(None)
}

/// Whether the metadata that followed on the base, and does not hold the attempt, did
/// follow on it alone: a writer that keeps its log carelessly may have left the
/// attempt's metadata out, and then what it lists may descend from the attempt.
async fn proves_absence(table: &IcebergTable, next: &TableMetadata, base: &str) -> Result<bool> {
    let Some(MetadataLog { timestamp_ms, .. }) = next.metadata_log().last() else { return Ok(false) };
    let known = earlier(table, base).await?;
    let older = |id: i64, time: i64| match &known {
        Some(known) => known.snapshot_by_id(id).is_some(),
        None => time < timestamp_ms.saturating_sub(CLOCK_TOLERANCE_MS),
    };
    Ok(parentless(next, |s| older(s.snapshot_id(), s.timestamp_ms())).is_none())
}

/// An earlier metadata file of the table; `None` when it is gone, or another table's.
async fn earlier(table: &IcebergTable, location: &str) -> Result<Option<TableMetadata>> {
    let bytes = match Store::new(&table.loaded.io).read(location).await {
        Ok(bytes) => bytes,
        Err(Error::NotFound { .. }) => return Ok(None),
        Err(error) => return Err(error),
    };
    let metadata = metadata_file::decode(&bytes, location)?;
    Ok((metadata.uuid() == table.loaded.metadata.uuid()).then_some(metadata))
}
