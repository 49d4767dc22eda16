//! Takes a request, sends it on, and brings back the answer.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, Request, Response, StatusCode, Version};

use super::clients::ClientId;
use super::commits;
use super::config_answer::{self, Note};
use super::gate::Gate;
use super::headers::{Asked, strip, to_upstream};
use super::loaded::gunzip;
use super::others;
use super::route::{Route, classify};
use super::tap::{Body, Error, Kept, broken, full, keep};
use super::upstream::Fault;
use crate::telemetry;

/// Seconds after which a client may try again when the catalog was not reached.
const RETRY_AFTER: u32 = 1;

/// Answers one request. An error means that the client's connection is closed
/// without an answer, as upstream closed ours.
///
/// # Errors
/// When upstream gave no answer and nothing better can be said.
pub async fn answer(gate: Arc<Gate>, asked: Asked, request: Request<Incoming>) -> Result<Response<Body>, Error> {
    let (mut parts, body) = request.into_parts();
    let Some(target) = parts.uri.path_and_query().cloned() else {
        return Ok(refusal(StatusCode::METHOD_NOT_ALLOWED, "BadRequestException", "this is a reverse proxy: it opens no tunnels"));
    };
    let origin = asked.origin(&parts.headers);
    let client = ClientId::of(asked.peer.ip(), &parts.headers);
    warn_of_signature(&gate, &parts.headers);
    to_upstream(&mut parts.headers, &asked, gate.upstream.base());
    parts.uri = gate.upstream.base().target(&target)?;
    parts.version = Version::HTTP_11;
    let route = classify(parts.method.as_str(), target.path());
    let name = route.name();
    let answer = match route {
        Route::Config => config(&gate, parts, body, &origin).await,
        Route::Commit(_) | Route::Transaction { .. } => commits::answer(&gate, client, parts, body, route).await,
        Route::Token | Route::Other => stream(&gate, parts, body).await,
        _ => others::answer(&gate, client, parts, body, route).await,
    };
    telemetry::proxy_answered(name, answer.as_ref().ok().map(|a| a.status().as_u16()));
    answer
}

/// Passes a request through without a look at it.
pub async fn stream(gate: &Arc<Gate>, parts: Parts, body: Incoming) -> Result<Response<Body>, Error> {
    let is_reading = matches!(parts.method, Method::GET | Method::HEAD);
    let request = Request::from_parts(parts, body.map_err(Into::into).boxed_unsync());
    let work = pass(Arc::clone(gate), request);
    if is_reading { work.await } else { gate.detached(work).await }
}

/// Sends a request on, and brings back whatever comes.
pub async fn pass(gate: Arc<Gate>, request: Request<Body>) -> Result<Response<Body>, Error> {
    match gate.upstream.send(request).await {
        Ok(response) => {
            let (head, body) = response.into_parts();
            Ok(rebuilt(head, body.map_err(Into::into).boxed_unsync()))
        }
        Err(Fault::NotReached(error)) => Ok(busy(&error)),
        Err(Fault::Lost(error)) => Err(error),
    }
}

/// Upstream's answer, for the client.
pub fn rebuilt(head: hyper::http::response::Parts, body: Body) -> Response<Body> {
    let mut head = head;
    strip(&mut head.headers);
    head.version = Version::HTTP_11;
    Response::from_parts(head, body)
}

/// Not one byte reached the catalog: a client may try again without harm.
pub fn busy(error: &Error) -> Response<Body> {
    tracing::warn!(%error, "the catalog behind the proxy was not reached");
    let mut response = refusal(
        StatusCode::TOO_MANY_REQUESTS,
        "TooManyRequestsException",
        "the proxy did not reach the catalog; nothing was sent: try again",
    );
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(RETRY_AFTER));
    response
}

/// An answer of our own, in the protocol's form.
pub fn refusal(status: StatusCode, kind: &str, message: &str) -> Response<Body> {
    let body = serde_json::json!({ "error": { "message": message, "type": kind, "code": status.as_u16() } });
    json(status, body.to_string().into())
}

/// A JSON answer.
pub fn json(status: StatusCode, body: Bytes) -> Response<Body> {
    let mut response = Response::new(full(body));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// The config answer, with the catalog's `uri` made the proxy's.
async fn config(gate: &Arc<Gate>, mut parts: Parts, body: Incoming, origin: &str) -> Result<Response<Body>, Error> {
    parts.headers.remove(header::ACCEPT_ENCODING); // the answer is read here, and small
    let response = stream(gate, parts, body).await?;
    if response.status() != StatusCode::OK {
        return Ok(response);
    }
    let (mut head, body) = response.into_parts();
    let (bytes, _held) = match keep(body, gate.limits.note, &gate.room).await {
        Kept::Whole(bytes, held) => (bytes, held),
        Kept::Large(body) => {
            telemetry::proxy_untapped("large config");
            return Ok(Response::from_parts(head, body));
        }
        Kept::Broken(before, error) => return Ok(Response::from_parts(head, broken(before, error))),
    };
    let Some(text) = plain(&head.headers, &bytes, gate.limits.note) else {
        telemetry::proxy_untapped("unreadable config");
        return Ok(Response::from_parts(head, full(bytes)));
    };
    let read = config_answer::rewrite(&text, gate.upstream.base(), origin);
    gate.separator.learn(read.separator.as_deref());
    if let Some(promised) = read.knows_keys {
        gate.keys.learn(promised);
    }
    read.notes.iter().for_each(|note| say(gate, note));
    match read.body {
        None => Ok(Response::from_parts(head, full(bytes))),
        Some(body) => {
            head.headers.remove(header::CONTENT_LENGTH);
            head.headers.remove(header::CONTENT_ENCODING);
            Ok(Response::from_parts(head, full(body.into())))
        }
    }
}

fn say(gate: &Gate, note: &Note) {
    if !gate.first_time(&format!("{note:?}")) {
        return;
    }
    let catalog = &gate.catalog;
    match note {
        Note::Rewritten { key, from, to } => {
            tracing::info!(%catalog, key, from, to, "the catalog's config answer sends clients around the proxy: rewritten");
        }
        Note::Elsewhere { key, uri } => tracing::warn!(
            %catalog, key, uri,
            "the catalog's config answer sends clients to a place that is not behind this proxy: those that obey are only heard by the poller"
        ),
    }
}

fn warn_of_signature(gate: &Gate, headers: &HeaderMap) {
    let signed = headers.get(header::AUTHORIZATION).is_some_and(|a| a.as_bytes().starts_with(b"AWS4-"));
    if signed && gate.first_time("signature") {
        tracing::warn!(catalog = %gate.catalog, "a client signs its requests by SigV4: the signature covers the host, so the catalog will refuse them through a proxy");
    }
}

/// A body as it was before it was encoded; `None` when that cannot be told.
pub fn plain(headers: &HeaderMap, body: &Bytes, limit: usize) -> Option<Bytes> {
    match headers.get(header::CONTENT_ENCODING).map(HeaderValue::as_bytes) {
        None | Some(b"identity" | b"") => Some(body.clone()),
        Some(b"gzip" | b"x-gzip") => gunzip(body, limit).map(Into::into),
        Some(_) => None,
    }
}
