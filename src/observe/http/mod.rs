//! The HTTP door: our own event in JSON, and others' callbacks at paths that they
//! can be pointed at.
//!
//! | path | what is posted there |
//! |---|---|
//! | `/v1/commits` | our event, or a list of them |
//! | `/iceberg/…/namespaces/{ns}/tables/{t}/metrics` | Iceberg metrics reports |
//! | `/iceberg/…/namespaces/{ns}/tables/{t}/notifications` | Polaris and Snowflake notifications |
//! | `/api/v1/lineage` | OpenLineage run events |
//! | `/hudi/callback` | Hudi's commit callback |
//! | `/minio/webhook`, `/s3/events` | object notifications |
//! | `/polaris/events`, `/trino/events`, `/cloudevents` | their events |
//!
//! `?catalog=NAME` says which configured catalog a foreign event speaks of. An
//! event about nothing that is looked after is answered as a success, so that its
//! sender does not send it again; one that cannot be read with 400; and 503 says
//! that too many tables wait. Nothing that a body names is ever fetched.

mod body;
mod path;

use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use serde_json::json;

use super::decode::{self, Draft, Record};
use super::entrance::{Entrance, Unheard};
use super::ledger::Source;
use crate::model::event::{Door, Heard};
use crate::model::wire::Wire;
use path::{Kind, TablePath, catalog_of};

/// What is said when the inbox is full.
const FULL: &str = "too many tables wait for a look; try later, or leave it to polling";

/// A foreign path, its format, and the status that its senders expect.
const FOREIGN: [(&str, Wire, StatusCode); 7] = [
    ("/api/v1/lineage", Wire::OpenLineage, StatusCode::CREATED),
    ("/hudi/callback", Wire::Hudi, StatusCode::OK),
    ("/minio/webhook", Wire::S3, StatusCode::OK),
    ("/s3/events", Wire::S3, StatusCode::OK),
    ("/polaris/events", Wire::Polaris, StatusCode::OK),
    ("/trino/events", Wire::Trino, StatusCode::OK),
    ("/cloudevents", Wire::CloudEvents, StatusCode::OK),
];

/// The routes of the door. Bodies beyond `max_bytes` are refused.
pub fn router(entrance: Arc<Entrance>, max_bytes: usize) -> Router {
    let door = HttpDoor { entrance, max_bytes };
    let mut router = Router::new().route("/v1/commits", post(commits)).route("/iceberg/{*rest}", post(of_a_table));
    for (at, wire, status) in FOREIGN {
        let handle = move |State(door): State<HttpDoor>, uri: Uri, headers: HeaderMap, body: Result<Bytes, BytesRejection>| async move {
            door.foreign(Foreign { at, wire, status }, &uri, &headers, body)
        };
        router = router.route(at, post(handle));
    }
    router.layer(DefaultBodyLimit::max(max_bytes)).with_state(door)
}

#[derive(Clone)]
struct HttpDoor {
    entrance: Arc<Entrance>,
    max_bytes: usize,
}

/// Where and how a foreign event is taken.
struct Foreign {
    at: &'static str,
    wire: Wire,
    status: StatusCode,
}

/// What became of a body's events.
#[derive(Default)]
struct Tally {
    accepted: u64,
    duplicate: u64,
    full: u64,
    dropped: Vec<String>,
}

async fn commits(State(door): State<HttpDoor>, headers: HeaderMap, body: Result<Bytes, BytesRejection>) -> Response {
    let source = door.source("/v1/commits");
    let body = match door.open(&source, &headers, body) {
        Ok(body) => body,
        Err(refused) => return *refused,
    };
    let events = match decode::native_events(&body, Door::Http, door.entrance.now_ms()) {
        Ok(events) => events,
        Err(why) => return door.park(&source, format!("the body is no event: {why}")),
    };
    let is_list = body.iter().find(|b| !b.is_ascii_whitespace()) == Some(&b'[');
    let mut answers: Vec<(StatusCode, serde_json::Value)> = events.into_iter().map(|told| door.told(&source, told)).collect();
    match answers.pop() {
        Some((status, answer)) if !is_list => (status, axum::Json(answer)).into_response(),
        last => {
            answers.extend(last);
            axum::Json(answers.into_iter().map(|(_, answer)| answer).collect::<Vec<_>>()).into_response()
        }
    }
}

async fn of_a_table(State(door): State<HttpDoor>, uri: Uri, headers: HeaderMap, body: Result<Bytes, BytesRejection>) -> Response {
    let Some(path) = TablePath::read(uri.path()) else {
        let why = "the path is not /iceberg/…/namespaces/{namespace}/tables/{table}/metrics or …/notifications";
        return (StatusCode::NOT_FOUND, axum::Json(json!({ "error": why }))).into_response();
    };
    let (name, status) = match path.kind {
        Kind::Metrics => ("/iceberg/metrics", StatusCode::NO_CONTENT),
        Kind::Notifications => ("/iceberg/notifications", StatusCode::OK),
    };
    let source = door.source(name);
    let body = match door.open(&source, &headers, body) {
        Ok(body) => body,
        Err(refused) => return *refused,
    };
    let read = |table| match path.kind {
        Kind::Metrics => decode::report_at(table, &body),
        Kind::Notifications => decode::notification(table, &body),
    };
    let drafts: Result<Vec<Vec<Draft>>, decode::Error> = path.tables.iter().map(read).collect();
    match drafts.map(|of_each| of_each.into_iter().flatten().collect::<Vec<_>>()) {
        Ok(_) if path.tables.is_empty() => door.park(&source, "the address names no table: its names are not UTF-8".into()),
        Ok(drafts) => {
            let catalog = catalog_of(&uri).or(path.catalog);
            if path.kind == Kind::Metrics && drafts.is_empty() {
                door.entrance.scanned(path.tables, catalog.as_deref(), &body);
            }
            door.answer(&source, drafts, catalog.as_deref(), status)
        }
        Err(error) => door.park(&source, error.to_string()),
    }
}

impl HttpDoor {
    fn source(&self, name: &str) -> Arc<Source> {
        self.entrance.ledger().source(Door::Http, name)
    }

    fn foreign(&self, of: Foreign, uri: &Uri, headers: &HeaderMap, body: Result<Bytes, BytesRejection>) -> Response {
        let source = self.source(of.at);
        let body = match self.open(&source, headers, body) {
            Ok(body) => body,
            Err(refused) => return *refused,
        };
        let headers: Vec<(&str, &[u8])> = headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
        match decode::decode(of.wire, &Record { value: &body, headers: &headers }) {
            Ok(drafts) => self.answer(&source, drafts, catalog_of(uri).as_deref(), of.status),
            Err(error) => self.park(&source, error.to_string()),
        }
    }

    /// The body, unpacked.
    fn open(&self, source: &Arc<Source>, headers: &HeaderMap, body: Result<Bytes, BytesRejection>) -> Result<Bytes, Box<Response>> {
        source.received(self.entrance.now_ms());
        let body = match body {
            Ok(body) => body,
            Err(rejection) => {
                let why = format!("the body was not taken: {}", rejection.body_text());
                source.parked(self.entrance.example(String::new(), why.clone()));
                return Err(Box::new((rejection.status(), axum::Json(json!({ "error": why }))).into_response()));
            }
        };
        body::plain(headers, body, self.max_bytes).map_err(|why| Box::new(self.park(source, why)))
    }

    fn park(&self, source: &Arc<Source>, why: String) -> Response {
        crate::telemetry::event_rejected(Door::Http);
        source.parked(self.entrance.example(String::new(), why.clone()));
        (StatusCode::BAD_REQUEST, axum::Json(json!({ "error": why }))).into_response()
    }

    /// As [`HttpDoor::native`], naming the fields that were passed over, if any.
    fn told(&self, source: &Arc<Source>, told: decode::Told) -> (StatusCode, serde_json::Value) {
        let (status, mut answer) = self.native(source, told.event.map(Draft::from).map_err(|e| e.to_string()));
        if let (false, Some(answer)) = (told.ignored.is_empty(), answer.as_object_mut()) {
            answer.insert("ignored".to_owned(), json!(told.ignored));
        }
        (status, answer)
    }

    /// Hears one of our own events, and answers as the gRPC hook does.
    fn native(&self, source: &Arc<Source>, draft: Result<Draft, String>) -> (StatusCode, serde_json::Value) {
        let rejected = |status, why: &str| (status, json!({ "status": "rejected", "reason": why }));
        let draft = match draft {
            Ok(draft) => draft,
            Err(why) => {
                crate::telemetry::event_rejected(Door::Http);
                source.parked(self.entrance.example(String::new(), why.clone()));
                return rejected(StatusCode::BAD_REQUEST, &why);
            }
        };
        let event = match self.entrance.resolve(draft, Door::Http, None) {
            Ok(events) => events.into_iter().next(),
            Err(unheard) => {
                source.dropped(self.entrance.example(String::new(), unheard.to_string()));
                return match unheard {
                    Unheard::Branch(why) => (StatusCode::OK, json!({ "status": "ignored", "reason": why })),
                    Unheard::Table(why) => rejected(StatusCode::NOT_FOUND, &why),
                };
            }
        };
        let Some(event) = event else { return rejected(StatusCode::NOT_FOUND, "it names no table") };
        let note = self.entrance.note(&event.table);
        match self.entrance.hear(source, event, None) {
            Heard::Accepted => (StatusCode::OK, json!({ "status": "accepted", "reason": note })),
            Heard::Duplicate => (StatusCode::OK, json!({ "status": "duplicate", "reason": note })),
            Heard::Full => (StatusCode::SERVICE_UNAVAILABLE, json!({ "status": "retry-later", "reason": FULL })),
        }
    }

    fn answer(&self, source: &Arc<Source>, drafts: Vec<Draft>, catalog: Option<&str>, status: StatusCode) -> Response {
        if drafts.is_empty() {
            source.ignored();
        }
        let mut tally = Tally::default();
        for draft in drafts {
            self.hear(source, draft, catalog, &mut tally);
        }
        if tally.full > 0 {
            let said = axum::Json(json!({ "error": FULL }));
            return (StatusCode::SERVICE_UNAVAILABLE, [(header::RETRY_AFTER, "1")], said).into_response();
        }
        if status == StatusCode::NO_CONTENT {
            return status.into_response();
        }
        let Tally { accepted, duplicate, dropped, .. } = tally;
        (status, axum::Json(json!({ "accepted": accepted, "duplicate": duplicate, "dropped": dropped }))).into_response()
    }

    fn hear(&self, source: &Arc<Source>, draft: Draft, catalog: Option<&str>, tally: &mut Tally) {
        match self.entrance.resolve(draft, Door::Http, catalog) {
            Ok(events) => {
                for event in events {
                    match self.entrance.hear(source, event, None) {
                        Heard::Accepted => tally.accepted += 1,
                        Heard::Duplicate => tally.duplicate += 1,
                        Heard::Full => tally.full += 1,
                    }
                }
            }
            Err(unheard) => {
                let why = unheard.to_string();
                source.dropped(self.entrance.example(String::new(), why.clone()));
                // a sender is told a few, and the rest is counted
                if tally.dropped.len() < 16 {
                    tally.dropped.push(why);
                }
            }
        }
    }
}
