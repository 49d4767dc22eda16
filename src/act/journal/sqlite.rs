//! The journal in a SQLite file: write-ahead log, safe for several processes on one
//! machine.
//!
//! It is synced before anything happens outside of it that it must know of after a power
//! cut: a file that is begun, a question to a catalog, a file that is removed; and when
//! something has ended. Steps up to the next of these are on the disk together with it.

use std::path::Path;

use async_trait::async_trait;
use sqlx::sqlite::SqliteRow;
use sqlx::{Sqlite, SqlitePool, Transaction};

use super::rows::{column, plan_text, read_attempt, read_blob, read_ended, read_holder, read_job, read_spent, read_table_key, table_key};
use super::{
    Blob, Change, Ended, Error, Holder, Journal, Kept, Pause, Pauses, Query, Result, Role, Spent, Step, check_attempt, check_holder,
    check_job, has_lease, parse, schema, text,
};
use crate::act::attempt::{Attempt, AttemptState};
use crate::act::job::{Job, JobState, Kind, Numbers};
use crate::model::ident::TableIdent;
use crate::model::plan::{AttemptId, JobId};

/// See the module.
pub struct SqliteJournal {
    pool: SqlitePool,
    passing: SqlitePool,
    path: String,
}

impl SqliteJournal {
    /// Opens, or makes, the file at `path`.
    ///
    /// Errs with [`Error::Newer`] for a file of a newer version and with
    /// [`Error::Foreign`] for a file of another program; neither is changed.
    pub async fn open(path: &Path) -> Result<Self> {
        let schema::Pools { synced, passing } = schema::open(path).await?;
        Ok(Self { pool: synced, passing, path: path.display().to_string() })
    }

    /// Waits for writes under way and closes the file.
    pub async fn close(&self) {
        self.passing.close().await;
        self.pool.close().await;
    }

    fn error(&self, error: &sqlx::Error) -> Error {
        Error::Unavailable { path: self.path.clone(), why: error.to_string() }
    }

    /// A transaction that holds the write lock from its start.
    async fn turn(&self) -> Result<Transaction<'static, Sqlite>> {
        self.pool.begin_with("BEGIN IMMEDIATE").await.map_err(|e| self.error(&e))
    }

    /// The same for a step that another follows, which is synced, before anything
    /// outside the journal depends on it.
    async fn passing(&self) -> Result<Transaction<'static, Sqlite>> {
        self.passing.begin_with("BEGIN IMMEDIATE").await.map_err(|e| self.error(&e))
    }

    async fn end(&self, turn: Transaction<'static, Sqlite>) -> Result<()> {
        turn.commit().await.map_err(|e| self.error(&e))
    }

    /// Errs when a process does not hold a job.
    async fn held(&self, turn: &mut Transaction<'static, Sqlite>, job: &JobId, holder: &str) -> Result<()> {
        let row = sqlx::query("SELECT holder FROM jobs WHERE id = ?1").bind(&job.0).fetch_optional(&mut **turn).await;
        let row = row.map_err(|e| self.error(&e))?.ok_or_else(|| Error::Absent(job.0.clone()))?;
        check_holder(job, column(&row, "holder")?, holder)
    }

    /// The unfinished jobs on a table of other processes that are entered and not dead.
    async fn others(
        &self,
        turn: &mut Transaction<'static, Sqlite>,
        table: &TableIdent,
        holder: &str,
        dead: &[String],
    ) -> Result<Vec<SqliteRow>> {
        let sql = "SELECT * FROM jobs WHERE state IN ('requested','inflight','resolving') AND table_id = ?1 AND holder <> ?2
                   AND holder IN (SELECT id FROM holders)";
        let query = sqlx::query(sql).bind(table_key(Some(table))).bind(holder);
        let mut living = Vec::new();
        for row in query.fetch_all(&mut **turn).await.map_err(|e| self.error(&e))? {
            if !dead.contains(&column(&row, "holder")?) {
                living.push(row);
            }
        }
        Ok(living)
    }

    /// Stores a value in place of the one before and of its log, or removes both.
    async fn set_blob(&self, turn: &mut Transaction<'static, Sqlite>, kind: &str, key: &str, blob: Option<&Blob>) -> Result<()> {
        let query = match blob {
            Some(blob) => {
                let sql = "INSERT OR REPLACE INTO blobs (kind, key, version, bytes) VALUES (?1, ?2, ?3, ?4)";
                sqlx::query(sql).bind(kind).bind(key).bind(i64::from(blob.version)).bind(&blob.bytes)
            }
            None => sqlx::query("DELETE FROM blobs WHERE kind = ?1 AND key = ?2").bind(kind).bind(key),
        };
        query.execute(&mut **turn).await.map_err(|e| self.error(&e))?;
        self.drop_log(turn, kind, key).await
    }

    /// Removes a value's log.
    async fn drop_log(&self, turn: &mut Transaction<'static, Sqlite>, kind: &str, key: &str) -> Result<()> {
        let query = sqlx::query("DELETE FROM blob_logs WHERE kind = ?1 AND key = ?2").bind(kind).bind(key);
        query.execute(&mut **turn).await.map_err(|e| self.error(&e))?;
        Ok(())
    }

    /// Runs one statement with text arguments; the number of rows changed.
    async fn run(&self, sql: &'static str, arguments: &[&str]) -> Result<u64> {
        let mut query = sqlx::query(sql);
        for argument in arguments {
            query = query.bind(*argument);
        }
        Ok(query.execute(&self.pool).await.map_err(|e| self.error(&e))?.rows_affected())
    }

    /// Reads the rows of one statement with text arguments.
    async fn read<T>(&self, sql: &'static str, arguments: &[&str], row: impl Fn(&SqliteRow) -> Result<T>) -> Result<Vec<T>> {
        let mut query = sqlx::query(sql);
        for argument in arguments {
            query = query.bind(*argument);
        }
        query.fetch_all(&self.pool).await.map_err(|e| self.error(&e))?.iter().map(row).collect()
    }
}

/// What rewrites cost for which a condition holds. Plans may be large: their bound alone
/// is read.
macro_rules! spent_where {
    ($condition:literal) => {
        concat!(
            "SELECT id, changed_ms, table_id, table_name, CASE WHEN json_extract(numbers, '$.millis') > 0
             THEN json_extract(numbers, '$.gb_hours') ELSE json_extract(plan, '$.bound.gb_hours') END + 0.0 AS cost,
             json_extract(numbers, '$.bytes_in') AS bytes, state NOT IN ('failed','cancelled') AND json_extract(numbers, '$.joined_to') IS NULL AS commits,
             state IN ('committed','failed','cancelled') AS ended, json_extract(plan, '$.reason') = 'request' AS by_hand
             FROM jobs WHERE kind = ?1 AND ",
            $condition
        )
    };
}

const BLOB: &str = "SELECT version, bytes FROM blobs WHERE kind = ?1 AND key = ?2";

#[async_trait]
impl Journal for SqliteJournal {
    async fn instance(&self, fresh: &str) -> Result<String> {
        self.run("INSERT INTO facts (name, value) VALUES ('instance', ?1) ON CONFLICT DO NOTHING", &[fresh]).await?;
        let found = self.read("SELECT value FROM facts WHERE name = 'instance'", &[], |r| column(r, "value")).await?;
        found.into_iter().next().ok_or_else(|| Error::Absent("instance".into()))
    }

    async fn claim(&self, holder: &Holder, dead: &[String]) -> Result<()> {
        let mut turn = self.turn().await?;
        let rows = sqlx::query("SELECT body, beat_ms FROM holders").fetch_all(&mut *turn).await.map_err(|e| self.error(&e))?;
        for row in &rows {
            let other = read_holder(row)?;
            if holder.role == Role::Serve && other.role == Role::Serve && other.id != holder.id && !dead.contains(&other.id) {
                return Err(Error::Held { since_ms: holder.beat_ms - other.beat_ms, holder: other });
            }
        }
        for id in dead {
            sqlx::query("DELETE FROM holders WHERE id = ?1").bind(id).execute(&mut *turn).await.map_err(|e| self.error(&e))?;
        }
        sqlx::query("INSERT OR REPLACE INTO holders (id, role, beat_ms, body) VALUES (?1, ?2, ?3, ?4)")
            .bind(&holder.id)
            .bind(text(&holder.id, &holder.role)?)
            .bind(holder.beat_ms)
            .bind(text(&holder.id, holder)?)
            .execute(&mut *turn)
            .await
            .map_err(|e| self.error(&e))?;
        self.end(turn).await
    }

    async fn beat(&self, holder: &str, now_ms: i64) -> Result<bool> {
        let query = sqlx::query("UPDATE holders SET beat_ms = ?2 WHERE id = ?1").bind(holder).bind(now_ms);
        Ok(query.execute(&self.passing).await.map_err(|e| self.error(&e))?.rows_affected() > 0)
    }

    async fn release(&self, holder: &str) -> Result<()> {
        self.run("DELETE FROM holders WHERE id = ?1", &[holder]).await?;
        Ok(())
    }

    async fn holders(&self) -> Result<Vec<Holder>> {
        self.read("SELECT body, beat_ms FROM holders ORDER BY id", &[], read_holder).await
    }

    async fn request(&self, job: &Job, dead: &[String]) -> Result<bool> {
        let refused = || Error::Illegal { id: job.id.0.clone(), from: "absent".into(), to: job.state.code().into() };
        if job.state != JobState::Requested {
            return Err(refused());
        }
        // no file is begun before it is named, which is synced
        let mut turn = self.passing().await?;
        for other in self.others(&mut turn, &job.plan.table, &job.holder, dead).await? {
            if has_lease(&read_job(&other)?, &job.plan) {
                return Ok(false);
            }
        }
        let sql = "INSERT INTO jobs (id, table_id, table_name, kind, plan, state, holder, requested_ms, changed_ms, note, numbers)
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11) ON CONFLICT DO NOTHING";
        let done = sqlx::query(sql)
            .bind(&job.id.0)
            .bind(table_key(Some(&job.plan.table)))
            .bind(job.plan.name.to_string())
            .bind(text(&job.id.0, &job.kind)?)
            .bind(plan_text(&job.id, &job.plan)?)
            .bind(job.state.code())
            .bind(&job.holder)
            .bind(job.requested_ms)
            .bind(job.changed_ms)
            .bind(&job.note)
            .bind(text(&job.id.0, &job.numbers)?)
            .execute(&mut *turn)
            .await
            .map_err(|e| self.error(&e))?;
        if done.rows_affected() != 1 {
            return Err(refused());
        }
        self.end(turn).await?;
        Ok(true)
    }

    async fn take_place(&self, holder: &str, job: &JobId, dead: &[String]) -> Result<bool> {
        // processes ask each other, and none outlives the machine
        let mut turn = self.passing().await?;
        self.held(&mut turn, job, holder).await?;
        let row = sqlx::query("SELECT table_id FROM jobs WHERE id = ?1").bind(&job.0).fetch_one(&mut *turn).await;
        let table = read_table_key(column(&row.map_err(|e| self.error(&e))?, "table_id")?).ok_or_else(|| Error::Absent(job.0.clone()))?;
        for other in self.others(&mut turn, &table, holder, dead).await? {
            if column::<i64>(&other, "place")? != 0 {
                return Ok(false);
            }
        }
        let taken = sqlx::query("UPDATE jobs SET place = 1 WHERE id = ?1").bind(&job.0);
        taken.execute(&mut *turn).await.map_err(|e| self.error(&e))?;
        self.end(turn).await?;
        Ok(true)
    }

    async fn leave_place(&self, holder: &str, job: &JobId) -> Result<()> {
        let query = sqlx::query("UPDATE jobs SET place = 0 WHERE id = ?1 AND holder = ?2").bind(&job.0).bind(holder);
        query.execute(&self.passing).await.map_err(|e| self.error(&e))?;
        Ok(())
    }

    async fn advance(&self, step: Step<'_>) -> Result<()> {
        let mut turn = if step.to == JobState::Inflight { self.passing().await? } else { self.turn().await? };
        let row = sqlx::query("SELECT * FROM jobs WHERE id = ?1").bind(&step.job.0).fetch_optional(&mut *turn).await;
        let row = row.map_err(|e| self.error(&e))?.ok_or_else(|| Error::Absent(step.job.0.clone()))?;
        let job = read_job(&row)?;
        check_holder(step.job, &job.holder, step.holder)?;
        check_job(step.job, job.state, step.to)?;
        let keeps = job.state != step.to && step.to == JobState::Committed && job.kind == Kind::Rewrite;
        sqlx::query("UPDATE jobs SET state = ?2, changed_ms = ?3, note = ?4, numbers = ?5, kept = kept OR ?6 WHERE id = ?1")
            .bind(&step.job.0)
            .bind(step.to.code())
            .bind(step.at_ms)
            .bind(step.note)
            .bind(text(&step.job.0, step.numbers.unwrap_or(&job.numbers))?)
            .bind(i64::from(keeps))
            .execute(&mut *turn)
            .await
            .map_err(|e| self.error(&e))?;
        self.end(turn).await
    }

    async fn adopt(&self, job: &JobId, from: &str, to: &str) -> Result<()> {
        self.run("UPDATE jobs SET holder = ?3, place = 0 WHERE id = ?1 AND holder = ?2", &[&job.0, from, to]).await?;
        Ok(())
    }

    async fn job(&self, id: &JobId) -> Result<Option<Job>> {
        Ok(self.read("SELECT * FROM jobs WHERE id = ?1", &[&id.0], read_job).await?.into_iter().next())
    }

    async fn jobs(&self, query: Query) -> Result<Vec<Job>> {
        match query {
            Query::Unfinished => {
                let sql = "SELECT * FROM jobs WHERE state IN ('requested','inflight','resolving') ORDER BY id";
                self.read(sql, &[], read_job).await
            }
            Query::Latest(n) => {
                let sql = "SELECT * FROM jobs ORDER BY id DESC LIMIT CAST(?1 AS INTEGER)";
                self.read(sql, &[&n.to_string()], read_job).await
            }
        }
    }

    async fn ask_cancel(&self, id: &JobId) -> Result<bool> {
        let sql = "UPDATE jobs SET cancel = 1 WHERE id = ?1 AND state IN ('requested','inflight','resolving')";
        if self.run(sql, &[&id.0]).await? == 1 {
            return Ok(true);
        }
        self.job(id).await?.map(|_| false).ok_or_else(|| Error::Absent(id.0.clone()))
    }

    async fn is_cancelled(&self, id: &JobId) -> Result<bool> {
        let found = self.read("SELECT cancel FROM jobs WHERE id = ?1", &[&id.0], |r| column::<i64>(r, "cancel")).await?;
        Ok(found.first().is_some_and(|c| *c != 0))
    }

    async fn begin(&self, holder: &str, attempt: &Attempt) -> Result<()> {
        // its files are named, and the catalog is asked, by steps that are synced
        let mut turn = self.passing().await?;
        self.held(&mut turn, &attempt.job, holder).await?;
        let sql = "INSERT INTO attempts (id, job, number, lost, state) VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT DO NOTHING";
        let done = sqlx::query(sql)
            .bind(&attempt.id.0)
            .bind(&attempt.job.0)
            .bind(i64::from(attempt.number))
            .bind(i64::from(attempt.state.is_lost()))
            .bind(text(&attempt.id.0, &attempt.state)?)
            .execute(&mut *turn)
            .await
            .map_err(|e| self.error(&e))?;
        if done.rows_affected() == 1 {
            return self.end(turn).await;
        }
        Err(Error::Illegal { id: attempt.id.0.clone(), from: "begun".into(), to: "begun".into() })
    }

    async fn step(&self, holder: &str, attempt: &AttemptId, to: &AttemptState) -> Result<()> {
        let mut turn = if *to == AttemptState::Verified { self.passing().await? } else { self.turn().await? };
        let row = sqlx::query("SELECT * FROM attempts WHERE id = ?1").bind(&attempt.0).fetch_optional(&mut *turn).await;
        let row = row.map_err(|e| self.error(&e))?.ok_or_else(|| Error::Absent(attempt.0.clone()))?;
        let known = read_attempt(&row)?;
        self.held(&mut turn, &known.job, holder).await?;
        check_attempt(attempt, &known.state, to)?;
        sqlx::query("UPDATE attempts SET state = ?2, lost = ?3 WHERE id = ?1")
            .bind(&attempt.0)
            .bind(text(&attempt.0, to)?)
            .bind(i64::from(to.is_lost()))
            .execute(&mut *turn)
            .await
            .map_err(|e| self.error(&e))?;
        if matches!(to, AttemptState::Landed { .. }) {
            let gone = sqlx::query("DELETE FROM files WHERE attempt = ?1").bind(&attempt.0);
            gone.execute(&mut *turn).await.map_err(|e| self.error(&e))?;
        }
        self.end(turn).await
    }

    async fn attempts(&self, job: &JobId) -> Result<Vec<Attempt>> {
        self.read("SELECT * FROM attempts WHERE job = ?1 ORDER BY number", &[&job.0], read_attempt).await
    }

    async fn litter(&self) -> Result<Vec<Attempt>> {
        let sql = "SELECT * FROM attempts a WHERE lost = 1 AND EXISTS (SELECT 1 FROM files f WHERE f.attempt = a.id) ORDER BY id";
        self.read(sql, &[], read_attempt).await
    }

    async fn name_file(&self, attempt: &AttemptId, path: &str) -> Result<()> {
        let sql =
            "INSERT INTO files (attempt, path) SELECT id, ?2 FROM attempts WHERE id = ?1 ON CONFLICT DO UPDATE SET path = excluded.path";
        match self.run(sql, &[&attempt.0, path]).await? {
            0 => Err(Error::Absent(attempt.0.clone())),
            _ => Ok(()),
        }
    }

    async fn files(&self, attempt: &AttemptId) -> Result<Vec<String>> {
        self.read("SELECT path FROM files WHERE attempt = ?1 ORDER BY path", &[&attempt.0], |r| column(r, "path")).await
    }

    async fn move_files(&self, from: &AttemptId, to: &AttemptId, paths: &[String]) -> Result<()> {
        let mut turn = self.turn().await?;
        let known = sqlx::query("SELECT 1 FROM attempts WHERE id = ?1").bind(&to.0).fetch_optional(&mut *turn).await;
        if known.map_err(|e| self.error(&e))?.is_none() {
            return Err(Error::Absent(to.0.clone()));
        }
        for path in paths {
            sqlx::query("UPDATE OR REPLACE files SET attempt = ?2 WHERE attempt = ?1 AND path = ?3")
                .bind(&from.0)
                .bind(&to.0)
                .bind(path)
                .execute(&mut *turn)
                .await
                .map_err(|e| self.error(&e))?;
        }
        self.end(turn).await
    }

    async fn forget_files(&self, attempt: &AttemptId, paths: &[String]) -> Result<()> {
        let mut turn = self.turn().await?;
        for path in paths {
            let gone = sqlx::query("DELETE FROM files WHERE attempt = ?1 AND path = ?2").bind(&attempt.0).bind(path);
            gone.execute(&mut *turn).await.map_err(|e| self.error(&e))?;
        }
        self.end(turn).await
    }

    async fn pause(&self, pause: &Pause) -> Result<()> {
        let what = table_key(pause.table.as_ref());
        self.run("INSERT OR REPLACE INTO pauses (what, body) VALUES (?1, ?2)", &[&what, &text(&what, pause)?]).await?;
        Ok(())
    }

    async fn resume(&self, table: Option<&TableIdent>) -> Result<bool> {
        Ok(self.run("DELETE FROM pauses WHERE what = ?1", &[&table_key(table)]).await? > 0)
    }

    async fn pauses(&self) -> Result<Pauses> {
        let all = self.read("SELECT body FROM pauses", &[], |r| parse::<Pause>("pause", column(r, "body")?)).await?;
        Ok(Pauses(all.into_iter().collect()))
    }

    async fn put_blob(&self, kind: &str, key: &str, blob: &Blob) -> Result<()> {
        let mut turn = self.turn().await?;
        self.set_blob(&mut turn, kind, key, Some(blob)).await?;
        self.end(turn).await
    }

    async fn change_blob(&self, kind: &str, key: &str, change: &Change<'_>) -> Result<Option<Blob>> {
        let mut turn = self.turn().await?;
        let row = sqlx::query(BLOB).bind(kind).bind(key).fetch_optional(&mut *turn).await.map_err(|e| self.error(&e))?;
        let before = row.as_ref().map(|row| read_blob(row, kind, key)).transpose()?;
        let after = change(before.as_ref())?;
        self.set_blob(&mut turn, kind, key, after.as_ref()).await?;
        self.end(turn).await?;
        Ok(before)
    }

    async fn blob(&self, kind: &str, key: &str) -> Result<Option<Blob>> {
        Ok(self.read(BLOB, &[kind, key], |row| read_blob(row, kind, key)).await?.into_iter().next())
    }

    async fn drop_blob(&self, kind: &str, key: &str) -> Result<()> {
        let mut turn = self.turn().await?;
        self.set_blob(&mut turn, kind, key, None).await?;
        self.end(turn).await
    }

    async fn log_blob(&self, kind: &str, key: &str, at: u64, record: &[u8]) -> Result<()> {
        let unreadable = |e: std::num::TryFromIntError| Error::Unreadable { id: format!("{kind}/{key}"), why: e.to_string() };
        let sql = "INSERT OR REPLACE INTO blob_logs (kind, key, at, bytes) VALUES (?1, ?2, ?3, ?4)";
        let query = sqlx::query(sql).bind(kind).bind(key).bind(i64::try_from(at).map_err(unreadable)?).bind(record);
        // the log of a checkpoint: without its last records less is known, and read again
        query.execute(&self.passing).await.map_err(|e| self.error(&e))?;
        Ok(())
    }

    async fn blob_log(&self, kind: &str, key: &str) -> Result<Vec<Vec<u8>>> {
        let sql = "SELECT bytes FROM blob_logs WHERE kind = ?1 AND key = ?2 ORDER BY at";
        self.read(sql, &[kind, key], |row| column(row, "bytes")).await
    }

    async fn kept(&self) -> Result<Vec<Kept>> {
        let read = |row: &SqliteRow| -> Result<Option<Kept>> {
            let id: String = column(row, "id")?;
            let numbers: Numbers = parse(&id, column(row, "numbers")?)?;
            let table = read_table_key(column(row, "table_id")?);
            let found = table.zip(numbers.snapshot_id);
            Ok(found.map(|(table, snapshot_id)| Kept {
                table,
                job: JobId(id),
                branch: numbers.branch,
                snapshot_id,
                bytes: numbers.bytes_in,
            }))
        };
        let found = self.read("SELECT id, table_id, numbers FROM jobs WHERE kept = 1 ORDER BY id", &[], read).await?;
        Ok(found.into_iter().flatten().collect())
    }

    async fn forget_kept(&self, job: &JobId) -> Result<()> {
        self.run("UPDATE jobs SET kept = 0 WHERE id = ?1", &[&job.0]).await?;
        Ok(())
    }

    async fn spent(&self, since_ms: i64) -> Result<Vec<Spent>> {
        let rewrite = text("", &Kind::Rewrite)?;
        self.read(spent_where!("changed_ms >= CAST(?2 AS INTEGER)"), &[&rewrite, &since_ms.to_string()], read_spent).await
    }

    async fn spent_by_hand(&self, from: &JobId) -> Result<Vec<Spent>> {
        let rewrite = text("", &Kind::Rewrite)?;
        self.read(spent_where!("id >= ?2 AND by_hand"), &[&rewrite, &from.0], read_spent).await
    }

    async fn ended(&self, table: &TableIdent, most: u32) -> Result<Vec<Ended>> {
        let sql = "SELECT id, state, changed_ms, numbers FROM jobs WHERE table_id = ?1 AND kind = ?2
                   AND state IN ('committed','failed','cancelled') ORDER BY id DESC LIMIT CAST(?3 AS INTEGER)";
        let rewrite = text("", &Kind::Rewrite)?;
        self.read(sql, &[&table_key(Some(table)), &rewrite, &most.to_string()], read_ended).await
    }

    async fn prune(&self, before_ms: i64) -> Result<u64> {
        let sql = "DELETE FROM jobs WHERE state IN ('committed','failed','cancelled') AND kept = 0 AND changed_ms < ?1
                   AND NOT EXISTS (SELECT 1 FROM attempts a JOIN files f ON f.attempt = a.id WHERE a.job = jobs.id)";
        let done = sqlx::query(sql).bind(before_ms).execute(&self.pool).await.map_err(|e| self.error(&e))?;
        Ok(done.rows_affected())
    }
}
