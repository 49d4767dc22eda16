//! Manifest lists.

use std::sync::Arc;

use serde::Deserialize;

use super::avro::{Blob, Container};
use crate::lake::{Error, Result};
use crate::model::file::ManifestRef;
use crate::model::refusal::{Refusal, Refused};

/// One record of a manifest list, by canonical names.
#[derive(Deserialize)]
struct Row {
    manifest_path: String,
    manifest_length: i64,
    partition_spec_id: i32,
    #[serde(default)]
    content: i32,
    #[serde(default)]
    sequence_number: i64,
    added_snapshot_id: Option<i64>,
    #[serde(alias = "added_files_count", alias = "added_data_files_count")]
    added_files: Option<i64>,
    #[serde(alias = "existing_files_count", alias = "existing_data_files_count")]
    existing_files: Option<i64>,
    #[serde(alias = "added_rows_count")]
    added_rows: Option<i64>,
    #[serde(alias = "existing_rows_count")]
    existing_rows: Option<i64>,
    key_metadata: Option<Blob>,
}

/// The canonical name of a manifest-list field id.
fn name(id: i64) -> Option<&'static str> {
    Some(match id {
        500 => "manifest_path",
        501 => "manifest_length",
        502 => "partition_spec_id",
        503 => "added_snapshot_id",
        504 => "added_files",
        505 => "existing_files",
        512 => "added_rows",
        513 => "existing_rows",
        515 => "sequence_number",
        517 => "content",
        519 => "key_metadata",
        _ => return None,
    })
}

/// Reads a manifest list. `path` names it in errors; `snapshot_id` is whose list
/// it is, and stands in for a row's added snapshot where v1 leaves it out.
///
/// # Errors
/// A `damaged` refusal that names the list; an `encrypted` one when a manifest
/// carries key metadata.
pub fn read(bytes: &[u8], path: &str, snapshot_id: i64) -> Result<Vec<ManifestRef>> {
    let container = Container::open(bytes, name).map_err(|e| Error::damaged(path, e))?;
    let rows: Vec<Row> = container.records().map_err(|e| Error::damaged(path, e))?;
    rows.into_iter().map(|row| row.into_ref(path, snapshot_id)).collect()
}

impl Row {
    fn into_ref(mut self, list: &str, snapshot_id: i64) -> Result<ManifestRef> {
        if self.key_metadata.take().is_some_and(|k| !k.0.is_empty()) {
            let detail = format!("{list}: manifest {} carries key metadata", self.manifest_path);
            return Err(Refused::new(Refusal::Encrypted, detail).into());
        }
        let path = self.manifest_path.as_str();
        let count = |what: &str, value: Option<i64>| match value.map(u64::try_from) {
            None => Ok(None),
            Some(Ok(value)) => Ok(Some(value)),
            Some(Err(_)) => Err(Error::damaged(list, format!("manifest {path}: {what} is negative"))),
        };
        let live = |what: &str, a: Option<i64>, b: Option<i64>| -> Result<Option<u64>> {
            Ok(count(what, a)?.zip(count(what, b)?).and_then(|(a, b)| a.checked_add(b)))
        };
        let deletes = match self.content {
            0 => false,
            1 => true,
            other => return Err(Error::damaged(list, format!("manifest {path}: content {other} is neither data nor deletes"))),
        };
        Ok(ManifestRef {
            bytes: count("manifest_length", Some(self.manifest_length))?.unwrap_or(0),
            spec_id: self.partition_spec_id,
            deletes,
            added_snapshot_id: self.added_snapshot_id.unwrap_or(snapshot_id),
            sequence_number: self.sequence_number,
            live_files: live("a file count", self.added_files, self.existing_files)?,
            live_records: live("a row count", self.added_rows, self.existing_rows)?,
            path: Arc::from(self.manifest_path),
        })
    }
}
