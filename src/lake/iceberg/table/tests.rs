use std::collections::BTreeMap;

use serde_json::json;

use super::*;
use crate::lake::iceberg::catalog::memory::MemoryCatalog;
use crate::lake::iceberg::catalog::metadata_file;
use crate::lake::iceberg::store::file_io;
use crate::model::ident::TableName;
use crate::model::partition::{PartitionKey, Tuple, Value};

/// A v2 table whose first spec partitions by a column that was dropped, whose second
/// has only a void field, and whose third names a column that no schema holds.
fn metadata(change: impl FnOnce(&mut serde_json::Value)) -> Arc<TableMetadata> {
    Arc::new(serde_json::from_value(json_of(change)).unwrap())
}

fn json_of(change: impl FnOnce(&mut serde_json::Value)) -> serde_json::Value {
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
    json
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

#[tokio::test]
async fn the_metadata_file_that_a_catalog_reads_is_a_request() {
    let IcebergTable { loaded, .. } = table("main", |_| {});
    let io = file_io(&BTreeMap::new());
    let json = serde_json::to_vec(loaded.metadata.as_ref()).unwrap();
    io.new_output(&loaded.metadata_location).unwrap().write(json.into()).await.unwrap();
    let catalog = MemoryCatalog::new("lake", io);
    catalog.register(&loaded.name, &loaded.metadata_location);
    let name = loaded.name.clone();
    let table = IcebergTable::new(catalog.load(&name).await.unwrap().unwrap(), "main", Arc::new(catalog));
    assert_eq!((table.meter.requests().get, table.meter.requests().all()), (1, 1));
    assert!(table.again().await.unwrap().is_some());
    assert_eq!((table.meter.requests().get, table.meter.requests().all()), (2, 2));
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
        engine: None,
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
    assert_eq!((newer.view.format_version, refused(&newer)), (3, vec![]));
    let early = table("main", |json| json["schemas"][0]["fields"][0]["initial-default"] = json!(5));
    assert_eq!(refused(&early), [Refusal::DefaultValue]);
}

#[test]
fn a_table_in_an_s3_table_bucket_is_refused_until_its_owner_says_that_the_cloud_leaves_it_alone() {
    let at = |location: &str, property: &str| {
        table("main", |json| {
            json["location"] = json!(location);
            json["properties"]["afterwrite.managed-compaction"] = json!(property);
        })
    };
    assert_eq!(refused(&at("s3://63a8e430-6e0b--table-s3", "on")), [Refusal::ManagedCompaction]);
    assert_eq!(refused(&at("s3://63a8e430-6e0b--table-s3/t", "")), [Refusal::ManagedCompaction]);
    assert_eq!(refused(&at("s3://63a8e430-6e0b--table-s3", "off")), []);
    assert_eq!(refused(&at("s3://b/x--table-s3", "")), []);
}

/// What a look sees of metadata beside what a whole load sees, and the sizes of
/// both in bytes.
fn seen(json: &serde_json::Value, reference: &str) -> ((String, usize), (String, usize)) {
    let bytes = serde_json::to_vec(json).unwrap();
    let told = |metadata: TableMetadata| {
        let size = serde_json::to_vec(&metadata).unwrap().len();
        let types: Vec<_> = (0..5).map(|spec| PartitionTypes::resolve(&metadata, spec)).collect();
        let lists: Vec<_> = metadata.snapshots().map(|s| (s.snapshot_id(), s.manifest_list().to_owned())).collect();
        let lists: BTreeMap<_, _> = lists.into_iter().collect();
        (format!("{:?} {types:?} {lists:?}", view(&metadata, &TableName::new("lake", "db", "t"), "memory://t/m", reference)), size)
    };
    let slim = metadata_file::decode_slim(&bytes, "m").unwrap();
    (told(slim), told(metadata_file::decode(&bytes, "m").unwrap()))
}

#[test]
fn a_look_sees_what_a_whole_load_sees_whatever_commits_wrote_about_themselves() {
    let wordy = |json: &mut serde_json::Value| {
        for snapshot in json["snapshots"].as_array_mut().unwrap() {
            let told = (0..100).map(|n| (format!("figure-{n}"), json!("x".repeat(100))));
            snapshot["summary"].as_object_mut().unwrap().extend(told);
        }
        json["metadata-log"] = json!([{"metadata-file": "memory://t/old", "timestamp-ms": 1}]);
    };
    let v1 = |json: &mut serde_json::Value| {
        wordy(json);
        json["format-version"] = json!(1);
        json["schema"] = json["schemas"][1].clone();
        json["partition-spec"] = json!([]);
        json["snapshots"][0].as_object_mut().unwrap().remove("summary");
    };
    let v3 = |json: &mut serde_json::Value| {
        json["format-version"] = json!(3);
        json["next-row-id"] = json!(0);
        json["snapshots"][1]["key-id"] = json!("k");
        json["statistics"] = json!([]);
    };
    let empty = |json: &mut serde_json::Value| {
        for (key, value) in
            [("refs", json!({})), ("snapshots", json!(null)), ("snapshot-log", json!([])), ("current-snapshot-id", json!(-1))]
        {
            json[key] = value;
        }
    };
    for json in [json_of(|_| {}), json_of(wordy), json_of(v1), json_of(v3), json_of(empty)] {
        for reference in ["main", "audit", "v1", "gone"] {
            let ((slim, _), (whole, _)) = seen(&json, reference);
            assert_eq!(slim, whole);
        }
    }
    let ((_, slim), (_, whole)) = seen(&json_of(wordy), "main");
    assert!(slim < 4_000 && whole > 20_000, "{slim} bytes of {whole}");
}

#[test]
fn a_look_refuses_what_a_whole_load_refuses() {
    let refused = |bytes: &[u8]| {
        let told = |metadata: crate::lake::Result<TableMetadata>| match metadata.unwrap_err() {
            crate::lake::Error::Refused(refused) => refused.refusal,
            other => panic!("{other:?}"),
        };
        (told(metadata_file::decode_slim(bytes, "m")), told(metadata_file::decode(bytes, "m")))
    };
    let text = |change: fn(&mut serde_json::Value)| serde_json::to_vec(&json_of(change)).unwrap();
    let damaged = (Refusal::Damaged, Refusal::Damaged);
    assert_eq!(refused(b"{"), damaged);
    assert_eq!(refused(b"[]"), damaged);
    assert_eq!(refused(b"\x1f\x8bno gzip"), damaged);
    assert_eq!(refused(&text(|json| json["current-snapshot-id"] = json!(77))), damaged);
    assert_eq!(refused(&text(|json| json["snapshots"][0]["summary"] = json!({}))), damaged);
    assert_eq!(refused(&text(|json| json["default-spec-id"] = json!(9))), damaged);
    let newer = text(|json| json["format-version"] = json!(4));
    assert_eq!(refused(&newer), (Refusal::FormatVersion, Refusal::FormatVersion));
}

#[test]
fn the_values_of_a_partition_read_as_its_transforms_and_types_say() {
    use crate::model::form::Form;
    let t = table(MAIN, |json| {
        let column = |id: i64, kind: &str| json!({"id": id, "name": format!("c{id}"), "required": false, "type": kind});
        json["schemas"][1]["fields"] = ["date", "timestamp", "timestamptz", "decimal(9, 2)", "string", "time"]
            .iter()
            .zip(1..)
            .map(|(kind, id)| column(id, kind))
            .collect();
        let field = |at: i64, source: i64, transform: &str| json!({"source-id": source, "field-id": 2000 + at, "name": format!("f{at}"), "transform": transform});
        let of = [
            (1, "identity"),
            (1, "year"),
            (1, "month"),
            (1, "day"),
            (2, "hour"),
            (2, "identity"),
            (3, "identity"),
            (4, "identity"),
            (4, "truncate[10]"),
            (5, "identity"),
            (5, "bucket[4]"),
            (6, "identity"),
            (1, "void"),
        ];
        let fields: Vec<_> = of.iter().zip(0..).map(|((source, transform), at)| field(at, *source, transform)).collect();
        json["partition-specs"].as_array_mut().unwrap().push(json!({"spec-id": 9, "fields": fields}));
    });
    let decimal = Form::Decimal { scale: 2 };
    let zoned = |zoned| Form::Micros { zoned };
    let expected = [
        Form::Day,
        Form::Year,
        Form::Month,
        Form::Day,
        Form::Hour,
        zoned(false),
        zoned(true),
        decimal,
        decimal,
        Form::Plain,
        Form::Plain,
        Form::Time,
        Form::Plain,
    ];
    assert_eq!(t.view.specs[&9].forms, expected);
    // a dropped column still types the partitions of old files
    let plain = table(MAIN, |_| ());
    assert_eq!(plain.view.specs[&0].forms, [Form::Plain, Form::Day]);
    let key = PartitionKey { spec_id: 0, tuple: Tuple::from([Some(Value::Long(7)), Some(Value::Int(9190))]) };
    assert_eq!(plain.view.partition_name(&key), "a=7/b_day=1995-03-01");
    assert_eq!(plain.view.partition_name(&PartitionKey { spec_id: 42, ..key }), "field0=7/field1=9190");
}
