//! The gRPC door: reads a reported commit into an [`Event`].

use std::str::FromStr;

use uuid::Uuid;

use crate::model::event::{Certainty, Door, Event};
use crate::model::ident::{NotATableName, TableName};
use crate::proto::v1;

/// Longest table name and longest text of a snapshot id or branch, in bytes.
/// The inbox keeps names, so they must be bounded.
const MAX_NAME: usize = 1024;
/// Most snapshots of one event.
const MAX_SNAPSHOTS: usize = 1024;

/// Why an event cannot be read: which field, what is wrong, what to write.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// No table is named.
    #[error("table: the event names no table; write `catalog.namespace.table`, or set `path`")]
    NoTable,
    /// Both spellings are set.
    #[error("table, path: both are set; set one of them")]
    TwoTables,
    /// The text is not a table name.
    #[error("table: {0}")]
    Table(NotATableName),
    /// A part of the path is empty.
    #[error("path: `catalog`, `table` and at least one `namespace` level must be set, and none may be empty")]
    Path,
    /// A text is too long to be kept.
    #[error("{field}: {bytes} bytes are too long; at most {MAX_NAME} are taken")]
    TooLong {
        /// The field.
        field: &'static str,
        /// Its length.
        bytes: usize,
    },
    /// Not a uuid.
    #[error("table_uuid: `{0}` is not a uuid; write it as 8-4-4-4-12 hexadecimal digits, or leave it empty")]
    Uuid(String),
    /// Not a snapshot id.
    #[error("snapshots[{at}].snapshot_id: `{text}` is not a snapshot id; write a whole decimal number of 64 bits, as a string")]
    Snapshot {
        /// Its place.
        at: usize,
        /// The text.
        text: String,
    },
    /// More snapshots than one commit has.
    #[error("snapshots: {0} are too many for one event; send at most {MAX_SNAPSHOTS}, the newest ones")]
    Snapshots(usize),
}

/// Reads an event. Never believes more of it than that a table should be looked
/// at; figures only raise its priority.
///
/// # Errors
/// When the event names no table that could exist or holds a malformed id.
pub fn decode(event: &v1::CommitEvent, door: Door, now_ms: i64) -> Result<Event, Error> {
    let table = table_name(&event.table, event.path.as_ref())?;
    short("ref", &event.r#ref)?;
    if event.snapshots.len() > MAX_SNAPSHOTS {
        return Err(Error::Snapshots(event.snapshots.len()));
    }
    let mut snapshots = Vec::with_capacity(event.snapshots.len());
    let mut files_added = 0_u64;
    for (at, change) in event.snapshots.iter().enumerate() {
        snapshots.push(snapshot_id(at, &change.snapshot_id)?);
        files_added = files_added.saturating_add(files(change));
    }
    let uuid = match event.table_uuid.as_str() {
        "" => None,
        text => Some(Uuid::parse_str(text).map_err(|_| Error::Uuid(clip(text)))?),
    };
    let reference = Some(event.r#ref.clone()).filter(|r| !r.is_empty());
    Ok(Event { door, table, uuid, reference, snapshots, certainty: Certainty::Hint, files_added, heard_ms: now_ms })
}

/// Reads a table's name, given as a text or in parts.
///
/// # Errors
/// When neither or both are given, or a part is empty or too long.
pub fn table_name(text: &str, path: Option<&v1::TablePath>) -> Result<TableName, Error> {
    let Some(path) = path else {
        if text.is_empty() {
            return Err(Error::NoTable);
        }
        short("table", text)?;
        return TableName::from_str(text).map_err(Error::Table);
    };
    if !text.is_empty() {
        return Err(Error::TwoTables);
    }
    let parts = || path.namespace.iter().chain([&path.catalog, &path.table]);
    let bytes = parts().map(String::len).fold(0_usize, usize::saturating_add);
    if bytes > MAX_NAME {
        return Err(Error::TooLong { field: "path", bytes });
    }
    if path.namespace.is_empty() || parts().any(String::is_empty) {
        return Err(Error::Path);
    }
    Ok(TableName { catalog: path.catalog.clone(), namespace: path.namespace.clone(), table: path.table.clone() })
}

fn short(field: &'static str, text: &str) -> Result<(), Error> {
    if text.len() > MAX_NAME { Err(Error::TooLong { field, bytes: text.len() }) } else { Ok(()) }
}

fn snapshot_id(at: usize, text: &str) -> Result<i64, Error> {
    text.parse().map_err(|_| Error::Snapshot { at, text: clip(text) })
}

/// Files added: the total when it is given, else the sum over partitions, each
/// by its count or its files.
fn files(change: &v1::SnapshotChange) -> u64 {
    let count = |c: &Option<v1::FileCounts>| c.as_ref().map(|c| c.data_files.saturating_add(c.delete_files)).filter(|n| *n > 0);
    let listed = |p: &v1::PartitionChange| u64::try_from(p.files_added.len()).unwrap_or(u64::MAX);
    let by_partition = || change.partitions.iter().map(|p| count(&p.added).unwrap_or_else(|| listed(p)));
    count(&change.added).unwrap_or_else(|| by_partition().fold(0, u64::saturating_add))
}

/// The beginning of a text, for an error.
fn clip(text: &str) -> String {
    text.chars().take(64).collect()
}
