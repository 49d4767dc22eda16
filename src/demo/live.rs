//! What the sidecar does, told while it does it: its journal, read like `jobs` does.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::act::{Job, JobState, Journal, Query, SqliteJournal};
use crate::app::App;
use crate::cli::human;
use crate::cli::progress::Progress;
use crate::lake::clock::Clock;
use crate::model::ident::TableName;
use crate::model::plan::{JobId, Path};

/// Between two looks at the journal.
const EVERY: Duration = Duration::from_millis(200);
/// Jobs looked at: more than end between two looks.
const LATEST: u32 = 100;

/// Tells of jobs until it is stopped.
pub struct Live {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Live {
    /// Begins to tell.
    ///
    /// # Errors
    /// When the journal cannot be opened.
    pub async fn start(app: &App, progress: Progress) -> anyhow::Result<Self> {
        let stop = CancellationToken::new();
        let teller = Teller { journal: app.journal().await?, clock: Arc::clone(&app.clock), progress, told: HashSet::new() };
        let task = tokio::spawn(teller.run(stop.clone()));
        Ok(Self { stop, task })
    }

    /// Tells what is left, and ends.
    pub async fn stop(self) {
        self.stop.cancel();
        let _ = self.task.await;
    }
}

struct Teller {
    journal: Arc<SqliteJournal>,
    clock: Arc<dyn Clock>,
    progress: Progress,
    told: HashSet<JobId>,
}

impl Teller {
    async fn run(mut self, stop: CancellationToken) {
        while !stop.is_cancelled() {
            self.tell().await;
            tokio::select! {
                () = stop.cancelled() => {}
                () = self.clock.sleep(EVERY) => {}
            }
        }
        self.tell().await;
    }

    async fn tell(&mut self) {
        let jobs = match self.journal.jobs(Query::Latest(LATEST)).await {
            Ok(jobs) => jobs,
            Err(error) => return tracing::warn!(%error, "the journal cannot be read"),
        };
        for job in jobs.into_iter().rev().filter(|job| job.state.is_final()) {
            if !self.told.contains(&job.id) {
                self.progress.line(&line(&job));
                self.told.insert(job.id);
            }
        }
    }
}

/// Bytes of the files that committed jobs replaced, by table.
///
/// # Errors
/// When the journal cannot be read.
pub async fn rewritten_bytes(app: &App) -> anyhow::Result<HashMap<TableName, u64>> {
    let mut bytes: HashMap<TableName, u64> = HashMap::new();
    for job in app.journal().await?.jobs(Query::Latest(u32::MAX)).await? {
        if job.state == JobState::Committed {
            let sum = bytes.entry(job.plan.name).or_default();
            *sum = sum.saturating_add(job.numbers.bytes_in);
        }
    }
    Ok(bytes)
}

/// One job in a line: where, why, and what came of it.
fn line(job: &Job) -> String {
    let numbers = &job.numbers;
    let place = format!("{}.{} {}", job.plan.name.namespace_path(), job.plan.name.table, place(&job.numbers.partition));
    if job.state != JobState::Committed {
        return format!("{place}: {}", job.note);
    }
    let path = match numbers.path {
        Some(Path::Splice) => "spliced",
        Some(Path::RePack) => "re-packed",
        Some(Path::ReEncode) | None => "re-encoded",
    };
    format!(
        "{place}: {}: {}, {} {path} into {}, {}; {} proven equal, {} ms",
        job.plan.reason,
        human::some(numbers.files_in, "file"),
        human::bytes(numbers.bytes_in),
        human::some(numbers.files_out, "file"),
        human::bytes(numbers.bytes_out),
        human::some(numbers.rows_out, "row"),
        numbers.millis,
    )
}

/// The demo's partitions: months, or none.
fn place(partition: &str) -> &str {
    match partition {
        "" | "all" => "(whole)",
        month => month.split_once('=').map_or(month, |(_, month)| month),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_is_told_as_its_month() {
        assert_eq!(["l_shipdate_month=1993-01", "all", ""].map(place), ["1993-01", "(whole)", "(whole)"]);
    }
}
