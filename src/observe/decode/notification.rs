//! Notifications about a table's new metadata, as Snowflake sends them to a
//! Polaris catalog: `POST …/namespaces/{ns}/tables/{t}/notifications`.
//!
//! The metadata location that they hold is not read: the table is looked up in
//! its catalog.

use serde::Deserialize;
use uuid::Uuid;

use super::json::read;
use super::{Draft, Error, Foreign, Where, checked};
use crate::model::event::Certainty;
use crate::model::wire::Wire;

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Notification {
    notification_type: String,
    payload: Option<Payload>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Payload {
    table_uuid: Option<Uuid>,
}

/// Reads a notification posted to a table's address.
///
/// # Errors
/// When the body is none.
pub fn decode(table: &Foreign, body: &[u8]) -> Result<Vec<Draft>, Error> {
    let drafts = read::<Notification>(body).map(|notification| {
        let tells = matches!(notification.notification_type.as_str(), "CREATE" | "UPDATE" | "DROP");
        let uuid = notification.payload.and_then(|p| p.table_uuid);
        let draft = Draft { uuid, ..Draft::of(Where::Foreign(table.clone()), Certainty::CatalogConfirmed) };
        tells.then_some(draft).into_iter().collect()
    });
    checked(Wire::Polaris, drafts)
}
