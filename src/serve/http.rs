//! Over HTTP: `/metrics`, `/healthz` and `/readyz`, and behind the token the HTTP door
//! and what is asked and told in JSON.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use axum::{Json, Router};
use metrics_exporter_prometheus::PrometheusHandle;

use super::api;
use super::backend::{Backend, Health};
use super::guard::{self, Guard};
use super::hold;
use crate::observe;

#[derive(Clone)]
struct Shared {
    backend: Arc<dyn Backend>,
    metrics: PrometheusHandle,
}

pub(super) fn router(backend: Arc<dyn Backend>, metrics: PrometheusHandle, guard: Guard, max_bytes: usize) -> Router {
    let door = backend.entrance().map(|entrance| observe::http::router(entrance, max_bytes));
    let door = door
        .unwrap_or_default()
        .merge(hold::router(backend.clone()))
        .merge(api::router(Arc::clone(&backend), max_bytes))
        .layer(axum::middleware::from_fn_with_state(guard, guard::pass));
    Router::new()
        .route("/metrics", get(render))
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .with_state(Shared { backend, metrics })
        .merge(door)
}

async fn render(State(shared): State<Shared>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], shared.metrics.render())
}

/// The process runs: 200, whatever the catalogs do, since a restart would not
/// mend them. What is wrong stands in the body.
async fn healthz(State(shared): State<Shared>) -> Json<Health> {
    Json(shared.backend.health())
}

/// Every part is up, or 503.
async fn readyz(State(shared): State<Shared>) -> (StatusCode, Json<Health>) {
    let health = shared.backend.health();
    let status = if health.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(health))
}
