//! A lake, a journal and a process that can die.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use afterwrite::act::{Act, JobResult, Journal, KillSwitch, MemoryJournal, Ports, Query, Recovered, Role, Settings, Verdict};
use afterwrite::model::killpoint::KillPoint;
use afterwrite::model::plan::Plan;

use super::fake::{Foreign, Lake, SimChance, SimClock};

pub struct World {
    pub lake: Lake,
    pub clock: Arc<SimClock>,
    pub journal: Arc<MemoryJournal>,
    pub chance: Arc<SimChance>,
}

/// Where a process dies: the point, and how often it is passed before.
pub type Death = Option<(KillPoint, u32)>;

impl World {
    pub fn new(files: usize) -> Self {
        let clock = Arc::new(SimClock::default());
        Self { lake: Lake::new(clock.clone(), files), clock, journal: Arc::default(), chance: Arc::default() }
    }

    pub fn settings() -> Settings {
        Settings { look_every: Duration::from_millis(500), ..Settings::default() }
    }

    pub async fn start(&self, kill: KillSwitch) -> Arc<Act> {
        let (clock, chance) = (self.clock.clone(), self.chance.clone());
        let ports = Ports { format: Arc::new(self.lake.clone()), journal: self.journal.clone(), clock, chance };
        Act::start(ports, Role::Serve, Self::settings(), kill).await.unwrap()
    }

    pub async fn act(&self) -> Arc<Act> {
        self.start(KillSwitch::default()).await
    }

    /// Runs a plan in a process of its own that dies where it is told to; `None`
    /// when it did.
    pub async fn run(&self, plan: Plan, death: Death) -> Option<JobResult> {
        let act = self.start(dying(death)).await;
        match tokio::spawn(async move { act.run(&plan, None).await }).await {
            Ok(result) => Some(result),
            Err(error) => {
                assert!(error.is_panic());
                let panic = error.into_panic();
                assert_eq!(panic.downcast_ref::<Killed>(), Some(&Killed), "a panic that is not the kill");
                None
            }
        }
    }

    /// Rows are right, live files are there, and every other file is journaled.
    pub fn check(&self) {
        self.lake.with(|s| {
            let referenced = s.referenced();
            for live in &referenced {
                assert!(s.store.contains_key(live), "live file {live} was removed");
            }
            let journaled = self.journal.all_files();
            for file in s.store.keys().filter(|f| !referenced.contains(*f)) {
                assert!(journaled.contains(file), "file {file} is unaccounted for");
            }
            if !s.is_dropped() {
                assert_eq!(s.rows(), s.expected.iter().copied().collect::<Vec<_>>());
            }
        });
    }

    /// After the trouble: a new process recovers, the table moves on, and then
    /// nothing is left open, leased or lying about.
    pub async fn settle(&self) -> Arc<Act> {
        self.check();
        self.journal.mend();
        self.clock.pass(3_600_000);
        self.lake.with(|s| {
            s.faults.clear();
            s.on_load.clear();
            s.before_commit.clear();
            s.removals_fail = 0;
        });
        let act = self.act().await;
        act.recover().await.unwrap();
        self.check();
        self.lake.with(|s| {
            s.act(Foreign::Append);
        });
        let second = act.recover().await.unwrap();
        assert_eq!(second.open, vec![]);
        // Files of a table that is gone cannot be reached; they stay journaled.
        let third = act.recover().await.unwrap();
        assert_eq!(third, Recovered { litter: second.litter, ..Default::default() }, "recovering again changes nothing");
        self.check();
        assert_eq!(self.journal.jobs(Query::Unfinished).await.unwrap(), vec![]);
        assert!(act.leases().is_empty());
        self.lake.with(|s| {
            if !s.is_dropped() {
                let referenced = s.referenced();
                let left: Vec<&String> = s.store.keys().filter(|f| !referenced.contains(*f)).collect();
                assert_eq!(left, Vec::<&String>::new(), "files are left behind");
            }
        });
        act
    }

    /// The table can still be looked after.
    pub async fn compact_again(&self, act: &Act) {
        if self.lake.with(|s| s.is_dropped()) {
            return;
        }
        let result = act.run(&self.lake.plan(usize::MAX), None).await;
        assert_eq!(result.verdict, Verdict::Committed);
        self.check();
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Killed;

pub fn dying(death: Death) -> KillSwitch {
    let Some((at, passes)) = death else {
        return KillSwitch::default();
    };
    let left = AtomicU32::new(passes);
    KillSwitch::calling(move |point| {
        if point == at && left.fetch_sub(1, Ordering::SeqCst) == 0 {
            std::panic::resume_unwind(Box::new(Killed));
        }
    })
}

/// Notes the points that are passed.
pub fn noting(seen: &Arc<Mutex<HashSet<KillPoint>>>) -> KillSwitch {
    let seen = Arc::clone(seen);
    KillSwitch::calling(move |point| {
        seen.lock().unwrap().insert(point);
    })
}
