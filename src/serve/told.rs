//! A decision in JSON, the same on the command line and over HTTP.

use serde::{Serialize, Serializer};

use crate::proto::v1;
use crate::proto::v1::check::Kind;
use crate::proto::v1::decision::Verdict;

/// A decision.
#[derive(Serialize)]
pub struct Decision<'a> {
    table: &'a str,
    table_uuid: &'a str,
    branch: &'a str,
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
    last_job: Option<&'a v1::LastJob>,
    checks: &'a [v1::Check],
    traits: Option<&'a v1::Traits>,
}

impl<'a> Decision<'a> {
    /// Of one of the protocol's.
    pub fn of(made: &'a v1::Decision) -> Self {
        Self {
            table: &made.table,
            table_uuid: &made.table_uuid,
            branch: &made.r#ref,
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
            last_job: made.last_job.as_ref(),
            checks: &made.checks,
            traits: made.traits.as_ref(),
        }
    }
}

/// Numbers from outside by their names.
pub fn by_name<S: Serializer>(outside: &[v1::OutsideTrait], into: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Said {
        value: f64,
        age_ms: i64,
    }
    into.collect_map(outside.iter().map(|o| (&o.name, Said { value: o.value, age_ms: o.age_ms })))
}

/// A text, or null for an empty one.
pub fn unless_empty<S: Serializer>(text: &str, into: S) -> Result<S::Ok, S::Error> {
    Some(text).filter(|text| !text.is_empty()).serialize(into)
}

/// The kind of a check by its name.
pub fn kind<S: Serializer>(kind: &i32, into: S) -> Result<S::Ok, S::Error> {
    into.serialize_str(match Kind::try_from(*kind).unwrap_or_default() {
        Kind::Filter => "filter",
        Kind::Rule => "rule",
        Kind::Number => "number",
        Kind::Property => "property",
        Kind::Unspecified => "unspecified",
    })
}
