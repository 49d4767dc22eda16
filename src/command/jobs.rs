//! `jobs`, `cancel`, `undo`, `pause`, `resume`: the journal by hand.

use crate::act::{Job, Journal, Kind, Pause, Query, Role, Verdict, interrupted};
use crate::app::App;
use crate::cli::args::Jobs;
use crate::cli::show::JobRow;
use crate::cli::{Exit, show};
use crate::model::ident::{MAIN, TableName};
use crate::model::plan::JobId;

use super::{Failure, load, recover};

/// Said of an unfinished job that nobody works on.
const LEFT: &str = "its process is gone; the next `compact` or `serve` closes it";

/// Shows the last jobs, newest first.
pub async fn list(app: &App, args: &Jobs, json: bool) -> Result<Exit, Failure> {
    let journal = app.journal().await?;
    // a filter is applied here, so that the limit counts the jobs shown
    let asked = if args.table.is_some() { u32::MAX } else { u32::try_from(args.limit).unwrap_or(u32::MAX) };
    let jobs = journal.jobs(Query::Latest(asked)).await?;
    let interrupted = interrupted(journal.as_ref(), app.clock.as_ref()).await?;
    let mut rows = Vec::new();
    for job in jobs.iter().filter(|j| args.table.as_ref().is_none_or(|t| j.plan.name == *t)).take(args.limit) {
        let attempts = journal.attempts(&job.id).await?;
        let mut row = row(job, attempts.last().map(|a| a.id.0.clone()));
        if interrupted.contains(&job.id) {
            row.error = LEFT.to_owned();
        }
        rows.push(row);
    }
    show::print(&show::jobs(&rows, json))?;
    Ok(Exit::Done)
}

fn row(job: &Job, attempt: Option<String>) -> JobRow {
    let reason = match &job.kind {
        Kind::Rewrite => job.plan.reason.clone(),
        Kind::Undo { of, .. } => format!("undo {}", of.0),
    };
    JobRow {
        job: job.id.0.clone(),
        table: job.plan.name.to_string(),
        partition: job.plan.scope.to_string(),
        state: job.state.code().to_owned(),
        reason,
        attempt,
        files: job.plan.inputs.len() as u64,
        bytes: job.plan.input_bytes(),
        created_ms: job.requested_ms,
        changed_ms: job.changed_ms,
        snapshot_id: job.numbers.snapshot_id.map(|id| id.to_string()),
        error: if job.numbers.snapshot_id.is_some() { String::new() } else { job.note.clone() },
    }
}

/// Asks a job to stop.
pub async fn cancel(app: &App, job: &str, json: bool) -> Result<Exit, Failure> {
    let id = JobId(job.to_owned());
    let journal = app.journal().await?;
    let found = journal.job(&id).await?.ok_or_else(|| crate::act::journal::Error::Absent(job.to_owned()))?;
    if journal.ask_cancel(&id).await? {
        let left = interrupted(journal.as_ref(), app.clock.as_ref()).await?.contains(&id);
        let text = match (json, left) {
            (true, _) => serde_json::json!({ "job": job, "asked": true, "left": left }).to_string(),
            (false, true) => format!("job {job} is asked to stop; {LEFT}"),
            (false, false) => format!("job {job} is asked to stop; `jobs` shows when it has"),
        };
        show::print(&text)?;
        return Ok(Exit::Done);
    }
    Err(Failure::new(Exit::Failed, format!("job {job} is {} already", found.state.code())))
}

/// Rolls a job's commit back. What a dead process left open is closed first: the
/// job may be among it.
pub async fn undo(app: &App, job: &str, json: bool) -> Result<Exit, Failure> {
    let open = recover(app).await?;
    let act = app.act(Role::Command, app.journal().await?).await?;
    let undone = act.undo(&JobId(job.to_owned())).await;
    act.leave().await?;
    if open {
        recover(app).await?;
    }
    let result = undone.map_err(|error| match error {
        crate::act::NotUndone::Journal(error) => error.into(),
        crate::act::NotUndone::Lake(error) => error.into(),
        other => Failure::new(Exit::Conflict, other.to_string()),
    })?;
    if result.verdict != Verdict::Committed {
        let exit = if matches!(result.verdict, Verdict::Unresolved { .. }) { Exit::Unknown } else { Exit::Conflict };
        return Err(Failure::new(exit, result.verdict.note()));
    }
    let text = match json {
        true => serde_json::json!({ "job": job, "table": result.table.to_string(), "undone": true }).to_string(),
        false => format!(
            "{} is rolled back to the snapshot before job {job}\na running `serve` may rewrite it again after its cooldown; \
             `afterwrite pause {}` keeps it as it is",
            result.table, result.table
        ),
    };
    show::print(&text)?;
    Ok(Exit::Done)
}

/// Leaves a table, or everything, alone from here on.
pub async fn pause(app: &App, table: Option<&TableName>, json: bool) -> Result<Exit, Failure> {
    let ident = match table {
        Some(name) => Some(load(app, name, MAIN).await?.view().ident),
        None => None,
    };
    let label = table.map_or_else(|| "all tables".to_owned(), ToString::to_string);
    app.journal().await?.pause(&Pause { table: ident, label: label.clone(), at_ms: app.clock.now_ms() }).await?;
    let text = match json {
        true => serde_json::json!({ "table": table.map(ToString::to_string), "paused": true }).to_string(),
        false => format!("paused: {label}; jobs under way end as they would"),
    };
    show::print(&text)?;
    Ok(Exit::Done)
}

/// Takes a pause back.
pub async fn resume(app: &App, table: Option<&TableName>, json: bool) -> Result<Exit, Failure> {
    let ident = match table {
        Some(name) => Some(load(app, name, MAIN).await?.view().ident),
        None => None,
    };
    let label = table.map_or_else(|| "all tables".to_owned(), ToString::to_string);
    let journal = app.journal().await?;
    let was = journal.resume(ident.as_ref()).await?;
    let left = journal.pauses().await?;
    if json {
        let still: Vec<&str> = left.0.iter().map(|pause| pause.label.as_str()).collect();
        let text = serde_json::json!({ "table": table.map(ToString::to_string), "resumed": was, "still_paused": still }).to_string();
        show::print(&text)?;
        return Ok(Exit::Done);
    }
    let mut text = if was { format!("resumed: {label}") } else { format!("{label}: there was no such pause") };
    for pause in left.0 {
        text.push_str(&format!("\nstill paused: {}", pause.label));
    }
    show::print(&text)?;
    Ok(Exit::Done)
}
