//! A catalog with the semantics of the SQL ones or of a REST one, which loses
//! answers, applies late, shows what was so before, and answers what is not so.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};

use afterwrite::act::{AttemptState, Journal, MemoryJournal};
use afterwrite::lake::asserted::{Asserted, AssertedHead};
use afterwrite::lake::clock::Clock;
use afterwrite::lake::iceberg::catalog::{Answer, Catalog, Loaded};
use afterwrite::lake::{Control, Error, Pointer, Result};
use afterwrite::model::ident::TableName;
use afterwrite::model::killpoint::KillPoint;
use afterwrite::model::plan::{ATTEMPT_KEY, AttemptId};
use async_trait::async_trait;
use iceberg::io::FileIO;
use iceberg::spec::TableMetadata;
use iceberg::{TableRequirement, TableUpdate};
use serde_json::Value;

use super::chance::Dice;
use super::clock::{MACHINE_MS, SimClock};
use super::gate::{Call, Gate};
use super::hold;
use super::now;
use super::store::Objects;

/// What a commit's success depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compares {
    /// The metadata location, as SQL catalogs do.
    Pointers,
    /// The asserted references, as REST catalogs do: the server makes the metadata.
    Heads,
}

/// So many commits may an answer lag behind.
const FORMER: usize = 3;

/// Is told what the product landed.
pub trait Landed: Send + Sync {
    fn landed(&self, name: &TableName, before: &TableMetadata, after: &TableMetadata);
}

/// What all see.
pub struct Backend {
    pub objects: Arc<Objects>,
    pub compares: Compares,
    pub fences: bool,
    pub clock: Arc<SimClock>,
    state: Mutex<State>,
    listener: Mutex<Option<Weak<dyn Landed>>>,
    pub unreachable: AtomicBool,
}

struct State {
    pointers: BTreeMap<TableName, String>,
    late: Vec<Request>,
    dice: Dice,
    /// Every metadata file that was current once.
    history: BTreeSet<String>,
    /// What each table's pointer was before, the last one last.
    former: BTreeMap<TableName, VecDeque<String>>,
    /// Those read or written lately: they never change.
    read: BTreeMap<String, Arc<TableMetadata>>,
}

/// A commit that the catalog has received.
struct Request {
    name: TableName,
    base: String,
    to: Option<(String, TableMetadata)>,
    requirements: Vec<TableRequirement>,
    updates: Vec<TableUpdate>,
}

impl Backend {
    pub fn new(objects: Arc<Objects>, clock: Arc<SimClock>, compares: Compares, fences: bool, seed: u64) -> Arc<Self> {
        let state = State {
            pointers: BTreeMap::new(),
            late: vec![],
            dice: Dice::new(seed),
            history: BTreeSet::new(),
            former: BTreeMap::new(),
            read: BTreeMap::new(),
        };
        let state = Mutex::new(state);
        Arc::new(Self { objects, compares, fences, clock, state, listener: Mutex::new(None), unreachable: AtomicBool::new(false) })
    }

    pub fn join(&self, landed: Weak<dyn Landed>) {
        *hold(&self.listener) = Some(landed);
    }

    pub fn pointer(&self, name: &TableName) -> Option<String> {
        hold(&self.state).pointers.get(name).cloned()
    }

    pub fn point(&self, name: &TableName, location: &str) {
        let mut state = hold(&self.state);
        state.history.insert(location.into());
        let Some(before) = state.pointers.insert(name.clone(), location.into()) else { return };
        let former = state.former.entry(name.clone()).or_default();
        former.push_back(before);
        if former.len() > FORMER {
            former.pop_front();
        }
    }

    /// A pointer as it was some commits ago, as far as it is remembered.
    fn former(&self, name: &TableName) -> Option<String> {
        let mut state = hold(&self.state);
        let back = state.dice.below(FORMER);
        let former = state.former.get(name)?;
        former.iter().rev().take(back + 1).next_back().cloned()
    }

    /// Every metadata file that was current once.
    pub fn landed(&self) -> BTreeSet<String> {
        hold(&self.state).history.clone()
    }

    pub fn metadata_at(&self, location: &str) -> Arc<TableMetadata> {
        if let Some(metadata) = hold(&self.state).read.get(location) {
            return Arc::clone(metadata);
        }
        let bytes = self.objects.get(location).unwrap_or_else(|| panic!("metadata file {location} is gone"));
        self.remember(location, serde_json::from_slice(&bytes).unwrap_or_else(|e| panic!("{location}: {e}")))
    }

    /// What is written need not be read.
    pub fn remember(&self, location: &str, metadata: TableMetadata) -> Arc<TableMetadata> {
        let metadata = Arc::new(metadata);
        let mut state = hold(&self.state);
        if state.read.len() > 64 {
            state.read.clear();
        }
        state.read.insert(location.into(), Arc::clone(&metadata));
        metadata
    }

    pub fn metadata(&self, name: &TableName) -> Arc<TableMetadata> {
        self.metadata_at(&self.pointer(name).unwrap())
    }

    /// Every late commit arrives; how many still applied.
    pub fn apply_late(&self) -> usize {
        let late = std::mem::take(&mut hold(&self.state).late);
        late.into_iter().filter(|request| matches!(self.apply(request), Answer::Landed(_))).count()
    }

    /// Commits under way are lost for good.
    pub fn drop_late(&self) {
        hold(&self.state).late.clear();
    }

    pub fn random(&self) -> u64 {
        hold(&self.state).dice.next()
    }

    pub fn next_location(&self, metadata: &TableMetadata, base: Option<&str>) -> String {
        let version = base.and_then(|b| b.rsplit('/').next()?.split_once('-')?.0.parse::<u64>().ok()).map_or(0, |v| v + 1);
        let (a, b) = (self.random(), self.random());
        let id = uuid::Builder::from_random_bytes((u128::from(a) << 64 | u128::from(b)).to_be_bytes()).into_uuid();
        format!("{}/metadata/{version:05}-{id}.metadata.json", metadata.location())
    }

    /// The metadata after the updates; `Err` is why not.
    pub fn built(&self, base: &TableMetadata, location: &str, updates: Vec<TableUpdate>) -> std::result::Result<TableMetadata, String> {
        let mut builder = base.clone().into_builder(Some(location.to_owned()));
        for update in updates {
            builder = update.apply(builder).map_err(|e| e.to_string())?;
        }
        let built = builder.build().map_err(|e| e.to_string())?.metadata;
        Ok(timed(built, base.last_updated_ms(), self.clock.now_ms()))
    }

    /// Applies a request if what it asserts still holds.
    fn apply(&self, request: &Request) -> Answer {
        let Some(current) = self.pointer(&request.name) else { return Answer::Moved };
        let before = self.metadata_at(&current);
        let (location, after) = match &request.to {
            Some(_) if current != request.base => return Answer::Moved,
            Some(ready) => ready.clone(),
            None => {
                if request.requirements.iter().any(|r| r.check(Some(&before)).is_err()) {
                    return Answer::Moved;
                }
                let after = match self.built(&before, &current, request.updates.clone()) {
                    Ok(after) => after,
                    Err(why) => return Answer::Rejected(why),
                };
                (self.next_location(&after, Some(&current)), after)
            }
        };
        if request.to.is_none() {
            self.objects.put(&location, serde_json::to_vec(&after).unwrap().into());
        }
        self.remember(&location, after.clone());
        self.point(&request.name, &location);
        if let Some(landed) = hold(&self.listener).as_ref().and_then(Weak::upgrade) {
            landed.landed(&request.name, &before, &after);
        }
        Answer::Landed(location)
    }

    pub fn loaded(&self, name: &TableName, io: &FileIO) -> Option<Loaded> {
        Some(self.loaded_at(name, self.pointer(name)?, io))
    }

    fn loaded_at(&self, name: &TableName, metadata_location: String, io: &FileIO) -> Loaded {
        let metadata = self.metadata_at(&metadata_location);
        Loaded { name: name.clone(), metadata_location, metadata, io: io.clone(), fence: None }
    }

    pub fn list(&self) -> Vec<Pointer> {
        let state = hold(&self.state);
        let pointer = |(name, location): (&TableName, &String)| Pointer { name: name.clone(), metadata_location: location.clone() };
        state.pointers.iter().map(pointer).collect()
    }
}

/// The crate stamps the machine's time where the simulation's must stand.
fn timed(metadata: TableMetadata, before_ms: i64, now_ms: i64) -> TableMetadata {
    let real = |ms: i64| ms > MACHINE_MS;
    if !real(metadata.last_updated_ms()) && !metadata.history().iter().any(|log| real(log.timestamp_ms)) {
        return metadata;
    }
    let mut value = serde_json::to_value(&metadata).unwrap();
    let mut last = before_ms;
    for entry in value.get_mut("snapshot-log").and_then(Value::as_array_mut).into_iter().flatten() {
        let ms = entry["timestamp-ms"].as_i64().unwrap();
        if real(ms) {
            entry["timestamp-ms"] = last.max(now_ms).into();
        }
        last = last.max(entry["timestamp-ms"].as_i64().unwrap());
    }
    if real(metadata.last_updated_ms()) {
        value["last-updated-ms"] = last.max(now_ms).into();
    }
    serde_json::from_value(value).unwrap()
}

/// The ids of the attempts whose snapshot an update adds.
fn carried(update: &TableUpdate) -> Option<&String> {
    match update {
        TableUpdate::AddSnapshot { snapshot } => snapshot.summary().additional_properties.get(ATTEMPT_KEY),
        _ => None,
    }
}

/// The catalog as the product reaches it.
pub struct SimCatalog {
    backend: Arc<Backend>,
    gate: Arc<Gate>,
    io: FileIO,
    journal: Arc<MemoryJournal>,
    committing: Mutex<BTreeMap<TableName, usize>>,
}

impl SimCatalog {
    pub fn new(backend: Arc<Backend>, gate: Arc<Gate>, journal: Arc<MemoryJournal>) -> Self {
        let io = backend.objects.io(Some(Arc::clone(&gate)));
        Self { backend, gate, io, journal, committing: Mutex::default() }
    }

    /// A job asks again only when every try before is known to have failed.
    fn expect_first_or_failed(&self, updates: &[TableUpdate]) {
        let Some(carried) = updates.iter().find_map(carried) else { return };
        for other in AttemptId::jobs(carried).flat_map(|job| now(self.journal.attempts(&job)).unwrap()) {
            if !other.id.made(carried) && matches!(other.state, AttemptState::Committing { .. }) {
                self.gate.wrong(format!("attempts {carried} ask while {} may have landed", other.id.0));
            }
        }
    }

    /// Every attempt that asks is journaled as one that does.
    fn expect_journaled(&self, updates: &[TableUpdate]) {
        for carried in updates.iter().filter_map(carried) {
            for attempt in AttemptId::jobs(carried).flat_map(|job| now(self.journal.attempts(&job)).unwrap()) {
                if attempt.id.made(carried) && !matches!(attempt.state, AttemptState::Committing { .. }) {
                    self.gate.wrong(format!("attempt {} asks, and the journal does not know", attempt.id.0));
                }
            }
        }
    }

    fn gone(&self, what: &str) -> Error {
        Error::unreachable("catalog `lake`", anyhow::anyhow!("{what}: connection refused"))
    }

    async fn reach(&self, call: Call, what: &str) -> Result<()> {
        let fails = self.gate.pass(call, what).await;
        if fails || self.backend.unreachable.load(Ordering::SeqCst) { Err(self.gone(what)) } else { Ok(()) }
    }

    /// What the pointer was before, now and then: a cache answers, or a server that
    /// lags. A database is read at the pointer itself.
    fn stale(&self, name: &TableName) -> Option<String> {
        let may_lag = self.backend.compares == Compares::Heads;
        let former = if may_lag && self.gate.is_stale() { self.backend.former(name) } else { None };
        if former.is_some() {
            self.gate.count("stale answers");
            self.gate.note(|| format!("  {} is shown as it was", name.table));
        }
        former
    }

    /// In a catalog of pointers the metadata file is the client's to write.
    async fn stage(
        &self,
        base: &Loaded,
        updates: &[TableUpdate],
        control: &dyn Control,
    ) -> Result<std::result::Result<(String, TableMetadata), Answer>> {
        let metadata = match self.backend.built(&base.metadata, &base.metadata_location, updates.to_vec()) {
            Ok(metadata) => metadata,
            Err(why) => return Ok(Err(Answer::Rejected(why))),
        };
        let location = self.backend.next_location(&metadata, Some(&base.metadata_location));
        control.will_write(&location).await?;
        let bytes = serde_json::to_vec(&metadata).unwrap();
        let write = async { self.io.new_output(&location)?.write(bytes.into()).await };
        write.await.map_err(|e| Error::unreachable(format!("write {location}"), e))?;
        Ok(Ok((location, metadata)))
    }

    /// As the REST client does: a conflict while the table is seen to stand still may be
    /// that of another copy of the request.
    fn believed(&self, base: &Loaded, answer: Answer) -> Answer {
        let seen = || self.stale(&base.name).or_else(|| self.backend.pointer(&base.name));
        let stands =
            self.backend.compares == Compares::Heads && answer == Answer::Moved && seen().as_ref() == Some(&base.metadata_location);
        if stands { Answer::Unknown("409, yet nothing has moved".into()) } else { answer }
    }

    fn ask(&self, request: Request, fault: usize) -> Result<Answer> {
        let lost = || Ok(Answer::Unknown("504 Gateway Timeout".into()));
        match fault {
            0 => {
                self.gate.count("answers lost");
                let answer = self.backend.apply(&request);
                self.gate.note(|| format!("  commit applied: {}, answer lost", matches!(answer, Answer::Landed(_))));
                lost()
            }
            1 => {
                self.gate.count("commits lost");
                self.gate.note(|| "  commit lost".into());
                lost()
            }
            2 => {
                self.gate.count("commits delayed");
                self.gate.note(|| "  commit delayed".into());
                hold(&self.backend.state).late.push(request);
                lost()
            }
            3 => {
                self.gate.count("commits sent twice");
                self.gate.note(|| "  commit sent twice by the transport".into());
                let _ = self.backend.apply(&request);
                Ok(self.backend.apply(&request))
            }
            4 => Ok(Answer::Moved),
            _ => Ok(self.backend.apply(&request)),
        }
    }
}

/// Counts who commits.
struct Committing<'a>(&'a SimCatalog, TableName);

impl<'a> Committing<'a> {
    fn new(catalog: &'a SimCatalog, name: &TableName) -> Self {
        let mut committing = hold(&catalog.committing);
        let count = committing.entry(name.clone()).or_default();
        *count += 1;
        if *count > 1 {
            catalog.gate.wrong(format!("two commits to {name} at one time"));
        }
        Self(catalog, name.clone())
    }
}

impl Drop for Committing<'_> {
    fn drop(&mut self) {
        if let Ok(mut committing) = self.0.committing.lock() {
            committing.remove(&self.1);
        }
    }
}

fn asserted(base: &Loaded, requirements: &[TableRequirement]) -> Asserted {
    let head = requirements.iter().find_map(|r| match r {
        TableRequirement::RefSnapshotIdMatch { r#ref, snapshot_id } => Some(AssertedHead {
            reference: r#ref.clone(),
            snapshot_id: *snapshot_id,
            sequence_number: Some(base.metadata.last_sequence_number()),
        }),
        _ => None,
    });
    Asserted { metadata_location: base.metadata_location.clone(), head }
}

#[async_trait]
impl Catalog for SimCatalog {
    fn name(&self) -> &str {
        "lake"
    }

    async fn list(&self) -> Result<Vec<Pointer>> {
        self.reach(Call::Look, "list").await?;
        let mut all = self.backend.list();
        for pointer in &mut all {
            if let Some(former) = self.stale(&pointer.name) {
                pointer.metadata_location = former;
            }
        }
        Ok(all)
    }

    async fn load(&self, name: &TableName) -> Result<Option<Loaded>> {
        self.reach(Call::Look, &name.table).await?;
        let loaded = match self.stale(name) {
            Some(former) => Some(self.backend.loaded_at(name, former, &self.io)),
            None => self.backend.loaded(name, &self.io),
        };
        // what was loaded is old by the time it arrives
        self.reach(Call::Look, &name.table).await?;
        Ok(loaded)
    }

    async fn commit(
        &self,
        base: &Loaded,
        requirements: Vec<TableRequirement>,
        updates: Vec<TableUpdate>,
        control: &dyn Control,
    ) -> Result<Answer> {
        let _one = Committing::new(self, &base.name);
        self.expect_first_or_failed(&updates);
        let (to, asserted) = match self.backend.compares {
            Compares::Pointers => {
                if requirements.iter().any(|r| r.check(Some(&base.metadata)).is_err()) {
                    return Ok(Answer::Moved);
                }
                match self.stage(base, &updates, control).await? {
                    Ok(ready) => (Some(ready), base.metadata_location.clone()),
                    Err(answer) => return Ok(answer),
                }
            }
            Compares::Heads => (None, asserted(base, &requirements).to_string()),
        };
        control.will_commit(&asserted).await?;
        self.expect_journaled(&updates);
        control.reached(KillPoint::MetadataWritten);
        let fails = self.gate.pass(Call::Commit, &base.name.table).await;
        if self.backend.unreachable.load(Ordering::SeqCst) {
            return Err(self.gone("commit"));
        }
        let fault = if fails { self.gate.dice().below(5) } else { usize::MAX };
        let request = Request { name: base.name.clone(), base: base.metadata_location.clone(), to, requirements, updates };
        let answer = self.ask(request, fault).map(|answer| self.believed(base, answer));
        self.gate.note(|| format!("  answer {answer:?}"));
        // a process may die before it hears the answer, and others may act
        let _ = self.gate.pass(Call::Look, "answer").await;
        answer
    }

    fn asserts_pointer(&self) -> bool {
        self.backend.compares == Compares::Pointers
    }

    async fn fence(&self, name: &TableName, asserted: &str) -> Result<bool> {
        if !self.backend.fences {
            return Ok(false);
        }
        self.reach(Call::Look, "fence").await?;
        if self.backend.compares == Compares::Heads || self.backend.pointer(name).as_deref() != Some(asserted) {
            return Ok(false);
        }
        self.gate.note(|| "  fenced".into());
        hold(&self.backend.state).late.retain(|late| late.base != asserted);
        Ok(true)
    }

    async fn create(&self, name: &TableName, _metadata: TableMetadata) -> Result<Loaded> {
        Err(Error::Setup(format!("the product creates {name}")))
    }
}
