//! CloudEvents 1.0 of a Lakekeeper catalog: binary mode (attributes in headers
//! `ce_…` over Kafka, `ce-…` over HTTP) or structured JSON.
//!
//! The data of `updateTable` is the client's commit request, which was carried
//! out. Attribute names with hyphens break the CloudEvents rules for names, so
//! they are read by hand. The catalog sends at most once: silence means nothing.

use serde::Deserialize;
use serde_json::Value;
use uuid::Uuid;

use super::commit_request::{CommitRequest, Identifier};
use super::json::{levels, read};
use super::{Decoded, Draft, Record};
use crate::model::event::Certainty;

/// What the attributes say.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Attributes {
    #[serde(rename = "type")]
    kind: String,
    #[serde(rename = "tabular-id")]
    tabular_id: Option<String>,
    #[serde(rename = "tabular-type")]
    tabular_type: Option<String>,
    name: Option<String>,
    namespace: Option<String>,
    data: Value,
}

pub(super) fn decode(record: &Record<'_>) -> Decoded {
    let attribute = |name: &str| record.header(&format!("ce_{name}")).or_else(|| record.header(&format!("ce-{name}")));
    let event = match attribute("type") {
        Some(kind) => Attributes {
            kind: kind.to_owned(),
            tabular_id: attribute("tabular-id").map(Into::into),
            tabular_type: attribute("tabular-type").map(Into::into),
            name: attribute("name").map(Into::into),
            namespace: attribute("namespace").map(Into::into),
            data: if record.value.is_empty() { Value::Null } else { read(record.value)? },
        },
        None => read::<Attributes>(record.value)?,
    };
    if event.kind.is_empty() {
        return Err("type: is missing, as a header `ce_type` and in the body".into());
    }
    if event.tabular_type.as_deref().is_some_and(|kind| kind != "table") {
        return Ok(Vec::new());
    }
    match event.kind.as_str() {
        "updateTable" => event.update(),
        "createTable" | "registerTable" | "dropTable" | "undropTabulars" => event.bare().map(|draft| vec![draft]),
        "renameTable" => event.rename(),
        _ => Ok(Vec::new()),
    }
}

impl Attributes {
    fn update(self) -> Decoded {
        let commit: CommitRequest = serde_json::from_value(self.data.clone()).map_err(|e| format!("data: {e}"))?;
        let mut draft = match &commit.identifier {
            Some(identifier) => of(identifier),
            None => self.named()?,
        };
        draft.uuid = self.uuid().or_else(|| commit.uuid());
        draft.snapshots = commit.snapshots();
        draft.files_added = commit.files_added();
        let branches = commit.branches();
        if branches.is_empty() {
            return Ok(vec![draft]);
        }
        Ok(branches.into_iter().map(|branch| Draft { reference: Some(branch.to_owned()), ..draft.clone() }).collect())
    }

    /// The old name and the new one: the look finds which of them is a table.
    fn rename(self) -> Decoded {
        #[derive(Deserialize)]
        struct Rename {
            source: Identifier,
            destination: Identifier,
        }
        let uuid = self.uuid();
        let Rename { source, destination } = serde_json::from_value(self.data).map_err(|e| format!("data: {e}"))?;
        Ok([source, destination].iter().map(|i| Draft { uuid, ..of(i) }).collect())
    }

    fn bare(self) -> Result<Draft, String> {
        Ok(Draft { uuid: self.uuid(), ..self.named()? })
    }

    fn named(&self) -> Result<Draft, String> {
        let (Some(name), Some(namespace)) = (&self.name, &self.namespace) else {
            return Err("name, namespace: one of them is missing".into());
        };
        Ok(of(&Identifier { namespace: levels(namespace), name: name.clone() }))
    }

    fn uuid(&self) -> Option<Uuid> {
        self.tabular_id.as_deref().and_then(|text| Uuid::parse_str(text).ok())
    }
}

fn of(identifier: &Identifier) -> Draft {
    Draft::foreign(None, identifier.namespace.clone(), identifier.name.clone(), Certainty::CatalogConfirmed)
}
