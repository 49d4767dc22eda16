//! The swap on PostgreSQL, and what each answer proves.
//!
//! The `UPDATE` runs in an explicit transaction, because that leaves one statement
//! whose loss is in doubt. Whatever goes wrong up to and including the `UPDATE`
//! (no connection, an error, silence, a lost connection), `COMMIT` was never sent,
//! and the server rolls back a transaction whose client is gone: proven not
//! applied. Only `COMMIT` itself can be applied without our hearing of it:
//!
//! * answered with success: applied;
//! * answered with an error of severity `ERROR`: the server aborted the transaction
//!   and says so: not applied. Not so for classes that a server or a proxy uses for
//!   a connection or a system in trouble, and for `40003`, which says in words that
//!   the outcome is not known;
//! * anything else (`FATAL`, a lost connection, silence): unknown.
//!
//! Under `READ COMMITTED` a concurrent swap of the row makes ours wait, then look
//! at the row again, find another location and change nothing.

use std::time::Duration;

use sqlx::PgPool;
use sqlx::postgres::{PgDatabaseError, PgSeverity};

use super::{Swap, Verdict};

/// How long a statement may stay without an answer.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// How long a connection may take to be made, or to become free.
pub const CONNECT_PATIENCE: Duration = Duration::from_secs(10);
/// How long the `UPDATE` may wait for the row; below [`PATIENCE`], so that the
/// server speaks first.
pub const LOCK_TIMEOUT: &str = "SET LOCAL lock_timeout = '20s'";

pub async fn swap(pool: &PgPool, sql: &str, swap: &Swap<'_>) -> Verdict {
    let update = async {
        let mut transaction = pool.begin().await?;
        sqlx::query(LOCK_TIMEOUT).execute(&mut *transaction).await?;
        let update = sqlx::query(sql).bind(swap.to).bind(swap.from).bind(swap.catalog);
        let rows = update
            .bind(swap.name.namespace_path())
            .bind(&swap.name.table)
            .bind(swap.before)
            .execute(&mut *transaction)
            .await?
            .rows_affected();
        Ok((transaction, rows))
    };
    let (transaction, rows) = match tokio::time::timeout(PATIENCE, update).await {
        Ok(Ok(updated)) => updated,
        Ok(Err(error)) => return before_commit(error),
        Err(_) => return Verdict::Later(anyhow::anyhow!("no answer to UPDATE within {PATIENCE:?}; COMMIT was not sent")),
    };
    if rows == 0 {
        return Verdict::Moved;
    }
    match tokio::time::timeout(PATIENCE, transaction.commit()).await {
        Ok(Ok(())) => Verdict::Applied,
        Ok(Err(error)) => after_commit(error),
        Err(_) => Verdict::Unknown(format!("no answer to COMMIT within {PATIENCE:?}")),
    }
}

/// An error before `COMMIT` was sent: nothing is applied, whatever it was.
fn before_commit(error: sqlx::Error) -> Verdict {
    let code = error.as_database_error().and_then(|e| e.code()).unwrap_or_default().into_owned();
    refused(&code, error)
}

/// An error in answer to `COMMIT`, or instead of an answer.
fn after_commit(error: sqlx::Error) -> Verdict {
    let answer = error.as_database_error().and_then(|e| e.try_downcast_ref::<PgDatabaseError>());
    match answer.map(|e| (e.severity(), e.code().to_owned())) {
        Some((severity, code)) if proves_abort(severity, &code) => refused(&code, error),
        _ => Verdict::Unknown(format!("COMMIT: {error}")),
    }
}

fn proves_abort(severity: PgSeverity, code: &str) -> bool {
    let in_doubt = code == "40003" || ["08", "57", "58", "XX"].iter().any(|class| code.starts_with(class));
    severity == PgSeverity::Error && !in_doubt
}

/// A swap that is proven not applied, by whether another try may help.
fn refused(code: &str, error: sqlx::Error) -> Verdict {
    match code.get(..2) {
        _ if code == "40001" => Verdict::Moved,
        Some("22" | "23" | "25" | "28" | "3D" | "42" | "44" | "P0") => Verdict::Rejected(error.to_string()),
        _ => Verdict::Later(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_error_that_aborts_the_transaction_proves_it() {
        for code in ["40001", "40P01", "23505", "P0001", "53100", "25P02"] {
            assert!(proves_abort(PgSeverity::Error, code), "{code}");
            assert!(!proves_abort(PgSeverity::Fatal, code), "{code}");
            assert!(!proves_abort(PgSeverity::Panic, code), "{code}");
        }
        for code in ["40003", "08006", "08P01", "57P01", "57014", "58030", "XX000"] {
            assert!(!proves_abort(PgSeverity::Error, code), "{code}");
        }
    }

    #[test]
    fn a_connection_lost_in_commit_is_unknown_and_one_lost_before_is_not() {
        let lost = || sqlx::Error::Io(std::io::Error::from(std::io::ErrorKind::ConnectionReset));
        assert!(matches!(after_commit(lost()), Verdict::Unknown(_)));
        assert!(matches!(after_commit(sqlx::Error::PoolClosed), Verdict::Unknown(_)));
        assert!(matches!(before_commit(lost()), Verdict::Later(_)));
    }

    #[test]
    fn refusals_are_sorted_by_whether_another_try_may_help() {
        let error = || sqlx::Error::PoolTimedOut;
        assert!(matches!(refused("40001", error()), Verdict::Moved));
        assert!(matches!(refused("22001", error()), Verdict::Rejected(_)));
        assert!(matches!(refused("55P03", error()), Verdict::Later(_)));
        assert!(matches!(refused("", error()), Verdict::Later(_)));
    }
}
