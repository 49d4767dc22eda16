//! `--json`, `--config` and the environment, on every command.

use clap::CommandFactory;
use serde_json::Value;

use super::{NAME, small};
use crate::fixture::process::{Ended, Place, bare, finish};

/// How a command is called that prints data; `None` for one that does not.
fn words<'a>(command: &str, job: &'a str, server: &'a str) -> Option<Vec<&'a str>> {
    Some(match command {
        // it logs, and is asked by the others
        "serve" => return None,
        // a script of the shell
        "completions" => return None,
        // without end: its lines are seen where decisions are made
        "watch" => return None,
        // they need a recording: `replaying`
        "replay" | "tune" => return None,
        "costs" => vec!["costs"],
        "demo" => vec!["demo", "--dir", "demo", "--scale", "0.001", "--commits", "1"],
        "inspect" => vec!["inspect", NAME],
        "plan" => vec!["plan", NAME],
        "compact" => vec!["compact", NAME],
        "why" => vec!["why", NAME, "--server", server],
        "report" => vec!["report", NAME, "--server", server],
        "doors" => vec!["doors", "--server", server],
        "backlog" => vec!["backlog", "--server", server],
        "jobs" => vec!["jobs"],
        "cancel" => vec!["cancel", job],
        "undo" => vec!["undo", job],
        "pause" => vec!["pause", NAME],
        "resume" => vec!["resume", NAME],
        "hold" => vec!["hold", NAME, "--for", "1h"],
        "release" => vec!["release", NAME],
        "config" => vec!["config"],
        other => panic!("`{other}` is new: say here how it is called, and whether it prints data"),
    })
}

fn objects(ended: &Ended) -> Vec<Value> {
    let lines = ended.lines();
    assert!(!lines.is_empty() && lines.iter().all(Value::is_object), "{}{}", ended.out, ended.err);
    lines
}

#[tokio::test]
async fn every_command_that_prints_data_prints_json_objects() {
    let place = Place::new("[defaults]\ntier_files = 2\nqueue_min_reduction = 1\n");
    small(&place).await;
    let serving = place.serve().await;
    let compacted = objects(&place.run(&["compact", NAME, "--json"]).await.expect(0));
    let job = compacted.iter().find_map(|line| line["job"].as_str()).unwrap().to_owned();
    let known = async || place.run(&["why", NAME, "--server", &serving.grpc]).await.code == Some(0);
    while !known().await {
        place.run(&["report", NAME, "--server", &serving.grpc]).await.expect(0);
    }
    for command in afterwrite::cli::Cli::command().get_subcommands() {
        let Some(words) = words(command.get_name(), &job, &serving.grpc) else { continue };
        let ended = place.run(&[words.as_slice(), &["--json"]].concat()).await;
        match command.get_name() {
            // what has ended is not stopped: told on standard error, as all that goes wrong
            "cancel" => assert_eq!((ended.code, ended.out.as_str(), ended.err.is_empty()), (Some(1), "", false)),
            _ => drop(objects(&ended.expect(0))),
        }
    }
    assert_eq!(serving.terminate().await, Some(0));
}

#[tokio::test]
async fn the_settings_file_may_be_named_by_the_environment_and_each_key_stand_there() {
    let place = Place::new("");
    small(&place).await;
    let shown = objects(&place.run(&["inspect", NAME, "--json"]).await.expect(0));

    let mut named = bare(place.path());
    named.args(["inspect", NAME, "--json"]).env("AFTERWRITE_CONFIG", place.path().join("afterwrite.toml"));
    let named = objects(&finish(named).await.expect(0));
    assert_eq!(named[0]["snapshot_id"], shown[0]["snapshot_id"]);

    // the key in the environment is the one that holds
    let mut both = place.command(&["config", "--json"]);
    both.env("AFTERWRITE_SERVER__LISTEN", "127.0.0.1:7999");
    assert_eq!(objects(&finish(both).await.expect(0))[0]["grpc"], "127.0.0.1:7999");

    let mut wrong = place.command(&["config"]);
    wrong.env("AFTERWRITE_SERVER__LISTEM", "127.0.0.1:7999");
    let wrong = finish(wrong).await.expect(64);
    assert!(wrong.err.contains("server.listem"), "{}", wrong.err);
}
