//! Where outputs go: the layouts of Apache Iceberg's location providers.

use std::collections::HashMap;

use iceberg::spec::{PartitionSpec, PrimitiveType, Schema, TableMetadata, Transform, Type};

use super::human;
use crate::lake::{Error, Result};
use crate::model::partition::Tuple;
use crate::model::plan::AttemptId;
use crate::model::refusal::{Refusal, Refused};

/// Names the outputs of one attempt. The table's own spelling of its location
/// is kept, and the same attempt and number always give the same path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    folder: String,
    layout: Layout,
    partition: String,
    attempt: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Layout {
    /// `<folder>/<partition>/<name>`
    Folders,
    /// `<folder>/<hash of the rest>/<context>/<partition>/<name>`, which spreads
    /// the keys of an object store.
    Hashed {
        /// Names the table below a folder that it may share with others.
        context: Option<String>,
        /// Whether the path names the partition.
        partitioned: bool,
    },
}

impl Places {
    /// Errs when a property does not parse or a partition value has no type.
    pub fn new(metadata: &TableMetadata, spec: &PartitionSpec, tuple: &Tuple, attempt: &AttemptId) -> Result<Self> {
        let properties = metadata.properties();
        let location = metadata.location().trim_end_matches('/');
        let (folder, layout) = layout(properties, location)?;
        let partition = if spec.is_unpartitioned() { String::new() } else { partition_path(metadata, spec, tuple)? };
        Ok(Self { folder, layout, partition, attempt: escape(&attempt.0) })
    }

    /// The path of the output with this number.
    pub fn path(&self, number: usize) -> String {
        let name = format!("{number:05}-aw-{}.parquet", self.attempt);
        let within = |partition: &str| if partition.is_empty() { name.clone() } else { format!("{partition}/{name}") };
        match &self.layout {
            Layout::Folders => format!("{}/{}", self.folder, within(&self.partition)),
            Layout::Hashed { context, partitioned } => {
                let rest = if *partitioned { within(&self.partition) } else { name };
                let hash = hash_folders(&rest);
                match (context, partitioned) {
                    (Some(context), _) => format!("{}/{hash}/{context}/{rest}", self.folder),
                    (None, true) => format!("{}/{hash}/{rest}", self.folder),
                    (None, false) => format!("{}/{hash}-{rest}", self.folder),
                }
            }
        }
    }
}

fn layout(properties: &HashMap<String, String>, location: &str) -> Result<(String, Layout)> {
    let set = |key: &str| properties.get(key).map(|path| path.trim_end_matches('/').to_owned()).filter(|path| !path.is_empty());
    let data = set("write.data.path");
    let folder_storage = set("write.folder-storage.path");
    let standard = || format!("{location}/data");
    if !flag(properties, "write.object-storage.enabled", false)? {
        return Ok((data.or(folder_storage).unwrap_or_else(standard), Layout::Folders));
    }
    let partitioned = flag(properties, "write.object-storage.partitioned-paths", true)?;
    let folder = data.or_else(|| set("write.object-storage.path")).or(folder_storage).unwrap_or_else(standard);
    let context = (!folder.starts_with(location)).then(|| last_two(location));
    Ok((folder, Layout::Hashed { context, partitioned }))
}

fn flag(properties: &HashMap<String, String>, key: &str, default: bool) -> Result<bool> {
    let Some(value) = properties.get(key) else { return Ok(default) };
    let bad = |_| Error::Setup(format!("table property `{key}` is `{value}`: set true or false"));
    value.trim().to_ascii_lowercase().parse().map_err(bad)
}

/// The last two folders of a table's location: database and table.
fn last_two(location: &str) -> String {
    let mut parts: Vec<&str> = location.rsplit('/').take(2).filter(|part| !part.is_empty()).collect();
    parts.reverse();
    parts.join("/")
}

fn partition_path(metadata: &TableMetadata, spec: &PartitionSpec, tuple: &Tuple) -> Result<String> {
    let mut parts = Vec::with_capacity(spec.fields().len());
    for (position, field) in spec.fields().iter().enumerate() {
        let value = match tuple.get(position) {
            Some(Some(value)) if field.transform != Transform::Void => {
                human::value(field.transform, source_type(metadata, field.source_id).as_ref(), value)
            }
            Some(_) => "null".to_owned(),
            None => {
                let detail = format!("partition spec {} has a field {} for which the partition has no value", spec.spec_id(), field.name);
                return Err(Refused::new(Refusal::UnresolvedSpec, detail).into());
            }
        };
        parts.push(format!("{}={}", escape(&field.name), escape(&value)));
    }
    Ok(parts.join("/"))
}

/// The type of a partition's source column, from the current schema or any
/// older one: it may have been dropped since.
fn source_type(metadata: &TableMetadata, id: i32) -> Option<PrimitiveType> {
    let of = |schema: &Schema| match schema.field_by_id(id)?.field_type.as_ref() {
        Type::Primitive(kind) => Some(kind.clone()),
        _ => None,
    };
    of(metadata.current_schema()).or_else(|| metadata.schemas_iter().find_map(|schema| of(schema)))
}

/// Form encoding, as Apache Iceberg escapes names and values in paths.
fn escape(text: &str) -> String {
    let mut made = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'*' | b'_' | b'-' => made.push(char::from(byte)),
            b' ' => made.push('+'),
            other => made.push_str(&format!("%{other:02X}")),
        }
    }
    made
}

/// Twenty bits of the path's hash as three folders of four bits and one of eight.
fn hash_folders(path: &str) -> String {
    let bits = format!("{:020b}", murmur3(path.as_bytes()) & 0xF_FFFF);
    let part = |from, to| bits.get(from..to).unwrap_or_default();
    format!("{}/{}/{}/{}", part(0, 4), part(4, 8), part(8, 12), part(12, 20))
}

/// MurmurHash3, x86, 32 bits, seed 0.
fn murmur3(data: &[u8]) -> u32 {
    let scramble = |block: u32| block.wrapping_mul(0xCC9E_2D51).rotate_left(15).wrapping_mul(0x1B87_3593);
    let mut hash = 0u32;
    let mut blocks = data.chunks_exact(4);
    for block in blocks.by_ref() {
        let block = block.iter().rev().fold(0u32, |word, byte| word << 8 | u32::from(*byte));
        hash = (hash ^ scramble(block)).rotate_left(13).wrapping_mul(5).wrapping_add(0xE654_6B64);
    }
    let rest = blocks.remainder().iter().rev().fold(0u32, |word, byte| word << 8 | u32::from(*byte));
    hash ^= scramble(rest);
    hash ^= data.len() as u32;
    hash = (hash ^ hash >> 16).wrapping_mul(0x85EB_CA6B);
    hash = (hash ^ hash >> 13).wrapping_mul(0xC2B2_AE35);
    hash ^ hash >> 16
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(properties: &[(&str, &str)], partition: &str) -> String {
        let set: HashMap<String, String> = properties.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let (folder, layout) = layout(&set, "s3a://b/wh/db/t").unwrap();
        Places { folder, layout, partition: partition.to_owned(), attempt: "a1".to_owned() }.path(7)
    }

    #[test]
    fn hashes_are_those_of_apache_iceberg() {
        let found = ["a", "b", "c", "d"].map(hash_folders);
        assert_eq!(found, ["0101/0110/1001/10110010", "1110/0111/1110/00000011", "0010/1101/0110/01011111", "1001/0001/0100/01110011"]);
    }

    #[test]
    fn outputs_lie_where_the_tables_properties_say() {
        let on = ("write.object-storage.enabled", "true");
        assert_eq!(path(&[], "p=1"), "s3a://b/wh/db/t/data/p=1/00007-aw-a1.parquet");
        assert_eq!(path(&[], ""), "s3a://b/wh/db/t/data/00007-aw-a1.parquet");
        assert_eq!(path(&[("write.data.path", "s3://c/x/")], "p=1"), "s3://c/x/p=1/00007-aw-a1.parquet");
        assert_eq!(path(&[("write.folder-storage.path", "s3://c/y")], ""), "s3://c/y/00007-aw-a1.parquet");
        let hashed = hash_folders("p=1/00007-aw-a1.parquet");
        assert_eq!(path(&[on], "p=1"), format!("s3a://b/wh/db/t/data/{hashed}/p=1/00007-aw-a1.parquet"));
        let elsewhere = ("write.object-storage.path", "s3://c/z");
        assert_eq!(path(&[on, elsewhere], "p=1"), format!("s3://c/z/{hashed}/db/t/p=1/00007-aw-a1.parquet"));
        let unpartitioned = ("write.object-storage.partitioned-paths", "false");
        let hashed = hash_folders("00007-aw-a1.parquet");
        assert_eq!(path(&[on, unpartitioned], "p=1"), format!("s3a://b/wh/db/t/data/{hashed}-00007-aw-a1.parquet"));
        assert_eq!(path(&[on, elsewhere, unpartitioned], "p=1"), format!("s3://c/z/{hashed}/db/t/00007-aw-a1.parquet"));
    }

    #[test]
    fn a_bad_switch_is_refused_with_its_key() {
        let set = HashMap::from([("write.object-storage.enabled".to_owned(), "on".to_owned())]);
        let said = layout(&set, "s3://b/t").unwrap_err().to_string();
        assert_eq!(said, "table property `write.object-storage.enabled` is `on`: set true or false");
    }

    #[test]
    fn awkward_values_are_escaped() {
        assert_eq!(escape("a b/%2F+ü='*-._"), "a+b%2F%252F%2B%C3%BC%3D%27*-._");
    }
}
