//! `serve`, and the commands that ask it.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};

use super::{NAME, keys, small};
use crate::fixture::process::{Place, Serving, bare, finish};
use crate::fixture::row;

/// Never polls again, so that what is seen came from an event.
const DEAF: &str =
    "[poll]\nmin = \"1h\"\nmax = \"1h\"\n[defaults]\nact = true\ncooldown = \"0s\"\ntier_files = 2\nqueue_min_reduction = 1\n";

/// Asks until the answer is as wanted.
async fn until<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    for _ in 0..300 {
        if let Some(found) = ask().await {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{what} did not come about");
}

#[tokio::test]
async fn serve_without_settings_comes_up_and_says_where_it_listens() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = bare(folder.path());
    command.args(["serve", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"]);
    let serving = Serving::start(command).await;
    let said = until("the word on catalogs", async || Some(serving.said()).filter(|s| s.contains("no catalog is configured"))).await;
    assert!(said.contains("/metrics, /healthz, /readyz"), "{said}");
    assert!(folder.path().join(".local/share/afterwrite/journal.db").exists());
    assert_eq!(serving.terminate().await, Some(0));
}

#[tokio::test]
async fn an_address_that_others_can_reach_is_refused_without_tls_and_token() {
    let place = Place::new("");
    small(&place).await;
    let open = place.run(&["serve", "--listen", "0.0.0.0:0", "--http", "127.0.0.1:0"]).await.expect(64);
    assert!(open.err.contains("0.0.0.0:0 can be reached from other machines and neither TLS nor a token is configured"), "{}", open.err);
    place.run(&["serve", "--listen", "0.0.0.0:0", "--http", "127.0.0.1:0", "--token", "t"]).await.expect(64);
    place.configure("[server]\nlisten = \"0.0.0.0:0\"");
    let open = place.run(&["serve"]).await.expect(64);
    assert!(open.err.contains("0.0.0.0:0 can be reached from other machines and neither TLS nor a token is configured"), "{}", open.err);
    // what listens nowhere is not held up by it, and the plain word may come from either side
    place.run(&["jobs"]).await.expect(0);
    let open = place.run(&["serve", "--http", "0.0.0.0:0", "--listen", "127.0.0.1:0"]).await.expect(64);
    assert!(open.err.contains("0.0.0.0:0 can be reached from other machines and it speaks no TLS"), "{}", open.err);
    place.assert_settled().await;
}

#[tokio::test]
async fn an_address_that_is_taken_is_named() {
    let place = Place::new("");
    small(&place).await;
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let ended = place.run(&["serve", "--listen", &address, "--http", "127.0.0.1:0"]).await.expect(1);
    assert!(ended.err.contains(&address) && ended.err.contains("choose another address with --listen or server.listen"), "{}", ended.err);
    let ended = place.run(&["serve", "--listen", "127.0.0.1:0", "--http", &address]).await.expect(1);
    assert!(ended.err.contains(&address) && ended.err.contains("choose another address with --http or server.http"), "{}", ended.err);
    place.assert_settled().await;
}

#[tokio::test]
async fn one_journal_is_served_once() {
    let place = Place::new("");
    small(&place).await;
    let first = place.serve().await;
    let second = place.run(&["serve", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"]).await.expect(1);
    assert!(second.err.contains("the journal is in use by another `serve` (process "), "{}", second.err);
    assert!(second.err.contains(&format!("(process {} on ", first.pid())), "{}", second.err);
    // commands go beside it, and a successor need not wait for a dead one
    place.run(&["compact", NAME]).await.expect(0);
    first.kill();
    let next = place.serve().await;
    assert_eq!(next.terminate().await, Some(0));
    place.assert_settled().await;
}

#[tokio::test]
async fn a_report_leads_to_a_rewrite_that_why_and_watch_explain() {
    let place = Place::new(DEAF);
    let table = small(&place).await;
    let serving = place.serve().await;
    let server = serving.grpc.clone();
    let ask = async |words: &[&str]| place.run(&[words, &["--server", &server, "--json"]].concat()).await;
    let compacted = async || (table.load().await.loaded.metadata.snapshots().count() > 5).then_some(());
    until("the first rewrite", compacted).await;

    let mut command = place.command(&["watch", NAME, "--server", &server, "--json"]);
    let mut watching = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let lines = BufReader::new(watching.stdout.take().unwrap()).lines();
    let seen = std::thread::spawn(move || lines.map_while(Result::ok).take(1).collect::<Vec<_>>());
    tokio::time::sleep(Duration::from_millis(500)).await;

    table.append([row(10, "x", 8)]).await;
    table.append([row(11, "y", 8)]).await;
    let head = table.head().await.to_string();
    let reported = ask(&["report", NAME, "--snapshot", &head]).await.expect(0);
    assert_eq!(reported.lines(), [json!({ "table": NAME, "status": "accepted", "reason": "" })]);
    until("the rewrite of p=8", async || {
        let shown = place.run(&["inspect", NAME, "--json"]).await.expect(0).lines();
        (shown[2]["traits"]["data_files"] == 1).then_some(())
    })
    .await;
    assert_eq!(table.rows().await, ["10|x|8", "11|y|8", "2|b|7", "3|c|7", "4|d|7", "5|e|8"]);

    let made = until("a decision at rest", async || {
        let made = ask(&["why", NAME, "p=8"]).await.expect(0).lines();
        (made[0]["traits"]["data_files"] == 1).then_some(made)
    })
    .await;
    let expected = [
        "act",
        "branch",
        "checks",
        "decided_at_ms",
        "detail",
        "eligible_at_ms",
        "gain",
        "gb_hours",
        "judged_at_ms",
        "last_job",
        "partition",
        "reason",
        "score",
        "snapshot_id",
        "spec_id",
        "table",
        "table_uuid",
        "traits",
        "until_ms",
        "verdict",
        "waits_for",
    ];
    // the last decision on the partition first, then those before it
    assert!(made.iter().all(|m| keys(m) == expected && m["partition"] == "p=8"), "{made:?}");
    assert_eq!((&made[0]["verdict"], &made[0]["act"]), (&json!("not"), &json!(true)));
    assert_eq!(keys(&made[0]["checks"][0]), ["kind", "name", "note", "passed", "threshold", "value"]);
    let seen: Value = serde_json::from_str(&seen.join().unwrap()[0]).unwrap();
    assert_eq!((keys(&seen), &seen["table"]), (expected.to_vec(), &json!(NAME)));
    watching.kill().unwrap();
    watching.wait().unwrap();

    ask(&["why", NAME, "p=9"]).await.expect(7);
    ask(&["why", "lake.ns.gone"]).await.expect(7);
    let gone = ask(&["watch", "lake.ns.gone"]).await.expect(7);
    assert!(gone.err.contains("lake.ns.gone is not known: no catalog lists it"), "{}", gone.err);
    ask(&["watch", "sea.ns.t"]).await.expect(7);
    ask(&["report", "sea.ns.t"]).await.expect(7);
    assert_eq!(serving.terminate().await, Some(0));
    let nobody = ask(&["why", NAME]).await.expect(6);
    assert!(nobody.err.contains("no sidecar answers at ") && nobody.err.contains("afterwrite serve"), "{}", nobody.err);
    place.assert_settled().await;
}

#[tokio::test]
async fn serve_keeps_a_pause_and_takes_the_work_up_again() {
    let place = Place::new(DEAF);
    let table = small(&place).await;
    place.run(&["pause", NAME]).await.expect(0);
    let serving = place.serve().await;
    let server = serving.grpc.clone();
    let why = async || place.run(&["why", NAME, "p=7", "--server", &server, "--json"]).await;
    let made = until("a decision", async || Some(why().await).filter(|w| w.code == Some(0)).map(|w| w.lines())).await;
    assert_eq!((&made[0]["verdict"], &made[0]["reason"]), (&json!("not"), &json!("paused")));
    assert_eq!(table.load().await.loaded.metadata.snapshots().count(), 5);

    place.run(&["resume", NAME]).await.expect(0);
    place.run(&["report", NAME, "--server", &server]).await.expect(0);
    until("the rewrite", async || (table.load().await.loaded.metadata.snapshots().count() == 6).then_some(())).await;
    assert_eq!(serving.terminate().await, Some(0));
    assert_eq!(table.rows().await, ["2|b|7", "3|c|7", "4|d|7", "5|e|8"]);
    place.assert_settled().await;
}

#[tokio::test]
async fn commands_ask_where_serve_listens_by_default() {
    let folder = tempfile::tempdir().unwrap();
    let asked = async |words: &[&str]| {
        let mut command = bare(folder.path());
        command.args(words);
        finish(command).await.expect(0).out
    };
    let listens = asked(&["config"]).await;
    assert!(listens.starts_with("grpc     127.0.0.1:7411\nhttp     127.0.0.1:7412\n"), "{listens}");
    assert!(asked(&["serve", "--help"]).await.contains("[default: 127.0.0.1:7411]"));
    assert!(asked(&["why", "--help"]).await.contains("[default: http://127.0.0.1:7411]"));
}

#[tokio::test]
async fn what_was_undone_is_not_done_again_until_a_writer_changes_it() {
    let place = Place::new(DEAF);
    let table = small(&place).await;
    let serving = place.serve().await;
    let server = serving.grpc.clone();
    let snapshots = async || table.load().await.loaded.metadata.snapshots().count();
    until("the rewrite of p=7", async || (snapshots().await == 6).then_some(())).await;
    until("its end", async || (place.run(&["jobs", "--json"]).await.expect(0).each("state") == ["committed"]).then_some(())).await;
    let job = place.run(&["jobs", "--json"]).await.expect(0).each("job")[0].as_str().unwrap().to_owned();
    let undone = place.run(&["undo", &job]).await.expect(0);
    assert!(
        undone.out.contains("`serve` keeps p=7 as it is now until a writer changes it, or until `afterwrite resume lake.ns.t`"),
        "{}",
        undone.out
    );
    let head = table.head().await;
    place.run(&["report", NAME, "--server", &server]).await.expect(0);
    let why = async || place.run(&["why", NAME, "p=7", "--server", &server, "--json"]).await.expect(0).lines().remove(0);
    until("the decision on what was undone", async || {
        let made = why().await;
        (made["reason"] == "paused" && made["traits"]["data_files"] == 3).then_some(())
    })
    .await;
    // longer than a round of the loop, and another partition is free
    table.append([row(20, "x", 8)]).await;
    place.run(&["report", NAME, "--server", &server]).await.expect(0);
    until("the rewrite of p=8", async || {
        let shown = place.run(&["inspect", NAME, "--json"]).await.expect(0).lines();
        (shown[2]["traits"]["data_files"] == 1).then_some(())
    })
    .await;
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    assert_eq!((&why().await["reason"], &why().await["traits"]["data_files"]), (&json!("paused"), &json!(3)));
    assert_ne!(table.head().await, head);

    table.append([row(21, "y", 7)]).await;
    place.run(&["report", NAME, "--server", &server]).await.expect(0);
    until("the rewrite of p=7 after a writer", async || {
        let shown = place.run(&["inspect", NAME, "--json"]).await.expect(0).lines();
        (shown[1]["traits"]["data_files"] == 1).then_some(())
    })
    .await;
    assert_eq!(serving.terminate().await, Some(0));
    let kept = place.run(&["resume", NAME, "--json"]).await.expect(0).lines();
    assert_eq!(kept, [json!({ "table": NAME, "resumed": true, "still_paused": [], "still_kept": [] })]);
}

#[tokio::test]
async fn why_names_the_refusal_of_a_table_without_files() {
    let place = Place::new(DEAF);
    crate::fixture::Table::plain().property("encryption.key-id", "k").in_sqlite(place.path()).create().await;
    let serving = place.serve().await;
    let told = until("the look at the table", async || {
        let told = place.run(&["why", NAME, "--server", &serving.grpc]).await;
        (told.code != Some(7)).then_some(told)
    })
    .await
    .expect(3);
    assert!(
        told.err.contains("refused (encrypted): ") && told.err.contains("compact it with an engine that holds the keys"),
        "{}",
        told.err
    );
    assert_eq!(serving.terminate().await, Some(0));
}

#[tokio::test]
async fn every_door_shows_before_anything_is_heard_with_what_it_does() {
    let place = Place::new("[poll]\nmin = \"1h\"\nmax = \"1h\"");
    // a catalog without tables: the poller has nothing to mark
    let table = small(&place).await;
    drop(table);
    let serving = place.serve().await;
    let doors = until("the listing of the catalog", async || {
        let doors = place.run(&["doors", "--server", &serving.grpc, "--json"]).await.expect(0).lines();
        doors.iter().any(|d| d["state"].as_str().is_some_and(|s| s.starts_with("listed 1 tables "))).then_some(doors)
    })
    .await;
    let named: Vec<_> = doors.iter().map(|d| (d["door"].as_str().unwrap(), d["source"].as_str().unwrap())).collect();
    assert_eq!(named, [("grpc", ""), ("http", "/v1/commits"), ("poll", "lake")]);
    let address = serving.grpc.strip_prefix("http://").unwrap();
    assert_eq!((&doors[0]["state"], &doors[0]["heard_ms"]), (&json!(format!("listens on {address}")), &Value::Null));
    assert_eq!(doors[1]["state"], json!(format!("listens on {}", serving.http)));
    let text = place.run(&["doors", "--server", &serving.grpc]).await.expect(0).out;
    assert!(text.contains("never") && text.contains("listens on "), "{text}");
    assert_eq!(serving.terminate().await, Some(0));
}
