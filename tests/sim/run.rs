//! One run: a seed, so many steps, and the peace afterwards.

use std::cell::Cell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::Once;
use std::sync::atomic::Ordering;

use afterwrite::act::{JobState, Journal, Kind, Pause, Query, Verdict};
use afterwrite::lake::clock::Clock;
use afterwrite::model::decision::{self, Reason};
use afterwrite::model::event::{Certainty, Door, Event};
use afterwrite::model::killpoint::KillPoint;
use afterwrite::orient::{Key, recompute};
use afterwrite::serve::backend::Backend;
use afterwrite::settings;

use super::gate::{Tally, Trouble};
use super::process::{self, Process};
use super::world::World;
use super::{now, words};

/// What a run came to.
#[derive(Clone, Debug, Default)]
pub struct Ended {
    pub hash: u64,
    pub steps: u64,
    /// Steps of others within calls of the product, beside those.
    pub between: u64,
    /// Commits of the product, and of others.
    pub ours: u64,
    pub foreign: u64,
    pub deaths: u64,
    /// Commits of which the table no longer tells whether they landed.
    pub alarms: u64,
    /// What happened else, and how often.
    pub tally: Tally,
    pub failure: Option<String>,
}

impl Ended {
    /// Takes the figures of another run in.
    pub fn add(&mut self, other: Self) {
        self.steps += other.steps;
        self.between += other.between;
        self.ours += other.ours;
        self.foreign += other.foreign;
        self.deaths += other.deaths;
        self.alarms += other.alarms;
        other.tally.into_iter().for_each(|(what, times)| *self.tally.entry(what).or_default() += times);
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { steps, between, ours, foreign, deaths, alarms, .. } = self;
        write!(
            f,
            "{steps} steps, {between} more in between, {ours} commits of ours, {foreign} of others, {deaths} deaths, {alarms} alarms"
        )?;
        self.tally.iter().try_for_each(|(what, times)| write!(f, ", {times} {what}"))
    }
}

thread_local! {
    static PANICS: Cell<u64> = const { Cell::new(0) };
}

/// Panics of the product are caught by its own loop; here they are failures.
fn count_panics() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            PANICS.with(|count| count.set(count.get() + 1));
            before(info);
        }));
    });
}

/// Runs a seed for so many steps.
pub fn run(seed: u64, steps: u64) -> Ended {
    count_panics();
    let world = World::new(seed);
    let mut ended = Ended::default();
    let done = catch_unwind(AssertUnwindSafe(|| {
        let mut run = Run { world: &world, process: None, ended: &mut ended, panics: PANICS.with(Cell::get) };
        run.live(steps)?;
        run.settle()
    }));
    ended.failure = match done {
        Ok(Ok(())) => None,
        Ok(Err(why)) => Some(why),
        Err(panic) => Some(format!("a panic: {}", words(panic.as_ref()))),
    };
    ended.tally = world.gate.tally();
    ended.hash = world.gate.hash();
    ended.between = world.between.load(Ordering::SeqCst);
    ended.ours = world.ours.load(Ordering::SeqCst);
    ended.foreign = world.foreign.load(Ordering::SeqCst);
    if let Some(why) = &mut ended.failure {
        *why = format!("{why}\n--- last of the trace:\n{}", world.gate.tail().join("\n"));
    }
    ended
}

struct Run<'a> {
    world: &'a Arc<World>,
    process: Option<Process>,
    ended: &'a mut Ended,
    panics: u64,
}

impl Run<'_> {
    fn live(&mut self, steps: u64) -> Result<(), String> {
        self.trouble();
        for step in 0..steps {
            self.ended.steps = step + 1;
            self.world.gate.note(|| format!("step {}", step + 1));
            self.step();
            self.check()?;
        }
        Ok(())
    }

    fn check(&self) -> Result<(), String> {
        if PANICS.with(Cell::get) != self.panics {
            return Err("the product panicked".into());
        }
        self.world.check()
    }

    fn step(&mut self) {
        if self.world.state().dice.one_in(8) {
            self.world.backend.unreachable.store(false, Ordering::SeqCst);
        }
        let (act, ms) = {
            let dice = &mut self.world.state().dice;
            (dice.weighted(&[36, 14, 36, 3, 4, 3, 1, 4, 1]), [0, 50, 400, 1_500, 4_000, 12_000][dice.below(6)])
        };
        match act {
            0 => self.world.write(),
            1 => self.deliver(),
            2 => self.pump(ms),
            3 => self.jump(),
            4 => self.trouble(),
            5 => self.arm(),
            6 => self.restart(),
            7 => self.operate(),
            _ => {
                self.world.backend.unreachable.store(true, Ordering::SeqCst);
                self.world.gate.note(|| "the catalog is out of reach".into());
            }
        }
    }

    /// Time passes for the product, dead or alive.
    fn pump(&mut self, ms: i64) {
        if self.process.is_none() {
            self.process = self.world.start();
        }
        let Some(process) = &self.process else { return self.bury() };
        if !process.pump(ms) {
            self.bury();
        }
    }

    /// Drops what is left of a process; the next pump starts another.
    fn bury(&mut self) {
        self.ended.deaths += 1;
        self.process = None;
    }

    /// The event door: events are lost, doubled, late, out of order and invented.
    fn deliver(&mut self) {
        let now_ms = self.world.clock.now_ms();
        let mut events = vec![];
        {
            let mut state = self.world.state();
            let mail = std::mem::take(&mut state.mail);
            for (table, snapshot) in mail {
                let what = match state.dice.below(10) {
                    0..3 => "events lost",
                    3 => {
                        state.mail.push((table, snapshot));
                        "events late"
                    }
                    4 => {
                        events.extend([(table, snapshot), (table, snapshot)]);
                        "events twice"
                    }
                    5 => {
                        events.extend([(table, 77), (table, snapshot)]);
                        "events invented"
                    }
                    _ => {
                        events.push((table, snapshot));
                        "events"
                    }
                };
                self.world.gate.count(what);
            }
            let sent = events.clone();
            for at in (1..events.len()).rev() {
                let other = state.dice.below(at + 1);
                events.swap(at, other);
            }
            self.world.gate.add("events out of order", u64::from(events != sent));
        }
        let Some(process) = &self.process else { return };
        for (table, snapshot) in events {
            let event = Event {
                door: Door::Grpc,
                table: self.world.tables[table].name.clone(),
                uuid: None,
                reference: None,
                snapshots: vec![snapshot],
                certainty: Certainty::Hint,
                files_added: 0,
                heard_ms: now_ms,
            };
            let _entered = process.runtime.enter();
            process.ooda.hear(event);
        }
    }

    /// The clock is set: minutes or days ahead, or some seconds back.
    fn jump(&mut self) {
        let ms = [60_000, 600_000, 86_400_000, -5_000, -20_000][self.world.state().dice.below(5)];
        self.world.gate.note(|| format!("the clock jumps by {ms} ms"));
        self.world.gate.count(if ms > 0 { "clocks set ahead" } else { "clocks set back" });
        self.world.clock.show(self.world.clock.now_ms() + ms);
    }

    /// How likely things fail from here on.
    fn trouble(&mut self) {
        let trouble = {
            let dice = &mut self.world.state().dice;
            let mut often = |rates: &[u64]| rates[dice.below(rates.len())];
            Trouble {
                look: often(&[0, 0, 20, 4]),
                stale: often(&[0, 0, 8, 2]),
                commit: often(&[0, 3, 1, 2]),
                read: often(&[0, 0, 200, 30]),
                write: often(&[0, 0, 60, 12]),
                delete: often(&[0, 0, 3]),
                journal: often(&[0, 0, 0, 150, 30]),
                death: often(&[0, 0, 400, 1500]),
                between: often(&[0, 8, 3, 2]),
            }
        };
        self.world.gate.note(|| format!("{trouble:?}"));
        self.world.gate.set(trouble);
    }

    /// A death at a point, or now.
    fn arm(&mut self) {
        let dice = &mut self.world.state().dice;
        if dice.one_in(4) {
            self.world.gate.note(|| "the process is killed".into());
            self.process = None;
            return;
        }
        let (point, n) = (KillPoint::ALL[dice.below(KillPoint::ALL.len())], dice.below(3) as u32);
        self.world.gate.note(|| format!("it will die at {point} {n}"));
        self.world.gate.kill_at(point, n);
    }

    fn restart(&mut self) {
        if let Some(process) = self.process.take() {
            let ended = process.drain();
            self.world.gate.note(|| format!("the process ended as asked: {ended}"));
            self.world.gate.add("restarts as asked", u64::from(ended));
        }
    }

    /// Somebody at the command line.
    fn operate(&mut self) {
        let journal = &self.world.journal;
        let (what, which) = {
            let dice = &mut self.world.state().dice;
            (dice.below(9), dice.below(100))
        };
        match what {
            0 => {
                let pause = Pause { table: None, label: "all".into(), at_ms: self.world.clock.now_ms() };
                let _ = now(journal.pause(&pause));
            }
            1 | 2 => {
                let _ = now(journal.resume(None));
            }
            3 => {
                let jobs = now(journal.jobs(Query::Unfinished)).unwrap();
                if let Some(job) = jobs.get(which % jobs.len().max(1)) {
                    self.world.gate.note(|| format!("job {} is to be stopped", job.id.0));
                    let _ = now(journal.ask_cancel(&job.id));
                }
            }
            4 | 5 => self.undo(which),
            6 => self.world.lease(which),
            _ => self.compact(which),
        }
    }

    /// `compact` by hand, beside whatever the process does.
    fn compact(&self, which: usize) {
        let Some(process) = &self.process else { return };
        let name = self.world.tables[which % self.world.tables.len()].name.clone();
        let seed = self.world.state().dice.next();
        self.world.gate.note(|| format!("{name} is to be compacted by hand"));
        self.world.gate.count("compactions by hand");
        process.runtime.spawn(process::by_hand(self.world.makings(seed, true), name));
    }

    /// Takes one of the last rewrites back, mostly the last.
    fn undo(&self, which: usize) {
        let Some(process) = &self.process else { return };
        let jobs = now(self.world.journal.jobs(Query::Latest(20))).unwrap();
        let landed: Vec<_> = jobs.iter().filter(|job| job.state == JobState::Committed && job.kind == Kind::Rewrite).collect();
        let Some(job) = landed.get(if which < 60 { 0 } else { which % landed.len().max(1) }) else { return };
        self.world.gate.note(|| format!("job {} is to be undone", job.id.0));
        let (act, id, gate) = (Arc::clone(&process.act), job.id.clone(), Arc::clone(&self.world.gate));
        process.runtime.spawn(async move {
            let undone = act.undo(&id).await;
            let verdict = undone.map(|result| result.verdict);
            gate.add("undone rewrites", u64::from(matches!(verdict, Ok(Verdict::Committed))));
            gate.note(|| format!("undo of {}: {verdict:?}", id.0));
        });
    }

    /// Peace: nothing fails, nobody writes. Then everything must come to rest.
    fn settle(&mut self) -> Result<(), String> {
        let world = self.world;
        world.gate.note(|| "peace".into());
        world.gate.set(Trouble::default());
        world.gate.revive();
        world.backend.unreachable.store(false, Ordering::SeqCst);
        let arrive = world.state().dice.one_in(2);
        if arrive {
            world.backend.apply_late();
        }
        world.backend.drop_late();
        let _ = now(world.journal.resume(None));
        self.process = None;
        self.pump(1_000);
        // a table that moves, and is an hour older, shows what became of every commit
        for _ in 0..2 {
            (0..world.tables.len()).for_each(|table| world.nudge(table));
            self.pump(45_000);
            world.clock.pass(2 * 3_600_000);
            self.pump(45_000);
            self.check()?;
        }
        self.give_up_what_cannot_be_told();
        self.fixed_point()?;
        self.nothing_is_stuck()?;
        self.layouts_are_right()?;
        self.check()
    }

    /// A table whose metadata no longer shows what became of a commit raises an
    /// alarm; somebody gives the job up by hand, and its files stay journaled.
    fn give_up_what_cannot_be_told(&mut self) {
        let journal = &self.world.journal;
        let told = |note: &str| note.contains("does not reach back") || note.contains("the history is cut");
        for job in now(journal.jobs(Query::Unfinished)).unwrap() {
            if told(&job.note) {
                self.ended.alarms += 1;
                let _ = now(journal.ask_cancel(&job.id));
            }
        }
        self.pump(45_000);
    }

    /// Without writers the layout stops changing.
    fn fixed_point(&mut self) -> Result<(), String> {
        let before = self.world.ours.load(Ordering::SeqCst);
        let files: u64 = (0..self.world.tables.len())
            .map(|table| {
                let metadata = self.world.metadata(table);
                let head = metadata.current_snapshot().cloned();
                head.map_or(0, |head| self.world.state().reader.live(&metadata, &head).unwrap().len() as u64)
            })
            .sum();
        let mut last = before;
        let mut still = 0;
        // a small budget lets some backlog wait
        for hours in [0, 0, 1, 6, 24].into_iter().cycle().take(60) {
            if still == 5 {
                break;
            }
            self.world.clock.pass(hours * 3_600_000 + 120_000);
            self.pump(25_000);
            self.check()?;
            let ours = self.world.ours.load(Ordering::SeqCst);
            still = if ours == last { still + 1 } else { 0 };
            last = ours;
            if ours - before > 2 * files + 4 {
                return Err(format!("{} rewrites of {files} files after the last writer: no end", ours - before));
            }
        }
        if still < 5 {
            return Err(format!("the layout is still being changed days after the last writer: {} rewrites", last - before));
        }
        Ok(())
    }

    fn nothing_is_stuck(&mut self) -> Result<(), String> {
        let world = self.world;
        let open = now(world.journal.jobs(Query::Unfinished)).unwrap();
        if let Some(job) = open.first() {
            return Err(format!("job {} is {} for ever: {}", job.id.0, job.state.code(), job.note));
        }
        let Some(process) = &self.process else { return Err("no process runs in peace".into()) };
        if !process.act.leases().is_empty() {
            return Err(format!("{} files are leased though nothing runs", process.act.leases().len()));
        }
        let litter = world.litter(&mut world.state())?;
        if !litter.is_empty() {
            return Err(format!("files are left that nothing accounts for: {litter:?}"));
        }
        if let Some(litter) = now(world.journal.litter()).unwrap().first() {
            return Err(format!("files of {} are never cleaned up: {:?}", litter.id.0, now(world.journal.files(&litter.id)).unwrap()));
        }
        Ok(())
    }

    /// What is known of each table is what a look from scratch finds; no partition
    /// is refused.
    fn layouts_are_right(&mut self) -> Result<(), String> {
        let Some(process) = &self.process else { return Ok(()) };
        for table in &self.world.tables {
            let loaded = now(table.load());
            let (policy, _) = settings::resolve(&self.world.settings, &table.name, &loaded.view.properties);
            let known = process.runtime.block_on(process.orient.state(&Key::of(&loaded.view)));
            let right = process.runtime.block_on(recompute(&loaded, policy.scale)).map_err(|e| e.to_string())?;
            match known {
                Some(known) if known.layout == right => {}
                Some(_) => return Err(format!("{}: the layout known is not the layout there is", table.name)),
                None => return Err(format!("{}: no layout is known", table.name)),
            }
            let decisions = process.runtime.block_on(process.ooda.why(&table.name, None)).map_err(|e| e.to_string())?;
            for explained in decisions {
                if let decision::Verdict::Not { reason: Reason::Refused(refused) } = &explained.decision.verdict {
                    return Err(format!("{}: {} is refused: {refused:?}", table.name, explained.decision.scope));
                }
            }
        }
        Ok(())
    }
}
