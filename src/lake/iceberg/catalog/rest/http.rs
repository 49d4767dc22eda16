//! HTTP/1.1 over TCP or TLS, with nothing hidden: no redirect is followed, no
//! request is sent twice, and what is read is bounded.
//!
//! Reads share pooled connections. A commit opens a connection of its own, so that
//! it cannot meet a stale one, and so that a catalog that is not there is known
//! before anything is asked of it.

use std::collections::BTreeMap;
use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use flate2::read::MultiGzDecoder;
use futures::future::poll_fn;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{ACCEPT_ENCODING, CONTENT_ENCODING, HOST, HeaderValue, USER_AGENT};
use hyper::http::request::Parts;
use hyper::{HeaderMap, Method, Uri};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::{ClientConfig, RootCertStore};
use tower_service::Service;

const CONNECT_TIMEOUT: &str = "rest.client.connection-timeout-ms";
const ANSWER_TIMEOUT: &str = "rest.client.socket-timeout-ms";
const IDLE: Duration = Duration::from_secs(30);
/// After which the system asks whether the other end is still there.
const SILENCE: Duration = Duration::from_secs(15);

/// A request that is not sent yet.
pub type Request = hyper::Request<Bytes>;

/// An answer, read to its end and unpacked.
pub struct Response {
    /// The status.
    pub status: u16,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
}

impl Response {
    /// A header's text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

/// How long to wait.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// For a connection.
    pub connect: Duration,
    /// For a whole answer.
    pub answer: Duration,
}

impl Patience {
    /// From the properties that Iceberg's own client has for it.
    pub fn of(properties: &BTreeMap<String, String>) -> Self {
        let get = |key: &str, default: u64| {
            let set = properties.get(key).and_then(|ms| ms.parse().ok()).filter(|ms| *ms > 0);
            Duration::from_millis(set.unwrap_or(default))
        };
        Self { connect: get(CONNECT_TIMEOUT, 10_000), answer: get(ANSWER_TIMEOUT, 60_000) }
    }
}

/// The client.
#[derive(Clone)]
pub struct Http {
    connector: HttpsConnector<HttpConnector>,
    pool: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    patience: Patience,
}

/// A connection on which nothing was sent.
pub struct Connection {
    sender: SendRequest<Full<Bytes>>,
    patience: Duration,
}

impl Http {
    /// A client that trusts the certificates of the system.
    ///
    /// # Errors
    /// A text, when TLS cannot be set up.
    pub fn new(patience: Patience) -> Result<Self, String> {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(patience.connect));
        tcp.set_keepalive(Some(SILENCE));
        let connector = HttpsConnectorBuilder::new().with_tls_config(tls()?).https_or_http().enable_http1().wrap_connector(tcp);
        let mut builder = Client::builder(TokioExecutor::new());
        builder.pool_timer(TokioTimer::new()).pool_idle_timeout(IDLE).pool_max_idle_per_host(8).retry_canceled_requests(false);
        Ok(Self { pool: builder.build(connector.clone()), connector, patience })
    }

    /// Sends a request that may be sent again, over a pooled connection.
    ///
    /// # Errors
    /// When there was no whole answer, or one larger than `limit` bytes.
    pub async fn read(&self, request: Request, limit: usize) -> Result<Response, String> {
        let (mut parts, body) = request.into_parts();
        prepare(&mut parts)?;
        let answer = async {
            let answer = self.pool.request(hyper::Request::from_parts(parts, Full::new(body))).await.map_err(|e| chain(&e))?;
            collect(answer, limit).await
        };
        timely(self.patience.answer, answer).await
    }

    /// Opens a connection of its own to where a request goes.
    ///
    /// # Errors
    /// Proof that nothing was sent.
    pub async fn connect(&self, uri: &Uri) -> Result<Connection, String> {
        let mut connector = self.connector.clone();
        let connected = async {
            poll_fn(|cx| connector.poll_ready(cx)).await.map_err(|e| chain(e.as_ref()))?;
            let stream = connector.call(uri.clone()).await.map_err(|e| chain(e.as_ref()))?;
            handshake(stream).await.map_err(|e| chain(&e))
        };
        let (sender, driver) = timely(self.patience.connect, connected).await?;
        tokio::spawn(driver);
        Ok(Connection { sender, patience: self.patience.answer })
    }
}

impl Connection {
    /// Sends one request, once.
    ///
    /// # Errors
    /// When there was no whole answer: the request may have arrived.
    pub async fn send(mut self, request: Request, limit: usize) -> Result<Response, String> {
        let (mut parts, body) = request.into_parts();
        prepare(&mut parts)?;
        parts.uri =
            parts.uri.path_and_query().map_or_else(|| Ok(Uri::from_static("/")), |p| p.as_str().parse()).map_err(|e| format!("{e}"))?;
        let answer = async {
            self.sender.ready().await.map_err(|e| chain(&e))?;
            let answer = self.sender.send_request(hyper::Request::from_parts(parts, Full::new(body))).await.map_err(|e| chain(&e))?;
            collect(answer, limit).await
        };
        timely(self.patience, answer).await
    }
}

/// A request without headers.
///
/// # Errors
/// A text, for an address that is none.
pub fn request(method: Method, address: &str, body: Bytes) -> Result<Request, String> {
    let uri: Uri = address.parse().map_err(|e| format!("`{address}` is no address: {e}"))?;
    if uri.scheme().is_none() || uri.host().is_none() {
        return Err(format!("`{address}` is no address: write http://host or https://host"));
    }
    let mut request = Request::new(body);
    *request.method_mut() = method;
    *request.uri_mut() = uri;
    Ok(request)
}

/// The host with its port, as a request names it.
pub fn host(uri: &Uri) -> String {
    let authority = uri.authority().map(|a| a.as_str()).unwrap_or_default();
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let plain = matches!((uri.scheme_str(), uri.port_u16()), (Some("https"), Some(443)) | (Some("http"), Some(80)));
    if plain { uri.host().unwrap_or_default().to_owned() } else { host.to_owned() }
}

fn prepare(parts: &mut Parts) -> Result<(), String> {
    let host = HeaderValue::from_str(&host(&parts.uri)).map_err(|e| e.to_string())?;
    parts.headers.insert(HOST, host);
    parts.headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
    parts.headers.entry(USER_AGENT).or_insert(HeaderValue::from_static(concat!("afterwrite/", env!("CARGO_PKG_VERSION"))));
    Ok(())
}

async fn timely<T>(time: Duration, work: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    match tokio::time::timeout(time, work).await {
        Ok(done) => done,
        Err(_) => Err(format!("no answer within {} ms", time.as_millis())),
    }
}

async fn collect(answer: hyper::Response<Incoming>, limit: usize) -> Result<Response, String> {
    let (parts, body) = answer.into_parts();
    let packed = Limited::new(body, limit).collect().await.map_err(|e| format!("the answer broke off: {}", chain(e.as_ref())))?.to_bytes();
    let encoding = parts.headers.get(CONTENT_ENCODING).map(|v| v.as_bytes().to_ascii_lowercase()).unwrap_or_default();
    let body = match encoding.as_slice() {
        b"" | b"identity" => packed,
        b"gzip" | b"x-gzip" => unpack(&packed, limit)?,
        _ => return Err("the answer has a content encoding that was not asked for".into()),
    };
    Ok(Response { status: parts.status.as_u16(), headers: parts.headers, body })
}

fn unpack(packed: &[u8], limit: usize) -> Result<Bytes, String> {
    let mut unpacked = Vec::new();
    let most = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
    MultiGzDecoder::new(packed).take(most).read_to_end(&mut unpacked).map_err(|e| format!("the answer cannot be unpacked: {e}"))?;
    if unpacked.len() > limit {
        return Err(format!("the answer is larger than {limit} bytes"));
    }
    Ok(unpacked.into())
}

/// An error with its causes, which hyper keeps apart.
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        if !text.contains(&next) {
            text = format!("{text}: {next}");
        }
        cause = error.source();
    }
    text
}

fn tls() -> Result<ClientConfig, String> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().map_err(|e| e.to_string())?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_needs_a_scheme_and_a_host() {
        let why = |address: &str| request(Method::GET, address, Bytes::new()).err().unwrap();
        assert!(why("localhost").contains("write http://host"), "{}", why("localhost"));
        assert!(why("http://").contains("is no address"));
        assert!(request(Method::GET, "https://h:1/v1?x=%1F", Bytes::new()).is_ok());
    }

    #[test]
    fn the_host_is_named_without_user_and_default_port() {
        for (uri, expected) in [
            ("http://u:p@h:80/x", "h"),
            ("https://h:443/", "h"),
            ("https://h:80/", "h:80"),
            ("http://[::1]:8181/", "[::1]:8181"),
            ("https://h/", "h"),
        ] {
            assert_eq!(host(&uri.parse().unwrap()), expected, "{uri}");
        }
    }

    #[test]
    fn what_unpacks_to_more_than_the_limit_is_refused() {
        use std::io::Write;
        let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        packer.write_all(&[0; 1000]).unwrap();
        let packed = packer.finish().unwrap();
        assert_eq!(unpack(&packed, 1000).map(|b| b.len()), Ok(1000));
        assert!(unpack(&packed, 999).is_err());
        assert!(unpack(&packed[..packed.len() - 4], 1000).is_err());
    }

    #[test]
    fn patience_is_set_by_icebergs_properties() {
        let set = BTreeMap::from([(ANSWER_TIMEOUT.to_owned(), "250".to_owned()), (CONNECT_TIMEOUT.to_owned(), "0".to_owned())]);
        let patience = Patience::of(&set);
        assert_eq!((patience.answer.as_millis(), patience.connect.as_millis()), (250, 10_000));
    }
}
