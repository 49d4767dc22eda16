//! A table as its metadata shows it at one moment: no files, no layout.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::claim;
use super::form::Form;
use super::ident::{TableIdent, TableName};
use super::partition::{PartitionKey, Value};
use super::refusal::Refused;
use super::writers::Sidecar;

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
    /// The engine that made it, as far as its summary tells: see [`engine`].
    pub engine: Option<Arc<str>>,
}

/// Summary keys that tell which engine made a snapshot; the first holds its name.
pub const ENGINE_KEYS: [&str; 4] = ["engine-name", "spark.app.id", "flink.job-id", "trino_query_id"];
/// What the presence of the others tells.
const BY_KEY: [&str; 4] = ["", "spark", "flink", "trino"];
/// No engine has a longer name.
const LONGEST_ENGINE: usize = 40;

/// The engine that a snapshot's summary tells of, in small letters: by its name, which
/// Iceberg's Java library writes down, or by the mark that it leaves.
pub fn engine<'s>(summary: impl Fn(&str) -> Option<&'s str>) -> Option<Arc<str>> {
    for (key, engine) in ENGINE_KEYS.into_iter().zip(BY_KEY) {
        match summary(key).map(str::trim) {
            Some(value) if engine.is_empty() && !value.is_empty() => {
                return Some(value.to_lowercase().chars().take(LONGEST_ENGINE).collect::<String>().into());
            }
            Some(_) if !engine.is_empty() => return Some(engine.into()),
            _ => {}
        }
    }
    None
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

    /// The engine of the last commit of a writer; empty where its summary does not tell.
    pub fn engine(&self) -> Arc<str> {
        let mut next = self.head;
        // each snapshot at most once, whatever parents they name
        for _ in 0..self.snapshots.len() {
            let Some(snapshot) = next.and_then(|id| self.snapshots.get(&id)) else { break };
            if snapshot.attempt.is_none() && snapshot.operation != Operation::Replace {
                return snapshot.engine.clone().unwrap_or_default();
            }
            next = snapshot.parent;
        }
        Arc::default()
    }

    /// Who claims the table, or else who made the newest of this product's rewrites that
    /// are listed; `None` where nobody has, or it was `instance` itself.
    pub fn another_sidecar(&self, instance: &str, now_ms: i64) -> Option<Sidecar> {
        let made = self.snapshots.values().filter_map(|s| Some((s.sequence_number, s.timestamp_ms, s.instance.as_deref()?)));
        let newest = made.max_by_key(|(sequence, at_ms, _)| (*sequence, *at_ms));
        let (rewrote_ms, by) = newest.filter(|(_, _, by)| *by != instance).map_or((0, None), |(_, at_ms, by)| (at_ms, Some(by)));
        match claim::of_another(&self.properties, instance, now_ms) {
            Some(claim) => Some(Sidecar { instance: claim.instance, rewrote_ms, claims_until_ms: claim.until_ms }),
            None => by.map(|by| Sidecar { instance: by.to_owned(), rewrote_ms, claims_until_ms: 0 }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_is_known_by_its_name_or_by_its_mark() {
        let of = |summary: &[(&str, &'static str)]| {
            engine(|key| summary.iter().find(|(k, _)| *k == key).map(|(_, v)| *v)).as_deref().map(str::to_owned)
        };
        assert_eq!(of(&[("spark.app.id", "local-1"), ("engine-name", "Spark")]), Some("spark".into()));
        assert_eq!(of(&[("engine-name", " "), ("flink.job-id", "9")]), Some("flink".into()));
        assert_eq!(of(&[("trino_query_id", "2026_1")]), Some("trino".into()));
        assert_eq!(of(&[("added-records", "1")]), None);
    }

    fn view(snapshots: Vec<(i64, SnapshotInfo)>) -> TableView {
        TableView {
            ident: TableIdent::iceberg(uuid::Uuid::nil()),
            name: TableName::new("lake", "db", "t"),
            metadata_location: String::new(),
            location: String::new(),
            format_version: 2,
            reference: "main".into(),
            head: snapshots.last().map(|(id, _)| *id),
            snapshots: snapshots.into_iter().collect(),
            last_sequence_number: 9,
            specs: BTreeMap::new(),
            properties: BTreeMap::new(),
            created_ms: 0,
            refused: Vec::new(),
        }
    }

    #[test]
    fn whoever_rewrote_last_is_told_from_oneself_and_from_writers() {
        let of = |made: &[(i64, i64, Option<&str>)]| {
            let info = |(id, (sequence_number, timestamp_ms, by)): (i64, &(i64, i64, Option<&str>))| {
                let (operation, instance) = (Operation::Replace, by.map(str::to_owned));
                let (sequence_number, timestamp_ms) = (*sequence_number, *timestamp_ms);
                (id, SnapshotInfo { id, parent: None, sequence_number, timestamp_ms, operation, attempt: None, instance, engine: None })
            };
            view((1..).zip(made).map(info).collect()).another_sidecar("me", 0).map(|s| (s.instance, s.rewrote_ms))
        };
        assert_eq!([of(&[]), of(&[(1, 5, None)]), of(&[(1, 5, Some("me"))])], [None, None, None]);
        assert_eq!(of(&[(1, 5, Some("you")), (2, 6, None)]), Some(("you".into(), 5)));
        // by the number, whatever the clocks say; format 1 has none
        assert_eq!(of(&[(1, 9, Some("me")), (2, 6, Some("you"))]), Some(("you".into(), 6)));
        assert_eq!(of(&[(3, 1, Some("me")), (2, 6, Some("you"))]), None);
        assert_eq!(of(&[(0, 1, Some("me")), (0, 6, Some("you"))]), Some(("you".into(), 6)));
    }

    #[test]
    fn a_claim_of_another_counts_before_who_rewrote_last() {
        let info = |(id, by): (i64, &str)| {
            let (operation, instance) = (Operation::Replace, Some(by.to_owned()));
            let (sequence_number, timestamp_ms) = (id, 10 * id);
            (id, SnapshotInfo { id, parent: None, sequence_number, timestamp_ms, operation, attempt: None, instance, engine: None })
        };
        let of = |rewrites: &[(i64, &str)], claims: &[(&str, &str)]| {
            let properties = claims.iter().map(|(by, until)| (claim::key(by), (*until).to_owned())).collect();
            let view = TableView { properties, ..view(rewrites.iter().copied().map(info).collect()) };
            view.another_sidecar("me", 100).map(|s| (s.instance, s.rewrote_ms, s.claims_until_ms))
        };
        assert_eq!(of(&[], &[("me", "200")]), None);
        assert_eq!(of(&[(1, "me")], &[("you", "200")]), Some(("you".into(), 0, 200)));
        assert_eq!(of(&[(1, "she")], &[("you", "200")]), Some(("you".into(), 10, 200)));
        assert_eq!(of(&[(1, "she")], &[("you", "100")]), Some(("she".into(), 10, 0)));
    }

    #[test]
    fn a_tables_engine_is_that_of_its_last_writer() {
        let snapshot = |id: i64, operation, attempt: Option<&str>, engine: Option<&str>| {
            let (parent, attempt) = (Some(id - 1), attempt.map(str::to_owned));
            let info = SnapshotInfo {
                id,
                parent,
                sequence_number: id,
                timestamp_ms: 0,
                operation,
                attempt,
                instance: None,
                engine: engine.map(Arc::from),
            };
            (id, info)
        };
        let flink = snapshot(1, Operation::Append, None, Some("flink"));
        let ours = snapshot(2, Operation::Replace, Some("a"), None);
        let theirs = snapshot(3, Operation::Replace, None, Some("spark"));
        assert_eq!(&*view(vec![flink.clone(), ours.clone(), theirs.clone()]).engine(), "flink");
        assert_eq!(&*view(vec![flink, ours, theirs, snapshot(4, Operation::Delete, None, None)]).engine(), "");
        let mut round = snapshot(5, Operation::Replace, None, None);
        round.1.parent = Some(5);
        assert_eq!((&*view(vec![round]).engine(), &*view(vec![]).engine()), ("", ""));
    }
}
