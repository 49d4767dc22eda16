//! Opening the journal file: whose it is, which version, and its tables.

use std::borrow::Cow;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{ConnectOptions, Connection, Row, SqliteConnection, SqlitePool};

use super::{Error, Result};

/// Marks the file as ours: `afwr`.
const APPLICATION: i64 = 0x6166_7772;
/// The newest schema known here.
const VERSION: i64 = 4;
/// What a SQLite file begins with.
const MAGIC: &[u8] = b"SQLite format 3\0";
/// How long a write waits for another process.
const BUSY: Duration = Duration::from_secs(20);
/// How soon a file that was locked is tried again.
const AGAIN: Duration = Duration::from_millis(10);
/// SQLite's code for a file that another connection has locked.
const LOCKED: &str = "5";

/// The schema, by version: a file of version `n` runs what follows the first `n`.
const STEPS: [&str; 4] = [
    "
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
CREATE TABLE holders (id TEXT PRIMARY KEY, role TEXT NOT NULL, beat_ms INTEGER NOT NULL, body TEXT NOT NULL) STRICT;
CREATE TABLE jobs (
  id TEXT PRIMARY KEY,
  table_id TEXT NOT NULL,
  table_name TEXT NOT NULL,
  kind TEXT NOT NULL,
  plan TEXT NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('requested','inflight','resolving','committed','failed','cancelled')),
  holder TEXT NOT NULL,
  requested_ms INTEGER NOT NULL,
  changed_ms INTEGER NOT NULL,
  cancel INTEGER NOT NULL DEFAULT 0,
  kept INTEGER NOT NULL DEFAULT 0,
  note TEXT NOT NULL,
  numbers TEXT NOT NULL
) STRICT;
CREATE INDEX jobs_unfinished ON jobs (state) WHERE state IN ('requested','inflight','resolving');
CREATE INDEX jobs_kept ON jobs (kept) WHERE kept = 1;
CREATE TABLE attempts (
  id TEXT PRIMARY KEY,
  job TEXT NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
  number INTEGER NOT NULL,
  lost INTEGER NOT NULL DEFAULT 0,
  state TEXT NOT NULL
) STRICT;
CREATE INDEX attempts_of ON attempts (job);
CREATE INDEX attempts_lost ON attempts (lost) WHERE lost = 1;
CREATE TABLE files (
  attempt TEXT NOT NULL REFERENCES attempts (id),
  path TEXT NOT NULL,
  PRIMARY KEY (attempt, path)
) STRICT, WITHOUT ROWID;
CREATE TABLE pauses (what TEXT PRIMARY KEY, body TEXT NOT NULL) STRICT;
CREATE TABLE blobs (
  kind TEXT NOT NULL, key TEXT NOT NULL, version INTEGER NOT NULL, bytes BLOB NOT NULL,
  PRIMARY KEY (kind, key)
) STRICT;
",
    "
CREATE TABLE blob_logs (
  kind TEXT NOT NULL, key TEXT NOT NULL, at INTEGER NOT NULL, bytes BLOB NOT NULL,
  PRIMARY KEY (kind, key, at)
) STRICT;
",
    // the job has its table's place to commit
    "ALTER TABLE jobs ADD COLUMN place INTEGER NOT NULL DEFAULT 0;",
    // no other tables: versions before do not find an attempt whose snapshot others share
    "",
];

/// Opens the file, which is made when it is missing.
///
/// A file of another program, or of a newer version, is refused before anything
/// in it is changed.
pub(super) async fn open(path: &Path) -> Result<Pools> {
    let shown = path.display().to_string();
    let unavailable = |e: sqlx::Error| Error::Unavailable { path: shown.clone(), why: e.to_string() };
    if let Some(parent) = path.parent().filter(|p| !p.as_os_str().is_empty()) {
        std::fs::create_dir_all(parent).map_err(|e| Error::Unavailable { path: shown.clone(), why: e.to_string() })?;
    }
    if !may_be_sqlite(path).map_err(|e| Error::Unavailable { path: shown.clone(), why: e.to_string() })? {
        return Err(Error::Foreign { path: shown });
    }
    let options = SqliteConnectOptions::new().filename(path).create_if_missing(true).busy_timeout(BUSY).foreign_keys(true);
    let mut first = options.connect().await.map_err(|e| not_ours(&shown, &e))?;
    check(&mut first, &shown).await?;
    first.close().await.map_err(unavailable)?;
    let options = options.journal_mode(SqliteJournalMode::Wal);
    let synced = options.clone().synchronous(SqliteSynchronous::Full);
    let synced = connect(&synced).await.map_err(unavailable)?;
    migrate(&synced, &shown).await?;
    let passing = SqlitePoolOptions::new().max_connections(2).connect_lazy_with(options.synchronous(SqliteSynchronous::Normal));
    Ok(Pools { synced, passing })
}

/// Connects, and changes the file's mode where it is new. SQLite waits for nobody who is at
/// the same: what finds the file locked tries again, for as long as a write would wait.
async fn connect(options: &SqliteConnectOptions) -> sqlx::Result<SqlitePool> {
    let mut left = BUSY;
    loop {
        match SqlitePoolOptions::new().max_connections(4).connect_with(options.clone()).await {
            Err(error) if code(&error).as_deref() == Some(LOCKED) && !left.is_zero() => tokio::time::sleep(AGAIN).await,
            done => return done,
        }
        left = left.saturating_sub(AGAIN);
    }
}

/// Connections to one file.
pub(super) struct Pools {
    /// What is written through these is on the disk when it is done.
    pub synced: SqlitePool,
    /// What is written through these is on the disk with the next that is synced: all
    /// processes see it at once, and none of it is lost with a process, but a power cut
    /// takes it back, the last of it first.
    pub passing: SqlitePool,
}

/// Whether a file is absent, empty, or begins as SQLite's do. SQLite itself takes
/// a file shorter than a page for an empty one, whatever is in it, and would
/// write over it.
fn may_be_sqlite(path: &Path) -> std::io::Result<bool> {
    let mut head = Vec::new();
    match std::fs::File::open(path) {
        Ok(file) => file.take(MAGIC.len() as u64).read_to_end(&mut head).map(|_| head.is_empty() || head == MAGIC),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(true),
        Err(error) => Err(error),
    }
}

async fn check(connection: &mut SqliteConnection, path: &str) -> Result<i64> {
    let number = async |connection: &mut SqliteConnection, sql: &'static str| -> Result<i64> {
        let row = sqlx::query(sql).fetch_one(connection).await.map_err(|e| not_ours(path, &e))?;
        row.try_get::<i64, _>(0).map_err(|e| not_ours(path, &e))
    };
    let tables = number(connection, "SELECT count(*) FROM sqlite_schema").await?;
    let application = number(connection, "PRAGMA application_id").await?;
    let found = number(connection, "PRAGMA user_version").await?;
    if application != APPLICATION && (tables > 0 || application != 0) {
        return Err(Error::Foreign { path: path.into() });
    }
    if found > VERSION {
        return Err(Error::Newer { path: path.into(), found, known: VERSION });
    }
    Ok(found)
}

async fn migrate(pool: &SqlitePool, path: &str) -> Result<()> {
    let unavailable = |e: sqlx::Error| Error::Unavailable { path: path.into(), why: e.to_string() };
    let mut turn = pool.begin_with("BEGIN IMMEDIATE").await.map_err(unavailable)?;
    let found = check(&mut turn, path).await?;
    if found < VERSION {
        for step in STEPS.iter().skip(usize::try_from(found).unwrap_or(0)) {
            sqlx::raw_sql(step).execute(&mut *turn).await.map_err(unavailable)?;
        }
        let stamp = format!("PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {VERSION};");
        sqlx::raw_sql(&stamp).execute(&mut *turn).await.map_err(unavailable)?;
    }
    turn.commit().await.map_err(unavailable)
}

/// SQLite's code of an error.
fn code(error: &sqlx::Error) -> Option<Cow<'_, str>> {
    error.as_database_error().and_then(|e| e.code())
}

/// `file is not a database` is another program's file; the rest may pass.
fn not_ours(path: &str, error: &sqlx::Error) -> Error {
    match code(error).as_deref() {
        Some("26") => Error::Foreign { path: path.into() },
        _ => Error::Unavailable { path: path.into(), why: error.to_string() },
    }
}
