//! The body of a commit to an Iceberg REST catalog, as far as it tells what moved.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use uuid::Uuid;

use super::json::{Id, files_added};

/// A table as REST catalogs name it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct Identifier {
    pub namespace: Vec<String>,
    pub name: String,
}

/// A `CommitTableRequest`.
#[derive(Debug, Deserialize)]
pub(super) struct CommitRequest {
    pub identifier: Option<Identifier>,
    #[serde(default)]
    requirements: Vec<Requirement>,
    #[serde(default)]
    updates: Vec<Update>,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
enum Requirement {
    AssertTableUuid {
        uuid: Uuid,
    },
    #[serde(other)]
    Other,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "action", rename_all = "kebab-case")]
enum Update {
    AssignUuid {
        uuid: Uuid,
    },
    AddSnapshot {
        snapshot: Snapshot,
    },
    #[serde(rename_all = "kebab-case")]
    SetSnapshotRef {
        ref_name: String,
        #[serde(rename = "type")]
        kind: String,
    },
    #[serde(other)]
    Other,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Snapshot {
    snapshot_id: Id,
    #[serde(default)]
    summary: BTreeMap<String, String>,
}

impl CommitRequest {
    /// The table's uuid, by what the client asserts or assigns.
    pub fn uuid(&self) -> Option<Uuid> {
        let asserted = self.requirements.iter().find_map(|r| match r {
            Requirement::AssertTableUuid { uuid } => Some(*uuid),
            Requirement::Other => None,
        });
        asserted.or_else(|| self.updates.iter().find_map(|u| if let Update::AssignUuid { uuid } = u { Some(*uuid) } else { None }))
    }

    /// Every snapshot added, in order.
    pub fn snapshots(&self) -> Vec<i64> {
        self.added().map(|s| s.snapshot_id.0).collect()
    }

    /// Files added over all snapshots.
    pub fn files_added(&self) -> u64 {
        self.added().map(|s| files_added(&s.summary)).fold(0, u64::saturating_add)
    }

    /// The branches moved; empty for a commit that moves none (a staged snapshot, a
    /// change of properties).
    pub fn branches(&self) -> BTreeSet<&str> {
        let moved = self.updates.iter().filter_map(|u| match u {
            Update::SetSnapshotRef { ref_name, kind } if kind == "branch" => Some(ref_name.as_str()),
            _ => None,
        });
        moved.collect()
    }

    fn added(&self) -> impl Iterator<Item = &Snapshot> {
        self.updates.iter().filter_map(|u| if let Update::AddSnapshot { snapshot } = u { Some(snapshot) } else { None })
    }
}
