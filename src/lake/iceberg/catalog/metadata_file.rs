//! Metadata files: their names and their bytes.

mod slim;

use std::borrow::Cow;
use std::collections::HashMap;
use std::io::{Read, Write};

use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;
use iceberg::spec::TableMetadata;
use serde::Deserialize;
use serde_json::Value;
use uuid::Uuid;

use crate::lake::clock::Chance;
use crate::lake::{Error, Result};
use crate::model::refusal::{Refusal, Refused};
use slim::Slim;

const METADATA_PATH: &str = "write.metadata.path";
const CODEC: &str = "write.metadata.compression-codec";
/// Format versions above this are refused by name when they cannot be read: version 3
/// has types that nobody here knows, and each newer one may have more.
const LAST_READABLE_VERSION: u64 = 2;

/// The name of a table's next metadata file: version and a random id, under
/// `write.metadata.path` or else the table's `metadata` folder.
pub fn next_location(metadata: &TableMetadata, previous: Option<&str>, chance: &dyn Chance) -> String {
    let properties = metadata.properties();
    let folder = match properties.get(METADATA_PATH) {
        Some(path) => path.trim_end_matches('/').to_owned(),
        None => format!("{}/metadata", metadata.location().trim_end_matches('/')),
    };
    let version = previous.and_then(version_of).map_or(0, |v| v.saturating_add(1));
    let extension = if gzipped(properties) { ".gz.metadata.json" } else { ".metadata.json" };
    format!("{folder}/{version:05}-{}{extension}", random_uuid(chance))
}

/// The version in a metadata file's name; `None` in a name of another form.
fn version_of(location: &str) -> Option<u64> {
    let name = location.rsplit('/').next()?;
    name.split_once('-')?.0.parse().ok()
}

fn random_uuid(chance: &dyn Chance) -> Uuid {
    let bits = u128::from(chance.next()) << 64 | u128::from(chance.next());
    uuid::Builder::from_random_bytes(bits.to_be_bytes()).into_uuid()
}

fn gzipped(properties: &HashMap<String, String>) -> bool {
    properties.get(CODEC).is_some_and(|codec| codec.eq_ignore_ascii_case("gzip"))
}

/// A metadata file's bytes, compressed as the table's properties say.
///
/// # Errors
/// A text, for a codec that is not one of the specification's.
pub fn encode(metadata: &TableMetadata) -> std::result::Result<Vec<u8>, String> {
    let codec = metadata.properties().get(CODEC).map_or("none", String::as_str);
    let json = serde_json::to_vec(metadata).map_err(|e| format!("metadata cannot be written: {e}"))?;
    if gzipped(metadata.properties()) {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        return encoder.write_all(&json).and_then(|()| encoder.finish()).map_err(|e| e.to_string());
    }
    match codec.to_ascii_lowercase().as_str() {
        "none" | "" => Ok(json),
        _ => Err(format!("table property {CODEC} is `{codec}`; `none` and `gzip` are known")),
    }
}

/// Reads a metadata file's bytes, by their content and not by the file's name.
///
/// # Errors
/// A `format-version` refusal for a version that holds what cannot be read, else
/// a `damaged` one; both name the file.
pub fn decode(bytes: &[u8], location: &str) -> Result<TableMetadata> {
    let json = unpacked(bytes, location)?;
    serde_json::from_slice(&json).or_else(|e| raised(&json).ok_or_else(|| unreadable(&json, location, e)))
}

/// As [`decode`], in time and memory that hardly grow with what commits wrote
/// about themselves: of snapshots' summaries only the operation and our own ids
/// are read, and neither the log of metadata files nor statistics are. No commit
/// may be based on it.
///
/// # Errors
/// As [`decode`].
pub fn decode_slim(bytes: &[u8], location: &str) -> Result<TableMetadata> {
    let json = unpacked(bytes, location)?;
    let slim: Slim = serde_json::from_slice(&json).map_err(|e| unreadable(&json, location, e))?;
    let mut slim = Value::Object(slim.map);
    number_snapshots(&mut slim);
    TableMetadata::deserialize(slim).map_err(|e| unreadable(&json, location, e))
}

/// The metadata of a table that was raised from format 1, whose snapshots of then have
/// no sequence numbers; `None` when it is not for these that it cannot be read.
fn raised(json: &[u8]) -> Option<TableMetadata> {
    let mut metadata: Value = serde_json::from_slice(json).ok()?;
    number_snapshots(&mut metadata).then(|| TableMetadata::deserialize(metadata).ok())?
}

/// Gives the snapshots of a newer format than 1 that have no sequence number theirs: 0, by
/// the specification. Whether there were any.
fn number_snapshots(metadata: &mut Value) -> bool {
    if metadata.get("format-version").and_then(Value::as_u64).is_none_or(|version| version < 2) {
        return false;
    }
    let mut any = false;
    for snapshot in metadata.get_mut("snapshots").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(snapshot) = snapshot.as_object_mut()
            && !snapshot.contains_key("sequence-number")
        {
            snapshot.insert("sequence-number".into(), 0.into());
            any = true;
        }
    }
    any
}

fn unpacked<'a>(bytes: &'a [u8], location: &str) -> Result<Cow<'a, [u8]>> {
    if !bytes.starts_with(&[0x1f, 0x8b]) {
        return Ok(Cow::Borrowed(bytes));
    }
    let mut unpacked = Vec::new();
    MultiGzDecoder::new(bytes).read_to_end(&mut unpacked).map_err(|e| Error::damaged(location, format!("gzip: {e}")))?;
    Ok(Cow::Owned(unpacked))
}

fn unreadable(json: &[u8], location: &str, error: serde_json::Error) -> Error {
    match serde_json::from_slice::<Version>(json) {
        Ok(Version { format_version }) if format_version > LAST_READABLE_VERSION => {
            Refused::new(Refusal::FormatVersion, format!("{location}: format version {format_version}: {error}")).into()
        }
        _ => Error::damaged(location, error),
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Version {
    format_version: u64,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A table with a snapshot of format 1, raised to `version`.
    fn raised_to(version: u8) -> Vec<u8> {
        let snapshot = json!({"snapshot-id": 7, "timestamp-ms": 1000, "manifest-list": "memory://t/l", "summary": {"operation": "append"},
            "schema-id": 0});
        let metadata = json!({
            "format-version": version, "table-uuid": "9c12d441-03fe-4693-9a96-a0705ddf69c1", "location": "memory://t",
            "last-sequence-number": 0, "last-updated-ms": 2000, "last-column-id": 1, "current-schema-id": 0, "next-row-id": 0,
            "schemas": [{"type": "struct", "schema-id": 0, "fields": [{"id": 1, "name": "a", "required": false, "type": "long"}]}],
            "default-spec-id": 0, "partition-specs": [{"spec-id": 0, "fields": []}], "last-partition-id": 999,
            "default-sort-order-id": 0, "sort-orders": [{"order-id": 0, "fields": []}], "properties": {},
            "current-snapshot-id": 7, "snapshots": [snapshot], "snapshot-log": [], "metadata-log": [],
            "refs": {"main": {"snapshot-id": 7, "type": "branch"}},
        });
        serde_json::to_vec(&metadata).unwrap()
    }

    #[test]
    fn snapshots_of_format_1_have_the_sequence_number_0_in_a_table_that_was_raised() {
        for version in [2, 3] {
            for decode in [decode, decode_slim] {
                let metadata = decode(&raised_to(version), "m").unwrap();
                let head = metadata.current_snapshot().unwrap();
                assert_eq!((metadata.format_version() as u8, head.snapshot_id(), head.sequence_number()), (version, 7, 0));
            }
        }
    }

    #[test]
    fn what_is_wrong_besides_is_told_as_before() {
        let broken = String::from_utf8(raised_to(3)).unwrap().replace("\"timestamp-ms\"", "\"time\"");
        match decode(broken.as_bytes(), "m").map(drop) {
            Err(Error::Refused(refused)) => assert_eq!(refused.refusal, Refusal::FormatVersion),
            other => panic!("{other:?}"),
        }
    }
}
