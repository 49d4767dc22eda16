//! A decision in JSON, the same on the command line and over HTTP.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::proto::v1;
use crate::proto::v1::check::Kind;
use crate::proto::v1::decision::Verdict;

/// A decision.
#[derive(Serialize)]
pub struct Decision<'a> {
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
    eligible_at_ms: Option<i64>,
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
    equality_delete_files: u64,
    commits_since_rewrite: Option<u64>,
    partition_age_ms: Option<i64>,
    outside: BTreeMap<String, Outside>,
}

/// A number from outside.
#[derive(Serialize)]
struct Outside {
    value: f64,
    age_ms: i64,
}

impl<'a> Decision<'a> {
    /// Of one of the protocol's.
    pub fn of(made: &'a v1::Decision) -> Self {
        line(made)
    }
}

fn line(made: &v1::Decision) -> Decision<'_> {
    Decision {
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
        eligible_at_ms: made.eligible_at_ms,
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
        equality_delete_files: t.equality_delete_files,
        commits_since_rewrite: t.commits_since_rewrite,
        partition_age_ms: t.partition_age_ms,
        outside: t.outside.iter().map(|o| (o.name.clone(), Outside { value: o.value, age_ms: o.age_ms })).collect(),
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
