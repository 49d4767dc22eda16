//! Reads the answer of a table load: what healing must know, and the answer that
//! a client may have.

use std::collections::BTreeMap;
use std::io::Read;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use uuid::Uuid;

use super::heal::{OneOf, Table};
use crate::model::ident::MAIN;

/// The table of a load's answer.
///
/// # Errors
/// When it is not one.
pub fn table(body: &[u8]) -> Result<Table, serde_json::Error> {
    Ok(serde_json::from_slice::<Wire>(body)?.metadata.into())
}

/// The answer that a commit has: `metadata-location` and `metadata`. Anything
/// else in a load's answer, above all credentials, is let go. The metadata's text
/// is carried over as it is: it may be large, and its numbers are not ours to read.
///
/// # Errors
/// When it is not a load's answer.
pub fn fresh(body: &[u8]) -> Result<Vec<u8>, serde_json::Error> {
    serde_json::to_vec(&serde_json::from_slice::<Answer<'_>>(body)?)
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
struct Answer<'a> {
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    metadata_location: Option<&'a RawValue>,
    #[serde(borrow)]
    metadata: &'a RawValue,
}

#[derive(Deserialize)]
struct Wire {
    metadata: WireMetadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct WireMetadata {
    table_uuid: Option<Uuid>,
    current_snapshot_id: Option<i64>,
    last_sequence_number: Option<i64>,
    last_column_id: Option<i64>,
    last_partition_id: Option<i64>,
    current_schema_id: Option<i64>,
    default_spec_id: Option<i64>,
    default_sort_order_id: Option<i64>,
    #[serde(default)]
    schemas: Vec<WireId>,
    #[serde(default)]
    partition_specs: Vec<WireId>,
    #[serde(default)]
    sort_orders: Vec<WireId>,
    #[serde(default)]
    refs: BTreeMap<String, WireRef>,
    #[serde(default)]
    snapshots: Vec<WireSnapshot>,
}

/// A schema, a partition spec or a sort order.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct WireId {
    schema_id: Option<i64>,
    spec_id: Option<i64>,
    order_id: Option<i64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct WireRef {
    snapshot_id: i64,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct WireSnapshot {
    snapshot_id: i64,
    parent_snapshot_id: Option<i64>,
}

impl From<WireMetadata> for Table {
    fn from(wire: WireMetadata) -> Self {
        let mut refs: BTreeMap<String, i64> = wire.refs.into_iter().map(|(name, at)| (name, at.snapshot_id)).collect();
        // -1 is how older writers say that there is none
        if let Some(head) = wire.current_snapshot_id.filter(|id| *id != -1) {
            refs.entry(MAIN.to_owned()).or_insert(head);
        }
        let parents = wire.snapshots.into_iter().map(|s| (s.snapshot_id, s.parent_snapshot_id)).collect();
        let one =
            |current, all: Vec<WireId>, id: fn(WireId) -> Option<i64>| OneOf { current, all: all.into_iter().filter_map(id).collect() };
        Self {
            uuid: wire.table_uuid,
            refs,
            parents,
            last_sequence: wire.last_sequence_number.unwrap_or(0),
            last_field: wire.last_column_id,
            last_partition_field: wire.last_partition_id,
            schema: one(wire.current_schema_id, wire.schemas, |s| s.schema_id),
            spec: one(wire.default_spec_id, wire.partition_specs, |s| s.spec_id),
            sort_order: one(wire.default_sort_order_id, wire.sort_orders, |s| s.order_id),
        }
    }
}

/// Decodes a gzip body of at most `limit` bytes; `None` when it is larger or not gzip.
pub fn gunzip(body: &[u8], limit: usize) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let most = u64::try_from(limit).ok()?.checked_add(1)?;
    flate2::read::MultiGzDecoder::new(body).take(most).read_to_end(&mut out).ok()?;
    (out.len() <= limit).then_some(out)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    #[test]
    fn a_fresh_answer_holds_no_credentials() {
        let body = br#"{"metadata-location":"s3://b/1.json","config":{"s3.secret-access-key":"x","token":"y"},
            "storage-credentials":[{"prefix":"s3://b","config":{"s3.session-token":"z"}}],
            "metadata":{"table-uuid":"d335aecc-04db-4223-a213-c7ac5ffef216","current-snapshot-id":9223372036854775806,
            "snapshots":[{"snapshot-id":9223372036854775806,"parent-snapshot-id":3,"manifest-list":"m"}],"x":1.25}}"#;
        let answer: Value = serde_json::from_slice(&fresh(body).unwrap()).unwrap();
        let expected = serde_json::json!({"metadata-location": "s3://b/1.json", "metadata": {
            "table-uuid": "d335aecc-04db-4223-a213-c7ac5ffef216", "current-snapshot-id": 9_223_372_036_854_775_806_i64,
            "snapshots": [{"snapshot-id": 9_223_372_036_854_775_806_i64, "parent-snapshot-id": 3, "manifest-list": "m"}], "x": 1.25}});
        assert_eq!(answer, expected);
        let table = table(body).unwrap();
        assert_eq!(table.refs, BTreeMap::from([("main".to_owned(), 9_223_372_036_854_775_806)]));
        assert_eq!(table.parents, BTreeMap::from([(9_223_372_036_854_775_806, Some(3))]));
    }

    #[test]
    fn the_metadata_is_told_to_the_letter() {
        let body = br#"{"config":{}, "metadata": {"a" :1.10, "b":123456789012345678901234567890}, "metadata-location":"m"}"#;
        let expected = br#"{"metadata-location":"m","metadata":{"a" :1.10, "b":123456789012345678901234567890}}"#;
        assert_eq!(fresh(body).unwrap(), expected);
    }

    #[test]
    fn a_table_without_snapshots_has_no_head() {
        for head in ["null", "-1"] {
            let body = format!(r#"{{"metadata":{{"current-snapshot-id":{head}}}}}"#);
            assert_eq!(table(body.as_bytes()).unwrap(), Table::default(), "{head}");
        }
        assert!(table(b"{}").is_err());
        assert!(fresh(b"").is_err());
    }

    #[test]
    fn what_a_commit_may_assert_is_read() {
        let body = br#"{"metadata":{"last-sequence-number":9,"last-column-id":3,"last-partition-id":1000,"current-schema-id":1,"default-spec-id":0,
            "default-sort-order-id":0,"schemas":[{"schema-id":0,"type":"struct","fields":[{"id":5}]},{"schema-id":1,"fields":[]}],
            "partition-specs":[{"spec-id":0,"fields":[]}],"sort-orders":[{"order-id":0,"fields":[]}]}}"#;
        let one = |current, all: &[i64]| OneOf { current: Some(current), all: all.iter().copied().collect() };
        let expected = Table {
            last_sequence: 9,
            last_field: Some(3),
            last_partition_field: Some(1000),
            schema: one(1, &[0, 1]),
            spec: one(0, &[0]),
            sort_order: one(0, &[0]),
            ..Table::default()
        };
        assert_eq!(table(body).unwrap(), expected);
    }

    #[test]
    fn a_body_that_swells_beyond_the_limit_is_not_decoded() {
        let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        gz.write_all(&[b'x'; 5000]).unwrap();
        let packed = gz.finish().unwrap();
        assert_eq!(gunzip(&packed, 5000).map(|b| b.len()), Some(5000));
        assert_eq!(gunzip(&packed, 4999), None);
        assert_eq!(gunzip(b"plain", 4999), None);
        assert_eq!(gunzip(&packed[..packed.len() / 2], 5000), None);
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _may_fail = (table(&bytes), fresh(&bytes), gunzip(&bytes, 100));
        }
    }
}
