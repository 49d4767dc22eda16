//! Names and identities of tables.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

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
        quoted(f, &self.catalog)?;
        for part in self.namespace.iter().chain([&self.table]) {
            f.write_str(".")?;
            quoted(f, part)?;
        }
        Ok(())
    }
}

/// A part, between backticks where it would not be read back as one part.
fn quoted(f: &mut fmt::Formatter<'_>, part: &str) -> fmt::Result {
    match part.contains(['.', '`']) {
        true => write!(f, "`{}`", part.replace('`', "``")),
        false => f.write_str(part),
    }
}

/// Why a text is not a table name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a table name: write `catalog.namespace.table`, each part non-empty; a part with a dot in it goes between backticks")]
pub struct NotATableName(pub String);

impl FromStr for TableName {
    type Err = NotATableName;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || NotATableName(text.into());
        let mut parts = parts(text).ok_or_else(wrong)?;
        let table = parts.pop().ok_or_else(wrong)?;
        if parts.len() < 2 {
            return Err(wrong());
        }
        let catalog = parts.remove(0);
        Ok(Self { catalog, namespace: parts, table })
    }
}

/// The parts of a dotted name, none of them empty. A backtick opens a part that goes
/// on to the next single backtick, as in Spark's SQL.
fn parts(text: &str) -> Option<Vec<String>> {
    let mut parts = Vec::new();
    let mut rest = text;
    loop {
        let (part, after) = match rest.strip_prefix('`') {
            Some(inner) => unquote(inner)?,
            None => {
                let end = rest.find('.').unwrap_or(rest.len());
                let (part, after) = rest.split_at_checked(end)?;
                (part.to_owned(), after)
            }
        };
        if part.is_empty() {
            return None;
        }
        parts.push(part);
        match after.strip_prefix('.') {
            Some(next) => rest = next,
            None => return after.is_empty().then_some(parts),
        }
    }
}

/// What stands before the closing backtick, and what follows it.
fn unquote(inner: &str) -> Option<(String, &str)> {
    let mut part = String::new();
    let mut rest = inner;
    loop {
        let (before, after) = rest.split_once('`')?;
        part.push_str(before);
        match after.strip_prefix('`') {
            Some(next) => {
                part.push('`');
                rest = next;
            }
            None => return Some((part, after)),
        }
    }
}

/// The branch that engines write to unless told otherwise.
pub const MAIN: &str = "main";

/// A branch where it has to be told from `main`; `None` for that one.
pub fn beside_main(branch: &str) -> Option<Arc<str>> {
    (branch != MAIN).then(|| branch.into())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> Option<Vec<String>> {
        let name: TableName = text.parse().ok()?;
        Some([name.catalog].into_iter().chain(name.namespace).chain([name.table]).collect())
    }

    #[test]
    fn a_name_has_three_parts_or_more_and_backticks_keep_dots_in_one() {
        let parts = |parts: &[&str]| Some(parts.iter().map(|&p| p.to_owned()).collect());
        assert_eq!(read("lake.db.t"), parts(&["lake", "db", "t"]));
        assert_eq!(read("lake.a.b.t x%"), parts(&["lake", "a", "b", "t x%"]));
        assert_eq!(read("lake.db.`ü.v`"), parts(&["lake", "db", "ü.v"]));
        assert_eq!(read("lake.`d``.b`.t`"), parts(&["lake", "d`.b", "t`"]));
        for wrong in ["", "t", "db.t", "lake..t", ".db.t", "lake.db.", "lake.db.`t", "lake.db.`t`x", "lake.db.``", "`a.b.c`"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn what_is_shown_is_read_back(catalog in "[a.`]{1,4}", namespace in prop::collection::vec("\\PC{1,4}", 1..3), table in "[`.ü ]{1,5}") {
            let name = TableName { catalog, namespace, table };
            prop_assert_eq!(name.to_string().parse::<TableName>(), Ok(name));
        }
    }
}
