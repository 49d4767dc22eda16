//! Act: carries a plan out, guarded at every step.
//!
//! A job is leased, journaled, validated, written, proven, committed, and closed;
//! whatever stops it in between is closed by [`Act::recover`].

mod active;
pub mod attempt;
pub mod backoff;
mod claim;
mod close;
mod commit;
pub mod control;
mod courtesy;
pub mod job;
mod join;
pub mod journal;
pub mod lease;
pub mod process;
mod recover;
mod undo;

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

pub use attempt::{Attempt, AttemptState};
pub use control::{KillSwitch, Progress, Watcher};
pub use courtesy::{Courtesy, Holds};
pub use job::{Job, JobResult, JobState, Kind, Numbers, Verdict};
pub use journal::{Holder, Journal, MemoryJournal, Pause, Pauses, Query, Role, Spent, SqliteJournal};
pub use recover::{Recovered, interrupted};
pub use undo::NotUndone;

use crate::lake::clock::{Chance, Clock};
use crate::lake::{Error, Format, Table, Written};
use crate::model::estimate::Estimate;
use crate::model::ident::beside_main;
use crate::model::killpoint::KillPoint;
use crate::model::outcome::Conflict;
use crate::model::plan::{AttemptId, JobId, Plan};

use active::Active;
use attempt::Loss;
use commit::Effort;
use control::{Stop, Watch};
use job::{REQUEST, gb_hours, new_id};
use join::Offers;
use journal::Step;
use lease::Leases;

/// How long things may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Tries to commit end after this time; so does the removal of what a job left.
    pub commit_for: Duration,
    /// An unknown outcome is looked at for this long before it is left to recovery;
    /// for half of it before it is shut out.
    pub resolve_for: Duration,
    /// The first wait between tries.
    pub wait: Duration,
    /// The longest wait between tries.
    pub longest_wait: Duration,
    /// How often the journal is asked for a wish to stop a running job.
    pub look_every: Duration,
    /// A job that must stop is dropped after so many looks.
    pub grace_looks: u32,
    /// A process without a sign of life for this long is dead.
    pub holder_ttl: Duration,
    /// Whether a table is claimed before it is rewritten, since other sidecars, with
    /// journals of their own, act in the same catalogs.
    pub claims: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            commit_for: Duration::from_secs(120),
            resolve_for: Duration::from_secs(60),
            wait: Duration::from_millis(100),
            longest_wait: Duration::from_secs(10),
            look_every: Duration::from_secs(1),
            grace_looks: 30,
            holder_ttl: Duration::from_secs(30),
            claims: false,
        }
    }
}

/// What acting needs of the world.
#[derive(Clone)]
pub struct Ports {
    /// The tables.
    pub format: Arc<dyn Format>,
    /// The journal.
    pub journal: Arc<dyn Journal>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Randomness.
    pub chance: Arc<dyn Chance>,
}

/// Carries plans out. One a process.
pub struct Act {
    format: Arc<dyn Format>,
    journal: Arc<dyn Journal>,
    clock: Arc<dyn Clock>,
    chance: Arc<dyn Chance>,
    settings: Settings,
    kill: KillSwitch,
    leases: Leases,
    offers: Offers,
    halting: AtomicBool,
    left: AtomicBool,
    active: Arc<Active>,
    courtesy: OnceLock<Box<Courtesy>>,
    holds: OnceLock<Box<dyn Holds>>,
    instance: String,
    holder: Holder,
}

/// A job under way, marked as such until it is dropped.
struct Work {
    job: Job,
    stop: Arc<Stop>,
    numbers: Numbers,
    attempt: Option<AttemptId>,
    /// The table as it was last loaded: what is lost is removed through it.
    table: Option<Arc<dyn Table>>,
    /// Whether the last try was one with others.
    shared: bool,
    /// Whether it is tried without others from now on.
    alone: bool,
    active: Arc<Active>,
}

impl Work {
    /// Goes on with a fresh load of the table.
    fn turn_to(&mut self, table: &Arc<dyn Table>) {
        self.count_requests();
        self.table = Some(Arc::clone(table));
    }

    /// Adds what was asked through the load at hand; to be done once for each.
    fn count_requests(&mut self) {
        if let Some(table) = &self.table {
            self.numbers.requests = self.numbers.requests.and(table.requests());
        }
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        self.active.remove(&self.job.id);
    }
}

impl Act {
    /// Enters this process in the journal. Errs when it would serve and another
    /// process does.
    pub async fn start(ports: Ports, role: Role, settings: Settings, kill: KillSwitch) -> journal::Result<Arc<Self>> {
        let Ports { format, journal, clock, chance } = ports;
        let fresh = |chance: &dyn Chance| format!("{:016x}", chance.next());
        let instance = journal.instance(&fresh(chance.as_ref())).await?;
        let holder = Holder { id: fresh(chance.as_ref()), role, host: process::host(), pid: process::pid(), beat_ms: clock.now_ms() };
        let leases = Leases::default();
        let act = Self {
            format,
            journal,
            clock,
            chance,
            settings,
            kill,
            leases,
            offers: Offers::default(),
            halting: AtomicBool::new(false),
            left: AtomicBool::new(false),
            active: Arc::default(),
            courtesy: OnceLock::new(),
            holds: OnceLock::new(),
            instance,
            holder,
        };
        let dead = act.dead_holders().await?;
        act.journal.claim(&act.holder, &dead).await?;
        Ok(Arc::new(act))
    }

    /// The lasting id of this instance, as its snapshots carry it.
    pub fn instance(&self) -> &str {
        &self.instance
    }

    /// The leases of this process.
    pub fn leases(&self) -> &Leases {
        &self.leases
    }

    /// The journal.
    pub fn journal(&self) -> &Arc<dyn Journal> {
        &self.journal
    }

    /// A sign of life; due well within `holder_ttl` while the process serves. One that
    /// was only slow, and was taken for dead, is entered anew. Errs with
    /// [`journal::Error::Held`] when it would serve and another process does by now.
    pub async fn beat(&self) -> journal::Result<()> {
        let beat_ms = self.clock.now_ms();
        if self.left.load(Ordering::Relaxed) || self.journal.beat(&self.holder.id, beat_ms).await? {
            return Ok(());
        }
        let dead = self.dead_holders().await?;
        self.journal.claim(&Holder { beat_ms, ..self.holder.clone() }, &dead).await
    }

    /// Asks every job of this process to stop, those too that are yet to begin. Each
    /// ends as one that is cancelled by hand does, but for a commit of which nobody
    /// knows whether it landed: that one is looked for by the next recovery, since
    /// nobody has decided to give it up.
    pub fn halt(&self) {
        self.halting.store(true, Ordering::Relaxed);
    }

    /// Whether a job was asked to stop, by hand or with the process.
    pub(crate) async fn is_asked_to_stop(&self, job: &JobId) -> bool {
        self.halting.load(Ordering::Relaxed) || self.journal.is_cancelled(job).await.unwrap_or(false)
    }

    /// Leaves the journal, so that a successor need not wait.
    pub async fn leave(&self) -> journal::Result<()> {
        self.left.store(true, Ordering::Relaxed);
        self.journal.release(&self.holder.id).await
    }

    /// Carries a plan out, to its end.
    ///
    /// Invariants checked: no input is in another job; the plan fits a fresh
    /// load before a byte is read; every file is journaled before it is begun;
    /// the outputs are proven before the catalog is asked; files go only with a
    /// proof that they are in no table.
    ///
    /// It ends whether or not the catalog and the store answer: each call of theirs is
    /// given up with the job's bound and a grace after it, and those that follow on the
    /// bound after a time of their own.
    ///
    /// A crash, or a dropped future, at any point leaves a job that
    /// [`Act::recover`] closes.
    pub async fn run(&self, plan: &Plan, watcher: Option<Watcher>) -> JobResult {
        self.run_estimated(plan, None, watcher).await
    }

    /// [`Act::run`], with what it is expected to do, which is journaled beside what it does.
    pub async fn run_estimated(&self, plan: &Plan, estimate: Option<Estimate>, watcher: Option<Watcher>) -> JobResult {
        let Some(_lease) = self.leases.take(plan) else {
            return JobResult::unstarted(plan, Verdict::Busy);
        };
        let mut work = match self.admit(plan, watcher).await {
            Ok(Ok(work)) => work,
            Ok(Err(verdict)) => return JobResult::unstarted(plan, verdict),
            Err(error) => return JobResult::unstarted(plan, Verdict::Failed { error: format!("journal: {error}") }),
        };
        work.numbers.estimate = estimate;
        let done = self.carry_out(&mut work).await;
        self.settle(work, done).await
    }

    /// What stands in the way, or the journaled job.
    async fn admit(&self, plan: &Plan, watcher: Option<Watcher>) -> journal::Result<Result<Work, Verdict>> {
        if plan.reason != REQUEST && self.journal.pauses().await?.holds(&plan.table) {
            return Ok(Err(Verdict::Paused));
        }
        Ok(self.request(plan.clone(), Kind::Rewrite, watcher).await?.ok_or(Verdict::Busy))
    }

    /// Journals a new job; `None` when another process' job has one of its inputs.
    async fn request(&self, plan: Plan, kind: Kind, watcher: Option<Watcher>) -> journal::Result<Option<Work>> {
        // who is not entered leases nothing
        self.beat().await?;
        let dead = self.dead_holders().await?;
        let now = self.clock.now_ms();
        let id = new_id(self.clock.as_ref(), self.chance.as_ref());
        let numbers = Numbers {
            files_in: u64::try_from(plan.inputs.len()).unwrap_or(u64::MAX),
            bytes_in: plan.input_bytes(),
            gb_hours_bound: plan.bound.gb_hours,
            branch: beside_main(&plan.reference).map_or_else(String::new, |branch| branch.to_string()),
            ..Numbers::default()
        };
        let stop = Arc::new(Stop::new(id.clone(), self.clock.elapsed_ms(), plan.bound.millis, watcher));
        let job = Job {
            id,
            kind,
            plan,
            state: JobState::Requested,
            holder: self.holder.id.clone(),
            requested_ms: now,
            changed_ms: now,
            cancel: false,
            note: "requested".into(),
            numbers: numbers.clone(),
        };
        self.active.enter(&job, &stop);
        let work = Work { job, stop, numbers, attempt: None, table: None, shared: false, alone: false, active: Arc::clone(&self.active) };
        if !self.journal.request(&work.job, &dead).await? {
            return Ok(None);
        }
        self.kill.reached(KillPoint::Requested);
        Ok(Some(work))
    }

    /// From the journaled request to the snapshot.
    async fn carry_out(&self, work: &mut Work) -> Result<i64, Verdict> {
        let table = self.dequeue(work).await?;
        let table = self.claim(work, table).await?;
        self.advance(work, JobState::Inflight, "inflight").await?;
        let outputs = attempt::id(&work.job.id, 0);
        self.begin(work, &outputs, 0).await?;
        self.kill.reached(KillPoint::Inflight);
        let began = self.clock.elapsed_ms();
        let written = Arc::new(self.write(work, table.as_ref(), &outputs).await?);
        work.numbers.rewrite_millis = self.since(began);
        self.disown_spares(work, &outputs, &written).await?;
        self.kill.reached(KillPoint::Written);
        let began = self.clock.elapsed_ms();
        let proof = self.read_until_stopped(&work.stop, table.verify(&work.job.plan, &written)).await;
        work.numbers.proof_millis = self.since(began);
        work.numbers.proof = Some(proof.map_err(|e| self.halted(work, e))?);
        self.journal.step(&self.holder.id, &outputs, &AttemptState::Verified).await.map_err(journal_failed)?;
        self.kill.reached(KillPoint::Verified);
        work.stop.proven();
        self.give_way(work).await?;
        let began = self.clock.elapsed_ms();
        let landed = self.land(work, &Effort::Rewrite { written: &written }).await;
        work.numbers.commit_millis = self.since(began);
        if landed.is_ok() {
            work.numbers.deletes_carried = work.stop.carried.load(Ordering::Relaxed);
        }
        landed
    }

    /// Milliseconds since then, by the clock that nobody sets.
    fn since(&self, began_ms: i64) -> i64 {
        self.clock.elapsed_ms().saturating_sub(began_ms).max(0)
    }

    /// Validates the plan on a fresh load, before a byte of data is read.
    async fn dequeue(&self, work: &mut Work) -> Result<Arc<dyn Table>, Verdict> {
        let table = self.read(&work.stop, self.load(&work.job.plan)).await.map_err(|e| self.halted(work, e))?;
        let table = table.ok_or(Verdict::Dropped { conflict: Conflict::TableGone })?;
        work.turn_to(&table);
        let plan = &work.job.plan;
        work.numbers.partition = table.view().partition_name(&plan.scope);
        if let Some(refused) = table.view().refused.first() {
            return Err(Verdict::Refused { refused: refused.clone() });
        }
        let scope = self.read(&work.stop, table.scope(&plan.scope)).await.map_err(|e| self.halted(work, e))?;
        match plan.check(&scope) {
            Ok(()) => Ok(table),
            Err(conflict @ Conflict::DeletesChanged { .. }) => Err(Verdict::Replan { conflict, max_bytes: None }),
            Err(conflict) => Err(Verdict::Dropped { conflict }),
        }
    }

    /// The plan's table, fresh; `None` when it is gone or another one stands
    /// under its name.
    async fn load(&self, plan: &Plan) -> Result<Option<Arc<dyn Table>>, Error> {
        let table = self.format.load(&plan.name, &plan.reference).await?;
        Ok(table.filter(|t| t.view().ident == plan.table))
    }

    /// Writes the outputs.
    async fn write(&self, work: &mut Work, table: &dyn Table, outputs: &AttemptId) -> Result<Written, Verdict> {
        let watch = Watch::new(self, &work.stop, outputs, true);
        let written = self.watched(&work.stop, table.rewrite(&work.job.plan, outputs, &watch)).await;
        let written = match written {
            Ok(written) => written,
            Err(error) => {
                work.numbers.wasted_bytes = work.stop.bytes_read.load(Ordering::Relaxed);
                return Err(self.halted(work, error));
            }
        };
        let numbers = &mut work.numbers;
        numbers.path = Some(written.path);
        numbers.path_reason.clone_from(&written.path_reason);
        numbers.files_out = u64::try_from(written.outputs.len()).unwrap_or(u64::MAX);
        numbers.bytes_out = written.outputs.iter().map(|o| o.bytes).sum();
        numbers.rows_out = written.outputs.iter().map(|o| o.records).sum();
        numbers.rows_in = written.rows_in;
        numbers.rows_deleted = written.rows_deleted;
        numbers.bytes_read = written.bytes_read;
        Ok(written)
    }

    /// Parts the files that the rewrite named and did not hand over from the
    /// outputs, so that they go even when the outputs land.
    ///
    /// Invariant checked: every output was named, in the same spelling; without
    /// that an output could be taken for a spare.
    async fn disown_spares(&self, work: &Work, outputs: &AttemptId, written: &Written) -> Result<(), Verdict> {
        let named = self.journal.files(outputs).await.map_err(journal_failed)?;
        if let Some(unnamed) = written.outputs.iter().find(|o| !named.contains(&o.path)) {
            return Err(Verdict::Failed { error: format!("the rewrite made {} without naming it first", unnamed.path) });
        }
        let handed: HashSet<&str> = written.outputs.iter().map(|o| o.path.as_str()).collect();
        let spares: Vec<String> = named.into_iter().filter(|path| !handed.contains(path.as_str())).collect();
        if spares.is_empty() {
            return Ok(());
        }
        let spare = Attempt {
            id: attempt::spare_id(&work.job.id),
            job: work.job.id.clone(),
            number: attempt::SPARE,
            state: AttemptState::Lost { loss: Loss::NeverAsked },
        };
        self.journal.begin(&self.holder.id, &spare).await.map_err(journal_failed)?;
        self.journal.move_files(outputs, &spare.id, &spares).await.map_err(journal_failed)
    }

    async fn begin(&self, work: &mut Work, id: &AttemptId, number: u32) -> Result<(), Verdict> {
        let attempt = Attempt { id: id.clone(), job: work.job.id.clone(), number, state: AttemptState::Writing };
        self.journal.begin(&self.holder.id, &attempt).await.map_err(journal_failed)?;
        work.attempt = Some(id.clone());
        Ok(())
    }

    async fn advance(&self, work: &mut Work, to: JobState, note: &str) -> Result<(), Verdict> {
        let step = Step { holder: &self.holder.id, job: &work.job.id, to, at_ms: self.clock.now_ms(), note, numbers: Some(&work.numbers) };
        self.journal.advance(step).await.map_err(journal_failed)?;
        work.job.state = to;
        Ok(())
    }

    /// The result, and the journal's last word on the job.
    async fn settle(&self, mut work: Work, done: Result<i64, Verdict>) -> JobResult {
        let millis = self.since(work.stop.began_ms);
        let bound = work.job.plan.bound;
        work.numbers.millis = millis;
        work.numbers.gb_hours = gb_hours(bound.memory, millis);
        work.numbers.peak_memory = process::peak_memory();
        work.count_requests();
        let lost = matches!(&done, Err(verdict) if !matches!(verdict, Verdict::Unresolved { .. }));
        if lost && work.numbers.wasted_bytes == 0 {
            work.numbers.wasted_bytes = work.numbers.bytes_out;
        }
        let verdict = match done {
            Ok(snapshot_id) => {
                work.numbers.snapshot_id = Some(snapshot_id);
                Verdict::Committed
            }
            Err(verdict) => verdict,
        };
        let verdict = self.close(&work, verdict).await;
        JobResult {
            job: Some(work.job.id.clone()),
            attempt: work.attempt.clone(),
            table: work.job.plan.name.clone(),
            scope: work.job.plan.scope.clone(),
            reason: work.job.plan.reason.clone(),
            verdict,
            numbers: work.numbers.clone(),
        }
    }

    /// What an error means for the job.
    fn halted(&self, work: &Work, error: Error) -> Verdict {
        match error {
            Error::Refused(refused) => Verdict::Refused { refused },
            Error::NotFound { path } => Verdict::Dropped { conflict: Conflict::InputGone { files: vec![path] } },
            Error::Proof(_) => {
                tracing::error!(job = work.job.id.0, table = %work.job.plan.name, %error, "a rewrite was not proven");
                Verdict::Disproved { error: error.to_string() }
            }
            Error::Stopped(_) if work.stop.is_cancelled() => Verdict::Cancelled,
            Error::Stopped(_) => match work.stop.overtaken() {
                Some(conflict) => Verdict::Dropped { conflict: conflict.clone() },
                None => Verdict::Stopped { error: error.to_string() },
            },
            Error::Unreachable { what, source } => Verdict::Unreachable { error: format!("{what}: {source:#}") },
            Error::Setup(_) | Error::Journal(_) => Verdict::Failed { error: error.to_string() },
        }
    }
}

fn journal_failed(error: journal::Error) -> Verdict {
    Verdict::Failed { error: format!("journal: {error}") }
}
