//! How commands end: signals, a catalog that goes away, and a commit of which nobody
//! knows whether it landed.

use std::collections::HashSet;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::Duration;

use afterwrite::act::{JobState, Journal, Query};
use rustix::process::Signal;
use serde_json::json;

use super::{NAME, small};
use crate::fixture::process::{Ended, Place, local};
use crate::fixture::rest::{Asked, Reply, RestServer, Work};
use crate::fixture::{Table, row};

/// A table in a REST catalog of this process, which answers as it is told.
struct World {
    place: Place,
    table: Table,
    server: RestServer,
}

fn is_load(asked: &Asked) -> bool {
    asked.method == "GET" && asked.target.contains("/tables/")
}

/// A command that runs.
struct Running {
    child: Child,
}

impl Running {
    fn signal(&self, signal: Signal) {
        let pid = rustix::process::Pid::from_raw(self.child.id().cast_signed()).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }

    async fn ended(self) -> Ended {
        let output = tokio::task::spawn_blocking(move || self.child.wait_with_output().unwrap()).await.unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Ended { code: output.status.code(), signal: output.status.signal(), out: text(output.stdout), err: text(output.stderr) }
    }
}

fn start(place: &Place, arguments: &[&str]) -> Running {
    let mut command = place.command(arguments);
    Running { child: command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap() }
}

impl World {
    async fn new() -> Self {
        let place = Place::new("");
        let table = small(&place).await;
        let server = RestServer::start(Arc::clone(&table.port)).await;
        let world = Self { place, table, server };
        let journal = world.place.path().join("journal.db");
        let settings =
            format!("[catalog.lake]\ntype = \"rest\"\nuri = \"{}\"\n[journal]\npath = \"{}\"\n", world.server.url, journal.display());
        std::fs::write(world.place.path().join("afterwrite.toml"), settings).unwrap();
        world
    }

    /// Waits until a job of the journal stands so, or has gone beyond it.
    async fn until(&self, state: JobState) {
        for _ in 0..1_200 {
            if self.place.path().join("journal.db").exists() {
                let journal = self.place.journal().await;
                let jobs = journal.jobs(Query::Latest(1)).await.unwrap();
                journal.close().await;
                if jobs.iter().any(|j| j.state == state || state == JobState::Requested || j.state.is_final()) {
                    return;
                }
            }
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
        panic!("no job is {state:?}");
    }
}

#[tokio::test]
async fn a_signal_cancels_the_job_under_way_and_the_next_command_leaves_nothing_of_it() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let world = World::new().await;
        let head = world.table.head().await;
        // the commit is tried again and again, for as long as the job lasts
        world.server.fail(is_load, Work::Done, Reply::True);
        world.server.fail(is_load, Work::Done, Reply::True);
        for _ in 0..500 {
            world.server.fail(is_load, Work::NotDone, Reply::error(503, "ServiceUnavailableException"));
        }
        let running = start(&world.place, &["compact", NAME, "--json"]);
        world.until(JobState::Inflight).await;
        running.signal(signal);
        let ended = running.ended().await.expect(code);
        assert!(ended.err.contains("stopping: the jobs under way are cancelled; a second signal ends at once"), "{}", ended.err);
        let told = ended.lines();
        assert_eq!(ended.each("result"), ["cancelled", "left"]);
        assert_eq!((&told[0]["result"], &told[0]["partition"], &told[0]["files_in"]), (&json!("cancelled"), &json!("p=7"), &json!(3)));
        assert!(told[0]["attempt"].is_string() && told[0]["snapshot_id"].is_null(), "{told:?}");
        let jobs = world.place.run(&["jobs", "--json"]).await.expect(0);
        assert_eq!((jobs.each("state"), jobs.each("partition")), (vec![json!("cancelled")], vec![json!("p=7")]));
        assert_eq!(world.table.head().await, head);
        // nothing is removed without a look at the table, which its catalog did not give
        world.server.heal();
        world.place.run(&["compact", NAME]).await.expect(0);
        world.place.assert_settled().await;
        world.place.assert_accounted(&world.table, &HashSet::new()).await;
    }
}

#[tokio::test]
async fn a_job_under_way_is_cancelled_by_another_command() {
    let world = World::new().await;
    let head = world.table.head().await;
    // the commit is tried again and again, for as long as the job lasts
    world.server.fail(is_load, Work::Done, Reply::True);
    world.server.fail(is_load, Work::Done, Reply::True);
    for _ in 0..500 {
        world.server.fail(is_load, Work::NotDone, Reply::error(503, "ServiceUnavailableException"));
    }
    let running = start(&world.place, &["compact", NAME, "--json"]);
    world.until(JobState::Inflight).await;
    let job = world.place.run(&["jobs", "--json"]).await.expect(0).each("job").remove(0);
    let job = job.as_str().unwrap();
    let asked = world.place.run(&["cancel", job]).await.expect(0);
    assert_eq!(asked.out, format!("job {job} is asked to stop; `jobs` shows when it has\n"));
    let ended = running.ended().await.expect(1);
    assert_eq!(
        (ended.each("result"), ended.each("partition")),
        (vec![json!("cancelled"), json!("left")], vec![json!("p=7"), json!("p=8")])
    );
    assert_eq!(world.place.run(&["jobs", "--json"]).await.expect(0).each("state"), [json!("cancelled")]);
    assert_eq!(world.table.head().await, head);
    world.server.heal();
    world.place.run(&["compact", NAME]).await.expect(0);
    world.place.assert_settled().await;
    world.place.assert_accounted(&world.table, &HashSet::new()).await;
}

#[tokio::test]
async fn a_second_signal_ends_at_once() {
    let world = World::new().await;
    world.server.fail(is_load, Work::Done, Reply::True);
    world.server.fail(is_load, Work::Done, Reply::Slow(Duration::from_secs(600)));
    let running = start(&world.place, &["compact", NAME]);
    world.until(JobState::Requested).await;
    running.signal(Signal::INT);
    tokio::time::sleep(Duration::from_millis(700)).await;
    running.signal(Signal::TERM);
    running.ended().await.expect(143);
    // what it left is closed by the next
    world.place.run(&["compact", NAME]).await.expect(0);
    world.place.assert_settled().await;
}

#[tokio::test]
async fn a_signal_before_the_first_job_ends_without_one() {
    let world = World::new().await;
    world.server.fail(is_load, Work::Done, Reply::Slow(Duration::from_secs(600)));
    let running = start(&world.place, &["compact", NAME]);
    while !world.server.asked().iter().any(is_load) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    running.signal(Signal::INT);
    let ended = running.ended().await.expect(130);
    assert_eq!(ended.out, "");
    world.place.assert_settled().await;
}

#[tokio::test]
async fn watch_ends_at_a_signal() {
    let place = Place::new("[poll]\nmin = \"1h\"\nmax = \"1h\"");
    small(&place).await;
    let serving = place.serve().await;
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let running = start(&place, &["watch", "--server", &serving.grpc]);
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        running.signal(signal);
        let ended = running.ended().await.expect(code);
        assert_eq!(ended.err, "");
    }
    let running = start(&place, &["watch", "--server", &serving.grpc]);
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    assert_eq!(serving.terminate().await, Some(0));
    let ended = running.ended().await.expect(6);
    assert!(ended.err.contains("has ended: nothing more is decided there"), "{}", ended.err);
}

#[tokio::test]
async fn a_catalog_that_goes_away_during_a_job_is_told_by_its_exit_code() {
    let world = World::new().await;
    world.server.fail(is_load, Work::Done, Reply::True);
    for _ in 0..500 {
        world.server.fail(is_load, Work::NotDone, Reply::error(503, "ServiceUnavailableException"));
    }
    let ended = world.place.run(&["compact", NAME, "--json"]).await.expect(6);
    let told = &ended.lines()[0];
    assert_eq!((&told["result"], &told["files_in"], &told["partition"]), (&json!("unreachable"), &json!(3), &json!("p=7")));
    assert!(told["detail"].as_str().unwrap().contains("503"), "{told}");
    world.place.assert_settled().await;
}

#[tokio::test]
async fn a_store_that_fails_during_a_job_is_told_by_its_exit_code() {
    let place = Place::new("");
    let table = Table::plain().in_sqlite(place.path()).create().await;
    table.append([row(1, "a", 0)]).await;
    let path = local(&table.append([row(2, "b", 0)]).await.path);
    // a loop of links is no missing file, and no damaged one
    std::fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink(&path, &path).unwrap();
    let ended = place.run(&["compact", NAME, "--json"]).await.expect(6);
    let told = &ended.lines()[0];
    assert_eq!((&told["result"], &told["files_in"]), (&json!("unreachable"), &json!(2)));
    assert!(told["attempt"].is_string(), "{told}");
    place.assert_settled().await;
}

/// As long as a job looks for what became of its commit.
#[tokio::test]
async fn a_commit_of_which_nobody_knows_is_told_by_its_exit_code_and_found_by_the_next() {
    let world = World::new().await;
    world.server.fail_commit(Work::Later, Reply::error(500, "InternalServerError"));
    // nor can it be shut out
    for _ in 0..9 {
        world.server.fail_commit(Work::NotDone, Reply::error(503, "ServiceUnavailableException"));
    }
    let ended = world.place.run(&["compact", NAME, "--json"]).await.expect(5);
    let told = &ended.lines()[0];
    assert_eq!((&told["result"], &told["snapshot_id"]), (&json!("unknown"), &json!(null)));
    world.server.heal();
    assert_eq!(world.server.arrive().await, [200]);
    let next = world.place.run(&["compact", NAME, "--json"]).await.expect(0);
    assert!(next.err.contains("recovered: 1 job of a dead process had landed"), "{}", next.err);
    assert_eq!(next.each("result"), ["left", "left"]);
    assert_eq!(world.table.rows().await, ["2|b|7", "3|c|7", "4|d|7", "5|e|8"]);
    world.place.assert_settled().await;
}
