//! `why` and `watch`.

use serde::Serialize;

use super::super::human;
use super::{json_lines, table};
use crate::proto::v1;
use crate::proto::v1::check::Kind;
use crate::proto::v1::decision::Verdict;
use crate::proto::v1::watch_decisions_response::Item;

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

fn kind(check: &v1::Check) -> &'static str {
    match check.kind() {
        Kind::Filter => "filter",
        Kind::Rule => "rule",
        Kind::Number => "number",
        Kind::Property => "property",
        Kind::Unspecified => "unspecified",
    }
}

fn sentence(made: &v1::Decision) -> String {
    let label = made.partition.as_ref().map_or("all", |p| p.label.as_str());
    let (decided, judged) = (human::moment(made.decided_at_ms), human::moment(made.at_ms));
    let mut text =
        format!("{} {label} decided at {decided}, judged at {judged}, snapshot {}: {}", made.table, made.snapshot_id, verdict(made));
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
        Verdict::Not | Verdict::Unspecified => {
            if let Some(until) = made.until_ms {
                text.push_str(&format!("; until {}", human::moment(until)));
            }
        }
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

#[derive(Serialize)]
struct Line<'a> {
    table: &'a str,
    table_uuid: &'a str,
    partition: &'a str,
    spec_id: i32,
    snapshot_id: &'a str,
    decided_at_ms: i64,
    judged_at_ms: i64,
    verdict: &'static str,
    reason: &'a str,
    detail: &'a str,
    until_ms: Option<i64>,
    gb_hours: f64,
    gain: u64,
    act: bool,
    score: f64,
    waits_for: &'a str,
    last_job: Option<LastJob<'a>>,
    checks: Vec<Check<'a>>,
    traits: Option<Traits>,
}

#[derive(Serialize)]
struct LastJob<'a> {
    job: &'a str,
    state: &'a str,
    path: Option<&'a str>,
    path_reason: Option<&'a str>,
    ended_at_ms: i64,
}

#[derive(Serialize)]
struct Check<'a> {
    name: &'a str,
    kind: &'static str,
    value: f64,
    threshold: f64,
    passed: bool,
    note: &'a str,
}

#[derive(Serialize)]
struct Traits {
    data_files: u64,
    data_bytes: u64,
    records: u64,
    small_file_count: u64,
    small_bytes: u64,
    file_count_reduction: u64,
    file_entropy: f64,
    file_entropy_normalized: f64,
    delete_ratio: f64,
    delete_file_count: u64,
    position_delete_records: u64,
    equality_delete_records: u64,
    compute_cost: f64,
    manifest_count: u64,
    metadata_bytes: u64,
    write_amplification: f64,
    commit_rate: f64,
    quiet_for_ms: Option<i64>,
    known_since_ms: Option<i64>,
    read_rate: Option<f64>,
    quota_used: Option<f64>,
}

/// One object a decision.
pub fn decisions_json(made: &[v1::Decision]) -> String {
    json_lines(&made.iter().map(line).collect::<Vec<_>>())
}

fn line(made: &v1::Decision) -> Line<'_> {
    Line {
        table: &made.table,
        table_uuid: &made.table_uuid,
        partition: made.partition.as_ref().map_or("all", |p| p.label.as_str()),
        spec_id: made.partition.as_ref().map_or(0, |p| p.spec_id),
        snapshot_id: &made.snapshot_id,
        decided_at_ms: made.decided_at_ms,
        judged_at_ms: made.at_ms,
        verdict: match made.verdict() {
            Verdict::Now => "now",
            Verdict::Queued => "queued",
            Verdict::Review => "review",
            Verdict::Not => "not",
            Verdict::Unspecified => "unspecified",
        },
        reason: &made.reason,
        detail: &made.detail,
        until_ms: made.until_ms,
        gb_hours: made.gb_hours,
        gain: made.gain,
        act: made.act,
        score: made.score,
        waits_for: &made.waits_for,
        last_job: made.last_job.as_ref().map(|last| LastJob {
            job: &last.job,
            state: &last.state,
            path: Some(last.path.as_str()).filter(|path| !path.is_empty()),
            path_reason: Some(last.path_reason.as_str()).filter(|why| !why.is_empty()),
            ended_at_ms: last.ended_at_ms,
        }),
        checks: made.checks.iter().map(check).collect(),
        traits: made.traits.as_ref().map(traits),
    }
}

fn check(c: &v1::Check) -> Check<'_> {
    Check { name: &c.name, kind: kind(c), value: c.value, threshold: c.threshold, passed: c.passed, note: &c.note }
}

fn traits(t: &v1::Traits) -> Traits {
    Traits {
        data_files: t.data_files,
        data_bytes: t.data_bytes,
        records: t.records,
        small_file_count: t.small_file_count,
        small_bytes: t.small_bytes,
        file_count_reduction: t.file_count_reduction,
        file_entropy: t.file_entropy,
        file_entropy_normalized: t.file_entropy_normalized,
        delete_ratio: t.delete_ratio,
        delete_file_count: t.delete_file_count,
        position_delete_records: t.position_delete_records,
        equality_delete_records: t.equality_delete_records,
        compute_cost: t.compute_cost,
        manifest_count: t.manifest_count,
        metadata_bytes: t.metadata_bytes,
        write_amplification: t.write_amplification,
        commit_rate: t.commit_rate,
        quiet_for_ms: t.quiet_for_ms,
        known_since_ms: t.known_since_ms,
        read_rate: t.read_rate,
        quota_used: t.quota_used,
    }
}
