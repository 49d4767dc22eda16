//! Delete files that cover nothing once the inputs are replaced.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use futures::{StreamExt, TryStreamExt, stream};
use iceberg::spec::{ManifestContentType, ManifestFile};

use crate::lake::iceberg::manifest::{self, ScanEntry};
use crate::lake::iceberg::scope::head::{self, Head};
use crate::lake::iceberg::scope::rules::{Reaching, Targets};
use crate::lake::iceberg::scope::{State, targets};
use crate::lake::iceberg::store::Store;
use crate::lake::iceberg::table::IcebergTable;
use crate::lake::{Error, Result};
use crate::model::file::{Content, EntryStatus};
use crate::model::location::Location;
use crate::model::plan::{LiveDelete, Plan};
use crate::model::refusal::Refusal;

/// Manifests read at one time.
const PARALLEL_READS: usize = 8;

/// The deletes that may go in a commit because of `one` partition's part of it; `all` are
/// the parts, this one among them.
///
/// A delete goes only when it is proven, from the base's state, that no data
/// file that will be live is covered by it:
/// * one of a partition: no remaining file of that partition, nor an output,
///   by the scope rules;
/// * a position delete or vector: the data files that it names are inputs or, where they are of
///   no partition that is known here, live nowhere in the table: some engines join
///   position deletes by the path alone;
/// * a global one: no older data file in any partition of any spec, outputs of the commit included.
///
/// So a delete newer than the planned snapshot stays: outputs carry an older
/// sequence number and it reaches them.
///
/// # Errors
/// As reading manifests does.
pub async fn find(table: &IcebergTable, head: &Head, state: &State, one: &Replaced<'_>, all: &[Replaced<'_>]) -> Result<Vec<LiveDelete>> {
    let staying = Staying::of(state, one.plan, one.outputs);
    let (mut dangling, mut astray) = (Vec::new(), Vec::new());
    for reaching in staying.uncovered(&state.reaching) {
        let delete = &reaching.delete;
        match delete.content {
            Content::EqualityDeletes if reaching.global => {
                if !reaches_any(table, head, delete, all).await? {
                    dangling.push(delete.clone());
                }
            }
            Content::PositionDeletes | Content::DeletionVector => {
                // one that cannot be read stays
                let Some(mut named) = named_by(table, reaching).await? else { continue };
                named.retain(|target| !staying.inputs.contains(target));
                match named.is_empty() {
                    true => dangling.push(delete.clone()),
                    false => astray.push((named, delete)),
                }
            }
            _ => dangling.push(delete.clone()),
        }
    }
    let live = live_among(table, head, astray.iter().flat_map(|(named, _)| named).collect()).await?;
    let gone =
        astray.iter().filter(|(named, delete)| named.iter().all(|target| live.get(target).is_none_or(|file| *file > delete.data_sequence)));
    dangling.extend(gone.map(|(_, delete)| (*delete).clone()));
    Ok(dangling)
}

/// One partition's part of a commit.
#[derive(Clone, Copy)]
pub struct Replaced<'a> {
    /// Its inputs go, and its outputs have its sequence number.
    pub plan: &'a Plan,
    /// Whether there are outputs.
    pub outputs: bool,
}

/// The data files of the partition after the commit, as far as deletes tell them
/// apart.
struct Staying {
    /// Lowest data sequence number, outputs included.
    lowest: Option<i64>,
    /// Files of the base that stay. Outputs have new paths: no position delete
    /// names them.
    by_path: HashMap<Location, i64>,
    /// Files that go.
    inputs: HashSet<Location>,
}

impl Staying {
    fn of(state: &State, plan: &Plan, outputs: bool) -> Self {
        let inputs: HashSet<Location> = plan.inputs.iter().map(|f| Location::parse(&f.path)).collect();
        let files = state.files.iter().map(|f| (Location::parse(&f.path), f.data_sequence));
        let by_path: HashMap<_, _> = files.filter(|(path, _)| !inputs.contains(path)).collect();
        let lowest = by_path.values().copied().chain(outputs.then_some(plan.sequence_number)).min();
        Self { lowest, by_path, inputs }
    }

    fn covered_by(&self, reaching: &Reaching) -> bool {
        let sequence = reaching.delete.data_sequence;
        match &reaching.targets {
            Targets::Older => self.lowest.is_some_and(|l| l < sequence),
            Targets::Named(paths) => paths.iter().any(|p| self.by_path.get(&Location::parse(p)).is_some_and(|file| *file <= sequence)),
            Targets::Unread => self.lowest.is_some_and(|l| l <= sequence),
        }
    }

    /// The deletes that cover nothing of the partition.
    fn uncovered<'a>(&self, reaching: &'a [Reaching]) -> impl Iterator<Item = &'a Reaching> {
        reaching.iter().filter(|r| !self.covered_by(r))
    }
}

/// The data files that a position delete names; `None` when it cannot be read.
async fn named_by(table: &IcebergTable, reaching: &Reaching) -> Result<Option<HashSet<Location>>> {
    let locations = |paths: &BTreeSet<Arc<str>>| paths.iter().map(|path| Location::parse(path)).collect();
    let read = match &reaching.targets {
        Targets::Named(paths) => return Ok(Some(locations(paths))),
        Targets::Older => return Ok(Some(HashSet::new())),
        Targets::Unread => targets::read(&Store::new(&table.loaded.io), &reaching.delete.key.path).await,
    };
    match read {
        Ok(paths) => Ok(Some(locations(&paths))),
        Err(Error::NotFound { .. }) => Ok(None),
        Err(Error::Refused(refused)) if refused.refusal == Refusal::Damaged => Ok(None),
        Err(error) => Err(error),
    }
}

/// Those of the paths that are live data files of the table, whatever their
/// partition, with their data sequence numbers.
async fn live_among(table: &IcebergTable, head: &Head, wanted: HashSet<&Location>) -> Result<HashMap<Location, i64>> {
    let mut found = HashMap::new();
    if wanted.is_empty() {
        return Ok(found);
    }
    let mut reads = Vec::new();
    for manifest in data_manifests(head) {
        reads.push(live_entries(table, manifest));
    }
    let mut reads = stream::iter(reads).buffered(PARALLEL_READS);
    while let Some(entries) = reads.try_next().await? {
        for entry in entries {
            let path = Location::parse(&entry.entry.key.path);
            if wanted.contains(&path) {
                found.insert(path, entry.sequence_number);
            }
        }
    }
    Ok(found)
}

fn data_manifests(head: &Head) -> impl Iterator<Item = &ManifestFile> {
    head.manifests.iter().filter(|m| m.content == ManifestContentType::Data && !head::is_empty(m))
}

async fn live_entries(table: &IcebergTable, manifest: &ManifestFile) -> Result<Vec<ScanEntry>> {
    let mut entries = manifest::scan(table, &head::reference(manifest)).await?;
    entries.retain(|e| e.entry.status != EntryStatus::Deleted);
    Ok(entries)
}

/// Whether a global delete covers a data file anywhere after the commit: an output, or a
/// file that is no input. The list's lowest sequence numbers only say where to look first:
/// that there is no older file is proven from the entries.
async fn reaches_any(table: &IcebergTable, head: &Head, delete: &LiveDelete, all: &[Replaced<'_>]) -> Result<bool> {
    if all.iter().any(|part| part.outputs && part.plan.sequence_number < delete.data_sequence) {
        return Ok(true);
    }
    let replaced: HashSet<&str> = all.iter().flat_map(|part| &part.plan.inputs).map(|f| f.path.as_ref()).collect();
    let mut data: Vec<_> = data_manifests(head).collect();
    data.sort_by_key(|m| m.min_sequence_number);
    for manifest in data {
        let mut live = live_entries(table, manifest).await?.into_iter();
        if live.any(|e| e.sequence_number < delete.data_sequence && !replaced.contains(e.entry.key.path.as_ref())) {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::file::FileKey;

    fn staying(files: &[(&str, i64)], output: Option<i64>) -> Staying {
        let by_path: HashMap<_, _> = files.iter().map(|(p, s)| (Location::parse(p), *s)).collect();
        Staying { lowest: by_path.values().copied().chain(output).min(), by_path, inputs: HashSet::new() }
    }

    fn delete(data_sequence: i64, global: bool, targets: Targets) -> Reaching {
        let content = if targets == Targets::Older { Content::EqualityDeletes } else { Content::PositionDeletes };
        let key = FileKey { path: "d".into(), offset: None };
        Reaching { delete: LiveDelete { key, content, bytes: 1, records: 1, data_sequence }, global, targets }
    }

    fn named(paths: &[&str]) -> Targets {
        Targets::Named(Arc::new(paths.iter().map(|p| Arc::from(*p)).collect()))
    }

    #[test]
    fn an_equality_delete_newer_than_the_outputs_stays() {
        let after = staying(&[], Some(3));
        let covered = [3, 4].map(|sequence| after.covered_by(&delete(sequence, false, Targets::Older)));
        assert_eq!(covered, [false, true]);
    }

    #[test]
    fn a_position_delete_goes_only_when_no_file_that_it_names_stays() {
        let after = staying(&[("f2", 2)], Some(3));
        let covered = [&["f1"][..], &["f1", "f2"]].map(|paths| after.covered_by(&delete(3, false, named(paths))));
        assert_eq!(covered, [false, true]);
        assert!(!after.covered_by(&delete(1, false, named(&["f2"]))));
    }

    #[test]
    fn an_unread_delete_stays_while_any_older_file_does() {
        assert!(staying(&[("f", 2)], None).covered_by(&delete(2, false, Targets::Unread)));
        assert!(!staying(&[("f", 3)], None).covered_by(&delete(2, false, Targets::Unread)));
        assert!(!staying(&[], None).covered_by(&delete(2, false, Targets::Unread)));
    }
}
