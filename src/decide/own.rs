//! Users' own traits, filters and triggers, as asked of one scope.

use std::sync::Arc;

use super::round::Term;
use super::{Case, check};
use crate::model::decision::{Check, OWN_FILTER, Reason};
use crate::model::expression::{Expression, Facts, Own};
use crate::model::policy::{Policy, Rule};
use crate::model::traits::Traits;

/// What expressions see of a case; `table` is the table's name.
fn facts<'a>(case: &'a Case<'_>, table: &'a str) -> Facts<'a> {
    Facts {
        traits: case.traits,
        table,
        table_bytes: case.table.bytes,
        table_age_ms: case.now_ms.saturating_sub(case.table.created_ms),
        target_file_size: case.policy.scale.target,
        since_rewrite_ms: case.memory.last_rewrite_ms.map(|at| case.now_ms.saturating_sub(at).max(0)),
    }
}

/// Asks every own filter; the first that does not hold, or cannot be asked, stops.
pub fn first_stop(case: &Case<'_>, checks: &mut Vec<Check>) -> Option<Reason> {
    let mut stopped = None;
    for filter in &case.policy.filters {
        let asked = holds(case, &filter.holds);
        let passed = asked == Ok(true);
        let note = told(&filter.holds, &asked);
        checks.push(check(&format!("{OWN_FILTER}{}", filter.name), flag(passed), 1.0, passed, note));
        if !passed && stopped.is_none() {
            stopped = Some(Reason::OwnFilter { name: filter.name.clone(), failure: asked.err() });
        }
    }
    stopped
}

/// Between two askings of what time alone may change, in milliseconds.
const AGAIN_MS: i64 = 60_000;

/// When a scope for which nothing is done is asked about again, because an expression names
/// what changes with time and there would be something to gain.
pub fn again_ms(policy: &Policy, traits: &Traits, now_ms: i64) -> Option<i64> {
    let rules = policy.rules.iter().filter_map(|rule| match rule {
        Rule::Own { when, .. } => Some(when),
        _ => None,
    });
    let changes = rules.chain(policy.filters.iter().map(|f| &f.holds)).any(Expression::changes_with_time);
    let gains = traits.file_count_reduction > 0 || traits.delete_file_count > 0;
    (changes && gains).then(|| now_ms.saturating_add(AGAIN_MS))
}

/// Whether a trigger's expression holds; what cannot be asked does not.
pub fn fires(case: &Case<'_>, name: &str, when: &Expression, checks: &mut Vec<Check>) -> bool {
    let asked = holds(case, when);
    let holds = asked == Ok(true);
    checks.push(check(&format!("{name}.when"), flag(holds), 1.0, holds, told(when, &asked)));
    holds
}

/// Shows the own traits.
pub fn shown(case: &Case<'_>, checks: &mut Vec<Check>) {
    if case.policy.own.is_empty() {
        return;
    }
    let table = case.table.name.to_string();
    for own in &case.policy.own {
        let mut meaning = if own.meaning.is_empty() { own.is.to_string() } else { own.meaning.clone() };
        if own.weight != 0.0 {
            meaning = format!("{meaning}; weighs {} in the ranking", own.weight);
        }
        let (value, note, known) = match own.is.number(&facts(case, &table)) {
            Ok(value) => (value, meaning, true),
            Err(failure) => (0.0, format!("{meaning}: {failure}"), false),
        };
        checks.push(check(&format!("{TRAIT}{}", own.name), value, 0.0, known, note));
    }
}

/// Before the names of own traits.
const TRAIT: &str = "trait.";

/// The own traits that weigh in the ranking, as a decision shows them; those that are not
/// known weigh nothing.
pub fn terms(policy: &Policy, checks: &[Check]) -> Option<Arc<[Term]>> {
    let weighed = policy.own.iter().filter(|own| own.weight != 0.0);
    let value = |own: &Own| {
        let found = checks.iter().find(|check| check.name.strip_prefix(TRAIT) == Some(&*own.name) && check.passed)?;
        Some(Term { name: Arc::clone(&own.name), weight: own.weight, value: found.value })
    };
    let terms: Arc<[Term]> = weighed.filter_map(value).collect();
    (!terms.is_empty()).then_some(terms)
}

fn holds(case: &Case<'_>, expression: &Expression) -> Result<bool, String> {
    let table = case.table.name.to_string();
    expression.holds(&facts(case, &table)).map_err(|failure| failure.to_string())
}

fn told(expression: &Expression, asked: &Result<bool, String>) -> String {
    match asked {
        Ok(_) => format!("whether {expression}"),
        Err(failure) => format!("whether {expression}: {failure}"),
    }
}

fn flag(on: bool) -> f64 {
    if on { 1.0 } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use crate::decide::judge;
    use crate::decide::testing::{Given, MIB};
    use crate::model::decision::{Check, CheckKind, Reason, Verdict};
    use crate::model::expression::{Expression, Own, Type};
    use crate::model::policy::{Filter, Rule, Takes};

    fn truth(text: &str) -> Expression {
        Expression::of_type(text, &[], Type::Truth).unwrap()
    }

    fn filtered(text: &str) -> Given {
        let mut given = Given::small_files(8);
        given.policy.filters = vec![Filter { name: "mine".into(), holds: truth(text) }];
        given
    }

    fn triggered(text: &str, takes: Takes) -> Given {
        let mut given = Given::small_files(5);
        given.policy.queue_min_reduction = None;
        given.policy.rules = vec![Rule::Own { name: "mine".into(), when: truth(text), takes }];
        given
    }

    fn found(given: &Given, name: &str) -> Check {
        judge(&given.case()).checks.into_iter().find(|c| c.name == name).unwrap()
    }

    #[test]
    fn a_filter_that_does_not_hold_holds_work_back_by_its_name() {
        assert!(matches!(judge(&filtered("small_file_count >= 8").case()).verdict, Verdict::Now { .. }));
        let given = filtered("small_file_count > 8");
        assert_eq!(judge(&given.case()).verdict, Verdict::Not { reason: Reason::OwnFilter { name: "mine".into(), failure: None } });
        let check = found(&given, "filter.mine");
        assert_eq!((check.kind(), check.passed, check.note.as_str()), (CheckKind::Filter, false, "whether small_file_count > 8"));
    }

    #[test]
    fn a_filter_that_cannot_be_asked_holds_work_back_and_says_why() {
        let reason = Reason::OwnFilter { name: "mine".into(), failure: Some("`read_rate` is not known here".into()) };
        assert_eq!(judge(&filtered("read_rate > 1").case()).verdict, Verdict::Not { reason });
    }

    #[test]
    fn a_trigger_fires_when_it_holds_and_its_plan_is_not_empty() {
        let given = triggered("small_file_count >= 5", Takes::Merge);
        assert_eq!(
            judge(&given.case()).verdict,
            Verdict::Now { rule: "mine".into(), gb_hours: given.policy.cost.gb_hours(5 * MIB), gain: 4 }
        );
        // no tier is full, and there are no deletes
        for takes in [Takes::FullTiers, Takes::Deletes] {
            assert_eq!(judge(&triggered("true", takes).case()).verdict, Verdict::Not { reason: Reason::NothingToGain });
        }
        assert_eq!(judge(&triggered("small_file_count > 5", Takes::All).case()).verdict, Verdict::Not { reason: Reason::Healthy });
    }

    #[test]
    fn a_trigger_that_cannot_be_asked_does_not_fire_and_says_why() {
        let given = triggered("read_rate > 1", Takes::Merge);
        assert_eq!(judge(&given.case()).verdict, Verdict::Not { reason: Reason::Healthy });
        let check = found(&given, "mine.when");
        assert_eq!((check.kind(), check.note.as_str()), (CheckKind::Number, "whether read_rate > 1: `read_rate` is not known here"));
    }

    #[test]
    fn own_traits_are_shown_with_their_value() {
        let mut given = Given::small_files(5);
        let is = |text: &str| Expression::of_type(text, &[], Type::Number).unwrap();
        given.policy.own = vec![
            Own { name: "share".into(), is: is("small_file_count / data_files"), meaning: "small ones of all".into(), weight: 0.0 },
            Own { name: "reads".into(), is: is("read_rate"), meaning: String::new(), weight: 0.0 },
            Own { name: "age".into(), is: is("since_rewrite"), meaning: String::new(), weight: 0.0 },
        ];
        given.memory.last_rewrite_ms = Some(crate::decide::testing::NOW - 5);
        let share = found(&given, "trait.share");
        assert_eq!((share.value, share.passed, share.note.as_str(), share.kind()), (1.0, true, "small ones of all", CheckKind::Number));
        let reads = found(&given, "trait.reads");
        assert_eq!((reads.value, reads.passed, reads.note.as_str()), (0.0, false, "read_rate: `read_rate` is not known here"));
        assert_eq!(found(&given, "trait.age").value, 5.0);
    }
}
