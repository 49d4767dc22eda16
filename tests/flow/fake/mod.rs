//! A lake in memory: one table of rows that are numbers, a store of files, and
//! everything that can go wrong between them.

mod table;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use afterwrite::lake::clock::{Chance, Clock};
use afterwrite::model::file::{Content, FileKey};
use afterwrite::model::ident::{TableIdent, TableName};
use afterwrite::model::partition::PartitionKey;
use afterwrite::model::plan::{AttemptId, Bound, LiveDelete, LiveFile, Plan, ScopeFiles};
use afterwrite::model::table::{Operation, SnapshotInfo};
use async_trait::async_trait;
use uuid::Uuid;

pub const ROOT: &str = "mem://lake/t/";

/// A clock that jumps to the earliest time for which somebody waits.
pub struct SimClock {
    now: AtomicI64,
    /// By how much the wall clock is set ahead.
    ahead: AtomicI64,
    waiting: Mutex<BTreeSet<(i64, u64)>>,
    next: AtomicU64,
}

impl Default for SimClock {
    fn default() -> Self {
        Self { now: AtomicI64::new(1_000_000), ahead: AtomicI64::default(), waiting: Mutex::default(), next: AtomicU64::new(0) }
    }
}

impl SimClock {
    pub fn pass(&self, millis: i64) {
        self.now.fetch_add(millis, Ordering::SeqCst);
    }

    /// Sets the wall clock ahead, while no time passes.
    pub fn set_ahead(&self, millis: i64) {
        self.ahead.fetch_add(millis, Ordering::SeqCst);
    }
}

/// Somebody who waits; leaves when dropped.
struct Waiting<'a>(&'a SimClock, (i64, u64));

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.lock().unwrap().remove(&self.1);
    }
}

#[async_trait]
impl Clock for SimClock {
    fn now_ms(&self) -> i64 {
        self.elapsed_ms() + self.ahead.load(Ordering::SeqCst)
    }

    fn elapsed_ms(&self) -> i64 {
        self.now.load(Ordering::SeqCst)
    }

    async fn sleep(&self, time: Duration) {
        let until = self.elapsed_ms() + i64::try_from(time.as_millis()).unwrap();
        let turn = (until, self.next.fetch_add(1, Ordering::SeqCst));
        self.waiting.lock().unwrap().insert(turn);
        let _waiting = Waiting(self, turn);
        loop {
            tokio::task::yield_now().await;
            if self.elapsed_ms() >= until || self.waiting.lock().unwrap().first() == Some(&turn) {
                self.now.fetch_max(until, Ordering::SeqCst);
                return;
            }
        }
    }
}

/// A known row of numbers.
#[derive(Default)]
pub struct SimChance(AtomicU64);

impl Chance for SimChance {
    fn next(&self) -> u64 {
        let n = self.0.fetch_add(1, Ordering::SeqCst).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        n ^ (n >> 29)
    }
}

/// What one question to the catalog meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    None,
    /// It lands, the answer is lost.
    UnknownLanded,
    /// It never arrives, the answer is lost.
    UnknownLost,
    /// It arrives at a later load, if the pointer has not moved by then.
    UnknownLater,
    /// It lands, and the call fails.
    ErrorLanded,
    /// The store fails before the catalog is asked.
    ErrorBefore,
    /// Another commit arrives between load and swap.
    Moved,
    /// The catalog says no.
    Rejected,
}

impl Fault {
    pub const ALL: [Fault; 8] = [
        Self::None,
        Self::UnknownLanded,
        Self::UnknownLost,
        Self::UnknownLater,
        Self::ErrorLanded,
        Self::ErrorBefore,
        Self::Moved,
        Self::Rejected,
    ];
}

/// What others do meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Foreign {
    Nothing,
    Append,
    DeleteOldRow,
    DeleteNewRow,
    ReplaceInput,
    ReplaceLast,
    Drop,
}

#[derive(Clone)]
struct Delete {
    live: LiveDelete,
    target: Arc<str>,
    row: u64,
}

#[derive(Clone)]
struct Snapshot {
    info: SnapshotInfo,
    data: BTreeMap<Arc<str>, LiveFile>,
    deletes: BTreeMap<FileKey, Delete>,
    manifest: String,
}

#[derive(Clone)]
struct Version {
    uuid: u128,
    location: String,
    log: Vec<String>,
    head: Option<i64>,
    snapshots: BTreeMap<i64, Snapshot>,
}

#[derive(Default)]
pub struct State {
    /// Every file, with its rows.
    pub store: BTreeMap<String, Vec<u64>>,
    /// The rows that a reader must see.
    pub expected: BTreeSet<u64>,
    /// Faults of the next questions to the catalog.
    pub faults: VecDeque<Fault>,
    /// What others do just before each next question.
    pub before_commit: VecDeque<Foreign>,
    /// What others do at each next load.
    pub on_load: VecDeque<Foreign>,
    /// The catalog is down until then.
    pub down_until: i64,
    /// The catalog compares heads, and not pointers.
    pub heads: bool,
    /// The catalog can shut lost requests out.
    pub fences: bool,
    /// Neither the catalog nor the store answers any more.
    pub hung: bool,
    /// So many removals fail.
    pub removals_fail: u32,
    /// The rewrite leaves a file that it does not hand over.
    pub spare: bool,
    /// The rewrite hands over a file that it did not name.
    pub unnamed: bool,
    /// The proof fails.
    pub disproved: bool,
    /// Milliseconds of a rewrite, for each input.
    pub rewrite_ms: u64,
    /// Milliseconds of a commit.
    pub commit_ms: u64,
    /// The rewrites of each question to the catalog.
    pub asked: Vec<usize>,
    /// A writer deletes one of its own new rows, and an old one, so often.
    pub writer_every_ms: Option<i64>,
    writer_next_ms: i64,
    /// Data files read.
    pub reads: u64,
    table: Option<Version>,
    dropped: Vec<Version>,
    later: Vec<(String, Version)>,
    next: u64,
}

/// The lake.
#[derive(Clone)]
pub struct Lake {
    state: Arc<Mutex<State>>,
    pub clock: Arc<SimClock>,
}

pub fn name() -> TableName {
    TableName::new("lake", "sales", "t")
}

impl State {
    fn fresh(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn put(&mut self, path: &str, rows: Vec<u64>) {
        self.store.insert(path.into(), rows);
    }

    /// Another's commit: a new head on the present one.
    fn commit(&mut self, operation: Operation, change: impl FnOnce(&mut Snapshot, i64)) {
        let (id, n) = (i64::try_from(self.fresh()).unwrap(), self.fresh());
        let base = self.table.clone();
        if let Some(base) = base {
            let location = format!("{ROOT}metadata/foreign-{n}.json");
            let manifest = format!("{ROOT}metadata/foreign-{n}.avro");
            self.put(&location, vec![]);
            self.put(&manifest, vec![]);
            self.table = Some(base.with(id, location, manifest, operation, None, change));
        }
    }

    pub fn append(&mut self, rows: usize) {
        if self.table.is_none() {
            return;
        }
        let n = self.fresh();
        let path: Arc<str> = format!("{ROOT}data/foreign-{n}.parquet").into();
        let rows: Vec<u64> = (0..rows).map(|_| self.fresh()).collect();
        self.expected.extend(&rows);
        let records = u64::try_from(rows.len()).unwrap();
        self.put(&path, rows);
        self.commit(Operation::Append, |s, seq| {
            let file = LiveFile {
                path: Arc::clone(&path),
                bytes: 10,
                records,
                data_sequence: seq,
                sort_order_id: None,
                first_row_id: None,
                deletes: vec![],
            };
            s.data.insert(path, file);
        });
    }

    /// Deletes the first or last live row.
    pub fn delete_row(&mut self, last: bool) {
        let Some(version) = self.table.clone() else { return };
        let row = if last { self.expected.last().copied() } else { self.expected.first().copied() };
        let Some(row) = row else { return };
        let head = version.head_snapshot().unwrap();
        let target = head.data.keys().find(|p| self.store[&***p].contains(&row) && !head.is_deleted(p, row)).cloned().unwrap();
        let n = self.fresh();
        let key = FileKey { path: format!("{ROOT}data/foreign-{n}-deletes.parquet").into(), offset: None };
        self.put(&key.path, vec![]);
        self.expected.remove(&row);
        self.commit(Operation::Delete, |s, seq| {
            let live = LiveDelete { key: key.clone(), content: Content::PositionDeletes, bytes: 1, records: 1, data_sequence: seq };
            s.deletes.insert(key, Delete { live, target, row });
        });
    }

    /// Another compactor replaces the first or last data file.
    pub fn replace_input(&mut self, last: bool) {
        let Some(version) = self.table.clone() else { return };
        let head = version.head_snapshot().unwrap();
        let mut files = head.data.values();
        let Some(old) = (if last { files.next_back() } else { files.next() }).cloned() else { return };
        let rows = head.live_rows(&old.path, &self.store);
        let n = self.fresh();
        let path: Arc<str> = format!("{ROOT}data/other-{n}.parquet").into();
        let records = u64::try_from(rows.len()).unwrap();
        self.put(&path, rows);
        self.commit(Operation::Replace, |s, _| {
            s.data.remove(&old.path);
            s.deletes.retain(|_, d| d.target != old.path);
            let data_sequence = old.data_sequence;
            s.data.insert(
                Arc::clone(&path),
                LiveFile { path, bytes: 10, records, data_sequence, sort_order_id: None, first_row_id: None, deletes: vec![] },
            );
        });
    }

    pub fn drop_table(&mut self) {
        self.dropped.extend(self.table.take());
    }

    pub fn act(&mut self, foreign: Foreign) {
        match foreign {
            Foreign::Nothing => {}
            Foreign::Append => self.append(2),
            Foreign::DeleteOldRow => self.delete_row(false),
            Foreign::DeleteNewRow => {
                self.append(1);
                self.delete_row(true);
            }
            Foreign::ReplaceInput => self.replace_input(false),
            Foreign::ReplaceLast => self.replace_input(true),
            Foreign::Drop => self.drop_table(),
        }
    }

    /// The writer's commits until `now`.
    fn writer(&mut self, now: i64) {
        let Some(every) = self.writer_every_ms else { return };
        while self.writer_next_ms <= now {
            self.act(Foreign::DeleteNewRow);
            self.act(Foreign::DeleteOldRow);
            self.writer_next_ms = self.writer_next_ms.max(now - 60_000) + every;
        }
    }

    /// Requests that arrive late.
    fn arrive(&mut self) {
        for (asserted, version) in std::mem::take(&mut self.later) {
            if self.table.as_ref().is_some_and(|t| t.location == asserted) {
                self.table = Some(version);
            }
        }
    }

    /// No request that asserts this location can arrive any more, when it still stands.
    pub fn fence(&mut self, asserted: &str) -> bool {
        let fenced = self.fences && self.table.as_ref().is_some_and(|t| t.location == asserted);
        if fenced {
            self.later.retain(|(wanted, _)| wanted != asserted);
        }
        fenced
    }

    /// Files that some table's metadata names.
    pub fn referenced(&self) -> BTreeSet<String> {
        let versions = self.table.iter().chain(&self.dropped);
        let mut named = BTreeSet::new();
        for version in versions {
            named.insert(version.location.clone());
            named.extend(version.log.iter().cloned());
            for snapshot in version.snapshots.values() {
                named.insert(snapshot.manifest.clone());
                named.extend(snapshot.data.keys().map(|p| p.to_string()));
                named.extend(snapshot.deletes.keys().map(|k| k.path.to_string()));
            }
        }
        named
    }

    /// The rows that a reader sees; every live file must be there.
    pub fn rows(&self) -> Vec<u64> {
        let Some(head) = self.table.as_ref().and_then(Version::head_snapshot) else {
            return vec![];
        };
        let mut rows: Vec<u64> = head.data.keys().flat_map(|path| head.live_rows(path, &self.store)).collect();
        rows.sort_unstable();
        rows
    }

    pub fn data_files(&self) -> usize {
        self.table.as_ref().and_then(Version::head_snapshot).map_or(0, |s| s.data.len())
    }

    pub fn is_dropped(&self) -> bool {
        self.table.is_none()
    }
}

impl Snapshot {
    fn is_deleted(&self, path: &str, row: u64) -> bool {
        self.deletes.values().any(|d| &*d.target == path && d.row == row)
    }

    fn live_rows(&self, path: &str, store: &BTreeMap<String, Vec<u64>>) -> Vec<u64> {
        let rows = store.get(path).unwrap_or_else(|| panic!("live file {path} was removed"));
        rows.iter().copied().filter(|row| !self.is_deleted(path, *row)).collect()
    }

    /// Of a partition, which is told apart by its name alone.
    fn files(&self, scope: &PartitionKey) -> ScopeFiles {
        let deletes_of = |path: &str| self.deletes.values().filter(|d| &*d.target == path).map(|d| d.live.key.clone()).collect();
        ScopeFiles {
            snapshot_id: self.info.id,
            sequence_number: self.info.sequence_number,
            scope: scope.clone(),
            files: self.data.values().map(|f| LiveFile { deletes: deletes_of(&f.path), ..f.clone() }).collect(),
            deletes: self.deletes.iter().map(|(k, d)| (k.clone(), d.live.clone())).collect(),
        }
    }
}

impl Version {
    fn head_snapshot(&self) -> Option<&Snapshot> {
        self.head.and_then(|id| self.snapshots.get(&id))
    }

    fn with(
        mut self,
        id: i64,
        location: String,
        manifest: String,
        operation: Operation,
        attempt: Option<&AttemptId>,
        change: impl FnOnce(&mut Snapshot, i64),
    ) -> Self {
        let parent = self.head_snapshot();
        let seq = parent.map_or(0, |s| s.info.sequence_number) + 1;
        let info = SnapshotInfo {
            id,
            parent: self.head,
            sequence_number: seq,
            timestamp_ms: id,
            operation,
            attempt: attempt.map(|a| a.0.clone()),
            instance: attempt.map(|_| "us".into()),
            engine: None,
        };
        let empty = (BTreeMap::new(), BTreeMap::new());
        let (data, deletes) = parent.map_or(empty, |p| (p.data.clone(), p.deletes.clone()));
        let mut snapshot = Snapshot { info, data, deletes, manifest };
        change(&mut snapshot, seq);
        self.log.push(std::mem::replace(&mut self.location, location));
        self.head = Some(id);
        self.snapshots.insert(id, snapshot);
        self
    }
}

impl Lake {
    /// A table of `files` files of three rows.
    pub fn new(clock: Arc<SimClock>, files: usize) -> Self {
        let mut state = State { rewrite_ms: 10, ..State::default() };
        let location = format!("{ROOT}metadata/0.json");
        state.put(&location, vec![]);
        state.table = Some(Version { uuid: 1, location, log: vec![], head: None, snapshots: BTreeMap::new() });
        for _ in 0..files {
            state.append(3);
        }
        Self { state: Arc::new(Mutex::new(state)), clock }
    }

    pub fn with<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        f(&mut self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
    }

    /// Another table takes the name.
    pub fn recreate(&self) {
        self.with(|s| {
            s.drop_table();
            s.expected.clear();
            let location = format!("{ROOT}metadata/again.json");
            s.put(&location, vec![]);
            s.table = Some(Version { uuid: 2, location, log: vec![], head: None, snapshots: BTreeMap::new() });
            s.append(1);
        });
    }

    /// A plan that joins the first `most` data files of the head.
    pub fn plan(&self, most: usize) -> Plan {
        self.plan_of(0, 0, most)
    }

    /// A plan for a partition, which joins `most` data files of the head from a place on.
    pub fn plan_of(&self, spec_id: i32, from: usize, most: usize) -> Plan {
        self.with(|s| {
            s.writer(self.clock.now_ms());
            let version = s.table.clone().unwrap();
            let files = version.head_snapshot().unwrap().files(&PartitionKey::unpartitioned(spec_id));
            let inputs: Vec<LiveFile> = files.files.into_iter().skip(from).take(most).collect();
            let mut keys: Vec<FileKey> = inputs.iter().flat_map(|f| f.deletes.iter().cloned()).collect();
            keys.sort();
            Plan {
                table: TableIdent::iceberg(Uuid::from_u128(version.uuid)),
                name: name(),
                reference: "main".into(),
                snapshot_id: files.snapshot_id,
                sequence_number: files.sequence_number,
                scope: files.scope,
                reason: "small-files".into(),
                inputs,
                deletes: keys.into_iter().map(|k| files.deletes[&k].clone()).collect(),
                target_file_size: 1000,
                bound: Bound { gb_hours: 1.0, millis: 3_600_000, memory: 1_000_000_000 },
            }
        })
    }
}
