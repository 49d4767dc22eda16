//! The upstream catalog's base URL.

use hyper::http::uri::{Authority, PathAndQuery, Scheme, Uri};

/// Where the upstream catalog is: what clients would have as their `uri` without
/// the proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Base {
    /// Speaks TLS.
    pub tls: bool,
    /// Host and port as they stand in the URL.
    pub authority: Authority,
    /// The path, without a slash at its end.
    pub path: String,
}

impl Base {
    /// Reads `http://host:port/path`.
    ///
    /// # Errors
    /// Says what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = |why: &str| format!("`{text}` {why}; write for example http://catalog.internal:8181");
        let uri: Uri = text.trim().parse().map_err(|_| wrong("is not a URL"))?;
        let tls = match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTP => false,
            Some(scheme) if *scheme == Scheme::HTTPS => true,
            _ => return Err(wrong("is neither http nor https")),
        };
        if uri.query().is_some() || text.contains('#') {
            return Err(wrong("has a query or fragment"));
        }
        match uri.authority() {
            Some(authority) if authority.as_str().contains('@') => {
                Err("holds a user or password: clients send their own, leave it out".into())
            }
            Some(authority) if !authority.host().is_empty() => {
                Ok(Self { tls, authority: authority.clone(), path: uri.path().trim_end_matches('/').to_owned() })
            }
            _ => Err(wrong("names no host")),
        }
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.authority.port_u16().unwrap_or(if self.tls { 443 } else { 80 })
    }

    /// The host as a name or address, without brackets.
    pub fn host(&self) -> &str {
        self.authority.host().trim_start_matches('[').trim_end_matches(']')
    }

    /// A request target with the base's path before it; every byte of it stays.
    ///
    /// # Errors
    /// When they make no target together.
    pub fn target(&self, target: &PathAndQuery) -> Result<Uri, hyper::http::Error> {
        if self.path.is_empty() {
            return Uri::builder().path_and_query(target.clone()).build();
        }
        Uri::builder().path_and_query(format!("{}{}", self.path, target.as_str())).build()
    }

    /// What follows the base in a URL that names this catalog: one of the same
    /// origin at or below the base's path, or one of another origin (the catalog's
    /// public name) with just the base's path.
    pub fn below(&self, url: &str) -> Option<String> {
        let (scheme, rest) = url.split_once("://")?;
        if rest.contains('?') || rest.contains('#') || !matches!(scheme.to_ascii_lowercase().as_str(), "http" | "https") {
            return None;
        }
        let other = Self::parse(url).ok()?;
        let path = rest.find('/').and_then(|at| rest.get(at..)).unwrap_or_default();
        let same_origin = other.tls == self.tls && other.port() == self.port() && other.host().eq_ignore_ascii_case(self.host());
        let after = self.after(path)?;
        (same_origin || matches!(after, "" | "/")).then(|| after.to_owned())
    }

    /// What follows the base's path in a path at or below it.
    pub fn after<'p>(&self, path: &'p str) -> Option<&'p str> {
        path.strip_prefix(self.path.as_str()).filter(|after| after.is_empty() || after.starts_with('/'))
    }

    /// As a text.
    pub fn url(&self) -> String {
        format!("{}://{}{}", if self.tls { "https" } else { "http" }, self.authority, self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_is_an_http_url_and_nothing_more() {
        let base = Base::parse("https://cat.example/api/catalog/").unwrap();
        assert_eq!((base.tls, base.host(), base.port(), base.path.as_str()), (true, "cat.example", 443, "/api/catalog"));
        let six = Base::parse("http://[::1]:8181").unwrap();
        assert_eq!((six.tls, six.host(), six.port(), six.path.as_str()), (false, "::1", 8181, ""));
        for (text, why) in [
            ("cat:8181", "neither"),
            ("ftp://cat", "neither"),
            ("http://", "URL"),
            ("http://a b", "URL"),
            ("http://u:p@cat", "password"),
            ("http://cat/?x=1", "query"),
            ("sqlite:///x.db", "URL"),
        ] {
            let error = Base::parse(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
            assert!(!error.contains("u:p"), "{error}");
        }
    }

    #[test]
    fn a_target_keeps_every_byte() {
        let bare = Base::parse("http://cat").unwrap();
        let deep = Base::parse("http://cat/api").unwrap();
        for target in ["/v1/namespaces/a%1Fb/tables/t+x%20%2f%25?snapshots=all&x=%zz", "//v1/../x//", "/?", "/a?b?c", "/ü"] {
            let parsed: PathAndQuery = target.parse().unwrap();
            assert_eq!(bare.target(&parsed).unwrap().to_string(), target);
            assert_eq!(deep.target(&parsed).unwrap().to_string(), format!("/api{target}"));
        }
    }
}
