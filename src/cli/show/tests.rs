use std::sync::Arc;

use super::super::exit::Exit;
use super::*;
use crate::model::decision::{Check, Decision, Reason, Verdict};
use crate::model::ident::{TableIdent, TableName};
use crate::model::partition::{PartitionKey, Value};
use crate::model::plan::Path;
use crate::model::refusal::{Refusal, Refused};
use crate::model::requests::Requests;
use crate::model::traits::Traits;
use crate::proto::v1;
use crate::proto::v1::watch_decisions_response::Item;
use crate::serve::backend::{Explained, PartitionRow, TableLayout};
use crate::serve::decision_message;

const SNAPSHOT: i64 = 9_007_199_254_740_993;

fn key() -> PartitionKey {
    PartitionKey { spec_id: 1, tuple: Arc::from([Some(Value::Int(12))]) }
}

fn made(verdict: Verdict) -> v1::Decision {
    let decision = Decision {
        table: TableIdent::iceberg(uuid::Uuid::from_u128(7)),
        name: TableName::new("lake", "db", "t"),
        scope: key(),
        snapshot_id: SNAPSHOT,
        at_ms: 5_000,
        verdict,
        act: false,
        checks: vec![Check { name: "small-files.tier".into(), value: 13.0, threshold: 8.0, passed: true, note: "small files".into() }],
        traits: Traits { data_files: 13, ..Traits::default() },
        eligible_ms: None,
    };
    decision_message(&Explained {
        branch: "main".into(),
        label: "month=12".into(),
        decision,
        decided_ms: 0,
        score: 0.25,
        waits_for: "no slot is free".into(),
        last_job: None,
    })
}

fn layout() -> TableLayout {
    TableLayout {
        table: TableName::new("lake", "db", "t"),
        uuid: uuid::Uuid::from_u128(7),
        reference: "main".into(),
        snapshot_id: Some(SNAPSHOT),
        looked_at_ms: 0,
        format_version: 2,
        target_file_size: 512 << 20,
        partitions: 1,
        traits: Traits { data_files: 1300, data_bytes: 1300 << 20, manifest_count: 3, metadata_bytes: 4096, ..Traits::default() },
        refused: vec![Refused::new(Refusal::FormatVersion, "format version 3")],
        act: false,
    }
}

fn row() -> PartitionRow {
    let traits = Traits {
        data_files: 1300,
        data_bytes: 1300 << 20,
        records: 1_000_000,
        small_file_count: 1300,
        file_count_reduction: 1297,
        file_entropy_normalized: 0.99609,
        compute_cost: 0.25,
        ..Traits::default()
    };
    PartitionRow { partition: key(), label: "month=12".into(), traits }
}

#[test]
fn inspect_shows_the_table_its_partitions_and_their_sum() {
    let text = inspect(&layout(), &[row()]);
    let expected = "\
lake.db.t (00000000-0000-0000-0000-000000000007), branch main, snapshot 9007199254740993
format v2, target 512 MiB, 1 300 files in 1 partition, 3 manifests (4.0 KiB), rewrites are only advised
refused (format-version): format version 3";
    assert_eq!(text.lines().take(3).collect::<Vec<_>>().join("\n"), expected);
    let cells: Vec<Vec<&str>> = text.lines().skip(3).map(|l| l.split("  ").map(str::trim).filter(|c| !c.is_empty()).collect()).collect();
    let row = ["month=12", "1 300", "1.3 GiB", "1.0 MiB", "1 000 000", "1 300", "1 297", "0.996", "0", "0.000", "0.25 GB-h"];
    assert!(cells.iter().any(|c| c == &row), "{text}");
}

#[test]
fn inspect_json_is_one_object_a_line_with_ids_as_text() {
    let text = inspect_json(&layout(), &[row()]);
    let lines: Vec<serde_json::Value> = text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!(lines.len(), 2);
    assert_eq!(
        (&lines[0]["kind"], &lines[0]["table"], &lines[0]["snapshot_id"]),
        (&"table".into(), &"lake.db.t".into(), &"9007199254740993".into())
    );
    assert_eq!(
        (&lines[1]["kind"], &lines[1]["label"], &lines[1]["traits"]["data_files"]),
        (&"partition".into(), &"month=12".into(), &1300.into())
    );
}

#[test]
fn why_says_the_verdict_the_reason_and_every_number() {
    let text = decisions(&[made(Verdict::Now { rule: "small-files".into(), gb_hours: 0.5, gain: 12 })]);
    let first = "lake.db.t month=12 decided at 1970-01-01T00:00:00Z, judged at 1970-01-01T00:00:05Z, snapshot 9007199254740993: compact now (small-files): rule `small-files` fired; \
                 12 files fewer for 0.50 GB-h, only advised; waits: no slot is free";
    assert_eq!(text.lines().next().unwrap(), first);
    let check: Vec<&str> = text.lines().nth_back(1).unwrap().split("  ").map(str::trim).filter(|c| !c.is_empty()).collect();
    assert_eq!(check, ["small-files.tier", "13", "8", "met", "small files"]);
    assert_eq!(decisions(&[]), "nothing to decide: no partition of the table has live files");
}

#[test]
fn a_reason_that_passes_says_when_and_a_refusal_what_was_found() {
    let sentence = |reason| watched(&Item::Decision(made(Verdict::Not { reason })), false);
    let head = "lake.db.t month=12 decided at 1970-01-01T00:00:00Z, judged at 1970-01-01T00:00:05Z, snapshot 9007199254740993: left alone";
    let quiet = sentence(Reason::QuietWindow { until_ms: 60_000 });
    assert_eq!(quiet, format!("{head} (quiet-window): written to too recently; until 1970-01-01T00:01:00Z"));
    let refused = sentence(Reason::Refused(Refused::new(Refusal::Encrypted, "key metadata on\u{1b} a.parquet")));
    assert_eq!(refused, format!("{head} (encrypted): key metadata on\\u{{1b}} a.parquet; compact it with an engine that holds the keys"));
}

#[test]
fn decisions_and_gaps_are_json_lines() {
    let decision: serde_json::Value =
        serde_json::from_str(&watched(&Item::Decision(made(Verdict::Queued { gb_hours: 0.5, gain: 12, rule: None })), true)).unwrap();
    assert_eq!(
        (&decision["verdict"], &decision["snapshot_id"], &decision["gain"]),
        (&"queued".into(), &"9007199254740993".into(), &12.into())
    );
    assert_eq!((&decision["checks"][0]["threshold"], &decision["traits"]["data_files"]), (&8.0.into(), &13.into()));
    assert_eq!(watched(&Item::Missed(1500), true), "{\"missed\":1500}");
    assert_eq!(watched(&Item::Missed(1500), false), "… missed 1 500 decisions");
}

fn compact() -> CompactRow {
    CompactRow {
        table: "lake.db.t".into(),
        branch: "main".into(),
        partition: "month=12".into(),
        result: "landed".into(),
        decision: "request".into(),
        attempt: Some("A".into()),
        path: Some(Path::Splice),
        job: Some("J".into()),
        files_in: Some(1300),
        files_out: 3,
        bytes_in: Some(1300 << 20),
        bytes_out: 1299 << 20,
        rows: 1_000_000,
        seconds: 12.34,
        rewrite_s: 8.0,
        proof_s: 4.0,
        commit_s: 0.25,
        snapshot_id: Some("9007199254740993".into()),
        ..CompactRow::default()
    }
}

fn cells(text: &str, at: usize) -> Vec<String> {
    text.lines().nth(at).unwrap().split("  ").map(|c| c.trim().to_owned()).filter(|c| !c.is_empty()).collect()
}

#[test]
fn a_compaction_shows_what_became_of_what() {
    let refused = CompactRow {
        result: "refused".into(),
        refusal: Some("encrypted".into()),
        detail: "key metadata".into(),
        partition: "all".into(),
        ..CompactRow::default()
    };
    let text = compacts(&[compact(), refused], false);
    assert_eq!(cells(&text, 1), ["partition", "result", "why", "path", "files", "bytes", "rows", "time", "snapshot"]);
    let landed = ["month=12", "landed", "request", "splice", "1 300 → 3", "1.3 GiB → 1.3 GiB", "1 000 000", "12.3 s", "9007199254740993"];
    assert_eq!(cells(&text, 3), landed);
    assert_eq!(cells(&text, 5), ["all", "refused", "encrypted: key metadata", "-", "-", "-", "0", "0.00 s", "-"]);
    assert_eq!(compacts(&[], false), "nothing to compact: the table has no partition with live files");
}

#[test]
fn a_compaction_is_one_json_object_a_scope() {
    let expected = concat!(
        r#"{"table":"lake.db.t","branch":"main","partition":"month=12","spec_id":0,"result":"landed","decision":"request","refusal":null,"detail":"","#,
        r#""job":"J","attempt":"A","path":"splice","path_reason":null,"files_in":1300,"files_out":3,"bytes_in":1363148800,"bytes_out":1362100224,"#,
        r#""rows":1000000,"rows_deleted":0,"deletes_carried":0,"wasted_bytes":0,"seconds":12.34,"rewrite_s":8.0,"proof_s":4.0,"commit_s":0.25,"peak_memory":null,"#,
        r#""requests":{"get":0,"put":0,"head":0,"list":0,"delete":0},"snapshot_id":"9007199254740993"}"#
    );
    assert_eq!(compacts(&[compact()], true), expected);
    assert_eq!(compacts(&[compact(), compact()], true).lines().count(), 2);
    assert_eq!(compacts(&[], true), "");
}

#[test]
fn the_jobs_of_a_partition_are_one_row_that_lists_them() {
    let job = |exit: Exit, result: &str, path: Option<Path>, snapshot: Option<&str>| CompactJob {
        exit,
        result: result.into(),
        decision: "request".into(),
        detail: if exit == Exit::Done { String::new() } else { format!("why {result}") },
        job: Some(format!("J-{result}")),
        attempt: Some(format!("A-{result}")),
        path,
        path_reason: path.map(|p| format!("{p:?}")),
        files_in: 10,
        files_out: 1,
        bytes_in: 1000,
        bytes_out: 900,
        rows: 5,
        rows_deleted: 1,
        deletes_carried: 2,
        wasted_bytes: 7,
        seconds: 1.5,
        peak_memory: Some(u64::from(exit.code()) + 7),
        requests: Requests { get: 3, ..Requests::default() },
        snapshot_id: snapshot.map(Into::into),
        ..CompactJob::default()
    };
    let jobs = vec![
        job(Exit::Done, "committed", Some(Path::ReEncode), Some("1")),
        job(Exit::Conflict, "conflict", Some(Path::Splice), None),
        job(Exit::Failed, "failed", None, None),
    ];
    let row = CompactRow { partition: "p=7".into(), ..CompactRow::default() }.of(jobs);
    assert_eq!((row.result.as_str(), row.detail.as_str(), row.decision.as_str()), ("conflict", "why conflict", "request"));
    assert_eq!((row.files_in, row.files_out, row.bytes_in, row.bytes_out), (Some(30), 3, Some(3000), 2700));
    assert_eq!((row.rows, row.rows_deleted, row.seconds, row.peak_memory), (15, 3, 4.5, Some(11)));
    assert_eq!(row.requests, Requests { get: 9, ..Requests::default() });
    assert_eq!((row.deletes_carried, row.wasted_bytes), (6, 21));
    assert_eq!((row.path, row.path_reason.as_deref()), (Some(Path::ReEncode), Some("ReEncode")));
    assert_eq!((row.job.as_deref(), row.attempt.as_deref(), row.snapshot_id.as_deref()), (Some("J-failed"), Some("A-failed"), Some("1")));
    let json: serde_json::Value = serde_json::from_str(&compacts(std::slice::from_ref(&row), true)).unwrap();
    let each = |key: &str| json["jobs"].as_array().unwrap().iter().map(|j| j[key].clone()).collect::<Vec<_>>();
    assert_eq!((each("result"), each("files_in")), (vec!["committed".into(), "conflict".into(), "failed".into()], vec![10.into(); 3]));
    assert_eq!(cells(&compacts(&[row], false), 3)[2], "request, 3 jobs: 6 deletes carried over; why conflict");

    // one job is the row, and none leaves it as it was
    let one = CompactRow::default().of(vec![job(Exit::Refused, "refused", None, None)]);
    assert_eq!((one.result.as_str(), one.files_in, one.jobs.len()), ("refused", Some(10), 0));
    assert_eq!(CompactRow { result: "left".into(), ..CompactRow::default() }.of(vec![]).result, "left");
}

#[test]
fn every_kind_of_check_has_its_two_words() {
    use v1::check::Kind;
    let words = |kind: Kind| {
        [true, false].map(|passed| {
            let check = v1::Check { kind: kind.into(), passed, name: "n".into(), note: "meant".into(), ..v1::Check::default() };
            let text = decisions(&[v1::Decision { checks: vec![check], ..v1::Decision::default() }]);
            cells(&text, 4)[3].clone()
        })
    };
    assert_eq!(words(Kind::Filter), ["passes", "holds back"]);
    assert_eq!(words(Kind::Rule), ["fires", "does not fire"]);
    assert_eq!(words(Kind::Number), ["met", "not met"]);
    assert_eq!(words(Kind::Property), ["not used", "not used"]);
}

#[test]
fn jobs_show_their_snapshot_or_what_went_wrong() {
    let job = JobRow {
        job: "J".into(),
        table: "lake.db.t".into(),
        partition: "all".into(),
        state: "failed".into(),
        reason: "score".into(),
        error: "disk full".into(),
        ..JobRow::default()
    };
    let text = jobs(std::slice::from_ref(&job), false);
    assert_eq!(cells(&text, 3), ["J", "lake.db.t", "all", "failed", "score", "-", "0", "0 B", "1970-01-01T00:00:00Z", "disk full"]);
    // and how the outputs were made, with the reason
    let made = JobRow { path: Some(Path::RePack), path_reason: Some("small row groups".into()), ..job };
    assert_eq!(cells(&jobs(std::slice::from_ref(&made), false), 3)[5], "re-pack: small row groups");
    assert!(jobs(&[made], true).contains(r#""path":"re-pack","path_reason":"small row groups""#));
    assert_eq!((jobs(&[], false), jobs(&[], true)), ("no jobs".to_owned(), String::new()));
}

#[test]
fn a_plan_names_its_reason_and_its_files() {
    let row = PlanRow {
        table: "lake.db.t".into(),
        branch: "main".into(),
        partition: "month=12".into(),
        spec_id: 1,
        snapshot_id: Some(SNAPSHOT.to_string()),
        verdict: "now".into(),
        reason: "small-files".into(),
        detail: String::new(),
        files_in: 13,
        bytes_in: 13 << 20,
        rows_in: 1000,
        delete_files: 2,
        gb_hours: 0.5,
        inputs: vec!["s3://b/t/a b.parquet".into()],
    };
    let text = plans(std::slice::from_ref(&row), false);
    assert_eq!(cells(&text, 3), ["month=12", "now", "small-files", "13", "13.0 MiB", "1 000", "2", "0.50 GB-h"]);
    let line: serde_json::Value = serde_json::from_str(&plans(&[row], true)).unwrap();
    assert_eq!((&line["snapshot_id"], &line["inputs"][0]), (&"9007199254740993".into(), &"s3://b/t/a b.parquet".into()));
}

#[test]
fn doors_are_shown_with_what_is_wrong_below_them() {
    let door = v1::Door {
        door: "kafka".into(),
        source: "commits".into(),
        received: 1200,
        accepted: 3,
        lag: Some(7),
        staleness_ms: Some(1500),
        state: "reads from b:1 as group g".into(),
        problem: "brokers are\u{1b}[31m down".into(),
        examples: vec![v1::DoorExample { at_ms: 0, place: "commits/0@3".into(), reason: "not JSON".into() }],
        ..v1::Door::default()
    };
    let plain = v1::Door { door: "grpc".into(), ..v1::Door::default() };
    let shown = doors(&[plain, door.clone()], false);
    let last: Vec<&str> = shown.lines().rev().take(2).collect();
    assert_eq!(
        last,
        ["kafka commits: last without a look commits/0@3 at 1970-01-01T00:00:00Z: not JSON", "kafka commits: brokers are\\u{1b}[31m down"]
    );
    assert!(shown.contains("1.5 s") && shown.contains("never") && shown.contains("reads from b:1 as group g"), "{shown}");
    let json: serde_json::Value = serde_json::from_str(&doors(&[door], true)).unwrap();
    assert_eq!((&json["lag"], &json["staleness_ms"], &json["heard_ms"]), (&7.into(), &1500.into(), &serde_json::Value::Null));
    assert_eq!(doors(&[], false), "nothing was heard yet");
}
