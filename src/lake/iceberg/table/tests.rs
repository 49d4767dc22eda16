use std::collections::BTreeMap;

use serde_json::json;

use super::*;
use crate::lake::iceberg::catalog::memory::MemoryCatalog;
use crate::lake::iceberg::store::file_io;
use crate::model::ident::TableName;
use crate::model::partition::{Tuple, Value};

/// A v2 table whose first spec partitions by a column that was dropped, whose second
/// has only a void field, and whose third names a column that no schema holds.
fn metadata(change: impl FnOnce(&mut serde_json::Value)) -> Arc<TableMetadata> {
    let snapshot = |id: i64, parent: serde_json::Value, at: i64, summary: serde_json::Value| {
        json!({"snapshot-id": id, "parent-snapshot-id": parent, "sequence-number": id, "timestamp-ms": at,
            "manifest-list": "memory://t/l", "summary": summary, "schema-id": 1})
    };
    let ours = json!({"operation": "replace", "afterwrite.attempt-id": "a1", "afterwrite.instance-id": "i1"});
    let mut json = json!({
        "format-version": 2, "table-uuid": "01020304-0506-0708-090a-0b0c0d0e0f10", "location": "memory://t",
        "last-sequence-number": 2, "last-updated-ms": 2000, "last-column-id": 2, "current-schema-id": 1,
        "schemas": [
            {"type": "struct", "schema-id": 0, "fields": [
                {"id": 1, "name": "a", "required": false, "type": "int"}, {"id": 2, "name": "b", "required": false, "type": "date"}]},
            {"type": "struct", "schema-id": 1, "fields": [{"id": 1, "name": "a", "required": false, "type": "long"}]}],
        "default-spec-id": 3, "last-partition-id": 1002,
        "partition-specs": [
            {"spec-id": 0, "fields": [
                {"source-id": 1, "field-id": 1000, "name": "a", "transform": "identity"},
                {"source-id": 2, "field-id": 1001, "name": "b_day", "transform": "day"}]},
            {"spec-id": 1, "fields": [{"source-id": 2, "field-id": 1001, "name": "b_day", "transform": "void"}]},
            {"spec-id": 2, "fields": [{"source-id": 9, "field-id": 1002, "name": "lost", "transform": "identity"}]},
            {"spec-id": 3, "fields": []}],
        "default-sort-order-id": 0, "sort-orders": [{"order-id": 0, "fields": []}],
        "properties": {"gc.enabled": "false", "k": "v"}, "current-snapshot-id": 2,
        "refs": {
            "main": {"snapshot-id": 2, "type": "branch"}, "audit": {"snapshot-id": 1, "type": "branch"}, "v1": {"snapshot-id": 1, "type": "tag"}},
        "snapshots": [snapshot(1, json!(null), 1000, json!({"operation": "append"})), snapshot(2, json!(1), 2000, ours)],
        "snapshot-log": [{"snapshot-id": 1, "timestamp-ms": 1000}, {"snapshot-id": 2, "timestamp-ms": 2000}], "metadata-log": []
    });
    change(&mut json);
    Arc::new(serde_json::from_value(json).unwrap())
}

fn table(reference: &str, change: impl FnOnce(&mut serde_json::Value)) -> IcebergTable {
    let io = file_io(&BTreeMap::new());
    let loaded = Loaded {
        fence: None,
        name: TableName::new("lake", "db", "t"),
        metadata_location: "memory://t/metadata/m".into(),
        metadata: metadata(change),
        io: io.clone(),
    };
    IcebergTable::new(loaded, reference, Arc::new(MemoryCatalog::new("lake", io)))
}

fn refused(table: &IcebergTable) -> Vec<Refusal> {
    table.view.refused.iter().map(|r| r.refusal).collect()
}

#[test]
fn a_view_holds_snapshots_specs_and_times() {
    let view = table("main", |_| {}).view;
    assert_eq!((view.head, view.created_ms, view.format_version, view.properties["k"].as_str()), (Some(2), 1000, 2, "v"));
    let ours = SnapshotInfo {
        id: 2,
        parent: Some(1),
        sequence_number: 2,
        timestamp_ms: 2000,
        operation: Operation::Replace,
        attempt: Some("a1".into()),
        instance: Some("i1".into()),
    };
    assert_eq!((view.snapshots.len(), &view.snapshots[&2]), (2, &ours));
    let specs: Vec<_> = view.specs.values().map(|s| (s.id, s.fields.len(), s.unpartitioned)).collect();
    assert_eq!(specs, [(0, 2, false), (1, 1, true), (2, 1, false), (3, 0, true)]);
    assert_eq!(view.refused, []);
}

#[test]
fn h47_a_dropped_source_column_is_typed_by_an_older_schema_and_a_lost_one_refuses_its_spec_only() {
    let table = table("main", |_| {});
    let tuple: Tuple = Arc::from([Some(Value::Long(5)), Some(Value::Int(19_000))]);
    assert!(table.partition_types(0).unwrap().to_struct(&tuple).is_ok());
    assert!(table.partition_types(1).is_ok());
    let lost = table.partition_types(2).unwrap_err();
    assert_eq!((lost.refusal, lost.detail.contains("`lost`")), (Refusal::UnresolvedSpec, true), "{lost}");
    assert_eq!(refused(&table), []);
}

#[test]
fn h65_a_view_is_of_a_branch_that_is_there() {
    assert_eq!((table("audit", |_| {}).view.head, refused(&table("audit", |_| {}))), (Some(1), vec![]));
    assert_eq!(refused(&table("gone", |_| {})), [Refusal::Branch]);
    assert_eq!(refused(&table("v1", |_| {})), [Refusal::Branch]);
    let empty = table("main", |json| {
        for (key, value) in
            [("refs", json!({})), ("snapshots", json!([])), ("snapshot-log", json!([])), ("current-snapshot-id", json!(null))]
        {
            json[key] = value;
        }
    });
    assert_eq!((empty.view.head, empty.view.created_ms, refused(&empty)), (None, 2000, vec![]));
}

#[test]
fn h46_encryption_and_newer_formats_are_refused_by_name() {
    let encrypted = table("main", |json| json["properties"]["encryption.key-id"] = json!("k"));
    assert_eq!(refused(&encrypted), [Refusal::Encrypted]);
    let newer = table("main", |json| {
        json["format-version"] = json!(3);
        json["next-row-id"] = json!(0);
    });
    assert_eq!((newer.view.format_version, refused(&newer)), (3, vec![Refusal::FormatVersion]));
}
