//! The demo at a small scale, and its writer.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use afterwrite::act::{Journal, Query, SqliteJournal};
use afterwrite::demo::{Options, SIDES, TABLES, WITH, play};
use afterwrite::lake::clock::SystemChance;
use afterwrite::lake::iceberg::append::{self, Stamp};
use afterwrite::lake::iceberg::catalog::Catalog;
use afterwrite::lake::iceberg::catalog::sql::{self, SqlCatalog};
use afterwrite::model::ident::TableName;
use afterwrite::model::outcome::{Conflict, Outcome};
use afterwrite::model::plan::AttemptId;
use iceberg::spec::{Operation, TableMetadata};

use crate::fixture::{Table, Watch, row};

const FIGURES: [&str; 10] =
    ["files", "bytes", "rows", "row_hash", "entropy", "plan_ms", "scan_ms", "commits", "conflicts", "rewritten_bytes"];

#[tokio::test(flavor = "multi_thread")]
async fn both_sides_hold_the_same_rows_and_one_of_them_fewer_files() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("demo");
    let report = play(&Options { dir: Some(dir.clone()), scale: 0.002, commits: 24 }).await.unwrap();

    assert_eq!(report.unequal(), None);
    let json: serde_json::Value = serde_json::from_str(&report.json().unwrap()).unwrap();
    assert_eq!(json.as_object().unwrap().keys().collect::<Vec<_>>(), ["catalog", "dir", "open", "tables", "warehouse"]);
    let at = dir.canonicalize().unwrap();
    assert_eq!(json["dir"], at.to_str().unwrap());
    assert_eq!(json["catalog"], format!("sqlite://{}/catalog.db", at.display()));
    assert_eq!(json["warehouse"], format!("file://{}/warehouse", at.display()));
    // the lines name what was written, and people are told the same
    let recipes = report.recipes();
    assert_eq!(json["open"]["spark"], recipes.spark);
    let metadata = recipes.duckdb.split('\'').nth(1).unwrap().strip_prefix("file://").unwrap().to_owned();
    assert!(std::path::Path::new(&metadata).is_file(), "{metadata}");
    let text = report.text();
    assert!(text.contains(&format!("The warehouse stays in {}. Open it with", at.display())) && text.ends_with(&recipes.text()), "{text}");
    let tables = json["tables"].as_array().unwrap();
    assert_eq!(tables.iter().map(|t| t["name"].as_str().unwrap()).collect::<Vec<_>>(), ["orders", "lineitem"]);
    for table in tables {
        for side in ["with", "without"] {
            let figures: BTreeSet<&str> = table[side].as_object().unwrap().keys().map(String::as_str).collect();
            assert_eq!(figures, BTreeSet::from(FIGURES));
        }
        let (with, without) = (&table["with"], &table["without"]);
        assert_eq!((&with["rows"], &with["row_hash"]), (&without["rows"], &without["row_hash"]));
        assert!(with["files"].as_u64() < without["files"].as_u64(), "{table}");
        assert_eq!((&without["commits"], &without["rewritten_bytes"]), (&26.into(), &0.into()), "24 appends and 2 deletes");
        assert!(with["rewritten_bytes"].as_u64() > Some(0), "{table}");
    }
    // of the 1250 orders of the first and of the second ten commits one in 97 is deleted
    assert_eq!(tables[0]["with"]["rows"], 3000 - 13 - 13);

    let landed = rows_deleted_by_rewrites(&dir.join("journal.db")).await;
    let catalog = open(&dir).await;
    for table in TABLES {
        for side in SIDES {
            let metadata = catalog.load(&TableName::new("demo", side, table.name)).await.unwrap().unwrap().metadata;
            let replaces = check_totals(&metadata, &landed);
            assert_eq!(replaces > 0, side == WITH, "{side} {}", table.name);
        }
    }
}

/// Every rewrite leaves the records of its parent, less those whose deletes it
/// applied. Returns the rewrites.
fn check_totals(metadata: &TableMetadata, landed: &HashMap<i64, u64>) -> usize {
    let total = |id: i64| metadata.snapshot_by_id(id).unwrap().summary().additional_properties["total-records"].parse::<u64>().unwrap();
    let replaces = metadata.snapshots().filter(|s| s.summary().operation == Operation::Replace);
    let check = |s: &iceberg::spec::SnapshotRef| {
        let deleted = landed[&s.snapshot_id()];
        assert_eq!(total(s.snapshot_id()), total(s.parent_snapshot_id().unwrap()) - deleted);
    };
    replaces.inspect(|s| check(s)).count()
}

async fn rows_deleted_by_rewrites(journal: &std::path::Path) -> HashMap<i64, u64> {
    let journal = SqliteJournal::open(journal).await.unwrap();
    let jobs = journal.jobs(Query::Latest(u32::MAX)).await.unwrap();
    let mut deleted = HashMap::new();
    // rewrites that fall together share a snapshot
    for numbers in jobs.iter().map(|job| &job.numbers) {
        if let Some(snapshot_id) = numbers.snapshot_id {
            *deleted.entry(snapshot_id).or_insert(0) += numbers.rows_deleted;
        }
    }
    deleted
}

async fn open(dir: &std::path::Path) -> SqlCatalog {
    let uri = format!("sqlite://{}/catalog.db", dir.canonicalize().unwrap().display());
    let options = sql::Options { name: "demo".into(), uri, warehouse: None, properties: BTreeMap::new(), create_if_missing: false };
    SqlCatalog::open(options, Arc::new(SystemChance)).await.unwrap()
}

#[tokio::test]
async fn a_folder_that_holds_anything_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("mine"), "x").unwrap();
    let error = play(&Options { dir: Some(folder.path().to_owned()), scale: 0.002, commits: 1 }).await.err().unwrap();
    assert_eq!(error.to_string(), format!("the folder {} is not empty: name another one with --dir", folder.path().display()));
}

async fn delete(table: &Table, keys: &[i64], attempt: &str) -> append::Staged {
    let keys = keys.iter().copied().collect();
    append::stage_delete(&table.load().await, "id", &keys, &AttemptId(attempt.into()), &Watch::default()).await.unwrap()
}

async fn commit(table: &Table, staged: &append::Staged, nonce: u64) -> Outcome {
    append::commit(&table.load().await, staged, Stamp { now_ms: 0, nonce }, &Watch::default()).await.unwrap()
}

#[tokio::test]
async fn the_rows_of_a_key_are_deleted_in_every_partition_and_no_others() {
    let t = Table::partitioned_by_p().create().await;
    t.append([row(1, "a", 7), row(2, "b", 7), row(1, "c", 7)]).await;
    t.append([row(3, "d", 7)]).await;
    t.append([row(2, "e", 8), row(1, "f", 8)]).await;
    let staged = delete(&t, &[1, 4], "d1").await;
    assert_eq!((staged.data_files(), staged.delete_files()), (0, 2), "one file a partition");
    assert_eq!(commit(&t, &staged, 84).await, Outcome::Landed { snapshot_id: 42 });
    assert_eq!(t.rows().await, ["2|b|7", "2|e|8", "3|d|7"]);
    let metadata = t.load().await.loaded.metadata;
    let summary = metadata.snapshot_by_id(42).unwrap().summary().clone();
    assert_eq!(summary.operation, Operation::Delete);
    assert_eq!(summary.additional_properties["added-position-deletes"], "3");
}

#[tokio::test]
async fn a_delete_is_found_anew_when_a_rewrite_has_moved_its_rows() {
    let t = Table::plain().create().await;
    let first = t.append([row(1, "a", 0), row(2, "b", 0)]).await;
    t.append([row(3, "c", 0)]).await;
    let staged = delete(&t, &[2], "d1").await;
    let plan = t.plan_all(&first).await;
    let written = t.naive_rewrite(&plan).await;
    assert!(matches!(t.commit(&plan, &written, "a1").await, Outcome::Landed { .. }));

    let lost = Outcome::Conflict(Conflict::InputGone { files: vec![first.path.clone()] });
    assert_eq!(commit(&t, &staged, 84).await, lost);
    assert_eq!(t.rows().await, ["1|a", "2|b", "3|c"]);

    let staged = delete(&t, &[2], "d2").await;
    assert_eq!(commit(&t, &staged, 86).await, Outcome::Landed { snapshot_id: 43 });
    assert_eq!(t.rows().await, ["1|a", "3|c"]);
}
