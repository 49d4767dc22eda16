//! New tables, exactly as their metadata says: ids and uuid are kept, which the
//! protocol's own creation would give anew.

use bytes::Bytes;
use hyper::Method;
use hyper::header::HeaderMap;
use iceberg::spec::TableMetadata;
use serde_json::{Value, json};

use super::LARGEST_METADATA;
use super::answer;
use super::client::Client;
use super::config::Config;
use crate::lake::{Error, Result};
use crate::model::ident::TableName;

/// Creates a table, and its namespace where it is missing.
///
/// # Errors
/// [`Error::Setup`] when there is such a table, [`Error::Unreachable`] when it is
/// not known whether it was created.
pub async fn create(client: &Client, config: &Config, name: &TableName, metadata: &TableMetadata) -> Result<()> {
    for depth in 1..=name.namespace.len() {
        let body = json!({ "namespace": name.namespace.get(..depth), "properties": {} });
        once(client, &config.paths.new_namespace(), &body, true).await?;
    }
    let body = json!({ "requirements": [{ "type": "assert-create" }], "updates": updates(client, metadata)? });
    once(client, &config.paths.table(name), &body, false).await.map_err(|error| match error {
        Error::Setup(why) if why.contains("409 ") => Error::Setup(format!("create {name}: the table exists ({why})")),
        error => error,
    })
}

/// Sends once. Something that is there already is fine for a namespace.
async fn once(client: &Client, address: &str, body: &Value, or_exists: bool) -> Result<()> {
    let body = serde_json::to_vec(body).map_err(|e| client.setup(address, e.to_string()))?;
    let request = client.request(Method::POST, address, Bytes::from(body), &HeaderMap::new()).await?;
    let connection = client.http.connect(request.uri()).await.map_err(|why| client.unreachable(address, why))?;
    let answered = connection.send(request, LARGEST_METADATA).await.map_err(|why| client.unreachable(address, why))?;
    match answered.status {
        200..=299 => Ok(()),
        409 if or_exists => Ok(()),
        status @ 400..=499 => Err(client.setup(address, format!("{status} {}", answer::explain(&answered.body)))),
        status => Err(client.unreachable(address, format!("{status} {}", answer::explain(&answered.body)))),
    }
}

/// The updates that make an empty table this one.
fn updates(client: &Client, metadata: &TableMetadata) -> Result<Vec<Value>> {
    let whole = serde_json::to_value(metadata).map_err(|e| client.setup("create", e.to_string()))?;
    if metadata.snapshots().next().is_some() {
        return Err(client.setup("create", "only tables without snapshots are created".into()));
    }
    let field = |key: &str| whole.get(key).cloned().unwrap_or_default();
    let each = |key: &str| field(key).as_array().cloned().unwrap_or_default();
    let mut updates = vec![
        json!({ "action": "assign-uuid", "uuid": field("table-uuid") }),
        json!({ "action": "upgrade-format-version", "format-version": field("format-version") }),
    ];
    updates.extend(
        each("schemas").into_iter().map(|s| json!({ "action": "add-schema", "schema": s, "last-column-id": field("last-column-id") })),
    );
    updates.push(json!({ "action": "set-current-schema", "schema-id": field("current-schema-id") }));
    updates.extend(each("partition-specs").into_iter().map(|s| json!({ "action": "add-spec", "spec": s })));
    updates.push(json!({ "action": "set-default-spec", "spec-id": field("default-spec-id") }));
    updates.extend(each("sort-orders").into_iter().map(|s| json!({ "action": "add-sort-order", "sort-order": s })));
    updates.push(json!({ "action": "set-default-sort-order", "sort-order-id": field("default-sort-order-id") }));
    updates.push(json!({ "action": "set-location", "location": metadata.location() }));
    updates.push(json!({ "action": "set-properties", "updates": metadata.properties() }));
    Ok(updates)
}
