//! What the loop answers to the services and to the command line: the trait, and
//! results that both show.

use std::sync::Arc;

use async_trait::async_trait;
use serde::{Serialize, Serializer};
use tokio::sync::broadcast;
use uuid::Uuid;

use crate::model::decision::Decision;
use crate::model::event::{Event, Heard};
use crate::model::ident::TableName;
use crate::model::partition::PartitionKey;
use crate::model::refusal::Refused;
use crate::model::table::SpecInfo;
use crate::model::traits::Traits;
use crate::observe::Entrance;

/// The loop, as the services see it.
#[async_trait]
pub trait Backend: Send + Sync + 'static {
    /// Wall clock, in milliseconds since the epoch.
    fn now_ms(&self) -> i64;

    /// The names of the configured catalogs.
    fn catalogs(&self) -> Vec<String>;

    /// Marks a table for a look, in memory, without waiting. The event's catalog
    /// is one of [`Backend::catalogs`].
    fn hear(&self, event: Event) -> Answer;

    /// A table's layout.
    ///
    /// # Errors
    /// When the table is not there, is refused, or cannot be read now.
    async fn get_layout(&self, name: &TableName, reference: &str) -> Result<TableLayout, Error>;

    /// The layouts of a table's partitions after `page.after`, ascending by key.
    ///
    /// # Errors
    /// As [`Backend::get_layout`].
    async fn list_partitions(&self, name: &TableName, reference: &str, page: Page) -> Result<Partitions, Error>;

    /// Partitions that wait for budget, best first.
    ///
    /// # Errors
    /// When the loop has stopped.
    async fn list_candidates(&self, limit: usize) -> Result<Vec<Candidate>, Error>;

    /// The last decision on each partition of a table; with a `filter`, those on
    /// the partitions that it names, each followed by the few before it that are
    /// still kept, newest first. See [`names`] for what a filter may be.
    ///
    /// # Errors
    /// As [`Backend::get_layout`].
    async fn why(&self, name: &TableName, filter: Option<&str>) -> Result<Vec<Explained>, Error>;

    /// Decisions as they are made.
    fn watch(&self) -> broadcast::Receiver<Arc<Explained>>;

    /// How the process is doing.
    fn health(&self) -> Health;

    /// Where the other doors meet, with the figures of every source; `None` for a
    /// backend that has no other doors.
    fn entrance(&self) -> Option<Arc<Entrance>> {
        None
    }
}

/// The answer to an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// What became of it.
    pub heard: Heard,
    /// What the sender should know besides; may be empty.
    pub note: String,
}

/// Why the loop does not answer a question.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no such table, branch or catalog.
    #[error("{0}")]
    NotFound(String),
    /// The table is left alone by name.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The catalog or store does not answer.
    #[error("{0}")]
    Unavailable(String),
    /// The question cannot be read.
    #[error("{0}")]
    Invalid(String),
    /// Something that should not happen.
    #[error("{0}")]
    Internal(String),
}

/// A table's layout at a snapshot.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TableLayout {
    /// Its name.
    #[serde(serialize_with = "text")]
    pub table: TableName,
    /// Its uuid.
    pub uuid: Uuid,
    /// The branch.
    pub reference: String,
    /// The snapshot; `None` for a table without any.
    #[serde(serialize_with = "text_or_null")]
    pub snapshot_id: Option<i64>,
    /// When it was last compared with its catalog, in milliseconds since the epoch.
    pub looked_at_ms: i64,
    /// 1, 2 or 3.
    pub format_version: u8,
    /// Target file size in bytes.
    pub target_file_size: u64,
    /// Partitions with live files.
    pub partitions: u64,
    /// Traits, summed over the partitions.
    pub traits: Traits,
    /// Why the whole table is left alone, if it is.
    pub refused: Vec<Refused>,
    /// Whether rewrites are carried out or only advised.
    pub act: bool,
}

/// Which partitions are asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// At most this many; at least 1.
    pub size: usize,
    /// Only those that come after this one.
    pub after: Option<PartitionKey>,
}

/// A page of partitions.
#[derive(Clone, Debug, PartialEq)]
pub struct Partitions {
    /// The snapshot that they describe.
    pub snapshot_id: Option<i64>,
    /// The rows, ascending by key.
    pub rows: Vec<PartitionRow>,
    /// Whether more come after the last row.
    pub more: bool,
}

/// One partition's layout.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PartitionRow {
    /// Spec and values.
    pub partition: PartitionKey,
    /// For people; see [`label`].
    pub label: String,
    /// Its traits.
    pub traits: Traits,
}

/// A partition whose layout could be improved.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Candidate {
    /// The table.
    #[serde(serialize_with = "text")]
    pub table: TableName,
    /// Spec and values.
    pub partition: PartitionKey,
    /// For people.
    pub label: String,
    /// Rank value.
    pub score: f64,
    /// Files saved.
    pub gain: u64,
    /// Cost in GB-hours.
    pub gb_hours: f64,
    /// What stands in the way; empty when only budget does.
    pub waits_for: String,
}

/// A decision with its partition's label.
#[derive(Clone, Debug, PartialEq)]
pub struct Explained {
    /// For people.
    pub label: String,
    /// The decision.
    pub decision: Decision,
}

/// How the process is doing.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Health {
    /// Each catalog was listed, and answered last time.
    pub ready: bool,
    /// What is wrong, in words.
    pub problems: Vec<String>,
    /// Tables followed.
    pub tables: u64,
    /// Events whose look has not begun.
    pub pending: u64,
    /// Jobs that run.
    pub jobs: u64,
    /// Commits whose outcome is not known yet.
    pub unknown_outcomes: u64,
}

/// A partition's label: `month=12/region="eu"`, or `all` without fields. Values
/// are shown in their physical type, strings in quotes, so that no two
/// partitions of one spec share a label.
pub fn label(key: &PartitionKey, spec: Option<&SpecInfo>) -> String {
    if key.tuple.is_empty() {
        return "all".to_owned();
    }
    let field = |at: usize| spec.and_then(|s| s.fields.get(at)).cloned().unwrap_or_else(|| format!("field{at}"));
    let parts = key.tuple.iter().enumerate().map(|(at, value)| format!("{}={}", field(at), value_text(value.as_ref())));
    parts.collect::<Vec<_>>().join("/")
}

fn value_text(value: Option<&crate::model::partition::Value>) -> String {
    value.map_or_else(|| "NULL".to_owned(), ToString::to_string)
}

/// Whether a filter names a partition: its label, its label without quotes, or
/// its values separated by commas, with or without quotes.
pub fn names(filter: &str, key: &PartitionKey, label: &str) -> bool {
    let values = key.tuple.iter().map(|v| value_text(v.as_ref())).collect::<Vec<_>>().join(",");
    let bare = |text: &str| text.replace('"', "");
    filter == label || filter == values || filter == bare(label) || filter == bare(&values)
}

/// As a decimal string: ids must not pass through a double in any JSON reader.
fn text<T: std::fmt::Display, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

fn text_or_null<T: std::fmt::Display, S: Serializer>(value: &Option<T>, serializer: S) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) => serializer.collect_str(value),
        None => serializer.serialize_none(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::partition::Value;

    fn key() -> PartitionKey {
        PartitionKey { spec_id: 1, tuple: Arc::from([Some(Value::Int(12)), None, Some(Value::String("e u".into()))]) }
    }

    #[test]
    fn a_label_names_fields_and_tells_null_from_its_spelling() {
        let spec = SpecInfo { id: 1, fields: vec!["month".into(), "x".into(), "region".into()], unpartitioned: false };
        assert_eq!(label(&key(), Some(&spec)), "month=12/x=NULL/region=\"e u\"");
        assert_eq!(label(&key(), None), "field0=12/field1=NULL/field2=\"e u\"");
        assert_eq!(label(&PartitionKey::unpartitioned(0), None), "all");
        let null = PartitionKey { spec_id: 1, tuple: Arc::from([Some(Value::String("NULL".into()))]) };
        assert_eq!(label(&null, None), "field0=\"NULL\"");
    }

    #[test]
    fn a_filter_is_a_label_or_values_with_or_without_quotes() {
        let label = label(&key(), None);
        let filters = [label.as_str(), "field0=12/field1=NULL/field2=e u", "12,NULL,\"e u\"", "12,NULL,e u", "12", ""];
        assert_eq!(filters.map(|f| names(f, &key(), &label)), [true, true, true, true, false, false]);
    }
}
