//! What is asked and told over HTTP, in JSON: `why`, statistics and capacity, as over
//! gRPC.

use std::sync::Arc;

use axum::extract::rejection::JsonRejection;
use axum::extract::{DefaultBodyLimit, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::Deserialize;
use serde_json::json;

use super::backend::{Backend, Error};
use super::hook::check_catalog;
use super::told::Decision;
use super::{map, statistics};
use crate::model::ident::MAIN;
use crate::observe::grpc::table_name;

pub(super) fn router(backend: Arc<dyn Backend>, max_bytes: usize) -> Router {
    Router::new()
        .route("/v1/why", get(why))
        .route("/v1/statistics", post(statistics))
        .route("/v1/capacity", post(capacity))
        .layer(DefaultBodyLimit::max(max_bytes))
        .with_state(backend)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    table: String,
    #[serde(default)]
    partition: String,
    #[serde(default, rename = "ref", alias = "branch")]
    reference: String,
}

type Backed = State<Arc<dyn Backend>>;

async fn why(State(backend): Backed, asked: Result<Query<Asked>, axum::extract::rejection::QueryRejection>) -> Response {
    let Query(asked) = match asked {
        Ok(asked) => asked,
        Err(error) => return refused(&Error::Invalid(format!("{error}; write /v1/why?table=catalog.namespace.table&partition=…&ref=…"))),
    };
    let found = async {
        let name = table_name(&asked.table, None).map_err(|e| Error::Invalid(e.to_string()))?;
        check_catalog(&backend.catalogs(), &name.catalog).map_err(Error::NotFound)?;
        let branch = Some(asked.reference.as_str()).filter(|branch| !branch.is_empty()).unwrap_or(MAIN);
        backend.why_on(&name, branch, Some(asked.partition.as_str()).filter(|p| !p.is_empty())).await
    };
    match found.await {
        Ok(found) => {
            let made: Vec<_> = found.iter().map(map::decision).collect();
            Json(json!({ "decisions": made.iter().map(Decision::of).collect::<Vec<_>>() })).into_response()
        }
        Err(error) => refused(&error),
    }
}

async fn statistics(State(backend): Backed, told: Result<Json<statistics::Statement>, JsonRejection>) -> Response {
    let taken = match told {
        Ok(Json(told)) => statistics::take(backend.as_ref(), told).await,
        Err(error) => Err(Error::Invalid(error.body_text())),
    };
    match taken {
        Ok(taken) => Json(json!({ "taken": taken.taken, "unknown": taken.unknown })).into_response(),
        Err(error) => refused(&error),
    }
}

async fn capacity(State(backend): Backed, told: Result<Json<statistics::Free>, JsonRejection>) -> Response {
    let taken = match told {
        Ok(Json(told)) => statistics::take_free(backend.as_ref(), &told),
        Err(error) => Err(Error::Invalid(error.body_text())),
    };
    match taken {
        Ok(gb_hours_per_hour) => Json(json!({ "gb_hours_per_hour": gb_hours_per_hour })).into_response(),
        Err(error) => refused(&error),
    }
}

fn refused(error: &Error) -> Response {
    let status = match error {
        Error::NotFound(_) => StatusCode::NOT_FOUND,
        Error::Refused(_) | Error::Unasked(_) => StatusCode::CONFLICT,
        Error::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
        Error::Invalid(_) => StatusCode::BAD_REQUEST,
        Error::Internal(_) => StatusCode::INTERNAL_SERVER_ERROR,
    };
    let said = match error {
        Error::Refused(refused) => format!("refused ({}): {}", refused.refusal, refused.told()),
        other => other.to_string(),
    };
    (status, Json(json!({ "error": said }))).into_response()
}
