//! Triggers: the rules that let work skip the queue.
//!
//! A rule fires only when the plan it would make is not empty. What that plan
//! would take is predicted from the counts of the layout; the exact files are
//! chosen, by the same functions, when the partition was read.

use super::select::{self, Estimate};
use super::{Case, check, scope};
use crate::model::decision::Check;
use crate::model::policy::{Rule, Takes};

/// What the rules said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    /// A rule fired.
    Fired {
        /// Its name.
        rule: String,
        /// What its plan would take and leave.
        estimate: Estimate,
    },
    /// A rule's thresholds hold, but the plan it would make is empty.
    InVain,
    /// No rule's thresholds hold.
    Nothing,
}

/// Asks every rule in order and records its numbers; the first that holds fires.
pub fn first_fired(case: &Case<'_>, checks: &mut Vec<Check>) -> Asked {
    let mut asked = Asked::Nothing;
    for rule in &case.policy.rules {
        let holds = thresholds(case, rule, checks);
        let estimate = predict(case, rule);
        let fires = holds && estimate.gain() > 0;
        let note = match (holds, fires) {
            (_, true) => "files fewer, as predicted",
            (true, _) => "files fewer, as predicted: the plan would be empty",
            _ => "files fewer, as predicted, if its numbers held",
        };
        checks.push(check(rule.name(), estimate.gain() as f64, 1.0, fires, note));
        asked = match asked {
            Asked::Fired { .. } => asked,
            _ if fires => Asked::Fired { rule: rule.name().into(), estimate },
            Asked::InVain => Asked::InVain,
            Asked::Nothing if holds => Asked::InVain,
            Asked::Nothing => Asked::Nothing,
        };
    }
    asked
}

/// Holds each number of a rule against its threshold.
fn thresholds(case: &Case<'_>, rule: &Rule, checks: &mut Vec<Check>) -> bool {
    match rule {
        Rule::SmallFiles { min_reduction_ratio } => small_files(case, *min_reduction_ratio, checks),
        Rule::Entropy { min_entropy, min_small_files } => entropy(case, *min_entropy, *min_small_files, checks),
        Rule::Deletes { min_ratio, min_files_per_data_file } => deletes(case, *min_ratio, *min_files_per_data_file, checks),
        Rule::Own { name, when, .. } => super::own::fires(case, name, when, checks),
    }
}

/// A size tier is full, counting what smaller full tiers would bring, and the
/// reduction is worth it beside all files.
fn small_files(case: &Case<'_>, min_ratio: f64, checks: &mut Vec<Check>) -> bool {
    let traits = case.traits;
    let fullest = traits.small_tiers.iter().map(|t| t.files).max().unwrap_or(0);
    let full = fullest >= case.policy.tier_files.max(1);
    let ratio = if traits.data_files == 0 { 0.0 } else { traits.file_count_reduction as f64 / traits.data_files as f64 };
    let worth = ratio >= min_ratio;
    checks.push(check("small-files.tier", fullest.into(), case.policy.tier_files.into(), full, "small files in the fullest size tier"));
    checks.push(check("small-files.reduction", ratio, min_ratio, worth, "files that merging would drop, over all files"));
    full && worth
}

fn entropy(case: &Case<'_>, min_entropy: f64, min_small: u64, checks: &mut Vec<Check>) -> bool {
    let traits = case.traits;
    let uneven = traits.file_entropy_normalized >= min_entropy;
    let enough = traits.small_file_count >= min_small;
    checks.push(check(
        "entropy.normalized",
        traits.file_entropy_normalized,
        min_entropy,
        uneven,
        "mean squared distance from the target, over its square",
    ));
    checks.push(check("entropy.small-files", traits.small_file_count as f64, min_small as f64, enough, "small files"));
    uneven && enough
}

/// The share of deleted rows, or the delete files on one data file, are too many.
///
/// In a partition far below the target a few delete files cost a reader nothing,
/// while a streaming upsert deletes as many rows as it writes with each of its
/// commits: there the share alone waits until there are as many delete files as
/// fill a tier.
fn deletes(case: &Case<'_>, min_ratio: f64, min_files: u64, checks: &mut Vec<Check>) -> bool {
    let traits = case.traits;
    let share = traits.delete_ratio >= min_ratio;
    checks.push(check("deletes.ratio", traits.delete_ratio, min_ratio, share, "deleted rows over all rows, at most"));
    let company = traits.data_bytes.saturating_mul(SMALL_SCOPE_DIVISOR) >= case.policy.scale.target
        || traits.delete_file_count >= u64::from(case.policy.tier_files);
    let wanted = f64::from(case.policy.tier_files);
    checks.push(check(
        "deletes.files",
        traits.delete_file_count as f64,
        wanted,
        company,
        "delete files; asked only of a partition below an eighth of the target",
    ));
    let most = case.memory.max_deletes_on_file.unwrap_or(0);
    let piled = most >= min_files && case.memory.max_deletes_on_file.is_some();
    checks.push(check("deletes.on-one-file", most as f64, min_files as f64, piled, "delete files on one data file, as far as known"));
    if case.memory.silenced_deletes {
        checks.push(check("deletes.silenced", 1.0, 0.0, false, "a plan found that no delete applies; silent until a new delete comes"));
    }
    (share && company) || piled
}

/// Below `T / 8` a partition is too small for its deletes to matter one by one.
const SMALL_SCOPE_DIVISOR: u64 = 8;

/// What the plan of a rule would take and leave.
fn predict(case: &Case<'_>, rule: &Rule) -> Estimate {
    let policy = case.policy;
    let full = match rule {
        Rule::SmallFiles { .. } | Rule::Own { takes: Takes::FullTiers, .. } => true,
        Rule::Entropy { .. } | Rule::Own { takes: Takes::Merge, .. } => false,
        Rule::Deletes { .. } => return predict_deletes(case),
        Rule::Own { takes: Takes::Deletes, .. } if case.traits.delete_file_count == 0 => return Estimate::default(),
        Rule::Own { takes: Takes::Deletes, .. } => return predict_deletes(case),
        Rule::Own { takes: Takes::All, .. } => return super::mode::everything(case),
    };
    scope::estimate(policy, case.memory, case.traits, |tiers| {
        let set = match full {
            true => select::full_tiers(tiers, &policy.scale, policy.tier_files, policy.max_job_bytes),
            false => select::rising_tiers(tiers, &policy.scale, policy.max_job_bytes),
        };
        select::estimate(tiers, &set, &policy.scale, policy.max_job_bytes)
    })
}

/// Which files the deletes are on is not known from counts: the most that it can
/// be, every file once.
fn predict_deletes(case: &Case<'_>) -> Estimate {
    let traits = case.traits;
    if case.memory.silenced_deletes || traits.data_files == 0 {
        return Estimate::default();
    }
    Estimate { files: traits.data_files, bytes: traits.data_bytes, outputs: traits.data_files, deletes: traits.delete_file_count }
}

#[cfg(test)]
mod tests {
    use crate::decide::judge;
    use crate::decide::testing::{Given, MIB};
    use crate::model::decision::{Reason, Verdict};

    fn fired(given: &Given) -> Option<String> {
        match judge(&given.case()).verdict {
            Verdict::Now { rule, .. } => Some(rule),
            _ => None,
        }
    }

    fn verdict(given: &Given) -> Verdict {
        judge(&given.case()).verdict
    }

    /// One big healthy file and deletes beside it.
    fn deletes(ratio: f64, files: u64) -> Given {
        let mut given = Given::of(&[(1, 500 * MIB)]);
        given.traits.delete_ratio = ratio;
        given.traits.delete_file_count = files;
        given
    }

    #[test]
    fn small_files_fires_at_a_full_tier() {
        assert_eq!(fired(&Given::small_files(8)), Some("small-files".into()));
        assert_eq!(fired(&Given::small_files(7)), None);
    }

    #[test]
    fn small_files_waits_while_the_reduction_is_little_beside_all_files() {
        let mut given = Given::of(&[(8, MIB), (63, 500 * MIB)]);
        given.policy.rules.truncate(1);
        given.policy.queue_min_reduction = None;
        assert_eq!((given.traits.file_count_reduction, given.traits.data_files), (7, 71));
        assert_eq!(verdict(&given), Verdict::Not { reason: Reason::Healthy });
        let given = Given::of(&[(8, MIB), (62, 500 * MIB)]);
        assert_eq!(fired(&given), Some("small-files".into()));
    }

    #[test]
    fn small_files_that_would_merge_into_small_files_of_their_tier_do_not_fire() {
        let mut given = Given::of(&[(8, 142 * MIB)]);
        given.policy.queue_min_reduction = None;
        assert_eq!(verdict(&given), Verdict::Not { reason: Reason::NothingToGain });
    }

    #[test]
    fn entropy_fires_over_tiers_that_are_not_full() {
        let given = Given::of(&[(4, MIB), (4, 8 * MIB)]);
        assert_eq!(fired(&given), Some("entropy".into()));
        assert_eq!(verdict(&given), Verdict::Now { rule: "entropy".into(), gb_hours: given.policy.cost.gb_hours(36 * MIB), gain: 7 });
    }

    #[test]
    fn entropy_needs_its_number_of_small_files() {
        assert_eq!(fired(&Given::of(&[(4, MIB), (3, 8 * MIB)])), None);
    }

    #[test]
    fn entropy_does_not_fire_on_files_near_the_target() {
        // ((512 − 150) / 512)² = 0.4999
        let mut given = Given::of(&[(9, 150 * MIB)]);
        given.policy.rules.remove(0);
        assert_eq!(fired(&given), None);
    }

    #[test]
    fn entropy_does_not_fire_when_the_outcome_would_be_as_it_is() {
        // 8 files, each the only one that could rise with its smaller ones: no job may hold two
        let mut given = Given::of(&[(4, MIB), (4, 8 * MIB)]);
        given.policy.max_job_bytes = 1;
        given.policy.queue_min_reduction = None;
        assert_eq!(verdict(&given), Verdict::Not { reason: Reason::NothingToGain });
    }

    #[test]
    fn deletes_fire_at_their_ratio() {
        assert_eq!(fired(&deletes(0.1, 1)), Some("deletes".into()));
        assert_eq!(fired(&deletes(0.0999, 1)), None);
    }

    #[test]
    fn deletes_fire_when_they_pile_up_on_one_file() {
        let mut given = deletes(0.0, 16);
        assert_eq!(fired(&given), None);
        given.memory.max_deletes_on_file = Some(15);
        assert_eq!(fired(&given), None);
        given.memory.max_deletes_on_file = Some(16);
        assert_eq!(fired(&given), Some("deletes".into()));
    }

    #[test]
    fn deletes_in_a_tiny_partition_wait_for_company() {
        let mut given = Given::of(&[(2, MIB)]);
        given.traits.delete_ratio = 1.0;
        given.traits.delete_file_count = 7;
        assert_eq!(fired(&given), None);
        given.traits.delete_file_count = 8;
        assert_eq!(fired(&given), Some("deletes".into()));
        let mut given = Given::of(&[(1, 64 * MIB)]);
        given.traits.delete_ratio = 1.0;
        given.traits.delete_file_count = 1;
        assert_eq!(fired(&given), Some("deletes".into()));
    }

    #[test]
    fn silenced_deletes_do_not_fire() {
        let mut given = deletes(1.0, 20);
        given.memory.silenced_deletes = true;
        given.memory.max_deletes_on_file = Some(20);
        assert_eq!(verdict(&given), Verdict::Not { reason: Reason::NothingToGain });
    }

    #[test]
    fn deletes_without_data_do_not_fire() {
        let mut given = Given::of(&[]);
        given.traits.delete_ratio = 1.0;
        given.traits.delete_file_count = 20;
        assert_eq!(fired(&given), None);
    }

    #[test]
    fn the_first_rule_that_holds_fires() {
        let mut given = Given::small_files(20);
        given.traits.delete_ratio = 1.0;
        given.traits.delete_file_count = 30;
        assert_eq!(fired(&given), Some("small-files".into()));
        given.policy.rules.reverse();
        assert_eq!(fired(&given), Some("deletes".into()));
        given.policy.rules.clear();
        assert_eq!(fired(&given), None);
    }

    #[test]
    fn a_trigger_skips_the_queue_and_no_filter() {
        let mut given = Given::small_files(100);
        given.in_flight = true;
        assert_eq!(verdict(&given), Verdict::Not { reason: Reason::InFlight });
    }

    #[test]
    fn a_number_that_is_none_fires_nothing() {
        let mut given = deletes(f64::NAN, 20);
        given.traits.file_entropy_normalized = f64::NAN;
        assert_eq!(fired(&given), None);
    }
}
