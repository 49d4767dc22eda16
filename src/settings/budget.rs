//! Budgets: what all jobs share, what each table and each tenant may spend.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use figment::value::Value;

use super::section::Section;
use super::table;
use super::units::{self, number, or_off, some_duration_ms, some_size, word, words};
use super::uri;
use crate::model::economy::{Budgets, Limits, Tenant};
use crate::model::policy::BudgetLimits;

/// What of a cluster's free memory jobs may hold, and who tells how much is free.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Capacity {
    /// The share of it that jobs may hold; the overall budget follows it where it is set.
    pub share: Option<f64>,
    /// The endpoint that tells it, where it is not only pushed.
    pub from: Option<FreeFrom>,
}

/// A gauge of a metrics endpoint.
#[derive(Clone, Debug, PartialEq)]
pub struct FreeFrom {
    /// The endpoint, in Prometheus' text format.
    pub url: String,
    /// The metric.
    pub metric: String,
    /// Labels that its samples must have; those that have them are added up.
    pub labels: BTreeMap<String, String>,
    /// Bytes that one of it stands for.
    pub unit_bytes: u64,
    /// The pause between two readings, in milliseconds.
    pub every_ms: i64,
    /// For how long a number holds, in milliseconds.
    pub max_age_ms: i64,
    /// A bearer token for the endpoint.
    pub token: Option<String>,
}

/// What all jobs share and what each table may spend, and what of a cluster's free memory
/// it follows.
pub(super) fn from_section(mut section: Section<'_>, capacity: &mut Capacity) -> Budgets {
    let default = BudgetLimits::default();
    let overall = BudgetLimits {
        gb_hours_per_hour: section.read("gb_hours_per_hour", |v| number(v, 0.001, 1e6)).unwrap_or(default.gb_hours_per_hour),
        carry_over_hours: section.read("carry_over_hours", |v| number(v, 0.0, 8760.0)).unwrap_or(default.carry_over_hours),
        concurrent_jobs: section.read("concurrent_jobs", |v| number(v, 1, 1024)).unwrap_or(default.concurrent_jobs),
    };
    let (bytes_per_hour, commits_per_hour) = volumes(&mut section);
    let more = Limits { bytes_per_hour, commits_per_hour, ..Limits::default() };
    let per_table = limits(section.section("table"));
    let share = section.read("capacity_share", |v| or_off(v, |v| number(v, 0.0, 1.0)));
    let from = section.take("free_from").and_then(|value| free_from(section.nested("free_from", value)));
    if from.is_some() && share.is_none() {
        section.mistake("free_from", "needs capacity_share: the share of what is free that jobs may hold, such as 0.5");
    }
    section.finish();
    // where the share is off nothing is read
    let share = share.flatten();
    *capacity = Capacity { share, from: from.filter(|_| share.is_some()) };
    Budgets { overall, more, per_table, tenants: Vec::new() }
}

fn free_from(mut section: Section<'_>) -> Option<FreeFrom> {
    let url = required(&mut section, "url", "http://prometheus:9090/federate?match[]=free_bytes", |value| {
        let url = units::word(value)?;
        uri::metrics(&url).map(|()| url)
    });
    let metric = required(&mut section, "metric", "node_memory_MemAvailable_bytes", word);
    let labels = section.read("labels", labels).unwrap_or_default();
    let unit_bytes = section.read("unit", unit).unwrap_or(1);
    let every_ms = section.read("every", some_duration_ms).unwrap_or(30_000);
    let max_age_ms = section.read("max_age", some_duration_ms).unwrap_or(120_000);
    let token = section.read("token", uri::token);
    if every_ms >= max_age_ms {
        section.mistake(
            "max_age",
            format!("{max_age_ms} ms is not longer than every, {every_ms} ms: nothing would be known between two readings"),
        );
    }
    section.finish();
    Some(FreeFrom { url: url?, metric: metric?, labels, unit_bytes, every_ms, max_age_ms, token })
}

fn labels(value: &Value) -> units::Read<BTreeMap<String, String>> {
    match value {
        Value::Dict(_, given) => given.iter().map(|(name, value)| Ok((name.clone(), units::text(value)?))).collect(),
        _ => Err("expected a table: write for example { pool = \"batch\" }".to_owned()),
    }
}

/// Bytes that one of a metric stands for.
fn unit(value: &Value) -> units::Read<u64> {
    let unit = word(value)?;
    let bytes = units::size(&Value::from(format!("1{unit}")));
    bytes.map_err(|_| format!("`{unit}` is no unit: write B, KB, KiB, MB, MiB, GB, GiB, TB or TiB"))
}

fn volumes(section: &mut Section<'_>) -> (Option<u64>, Option<u64>) {
    let bytes = section.read("bytes_per_hour", |v| or_off(v, some_size)).flatten();
    (bytes, section.read("commits_per_hour", |v| or_off(v, |v| number(v, 1, 1_000_000))).flatten())
}

fn limits(mut section: Section<'_>) -> Limits {
    let limits = limits_of(&mut section);
    section.finish();
    limits
}

fn limits_of(section: &mut Section<'_>) -> Limits {
    let (bytes_per_hour, commits_per_hour) = volumes(section);
    Limits {
        gb_hours_per_hour: section.read("gb_hours_per_hour", |v| or_off(v, |v| number(v, 0.001, 1e6))).flatten(),
        bytes_per_hour,
        commits_per_hour,
        concurrent_jobs: section.read("concurrent_jobs", |v| or_off(v, |v| number(v, 1, 1024))).flatten(),
    }
}

/// Every tenant, in the order in which their patterns are asked.
pub(super) fn tenants(top: &mut Section<'_>, catalogs: &BTreeSet<String>) -> Vec<Tenant> {
    let mut tenants: Vec<Tenant> = Vec::new();
    match top.take("tenant") {
        None => {}
        Some(Value::Array(_, given)) => {
            for (place, value) in given.into_iter().enumerate() {
                let key = format!("tenant[{place}]");
                let Some(tenant) = tenant(top.nested(&key, value), catalogs) else { continue };
                match tenants.iter().any(|t| t.name == tenant.name) {
                    true => top.mistake(&key, format!("there is a tenant `{}` already", tenant.name)),
                    false => tenants.push(tenant),
                }
            }
        }
        Some(_) => top.mistake("tenant", "expected a list of tenants: write [[tenant]]"),
    }
    tenants
}

fn tenant(mut section: Section<'_>, catalogs: &BTreeSet<String>) -> Option<Tenant> {
    let name = required(&mut section, "name", "sales", word);
    let patterns = required(&mut section, "match", "lake.sales.*", |value| {
        words(value)?.iter().map(|pattern| table::pattern(&Value::from(pattern.as_str()), catalogs)).collect::<Result<Vec<_>, _>>()
    });
    let quota_objects = section.read("quota_objects", |v| or_off(v, |v| number(v, 1, u64::MAX))).flatten();
    let limits = limits_of(&mut section);
    section.finish();
    Some(Tenant { name: Arc::from(name?), patterns: patterns?, limits, quota_objects })
}

fn required<T>(section: &mut Section<'_>, key: &'static str, example: &str, how: impl FnOnce(&Value) -> Result<T, String>) -> Option<T> {
    match section.take(key) {
        None => {
            section.mistake(key, format!("is missing: write for example \"{example}\""));
            None
        }
        Some(value) => how(&value).map_err(|why| section.mistake(key, why)).ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Settings;
    use super::*;

    fn mistakes(toml: &str) -> Vec<(String, String)> {
        Settings::read(toml, []).unwrap_err().0.into_iter().map(|m| (m.key, m.message)).collect()
    }

    #[test]
    fn what_is_free_may_be_read_from_a_metrics_endpoint() {
        let of = |more: &str| {
            let text =
                format!("[budget]\ncapacity_share = 0.5\nfree_from = {{ url = \"http://p:9090/metrics?x[]=y\", metric = \"free\"{more} }}");
            Settings::read(&text, []).unwrap().capacity.from.unwrap()
        };
        let plain = of("");
        assert_eq!((plain.unit_bytes, plain.every_ms, plain.max_age_ms, plain.labels.len(), &plain.token), (1, 30_000, 120_000, 0, &None));
        let set = of(", labels = { pool = \"batch\", shard = 3 }, unit = \"KiB\", every = \"1s\", max-age = \"5s\", token = \"t\"");
        let labels = BTreeMap::from([("pool".to_owned(), "batch".to_owned()), ("shard".to_owned(), "3".to_owned())]);
        assert_eq!((set.labels, set.unit_bytes, set.every_ms, set.max_age_ms, set.token), (labels, 1024, 1000, 5000, Some("t".into())));
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let keys = "url = \"ftp://x\"\nlabels = 1\nunit = \"GX\"\nevery = \"5s\"\nmax_age = \"5s\"\n";
        let found = mistakes(&format!("[budget.free_from]\n{keys}"));
        let named: Vec<&str> = found.iter().map(|(key, _)| key.trim_start_matches("budget.free_from.")).collect();
        assert_eq!(named, ["url", "metric", "labels", "unit", "max_age"]);
        assert_eq!(found[3].1, "`GX` is no unit: write B, KB, KiB, MB, MiB, GB, GiB, TB or TiB");
        let alone = mistakes("[budget.free_from]\nurl = \"http://p\"\nmetric = \"m\"");
        assert_eq!((alone.len(), alone[0].0.as_str()), (1, "budget.free_from"));
        let secret = mistakes("[budget.free_from]\nurl = \"http://u:secret@p\"\nmetric = \"m\"");
        assert!(secret[0].1.contains("write token") && !secret[0].1.contains("secret"), "{secret:?}");
    }
}
