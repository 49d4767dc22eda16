//! Recordings of real clients: what each request means is decoded exactly.
//!
//! `meaning.txt` was made from the same recordings by another program.

use std::path::PathBuf;

use afterwrite::observe::proxy::commit::{self, Change};
use afterwrite::observe::proxy::events::{self, Report};
use afterwrite::observe::proxy::route::{Route, TablePath, classify};
use afterwrite::observe::proxy::{Separator, ledger::Scan};
use serde::Deserialize;

const CLIENTS: [&str; 8] = ["duckdb", "pyiceberg", "spark", "trino", "java", "duckdb-older", "pyiceberg-older", "planning"];

#[derive(Deserialize)]
struct Recorded {
    method: String,
    path: String,
    body: String,
}

fn folder() -> PathBuf {
    crate::fixture::root().join("tests/proxy/recordings")
}

fn table(at: TablePath<'_>) -> String {
    Separator::default().tables("lake", at.namespace, at.table)[0].to_string()
}

fn shown<T>(items: &[T], show: impl Fn(&T) -> String, by: &str) -> String {
    items.iter().map(show).collect::<Vec<_>>().join(by)
}

fn id(id: Option<i64>) -> String {
    id.map_or("None".into(), |id| id.to_string())
}

fn change(name: &str, change: &Change) -> String {
    let asserts = shown(&change.asserted, |(name, at)| format!("{name}={}", id(*at)), ",");
    let moves = shown(&change.moves, |(name, to)| format!("{name}={}", id(*to)), ",");
    let adds = shown(
        &change.adds,
        |a| {
            let touched = shown(&a.touched, |t| format!("{}+{}-{}", t.path, t.files_added, t.files_removed), ";");
            format!("{}<{} files={} [{touched}]", a.id, id(a.parent), a.files)
        },
        ",",
    );
    let uuid = change.uuid.map_or("None".into(), |u| u.to_string());
    format!("{name} uuid={uuid} creates={} asserts={asserts} adds={adds} moves={moves}", change.creates)
}

fn named(identifier: &(Vec<String>, String)) -> String {
    events::named("lake", identifier).unwrap().to_string()
}

fn meaning(recorded: &Recorded) -> String {
    let path = recorded.path.split('?').next().unwrap();
    let body = recorded.body.as_bytes();
    match classify(&recorded.method, path) {
        Route::Commit(at) => format!("commit {}", change(&table(at), &commit::parse(body).unwrap())),
        Route::Transaction { .. } => {
            let changes = commit::parse_transaction(body).unwrap();
            format!("transaction {}", shown(&changes, |c| change(&named(c.identifier.as_ref().unwrap()), c), " & "))
        }
        Route::Load(at) => format!("load {}", table(at)),
        Route::Drop(at) => format!("drop {}", table(at)),
        Route::Plan(at) => format!("plan {}", table(at)),
        Route::Report(at) => match events::report(body).unwrap() {
            Report::Scan(Scan { files, bytes }) => format!("scan {} files={files} bytes={bytes}", table(at)),
            Report::Commit { snapshot, files } => format!("report {} snapshot={} files={files}", table(at), id(snapshot)),
        },
        Route::Create { namespace } => {
            let create: events::Create = serde_json::from_slice(body).unwrap();
            let name = &Separator::default().tables_below("lake", namespace, &create.name)[0];
            format!("create {name} staged={}", create.stage_create)
        }
        Route::Rename => {
            let rename: events::Rename = serde_json::from_slice(body).unwrap();
            format!("rename {} {}", rename.source.named("lake").unwrap(), rename.destination.named("lake").unwrap())
        }
        route @ (Route::Config | Route::Token | Route::Register { .. } | Route::Other) => route.name().to_owned(),
    }
}

#[test]
fn every_recorded_request_is_decoded_exactly() {
    let expected = std::fs::read_to_string(folder().join("meaning.txt")).unwrap();
    let mut expected = expected.lines();
    let mut requests = 0;
    for client in CLIENTS {
        let recording = std::fs::read_to_string(folder().join(format!("{client}.jsonl"))).unwrap();
        for line in recording.lines() {
            let recorded: Recorded = serde_json::from_str(line).unwrap();
            let meaning = format!("{client} {}", meaning(&recorded));
            assert_eq!(Some(meaning.as_str()), expected.next(), "{} {}", recorded.method, recorded.path);
            requests += 1;
        }
    }
    assert_eq!((expected.next(), requests > 400), (None, true), "{requests}");
}
