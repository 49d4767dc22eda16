//! The exact live files of a partition, and which deletes apply to each.

pub mod head;
mod prune;
pub mod rules;
mod stray;
pub mod targets;
pub mod tuple;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use futures::{StreamExt, TryStreamExt, stream};
use iceberg::spec::{ManifestContentType, ManifestFile};

use self::head::Head;
use self::rules::{Reaching, Targets};
use super::manifest::{self, FileFormat, ScanEntry};
use super::store::Store;
use super::table::IcebergTable;
use crate::lake::{Error, Result};
use crate::model::file::{Content, EntryStatus, FileKey};
use crate::model::location::Location;
use crate::model::partition::PartitionKey;
use crate::model::plan::{LiveDelete, LiveFile, ScopeFiles};
use crate::model::refusal::{Refusal, Refused};

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
/// * position delete: equal or greater, same spec and tuple, and it names the
///   path, as the data file's entry spells it.
///
/// A branch without snapshot has snapshot id −1 and no files.
///
/// # Errors
/// Refusals, each naming the file: `file-format` (a live file of the partition,
/// or a delete that reaches it, is not Parquet), `encrypted`, `deletion-vector`,
/// `damaged` (a data file that is live twice), `stray-delete` (a position delete
/// names a file of the partition in another spelling, or from another spec or
/// tuple), and those of such a delete that cannot be read. Store errors.
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
            let entries = manifest::scan(table, &head::reference(m)).await?;
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
    let store = Store::new(&table.loaded.io);
    let mut states = Vec::with_capacity(scopes.len());
    for (scope, part) in scopes.iter().zip(parts) {
        let state = part.join(scope, &global, &store).await?;
        strays.refuse(scope, &state.files, &state.reaching)?;
        states.push(state);
    }
    strays.refuse_unread(&states, &store).await?;
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
    let mut of_spec = scopes.iter().filter(|s| s.spec_id == spec_id).peekable();
    if of_spec.peek().is_none() {
        return false;
    }
    let fields = head::partition_type(metadata, spec_id);
    of_spec.any(|s| prune::may_hold(manifest.partitions.as_deref(), fields.as_ref(), &s.tuple))
}

/// What one manifest holds of the scopes.
struct Found {
    home: usize,
    of_scope: Vec<(usize, ScanEntry)>,
    global: Vec<ScanEntry>,
    /// Position deletes of all partitions.
    positions: Vec<ScanEntry>,
}

/// Where each scope was asked for; one asked for twice is answered twice.
type Places<'a> = HashMap<&'a PartitionKey, Vec<usize>>;

fn places(scopes: &[PartitionKey]) -> Places<'_> {
    let mut places = Places::new();
    scopes.iter().enumerate().for_each(|(i, scope)| places.entry(scope).or_default().push(i));
    places
}

fn find(table: &IcebergTable, home: usize, entries: Vec<ScanEntry>, places: &Places<'_>) -> Found {
    let mut found = Found { home, of_scope: Vec::new(), global: Vec::new(), positions: Vec::new() };
    for entry in entries {
        if entry.entry.status == EntryStatus::Deleted {
            continue;
        }
        if entry.entry.content == Content::PositionDeletes {
            found.positions.push(entry.clone());
        }
        let spec_id = entry.entry.partition.spec_id;
        if entry.entry.content == Content::EqualityDeletes && head::is_unpartitioned(&table.loaded.metadata, spec_id) {
            found.global.push(entry);
        } else if let Some(at) = places.get(&entry.entry.partition) {
            found.of_scope.extend(at.iter().map(|at| (*at, entry.clone())));
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
    async fn join(self, scope: &PartitionKey, global: &[(usize, ScanEntry)], store: &Store) -> Result<State> {
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
            let mut targets = known_targets(entry);
            // One that is older than every file applies to none: not worth a read.
            if targets == Targets::Unread && lowest.is_some_and(|l| l <= entry.sequence_number) {
                readable(entry)?;
                targets = Targets::Named(targets::read(store, &entry.entry.key.path).await?);
            }
            reaching.push(Reaching { delete: live_delete(entry), global, targets });
            homes.insert(entry.entry.key.clone(), *home);
            if entry.entry.content == Content::EqualityDeletes {
                equality_ids.insert(entry.entry.key.clone(), entry.equality_ids.clone());
            }
        }
        rules::join(&mut files, &reaching);
        refuse_unreadable(self.deletes.iter().chain(global).map(|(_, e)| e), &files)?;
        Ok(State { scope: scope.clone(), files, reaching, homes, equality_ids })
    }
}

/// What is known of a delete's reach without reading it.
fn known_targets(entry: &ScanEntry) -> Targets {
    if entry.entry.content == Content::EqualityDeletes {
        return Targets::Older;
    }
    let text = |bytes: &Option<Arc<[u8]>>| bytes.as_deref().and_then(|b| std::str::from_utf8(b).ok()).map(str::to_owned);
    let (lower, upper) = (text(&entry.path_lower), text(&entry.path_upper));
    match rules::single_target(entry.referenced_data_file.as_deref(), lower.as_deref(), upper.as_deref()) {
        Some(one) => Targets::Named([Arc::from(one)].into()),
        None => Targets::Unread,
    }
}

/// Refuses a delete that applies to some file and that no reader of ours reads.
fn refuse_unreadable<'a>(deletes: impl Iterator<Item = &'a ScanEntry>, files: &[LiveFile]) -> Result<()> {
    let applying: HashSet<&FileKey> = files.iter().flat_map(|f| &f.deletes).collect();
    deletes.filter(|d| applying.contains(&d.entry.key)).try_for_each(readable)
}

fn readable(entry: &ScanEntry) -> Result<()> {
    let path = &entry.entry.key.path;
    let refuse = |refusal, why: &str| Err(Refused::new(refusal, format!("{path}: {why}")).into());
    if entry.encrypted {
        return refuse(Refusal::Encrypted, "has key metadata");
    }
    if entry.entry.content == Content::DeletionVector || entry.format == FileFormat::Puffin {
        return refuse(Refusal::DeletionVector, "a deletion vector applies");
    }
    if entry.format != FileFormat::Parquet {
        return refuse(Refusal::FileFormat, &format!("is {:?}, not Parquet", entry.format));
    }
    Ok(())
}

fn live_file(entry: &ScanEntry) -> LiveFile {
    LiveFile {
        path: entry.entry.key.path.clone(),
        bytes: entry.entry.bytes,
        records: entry.entry.records,
        data_sequence: entry.sequence_number,
        sort_order_id: entry.sort_order_id,
        deletes: Vec::new(),
    }
}

fn live_delete(entry: &ScanEntry) -> LiveDelete {
    LiveDelete {
        key: entry.entry.key.clone(),
        content: entry.entry.content,
        bytes: entry.entry.bytes,
        records: entry.entry.records,
        data_sequence: entry.sequence_number,
    }
}

fn refuse_doubles(files: &[LiveFile], scope: &PartitionKey) -> Result<()> {
    let mut seen = HashSet::with_capacity(files.len());
    match files.iter().find(|f| !seen.insert(Location::parse(&f.path))) {
        Some(file) => Err(Error::damaged(&file.path, format!("is live more than once in {scope}"))),
        None => Ok(()),
    }
}

fn nothing(scope: PartitionKey) -> ScopeFiles {
    ScopeFiles { snapshot_id: -1, sequence_number: 0, scope, files: Vec::new(), deletes: BTreeMap::new() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::file::Entry;

    fn entry(content: Content) -> ScanEntry {
        ScanEntry {
            entry: Entry {
                status: EntryStatus::Added,
                snapshot_id: 1,
                content,
                key: FileKey { path: "s3://b/t/x".into(), offset: None },
                partition: PartitionKey::unpartitioned(0),
                records: 1,
                bytes: 1,
            },
            sequence_number: 1,
            file_sequence_number: 1,
            format: FileFormat::Parquet,
            equality_ids: vec![],
            sort_order_id: None,
            referenced_data_file: None,
            path_lower: None,
            path_upper: None,
            file_column: None,
            encrypted: false,
        }
    }

    fn refused(entry: &ScanEntry) -> Option<Refusal> {
        match readable(entry) {
            Err(Error::Refused(refused)) => Some(refused.refusal),
            _ => None,
        }
    }

    #[test]
    fn what_no_reader_of_ours_reads_is_refused_by_name() {
        assert_eq!(refused(&entry(Content::Data)), None);
        let formats = [FileFormat::Orc, FileFormat::Avro, FileFormat::Other("lance".into())];
        let found = formats.map(|format| refused(&ScanEntry { format, ..entry(Content::Data) }));
        assert_eq!(found, [Some(Refusal::FileFormat); 3]);
        assert_eq!(refused(&ScanEntry { encrypted: true, ..entry(Content::Data) }), Some(Refusal::Encrypted));
        let vector = ScanEntry { format: FileFormat::Puffin, ..entry(Content::DeletionVector) };
        assert_eq!(refused(&vector), Some(Refusal::DeletionVector));
    }

    #[test]
    fn a_delete_that_no_reader_reads_is_refused_only_where_it_applies() {
        let delete = ScanEntry { format: FileFormat::Avro, sequence_number: 2, ..entry(Content::EqualityDeletes) };
        let older = LiveFile { deletes: vec![delete.entry.key.clone()], ..live_file(&entry(Content::Data)) };
        assert!(refuse_unreadable([&delete].into_iter(), &[older]).is_err());
        assert!(refuse_unreadable([&delete].into_iter(), &[live_file(&entry(Content::Data))]).is_ok());
    }

    #[test]
    fn a_file_that_is_live_twice_is_refused_under_either_spelling() {
        let file = |path: &str| LiveFile { path: path.into(), ..live_file(&entry(Content::Data)) };
        let scope = PartitionKey::unpartitioned(0);
        assert!(refuse_doubles(&[file("file:/d/x"), file("file:///d/x")], &scope).is_err());
        assert!(refuse_doubles(&[file("file:/d/x"), file("file:///d/y")], &scope).is_ok());
    }

    #[test]
    fn a_scope_asked_for_twice_is_answered_twice() {
        let scopes = [PartitionKey::unpartitioned(0), PartitionKey::unpartitioned(1), PartitionKey::unpartitioned(0)];
        assert_eq!(places(&scopes)[&scopes[0]], [0, 2]);
    }
}
