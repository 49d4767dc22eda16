//! Commands on a table, without a server.

use afterwrite::model::refusal::Refusal;
use iceberg::spec::{Literal, NestedField, PrimitiveLiteral, PrimitiveType, Type};
use serde_json::{Value, json};

use super::{NAME, keys, small};
use crate::fixture::process::{Place, over_rest};
use crate::fixture::{Table, row};

#[tokio::test]
async fn inspect_shows_the_table_and_each_partition() {
    let place = Place::new("");
    let table = small(&place).await;
    let lines = place.run(&["inspect", NAME, "--json"]).await.expect(0).lines();
    assert_eq!(
        keys(&lines[0]),
        [
            "act",
            "format_version",
            "kind",
            "looked_at_ms",
            "partitions",
            "reference",
            "refused",
            "snapshot_id",
            "table",
            "target_file_size",
            "traits",
            "uuid"
        ]
    );
    assert_eq!((&lines[0]["kind"], &lines[0]["table"], &lines[0]["partitions"]), (&json!("table"), &json!(NAME), &json!(2)));
    assert_eq!(lines[0]["snapshot_id"], json!(table.head().await.to_string()), "ids are texts, so that no reader rounds them");
    assert_eq!(lines.iter().skip(1).map(keys).collect::<Vec<_>>(), vec![["kind", "label", "partition", "traits"]; 2]);
    let shown: Vec<_> = lines.iter().skip(1).map(|l| (&l["label"], &l["traits"]["data_files"], &l["traits"]["records"])).collect();
    assert_eq!(shown, [(&json!("p=7"), &json!(3), &json!(4)), (&json!("p=8"), &json!(1), &json!(1))]);
    let text = place.run(&["inspect", NAME]).await.expect(0).out;
    assert!(text.contains("4 files in 2 partitions") && text.contains("p=7") && text.contains("total"), "{text}");
}

#[tokio::test]
async fn plan_and_a_dry_run_say_what_would_be_done_and_do_nothing() {
    let place = Place::new("");
    small(&place).await;
    let before = place.files();
    let plan = place.run(&["plan", NAME, "--json"]).await.expect(0);
    let expected = [
        "branch",
        "bytes_in",
        "delete_files",
        "detail",
        "files_in",
        "gb_hours",
        "inputs",
        "partition",
        "reason",
        "rows_in",
        "snapshot_id",
        "spec_id",
        "table",
        "verdict",
    ];
    assert_eq!(plan.lines().iter().map(keys).collect::<Vec<_>>(), vec![expected.to_vec(); 2]);
    assert_eq!((plan.each("partition"), plan.each("verdict")), (vec!["p=7".into(), "p=8".into()], vec!["rewrite".into(), "leave".into()]));
    assert_eq!(
        (plan.each("files_in"), plan.each("rows_in"), plan.each("delete_files")),
        (vec![json!(3), json!(0)], vec![json!(4), json!(0)], vec![json!(1), json!(0)])
    );
    assert_eq!(plan.lines()[0]["inputs"].as_array().unwrap().len(), 3);

    let dry = place.run(&["compact", NAME, "--dry-run", "--json"]).await.expect(0);
    assert_eq!(dry.each("result"), ["planned", "left"]);
    assert_eq!(dry.each("decision"), ["request", "nothing-to-gain"]);
    assert_eq!(place.files(), before);
    assert!(!place.path().join("journal.db").exists(), "a dry run leaves no journal");
}

#[tokio::test]
async fn compact_tells_each_partition_and_the_journal_keeps_it() {
    let place = Place::new("");
    let table = small(&place).await;
    let ended = place.run(&["compact", NAME, "--json"]).await.expect(0);
    let expected = [
        "attempt",
        "branch",
        "bytes_in",
        "bytes_out",
        "commit_s",
        "decision",
        "deletes_carried",
        "detail",
        "files_in",
        "files_out",
        "job",
        "partition",
        "path",
        "path_reason",
        "peak_memory",
        "proof_s",
        "refusal",
        "requests",
        "result",
        "rewrite_s",
        "rows",
        "rows_deleted",
        "seconds",
        "snapshot_id",
        "spec_id",
        "table",
        "wasted_bytes",
    ];
    let lines = ended.lines();
    assert_eq!(lines.iter().map(keys).collect::<Vec<_>>(), vec![expected.to_vec(); 2]);
    let head = table.head().await.to_string();
    let numbers = ["result", "partition", "files_in", "files_out", "rows", "rows_deleted", "path", "snapshot_id"];
    let shown: Vec<&Value> = numbers.iter().map(|key| &lines[0][*key]).collect();
    let expected = [json!("committed"), json!("p=7"), json!(3), json!(1), json!(3), json!(1), json!("re-pack"), json!(head)];
    assert_eq!(shown, expected.iter().collect::<Vec<_>>());
    assert_eq!((&lines[1]["result"], &lines[1]["attempt"], &lines[1]["snapshot_id"]), (&json!("left"), &Value::Null, &Value::Null));
    assert_eq!(table.rows().await, ["2|b|7", "3|c|7", "4|d|7", "5|e|8"]);

    let jobs = place.run(&["jobs", "--json"]).await.expect(0).lines();
    let expected = [
        "actual",
        "attempt",
        "branch",
        "bytes",
        "changed_ms",
        "created_ms",
        "deletes_carried",
        "error",
        "estimate",
        "files",
        "job",
        "partition",
        "path",
        "path_reason",
        "reason",
        "snapshot_id",
        "state",
        "table",
        "wasted_bytes",
    ];
    assert_eq!(jobs.iter().map(keys).collect::<Vec<_>>(), [expected]);
    // what was asked for by hand was not estimated
    assert_eq!((&jobs[0]["estimate"], &jobs[0]["actual"]["files"]), (&Value::Null, &json!(2.0)));
    assert_eq!((&jobs[0]["state"], &jobs[0]["reason"], &jobs[0]["snapshot_id"]), (&json!("committed"), &json!("request"), &json!(head)));
    assert_eq!((&jobs[0]["table"], &jobs[0]["error"], &jobs[0]["files"]), (&json!(NAME), &json!(""), &json!(3)));
    assert_eq!(place.run(&["jobs", "--table", "lake.ns.other", "--json"]).await.expect(0).out, "");
    assert_eq!(place.run(&["jobs", "--table", "lake.ns.other"]).await.expect(0).out, "no jobs\n");

    let again = place.run(&["compact", NAME, "--json"]).await.expect(0);
    assert_eq!(again.each("result"), ["left", "left"]);
}

#[tokio::test]
async fn one_partition_is_named_by_its_label_or_its_values() {
    let place = Place::new("");
    small(&place).await;
    for name in ["p=8", "8"] {
        assert_eq!(place.run(&["plan", NAME, "--partition", name, "--json"]).await.expect(0).each("partition"), ["p=8"]);
    }
    let none = place.run(&["compact", NAME, "--partition", "p=9"]).await.expect(7);
    assert_eq!(none.err, "error: lake.ns.t has no partition `p=9` with live files; `inspect` lists them\n");
}

#[tokio::test]
async fn undo_takes_the_head_back_and_nothing_under_it() {
    let place = Place::new("");
    let table = small(&place).await;
    let before = table.head().await;
    place.run(&["compact", NAME]).await.expect(0);
    let job = place.run(&["jobs", "--json"]).await.expect(0).each("job")[0].as_str().unwrap().to_owned();
    let undone = place.run(&["undo", &job, "--json"]).await.expect(0);
    assert_eq!(undone.lines(), [json!({ "job": job, "table": NAME, "branch": "main", "partition": "p=7", "undone": true, "kept": true })]);
    assert_eq!((table.head().await, table.rows().await.len()), (before, 4));
    let again = place.run(&["undo", &job]).await.expect(4);
    assert!(again.err.contains("is not the head of lake.ns.t any more"), "{}", again.err);

    // a writer came after the rewrite
    place.run(&["compact", NAME]).await.expect(0);
    table.append([row(6, "f", 8)]).await;
    let head = table.head().await;
    let job = place.run(&["jobs", "--json"]).await.expect(0).each("job")[0].as_str().unwrap().to_owned();
    let refused = place.run(&["undo", &job]).await.expect(4);
    assert!(refused.err.ends_with("is not the head of lake.ns.t any more: undoing it would take later commits back\n"), "{}", refused.err);
    assert_eq!(table.head().await, head);
    place.assert_settled().await;
}

#[tokio::test]
async fn jobs_that_are_not_there_or_have_ended_are_told_apart() {
    let place = Place::new("");
    small(&place).await;
    let absent = "error: the journal has no job `j1`: `jobs` lists them\n";
    assert_eq!(place.run(&["cancel", "j1"]).await.expect(7).err, absent);
    assert_eq!(place.run(&["undo", "j1"]).await.expect(7).err, absent);
    place.run(&["compact", NAME]).await.expect(0);
    let job = place.run(&["jobs", "--json"]).await.expect(0).each("job")[0].as_str().unwrap().to_owned();
    assert_eq!(place.run(&["cancel", &job]).await.expect(1).err, format!("error: job {job} is committed already\n"));
}

#[tokio::test]
async fn a_pause_holds_back_what_is_asked_for_by_hand_too() {
    let place = Place::new("");
    let table = small(&place).await;
    assert_eq!(place.run(&["pause", NAME, "--json"]).await.expect(0).lines(), [json!({ "table": NAME, "paused": true })]);
    assert_eq!(place.run(&["pause"]).await.expect(0).out, "paused: all tables; jobs under way end as they would\n");
    let head = table.head().await;
    let held = place.run(&["compact", NAME, "--json"]).await.expect(3);
    let why = "lake.ns.t is paused (`pause` of all tables): nothing is rewritten; `afterwrite resume` takes the work up again";
    assert_eq!((held.out.as_str(), held.err), ("", format!("error: {why}\n")));
    let resumed = place.run(&["resume", "--json"]).await.expect(0);
    assert_eq!(resumed.lines(), [json!({ "table": null, "resumed": true, "still_paused": [NAME], "still_kept": [] })]);
    let held = place.run(&["compact", NAME]).await.expect(3);
    assert!(held.err.contains("`afterwrite resume lake.ns.t` takes the work up again"), "{}", held.err);
    assert_eq!((table.head().await, table.rows().await.len()), (head, 4));
    // what writes nothing is not held
    place.run(&["plan", NAME]).await.expect(0);
    place.run(&["compact", NAME, "--dry-run"]).await.expect(0);
    let resumed = place.run(&["resume", NAME, "--json"]).await.expect(0);
    assert_eq!(resumed.lines(), [json!({ "table": NAME, "resumed": true, "still_paused": [], "still_kept": [] })]);
    assert_eq!(place.run(&["compact", NAME, "--json"]).await.expect(0).each("result"), ["committed", "left"]);
    place.assert_settled().await;
    assert_eq!(place.run(&["resume", NAME]).await.expect(0).out, "lake.ns.t: there was no such pause\n");
    assert_eq!(place.run(&["pause", "lake.ns.gone"]).await.expect(7).out, "");
}

#[tokio::test]
async fn what_is_not_there_is_named_and_told_apart_by_the_exit_code() {
    let place = Place::new("");
    if over_rest().is_none() {
        let missing = place.run(&["compact", NAME]).await.expect(64);
        assert!(missing.err.contains("catalog `lake`") && missing.err.contains("/catalog.db"), "{}", missing.err);
        assert!(!place.path().join("catalog.db").exists());
    }
    small(&place).await;
    for command in ["inspect", "plan", "compact"] {
        let gone = place.run(&[command, "lake.ns.gone"]).await.expect(7);
        assert_eq!(
            gone.err,
            "error: lake.ns.gone does not exist in its catalog; `catalog.namespace.table` is spelled as engines spell it\n"
        );
        let unknown = place.run(&[command, "sea.ns.t"]).await.expect(64);
        assert_eq!(unknown.err, "error: no catalog is called `sea`; known: lake\n");
        place.run(&[command, "t"]).await.expect(2);
    }
    place.run(&["compact", NAME, "--fast"]).await.expect(2);
}

#[tokio::test]
async fn an_empty_table_is_no_error() {
    let place = Place::new("");
    let table = Table::plain().in_sqlite(place.path()).create().await;
    let file = table.append([row(1, "a", 0)]).await;
    table.change().remove(&[&file]).commit().await;
    let ended = place.run(&["compact", NAME]).await.expect(0);
    assert_eq!(ended.out, "nothing to compact: the table has no partition with live files\n");
    assert_eq!(place.run(&["compact", NAME, "--json"]).await.expect(0).out, "");
}

#[tokio::test]
async fn a_partition_of_several_jobs_is_one_object_that_lists_them() {
    let place = Place::new("");
    let table = Table::partitioned_by_p().in_sqlite(place.path()).create().await;
    let mut bytes = 0;
    for n in 0..4 {
        bytes += table.append([row(n, "a", 7)]).await.data.file_size_in_bytes();
    }
    // two files a job, one after the other: the last to land is the head
    place.configure(&format!("[defaults]\nmax_job_size = {}\n[budget]\nconcurrent_jobs = 1", bytes / 2 + 100));
    let dry = place.run(&["compact", NAME, "--dry-run", "--json"]).await.expect(0).lines();
    assert_eq!(dry.len(), 1);
    assert_eq!((&dry[0]["result"], &dry[0]["files_in"], &dry[0]["bytes_in"]), (&json!("planned"), &json!(4), &json!(bytes)));
    let told = place.run(&["compact", NAME, "--json"]).await.expect(0).lines();
    assert_eq!(told.len(), 1);
    let jobs = told[0]["jobs"].as_array().unwrap();
    assert_eq!(jobs.iter().map(|j| (&j["result"], &j["files_in"])).collect::<Vec<_>>(), [(&json!("committed"), &json!(2)); 2]);
    assert_eq!((&told[0]["files_in"], &told[0]["files_out"], &told[0]["rows"]), (&json!(4), &json!(2), &json!(4)));
    assert_eq!((&told[0]["snapshot_id"], &told[0]["attempt"]), (&jobs[1]["snapshot_id"], &jobs[1]["attempt"]));
    assert_eq!(told[0]["snapshot_id"], json!(table.head().await.to_string()));
    assert!(jobs.iter().all(|j| j["attempt"].is_string()) && jobs[0]["attempt"] != jobs[1]["attempt"], "{jobs:?}");
    place.assert_settled().await;
}

#[tokio::test]
async fn a_refusal_says_what_was_refused() {
    let place = Place::new("");
    let table = small(&place).await;
    let path = table.append([row(9, "x", 8)]).await.path;
    // found when the file is read: a job has begun
    let bad = crate::fixture::process::local(&path);
    let length = usize::try_from(std::fs::metadata(&bad).unwrap().len()).unwrap();
    std::fs::write(&bad, vec![0u8; length]).unwrap();
    let told = place.run(&["compact", NAME, "--json"]).await.expect(3).lines();
    let refused = &told[1];
    assert_eq!((&refused["result"], &refused["refusal"], &refused["files_in"]), (&json!("refused"), &json!("damaged"), &json!(2)));
    assert!(
        refused["attempt"].is_string() && refused["job"].is_string() && refused["bytes_in"].as_u64() > Some(length as u64),
        "{refused}"
    );
    assert_eq!(told[0]["result"], "committed");
}

#[tokio::test]
async fn a_column_that_gives_old_rows_a_value_before_format_3_is_refused_by_name() {
    let place = Place::new("");
    let table = small(&place).await;
    let added = NestedField::optional(9, "d", Type::Primitive(PrimitiveType::Long));
    let added = added.with_initial_default(Literal::Primitive(PrimitiveLiteral::Long(5)));
    table.evolve_schema(|fields| fields.push(added)).await;
    let head = table.head().await;
    let ended = place.run(&["compact", NAME, "--partition", "p=7", "--json"]).await.expect(3);
    assert_eq!(ended.each("refusal"), [Refusal::DefaultValue.code()]);
    assert_eq!(table.head().await, head);
    place.assert_settled().await;
}
