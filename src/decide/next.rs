//! When work may begin at the earliest, as far as only time holds it back.

use super::{Case, keep_out, mode};
use crate::model::decision::{Reason, Verdict};
use crate::model::window;

/// Waits that follow on each other: more are looked for only by settings that leave
/// no time at all.
const ROUNDS: usize = 64;

/// When a scope that only time holds back becomes eligible: when everything that waits
/// for a time has passed at once. `None` when it may begin now, or when something else
/// holds it back. `urgent` when a rule fires.
pub fn eligible_ms(case: &Case<'_>, verdict: &Verdict, urgent: bool) -> Option<i64> {
    let Verdict::Not { reason } = verdict else { return None };
    if !waits_for_time(reason) || held_back_otherwise(case) {
        return None;
    }
    // once more behind the time that was found, until nothing holds back there
    let mut at_ms = case.now_ms;
    for _ in 0..ROUNDS {
        let later = next(case, at_ms, urgent)?;
        if later <= at_ms {
            return Some(at_ms).filter(|at| *at > case.now_ms);
        }
        at_ms = later;
    }
    None
}

fn waits_for_time(reason: &Reason) -> bool {
    matches!(
        reason,
        Reason::TooNew { .. }
            | Reason::CoolingDown { .. }
            | Reason::QuietWindow { .. }
            | Reason::Held { .. }
            | Reason::KeptOut { .. }
            | Reason::OutsideWindows { .. }
            | Reason::NotDue { .. }
    )
}

/// Whether a filter holds the scope back that time does not open, behind the one that
/// decided.
fn held_back_otherwise(case: &Case<'_>) -> bool {
    !case.refusals.is_empty()
        || !case.policy.enabled
        || case.paused
        || case.in_flight
        || case.policy.intermediate
        || case.table.bytes < case.policy.min_table_bytes
        || super::own::first_stop(case, &mut Vec::new()).is_some()
        || super::filter::is_soon_dropped(case)
        || super::filter::is_at_limit(case.policy, case.traits.quota_used)
}

/// When the last of those passes that hold back at a moment.
fn next(case: &Case<'_>, at_ms: i64, urgent: bool) -> Option<i64> {
    let policy = case.policy;
    let mut latest = at_ms;
    if policy.min_table_age_ms > 0 {
        latest = latest.max(case.table.created_ms.saturating_add(policy.min_table_age_ms));
    }
    latest = latest.max(case.memory.eligible_at(policy.cooldown_ms, case.now_ms).unwrap_or(at_ms));
    if let Some(quiet_for) = case.traits.quiet_for_ms {
        latest = latest.max(case.now_ms.saturating_add(policy.quiet_window_ms.max(0).saturating_sub(quiet_for.max(0))));
    }
    latest = keep_out::free_from_ms(case, latest);
    if !window::open(&policy.windows, latest) {
        latest = window::opens_ms(&policy.windows, latest);
    }
    Some(latest.max(mode::opens_ms(case, latest, urgent)?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use crate::decide::judge;
    use crate::decide::testing::{Given, MIB, NOW};
    use crate::model::decision::{Reason, Verdict};
    use crate::model::mode::Mode;

    const HOUR: i64 = 3_600_000;

    fn eligible(given: &Given) -> Option<i64> {
        judge(&given.case()).eligible_ms
    }

    #[test]
    fn what_follows_on_a_wait_is_waited_for_too() {
        let mut given = Given::small_files(8);
        given.memory.last_rewrite_ms = Some(NOW);
        given.policy.cooldown_ms = HOUR;
        assert_eq!(eligible(&given), Some(NOW + HOUR));
        // the cooldown ends at 23:13, and work begins from four on
        given.policy.windows = vec!["04:00-05:00".parse().unwrap()];
        let midnight = NOW.div_euclid(24 * HOUR) * 24 * HOUR + 24 * HOUR;
        assert_eq!(eligible(&given), Some(midnight + 4 * HOUR));
    }

    #[test]
    fn what_time_does_not_open_is_never_said_to_be_eligible() {
        let mut given = Given::small_files(8);
        assert_eq!(eligible(&given), None);
        given.memory.last_rewrite_ms = Some(NOW);
        for change in [|g: &mut Given| g.policy.enabled = false, |g: &mut Given| g.paused = true, |g: &mut Given| g.in_flight = true] {
            let mut given = given.clone();
            change(&mut given);
            assert_eq!(eligible(&given), None);
        }
        assert_eq!(eligible(&Given::of(&[])), None);
    }

    #[test]
    fn a_hold_and_an_expected_writer_are_waited_for_too() {
        let mut given = Given::small_files(8);
        given.policy.hold_until_ms = Some(NOW + 2 * HOUR);
        assert_eq!(eligible(&given), Some(NOW + 2 * HOUR));
        given.policy.hold_until_ms = None;
        given.policy.keep_out_ms = HOUR;
        given.traits.writers.loaded_until_ms = Some(NOW + HOUR / 2);
        assert_eq!(eligible(&given), Some(NOW + HOUR / 2));
        // behind a cooldown, too
        given.memory.last_rewrite_ms = Some(NOW);
        given.policy.cooldown_ms = HOUR / 4;
        assert_eq!(eligible(&given), Some(NOW + HOUR / 2));
    }

    #[test]
    fn waits_that_never_end_together_are_told_by_none() {
        let mut given = Given::small_files(8);
        given.policy.pace.mode = Mode::Periodic;
        given.policy.pace.schedule = "0 12 * * *".parse().unwrap();
        given.policy.pace.schedule_length_ms = 60_000;
        given.policy.windows = vec!["01:00-02:00".parse().unwrap()];
        assert_eq!(eligible(&given), None);
    }

    proptest! {
        #[test]
        fn what_is_eligible_at_a_time_is_let_through_then(
            cooldown in 0i64..30, rewritten in proptest::option::of(0i64..40), quiet in proptest::option::of(0i64..20), quiet_window in 0i64..20,
            age in 0i64..30, window in any::<bool>(), mode in 0usize..3,
        ) {
            let mut given = Given::of(&[(8, MIB), (1, 100 * MIB)]);
            given.policy.cooldown_ms = cooldown * HOUR;
            given.memory.last_rewrite_ms = rewritten.map(|h| NOW - h * HOUR);
            given.traits.quiet_for_ms = quiet.map(|h| h * HOUR);
            given.policy.quiet_window_ms = quiet_window * HOUR;
            given.policy.min_table_age_ms = age * HOUR;
            given.table.created_ms = NOW - 10 * HOUR;
            if window {
                given.policy.windows = vec!["01:00-07:00".parse().unwrap()];
            }
            given.policy.pace.mode = [Mode::Immediate, Mode::Periodic, Mode::OffPeak][mode];
            given.policy.pace.schedule = "0 4 * * * Europe/Berlin".parse().unwrap();
            let decision = judge(&given.case());
            match (&decision.verdict, decision.eligible_ms) {
                (Verdict::Now { .. } | Verdict::Queued { .. }, at) => prop_assert_eq!(at, None),
                (Verdict::Not { .. }, Some(at)) => {
                    prop_assert!(at > NOW);
                    let mut then = given.clone();
                    then.traits.quiet_for_ms = given.traits.quiet_for_ms.map(|q| q + at - NOW);
                    let mut case = then.case();
                    case.now_ms = at;
                    let verdict = judge(&case).verdict;
                    prop_assert!(matches!(verdict, Verdict::Now { .. } | Verdict::Queued { .. }), "{:?} at {}", verdict, at);
                    // and not a moment before
                    then.traits.quiet_for_ms = given.traits.quiet_for_ms.map(|q| q + at - NOW - 1);
                    let mut case = then.case();
                    case.now_ms = at - 1;
                    let before = judge(&case).verdict;
                    prop_assert!(matches!(before, Verdict::Not { .. }), "{:?}", before);
                }
                (Verdict::Not { reason }, None) => prop_assert!(matches!(reason, Reason::Healthy), "{:?}", reason),
                (Verdict::Review { .. }, _) => prop_assert!(false),
            }
        }
    }
}
