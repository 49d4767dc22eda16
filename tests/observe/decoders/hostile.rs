//! Whatever comes in, a decoder gives an answer and comes back.

use afterwrite::model::wire::Wire;
use afterwrite::observe::decode::{Foreign, Record, decode, notification, report_at, unescape};
use proptest::prelude::*;

use super::{foreign, lines, recording, records};

fn read_all_ways(value: &[u8]) {
    let kind: [(&str, &[u8]); 2] = [("ce_type", b"updateTable"), ("ce_tabular-id", value)];
    for wire in Wire::ALL {
        let _ = decode(wire, &Record { value, headers: &[] });
        let _ = decode(wire, &Record { value, headers: &kind });
    }
    let at: Foreign = foreign(None, &["db"], "t");
    let _ = (report_at(&at, value), notification(&at, value));
}

/// Something real of every format.
fn samples() -> Vec<Vec<u8>> {
    let mut samples: Vec<Vec<u8>> = records("kafka-connect-1.12.jsonl").into_iter().take(5).map(|(_, _, value)| value).collect();
    samples.push(recording("trino-query-completed-insert.json"));
    samples.extend(lines("rest-java-requests.jsonl").iter().take(4).map(|l| l["request"].to_string().into_bytes()));
    samples.extend(lines("flink-reports.jsonl").iter().take(2).map(|l| l.to_string().into_bytes()));
    samples.extend(
        [
            r#"{"specversion":"1.0","type":"renameTable","data":{"source":{"namespace":["a"],"name":"b"},"destination":{"namespace":["a"],"name":"c"}}}"#,
            r#"{"Records":[{"eventName":"ObjectCreated:Put","s3":{"bucket":{"name":"b"},"object":{"key":"a%2F%zz+/1.metadata.json"}}}]}"#,
            r#"{"commitTime":"1","basePath":"s3://b/t","hoodieWriteStat":[{}]}"#,
            r#"{"event_type":"AFTER_RENAME_TABLE","source":["a","b"],"destination":["c"]}"#,
            r#"{"eventType":"COMPLETE","outputs":[{"namespace":"s3://b","name":"t","facets":{"version":{"datasetVersion":"1"}}}]}"#,
            r#"{"table":"a.b.c","snapshots":[{"snapshotId":"1","partitions":[{"filesAdded":[{"path":"x"}]}]}]}"#,
        ]
        .map(|text| text.as_bytes().to_vec()),
    );
    samples
}

/// A schema of records that take no bytes, and a list of a thousand million of them.
#[test]
fn a_list_that_claims_more_than_it_holds_is_refused_at_once() {
    let schema = br#"{"type":"record","name":"E","fields":[{"name":"x","type":{"type":"array","items":"null"}}]}"#;
    let mut value = vec![0xC2, 0x01, 0, u8::try_from(schema.len()).unwrap()];
    value.extend_from_slice(schema);
    value.extend_from_slice(&[0x80, 0xA8, 0xD6, 0xB9, 0x07, 0]);
    assert!(decode(Wire::IcebergConnect, &Record::of(&value)).is_err());
}

#[test]
fn a_schema_that_holds_itself_is_no_endless_descent() {
    for schema in [
        r#"{"type":"record","name":"E","fields":[{"name":"payload","type":"E"}]}"#.to_owned(),
        format!("{}\"int\"{}", r#"{"type":"array","items":"#.repeat(500), "}".repeat(500)),
        r#"{"type":"record","name":"E","fields":[{"name":"id","type":["null","E"]}]}"#.to_owned(),
    ] {
        let mut value = vec![0xC2, 0x01];
        value.extend_from_slice(&u16::try_from(schema.len()).unwrap().to_be_bytes());
        value.extend_from_slice(schema.as_bytes());
        value.extend([2; 4000]);
        assert!(decode(Wire::IcebergConnect, &Record::of(&value)).is_err());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn no_bytes_make_a_decoder_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        read_all_ways(&bytes);
        let framed = [&[0xC2, 0x01, 0, 2, b'"', b'x'][..], &bytes].concat();
        read_all_ways(&framed);
    }

    #[test]
    fn no_change_to_a_recording_makes_a_decoder_panic(
        which in any::<prop::sample::Index>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cut in any::<prop::sample::Index>(),
        cuts in any::<bool>(),
    ) {
        let samples = samples();
        let mut value = samples[which.index(samples.len())].clone();
        for (at, byte) in changes {
            let at = at.index(value.len());
            value[at] = byte;
        }
        if cuts {
            value.truncate(cut.index(value.len()));
        }
        read_all_ways(&value);
    }

    #[test]
    fn no_text_makes_unescaping_panic(text in "\\PC{0,40}") {
        let _ = unescape(&text);
    }
}
