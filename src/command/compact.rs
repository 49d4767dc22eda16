//! `plan` and `compact`: a table's partitions at request, as many at a time as the
//! budget lets jobs run.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::stream::{self, StreamExt};

use crate::act::job::seconds;
use crate::act::{Act, JobResult, Progress as Done, Role, Verdict, Watcher};
use crate::app::App;
use crate::cli::args::{self, Compact};
use crate::cli::progress::Progress;
use crate::cli::show::{CompactRow, PlanRow};
use crate::cli::{Exit, show};
use crate::decide::plan::{Cause, Order, plans};
use crate::lake::{self, Table};
use crate::model::decision::Reason;
use crate::model::partition::PartitionKey;
use crate::model::plan::Plan;
use crate::model::policy::Policy;
use crate::model::refusal::Refused;
use crate::orient::rebuild::recompute;
use crate::serve::backend::{label, names};

use super::{Failure, exit_of, load, policy, recover, told};

/// Partitions whose files are read together.
const TOGETHER: usize = 64;

/// One partition and what a request would do with it.
struct Scoped {
    scope: PartitionKey,
    label: String,
    found: Found,
}

impl Scoped {
    /// The whole table, refused.
    fn whole(refused: &Refused) -> Self {
        Self { scope: PartitionKey::unpartitioned(0), label: "all".into(), found: Found::Refused(refused.clone()) }
    }
}

enum Found {
    Plans(Vec<Plan>),
    Nothing,
    Refused(Refused),
    Failed(lake::Error),
}

/// Shows what `compact` would rewrite.
pub async fn plan(app: &App, args: &args::Plan, json: bool) -> Result<Exit, Failure> {
    let table = load(app, &args.branch.table, &args.branch.reference).await?;
    let policy = policy(app, &args.branch.table, &table.view().properties);
    let mut rows = Vec::new();
    let mut exit = Exit::Done;
    for scoped in scopes(app, table.as_ref(), &policy, args.partition.as_deref()).await? {
        let blank = |verdict: &str, reason: &str, detail: String| PlanRow {
            table: table.view().name.to_string(),
            partition: scoped.label.clone(),
            spec_id: scoped.scope.spec_id,
            snapshot_id: table.view().head.map(|id| id.to_string()),
            verdict: verdict.to_owned(),
            reason: reason.to_owned(),
            detail,
            ..PlanRow::default()
        };
        match &scoped.found {
            Found::Plans(plans) => rows.extend(plans.iter().map(|p| PlanRow::planned(p, &scoped.label, "rewrite"))),
            Found::Nothing => rows.push(blank("leave", "nothing-to-gain", String::new())),
            Found::Refused(refused) => {
                exit = exit.max(Exit::Refused);
                rows.push(blank("refused", refused.refusal.code(), refused.told()));
            }
            Found::Failed(error) => {
                exit = exit.max(exit_of(error));
                rows.push(blank("failed", "error", told(error)));
            }
        }
    }
    show::print(&show::plans(&rows, json))?;
    Ok(exit)
}

/// Compacts every partition that gains by it. What a dead process left open is
/// closed first, so that it neither stays behind nor stands in the way.
pub async fn run(app: &App, args: &Compact, json: bool) -> Result<Exit, Failure> {
    let open = !args.dry_run && recover(app).await?;
    let table = load(app, &args.branch.table, &args.branch.reference).await?;
    let policy = policy(app, &args.branch.table, &table.view().properties);
    let scopes = scopes(app, table.as_ref(), &policy, args.partition.as_deref()).await?;
    let act = match args.dry_run {
        true => None,
        false => Some(app.act(Role::Command, app.journal().await?).await?),
    };
    let (mut rows, mut exit) = (Vec::new(), Exit::Done);
    let total = scopes.iter().map(|s| if let Found::Plans(p) = &s.found { p.iter().map(Plan::input_bytes).sum() } else { 0 }).sum();
    let meter = Meter { progress: Progress::bytes(&format!("compacting {}", args.branch.table), total), done: Arc::default() };
    let mut work = Vec::new();
    for scoped in scopes {
        let blank = CompactRow {
            table: table.view().name.to_string(),
            partition: scoped.label.clone(),
            spec_id: scoped.scope.spec_id,
            ..CompactRow::default()
        };
        work.extend(steps(scoped, &blank).into_iter().map(|step| step.take(act.as_deref(), &meter)));
    }
    // a job that commits does not keep the next one from being rewritten
    let mut done = stream::iter(work).buffered(app.settings.budget.concurrent_jobs.max(1));
    while let Some((row, code)) = done.next().await {
        exit = exit.max(code);
        rows.push(row);
    }
    drop(done);
    let progress = meter.progress;
    progress.end();
    if let Some(act) = act {
        act.leave().await?;
    }
    if open {
        recover(app).await?;
    }
    show::print(&show::compacts(&rows, json))?;
    Ok(exit)
}

/// Every partition with live files, or the one that is asked for.
async fn scopes(app: &App, table: &dyn Table, policy: &Policy, filter: Option<&str>) -> Result<Vec<Scoped>, Failure> {
    let view = table.view();
    // a table that is refused as a whole is not read: what it holds may not be readable
    if let Some(refused) = view.refused.first() {
        return Ok(vec![Scoped::whole(refused)]);
    }
    let named = |key: &PartitionKey| label(key, view.specs.get(&key.spec_id).map(Arc::as_ref));
    let layout = match recompute(table, policy.scale).await {
        Err(lake::Error::Refused(refused)) => return Ok(vec![Scoped::whole(&refused)]),
        layout => layout?,
    };
    let wanted = layout.partitions().iter().filter(|(_, partition)| partition.data.files > 0).map(|(key, _)| key);
    let keys: Vec<PartitionKey> = wanted.filter(|key| filter.is_none_or(|f| names(f, key, &named(key)))).collect();
    if let (Some(filter), true) = (filter, keys.is_empty()) {
        return Err(Failure::new(
            Exit::NotFound,
            format!("{} has no partition `{filter}` with live files; `inspect` lists them", view.name),
        ));
    }
    let order = Order {
        table: view.ident,
        name: &view.name,
        reference: &view.reference,
        policy,
        limits: &app.settings.budget,
        cause: &Cause::Request,
    };
    let mut scoped = Vec::new();
    for keys in keys.chunks(TOGETHER) {
        match table.scopes(keys).await {
            Ok(files) => scoped.extend(keys.iter().zip(files).map(|(key, files)| Scoped {
                label: named(key),
                scope: key.clone(),
                found: found(&order, &files),
            })),
            // one damaged or refused partition must not hide the others
            Err(_) => {
                for key in keys {
                    let found = match table.scope(key).await {
                        Ok(files) => found(&order, &files),
                        Err(lake::Error::Refused(refused)) => Found::Refused(refused),
                        Err(error) => Found::Failed(error),
                    };
                    scoped.push(Scoped { label: named(key), scope: key.clone(), found });
                }
            }
        }
    }
    Ok(scoped)
}

fn found(order: &Order<'_>, files: &crate::model::plan::ScopeFiles) -> Found {
    match plans(order, files) {
        Ok(plans) => Found::Plans(plans),
        Err(Reason::Refused(refused)) => Found::Refused(refused),
        Err(_) => Found::Nothing,
    }
}

/// What is to be done for one row of the answer.
enum Step {
    Row(CompactRow, Exit),
    Job(Box<Plan>, CompactRow),
}

fn steps(scoped: Scoped, blank: &CompactRow) -> Vec<Step> {
    let blank = blank.clone();
    match scoped.found {
        Found::Nothing => {
            vec![Step::Row(CompactRow { result: "left".into(), decision: "nothing-to-gain".into(), ..blank }, Exit::Done)]
        }
        Found::Refused(refused) => vec![Step::Row(refused_row(blank, &refused), Exit::Refused)],
        Found::Failed(error) => {
            let code = exit_of(&error);
            vec![Step::Row(CompactRow { result: "failed".into(), decision: "error".into(), detail: told(&error), ..blank }, code)]
        }
        Found::Plans(plans) => plans.into_iter().map(|plan| Step::Job(Box::new(plan), blank.clone())).collect(),
    }
}

impl Step {
    async fn take(self, act: Option<&Act>, meter: &Meter) -> (CompactRow, Exit) {
        match (self, act) {
            (Self::Row(row, code), _) => (row, code),
            (Self::Job(plan, blank), Some(act)) => carry_out(act, &plan, blank, meter).await,
            (Self::Job(plan, blank), None) => (planned(&plan, blank), Exit::Done),
        }
    }
}

/// The progress of jobs that run side by side.
struct Meter {
    progress: Progress,
    done: Arc<AtomicU64>,
}

async fn carry_out(act: &Act, plan: &Plan, blank: CompactRow, meter: &Meter) -> (CompactRow, Exit) {
    let (bar, all, own) = (meter.progress.clone(), Arc::clone(&meter.done), Arc::new(AtomicU64::new(0)));
    let tell = move |bytes: u64| {
        let more = bytes.saturating_sub(own.fetch_max(bytes, Ordering::Relaxed));
        bar.at(all.fetch_add(more, Ordering::Relaxed).saturating_add(more));
    };
    let watcher: Watcher = Arc::new({
        let tell = tell.clone();
        move |done: Done| tell(done.bytes)
    });
    let result = act.run(plan, Some(watcher)).await;
    tell(plan.input_bytes());
    (row(plan, &result, blank), exit(&result.verdict))
}

fn planned(plan: &Plan, blank: CompactRow) -> CompactRow {
    CompactRow {
        result: "planned".into(),
        decision: plan.reason.clone(),
        files_in: plan.inputs.len() as u64,
        bytes_in: plan.input_bytes(),
        rows: plan.input_records(),
        ..blank
    }
}

fn refused_row(blank: CompactRow, refused: &Refused) -> CompactRow {
    CompactRow {
        result: "refused".into(),
        decision: "refused".into(),
        refusal: Some(refused.refusal.code().to_owned()),
        detail: refused.told(),
        ..blank
    }
}

fn row(plan: &Plan, result: &JobResult, blank: CompactRow) -> CompactRow {
    if let Verdict::Refused { refused } = &result.verdict {
        return refused_row(blank, refused);
    }
    let numbers = &result.numbers;
    let landed = result.verdict == Verdict::Committed;
    CompactRow {
        result: result_name(&result.verdict).to_owned(),
        decision: plan.reason.clone(),
        detail: if landed { String::new() } else { result.verdict.note() },
        attempt: result.attempt.as_ref().map(|a| a.0.clone()),
        path: numbers.path,
        path_reason: Some(numbers.path_reason.clone()).filter(|r| !r.is_empty()),
        files_in: plan.inputs.len() as u64,
        files_out: numbers.files_out,
        bytes_in: plan.input_bytes(),
        bytes_out: numbers.bytes_out,
        rows: numbers.rows_out,
        rows_deleted: numbers.rows_deleted,
        seconds: result.seconds(),
        rewrite_s: seconds(numbers.rewrite_millis),
        proof_s: seconds(numbers.proof_millis),
        commit_s: seconds(numbers.commit_millis),
        peak_memory: numbers.peak_memory,
        snapshot_id: numbers.snapshot_id.map(|id| id.to_string()),
        ..blank
    }
}

fn result_name(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Committed => "committed",
        Verdict::Busy => "busy",
        Verdict::Paused => "paused",
        Verdict::Replan { .. } | Verdict::Dropped { .. } => "conflict",
        Verdict::Refused { .. } => "refused",
        Verdict::Disproved { .. } => "disproved",
        Verdict::Failed { .. } => "failed",
        Verdict::Stopped { .. } => "stopped",
        Verdict::Cancelled => "cancelled",
        Verdict::Unresolved { .. } => "unknown",
    }
}

fn exit(verdict: &Verdict) -> Exit {
    match verdict {
        Verdict::Committed => Exit::Done,
        Verdict::Refused { .. } => Exit::Refused,
        Verdict::Busy | Verdict::Replan { .. } | Verdict::Dropped { .. } => Exit::Conflict,
        Verdict::Unresolved { .. } => Exit::Unknown,
        Verdict::Paused | Verdict::Disproved { .. } | Verdict::Failed { .. } | Verdict::Stopped { .. } | Verdict::Cancelled => Exit::Failed,
    }
}
