//! The commands that ask a running sidecar, end to end.

use afterwrite::cli::remote::{backlog, report, watch, why};
use afterwrite::cli::{Cli, Command, Exit};
use clap::Parser;

use super::*;

fn command(line: &str, running: &Running) -> Command {
    let server = format!("http://{}", running.grpc_addr());
    let words = line.split(' ').map(str::to_owned).chain(["--server".to_owned(), server]);
    Cli::try_parse_from(words).unwrap().command
}

async fn reported(line: &str, running: &Running, json: bool) -> Result<String, (Exit, String)> {
    let Command::Report(args) = command(line, running) else { panic!("a report was asked for") };
    report(&args, json).await.map_err(|f| (f.exit, f.why))
}

#[tokio::test]
async fn a_report_by_hand_reaches_the_loop_with_its_snapshots() {
    let fake = Fake::new();
    let running = running(&fake, &options()).await;
    let said = reported("afterwrite report lake.db.t --snapshot 9007199254740993 --ref main", &running, false).await;
    assert_eq!(said.unwrap(), "lake.db.t: marked for a look");
    let other = reported("afterwrite report lake.db.t --ref audit", &running, false).await;
    assert_eq!(other.unwrap(), "lake.db.t: nothing to look at (branch `audit` is not looked after: only `main` is)");
    fake.answer.lock().unwrap().note = "not listed".into();
    let said = reported("afterwrite report lake.db.t", &running, true).await;
    assert_eq!(said.unwrap(), r#"{"reason":"not listed","status":"accepted","table":"lake.db.t"}"#);
    let heard = fake.heard.lock().unwrap();
    let shown: Vec<_> = heard.iter().map(|e| (e.snapshots.clone(), e.reference.clone())).collect();
    assert_eq!(shown, [(vec![SNAPSHOT], Some("main".to_owned())), (vec![], None)]);
}

#[tokio::test]
async fn the_backlog_is_shown_with_the_candidates_that_are_asked_for() {
    let running = running(&Fake::new(), &options()).await;
    let Command::Backlog(args) = command("afterwrite backlog --candidates 2", &running) else { panic!("a backlog was asked for") };
    let kinds: Vec<_> = backlog(&args, true)
        .await
        .unwrap()
        .lines()
        .map(|l| serde_json::from_str::<serde_json::Value>(l).unwrap()["kind"].clone())
        .collect();
    assert_eq!(kinds, ["backlog", "backlog", "candidate", "candidate"]);
    assert!(backlog(&args, false).await.unwrap().starts_with("the budget holds 12.00 GB-h\n"));
}

#[tokio::test]
async fn a_report_that_is_not_taken_exits_by_its_reason() {
    let fake = Fake::new();
    let running = running(&fake, &options()).await;
    let unknown = reported("afterwrite report sea.db.t", &running, false).await.unwrap_err();
    assert_eq!(unknown.0, Exit::NotFound);
    assert!(unknown.1.ends_with("known catalogs: lake, pond"), "{}", unknown.1);
    fake.answer.lock().unwrap().heard = Heard::Full;
    assert_eq!(reported("afterwrite report lake.db.t", &running, false).await.unwrap_err().0, Exit::Unreachable);
    let Command::Report(args) = command("afterwrite report lake.db.t", &running) else { panic!("a report was asked for") };
    running.drain(LONG).await;
    assert_eq!(report(&args, false).await.unwrap_err().exit, Exit::Unreachable);
}

#[tokio::test]
async fn why_asks_for_one_partition_or_all_and_says_when_there_is_none() {
    let fake = Fake::new();
    let running = running(&fake, &options()).await;
    let ask = async |line: &str| {
        let Command::Why(args) = command(line, &running) else { panic!("why was asked") };
        why(&args, true).await.map_err(|f| (f.exit, f.why))
    };
    assert_eq!(ask("afterwrite why lake.db.t").await.unwrap().lines().count(), 3);
    assert!(ask("afterwrite why lake.db.t 2").await.unwrap().contains(r#""partition":"field0=2""#));
    let none = ask("afterwrite why lake.db.t 7").await.unwrap_err();
    assert_eq!(none, (Exit::NotFound, "lake.db.t has no decision on a partition `7`; `why lake.db.t` lists those it has".to_owned()));
    assert_eq!(ask("afterwrite why lake.db.v3").await.unwrap_err().0, Exit::Refused);
}

#[tokio::test]
async fn watch_tells_decisions_until_the_sidecar_ends() {
    let fake = Fake::new();
    let running = running(&fake, &options()).await;
    let Command::Watch(args) = command("afterwrite watch lake.db.t", &running) else { panic!("watch was asked") };
    let watching = tokio::spawn(async move {
        let mut lines = Vec::new();
        let ended = watch(&args, false, |line| {
            lines.push(line.to_owned());
            true
        });
        (ended.await.unwrap_err().exit, lines)
    });
    while fake.decisions.receiver_count() == 0 {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    fake.decisions.send(Arc::new(explained(5))).unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    running.drain(LONG).await;
    let (exit, lines) = tokio::time::timeout(LONG, watching).await.unwrap().unwrap();
    assert_eq!((exit, lines.len()), (Exit::Unreachable, 1), "{lines:?}");
    assert!(lines[0].starts_with("lake.db.t field0=5 decided at 1970-01-01T00:00:00Z, judged at 1970-01-01T00:00:01Z"), "{lines:?}");
}
