//! Requests that tell something and need no healing: create, register, rename,
//! drop, load, reports and plans.

use std::sync::Arc;

use bytes::Bytes;
use hyper::Request;
use hyper::body::Incoming;
use hyper::http::request::Parts;
use hyper::{Response, StatusCode};

use super::clients::ClientId;
use super::events::{self, Report};
use super::forward::{pass, plain, stream};
use super::gate::Gate;
use super::ledger::Scan;
use super::route::Route;
use super::tap::{Body, Error, Kept, full, keep};
use crate::model::event::Certainty;
use crate::model::ident::TableName;
use crate::telemetry;

/// What a request tells once it is answered.
enum Told {
    Nothing,
    Changed(Vec<TableName>),
    Scanned(Vec<TableName>, Scan),
    Reported(Vec<TableName>, Option<i64>, u64),
}

/// Passes the request through, and hears what it tells.
pub async fn answer(gate: &Arc<Gate>, client: ClientId, parts: Parts, body: Incoming, route: Route<'_>) -> Result<Response<Body>, Error> {
    let now_ms = gate.clock.now_ms();
    if let Route::Load(at) = route {
        let tables = || gate.separator.tables(&gate.catalog, at.namespace, at.table);
        gate.guarded(|| tables().iter().for_each(|table| gate.heeds.loaded(table, client, now_ms)));
        return stream(gate, parts, body).await;
    }
    let (bytes, held) = match keep(body, gate.limits.note, &gate.room).await {
        Kept::Whole(bytes, held) => (bytes, held),
        Kept::Large(body) => {
            gate.untapped(parts.uri.path(), "large request");
            return gate.detached(pass(Arc::clone(gate), Request::from_parts(parts, body))).await;
        }
        Kept::Broken(_, error) => return Err(error),
    };
    let told = plain(&parts.headers, &bytes, gate.limits.note).and_then(|text| gate.guarded(|| tell(gate, &text, route)));
    let mine = Arc::clone(gate);
    let work = async move {
        let response = pass(Arc::clone(&mine), Request::from_parts(parts, full(bytes))).await;
        drop(held);
        let status = response.as_ref().ok().map(Response::status);
        mine.guarded(|| heard(&mine, told.unwrap_or(Told::Nothing), status));
        response
    };
    gate.detached(work).await
}

fn tell(gate: &Gate, body: &Bytes, route: Route<'_>) -> Told {
    let tables = |namespace, table| gate.separator.tables(&gate.catalog, namespace, table);
    match route {
        Route::Drop(at) => Told::Changed(tables(at.namespace, at.table)),
        Route::Plan(at) => Told::Scanned(tables(at.namespace, at.table), Scan::default()),
        Route::Report(at) => match events::report(body) {
            Some(Report::Scan(scan)) => Told::Scanned(tables(at.namespace, at.table), scan),
            Some(Report::Commit { snapshot, files }) => Told::Reported(tables(at.namespace, at.table), snapshot, files),
            None => Told::Nothing,
        },
        Route::Create { namespace } | Route::Register { namespace } => match serde_json::from_slice::<events::Create>(body) {
            Ok(create) if !create.stage_create => Told::Changed(gate.separator.tables_below(&gate.catalog, namespace, &create.name)),
            _ => Told::Nothing,
        },
        Route::Rename => match serde_json::from_slice::<events::Rename>(body) {
            Ok(rename) => Told::Changed([rename.source, rename.destination].into_iter().filter_map(|i| i.named(&gate.catalog)).collect()),
            Err(_) => Told::Nothing,
        },
        _ => Told::Nothing,
    }
}

/// What was told is heard once it was answered: a report whatever the answer, a
/// change unless it was refused.
fn heard(gate: &Gate, told: Told, status: Option<StatusCode>) {
    let now_ms = gate.clock.now_ms();
    let refused = status.is_some_and(|s| s.is_client_error());
    let certainty = if status.is_some_and(|s| s.is_success()) { Certainty::CatalogConfirmed } else { Certainty::Hint };
    match told {
        Told::Changed(tables) if !refused => gate.hear(events::changed(tables, certainty, now_ms)),
        Told::Reported(tables, snapshot, files) => gate.hear(events::reported(tables, snapshot, files, now_ms)),
        Told::Scanned(tables, scan) => {
            telemetry::proxy_scanned();
            for table in tables {
                gate.heeds.scanned(&table, scan, now_ms);
            }
        }
        Told::Changed(_) | Told::Nothing => {}
    }
}
