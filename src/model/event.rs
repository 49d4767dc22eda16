//! What a door heard. An event is a hint: nothing but latency depends on it.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::ident::TableName;

/// How far an event can be believed. Even the strongest only brings a look forward.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Certainty {
    /// A writer's word, or less.
    #[default]
    Hint,
    /// The catalog said so.
    CatalogConfirmed,
    /// Read from the table's own log.
    LogConfirmed,
}

/// The door through which an event came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Door {
    /// `CommitHook` over gRPC.
    Grpc,
    /// A body posted over HTTP.
    Http,
    /// A record of a Kafka topic.
    Kafka,
    /// The proxy in front of a REST catalog.
    Proxy,
    /// The catalog poller.
    Poll,
    /// The command line's `report`.
    Cli,
    /// A commit of this process.
    Own,
}

/// A commit (or less) that was heard of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Where it was heard.
    pub door: Door,
    /// The name under which the sender knows the table.
    pub table: TableName,
    /// The table's uuid, when the sender knows it.
    pub uuid: Option<Uuid>,
    /// The branch; `None` means `main`.
    pub reference: Option<String>,
    /// The snapshots it speaks of, oldest first; may be empty.
    pub snapshots: Vec<i64>,
    /// How far it can be believed.
    pub certainty: Certainty,
    /// Files that the sender says it added: raises priority, nothing else.
    pub files_added: u64,
    /// Wall clock at which it was heard, in milliseconds since the epoch.
    pub heard_ms: i64,
}

/// What a door answers: whether the event led to a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Heard {
    /// The table is marked for a look.
    Accepted,
    /// Every snapshot it names was heard of before.
    Duplicate,
    /// Too many tables wait for a look: try later, or leave it to the poller.
    Full,
}
