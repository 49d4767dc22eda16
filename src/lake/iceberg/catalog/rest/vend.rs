//! Storage credentials that the catalog hands out with a table.

use std::collections::BTreeMap;

use serde::Deserialize;

/// Properties that reach a store; a catalog's answer may hold others, which are
/// passed over.
const STORES: &[&str] = &["s3.", "gcs.", "adls.", "client."];
/// What makes an answer one that vends.
const KEYS: &[&str] = &["s3.access-key-id", "gcs.oauth2.token", "adls.sas-token"];
/// When credentials end, in milliseconds since the epoch; the last for each account.
const ENDS: &[&str] = &["s3.session-token-expires-at-ms", "gcs.oauth2.token-expires-at", "adls.sas-token-expires-at-ms"];
/// The catalog wants every request to the store signed by itself.
const REMOTE: &str = "s3.remote-signing-enabled";

/// Credentials for the paths below a prefix, as they stand in an answer.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Given {
    /// Where they hold.
    pub prefix: String,
    /// Properties by their Iceberg names.
    pub config: BTreeMap<String, String>,
}

/// What a catalog handed out for one table.
#[derive(Clone, PartialEq, Eq)]
pub struct Grants {
    /// Properties for each prefix, the longest prefix first; the last has none.
    stores: Vec<(String, BTreeMap<String, String>)>,
    /// When the first of them ends, in milliseconds since the epoch.
    pub ends_ms: Option<i64>,
}

impl Grants {
    /// The grants of an answer over the catalog's own properties. `None` when the
    /// answer vends nothing.
    ///
    /// # Errors
    /// A text, when the catalog wants to sign each request to the store itself.
    pub fn of(own: &BTreeMap<String, String>, config: &BTreeMap<String, String>, given: &[Given]) -> Result<Option<Self>, String> {
        let vends = |config: &BTreeMap<String, String>| config.keys().any(|k| KEYS.iter().any(|key| k.starts_with(key)));
        if !vends(config) && !given.iter().any(|g| vends(&g.config)) {
            let keyless = !vends(own) && config.get(REMOTE).is_some_and(|v| v == "true");
            return if keyless {
                Err("the catalog wants to sign each request to the store, which is not supported".into())
            } else {
                Ok(None)
            };
        }
        let common = stores(own, config);
        let mut stores: Vec<_> = given
            .iter()
            .map(|g| {
                let mut properties = common.clone();
                properties.extend(stored(&g.config));
                (g.prefix.clone(), properties)
            })
            .collect();
        stores.sort_by_key(|(prefix, _)| std::cmp::Reverse(prefix.len()));
        stores.push((String::new(), common));
        let ends_ms = given.iter().map(|g| &g.config).chain([config]).filter_map(ends).min();
        Ok(Some(Self { stores, ends_ms }))
    }

    /// The properties that reach a path: those of the longest prefix. The number
    /// is the same for paths of one prefix.
    pub fn reach(&self, path: &str) -> (usize, &BTreeMap<String, String>) {
        static NONE: BTreeMap<String, String> = BTreeMap::new();
        let found = self.stores.iter().enumerate().find(|(_, (prefix, _))| path.starts_with(prefix.as_str()));
        found.map_or((usize::MAX, &NONE), |(at, (_, properties))| (at, properties))
    }
}

/// The properties that reach a store without vended credentials: a table's own
/// over the catalog's. Others, credentials to the catalog among them, are left out.
pub fn stores(own: &BTreeMap<String, String>, table: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let mut all = stored(own);
    all.extend(stored(table));
    all
}

/// Those properties that reach a store. An Azure token is named after its account,
/// which the store's client does not know of.
fn stored(config: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let known = config.iter().filter(|(key, _)| STORES.iter().any(|s| key.starts_with(s)));
    let plain = |key: &str| if key.starts_with("adls.sas-token.") { "adls.sas-token".to_owned() } else { key.to_owned() };
    known.map(|(key, value)| (plain(key), value.clone())).collect()
}

fn ends(config: &BTreeMap<String, String>) -> Option<i64> {
    let times = config.iter().filter(|(key, _)| ENDS.iter().any(|end| key.starts_with(end)));
    times.filter_map(|(_, value)| value.parse().ok()).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(set: &[(&str, &str)]) -> BTreeMap<String, String> {
        set.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }

    fn given(prefix: &str, key: &str, ends: &str) -> Given {
        let config = map(&[("s3.access-key-id", key), ("s3.session-token-expires-at-ms", ends)]);
        Given { prefix: prefix.into(), config }
    }

    #[test]
    fn the_longest_prefix_reaches_a_path_and_the_first_end_counts() {
        let all = [given("s3://b/", "outer", "900"), given("s3://b/t/", "inner", "800")];
        let own = map(&[("s3.region", "r"), ("s3.access-key-id", "own")]);
        let grants = Grants::of(&own, &map(&[("s3.endpoint", "http://e"), ("token", "x")]), &all).unwrap().unwrap();
        let key = |path: &str| grants.reach(path).1["s3.access-key-id"].clone();
        assert_eq!(["s3://b/t/f", "s3://b/u", "s3://c/f"].map(key), ["inner", "outer", "own"]);
        let (_, reached) = grants.reach("s3://b/t/f");
        assert_eq!((reached["s3.region"].as_str(), reached["s3.endpoint"].as_str(), reached.get("token")), ("r", "http://e", None));
        assert_eq!(grants.ends_ms, Some(800));
    }

    #[test]
    fn an_answer_without_credentials_vends_nothing() {
        assert!(Grants::of(&map(&[]), &map(&[("s3.endpoint", "e")]), &[]).unwrap().is_none());
    }

    #[test]
    fn older_answers_vend_in_their_config() {
        let config = map(&[("s3.access-key-id", "k"), ("s3.session-token-expires-at-ms", "7")]);
        let grants = Grants::of(&map(&[]), &config, &[]).unwrap().unwrap();
        assert_eq!((grants.reach("s3://x/y").1["s3.access-key-id"].as_str(), grants.ends_ms), ("k", Some(7)));
    }

    #[test]
    fn an_azure_token_is_found_under_its_accounts_name() {
        let config =
            map(&[("adls.sas-token.acc.dfs.core.windows.net", "sas"), ("adls.sas-token-expires-at-ms.acc.dfs.core.windows.net", "5")]);
        let grants = Grants::of(&map(&[]), &config, &[]).unwrap().unwrap();
        assert_eq!((grants.reach("abfss://x").1["adls.sas-token"].as_str(), grants.ends_ms), ("sas", Some(5)));
    }

    #[test]
    fn signing_by_the_catalog_is_refused_unless_keys_are_at_hand() {
        let remote = map(&[("s3.remote-signing-enabled", "true")]);
        assert!(Grants::of(&map(&[]), &remote, &[]).is_err());
        assert!(Grants::of(&map(&[("s3.access-key-id", "own")]), &remote, &[]).unwrap().is_none());
    }
}
