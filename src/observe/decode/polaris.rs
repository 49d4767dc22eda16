//! Polaris' Kafka event listener: flat JSON that says that a table changed, and
//! nothing of what changed.

use serde::Deserialize;

use super::json::read;
use super::{Decoded, Draft};
use crate::model::event::Certainty;

#[derive(Deserialize)]
struct Event {
    event_type: String,
    catalog_name: Option<String>,
    namespace: Option<Vec<String>>,
    table_name: Option<String>,
    source: Option<Vec<String>>,
    destination: Option<Vec<String>>,
}

pub(super) fn decode(value: &[u8]) -> Decoded {
    let event: Event = read(value)?;
    let catalog = event.catalog_name;
    match event.event_type.as_str() {
        "AFTER_UPDATE_TABLE" | "AFTER_CREATE_TABLE" | "AFTER_DROP_TABLE" | "AFTER_REGISTER_TABLE" => {
            let (Some(namespace), Some(table)) = (event.namespace, event.table_name) else {
                return Err("namespace, table_name: one of them is missing".into());
            };
            Ok(vec![Draft::foreign(catalog, namespace, table, Certainty::CatalogConfirmed)])
        }
        "AFTER_RENAME_TABLE" => {
            let names = [("source", event.source), ("destination", event.destination)];
            names.into_iter().map(|(field, parts)| renamed(catalog.clone(), field, parts)).collect()
        }
        // what comes before a change, and a transaction whose tables are told one by one
        _ => Ok(Vec::new()),
    }
}

fn renamed(catalog: Option<String>, field: &str, parts: Option<Vec<String>>) -> Result<Draft, String> {
    let mut namespace = parts.unwrap_or_default();
    let table = namespace.pop().ok_or_else(|| format!("{field}: is missing"))?;
    Ok(Draft::foreign(catalog, namespace, table, Certainty::CatalogConfirmed))
}
