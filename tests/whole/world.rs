//! A catalog, a journal and a process that loops.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use afterwrite::act::{self, Act, Journal, KillSwitch, MemoryJournal, Ports, Query, Role};
use afterwrite::lake::Format;
use afterwrite::lake::clock::{Clock, SystemChance, SystemClock};
use afterwrite::lake::iceberg::catalog::memory::MemoryCatalog;
use afterwrite::lake::iceberg::lake::Lake;
use afterwrite::model::decision::{Decision, Reason, Verdict};
use afterwrite::model::event::{Certainty, Door, Event};
use afterwrite::model::ident::{MAIN, TableName};
use afterwrite::observe::inbox::Limits;
use afterwrite::observe::poll::{self, Poller};
use afterwrite::observe::{Inbox, Roster};
use afterwrite::ooda::{Loop, Parts};
use afterwrite::orient::checkpoint::InMemory;
use afterwrite::orient::{Key, Orient, recompute};
use afterwrite::replay::recorder::Recorder;
use afterwrite::serve::backend::{Answer, Backend};
use afterwrite::settings::{self, Settings};
use iceberg::io::FileIO;
use tokio::task::JoinHandle;

use super::spy::{Seen, Spy};
use crate::fixture::{File, Row, Spec, Table, behind, row};
use crate::observe::HandClock;

/// Everything acts; small targets; eight small files make a tier full.
pub const ACTING: &str = "[defaults]\nact = true\ntarget_file_size = \"1MiB\"\n";

/// What outlives a process.
pub struct World {
    pub catalog: MemoryCatalog,
    pub clock: Arc<HandClock>,
    pub journal: Arc<MemoryJournal>,
    pub checkpoints: Arc<InMemory>,
    pub settings: Arc<Settings>,
    pub limits: Limits,
    /// Memory for layouts, in bytes.
    pub cache: u64,
}

/// A process.
pub struct Process {
    pub ooda: Arc<Loop>,
    pub act: Arc<Act>,
    pub inbox: Inbox,
    pub orient: Arc<Orient>,
    pub seen: Arc<Seen>,
    pub poller: Poller,
    clock: Arc<HandClock>,
    running: Option<JoinHandle<()>>,
}

impl World {
    pub fn new(toml: &str) -> Self {
        Self::over(FileIO::new_with_memory(), toml)
    }

    pub fn over(io: FileIO, toml: &str) -> Self {
        Self {
            catalog: MemoryCatalog::new("lake", io),
            clock: HandClock::at(SystemClock.now_ms()),
            journal: Arc::default(),
            checkpoints: Arc::default(),
            settings: Arc::new(Settings::read(toml, []).unwrap()),
            limits: crate::observe::free(),
            cache: 64 << 20,
        }
    }

    pub fn with_limits(self, limits: Limits) -> Self {
        Self { limits, ..self }
    }

    pub fn with_cache(self, cache: u64) -> Self {
        Self { cache, ..self }
    }

    /// A table of the catalog.
    pub async fn table(&self, spec: Spec, name: &str) -> Table {
        spec.create_in(&self.catalog, name).await
    }

    /// A process that does nothing by itself.
    pub async fn idle(&self) -> Process {
        let catalog = behind::port(&self.catalog).await;
        let seen = Arc::<Seen>::default();
        let format: Arc<dyn Format> = Arc::new(Spy { lake: Lake::new([catalog]), seen: Arc::clone(&seen) });
        let clock: Arc<dyn Clock> = self.clock.clone();
        let chance = Arc::new(SystemChance);
        let journal: Arc<dyn Journal> = self.journal.clone();
        let ports = Ports { format: Arc::clone(&format), journal, clock: Arc::clone(&clock), chance: chance.clone() };
        let act =
            Act::start(ports, Role::Serve, act::Settings { claims: self.settings.claims, ..Default::default() }, KillSwitch::default())
                .await
                .unwrap();
        let inbox = Inbox::new(Arc::clone(&clock), self.limits);
        let roster = Arc::new(Roster::new(format.catalogs()));
        let orient = Arc::new(Orient::new(self.cache, self.checkpoints.clone()));
        let ooda = Loop::new(Parts {
            format: Arc::clone(&format),
            inbox: inbox.clone(),
            roster: Arc::clone(&roster),
            orient: Arc::clone(&orient),
            act: Arc::clone(&act),
            clock: Arc::clone(&clock),
            settings: Arc::clone(&self.settings),
        });
        let poller = Poller {
            catalog: "lake".into(),
            format,
            inbox: inbox.clone(),
            roster,
            clock,
            chance,
            limits: poll::Limits::default(),
            references: vec![MAIN.into()],
            proxied: false,
        };
        Process { ooda, act, inbox, orient, seen, poller, clock: self.clock.clone(), running: None }
    }

    /// A command beside the process, on the same journal and tables.
    pub async fn command(&self) -> (Arc<Act>, Arc<Seen>) {
        let catalog = behind::port(&self.catalog).await;
        let seen = Arc::<Seen>::default();
        let format: Arc<dyn Format> = Arc::new(Spy { lake: Lake::new([catalog]), seen: Arc::clone(&seen) });
        let (clock, journal): (Arc<dyn Clock>, Arc<dyn Journal>) = (self.clock.clone(), self.journal.clone());
        let ports = Ports { format, journal, clock, chance: Arc::new(SystemChance) };
        (Act::start(ports, Role::Command, act::Settings::default(), KillSwitch::default()).await.unwrap(), seen)
    }

    /// A process that loops, and records what it decides.
    pub async fn start_recorded(&self, recorder: Recorder) -> Process {
        let process = self.idle().await;
        process.ooda.set_recorder(recorder);
        Self::run(process)
    }

    /// A process that loops.
    pub async fn start(&self) -> Process {
        Self::run(self.idle().await)
    }

    fn run(mut process: Process) -> Process {
        let ooda = Arc::clone(&process.ooda);
        process.running = Some(tokio::spawn(async move { ooda.run().await }));
        process
    }

    /// The policy of a table as the settings and its properties have it.
    pub async fn layout_is_right(&self, process: &Process, table: &Table) {
        let loaded = table.load().await;
        let (policy, _) = settings::resolve(&self.settings, &table.name, &loaded.view.properties);
        let right = recompute(&loaded, policy.scale).await.unwrap();
        let known = process.orient.state(&Key::of(&loaded.view)).await.expect("a state");
        assert_eq!(known.layout, right, "{}", table.name);
        let told = process.ooda.get_layout(&table.name, MAIN).await.unwrap();
        assert_eq!(told.snapshot_id, loaded.view.head);
        assert_eq!(told.traits.data_files, right.partitions().values().map(|p| p.data.files).sum::<u64>());
    }
}

pub fn event(name: &TableName, snapshots: &[i64], now_ms: i64) -> Event {
    Event {
        door: Door::Grpc,
        table: name.clone(),
        uuid: None,
        reference: None,
        snapshots: snapshots.to_vec(),
        certainty: Certainty::Hint,
        files_added: 0,
        heard_ms: now_ms,
    }
}

/// `count` files of one row each, ids from `from` on, and their last snapshot.
pub async fn append_small(table: &Table, from: i64, count: i64, p: i64) -> Vec<File> {
    let mut files = Vec::new();
    for id in from..from + count {
        files.push(table.append([row(id, "v", p)]).await);
    }
    files
}

pub fn rows(ids: impl IntoIterator<Item = i64>, p: i64) -> Vec<Row> {
    ids.into_iter().map(|id| row(id, "v", p)).collect()
}

pub async fn data_files(table: &Table) -> usize {
    let live = crate::fixture::oracle::live(&table.load().await).await;
    live.iter().filter(|l| l.file.content_type() == iceberg::spec::DataContentType::Data).count()
}

pub async fn snapshots(table: &Table) -> usize {
    table.load().await.view.snapshots.len()
}

impl Process {
    /// Reports the head of a table, as a writer's hook does.
    pub async fn report(&self, table: &Table) -> Answer {
        let head = table.head().await;
        self.ooda.hear(event(&table.name, &[head], self.clock.now_ms()))
    }

    /// Waits, while the clock runs on slowly, until a condition holds.
    pub async fn until(&self, what: &str, holds: impl AsyncFnMut() -> bool) {
        self.until_by(1, what, holds).await;
    }

    /// The same, with a clock that stands still.
    pub async fn while_the_clock_stands(&self, what: &str, holds: impl AsyncFnMut() -> bool) {
        self.until_by(0, what, holds).await;
    }

    /// The same, with a clock that runs on by so much at a time.
    async fn until_by(&self, ms: i64, what: &str, mut holds: impl AsyncFnMut() -> bool) {
        for _ in 0..4000 {
            if holds().await {
                return;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
            self.clock.pass(ms);
        }
        panic!("{what}: it did not come to that; rewrites {}", self.seen.rewrites());
    }

    /// Whether no job is under way and every table is known at its head.
    pub async fn knows_heads(&self, tables: &[Table]) -> bool {
        for table in tables {
            let view = table.load().await.view;
            let state = self.orient.state(&Key::of(&view)).await;
            if state.is_none_or(|state| state.layout.head() != view.head) {
                return false;
            }
        }
        self.ooda.health().jobs == 0
    }

    /// Waits until nothing is left to be done now.
    pub async fn rest(&self) {
        let mut calm = 0;
        // what waits for a round waits up to a second
        self.until_by(10, "rest", async || {
            calm = if self.ooda.is_at_rest() { calm + 1 } else { 0 };
            calm > 10
        })
        .await;
    }

    /// Moves the clock, and does not wait.
    pub fn clock_passes(&self, ms: i64) {
        self.clock.pass(ms);
    }

    /// Lets time pass, then all that came due.
    pub async fn pass(&self, ms: i64) {
        self.clock.pass(ms);
        self.rounds().await;
    }

    /// Lets two rounds be made, and what they start.
    pub async fn rounds(&self) {
        for _ in 0..2 {
            self.clock.pass(1000);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        self.rest().await;
    }

    /// Reports a table and waits until everything that follows is done.
    pub async fn look_at(&self, table: &Table) {
        self.report(table).await;
        self.rest().await;
    }

    /// The last decision on each partition.
    pub async fn decisions(&self, table: &Table) -> Vec<Decision> {
        self.ooda.why(&table.name, None).await.unwrap().into_iter().map(|e| e.decision).collect()
    }

    /// The verdict on the only partition.
    pub async fn verdict(&self, table: &Table) -> Verdict {
        let decisions = self.decisions(table).await;
        assert_eq!(decisions.len(), 1);
        decisions[0].verdict.clone()
    }

    /// Why the only partition is left alone.
    pub async fn reason(&self, table: &Table) -> Reason {
        match self.verdict(table).await {
            Verdict::Not { reason } => reason,
            other => panic!("{other:?}"),
        }
    }

    /// No job is open, no file leased, no budget set aside, no file unaccounted for.
    pub async fn nothing_is_stuck(&self, world: &World) {
        assert_eq!(world.journal.jobs(Query::Unfinished).await.unwrap(), vec![]);
        assert!(self.act.leases().is_empty());
        assert_eq!(self.ooda.health().jobs, 0);
        assert_eq!(world.journal.all_files(), BTreeSet::new());
    }

    /// Ends as `serve` does at a signal.
    pub async fn stop(mut self) {
        self.inbox.close();
        if let Some(running) = self.running.take() {
            self.until("the end", async || running.is_finished()).await;
        }
        self.orient.flush().await.unwrap();
        self.act.leave().await.unwrap();
    }
}
