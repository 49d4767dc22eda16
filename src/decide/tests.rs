//! The decision as a whole.

use super::testing::{Given, MIB, NOW};
use super::*;

#[test]
fn a_decision_names_what_it_was_made_of() {
    let mut given = Given::small_files(8);
    given.policy.act = true;
    let decision = judge(&given.case());
    assert_eq!((decision.at_ms, decision.snapshot_id, decision.act), (NOW, 42, true));
    assert_eq!((decision.table, decision.name), (given.table.ident, given.table.name.clone()));
    assert_eq!((&decision.scope, &decision.traits), (&given.scope, &given.traits));
    assert_eq!(decision.verdict, Verdict::Now { rule: "small-files".into(), gb_hours: given.policy.cost.gb_hours(8 * MIB), gain: 7 });
}

#[test]
fn every_check_is_recorded_in_order_whatever_decided() {
    let mut given = Given::small_files(8);
    let names = |given: &Given| judge(&given.case()).checks.into_iter().map(|c| c.name).collect::<Vec<_>>();
    let expected = [
        "refusals",
        "enabled",
        "paused",
        "table-age",
        "table-bytes",
        "cooldown",
        "quiet-window",
        "in-flight",
        "small-files.tier",
        "small-files.reduction",
        "small-files",
        "entropy.normalized",
        "entropy.small-files",
        "entropy",
        "deletes.ratio",
        "deletes.files",
        "deletes.on-one-file",
        "deletes",
        "queue",
    ];
    assert_eq!(names(&given), expected);
    given.policy.enabled = false;
    assert_eq!(names(&given), expected);
}

#[test]
fn the_same_view_gives_the_same_decision() {
    let given = Given::of(&[(4, MIB), (9, 8 * MIB), (2, 600 * MIB)]);
    assert_eq!(judge(&given.case()), judge(&given.case()));
}

#[test]
fn an_empty_partition_is_healthy() {
    assert_eq!(judge(&Given::of(&[]).case()).verdict, Verdict::Not { reason: Reason::Healthy });
}

#[test]
fn files_at_their_target_are_healthy() {
    assert_eq!(judge(&Given::of(&[(1000, 512 * MIB)]).case()).verdict, Verdict::Not { reason: Reason::Healthy });
}

#[test]
fn every_check_is_known_for_what_it_is() {
    use crate::model::decision::CheckKind::{Filter, Number, Rule};
    let checks = judge(&Given::small_files(8).case()).checks;
    let kinds: Vec<_> = checks.iter().map(Check::kind).collect();
    let of = |filters: usize| std::iter::repeat_n(Filter, filters);
    let rules = [Number, Number, Rule, Number, Number, Rule, Number, Number, Number, Rule, Rule];
    assert_eq!(kinds, of(8).chain(rules).collect::<Vec<_>>());
}
