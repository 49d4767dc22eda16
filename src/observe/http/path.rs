//! What an address says.

use axum::http::Uri;

use crate::observe::decode::{Foreign, unescape};
use crate::observe::proxy::Separator;

/// What is posted below a table's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Metrics reports.
    Metrics,
    /// Notifications of new metadata.
    Notifications,
}

/// `/iceberg/[{catalog}/]v1/[{prefix}/]namespaces/{ns}/tables/{t}/{kind}`.
#[derive(Debug, PartialEq)]
pub(super) struct TablePath {
    /// Our catalog, when it is in the path.
    pub catalog: Option<String>,
    /// The tables that it may mean, the likeliest first: some clients write a space
    /// as `+`.
    pub tables: Vec<Foreign>,
    /// What is posted.
    pub kind: Kind,
}

impl TablePath {
    /// Reads a path from the right, as REST catalogs have prefixes of all kinds.
    pub fn read(path: &str) -> Option<Self> {
        let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
        let [before @ .., "namespaces", namespace, "tables", table, kind] = parts.as_slice() else { return None };
        let kind = match *kind {
            "metrics" => Kind::Metrics,
            "notifications" => Kind::Notifications,
            _ => return None,
        };
        let catalog = match before {
            ["iceberg", catalog, "v1", ..] => Some(unescape(catalog)),
            _ => None,
        };
        // levels are joined by the unit separator; a dot is part of a name
        let names = Separator::default().tables("", namespace, table);
        let tables = names.into_iter().map(|name| Foreign { catalog: None, namespace: name.namespace, table: name.table }).collect();
        Some(Self { catalog, tables, kind })
    }
}

/// The catalog that the query names.
pub(super) fn catalog_of(uri: &Uri) -> Option<String> {
    let query = uri.query()?;
    let mut pairs = url::form_urlencoded::parse(query.as_bytes());
    pairs.find(|(key, value)| key == "catalog" && !value.is_empty()).map(|(_, value)| value.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(path: &str) -> Option<(Option<String>, Vec<String>)> {
        let shown = |t: Foreign| t.namespace.into_iter().chain([t.table]).collect::<Vec<_>>().join("|");
        TablePath::read(path).map(|p| (p.catalog, p.tables.into_iter().map(shown).collect()))
    }

    #[test]
    fn a_tables_address_is_read_from_the_right() {
        let names = |catalog: Option<&str>, tables: &[&str]| Some((catalog.map(Into::into), tables.iter().map(|&t| t.into()).collect()));
        assert_eq!(read("/iceberg/v1/namespaces/db/tables/t/metrics"), names(None, &["db|t"]));
        assert_eq!(
            read("/iceberg/lake/v1/main%7Cwh/namespaces/a%1Fb.c/tables/t%20x+y/notifications"),
            names(Some("lake"), &["a|b.c|t x y", "a|b.c|t x+y"])
        );
        assert_eq!(read("/iceberg/v1/namespaces/db/tables/%FF/metrics"), names(None, &[]));
        assert_eq!(read("/iceberg/v1/namespaces/db/tables/t"), None);
        assert_eq!(read("/iceberg/v1/namespaces/db/views/t/metrics"), None);
    }

    #[test]
    fn the_query_names_a_catalog() {
        let catalog = |uri: &'static str| catalog_of(&Uri::from_static(uri));
        assert_eq!(catalog("/x?a=1&catalog=my%20lake"), Some("my lake".into()));
        assert_eq!([catalog("/x"), catalog("/x?catalog=")], [None, None]);
    }
}
