//! What a commit request asks for: per table, what it asserts and what it adds.

use std::collections::BTreeMap;

use serde::Deserialize;
use uuid::Uuid;

use crate::model::plan::ATTEMPT_KEY;

/// Most touched partitions that are kept of one commit.
const MAX_TOUCHED: usize = 1_000;

/// What one commit wants of one table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Namespace levels and name, when the body names the table.
    pub identifier: Option<(Vec<String>, String)>,
    /// The uuid that the table must have, or gets.
    pub uuid: Option<Uuid>,
    /// The table must not exist yet.
    pub creates: bool,
    /// Where refs must stand; `None`: the ref must not exist.
    pub asserted: Vec<(String, Option<i64>)>,
    /// What else the table must be like.
    pub current: Vec<Current>,
    /// Snapshots that are added, in order.
    pub adds: Vec<Added>,
    /// Refs that are moved to a snapshot, or removed.
    pub moves: Vec<(String, Option<i64>)>,
}

/// A number in a table's metadata that a commit asserts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Current {
    /// The highest field id; never falls.
    LastField(i64),
    /// The highest partition field id; never falls.
    LastPartitionField(i64),
    /// The current schema.
    Schema(i64),
    /// The default partition spec.
    Spec(i64),
    /// The default sort order.
    SortOrder(i64),
}

/// A snapshot that a commit adds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Added {
    /// Its id.
    pub id: i64,
    /// Its parent.
    pub parent: Option<i64>,
    /// Its sequence number; 0 in a table of format 1.
    pub sequence: i64,
    /// Files that it says it adds.
    pub files: u64,
    /// Partitions that it says it touches. A key marks where to look and names
    /// no partition without doubt: the tuple comes from manifests.
    pub touched: Vec<Touched>,
    /// It is a rewrite of this product.
    pub own: bool,
    /// It says that it only adds rows: no rewrite makes such a commit fail.
    pub appends: bool,
}

/// A partition named in a summary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Touched {
    /// The summary's path, such as `dt=2026-01-01/region=eu`.
    pub path: String,
    /// Data and delete files added.
    pub files_added: u64,
    /// Data and delete files removed.
    pub files_removed: u64,
}

impl Change {
    /// Whether a lost answer could hide a snapshot.
    pub fn adds_snapshots(&self) -> bool {
        !self.adds.is_empty()
    }

    /// Where a ref must stand for the commit to land.
    pub fn asserted_of(&self, reference: &str) -> Option<i64> {
        self.asserted.iter().find(|(name, _)| name == reference).and_then(|(_, id)| *id)
    }
}

/// Reads the body of a commit to one table.
///
/// # Errors
/// When it is not such a body.
pub fn parse(body: &[u8]) -> Result<Change, serde_json::Error> {
    serde_json::from_slice::<Wire>(body).map(Into::into)
}

/// Reads the body of `/transactions/commit`.
///
/// # Errors
/// When it is not such a body.
pub fn parse_transaction(body: &[u8]) -> Result<Vec<Change>, serde_json::Error> {
    let wire: WireTransaction = serde_json::from_slice(body)?;
    Ok(wire.table_changes.into_iter().map(Into::into).collect())
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct WireTransaction {
    table_changes: Vec<Wire>,
}

#[derive(Deserialize)]
struct Wire {
    identifier: Option<WireIdentifier>,
    #[serde(default)]
    requirements: Vec<WireRequirement>,
    updates: Vec<WireUpdate>,
}

#[derive(Deserialize)]
struct WireIdentifier {
    namespace: Vec<String>,
    name: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct WireRequirement {
    r#type: String,
    uuid: Option<Uuid>,
    r#ref: Option<String>,
    snapshot_id: Option<i64>,
    last_assigned_field_id: Option<i64>,
    last_assigned_partition_id: Option<i64>,
    current_schema_id: Option<i64>,
    default_spec_id: Option<i64>,
    default_sort_order_id: Option<i64>,
}

impl WireRequirement {
    fn current(&self) -> Option<Current> {
        match self.r#type.as_str() {
            "assert-last-assigned-field-id" => self.last_assigned_field_id.map(Current::LastField),
            "assert-last-assigned-partition-id" => self.last_assigned_partition_id.map(Current::LastPartitionField),
            "assert-current-schema-id" => self.current_schema_id.map(Current::Schema),
            "assert-default-spec-id" => self.default_spec_id.map(Current::Spec),
            "assert-default-sort-order-id" => self.default_sort_order_id.map(Current::SortOrder),
            _ => None,
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct WireUpdate {
    action: String,
    uuid: Option<Uuid>,
    snapshot: Option<WireSnapshot>,
    ref_name: Option<String>,
    snapshot_id: Option<i64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct WireSnapshot {
    snapshot_id: i64,
    parent_snapshot_id: Option<i64>,
    sequence_number: Option<i64>,
    #[serde(default)]
    summary: BTreeMap<String, String>,
}

impl From<Wire> for Change {
    fn from(wire: Wire) -> Self {
        let mut change = Self { identifier: wire.identifier.map(|i| (i.namespace, i.name)), ..Self::default() };
        for requirement in wire.requirements {
            match requirement.r#type.as_str() {
                "assert-create" => change.creates = true,
                "assert-table-uuid" => change.uuid = requirement.uuid,
                "assert-ref-snapshot-id" => {
                    change.asserted.extend(requirement.r#ref.map(|reference| (reference, requirement.snapshot_id)));
                }
                _ => change.current.extend(requirement.current()),
            }
        }
        for update in wire.updates {
            match (update.action.as_str(), update.snapshot, update.ref_name) {
                ("assign-uuid", ..) => change.uuid = change.uuid.or(update.uuid),
                ("add-snapshot", Some(snapshot), _) => change.adds.push(snapshot.into()),
                ("set-snapshot-ref", _, Some(name)) => change.moves.push((name, update.snapshot_id)),
                ("remove-snapshot-ref", _, Some(name)) => change.moves.push((name, None)),
                _ => {}
            }
        }
        change
    }
}

impl From<WireSnapshot> for Added {
    fn from(wire: WireSnapshot) -> Self {
        let count = |key: &str| wire.summary.get(key).and_then(|v| v.parse::<u64>().ok()).unwrap_or(0);
        let touched = wire.summary.iter().filter_map(|(key, value)| Some(touched(key.strip_prefix("partitions.")?, value)));
        Self {
            id: wire.snapshot_id,
            parent: wire.parent_snapshot_id,
            sequence: wire.sequence_number.unwrap_or(0),
            files: count("added-data-files").saturating_add(count("added-delete-files")),
            touched: touched.take(MAX_TOUCHED).collect(),
            own: wire.summary.contains_key(ATTEMPT_KEY),
            appends: wire.summary.get("operation").is_some_and(|operation| operation == "append"),
        }
    }
}

/// `added-data-files=1,added-records=5,…`.
fn touched(path: &str, counts: &str) -> Touched {
    let (mut files_added, mut files_removed) = (0_u64, 0_u64);
    for (key, value) in counts.split(',').filter_map(|pair| pair.split_once('=')) {
        let count = value.trim().parse::<u64>().unwrap_or(0);
        match key.trim() {
            "added-data-files" | "added-delete-files" => files_added = files_added.saturating_add(count),
            "deleted-data-files" | "removed-delete-files" => files_removed = files_removed.saturating_add(count),
            _ => {}
        }
    }
    Touched { path: path.to_owned(), files_added, files_removed }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const UUID: &str = "d335aecc-04db-4223-a213-c7ac5ffef216";

    fn added(id: i64, parent: Option<i64>) -> Added {
        Added { id, parent, sequence: 0, files: 0, touched: vec![], own: false, appends: false }
    }

    #[test]
    fn an_append_names_its_uuid_parent_snapshot_and_partitions() {
        let body = format!(
            r#"{{"requirements":[{{"type":"assert-table-uuid","uuid":"{UUID}"}},{{"type":"assert-ref-snapshot-id","ref":"main","snapshot-id":6}}],
            "updates":[{{"action":"add-snapshot","snapshot":{{"snapshot-id":9223372036854775807,"parent-snapshot-id":6,"sequence-number":5,"summary":{{
            "operation":"append","added-data-files":"2","added-delete-files":"1","partitions.dt=1/r=eu%2Fx":"added-data-files=2,added-records=5,deleted-data-files=3"}}}}}},
            {{"action":"set-snapshot-ref","ref-name":"main","type":"branch","snapshot-id":9223372036854775807}}]}}"#
        );
        let touched = vec![Touched { path: "dt=1/r=eu%2Fx".into(), files_added: 2, files_removed: 3 }];
        let expected = Change {
            uuid: Some(UUID.parse().unwrap()),
            asserted: vec![("main".into(), Some(6))],
            adds: vec![Added { id: i64::MAX, parent: Some(6), sequence: 5, files: 3, touched, own: false, appends: true }],
            moves: vec![("main".into(), Some(i64::MAX))],
            ..Change::default()
        };
        assert_eq!(parse(body.as_bytes()).unwrap(), expected);
    }

    #[test]
    fn a_created_table_takes_the_uuid_that_is_assigned() {
        let body = format!(
            r#"{{"identifier":{{"namespace":["a","b"],"name":"t"}},"requirements":[{{"type":"assert-create"}}],"updates":[
            {{"action":"assign-uuid","uuid":"{UUID}"}},{{"action":"set-properties","updates":{{"x":"y"}}}},
            {{"action":"add-snapshot","snapshot":{{"snapshot-id":1}}}},{{"action":"no-such-action","more":[1]}}]}}"#
        );
        let expected = Change {
            identifier: Some((vec!["a".into(), "b".into()], "t".into())),
            uuid: Some(UUID.parse().unwrap()),
            creates: true,
            adds: vec![added(1, None)],
            ..Change::default()
        };
        assert_eq!(parse(body.as_bytes()).unwrap(), expected);
    }

    #[test]
    fn whatever_else_is_asserted_is_kept_and_what_is_not_known_passed_over() {
        let body = br#"{"requirements":[{"type":"assert-last-assigned-field-id","last-assigned-field-id":7},
            {"type":"assert-last-assigned-partition-id","last-assigned-partition-id":1001},{"type":"assert-current-schema-id","current-schema-id":2},
            {"type":"assert-default-spec-id","default-spec-id":1},{"type":"assert-default-sort-order-id","default-sort-order-id":0},
            {"type":"assert-weather","sunny":true},{"type":"assert-current-schema-id"}],"updates":[]}"#;
        let expected =
            [Current::LastField(7), Current::LastPartitionField(1001), Current::Schema(2), Current::Spec(1), Current::SortOrder(0)];
        assert_eq!(parse(body).unwrap().current, expected);
    }

    #[test]
    fn a_transaction_is_one_change_a_table() {
        let body = r#"{"table-changes":[{"identifier":{"namespace":["a"],"name":"t"},"requirements":[],"updates":[
            {"action":"add-snapshot","snapshot":{"snapshot-id":1}},{"action":"add-snapshot","snapshot":{"snapshot-id":2,"parent-snapshot-id":1}}]},
            {"identifier":{"namespace":["a"],"name":"u"},"updates":[{"action":"remove-snapshot-ref","ref-name":"x"}]}]}"#;
        let changes = parse_transaction(body.as_bytes()).unwrap();
        assert_eq!(changes.iter().map(|c| c.adds.clone()).collect::<Vec<_>>(), [vec![added(1, None), added(2, Some(1))], vec![]]);
        assert_eq!(changes.iter().map(Change::adds_snapshots).collect::<Vec<_>>(), [true, false]);
        assert_eq!(changes[1].moves, [("x".to_owned(), None)]);
    }

    #[test]
    fn a_rewrite_of_ours_is_recognised() {
        let body =
            format!(r#"{{"updates":[{{"action":"add-snapshot","snapshot":{{"snapshot-id":1,"summary":{{"{ATTEMPT_KEY}":"x"}}}}}}]}}"#);
        assert_eq!(parse(body.as_bytes()).unwrap().adds, [Added { own: true, ..added(1, None) }]);
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), text in "[\\[\\]{}\":,a-z0-9 -]{0,200}") {
            let _may_fail = (parse(&bytes), parse_transaction(&bytes), parse(text.as_bytes()), parse_transaction(text.as_bytes()));
        }
    }
}
