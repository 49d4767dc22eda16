//! Manifest entries of files that a plan names, found by path.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use futures::stream::{self, StreamExt, TryStreamExt};
use iceberg::spec::{DataFile, ManifestContentType, ManifestEntry, ManifestFile};

use super::file::Store;
use crate::lake::iceberg::manifest;
use crate::lake::iceberg::scope::{concerns, head};
use crate::lake::iceberg::spread::aside;
use crate::lake::iceberg::table::IcebergTable;
use crate::lake::{Error, Result};
use crate::model::plan::Plan;
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

/// Manifests read at one time.
const AT_ONCE: usize = 4;

/// Finds the entries of `paths` in a snapshot. Paths are compared as the
/// metadata spells them.
///
/// Errs `NotFound`, `Unreachable`, or refused `Damaged` when a path is in no
/// live entry or a manifest cannot be read.
pub async fn find(table: &IcebergTable, store: &Store, snapshot_id: i64, kind: Kind, paths: &BTreeSet<&str>) -> Result<Entries> {
    let wanted = |manifest: &ManifestFile| match kind {
        Kind::Data { spec_id } => manifest.content == ManifestContentType::Data && manifest.partition_spec_id == spec_id,
        Kind::Deletes => manifest.content == ManifestContentType::Deletes,
    };
    search(table, store, snapshot_id, paths, wanted).await
}

/// As [`find`], of a plan's inputs: manifests that by their partition summaries
/// hold nothing of the plan's partition are not read.
///
/// Errs as [`find`].
pub async fn inputs(table: &IcebergTable, store: &Store, plan: &Plan) -> Result<Entries> {
    let paths = plan.inputs.iter().map(|f| &*f.path).collect();
    let scope = std::slice::from_ref(&plan.scope);
    let wanted = |manifest: &ManifestFile| manifest.content == ManifestContentType::Data && concerns(table, manifest, scope);
    search(table, store, plan.snapshot_id, &paths, wanted).await
}

async fn search(
    table: &IcebergTable,
    store: &Store,
    snapshot_id: i64,
    paths: &BTreeSet<&str>,
    wanted: impl Fn(&ManifestFile) -> bool,
) -> Result<Entries> {
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
    let manifests = head::parsed(&bytes, metadata.format_version()).map_err(|e| Error::damaged(list, e))?;
    let named: Arc<HashSet<String>> = Arc::new(paths.iter().map(|path| (*path).to_owned()).collect());
    let mut reads = Vec::new();
    for manifest in manifests.entries().iter().filter(|manifest| wanted(manifest)) {
        reads.push(live(store, &manifest.manifest_path, &named));
    }
    let mut reads = stream::iter(reads).buffered(AT_ONCE);
    while let Some(files) = reads.try_next().await? {
        found.extend(files.into_iter().map(|file| (file.file_path().to_owned(), file)));
        if found.len() == paths.len() {
            return Ok(found);
        }
    }
    let lost = paths.iter().find(|p| !found.contains_key(**p)).copied().unwrap_or_default();
    Err(Error::damaged(lost, format_args!("no live manifest entry in snapshot {snapshot_id}")))
}

/// The live files of a manifest that are named, parsed beside whatever else is done.
async fn live(store: &Store, path: &str, named: &Arc<HashSet<String>>) -> Result<Vec<DataFile>> {
    let bytes = store.whole(path).await?;
    let named = Arc::clone(named);
    let parsed = aside(move || manifest::parse(&bytes, |path| named.contains(path)));
    let parsed = parsed.await.map_err(|stopped| Error::Stopped(format!("{path} was not parsed: {stopped}")))?;
    let (_, entries) = parsed.map_err(|e| Error::damaged(path, e))?;
    Ok(entries.into_iter().filter(ManifestEntry::is_alive).map(|entry| entry.data_file).collect())
}
