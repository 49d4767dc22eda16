//! The client against Iceberg's own handlers.

use std::path::Path;
use std::sync::Arc;

use afterwrite::lake::asserted::{Asserted, AssertedHead};
use afterwrite::lake::iceberg::catalog::Catalog;
use afterwrite::lake::iceberg::catalog::rest::{Options, RestCatalog};
use afterwrite::lake::iceberg::table::IcebergTable;
use afterwrite::model::outcome::Outcome;

use crate::catalog::{chance, metadata, name, promises, service};
use crate::fixture::{Table, Watch, row};

fn address() -> Option<String> {
    service("AFTERWRITE_TEST_REST", "rest")
}

fn client(uri: &str, folder: &Path) -> Arc<RestCatalog> {
    let warehouse = Some(format!("{}/catalog.db", folder.display()));
    let options = Options { name: "lake".into(), uri: uri.into(), warehouse, ..Options::default() };
    Arc::new(RestCatalog::open(options, Arc::new(afterwrite::lake::clock::SystemClock), chance()).unwrap())
}

#[tokio::test]
async fn rest_keeps_the_promises_of_a_catalog() {
    let (Some(uri), dir) = (address(), tempfile::tempdir().unwrap()) else { return };
    promises::hold_by_requirements(client(&uri, dir.path()), client(&uri, dir.path()), &format!("file:{}/w", dir.path().display())).await;
}

#[tokio::test]
async fn a_created_table_is_what_was_asked_for_with_ids_and_uuid() {
    let (Some(uri), dir) = (address(), tempfile::tempdir().unwrap()) else { return };
    let rest = client(&uri, dir.path());
    let wanted = metadata(&format!("file://{}/t", dir.path().display()), &[("k", "v")]);
    let made = rest.create(&name("lake"), wanted.clone()).await.unwrap().metadata;
    assert_eq!((made.uuid(), made.location(), made.properties()), (wanted.uuid(), wanted.location(), wanted.properties()));
    assert_eq!((made.current_schema(), made.default_partition_spec()), (wanted.current_schema(), wanted.default_partition_spec()));
    assert_eq!((made.format_version(), made.last_column_id()), (wanted.format_version(), wanted.last_column_id()));
}

#[tokio::test]
async fn h101_the_reference_server_decodes_what_we_write() {
    let (Some(uri), dir) = (address(), tempfile::tempdir().unwrap()) else { return };
    let rest = client(&uri, dir.path());
    let mut made = vec![];
    for (n, table) in ["x y", "x+y", "100%", "ü", "a.b", "q?r#s", "a&b=c"].into_iter().enumerate() {
        let mut name = name("lake");
        name.namespace = vec!["db".into(), "in ner".into()];
        name.table = table.into();
        made.push(rest.create(&name, metadata(&format!("file://{}/t{n}", dir.path().display()), &[])).await.unwrap());
    }
    let mut names: Vec<_> = made.iter().map(|m| m.name.clone()).collect();
    names.sort();
    let listed: Vec<_> = rest.list().await.unwrap().into_iter().map(|p| p.name).collect();
    assert_eq!(listed, names);
}

#[tokio::test]
async fn a_rewrite_lands_and_an_undo_takes_it_back() {
    for format in [1, 2] {
        let (Some(uri), dir) = (address(), tempfile::tempdir().unwrap()) else { return };
        let spec = if format == 1 { Table::partitioned_by_p().v1() } else { Table::partitioned_by_p() };
        let t = spec.in_sqlite(dir.path()).create().await;
        let first = t.append([row(1, "a", 7)]).await;
        t.append([row(2, "b", 7)]).await;
        let rest = client(&uri, dir.path());
        let plan = t.plan_all(&first).await;
        let written = t.naive_rewrite(&plan).await;
        let load = async || IcebergTable::new(rest.load(&t.name).await.unwrap().unwrap(), "main", rest.clone() as Arc<dyn Catalog>);
        let base = load().await;
        let outcome = t.commit_on(&base, &plan, &written, "a1", &Watch::default()).await.unwrap();
        let head = t.head().await;
        assert_eq!(outcome, Outcome::Landed { snapshot_id: head }, "format {format}");
        assert_eq!((t.load().await.view.snapshots[&head].parent, t.rows().await), (base.view.head, vec!["1|a|7".into(), "2|b|7".into()]));

        let attempt = afterwrite::model::plan::AttemptId("a2".into());
        let watch = Watch::default();
        let commit = afterwrite::lake::Commit { attempt: &attempt, instance: "i", control: &watch, now_ms: 0, nonce: 1 };
        let undone = afterwrite::lake::iceberg::commit::undo(&load().await, head, &commit).await.unwrap();
        assert_eq!(undone, Outcome::Landed { snapshot_id: base.view.head.unwrap() });
        assert_eq!((Some(t.head().await), t.rows().await), (base.view.head, vec!["1|a|7".into(), "2|b|7".into()]));
    }
}

#[tokio::test]
async fn an_undo_that_races_a_writer_takes_nothing_back() {
    let (Some(uri), dir) = (address(), tempfile::tempdir().unwrap()) else { return };
    let t = Table::plain().in_sqlite(dir.path()).create().await;
    let first = t.append([row(1, "a", 0)]).await;
    t.append([row(2, "b", 0)]).await;
    let rest = client(&uri, dir.path());
    let load = async || IcebergTable::new(rest.load(&t.name).await.unwrap().unwrap(), "main", rest.clone() as Arc<dyn Catalog>);
    let plan = t.plan_all(&first).await;
    let written = t.naive_rewrite(&plan).await;
    let outcome = t.commit_on(&load().await, &plan, &written, "a1", &Watch::default()).await.unwrap();
    let ours = t.head().await;
    assert_eq!(outcome, Outcome::Landed { snapshot_id: ours });
    // what the undo has loaded, and then a writer's commit
    let before = load().await;
    t.append([row(3, "c", 0)]).await;
    let theirs = t.head().await;
    let (attempt, watch) = (afterwrite::model::plan::AttemptId("a2".into()), Watch::default());
    let commit = afterwrite::lake::Commit { attempt: &attempt, instance: "i", control: &watch, now_ms: 0, nonce: 1 };
    let undone = afterwrite::lake::iceberg::commit::undo(&before, ours, &commit).await.unwrap();
    assert_eq!(undone, Outcome::Conflict(afterwrite::model::outcome::Conflict::MetadataMoved));
    assert_eq!(watch.asserted.lock().unwrap().len(), 1, "the catalog itself refused it");
    assert_eq!((t.head().await, t.rows().await), (theirs, vec!["1|a".into(), "2|b".into(), "3|c".into()]));
}

#[tokio::test]
async fn h03_the_reference_server_lets_a_sequence_number_be_taken_and_refuses_it_afterwards() {
    let (Some(uri), dir) = (address(), tempfile::tempdir().unwrap()) else { return };
    let t = Table::plain().in_sqlite(dir.path()).create().await;
    t.append([row(1, "a", 0)]).await;
    let rest = client(&uri, dir.path());
    let before = t.load().await.view;
    let head = AssertedHead { reference: "main".into(), snapshot_id: before.head, sequence_number: Some(before.last_sequence_number) };
    let asserted = Asserted { metadata_location: before.metadata_location, head: Some(head) };
    assert!(rest.fence(&t.name, &asserted.to_string()).await.unwrap());
    let after = t.load().await.view;
    assert_eq!((after.head, &after.snapshots), (before.head, &before.snapshots));
    assert_eq!(after.last_sequence_number, before.last_sequence_number + 1);
    t.append([row(2, "b", 0)]).await;
    assert!(!rest.fence(&t.name, &asserted.to_string()).await.unwrap(), "the branch has moved");
    assert_eq!(t.rows().await, ["1|a", "2|b"]);
}
