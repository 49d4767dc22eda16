//! A table in memory: snapshots, manifest lists, manifests, entries, as writers
//! of all kinds leave them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use afterwrite::lake::{Commit, Control, Error, NotLanded, Proof, Result, Table, Written};
use afterwrite::model::file::{Content, Entry, EntryStatus, FileKey, ManifestRef};
use afterwrite::model::ident::{TableIdent, TableName};
use afterwrite::model::layout::SizeScale;
use afterwrite::model::outcome::{Outcome, Resolution};
use afterwrite::model::partition::{PartitionKey, Value};
use afterwrite::model::plan::{AttemptId, Plan, ScopeFiles};
use afterwrite::model::table::{Operation, SnapshotInfo, SpecInfo, TableView};
use async_trait::async_trait;
use uuid::Uuid;

pub const SCALE: SizeScale = SizeScale { target: 1000, small_permille: 750 };

/// Spec 0 is unpartitioned, 1 and 2 have one string field, 3 has a void field.
pub const SPECS: [(i32, bool); 4] = [(0, true), (1, false), (2, false), (3, true)];

/// A partition of spec 1.
pub fn part(value: &str) -> PartitionKey {
    under(1, Some(value))
}

/// A partition of a spec with one field.
pub fn under(spec_id: i32, value: Option<&str>) -> PartitionKey {
    PartitionKey { spec_id, tuple: [value.map(|v| Value::String(v.into()))].into() }
}

/// A file to be added.
#[derive(Clone, Debug)]
pub struct File {
    pub content: Content,
    pub partition: PartitionKey,
    pub bytes: u64,
    pub records: u64,
    /// Path and blob offset, when the test cares.
    pub key: Option<FileKey>,
}

pub fn file(content: Content, partition: &PartitionKey, bytes: u64, records: u64) -> File {
    File { content, partition: partition.clone(), bytes, records, key: None }
}

pub fn data(partition: &PartitionKey, bytes: u64, records: u64) -> File {
    file(Content::Data, partition, bytes, records)
}

#[derive(Clone, Debug)]
struct Manifest {
    row: ManifestRef,
    entries: Arc<Vec<Entry>>,
}

/// One commit to make.
#[derive(Clone, Debug)]
pub struct Make {
    pub operation: Operation,
    pub add: Vec<File>,
    pub remove: BTreeSet<FileKey>,
    /// Files left out without an entry that says so.
    pub drop_silently: BTreeSet<FileKey>,
    /// Files put in as if they had always been there.
    pub add_silently: Vec<File>,
    /// Merge all manifests of a kind into one.
    pub merge: bool,
    /// Begin a new line, as a replaced table does.
    pub orphan: bool,
    /// The instance that marks the commit as ours.
    pub instance: Option<String>,
}

impl Make {
    pub fn new(operation: Operation) -> Self {
        Self {
            operation,
            add: Vec::new(),
            remove: BTreeSet::new(),
            drop_silently: BTreeSet::new(),
            add_silently: Vec::new(),
            merge: false,
            orphan: false,
            instance: None,
        }
    }

    pub fn append(files: impl IntoIterator<Item = File>) -> Self {
        Self { add: files.into_iter().collect(), ..Self::new(Operation::Append) }
    }

    pub fn delete(files: impl IntoIterator<Item = FileKey>) -> Self {
        Self { remove: files.into_iter().collect(), ..Self::new(Operation::Delete) }
    }
}

/// The paths of manifests whose entries were read, in order, over all loads.
pub type ReadLog = Arc<Mutex<Vec<Arc<str>>>>;

/// A table that can be written to.
#[derive(Clone)]
pub struct World {
    pub view: TableView,
    lists: BTreeMap<i64, Vec<Manifest>>,
    /// Whether manifest lists carry counts (v1 may leave them out).
    pub counts: bool,
    /// What new manifests' rows add to their count of live records.
    pub misstate: u64,
    /// Whether a merge copies entries of older snapshots with their old status.
    pub careless: bool,
    /// What the next id follows on.
    pub next: i64,
    pub read: ReadLog,
}

impl World {
    pub fn new(format_version: u8) -> Self {
        let ident = TableIdent::iceberg(Uuid::from_u128(1));
        let spec = |(id, unpartitioned)| (id, Arc::new(SpecInfo { id, unpartitioned, ..SpecInfo::default() }));
        let view = TableView {
            ident,
            name: TableName::new("lake", "db", "t"),
            metadata_location: String::new(),
            location: "memory://t".into(),
            format_version,
            reference: "main".into(),
            head: None,
            snapshots: BTreeMap::new(),
            last_sequence_number: 0,
            specs: SPECS.into_iter().map(spec).collect(),
            properties: BTreeMap::new(),
            created_ms: 0,
            refused: Vec::new(),
        };
        Self { view, lists: BTreeMap::new(), counts: true, misstate: 0, careless: false, next: 100, read: ReadLog::default() }
    }

    /// A table whose first commit holds these files.
    pub fn with(files: impl IntoIterator<Item = File>) -> Self {
        let mut world = Self::new(2);
        world.commit(Make::append(files));
        world
    }

    /// The table as a catalog would give it now.
    pub fn load(&self) -> Fake {
        let lists = self.lists.iter().filter(|(id, _)| self.view.snapshots.contains_key(id));
        Fake { view: self.view.clone(), lists: lists.map(|(id, l)| (*id, l.clone())).collect(), read: self.read.clone() }
    }

    /// Live files of the head.
    pub fn live(&self) -> Vec<Entry> {
        let head = self.view.head.and_then(|id| self.lists.get(&id));
        let all = head.into_iter().flatten().flat_map(|m| m.entries.iter());
        all.filter(|e| e.status != EntryStatus::Deleted).cloned().collect()
    }

    /// Identities of the live files, in order of addition.
    pub fn live_keys(&self) -> Vec<FileKey> {
        self.live().into_iter().map(|e| e.key).collect()
    }

    fn id(&mut self) -> i64 {
        self.next += 1;
        self.next
    }

    /// Makes a commit and returns its snapshot id.
    pub fn commit(&mut self, make: Make) -> i64 {
        let id = self.id();
        let parent = self.view.head.filter(|_| !make.orphan);
        self.view.last_sequence_number += i64::from(self.view.format_version > 1);
        let mut manifests = Vec::new();
        for manifest in parent.and_then(|p| self.lists.get(&p).cloned()).unwrap_or_default() {
            manifests.extend(self.carried(id, manifest, &make));
        }
        for (file, status) in silent(&make).chain(make.add.iter().map(|f| (f, EntryStatus::Added))) {
            let entry = self.entry(id, parent, file, status);
            manifests.push(self.manifest(id, file.content != Content::Data, vec![entry]));
        }
        if make.merge {
            manifests = self.merged(id, manifests);
        }
        let snapshot = SnapshotInfo {
            id,
            parent,
            sequence_number: self.view.last_sequence_number,
            timestamp_ms: -77,
            operation: make.operation,
            attempt: make.instance.clone(),
            instance: make.instance,
            engine: None,
        };
        self.lists.insert(id, manifests);
        self.view.snapshots.insert(id, snapshot);
        self.view.head = Some(id);
        id
    }

    fn entry(&mut self, id: i64, parent: Option<i64>, file: &File, status: EntryStatus) -> Entry {
        let path = format!("memory://t/f{}", self.id()).into();
        Entry {
            status,
            snapshot_id: if status == EntryStatus::Added { id } else { parent.unwrap_or(1) },
            content: file.content,
            key: file.key.clone().unwrap_or(FileKey { path, offset: None }),
            partition: file.partition.clone(),
            records: file.records,
            bytes: file.bytes,
        }
    }

    /// A parent's manifest in the list of its child: as it is, rewritten, or gone.
    fn carried(&mut self, id: i64, manifest: Manifest, make: &Make) -> Option<Manifest> {
        let gone = |e: &Entry| make.remove.contains(&e.key) || make.drop_silently.contains(&e.key);
        let live = |e: &&Entry| e.status != EntryStatus::Deleted;
        if !manifest.entries.iter().filter(live).any(gone) {
            return manifest.entries.iter().any(|e| live(&e)).then_some(manifest);
        }
        let kept = manifest.entries.iter().filter(live).filter(|e| !make.drop_silently.contains(&e.key));
        let rewritten = kept.cloned().map(|mut entry| {
            if make.remove.contains(&entry.key) {
                (entry.status, entry.snapshot_id) = (EntryStatus::Deleted, id);
            } else {
                entry.status = EntryStatus::Existing;
            }
            entry
        });
        let entries: Vec<Entry> = rewritten.collect();
        (!entries.is_empty()).then(|| self.manifest(id, manifest.row.deletes, entries))
    }

    /// All manifests of a spec and kind as one, written by `id`.
    fn merged(&mut self, id: i64, manifests: Vec<Manifest>) -> Vec<Manifest> {
        let mut kinds: BTreeMap<(i32, bool), Vec<Entry>> = BTreeMap::new();
        for manifest in manifests {
            let entries = kinds.entry((manifest.row.spec_id, manifest.row.deletes)).or_default();
            for mut entry in manifest.entries.iter().cloned() {
                let old = entry.snapshot_id != id && !self.careless;
                if old && entry.status == EntryStatus::Deleted {
                    continue;
                }
                if old {
                    entry.status = EntryStatus::Existing;
                }
                entries.push(entry);
            }
        }
        kinds.into_iter().map(|((_, deletes), entries)| self.manifest(id, deletes, entries)).collect()
    }

    fn manifest(&mut self, id: i64, deletes: bool, entries: Vec<Entry>) -> Manifest {
        let live = || entries.iter().filter(|e| e.status != EntryStatus::Deleted);
        let row = ManifestRef {
            path: format!("memory://t/m{}", self.id()).into(),
            bytes: 50 + entries.len() as u64,
            spec_id: entries.first().map_or(0, |e| e.partition.spec_id),
            deletes,
            added_snapshot_id: id,
            sequence_number: self.view.last_sequence_number,
            live_files: self.counts.then(|| live().count() as u64),
            live_records: self.counts.then(|| live().map(|e| e.records).sum::<u64>() + self.misstate),
        };
        Manifest { row, entries: Arc::new(entries) }
    }

    /// Rewrites all manifests, changing nothing.
    pub fn rewrite_manifests(&mut self) -> i64 {
        self.commit(Make { merge: true, ..Make::new(Operation::Replace) })
    }

    /// Points the branch at a listed snapshot.
    pub fn set_head(&mut self, id: i64) {
        assert!(self.view.snapshots.contains_key(&id));
        self.view.head = Some(id);
    }

    /// Points the branch at the head's `n`-th ancestor that is listed.
    pub fn rollback(&mut self, n: usize) {
        for _ in 0..n {
            let parent = self.view.head.and_then(|h| self.view.snapshots[&h].parent);
            if let Some(parent) = parent.filter(|p| self.view.snapshots.contains_key(p)) {
                self.view.head = Some(parent);
            }
        }
    }

    /// Expires all snapshots but the head and its `keep` nearest ancestors.
    pub fn expire(&mut self, keep: usize) {
        let mut kept = BTreeSet::new();
        let mut next = self.view.head;
        while let Some(snapshot) = next.and_then(|id| self.view.snapshots.get(&id)) {
            if kept.len() > keep {
                break;
            }
            kept.insert(snapshot.id);
            next = snapshot.parent;
        }
        self.view.snapshots.retain(|id, _| kept.contains(id));
    }

    /// Drops the table and creates another one under its name.
    pub fn drop_and_create(&mut self) {
        let uuid = Uuid::from_u128(self.view.ident.uuid.as_u128() + 1);
        let (read, name) = (self.read.clone(), self.view.name.clone());
        *self = Self { read, next: self.next + 1000, ..Self::new(self.view.format_version) };
        (self.view.ident, self.view.name) = (TableIdent::iceberg(uuid), name);
    }

    /// Manifests read since the last call.
    pub fn reads(&self) -> usize {
        std::mem::take(&mut *self.read.lock().unwrap()).len()
    }
}

fn silent(make: &Make) -> impl Iterator<Item = (&File, EntryStatus)> {
    make.add_silently.iter().map(|f| (f, EntryStatus::Existing))
}

/// A table loaded at one moment.
#[derive(Clone)]
pub struct Fake {
    pub view: TableView,
    lists: BTreeMap<i64, Vec<Manifest>>,
    read: ReadLog,
}

impl Fake {
    /// Loses a snapshot's manifest list, as a clean-up does that races with us.
    pub fn lose(&mut self, snapshot_id: i64) {
        self.lists.remove(&snapshot_id);
    }
}

#[async_trait]
impl Table for Fake {
    fn view(&self) -> &TableView {
        &self.view
    }

    async fn manifests(&self, snapshot_id: i64) -> Result<Vec<ManifestRef>> {
        let list = self.lists.get(&snapshot_id).ok_or(Error::NotFound { path: format!("memory://t/snap-{snapshot_id}") })?;
        Ok(list.iter().map(|m| m.row.clone()).collect())
    }

    async fn entries(&self, manifest: &ManifestRef) -> Result<Vec<Entry>> {
        self.read.lock().unwrap().push(manifest.path.clone());
        // a store lets others go first
        tokio::task::yield_now().await;
        let all = self.lists.values().flatten().find(|m| m.row.path == manifest.path);
        all.map(|m| m.entries.to_vec()).ok_or(Error::NotFound { path: manifest.path.to_string() })
    }

    async fn scope(&self, _: &PartitionKey) -> Result<ScopeFiles> {
        Err(never())
    }

    async fn rewrite(&self, _: &Plan, _: &AttemptId, _: &dyn Control) -> Result<Written> {
        Err(never())
    }

    async fn verify(&self, _: &Plan, _: &Written) -> Result<Proof> {
        Err(never())
    }

    async fn commit(&self, _: &Plan, _: &Written, _: &Commit<'_>) -> Result<Outcome> {
        Err(never())
    }

    fn find_attempt(&self, _: &AttemptId, _: &str) -> Resolution {
        Resolution::Open { reason: "orient never asks".into() }
    }

    async fn undo(&self, _: i64, _: &Commit<'_>) -> Result<Outcome> {
        Err(never())
    }

    async fn remove_outputs(&self, _: &NotLanded, _: &[String]) -> Result<()> {
        Err(never())
    }
}

fn never() -> Error {
    Error::Setup("orient only reads".into())
}
