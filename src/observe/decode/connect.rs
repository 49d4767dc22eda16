//! The control topic of the Iceberg Kafka Connect sink: `0xC2 0x01`, the length
//! of a schema in two bytes, the schema in JSON, one Avro datum.
//!
//! Only `CommitToTable` tells of a commit; its snapshot id is the newest one of
//! the table after the commit and so may be another writer's. `DataWritten` is
//! decoded and not joined to it: a commit takes the files of every earlier
//! commit id that timed out, so that a join by id loses files, and what a commit
//! holds is read from the table's manifests anyway.

use serde::Deserialize;
use serde_avro_fast::Schema;
use serde_avro_fast::de::read::SliceRead;
use serde_avro_fast::de::{DeserializerConfig, DeserializerState};
use serde_json::Value as Json;
use uuid::Uuid;

use super::{Decoded, Draft};
use crate::model::event::Certainty;

const MAGIC: [u8; 2] = [0xC2, 0x01];
/// Most items of a list in one record. Items may take no bytes at all, so that a
/// few bytes could claim any number of them.
const MAX_ITEMS: usize = 1_000_000;

/// A record of the control topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The event's own id.
    pub id: Uuid,
    /// When it was made, in microseconds since the epoch.
    pub timestamp_us: i64,
    /// The connector's control group.
    pub group_id: String,
    /// The commit cycle.
    pub commit_id: Uuid,
    /// What it says.
    pub payload: Payload,
}

/// What a record says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload {
    /// A cycle begins.
    StartCommit,
    /// A worker wrote files of a table.
    DataWritten {
        /// The table.
        table: Table,
        /// Data files.
        data_files: Vec<File>,
        /// Delete files.
        delete_files: Vec<File>,
    },
    /// A worker has written all it had.
    DataComplete,
    /// A table was committed to.
    CommitToTable {
        /// The table.
        table: Table,
        /// The table's newest snapshot after it.
        snapshot_id: Option<i64>,
    },
    /// Every table of the cycle was committed to.
    CommitComplete,
    /// A kind that is newer than this reader.
    Other(i32),
}

/// A table as the connector names it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Table {
    /// The connector's name of the catalog.
    pub catalog: String,
    /// Namespace levels.
    pub namespace: Vec<String>,
    /// The table.
    pub name: String,
    /// Its uuid; older connectors do not say it.
    #[serde(default, deserialize_with = "some_uuid")]
    pub table_uuid: Option<Uuid>,
}

/// A file that a worker wrote.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct File {
    /// Where it lies; never opened because of a message.
    pub file_path: String,
    /// Its rows.
    pub record_count: i64,
    /// Its size.
    pub file_size_in_bytes: i64,
}

#[derive(Deserialize)]
struct Event {
    #[serde(deserialize_with = "uuid")]
    id: Uuid,
    #[serde(rename = "type")]
    kind: i32,
    timestamp: i64,
    group_id: String,
    payload: Fields,
}

/// The fields of every kind of payload, found by name.
#[derive(Deserialize)]
struct Fields {
    #[serde(deserialize_with = "uuid")]
    commit_id: Uuid,
    table_reference: Option<Table>,
    #[serde(default)]
    snapshot_id: Option<i64>,
    #[serde(default)]
    data_files: Option<Vec<File>>,
    #[serde(default)]
    delete_files: Option<Vec<File>>,
}

pub(super) fn drafts(value: &[u8]) -> Decoded {
    let Payload::CommitToTable { table, snapshot_id } = decode(value)?.payload else { return Ok(Vec::new()) };
    let Table { catalog, namespace, name, table_uuid } = table;
    let draft = Draft::foreign(Some(catalog), namespace, name, Certainty::CatalogConfirmed);
    Ok(vec![Draft { uuid: table_uuid, snapshots: snapshot_id.into_iter().collect(), ..draft }])
}

/// Decodes a record.
///
/// # Errors
/// A text that says what is wrong with it.
pub fn decode(value: &[u8]) -> Result<Message, String> {
    let rest = value.strip_prefix(&MAGIC).ok_or("it does not begin with the bytes C2 01")?;
    let (length, rest) = rest.split_first_chunk::<2>().ok_or("it ends within the length of its schema")?;
    let length = usize::from(u16::from_be_bytes(*length));
    let (schema, datum) = rest.split_at_checked(length).ok_or("it ends within its schema")?;
    let schema = schema_of(schema)?;
    let mut config = DeserializerConfig::new(&schema);
    config.max_seq_size = MAX_ITEMS;
    let mut state = DeserializerState::with_config(SliceRead::new(datum), config);
    let event = Event::deserialize(state.deserializer()).map_err(|e| e.to_string())?;
    let mut reader = state.into_reader();
    let left = std::io::Read::read(&mut reader, &mut [0]).map_err(|e| e.to_string())?;
    if left > 0 {
        return Err("bytes are left behind the record".into());
    }
    message(event)
}

fn message(event: Event) -> Result<Message, String> {
    let Event { id, kind, timestamp, group_id, payload } = event;
    let Fields { commit_id, table_reference, snapshot_id, data_files, delete_files } = payload;
    let table = || table_reference.ok_or_else(|| format!("an event of type {kind} without a table"));
    let payload = match kind {
        0 => Payload::StartCommit,
        1 => Payload::DataWritten {
            table: table()?,
            data_files: data_files.unwrap_or_default(),
            delete_files: delete_files.unwrap_or_default(),
        },
        2 => Payload::DataComplete,
        3 => Payload::CommitToTable { table: table()?, snapshot_id },
        4 => Payload::CommitComplete,
        other => Payload::Other(other),
    };
    Ok(Message { id, timestamp_us: timestamp, group_id, commit_id, payload })
}

/// The schema in the spelling of the specification: its writer prints the empty
/// namespace of a definition, which readers resolve into the enclosing one for the
/// definition and not for its uses; and logical types are not needed here.
fn schema_of(text: &[u8]) -> Result<Schema, String> {
    let mut schema: Json = serde_json::from_slice(text).map_err(|e| format!("its schema is not JSON: {e}"))?;
    plain(&mut schema);
    schema.to_string().parse().map_err(|e| format!("its schema: {e}"))
}

fn plain(schema: &mut Json) {
    match schema {
        Json::Array(items) => items.iter_mut().for_each(plain),
        Json::Object(map) => {
            map.remove("logicalType");
            map.remove("default");
            if map.get("namespace").and_then(Json::as_str) == Some("") {
                map.remove("namespace");
            }
            map.values_mut().for_each(plain);
        }
        _ => {}
    }
}

fn uuid<'de, D: serde::Deserializer<'de>>(d: D) -> Result<Uuid, D::Error> {
    d.deserialize_bytes(Sixteen)
}

fn some_uuid<'de, D: serde::Deserializer<'de>>(d: D) -> Result<Option<Uuid>, D::Error> {
    struct Fixed(Uuid);
    impl<'de> Deserialize<'de> for Fixed {
        fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
            uuid(d).map(Fixed)
        }
    }
    Ok(Option::<Fixed>::deserialize(d)?.map(|f| f.0))
}

struct Sixteen;

impl serde::de::Visitor<'_> for Sixteen {
    type Value = Uuid;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("16 bytes")
    }

    fn visit_bytes<E: serde::de::Error>(self, v: &[u8]) -> Result<Uuid, E> {
        Uuid::from_slice(v).map_err(|_| E::invalid_length(v.len(), &self))
    }
}
