//! Catalogs.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use figment::value::{Dict, Value};

use super::proxy::{self, Proxy};
use super::section::Section;
use super::units;
use super::uri;
use crate::model::ident::MAIN;

/// How a catalog is spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CatalogKind {
    /// A database with the tables of Iceberg's JDBC catalog.
    Sql,
    /// The Iceberg REST protocol.
    Rest,
}

/// One catalog.
#[derive(Clone, PartialEq, Eq)]
pub struct Catalog {
    /// How it is spoken to.
    pub kind: CatalogKind,
    /// Where it is.
    pub uri: String,
    /// Where its tables lie; for a REST catalog the name of its warehouse, which may
    /// be empty.
    pub warehouse: String,
    /// Any other property by its Iceberg name, such as `s3.endpoint`.
    pub properties: BTreeMap<String, String>,
    /// The branches that are looked after.
    pub refs: Vec<String>,
    /// The proxy in front of it.
    pub proxy: Option<Proxy>,
}

/// Properties hold credentials: their names are shown, and no value.
impl fmt::Debug for Catalog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Catalog")
            .field("kind", &self.kind)
            .field("uri", &super::without_password(&self.uri))
            .field("warehouse", &self.warehouse)
            .field("properties", &self.properties.keys())
            .field("refs", &self.refs)
            .field("proxy", &self.proxy)
            .finish()
    }
}

/// The catalogs, and the names of all that are configured, those with mistakes too.
pub(super) fn all(mut section: Section<'_>) -> (BTreeMap<String, Catalog>, BTreeSet<String>) {
    let (mut catalogs, mut named) = (BTreeMap::new(), BTreeSet::new());
    for (name, value) in section.rest() {
        named.insert(name.clone());
        if name.is_empty() || name.contains('.') {
            section.mistake(&name, "a catalog's name is one part of `catalog.namespace.table`: not empty, without dots");
        }
        if let Some(catalog) = one(section.nested(&name, value)) {
            catalogs.insert(name, catalog);
        }
    }
    proxy::check_addresses(&mut section, &catalogs);
    (catalogs, named)
}

fn one(mut section: Section<'_>) -> Option<Catalog> {
    let typed = section.take("type");
    let kind = match typed {
        None => {
            section.mistake("type", "is missing: write `sql` or `rest`");
            None
        }
        Some(value) => kind(&value).map_err(|message| section.mistake("type", message)).ok(),
    };
    let rest = kind == Some(CatalogKind::Rest);
    let uri = needed(&mut section, "uri", if rest { "https://catalog.example.com/api" } else { "sqlite:///data/catalog.db" });
    let warehouse = match rest {
        true => Some(section.read("warehouse", units::word).unwrap_or_default()),
        false => needed(&mut section, "warehouse", "file:///data/warehouse"),
    };
    let addresses = match kind {
        None => [None, None],
        Some(CatalogKind::Rest) => [uri.as_deref().map(uri::rest), None],
        Some(CatalogKind::Sql) => [uri.as_deref().map(uri::database), warehouse.as_deref().map(uri::warehouse)],
    };
    for (key, checked) in ["uri", "warehouse"].into_iter().zip(addresses) {
        if let Some(Err(message)) = checked {
            section.mistake(key, message);
        }
    }
    let refs = section.read("refs", units::words).unwrap_or_else(|| vec![MAIN.into()]);
    if refs.iter().any(|name| name != MAIN) {
        section.mistake(
            "refs",
            format!("only `{MAIN}`: leave the key out, and name other branches by `branches` in [defaults] or in a [[table]]"),
        );
    }
    let proxy = section.take("proxy");
    let mut properties = BTreeMap::new();
    let rest = section.rest();
    flatten(&mut section, "", rest, &mut properties);
    if let Some(Err(message)) = properties.get(S3_ENDPOINT).map(|url| uri::endpoint(url)) {
        section.mistake(S3_ENDPOINT, message);
    }
    let proxy = proxy.and_then(|value| Proxy::from_section(section.nested("proxy", value), uri.as_deref(), &properties));
    Some(Catalog { kind: kind.unwrap_or(CatalogKind::Sql), uri: uri?, warehouse: warehouse?, properties, refs, proxy })
}

const S3_ENDPOINT: &str = "s3.endpoint";

fn kind(value: &Value) -> units::Read<CatalogKind> {
    match units::text(value)?.as_str() {
        "sql" => Ok(CatalogKind::Sql),
        "rest" => Ok(CatalogKind::Rest),
        other => Err(format!("unknown type `{other}`: write `sql` or `rest`")),
    }
}

fn needed(section: &mut Section<'_>, key: &'static str, example: &str) -> Option<String> {
    match section.take(key) {
        None => {
            section.mistake(key, format!("is missing: write for example \"{example}\""));
            None
        }
        Some(value) => units::word(&value).map_err(|message| section.mistake(key, message)).ok(),
    }
}

/// `s3.endpoint = …` without quotes is a table in TOML; here both are one name.
fn flatten(section: &mut Section<'_>, prefix: &str, values: Dict, properties: &mut BTreeMap<String, String>) {
    for (key, value) in values {
        let name = if prefix.is_empty() { key } else { format!("{prefix}.{key}") };
        match value {
            Value::Dict(_, below) => flatten(section, &name, below, properties),
            value => match units::text(&value) {
                Ok(text) if properties.contains_key(&name) => section.mistake(&name, format!("is set twice, also to `{text}`")),
                Ok(text) => drop(properties.insert(name, text)),
                Err(message) => section.mistake(&name, message),
            },
        }
    }
}
