//! A table as its metadata shows it at one moment: no files, no layout.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::form::Form;
use super::ident::{TableIdent, TableName};
use super::partition::{PartitionKey, Value};
use super::refusal::Refused;

/// What a commit did, by its snapshot summary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Files added only.
    Append,
    /// Rows replaced.
    Overwrite,
    /// Rows removed.
    Delete,
    /// Files replaced, rows unchanged.
    Replace,
}

/// One snapshot of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotInfo {
    /// Snapshot id.
    pub id: i64,
    /// Parent, absent for the first snapshot and after a replaced table.
    pub parent: Option<i64>,
    /// Sequence number (0 in format v1).
    pub sequence_number: i64,
    /// The writer's clock, in milliseconds since the epoch.
    pub timestamp_ms: i64,
    /// What the commit did.
    pub operation: Operation,
    /// The attempt that made it, when it is ours or another instance's.
    pub attempt: Option<String>,
    /// The instance that made it, when it is a rewrite of this product.
    pub instance: Option<String>,
}

/// Names of a partition spec's fields, for display.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpecInfo {
    /// Spec id.
    pub id: i32,
    /// Field names with their transforms' results, in tuple order.
    pub fields: Vec<String>,
    /// How their values read, in the same order; a field without one is plain.
    pub forms: Vec<Form>,
    /// No field, or only void ones: its equality deletes are global.
    pub unpartitioned: bool,
}

impl SpecInfo {
    /// A partition for people: `ship_month=1995-03/region="eu"`, or `all` without
    /// fields. Strings are in quotes, so that no two partitions of one spec share a
    /// name.
    pub fn name(&self, key: &PartitionKey) -> String {
        let field = |at: usize| self.fields.get(at).cloned().unwrap_or_else(|| format!("field{at}"));
        let parts: Vec<String> = self.values(key).into_iter().enumerate().map(|(at, value)| format!("{}={value}", field(at))).collect();
        if parts.is_empty() { "all".to_owned() } else { parts.join("/") }
    }

    /// Its values as [`SpecInfo::name`] spells them.
    pub fn values(&self, key: &PartitionKey) -> Vec<String> {
        let tell = |(at, value): (usize, &Option<Value>)| match value {
            Some(value) => self.forms.get(at).copied().unwrap_or_default().tell(value),
            None => "NULL".to_owned(),
        };
        key.tuple.iter().enumerate().map(tell).collect()
    }
}

/// A table's metadata, reduced to what the loop needs.
#[derive(Clone, Debug)]
pub struct TableView {
    /// Identity.
    pub ident: TableIdent,
    /// The name it was loaded under.
    pub name: TableName,
    /// Where the metadata file lies: the catalog's pointer.
    pub metadata_location: String,
    /// The table's location.
    pub location: String,
    /// Format version: 1, 2 or 3.
    pub format_version: u8,
    /// The branch this view is of.
    pub reference: String,
    /// Head snapshot of the branch; `None` for a table without any.
    pub head: Option<i64>,
    /// Every snapshot the metadata still lists, by id.
    pub snapshots: BTreeMap<i64, SnapshotInfo>,
    /// The highest sequence number the table ever gave out (0 in format v1). It
    /// never falls, not even by a rollback: a lower one is an older load.
    pub last_sequence_number: i64,
    /// Every partition spec, by id.
    pub specs: BTreeMap<i32, Arc<SpecInfo>>,
    /// Table properties.
    pub properties: BTreeMap<String, String>,
    /// Oldest known time of the table: its first snapshot-log entry or, without
    /// one, its last update; in milliseconds since the epoch.
    pub created_ms: i64,
    /// What the metadata alone says we must leave alone.
    pub refused: Vec<Refused>,
}

impl TableView {
    /// A partition for people; see [`SpecInfo::name`].
    pub fn partition_name(&self, key: &PartitionKey) -> String {
        self.specs.get(&key.spec_id).map_or_else(|| SpecInfo::default().name(key), |spec| spec.name(key))
    }
}
