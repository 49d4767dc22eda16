//! Iceberg's metrics reports, as clients post them to a REST catalog or send
//! them elsewhere.
//!
//! A commit report is sent when an operation is staged: the commit may come
//! later, or never. It names neither branch nor uuid, and the table by the name
//! that the client's own catalog has, so a name in the address goes before it.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::json::{Id, read};
use super::{Decoded, Draft, Error, Foreign, Where, checked};
use crate::model::event::Certainty;
use crate::model::wire::Wire;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Report {
    report_type: Option<String>,
    table_name: String,
    snapshot_id: Option<Id>,
    operation: Option<String>,
    #[serde(default)]
    metrics: BTreeMap<String, Value>,
}

/// A report by itself: the table is named as `catalog.namespace.table`.
pub(super) fn decode(body: &[u8]) -> Decoded {
    let report: Report = read(body)?;
    let Some(mut draft) = report.draft() else { return Ok(Vec::new()) };
    draft.table = Where::Foreign(report.table()?);
    Ok(vec![draft])
}

/// The table that a report by itself names, whatever it reports; `None` when it is no
/// report, or names none.
pub fn table(body: &[u8]) -> Option<Foreign> {
    read::<Report>(body).ok()?.table().ok()
}

/// A report posted to a table's own address.
///
/// # Errors
/// When the body is no report.
pub fn decode_at(table: &Foreign, body: &[u8]) -> Result<Vec<Draft>, Error> {
    let drafts = read::<Report>(body).map(|report| {
        let draft = report.draft().map(|draft| Draft { table: Where::Foreign(table.clone()), ..draft });
        draft.into_iter().collect()
    });
    checked(Wire::IcebergReport, drafts)
}

impl Report {
    fn table(&self) -> Result<Foreign, String> {
        let mut parts: Vec<String> = self.table_name.split('.').map(Into::into).collect();
        let table = parts.pop().unwrap_or_default();
        if parts.len() < 2 {
            return Err(format!("table-name: `{}` has less than three parts", self.table_name.chars().take(64).collect::<String>()));
        }
        Ok(Foreign { catalog: Some(parts.remove(0)), namespace: parts, table })
    }

    /// `None` for a report of something else than a commit.
    fn draft(&self) -> Option<Draft> {
        let is_commit = match self.report_type.as_deref() {
            Some(kind) => kind == "commit-report",
            None => self.operation.is_some(),
        };
        let count = |key: &str| self.metrics.get(key).and_then(|m| m.get("value")).and_then(Value::as_u64).unwrap_or(0);
        is_commit.then(|| Draft {
            snapshots: self.snapshot_id.iter().map(|id| id.0).collect(),
            files_added: count("added-data-files").saturating_add(count("added-delete-files")),
            ..Draft::foreign(None, Vec::new(), String::new(), Certainty::Hint)
        })
    }
}
