//! Commits through the proxy: sent once, their outcome made certain before the
//! client hears of it.
//!
//! *Invariants checked:*
//! * the request is whole before its first byte is sent, and is sent once;
//! * an answer that leaves the outcome open is held back until the tables were
//!   asked ([`heal`]), for at most the deadline;
//! * after a byte was sent the client hears upstream's answer, success that was
//!   seen in the tables, or `502 CommitStateUnknownException`; nothing else;
//! * the work does not end with the client's connection.
//!
//! A crash loses the answer, as the crash of any proxy does; nothing is written here.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use hyper::body::Incoming;
use hyper::header::{self, HeaderMap};
use hyper::http::request::Parts;
use hyper::http::uri::PathAndQuery;
use hyper::{Method, Request, Response, StatusCode};

use super::clients::ClientId;
use super::commit::{self, Change};
use super::events;
use super::forward::{busy, json, pass, plain, rebuilt, refusal as refuse};
use super::gate::Gate;
use super::headers::{for_look, readable};
use super::heal::{self, Answer, Look, Stand, Verdict, Words};
use super::ledger::{End, Writing};
use super::loaded;
use super::refusal::{self, Refusal};
use super::route::Route;
use super::tap::{Body, Error, Held, Kept, broken, empty, full, keep};
use super::upstream::Fault;
use crate::model::event::Certainty;
use crate::model::ident::TableName;
use crate::telemetry::{self, Healed};

/// First pause between two looks, doubled up to the last, in milliseconds.
const PAUSES_MS: (i64, i64) = (100, 1_000);
/// Longest time for one look.
const LOOK: Duration = Duration::from_secs(10);

/// What a commit does to one table, and where that table can be asked for.
struct Target {
    change: Change,
    names: Vec<TableName>,
    paths: Vec<String>,
}

/// One commit under way.
struct Commit {
    gate: Arc<Gate>,
    client: ClientId,
    targets: Vec<Target>,
    /// Success has the table's metadata as its body, not 204.
    tells_metadata: bool,
    look_headers: HeaderMap,
    /// The catalog would know a second copy of it again.
    is_keyed: bool,
    /// The kept body's room.
    _held: Held,
}

/// Passes a commit through, and heals it.
pub async fn answer(
    gate: &Arc<Gate>,
    client: ClientId,
    mut parts: Parts,
    body: Incoming,
    route: Route<'_>,
) -> Result<Response<Body>, Error> {
    let (bytes, held) = match keep(body, gate.limits.commit, &gate.commits).await {
        Kept::Whole(bytes, held) => (bytes, held),
        Kept::Large(body) => return unread(gate, Request::from_parts(parts, body), route, "large commit").await,
        Kept::Broken(_, error) => return Err(error),
    };
    let text = plain(&parts.headers, &bytes, gate.limits.commit);
    let Some(targets) = text.and_then(|text| gate.guarded(|| targets(gate, &text, route)).flatten()) else {
        return unread(gate, Request::from_parts(parts, full(bytes)), route, "unreadable commit").await;
    };
    if gate.heal_ms.is_some() {
        readable(&mut parts.headers);
    }
    let commit = Commit {
        gate: Arc::clone(gate),
        client,
        targets,
        tells_metadata: matches!(route, Route::Commit(_)),
        look_headers: for_look(&parts.headers),
        is_keyed: gate.keys.hold_for(&parts.headers),
        _held: held,
    };
    gate.detached(commit.run(Request::from_parts(parts, full(bytes)))).await
}

/// Passes a commit through that was not read. That its table may have changed is
/// told by the path.
async fn unread(gate: &Arc<Gate>, request: Request<Body>, route: Route<'_>, why: &'static str) -> Result<Response<Body>, Error> {
    gate.untapped(request.uri().path(), why);
    let names = match route {
        Route::Commit(at) => gate.separator.tables(&gate.catalog, at.namespace, at.table),
        _ => Vec::new(),
    };
    let mine = Arc::clone(gate);
    let work = async move {
        let answer = pass(Arc::clone(&mine), request).await;
        if !answer.as_ref().is_ok_and(|a| a.status().is_client_error()) {
            mine.hear(events::changed(names, Certainty::Hint, mine.clock.now_ms()));
        }
        answer
    };
    gate.detached(work).await
}

/// What a commit's body says; `None` when it cannot be read.
fn targets(gate: &Gate, body: &[u8], route: Route<'_>) -> Option<Vec<Target>> {
    match route {
        Route::Commit(at) => {
            let change = commit::parse(body).ok()?;
            let named = change.identifier.as_ref().and_then(|i| events::named(&gate.catalog, i));
            let names = named.map_or_else(|| gate.separator.tables(&gate.catalog, at.namespace, at.table), |name| vec![name]);
            Some(vec![Target { change, names, paths: vec![at.path.to_owned()] }])
        }
        Route::Transaction { base } => {
            let changes = commit::parse_transaction(body).ok()?;
            let target = |change: Change| {
                let (namespace, table) = change.identifier.as_ref()?;
                let paths = gate.separator.paths(base, namespace, table);
                let names = events::named(&gate.catalog, &(namespace.clone(), table.clone())).into_iter().collect();
                Some(Target { change, names, paths })
            };
            changes.into_iter().map(target).collect()
        }
        _ => None,
    }
}

impl Commit {
    async fn run(self, request: Request<Body>) -> Result<Response<Body>, Error> {
        let gate = Arc::clone(&self.gate);
        let number = gate.requests.fetch_add(1, Ordering::Relaxed);
        let now_ms = gate.clock.now_ms();
        let begun = || -> Vec<Writing> {
            let writings: Vec<Writing> =
                self.targets.iter().flat_map(|t| events::writings((number, self.client), &t.names, &t.change, now_ms)).collect();
            writings.iter().for_each(|w| gate.heeds.begun(w));
            writings
        };
        let writings = gate.guarded(begun).unwrap_or_default();
        let sent = gate.upstream.send(request).await;
        let (end, answer) = self.settle(sent).await;
        let now_ms = gate.clock.now_ms();
        gate.guarded(|| writings.iter().for_each(|w| gate.heeds.ended(w, end, now_ms)));
        let certainty = match end {
            End::Landed => Certainty::CatalogConfirmed,
            End::Unknown => Certainty::Hint,
            End::NotLanded => return answer,
        };
        for target in &self.targets {
            let committed = || events::committed(&target.names, &target.change, certainty, now_ms);
            gate.hear(gate.guarded(committed).unwrap_or_default());
        }
        answer
    }

    /// What became of it, and what the client hears.
    async fn settle(&self, sent: Result<Response<Incoming>, Fault>) -> (End, Result<Response<Body>, Error>) {
        let response = match sent {
            Err(Fault::NotReached(error)) => return (End::NotLanded, Ok(busy(&error))),
            Err(Fault::Lost(error)) if self.heals() => return self.heal(&error.to_string(), Answer::Lost, None).await,
            Err(Fault::Lost(error)) => return (End::Unknown, Err(error)),
            Ok(response) => response,
        };
        let (head, body) = response.into_parts();
        let status = head.status;
        let kept = keep(body, self.gate.limits.answer, &self.gate.room).await;
        if status.is_success() {
            return match kept {
                Kept::Whole(bytes, _) => (End::Landed, Ok(rebuilt(head, full(bytes)))),
                Kept::Large(body) => {
                    telemetry::proxy_untapped("large answer");
                    (End::Landed, Ok(rebuilt(head, body)))
                }
                Kept::Broken(_, error) if self.heals() => self.heal(&format!("{status} that broke off: {error}"), Answer::Lost, None).await,
                Kept::Broken(before, error) => (End::Landed, Ok(rebuilt(head, broken(before, error)))),
            };
        }
        let refusal = match &kept {
            Kept::Whole(bytes, _) => plain(&head.headers, bytes, self.gate.limits.answer).and_then(|text| refusal::read(&text)),
            _ => None,
        };
        let words = self.words(refusal.as_ref());
        let original = match kept {
            Kept::Whole(bytes, _) => rebuilt(head, full(bytes)),
            Kept::Large(body) => rebuilt(head, body),
            Kept::Broken(before, _) => {
                let mut original = rebuilt(head, full(before));
                original.headers_mut().remove(header::CONTENT_LENGTH);
                original
            }
        };
        let answer = Answer::Status(status.as_u16());
        match (heal::leaves_open(answer, words), self.heals()) {
            (true, true) => {
                let (end, told) = self.heal(status.as_str(), answer, Some(original)).await;
                match (end, refusal.filter(|_| words.names_ours && status.is_client_error())) {
                    // a client that hears it would remove what the catalog may know
                    (End::Unknown, Some(refusal)) => (end, Ok(unknown_after(&refusal.message))),
                    _ => (end, told),
                }
            }
            (true, false) => (End::Unknown, Ok(original)),
            (false, _) => (End::NotLanded, Ok(original)),
        }
    }

    fn words(&self, refusal: Option<&Refusal>) -> Words {
        let names_ours = refusal.is_some_and(|refusal| self.targets.iter().any(|t| refusal.names_one_of(&t.change.adds)));
        Words { names_ours, is_final: self.is_keyed && refusal.is_some_and(Refusal::is_conflict) }
    }

    fn heals(&self) -> bool {
        self.gate.heal_ms.is_some() && self.targets.iter().any(|t| t.change.adds_snapshots())
    }

    /// Looks at the tables until the outcome is certain or the deadline is there.
    async fn heal(&self, seen: &str, answer: Answer, original: Option<Response<Body>>) -> (End, Result<Response<Body>, Error>) {
        let began_ms = self.gate.clock.now_ms();
        let looking = self.look_until(answer, began_ms.saturating_add(self.gate.heal_ms.unwrap_or(0)));
        // a defect here must not become a dropped connection, which clients take for a failure
        let (verdict, fresh) = AssertUnwindSafe(looking).catch_unwind().await.unwrap_or_else(|_| {
            tracing::error!("looking after a commit panicked: a defect, please report it");
            (Verdict::Again, None)
        });
        let fresh = fresh.filter(|_| verdict == Verdict::Landed);
        let table = self.targets.first().and_then(|t| t.names.first()).map(ToString::to_string).unwrap_or_default();
        let took_ms = self.gate.clock.now_ms().saturating_sub(began_ms);
        let healed = match verdict {
            Verdict::Landed => Healed::Landed,
            Verdict::NotLanded => Healed::NotLanded,
            Verdict::Torn => Healed::Torn,
            Verdict::Again => Healed::Unknown,
        };
        telemetry::proxy_healed(healed);
        tracing::warn!(table, seen, ?healed, took_ms, "the answer to a commit left open whether it landed: looked at the table");
        let told = |answer: Option<Response<Body>>| answer.unwrap_or_else(unknown);
        match (verdict, fresh) {
            (Verdict::Landed, Some(fresh)) => (End::Landed, Ok(fresh)),
            // seen in the table, and its answer could not be made
            (Verdict::Landed, None) => (End::Landed, Ok(unknown())),
            (Verdict::NotLanded, _) => (End::NotLanded, Ok(told(original))),
            // a refusal would have the client clean up what one of the tables names
            (Verdict::Torn, _) => (End::Unknown, Ok(told(original.filter(|o| o.status().is_server_error())))),
            (Verdict::Again, _) => (End::Unknown, Ok(told(original))),
        }
    }

    /// Looks again and again, and makes the answer of success.
    async fn look_until(&self, answer: Answer, deadline_ms: i64) -> (Verdict, Option<Response<Body>>) {
        let mut open: Vec<&Target> = self.targets.iter().filter(|t| t.change.adds_snapshots()).collect();
        let mut present = Vec::new();
        let mut fresh = (!self.tells_metadata).then(no_content);
        let mut pause_ms = PAUSES_MS.0;
        loop {
            let mut stands = present.clone();
            let mut still = Vec::new();
            for target in open {
                let (look, body) = self.look(target, deadline_ms).await;
                let (body, _held) = body.unzip();
                let stand = heal::stand(&target.change, answer, &look);
                stands.push(stand);
                if stand != Stand::Present {
                    still.push(target);
                    continue;
                }
                present.push(Stand::Present);
                if self.tells_metadata {
                    fresh = body.and_then(|b| loaded::fresh(&b).ok()).map(|b| json(StatusCode::OK, b.into()));
                }
            }
            open = still;
            let verdict = heal::decide(&stands);
            let left_ms = deadline_ms.saturating_sub(self.gate.clock.now_ms());
            if verdict != Verdict::Again || left_ms <= 0 {
                return (verdict, fresh);
            }
            self.gate.clock.sleep(millis(pause_ms.min(left_ms))).await;
            pause_ms = pause_ms.saturating_mul(2).min(PAUSES_MS.1);
        }
    }

    /// Loads one table as the client would.
    async fn look(&self, target: &Target, deadline_ms: i64) -> (Look, Option<(Bytes, Held)>) {
        let left_ms = deadline_ms.saturating_sub(self.gate.clock.now_ms()).max(PAUSES_MS.1);
        for path in &target.paths {
            let asked = tokio::select! {
                asked = self.ask(path) => asked,
                () = self.gate.clock.sleep(LOOK.min(millis(left_ms))) => None,
            };
            match asked {
                Some((StatusCode::OK, body, held)) => {
                    return match loaded::table(&body) {
                        Ok(table) => (Look::Table(Box::new(table)), Some((body, held))),
                        Err(_) => (Look::Nothing, None),
                    };
                }
                Some((StatusCode::NOT_FOUND, ..)) => {}
                _ => return (Look::Nothing, None),
            }
        }
        (Look::Nothing, None)
    }

    async fn ask(&self, path: &str) -> Option<(StatusCode, Bytes, Held)> {
        let target: PathAndQuery = path.parse().ok()?;
        let mut request = Request::new(empty());
        *request.method_mut() = Method::GET;
        *request.uri_mut() = self.gate.upstream.base().target(&target).ok()?;
        *request.headers_mut() = self.look_headers.clone();
        let (head, body) = self.gate.upstream.send(request).await.ok()?.into_parts();
        match keep(body, self.gate.limits.load, &self.gate.room).await {
            Kept::Whole(bytes, mut held) => {
                let text = plain(&head.headers, &bytes, self.gate.limits.load)?;
                // what was unpacked takes room too
                held.grow(text.len().saturating_sub(bytes.len())).then_some((head.status, text, held))
            }
            Kept::Large(_) => {
                telemetry::proxy_untapped("large load");
                None
            }
            Kept::Broken(..) => None,
        }
    }
}

/// The one server error that is ours: no answer came, and the tables did not tell.
fn unknown() -> Response<Body> {
    let message = "the catalog gave no answer to this commit, and its tables do not show whether it landed: keep every file until they do";
    refuse(StatusCode::BAD_GATEWAY, "CommitStateUnknownException", message)
}

/// The same where the catalog refused it by words that speak of its own snapshot.
fn unknown_after(said: &str) -> Response<Body> {
    let message = format!(
        "the catalog refused this commit in words that speak of its own snapshot, and its tables do not show whether it landed: \
         keep every file until they do; it said: {said}"
    );
    refuse(StatusCode::BAD_GATEWAY, "CommitStateUnknownException", &message)
}

fn no_content() -> Response<Body> {
    let mut response = Response::new(empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response
}

fn millis(ms: i64) -> Duration {
    Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}
