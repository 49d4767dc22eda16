//! Avro container files whose fields are known by Iceberg field ids.
//!
//! The header is read here and written anew with canonical field names, so that
//! the records behind it decode into plain structs whatever names their writer
//! chose. Logical types are dropped: bytes stay bytes and numbers stay numbers,
//! and what they mean is told by the table's types.

use std::collections::HashMap;
use std::fmt;
use std::io::Read;

use flate2::read::DeflateDecoder;
use serde::de::{DeserializeOwned, Visitor};
use serde::{Deserialize, Deserializer};
use serde_avro_fast::object_container_file_encoding::Reader;
use serde_json::Value as Json;

/// A container file with its header taken apart.
pub struct Container {
    /// Header metadata, without the reserved `avro.` keys.
    pub meta: HashMap<String, Vec<u8>>,
    /// The schema, as its writer wrote it.
    pub schema: Json,
    bytes: Vec<u8>,
}

/// First four bytes of every container file.
const MAGIC: &[u8] = b"Obj\x01";
/// A header with more entries than this is not one of Iceberg's.
const MAX_META: u64 = 1000;

impl Container {
    /// Takes the header apart and renames the schema's fields: `names` gives the
    /// canonical name of a field id.
    ///
    /// # Errors
    /// A text that says what is wrong with the header.
    pub fn open(file: &[u8], names: fn(i64) -> Option<&'static str>) -> Result<Self, String> {
        let mut input = Input(file);
        if input.take(MAGIC.len())? != MAGIC {
            return Err("not an Avro container file".into());
        }
        let mut meta = read_meta(&mut input)?;
        let sync = input.take(16)?;
        let schema_text = meta.remove("avro.schema").ok_or("the header holds no avro.schema")?;
        let mut codec = meta.remove("avro.codec").unwrap_or_else(|| b"null".to_vec());
        let inflate = codec == b"deflate";
        if inflate {
            codec = b"null".to_vec();
        }
        let schema: Json = serde_json::from_slice(&schema_text).map_err(|e| format!("avro.schema is not JSON: {e}"))?;
        let mut canonical = schema.clone();
        rename(&mut canonical, names);
        let canonical = canonical.to_string();

        let mut bytes = Vec::with_capacity(file.len() + canonical.len() + 64);
        bytes.extend_from_slice(MAGIC);
        write_long(&mut bytes, 2);
        for (key, value) in [("avro.schema", canonical.as_bytes()), ("avro.codec", &codec)] {
            write_bytes(&mut bytes, key.as_bytes());
            write_bytes(&mut bytes, value);
        }
        write_long(&mut bytes, 0);
        bytes.extend_from_slice(sync);
        if inflate {
            inflate_blocks(&mut input, sync, &mut bytes)?;
        } else {
            bytes.extend_from_slice(input.0);
        }
        Ok(Self { meta, schema, bytes })
    }

    /// Decodes every record.
    ///
    /// # Errors
    /// A text that says which record is wrong, and how.
    pub fn records<T: DeserializeOwned>(&self) -> Result<Vec<T>, String> {
        let mut reader = Reader::from_slice(&self.bytes).map_err(|e| e.to_string())?;
        let mut out = Vec::new();
        while let Some(record) = reader.deserialize_next::<T>().map_err(|e| format!("record {}: {e}", out.len()))? {
            out.push(record);
        }
        Ok(out)
    }

    /// A header entry as text.
    pub fn text(&self, key: &str) -> Option<&str> {
        self.meta.get(key).and_then(|v| std::str::from_utf8(v).ok())
    }
}

/// The field with this id (or, without ids, this name) of a record schema.
pub fn field<'a>(record: &'a Json, id: i64, name: &str) -> Option<&'a Json> {
    let fields = record.get("fields")?.as_array()?;
    fields.iter().find(|f| field_id(f) == Some(id)).or_else(|| fields.iter().find(|f| f.get("name").and_then(Json::as_str) == Some(name)))
}

/// The Iceberg field id of a record schema's field.
pub fn field_id(field: &Json) -> Option<i64> {
    field.get("field-id").and_then(Json::as_i64)
}

/// Gives fields their canonical names and drops logical types, everywhere. The
/// fields of the partition record are numbered instead: their names are column
/// names, which Avro may not accept, and their order is all that is needed.
/// Defaults are dropped: they serve a reader's schema, and this is the writer's.
fn rename(schema: &mut Json, names: fn(i64) -> Option<&'static str>) {
    match schema {
        Json::Array(items) => items.iter_mut().for_each(|item| rename(item, names)),
        Json::Object(map) => {
            map.remove("logicalType");
            for field in fields_mut(map) {
                let id = field.get("field-id").and_then(Json::as_i64);
                if let Some(name) = id.and_then(names) {
                    field.insert("name".into(), name.into());
                }
                field.remove("default");
                let partition = field.get("name").and_then(Json::as_str) == Some(PARTITION);
                match field.get_mut("type") {
                    Some(inner) if partition => number_fields(inner),
                    Some(inner) => rename(inner, names),
                    None => {}
                }
            }
            for key in ["type", "items", "values"] {
                if let Some(inner) = map.get_mut(key) {
                    rename(inner, names);
                }
            }
        }
        _ => {}
    }
}

fn number_fields(record: &mut Json) {
    match record {
        Json::Array(items) => items.iter_mut().for_each(number_fields),
        Json::Object(map) => {
            for (at, field) in fields_mut(map).enumerate() {
                field.insert("name".into(), format!("p{at}").into());
                field.remove("default");
                if let Some(inner) = field.get_mut("type") {
                    rename(inner, |_| None);
                }
            }
        }
        _ => {}
    }
}

fn fields_mut(record: &mut serde_json::Map<String, Json>) -> impl Iterator<Item = &mut serde_json::Map<String, Json>> {
    record.get_mut("fields").and_then(Json::as_array_mut).into_iter().flatten().filter_map(Json::as_object_mut)
}

/// The canonical name of the partition record.
pub const PARTITION: &str = "partition";

/// Unpacks deflated blocks here, because some writers leave bytes of a checksum
/// behind the deflated data: legal to all readers but the one behind this.
fn inflate_blocks(input: &mut Input<'_>, sync: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
    while !input.0.is_empty() {
        let count = input.long()?;
        let packed = input.bytes()?;
        let mut plain = Vec::new();
        DeflateDecoder::new(packed).take(MAX_BLOCK).read_to_end(&mut plain).map_err(|e| format!("deflate: {e}"))?;
        if input.take(16)? != sync {
            return Err("a block does not end with the file's sync marker".into());
        }
        write_long(out, count);
        write_bytes(out, &plain);
        out.extend_from_slice(sync);
    }
    Ok(())
}

/// A block that unpacks to more is cut, and its records do not decode.
const MAX_BLOCK: u64 = 1 << 30;

fn read_meta(input: &mut Input<'_>) -> Result<HashMap<String, Vec<u8>>, String> {
    let mut meta = HashMap::new();
    loop {
        let count = input.long()?;
        if count == 0 {
            return Ok(meta);
        }
        if count < 0 {
            input.long()?;
        }
        if count.unsigned_abs() > MAX_META {
            return Err(format!("the header claims {} entries", count.unsigned_abs()));
        }
        for _ in 0..count.unsigned_abs() {
            let key = String::from_utf8(input.bytes()?.to_vec()).map_err(|_| "a header key is not UTF-8".to_owned())?;
            meta.insert(key, input.bytes()?.to_vec());
        }
    }
}

/// Bytes still to be read.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn take(&mut self, n: usize) -> Result<&'a [u8], String> {
        let (head, rest) = self.0.split_at_checked(n).ok_or("the file ends too early")?;
        self.0 = rest;
        Ok(head)
    }

    /// A zig-zag variable-length number.
    fn long(&mut self) -> Result<i64, String> {
        let mut raw = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = *self.take(1)?.first().ok_or("the file ends too early")?;
            raw |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok((raw >> 1) as i64 ^ -((raw & 1) as i64));
            }
        }
        Err("a number in the header is too long".into())
    }

    fn bytes(&mut self) -> Result<&'a [u8], String> {
        let n = usize::try_from(self.long()?).map_err(|_| "a length in the header is negative".to_owned())?;
        self.take(n)
    }
}

fn write_long(out: &mut Vec<u8>, value: i64) {
    let mut raw = ((value << 1) ^ (value >> 63)) as u64;
    while raw >= 0x80 {
        out.push((raw as u8 & 0x7f) | 0x80);
        raw >>= 7;
    }
    out.push(raw as u8);
}

fn write_bytes(out: &mut Vec<u8>, value: &[u8]) {
    write_long(out, i64::try_from(value.len()).unwrap_or(i64::MAX));
    out.extend_from_slice(value);
}

/// Bytes of a record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Blob(pub Vec<u8>);

impl<'de> Deserialize<'de> for Blob {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        d.deserialize_byte_buf(BlobVisitor)
    }
}

struct BlobVisitor;

impl Visitor<'_> for BlobVisitor {
    type Value = Blob;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("bytes")
    }

    fn visit_bytes<E>(self, v: &[u8]) -> Result<Blob, E> {
        Ok(Blob(v.to_vec()))
    }

    fn visit_str<E>(self, v: &str) -> Result<Blob, E> {
        Ok(Blob(v.as_bytes().to_vec()))
    }
}
