//! The swap on SQLite, and what each answer proves.
//!
//! The `UPDATE` runs alone, as its own transaction: SQLite commits within the call
//! that runs it, and rolls back before it reports an error. An error that is found
//! before anything is written to the log (busy, a constraint, a read-only file)
//! proves that nothing is applied. An error of the disk does not: the commit record
//! may be in the log, its sync failed, and whoever opens the file next may find it
//! valid. That is unknown, and so is a worker thread that is gone.

use std::time::Duration;

use sqlx::SqlitePool;

use super::{Swap, Verdict};

/// How long a statement waits for other processes' locks.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Turns on the write-ahead log, so that readers and the one writer do not block
/// each other. A file that others hold in another mode stays in it: slower, and
/// equally safe.
pub async fn prepare(pool: &SqlitePool) -> sqlx::Result<()> {
    let mut connection = pool.acquire().await?;
    if let Err(error) = sqlx::query("PRAGMA journal_mode = WAL").execute(&mut *connection).await {
        tracing::debug!(%error, "the catalog's SQLite file keeps its journal mode");
    }
    Ok(())
}

pub async fn swap(pool: &SqlitePool, sql: &str, swap: &Swap<'_>) -> Verdict {
    let mut connection = match pool.acquire().await {
        Ok(connection) => connection,
        Err(error) => return Verdict::Later(error.into()),
    };
    let update = sqlx::query(sql).bind(swap.to).bind(swap.from).bind(swap.catalog);
    match update.bind(swap.name.namespace_path()).bind(&swap.name.table).bind(swap.before).execute(&mut *connection).await {
        Ok(done) if done.rows_affected() == 0 => Verdict::Moved,
        Ok(_) => Verdict::Applied,
        Err(error) => judge(error),
    }
}

fn judge(error: sqlx::Error) -> Verdict {
    let code = error.as_database_error().and_then(|e| e.code()).and_then(|code| code.parse::<u32>().ok());
    match code.map(Code::of) {
        Some(Code::Busy) => Verdict::Later(error.into()),
        Some(Code::Refused) => Verdict::Rejected(error.to_string()),
        Some(Code::Disk) | None => Verdict::Unknown(format!("UPDATE: {error}")),
    }
}

/// What an error code says of the statement's effect.
#[derive(Debug, PartialEq, Eq)]
enum Code {
    /// Not applied: another connection holds the lock.
    Busy,
    /// Not applied: refused before anything was written.
    Refused,
    /// It may be applied.
    Disk,
}

impl Code {
    /// The low byte of an extended code is the primary one.
    fn of(extended: u32) -> Self {
        match extended & 0xff {
            // BUSY, LOCKED
            5 | 6 => Self::Busy,
            // ERROR, PERM, READONLY, CANTOPEN, SCHEMA, TOOBIG, CONSTRAINT, MISMATCH, AUTH, NOTADB
            1 | 3 | 8 | 14 | 17 | 18 | 19 | 20 | 23 | 26 => Self::Refused,
            _ => Self::Disk,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_codes_from_before_any_write_prove_that_nothing_is_applied() {
        // BUSY, BUSY_SNAPSHOT, LOCKED
        assert_eq!([5, 517, 6].map(Code::of), [Code::Busy, Code::Busy, Code::Busy]);
        // CONSTRAINT_PRIMARYKEY, READONLY_DBMOVED, NOTADB
        assert_eq!([1555, 1032, 26].map(Code::of), [Code::Refused, Code::Refused, Code::Refused]);
        // IOERR_FSYNC, FULL, CORRUPT, NOMEM, INTERRUPT, and one that does not exist
        assert_eq!([1034, 13, 11, 7, 9, 200].map(Code::of), [Code::Disk, Code::Disk, Code::Disk, Code::Disk, Code::Disk, Code::Disk]);
    }

    #[test]
    fn a_lost_worker_is_unknown() {
        assert!(matches!(judge(sqlx::Error::WorkerCrashed), Verdict::Unknown(_)));
    }
}
