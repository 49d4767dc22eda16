//! Writes a recording: a file, and the one before it, within a size.

use std::collections::{BTreeMap, HashMap};
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::lines::{Begins, Closed, Exchanged, Job, Judged, Key, Line, RoundMade, Settled, Table, VERSION, key};
use crate::decide::Case;
use crate::decide::budget::{Ask, Budget, Denied, Reservation, Used};
use crate::decide::round::{Candidate, Round};
use crate::model::decision::Decision;
use crate::model::economy::{Prices, Ranking};
use crate::model::ident::TableIdent;
use crate::model::partition::PartitionKey;
use crate::model::policy::Policy;
use crate::model::table::TableView;

/// Prefixes of the table properties that a policy may come from.
const OWN: [&str; 2] = ["afterwrite.", "write.target-file-size-bytes"];

/// Writes what is decided. When its file cannot be written any more it says so once, and
/// records nothing from then on: a recording is never the reason that work stops.
pub struct Recorder {
    path: PathBuf,
    /// The most that both files hold together, in bytes.
    most: u64,
    ranking: Ranking,
    prices: Prices,
    state: Mutex<State>,
}

/// What a decision of a table is made by, beside its state.
#[derive(Clone, Default, PartialEq)]
struct Known {
    tenant: Option<Arc<str>>,
    properties: BTreeMap<String, String>,
}

#[derive(Default)]
struct State {
    file: Option<BufWriter<File>>,
    /// Bytes in the file.
    bytes: u64,
    known: HashMap<TableIdent, Known>,
    /// As they were written last.
    tables: HashMap<TableIdent, Table>,
    /// The candidates of the last round written.
    pending: BTreeMap<Key, Candidate>,
    failed: bool,
}

impl Recorder {
    /// One that writes to a file, behind what stands there.
    ///
    /// # Errors
    /// When the file cannot be opened.
    pub fn open(path: &Path, most: u64, ranking: Ranking, prices: Prices) -> io::Result<Self> {
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            std::fs::create_dir_all(folder)?;
        }
        mend(path)?;
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        let bytes = file.metadata()?.len();
        let state = State { file: Some(BufWriter::new(file)), bytes, ..State::default() };
        Ok(Self { path: path.to_owned(), most, ranking, prices, state: Mutex::new(state) })
    }

    /// The file before the one that is written.
    pub fn before(path: &Path) -> PathBuf {
        let mut name = path.as_os_str().to_owned();
        name.push(".1");
        PathBuf::from(name)
    }

    /// A process begins, with its budgets as they stand.
    pub fn begins(&self, budget: &Budget, at_ms: i64) {
        let mut state = self.state();
        self.head(&mut state, budget, at_ms);
        self.flush(&mut state);
    }

    /// A table was looked at.
    pub fn saw(&self, view: &TableView, tenant: Option<&Arc<str>>) {
        let own = |(key, _): &(&String, &String)| OWN.iter().any(|prefix| key.starts_with(prefix));
        let properties = view.properties.iter().filter(own).map(|(key, value)| (key.clone(), value.clone())).collect();
        self.state().known.insert(view.ident, Known { tenant: tenant.cloned(), properties });
    }

    /// A table is gone.
    pub fn forget(&self, table: &TableIdent) {
        let mut state = self.state();
        state.known.remove(table);
        state.tables.remove(table);
    }

    /// A decision was made.
    pub fn judged(&self, case: &Case<'_>, branch: Option<Arc<str>>, decision: &Decision) {
        let mut state = self.state();
        self.table(&mut state, case.table.ident, case.policy, decision);
        self.put(&mut state, &Line::Judged(Box::new(Judged::of(case, branch, decision))));
    }

    /// A round was made of these candidates. It is written when it started something or
    /// has others than the one before. Where the file has grown too large another one is
    /// begun; `budget` is as the round left it.
    pub fn round(&self, at_ms: i64, order: u64, all: &BTreeMap<Key, Candidate>, round: &Round, budget: &Budget) {
        let mut state = self.state();
        let changed: Vec<Candidate> = all.iter().filter(|(key, c)| state.pending.get(*key) != Some(*c)).map(|(_, c)| c.clone()).collect();
        let gone: Vec<Key> = state.pending.keys().filter(|key| !all.contains_key(*key)).cloned().collect();
        if !(changed.is_empty() && gone.is_empty() && round.started.is_empty()) {
            let made = RoundMade { changed, gone, ..RoundMade::of(at_ms, order, round) };
            self.put(&mut state, &Line::Round(Box::new(made)));
            state.pending.clone_from(all);
        }
        if state.bytes >= self.most / 2 {
            self.turn(&mut state, budget, at_ms);
        }
        self.flush(&mut state);
    }

    /// A job's own bound was asked for in place of what was held for it.
    pub fn exchanged(&self, at_ms: i64, back: Option<&Reservation>, ask: &Ask<'_>, granted: &Result<Reservation, Denied>) {
        let line = Exchanged {
            at_ms,
            back: back.map(Reservation::recorded),
            bound: *ask.bound,
            bytes: ask.bytes,
            table: ask.table,
            tenant: ask.tenant.cloned(),
            denied: granted.as_ref().err().cloned(),
        };
        self.put(&mut self.state(), &Line::Exchanged(Box::new(line)));
    }

    /// A job gave back what it did not use.
    pub fn settled(&self, at_ms: i64, reservation: &Reservation, used: &Used) {
        let line = Settled { at_ms, reservation: reservation.recorded(), used: *used };
        self.put(&mut self.state(), &Line::Settled(Box::new(line)));
    }

    /// A partition has no files any more.
    pub fn closed(&self, table: TableIdent, branch: Option<Arc<str>>, scope: &PartitionKey, at_ms: i64) {
        let mut state = self.state();
        if state.tables.contains_key(&table) {
            self.put(&mut state, &Line::Closed(Box::new(Closed { at_ms, table, branch, scope: scope.clone() })));
        }
    }

    /// A job ended.
    pub fn job(&self, job: Job) {
        self.put(&mut self.state(), &Line::Job(Box::new(job)));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn head(&self, state: &mut State, budget: &Budget, at_ms: i64) {
        let begins = Begins {
            version: VERSION,
            program: concat!("afterwrite ", env!("CARGO_PKG_VERSION")).to_owned(),
            at_ms,
            ranking: self.ranking,
            prices: self.prices.clone(),
            budget: budget.clone(),
        };
        self.put(state, &Line::Begins(Box::new(begins)));
        // what follows stands by itself
        state.tables.clear();
        state.pending.clear();
    }

    /// A table's settings, when they are not the ones written last.
    fn table(&self, state: &mut State, ident: TableIdent, policy: &Policy, decision: &Decision) {
        let known = state.known.get(&ident);
        let written = state.tables.get(&ident);
        let same = |table: &Table| {
            let (tenant, properties) = (&table.tenant, &table.properties);
            table.policy == *policy
                && table.name == decision.name
                && known.is_none_or(|k| k.tenant == *tenant && k.properties == *properties)
        };
        if written.is_some_and(same) {
            return;
        }
        let Known { tenant, properties } = known.cloned().unwrap_or_default();
        let table = Table { ident, name: decision.name.clone(), tenant, properties, policy: policy.clone() };
        self.put(state, &Line::Table(Box::new(table.clone())));
        state.tables.insert(ident, table);
    }

    /// The file becomes the one before, and another one begins.
    fn turn(&self, state: &mut State, budget: &Budget, at_ms: i64) {
        self.flush(state);
        state.file = None;
        let turned = std::fs::rename(&self.path, Self::before(&self.path)).and_then(|()| File::create(&self.path));
        match turned {
            Ok(file) => {
                (state.file, state.bytes) = (Some(BufWriter::new(file)), 0);
                self.head(state, budget, at_ms);
            }
            Err(error) => self.fail(state, &error),
        }
    }

    fn put(&self, state: &mut State, line: &Line) {
        let Some(file) = &mut state.file else { return };
        let written = serde_json::to_vec(line).map_err(io::Error::from).and_then(|mut bytes| {
            bytes.push(b'\n');
            file.write_all(&bytes).map(|()| bytes.len() as u64)
        });
        match written {
            Ok(bytes) => state.bytes = state.bytes.saturating_add(bytes),
            Err(error) => self.fail(state, &error),
        }
    }

    fn flush(&self, state: &mut State) {
        if let Some(Err(error)) = state.file.as_mut().map(Write::flush) {
            self.fail(state, &error);
        }
    }

    fn fail(&self, state: &mut State, error: &io::Error) {
        state.file = None;
        if !std::mem::replace(&mut state.failed, true) {
            tracing::error!(path = %self.path.display(), %error, "the recording cannot be written: nothing is recorded from here on");
        }
    }
}

/// The candidates of a round by their names.
pub fn by_key(candidates: &[Candidate]) -> BTreeMap<Key, Candidate> {
    candidates.iter().map(|c| (key(c), c.clone())).collect()
}

/// Cuts a last line that a crash has left unfinished.
fn mend(path: &Path) -> io::Result<()> {
    use std::io::{Read, Seek, SeekFrom};
    let mut file = match OpenOptions::new().read(true).write(true).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    const PIECE: u64 = 1 << 16;
    let mut end = file.metadata()?.len();
    let mut piece = Vec::new();
    while end > 0 {
        let from = end.saturating_sub(PIECE);
        file.seek(SeekFrom::Start(from))?;
        piece.clear();
        (&mut file).take(end - from).read_to_end(&mut piece)?;
        match piece.iter().rposition(|byte| *byte == b'\n') {
            Some(at) => return file.set_len(from + at as u64 + 1),
            None => end = from,
        }
    }
    file.set_len(0)
}
