//! Trino's `QueryCompletedEvent`, as its HTTP and Kafka listeners send it: names
//! the table that a query wrote to, and no snapshot.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::json::{files_added, levels, read};
use super::{Decoded, Draft};
use crate::model::event::Certainty;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Completed {
    metadata: Metadata,
    io_metadata: Io,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    query_state: String,
}

#[derive(Deserialize)]
struct Io {
    output: Option<Output>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Output {
    catalog_name: String,
    schema: String,
    table: String,
    connector_output_metadata: Option<String>,
}

pub(super) fn decode(value: &[u8]) -> Decoded {
    let event: Completed = read(value)?;
    let Some(output) = event.io_metadata.output.filter(|_| event.metadata.query_state == "FINISHED") else { return Ok(Vec::new()) };
    // the snapshot's summary, unless it was too long and cut
    let summary: BTreeMap<String, String> =
        output.connector_output_metadata.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
    let draft = Draft::foreign(Some(output.catalog_name), levels(&output.schema), output.table, Certainty::Hint);
    Ok(vec![Draft { files_added: files_added(&summary), ..draft }])
}
