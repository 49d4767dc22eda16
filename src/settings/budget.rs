//! Budgets: what all jobs share, what each table and each tenant may spend.

use std::collections::BTreeSet;
use std::sync::Arc;

use figment::value::Value;

use super::section::Section;
use super::table;
use super::units::{number, or_off, some_size, word, words};
use crate::model::economy::{Budgets, Limits, Tenant};
use crate::model::policy::BudgetLimits;

/// What all jobs share and what each table may spend, and the share of what is free that
/// it follows.
pub(super) fn from_section(mut section: Section<'_>, capacity_share: &mut Option<f64>) -> Budgets {
    let default = BudgetLimits::default();
    let overall = BudgetLimits {
        gb_hours_per_hour: section.read("gb_hours_per_hour", |v| number(v, 0.001, 1e6)).unwrap_or(default.gb_hours_per_hour),
        carry_over_hours: section.read("carry_over_hours", |v| number(v, 0.0, 8760.0)).unwrap_or(default.carry_over_hours),
        concurrent_jobs: section.read("concurrent_jobs", |v| number(v, 1, 1024)).unwrap_or(default.concurrent_jobs),
    };
    let (bytes_per_hour, commits_per_hour) = volumes(&mut section);
    let more = Limits { bytes_per_hour, commits_per_hour, ..Limits::default() };
    let per_table = limits(section.section("table"));
    *capacity_share = section.read("capacity_share", |v| or_off(v, |v| number(v, 0.0, 1.0))).flatten();
    section.finish();
    Budgets { overall, more, per_table, tenants: Vec::new() }
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
