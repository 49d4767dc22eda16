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
    serde_json::from_slice(&json).map_err(|e| unreadable(&json, location, e))
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
    TableMetadata::deserialize(Value::Object(slim.map)).map_err(|e| unreadable(&json, location, e))
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
