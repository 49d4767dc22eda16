//! Metadata files: their names and their bytes.

use std::collections::HashMap;
use std::io::{Read, Write};

use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;
use iceberg::spec::TableMetadata;
use uuid::Uuid;

use crate::lake::clock::Chance;
use crate::lake::{Error, Result};
use crate::model::refusal::{Refusal, Refused};

const METADATA_PATH: &str = "write.metadata.path";
const CODEC: &str = "write.metadata.compression-codec";
/// Format versions above this are refused by name when they cannot be read.
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
    let mut unpacked = Vec::new();
    let json = if bytes.starts_with(&[0x1f, 0x8b]) {
        MultiGzDecoder::new(bytes).read_to_end(&mut unpacked).map_err(|e| Error::damaged(location, format!("gzip: {e}")))?;
        &unpacked
    } else {
        bytes
    };
    serde_json::from_slice(json).map_err(|e| match format_version(json) {
        Some(version) if version > LAST_READABLE_VERSION => {
            Refused::new(Refusal::FormatVersion, format!("{location}: format version {version}: {e}")).into()
        }
        _ => Error::damaged(location, e),
    })
}

fn format_version(json: &[u8]) -> Option<u64> {
    serde_json::from_slice::<serde_json::Value>(json).ok()?.get("format-version")?.as_u64()
}
