//! What the loop answers to the services and to the command line: the trait, and
//! results that both show.

use std::sync::Arc;

use async_trait::async_trait;
use serde::{Serialize, Serializer};
use serde_json::json;
use tokio::sync::broadcast;
use uuid::Uuid;

use crate::model::decision::Decision;
use crate::model::event::{Event, Heard};
use crate::model::ident::{MAIN, TableName};
use crate::model::outside::Stat;
use crate::model::partition::{PartitionKey, Value};
use crate::model::plan::Path;
use crate::model::refusal::Refused;
use crate::model::table::SpecInfo;
use crate::model::traits::Traits;
use crate::model::writers::Hold;
use crate::observe::{Branches, Entrance, ledger};

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

    /// Whether events about a branch of a table are heard; without one, about the table.
    ///
    /// # Errors
    /// Why not, in words.
    fn check_branch(&self, name: &TableName, branch: Option<&str>) -> Result<(), String> {
        match self.entrance() {
            Some(entrance) => entrance.check_branch(name, branch),
            None => Branches::default().check(name, branch),
        }
    }

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

    /// What waits, by tenant and by whether it is carried out.
    ///
    /// # Errors
    /// When the loop has stopped.
    async fn backlog(&self) -> Result<Backlog, Error> {
        Ok(Backlog::default())
    }

    /// The last decision on each partition of a table; with a `filter`, those on
    /// the partitions that it names, each followed by the few before it that are
    /// still kept, newest first. See [`names`] for what a filter may be.
    ///
    /// # Errors
    /// As [`Backend::get_layout`]; a table that is refused as a whole and of which no
    /// partition is known is told by its refusal.
    async fn why(&self, name: &TableName, filter: Option<&str>) -> Result<Vec<Explained>, Error>;

    /// As [`Backend::why`], of a branch.
    ///
    /// # Errors
    /// As [`Backend::why`]; when the branch is not looked after, or not there.
    async fn why_on(&self, name: &TableName, branch: &str, filter: Option<&str>) -> Result<Vec<Explained>, Error> {
        self.check_branch(name, Some(branch)).map_err(Error::NotFound)?;
        self.why(name, filter).await
    }

    /// Whether decisions on a table are to be expected.
    ///
    /// # Errors
    /// As [`Backend::get_layout`], where none are on any branch.
    async fn is_followed(&self, name: &TableName) -> Result<(), Error> {
        self.get_layout(name, MAIN).await.map(drop)
    }

    /// Takes what another system told of a table, which holds until a time.
    ///
    /// # Errors
    /// When the table is not known, or there is no room for more.
    async fn tell(&self, _name: &TableName, _told: &[Tells], _until_ms: i64) -> Result<Taken, Error> {
        Err(Error::Unavailable("nothing is taken here".to_owned()))
    }

    /// Takes what a cluster has free, in GB, until a time. Gives back what all jobs may
    /// spend an hour from here on.
    ///
    /// # Errors
    /// When the settings do not ask for it.
    fn tell_capacity(&self, _free_gb: f64, _until_ms: i64) -> Result<f64, Error> {
        Err(Error::Unavailable("nothing is taken here".to_owned()))
    }

    /// Has a table left alone for somebody, in place of what the same holder asked for
    /// before; gives back until when.
    ///
    /// # Errors
    /// When that cannot be kept.
    async fn hold(&self, name: &TableName, hold: Hold) -> Result<i64, Error> {
        Err(Error::Unavailable(format!("{name} cannot be held for {}: nothing is kept here", hold.by)))
    }

    /// Gives a table back, of one holder or of all; how many held it.
    ///
    /// # Errors
    /// When that cannot be kept.
    async fn release(&self, name: &TableName, holder: Option<&str>) -> Result<usize, Error> {
        Err(Error::Unavailable(format!("{name} is not held by {}: nothing is kept here", holder.unwrap_or("anybody"))))
    }

    /// Decisions as they are made.
    fn watch(&self) -> broadcast::Receiver<Arc<Explained>>;

    /// How the process is doing.
    fn health(&self) -> Health;

    /// Every source of events, as it stands.
    fn doors(&self) -> Vec<ledger::Row> {
        self.entrance().map(|entrance| entrance.ledger().rows(self.now_ms())).unwrap_or_default()
    }

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

/// What another system told of a table, or of one of its partitions.
#[derive(Clone, Debug, PartialEq)]
pub struct Tells {
    /// As in [`names`]; empty for the whole table.
    pub partition: String,
    /// The numbers.
    pub stats: Vec<(Stat, f64)>,
}

/// What became of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// Of so many scopes it was taken.
    pub taken: u64,
    /// Partitions that have no live files.
    pub unknown: Vec<String>,
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
    /// The settings do not ask for it.
    #[error("{0}")]
    Unasked(String),
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
    #[serde(serialize_with = "exact")]
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
    /// The branch.
    pub branch: Arc<str>,
    /// Spec and values.
    #[serde(serialize_with = "exact")]
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
    /// Whose it is; empty for nobody's.
    pub tenant: String,
    /// No other candidate gains as much for as little.
    pub on_front: bool,
    /// The point of the front that the weights choose.
    pub chosen: bool,
    /// A trigger fired: it goes before everything that was ranked.
    pub urgent: bool,
}

/// What waits.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Backlog {
    /// By tenant, and by whether it is carried out.
    pub rows: Vec<BacklogRow>,
    /// GB-hours that the overall budget holds.
    pub available_gb_hours: f64,
    /// Of costs; empty when the settings have no prices.
    pub currency: String,
}

/// What waits of one tenant.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BacklogRow {
    /// The tenant; empty for the tables of none.
    pub tenant: String,
    /// Whether it is carried out, or only advised.
    pub act: bool,
    /// Candidates.
    pub candidates: u64,
    /// Those of them that a trigger asks for.
    pub urgent: u64,
    /// Those beside them that wait for a person.
    pub review: u64,
    /// How long the oldest candidate has waited, in milliseconds.
    pub oldest_ms: i64,
    /// Files fewer, when all is done.
    pub files: u64,
    /// Bytes to be rewritten.
    pub bytes: u64,
    /// Estimated GB-hours.
    pub gb_hours: f64,
    /// Bytes rewritten in an hour of late.
    pub bytes_per_hour: f64,
    /// How long that takes for what waits, in seconds; `None` when nothing is being done.
    pub drain_seconds: Option<f64>,
    /// What it costs, in money.
    pub cost: f64,
    /// GB-hours that the tenant's budget holds, where it has one.
    pub available_gb_hours: Option<f64>,
}

/// A decision with its partition's label.
#[derive(Clone, Debug, PartialEq)]
pub struct Explained {
    /// The branch.
    pub branch: Arc<str>,
    /// For people.
    pub label: String,
    /// The decision, as it was judged at `decision.at_ms`.
    pub decision: Decision,
    /// Since when its verdict stands, in milliseconds since the epoch: when it was first
    /// judged so, by the same rule or for the same reason. As far as this process
    /// knows and keeps it; otherwise the time of this judgement.
    pub decided_ms: i64,
    /// Rank of a candidate in the last round; higher goes first.
    pub score: f64,
    /// What stands in a candidate's way, such as the budget; empty when nothing does.
    pub waits_for: String,
    /// The partition's last rewrite that ended, if it is among the last of its table
    /// that the journal keeps; of decisions that are asked for, not of those that are
    /// watched.
    pub last_job: Option<LastJob>,
}

/// What became of a partition's last rewrite, and how it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastJob {
    /// Its id.
    pub job: String,
    /// Its final state, as the journal calls it.
    pub state: String,
    /// How its outputs were made; `None` when none were.
    pub path: Option<Path>,
    /// Why so.
    pub path_reason: String,
    /// When it ended, in milliseconds since the epoch.
    pub ended_ms: i64,
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

/// A partition's label; see [`SpecInfo::name`].
pub fn label(key: &PartitionKey, spec: Option<&SpecInfo>) -> String {
    spec.map_or_else(|| SpecInfo::default().name(key), |spec| spec.name(key))
}

/// Everything that names a partition: its label or its values separated by commas, as
/// people read them or as the table's metadata holds them, with or without quotes.
pub fn names_of(key: &PartitionKey, spec: Option<&SpecInfo>) -> [String; 8] {
    let read = spec.cloned().unwrap_or_default();
    let held = SpecInfo { forms: Vec::new(), ..read.clone() };
    let bare = |text: &str| text.replace('"', "");
    let of = |spec: &SpecInfo| (spec.name(key), spec.values(key).join(","));
    let ((label, values), (held_label, held_values)) = (of(&read), of(&held));
    let bares = [bare(&label), bare(&values), bare(&held_label), bare(&held_values)];
    let [a, b, c, d] = bares;
    [label, values, held_label, held_values, a, b, c, d]
}

/// Whether a filter names a partition; see [`names_of`].
pub fn names(filter: &str, key: &PartitionKey, spec: Option<&SpecInfo>) -> bool {
    names_of(key, spec).iter().any(|name| name == filter)
}

/// A partition with every value exactly, for any JSON reader: whole numbers of 64
/// bits are texts, and floating-point numbers are numbers, but for those that JSON
/// does not have.
fn exact<S: Serializer>(key: &PartitionKey, serializer: S) -> Result<S::Ok, S::Error> {
    let float = |v: f64| if v.is_finite() { json!(v) } else { json!(v.to_string()) };
    let value = |value: &Value| match value {
        Value::Long(v) => json!({ "long": v.to_string() }),
        // through its shortest text, so that 0.1 stays 0.1
        Value::Float(v) => json!({ "float": float(f32::from_bits(*v).to_string().parse().unwrap_or(f64::NAN)) }),
        Value::Double(v) => json!({ "double": float(f64::from_bits(*v)) }),
        Value::Uuid(v) => json!({ "uuid": Uuid::from_u128(*v) }),
        Value::Bytes(v) => json!({ "bytes": v.iter().map(|b| format!("{b:02x}")).collect::<String>() }),
        other => json!(other),
    };
    let tuple: Vec<_> = key.tuple.iter().map(|v| v.as_ref().map(value)).collect();
    json!({ "spec_id": key.spec_id, "tuple": tuple }).serialize(serializer)
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
    use crate::model::form::Form;

    fn key() -> PartitionKey {
        PartitionKey { spec_id: 1, tuple: Arc::from([Some(Value::Int(12)), None, Some(Value::String("e u".into()))]) }
    }

    #[test]
    fn a_label_names_fields_and_tells_null_from_its_spelling() {
        let fields = vec!["month".into(), "x".into(), "region".into()];
        let spec = SpecInfo { id: 1, fields, forms: vec![Form::Month], unpartitioned: false };
        assert_eq!(label(&key(), Some(&spec)), "month=1971-01/x=NULL/region=\"e u\"");
        assert_eq!(label(&key(), None), "field0=12/field1=NULL/field2=\"e u\"");
        assert_eq!(label(&PartitionKey::unpartitioned(0), None), "all");
        let null = PartitionKey { spec_id: 1, tuple: Arc::from([Some(Value::String("NULL".into()))]) };
        assert_eq!(label(&null, None), "field0=\"NULL\"");
    }

    #[test]
    fn a_filter_is_a_label_or_values_as_read_or_as_held_with_or_without_quotes() {
        let spec = SpecInfo { id: 1, fields: vec!["m".into()], forms: vec![Form::Month], unpartitioned: false };
        let named =
            ["m=1971-01/field1=NULL/field2=\"e u\"", "m=12/field1=NULL/field2=e u", "1971-01,NULL,e u", "12,NULL,\"e u\"", "12,NULL,e u"];
        assert_eq!(named.map(|f| names(f, &key(), Some(&spec))), [true; 5]);
        assert_eq!(["12", "", "1971-02,NULL,e u"].map(|f| names(f, &key(), Some(&spec))), [false; 3]);
    }

    #[test]
    fn no_value_goes_through_a_double_that_is_none() {
        let values = [
            Value::Int(12),
            Value::Long(9_007_199_254_740_993),
            Value::Float(0.1_f32.to_bits()),
            Value::Double(1.5_f64.to_bits()),
            Value::Double(f64::NAN.to_bits()),
            Value::Decimal(i128::MAX),
            Value::Bytes([1, 255].into()),
            Value::Uuid(7),
        ];
        let partition = PartitionKey { spec_id: 1, tuple: values.map(Some).into_iter().chain([None]).collect() };
        let row = serde_json::to_value(PartitionRow { partition, label: String::new(), traits: Traits::default() }).unwrap();
        let expected = json!([
            { "int": 12 },
            { "long": "9007199254740993" },
            { "float": 0.1 },
            { "double": 1.5 },
            { "double": "NaN" },
            { "decimal": i128::MAX.to_string() },
            { "bytes": "01ff" },
            { "uuid": "00000000-0000-0000-0000-000000000007" },
            null,
        ]);
        assert_eq!(row["partition"], json!({ "spec_id": 1, "tuple": expected }));
    }
}
