//! `jobs`, `cancel`, `pause`, `resume`: the journal by hand.

use crate::act::{Job, JobState, Journal, Kind, Pause, Query, interrupted};
use crate::app::App;
use crate::cli::args::Jobs;
use crate::cli::show::JobRow;
use crate::cli::{Exit, human, show};
use crate::model::ident::{MAIN, TableIdent, TableName};
use crate::model::plan::JobId;
use crate::ooda::hold::Holds;

use super::{Failure, load};

/// Said of an unfinished job that nobody works on.
const LEFT: &str = "its process is gone; the next `compact` or `serve` closes it";

/// Shows the last jobs, newest first.
pub async fn list(app: &App, args: &Jobs, json: bool) -> Result<Exit, Failure> {
    let journal = app.journal().await?;
    // a filter is applied here, so that the limit counts the jobs shown
    let asked = if args.table.is_some() || args.branch.is_some() { u32::MAX } else { u32::try_from(args.limit).unwrap_or(u32::MAX) };
    let jobs = journal.jobs(Query::Latest(asked)).await?;
    let interrupted = interrupted(journal.as_ref(), app.clock.as_ref()).await?;
    let mut rows = Vec::new();
    let is_asked = |job: &&Job| {
        let plan = &job.plan;
        args.table.as_ref().is_none_or(|table| plan.name == *table) && args.branch.as_ref().is_none_or(|branch| plan.reference == *branch)
    };
    for job in jobs.iter().filter(is_asked).take(args.limit) {
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
        branch: job.plan.reference.clone(),
        partition: Some(&job.numbers.partition).filter(|p| !p.is_empty()).cloned().unwrap_or_else(|| job.plan.scope.to_string()),
        state: job.state.code().to_owned(),
        reason,
        attempt,
        files: job.plan.inputs.len() as u64,
        bytes: job.plan.input_bytes(),
        created_ms: job.requested_ms,
        changed_ms: job.changed_ms,
        path: job.numbers.path,
        path_reason: Some(&job.numbers.path_reason).filter(|why| !why.is_empty()).cloned(),
        snapshot_id: job.numbers.snapshot_id.map(|id| id.to_string()),
        deletes_carried: job.numbers.deletes_carried,
        wasted_bytes: job.numbers.wasted_bytes,
        estimate: job.numbers.estimate,
        actual: (job.state == JobState::Committed && job.kind == Kind::Rewrite).then(|| job.numbers.figures()),
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

/// Takes a pause back, and lets go what `undo` keeps of the table.
pub async fn resume(app: &App, table: Option<&TableName>, json: bool) -> Result<Exit, Failure> {
    let journal = app.journal().await?;
    let ident = match table {
        Some(name) => Some(paused(app, journal.as_ref(), name).await?),
        None => None,
    };
    let label = table.map_or_else(|| "all tables".to_owned(), ToString::to_string);
    let mut was = journal.resume(ident.as_ref()).await?;
    if let Some(ident) = ident {
        was |= Holds::release(journal.as_ref(), ident, None).await?;
    }
    let (pauses, holds) = (journal.pauses().await?, Holds::read(journal.as_ref()).await?);
    if json {
        let still: Vec<&str> = pauses.0.iter().map(|pause| pause.label.as_str()).collect();
        let kept: Vec<_> = holds.iter().map(|h| serde_json::json!({ "table": h.name, "branch": h.branch, "partition": h.label })).collect();
        let text = serde_json::json!({
            "table": table.map(ToString::to_string), "resumed": was, "still_paused": still, "still_kept": kept,
        });
        show::print(&text.to_string())?;
        return Ok(Exit::Done);
    }
    let mut text = if was { format!("resumed: {label}") } else { format!("{label}: there was no such pause") };
    for pause in pauses.0 {
        text.push_str(&format!("\nstill paused: {}", pause.label));
    }
    for hold in holds.iter() {
        text.push_str(&format!(
            "\nstill kept as `undo` left it, until a writer changes it: {} {}",
            human::on(&hold.name, &hold.branch),
            hold.label
        ));
    }
    show::print(&text)?;
    Ok(Exit::Done)
}

/// The identity of a table that may be gone, or whose catalog may not answer: then
/// by the name under which it was paused.
async fn paused(app: &App, journal: &dyn Journal, name: &TableName) -> Result<TableIdent, Failure> {
    let missing = match load(app, name, MAIN).await {
        Ok(table) => return Ok(table.view().ident),
        Err(missing) => missing,
    };
    let label = name.to_string();
    if let Some(ident) = journal.pauses().await?.0.iter().filter(|p| p.label == label).find_map(|p| p.table) {
        return Ok(ident);
    }
    let holds = Holds::read(journal).await?;
    holds.iter().find(|h| h.name == label).map(|h| h.table).ok_or(missing)
}
