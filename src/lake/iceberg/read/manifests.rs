//! Manifest entries of files that a plan names, found by path.

use std::collections::{BTreeSet, HashMap};

use iceberg::spec::{DataFile, Manifest, ManifestContentType, ManifestList};

use super::file::Store;
use crate::lake::iceberg::table::IcebergTable;
use crate::lake::{Error, Result};
use crate::model::refusal::{Refusal, Refused};

/// Which entries are looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Data files, of one partition spec.
    Data {
        /// The spec.
        spec_id: i32,
    },
    /// Delete files of any spec.
    Deletes,
}

/// Manifest entries of live files, by path.
pub type Entries = HashMap<String, DataFile>;

/// Finds the entries of `paths` in a snapshot. Paths are compared as the
/// metadata spells them.
///
/// Errs `NotFound`, `Unreachable`, or refused `Damaged` when a path is in no
/// live entry or a manifest cannot be read.
pub async fn find(table: &IcebergTable, store: &Store, snapshot_id: i64, kind: Kind, paths: &BTreeSet<&str>) -> Result<Entries> {
    let metadata = &table.loaded.metadata;
    let mut found = Entries::new();
    if paths.is_empty() {
        return Ok(found);
    }
    let snapshot = metadata
        .snapshot_by_id(snapshot_id)
        .ok_or_else(|| Refused::new(Refusal::Damaged, format!("{}: snapshot {snapshot_id} is not in the metadata", table.view.name)))?;
    let list = snapshot.manifest_list();
    let bytes = store.whole(list).await?;
    let manifests = ManifestList::parse_with_version(&bytes, metadata.format_version()).map_err(|e| Error::damaged(list, e))?;
    for manifest in manifests.entries() {
        let wanted = match kind {
            Kind::Data { spec_id } => manifest.content == ManifestContentType::Data && manifest.partition_spec_id == spec_id,
            Kind::Deletes => manifest.content == ManifestContentType::Deletes,
        };
        if !wanted {
            continue;
        }
        let bytes = store.whole(&manifest.manifest_path).await?;
        let parsed = Manifest::parse_avro(&bytes).map_err(|e| Error::damaged(&manifest.manifest_path, e))?;
        for entry in parsed.entries() {
            if entry.is_alive() && paths.contains(entry.file_path()) {
                found.insert(entry.file_path().to_owned(), entry.data_file().clone());
            }
        }
        if found.len() == paths.len() {
            return Ok(found);
        }
    }
    let lost = paths.iter().find(|p| !found.contains_key(**p)).copied().unwrap_or_default();
    Err(Error::damaged(lost, format_args!("no live manifest entry in snapshot {snapshot_id}")))
}
