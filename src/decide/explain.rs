//! Why: a decision in words, each number against its threshold.

use std::fmt::Write;

use serde::Serialize;

use crate::model::decision::{Check, Decision, Reason, Verdict};

/// A decision, told.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Explanation {
    /// One sentence.
    pub summary: String,
    /// When the partition is asked again, in milliseconds since the epoch; `None`
    /// when that depends on something other than time.
    pub eligible_at_ms: Option<i64>,
    /// The checks that held it up: filters that did not pass.
    pub held_by: Vec<String>,
    /// The rules that fired.
    pub fired: Vec<String>,
    /// Every check, one line each.
    pub lines: Vec<String>,
}

/// Tells a decision.
pub fn explain(decision: &Decision) -> Explanation {
    let (filters, rules): (Vec<&Check>, Vec<&Check>) = decision.checks.iter().partition(|c| is_filter(&c.name));
    let names = |checks: &[&Check], passed: bool| checks.iter().filter(|c| c.passed == passed).map(|c| c.name.clone()).collect::<Vec<_>>();
    Explanation {
        summary: summary(decision),
        eligible_at_ms: eligible_at_ms(&decision.verdict),
        held_by: names(&filters, false),
        fired: names(&rules, true).into_iter().filter(|name| is_rule(name) && name != "queue").collect(),
        lines: decision.checks.iter().map(line).collect(),
    }
}

/// The explanation as text, ending in a line break.
pub fn render(decision: &Decision) -> String {
    let told = explain(decision);
    let mut text = format!("{} [{}] at snapshot {}: {}\n", decision.name, decision.scope, decision.snapshot_id, told.summary);
    for line in &told.lines {
        let _ = writeln!(text, "  {line}");
    }
    text
}

const FILTERS: [&str; 8] = ["refusals", "enabled", "paused", "table-age", "table-bytes", "cooldown", "quiet-window", "in-flight"];

fn is_filter(name: &str) -> bool {
    FILTERS.contains(&name)
}

/// A rule, or the queue; the numbers of a rule have its name and their own.
fn is_rule(name: &str) -> bool {
    !is_filter(name) && !name.contains('.')
}

fn summary(decision: &Decision) -> String {
    let asked = match &decision.verdict {
        Verdict::Now { rule, gb_hours, gain } => {
            format!("rewrite now: rule `{rule}` fired; {gain} files fewer for about {gb_hours:.3} GB-hours")
        }
        Verdict::Queued { gb_hours, gain } => format!("queued: no rule fired; {gain} files fewer for about {gb_hours:.3} GB-hours"),
        Verdict::Not { reason } => return because(reason, decision.at_ms),
    };
    if decision.act { asked } else { format!("{asked} (advice only: set `act = true` or the property afterwrite.enabled=true)") }
}

fn because(reason: &Reason, now_ms: i64) -> String {
    let wait = |until_ms: i64| format!("{} s to go", until_ms.saturating_sub(now_ms).max(0).saturating_add(999) / 1000);
    match reason {
        Reason::Refused(refused) => format!("left alone: {refused}"),
        Reason::Disabled => "left alone: switched off by the settings or a table property".into(),
        Reason::Paused => "left alone: paused by hand".into(),
        Reason::TooNew { until_ms } => format!("not yet: the table is too new, {}", wait(*until_ms)),
        Reason::TooSmall => "left alone: the table is too small".into(),
        Reason::CoolingDown { until_ms } => format!("not yet: cooling down after a rewrite, {}", wait(*until_ms)),
        Reason::QuietWindow { until_ms } => format!("not yet: written to too recently, {}", wait(*until_ms)),
        Reason::InFlight => "not now: work on it is under way".into(),
        Reason::Healthy => "healthy: no rule fires and there is too little to gain".into(),
        Reason::NothingToGain => "nothing to gain: a rule's thresholds hold, but its plan would be empty".into(),
    }
}

fn eligible_at_ms(verdict: &Verdict) -> Option<i64> {
    match verdict {
        Verdict::Not { reason: Reason::TooNew { until_ms } | Reason::CoolingDown { until_ms } | Reason::QuietWindow { until_ms } } => {
            Some(*until_ms)
        }
        _ => None,
    }
}

fn line(check: &Check) -> String {
    let mark = match (is_filter(&check.name), check.passed) {
        (true, true) => "pass",
        (true, false) => "STOP",
        (false, true) if is_rule(&check.name) => "FIRE",
        (false, true) => "yes",
        (false, false) => "no",
    };
    format!("{mark:<4} {:<22} {:>14} against {:<14} {}", check.name, number(check.value), number(check.threshold), check.note)
}

/// Whole numbers whole, others to four digits.
fn number(value: f64) -> String {
    if value.fract() == 0.0 { format!("{value:.0}") } else { format!("{value:.4}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::judge;
    use crate::decide::testing::{Given, MIB, NOW};

    #[test]
    fn a_rule_that_fired_is_named_with_gain_and_cost() {
        let mut given = Given::small_files(8);
        given.policy.act = true;
        let told = explain(&judge(&given.case()));
        assert_eq!(told.summary, "rewrite now: rule `small-files` fired; 7 files fewer for about 0.001 GB-hours");
        assert_eq!((told.fired, told.held_by, told.eligible_at_ms), (vec!["small-files".to_string(), "entropy".into()], vec![], None));
    }

    #[test]
    fn advice_says_how_to_let_it_act() {
        let told = explain(&judge(&Given::small_files(8).case()));
        assert!(told.summary.ends_with("(advice only: set `act = true` or the property afterwrite.enabled=true)"), "{}", told.summary);
    }

    #[test]
    fn a_wait_tells_its_end() {
        let mut given = Given::small_files(8);
        given.policy.quiet_window_ms = 5000;
        given.traits.quiet_for_ms = Some(3999);
        let told = explain(&judge(&given.case()));
        assert_eq!(told.summary, "not yet: written to too recently, 2 s to go");
        assert_eq!((told.eligible_at_ms, told.held_by), (Some(NOW + 1001), vec!["quiet-window".to_string()]));
    }

    #[test]
    fn every_filter_is_known_as_one() {
        let checks = judge(&Given::of(&[]).case()).checks;
        let filters: Vec<_> = checks.iter().take_while(|c| is_filter(&c.name)).map(|c| c.name.as_str()).collect();
        assert_eq!(filters, FILTERS);
        assert_eq!(checks.iter().filter(|c| is_filter(&c.name)).count(), FILTERS.len());
    }

    #[test]
    fn the_text_holds_each_number_against_its_threshold() {
        let text = render(&judge(&Given::of(&[(3, MIB), (1, 500 * MIB)]).case()));
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], "lake.sales.orders [spec 0:] at snapshot 42: healthy: no rule fires and there is too little to gain");
        assert!(
            lines.contains(&"  no   small-files.tier                    3 against 8              small files in the fullest size tier"),
            "{text}"
        );
        assert!(lines.contains(&"  yes  entropy.normalized             0.7472 against 0.6000         mean squared distance from the target, over its square"), "{text}");
        assert!(lines.contains(&"  pass enabled                             1 against 1              looked after"), "{text}");
        assert_eq!(lines.len(), 20);
    }

    #[test]
    fn every_reason_has_its_words() {
        let reasons = [
            (Reason::Disabled, "left alone: switched off by the settings or a table property"),
            (Reason::Paused, "left alone: paused by hand"),
            (Reason::TooNew { until_ms: 61_000 }, "not yet: the table is too new, 60 s to go"),
            (Reason::TooSmall, "left alone: the table is too small"),
            (Reason::CoolingDown { until_ms: 0 }, "not yet: cooling down after a rewrite, 0 s to go"),
            (Reason::InFlight, "not now: work on it is under way"),
            (Reason::NothingToGain, "nothing to gain: a rule's thresholds hold, but its plan would be empty"),
        ];
        for (reason, words) in reasons {
            assert_eq!(because(&reason, 1000), words);
        }
    }
}
