//! `hold` and `release`, by gRPC and over HTTP: whoever is at something of its own in a
//! table has it left alone for a while.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use serde::Deserialize;
use serde_json::json;

use super::backend::{Backend, Error};
use super::hook::check_catalog;
use crate::model::ident::TableName;
use crate::model::writers::Hold;

/// For whom a table is held that gives no name.
pub(super) const SOMEBODY: &str = "somebody";
/// Letters of a name that are kept.
const LETTERS: usize = 128;

/// Holds a table for a holder; gives back until when, in milliseconds since the epoch.
pub(super) async fn hold(backend: &dyn Backend, table: &TableName, holder: &str, time: Duration) -> Result<i64, Error> {
    check_catalog(&backend.catalogs(), &table.catalog).map_err(Error::NotFound)?;
    let time = i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
    if time <= 0 {
        return Err(Error::Invalid("a table is held for some time: say for how long".into()));
    }
    let by = Some(holder.trim()).filter(|holder| !holder.is_empty()).unwrap_or(SOMEBODY).chars().take(LETTERS).collect();
    backend.hold(table, Hold { by, until_ms: backend.now_ms().saturating_add(time) }).await
}

/// Gives a table back, held by one holder or by any; how many held it.
pub(super) async fn release(backend: &dyn Backend, table: &TableName, holder: &str) -> Result<usize, Error> {
    check_catalog(&backend.catalogs(), &table.catalog).map_err(Error::NotFound)?;
    backend.release(table, Some(holder.trim()).filter(|holder| !holder.is_empty())).await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HoldBody {
    table: String,
    r#for: String,
    #[serde(default)]
    holder: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReleaseBody {
    table: String,
    #[serde(default)]
    holder: String,
}

/// `/v1/hold` and `/v1/release`.
pub(super) fn router(backend: Arc<dyn Backend>) -> Router {
    Router::new().route("/v1/hold", post(take)).route("/v1/release", post(give_back)).with_state(backend)
}

async fn take(State(backend): State<Arc<dyn Backend>>, body: Bytes) -> Response {
    let taken = async {
        let body: HoldBody = read(&body, r#"{"table": "lake.sales.orders", "for": "2h", "holder": "backfill"}"#)?;
        let time = humantime::parse_duration(body.r#for.trim());
        let time = time.map_err(|e| Error::Invalid(format!("for: `{}` is no duration: {e}; write for example 30m or 2h", body.r#for)))?;
        let until_ms = hold(backend.as_ref(), &named(&body.table)?, &body.holder, time).await?;
        Ok(json!({ "table": body.table, "until_ms": until_ms.to_string() }))
    };
    answer(taken.await)
}

async fn give_back(State(backend): State<Arc<dyn Backend>>, body: Bytes) -> Response {
    let released = async {
        let body: ReleaseBody = read(&body, r#"{"table": "lake.sales.orders", "holder": "backfill"}"#)?;
        let released = release(backend.as_ref(), &named(&body.table)?, &body.holder).await?;
        Ok(json!({ "table": body.table, "released": released }))
    };
    answer(released.await)
}

fn read<'a, T: Deserialize<'a>>(body: &'a [u8], example: &str) -> Result<T, Error> {
    serde_json::from_slice(body).map_err(|e| Error::Invalid(format!("the body cannot be read: {e}; write for example {example}")))
}

fn named(table: &str) -> Result<TableName, Error> {
    table.parse().map_err(|e| Error::Invalid(format!("table: {e}")))
}

fn answer(done: Result<serde_json::Value, Error>) -> Response {
    let error = match done {
        Ok(answer) => return Json(answer).into_response(),
        Err(error) => error,
    };
    let status = match &error {
        Error::NotFound(_) => StatusCode::NOT_FOUND,
        Error::Refused(_) | Error::Unasked(_) => StatusCode::CONFLICT,
        Error::Invalid(_) => StatusCode::BAD_REQUEST,
        Error::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
        Error::Internal(_) => StatusCode::INTERNAL_SERVER_ERROR,
    };
    (status, Json(json!({ "error": error.to_string() }))).into_response()
}
