//! What each preset sets.
//!
//! Plans keep our own law whatever asks for them: the files of a merge rise by it, so
//! that a preset changes when work is done and not how often a byte is rewritten.

use super::policy::PolicySettings;
use crate::model::expression::{Expression, Type};
use crate::model::mode::Mode;
use crate::model::policy::{Rule, Takes};
use crate::model::preset::Preset;

const MIB: u64 = 1 << 20;
/// More delete files than any data file has.
const NEVER: u64 = u64::MAX;

impl PolicySettings {
    /// A preset's; every key that it does not set stays as it is.
    pub(super) fn preset(preset: Preset) -> Self {
        let base = Self { preset: Some(Some(preset)), ..Self::default() };
        match preset {
            Preset::Delta => Self {
                target_file_size: Some(128 * MIB),
                small_permille: Some(500),
                rules: Some(vec![own("delta-small-files", "small_file_count >= 50", Takes::Merge)]),
                queue_min_reduction: Some(None),
                ..base
            },
            Preset::Amoro => Self {
                target_file_size: Some(128 * MIB),
                small_permille: Some(750),
                rules: Some(vec![
                    own("amoro-minor", AMORO_MINOR, Takes::Merge),
                    own("amoro-minor-deletes", AMORO_MINOR, Takes::Deletes),
                    own("amoro-major", "small_bytes >= target_file_size", Takes::Merge),
                    Rule::Deletes { min_ratio: 0.1, min_files_per_data_file: NEVER },
                ]),
                queue_min_reduction: Some(None),
                ..base
            },
            Preset::Hudi => hudi(base, HUDI_COMMITS.to_owned()),
            Preset::HudiTimeElapsed => hudi(base, HUDI_TIME.to_owned()),
            Preset::HudiNumOrTime => hudi(base, format!("{HUDI_COMMITS} || {HUDI_TIME}")),
            Preset::HudiNumAndTime => hudi(base, format!("{HUDI_COMMITS} && {HUDI_TIME}")),
            Preset::Iceberg => Self {
                small_permille: Some(750),
                rules: Some(vec![
                    own("iceberg-inputs", "small_file_count >= 5", Takes::Merge),
                    Rule::Deletes { min_ratio: 0.3, min_files_per_data_file: NEVER },
                ]),
                queue_min_reduction: Some(None),
                ..base
            },
            Preset::PyicebergGovernance => Self {
                target_file_size: Some(128 * MIB),
                small_permille: Some(250),
                rules: Some(vec![own("governance-small-files", "data_files > 0 && small_file_count / data_files >= 0.3", Takes::Merge)]),
                queue_min_reduction: Some(None),
                ..base
            },
            Preset::Openhouse => Self {
                target_file_size: Some(526_385_152),
                small_permille: Some(750),
                rules: Some(Vec::new()),
                queue_min_reduction: Some(Some(1)),
                gain_weight: Some(0.7),
                executor_memory_gb: Some(2.0),
                rewrite_bytes_per_hour: Some(2 * MIB * 3600),
                startup_gb_hours: Some(0.5),
                mode: Some(Mode::Queued),
                ..base
            },
        }
    }
}

/// Fragments are files of at most an eighth of the target, as the tiers tell them.
const AMORO_MINOR: &str = "fragments + equality_delete_files >= 12 || \
    (fragments + equality_delete_files > 1 && default(since_rewrite, 3600000) >= 3600000)";
const HUDI_COMMITS: &str = "default(commits_since_rewrite, 0) >= 5";
const HUDI_TIME: &str = "default(since_rewrite, 3600000) >= 3600000";

/// Deletes first: they are what Hudi's log files hold.
fn hudi(base: PolicySettings, when: String) -> PolicySettings {
    PolicySettings {
        rules: Some(vec![own("hudi-deletes", &when, Takes::Deletes), own("hudi", &when, Takes::Merge)]),
        queue_min_reduction: Some(None),
        ..base
    }
}

/// A rule of an expression of ours, which is one; see the tests.
fn own(name: &str, when: &str, takes: Takes) -> Rule {
    let when = Expression::of_type(when, &[], Type::Truth).or_else(|_| Expression::compile("false", &[]));
    match when {
        Ok(when) => Rule::Own { name: name.to_owned(), when, takes },
        Err(_) => Rule::SmallFiles { min_reduction_ratio: 1.0 },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::policy::Policy;

    #[test]
    fn every_rule_of_every_preset_is_as_written() {
        for preset in Preset::ALL {
            let policy = PolicySettings::preset(preset).over(Policy::default());
            assert_eq!(policy.preset, Some(preset));
            for rule in &policy.rules {
                assert!(!matches!(rule, Rule::SmallFiles { .. }), "{preset:?}");
                if let Rule::Own { when, .. } = rule {
                    assert_ne!(when.to_string(), "false", "{preset:?}");
                }
            }
        }
    }

    #[test]
    fn a_preset_is_found_by_its_name() {
        for preset in Preset::ALL {
            assert_eq!(Preset::named(preset.name()), Some(preset));
        }
        assert_eq!((Preset::named("autocomp"), Preset::named("snowflake")), (Some(Preset::Openhouse), None));
    }
}
