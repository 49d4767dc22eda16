//! All that outlives a process; see `checks` for what must hold of it.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use afterwrite::act::MemoryJournal;
use afterwrite::lake::clock::Clock;
use afterwrite::model::ident::TableName;
use afterwrite::model::plan::{ATTEMPT_KEY, AttemptId, JobId};
use afterwrite::model::writers::Hold;
use afterwrite::ooda::lease::{Lease, Leases};
use afterwrite::settings::Settings;
use iceberg::spec::{PrimitiveType, TableMetadata, Transform};

use super::account::Account;
use super::catalog::{Backend, Compares, Landed, SimCatalog};
use super::chance::Dice;
use super::checks::{Checked, REFERENCES};
use super::clock::SimClock;
use super::foreign::Foreign;
use super::gate::{Gate, Meanwhile};
use super::hold;
use super::journal::SimJournal;
use super::model::Model;
use super::process::{Makings, Process};
use super::reader::Reader;
use super::store::Objects;
use super::{now, words};
use crate::fixture::{Manifests, Spec, Table};

pub struct World {
    pub gate: Arc<Gate>,
    pub clock: Arc<SimClock>,
    pub backend: Arc<Backend>,
    pub objects: Arc<Objects>,
    pub journal: Arc<MemoryJournal>,
    pub account: Arc<Mutex<Account>>,
    pub settings: Arc<Settings>,
    pub tables: Vec<Table>,
    /// The rows of every snapshot there ever was, by table.
    pub models: Mutex<BTreeMap<(usize, i64), Model>>,
    /// Commits of the product that landed.
    pub ours: AtomicU64,
    /// Commits of foreign writers.
    pub foreign: AtomicU64,
    /// Steps of others that were made within calls of the product.
    pub between: AtomicU64,
    state: Mutex<State>,
}

pub struct State {
    pub dice: Dice,
    pub reader: Reader,
    /// Commits of which no event is heard yet: table and snapshot.
    pub mail: Vec<(usize, i64)>,
    /// The last row made.
    pub u: i64,
    /// Files added since the run began.
    pub serial: u64,
    /// Of tables that lost a column last: the schema that has it, and how many snapshots
    /// had been made until then.
    pub dropped: BTreeMap<usize, (i32, usize)>,
    /// What was found right.
    pub checked: Checked,
    starts: u64,
}

/// A world's fixed traits, by its seed.
fn settings(dice: &mut Dice) -> String {
    let target = [4, 8, 16, 64, 1024][dice.below(5)];
    let tier = [2, 3, 4, 8][dice.below(4)];
    let cooldown = [1, 10, 60][dice.below(3)];
    let quiet = [0, 0, 0, 2][dice.below(4)];
    let job = [1, 8, 64, 1024][dice.below(4)] * target;
    let jobs = 1 + dice.below(3);
    let budget = ["0.001", "0.02", "8"][dice.below(3)];
    let commits = ["1", "4", "\"off\""][dice.below(3)];
    let [all, own] = [(); 2].map(|()| ["\"off\"", "\"off\"", "\"8KiB\"", "\"64KiB\""][dice.below(4)]);
    let tenant = [
        String::new(),
        format!("[[tenant]]\nname = \"own\"\nmatch = [\"lake.ns.t1\"]\nbytes_per_hour = {own}\nconcurrent_jobs = 1\n"),
        format!(
            "[[tenant]]\nname = \"both\"\nmatch = [\"lake.ns.*\"]\nbytes_per_hour = {own}\ngb_hours_per_hour = 0.1\ncommits_per_hour = 3\n"
        ),
    ];
    let tenant = &tenant[dice.below(3)];
    let branches = if tier < 4 { "\"main\", \"audit\"" } else { "\"main\"" };
    format!(
        "[catalog.lake]\ntype = \"sql\"\nuri = \"sqlite:///simulated.db\"\nwarehouse = \"memory:///warehouse\"\n[defaults]\nact = true\nbranches = [{branches}]\ntarget_file_size = \"{target}KiB\"\ntier_files = {tier}\ncooldown = \"{cooldown}s\"\n\
         quiet_window = \"{quiet}s\"\nmax_job_size = \"{job}KiB\"\nmemory_limit = \"64MiB\"\n\
         [budget]\nconcurrent_jobs = {jobs}\ngb_hours_per_hour = {budget}\nbytes_per_hour = {all}\n[budget.table]\ncommits_per_hour = {commits}\n[poll]\nmin = \"2s\"\nmax = \"20s\"\n{tenant}"
    )
}

fn spec(dice: &mut Dice, compares: Compares) -> Spec {
    let columns = [("id", PrimitiveType::Int), ("v", PrimitiveType::String), ("p", PrimitiveType::Int), ("u", PrimitiveType::Long)];
    let mut spec = Table::plain().columns(&columns);
    spec = match dice.below(5) {
        0 => spec,
        1 => spec.partition("id", "id_bucket", Transform::Bucket(2)),
        _ => spec.partition("p", "p", Transform::Identity),
    };
    spec = match dice.below(8) {
        0 => spec.v1(),
        1..4 => spec.v3(),
        _ => spec,
    };
    let versions = if compares == Compares::Pointers { ["2", "10", "100"][dice.below(3)] } else { "100" };
    spec.property("write.metadata.previous-versions-max", versions)
        .property("commit.manifest.min-count-to-merge", ["2", "5", "100"][dice.below(3)])
}

impl World {
    pub fn new(seed: u64) -> Arc<Self> {
        let mut dice = Dice::new(seed);
        let gate = Gate::new(dice.next());
        let clock = SimClock::new();
        let objects = Arc::new(Objects::default());
        let compares = if dice.one_in(2) { Compares::Pointers } else { Compares::Heads };
        let backend = Backend::new(Arc::clone(&objects), Arc::clone(&clock), compares, dice.one_in(2), dice.next());
        let settings = Arc::new(Settings::read(&settings(&mut dice), []).unwrap());
        let foreign = Arc::new(Foreign { backend: Arc::clone(&backend), io: objects.io(None) });
        let count = 1 + dice.below(2);
        let (mut tables, manifests) = (vec![], Arc::new(Manifests::default()));
        for (n, name) in ["t0", "t1"].into_iter().take(count).enumerate() {
            let spec = spec(&mut dice, compares);
            let name = TableName::new("lake", "ns", name);
            let mut table = now(spec.create_with(foreign.clone(), name, format!("memory:/warehouse/ns/{n}"), objects.io(None)));
            table.manifests = Some(Arc::clone(&manifests));
            tables.push(table);
        }
        let reader = Reader::new(Arc::clone(&objects), manifests);
        let state = State {
            dice,
            reader,
            mail: vec![],
            u: 0,
            serial: 0,
            dropped: BTreeMap::new(),
            checked: Checked::at(clock.now_ms()),
            starts: 0,
        };
        let world = Arc::new(Self {
            gate,
            clock,
            backend,
            objects,
            journal: Arc::default(),
            account: Arc::default(),
            settings,
            tables,
            models: Mutex::default(),
            ours: AtomicU64::new(0),
            foreign: AtomicU64::new(0),
            between: AtomicU64::new(0),
            state: Mutex::new(state),
        });
        let weak = Arc::downgrade(&world);
        world.backend.join(weak.clone());
        world.gate.join(weak);
        world
    }

    /// Somebody holds a table for some minutes, or gives it back.
    pub fn lease(&self, which: usize) {
        let (journal, now_ms) = (self.journal.as_ref(), self.clock.now_ms());
        let table = self.tables[which % self.tables.len()].name.clone();
        let for_ms = [0, 20_000, 600_000][which % 3];
        self.gate.note(|| format!("{table} is held for {for_ms} ms"));
        self.gate.add("holds", u64::from(for_ms > 0));
        let hold = Hold { by: "backfill".into(), until_ms: now_ms + for_ms };
        let _ = match for_ms {
            0 => now(Leases::release(journal, &table, None, now_ms)).map(drop),
            _ => now(Leases::take(journal, Lease { table, hold }, now_ms)),
        };
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        hold(&self.state)
    }

    pub fn index(&self, name: &TableName) -> usize {
        self.tables.iter().position(|t| t.name == *name).unwrap()
    }

    pub fn metadata(&self, table: usize) -> Arc<TableMetadata> {
        self.backend.metadata(&self.tables[table].name)
    }

    /// The rows of a snapshot; none without one.
    pub fn model(&self, table: usize, snapshot: Option<i64>) -> Model {
        snapshot.map_or_else(Model::default, |id| hold(&self.models)[&(table, id)].clone())
    }

    /// Snapshots that a table ever had.
    pub fn made(&self, table: usize) -> usize {
        hold(&self.models).range((table, i64::MIN)..=(table, i64::MAX)).count()
    }

    /// A new process; `None` when it did not come up.
    pub fn start(&self) -> Option<Process> {
        let seed = {
            let mut state = self.state();
            state.starts += 1;
            state.dice.next()
        };
        hold(&self.account).begin_anew();
        let process = Process::start(&self.makings(seed, false));
        self.gate.note(|| format!("process started: {}", process.is_some()));
        process
    }

    /// What a process is made of that serves, or that does what somebody asks by hand.
    pub fn makings(&self, seed: u64, by_hand: bool) -> Makings {
        let (gate, clock) = (Arc::clone(&self.gate), Arc::clone(&self.clock));
        let account = Arc::clone(&self.account);
        let catalog = Arc::new(SimCatalog::new(Arc::clone(&self.backend), Arc::clone(&gate), Arc::clone(&self.journal)));
        let journal = Arc::new(SimJournal::new(Arc::clone(&self.journal), Arc::clone(&gate), account, Arc::clone(&clock), by_hand));
        Makings { gate, clock, catalog, journal, settings: Arc::clone(&self.settings), seed }
    }
}

impl Landed for World {
    /// A commit of the product: every snapshot that it adds has its parent's rows, and goes to
    /// the one branch that had the parent as its head; where it only moves `main`, as an undo
    /// does, both heads have the same.
    fn landed(&self, name: &TableName, before: &TableMetadata, after: &TableMetadata) {
        let table = self.index(name);
        self.ours.fetch_add(1, Ordering::SeqCst);
        let head = before.current_snapshot_id();
        let moved = after.current_snapshot_id().filter(|id| before.snapshot_by_id(*id).is_some());
        if let Some(id) = moved.filter(|id| !self.model(table, Some(*id)).is_same(&self.model(table, head))) {
            self.gate.wrong(format!("the product set {name} from {head:?} to {id}, which has other rows"));
        }
        for snapshot in after.snapshots().filter(|s| before.snapshot_by_id(s.snapshot_id()).is_none()) {
            let id = snapshot.snapshot_id();
            let attempts = snapshot.summary().additional_properties.get(ATTEMPT_KEY);
            let jobs: Vec<JobId> = attempts.into_iter().flat_map(|carried| AttemptId::jobs(carried)).collect();
            hold(&self.account).landed(&jobs);
            (1..jobs.len()).for_each(|_| self.gate.count("rewrites that shared a snapshot"));
            let parent = snapshot.parent_snapshot_id();
            let on = |of: &TableMetadata, branch: &str| of.snapshot_for_ref(branch).map(|s| s.snapshot_id());
            let moved: Vec<&str> = REFERENCES.into_iter().filter(|branch| on(before, branch) != on(after, branch)).collect();
            if !matches!(moved[..], [branch] if on(before, branch) == parent && on(after, branch) == Some(id)) {
                self.gate.wrong(format!("snapshot {id} of {name} on {parent:?} moved {moved:?}"));
            }
            if moved == ["audit"] {
                self.gate.count("rewrites of a branch beside main");
            }
            let rows = self.model(table, parent);
            self.gate.note(|| format!("  snapshot {id} of {name} landed on {parent:?} of {moved:?}"));
            hold(&self.models).insert((table, id), rows);
        }
        // at once, as the product may go on; one that arrives late is looked at after the step
        let right = match self.state.try_lock() {
            Ok(mut state) => self.check_table(&mut state, table),
            Err(_) => Ok(()),
        };
        if let Err(wrong) = right {
            self.gate.wrong(wrong);
        }
    }
}

impl Meanwhile for World {
    fn meanwhile(&self) {
        self.gate.note(|| "  meanwhile".into());
        self.between.fetch_add(1, Ordering::SeqCst);
        // the product would take it for a panic of its own
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.write())) {
            self.gate.wrong(format!("a writer cannot go on: {}", words(panic.as_ref())));
        }
        let held = {
            let dice = &mut self.state().dice;
            dice.one_in(12).then(|| dice.below(100))
        };
        if let Some(which) = held {
            self.lease(which);
        }
    }
}
