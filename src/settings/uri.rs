//! Addresses, checked when the settings are read: what they name is contacted later.

use figment::value::Value;
use url::Url;

use super::units::{self, Read};

/// The schemes of stores.
const STORES: [&str; 10] = ["file", "s3", "s3a", "s3n", "gs", "abfs", "abfss", "wasb", "wasbs", "memory"];

/// The address of a SQL catalog. It may hold a password and is never repeated.
pub(super) fn database(uri: &str) -> Result<(), String> {
    let plain = uri.strip_prefix("jdbc:").unwrap_or(uri);
    let scheme = plain.split_once(':').map(|(scheme, _)| scheme.split('+').next().unwrap_or_default());
    match scheme {
        Some("sqlite" | "postgres" | "postgresql") => Ok(()),
        Some("http" | "https") => Err("is the address of a REST catalog: write type = \"rest\", or the database's own address".into()),
        Some(scheme) if scheme.bytes().all(|b| b.is_ascii_alphanumeric()) => {
            Err(format!("scheme `{scheme}` is not known; write sqlite:///path/to/catalog.db or postgres://user@host/database"))
        }
        _ => Err("names no database; write sqlite:///path/to/catalog.db or postgres://user@host/database".into()),
    }
}

/// The address of a REST catalog.
pub(super) fn rest(uri: &str) -> Result<(), String> {
    let example = "write for example https://catalog.example.com/api/catalog";
    let url = Url::parse(uri).map_err(|e| format!("is not a URL ({e}); {example}"))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(format!("`{}:` is not the scheme of a REST catalog; {example}", url.scheme()));
    }
    if url.path().trim_end_matches('/').ends_with("/v1") {
        return Err("ends with /v1, which is added to it: leave that out".into());
    }
    Ok(())
}

/// Where the tables of a SQL catalog lie: a path, or the address of a store.
pub(super) fn warehouse(value: &str) -> Result<(), String> {
    match value.split_once("://") {
        Some((scheme, _)) if !STORES.contains(&scheme) => {
            Err(format!("scheme `{scheme}` is not known; write for example file:///data/warehouse or s3://bucket/prefix"))
        }
        _ => Ok(()),
    }
}

/// The address of a service that speaks HTTP.
pub(super) fn endpoint(value: &str) -> Result<(), String> {
    let known = Url::parse(value).is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    if known { Ok(()) } else { Err("is not the URL of a store; write for example http://localhost:9000".into()) }
}

/// An endpoint that shows metrics.
pub(super) fn metrics(value: &str) -> Result<(), String> {
    match Url::parse(value) {
        Ok(url) if !matches!(url.scheme(), "http" | "https") || !url.has_host() => {
            Err("is not the URL of a metrics endpoint; write for example http://prometheus:9090/metrics".into())
        }
        Ok(url) if !url.username().is_empty() || url.password().is_some() => Err("holds a user or password: write token instead".into()),
        Ok(url) if url.fragment().is_some() => Err("has a fragment: leave what follows # out".into()),
        Ok(_) => Ok(()),
        Err(error) => Err(format!("is not a URL ({error}); write for example http://prometheus:9090/metrics")),
    }
}

/// A text that a header can carry: visible ASCII without spaces.
pub(super) fn token(value: &Value) -> Read<String> {
    let token = units::word(value)?;
    match token.bytes().all(|b| b.is_ascii_graphic()) {
        true => Ok(token),
        false => Err("write visible ASCII characters without spaces".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_is_known_by_its_scheme_and_no_password_is_repeated() {
        for uri in ["sqlite:///c.db", "sqlite:c.db", "jdbc:sqlite:c.db", "postgresql+psycopg2://u@h/d", "jdbc:postgresql://h/d"] {
            assert_eq!(database(uri), Ok(()), "{uri}");
        }
        let told = |uri: &str| database(uri).unwrap_err();
        assert!(told("mysql://u:secret@h/d").starts_with("scheme `mysql` is not known; write sqlite:"));
        assert!(told("https://u:secret@h").starts_with("is the address of a REST catalog"));
        for uri in ["/data/catalog.db", "u:secret@h", "user secret:x"] {
            assert!(!told(uri).contains("secret"), "{uri}");
        }
    }

    #[test]
    fn a_rest_catalog_is_a_url_without_its_version() {
        assert_eq!(["http://h", "https://h/api/", "http://h/v1/x", "http://h/v10"].map(rest), [const { Ok(()) }; 4]);
        assert_eq!(
            rest("sqlite:///c.db").unwrap_err(),
            "`sqlite:` is not the scheme of a REST catalog; write for example https://catalog.example.com/api/catalog"
        );
        for uri in ["http://h/v1", "https://h/api/v1/"] {
            assert_eq!(rest(uri).unwrap_err(), "ends with /v1, which is added to it: leave that out");
        }
        assert!(rest("catalog").unwrap_err().starts_with("is not a URL"));
    }

    #[test]
    fn a_warehouse_lies_in_a_store_that_is_known() {
        assert_eq!(["/data", "file:///data", "s3://b/p", "gs://b", "file:/data"].map(warehouse), [const { Ok(()) }; 5]);
        assert_eq!(
            warehouse("hdfs://n/w").unwrap_err(),
            "scheme `hdfs` is not known; write for example file:///data/warehouse or s3://bucket/prefix"
        );
        assert!(endpoint("http://minio:9000").is_ok() && endpoint("minio:9000").is_err() && endpoint("9000").is_err());
    }
}
