//! Who we are to the catalog: nobody, a bearer token, OAuth2 client credentials, or
//! an AWS signature.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use hyper::Method;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use serde::Deserialize;
use tokio::sync::Mutex;

use super::http::{self, Http, Request};
use super::secret::Secret;
use super::sigv4::Signer;
use super::{answer, wire};
use crate::lake::clock::Clock;

/// Longest answer of a token endpoint.
const LARGEST: usize = 1 << 20;
/// How long before its end a token is renewed, in milliseconds; at most a quarter
/// of its life.
const EARLY_MS: i64 = 60_000;

/// How requests are authenticated.
pub enum Auth {
    /// Not at all.
    None,
    /// By a token that lasts.
    Token(Secret),
    /// By tokens that are had for a credential.
    ClientCredentials(Box<OAuth>),
    /// By a signature.
    Sigv4(Signer),
}

/// Why a request could not be authenticated.
#[derive(Debug)]
pub enum Failure {
    /// The settings or the credential are wrong.
    Refused(String),
    /// The token endpoint does not answer.
    Unreachable(String),
}

impl Auth {
    /// From a catalog's own properties.
    ///
    /// # Errors
    /// A text, for properties that cannot work.
    pub fn open(uri: &str, properties: &BTreeMap<String, String>, http: &Http, clock: Arc<dyn Clock>) -> Result<Self, String> {
        let get = |key: &str| properties.get(key).map(String::as_str);
        let kind = get("rest.auth.type").unwrap_or_default();
        if get("rest.sigv4-enabled").is_some_and(|v| v.eq_ignore_ascii_case("true")) || kind == "sigv4" {
            return Ok(Self::Sigv4(Signer::open(properties, http)?));
        }
        if !["", "none", "oauth2"].contains(&kind) {
            return Err(format!("rest.auth.type `{kind}` is not known: write none, oauth2 or sigv4"));
        }
        Ok(match (get("credential"), get("token")) {
            (Some(credential), _) => Self::ClientCredentials(Box::new(OAuth::open(uri, credential, properties, http, clock)?)),
            (None, Some(token)) => Self::Token(Secret::new(token)),
            (None, None) => Self::None,
        })
    }

    /// Adds what authenticates a request. Done last: a signature covers the rest.
    ///
    /// # Errors
    /// When no token can be had.
    pub async fn apply(&self, request: &mut Request) -> Result<(), Failure> {
        let token = match self {
            Self::None => return Ok(()),
            Self::Sigv4(signer) => return signer.sign(request).await.map_err(Failure::Refused),
            Self::Token(token) => token.clone(),
            Self::ClientCredentials(oauth) => oauth.token().await?,
        };
        request.headers_mut().insert(AUTHORIZATION, bearer(&token)?);
        Ok(())
    }

    /// The credentials of a request were refused. Whether others can be had, so
    /// that the request may be sent again.
    pub async fn refused(&self, request: &Request) -> bool {
        match self {
            Self::ClientCredentials(oauth) => {
                oauth.forget(request).await;
                true
            }
            _ => false,
        }
    }
}

fn bearer(token: &Secret) -> Result<HeaderValue, Failure> {
    let mut value = HeaderValue::from_str(&format!("Bearer {}", token.reveal()))
        .map_err(|_| Failure::Refused("the token holds characters that a header cannot carry".into()))?;
    value.set_sensitive(true);
    Ok(value)
}

/// Client credentials, and the token that was last had for them.
pub struct OAuth {
    address: String,
    form: Secret,
    http: Http,
    clock: Arc<dyn Clock>,
    held: Mutex<Option<Held>>,
}

struct Held {
    token: Secret,
    /// From when on it is renewed, in milliseconds since the epoch.
    renew_ms: i64,
}

#[derive(Deserialize)]
struct Granted {
    access_token: String,
    expires_in: Option<i64>,
}

#[derive(Default, Deserialize)]
struct Denied {
    #[serde(default)]
    error: serde_json::Value,
    #[serde(default)]
    error_description: Option<String>,
}

impl OAuth {
    fn open(
        uri: &str,
        credential: &str,
        properties: &BTreeMap<String, String>,
        http: &Http,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, String> {
        let address = properties.get("oauth2-server-uri").cloned().unwrap_or_else(|| wire::tokens(uri));
        http::request(Method::POST, &address, Bytes::new()).map_err(|why| format!("oauth2-server-uri: {why}"))?;
        Ok(Self { address, form: Secret::new(form(credential, properties)), http: http.clone(), clock, held: Mutex::new(None) })
    }

    /// A token that is not about to end. Callers wait for one that is being had.
    async fn token(&self) -> Result<Secret, Failure> {
        let mut held = self.held.lock().await;
        if let Some(held) = held.as_ref().filter(|h| self.clock.now_ms() < h.renew_ms) {
            return Ok(held.token.clone());
        }
        let fresh = self.ask().await?;
        let token = fresh.token.clone();
        *held = Some(fresh);
        Ok(token)
    }

    /// Forgets the token that a request carried, unless another is held already.
    async fn forget(&self, request: &Request) {
        let mut held = self.held.lock().await;
        let used = request.headers().get(AUTHORIZATION);
        if held.as_ref().and_then(|h| bearer(&h.token).ok()).as_ref() == used {
            *held = None;
        }
    }

    async fn ask(&self) -> Result<Held, Failure> {
        let asked_ms = self.clock.now_ms();
        let mut request =
            http::request(Method::POST, &self.address, Bytes::from(self.form.reveal().to_owned())).map_err(Failure::Refused)?;
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded"));
        let answered = self.http.read(request, LARGEST).await.map_err(|why| Failure::Unreachable(format!("token endpoint: {why}")))?;
        match answered.status {
            200 => {}
            400..=403 => return Err(Failure::Refused(denied(answered.status, &answered.body))),
            status => return Err(Failure::Unreachable(denied(status, &answered.body))),
        }
        let granted: Granted = serde_json::from_slice(&answered.body)
            .map_err(|_| Failure::Unreachable("token endpoint: the answer holds no access_token".into()))?;
        let life_ms = granted.expires_in.map_or(i64::MAX, |seconds| seconds.max(0).saturating_mul(1000));
        let renew_ms = asked_ms.saturating_add(life_ms.saturating_sub(EARLY_MS.min(life_ms / 4)));
        Ok(Held { token: Secret::new(granted.access_token), renew_ms })
    }
}

/// The form of a token request. `credential` is `id:secret`, or a secret alone.
fn form(credential: &str, properties: &BTreeMap<String, String>) -> String {
    let mut pairs = vec![("grant_type", "client_credentials")];
    match credential.split_once(':') {
        Some((id, secret)) => pairs.extend([("client_id", id), ("client_secret", secret)]),
        None => pairs.push(("client_secret", credential)),
    }
    pairs.push(("scope", properties.get("scope").map_or("catalog", String::as_str)));
    for key in ["audience", "resource"] {
        pairs.extend(properties.get(key).map(|value| (key, value.as_str())));
    }
    pairs.iter().map(|(key, value)| format!("{key}={}", wire::encode(value))).collect::<Vec<_>>().join("&")
}

fn denied(status: u16, body: &[u8]) -> String {
    let denied: Denied = serde_json::from_slice(body).unwrap_or_default();
    let why = match (denied.error.as_str(), denied.error_description) {
        (Some(error), Some(text)) => format!("{error}: {text}"),
        (Some(error), None) => error.to_owned(),
        (None, _) => answer::explain(body),
    };
    format!("token endpoint: {status} {why}").trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn properties(set: &[(&str, &str)]) -> BTreeMap<String, String> {
        set.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }

    #[test]
    fn a_credential_is_an_id_and_a_secret_or_a_secret_alone() {
        assert_eq!(form("id:s:e c", &properties(&[])), "grant_type=client_credentials&client_id=id&client_secret=s%3Ae%20c&scope=catalog");
        assert_eq!(
            form("s", &properties(&[("scope", "a b"), ("audience", "x"), ("other", "y")])),
            "grant_type=client_credentials&client_secret=s&scope=a%20b&audience=x"
        );
    }

    #[test]
    fn what_a_token_endpoint_says_is_told() {
        assert_eq!(
            denied(401, br#"{"error":"invalid_client","error_description":"bad secret"}"#),
            "token endpoint: 401 invalid_client: bad secret"
        );
        assert_eq!(denied(400, br#"{"error":{"message":"m","type":"T"}}"#), "token endpoint: 400 T: m");
        assert_eq!(denied(502, b"<html>"), "token endpoint: 502");
    }

    #[tokio::test]
    async fn the_way_is_chosen_by_the_properties() {
        let http = Http::new(http::Patience::of(&BTreeMap::new())).unwrap();
        let open = |set: &[(&str, &str)]| Auth::open("http://h", &properties(set), &http, Arc::new(crate::lake::clock::SystemClock));
        assert!(matches!(open(&[]), Ok(Auth::None)));
        assert!(matches!(open(&[("token", "t")]), Ok(Auth::Token(_))));
        assert!(matches!(open(&[("token", "t"), ("credential", "c")]), Ok(Auth::ClientCredentials(_))));
        assert!(matches!(open(&[("rest.sigv4-enabled", "true"), ("rest.signing-region", "eu-west-1")]), Ok(Auth::Sigv4(_))));
        assert!(open(&[("rest.auth.type", "kerberos")]).is_err_and(|why| why.contains("kerberos")));
        assert!(open(&[("credential", "id:s3cr3t"), ("oauth2-server-uri", "nowhere")]).is_err_and(|why| !why.contains("s3cr3t")));
    }
}
