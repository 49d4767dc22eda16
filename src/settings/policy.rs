//! What can be set for tables: each value, or nothing to leave it as it is.

use figment::value::{Dict, Value};
use serde::Deserialize;

use super::expressions::Expressions;
use super::section::Section;
use super::units::{self, Read, duration_ms, flag, number, size, some_duration_ms, some_size};
use crate::model::mode::Mode;
use crate::model::policy::{Filter, Policy, Rule, Scoping};
use crate::model::preset::Preset;
use crate::model::schedule::Schedule;
use crate::model::window::Window;

/// Changes to a policy; what is `None` stays as it is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PolicySettings {
    /// Look after the table at all.
    pub enabled: Option<bool>,
    /// Rewrite, not only advise.
    pub act: Option<bool>,
    /// Target file size in bytes.
    pub target_file_size: Option<u64>,
    /// Files below this share of the target are small, in thousandths.
    pub small_permille: Option<u32>,
    /// Triggers in their order.
    pub rules: Option<Vec<Rule>>,
    /// Least reduction that is queued; `Some(None)` queues nothing.
    pub queue_min_reduction: Option<Option<u64>>,
    /// Youngest table, in milliseconds.
    pub min_table_age_ms: Option<i64>,
    /// Smallest table, in bytes.
    pub min_table_bytes: Option<u64>,
    /// Time without writes, in milliseconds.
    pub quiet_window_ms: Option<i64>,
    /// Longest time for which expected writers keep us out of a partition, in milliseconds.
    pub keep_out_ms: Option<i64>,
    /// Until when the table is left alone; `Some(None)` for no time.
    pub hold_until_ms: Option<Option<i64>>,
    /// Time between two rewrites of a partition, in milliseconds.
    pub cooldown_ms: Option<i64>,
    /// Weight of gain against cost.
    pub gain_weight: Option<f64>,
    /// Memory in GB that a rewrite is reckoned at.
    pub executor_memory_gb: Option<f64>,
    /// Bytes that a rewrite is reckoned to do in an hour.
    pub rewrite_bytes_per_hour: Option<u64>,
    /// GB-hours that any job is reckoned to cost.
    pub startup_gb_hours: Option<f64>,
    /// Most input bytes of a job.
    pub max_job_bytes: Option<u64>,
    /// Longest time of a job, in milliseconds.
    pub max_job_ms: Option<i64>,
    /// Memory of a job, in bytes.
    pub memory_limit: Option<u64>,
    /// Files that fill a size tier.
    pub tier_files: Option<u32>,
    /// GB-hours above which a person is asked; `Some(None)` never asks.
    pub review_above_gb_hours: Option<Option<f64>>,
    /// Files for which a person is asked.
    pub review_min_gain: Option<u64>,
    /// When work may begin.
    pub windows: Option<Vec<Window>>,
    /// Whose triggers and sizes are taken, before every other key here; `Some(None)` for
    /// nobody's.
    pub preset: Option<Option<Preset>>,
    /// Which work begins when.
    pub mode: Option<Mode>,
    /// When periodic work is due.
    pub schedule: Option<Schedule>,
    /// For so long after a time of the schedule work may begin, in milliseconds.
    pub schedule_length_ms: Option<i64>,
    /// The off-peak hours.
    pub off_peak: Option<Vec<Window>>,
    /// The share of the quota in use from which there is pressure.
    pub quota_pressure: Option<f64>,
    /// The share of the quota in use from which nothing is rewritten; `Some(None)` for none.
    pub quota_limit: Option<Option<f64>>,
    /// Users' own filters.
    pub filters: Option<Vec<Filter>>,
    /// Whether the table only holds what others are made of.
    pub intermediate: Option<bool>,
    /// After so long a partition by time is dropped, in milliseconds; `Some(None)` for never.
    pub retention_ms: Option<Option<i64>>,
    /// A partition that is dropped within this time is left alone, in milliseconds.
    pub retention_margin_ms: Option<i64>,
    /// How much one piece of work takes.
    pub scope: Option<Scoping>,
    /// The branches that are looked after.
    pub branches: Option<Vec<String>>,
}

impl PolicySettings {
    pub(super) fn from_section(mut section: Section<'_>, expressions: &Expressions) -> Self {
        let s = &mut section;
        let settings = Self {
            enabled: s.read("enabled", flag),
            act: s.read("act", flag),
            target_file_size: s.read("target_file_size", some_size),
            small_permille: s.read("small_ratio", permille),
            rules: s.read("rules", |v| rules(v, expressions)),
            queue_min_reduction: s.read("queue_min_reduction", count_or_off),
            min_table_age_ms: s.read("min_table_age", duration_ms),
            min_table_bytes: s.read("min_table_size", size),
            quiet_window_ms: s.read("quiet_window", duration_ms),
            keep_out_ms: s.read("keep_out", duration_ms),
            hold_until_ms: s.read("hold_until", |v| units::or_off(v, units::moment_ms)),
            cooldown_ms: s.read("cooldown", duration_ms),
            gain_weight: s.read("gain_weight", |v| number(v, 0.0, 1.0)),
            executor_memory_gb: s.read("executor_memory_gb", |v| number(v, 0.001, 1e6)),
            rewrite_bytes_per_hour: s.read("rewrite_bytes_per_hour", some_size),
            startup_gb_hours: s.read("startup_gb_hours", |v| number(v, 0.0, 1e6)),
            max_job_bytes: s.read("max_job_size", some_size),
            max_job_ms: s.read("max_job_time", some_duration_ms),
            memory_limit: s.read("memory_limit", memory),
            tier_files: s.read("tier_files", |v| number(v, 2, 100_000)),
            review_above_gb_hours: s.read("review_above_gb_hours", |v| units::or_off(v, |v| number(v, 0.0, 1e9))),
            review_min_gain: s.read("review_min_gain", |v| number(v, 0, u64::MAX)),
            windows: s.read("windows", windows),
            preset: s.read("preset", |v| units::or_off(v, preset)),
            mode: s.read("mode", mode),
            schedule: s.read("schedule", |v| units::text(v)?.parse()),
            schedule_length_ms: s.read("schedule_length", some_duration_ms),
            off_peak: s.read("off_peak", some_windows),
            quota_pressure: s.read("quota_pressure", |v| number(v, 0.0, 1.0)),
            quota_limit: s.read("quota_limit", |v| units::or_off(v, |v| number(v, 0.0, 1.0))),
            filters: s.read("filters", |v| expressions.filters(v)),
            intermediate: s.read("intermediate", flag),
            retention_ms: s.read("retention", |v| units::or_off(v, some_duration_ms)),
            retention_margin_ms: s.read("retention_margin", duration_ms),
            scope: s.read("scope", scope),
            branches: s.read("branches", branches),
        };
        section.finish();
        settings
    }

    /// The policy with these changes.
    pub fn over(&self, mut policy: Policy) -> Policy {
        if let Some(Some(preset)) = self.preset {
            // it has none of its own
            policy = Self { preset: None, ..Self::preset(preset) }.over(policy);
        }
        set(&mut policy.preset, &self.preset);
        set(&mut policy.pace.mode, &self.mode);
        set(&mut policy.pace.schedule, &self.schedule);
        set(&mut policy.pace.schedule_length_ms, &self.schedule_length_ms);
        set(&mut policy.pace.off_peak, &self.off_peak);
        set(&mut policy.pace.quota_pressure, &self.quota_pressure);
        set(&mut policy.quota_limit, &self.quota_limit);
        set(&mut policy.filters, &self.filters);
        set(&mut policy.intermediate, &self.intermediate);
        set(&mut policy.retention_ms, &self.retention_ms);
        set(&mut policy.retention_margin_ms, &self.retention_margin_ms);
        set(&mut policy.enabled, &self.enabled);
        set(&mut policy.act, &self.act);
        set(&mut policy.scale.target, &self.target_file_size);
        set(&mut policy.scale.small_permille, &self.small_permille);
        set(&mut policy.rules, &self.rules);
        set(&mut policy.queue_min_reduction, &self.queue_min_reduction);
        set(&mut policy.min_table_age_ms, &self.min_table_age_ms);
        set(&mut policy.min_table_bytes, &self.min_table_bytes);
        set(&mut policy.quiet_window_ms, &self.quiet_window_ms);
        set(&mut policy.keep_out_ms, &self.keep_out_ms);
        set(&mut policy.hold_until_ms, &self.hold_until_ms);
        set(&mut policy.cooldown_ms, &self.cooldown_ms);
        set(&mut policy.gain_weight, &self.gain_weight);
        set(&mut policy.cost.executor_memory_gb, &self.executor_memory_gb);
        set(&mut policy.cost.rewrite_bytes_per_hour, &self.rewrite_bytes_per_hour.map(|bytes| bytes as f64));
        set(&mut policy.cost.startup_gbhr, &self.startup_gb_hours);
        set(&mut policy.max_job_bytes, &self.max_job_bytes);
        set(&mut policy.max_job_ms, &self.max_job_ms);
        set(&mut policy.memory_limit, &self.memory_limit);
        set(&mut policy.tier_files, &self.tier_files);
        set(&mut policy.review_above_gb_hours, &self.review_above_gb_hours);
        set(&mut policy.review_min_gain, &self.review_min_gain);
        set(&mut policy.windows, &self.windows);
        set(&mut policy.scope, &self.scope);
        set(&mut policy.branches, &self.branches);
        policy
    }
}

fn set<T: Clone>(slot: &mut T, change: &Option<T>) {
    if let Some(value) = change {
        *slot = value.clone();
    }
}

fn permille(value: &Value) -> Read<u32> {
    Ok((number(value, 0.001, 1.0)? * 1000.0_f64).round() as u32)
}

/// A job below this could not hold a row group's pages.
fn memory(value: &Value) -> Read<u64> {
    match some_size(value)? {
        bytes if bytes < 16 << 20 => Err(format!("expected at least 16MiB, found {bytes} bytes")),
        bytes => Ok(bytes),
    }
}

fn count_or_off(value: &Value) -> Read<Option<u64>> {
    match units::text(value)?.trim() {
        "off" | "false" => Ok(None),
        _ => number(value, 0, u64::MAX).map(Some).map_err(|e| format!("{e}; or \"off\" to queue nothing")),
    }
}

fn scope(value: &Value) -> Read<Scoping> {
    let text = units::text(value)?;
    let named = Scoping::ALL.into_iter().find(|scope| scope.name() == text.trim());
    named.ok_or_else(|| format!("expected partition, table, snapshot or hybrid, found `{text}`"))
}

/// Names of branches, each once; at least one.
fn branches(value: &Value) -> Read<Vec<String>> {
    let example = "write for example [\"main\", \"audit\"]";
    if matches!(value, Value::Array(_, values) if values.is_empty()) {
        return Err(format!("needs a branch: {example}"));
    }
    let named = units::words(value).map_err(|why| format!("a branch's name {why}: {example}"))?;
    for (at, name) in named.iter().enumerate() {
        if named.iter().take(at).any(|before| before == name) {
            return Err(format!("names branch `{name}` twice"));
        }
        if name.chars().any(char::is_control) {
            return Err(format!("{name:?} is no branch's name: it holds control characters"));
        }
    }
    Ok(named)
}

/// A list, or one text with commas; an empty one is any time.
fn windows(value: &Value) -> Read<Vec<Window>> {
    match value {
        Value::Array(_, values) if values.is_empty() => Ok(Vec::new()),
        Value::Array(..) => units::words(value)?.iter().map(|text| text.parse()).collect(),
        _ if units::text(value)?.trim().is_empty() => Ok(Vec::new()),
        _ => units::words(value)?.iter().map(|text| text.parse()).collect(),
    }
}

fn some_windows(value: &Value) -> Read<Vec<Window>> {
    let all = windows(value)?;
    if all.is_empty() { Err("needs hours: write for example \"20:00-06:00\", in UTC".to_owned()) } else { Ok(all) }
}

fn preset(value: &Value) -> Read<Preset> {
    let written = units::text(value)?;
    let known = || Preset::ALL.map(Preset::name).join(", ");
    Preset::named(written.trim()).ok_or_else(|| format!("unknown preset `{written}`: write {}", known()))
}

fn mode(value: &Value) -> Read<Mode> {
    let written = units::text(value)?;
    let known = || Mode::ALL.map(Mode::name).join(", ");
    Mode::named(written.trim()).ok_or_else(|| format!("unknown mode `{written}`: write {}", known()))
}

/// A list of rules, each a name or a table with its thresholds.
fn rules(value: &Value, expressions: &Expressions) -> Read<Vec<Rule>> {
    let rule = |value: &Value| rule(value, expressions);
    match value {
        Value::Array(_, values) => values.iter().map(rule).collect(),
        _ if units::text(value)?.trim().is_empty() => Ok(Vec::new()),
        _ => units::words(value)?.iter().map(|name| rule(&Value::from(name.as_str()))).collect(),
    }
}

fn rule(value: &Value, expressions: &Expressions) -> Read<Rule> {
    let (name, given) = match value {
        Value::Dict(_, given) => {
            (given.get("rule").map(units::text).transpose()?.ok_or("a rule needs its name: rule = \"small-files\"")?, given.clone())
        }
        value => (units::text(value)?, Dict::new()),
    };
    if let (Some(trigger), true) = (expressions.trigger(&name), given.is_empty()) {
        return Ok(trigger.clone());
    }
    if name == "sort" {
        return Err("rule `sort`: rewrites keep the order of rows, and nothing tells how far files overlap".into());
    }
    let default = Policy::default().rules.into_iter().find(|r| r.name() == name);
    let default =
        default.ok_or_else(|| format!("unknown rule `{name}`: write {}small-files, entropy or deletes", expressions.trigger_names()))?;
    let mut fields = Value::serialize(&default).map_err(|e| e.to_string())?.into_dict().unwrap_or_default();
    fields.extend(given.into_iter().map(|(key, value)| (if key == "rule" { key } else { key.replace('-', "_") }, value)));
    Rule::deserialize(&Value::from(fields)).map_err(|e| format!("rule `{name}`: {e}"))
}
