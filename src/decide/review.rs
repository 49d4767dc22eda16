//! Review: what is too dear to be done unasked, and gains enough to ask a person.

use super::check;
use crate::model::decision::{Check, Reason, Verdict};
use crate::model::policy::Policy;

/// The verdict, held back where it is dearer than the policy lets; recorded only where
/// the policy has such a bound.
pub fn of(verdict: Verdict, policy: &Policy, checks: &mut Vec<Check>) -> Verdict {
    let Some(most) = policy.review_above_gb_hours else { return verdict };
    let (gb_hours, gain) = match &verdict {
        Verdict::Now { gb_hours, gain, .. } | Verdict::Queued { gb_hours, gain, .. } | Verdict::Review { gb_hours, gain } => {
            (*gb_hours, *gain)
        }
        Verdict::Not { .. } => return verdict,
    };
    let cheap = gb_hours <= most;
    checks.push(check("review", gb_hours, most, cheap, "estimated GB-hours that are spent without asking a person"));
    if cheap {
        return verdict;
    }
    let worth = gain >= policy.review_min_gain;
    checks.push(check("review.gain", gain as f64, policy.review_min_gain as f64, worth, "files fewer for which a person is asked"));
    if worth { Verdict::Review { gb_hours, gain } } else { Verdict::Not { reason: Reason::TooDear } }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::judge;
    use crate::decide::testing::{Given, MIB};
    use crate::model::decision::CheckKind;

    fn given(above: f64, min_gain: u64) -> Given {
        let mut given = Given::small_files(100);
        given.policy.review_above_gb_hours = Some(above);
        given.policy.review_min_gain = min_gain;
        given
    }

    #[test]
    fn what_is_dearer_than_the_bound_waits_for_a_person_when_it_gains_enough() {
        let gb_hours = Given::small_files(100).policy.cost.gb_hours(100 * MIB);
        let verdict = |above, min_gain| judge(&given(above, min_gain).case()).verdict;
        assert_eq!(verdict(gb_hours / 2.0, 99), Verdict::Review { gb_hours, gain: 99 });
        assert_eq!(verdict(gb_hours / 2.0, 100), Verdict::Not { reason: Reason::TooDear });
        assert_eq!(verdict(gb_hours, 99), Verdict::Now { rule: "small-files".into(), gb_hours, gain: 99 });
    }

    #[test]
    fn the_numbers_are_among_the_checks_of_a_policy_that_asks_for_them() {
        let checks = judge(&given(0.0, 1).case()).checks;
        let last: Vec<_> = checks.iter().rev().take(2).map(|c| (c.name.as_str(), c.kind(), c.passed)).collect();
        assert_eq!(last, [("review.gain", CheckKind::Number, true), ("review", CheckKind::Filter, false)]);
        assert!(judge(&Given::small_files(100).case()).checks.iter().all(|c| !c.name.starts_with("review")));
    }

    #[test]
    fn what_is_left_alone_is_not_reviewed() {
        let mut given = given(0.0, 0);
        given.policy.enabled = false;
        assert_eq!(judge(&given.case()).verdict, Verdict::Not { reason: Reason::Disabled });
    }
}
