//! The exact live files of a partition, and which deletes apply to each.

mod entry;
pub mod head;
pub mod named;
mod prune;
pub mod rules;
mod stray;
pub mod targets;
pub mod tuple;

use std::collections::{BTreeMap, HashMap, HashSet};

use futures::{StreamExt, TryStreamExt, stream};
use iceberg::spec::{ManifestContentType, ManifestFile};

use self::entry::{allowed, known_targets, live_delete, live_file, readable, refuse_doubles, refuse_second_vectors, refuse_unreadable};
use self::head::Head;
use self::named::Names;
use self::rules::{Reaching, Targets};
use super::lineage;
use super::manifest::{self, ScanEntry};
use super::table::IcebergTable;
use crate::lake::{Error, Result};
use crate::model::file::{Content, EntryStatus, FileKey};
use crate::model::partition::{PartitionKey, Tuple};
use crate::model::plan::{LiveFile, ScopeFiles};

/// Manifests and delete files read at one time.
const PARALLEL_READS: usize = 8;

/// The live data files of one partition at the head of the table's branch, each
/// with the deletes that apply to it. See [`read_many`].
///
/// # Errors
/// As [`read_many`].
pub async fn read(table: &IcebergTable, scope: &PartitionKey) -> Result<ScopeFiles> {
    let mut all = read_many(table, std::slice::from_ref(scope)).await?;
    all.pop().ok_or_else(|| Error::damaged(&table.loaded.metadata_location, "no scope was read"))
}

/// Several partitions, their manifests read once; in the order asked for.
///
/// A delete applies by the format's scope rules:
/// * equality delete: its data sequence number is strictly greater than the
///   file's, and it is of the same spec and tuple, or its spec is unpartitioned
///   (only void fields counts), which reaches every partition of every spec;
/// * position delete or deletion vector: equal or greater, same spec and tuple, and
///   it names the path, as the data file's entry spells it; a vector takes the place
///   of every position delete of its file.
///
/// A branch without snapshot has snapshot id −1 and no files.
///
/// # Errors
/// Refusals, each naming the file: `file-format` (a live file of the partition,
/// or a delete that reaches it, is not Parquet), `encrypted`, `deletion-vector`
/// (in a table whose format has none), `damaged` (a data file that is live twice, or
/// to which two vectors apply), `stray-delete` (a position delete or vector
/// names a file of the partition in another spelling, or from another spec or
/// tuple), and those of a position delete of another spec that cannot be read and may
/// name a file of the partition. Store errors.
pub async fn read_many(table: &IcebergTable, scopes: &[PartitionKey]) -> Result<Vec<ScopeFiles>> {
    let Some(head) = head::read(table).await? else {
        return Ok(scopes.iter().map(|scope| nothing(scope.clone())).collect());
    };
    let states = read_states(table, &head, scopes).await?;
    Ok(states.into_iter().map(|state| state.scope_files(&head)).collect())
}

/// The state of a partition as a commit needs it: with deletes that reach the
/// partition and apply to none of its files.
pub struct State {
    /// The partition.
    pub scope: PartitionKey,
    /// Live data files, ascending by path.
    pub files: Vec<LiveFile>,
    /// Live deletes that reach the partition.
    pub reaching: Vec<Reaching>,
    /// For each file and delete, the place in the head's list of its manifest.
    pub homes: HashMap<FileKey, usize>,
    /// The field ids by which each equality delete deletes.
    pub equality_ids: HashMap<FileKey, Vec<i32>>,
}

impl State {
    /// The part that plans are made of.
    pub fn scope_files(&self, head: &Head) -> ScopeFiles {
        let applying: HashSet<&FileKey> = self.files.iter().flat_map(|f| &f.deletes).collect();
        let deletes =
            self.reaching.iter().filter(|r| applying.contains(&r.delete.key)).map(|r| (r.delete.key.clone(), r.delete.clone())).collect();
        ScopeFiles {
            snapshot_id: head.snapshot.snapshot_id(),
            sequence_number: head.snapshot.sequence_number(),
            scope: self.scope.clone(),
            files: self.files.clone(),
            deletes,
        }
    }
}

/// The state of one partition at a head that was read already.
///
/// # Errors
/// As [`read_many`].
pub async fn read_state(table: &IcebergTable, head: &Head, scope: &PartitionKey) -> Result<State> {
    let mut all = read_states(table, head, std::slice::from_ref(scope)).await?;
    all.pop().ok_or_else(|| Error::damaged(&table.loaded.metadata_location, "no scope was read"))
}

/// As [`read_many`], at a head that was read already.
///
/// # Errors
/// As [`read_many`].
pub async fn read_states(table: &IcebergTable, head: &Head, scopes: &[PartitionKey]) -> Result<Vec<State>> {
    for scope in scopes {
        head::writable(&table.loaded.metadata, scope.spec_id)?;
    }
    let places = places(scopes);
    let places = &places;
    let mut scans = Vec::new();
    for (home, m) in head.manifests.iter().enumerate().filter(|(_, m)| concerns(table, m, scopes)) {
        scans.push(async move {
            let mut entries = manifest::scan(table, &head::reference(m)).await?;
            lineage::inherit(&mut entries, m.first_row_id);
            Ok::<_, Error>(find(table, home, entries, places))
        });
    }
    let scanned: Vec<Found> = stream::iter(scans).buffered(PARALLEL_READS).try_collect().await?;
    let mut parts: Vec<Part> = scopes.iter().map(|_| Part::default()).collect();
    let (mut global, mut strays) = (Vec::new(), stray::Strays::default());
    for found in scanned {
        found.positions.iter().for_each(|entry| strays.enter(entry));
        global.extend(found.global.into_iter().map(|e| (found.home, e)));
        for (at, entry) in found.of_scope {
            let Some(part) = parts.get_mut(at) else { continue };
            let side = if entry.entry.content == Content::Data { &mut part.data } else { &mut part.deletes };
            side.push((found.home, entry));
        }
    }
    let names = Names::of(table);
    let mut states = Vec::with_capacity(scopes.len());
    for (scope, part) in scopes.iter().zip(parts) {
        let state = part.join(scope, &global, &names, lineage::is_kept(&table.loaded.metadata)).await?;
        strays.refuse(scope, &state.files, &state.reaching)?;
        states.push(state);
    }
    strays.refuse_unread(&states, &names).await?;
    Ok(states)
}

/// Whether a manifest may hold a data file of the scopes, or a delete: global and
/// stray ones lie in any partition.
pub fn concerns(table: &IcebergTable, manifest: &ManifestFile, scopes: &[PartitionKey]) -> bool {
    if head::is_empty(manifest) {
        return false;
    }
    let metadata = &table.loaded.metadata;
    let spec_id = manifest.partition_spec_id;
    if manifest.content == ManifestContentType::Deletes {
        return true;
    }
    let mut of_spec = scopes.iter().filter(|s| is_of_spec(s, spec_id)).peekable();
    if of_spec.peek().is_none() {
        return false;
    }
    let fields = head::partition_type(metadata, spec_id);
    of_spec.any(|s| prune::may_hold(manifest.partitions.as_deref(), fields.as_ref(), &s.tuple))
}

/// Tuples of two specs never mean the same partition, alike as they may look.
fn is_of_spec(scope: &PartitionKey, spec_id: i32) -> bool {
    scope.spec_id == spec_id
}

/// What one manifest holds of the scopes.
struct Found {
    home: usize,
    of_scope: Vec<(usize, ScanEntry)>,
    global: Vec<ScanEntry>,
    /// Position deletes of all partitions.
    positions: Vec<ScanEntry>,
}

/// Where each scope was asked for, by its tuple; one asked for twice is answered twice.
type Places<'a> = HashMap<&'a Tuple, Vec<(usize, &'a PartitionKey)>>;

fn places(scopes: &[PartitionKey]) -> Places<'_> {
    let mut places = Places::new();
    scopes.iter().enumerate().for_each(|(i, scope)| places.entry(&scope.tuple).or_default().push((i, scope)));
    places
}

fn find(table: &IcebergTable, home: usize, entries: Vec<ScanEntry>, places: &Places<'_>) -> Found {
    let mut found = Found { home, of_scope: Vec::new(), global: Vec::new(), positions: Vec::new() };
    for entry in entries {
        if entry.entry.status == EntryStatus::Deleted {
            continue;
        }
        if matches!(entry.entry.content, Content::PositionDeletes | Content::DeletionVector) {
            found.positions.push(entry.clone());
        }
        let spec_id = entry.entry.partition.spec_id;
        if entry.entry.content == Content::EqualityDeletes && head::is_unpartitioned(&table.loaded.metadata, spec_id) {
            found.global.push(entry);
        } else if let Some(at) = places.get(&entry.entry.partition.tuple) {
            let of_spec = at.iter().filter(|(_, scope)| is_of_spec(scope, spec_id));
            found.of_scope.extend(of_spec.map(|(at, _)| (*at, entry.clone())));
        }
    }
    found
}

/// The entries of one scope, each with the place of its manifest.
#[derive(Default)]
struct Part {
    data: Vec<(usize, ScanEntry)>,
    deletes: Vec<(usize, ScanEntry)>,
}

impl Part {
    /// `vectors`: whether the table's format has deletion vectors.
    async fn join(self, scope: &PartitionKey, global: &[(usize, ScanEntry)], names: &Names<'_>, vectors: bool) -> Result<State> {
        let mut files = Vec::with_capacity(self.data.len());
        let (mut homes, mut equality_ids) = (HashMap::new(), HashMap::new());
        for (home, entry) in &self.data {
            readable(entry)?;
            files.push(live_file(entry));
            homes.insert(entry.entry.key.clone(), *home);
        }
        files.sort_by(|a, b| a.path.cmp(&b.path));
        refuse_doubles(&files, scope)?;
        let lowest = files.iter().map(|f| f.data_sequence).min();
        let mut reaching = Vec::with_capacity(self.deletes.len() + global.len());
        let own = self.deletes.iter().map(|e| (e, false));
        for ((home, entry), global) in own.chain(global.iter().map(|e| (e, true))) {
            if entry.entry.content == Content::DeletionVector {
                readable(entry)?;
                allowed(entry, vectors)?;
            }
            let mut targets = known_targets(entry);
            // One that is older than every file applies to none: not worth a read.
            if targets == Targets::Unread && lowest.is_some_and(|l| l <= entry.sequence_number) {
                readable(entry)?;
                targets = Targets::Named(names.read(&entry.entry.key.path).await?);
            }
            reaching.push(Reaching { delete: live_delete(entry), global, targets });
            homes.insert(entry.entry.key.clone(), *home);
            if entry.entry.content == Content::EqualityDeletes {
                equality_ids.insert(entry.entry.key.clone(), entry.equality_ids.clone());
            }
        }
        rules::join(&mut files, &reaching);
        refuse_second_vectors(&files, &reaching)?;
        refuse_unreadable(self.deletes.iter().chain(global).map(|(_, e)| e), &files)?;
        Ok(State { scope: scope.clone(), files, reaching, homes, equality_ids })
    }
}

fn nothing(scope: PartitionKey) -> ScopeFiles {
    ScopeFiles { snapshot_id: -1, sequence_number: 0, scope, files: Vec::new(), deletes: BTreeMap::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_asked_for_twice_is_answered_twice() {
        let scopes = [PartitionKey::unpartitioned(0), PartitionKey::unpartitioned(1), PartitionKey::unpartitioned(0)];
        let places = places(&scopes);
        let of = |scope: &PartitionKey| {
            let at = places[&scope.tuple].iter().filter(|(_, at)| is_of_spec(at, scope.spec_id));
            at.map(|(at, _)| *at).collect::<Vec<_>>()
        };
        assert_eq!((of(&scopes[0]), of(&scopes[1])), (vec![0, 2], vec![1]));
    }
}
