//! What the settings and a table's own properties mean for it.

use std::collections::BTreeMap;

use figment::value::{Dict, Value};

use super::section::Section;
use super::units;
use super::{PolicySettings, Settings};
use crate::model::ident::TableName;
use crate::model::policy::Policy;

/// Prefix of the table properties that are ours.
const PREFIX: &str = "afterwrite.";
/// Not a policy: says that the cloud's own compaction of the table is off.
const MANAGED_COMPACTION: &str = "managed-compaction";
/// Nor are these: see [`CLAIM_PREFIX`](crate::model::claim::CLAIM_PREFIX).
const CLAIM: &str = "claim.";
/// Iceberg's own property for the target size.
const WRITE_TARGET: &str = "write.target-file-size-bytes";

/// A table property that could not be used; what held before it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// The property.
    pub property: String,
    /// What is wrong with it.
    pub message: String,
}

/// The policy of a table: defaults, then the patterns that match in their order,
/// then `write.target-file-size-bytes`, then the table's `afterwrite.*`
/// properties. A property that cannot be used changes nothing and is a warning:
/// whoever may alter one table must not stop the loop for all.
pub fn resolve(settings: &Settings, name: &TableName, properties: &BTreeMap<String, String>) -> (Policy, Vec<Warning>) {
    resolve_over(settings, name, properties, Policy::default())
}

/// The same over another policy than the default one: what nothing sets stays as it is there.
pub fn resolve_over(
    settings: &Settings,
    name: &TableName,
    properties: &BTreeMap<String, String>,
    policy: Policy,
) -> (Policy, Vec<Warning>) {
    let mut warnings = Vec::new();
    let mut policy = settings.defaults.over(policy);
    for rule in settings.tables.iter().filter(|rule| rule.matches(name)) {
        policy = rule.policy.over(policy);
    }
    if let Some(written) = properties.get(WRITE_TARGET) {
        match units::some_size(&Value::from(written.as_str())) {
            Ok(bytes) => policy.scale.target = bytes,
            Err(message) => warnings.push(Warning { property: WRITE_TARGET.into(), message }),
        }
    }
    policy.own.clone_from(&settings.expressions.traits);
    (own_properties(settings, properties, &mut warnings).over(policy), warnings)
}

/// `afterwrite.enabled=true` is leave to rewrite, unless `afterwrite.act` says
/// otherwise.
fn own_properties(settings: &Settings, properties: &BTreeMap<String, String>, warnings: &mut Vec<Warning>) -> PolicySettings {
    let ours = properties.iter().filter_map(|(key, value)| Some((key.strip_prefix(PREFIX)?, value)));
    let ours = ours.filter(|(key, _)| *key != MANAGED_COMPACTION && !key.starts_with(CLAIM));
    let mut values = Dict::new();
    let mut written = BTreeMap::new();
    for (key, value) in ours {
        let known = if key == "target-file-size-bytes" { "target-file-size" } else { key };
        values.insert(known.into(), Value::from(value.as_str()));
        written.insert(known, key);
    }
    let mut mistakes = Vec::new();
    let mut set = PolicySettings::from_section(Section::new("", Value::from(values), &mut mistakes), &settings.expressions);
    if set.enabled == Some(true) && set.act.is_none() {
        set.act = Some(true);
    }
    warnings.extend(mistakes.into_iter().map(|mistake| {
        let hyphened = mistake.key.replace('_', "-");
        let key = written.get(mistake.key.as_str()).or_else(|| written.get(hyphened.as_str())).copied().unwrap_or(&mistake.key);
        Warning { property: format!("{PREFIX}{key}"), message: mistake.message }
    }));
    set
}
