//! Removing the files of an attempt that is proven not to have landed.

use std::collections::HashSet;

use iceberg::spec::TableMetadata;

use super::resolve;
use crate::lake::iceberg::catalog::Loaded;
use crate::lake::iceberg::manifest;
use crate::lake::iceberg::scope::head;
use crate::lake::iceberg::store::Store;
use crate::lake::iceberg::table::IcebergTable;
use crate::lake::{Error, NotLanded, Result};
use crate::model::file::EntryStatus;
use crate::model::location::Location;
use crate::model::plan::ATTEMPT_KEY;

/// Removes files of an attempt. Missing ones are no error.
///
/// Invariants checked, all before the first file is removed:
/// * a proof that the attempt has not landed is at hand;
/// * on a fresh load the table is there, is the same one, and no snapshot carries
///   the attempt's id;
/// * no path is one that the fresh metadata uses: its own, its logs', a manifest
///   list's, a statistics file's, or a manifest of the branch's head;
/// * where some snapshot has lost its parent, which may have been the attempt's,
///   no path is a live file of the branch's head;
/// * every path lies below the table's location, or below the data or metadata
///   folder that the table's properties name, and is not that folder.
///
/// Crash: some files are gone and some are not; the same call ends the work.
///
/// # Errors
/// [`Error::Setup`] naming the path or the snapshot that forbids it; store errors.
pub async fn remove_outputs(table: &IcebergTable, proof: &NotLanded, paths: &[String]) -> Result<()> {
    let name = &table.loaded.name;
    let fresh = table.again().await?;
    let Some(fresh) = fresh.filter(|f| f.metadata.uuid() == table.loaded.metadata.uuid()) else {
        return Err(Error::Setup(format!("{name} is another table now, or gone: its files are left")));
    };
    let forbid = |why: String| Err(Error::Setup(format!("nothing of attempt {} is removed: {why}", proof.attempt().0)));
    let attempt = &proof.attempt().0;
    let landed = fresh
        .metadata
        .snapshots()
        .find(|s| s.summary().additional_properties.get(ATTEMPT_KEY).is_some_and(|carried| holds(carried, attempt)));
    if let Some(landed) = landed {
        return forbid(format!("snapshot {} of {name} is its own", landed.snapshot_id()));
    }
    let folders = folders(&fresh.metadata);
    let used = used(table, &fresh).await?;
    for path in paths {
        let location = Location::parse(path);
        if !folders.iter().any(|folder| location.is_under(folder) && location.key.len() > folder.key.len()) || climbs(path) {
            return forbid(format!("{path} is outside {}", fresh.metadata.location()));
        }
        if used.contains(&location) {
            return forbid(format!("{name} uses {path}"));
        }
    }
    if let Some(live) = live(table, &fresh, paths).await? {
        return forbid(format!("{live} is live in {name}"));
    }
    let store = Store::new(&fresh.io);
    for path in paths {
        store.delete(proof, path).await?;
    }
    Ok(())
}

/// Whether a snapshot that carries these ids may hold an attempt's files: its own, or
/// those of any try of a job whose outputs belong to try 0.
fn holds(carried: &str, attempt: &str) -> bool {
    let job = attempt.strip_suffix(".0");
    let of_job = |id: &str| job.is_some_and(|job| id.strip_prefix(job).is_some_and(|rest| rest.starts_with('.')));
    carried.split(' ').any(|id| id == attempt || of_job(id))
}

fn climbs(path: &str) -> bool {
    path.split('/').any(|segment| segment == "..")
}

/// Where the table's writers put files, by its own metadata.
fn folders(metadata: &TableMetadata) -> Vec<Location> {
    let properties = metadata.properties();
    let named = ["write.data.path", "write.metadata.path"].iter().filter_map(|key| properties.get(*key));
    named.map(String::as_str).chain([metadata.location()]).map(trimmed).filter(|l| !l.key.is_empty()).collect()
}

fn trimmed(path: &str) -> Location {
    let mut location = Location::parse(path);
    location.key.truncate(location.key.trim_end_matches('/').len());
    location
}

/// Files that the metadata uses, but for data files: those are in manifests, and a
/// manifest that lists our outputs is a file of ours itself.
async fn used(table: &IcebergTable, fresh: &Loaded) -> Result<HashSet<Location>> {
    let metadata = &fresh.metadata;
    let mut used = HashSet::from([Location::parse(&fresh.metadata_location)]);
    used.extend(metadata.metadata_log().iter().map(|m| Location::parse(&m.metadata_file)));
    used.extend(metadata.statistics_iter().map(|s| Location::parse(&s.statistics_path)));
    used.extend(metadata.partition_statistics_iter().map(|s| Location::parse(&s.statistics_path)));
    used.extend(metadata.snapshots().map(|s| Location::parse(s.manifest_list())));
    let fresh = IcebergTable::new(fresh.clone(), &table.view.reference, table.catalog.clone());
    if let Some(head) = head::read(&fresh).await? {
        used.extend(head.manifests.iter().map(|m| Location::parse(&m.manifest_path)));
    }
    Ok(used)
}

/// A path that is a live file of the branch. Snapshots whose parents are all
/// listed descend from no expired one: without the attempt's id among them none
/// holds a file of it, and no manifest need be read.
async fn live(table: &IcebergTable, fresh: &Loaded, paths: &[String]) -> Result<Option<String>> {
    if resolve::parentless(&fresh.metadata, |_| false).is_none() {
        return Ok(None);
    }
    let fresh = IcebergTable::new(fresh.clone(), &table.view.reference, table.catalog.clone());
    let paths: HashSet<Location> = paths.iter().map(|p| Location::parse(p)).collect();
    for manifest in head::read(&fresh).await?.iter().flat_map(|head| &head.manifests) {
        let entries = manifest::scan(&fresh, &head::reference(manifest)).await?;
        let mut live = entries.into_iter().filter(|e| e.entry.status != EntryStatus::Deleted);
        if let Some(found) = live.find(|e| paths.contains(&Location::parse(&e.entry.key.path))) {
            return Ok(Some(found.entry.key.path.to_string()));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::holds;

    #[test]
    fn a_snapshot_holds_the_files_of_every_attempt_that_made_it_and_of_its_jobs() {
        for id in ["j.3", "j.0", "k.1", "k.0"] {
            assert!(holds("j.3 k.1", id), "{id}");
        }
        for id in ["j.1", "j.30", "l.0", "j", "k.spare"] {
            assert!(!holds("j.3 k.1", id), "{id}");
        }
    }
}
