//! A catalog in memory, with the semantics of the SQL ones and with switches that
//! make it fail in every way in which a catalog can.
//!
//! For simulations and tests: no engine can reach it. Clones share their state, so
//! that several writers see one catalog.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use futures::future::BoxFuture;
use iceberg::io::FileIO;
use iceberg::spec::TableMetadata;
use iceberg::{TableRequirement, TableUpdate};

use super::stage::{Staged, stage};
use super::{Answer, Catalog, Loaded, metadata_file};
use crate::lake::clock::{Chance, SystemChance};
use crate::lake::iceberg::store::Store;
use crate::lake::iceberg::table::glance::Glance;
use crate::lake::{Control, Error, Glanced, Pointer, Result};
use crate::model::ident::TableName;

/// How the next commit is answered. It is staged like any other before: its
/// metadata file exists, and `control` knows of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Applied, but answered with unknown.
    AppliedThenUnknown,
    /// Not applied, and answered with unknown.
    UnknownNotApplied,
    /// Answered with unknown; applied at [`MemoryCatalog::apply_late`], if the
    /// pointer is still the asserted one then.
    UnknownAppliedLater,
    /// Not applied: somebody else was faster.
    Moved,
    /// Not applied: refused for this reason.
    Rejected(String),
    /// Not applied: the catalog cannot be reached.
    Unreachable,
}

/// How often the catalog was asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Lists.
    pub lists: u64,
    /// Loads, of missing tables too.
    pub loads: u64,
    /// Swaps asked for.
    pub commits: u64,
}

/// Runs between a commit's staging and its swap.
pub type Hook = Arc<dyn Fn(&TableName) -> BoxFuture<'static, ()> + Send + Sync>;

/// See the module.
#[derive(Clone)]
pub struct MemoryCatalog {
    name: String,
    io: FileIO,
    chance: Arc<dyn Chance>,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    pointers: BTreeMap<TableName, String>,
    faults: VecDeque<Fault>,
    late: Vec<Swap>,
    unreachable: bool,
    hook: Option<Hook>,
    counts: Counts,
}

struct Swap {
    name: TableName,
    from: String,
    to: String,
}

impl State {
    /// Moves a pointer, if it is still where the swap asserts.
    fn apply(&mut self, swap: &Swap) -> bool {
        match self.pointers.get_mut(&swap.name) {
            Some(pointer) if *pointer == swap.from => {
                pointer.clone_from(&swap.to);
                true
            }
            _ => false,
        }
    }
}

impl MemoryCatalog {
    /// An empty catalog whose tables' files are reached through `io`.
    pub fn new(name: &str, io: FileIO) -> Self {
        Self::with_chance(name, io, Arc::new(SystemChance))
    }

    /// The same with the random numbers of a simulation.
    pub fn with_chance(name: &str, io: FileIO, chance: Arc<dyn Chance>) -> Self {
        Self { name: name.into(), io, chance, state: Arc::default() }
    }

    /// Access to the files of its tables.
    pub fn io(&self) -> &FileIO {
        &self.io
    }

    /// Adds a fault to those waiting; each serves one commit.
    pub fn fail_next(&self, fault: Fault) {
        self.state().faults.push_back(fault);
    }

    /// Lets every commit that waits for it arrive, in the order asked, and gives how
    /// many were applied.
    pub fn apply_late(&self) -> usize {
        let mut state = self.state();
        let late = std::mem::take(&mut state.late);
        late.iter().filter(|swap| state.apply(swap)).count()
    }

    /// Whether lists, loads and commits fail as if no server were there.
    pub fn set_unreachable(&self, unreachable: bool) {
        self.state().unreachable = unreachable;
    }

    /// Sets what runs between staging and swap of every commit, or nothing.
    pub fn before_swap(&self, hook: Option<Hook>) {
        self.state().hook = hook;
    }

    /// How often it was asked.
    pub fn counts(&self) -> Counts {
        self.state().counts
    }

    /// Forgets a table; its files stay. Whether there was one.
    pub fn drop_table(&self, name: &TableName) -> bool {
        self.state().pointers.remove(name).is_some()
    }

    /// Gives a table another name, as a catalog's rename does. Whether there was one
    /// and the new name was free.
    pub fn rename(&self, from: &TableName, to: &TableName) -> bool {
        let mut state = self.state();
        if state.pointers.contains_key(to) {
            return false;
        }
        let Some(pointer) = state.pointers.remove(from) else { return false };
        state.pointers.insert(to.clone(), pointer);
        true
    }

    /// Points a name at a metadata file that is there already.
    pub fn register(&self, name: &TableName, metadata_location: &str) {
        self.state().pointers.insert(name.clone(), metadata_location.into());
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn reach(&self, count: fn(&mut Counts) -> &mut u64) -> Result<MutexGuard<'_, State>> {
        let mut state = self.state();
        *count(&mut state.counts) += 1;
        if state.unreachable { Err(self.gone()) } else { Ok(state) }
    }

    fn gone(&self) -> Error {
        Error::unreachable(format!("catalog `{}`", self.name), anyhow::anyhow!("it is set unreachable"))
    }

    /// The swap, or the fault that waits for it.
    fn swap(&self, swap: Swap) -> Result<Answer> {
        let mut state = self.reach(|c| &mut c.commits)?;
        let landed = |applied, swap: Swap| if applied { Answer::Landed(swap.to) } else { Answer::Moved };
        let unknown = || Answer::Unknown("the answer was lost".into());
        Ok(match state.faults.pop_front() {
            None => landed(state.apply(&swap), swap),
            Some(Fault::AppliedThenUnknown) => {
                state.apply(&swap);
                unknown()
            }
            Some(Fault::UnknownNotApplied) => unknown(),
            Some(Fault::UnknownAppliedLater) => {
                state.late.push(swap);
                unknown()
            }
            Some(Fault::Moved) => Answer::Moved,
            Some(Fault::Rejected(reason)) => Answer::Rejected(reason),
            Some(Fault::Unreachable) => return Err(self.gone()),
        })
    }
}

#[async_trait]
impl Catalog for MemoryCatalog {
    fn name(&self) -> &str {
        &self.name
    }

    async fn list(&self) -> Result<Vec<Pointer>> {
        let state = self.reach(|c| &mut c.lists)?;
        let pointer = |(name, location): (&TableName, &String)| Pointer { name: name.clone(), metadata_location: location.clone() };
        Ok(state.pointers.iter().map(pointer).collect())
    }

    async fn load(&self, name: &TableName) -> Result<Option<Loaded>> {
        let pointer = self.reach(|c| &mut c.loads)?.pointers.get(name).cloned();
        let Some(metadata_location) = pointer else { return Ok(None) };
        let bytes = Store::new(&self.io).read(&metadata_location).await?;
        let metadata = Arc::new(metadata_file::decode(&bytes, &metadata_location)?);
        Ok(Some(Loaded { name: name.clone(), metadata_location, metadata, io: self.io.clone(), fence: None }))
    }

    fn reads_metadata(&self) -> bool {
        true
    }

    async fn glance_since(&self, name: &TableName, reference: &str, known: Option<&str>) -> Result<Glanced<Glance>> {
        let pointer = self.reach(|c| &mut c.loads)?.pointers.get(name).cloned();
        match pointer {
            Some(location) if known == Some(&location) => Ok(Glanced::Same),
            Some(location) => Glance::read(&self.io, name, location, reference).await.map(Glanced::At),
            None => Ok(Glanced::Gone),
        }
    }

    async fn commit(
        &self,
        base: &Loaded,
        requirements: Vec<TableRequirement>,
        updates: Vec<TableUpdate>,
        control: &dyn Control,
    ) -> Result<Answer> {
        let to = match stage(base, &requirements, updates, self.chance.as_ref(), control).await? {
            Staged::Ready(location) => location,
            Staged::Answered(answer) => return Ok(answer),
        };
        let hook = self.state().hook.clone();
        if let Some(hook) = hook {
            hook(&base.name).await;
        }
        self.swap(Swap { name: base.name.clone(), from: base.metadata_location.clone(), to })
    }

    async fn create(&self, name: &TableName, metadata: TableMetadata) -> Result<Loaded> {
        let location = metadata_file::next_location(&metadata, None, self.chance.as_ref());
        let bytes = metadata_file::encode(&metadata).map_err(|why| Error::Setup(format!("create {name}: {why}")))?;
        Store::new(&self.io).write(&location, bytes.into()).await?;
        let mut state = self.state();
        if state.pointers.contains_key(name) {
            return Err(Error::Setup(format!("create {name}: the table exists")));
        }
        state.pointers.insert(name.clone(), location.clone());
        Ok(Loaded { name: name.clone(), metadata_location: location, metadata: Arc::new(metadata), io: self.io.clone(), fence: None })
    }
}
