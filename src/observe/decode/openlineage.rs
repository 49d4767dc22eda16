//! OpenLineage run events. Only a completed run's outputs matter.
//!
//! A dataset is named by where it lies, or by a symlink that gives the catalog's
//! name. The snapshot id is taken from `datasetVersion`, a text: the commit
//! report's own is a JSON number that may have been rounded on the way.

use serde::Deserialize;

use super::json::read;
use super::{Decoded, Draft, Foreign, Where};
use crate::model::event::Certainty;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Run {
    event_type: Option<String>,
    #[serde(default)]
    outputs: Vec<Dataset>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Dataset {
    namespace: String,
    name: String,
    facets: Option<Facets>,
    output_facets: Option<OutputFacets>,
}

#[derive(Deserialize)]
struct Facets {
    version: Option<Version>,
    symlinks: Option<Symlinks>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Version {
    dataset_version: Option<String>,
}

#[derive(Deserialize)]
struct Symlinks {
    #[serde(default)]
    identifiers: Vec<Symlink>,
}

#[derive(Deserialize)]
struct Symlink {
    name: String,
    #[serde(rename = "type")]
    kind: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OutputFacets {
    output_statistics: Option<Statistics>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Statistics {
    file_count: Option<u64>,
}

pub(super) fn decode(value: &[u8]) -> Decoded {
    let run: Run = read(value)?;
    if run.event_type.as_deref() != Some("COMPLETE") {
        return Ok(Vec::new());
    }
    Ok(run.outputs.into_iter().filter_map(draft).collect())
}

fn draft(output: Dataset) -> Option<Draft> {
    let facets = output.facets;
    let version = facets.as_ref().and_then(|f| f.version.as_ref()).and_then(|v| v.dataset_version.as_deref());
    let snapshots = version.and_then(|text| text.parse().ok()).into_iter().collect();
    let links = facets.iter().filter_map(|f| f.symlinks.as_ref()).flat_map(|s| &s.identifiers);
    let link = links.filter(|l| l.kind.as_deref() == Some("TABLE")).find_map(|l| named(&l.name, None));
    let table = match location(&output.namespace, &output.name) {
        Some(location) => Where::At { location, or: link },
        // trino://host names its tables as catalog.schema.table
        None => Where::Foreign(link.or_else(|| named(&output.name, Some(2)))?),
    };
    let files_added = output.output_facets.and_then(|f| f.output_statistics).and_then(|s| s.file_count).unwrap_or(0);
    Some(Draft { snapshots, files_added, ..Draft::of(table, Certainty::Hint) })
}

/// A dataset's location, when its namespace is a store.
fn location(namespace: &str, name: &str) -> Option<String> {
    let scheme = namespace.split(':').next().unwrap_or_default();
    let is_store = matches!(scheme, "file" | "s3" | "s3a" | "s3n" | "gs" | "gcs" | "abfs" | "abfss" | "wasb" | "wasbs" | "hdfs");
    let root = if namespace.contains(':') { namespace.trim_end_matches('/').to_owned() } else { format!("{namespace}:") };
    is_store.then(|| format!("{root}/{}", name.trim_start_matches('/')))
}

/// `namespace.table`, or a name with its catalog in front when it has more parts
/// before the table than `with_catalog`.
fn named(name: &str, with_catalog: Option<usize>) -> Option<Foreign> {
    let mut parts: Vec<String> = name.split('.').map(Into::into).collect();
    let table = parts.pop()?;
    let catalog = with_catalog.filter(|least| parts.len() >= *least).map(|_| parts.remove(0));
    (!parts.is_empty()).then_some(Foreign { catalog, namespace: parts, table })
}
