//! Metadata JSON without what only commits need.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::{Map, Value};

use crate::model::plan::{ATTEMPT_KEY, INSTANCE_KEY};
use crate::model::table::ENGINE_KEYS;

/// A metadata object: its snapshots slim, without logs that nobody follows.
pub type Slim = Object<Metadata>;

/// An object of which some values are reduced or passed over.
pub struct Object<F> {
    /// What is left.
    pub map: Map<String, Value>,
    fields: PhantomData<F>,
}

/// How the value behind a key is read; `None` when it is passed over.
pub trait Fields {
    /// Reads it.
    fn read<'de, A: MapAccess<'de>>(key: &str, map: &mut A) -> Result<Option<Value>, A::Error>;
}

/// The fields of a metadata object.
pub struct Metadata;

impl Fields for Metadata {
    fn read<'de, A: MapAccess<'de>>(key: &str, map: &mut A) -> Result<Option<Value>, A::Error> {
        match key {
            "snapshots" => {
                let all = map.next_value::<Option<Vec<Object<Snapshot>>>>()?;
                Ok(Some(all.map_or(Value::Null, |all| all.into_iter().map(|s| Value::Object(s.map)).collect())))
            }
            "metadata-log" | "statistics" | "partition-statistics" => skip(map),
            _ => map.next_value().map(Some),
        }
    }
}

struct Snapshot;

impl Fields for Snapshot {
    fn read<'de, A: MapAccess<'de>>(key: &str, map: &mut A) -> Result<Option<Value>, A::Error> {
        match key {
            "summary" => Ok(Some(map.next_value::<Option<Object<Summary>>>()?.map_or(Value::Null, |s| Value::Object(s.map)))),
            _ => map.next_value().map(Some),
        }
    }
}

struct Summary;

impl Fields for Summary {
    fn read<'de, A: MapAccess<'de>>(key: &str, map: &mut A) -> Result<Option<Value>, A::Error> {
        match key {
            "operation" | ATTEMPT_KEY | INSTANCE_KEY => map.next_value().map(Some),
            _ if ENGINE_KEYS.contains(&key) => map.next_value().map(Some),
            _ => skip(map),
        }
    }
}

fn skip<'de, A: MapAccess<'de>>(map: &mut A) -> Result<Option<Value>, A::Error> {
    map.next_value::<IgnoredAny>().map(|_| None)
}

impl<'de, F: Fields> Deserialize<'de> for Object<F> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        d.deserialize_map(ObjectVisitor(PhantomData))
    }
}

struct ObjectVisitor<F>(PhantomData<F>);

impl<'de, F: Fields> Visitor<'de> for ObjectVisitor<F> {
    type Value = Object<F>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut input: A) -> Result<Object<F>, A::Error> {
        let mut map = Map::new();
        while let Some(key) = input.next_key::<String>()? {
            if let Some(value) = F::read(&key, &mut input)? {
                map.insert(key, value);
            }
        }
        Ok(Object { map, fields: PhantomData })
    }
}
