//! Connections to the upstream catalog.
//!
//! A request is sent once. It is given to another connection only when not one
//! byte of it was written, or when it is a `GET` or `HEAD` and the connection was
//! an old one that upstream closed at the same moment. Redirects are not followed.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::base::Base;
use super::tap::{Body, Error, empty};
use crate::lake::clock::Clock;

/// How long a connection may take to come up.
const CONNECT: Duration = Duration::from_secs(10);
/// Idle connections kept.
const MOST_IDLE: usize = 64;
/// Idle for longer, a connection is not used again, in milliseconds.
const IDLE_MS: i64 = 15_000;
/// The same for requests that must not be sent twice: a connection that upstream
/// may be about to close would leave their outcome open.
const CAREFUL_IDLE_MS: i64 = 1_000;

/// An upstream that is gone without a word is noticed after this silence and so
/// many probes: a request may wait for its answer for ever, but not for nothing.
const SILENCE: Duration = Duration::from_secs(15);
const PROBE_EVERY: Duration = Duration::from_secs(5);
const PROBES: u32 = 3;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// Not one byte of the request was sent.
    #[error("the catalog was not reached: {0}")]
    NotReached(Error),
    /// Bytes were sent.
    #[error("the catalog gave no answer: {0}")]
    Lost(Error),
}

/// The upstream catalog.
pub struct Upstream {
    base: Base,
    tls: Option<TlsConnector>,
    clock: Arc<dyn Clock>,
    idle: Mutex<Vec<Idle>>,
}

struct Idle {
    sender: SendRequest<Body>,
    since_ms: i64,
}

impl Upstream {
    /// Prepares connections; none is made yet.
    ///
    /// # Errors
    /// When TLS is needed and the machine's certificates cannot be read.
    pub fn new(base: Base, clock: Arc<dyn Clock>) -> Result<Self, String> {
        let tls = if base.tls { Some(connector()?) } else { None };
        Ok(Self { base, tls, clock, idle: Mutex::default() })
    }

    /// Where it is.
    pub fn base(&self) -> &Base {
        &self.base
    }

    /// Sends a request once and waits for the head of the answer, for as long as
    /// upstream takes.
    ///
    /// # Errors
    /// Tells whether anything was sent.
    pub async fn send(self: &Arc<Self>, request: Request<Body>) -> Result<Response<Incoming>, Fault> {
        let repeatable = matches!(*request.method(), Method::GET | Method::HEAD) && hyper::body::Body::is_end_stream(request.body());
        let mut again = repeatable.then(|| bare(&request));
        let mut request = request;
        let mut pooled = true;
        let most_ms = if repeatable { IDLE_MS } else { CAREFUL_IDLE_MS };
        loop {
            let old = if pooled { self.pooled(most_ms).await } else { None };
            let is_old = old.is_some();
            let mut sender = match old {
                Some(sender) => sender,
                None => self.connect().await.map_err(Fault::NotReached)?,
            };
            match sender.try_send_request(request).await {
                Ok(response) => {
                    self.put_back(sender);
                    return Ok(response);
                }
                Err(mut failed) => match (failed.take_message(), is_old) {
                    (Some(unsent), true) => request = unsent,
                    (Some(_), false) => return Err(Fault::NotReached(failed.into_error().into())),
                    (None, old) => match again.take().filter(|_| old) {
                        Some(same) => {
                            request = same;
                            pooled = false;
                        }
                        None => return Err(Fault::Lost(failed.into_error().into())),
                    },
                },
            }
        }
    }

    /// An idle connection, with a moment for one whose answer was read just now.
    async fn pooled(&self, most_ms: i64) -> Option<SendRequest<Body>> {
        if let Some(sender) = self.take(most_ms) {
            return Some(sender);
        }
        tokio::task::yield_now().await;
        self.take(most_ms)
    }

    /// The youngest idle connection that is not too old.
    fn take(&self, most_ms: i64) -> Option<SendRequest<Body>> {
        let now_ms = self.clock.now_ms();
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|i| !i.sender.is_closed() && now_ms.saturating_sub(i.since_ms) <= IDLE_MS);
        let at = idle.iter().rposition(|i| i.sender.is_ready() && now_ms.saturating_sub(i.since_ms) <= most_ms)?;
        Some(idle.remove(at).sender)
    }

    /// Keeps a connection for later, once its answer has been read to the end.
    fn put_back(self: &Arc<Self>, sender: SendRequest<Body>) {
        let mine = Arc::clone(self);
        let mut sender = sender;
        tokio::spawn(async move {
            if sender.ready().await.is_ok() {
                let since_ms = mine.clock.now_ms();
                let mut idle = mine.idle.lock().unwrap_or_else(PoisonError::into_inner);
                if idle.len() < MOST_IDLE {
                    idle.push(Idle { sender, since_ms });
                }
            }
        });
    }

    async fn connect(&self) -> Result<SendRequest<Body>, Error> {
        match tokio::time::timeout(CONNECT, self.open()).await {
            Ok(opened) => opened,
            Err(_) => Err(format!("no connection to {} within {} s", self.base.authority, CONNECT.as_secs()).into()),
        }
    }

    async fn open(&self) -> Result<SendRequest<Body>, Error> {
        let stream = TcpStream::connect((self.base.host(), self.base.port())).await?;
        stream.set_nodelay(true)?;
        watch(&stream)?;
        let Some(tls) = &self.tls else { return speak(stream).await };
        let name = ServerName::try_from(self.base.host().to_owned())?;
        speak(tls.connect(name, stream).await?).await
    }
}

/// Has the system ask whether the other end is still there.
fn watch(stream: &TcpStream) -> std::io::Result<()> {
    let probes = TcpKeepalive::new().with_time(SILENCE).with_interval(PROBE_EVERY).with_retries(PROBES);
    SockRef::from(stream).set_tcp_keepalive(&probes)
}

async fn speak<S>(stream: S) -> Result<SendRequest<Body>, Error>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin + 'static,
{
    let (sender, connection) = http1::Builder::new().preserve_header_case(true).handshake(TokioIo::new(stream)).await?;
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "a connection to the catalog ended");
        }
    });
    Ok(sender)
}

fn bare(request: &Request<Body>) -> Request<Body> {
    let mut same = Request::new(empty());
    *same.method_mut() = request.method().clone();
    *same.uri_mut() = request.uri().clone();
    *same.headers_mut() = request.headers().clone();
    *same.extensions_mut() = request.extensions().clone();
    same
}

/// TLS as the machine trusts it (`SSL_CERT_FILE` and `SSL_CERT_DIR` are heeded).
fn connector() -> Result<TlsConnector, String> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = rustls::RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(found.certs);
    if added == 0 {
        let why = found.errors.first().map_or_else(|| "none is installed".to_owned(), ToString::to_string);
        return Err(format!("no certificate authority is trusted on this machine ({why}): install ca-certificates or set SSL_CERT_FILE"));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| e.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_connection_asks_whether_upstream_is_still_there() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        assert!(!SockRef::from(&stream).keepalive().unwrap());
        watch(&stream).unwrap();
        let socket = SockRef::from(&stream);
        let probes =
            (socket.tcp_keepalive_time().unwrap(), socket.tcp_keepalive_interval().unwrap(), socket.tcp_keepalive_retries().unwrap());
        assert_eq!((socket.keepalive().unwrap(), probes), (true, (SILENCE, PROBE_EVERY, PROBES)));
    }
}
