//! The transparent proxy in front of an Iceberg REST catalog: engines point their
//! catalog `uri` at it, and nothing else changes.
//!
//! Requests and answers stream through byte for byte (`forward`, `headers`,
//! `upstream`); small ones that tell something are also read ([`route`],
//! `tap`, [`commit`], `others`) and become events ([`events`]) or entries of
//! the [`ledger`]. `uri` in the config answer is made the proxy's
//! ([`config_answer`]). Commits whose answer leaves their outcome open are looked
//! after before the client hears of them (`commits`, [`heal`]).
//!
//! The proxy adds no error of its own that a client would read as an unknown
//! commit: when the catalog was not reached it answers 429, and when the catalog
//! drops a connection without an answer it does the same.

mod base;
pub mod clients;
pub mod commit;
mod commits;
pub mod config_answer;
pub mod events;
mod forward;
mod gate;
mod headers;
pub mod heal;
pub mod ledger;
mod listen;
mod loaded;
mod names;
mod others;
mod refusal;
pub mod route;
pub(in crate::observe) mod tap;
pub(in crate::observe) mod upstream;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::Inbox;
use crate::lake::clock::Clock;

pub use base::Base;
pub use ledger::{Heeds, Ledger};
pub use names::Separator;

use gate::Gate;

/// How one proxy is set up.
#[derive(Clone, Debug)]
pub struct Options {
    /// The catalog's configured name.
    pub catalog: String,
    /// Where to listen; port 0 takes a free one.
    pub listen: SocketAddr,
    /// What clients would have as `uri` without the proxy.
    pub upstream: String,
    /// Look after commits whose answer leaves their outcome open.
    pub heal: bool,
    /// For how long, in milliseconds.
    pub heal_deadline_ms: i64,
    /// Certificate chain and key in PEM.
    pub tls: Option<(PathBuf, PathBuf)>,
    /// An address beyond loopback is meant, even without TLS.
    pub insecure: bool,
    /// Bounds of what is kept.
    pub limits: Limits,
}

impl Options {
    /// The defaults for a catalog.
    pub fn new(catalog: &str, upstream: &str) -> Self {
        Self {
            catalog: catalog.to_owned(),
            listen: SocketAddr::from(([127, 0, 0, 1], 7413)),
            upstream: upstream.to_owned(),
            heal: true,
            heal_deadline_ms: 30_000,
            tls: None,
            insecure: false,
            limits: Limits::default(),
        }
    }
}

/// Bytes that are kept. What is larger passes through unread and is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Of a commit's request.
    pub commit: usize,
    /// Of a commit's answer.
    pub answer: usize,
    /// Of a table's metadata, when healing.
    pub load: usize,
    /// Of reports, config answers and other small bodies.
    pub note: usize,
    /// Of all commits together that are not answered yet, and again of everything
    /// else.
    pub room: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { commit: 16 << 20, answer: 16 << 20, load: 64 << 20, note: 1 << 20, room: 128 << 20 }
    }
}

/// Where what the proxy hears goes.
#[derive(Clone)]
pub struct Ports {
    /// Events.
    pub inbox: Inbox,
    /// Commits under way, loads, scans.
    pub heeds: Arc<dyn Heeds>,
    /// Time.
    pub clock: Arc<dyn Clock>,
}

/// Why a proxy does not come up.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Others could reach it without TLS.
    #[error("{0} can be reached from other machines and TLS is not configured; configure it, listen on 127.0.0.1, or pass --insecure")]
    Open(SocketAddr),
    /// The address cannot be listened on.
    #[error("{addr}: {source}; is another afterwrite running? set another catalog.NAME.proxy.listen")]
    Bind {
        /// The address.
        addr: SocketAddr,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// A PEM file cannot be used.
    #[error("TLS file {path}: {why}")]
    Pem {
        /// The file.
        path: PathBuf,
        /// The cause.
        why: String,
    },
    /// The upstream URL cannot be used.
    #[error("upstream: {0}")]
    Upstream(String),
}

/// A proxy that runs. Dropping it leaves it running; [`Running::drain`] ends it.
pub struct Running {
    catalog: String,
    addr: SocketAddr,
    tls: bool,
    upstream: String,
    heal_ms: Option<i64>,
    stop: CancellationToken,
    tracker: TaskTracker,
}

/// Starts a proxy.
///
/// # Errors
/// When its address may not or cannot be listened on, a TLS file is not valid, or
/// the upstream cannot stand behind a proxy. Nothing runs then.
pub async fn start(options: &Options, ports: Ports) -> Result<Running, Error> {
    if !options.insecure && options.tls.is_none() && !options.listen.ip().to_canonical().is_loopback() {
        return Err(Error::Open(options.listen));
    }
    let base = Base::parse(&options.upstream).map_err(Error::Upstream)?;
    let url = base.url();
    let tls = match &options.tls {
        None => None,
        Some((cert, key)) => Some(listen::acceptor(cert, key).await?),
    };
    let upstream = upstream::Upstream::new(base, Arc::clone(&ports.clock)).map_err(Error::Upstream)?;
    let heal_ms = options.heal.then_some(options.heal_deadline_ms);
    let tracker = TaskTracker::new();
    let gate = Arc::new(Gate {
        catalog: options.catalog.clone(),
        upstream: Arc::new(upstream),
        heal_ms,
        limits: options.limits,
        room: tap::Room::new(options.limits.room),
        commits: tap::Room::new(options.limits.room),
        separator: Separator::default(),
        keys: refusal::Keys::default(),
        inbox: ports.inbox,
        heeds: ports.heeds,
        clock: ports.clock,
        tracker: tracker.clone(),
        requests: AtomicU64::new(0),
        said: Mutex::new(BTreeSet::new()),
    });
    let stop = CancellationToken::new();
    let is_tls = tls.is_some();
    let addr = listen::listen(options.listen, gate, tls, stop.clone()).await?;
    Ok(Running { catalog: options.catalog.clone(), addr, tls: is_tls, upstream: url, heal_ms, stop, tracker })
}

impl Running {
    /// The address bound.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The URL that engines take as their catalog's `uri`.
    pub fn url(&self) -> String {
        format!("{}://{}", if self.tls { "https" } else { "http" }, self.addr)
    }

    /// The catalog's configured name.
    pub fn catalog(&self) -> &str {
        &self.catalog
    }

    /// The catalog behind it.
    pub fn upstream(&self) -> &str {
        &self.upstream
    }

    /// Takes no new request and lets those under way end, each commit with its
    /// healing, for at most `patience` and never less than healing may take.
    /// Returns whether all ended.
    pub async fn drain(self, patience: Duration) -> bool {
        self.stop.cancel();
        self.tracker.close();
        let healing = Duration::from_millis(u64::try_from(self.heal_ms.unwrap_or(0)).unwrap_or(0));
        tokio::time::timeout(patience.saturating_add(healing), self.tracker.wait()).await.is_ok()
    }
}
