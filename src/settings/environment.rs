//! The environment as a source of settings.

use std::collections::BTreeMap;

use figment::value::{Dict, Map, Value};
use figment::{Error, Metadata, Profile, Provider};

const PREFIX: &str = "AFTERWRITE_";

/// `AFTERWRITE_SERVER__LISTEN` is `server.listen`. A variable without `__` belongs
/// to the command line, `AFTERWRITE_INSTANCE` and `AFTERWRITE_CLAIMS` excepted.
pub struct Environment<'a>(pub &'a BTreeMap<String, String>);

impl Provider for Environment<'_> {
    fn metadata(&self) -> Metadata {
        Metadata::named("environment variables")
    }

    fn data(&self) -> Result<Map<Profile, Dict>, Error> {
        let mut values = Dict::new();
        for (name, text) in self.0 {
            if let Some(path) = path_of(name) {
                insert(&mut values, &path, text);
            }
        }
        Ok(Profile::Default.collect(values))
    }
}

fn path_of(name: &str) -> Option<Vec<String>> {
    let path = name.strip_prefix(PREFIX)?.to_lowercase();
    if path == "instance" || path == "claims" {
        return Some(vec![path]);
    }
    let parts: Vec<String> = path.split("__").map(Into::into).collect();
    (parts.len() > 1 && parts.iter().all(|p| !p.is_empty())).then(|| with_iceberg_names(parts))
}

/// Catalog properties have hyphens, which no variable can: `s3.path-style-access`.
fn with_iceberg_names(mut parts: Vec<String>) -> Vec<String> {
    if parts.first().is_some_and(|p| p == "catalog") {
        parts.iter_mut().skip(2).for_each(|p| *p = p.replace('_', "-"));
    }
    parts
}

fn insert(values: &mut Dict, path: &[String], text: &str) {
    match path {
        [] => {}
        [last] => drop(values.insert(last.clone(), Value::from(text))),
        [first, rest @ ..] => {
            let below = values.entry(first.clone()).or_insert_with(|| Value::from(Dict::new()));
            if !matches!(below, Value::Dict(..)) {
                *below = Value::from(Dict::new());
            }
            if let Value::Dict(_, below) = below {
                insert(below, rest, text);
            }
        }
    }
}
