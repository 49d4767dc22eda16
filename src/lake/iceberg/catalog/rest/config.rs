//! What the catalog tells its clients: properties, prefix, endpoints.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use super::wire::Paths;

/// The answer to `GET /v1/config`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Answer {
    /// Below the client's own properties.
    #[serde(default)]
    pub defaults: BTreeMap<String, Option<String>>,
    /// Above them.
    #[serde(default)]
    pub overrides: BTreeMap<String, Option<String>>,
    /// What the catalog can do; absent in older ones.
    pub endpoints: Option<Vec<String>>,
    /// For how long a key makes a repeated commit the same one.
    pub idempotency_key_lifetime: Option<String>,
}

/// What holds for one catalog.
#[derive(Clone)]
pub struct Config {
    /// Where everything lies.
    pub paths: Paths,
    /// Defaults, the client's own, overrides: later ones win.
    pub properties: BTreeMap<String, String>,
    /// Whether a commit may carry an idempotency key.
    pub idempotent: bool,
    /// Names a page of a listing may hold.
    pub page_size: Option<u32>,
    /// What the catalog says it can do; `None` when it does not say.
    endpoints: Option<BTreeSet<String>>,
    /// Another address that the catalog sends its clients to. It is not followed:
    /// credentials go where the settings say and nowhere else.
    pub elsewhere: Option<String>,
}

/// Properties that say where credentials go and which they are: the catalog does
/// not choose them.
const OURS: &[&str] = &["uri", "warehouse", "credential", "token", "oauth2-server-uri"];

/// How the catalog lists the endpoint of a table's storage credentials.
const VENDED_CREDENTIALS: &str = "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}/credentials";

impl Config {
    /// Merges the client's own properties with the catalog's answer.
    pub fn merge(uri: &str, own: &BTreeMap<String, String>, answer: Answer) -> Self {
        let told = answer.overrides.get("uri").or_else(|| answer.defaults.get("uri")).cloned().flatten();
        let elsewhere = told.filter(|told| told.trim_end_matches('/') != uri.trim_end_matches('/'));
        let mut properties = BTreeMap::new();
        let given = |map: BTreeMap<String, Option<String>>| {
            map.into_iter().filter(|(key, _)| !OURS.contains(&key.as_str())).filter_map(|(key, value)| Some((key, value?)))
        };
        properties.extend(given(answer.defaults));
        properties.extend(own.clone());
        properties.extend(given(answer.overrides));
        let get = |key: &str| properties.get(key).map(String::as_str);
        Self {
            paths: Paths::new(uri, get("prefix"), get("namespace-separator")),
            idempotent: answer.idempotency_key_lifetime.is_some_and(|lifetime| !lifetime.is_empty()),
            page_size: get("rest-page-size").and_then(|size| size.parse().ok()),
            endpoints: answer.endpoints.map(|list| list.into_iter().collect()),
            elsewhere,
            properties,
        }
    }

    /// Whether a table's credentials can be had without loading the table.
    pub fn has_credentials(&self) -> bool {
        self.endpoints.as_ref().is_some_and(|endpoints| endpoints.contains(VENDED_CREDENTIALS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(json: &str) -> Answer {
        serde_json::from_str(json).unwrap()
    }

    fn merged(own: &[(&str, &str)], json: &str) -> Config {
        let own = own.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        Config::merge("http://h/cat", &own, answer(json))
    }

    #[test]
    fn defaults_lie_below_and_overrides_above_the_clients_own() {
        let json = r#"{"defaults":{"a":"1","b":"1","c":"1"},"overrides":{"c":"3","d":"3"}}"#;
        let config = merged(&[("b", "2"), ("c", "2"), ("d", "2")], json);
        let values: Vec<_> = ["a", "b", "c", "d"].iter().map(|k| config.properties[*k].as_str()).collect();
        assert_eq!(values, ["1", "2", "3", "3"]);
    }

    #[test]
    fn prefix_and_separator_come_from_the_merged_properties() {
        let config = merged(&[("prefix", "mine")], r#"{"defaults":{"prefix":"x","namespace-separator":"%2E"},"overrides":{}}"#);
        let levels = ["a".to_owned(), "b".to_owned()];
        assert_eq!(config.paths.tables(&levels, &Default::default()), "http://h/cat/v1/mine/namespaces/a%2Eb/tables?pageToken=");
    }

    #[test]
    fn the_catalog_does_not_choose_where_credentials_go() {
        let json =
            r#"{"defaults":{"token":"t"},"overrides":{"uri":"http://other/","oauth2-server-uri":"http://other/t","credential":"c"}}"#;
        let config = merged(&[("credential", "id:secret")], json);
        assert_eq!(config.properties, BTreeMap::from([("credential".into(), "id:secret".into())]));
        assert_eq!(config.elsewhere.as_deref(), Some("http://other/"));
        assert_eq!(config.paths.new_namespace(), "http://h/cat/v1/namespaces");
        assert_eq!(merged(&[], r#"{"overrides":{"uri":"http://h/cat/"}}"#).elsewhere, None);
    }

    #[test]
    fn nulls_and_what_is_missing_are_nothing() {
        let config = merged(&[], r#"{"defaults":{"a":null},"overrides":{"prefix":null},"unheard-of":[1]}"#);
        assert_eq!((config.properties.len(), config.idempotent, config.has_credentials()), (0, false, false));
    }

    #[test]
    fn what_the_catalog_can_do_is_taken_from_its_answer() {
        let json = format!(r#"{{"endpoints":["GET /v1/config","{VENDED_CREDENTIALS}"],"idempotency-key-lifetime":"PT30M"}}"#);
        let config = merged(&[("rest-page-size", "50")], &json);
        assert_eq!((config.idempotent, config.has_credentials(), config.page_size), (true, true, Some(50)));
    }
}
