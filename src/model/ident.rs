//! Names and identities of tables.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A table format the product knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TableFormat {
    /// Apache Iceberg.
    Iceberg,
}

/// The identity of a table: it survives a rename, and a table dropped and
/// re-created under the same name is another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TableIdent {
    /// The table's format.
    pub format: TableFormat,
    /// The format's own table uuid.
    pub uuid: Uuid,
}

impl TableIdent {
    /// An Iceberg table.
    pub fn iceberg(uuid: Uuid) -> Self {
        Self { format: TableFormat::Iceberg, uuid }
    }
}

impl fmt::Display for TableIdent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.uuid.fmt(f)
    }
}

/// The label under which a catalog knows a table: `catalog.namespace.table`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TableName {
    /// The catalog's configured name.
    pub catalog: String,
    /// The namespace levels, outermost first; at least one.
    pub namespace: Vec<String>,
    /// The table's own name.
    pub table: String,
}

impl TableName {
    /// A name of a one-level namespace.
    pub fn new(catalog: &str, namespace: &str, table: &str) -> Self {
        Self { catalog: catalog.into(), namespace: namespace.split('.').map(Into::into).collect(), table: table.into() }
    }

    /// The namespace levels joined by dots, as SQL catalogs store them.
    pub fn namespace_path(&self) -> String {
        self.namespace.join(".")
    }
}

impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.catalog, self.namespace_path(), self.table)
    }
}

/// Why a text is not a table name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a table name: write `catalog.namespace.table`, each part non-empty")]
pub struct NotATableName(pub String);

impl FromStr for TableName {
    type Err = NotATableName;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts: Vec<&str> = text.split('.').collect();
        match parts.as_slice() {
            [catalog, namespace @ .., table] if !namespace.is_empty() && parts.iter().all(|p| !p.is_empty()) => {
                Ok(Self { catalog: (*catalog).into(), namespace: namespace.iter().map(|p| (*p).into()).collect(), table: (*table).into() })
            }
            _ => Err(NotATableName(text.into())),
        }
    }
}

/// The branch that engines write to unless told otherwise.
pub const MAIN: &str = "main";
