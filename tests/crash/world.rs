//! A table with deletes of both kinds in several partitions, and its rows.

use std::collections::HashSet;
use std::path::PathBuf;

use afterwrite::act::{Job, JobState, Journal, Query};
use afterwrite::model::plan::{ATTEMPT_KEY, AttemptId, JobId};
use iceberg::spec::Operation;

use crate::fixture::process::{Ended, Place};
use crate::fixture::{Table, row};

/// A killed process leaves the job that it was at, and no other.
const ONE_AT_A_TIME: &str = "[budget]\nconcurrent_jobs = 1\n";

pub const NAME: &str = "lake.ns.t";

/// A table on disk with its place.
pub struct World {
    pub place: Place,
    pub table: Table,
    pub rows: Vec<String>,
    pub before: HashSet<PathBuf>,
}

impl World {
    /// Two partitions of four files, one with position and one with equality
    /// deletes, and dead entries beside live ones; one job at a time.
    pub async fn new() -> Self {
        Self::of_two_partitions(ONE_AT_A_TIME).await
    }

    /// The same, with both partitions rewritten side by side.
    pub async fn side_by_side() -> Self {
        Self::of_two_partitions("[budget]\nconcurrent_jobs = 2\n").await
    }

    async fn of_two_partitions(settings: &str) -> Self {
        let place = Place::new(settings);
        let table = Table::partitioned_by_p().past().in_sqlite(place.path()).create().await;
        for p in [7, 8] {
            let mut files = vec![];
            for n in 0..4 {
                files.push(table.append((0..5).map(|i| row(p * 100 + n * 5 + i, "v", p))).await);
            }
            table.change().delete_positions(&[(&files[0], 1), (&files[2], 0)]).commit().await;
            table.change().delete_equal(&["id"], [row(p * 100 + 16, "", p)]).append([row(p * 100 + 50, "later", p)]).commit().await;
        }
        Self::of(place, table).await
    }

    /// One partition of small files.
    pub async fn of_one_partition() -> Self {
        let place = Place::new(ONE_AT_A_TIME);
        let table = Table::plain().past().in_sqlite(place.path()).create().await;
        for n in 0..4 {
            table.append((0..5).map(|i| row(n * 5 + i, "v", 0))).await;
        }
        Self::of(place, table).await
    }

    /// Two files whose row groups are healthy enough to be copied.
    pub async fn to_splice() -> Self {
        let place = Place::new(ONE_AT_A_TIME);
        let table = Table::plain().in_sqlite(place.path()).create().await;
        for n in 0..2 {
            table.append((0..120_000).map(|i| row(n * 120_000 + i, "v", 0))).await;
        }
        Self::of(place, table).await
    }

    /// Small files of a table that wants bloom filters of all columns, one with deleted rows.
    pub async fn to_encode() -> Self {
        let place = Place::new(ONE_AT_A_TIME);
        let filtered = |column: &str| format!("write.parquet.bloom-filter-enabled.column.{column}");
        let table = Table::plain().property(&filtered("id"), "true").property(&filtered("v"), "true").past().in_sqlite(place.path());
        let table = table.create().await;
        let mut files = vec![];
        for n in 0..4 {
            files.push(table.append((0..5).map(|i| row(n * 5 + i, "v", 0))).await);
        }
        table.change().delete_positions(&[(&files[0], 1)]).commit().await;
        Self::of(place, table).await
    }

    /// One partition of small files of format 3, two of which have a vector.
    pub async fn of_format_3() -> Self {
        let place = Place::new(ONE_AT_A_TIME);
        let table = Table::plain().v3().past().in_sqlite(place.path()).create().await;
        let mut files = vec![];
        for n in 0..4 {
            files.push(table.append((0..5).map(|i| row(n * 5 + i, "v", 0))).await);
        }
        table.delete_by_vectors(&[(&files[0], &[1, 2]), (&files[2], &[4])]).await;
        Self::of(place, table).await
    }

    async fn of(place: Place, table: Table) -> Self {
        let (rows, before) = (seen(&table).await, place.files().into_iter().collect());
        Self { place, table, rows, before }
    }

    /// The rows as they are now.
    pub async fn seen(&self) -> Vec<String> {
        seen(&self.table).await
    }

    pub async fn compact(&self) -> Ended {
        self.place.run(&["compact", NAME, "--json"]).await
    }

    pub async fn compact_killed_at(&self, point: &str) -> Ended {
        self.place.run_killed_at(point, &["compact", NAME, "--json"]).await
    }

    pub async fn jobs(&self) -> Vec<Job> {
        let journal = self.place.journal().await;
        let jobs = journal.jobs(Query::Latest(100)).await.unwrap();
        journal.close().await;
        jobs
    }

    /// Rows right, no file unknown, no job open; each rewrite landed once, and the
    /// journal knows each; another command has nothing in its way.
    pub async fn assert_whole(&self, partitions: usize) {
        assert_eq!(self.seen().await, self.rows);
        self.place.assert_settled().await;
        self.place.assert_accounted(&self.table, &self.before).await;
        let metadata = self.table.load().await.loaded.metadata;
        let mut ours: Vec<(JobId, i64)> = vec![];
        for snapshot in metadata.snapshots().filter(|s| s.summary().operation == Operation::Replace) {
            let carried = &snapshot.summary().additional_properties[ATTEMPT_KEY];
            ours.extend(AttemptId::jobs(carried).map(|job| (job, snapshot.snapshot_id())));
        }
        assert_eq!(ours.len(), partitions, "a partition was rewritten twice or not at all");
        let committed = self.jobs().await.into_iter().filter(|j| j.state == JobState::Committed);
        let mut known: Vec<(JobId, i64)> = committed.map(|j| (j.id, j.numbers.snapshot_id.unwrap())).collect();
        ours.sort_unstable();
        known.sort_unstable();
        assert_eq!(known, ours);
        let again = self.compact().await.expect(0);
        assert_eq!(again.each("result"), vec!["left"; partitions]);
    }
}

/// The rows of a table; in format 3 with the id and the number of the last change of each.
async fn seen(table: &Table) -> Vec<String> {
    match table.load().await.view.format_version {
        3 => table.lineage().await.into_iter().map(|(row, id, changed)| format!("{row}|{id:?}|{changed:?}")).collect(),
        _ => table.rows().await,
    }
}
