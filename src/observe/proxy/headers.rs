//! What changes in the headers on the way: hop-by-hop ones end here, the host is
//! upstream's, and `X-Forwarded-*` say who asked. Everything else passes.

use std::net::SocketAddr;

use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};

use super::base::Base;

/// Headers that speak of one connection only. `Proxy-Authorization` is not
/// among them: authentication is passed through.
const HOP: [&str; 7] = ["connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"];

/// Removes what speaks of one connection only. A length beside a transfer coding
/// does not count: two readers of it would disagree where the message ends.
pub fn strip(headers: &mut HeaderMap) {
    if headers.contains_key(header::TRANSFER_ENCODING) {
        headers.remove(header::CONTENT_LENGTH);
    }
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in named.iter().filter(|n| **n != header::AUTHORIZATION && **n != header::HOST) {
        headers.remove(name);
    }
    for name in HOP {
        headers.remove(name);
    }
}

/// Who asked, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The client's address.
    pub peer: SocketAddr,
    /// The proxy's own address.
    pub local: SocketAddr,
    /// The client speaks TLS to us.
    pub tls: bool,
}

impl Asked {
    fn scheme(&self) -> &'static str {
        if self.tls { "https" } else { "http" }
    }

    /// What the client has before every path of the catalog: the origin under which it
    /// reached us, or an earlier proxy that says so, and the prefix that one took away.
    /// Upstream is told all of it too.
    pub fn origin(&self, headers: &HeaderMap) -> String {
        let prefix = said(headers, "x-forwarded-prefix").filter(|prefix| prefix.starts_with('/')).unwrap_or_default();
        format!("{}{}", self.host(headers), prefix.trim_end_matches('/'))
    }

    fn host(&self, headers: &HeaderMap) -> String {
        let scheme = said(headers, "x-forwarded-proto").filter(|s| matches!(*s, "http" | "https")).unwrap_or(self.scheme());
        let Some(host) = said(headers, "x-forwarded-host").or_else(|| said(headers, "host")) else {
            return format!("{scheme}://{}", self.local);
        };
        let port = said(headers, "x-forwarded-port").and_then(|p| p.parse::<u16>().ok());
        match port.filter(|port| named_port(host).is_none() && *port != port_of(host, scheme == "https")) {
            Some(port) => format!("{scheme}://{host}:{port}"),
            None => format!("{scheme}://{host}"),
        }
    }
}

/// The first value of a header that every proxy on the way may add to.
fn said<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let first = headers.get(name)?.to_str().ok()?.split(',').next()?.trim();
    Some(first).filter(|value| !value.is_empty())
}

/// Makes a client's headers those of the request to upstream. An earlier proxy's
/// `X-Forwarded-*` stay; the client's address is added to `X-Forwarded-For`.
pub fn to_upstream(headers: &mut HeaderMap, asked: &Asked, base: &Base) {
    strip(headers);
    let host = headers.get(header::HOST).cloned();
    let forwarded = |name: &'static str| HeaderName::from_static(name);
    if let Some(host) = &host {
        headers.entry(forwarded("x-forwarded-host")).or_insert_with(|| host.clone());
    }
    headers.entry(forwarded("x-forwarded-proto")).or_insert(HeaderValue::from_static(asked.scheme()));
    let port = host.as_ref().and_then(|h| h.to_str().ok()).map_or(asked.local.port(), |h| port_of(h, asked.tls));
    headers.entry(forwarded("x-forwarded-port")).or_insert(HeaderValue::from(port));
    let peer = asked.peer.ip().to_canonical().to_string();
    let before: Vec<&str> = headers.get_all("x-forwarded-for").iter().filter_map(|v| v.to_str().ok()).collect();
    let chain = if before.is_empty() { peer } else { format!("{}, {peer}", before.join(", ")) };
    if let Ok(chain) = HeaderValue::try_from(chain) {
        headers.insert(forwarded("x-forwarded-for"), chain);
    }
    if let Ok(authority) = HeaderValue::from_str(base.authority.as_str()) {
        headers.insert(header::HOST, authority);
    }
}

fn port_of(host: &str, tls: bool) -> u16 {
    named_port(host).unwrap_or(if tls { 443 } else { 80 })
}

/// The port that a host is written with.
fn named_port(host: &str) -> Option<u16> {
    match host.rsplit_once(':') {
        Some((before, port)) if !before.contains(':') || before.ends_with(']') => port.parse().ok(),
        _ => None,
    }
}

/// Has the answer packed in nothing that cannot be read here: what a refusal says decides
/// whether the client may hear it.
pub fn readable(headers: &mut HeaderMap) {
    let listed = headers.get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(','));
    let takes_gzip = |coding: &str| {
        let (name, weight) = coding.split_once(';').unwrap_or((coding, ""));
        let is_refused = weight.trim().strip_prefix("q=").and_then(|q| q.trim().parse::<f32>().ok()) == Some(0.0);
        name.trim().eq_ignore_ascii_case("gzip") && !is_refused
    };
    let gzip = listed.into_iter().any(takes_gzip);
    headers.remove(header::ACCEPT_ENCODING);
    if gzip {
        headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
    }
}

/// The client's headers for a question of our own about a table: its
/// authentication, and nothing that belongs to its request's body or would have
/// credentials vended. A cache on the way is to ask the catalog itself.
pub fn for_look(headers: &HeaderMap) -> HeaderMap {
    let mut mine = headers.clone();
    let not_ours = [
        "accept-encoding",
        "content-length",
        "content-type",
        "content-encoding",
        "expect",
        "idempotency-key",
        "if-match",
        "if-modified-since",
        "if-none-match",
        "if-unmodified-since",
        "range",
        "x-iceberg-access-delegation",
    ];
    for name in not_ours {
        mine.remove(name);
    }
    mine.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
    mine.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    mine
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> HeaderMap {
        pairs.iter().map(|(k, v)| (k.parse::<HeaderName>().unwrap(), HeaderValue::from_str(v).unwrap())).collect()
    }

    fn asked() -> Asked {
        Asked { peer: "10.0.0.9:1".parse().unwrap(), local: "127.0.0.1:7413".parse().unwrap(), tls: false }
    }

    fn sent(pairs: &[(&str, &str)]) -> Vec<String> {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(name.parse::<HeaderName>().unwrap(), HeaderValue::from_str(value).unwrap());
        }
        to_upstream(&mut headers, &asked(), &Base::parse("http://cat:8181/x").unwrap());
        let mut lines: Vec<String> = headers.iter().map(|(k, v)| format!("{k}: {}", v.to_str().unwrap())).collect();
        lines.sort();
        lines
    }

    #[test]
    fn the_host_is_upstreams_and_who_asked_is_said() {
        let expected =
            ["host: cat:8181", "x-forwarded-for: 10.0.0.9", "x-forwarded-host: p:99", "x-forwarded-port: 99", "x-forwarded-proto: http"];
        assert_eq!(sent(&[("host", "p:99")]), expected);
        let behind = sent(&[
            ("host", "p"),
            ("x-forwarded-host", "front"),
            ("x-forwarded-proto", "https"),
            ("x-forwarded-port", "443"),
            ("x-forwarded-for", "1.2.3.4"),
        ]);
        let expected = [
            "host: cat:8181",
            "x-forwarded-for: 1.2.3.4, 10.0.0.9",
            "x-forwarded-host: front",
            "x-forwarded-port: 443",
            "x-forwarded-proto: https",
        ];
        assert_eq!(behind, expected);
    }

    #[test]
    fn hop_by_hop_headers_end_here_and_no_other() {
        let lines = sent(&[
            ("host", "p:99"),
            ("connection", "keep-alive, X-Mine, authorization"),
            ("x-mine", "1"),
            ("keep-alive", "timeout=5"),
            ("te", "trailers"),
            ("transfer-encoding", "chunked"),
            ("content-length", "7"),
            ("upgrade", "h2c"),
            ("authorization", "Bearer s3cret"),
            ("proxy-authorization", "Basic x"),
            ("cookie", "a=1"),
            ("x-double", "1"),
            ("x-double", "2"),
        ]);
        let rest: Vec<&str> =
            lines.iter().map(String::as_str).filter(|l| !l.starts_with("x-forwarded") && !l.starts_with("host")).collect();
        assert_eq!(rest, ["authorization: Bearer s3cret", "cookie: a=1", "proxy-authorization: Basic x", "x-double: 1", "x-double: 2"]);
    }

    #[test]
    fn a_look_carries_the_clients_authentication_and_not_its_request() {
        let headers = map(&[
            ("authorization", "Bearer s3cret"),
            ("x-client-version", "1"),
            ("idempotency-key", "k"),
            ("content-length", "9"),
            ("accept-encoding", "gzip"),
            ("x-iceberg-access-delegation", "vended-credentials"),
        ]);
        let mut names: Vec<String> = for_look(&headers).keys().map(ToString::to_string).collect();
        names.sort();
        assert_eq!(names, ["accept", "authorization", "cache-control", "x-client-version"]);
    }

    #[test]
    fn a_commits_answer_is_asked_for_in_what_can_be_read() {
        let asked = |accepts: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in accepts {
                headers.append(header::ACCEPT_ENCODING, value.parse().unwrap());
            }
            readable(&mut headers);
            headers.get(header::ACCEPT_ENCODING).map(|value| value.to_str().unwrap().to_owned())
        };
        for gzip in [&["gzip"][..], &["br, GZip;q=0.5, zstd"], &["br", "deflate,gzip"]] {
            assert_eq!(asked(gzip).as_deref(), Some("gzip"), "{gzip:?}");
        }
        for none in [&[][..], &["br, zstd, xz"], &["gzip;q=0, br"], &["*"], &[""]] {
            assert_eq!(asked(none), None, "{none:?}");
        }
    }

    #[test]
    fn the_origin_is_what_the_client_called_us() {
        assert_eq!(asked().origin(&map(&[("host", "p:99")])), "http://p:99");
        assert_eq!(Asked { tls: true, ..asked() }.origin(&map(&[])), "https://127.0.0.1:7413");
        let behind = |pairs: &[(&str, &str)]| asked().origin(&map(pairs));
        let front = [("host", "p:99"), ("x-forwarded-host", "front, inner"), ("x-forwarded-proto", "https")];
        assert_eq!(behind(&front), "https://front");
        assert_eq!(behind(&[front[0], front[1], front[2], ("x-forwarded-port", "8443")]), "https://front:8443");
        assert_eq!(behind(&[front[0], front[1], front[2], ("x-forwarded-port", "443")]), "https://front");
        assert_eq!(behind(&[("host", "p:99"), ("x-forwarded-proto", "gopher")]), "http://p:99");
        assert_eq!(behind(&[front[0], front[1], front[2], ("x-forwarded-prefix", "/iceberg/, /x")]), "https://front/iceberg");
        assert_eq!(behind(&[("host", "p:99"), ("x-forwarded-prefix", "/")]), "http://p:99");
        assert_eq!(behind(&[("host", "p:99"), ("x-forwarded-prefix", "evil.example")]), "http://p:99");
        assert_eq!((port_of("p", true), port_of("[::1]:5", false), port_of("[::1]", false)), (443, 5, 80));
    }
}
