//! Requests that may be sent again: everything but a commit.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, header};
use serde::de::DeserializeOwned;

use super::answer;
use super::auth::{Auth, Failure};
use super::http::{self, Http, Request, Response};
use crate::lake::clock::{Chance, Clock};
use crate::lake::{Error, Result};

/// Tries of one read.
const TRIES: u32 = 4;
/// First wait between two tries; it doubles.
const WAIT: Duration = Duration::from_millis(200);
/// A catalog that asks for more is left alone until the next look.
const LONGEST_WAIT: Duration = Duration::from_secs(15);

/// Speaks to one catalog as one client.
pub struct Client {
    /// The configured name, for errors.
    pub name: String,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Spreads waits.
    pub chance: Arc<dyn Chance>,
    /// Connections.
    pub http: Http,
    /// Credentials.
    pub auth: Auth,
    /// Sent with every request.
    pub headers: HeaderMap,
}

/// How a request went.
pub enum Went {
    /// Answered with success, or with 304.
    Answered(Response),
    /// The catalog says that there is no such thing.
    Missing(String),
}

/// One try of a read.
enum Tried {
    Done(Went),
    /// Another try may help, after this wait if the catalog named one.
    Again(String, Option<Duration>),
}

impl Client {
    /// Something read as JSON. `None` when the catalog has no such thing.
    ///
    /// # Errors
    /// [`Error::Unreachable`] when there is no usable answer, [`Error::Setup`] when
    /// the catalog says no.
    pub async fn get<T: DeserializeOwned>(&self, address: &str, limit: usize) -> Result<Option<T>> {
        match self.call(Method::GET, address, Bytes::new(), HeaderMap::new(), limit).await? {
            Went::Answered(answered) => self.parse(address, &answered.body).map(Some),
            Went::Missing(_) => Ok(None),
        }
    }

    /// A body as JSON.
    ///
    /// # Errors
    /// [`Error::Unreachable`]: what is cut or garbled may be whole the next time.
    pub fn parse<T: DeserializeOwned>(&self, address: &str, body: &[u8]) -> Result<T> {
        serde_json::from_slice(body).map_err(|e| self.unreachable(address, format!("the answer cannot be read: {e}")))
    }

    /// Sends a request until it is answered, a few times at most.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub async fn call(&self, method: Method, address: &str, body: Bytes, extra: HeaderMap, limit: usize) -> Result<Went> {
        let mut wait = WAIT;
        let mut tries = 1;
        loop {
            let (why, asked) = match self.once(&method, address, &body, &extra, limit).await? {
                Tried::Done(went) => return Ok(went),
                Tried::Again(why, asked) => (why, asked),
            };
            if tries >= TRIES || asked.is_some_and(|asked| asked > LONGEST_WAIT) {
                return Err(self.unreachable(address, why));
            }
            let spread = Duration::from_millis(self.chance.next() % 100);
            self.clock.sleep(asked.unwrap_or(wait) + spread).await;
            wait = (wait * 2).min(LONGEST_WAIT);
            tries += 1;
        }
    }

    async fn once(&self, method: &Method, address: &str, body: &Bytes, extra: &HeaderMap, limit: usize) -> Result<Tried> {
        let mut renewed = false;
        loop {
            let request = self.request(method.clone(), address, body.clone(), extra).await?;
            let sent = copy(&request);
            let answered = match self.http.read(request, limit).await {
                Ok(answered) => answered,
                Err(why) => return Ok(Tried::Again(why, None)),
            };
            match answered.status {
                200..=299 | 304 => return Ok(Tried::Done(Went::Answered(answered))),
                404 if is_catalogs(&answered.body) => return Ok(Tried::Done(Went::Missing(answer::explain(&answered.body)))),
                401 | 419 if !renewed && self.auth.refused(&sent).await => renewed = true,
                404 | 408 | 429 | 500..=599 => return Ok(Tried::Again(told(&answered), retry_after(&answered))),
                300..=399 => {
                    let to = shown(answered.header("location").unwrap_or_default());
                    let why = format!("the catalog redirects to {to}, which is not followed: write that address as uri if it is right");
                    return Err(self.setup(address, why));
                }
                _ => return Err(self.setup(address, told(&answered))),
            }
        }
    }

    /// A request with all its headers, ready to be sent.
    ///
    /// # Errors
    /// When it cannot be authenticated. Nothing was sent to the catalog.
    pub async fn request(&self, method: Method, address: &str, body: Bytes, extra: &HeaderMap) -> Result<Request> {
        let has_body = !body.is_empty();
        let mut request = http::request(method, address, body).map_err(|why| self.setup(address, why))?;
        let headers = request.headers_mut();
        if has_body {
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
        for (name, value) in self.headers.iter().chain(extra) {
            headers.insert(name.clone(), value.clone());
        }
        match self.auth.apply(&mut request).await {
            Ok(()) => Ok(request),
            Err(Failure::Refused(why)) => Err(self.setup(address, why)),
            Err(Failure::Unreachable(why)) => Err(self.unreachable(address, why)),
        }
    }

    /// The catalog does not answer.
    pub fn unreachable(&self, address: &str, why: String) -> Error {
        Error::unreachable(format!("catalog `{}`: {}", self.name, shown(address)), anyhow::anyhow!(why))
    }

    /// The catalog, or its settings, say no.
    pub fn setup(&self, address: &str, why: String) -> Error {
        Error::Setup(format!("catalog `{}`: {}: {why}", self.name, shown(address)))
    }
}

/// A request once more, to send it again or to tell what it carried.
pub fn copy(request: &Request) -> Request {
    let mut copy = Request::new(request.body().clone());
    copy.method_mut().clone_from(request.method());
    copy.uri_mut().clone_from(request.uri());
    copy.headers_mut().clone_from(request.headers());
    copy
}

/// Whether an error body is of the protocol, and not of something in between.
fn is_catalogs(body: &[u8]) -> bool {
    !answer::explain(body).is_empty()
}

fn told(answered: &Response) -> String {
    format!("{} {}", answered.status, answer::explain(&answered.body)).trim_end().to_owned()
}

/// The wait that a catalog asks for, in whole seconds; dates are passed over.
fn retry_after(answered: &Response) -> Option<Duration> {
    answered.header("retry-after")?.trim().parse().ok().map(Duration::from_secs)
}

/// An address without what may be secret in it.
fn shown(address: &str) -> &str {
    let address = address.split_once('?').map_or(address, |(path, _)| path);
    match address.split_once("://") {
        Some((_, rest)) if rest.split('/').next().is_some_and(|authority| authority.contains('@')) => {
            rest.split_once('@').map_or(rest, |(_, host)| host)
        }
        _ => address,
    }
}

/// The headers that the settings name: `header.X` is sent as `X`.
///
/// # Errors
/// A text, for what cannot be a header. A value is never shown.
pub fn headers(properties: &std::collections::BTreeMap<String, String>) -> std::result::Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    for (key, value) in properties {
        let Some(name) = key.strip_prefix("header.") else { continue };
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| format!("{key}: `{name}` cannot be a header's name"))?;
        let mut value = HeaderValue::from_str(value).map_err(|_| format!("{key}: the value cannot be a header's"))?;
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_shown_without_query_and_user() {
        assert_eq!(shown("http://h/v1/config?warehouse=x"), "http://h/v1/config");
        assert_eq!(shown("http://u:p@h/v1"), "h/v1");
        assert_eq!(shown("http://h/a@b"), "http://h/a@b");
    }

    #[test]
    fn headers_are_named_in_the_settings_and_never_shown() {
        let set = |k: &str, v: &str| headers(&[(k.to_owned(), v.to_owned())].into());
        assert_eq!(set("header.X-Realm", "r").unwrap()["x-realm"], "r");
        assert!(!format!("{:?}", set("header.X-Key", "s3cr3t").unwrap()).contains("s3cr3t"));
        assert!(set("header.x", "s3cr3t\n").is_err_and(|why| !why.contains("s3cr3t")));
        assert!(set("header.a b", "x").is_err());
        assert!(set("other", "x").unwrap().is_empty());
    }
}
