//! The place that every call of the product to the world outside passes: catalog,
//! store and journal. Here others come in between, calls fail, and processes die.

use std::collections::{BTreeMap, VecDeque};
use std::future::pending;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use afterwrite::act::KillSwitch;
use afterwrite::model::killpoint::KillPoint;

use super::chance::Dice;
use super::hold;

/// What is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// List, load or glance.
    Look,
    /// A commit, before it is applied or answered.
    Commit,
    Read,
    Write,
    Delete,
    Journal,
}

/// How likely things go wrong: once in so many calls; 0 is never.
#[derive(Clone, Copy, Debug, Default)]
pub struct Trouble {
    pub look: u64,
    /// A list or a load shows what was so before.
    pub stale: u64,
    pub commit: u64,
    pub read: u64,
    pub write: u64,
    pub delete: u64,
    pub journal: u64,
    /// A process dies at a call.
    pub death: u64,
    /// A foreign writer acts at a call that looks or commits; at others much seldomer.
    pub between: u64,
}

/// What happens between two steps of the product: given by the world.
pub trait Meanwhile: Send + Sync {
    fn meanwhile(&self);
}

/// How often what happened.
pub type Tally = BTreeMap<&'static str, u64>;

pub struct Gate {
    dice: Mutex<Dice>,
    trouble: Mutex<Trouble>,
    dead: AtomicBool,
    inside: AtomicBool,
    calls: AtomicU64,
    world: Mutex<Option<Weak<dyn Meanwhile>>>,
    trace: Mutex<Trace>,
    kill_at: Mutex<Option<(KillPoint, u32)>>,
    wrong: Mutex<Vec<String>>,
    tally: Mutex<Tally>,
    /// Tells the whole trace as it comes: two runs of a seed can be compared.
    loud: bool,
}

/// What happened, as a hash of all and the words of the last.
pub struct Trace {
    pub hash: u64,
    pub tail: VecDeque<String>,
}

const TAIL: usize = 240;

impl Gate {
    pub fn new(seed: u64) -> Arc<Self> {
        Arc::new(Self {
            dice: Mutex::new(Dice::new(seed)),
            trouble: Mutex::default(),
            dead: AtomicBool::new(false),
            inside: AtomicBool::new(false),
            calls: AtomicU64::new(0),
            world: Mutex::new(None),
            trace: Mutex::new(Trace { hash: 0xcbf2_9ce4_8422_2325, tail: VecDeque::new() }),
            kill_at: Mutex::new(None),
            wrong: Mutex::default(),
            tally: Mutex::default(),
            loud: std::env::var_os("AFTERWRITE_SIM_TRACE").is_some(),
        })
    }

    pub fn join(&self, world: Weak<dyn Meanwhile>) {
        *hold(&self.world) = Some(world);
    }

    pub fn set(&self, trouble: Trouble) {
        *hold(&self.trouble) = trouble;
    }

    pub fn dice(&self) -> MutexGuard<'_, Dice> {
        hold(&self.dice)
    }

    /// Something that must never be; the run fails at its next check.
    pub fn wrong(&self, what: String) {
        hold(&self.wrong).push(what);
    }

    pub fn is_wrong(&self) -> bool {
        !hold(&self.wrong).is_empty()
    }

    pub fn take_wrong(&self) -> Option<String> {
        hold(&self.wrong).pop()
    }

    /// Counts something that a run is worth nothing without.
    pub fn count(&self, what: &'static str) {
        self.add(what, 1);
    }

    pub fn add(&self, what: &'static str, times: u64) {
        *hold(&self.tally).entry(what).or_default() += times;
    }

    pub fn tally(&self) -> Tally {
        hold(&self.tally).clone()
    }

    /// Calls so far: while it does not grow, the product is at rest.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::SeqCst)
    }

    pub fn is_dead(&self) -> bool {
        self.dead.load(Ordering::SeqCst)
    }

    /// A new process begins.
    pub fn revive(&self) {
        self.dead.store(false, Ordering::SeqCst);
        *hold(&self.kill_at) = None;
    }

    /// The process dies where it passes this point for the (n+1)th time.
    pub fn kill_at(&self, point: KillPoint, n: u32) {
        *hold(&self.kill_at) = Some((point, n));
    }

    pub fn kill_switch(self: &Arc<Self>) -> KillSwitch {
        let gate = Arc::clone(self);
        KillSwitch::calling(move |point| {
            let mut armed = hold(&gate.kill_at);
            let Some((at, left)) = armed.as_mut().filter(|(at, _)| *at == point) else { return };
            if *left > 0 {
                *left -= 1;
                return;
            }
            let at = *at;
            *armed = None;
            drop(armed);
            gate.count("deaths at a point");
            gate.note(|| format!("the process dies at {at}"));
            gate.dead.store(true, Ordering::SeqCst);
        })
    }

    /// Writes down what happened.
    pub fn note(&self, what: impl FnOnce() -> String) {
        let text = what();
        if self.loud {
            eprintln!("{text}");
        }
        let mut trace = hold(&self.trace);
        for byte in text.bytes() {
            trace.hash = (trace.hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        if trace.tail.len() == TAIL {
            trace.tail.pop_front();
        }
        trace.tail.push_back(text);
    }

    pub fn hash(&self) -> u64 {
        hold(&self.trace).hash
    }

    pub fn tail(&self) -> Vec<String> {
        hold(&self.trace).tail.iter().cloned().collect()
    }

    /// Whether a look that comes to its end shows what was so before.
    pub fn is_stale(&self) -> bool {
        let stale = hold(&self.trouble).stale;
        self.dice().one_in(stale)
    }

    /// Lets others come in between; a dead process gets no further. Whether the call
    /// fails.
    pub async fn pass(&self, call: Call, what: &str) -> bool {
        self.calls.fetch_add(1, Ordering::SeqCst);
        if self.is_dead() {
            return pending().await;
        }
        let trouble = *hold(&self.trouble);
        let (yields, between, dies, fails) = {
            let mut dice = self.dice();
            let seldom = match call {
                Call::Look | Call::Commit => trouble.between,
                Call::Read | Call::Write | Call::Delete | Call::Journal => trouble.between * 24,
            };
            let fails = match call {
                Call::Look => trouble.look,
                Call::Commit => trouble.commit,
                Call::Read => trouble.read,
                Call::Write => trouble.write,
                Call::Delete => trouble.delete,
                Call::Journal => trouble.journal,
            };
            let yields = if call == Call::Read { 0 } else { dice.below(3) };
            (yields, dice.one_in(seldom), dice.one_in(trouble.death), dice.one_in(fails))
        };
        self.note(|| format!("  {call:?} {what}{}", if fails { " fails" } else { "" }));
        for _ in 0..yields {
            tokio::task::yield_now().await;
        }
        if between && !self.inside.swap(true, Ordering::SeqCst) {
            let world = hold(&self.world).as_ref().and_then(Weak::upgrade);
            if let Some(world) = world {
                world.meanwhile();
            }
            self.inside.store(false, Ordering::SeqCst);
        }
        if fails {
            self.count(match call {
                Call::Look => "looks that fail",
                Call::Commit => "commits that go wrong",
                Call::Read => "reads that fail",
                Call::Write => "writes that fail",
                Call::Delete => "deletions that fail",
                Call::Journal => "journal entries that fail",
            });
        }
        if dies {
            self.count("deaths at a call");
            self.note(|| format!("the process dies at {call:?} {what}"));
            self.dead.store(true, Ordering::SeqCst);
        }
        if self.is_dead() {
            return pending().await;
        }
        fails
    }
}
