//! Our own event, in protobuf and as its JSON twin.
//!
//! JSON: the fields of `afterwrite.v1.CommitEvent` in lowerCamelCase or as the
//! protocol spells them; ids as texts or as exact whole numbers. Unknown fields
//! are passed over, as protobuf does.

use prost::Message;
use serde::Deserialize;

use super::json::{Count, Id, read};
use super::{Decoded, Draft};
use crate::model::event::{Door, Event};
use crate::observe::grpc;
use crate::proto::v1;

pub(super) fn protobuf(value: &[u8]) -> Decoded {
    let event = v1::CommitEvent::decode(value).map_err(|e| e.to_string())?;
    draft(&event)
}

pub(super) fn json(value: &[u8]) -> Decoded {
    draft(&read::<Commit>(value)?.into())
}

fn draft(event: &v1::CommitEvent) -> Decoded {
    // the door and the time are the draft's reader's to say
    let event = grpc::decode(event, Door::Kafka, 0).map_err(|e| e.to_string())?;
    Ok(vec![Draft::from(event)])
}

/// Reads one event in JSON, or a list of them.
///
/// # Errors
/// When the body is neither. An event that cannot be believed to name a table is
/// an error of its own, so that the others are heard.
pub fn events(body: &[u8], door: Door, now_ms: i64) -> Result<Vec<Result<Event, grpc::Error>>, String> {
    let is_list = body.iter().find(|b| !b.is_ascii_whitespace()) == Some(&b'[');
    let commits: Vec<Commit> = if is_list { read(body)? } else { vec![read(body)?] };
    Ok(commits.into_iter().map(|commit| grpc::decode(&commit.into(), door, now_ms)).collect())
}

/// The JSON twin of `CommitEvent`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Commit {
    table: Option<String>,
    path: Option<Path>,
    #[serde(alias = "table_uuid")]
    table_uuid: Option<String>,
    #[serde(rename = "ref")]
    reference: Option<String>,
    snapshots: Option<Vec<Snapshot>>,
    sender: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Path {
    catalog: String,
    namespace: Vec<String>,
    table: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Snapshot {
    #[serde(alias = "snapshot_id")]
    snapshot_id: Option<Id>,
    added: Option<Counts>,
    partitions: Option<Vec<Partition>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Counts {
    #[serde(alias = "data_files")]
    data_files: Count,
    #[serde(alias = "delete_files")]
    delete_files: Count,
    records: Count,
    bytes: Count,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Partition {
    path: String,
    added: Option<Counts>,
    #[serde(alias = "files_added")]
    files_added: Option<Vec<File>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct File {
    path: String,
    bytes: Count,
    records: Count,
}

impl From<Commit> for v1::CommitEvent {
    fn from(commit: Commit) -> Self {
        let path = commit.path.map(|p| v1::TablePath { catalog: p.catalog, namespace: p.namespace, table: p.table });
        Self {
            table: commit.table.unwrap_or_default(),
            path,
            table_uuid: commit.table_uuid.unwrap_or_default(),
            r#ref: commit.reference.unwrap_or_default(),
            snapshots: commit.snapshots.unwrap_or_default().into_iter().map(Into::into).collect(),
            sender: commit.sender.unwrap_or_default(),
        }
    }
}

impl From<Snapshot> for v1::SnapshotChange {
    fn from(snapshot: Snapshot) -> Self {
        Self {
            // a missing id is refused with its place, as an empty text is
            snapshot_id: snapshot.snapshot_id.map(|id| id.0.to_string()).unwrap_or_default(),
            added: snapshot.added.map(Into::into),
            partitions: snapshot.partitions.unwrap_or_default().into_iter().map(Into::into).collect(),
            ..Self::default()
        }
    }
}

impl From<Counts> for v1::FileCounts {
    fn from(counts: Counts) -> Self {
        let Counts { data_files, delete_files, records, bytes } = counts;
        Self { data_files: data_files.0, delete_files: delete_files.0, records: records.0, bytes: bytes.0 }
    }
}

impl From<Partition> for v1::PartitionChange {
    fn from(partition: Partition) -> Self {
        let file = |f: File| v1::FileChange { path: f.path, bytes: f.bytes.0, records: f.records.0 };
        Self {
            path: partition.path,
            added: partition.added.map(Into::into),
            files_added: partition.files_added.unwrap_or_default().into_iter().map(file).collect(),
            ..Self::default()
        }
    }
}
