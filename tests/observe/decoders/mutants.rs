//! Recordings of every format, changed in their structure: values of another kind,
//! fields lost, doubled, renamed or moved, frames and lengths that lie.

use std::sync::LazyLock;

use afterwrite::model::wire::Wire;
use afterwrite::observe::decode::{Foreign, Record, Where, decode, native_events, notification, report_at};
use afterwrite::observe::proxy::clients::ClientId;
use afterwrite::observe::proxy::{commit, events};
use afterwrite::proto::v1::{CommitEvent, FileChange, FileCounts, PartitionChange, SnapshotChange, TablePath};
use proptest::prelude::*;
use prost::Message;
use serde_json::{Value, json};

use super::{foreign, lines, recording, records};

/// A record that is read without an error.
#[derive(Clone)]
struct Sample {
    wire: Wire,
    headers: Vec<(&'static str, Vec<u8>)>,
    value: Vec<u8>,
}

fn sample(wire: Wire, value: &Value) -> Sample {
    Sample { wire, headers: Vec::new(), value: value.to_string().into_bytes() }
}

fn native() -> CommitEvent {
    let counts = FileCounts { data_files: 3, delete_files: 1, records: 9, bytes: 8 };
    let file = FileChange { path: "s3://b/f".into(), bytes: 7, records: 2 };
    let partition =
        PartitionChange { path: "p=1".into(), added: Some(counts), files_added: vec![file.clone(), file], ..PartitionChange::default() };
    let snapshot = SnapshotChange {
        snapshot_id: "9007199254740993".into(),
        added: Some(counts),
        partitions: vec![partition],
        ..SnapshotChange::default()
    };
    CommitEvent {
        path: Some(TablePath { catalog: "lake".into(), namespace: vec!["db".into(), "x".into()], table: "t".into() }),
        table_uuid: "d335aecc-04db-4223-a213-c7ac5ffef216".into(),
        r#ref: "main".into(),
        snapshots: vec![snapshot.clone(), snapshot],
        ..CommitEvent::default()
    }
}

/// Requests that clients really sent.
fn requests(of: fn(&Value) -> bool) -> Vec<Value> {
    lines("rest-java-requests.jsonl").iter().map(|line| line["request"].clone()).filter(of).collect()
}

fn commits() -> Vec<Value> {
    requests(|request| request.get("updates").is_some())
}

fn reports() -> Vec<Value> {
    let own = requests(|request| request.get("report-type").is_some());
    own.into_iter().chain(lines("flink-reports.jsonl").into_iter().map(|line| line.get("report").cloned().unwrap_or(line))).collect()
}

static SAMPLES: LazyLock<Vec<Sample>> = LazyLock::new(samples);

/// What is posted to a catalog.
static BODIES: LazyLock<Vec<Value>> = LazyLock::new(|| {
    let mut all: Vec<Value> = commits().into_iter().chain(reports()).collect();
    all.push(json!({"table-changes": commits()}));
    let payload = json!({"event-type": "UPDATE", "table-uuid": "d335aecc-04db-4223-a213-c7ac5ffef216"});
    all.push(json!({"notification-type": "UPDATE", "payload": payload}));
    all
});

fn samples() -> Vec<Sample> {
    let mut samples = vec![Sample { wire: Wire::Protobuf, headers: Vec::new(), value: native().encode_to_vec() }];
    samples.push(sample(
        Wire::Json,
        &json!({"table": "lake.db.t", "tableUuid": "d335aecc-04db-4223-a213-c7ac5ffef216", "ref": "main", "sender": "s", "snapshots": [
            {"snapshotId": "9007199254740993", "parentId": 4, "added": {"dataFiles": "3", "deleteFiles": 1, "records": 1, "bytes": 2},
             "partitions": [{"specId": 0, "path": "p=1", "added": {"dataFiles": 1}, "filesAdded": [{"path": "f", "bytes": 1, "records": 2}]}]}]}),
    ));
    for data in commits() {
        let attributes: [(&str, &str); 5] = [
            ("ce_type", "updateTable"),
            ("ce_tabular-type", "table"),
            ("ce_tabular-id", "d335aecc-04db-4223-a213-c7ac5ffef216"),
            ("ce_name", "t"),
            ("ce_namespace", "db"),
        ];
        let headers = attributes.map(|(name, text)| (name, text.as_bytes().to_vec())).to_vec();
        samples.push(Sample { headers, ..sample(Wire::CloudEvents, &data) });
        let whole =
            json!({"specversion": "1.0", "type": "updateTable", "tabular-type": "table", "name": "t", "namespace": "db", "data": data});
        samples.push(sample(Wire::CloudEvents, &whole));
    }
    let rename = json!({"source": {"namespace": ["a"], "name": "b"}, "destination": {"namespace": ["a"], "name": "c"}});
    samples.push(sample(Wire::CloudEvents, &json!({"specversion": "1.0", "type": "renameTable", "data": rename})));
    for (_, _, value) in records("kafka-connect-1.12.jsonl") {
        samples.push(Sample { wire: Wire::IcebergConnect, headers: Vec::new(), value });
    }
    for name in ["commit_to_table", "commit_complete", "data_written"] {
        samples.push(Sample { wire: Wire::IcebergConnect, headers: Vec::new(), value: recording(&format!("kafka-connect-{name}.bin")) });
    }
    samples.extend(reports().iter().map(|report| sample(Wire::IcebergReport, report)));
    let object = json!({"eventName": "ObjectCreated:Put", "s3": {"bucket": {"name": "b"}, "object": {"key": "wh/a%2Bb+c/metadata/1.metadata.json", "size": 1}}});
    samples.push(sample(Wire::S3, &json!({"Records": [object.clone(), object]})));
    samples.push(sample(Wire::S3, &json!({"EventName": "s3:ObjectCreated:Put", "Key": "b/t/metadata/1.metadata.json", "Records": []})));
    samples.push(sample(Wire::S3, &json!({"Type": "Notification", "Message": json!({"Records": []}).to_string()})));
    samples.push(sample(
        Wire::S3,
        &json!({"detail-type": "Object Created", "detail": {"bucket": {"name": "b"}, "object": {"key": "t/1.metadata.json"}}}),
    ));
    samples.push(sample(
        Wire::Hudi,
        &json!({"commitTime": "20260101", "tableName": "t", "basePath": "s3://b/t", "hoodieWriteStat": [{"fileId": "1", "path": "p"}]}),
    ));
    samples.push(sample(
        Wire::Polaris,
        &json!({"event_type": "AFTER_UPDATE_TABLE", "catalog_name": "c", "namespace": ["a", "b"], "table_name": "t"}),
    ));
    samples.push(sample(Wire::Polaris, &json!({"event_type": "AFTER_RENAME_TABLE", "source": ["a", "b"], "destination": ["a", "c"]})));
    let output = json!({"namespace": "s3://b", "name": "t", "facets": {"version": {"datasetVersion": "1"}, "outputStatistics": {"rowCount": 1, "fileCount": 2}}});
    samples.push(sample(
        Wire::OpenLineage,
        &json!({"eventType": "COMPLETE", "run": {"runId": "1"}, "job": {"name": "j"}, "outputs": [output]}),
    ));
    samples.push(Sample { wire: Wire::Trino, headers: Vec::new(), value: recording("trino-query-completed-insert.json") });
    samples
}

/// What a value may be replaced by.
fn odd(which: usize) -> Value {
    let nested = |depth| (0..depth).fold(json!(1), |inner, _| json!([inner]));
    match which % 19 {
        0 => Value::Null,
        1 => json!(true),
        2 => json!(-1),
        3 => json!(u64::MAX),
        4 => json!(i64::MIN),
        5 => json!(1e308),
        6 => json!(0.5),
        7 => json!(""),
        8 => json!("\u{0}"),
        9 => json!("x".repeat(5_000)),
        10 => json!("%zz%ff+%00"),
        11 => json!("𝕌\u{202e}."),
        12 => json!([]),
        13 => json!({}),
        14 => json!([[[]]]),
        15 => json!({"": {"": null}}),
        16 => nested(120),
        17 => json!(vec![Value::Null; 2_000]),
        _ => json!("-9223372036854775809"),
    }
}

/// One change of structure, at a place of the tree.
fn change(root: &mut Value, place: usize, kind: usize, more: usize) {
    let count = nodes(root);
    let at = place % count;
    let other = {
        let mut copy = root.clone();
        node(&mut copy, &mut (more % count)).cloned()
    };
    let Some(target) = node(root, &mut { at }) else { return };
    match (kind % 5, target) {
        (0, target) => *target = odd(more),
        (1, Value::Object(map)) => {
            let key = map.keys().nth(more % map.len().max(1)).cloned();
            key.and_then(|key| map.remove(&key));
        }
        (1 | 2, Value::Array(list)) if !list.is_empty() => {
            let one = list.remove(more % list.len());
            if kind % 5 == 2 {
                list.extend(vec![one; 3]);
            }
        }
        (2, Value::Object(map)) => {
            let key = map.keys().nth(more % map.len().max(1)).cloned();
            if let Some((key, value)) = key.and_then(|key| map.remove(&key).map(|value| (key, value))) {
                map.insert(key.to_uppercase(), value);
            }
        }
        (3, target) => *target = other.unwrap_or_default(),
        (_, target) => *target = json!([target.clone(), odd(more)]),
    }
}

fn nodes(value: &Value) -> usize {
    1 + match value {
        Value::Array(list) => list.iter().map(nodes).sum(),
        Value::Object(map) => map.values().map(nodes).sum(),
        _ => 0,
    }
}

fn node<'a>(value: &'a mut Value, left: &mut usize) -> Option<&'a mut Value> {
    if *left == 0 {
        return Some(value);
    }
    *left -= 1;
    match value {
        Value::Array(list) => list.iter_mut().find_map(|inner| node(inner, left)),
        Value::Object(map) => map.values_mut().find_map(|inner| node(inner, left)),
        _ => None,
    }
}

/// The fields of a protobuf message, each with its tag; what is no field is one piece.
fn fields(bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut pieces = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        let mut after = rest;
        let whole = prost::encoding::decode_key(&mut after)
            .and_then(|(tag, wire)| prost::encoding::skip_field(wire, tag, &mut after, prost::encoding::DecodeContext::default()));
        if whole.is_err() {
            after = &[];
        }
        pieces.push(rest[..rest.len() - after.len()].to_vec());
        rest = after;
    }
    pieces
}

/// One change of a message's fields, or of those of a message in it.
fn change_fields(bytes: &[u8], place: usize, kind: usize, more: usize) -> Vec<u8> {
    let mut pieces = fields(bytes);
    if pieces.is_empty() {
        return vec![0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f];
    }
    let at = place % pieces.len();
    let piece = pieces[at].clone();
    match kind % 7 {
        0 => drop(pieces.remove(at)),
        1 => pieces.extend(vec![piece; 1 + more % 2_000]),
        2 => pieces[at][0] ^= 1 << (more % 8),
        3 => pieces.swap(at, more % (at + 1)),
        // a length that lies
        4 => drop(pieces.splice(at..=at, [[&piece[..1], &[0xff, 0xff, 0xff, 0xff, 0x07][..], &piece[1..]].concat()])),
        5 => pieces[at].truncate(more % (piece.len() + 1)),
        _ if piece.len() > 2 && piece[0] & 7 == 2 && piece[1] < 0x80 => {
            let inner = change_fields(&piece[2..], more, kind / 7, place);
            let mut framed = vec![piece[0]];
            prost::encoding::encode_varint(inner.len() as u64, &mut framed);
            pieces[at] = [framed, inner].concat();
        }
        _ => {}
    }
    pieces.concat()
}

/// A control record with another schema before the same bytes, its length right.
fn with_schema(value: &[u8], change: impl FnOnce(&mut Value)) -> Vec<u8> {
    let length = usize::from(u16::from_be_bytes([value[2], value[3]]));
    let Ok(mut schema) = serde_json::from_slice(&value[4..4 + length]) else { return value.to_vec() };
    change(&mut schema);
    let text = schema.to_string().into_bytes();
    let Ok(framed) = u16::try_from(text.len()) else { return value.to_vec() };
    [&value[..2], &framed.to_be_bytes(), &text, &value[4 + length..]].concat()
}

/// What is read holds to the bounds of what is kept.
fn holds(wire: Wire, headers: &[(&str, &[u8])], value: &[u8]) {
    let Ok(drafts) = decode(wire, &Record { value, headers }) else { return };
    assert!(drafts.len() <= 10_000, "{wire}: {} drafts", drafts.len());
    for draft in drafts {
        assert!(draft.snapshots.len() <= 1_024, "{wire}");
        let (parts, bytes) = match &draft.table {
            Where::Named(name) => (name.namespace.len(), name.to_string().len()),
            Where::Foreign(Foreign { namespace, table, .. }) => {
                (namespace.len(), namespace.iter().map(String::len).sum::<usize>() + table.len())
            }
            Where::At { location, .. } => (1, location.len()),
        };
        assert!(parts > 0 && bytes > 0 && bytes <= 5_000, "{wire}: {parts} levels, {bytes} bytes");
    }
}

fn refs(sample: &Sample) -> Vec<(&str, &[u8])> {
    sample.headers.iter().map(|(name, value)| (*name, value.as_slice())).collect()
}

#[test]
fn there_is_a_readable_sample_of_every_format() {
    for wire in Wire::ALL {
        let of_it: Vec<_> = SAMPLES.iter().filter(|s| s.wire == wire).collect();
        assert!(!of_it.is_empty(), "{wire}");
        for sample in of_it {
            let read = decode(wire, &Record { value: &sample.value, headers: &refs(sample) });
            assert!(read.is_ok(), "{wire}: {:?}", read.err());
        }
        let told = SAMPLES
            .iter()
            .filter(|s| s.wire == wire)
            .any(|s| !decode(wire, &Record { value: &s.value, headers: &refs(s) }).unwrap().is_empty());
        assert!(told, "{wire}: no sample tells of a table");
    }
    assert!(!commits().is_empty() && !reports().is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_048, ..ProptestConfig::default() })]

    #[test]
    fn no_change_of_structure_makes_a_decoder_panic(
        which in any::<prop::sample::Index>(),
        changes in prop::collection::vec((any::<u16>(), any::<u16>(), any::<u16>()), 1..4),
        header in prop::option::of((any::<prop::sample::Index>(), prop::collection::vec(any::<u8>(), 0..40))),
        byte in prop::option::of((any::<prop::sample::Index>(), any::<u8>())),
    ) {
        let mut sample = SAMPLES[which.index(SAMPLES.len())].clone();
        for (place, kind, more) in changes {
            let (place, kind, more) = (usize::from(place), usize::from(kind), usize::from(more));
            sample.value = match sample.wire {
                Wire::Protobuf => change_fields(&sample.value, place, kind, more),
                Wire::IcebergConnect => with_schema(&sample.value, |schema| change(schema, place, kind, more)),
                _ => {
                    let Ok(mut root) = serde_json::from_slice(&sample.value) else { break };
                    change(&mut root, place, kind, more);
                    root.to_string().into_bytes()
                }
            };
        }
        if let Some((at, value)) = header.filter(|_| !sample.headers.is_empty()) {
            let at = at.index(sample.headers.len());
            sample.headers[at].1 = value;
        }
        if let Some((at, byte)) = byte.filter(|_| sample.wire == Wire::IcebergConnect) {
            let at = at.index(sample.value.len());
            sample.value[at] = byte;
        }
        holds(sample.wire, &refs(&sample), &sample.value);
        let _may_fail = native_events(&sample.value, afterwrite::model::event::Door::Http, 0).is_ok();
    }

    #[test]
    fn no_change_of_structure_makes_a_tables_own_paths_or_the_proxys_tap_panic(
        which in any::<prop::sample::Index>(),
        changes in prop::collection::vec((any::<u16>(), any::<u16>(), any::<u16>()), 1..4),
    ) {
        let mut root = BODIES[which.index(BODIES.len())].clone();
        for (place, kind, more) in changes {
            change(&mut root, usize::from(place), usize::from(kind), usize::from(more));
        }
        let body = root.to_string().into_bytes();
        let at = foreign(None, &["db"], "t");
        let _may_fail = (report_at(&at, &body), notification(&at, &body), events::report(&body));
        let names = [afterwrite::model::ident::TableName::new("lake", "db", "t")];
        let changes = commit::parse(&body).into_iter().chain(commit::parse_transaction(&body).unwrap_or_default());
        for change in changes {
            events::committed(&names, &change, afterwrite::model::event::Certainty::Hint, 0);
            events::writings((0, ClientId::numbered(0)), &names, &change, 0);
        }
    }
}
