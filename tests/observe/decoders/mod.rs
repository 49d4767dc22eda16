//! Decoders, with what other systems really sent.

mod catalogs;
mod connect;
mod hostile;
mod mutants;
mod others;

use afterwrite::model::event::Certainty;
use afterwrite::model::wire::Wire;
use afterwrite::observe::decode::{Draft, Foreign, Record, Where, decode};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

pub fn recording(name: &str) -> Vec<u8> {
    std::fs::read(crate::fixture::root().join("tests/observe/vectors").join(name)).unwrap()
}

pub fn lines(name: &str) -> Vec<Value> {
    String::from_utf8(recording(name)).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The values of a recorded topic: partition, offset, bytes.
pub fn records(name: &str) -> Vec<(i64, i64, Vec<u8>)> {
    let record = |line: Value| {
        let value = STANDARD.decode(line["value_b64"].as_str().unwrap()).unwrap();
        (line["partition"].as_i64().unwrap(), line["offset"].as_i64().unwrap(), value)
    };
    lines(name).into_iter().map(record).collect()
}

pub fn read(wire: Wire, value: &[u8]) -> Vec<Draft> {
    decode(wire, &Record::of(value)).unwrap()
}

pub fn error(wire: Wire, value: &[u8]) -> String {
    decode(wire, &Record::of(value)).unwrap_err().to_string()
}

pub fn foreign(catalog: Option<&str>, namespace: &[&str], table: &str) -> Foreign {
    Foreign { catalog: catalog.map(Into::into), namespace: namespace.iter().map(|&n| n.into()).collect(), table: table.into() }
}

pub fn draft(table: Where, certainty: Certainty) -> Draft {
    Draft { table, uuid: None, reference: None, snapshots: vec![], certainty, files_added: 0 }
}
