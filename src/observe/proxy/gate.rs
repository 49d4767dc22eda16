//! What every request through one proxy shares.

use std::collections::BTreeSet;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};

use http_body_util::BodyExt;
use hyper::Response;
use tokio::sync::oneshot;
use tokio_util::task::TaskTracker;

use super::Limits;
use super::ledger::Heeds;
use super::names::Separator;
use super::refusal::Keys;
use super::tap::{Body, Error, Room};
use super::upstream::Upstream;
use crate::lake::clock::Clock;
use crate::model::event::{Door, Event, Heard};
use crate::observe::Inbox;
use crate::observe::ledger::Example;
use crate::telemetry;

/// Different things that are said once each.
const MOST_SAID: usize = 100;

/// What every request through one proxy shares.
pub struct Gate {
    /// The catalog's configured name.
    pub catalog: String,
    /// The catalog.
    pub upstream: Arc<Upstream>,
    /// How long an unknown commit is looked after, in milliseconds; `None`: not at all.
    pub heal_ms: Option<i64>,
    /// Bounds.
    pub limits: Limits,
    /// Bytes that may be kept at one time.
    pub room: Room,
    /// The same of commits that are not sent yet: no other traffic may cost their
    /// healing.
    pub commits: Room,
    /// How the catalog separates namespace levels.
    pub separator: Separator,
    /// Whether the catalog knows a request again by its key.
    pub keys: Keys,
    /// Where events go.
    pub inbox: Inbox,
    /// Where everything else that is heard goes.
    pub heeds: Arc<dyn Heeds>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Connections, and requests that outlive theirs.
    pub tracker: TaskTracker,
    /// Numbers requests.
    pub requests: AtomicU64,
    /// What was said already.
    pub said: Mutex<BTreeSet<String>>,
}

impl Gate {
    /// Gives events on, less those of branches that nobody looks after.
    pub fn hear(&self, events: Vec<Event>) {
        self.guarded(|| events.into_iter().for_each(|event| self.hear_one(event)));
    }

    fn hear_one(&self, event: Event) {
        let source = self.inbox.ledger().source(Door::Proxy, &self.catalog);
        let (at_ms, place) = (event.heard_ms, event.table.to_string());
        source.received(at_ms);
        if let (Some(branch), Err(_)) = (&event.reference, self.inbox.branches().check(&event.table, event.reference.as_deref())) {
            let reason = format!("branch `{}` is not looked after", branch.chars().take(128).collect::<String>());
            return source.dropped(Example { at_ms, place, reason });
        }
        // a look is at all branches
        let heard = self.inbox.hear_for(Event { reference: None, ..event }, &source, None);
        telemetry::event_heard(Door::Proxy, heard);
        if heard == Heard::Full {
            source.dropped(Example { at_ms, place, reason: "too many tables wait for a look: left to the poller".into() });
        }
    }

    /// Something passed through unread.
    pub fn untapped(&self, place: &str, reason: &'static str) {
        telemetry::proxy_untapped(reason);
        let (at_ms, source) = (self.clock.now_ms(), self.inbox.ledger().source(Door::Proxy, &self.catalog));
        source.received(at_ms);
        source.parked(Example { at_ms, place: place.to_owned(), reason: format!("passed through unread: {reason}") });
    }

    /// Runs a tap. A defect in it costs what it would have heard, never a request:
    /// a client whose connection breaks after its commit may take it for failed.
    pub fn guarded<T>(&self, tap: impl FnOnce() -> T) -> Option<T> {
        let done = std::panic::catch_unwind(AssertUnwindSafe(tap));
        if done.is_err() {
            tracing::error!(catalog = %self.catalog, "reading what passes through the proxy panicked: a defect, please report it");
            telemetry::proxy_untapped("defect");
        }
        done.ok()
    }

    /// Whether this has not been said before.
    pub fn first_time(&self, what: &str) -> bool {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        said.len() < MOST_SAID && said.insert(what.to_owned())
    }

    /// Carries out work that must not end with the client's connection: what was
    /// begun at the catalog is heard to its end.
    pub async fn detached<F>(&self, work: F) -> Result<Response<Body>, Error>
    where
        F: Future<Output = Result<Response<Body>, Error>> + Send + 'static,
    {
        let (tell, told) = oneshot::channel();
        self.tracker.spawn(async move {
            if let Err(Ok(unheard)) = tell.send(work.await) {
                let mut body = unheard.into_body();
                while let Some(Ok(_)) = body.frame().await {}
            }
        });
        told.await.unwrap_or_else(|_| Err("the request was given up".into()))
    }
}
