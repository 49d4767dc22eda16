//! Manifest entries.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use iceberg::spec::TableMetadata;
use serde::de::{DeserializeOwned, IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value as Json;

use super::avro::{self, Blob, Container};
use super::partition::{Columns, PartitionTypes, RawTuple};
use super::{DELETE_FILE_PATH, FILE_COLUMN, FileFormat, ScanEntry};
use crate::lake::{self, Error};
use crate::model::file::{Content, Entry, EntryStatus, FileKey, ManifestRef};
use crate::model::partition::PartitionKey;

/// One record of a manifest, by canonical names. `B` reads a bounds map, or
/// passes over it.
#[derive(Deserialize)]
#[serde(bound(deserialize = "B: Deserialize<'de>"))]
struct Row<B> {
    status: i32,
    snapshot_id: Option<i64>,
    sequence_number: Option<i64>,
    file_sequence_number: Option<i64>,
    data_file: File<B>,
}

#[derive(Deserialize)]
#[serde(bound(deserialize = "B: Deserialize<'de>"))]
struct File<B> {
    #[serde(default)]
    content: i32,
    file_path: String,
    file_format: String,
    partition: RawTuple,
    record_count: i64,
    file_size_in_bytes: i64,
    #[serde(default = "Option::default")]
    lower_bounds: Option<B>,
    #[serde(default = "Option::default")]
    upper_bounds: Option<B>,
    key_metadata: Option<Blob>,
    equality_ids: Option<Vec<i32>>,
    sort_order_id: Option<i32>,
    first_row_id: Option<i64>,
    referenced_data_file: Option<String>,
    content_offset: Option<i64>,
    content_size_in_bytes: Option<i64>,
}

/// The canonical name of a manifest field id.
pub fn name(id: i64) -> Option<&'static str> {
    Some(match id {
        0 => "status",
        1 => "snapshot_id",
        2 => "data_file",
        3 => "sequence_number",
        4 => "file_sequence_number",
        100 => "file_path",
        101 => "file_format",
        102 => avro::PARTITION,
        103 => "record_count",
        104 => "file_size_in_bytes",
        108 => "column_sizes",
        109 => "value_counts",
        110 => "null_value_counts",
        125 => "lower_bounds",
        128 => "upper_bounds",
        131 => "key_metadata",
        132 => "split_offsets",
        134 => "content",
        135 => "equality_ids",
        137 => "nan_value_counts",
        140 => "sort_order_id",
        142 => "first_row_id",
        143 => "referenced_data_file",
        144 => "content_offset",
        145 => "content_size_in_bytes",
        _ => return None,
    })
}

/// Every entry, projected for layouts.
///
/// # Errors
/// A `damaged` refusal that names the manifest.
pub fn layout(bytes: &[u8], manifest: &ManifestRef, metadata: &TableMetadata) -> lake::Result<Vec<Entry>> {
    decode::<IgnoredAny, _>(bytes, manifest, metadata, |scan, _, _| scan.entry)
}

/// Every entry, with what the delete join needs.
///
/// # Errors
/// A `damaged` refusal that names the manifest.
pub fn scan(bytes: &[u8], manifest: &ManifestRef, metadata: &TableMetadata) -> lake::Result<Vec<ScanEntry>> {
    decode::<PathBounds, _>(bytes, manifest, metadata, |scan, lower, upper| {
        let (lower, upper) = (lower.unwrap_or_default(), upper.unwrap_or_default());
        let file_column = lower.of_file_column.filter(|lower| Some(lower) == upper.of_file_column.as_ref());
        ScanEntry { path_lower: lower.of_path, path_upper: upper.of_path, file_column, ..scan }
    })
}

fn decode<B: DeserializeOwned, T>(
    bytes: &[u8],
    manifest: &ManifestRef,
    metadata: &TableMetadata,
    finish: impl Fn(ScanEntry, Option<B>, Option<B>) -> T,
) -> lake::Result<Vec<T>> {
    let damaged = |why: String| Error::damaged(&manifest.path, why);
    let found = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    if found < manifest.bytes {
        return Err(damaged(format!("the manifest list says {} bytes, the file holds {found}", manifest.bytes)));
    }
    let container = Container::open(bytes, name).map_err(damaged)?;
    if let Some(spec) = container.text("partition-spec-id").and_then(|id| id.parse::<i32>().ok()).filter(|id| *id != manifest.spec_id) {
        return Err(damaged(format!("the manifest list says partition spec {}, the manifest says {spec}", manifest.spec_id)));
    }
    let types = PartitionTypes::resolve(metadata, manifest.spec_id).ok();
    let record = partition_record(&container.schema).ok_or_else(|| damaged("the schema holds no partition record".into()))?;
    let context = Context {
        columns: Columns::of(record, types.as_ref()).map_err(damaged)?,
        v1: container.text("format-version").is_none_or(|v| v == "1"),
        manifest,
    };
    let rows: Vec<Row<B>> = container.records().map_err(damaged)?;
    let mut out = Vec::with_capacity(rows.len());
    for (at, mut row) in rows.into_iter().enumerate() {
        let (lower, upper) = (row.data_file.lower_bounds.take(), row.data_file.upper_bounds.take());
        let entry = context.entry(row).map_err(|why| damaged(format!("entry {at}: {why}")))?;
        out.push(finish(entry, lower, upper));
    }
    Ok(out)
}

/// The schema of the partition record.
pub fn partition_record(schema: &Json) -> Option<&Json> {
    let data_file = record(avro::field(schema, 2, "data_file")?.get("type")?)?;
    record(avro::field(data_file, 102, avro::PARTITION)?.get("type")?)
}

/// The record schema in a type that may be wrapped in a union.
fn record(schema: &Json) -> Option<&Json> {
    match schema {
        Json::Array(union) => union.iter().find_map(record),
        Json::Object(map) if map.contains_key("fields") => Some(schema),
        Json::Object(map) => record(map.get("type")?),
        _ => None,
    }
}

/// What is the same for all entries of a manifest.
struct Context<'a> {
    columns: Columns,
    v1: bool,
    manifest: &'a ManifestRef,
}

impl Context<'_> {
    fn entry<B>(&self, row: Row<B>) -> Result<ScanEntry, String> {
        let status = match row.status {
            0 => EntryStatus::Existing,
            1 => EntryStatus::Added,
            2 => EntryStatus::Deleted,
            other => return Err(format!("status {other} is not known")),
        };
        let file = row.data_file;
        let path: Arc<str> = Arc::from(file.file_path);
        let format = FileFormat::parse(&file.file_format);
        let content = match (file.content, &format) {
            (0, _) => Content::Data,
            (1, FileFormat::Puffin) => Content::DeletionVector,
            (1, _) => Content::PositionDeletes,
            (2, _) => Content::EqualityDeletes,
            (other, _) => return Err(format!("{path}: content {other} is not known")),
        };
        if (content != Content::Data) != self.manifest.deletes {
            return Err(format!("{path}: {content:?} in a manifest that the list calls {}", kind(self.manifest.deletes)));
        }
        let vector = content == Content::DeletionVector;
        let need = |what: &str, value: Option<i64>| value.ok_or_else(|| format!("{path}: a deletion vector without {what}"));
        let offset = if vector { Some(need("content_offset", file.content_offset)?) } else { None };
        let bytes = if vector { need("content_size_in_bytes", file.content_size_in_bytes)? } else { file.file_size_in_bytes };
        let size = |what: &str, value: i64| u64::try_from(value).map_err(|_| format!("{path}: {what} is {value}"));
        let entry = Entry {
            status,
            snapshot_id: row.snapshot_id.unwrap_or(self.manifest.added_snapshot_id),
            content,
            records: size("record_count", file.record_count)?,
            bytes: size("the size", bytes)?,
            partition: PartitionKey {
                spec_id: self.manifest.spec_id,
                tuple: self.columns.tuple(&file.partition).map_err(|why| format!("{path}: {why}"))?,
            },
            key: FileKey { path: path.clone(), offset },
        };
        Ok(ScanEntry {
            sequence_number: self.sequence(status, row.sequence_number).ok_or_else(|| format!("{path}: no sequence number"))?,
            file_sequence_number: self.sequence(status, row.file_sequence_number).unwrap_or(0),
            entry,
            format,
            equality_ids: if content == Content::EqualityDeletes { file.equality_ids.unwrap_or_default() } else { Vec::new() },
            sort_order_id: file.sort_order_id,
            first_row_id: file.first_row_id,
            referenced_data_file: file.referenced_data_file.map(Arc::from),
            path_lower: None,
            path_upper: None,
            file_column: None,
            encrypted: file.key_metadata.is_some_and(|k| !k.0.is_empty()),
        })
    }

    /// Inherits a sequence number where the specification lets an entry leave it
    /// out: ADDED entries, and any entry of a manifest from before sequence
    /// numbers. A DELETED entry's number is never used, so it may be missing.
    fn sequence(&self, status: EntryStatus, own: Option<i64>) -> Option<i64> {
        let inherits = status != EntryStatus::Existing || self.manifest.sequence_number == 0;
        match own {
            _ if self.v1 => Some(0),
            Some(own) => Some(own),
            None => inherits.then_some(self.manifest.sequence_number),
        }
    }
}

fn kind(deletes: bool) -> &'static str {
    if deletes { "deletes" } else { "data" }
}

impl FileFormat {
    fn parse(text: &str) -> Self {
        match text.to_ascii_lowercase().as_str() {
            "parquet" => Self::Parquet,
            "avro" => Self::Avro,
            "orc" => Self::Orc,
            "puffin" => Self::Puffin,
            _ => Self::Other(Arc::from(text)),
        }
    }
}

/// Of a bounds map, the values for a position delete's path column.
#[derive(Default)]
struct PathBounds {
    of_path: Option<Arc<[u8]>>,
    of_file_column: Option<Arc<[u8]>>,
}

#[derive(Deserialize)]
struct Bound {
    key: i32,
    value: Blob,
}

impl<'de> Deserialize<'de> for PathBounds {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        d.deserialize_seq(BoundsVisitor(PhantomData))
    }
}

struct BoundsVisitor(PhantomData<PathBounds>);

impl<'de> Visitor<'de> for BoundsVisitor {
    type Value = PathBounds;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("bounds by field id")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<PathBounds, A::Error> {
        let mut found = PathBounds::default();
        while let Some(bound) = seq.next_element::<Bound>()? {
            match bound.key {
                DELETE_FILE_PATH => found.of_path = Some(Arc::from(bound.value.0)),
                FILE_COLUMN => found.of_file_column = Some(Arc::from(bound.value.0)),
                _ => {}
            }
        }
        Ok(found)
    }
}
