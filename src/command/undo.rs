//! `undo`: rolls a job's commit back, and keeps the partition as it is then.

use crate::act::journal::Error;
use crate::act::{Job, Journal, NotUndone, Role, SqliteJournal, Verdict};
use crate::app::App;
use crate::cli::{Exit, human, show};
use crate::model::plan::JobId;
use crate::ooda::hold::{Hold, Holds, Left};
use crate::orient::rebuild::recompute;

use super::signals::Signals;
use super::{Failure, compact, load, policy, recover};

/// Rolls a job's commit back, with those that share its snapshot. What a dead process left
/// open is closed first: the job may be among it.
///
/// The partitions are kept from the loop before the table is rolled back, so that a
/// `serve` beside this cannot come in between; a crash leaves them kept until `resume`.
pub async fn run(app: &App, job: &str, json: bool) -> Result<Exit, Failure> {
    // one commit: it is not broken off by the first signal
    let signals = Signals::listen("the commit under way is waited for")?;
    let open = !recover(app).await?.open.is_empty();
    let journal = app.journal().await?;
    let id = JobId(job.to_owned());
    let done = journal.job(&id).await?.ok_or_else(|| Error::Absent(job.to_owned()))?;
    let act = app.act(Role::Command, std::sync::Arc::clone(&journal) as std::sync::Arc<dyn Journal>).await?;
    let others = match act.undone_with(&done).await {
        Ok(others) => others,
        Err(why) => {
            act.leave().await?;
            return Err(failed(why));
        }
    };
    let holds: Vec<Hold> = [&done].into_iter().chain(&others).map(hold).collect();
    let before = Holds::read(journal.as_ref()).await?;
    for hold in &holds {
        Holds::keep(journal.as_ref(), hold.clone()).await?;
    }
    let undone = act.undo(&id).await;
    act.leave().await?;
    if open {
        recover(app).await?;
    }
    let failure = match undone {
        Ok(result) if result.verdict == Verdict::Committed => None,
        Ok(result) => Some(Failure::new(compact::exit(&result.verdict), result.verdict.note())),
        Err(why) => Some(failed(why)),
    };
    if let Some(failure) = failure {
        // what may have been undone after all is kept
        if failure.exit != Exit::Unknown {
            restore(&journal, &holds, &before).await?;
        }
        return Err(failure);
    }
    settle(app, &journal, &done, &holds).await;
    show::print(&told(job, &holds, &others, json))?;
    Ok(signals.exit().unwrap_or(Exit::Done))
}

fn failed(why: NotUndone) -> Failure {
    match why {
        NotUndone::Journal(error) => error.into(),
        NotUndone::Lake(error) => error.into(),
        other => Failure::new(Exit::Conflict, other.to_string()),
    }
}

fn hold(job: &Job) -> Hold {
    Hold {
        table: job.plan.table,
        name: job.plan.name.to_string(),
        branch: job.plan.reference.clone(),
        partition: job.plan.scope.clone(),
        label: Some(&job.numbers.partition).filter(|p| !p.is_empty()).cloned().unwrap_or_else(|| job.plan.scope.to_string()),
        left: None,
    }
}

/// What was undone: of the job, which is the first, and of those that shared its snapshot.
fn told(job: &str, holds: &[Hold], others: &[Job], json: bool) -> String {
    let Some((first, rest)) = holds.split_first() else { return String::new() };
    let Hold { name, label, branch, .. } = first;
    let shown = human::on(name, branch);
    if json {
        let mut row = serde_json::json!({ "job": job, "table": name, "branch": branch, "partition": label, "undone": true, "kept": true });
        let with = rest.iter().zip(others).map(|(hold, job)| serde_json::json!({ "job": job.id.0, "partition": hold.label }));
        if let (false, Some(row)) = (rest.is_empty(), row.as_object_mut()) {
            row.insert("undone_with".to_owned(), with.collect());
        }
        return row.to_string();
    }
    let mut text = format!("{shown} is rolled back to the snapshot before job {job}\n");
    for (hold, job) in rest.iter().zip(others) {
        text.push_str(&format!("job {} of {}, which shared its snapshot, is undone with it\n", job.id.0, hold.label));
    }
    let kept = match rest.is_empty() {
        true if label == "all" => "the table".to_owned(),
        true => label.clone(),
        false => format!("these {} partitions", holds.len()),
    };
    let whose = if rest.is_empty() { "it is now until a writer changes it" } else { "they are now until a writer changes one" };
    text.push_str(&format!("`serve` keeps {kept} as {whose}, or until `afterwrite resume {name}`"));
    text
}

/// Nothing was undone: what was kept before is kept, and no more.
async fn restore(journal: &SqliteJournal, holds: &[Hold], before: &Holds) -> Result<(), Failure> {
    for hold in holds {
        match before.iter().find(|h| h.is_of(hold)) {
            Some(before) => Holds::keep(journal, before.clone()).await?,
            None => drop(Holds::release(journal, hold.table, Some(hold)).await?),
        }
    }
    Ok(())
}

/// Notes what the partitions hold now, so that a writer's change of them is seen.
async fn settle(app: &App, journal: &SqliteJournal, done: &Job, holds: &[Hold]) {
    let left = async {
        let table = load(app, &done.plan.name, &done.plan.reference).await?;
        let policy = policy(app, &done.plan.name, &table.view().properties);
        let layout = recompute(table.as_ref(), policy.scale).await?;
        for hold in holds {
            let left = layout.partition(&hold.partition).map(|p| Left::of(&p));
            Holds::keep(journal, Hold { left, ..hold.clone() }).await?;
        }
        Ok::<(), Failure>(())
    };
    if let Err(failure) = left.await {
        let name = &done.plan.name;
        eprintln!("warning: what was undone is kept until `afterwrite resume {name}`, for what it holds cannot be noted: {}", failure.why);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::act::journal::tests::job;

    #[test]
    fn those_that_shared_the_snapshot_are_told_of() {
        let others = [job("j2")];
        let holds = [("j1", "p=1"), ("j2", "p=2")].map(|(id, label)| Hold { label: label.into(), ..hold(&job(id)) });
        let name = &holds[0].name;
        assert_eq!(
            told("j1", &holds, &others, false),
            format!(
                "{name} is rolled back to the snapshot before job j1\njob j2 of p=2, which shared its snapshot, is undone with it\n\
                 `serve` keeps these 2 partitions as they are now until a writer changes one, or until `afterwrite resume {name}`"
            )
        );
        let json: serde_json::Value = serde_json::from_str(&told("j1", &holds, &others, true)).unwrap();
        assert_eq!(json["undone_with"], serde_json::json!([{ "job": "j2", "partition": "p=2" }]));
        assert!(told("j1", &holds[..1], &[], false).contains("`serve` keeps p=1 as it is now until a writer changes it, or"));
    }
}
