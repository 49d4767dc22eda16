//! What holds for the tables of a pattern.

use std::collections::BTreeSet;

use figment::value::Value;

use super::expressions::Expressions;
use super::policy::PolicySettings;
use super::section::Section;
use super::units;
use crate::model::ident::TableName;

/// Policy for the tables whose name matches.
#[derive(Clone, Debug, PartialEq)]
pub struct TableRule {
    /// A pattern over `catalog.namespace.table`: `*` is any one part or a piece of
    /// it, `**` any number of parts.
    pub pattern: String,
    /// What it sets.
    pub policy: PolicySettings,
}

impl TableRule {
    /// Whether the rule holds for a table.
    pub fn matches(&self, name: &TableName) -> bool {
        matches(&self.pattern, &name.to_string())
    }
}

/// Whether a pattern holds for the table of that name.
pub(super) fn matches(pattern: &str, name: &str) -> bool {
    glob_match::glob_match(&as_path(pattern), &as_path(name))
}

/// Parts of a name are to the pattern what folders are to a glob.
fn as_path(name: &str) -> String {
    name.replace('.', "/")
}

/// `catalogs` are the names that are configured.
pub(super) fn all(top: &mut Section<'_>, catalogs: &BTreeSet<String>, expressions: &Expressions) -> Vec<TableRule> {
    match top.take("table") {
        None => Vec::new(),
        Some(Value::Array(_, rules)) => {
            let numbered = rules.into_iter().enumerate();
            numbered.filter_map(|(place, value)| one(top.nested(&format!("table[{place}]"), value), catalogs, expressions)).collect()
        }
        Some(_) => {
            top.mistake("table", "expected a list of tables: write [[table]]");
            Vec::new()
        }
    }
}

fn one(mut section: Section<'_>, catalogs: &BTreeSet<String>, expressions: &Expressions) -> Option<TableRule> {
    let pattern = match section.take("match") {
        None => Err("is missing: write for example \"lake.sales.*\"".to_string()),
        Some(value) => pattern(&value, catalogs),
    };
    let pattern = pattern.map_err(|message| section.mistake("match", message)).ok();
    let policy = PolicySettings::from_section(section, expressions);
    Some(TableRule { pattern: pattern?, policy })
}

/// A pattern of too few parts, or of a catalog that is not configured, would match no
/// table at all.
pub(super) fn pattern(value: &Value, catalogs: &BTreeSet<String>) -> units::Read<String> {
    let pattern = units::word(value)?;
    let parts = pattern.split('.').count();
    if parts < 3 && !pattern.contains("**") {
        return Err(format!("`{pattern}` can match no table: write three parts, catalog.namespace.table, or ** for any number of them"));
    }
    let first = pattern.split('.').next().unwrap_or_default();
    if !catalogs.iter().any(|name| glob_match::glob_match(first, name)) {
        let known = if catalogs.is_empty() { "none".to_owned() } else { catalogs.iter().cloned().collect::<Vec<_>>().join(", ") };
        return Err(format!("`{pattern}` can match no table: no catalog `{first}` is configured; known: {known}"));
    }
    Ok(pattern)
}
