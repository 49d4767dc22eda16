use afterwrite::model::event::Certainty;
use afterwrite::model::ident::TableName;
use afterwrite::model::wire::Wire;
use afterwrite::observe::decode::{Draft, Where};
use afterwrite::proto::v1::{CommitEvent, FileCounts, SnapshotChange};
use prost::Message;
use serde_json::json;
use uuid::Uuid;

use super::{draft, error, foreign, read, recording};

fn at(location: &str) -> Draft {
    draft(Where::At { location: location.into(), or: None }, Certainty::Hint)
}

#[test]
fn our_own_event_says_the_same_in_protobuf_and_in_json() {
    let added = FileCounts { data_files: 3, delete_files: 1, ..FileCounts::default() };
    let snapshot = SnapshotChange { snapshot_id: "9007199254740993".into(), added: Some(added), ..SnapshotChange::default() };
    let uuid = Uuid::from_u128(7);
    let event = CommitEvent {
        table: "lake.db.t".into(),
        table_uuid: uuid.to_string(),
        r#ref: "main".into(),
        snapshots: vec![snapshot],
        ..CommitEvent::default()
    };
    let expected = Draft {
        uuid: Some(uuid),
        reference: Some("main".into()),
        snapshots: vec![9_007_199_254_740_993],
        files_added: 4,
        ..draft(Where::Named(TableName::new("lake", "db", "t")), Certainty::Hint)
    };
    assert_eq!(read(Wire::Protobuf, &event.encode_to_vec()), std::slice::from_ref(&expected));
    let camel = format!(
        r#"{{"table":"lake.db.t","tableUuid":"{uuid}","ref":"main","unknown":1,
            "snapshots":[{{"snapshotId":"9007199254740993","added":{{"dataFiles":"3","deleteFiles":1}}}}]}}"#
    );
    let snake = format!(
        r#"{{"path":{{"catalog":"lake","namespace":["db"],"table":"t"}},"table_uuid":"{uuid}","ref":"main",
            "snapshots":[{{"snapshot_id":9007199254740993,"partitions":[{{"path":"d=1","files_added":[{{"path":"a"}},{{"path":"b"}}]}},
                {{"added":{{"data_files":2}}}}]}}]}}"#
    );
    for json in [camel, snake] {
        assert_eq!(read(Wire::Json, json.as_bytes()), std::slice::from_ref(&expected), "{json}");
    }
}

#[test]
fn an_id_that_passed_through_a_double_is_not_taken() {
    let body = |id: &str| format!(r#"{{"table":"a.b.c","snapshots":[{{"snapshotId":{id}}}]}}"#);
    assert_eq!(read(Wire::Json, body("9223372036854775807").as_bytes())[0].snapshots, [i64::MAX]);
    for id in ["9.007199254740993e15", "1.0", "9223372036854775808", "\"1e3\"", "null", "true"] {
        assert!(error(Wire::Json, body(id).as_bytes()).starts_with("not a readable json event: "), "{id}");
    }
    assert!(error(Wire::Json, b"{}").contains("names no table"));
    assert!(error(Wire::Protobuf, &[0xff]).starts_with("not a readable protobuf event: "));
}

#[test]
fn a_new_metadata_file_is_a_hint_at_the_table_that_lies_there() {
    let notice = |name: &str, key: &str| json!({ "eventVersion": "2.1", "eventName": name, "s3": { "bucket": { "name": "lake" }, "object": { "key": key, "size": 1 } } });
    let aws = json!({ "Records": [
        notice("ObjectCreated:Put", "wh/db/t/metadata/00002-a.metadata.json"),
        notice("ObjectCreated:Put", "wh/db/t/data/f.parquet"),
        notice("ObjectRemoved:Delete", "wh/db/t/metadata/00001-a.metadata.json"),
        notice("ObjectCreated:CompleteMultipartUpload", "wh%2Fdb%2Fa%2Bb+c%26d%3D1/metadata/3.gz.metadata.json"),
    ] });
    assert_eq!(
        read(Wire::S3, aws.to_string().as_bytes()),
        [at("s3://lake/wh/db/t/metadata/00002-a.metadata.json"), at("s3://lake/wh/db/a+b c&d=1/metadata/3.gz.metadata.json")]
    );
    let minio = json!({ "EventName": "s3:ObjectCreated:Put", "Key": "lake/wh/t/metadata/1.metadata.json",
        "Records": [notice("s3:ObjectCreated:Put", "wh/t/metadata/1.metadata.json")] });
    let told = [at("s3://lake/wh/t/metadata/1.metadata.json")];
    assert_eq!(read(Wire::S3, minio.to_string().as_bytes()), told);
    let sns = json!({ "Type": "Notification", "Message": minio.to_string() });
    assert_eq!(read(Wire::S3, sns.to_string().as_bytes()), told);
}

#[test]
fn an_event_bridge_key_is_not_unescaped() {
    let event = |kind: &str| {
        json!({ "detail-type": kind, "detail": { "bucket": { "name": "b" }, "object": { "key": "a%20+/1.metadata.json" } } }).to_string()
    };
    assert_eq!(read(Wire::S3, event("Object Created").as_bytes()), [at("s3://b/a%20+/1.metadata.json")]);
    assert_eq!(read(Wire::S3, event("Object Tags Added").as_bytes()), []);
    assert_eq!(read(Wire::S3, br#"{"Service":"Amazon S3","Event":"s3:TestEvent","Bucket":"b"}"#), []);
    assert!(error(Wire::S3, b"{}").contains("neither `Records` nor `detail`"));
}

#[test]
fn a_hudi_callback_is_taken_whatever_became_of_its_options() {
    for lost in [json!({ "present": true, "empty": false }), json!("commit"), json!(null)] {
        let body = json!({ "commitTime": "20261129204400123", "tableName": "orders", "basePath": "s3://b/orders", "commitActionType": lost,
            "hoodieWriteStat": [{ "fileId": "1", "path": "dt=1/a.parquet" }, { "fileId": "2" }], "extraMetadata": lost });
        let expected = Draft { files_added: 2, certainty: Certainty::LogConfirmed, ..at("s3://b/orders") };
        assert_eq!(read(Wire::Hudi, body.to_string().as_bytes()), [expected]);
    }
    assert!(error(Wire::Hudi, br#"{"commitTime":"1"}"#).contains("basePath"));
}

#[test]
fn a_completed_run_tells_its_outputs_with_the_version_that_is_a_text() {
    let run = |kind: &str| {
        json!({ "eventType": kind, "run": { "runId": "r" }, "job": { "namespace": "n", "name": "j" },
            "inputs": [{ "namespace": "s3://b", "name": "wh/in" }],
            "outputs": [
                { "namespace": "s3://b/", "name": "/wh/db/t", "facets": { "version": { "datasetVersion": "9007199254740993" },
                    "symlinks": { "identifiers": [{ "namespace": "x", "name": "wh", "type": "LOCATION" }, { "namespace": "hive://h", "name": "db.t", "type": "TABLE" }] } },
                  "outputFacets": { "outputStatistics": { "rowCount": 5, "fileCount": 3 }, "icebergCommitReport": { "snapshotId": 9007199254740992i64 } } },
                { "namespace": "file", "name": "/data/wh/t" },
                { "namespace": "trino://host:8080", "name": "ice.db.t" },
                { "namespace": "kafka://host", "name": "topic" },
            ] })
        .to_string()
    };
    let first = Draft {
        table: Where::At { location: "s3://b/wh/db/t".into(), or: Some(foreign(None, &["db"], "t")) },
        snapshots: vec![9_007_199_254_740_993],
        files_added: 3,
        ..at("x")
    };
    let trino = draft(Where::Foreign(foreign(Some("ice"), &["db"], "t")), Certainty::Hint);
    assert_eq!(read(Wire::OpenLineage, run("COMPLETE").as_bytes()), [first, at("file:/data/wh/t"), trino]);
    for kind in ["START", "RUNNING", "FAIL", "ABORT"] {
        assert_eq!(read(Wire::OpenLineage, run(kind).as_bytes()), []);
    }
}

#[test]
fn a_recorded_query_of_trino_tells_the_table_and_its_files() {
    let recorded = recording("trino-query-completed-insert.json");
    let expected = Draft { files_added: 2, ..draft(Where::Foreign(foreign(Some("ice"), &["ev"], "orders")), Certainty::Hint) };
    assert_eq!(read(Wire::Trino, &recorded), [expected]);
    let changed = |at: &str, value: serde_json::Value| {
        let mut event: serde_json::Value = serde_json::from_slice(&recorded).unwrap();
        *event.pointer_mut(at).unwrap() = value;
        read(Wire::Trino, event.to_string().as_bytes())
    };
    assert_eq!(changed("/metadata/queryState", json!("FAILED")), []);
    assert_eq!(changed("/ioMetadata/output", json!(null)), []);
    assert_eq!(changed("/ioMetadata/output/connectorOutputMetadata", json!("{ cut"))[0].files_added, 0);
}

#[test]
fn names_that_the_inbox_would_keep_are_bounded() {
    let event = |table: &str| format!(r#"{{"event_type":"AFTER_UPDATE_TABLE","namespace":["db"],"table_name":"{table}"}}"#);
    assert!(error(Wire::Polaris, event(&"x".repeat(1023)).as_bytes()).contains("a table's name of 1025 bytes"));
    assert!(error(Wire::Polaris, event("").as_bytes()).contains("a table without a name"));
    let far = json!({ "commitTime": "1", "basePath": "s3://".to_owned() + &"x".repeat(5000) });
    assert!(error(Wire::Hudi, far.to_string().as_bytes()).contains("a location of 5005 bytes"));
}
