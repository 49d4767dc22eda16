use super::*;
use crate::model::refusal::{Refusal, Refused};

fn rendered(record: impl FnOnce()) -> String {
    let recorder = recorder().unwrap();
    let handle = recorder.handle();
    metrics::with_local_recorder(&recorder, record);
    handle.render()
}

#[test]
fn every_metric_name_is_unique_and_well_formed() {
    let mut names: Vec<&str> = ALL.iter().map(|m| m.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), ALL.len());
    for metric in ALL {
        assert!(metric.name.starts_with("afterwrite_"), "{}", metric.name);
        assert_eq!(metric.kind == Kind::Counter, metric.name.ends_with("_total"), "{}", metric.name);
        assert!(!metric.help.is_empty() && !metric.help.ends_with('.'), "{}", metric.name);
    }
}

#[test]
fn an_event_is_counted_by_door_and_result() {
    let text = rendered(|| {
        event_heard(Door::Grpc, Heard::Accepted);
        event_heard(Door::Grpc, Heard::Accepted);
        event_heard(Door::Poll, Heard::Full);
    });
    assert!(text.contains("afterwrite_events_total{door=\"grpc\",result=\"accepted\"} 2"), "{text}");
    assert!(text.contains("afterwrite_events_total{door=\"poll\",result=\"full\"} 1"), "{text}");
}

#[test]
fn a_source_tells_its_lag_its_staleness_and_what_became_of_its_records() {
    let figures = SourceFigures {
        received: 9,
        accepted: 4,
        duplicate: 3,
        ignored: 2,
        parked: 1,
        dropped: 5,
        lag: Some(7),
        staleness_ms: Some(1_500),
    };
    let text = rendered(|| source(Door::Kafka, "commits", &figures));
    let of = |result: &str, count: u64| {
        format!("afterwrite_source_events_total{{door=\"kafka\",source=\"commits\",result=\"{result}\"}} {count}")
    };
    for (result, count) in [("received", 9), ("accepted", 4), ("duplicate", 3), ("ignored", 2), ("parked", 1), ("dropped", 5)] {
        assert!(text.contains(&of(result, count)), "{text}");
    }
    assert!(text.contains("afterwrite_source_lag{door=\"kafka\",source=\"commits\"} 7"), "{text}");
    assert!(text.contains("afterwrite_source_staleness_seconds{door=\"kafka\",source=\"commits\"} 1.5"), "{text}");
}

#[test]
fn a_metric_without_labels_is_there_before_anything_happens() {
    let text = rendered(describe_all);
    assert!(text.contains("# HELP afterwrite_unknown_outcomes_open Commits whose outcome is not known yet"), "{text}");
    assert!(text.contains("afterwrite_unknown_outcomes_open 0"), "{text}");
    assert!(text.contains("afterwrite_drifts_total 0"), "{text}");
}

#[test]
fn durations_are_histograms_with_our_buckets() {
    let text = rendered(|| looked(Looked::Absorbed, 0.3));
    assert!(text.contains("afterwrite_look_seconds_bucket{le=\"0.25\"} 0"), "{text}");
    assert!(text.contains("afterwrite_look_seconds_bucket{le=\"0.5\"} 1"), "{text}");
}

#[test]
fn a_refusal_is_counted_under_its_code() {
    let reason = Reason::Refused(Refused::new(Refusal::Encrypted, "t"));
    let text = rendered(|| decided(&Verdict::Not { reason }));
    assert!(text.contains("afterwrite_decisions_total{verdict=\"not\",reason=\"encrypted\"} 1"), "{text}");
}

#[test]
fn requests_to_object_stores_are_counted_by_kind_and_by_who_made_them() {
    let text = rendered(|| {
        store_requests("job", &Requests { get: 3, put: 2, ..Requests::default() });
        store_requests("look", &Requests { get: 1, ..Requests::default() });
    });
    assert!(text.contains("afterwrite_store_requests_total{kind=\"get\",by=\"job\"} 3"), "{text}");
    assert!(text.contains("afterwrite_store_requests_total{kind=\"put\",by=\"job\"} 2"), "{text}");
    assert!(text.contains("afterwrite_store_requests_total{kind=\"get\",by=\"look\"} 1"), "{text}");
    assert!(!text.contains("kind=\"head\""), "{text}");
}

#[test]
fn fractions_of_a_gb_hour_are_not_lost() {
    let text = rendered(|| {
        budget_spent(0.25);
        budget_spent(0.000_001);
    });
    assert!(text.contains("afterwrite_budget_spent_gb_hour_millionths_total 250001"), "{text}");
}

/// The alerting rules that are shipped ask for metrics that there are.
#[test]
fn every_metric_of_the_alerting_rules_is_there() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/prometheus/alerts.yaml");
    let rules = std::fs::read_to_string(path).unwrap();
    let words = rules.split(|c: char| c != '_' && !c.is_ascii_alphanumeric());
    let names: Vec<&str> = words.filter(|word| word.starts_with("afterwrite_")).collect();
    assert!(names.len() > 5, "{names:?}");
    for name in names {
        assert!(ALL.iter().any(|metric| metric.name == name), "no metric is called {name}");
    }
}
