//! What every request through one proxy shares.

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};

use http_body_util::BodyExt;
use hyper::Response;
use tokio::sync::oneshot;
use tokio_util::task::TaskTracker;

use super::Limits;
use super::ledger::Heeds;
use super::names::Separator;
use super::tap::{Body, Error, Room};
use super::upstream::Upstream;
use crate::lake::clock::Clock;
use crate::model::event::{Door, Event};
use crate::model::ident::MAIN;
use crate::observe::Inbox;
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
    /// How the catalog separates namespace levels.
    pub separator: Separator,
    /// The branches that are looked after.
    pub references: Vec<String>,
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
        let source = self.inbox.ledger().source(Door::Proxy, &self.catalog);
        for event in events {
            let reference = event.reference.as_deref().unwrap_or(MAIN);
            if self.references.iter().any(|r| r == reference) {
                source.received(event.heard_ms);
                let heard = self.inbox.hear_for(event, None);
                source.heard(heard);
                telemetry::event_heard(Door::Proxy, heard);
            }
        }
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
