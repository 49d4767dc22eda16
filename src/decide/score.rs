//! Scores: what work that no rule asks for is worth beside other work.

use super::select::{self, Estimate};
use super::{Case, check, scope};
use crate::model::decision::Check;

/// What a merge of the partition would take and leave, when that is worth
/// queueing.
pub fn worth_queueing(case: &Case<'_>, checks: &mut Vec<Check>) -> Option<Estimate> {
    let policy = case.policy;
    let estimate = scope::estimate(policy, case.memory, case.traits, |tiers| {
        let set = select::rising_tiers(tiers, &policy.scale, policy.max_job_bytes);
        select::estimate(tiers, &set, &policy.scale, policy.max_job_bytes)
    });
    let gain = estimate.gain();
    let (worth, least, note) = match policy.queue_min_reduction {
        Some(least) => (gain > 0 && gain >= least, least as f64, "files fewer, as predicted, if it were queued"),
        None => (false, f64::INFINITY, "the settings queue nothing"),
    };
    let least = if least.is_finite() { least } else { 0.0 };
    checks.push(check("queue", gain as f64, least, worth, note));
    worth.then_some(estimate)
}

/// Min–max normalization over the candidates of a round: 0 when all are equal.
/// A value that is not finite counts as the largest that is.
///
/// AutoComp, section 4.3: `norm(v) = (v − min) / (max − min)`.
pub fn norm(values: &[f64]) -> Vec<f64> {
    let finite = values.iter().copied().filter(|v| v.is_finite());
    let (min, max) = finite.fold((f64::INFINITY, f64::NEG_INFINITY), |(min, max), v| (min.min(v), max.max(v)));
    let span = max - min;
    let scaled = |v: f64| if v.is_finite() { (v - min) / span } else { 1.0 };
    values.iter().map(|v| if span > 0.0 && span.is_finite() { scaled(*v).clamp(0.0, 1.0) } else { 0.0 }).collect()
}

/// The same on ranks in place of values, so that one extreme value does not flatten
/// the rest: how many are less, over all but one. 0 when all are equal; a value that
/// is not finite counts as the largest that is.
pub fn rank_norm(values: &[f64]) -> Vec<f64> {
    let most = values.iter().copied().filter(|v| v.is_finite()).fold(f64::NEG_INFINITY, f64::max);
    // both zeros are one value
    let drawn = |v: f64| if v.is_finite() { v + 0.0 } else { most };
    let mut order: Vec<(i64, u32)> = values.iter().zip(0..).map(|(v, at)| (ascending(drawn(*v)), at)).collect();
    order.sort_unstable_by_key(|(value, _)| *value);
    let others = values.len().saturating_sub(1).max(1) as f64;
    let mut ranks = vec![0.0; values.len()];
    let (mut before, mut rank) = (None, 0.0);
    for (less, (value, at)) in order.into_iter().enumerate() {
        if before.replace(value) != Some(value) {
            rank = less as f64 / others;
        }
        if let Some(slot) = ranks.get_mut(at as usize) {
            *slot = rank;
        }
    }
    ranks
}

/// A whole number in the order of `total_cmp`.
pub(super) fn ascending(value: f64) -> i64 {
    let bits = value.to_bits().cast_signed();
    bits ^ ((bits >> 63).cast_unsigned() >> 1).cast_signed()
}

/// `S = w·gain − (1 − w)·cost` of normalized gain and cost; a weight outside
/// [0, 1] is drawn to its nearer end.
pub fn weighted_sum(gain: f64, cost: f64, gain_weight: f64) -> f64 {
    let weight = if gain_weight.is_nan() { 0.0 } else { gain_weight.clamp(0.0, 1.0) };
    weight * gain - (1.0 - weight) * cost
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::judge;
    use crate::decide::testing::{Given, MIB};
    use crate::model::decision::{Reason, Verdict};

    fn verdict(given: &Given) -> Verdict {
        judge(&given.case()).verdict
    }

    #[test]
    fn what_no_rule_asks_for_is_queued_from_its_least_gain() {
        let mut given = Given::small_files(5);
        given.policy.queue_min_reduction = Some(4);
        assert_eq!(verdict(&given), Verdict::Queued { gb_hours: given.policy.cost.gb_hours(5 * MIB), gain: 4, rule: None });
        given.policy.queue_min_reduction = Some(5);
        assert_eq!(verdict(&given), Verdict::Not { reason: Reason::Healthy });
    }

    #[test]
    fn nothing_to_gain_is_never_queued() {
        let mut given = Given::of(&[(1, MIB)]);
        given.policy.queue_min_reduction = Some(0);
        assert_eq!(verdict(&given), Verdict::Not { reason: Reason::Healthy });
    }

    #[test]
    fn settings_may_queue_nothing() {
        let mut given = Given::small_files(7);
        given.policy.queue_min_reduction = None;
        assert_eq!(verdict(&given), Verdict::Not { reason: Reason::Healthy });
    }

    #[test]
    fn a_norm_is_zero_at_the_least_and_one_at_the_most() {
        assert_eq!(norm(&[3.0, 1.0, 2.0]), [1.0, 0.0, 0.5]);
        assert_eq!(norm(&[]), Vec::<f64>::new());
    }

    #[test]
    fn equal_values_have_norm_zero() {
        assert_eq!(norm(&[7.0]), [0.0]);
        assert_eq!(norm(&[7.0, 7.0]), [0.0, 0.0]);
    }

    #[test]
    fn a_value_that_is_no_number_counts_as_the_largest() {
        assert_eq!(norm(&[f64::NAN, 1.0, 3.0, f64::INFINITY]), [1.0, 0.0, 1.0, 1.0]);
        assert_eq!(norm(&[f64::NAN, f64::NAN]), [0.0, 0.0]);
        assert_eq!(norm(&[f64::NAN, 1.0]), [0.0, 0.0]);
    }

    #[test]
    fn a_rank_is_how_many_are_less() {
        assert_eq!(rank_norm(&[3.0, 1.0, 2.0, 1e9, 2.0]), [0.75, 0.0, 0.25, 1.0, 0.25]);
        assert_eq!(rank_norm(&[7.0, 7.0]), [0.0, 0.0]);
        assert_eq!((rank_norm(&[]), rank_norm(&[5.0])), (vec![], vec![0.0]));
        assert_eq!(rank_norm(&[f64::NAN, 1.0, f64::INFINITY, 3.0]), [1.0 / 3.0, 0.0, 1.0 / 3.0, 1.0 / 3.0]);
        assert_eq!(rank_norm(&[f64::NAN, f64::NAN]), [0.0, 0.0]);
        assert_eq!(rank_norm(&[0.0, -0.0, -1.0]), [0.5, 0.5, 0.0]);
    }

    #[test]
    fn a_weight_stays_within_its_range() {
        assert_eq!(weighted_sum(1.0, 1.0, 2.0), 1.0);
        assert_eq!(weighted_sum(1.0, 1.0, -1.0), -1.0);
        assert_eq!(weighted_sum(1.0, 1.0, f64::NAN), -1.0);
    }

    /// OpenHouse's estimator over the files below 0.75 T: `n − ⌈B / T⌉` files for
    /// `B / 2 MiB / 3600 · 2 + 0.5` GB-hours.
    fn openhouse(files: &[(u64, u64)]) -> (f64, f64) {
        const TARGET: u64 = 526_385_152;
        let small = || files.iter().filter(|(_, mib)| (mib * MIB) as f64 * 1.0 < 0.75 * TARGET as f64);
        let n: u64 = small().map(|(n, _)| n).sum();
        let bytes: u64 = small().map(|(n, mib)| n * mib * MIB).sum();
        let gain = n - bytes.div_ceil(TARGET);
        (gain as f64, (bytes / MIB) as f64 / 2.0 / 3600.0 * 2.0 + 0.5)
    }

    #[test]
    fn openhouse_vectors_hold() {
        let cases = [openhouse(&[(100, 10)]), openhouse(&[(20, 100), (3, 502), (1, 800)]), openhouse(&[(5000, 1)])];
        let gains = cases.map(|(gain, _)| gain);
        let costs = cases.map(|(_, cost)| cost);
        assert_eq!(gains, [98.0, 16.0, 4990.0]);
        assert_eq!(costs.map(|c| (c * 1e6).round()), [777_778.0, 1_055_556.0, 1_888_889.0]);
        let (gains, costs) = (norm(&gains), norm(&costs));
        let scores: Vec<f64> = gains.iter().zip(&costs).map(|(g, c)| (weighted_sum(*g, *c, 0.7) * 1e5).round()).collect();
        assert_eq!(scores, [1154.0, -7500.0, 40_000.0]);
    }
}
