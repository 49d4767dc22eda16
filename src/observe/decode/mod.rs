//! Decoders of what others emit around a commit, one file a format: bytes in,
//! drafts of events out. Pure, and never the reason of a panic.
//!
//! Nothing that a draft says is believed: it names a table to look at. A record
//! that is about no commit (a scan, a heartbeat, a view) gives no draft.

mod cloud_events;
mod commit_request;
mod connect;
mod hudi;
mod json;
mod native;
mod notification;
mod openlineage;
mod polaris;
mod report;
mod s3;
mod trino;

use uuid::Uuid;

use crate::model::event::{Certainty, Event};
use crate::model::ident::TableName;
use crate::model::wire::Wire;

pub use connect::{File as ConnectFile, Message as ConnectMessage, Payload as ConnectPayload, decode as connect_message};
pub use native::{Told, events as native_events};
pub use notification::decode as notification;
pub use report::{decode_at as report_at, table as reported_table};

/// Longest name, in bytes over its parts: the inbox keeps names.
const MAX_NAME: usize = 1024;
/// Most snapshots of one draft, and most drafts of one record.
const MAX_SNAPSHOTS: usize = 1024;
const MAX_DRAFTS: usize = 10_000;

/// What a door got.
#[derive(Clone, Copy, Debug, Default)]
pub struct Record<'a> {
    /// The body.
    pub value: &'a [u8],
    /// Headers, as spelled by the sender.
    pub headers: &'a [(&'a str, &'a [u8])],
}

impl<'a> Record<'a> {
    /// A record without headers.
    pub fn of(value: &'a [u8]) -> Self {
        Self { value, headers: &[] }
    }

    /// A header's text, by its name in any case.
    fn header(&self, name: &str) -> Option<&'a str> {
        let found = self.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name))?;
        std::str::from_utf8(found.1).ok()
    }
}

/// A table by the name that the sender's own catalog has for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Foreign {
    /// The sender's name of the catalog, when it says one.
    pub catalog: Option<String>,
    /// Namespace levels, outermost first.
    pub namespace: Vec<String>,
    /// The table.
    pub table: String,
}

/// Which table a draft is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Where {
    /// By our own name of it.
    Named(TableName),
    /// By the sender's.
    Foreign(Foreign),
    /// By a location in it or above its files; else by a name.
    At {
        /// A folder or an object of the table.
        location: String,
        /// The name, should no table be known there.
        or: Option<Foreign>,
    },
}

/// An event that still misses when and through which door it was heard, and maybe
/// our name of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draft {
    /// The table.
    pub table: Where,
    /// Its uuid, when the sender knows it.
    pub uuid: Option<Uuid>,
    /// The branch; `None` means `main`.
    pub reference: Option<String>,
    /// The snapshots it speaks of.
    pub snapshots: Vec<i64>,
    /// How far it can be believed.
    pub certainty: Certainty,
    /// Files that the sender says were added.
    pub files_added: u64,
}

impl Draft {
    fn of(table: Where, certainty: Certainty) -> Self {
        Self { table, uuid: None, reference: None, snapshots: Vec::new(), certainty, files_added: 0 }
    }

    fn foreign(catalog: Option<String>, namespace: Vec<String>, table: String, certainty: Certainty) -> Self {
        Self::of(Where::Foreign(Foreign { catalog, namespace, table }), certainty)
    }
}

impl From<Event> for Draft {
    fn from(event: Event) -> Self {
        let Event { table, uuid, reference, snapshots, certainty, files_added, .. } = event;
        Self { table: Where::Named(table), uuid, reference, snapshots, certainty, files_added }
    }
}

/// Why a record cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a readable {wire} event: {why}")]
pub struct Error {
    /// The format asked for.
    pub wire: Wire,
    /// What is wrong, and where.
    pub why: String,
}

/// Percent-escapes undone, once; a `+` stands for itself.
pub fn unescape(text: &str) -> String {
    unescape_form(&text.replace('+', "%2B"))
}

/// As [`unescape`], with `+` for a space, as forms are written.
fn unescape_form(text: &str) -> String {
    // what separates fields of a form separates nothing here
    let one = text.replace('&', "%26").replace('=', "%3D");
    url::form_urlencoded::parse(one.as_bytes()).next().map(|(name, _)| name.into_owned()).unwrap_or_default()
}

/// What a decoder of one format gives, with what is wrong in words.
type Decoded = Result<Vec<Draft>, String>;

/// Reads a record.
///
/// # Errors
/// When it is not of that format, or names something that no table is called.
pub fn decode(wire: Wire, record: &Record<'_>) -> Result<Vec<Draft>, Error> {
    let drafts = match wire {
        Wire::Protobuf => native::protobuf(record.value),
        Wire::Json => native::json(record.value),
        Wire::CloudEvents => cloud_events::decode(record),
        Wire::IcebergConnect => connect::drafts(record.value),
        Wire::IcebergReport => report::decode(record.value),
        Wire::S3 => s3::decode(record.value),
        Wire::Hudi => hudi::decode(record.value),
        Wire::Polaris => polaris::decode(record.value),
        Wire::OpenLineage => openlineage::decode(record.value),
        Wire::Trino => trino::decode(record.value),
    };
    checked(wire, drafts)
}

/// Holds drafts to the bounds of what the inbox keeps.
fn checked(wire: Wire, drafts: Decoded) -> Result<Vec<Draft>, Error> {
    let error = |why| Error { wire, why };
    let drafts = drafts.map_err(error)?;
    if drafts.len() > MAX_DRAFTS {
        return Err(error(format!("it tells of {} tables; at most {MAX_DRAFTS} are taken", drafts.len())));
    }
    for draft in &drafts {
        check(draft).map_err(error)?;
    }
    Ok(drafts)
}

fn check(draft: &Draft) -> Result<(), String> {
    let snapshots = draft.snapshots.len();
    if snapshots > MAX_SNAPSHOTS {
        return Err(format!("it names {snapshots} snapshots; at most {MAX_SNAPSHOTS} are taken"));
    }
    let reference = draft.reference.as_deref().unwrap_or_default();
    let name = match &draft.table {
        Where::Named(_) => None,
        Where::Foreign(name) => Some(name),
        Where::At { location, or } => {
            let bytes = location.len();
            if bytes > 4 * MAX_NAME || location.is_empty() {
                return Err(format!("a location of {bytes} bytes; 1 to {} are taken", 4 * MAX_NAME));
            }
            or.as_ref()
        }
    };
    let Some(name) = name else { return Ok(()) };
    let parts = || name.namespace.iter().chain([&name.table]);
    let bytes = parts().map(String::len).fold(reference.len(), usize::saturating_add);
    if bytes > MAX_NAME {
        return Err(format!("a table's name of {bytes} bytes; at most {MAX_NAME} are taken"));
    }
    if name.namespace.is_empty() || parts().any(String::is_empty) {
        return Err("a table without a name, or outside any namespace".into());
    }
    Ok(())
}
