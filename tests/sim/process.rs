//! A process of the product: its own runtime of one thread, so that a crash leaves
//! nothing of it but what is in catalog, store and journal.

use std::sync::Arc;
use std::time::Duration;

use afterwrite::act::{self, Act, Journal, Ports, Role};
use afterwrite::app::JournalCheckpoints;
use afterwrite::decide::plan::{Cause, Order, plans};
use afterwrite::lake::Format;
use afterwrite::lake::clock::{Chance, Clock};
use afterwrite::lake::iceberg::catalog::Catalog;
use afterwrite::lake::iceberg::lake::Lake;
use afterwrite::model::ident::{MAIN, TableName};
use afterwrite::observe::inbox::Limits;
use afterwrite::observe::poll::{self, Poller};
use afterwrite::observe::{Inbox, Roster};
use afterwrite::ooda::{Loop, Parts};
use afterwrite::orient::{Orient, recompute};
use afterwrite::settings::{self, Settings};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::catalog::SimCatalog;
use super::chance::SimChance;
use super::clock::SimClock;
use super::gate::Gate;
use super::journal::SimJournal;

pub struct Process {
    pub runtime: Runtime,
    pub ooda: Arc<Loop>,
    pub act: Arc<Act>,
    pub orient: Arc<Orient>,
    inbox: Inbox,
    running: JoinHandle<()>,
    gate: Arc<Gate>,
    clock: Arc<SimClock>,
}

/// What a process is made of.
#[derive(Clone)]
pub struct Makings {
    pub gate: Arc<Gate>,
    pub clock: Arc<SimClock>,
    pub catalog: Arc<SimCatalog>,
    pub journal: Arc<SimJournal>,
    pub settings: Arc<Settings>,
    /// The seed of its chance.
    pub seed: u64,
}

type Begun = (Arc<Loop>, Arc<Act>, Arc<Orient>, Inbox, JoinHandle<()>);

/// Calls in one pump after which the product is taken to run in circles.
const CIRCLES: u64 = 100_000;

impl Process {
    /// Starts as `serve` does: enters the journal, recovers, loops. `None` when it
    /// died or could not start.
    pub fn start(makings: &Makings) -> Option<Self> {
        makings.gate.revive();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (gate, clock) = (Arc::clone(&makings.gate), Arc::clone(&makings.clock));
        let mut begun = None;
        let of = makings.clone();
        let task = runtime.spawn(async move { begin(of).await });
        let finished = runtime.block_on(async { pump(&gate, &clock, 120_000, &|| task.is_finished()).await });
        if finished && task.is_finished() {
            begun = runtime.block_on(task).unwrap();
        }
        let (ooda, act, orient, inbox, running) = begun?;
        Some(Self { runtime, ooda, act, orient, inbox, running, gate, clock })
    }

    /// Lets the product do what it does for this long. Whether it is still alive.
    pub fn pump(&self, ms: i64) -> bool {
        self.runtime.block_on(async { pump(&self.gate, &self.clock, ms, &|| false).await })
    }

    /// Ends as at a signal. Whether it came to its end.
    pub fn drain(self) -> bool {
        self.inbox.close();
        let ended = self.runtime.block_on(async { pump(&self.gate, &self.clock, 600_000, &|| self.running.is_finished()).await });
        if !ended || !self.running.is_finished() {
            return false;
        }
        let (act, orient) = (Arc::clone(&self.act), Arc::clone(&self.orient));
        let task = self.runtime.spawn(async move {
            let _ = orient.flush().await;
            let _ = act.leave().await;
        });
        self.runtime.block_on(async { pump(&self.gate, &self.clock, 1_000, &|| task.is_finished()).await })
    }
}

/// Runs all tasks, and moves the clock to each moment that somebody waits for.
/// Whether the process is still alive.
async fn pump(gate: &Gate, clock: &SimClock, ms: i64, done: &(dyn Fn() -> bool + Sync)) -> bool {
    let end = clock.now_ms() + ms;
    let most = gate.calls() + CIRCLES;
    loop {
        let (mut calm, mut seen) = (0, gate.calls());
        while calm < 4 {
            tokio::task::yield_now().await;
            if gate.is_dead() {
                return false;
            }
            if gate.is_wrong() {
                return true;
            }
            let calls = gate.calls();
            calm = if calls == seen { calm + 1 } else { 0 };
            seen = calls;
            if calls > most {
                gate.wrong(format!("{CIRCLES} calls within {ms} ms of the simulation: the product runs in circles"));
                return true;
            }
        }
        if done() {
            return true;
        }
        match clock.next_ms() {
            Some(at) if at <= end => clock.set(at.max(clock.now_ms())),
            _ if clock.now_ms() < end => clock.set(end),
            _ => return true,
        }
    }
}

async fn begin(of: Makings) -> Option<Begun> {
    let catalog: Arc<dyn Catalog> = of.catalog.clone();
    let format: Arc<dyn Format> = Arc::new(Lake::new([catalog]));
    let clock: Arc<dyn Clock> = of.clock.clone();
    let chance: Arc<dyn Chance> = Arc::new(SimChance::new(of.seed));
    let journal: Arc<dyn Journal> = of.journal.clone();
    let ports =
        Ports { format: Arc::clone(&format), journal: Arc::clone(&journal), clock: Arc::clone(&clock), chance: Arc::clone(&chance) };
    let act = Act::start(ports, Role::Serve, act::Settings::default(), of.gate.kill_switch()).await.ok()?;
    let give_up_ms = of.settings.poll.max_ms;
    let inbox = Inbox::new(Arc::clone(&clock), Limits { give_up_ms, ..Limits::default() });
    let roster = Arc::new(Roster::new(format.catalogs()));
    let orient = Arc::new(Orient::new(64 << 20, Arc::new(JournalCheckpoints(Arc::clone(&journal)))));
    let ooda = Loop::new(Parts {
        format: Arc::clone(&format),
        inbox: inbox.clone(),
        roster: Arc::clone(&roster),
        orient: Arc::clone(&orient),
        act: Arc::clone(&act),
        clock: Arc::clone(&clock),
        settings: Arc::clone(&of.settings),
    });
    let recovered = act.recover().await.ok()?;
    ooda.set_open(recovered.open.len());
    let running = {
        let ooda = Arc::clone(&ooda);
        tokio::spawn(async move { ooda.run().await })
    };
    let poll = of.settings.poll;
    let limits = poll::Limits { min_ms: poll.min_ms, max_ms: poll.max_ms, ..poll::Limits::default() };
    let (references, catalog) = (vec![MAIN.into()], "lake".into());
    let poller =
        Poller { catalog, format, inbox: inbox.clone(), roster, clock: Arc::clone(&clock), chance, limits, references, proxied: false };
    tokio::spawn(async move { poller.run(CancellationToken::new()).await });
    tokio::spawn(tend(Arc::clone(&clock), Arc::clone(&act), Arc::clone(&ooda), Arc::clone(&orient)));
    let beating = Arc::clone(&act);
    tokio::spawn(async move {
        loop {
            clock.sleep(Duration::from_secs(8)).await;
            let _ = beating.beat().await;
        }
    });
    Some((ooda, act, orient, inbox, running))
}

/// What `serve` does again and again.
async fn tend(clock: Arc<dyn Clock>, act: Arc<Act>, ooda: Arc<Loop>, orient: Arc<Orient>) {
    loop {
        clock.sleep(Duration::from_secs(30)).await;
        if let Ok(recovered) = act.recover().await {
            ooda.set_open(recovered.open.len());
        }
        let _ = orient.flush().await;
    }
}

/// `compact` by hand beside the process that serves, on the same journal.
pub async fn by_hand(of: Makings, name: TableName) {
    let catalog: Arc<dyn Catalog> = of.catalog.clone();
    let format: Arc<dyn Format> = Arc::new(Lake::new([catalog]));
    let chance: Arc<dyn Chance> = Arc::new(SimChance::new(of.seed));
    let ports = Ports { format: Arc::clone(&format), journal: of.journal.clone(), clock: of.clock.clone(), chance };
    let Ok(act) = Act::start(ports, Role::Command, act::Settings::default(), of.gate.kill_switch()).await else { return };
    let _ = act.recover().await;
    let ended = compact(&act, format.as_ref(), &of.settings, &name).await;
    of.gate.note(|| format!("compacted by hand: {ended:?}"));
    let _ = act.leave().await;
}

async fn compact(act: &Act, format: &dyn Format, settings: &Settings, name: &TableName) -> Option<Vec<String>> {
    let table = format.load(name, MAIN).await.ok()??;
    let view = table.view();
    let (policy, _) = settings::resolve(settings, name, &view.properties);
    let layout = recompute(table.as_ref(), policy.scale).await.ok()?;
    let scopes: Vec<_> = layout.partitions().iter().filter(|(_, partition)| partition.data.files > 0).map(|(key, _)| key).collect();
    let limits = &settings.budget;
    let order = Order { table: view.ident, name, reference: MAIN, policy: &policy, limits, cause: &Cause::Request };
    let mut ended = vec![];
    for scope in scopes {
        let Ok(files) = table.scope(&scope).await else { continue };
        for plan in plans(&order, &files).into_iter().flatten() {
            ended.push(act.run(&plan, None).await.verdict.note());
        }
    }
    Some(ended)
}
