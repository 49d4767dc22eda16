//! What a cluster has free, read from a metrics endpoint again and again.
//!
//! What was read holds until it is too old, by its own time where it carries one. An
//! endpoint that fails is asked on; it is for the reader of the number to know that
//! nothing is known any more.

mod text;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Limited};
use hyper::header::{self, HeaderValue};
use hyper::http::uri::{PathAndQuery, Uri};
use hyper::{Method, Request, StatusCode};
use tokio_util::sync::CancellationToken;

use super::proxy::Base;
use super::proxy::tap::{Body, empty};
use super::proxy::upstream::Upstream;
use crate::lake::clock::Clock;

/// How long one reading may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// What is longer is not read.
const MOST_BYTES: usize = 64 << 20;
/// Bytes of a GB.
const GB: f64 = 1e9;

/// What to read, and how often.
#[derive(Clone, Debug)]
pub struct Options {
    /// The endpoint.
    pub url: String,
    /// The metric's name.
    pub metric: String,
    /// Labels that its samples must have; those that have them are added up.
    pub labels: BTreeMap<String, String>,
    /// Bytes that one of it stands for.
    pub unit_bytes: f64,
    /// The pause between two readings.
    pub every: Duration,
    /// For how long a number holds, in milliseconds.
    pub max_age_ms: i64,
    /// A bearer token for the endpoint.
    pub token: Option<String>,
}

/// A number that was read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reading {
    /// What is free, in GB.
    pub gb: f64,
    /// Until when it holds, in milliseconds since the epoch.
    pub until_ms: i64,
}

/// The endpoint.
pub struct Gauge {
    options: Options,
    target: Uri,
    upstream: Arc<Upstream>,
    clock: Arc<dyn Clock>,
}

impl Gauge {
    /// Prepares to read; nothing is asked yet.
    ///
    /// # Errors
    /// When the URL is none, or TLS is needed and cannot be had.
    pub fn open(options: Options, clock: Arc<dyn Clock>) -> Result<Self, String> {
        let (place, query) = options.url.split_once('?').map_or((options.url.as_str(), None), |(place, query)| (place, Some(query)));
        let whole = Base::parse(place)?;
        let path = if whole.path.is_empty() { "/" } else { whole.path.as_str() };
        let target = query.map_or_else(|| path.to_owned(), |query| format!("{path}?{query}"));
        let target: PathAndQuery = target.parse().map_err(|e| format!("`{}` is not a URL: {e}", options.url))?;
        let base = Base { path: String::new(), ..whole };
        let target = base.target(&target).map_err(|e| e.to_string())?;
        let upstream = Arc::new(Upstream::new(base, Arc::clone(&clock))?);
        Ok(Self { options, target, upstream, clock })
    }

    /// Reads until it is stopped; what is read is told to `tell`. The log says when the
    /// endpoint begins to fail, and when it answers again.
    pub async fn run(self, stop: CancellationToken, tell: impl Fn(Reading) + Send) {
        let mut failing: Option<String> = None;
        loop {
            let read = tokio::select! {
                () = stop.cancelled() => return,
                read = self.read() => read,
            };
            let url = &self.options.url;
            match read {
                Ok(reading) => {
                    if failing.take().is_some() {
                        tracing::info!(url, gb = reading.gb, "what is free can be read again");
                    }
                    tell(reading);
                }
                Err(error) if failing.as_ref() != Some(&error) => {
                    tracing::warn!(url, error, "what is free cannot be read: what was read last holds until it is too old");
                    failing = Some(error);
                }
                Err(_) => {}
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.clock.sleep(self.options.every) => {}
            }
        }
    }

    /// Reads once.
    ///
    /// # Errors
    /// A text, when there is no answer, no such metric in it, or only one that is too old.
    pub async fn read(&self) -> Result<Reading, String> {
        let answered = tokio::time::timeout(PATIENCE, self.ask()).await;
        let (page, in_seconds) = answered.map_err(|_| format!("no answer within {} s", PATIENCE.as_secs()))??;
        let sum = text::sum(&page, &self.options.metric, &self.options.labels, in_seconds)?;
        let now_ms = self.clock.now_ms();
        let at_ms = sum.at_ms.unwrap_or(now_ms).min(now_ms);
        let until_ms = at_ms.saturating_add(self.options.max_age_ms);
        if until_ms <= now_ms {
            let (age, most) = (now_ms.saturating_sub(at_ms) / 1000, self.options.max_age_ms / 1000);
            return Err(format!("{} is {age} s old, and holds for {most} s", self.options.metric));
        }
        Ok(Reading { gb: sum.value * self.options.unit_bytes / GB, until_ms })
    }

    /// The page, and whether its times are in seconds.
    async fn ask(&self) -> Result<(String, bool), String> {
        let request = self.request()?;
        let response =
            self.upstream.send(request).await.map_err(|fault| format!("{} does not answer: {}", self.options.url, why(fault)))?;
        if response.status() != StatusCode::OK {
            return Err(format!("{} answers {}", self.options.url, response.status()));
        }
        let kind = response.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let in_seconds = kind.starts_with("application/openmetrics-text");
        let body = Limited::new(response.into_body(), MOST_BYTES).collect().await;
        let body =
            body.map_err(|error| format!("the answer of {} broke off, or is above {MOST_BYTES} bytes: {error}", self.options.url))?;
        let page = String::from_utf8(body.to_bytes().to_vec()).map_err(|_| format!("the answer of {} is no text", self.options.url))?;
        Ok((page, in_seconds))
    }

    fn request(&self) -> Result<Request<Body>, String> {
        let mut request = Request::new(empty());
        *request.method_mut() = Method::GET;
        *request.uri_mut() = self.target.clone();
        let text = |value: &str| HeaderValue::from_str(value).map_err(|e| e.to_string());
        let headers = request.headers_mut();
        headers.insert(header::HOST, text(self.upstream.base().authority.as_str())?);
        headers.insert(header::ACCEPT, HeaderValue::from_static("text/plain;version=0.0.4"));
        headers.insert(header::USER_AGENT, HeaderValue::from_static(concat!("afterwrite/", env!("CARGO_PKG_VERSION"))));
        if let Some(token) = &self.options.token {
            let mut bearer = text(&format!("Bearer {token}"))?;
            bearer.set_sensitive(true);
            headers.insert(header::AUTHORIZATION, bearer);
        }
        Ok(request)
    }
}

fn why(fault: super::proxy::upstream::Fault) -> super::proxy::tap::Error {
    use super::proxy::upstream::Fault;
    match fault {
        Fault::NotReached(error) | Fault::Lost(error) => error,
    }
}
