//! Rows of the journal's file.

use sqlx::sqlite::SqliteRow;
use sqlx::{Row, Sqlite};

use super::{Blob, Ended, Error, Holder, Result, Spent, parse, text};
use crate::act::attempt::Attempt;
use crate::act::job::{Job, JobState};
use crate::model::ident::{TableFormat, TableIdent};
use crate::model::plan::{AttemptId, JobId, Plan};

/// A column of a row.
pub(super) fn column<'r, T: sqlx::Decode<'r, Sqlite> + sqlx::Type<Sqlite>>(row: &'r SqliteRow, name: &'static str) -> Result<T> {
    row.try_get(name).map_err(|e| Error::Unreadable { id: name.into(), why: e.to_string() })
}

fn read_state(row: &SqliteRow, id: &str) -> Result<JobState> {
    let state: String = column(row, "state")?;
    JobState::from_code(&state).ok_or_else(|| Error::Unreadable { id: id.to_owned(), why: format!("no state is called {state}") })
}

/// A row of `jobs` without its plan.
pub(super) fn read_ended(row: &SqliteRow) -> Result<Ended> {
    let id: String = column(row, "id")?;
    Ok(Ended {
        state: read_state(row, &id)?,
        changed_ms: column(row, "changed_ms")?,
        numbers: parse(&id, column(row, "numbers")?)?,
        id: JobId(id),
    })
}

/// What a row of `jobs` cost.
pub(super) fn read_spent(row: &SqliteRow) -> Result<Spent> {
    Ok(Spent {
        job: JobId(column(row, "id")?),
        by_hand: column::<i64>(row, "by_hand")? != 0,
        ended: column::<i64>(row, "ended")? != 0,
        at_ms: column(row, "changed_ms")?,
        table: read_table_key(column(row, "table_id")?),
        name: column(row, "table_name")?,
        gb_hours: column(row, "cost")?,
        bytes: u64::try_from(column::<i64>(row, "bytes")?).unwrap_or(0),
        commits: column::<i64>(row, "commits")? != 0,
    })
}

/// A row of `jobs`.
pub(super) fn read_job(row: &SqliteRow) -> Result<Job> {
    let id: String = column(row, "id")?;
    let state = read_state(row, &id)?;
    Ok(Job {
        kind: parse(&id, column(row, "kind")?)?,
        plan: parse(&id, column(row, "plan")?)?,
        state,
        holder: column(row, "holder")?,
        requested_ms: column(row, "requested_ms")?,
        changed_ms: column(row, "changed_ms")?,
        cancel: column::<i64>(row, "cancel")? != 0,
        note: column(row, "note")?,
        numbers: parse(&id, column(row, "numbers")?)?,
        id: JobId(id),
    })
}

/// A row of `attempts`.
pub(super) fn read_attempt(row: &SqliteRow) -> Result<Attempt> {
    let id: String = column(row, "id")?;
    let number = u32::try_from(column::<i64>(row, "number")?);
    Ok(Attempt {
        job: JobId(column(row, "job")?),
        number: number.map_err(|e| Error::Unreadable { id: id.clone(), why: e.to_string() })?,
        state: parse(&id, column(row, "state")?)?,
        id: AttemptId(id),
    })
}

/// A row of `blobs`.
pub(super) fn read_blob(row: &SqliteRow, kind: &str, key: &str) -> Result<Blob> {
    let version = u32::try_from(column::<i64>(row, "version")?);
    let version = version.map_err(|e| Error::Unreadable { id: format!("{kind}/{key}"), why: e.to_string() })?;
    Ok(Blob { version, bytes: column(row, "bytes")? })
}

/// A table, or all, as the journal spells it.
pub(super) fn table_key(table: Option<&TableIdent>) -> String {
    match table {
        None => "*".into(),
        Some(TableIdent { format: TableFormat::Iceberg, uuid }) => format!("iceberg:{uuid}"),
    }
}

/// The table of a key; `None` for all.
pub(super) fn read_table_key(key: &str) -> Option<TableIdent> {
    key.strip_prefix("iceberg:").and_then(|uuid| uuid.parse().ok()).map(TableIdent::iceberg)
}

/// The plan as JSON that reads back equal.
pub(super) fn plan_text(id: &JobId, plan: &Plan) -> Result<String> {
    let json = text(&id.0, plan)?;
    match parse::<Plan>(&id.0, &json)? == *plan {
        true => Ok(json),
        false => Err(Error::Unreadable { id: id.0.clone(), why: "the plan does not read back equal".into() }),
    }
}

/// A row of `holders`.
pub(super) fn read_holder(row: &SqliteRow) -> Result<Holder> {
    let mut holder: Holder = parse("holder", column(row, "body")?)?;
    holder.beat_ms = column(row, "beat_ms")?;
    Ok(holder)
}
