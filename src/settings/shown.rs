//! What holds, as a settings file would say it.

use super::policy::PolicySettings;
use super::units;
use crate::model::policy::{Policy, Rule};

impl PolicySettings {
    /// A whole policy.
    pub fn of(policy: &Policy) -> Self {
        Self {
            enabled: Some(policy.enabled),
            act: Some(policy.act),
            target_file_size: Some(policy.scale.target),
            small_permille: Some(policy.scale.small_permille),
            rules: Some(policy.rules.clone()),
            queue_min_reduction: Some(policy.queue_min_reduction),
            min_table_age_ms: Some(policy.min_table_age_ms),
            min_table_bytes: Some(policy.min_table_bytes),
            quiet_window_ms: Some(policy.quiet_window_ms),
            keep_out_ms: Some(policy.keep_out_ms),
            hold_until_ms: Some(policy.hold_until_ms),
            cooldown_ms: Some(policy.cooldown_ms),
            gain_weight: Some(policy.gain_weight),
            executor_memory_gb: Some(policy.cost.executor_memory_gb),
            rewrite_bytes_per_hour: Some(policy.cost.rewrite_bytes_per_hour as u64),
            startup_gb_hours: Some(policy.cost.startup_gbhr),
            max_job_bytes: Some(policy.max_job_bytes),
            max_job_ms: Some(policy.max_job_ms),
            memory_limit: Some(policy.memory_limit),
            tier_files: Some(policy.tier_files),
            review_above_gb_hours: Some(policy.review_above_gb_hours),
            review_min_gain: Some(policy.review_min_gain),
            windows: Some(policy.windows.clone()),
            preset: Some(policy.preset),
            mode: Some(policy.pace.mode),
            schedule: Some(policy.pace.schedule.clone()),
            schedule_length_ms: Some(policy.pace.schedule_length_ms),
            off_peak: Some(policy.pace.off_peak.clone()),
            quota_pressure: Some(policy.pace.quota_pressure),
            quota_limit: Some(policy.quota_limit),
            filters: Some(policy.filters.clone()),
            intermediate: Some(policy.intermediate),
            retention_ms: Some(policy.retention_ms),
            retention_margin_ms: Some(policy.retention_margin_ms),
            scope: Some(policy.scope),
            branches: Some(policy.branches.clone()),
        }
    }

    /// Every key that is set, with its value in TOML.
    pub fn shown(&self) -> Vec<(&'static str, String)> {
        let mut keys: Vec<(&'static str, Option<String>)> = vec![
            ("enabled", self.enabled.map(|v| v.to_string())),
            ("act", self.act.map(|v| v.to_string())),
            ("target_file_size", self.target_file_size.map(size)),
            ("small_ratio", self.small_permille.map(|v| (f64::from(v) / 1000.0).to_string())),
            ("rules", self.rules.as_ref().map(|rules| format!("[{}]", rules.iter().map(rule).collect::<Vec<_>>().join(", ")))),
            ("tier_files", self.tier_files.map(|v| v.to_string())),
            ("queue_min_reduction", self.queue_min_reduction.map(|v| v.map_or_else(|| "\"off\"".to_owned(), |v| v.to_string()))),
            ("min_table_age", self.min_table_age_ms.map(duration)),
            ("min_table_size", self.min_table_bytes.map(size)),
            ("quiet_window", self.quiet_window_ms.map(duration)),
            ("keep_out", self.keep_out_ms.map(duration)),
            ("hold_until", self.hold_until_ms.map(|until| format!("\"{}\"", until.map_or_else(|| "off".to_owned(), units::moment)))),
            ("cooldown", self.cooldown_ms.map(duration)),
            ("gain_weight", self.gain_weight.map(|v| v.to_string())),
            ("executor_memory_gb", self.executor_memory_gb.map(|v| v.to_string())),
            ("rewrite_bytes_per_hour", self.rewrite_bytes_per_hour.map(size)),
            ("startup_gb_hours", self.startup_gb_hours.map(|v| v.to_string())),
        ];
        keys.extend([
            ("max_job_size", self.max_job_bytes.map(size)),
            ("max_job_time", self.max_job_ms.map(duration)),
            ("memory_limit", self.memory_limit.map(size)),
            ("review_above_gb_hours", self.review_above_gb_hours.map(|v| v.map_or_else(|| "\"off\"".to_owned(), |v| v.to_string()))),
            ("review_min_gain", self.review_min_gain.map(|v| v.to_string())),
            ("windows", self.windows.as_ref().map(|w| list(w))),
            // before the keys that it sets, which come after it wherever they are written
            ("preset", self.preset.map(|v| or_off(v.map(|preset| format!("\"{}\"", preset.name()))))),
            ("mode", self.mode.map(|v| format!("\"{}\"", v.name()))),
            ("schedule", self.schedule.as_ref().map(|v| format!("\"{v}\""))),
            ("schedule_length", self.schedule_length_ms.map(duration)),
            ("off_peak", self.off_peak.as_ref().map(|w| list(w))),
            ("quota_pressure", self.quota_pressure.map(|v| v.to_string())),
            ("quota_limit", self.quota_limit.map(|v| or_off(v.map(|v| v.to_string())))),
            ("filters", self.filters.as_ref().map(|f| list(&f.iter().map(|f| f.name.as_str()).collect::<Vec<_>>()))),
            ("intermediate", self.intermediate.map(|v| v.to_string())),
            ("retention", self.retention_ms.map(|v| or_off(v.map(duration)))),
            ("retention_margin", self.retention_margin_ms.map(duration)),
            ("scope", self.scope.map(|scope| format!("\"{}\"", scope.name()))),
            (
                "branches",
                self.branches.as_ref().map(|b| format!("[{}]", b.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", "))),
            ),
        ]);
        keys.into_iter().filter_map(|(key, value)| Some((key, value?))).collect()
    }
}

fn or_off(value: Option<String>) -> String {
    value.unwrap_or_else(|| "\"off\"".to_owned())
}

fn list<T: std::fmt::Display>(all: &[T]) -> String {
    format!("[{}]", all.iter().map(|one| format!("\"{one}\"")).collect::<Vec<_>>().join(", "))
}

/// In the largest unit that says it exactly.
fn size(bytes: u64) -> String {
    const UNITS: [(&str, u64); 8] = [
        ("TiB", 1 << 40),
        ("TB", 1_000_000_000_000),
        ("GiB", 1 << 30),
        ("GB", 1_000_000_000),
        ("MiB", 1 << 20),
        ("MB", 1_000_000),
        ("KiB", 1 << 10),
        ("KB", 1000),
    ];
    match UNITS.into_iter().find(|(_, unit)| bytes > 0 && bytes.is_multiple_of(*unit)) {
        Some((name, unit)) => format!("\"{}{name}\"", bytes / unit),
        None => bytes.to_string(),
    }
}

fn duration(ms: i64) -> String {
    let time = std::time::Duration::from_millis(u64::try_from(ms).unwrap_or(0));
    format!("\"{}\"", humantime::format_duration(time))
}

fn rule(rule: &Rule) -> String {
    let name = rule.name();
    match rule {
        Rule::Own { .. } => format!("\"{name}\""),
        Rule::SmallFiles { min_reduction_ratio } => format!("{{ rule = \"{name}\", min_reduction_ratio = {min_reduction_ratio} }}"),
        Rule::Entropy { min_entropy, min_small_files } => {
            format!("{{ rule = \"{name}\", min_entropy = {min_entropy}, min_small_files = {min_small_files} }}")
        }
        Rule::Deletes { min_ratio, min_files_per_data_file } => {
            format!("{{ rule = \"{name}\", min_ratio = {min_ratio}, min_files_per_data_file = {min_files_per_data_file} }}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Settings;
    use super::*;

    #[test]
    fn what_is_shown_is_what_would_be_read() {
        let policy = Policy {
            queue_min_reduction: None,
            cooldown_ms: 90_500,
            hold_until_ms: Some(1_769_896_800_000),
            min_table_bytes: 1_000_001,
            review_above_gb_hours: Some(1.5),
            quota_limit: Some(0.95),
            windows: vec!["sat-sun 00:00-24:00".parse().unwrap()],
            scope: crate::model::policy::Scoping::Hybrid,
            branches: vec!["main".into(), "audit/\"x\"".into()],
            ..Policy::default()
        };
        let shown = PolicySettings::of(&policy).shown();
        assert_eq!(shown.len(), 36);
        let lines: Vec<String> = shown.iter().map(|(key, value)| format!("{key} = {value}")).collect();
        let read = Settings::read(&format!("[defaults]\n{}", lines.join("\n")), []).unwrap();
        assert_eq!(read.defaults.over(Policy { tier_files: 99, act: true, ..Policy::default() }), policy);
        assert!(
            lines.contains(&"target_file_size = \"512MiB\"".to_owned()) && lines.contains(&"rewrite_bytes_per_hour = \"180GB\"".to_owned()),
            "{lines:?}"
        );
        assert_eq!(PolicySettings::default().shown(), []);
    }
}
