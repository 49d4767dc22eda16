//! `why` and `watch`.

use super::super::human;
use super::{json_lines, table};
use crate::proto::v1;
use crate::proto::v1::check::Kind;
use crate::proto::v1::decision::Verdict;
use crate::proto::v1::watch_decisions_response::Item;
use crate::serve::told::Decision;

/// Each decision as a sentence and its checks as a table.
pub fn decisions(made: &[v1::Decision]) -> String {
    if made.is_empty() {
        return "nothing to decide: no partition of the table has live files".to_owned();
    }
    made.iter().map(decision).collect::<Vec<_>>().join("\n\n")
}

fn decision(made: &v1::Decision) -> String {
    let mut text = sentence(made);
    if let Some(last) = &made.last_job {
        text.push('\n');
        text.push_str(&last_job(last));
    }
    if !made.checks.is_empty() {
        let row =
            |c: &v1::Check| vec![c.name.clone(), human::number(c.value), human::number(c.threshold), outcome(c).to_owned(), c.note.clone()];
        text.push('\n');
        text.push_str(&table(&["check", "value", "threshold", "outcome", "meaning"], &["value", "threshold"], made.checks.iter().map(row)));
    }
    text
}

/// Filters let pass or hold back; rules fire; their numbers are met.
fn outcome(check: &v1::Check) -> &'static str {
    match (check.kind(), check.passed) {
        (Kind::Filter, true) => "passes",
        (Kind::Filter, false) => "holds back",
        (Kind::Rule, true) => "fires",
        (Kind::Rule, false) => "does not fire",
        (Kind::Number, true) => "met",
        (Kind::Number, false) => "not met",
        (Kind::Property, _) => "not used",
        (Kind::Unspecified, true) => "yes",
        (Kind::Unspecified, false) => "no",
    }
}

fn sentence(made: &v1::Decision) -> String {
    let label = made.partition.as_ref().map_or("all", |p| p.label.as_str());
    let (decided, judged) = (human::moment(made.decided_at_ms), human::moment(made.at_ms));
    let mut text = format!(
        "{} {label} decided at {decided}, judged at {judged}, snapshot {}: {}",
        human::on(&made.table, &made.r#ref),
        made.snapshot_id,
        verdict(made)
    );
    text.push_str(&format!(" ({})", made.reason));
    if !made.detail.is_empty() {
        text.push_str(&format!(": {}", made.detail));
    }
    match made.verdict() {
        Verdict::Now | Verdict::Queued => {
            let act = if made.act { "carried out" } else { "only advised" };
            text.push_str(&format!("; {} fewer for {}, {act}", human::some(made.gain, "file"), human::gb_hours(made.gb_hours)));
            if !made.waits_for.is_empty() {
                text.push_str(&format!("; waits: {}", made.waits_for));
            }
        }
        Verdict::Review => {
            text.push_str(&format!("; {} fewer for {}", human::some(made.gain, "file"), human::gb_hours(made.gb_hours)));
        }
        Verdict::Not | Verdict::Unspecified => match (made.eligible_at_ms, made.until_ms) {
            (Some(at), _) => text.push_str(&format!("; eligible next at {}", human::moment(at))),
            (None, Some(until)) => text.push_str(&format!("; until {}", human::moment(until))),
            (None, None) => {}
        },
    }
    human::safe(&text)
}

/// The partition's last rewrite as a sentence.
fn last_job(last: &v1::LastJob) -> String {
    let mut text = format!("last job {} {} at {}", last.job, last.state, human::moment(last.ended_at_ms));
    if !last.path.is_empty() {
        text.push_str(&format!(", by {}", last.path));
    }
    if !last.path_reason.is_empty() {
        text.push_str(&format!(": {}", last.path_reason));
    }
    human::safe(&text)
}

fn verdict(made: &v1::Decision) -> &'static str {
    match made.verdict() {
        Verdict::Now => "compact now",
        Verdict::Queued => "queued",
        Verdict::Review => "waits for a person",
        Verdict::Not => "left alone",
        Verdict::Unspecified => "decided",
    }
}

/// One decision, or a gap, as a line.
pub fn watched(item: &Item, json: bool) -> String {
    match (item, json) {
        (Item::Decision(made), false) => sentence(made),
        (Item::Decision(made), true) => decisions_json(std::slice::from_ref(made)),
        (Item::Missed(count), false) => format!("… missed {}", human::some(*count, "decision")),
        (Item::Missed(count), true) => format!("{{\"missed\":{count}}}"),
    }
}

/// One object a decision.
pub fn decisions_json(made: &[v1::Decision]) -> String {
    json_lines(&made.iter().map(Decision::of).collect::<Vec<_>>())
}
