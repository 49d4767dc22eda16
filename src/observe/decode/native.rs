//! Our own event, in protobuf and as its JSON twin.
//!
//! JSON: the fields of `afterwrite.v1.CommitEvent` in lowerCamelCase or as the
//! protocol spells them; ids as texts or as exact whole numbers. Unknown fields
//! are passed over, as protobuf does, and named to the sender where there is an
//! answer.

use std::collections::BTreeMap;

use prost::Message;
use serde::Deserialize;
use serde::de::IgnoredAny;

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

/// Most unknown fields that are named, and the longest name.
const NAMED: usize = 16;
const LONGEST: usize = 64;

/// One event of a body.
pub struct Told {
    /// The event.
    pub event: Result<Event, grpc::Error>,
    /// Fields that were passed over because they are not known, with the way to them.
    pub ignored: Vec<String>,
}

/// Reads one event in JSON, or a list of them.
///
/// # Errors
/// When the body is neither. An event that cannot be believed to name a table is
/// an error of its own, so that the others are heard.
pub fn events(body: &[u8], door: Door, now_ms: i64) -> Result<Vec<Told>, String> {
    let is_list = body.iter().find(|b| !b.is_ascii_whitespace()) == Some(&b'[');
    let commits: Vec<Commit> = if is_list { read(body)? } else { vec![read(body)?] };
    let told = |commit: Commit| {
        let ignored = commit.unknown();
        Told { event: grpc::decode(&commit.into(), door, now_ms), ignored }
    };
    Ok(commits.into_iter().map(told).collect())
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
    #[serde(flatten)]
    others: Others,
}

/// Fields that are not known.
type Others = BTreeMap<String, IgnoredAny>;

impl Commit {
    /// The way to each field that is not known; not more than are worth naming.
    fn unknown(&self) -> Vec<String> {
        let mut found: Vec<String> = Vec::new();
        let mut add = |at: &str, others: &Others| {
            for key in others.keys() {
                let name = format!("{at}{}", key.chars().take(LONGEST).collect::<String>());
                if found.len() < NAMED && !found.contains(&name) {
                    found.push(name);
                }
            }
        };
        add("", &self.others);
        self.path.iter().for_each(|path| add("path.", &path.others));
        for snapshot in self.snapshots.iter().flatten() {
            add("snapshots.", &snapshot.others);
            snapshot.added.iter().for_each(|counts| add("snapshots.added.", &counts.others));
            for partition in snapshot.partitions.iter().flatten() {
                add("snapshots.partitions.", &partition.others);
                partition.added.iter().for_each(|counts| add("snapshots.partitions.added.", &counts.others));
                partition.files_added.iter().flatten().for_each(|file| add("snapshots.partitions.filesAdded.", &file.others));
            }
        }
        found
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Path {
    catalog: String,
    namespace: Vec<String>,
    table: String,
    #[serde(flatten)]
    others: Others,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Snapshot {
    #[serde(alias = "snapshot_id")]
    snapshot_id: Option<Id>,
    #[serde(rename = "parentId", alias = "parent_id")]
    _parent: Option<IgnoredAny>,
    added: Option<Counts>,
    #[serde(rename = "removed")]
    _removed: Option<IgnoredAny>,
    partitions: Option<Vec<Partition>>,
    #[serde(flatten)]
    others: Others,
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
    #[serde(flatten)]
    others: Others,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Partition {
    #[serde(rename = "specId", alias = "spec_id")]
    _spec: Option<IgnoredAny>,
    path: String,
    added: Option<Counts>,
    #[serde(rename = "removed")]
    _removed: Option<IgnoredAny>,
    #[serde(rename = "filesRemoved", alias = "files_removed")]
    _files_removed: Option<IgnoredAny>,
    #[serde(alias = "files_added")]
    files_added: Option<Vec<File>>,
    #[serde(flatten)]
    others: Others,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct File {
    path: String,
    bytes: Count,
    records: Count,
    #[serde(flatten)]
    others: Others,
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
        let Counts { data_files, delete_files, records, bytes, .. } = counts;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_that_are_not_known_are_passed_over_and_named_with_the_way_to_them() {
        let body = br#"{
            "table": "lake.ns.t", "colour": 1, "snapshots": [
                { "snapshotId": "9007199254740993", "parent_id": 1, "removed": {}, "summary": {}, "added": { "dataFiles": 2, "rows": 1 },
                  "partitions": [{ "specId": 0, "path": "p=1", "name": "x", "filesAdded": [{ "path": "f", "size": 3 }], "filesRemoved": [] }] },
                { "snapshot_id": 2, "summary": {} }
            ]
        }"#;
        let told = events(body, Door::Http, 0).unwrap().remove(0);
        let expected =
            ["colour", "snapshots.summary", "snapshots.added.rows", "snapshots.partitions.name", "snapshots.partitions.filesAdded.size"];
        assert_eq!(told.ignored, expected);
        let event = told.event.unwrap();
        assert_eq!((event.snapshots, event.files_added), (vec![9_007_199_254_740_993, 2], 2));
    }

    #[test]
    fn not_more_are_named_than_are_worth_it() {
        let fields: Vec<String> = (0..100).map(|n| format!("\"{n}{}\": 0", "x".repeat(100))).collect();
        let told = events(format!("{{ \"table\": \"lake.ns.t\", {} }}", fields.join(",")).as_bytes(), Door::Http, 0).unwrap().remove(0);
        assert_eq!((told.ignored.len(), told.ignored[0].len()), (NAMED, LONGEST));
    }
}
