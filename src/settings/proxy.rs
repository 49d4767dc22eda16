//! The proxy in front of a REST catalog.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use figment::value::Value;
use url::Url;

use super::catalog::Catalog;
use super::section::Section;
use super::server::address;
use super::units;

/// Longest time for which a client may be kept waiting, in milliseconds.
const MOST_DEADLINE_MS: i64 = 600_000;

/// One proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proxy {
    /// Where it listens.
    pub listen: SocketAddr,
    /// What engines would have as `uri` without it.
    pub upstream: String,
    /// Look after commits whose answer leaves their outcome open.
    pub heal: bool,
    /// For how long, in milliseconds.
    pub heal_deadline_ms: i64,
    /// Certificate chain in PEM.
    pub tls_cert: Option<PathBuf>,
    /// Its private key in PEM.
    pub tls_key: Option<PathBuf>,
    /// Listen beyond loopback without TLS.
    pub insecure: bool,
}

impl Proxy {
    /// `uri` and `properties` are the catalog's. `None` when it cannot be told what
    /// stands behind the proxy, which is a mistake.
    pub(super) fn from_section(mut section: Section<'_>, uri: Option<&str>, properties: &BTreeMap<String, String>) -> Option<Self> {
        let listen = section.read("listen", address).unwrap_or(SocketAddr::from(([127, 0, 0, 1], 7413)));
        let written = section.take("upstream");
        let heal = section.read("heal", units::flag).unwrap_or(true);
        let heal_deadline_ms = section.read("heal_deadline", deadline_ms).unwrap_or(30_000);
        let tls_cert = section.read("tls_cert", units::word).map(PathBuf::from);
        let tls_key = section.read("tls_key", units::word).map(PathBuf::from);
        let insecure = section.read("insecure", units::flag).unwrap_or(false);
        match (&tls_cert, &tls_key) {
            (Some(_), None) => section.mistake("tls_key", "tls_cert is set without its key"),
            (None, Some(_)) => section.mistake("tls_cert", "tls_key is set without its certificate"),
            (None, None) if !listen.ip().is_loopback() && !insecure => {
                section.mistake("listen", format!("{listen} can be reached by others: set tls_cert and tls_key, or insecure = true"));
            }
            _ => {}
        }
        let upstream = match (written, uri) {
            (Some(value), _) => upstream(&value),
            (None, Some(uri)) if uri.starts_with("http://") || uri.starts_with("https://") => upstream(&Value::from(uri)),
            (None, _) => Err("is missing: the catalog's own uri is no REST catalog; write for example \"http://catalog:8181\"".into()),
        };
        let upstream = upstream.and_then(|upstream| match signed(&upstream, properties) {
            Some(reason) => Err(reason),
            None => Ok(upstream),
        });
        let upstream = upstream.map_err(|message| section.mistake("upstream", message)).ok();
        section.finish();
        Some(Self { listen, upstream: upstream?, heal, heal_deadline_ms, tls_cert, tls_key, insecure })
    }
}

fn deadline_ms(value: &Value) -> units::Read<i64> {
    match units::some_duration_ms(value)? {
        ms if ms > MOST_DEADLINE_MS => Err(format!("keeps clients waiting for too long: at most {} s", MOST_DEADLINE_MS / 1000)),
        ms => Ok(ms),
    }
}

fn upstream(value: &Value) -> units::Read<String> {
    let written = units::word(value)?;
    let url = Url::parse(&written).map_err(|e| format!("is not a URL ({e}); write for example http://catalog:8181"))?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none_or(str::is_empty) {
        return Err(format!("`{}://…` is not the URL of a REST catalog; write for example http://catalog:8181", url.scheme()));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("holds a user or password: clients send their own, leave it out".into());
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err("has a query or fragment: write only scheme, host, port and path".into());
    }
    Ok(written)
}

/// Why a catalog cannot stand behind a proxy, when its requests are signed by
/// AWS' scheme: the signature covers the host, so that what comes through a
/// proxy is refused.
fn signed(upstream: &str, properties: &BTreeMap<String, String>) -> Option<String> {
    let says = |key: &str, value: &str| properties.get(key).is_some_and(|v| v.eq_ignore_ascii_case(value));
    let host = Url::parse(upstream).ok().and_then(|url| url.host_str().map(str::to_ascii_lowercase)).unwrap_or_default();
    let aws = [".amazonaws.com", ".amazonaws.com.cn", ".api.aws"].iter().any(|end| host.ends_with(end));
    let service = host.split('.').any(|label| matches!(label, "glue" | "glue-fips" | "s3tables" | "s3tables-fips"));
    let named = says("rest.sigv4-enabled", "true") || says("rest.auth.type", "sigv4");
    (named || aws && service).then(|| {
        format!(
            "requests to {host} are signed by AWS' scheme (SigV4): the signature covers the host, so the catalog refuses what comes through a \
             proxy; leave the proxy out, the poller and the hook hear of commits"
        )
    })
}

/// Two proxies cannot have one address.
pub(super) fn check_addresses(section: &mut Section<'_>, catalogs: &BTreeMap<String, Catalog>) {
    let mut taken: BTreeMap<SocketAddr, &str> = BTreeMap::new();
    for (name, catalog) in catalogs {
        let Some(proxy) = catalog.proxy.as_ref().filter(|p| p.listen.port() != 0) else { continue };
        if let Some(other) = taken.insert(proxy.listen, name) {
            section.mistake(&format!("{name}.proxy.listen"), format!("{} is the proxy of catalog `{other}` already", proxy.listen));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::settings::{Proxy, Settings};

    fn read(catalog: &str, proxy: &str) -> Result<Option<Proxy>, Vec<String>> {
        let kind = if catalog.contains("http") { "rest" } else { "sql" };
        let text = format!("[catalog.lake]\ntype = \"{kind}\"\nwarehouse = \"w\"\n{catalog}\n[catalog.lake.proxy]\n{proxy}");
        match Settings::read(&text, []) {
            Ok(settings) => Ok(settings.catalogs["lake"].proxy.clone()),
            Err(error) => {
                Err(error.0.into_iter().map(|m| format!("{}: {}", m.key.trim_start_matches("catalog.lake."), m.message)).collect())
            }
        }
    }

    fn found(catalog: &str, proxy: &str) -> Vec<String> {
        read(catalog, proxy).unwrap_err()
    }

    const SQL: &str = "uri = \"sqlite:///x.db\"";
    const HTTP: &str = "uri = \"http://cat:8181/api\"";

    #[test]
    fn a_proxy_needs_nothing_but_a_rest_catalog() {
        let expected = Proxy {
            listen: "127.0.0.1:7413".parse().unwrap(),
            upstream: "http://cat:8181/api".into(),
            heal: true,
            heal_deadline_ms: 30_000,
            tls_cert: None,
            tls_key: None,
            insecure: false,
        };
        assert_eq!(read(HTTP, "").unwrap(), Some(expected.clone()));
        let other = Proxy { upstream: "https://other".into(), heal: false, heal_deadline_ms: 5_000, ..expected };
        assert_eq!(read(SQL, "upstream = \"https://other\"\nheal = false\nheal-deadline = \"5s\"").unwrap(), Some(other));
        assert_eq!(
            Settings::read("[catalog.lake]\ntype = \"sql\"\nuri = \"sqlite:c.db\"\nwarehouse = \"w\"", []).unwrap().catalogs["lake"].proxy,
            None
        );
    }

    #[test]
    fn every_mistake_is_told_at_once() {
        let mistakes = found(SQL, "listen = \"0.0.0.0:1\"\nheal = 3\nheal_deadline = \"2h\"\ntls = true");
        assert_eq!(
            mistakes,
            [
                "proxy.heal: expected true or false, found `3`",
                "proxy.heal_deadline: keeps clients waiting for too long: at most 600 s",
                "proxy.listen: 0.0.0.0:1 can be reached by others: set tls_cert and tls_key, or insecure = true",
                "proxy.upstream: is missing: the catalog's own uri is no REST catalog; write for example \"http://catalog:8181\"",
                "proxy.tls: unknown key; known here: listen, upstream, heal, heal_deadline, tls_cert, tls_key, insecure",
            ]
        );
        assert_eq!(found(HTTP, "tls_cert = \"c\""), ["proxy.tls_key: tls_cert is set without its key"]);
        assert_eq!(found(HTTP, "tls_key = \"c\""), ["proxy.tls_cert: tls_key is set without its certificate"]);
        assert!(read(HTTP, "listen = \"0.0.0.0:1\"\ninsecure = true").is_ok());
        assert!(read(HTTP, "listen = \"0.0.0.0:1\"\ntls_cert = \"c\"\ntls_key = \"k\"").is_ok());
    }

    #[test]
    fn an_upstream_is_the_url_of_a_rest_catalog() {
        for (url, why) in [
            ("cat", "is not a URL"),
            ("sqlite:///x", "is not the URL of a REST catalog"),
            ("http://u:secret@cat", "clients send their own"),
            ("http://cat/?a=b", "query"),
        ] {
            let mistakes = found(SQL, &format!("upstream = \"{url}\""));
            assert!(mistakes.len() == 1 && mistakes[0].contains(why) && !mistakes[0].contains("secret"), "{mistakes:?}");
        }
    }

    #[test]
    fn a_catalog_whose_requests_are_signed_is_refused_with_the_reason() {
        let signed = |catalog: &str, url: &str| {
            read(catalog, &format!("upstream = \"{url}\"")).is_err_and(|m| m.len() == 1 && m[0].contains("the signature covers the host"))
        };
        for url in [
            "https://glue.eu-central-1.amazonaws.com/iceberg",
            "https://s3tables.us-east-1.amazonaws.com/iceberg",
            "https://vpce-1.glue.us-east-1.vpce.amazonaws.com/iceberg",
            "https://glue.cn-north-1.amazonaws.com.cn/iceberg",
        ] {
            assert!(signed(SQL, url), "{url}");
        }
        // a catalog of one's own behind a load balancer
        for url in ["https://lb-1.eu-central-1.elb.amazonaws.com", "https://glue.example.com", "http://127.0.0.1:8181"] {
            assert!(!signed(SQL, url), "{url}");
        }
        assert!(signed(&format!("{SQL}\nrest.sigv4-enabled = true"), "http://cat"));
        assert!(signed(&format!("{SQL}\n\"rest.auth.type\" = \"sigv4\""), "http://cat"));
        assert!(!signed(&format!("{SQL}\n\"rest.auth.type\" = \"oauth2\""), "http://cat"));
    }

    #[test]
    fn two_proxies_have_two_addresses() {
        let two = |listen: &str| {
            let one = |name: &str| {
                format!("[catalog.{name}]\ntype = \"rest\"\nuri = \"http://{name}\"\nwarehouse = \"w\"\nproxy.listen = \"{listen}\"\n")
            };
            Settings::read(&format!("{}{}", one("a"), one("b")), [])
        };
        assert!(two("127.0.0.1:0").is_ok());
        let mistakes = two("127.0.0.1:9").unwrap_err().0;
        assert_eq!(mistakes.len(), 1);
        assert_eq!(
            (mistakes[0].key.as_str(), mistakes[0].message.as_str()),
            ("catalog.b.proxy.listen", "127.0.0.1:9 is the proxy of catalog `a` already")
        );
    }

    #[test]
    fn the_environment_reaches_it() {
        let set = [("AFTERWRITE_CATALOG__LAKE__PROXY__HEAL_DEADLINE".to_string(), "7s".to_string())];
        let text = format!("[catalog.lake]\ntype = \"rest\"\nwarehouse = \"w\"\n{HTTP}");
        let settings = Settings::read(&text, set).unwrap();
        assert_eq!(settings.catalogs["lake"].proxy.as_ref().map(|p| p.heal_deadline_ms), Some(7_000));
    }
}
