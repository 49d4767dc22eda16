//! `compact`: a table's partitions, some at a time, at request.

use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures::stream::{self, StreamExt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::task::AbortOnDropHandle;

use crate::act::job::seconds;
use crate::act::{Act, Holds, JobResult, Journal, Pause, Progress as Done, Role, SqliteJournal, Verdict, Watcher};
use crate::app::App;
use crate::cli::args::Compact;
use crate::cli::progress::Progress;
use crate::cli::show::{CompactJob, CompactRow};
use crate::cli::{Exit, show};
use crate::lake::clock::Clock;
use crate::lake::{Error, Table};
use crate::model::plan::Plan;
use crate::model::table::TableView;
use crate::settings::{Settings, resolve};

use super::scopes::{Found, Scoped, foresee, scopes};
use super::signals::Signals;
use super::{Failure, exit_of, load, policy, recover, told};

/// Between two looks at the table while its jobs are under way.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Compacts every partition that gains by it, and tells of each when it has ended,
/// in their order. What a dead process left open is closed first, so that it neither
/// stays behind nor stands in the way.
pub async fn run(app: &App, args: &Compact, json: bool) -> Result<Exit, Failure> {
    let signals = Signals::listen("stopping: the jobs under way are cancelled")?;
    let (mut found, mut open) = (None, false);
    if !args.dry_run {
        // what is read meanwhile holds where nothing had to be closed
        let (recovered, ahead) = tokio::join!(recover(app), read_unless(app, args, &signals));
        let recovered = recovered?;
        open = !recovered.open.is_empty();
        found = Some(ahead).filter(|_| recovered == Default::default());
    }
    let found = match found {
        Some(found) => found,
        None => read_unless(app, args, &signals).await,
    };
    let (table, scopes) = match found? {
        Ok(found) => found,
        Err(exit) => return Ok(exit),
    };
    let mut teller = Teller { json, rows: Vec::new(), exit: Exit::Done };
    let view = table.view();
    if args.dry_run {
        let foreseen = tokio::select! {
            foreseen = foresee(table.as_ref(), &scopes) => foreseen,
            exit = signals.asked() => return Ok(exit),
        };
        for (scoped, stops) in scopes.iter().zip(&foreseen) {
            let (row, exit) = begun(view, scoped);
            let jobs: Vec<_> = scoped.plans().iter().zip(stops).map(|(plan, stop)| planned(plan, stop.as_ref())).collect();
            let exit = jobs.iter().map(|j| j.exit).chain(exit).max().unwrap_or(Exit::Done);
            teller.tell(row.of(jobs), exit)?;
        }
        teller.end()?;
        return Ok(teller.exit);
    }
    let worker = Worker::new(app, &signals, view, &scopes).await?;
    let (act, seen) = (Arc::clone(&worker.act), view.clone());
    let _looking = AbortOnDropHandle::new(tokio::spawn(async move { act.keep_yielding(&seen, LOOK_EVERY).await }));
    let (act, held, seen) = (Arc::clone(&worker.act), worker.held.clone(), view.clone());
    let _heeding = AbortOnDropHandle::new(tokio::spawn(async move {
        loop {
            held.clock.sleep(LOOK_EVERY).await;
            if held.holds(&seen).await {
                act.stop_rewrites(&seen.name);
            }
        }
    }));
    let told = match worker.is_paused().await {
        true => Ok(()),
        false => tokio::select! {
            told = worker.each(scopes, &mut teller) => told,
            never = worker.cancel() => match never {},
        },
    };
    worker.tally.bar.clone().end();
    worker.act.leave().await?;
    if open {
        recover(app).await?;
    }
    told?;
    let (paused, signal) = (worker.paused.into_inner(), signals.exit());
    // that there is nothing to compact is not said of what was not looked at
    if (paused.is_none() && signal.is_none()) || !teller.rows.is_empty() {
        teller.end()?;
    }
    match paused {
        Some(failure) => Err(failure),
        // a commit of which nobody knows is told before what stopped the rest
        None if teller.exit == Exit::Unknown => Ok(Exit::Unknown),
        None => Ok(teller.exit.max(signal.unwrap_or(Exit::Done))),
    }
}

/// A table and its partitions.
type Read = (Arc<dyn Table>, Vec<Scoped>);

/// What is asked for, or how to exit after a signal.
async fn read_unless(app: &App, args: &Compact, signals: &Signals) -> Result<Result<Read, Exit>, Failure> {
    tokio::select! {
        read = read(app, args) => read.map(Ok),
        exit = signals.asked() => Ok(Err(exit)),
    }
}

async fn read(app: &App, args: &Compact) -> Result<Read, Failure> {
    let table = load(app, &args.branch.table, &args.branch.reference).await?;
    let policy = policy(app, &args.branch.table, &table.view().properties);
    let scopes = scopes(app, table.as_ref(), &policy, args.partition.as_deref()).await?;
    Ok((table, scopes))
}

/// A partition's row before any job, and how a command exits for it when it needs none.
fn begun(view: &TableView, scoped: &Scoped) -> (CompactRow, Option<Exit>) {
    let blank = CompactRow {
        table: view.name.to_string(),
        branch: view.reference.clone(),
        partition: scoped.label.clone(),
        spec_id: scoped.spec_id,
        files_in: Some(0),
        bytes_in: Some(0),
        ..CompactRow::default()
    };
    let held = |row: CompactRow| CompactRow {
        decision: "request".into(),
        files_in: scoped.holds.map(|t| t.files),
        bytes_in: scoped.holds.map(|t| t.bytes),
        ..row
    };
    match &scoped.found {
        Found::Plans(_) => (blank, None),
        Found::Nothing => (CompactRow { result: "left".into(), decision: "nothing-to-gain".into(), ..blank }, Some(Exit::Done)),
        Found::Refused(refused) => {
            let refusal = Some(refused.refusal.code().to_owned());
            (held(CompactRow { result: "refused".into(), refusal, detail: refused.told(), ..blank }), Some(Exit::Refused))
        }
        Found::Failed(error) => (held(CompactRow { result: "failed".into(), detail: told(error), ..blank }), Some(exit_of(error))),
    }
}

/// Carries plans out, some at a time, until a signal comes or the table is paused.
struct Worker<'a> {
    act: Arc<Act>,
    journal: Arc<SqliteJournal>,
    signals: &'a Signals,
    view: &'a TableView,
    jobs: usize,
    turns: Arc<Semaphore>,
    /// Jobs begun and not yet ended, whatever their partitions.
    begun: Semaphore,
    tally: Tally,
    paused: OnceLock<Failure>,
    held: Held,
}

impl<'a> Worker<'a> {
    async fn new(app: &App, signals: &'a Signals, view: &'a TableView, scopes: &[Scoped]) -> Result<Self, Failure> {
        let journal = app.journal().await?;
        let act = app.act(Role::Command, Arc::clone(&journal) as Arc<dyn Journal>).await?;
        let total = scopes.iter().map(Scoped::bytes).fold(0, u64::saturating_add);
        let tally = Tally { bar: Progress::bytes(&format!("compacting {}", view.name), total), done: Arc::default() };
        let jobs = app.settings.budget.concurrent_jobs.max(1);
        let (turns, begun) = (Arc::new(Semaphore::new(jobs)), Semaphore::new(ahead(jobs)));
        let held =
            Held { settings: Arc::clone(&app.settings), journal: Arc::clone(&journal), clock: Arc::clone(&app.clock), why: Arc::default() };
        act.set_holds(Box::new(held.clone()));
        Ok(Self { act, journal, signals, view, jobs, turns, begun, tally, paused: OnceLock::new(), held })
    }

    /// Every partition, told in their order. Where jobs run side by side, others are
    /// rewritten while some commit.
    async fn each(&self, scopes: Vec<Scoped>, teller: &mut Teller) -> Result<(), Failure> {
        let mut rows = stream::iter(scopes).map(|scoped| self.one(scoped)).buffered(ahead(self.jobs));
        while let Some(row) = rows.next().await {
            if let Some((row, exit)) = row {
                teller.tell(row, exit)?;
            }
        }
        Ok(())
    }

    /// One partition; nothing is told of one whose jobs were not begun.
    async fn one(&self, scoped: Scoped) -> Option<(CompactRow, Exit)> {
        let (blank, exit) = begun(self.view, &scoped);
        if let Some(exit) = exit {
            return self.signals.exit().is_none().then_some((blank, exit));
        }
        let jobs = scoped.into_plans().into_iter().map(|plan| self.job(plan));
        let jobs: Vec<CompactJob> = stream::iter(jobs).buffered(ahead(self.jobs)).filter_map(std::future::ready).collect().await;
        let exit = jobs.iter().map(|j| j.exit).max()?;
        Some((blank.of(jobs), exit))
    }

    /// One job to its end, in a task of its own.
    async fn job(&self, plan: Plan) -> Option<CompactJob> {
        let _begun = self.begun.acquire().await.ok()?;
        let turn = Arc::clone(&self.turns).acquire_owned().await.ok()?;
        if self.signals.exit().is_some() || self.is_paused().await {
            return None;
        }
        let (act, tally) = (Arc::clone(&self.act), self.tally.clone());
        let turn = Turn { permit: Mutex::new(Some(turn)), alone: self.jobs == 1 };
        let running = AbortOnDropHandle::new(tokio::spawn(async move {
            let result = act.run(&plan, Some(tally.watcher(plan.input_bytes(), turn))).await;
            job(&plan, &result)
        }));
        let ended = running.await;
        // what stopped it is told like what keeps others from beginning
        if ended.as_ref().is_ok_and(|job| job.result == result_name(&Verdict::Cancelled))
            && let Some(why) = self.held.taken()
        {
            let _ = self.paused.set(why);
        }
        Some(ended.unwrap_or_else(|stopped| CompactJob {
            exit: Exit::Failed,
            result: "failed".into(),
            decision: "request".into(),
            detail: format!("the job did not end: {stopped}"),
            ..CompactJob::default()
        }))
    }

    /// Whether the table is paused or held, or that cannot be told.
    async fn is_paused(&self) -> bool {
        let why = match self.journal.pauses().await {
            Err(error) => error.into(),
            Ok(pauses) => match pauses.0.iter().find(|p| p.table.is_none_or(|t| t == self.view.ident)) {
                Some(pause) => held(self.view, pause),
                None => match self.held.stands(self.view).await {
                    Some(why) => why,
                    None => return false,
                },
            },
        };
        // the first reason is the one that is told
        let _ = self.paused.set(why);
        true
    }

    /// After a signal, asks the jobs to stop.
    async fn cancel(&self) -> Infallible {
        self.signals.asked().await;
        self.act.halt();
        std::future::pending().await
    }
}

/// Whether the table is held by now, and what is said of it.
#[derive(Clone)]
struct Held {
    settings: Arc<Settings>,
    journal: Arc<SqliteJournal>,
    clock: Arc<dyn Clock>,
    why: Arc<Mutex<Option<Failure>>>,
}

impl Held {
    async fn stands(&self, view: &TableView) -> Option<Failure> {
        let (policy, _) = resolve(&self.settings, &view.name, &view.properties);
        super::hold::stands(self.journal.as_ref(), view, &policy, self.clock.now_ms()).await
    }

    /// What stopped a job, once.
    fn taken(&self) -> Option<Failure> {
        self.why.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

#[async_trait]
impl Holds for Held {
    async fn holds(&self, table: &TableView) -> bool {
        // a journal that does not answer holds nothing; the job fails by it where it needs it
        let why = self.stands(table).await.filter(|why| why.exit == Exit::Refused);
        let held = why.is_some();
        if held {
            *self.why.lock().unwrap_or_else(PoisonError::into_inner) = why;
        }
        held
    }
}

/// Jobs begun and not yet ended, at most, where so many run side by side.
fn ahead(jobs: usize) -> usize {
    if jobs > 1 { jobs.saturating_mul(2) } else { 1 }
}

fn held(view: &TableView, pause: &Pause) -> Failure {
    let resume = if pause.table.is_some() { format!("afterwrite resume {}", view.name) } else { "afterwrite resume".to_owned() };
    let why = format!("{} is paused (`pause` of {}): nothing is rewritten; `{resume}` takes the work up again", view.name, pause.label);
    Failure::new(Exit::Refused, why)
}

/// A job's turn: until its end, or, where jobs run side by side, until all but its
/// commit is done, which leaves cores and memory to the next.
struct Turn {
    permit: Mutex<Option<OwnedSemaphorePermit>>,
    alone: bool,
}

impl Turn {
    fn proven(&self) {
        if !self.alone {
            drop(self.permit.lock().unwrap_or_else(PoisonError::into_inner).take());
        }
    }
}

/// Bytes that all jobs together have done.
#[derive(Clone)]
struct Tally {
    bar: Progress,
    done: Arc<AtomicU64>,
}

impl Tally {
    /// Is told how much of so many bytes a job has done, never less than before.
    fn watcher(&self, most: u64, turn: Turn) -> Watcher {
        let (tally, so_far) = (self.clone(), AtomicU64::new(0));
        Arc::new(move |done: Done| {
            if done.proven {
                turn.proven();
            }
            let bytes = done.bytes.min(most);
            let more = bytes.saturating_sub(so_far.fetch_max(bytes, Ordering::Relaxed));
            let before = tally.done.fetch_add(more, Ordering::Relaxed);
            tally.bar.at(before.saturating_add(more));
        })
    }
}

/// Tells of partitions: programs of each at once, people of all at the end.
struct Teller {
    json: bool,
    rows: Vec<CompactRow>,
    exit: Exit,
}

impl Teller {
    fn tell(&mut self, row: CompactRow, exit: Exit) -> Result<(), Failure> {
        self.exit = self.exit.max(exit);
        match self.json {
            true => show::print(&show::compacts(&[row], true))?,
            false => self.rows.push(row),
        }
        Ok(())
    }

    fn end(&self) -> Result<(), Failure> {
        if !self.json {
            show::print(&show::compacts(&self.rows, false))?;
        }
        Ok(())
    }
}

/// What a job would do, or what is known to stop it.
fn planned(plan: &Plan, stop: Option<&Error>) -> CompactJob {
    let (exit, result, refusal, detail) = match stop {
        None => (Exit::Done, "planned", None, String::new()),
        Some(Error::Refused(refused)) => (Exit::Refused, "refused", Some(refused.refusal.code().to_owned()), refused.told()),
        Some(error) => (exit_of(error), "failed", None, told(error)),
    };
    CompactJob {
        exit,
        result: result.into(),
        refusal,
        detail,
        decision: plan.reason.clone(),
        files_in: plan.inputs.len() as u64,
        bytes_in: plan.input_bytes(),
        rows: plan.input_records(),
        ..CompactJob::default()
    }
}

fn job(plan: &Plan, result: &JobResult) -> CompactJob {
    let numbers = &result.numbers;
    let (refusal, detail) = match &result.verdict {
        Verdict::Committed => (None, String::new()),
        Verdict::Refused { refused } => (Some(refused.refusal.code().to_owned()), refused.told()),
        other => (None, other.note()),
    };
    CompactJob {
        exit: exit(&result.verdict),
        job: result.job.as_ref().map(|j| j.0.clone()),
        result: result_name(&result.verdict).to_owned(),
        decision: plan.reason.clone(),
        refusal,
        detail,
        attempt: result.attempt.as_ref().map(|a| a.0.clone()),
        path: numbers.path,
        path_reason: Some(numbers.path_reason.clone()).filter(|r| !r.is_empty()),
        files_in: plan.inputs.len() as u64,
        files_out: numbers.files_out,
        bytes_in: plan.input_bytes(),
        bytes_out: numbers.bytes_out,
        rows: numbers.rows_out,
        rows_deleted: numbers.rows_deleted,
        deletes_carried: numbers.deletes_carried,
        wasted_bytes: numbers.wasted_bytes,
        seconds: result.seconds(),
        rewrite_s: seconds(numbers.rewrite_millis),
        proof_s: seconds(numbers.proof_millis),
        commit_s: seconds(numbers.commit_millis),
        peak_memory: numbers.peak_memory,
        requests: numbers.requests,
        snapshot_id: numbers.snapshot_id.map(|id| id.to_string()),
    }
}

fn result_name(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Committed => "committed",
        Verdict::Busy => "busy",
        Verdict::Paused => "paused",
        Verdict::Claimed { .. } => "claimed",
        Verdict::Replan { .. } | Verdict::Dropped { .. } => "conflict",
        Verdict::Refused { .. } => "refused",
        Verdict::Disproved { .. } => "disproved",
        Verdict::Failed { .. } => "failed",
        Verdict::Unreachable { .. } => "unreachable",
        Verdict::Stopped { .. } => "stopped",
        Verdict::Cancelled => "cancelled",
        Verdict::Unresolved { .. } => "unknown",
    }
}

/// How a command exits whose job ended so.
pub fn exit(verdict: &Verdict) -> Exit {
    match verdict {
        Verdict::Committed => Exit::Done,
        Verdict::Refused { .. } | Verdict::Paused | Verdict::Claimed { .. } => Exit::Refused,
        Verdict::Busy | Verdict::Replan { .. } | Verdict::Dropped { .. } => Exit::Conflict,
        Verdict::Unresolved { .. } => Exit::Unknown,
        Verdict::Unreachable { .. } => Exit::Unreachable,
        Verdict::Disproved { .. } | Verdict::Failed { .. } | Verdict::Stopped { .. } | Verdict::Cancelled => Exit::Failed,
    }
}
