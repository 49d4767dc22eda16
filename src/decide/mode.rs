//! Modes: when work may begin that a rule or the ranking asks for, and the work that a
//! mode asks for by itself.
//!
//! Decided after triggers and score, so that what needs nothing waits for nothing.

use super::select::{self, Estimate};
use super::{Case, check};
use crate::model::decision::{Check, Reason, Verdict};
use crate::model::mode::{Mode, Pace};
use crate::model::schedule::When;
use crate::model::window;

/// The verdict, as the policy's mode has it; recorded in every mode but the immediate.
pub fn of(verdict: Verdict, case: &Case<'_>, checks: &mut Vec<Check>) -> Verdict {
    match case.policy.pace.mode {
        Mode::Immediate => verdict,
        Mode::Queued => queued(verdict, checks),
        Mode::OffPeak => off_peak(verdict, case, checks),
        Mode::Periodic => due(verdict, case, checks, periodic),
        Mode::QuotaPressure => due(verdict, case, checks, pressed),
    }
}

/// When the mode alone lets work begin at the earliest; `None` for never, or not by
/// the passing of time; `urgent` when a rule fires.
pub fn opens_ms(case: &Case<'_>, now_ms: i64, urgent: bool) -> Option<i64> {
    let pace = &case.policy.pace;
    match pace.mode {
        Mode::Immediate | Mode::Queued => Some(now_ms),
        Mode::OffPeak if urgent || window::open(&pace.off_peak, now_ms) => Some(now_ms),
        Mode::OffPeak => Some(window::opens_ms(&pace.off_peak, now_ms)),
        Mode::Periodic => match when(case, now_ms) {
            When::Due { .. } => Some(now_ms),
            When::At(at_ms) => Some(at_ms),
            When::Never => None,
        },
        Mode::QuotaPressure => is_pressed(pace, case.traits.quota_used).then_some(now_ms),
    }
}

/// When what waits may begin no more, as far as its mode says; `urgent` when a rule asks
/// for it.
pub fn closes_ms(pace: &Pace, now_ms: i64, urgent: bool) -> Option<i64> {
    match pace.mode {
        Mode::OffPeak if !urgent => window::closes_ms(&pace.off_peak, now_ms),
        Mode::Periodic => match pace.schedule.when(now_ms, None, pace.schedule_length_ms) {
            When::Due { until_ms } => until_ms,
            When::At(_) | When::Never => Some(now_ms),
        },
        _ => None,
    }
}

/// Whether so much of a quota is in use that work is due; what is not known is not.
pub fn is_pressed(pace: &Pace, quota_used: Option<f64>) -> bool {
    quota_used.is_some_and(|used| used >= pace.quota_pressure)
}

fn queued(verdict: Verdict, checks: &mut Vec<Check>) -> Verdict {
    checks.push(check("mode", 1.0, 1.0, true, "queued: what triggers ask for is ranked too"));
    match verdict {
        Verdict::Now { rule, gb_hours, gain } => Verdict::Queued { gb_hours, gain, rule: Some(rule) },
        other => other,
    }
}

fn off_peak(verdict: Verdict, case: &Case<'_>, checks: &mut Vec<Check>) -> Verdict {
    let hours = &case.policy.pace.off_peak;
    let ranked = matches!(verdict, Verdict::Queued { .. });
    let open = window::open(hours, case.now_ms);
    let listed = hours.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let note = format!("off-peak: what no trigger asks for begins, in UTC: {listed}");
    checks.push(check("mode", if open { 1.0 } else { 0.0 }, 1.0, open || !ranked, note));
    match ranked && !open {
        true => Verdict::Not { reason: Reason::NotDue { until_ms: window::opens_ms(hours, case.now_ms) } },
        false => verdict,
    }
}

/// A mode that asks by itself: all that can be gained, when its time has come.
fn due(
    verdict: Verdict,
    case: &Case<'_>,
    checks: &mut Vec<Check>,
    asked: impl FnOnce(&Case<'_>, &mut Vec<Check>) -> Option<Reason>,
) -> Verdict {
    let asks_for_work = match &verdict {
        Verdict::Now { .. } | Verdict::Queued { .. } => true,
        Verdict::Not { reason } => matches!(reason, Reason::Healthy | Reason::NothingToGain),
        Verdict::Review { .. } => false,
    };
    let waits = asked(case, checks);
    let (estimate, least) = (everything(case), case.policy.queue_min_reduction.unwrap_or(1).max(1));
    let name = case.policy.pace.mode.name();
    let worth = estimate.gain() >= least;
    checks.push(check(
        &format!("{name}.gain"),
        estimate.gain() as f64,
        least as f64,
        worth,
        "files fewer, as predicted, for all tiers at once",
    ));
    match (asks_for_work, worth, waits) {
        (false, ..) => verdict,
        (true, false, _) => Verdict::Not { reason: Reason::Healthy },
        (true, true, Some(reason)) => Verdict::Not { reason },
        (true, true, None) => {
            Verdict::Now { rule: name.into(), gb_hours: case.policy.cost.gb_hours(estimate.bytes), gain: estimate.gain() }
        }
    }
}

fn when(case: &Case<'_>, now_ms: i64) -> When {
    let pace = &case.policy.pace;
    pace.schedule.when(now_ms, case.memory.last_rewrite_ms, pace.schedule_length_ms)
}

fn periodic(case: &Case<'_>, checks: &mut Vec<Check>) -> Option<Reason> {
    let pace = &case.policy.pace;
    let when = when(case, case.now_ms);
    let left = match when {
        When::At(at_ms) => at_ms.saturating_sub(case.now_ms),
        When::Due { .. } | When::Never => 0,
    };
    let is_due = matches!(when, When::Due { .. });
    checks.push(check("mode", left as f64, 0.0, is_due, format!("periodic: milliseconds until work is due, {}", pace.schedule)));
    match when {
        When::Due { .. } => None,
        When::At(until_ms) => Some(Reason::NotDue { until_ms }),
        When::Never => Some(Reason::NeverDue),
    }
}

fn pressed(case: &Case<'_>, checks: &mut Vec<Check>) -> Option<Reason> {
    let pace = &case.policy.pace;
    let is_pressed = is_pressed(pace, case.traits.quota_used);
    let note = match case.traits.quota_used {
        Some(_) => "quota-pressure: quota in use from which work is due",
        None => "quota-pressure: how much of its quota the tenant uses is not known",
    };
    checks.push(check("mode", case.traits.quota_used.unwrap_or(0.0), pace.quota_pressure, is_pressed, note));
    (!is_pressed).then_some(Reason::NoPressure)
}

/// What merging every small file and applying every delete would take and leave. Which
/// files deletes are on is not known from counts: at most all.
pub(super) fn everything(case: &Case<'_>) -> Estimate {
    let (traits, policy) = (case.traits, case.policy);
    let set = select::every_tier(&traits.small_tiers);
    let merged = select::estimate(&traits.small_tiers, &set, &policy.scale, policy.max_job_bytes);
    match case.memory.silenced_deletes || traits.delete_file_count == 0 || traits.data_files == 0 {
        true => merged,
        false => Estimate { bytes: traits.data_bytes, deletes: traits.delete_file_count, ..merged },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::judge;
    use crate::decide::testing::{Given, MIB, NOW};

    const HOUR: i64 = 3_600_000;

    fn given(mode: Mode, files: &[(u64, u64)]) -> Given {
        let mut given = Given::of(files);
        given.policy.pace.mode = mode;
        given.policy.cooldown_ms = 0;
        given
    }

    fn verdict(given: &Given) -> Verdict {
        judge(&given.case()).verdict
    }

    fn reason(given: &Given) -> Option<Reason> {
        match verdict(given) {
            Verdict::Not { reason } => Some(reason),
            _ => None,
        }
    }

    #[test]
    fn queued_ranks_what_a_trigger_asks_for_and_keeps_its_rule() {
        let given = given(Mode::Queued, &[(8, MIB)]);
        let gb_hours = given.policy.cost.gb_hours(8 * MIB);
        assert_eq!(verdict(&given), Verdict::Queued { gb_hours, gain: 7, rule: Some("small-files".into()) });
    }

    #[test]
    fn off_peak_holds_back_what_is_ranked_and_not_what_a_trigger_asks_for() {
        // NOW is 22:13:20 on a Tuesday
        let mut given = given(Mode::OffPeak, &[(5, MIB)]);
        given.policy.pace.off_peak = vec!["23:00-24:00".parse().unwrap()];
        let until_ms = NOW.div_euclid(HOUR) * HOUR + HOUR;
        assert_eq!(reason(&given), Some(Reason::NotDue { until_ms }));
        assert_eq!(judge(&given.case()).eligible_ms, Some(until_ms));
        given.policy.pace.off_peak = vec!["22:00-23:00".parse().unwrap()];
        assert!(matches!(verdict(&given), Verdict::Queued { gain: 4, rule: None, .. }));
        assert_eq!(closes_ms(&given.policy.pace, NOW, false), Some(until_ms));
        let mut urgent = self::given(Mode::OffPeak, &[(8, MIB)]);
        urgent.policy.pace.off_peak = vec!["23:00-24:00".parse().unwrap()];
        assert!(matches!(verdict(&urgent), Verdict::Now { .. }));
    }

    #[test]
    fn periodic_work_takes_all_tiers_when_it_is_due_and_waits_else() {
        // one file in each of two tiers: no rule fires, nothing is queued, and two are fewer than one
        let mut given = given(Mode::Periodic, &[(3, MIB), (2, 100 * MIB)]);
        given.policy.pace.schedule = "0 22 * * *".parse().unwrap();
        let gb_hours = given.policy.cost.gb_hours(203 * MIB);
        assert_eq!(verdict(&given), Verdict::Now { rule: "periodic".into(), gb_hours, gain: 4 });
        let tick = NOW.div_euclid(HOUR) * HOUR;
        assert_eq!(closes_ms(&given.policy.pace, NOW, true), Some(tick + HOUR));
        given.memory.last_rewrite_ms = Some(tick + 1);
        assert_eq!(reason(&given), Some(Reason::NotDue { until_ms: tick + 24 * HOUR }));
        assert_eq!(judge(&given.case()).eligible_ms, Some(tick + 24 * HOUR));
        given.memory.last_rewrite_ms = None;
        given.policy.pace.schedule_length_ms = 60_000;
        assert_eq!(reason(&given), Some(Reason::NotDue { until_ms: tick + 24 * HOUR }));
        given.policy.pace.schedule = "every 2h".parse().unwrap();
        given.memory.last_rewrite_ms = Some(NOW - HOUR);
        assert_eq!(reason(&given), Some(Reason::NotDue { until_ms: NOW + HOUR }));
    }

    #[test]
    fn a_full_tier_waits_for_its_period_too_and_what_gains_nothing_waits_for_none() {
        let mut full = given(Mode::Periodic, &[(50, MIB)]);
        full.memory.last_rewrite_ms = Some(NOW - HOUR);
        assert_eq!(reason(&full), Some(Reason::NotDue { until_ms: NOW + 23 * HOUR }));
        assert_eq!(reason(&given(Mode::Periodic, &[(1, MIB)])), Some(Reason::Healthy));
    }

    #[test]
    fn quota_pressure_makes_work_due_from_its_share_on() {
        let mut given = given(Mode::QuotaPressure, &[(8, MIB)]);
        assert_eq!(reason(&given), Some(Reason::NoPressure));
        given.traits.quota_used = Some(0.89);
        assert_eq!(reason(&given), Some(Reason::NoPressure));
        assert_eq!(judge(&given.case()).eligible_ms, None);
        given.traits.quota_used = Some(0.9);
        assert!(matches!(verdict(&given), Verdict::Now { rule, gain: 7, .. } if rule == "quota-pressure"));
    }

    #[test]
    fn deletes_are_due_with_the_rest_until_they_are_found_not_to_apply() {
        let mut given = given(Mode::QuotaPressure, &[(2, 500 * MIB)]);
        given.traits.quota_used = Some(1.0);
        given.traits.delete_file_count = 5;
        assert!(matches!(verdict(&given), Verdict::Now { gain: 5, .. }));
        given.memory.silenced_deletes = true;
        assert_eq!(reason(&given), Some(Reason::Healthy));
    }

    #[test]
    fn a_filter_holds_back_before_the_mode_is_asked() {
        let mut given = given(Mode::Periodic, &[(8, MIB)]);
        given.policy.enabled = false;
        assert_eq!(reason(&given), Some(Reason::Disabled));
    }
}
