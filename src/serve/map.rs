//! From our words to the protocol's.

use super::backend::{Backlog, BacklogRow, Candidate, Explained, LastJob, PartitionRow, TableLayout};
use crate::model::decision::{Check, CheckKind, Reason, Verdict};
use crate::model::ident::beside_main;
use crate::model::layout::Tier;
use crate::model::mode::Mode;
use crate::model::partition::{PartitionKey, Value};
use crate::model::plan::Path;
use crate::model::refusal::Refused;
use crate::model::traits::Traits;
use crate::observe::ledger;
use crate::proto::v1;
use crate::proto::v1::partition_value::Value as Wire;
use crate::telemetry::{self, verdict_names};

/// An id in decimal; empty without one.
pub(super) fn id(id: Option<i64>) -> String {
    id.map(|id| id.to_string()).unwrap_or_default()
}

pub(super) fn layout(layout: &TableLayout) -> v1::GetLayoutResponse {
    v1::GetLayoutResponse {
        table: layout.table.to_string(),
        table_uuid: layout.uuid.to_string(),
        r#ref: layout.reference.clone(),
        snapshot_id: id(layout.snapshot_id),
        looked_at_ms: layout.looked_at_ms,
        format_version: layout.format_version.into(),
        target_file_size: layout.target_file_size,
        partitions: layout.partitions,
        traits: Some(traits(&layout.traits)),
        refused: layout.refused.iter().map(refusal).collect(),
        act: layout.act,
    }
}

pub(super) fn partition_layout(row: &PartitionRow) -> v1::PartitionLayout {
    v1::PartitionLayout { partition: Some(partition(&row.partition, &row.label)), traits: Some(traits(&row.traits)) }
}

pub(super) fn candidate(candidate: &Candidate) -> v1::Candidate {
    v1::Candidate {
        table: candidate.table.to_string(),
        r#ref: candidate.branch.to_string(),
        partition: Some(partition(&candidate.partition, &candidate.label)),
        score: candidate.score,
        gain: candidate.gain,
        gb_hours: candidate.gb_hours,
        waits_for: candidate.waits_for.clone(),
        tenant: candidate.tenant.clone(),
        on_front: candidate.on_front,
        chosen: candidate.chosen,
        urgent: candidate.urgent,
    }
}

pub(super) fn backlog(backlog: &Backlog) -> v1::GetBacklogResponse {
    let row = |row: &BacklogRow| v1::BacklogRow {
        tenant: row.tenant.clone(),
        act: row.act,
        candidates: row.candidates,
        urgent: row.urgent,
        review: row.review,
        oldest_ms: row.oldest_ms,
        files: row.files,
        bytes: row.bytes,
        gb_hours: row.gb_hours,
        bytes_per_hour: row.bytes_per_hour,
        drain_seconds: row.drain_seconds,
        cost: row.cost,
        available_gb_hours: row.available_gb_hours,
    };
    v1::GetBacklogResponse {
        rows: backlog.rows.iter().map(row).collect(),
        available_gb_hours: backlog.available_gb_hours,
        currency: backlog.currency.clone(),
    }
}

/// A decision as the protocol says it.
pub fn decision(made: &Explained) -> v1::Decision {
    let decision = &made.decision;
    let (name, reason) = verdict_names(&decision.verdict);
    let verdict = match name {
        "now" => v1::decision::Verdict::Now,
        "queued" => v1::decision::Verdict::Queued,
        "review" => v1::decision::Verdict::Review,
        _ => v1::decision::Verdict::Not,
    };
    let (gb_hours, gain) = match &decision.verdict {
        Verdict::Now { gb_hours, gain, .. } | Verdict::Queued { gb_hours, gain, .. } | Verdict::Review { gb_hours, gain } => {
            (*gb_hours, *gain)
        }
        Verdict::Not { .. } => (0.0, 0),
    };
    v1::Decision {
        table: decision.name.to_string(),
        table_uuid: decision.table.to_string(),
        r#ref: made.branch.to_string(),
        partition: Some(partition(&decision.scope, &made.label)),
        snapshot_id: decision.snapshot_id.to_string(),
        at_ms: decision.at_ms,
        verdict: verdict.into(),
        reason,
        detail: detail(made),
        until_ms: until_ms(&decision.verdict),
        gb_hours,
        gain,
        act: decision.act,
        checks: decision.checks.iter().map(check).collect(),
        traits: Some(traits(&decision.traits)),
        score: made.score,
        waits_for: made.waits_for.clone(),
        decided_at_ms: made.decided_ms,
        last_job: made.last_job.as_ref().map(last_job),
        eligible_at_ms: decision.eligible_ms,
    }
}

fn last_job(last: &LastJob) -> v1::LastJob {
    v1::LastJob {
        job: last.job.clone(),
        state: last.state.clone(),
        path: last.path.map_or("", Path::name).to_owned(),
        path_reason: last.path_reason.clone(),
        ended_at_ms: last.ended_ms,
    }
}

/// The reason in words.
fn detail(made: &Explained) -> String {
    match &made.decision.verdict {
        Verdict::Not { reason: Reason::Refused(refused) } => refused.told(),
        Verdict::Not { reason: Reason::OwnFilter { name, failure: None } } => format!("the filter `{name}` does not hold"),
        Verdict::Not { reason: Reason::OwnFilter { name, failure: Some(why) } } => format!("the filter `{name}` cannot be asked: {why}"),
        Verdict::Not { reason: Reason::Held { by, .. } } => format!("held by {by}: it is left alone until then"),
        Verdict::Not { reason } => reason_words(reason).to_owned(),
        Verdict::Now { rule, .. } if Mode::named(rule).is_some() => format!("mode `{rule}` makes it due"),
        Verdict::Now { rule, .. } => format!("rule `{rule}` fired"),
        Verdict::Queued { rule: Some(rule), .. } => format!("rule `{rule}` fired; ranked for a round, as the mode `queued` has it"),
        Verdict::Queued { rule: None, .. } => "no rule fired; ranked for a round".to_owned(),
        Verdict::Review { .. } => format!(
            "dearer than the settings let without asking; to have it done: afterwrite compact {}{} --partition '{}'",
            made.decision.name,
            beside_main(&made.branch).map(|branch| format!(" --branch {branch}")).unwrap_or_default(),
            made.label
        ),
    }
}

fn reason_words(reason: &Reason) -> &'static str {
    match reason {
        Reason::Refused(_) => "refused by name",
        Reason::Disabled => "switched off by the settings or a table property",
        Reason::Paused => "paused by hand, or kept as `undo` left it until a writer changes it; `resume` takes it up again",
        Reason::TooNew { .. } => "the table was created too recently",
        Reason::TooSmall => "fewer bytes than are worth a job",
        Reason::CoolingDown { .. } => "rewritten too recently, or the last rewrite gained nothing",
        Reason::QuietWindow { .. } => "written to too recently",
        Reason::Held { .. } => "somebody asked that it be left alone; `release` takes that back",
        Reason::KeptOut { .. } => {
            "a writer is expected, whose statement a rewrite would make fail; or another sidecar rewrites in the table"
        }
        Reason::OutsideWindows { .. } => "outside the hours in which the settings let work begin",
        Reason::NotDue { .. } => "work is not due yet, as the settings' mode has it",
        Reason::NeverDue => "the schedule has no time any more",
        Reason::NoPressure => "less of the quota is in use than makes work due, or its use is not known",
        Reason::OwnFilter { .. } => "a filter of the settings",
        Reason::Intermediate => "the settings say that the table only holds what others are made of",
        Reason::SoonDropped => "it will be dropped soon, as its retention says",
        Reason::QuotaUsed => "so much of the quota is in use that the new files of a rewrite could pass it",
        Reason::InFlight => "work on it is under way",
        Reason::Healthy => "no rule fires and there is nothing to gain",
        Reason::NothingToGain => "a rule would fire but its plan is empty",
        Reason::TooDear => "dearer than the settings let without asking, and it gains too little to ask",
    }
}

fn until_ms(verdict: &Verdict) -> Option<i64> {
    match verdict {
        Verdict::Not {
            reason:
                Reason::TooNew { until_ms }
                | Reason::CoolingDown { until_ms }
                | Reason::QuietWindow { until_ms }
                | Reason::Held { until_ms, .. }
                | Reason::KeptOut { until_ms }
                | Reason::OutsideWindows { until_ms }
                | Reason::NotDue { until_ms },
        } => Some(*until_ms),
        _ => None,
    }
}

fn check(check: &Check) -> v1::Check {
    let kind = match check.kind() {
        CheckKind::Filter => v1::check::Kind::Filter,
        CheckKind::Rule => v1::check::Kind::Rule,
        CheckKind::Number => v1::check::Kind::Number,
        CheckKind::Property => v1::check::Kind::Property,
    };
    v1::Check {
        name: check.name.clone(),
        value: check.value,
        threshold: check.threshold,
        passed: check.passed,
        note: check.note.clone(),
        kind: kind.into(),
    }
}

fn refusal(refused: &Refused) -> v1::Refusal {
    v1::Refusal { code: refused.refusal.code().to_owned(), detail: refused.detail.clone() }
}

fn partition(key: &PartitionKey, label: &str) -> v1::Partition {
    let values = key.tuple.iter().map(|v| v1::PartitionValue { value: Some(value(v.as_ref())) });
    v1::Partition { spec_id: key.spec_id, label: label.to_owned(), values: values.collect() }
}

fn value(value: Option<&Value>) -> Wire {
    match value {
        None => Wire::Null(true),
        Some(Value::Bool(v)) => Wire::Boolean(*v),
        Some(Value::Int(v)) => Wire::Int(*v),
        Some(Value::Long(v)) => Wire::Long(*v),
        Some(Value::Float(v)) => Wire::Float(f32::from_bits(*v)),
        Some(Value::Double(v)) => Wire::Double(f64::from_bits(*v)),
        Some(Value::Decimal(v)) => Wire::Decimal(v.to_string()),
        Some(Value::String(v)) => Wire::String(v.to_string()),
        Some(Value::Bytes(v)) => Wire::Bytes(v.to_vec()),
        Some(Value::Uuid(v)) => Wire::Uuid(uuid::Uuid::from_u128(*v).to_string()),
    }
}

fn traits(t: &Traits) -> v1::Traits {
    v1::Traits {
        data_files: t.data_files,
        data_bytes: t.data_bytes,
        records: t.records,
        small_file_count: t.small_file_count,
        small_bytes: t.small_bytes,
        small_tiers: t.small_tiers.iter().map(|Tier { files, bytes }| v1::Tier { files: *files, bytes: *bytes }).collect(),
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
        outside: t
            .outside
            .told()
            .map(|(stat, told)| v1::OutsideTrait { name: stat.name().to_owned(), value: told.value, age_ms: told.age_ms })
            .collect(),
    }
}

/// A source of events with its figures.
pub(super) fn door(row: ledger::Row) -> v1::Door {
    let example = |e: ledger::Example| v1::DoorExample { at_ms: e.at_ms, place: e.place, reason: e.reason };
    v1::Door {
        door: telemetry::door_name(row.door).to_owned(),
        source: row.source,
        received: row.received,
        accepted: row.accepted,
        duplicate: row.duplicate,
        ignored: row.ignored,
        parked: row.parked,
        dropped: row.dropped,
        lag: row.lag,
        staleness_ms: row.staleness_ms,
        heard_ms: row.heard_ms,
        problem: row.problem.unwrap_or_default(),
        examples: row.examples.into_iter().map(example).collect(),
        state: row.state,
    }
}
