//! The config answer: `uri` in it sends clients around the proxy, so it is made
//! to name the proxy. Everything else stays, token services above all.

use serde_json::Value;

use super::base::Base;

/// What became of a config answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Read {
    /// The body to send instead, when something was rewritten.
    pub body: Option<Vec<u8>>,
    /// What was rewritten, or could not be, for the log.
    pub notes: Vec<Note>,
    /// `namespace-separator`, when it is named.
    pub separator: Option<String>,
    /// Whether a request is known again by its key; `None`: it is no config answer.
    pub knows_keys: Option<bool>,
}

/// Something said about one `uri`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// It named the catalog and names the proxy now.
    Rewritten {
        /// The key.
        key: &'static str,
        /// What it was.
        from: String,
        /// What it is.
        to: String,
    },
    /// It names a place that is not behind this proxy: clients that obey it are
    /// not heard here any more.
    Elsewhere {
        /// The key.
        key: &'static str,
        /// What it is.
        uri: String,
    },
}

/// Reads a config answer and rewrites it where a `uri` names the catalog
/// `upstream`. `own` is the origin under which the client reached the proxy.
/// A `uri` of that origin was made by the catalog from what the proxy forwarded:
/// its path is the catalog's own, and must lose what the proxy puts before every
/// path. What is not a config answer stays as it is.
pub fn rewrite(body: &[u8], upstream: &Base, own: &str) -> Read {
    let mut read = Read::default();
    let Ok(mut value) = serde_json::from_slice::<Value>(body) else { return read };
    if value.is_object() {
        let lifetime = value.get("idempotency-key-lifetime").and_then(Value::as_str);
        read.knows_keys = Some(lifetime.is_some_and(|lifetime| !lifetime.is_empty()));
    }
    for (section, key) in [("defaults", "defaults.uri"), ("overrides", "overrides.uri")] {
        let Some(values) = value.get_mut(section).and_then(Value::as_object_mut) else { continue };
        if let Some(separator) = values.get("namespace-separator").and_then(Value::as_str) {
            read.separator = Some(separator.to_owned());
        }
        let Some(Value::String(uri)) = values.get_mut("uri") else { continue };
        let rest = match path_at(uri, own) {
            _ if uri.is_empty() => continue,
            Some("" | "/") => continue,
            Some(_) if upstream.path.is_empty() => continue,
            Some(path) => upstream.after(path).map(str::to_owned),
            None => upstream.below(uri),
        };
        match rest {
            None => read.notes.push(Note::Elsewhere { key, uri: uri.clone() }),
            Some(rest) => {
                let to = format!("{own}{rest}");
                read.notes.push(Note::Rewritten { key, from: std::mem::replace(uri, to.clone()), to });
            }
        }
    }
    if read.notes.iter().any(|n| matches!(n, Note::Rewritten { .. })) {
        read.body = serde_json::to_vec(&value).ok();
    }
    read
}

/// The path of a URL of this origin.
fn path_at<'u>(uri: &'u str, origin: &str) -> Option<&'u str> {
    uri.strip_prefix(origin).filter(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(upstream: &str, body: &Value) -> Read {
        rewrite(body.to_string().as_bytes(), &Base::parse(upstream).unwrap(), "http://proxy:7413")
    }

    /// A config answer that changes nothing.
    fn silent() -> Read {
        Read { knows_keys: Some(false), ..Read::default() }
    }

    fn overridden(upstream: &str, uri: &str) -> Option<String> {
        let read = read(upstream, &json!({"overrides": {"uri": uri}}));
        let body: Value = serde_json::from_slice(&read.body?).unwrap();
        Some(body["overrides"]["uri"].as_str().unwrap().to_owned())
    }

    #[test]
    fn a_uri_that_names_the_catalog_names_the_proxy() {
        for (upstream, uri, expected) in [
            ("http://cat:8181", "http://cat:8181", "http://proxy:7413"),
            ("http://cat:8181", "http://CAT:8181/", "http://proxy:7413/"),
            ("http://cat:8181", "http://cat:8181/lake/one", "http://proxy:7413/lake/one"),
            ("http://cat:8181/catalog/", "http://cat:8181/catalog", "http://proxy:7413"),
            ("http://cat:8181/catalog", "http://cat:8181/catalog/x", "http://proxy:7413/x"),
            ("https://cat/catalog", "https://cat:443/catalog", "http://proxy:7413"),
            // the same catalog under its public name
            ("http://cat:8181/catalog", "https://public.example/catalog/", "http://proxy:7413/"),
            // made by the catalog from what the proxy forwarded
            ("http://cat:8181/catalog", "http://proxy:7413/catalog", "http://proxy:7413"),
            ("http://cat:8181/catalog", "http://proxy:7413/catalog/x", "http://proxy:7413/x"),
        ] {
            assert_eq!(overridden(upstream, uri).as_deref(), Some(expected), "{upstream} {uri}");
        }
    }

    #[test]
    fn behind_a_proxy_that_takes_a_prefix_away_the_uri_has_it_again() {
        let at = |upstream: &str, uri: &str| {
            let body = json!({"overrides": {"uri": uri}}).to_string();
            let read = rewrite(body.as_bytes(), &Base::parse(upstream).unwrap(), "https://front/lake");
            read.body.map(|body| serde_json::from_slice::<Value>(&body).unwrap()["overrides"]["uri"].as_str().unwrap().to_owned())
        };
        for (upstream, uri) in [
            ("http://cat:8181", "http://cat:8181"),
            ("http://cat:8181/catalog", "http://cat:8181/catalog"),
            // made by a catalog that heeds the prefix, and by one that does not
            ("http://cat:8181/catalog", "https://front/lake/catalog"),
            ("http://cat:8181/catalog", "https://front/catalog"),
            ("http://cat:8181", "https://front"),
        ] {
            assert_eq!(at(upstream, uri).as_deref(), Some("https://front/lake"), "{upstream} {uri}");
        }
        assert_eq!(at("http://cat:8181", "https://front/lake/"), None, "it is right as it is");
    }

    #[test]
    fn a_uri_that_names_another_place_is_left_and_said() {
        for (upstream, uri) in [
            ("http://cat:8181/catalog", "http://cat:8181/other"),
            ("http://cat:8181/catalog", "http://cat:8181/catalogue"),
            ("http://cat:8181/catalog", "https://public.example/elsewhere"),
            ("http://cat:8181", "https://public.example/elsewhere"),
            ("http://cat:8181/catalog", "http://proxy:7413/catalogue"),
            ("http://cat:8181", "not a uri"),
        ] {
            let read = read(upstream, &json!({"overrides": {"uri": uri}}));
            assert_eq!(read, Read { notes: vec![Note::Elsewhere { key: "overrides.uri", uri: uri.into() }], ..silent() });
        }
    }

    #[test]
    fn everything_but_uri_stays() {
        let answer = json!({"defaults": {"uri": "http://cat:8181/a", "clients": "4"}, "endpoints": ["GET /v1/{prefix}/namespaces"],
            "overrides": {"uri": "http://cat:8181/b", "prefix": "p", "oauth2-server-uri": "http://cat:8181/oauth", "namespace-separator": "%2E"}});
        let read = read("http://cat:8181", &answer);
        let mut expected = answer;
        expected["defaults"]["uri"] = "http://proxy:7413/a".into();
        expected["overrides"]["uri"] = "http://proxy:7413/b".into();
        assert_eq!(serde_json::from_slice::<Value>(&read.body.unwrap()).unwrap(), expected);
        assert_eq!(read.separator.as_deref(), Some("%2E"));
        assert_eq!(read.notes.len(), 2);
    }

    #[test]
    fn what_needs_no_change_is_not_touched() {
        for body in
            [json!({"overrides": {}, "defaults": {}}), json!({"overrides": {"uri": "http://proxy:7413/x"}}), json!({"overrides": 3})]
        {
            assert_eq!(read("http://cat:8181", &body), silent(), "{body}");
        }
        assert_eq!(read("http://cat:8181", &json!([1])), Read::default());
        for own in ["http://proxy:7413", "http://proxy:7413/"] {
            let body = json!({"overrides": {"uri": own}});
            assert_eq!(read("http://cat:8181/catalog", &body), silent(), "{own}");
        }
        assert_eq!(rewrite(b"{", &Base::parse("http://cat").unwrap(), "http://p"), Read::default());
    }

    #[test]
    fn a_lifetime_of_keys_is_a_promise() {
        for (body, promised) in [
            (json!({"idempotency-key-lifetime": "PT30M"}), true),
            (json!({"idempotency-key-lifetime": ""}), false),
            (json!({"idempotency-key-lifetime": null}), false),
            (json!({"overrides": {"idempotency-key-lifetime": "PT30M"}}), false),
        ] {
            assert_eq!(read("http://cat", &body).knows_keys, Some(promised), "{body}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..200), uri in "\\PC{0,40}") {
            let base = Base::parse("http://cat/x").unwrap();
            rewrite(&bytes, &base, "http://p");
            rewrite(json!({"overrides": {"uri": uri}}).to_string().as_bytes(), &base, "http://p");
        }
    }
}
