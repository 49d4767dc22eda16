//! `undo`: rolls a job's commit back, and keeps the partition as it is then.

use crate::act::journal::Error;
use crate::act::{Job, Journal, NotUndone, Role, SqliteJournal, Verdict};
use crate::app::App;
use crate::cli::{Exit, show};
use crate::model::ident::MAIN;
use crate::model::plan::JobId;
use crate::ooda::hold::{Hold, Holds, Left};
use crate::orient::rebuild::recompute;

use super::signals::Signals;
use super::{Failure, compact, load, policy, recover};

/// Rolls a job's commit back. What a dead process left open is closed first: the
/// job may be among it.
///
/// The partition is kept from the loop before the table is rolled back, so that a
/// `serve` beside this cannot come in between; a crash leaves it kept until `resume`.
pub async fn run(app: &App, job: &str, json: bool) -> Result<Exit, Failure> {
    // one commit: it is not broken off by the first signal
    let signals = Signals::listen("the commit under way is waited for")?;
    let open = !recover(app).await?.open.is_empty();
    let journal = app.journal().await?;
    let id = JobId(job.to_owned());
    let done = journal.job(&id).await?.ok_or_else(|| Error::Absent(job.to_owned()))?;
    let hold = Hold {
        table: done.plan.table,
        name: done.plan.name.to_string(),
        partition: done.plan.scope.clone(),
        label: Some(&done.numbers.partition).filter(|p| !p.is_empty()).cloned().unwrap_or_else(|| done.plan.scope.to_string()),
        left: None,
    };
    let before = Holds::read(journal.as_ref()).await?.iter().find(|h| (h.table, &h.partition) == (hold.table, &hold.partition)).cloned();
    let act = app.act(Role::Command, std::sync::Arc::clone(&journal) as std::sync::Arc<dyn Journal>).await?;
    Holds::keep(journal.as_ref(), hold.clone()).await?;
    let undone = act.undo(&id).await;
    act.leave().await?;
    if open {
        recover(app).await?;
    }
    let failure = match undone {
        Ok(result) if result.verdict == Verdict::Committed => None,
        Ok(result) => Some(Failure::new(compact::exit(&result.verdict), result.verdict.note())),
        Err(NotUndone::Journal(error)) => Some(error.into()),
        Err(NotUndone::Lake(error)) => Some(error.into()),
        Err(other) => Some(Failure::new(Exit::Conflict, other.to_string())),
    };
    if let Some(failure) = failure {
        // what may have been undone after all is kept
        if failure.exit != Exit::Unknown {
            restore(&journal, &hold, before).await?;
        }
        return Err(failure);
    }
    settle(app, &journal, &done, &hold).await;
    let Hold { name, label, .. } = &hold;
    let kept = if label == "all" { "the table" } else { label.as_str() };
    let text = match json {
        true => serde_json::json!({ "job": job, "table": name, "partition": label, "undone": true, "kept": true }).to_string(),
        false => format!(
            "{name} is rolled back to the snapshot before job {job}\n`serve` keeps {kept} as it is now until a writer changes it, or \
             until `afterwrite resume {name}`"
        ),
    };
    show::print(&text)?;
    Ok(signals.exit().unwrap_or(Exit::Done))
}

/// Nothing was undone: what was kept before is kept, and no more.
async fn restore(journal: &SqliteJournal, hold: &Hold, before: Option<Hold>) -> Result<(), Failure> {
    match before {
        Some(before) => Holds::keep(journal, before).await?,
        None => drop(Holds::release(journal, hold.table, Some(&hold.partition)).await?),
    }
    Ok(())
}

/// Notes what the partition holds now, so that a writer's change of it is seen.
async fn settle(app: &App, journal: &SqliteJournal, done: &Job, hold: &Hold) {
    let left = async {
        let table = load(app, &done.plan.name, MAIN).await?;
        let policy = policy(app, &done.plan.name, &table.view().properties);
        let layout = recompute(table.as_ref(), policy.scale).await?;
        let left = layout.partition(&hold.partition).map(|p| Left::of(&p));
        Holds::keep(journal, Hold { left, ..hold.clone() }).await?;
        Ok::<(), Failure>(())
    };
    if let Err(failure) = left.await {
        eprintln!(
            "warning: {} is kept until `afterwrite resume {}`, for what it holds cannot be noted: {}",
            hold.label, hold.name, failure.why
        );
    }
}
