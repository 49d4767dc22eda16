//! SQL catalogs in a SQLite file.

use std::path::Path;
use std::sync::Arc;

use afterwrite::lake::iceberg::catalog::sql::{Options, SqlCatalog};
use afterwrite::lake::iceberg::catalog::{Answer, Catalog};
use afterwrite::lake::{Error, Glanced};
use sqlx::{Connection, SqliteConnection};

use super::{Recorder, chance, metadata, name, promises, same_table, set};

async fn open(folder: &Path, create: bool) -> Result<SqlCatalog, Error> {
    let uri = format!("sqlite://{}/deep/catalog.db", folder.display());
    SqlCatalog::open(Options { name: "lake".into(), uri, create_if_missing: create, ..Options::default() }, chance()).await
}

async fn sql(folder: &Path, statement: &str) {
    let mut connection = SqliteConnection::connect(&format!("sqlite://{}/deep/catalog.db", folder.display())).await.unwrap();
    sqlx::raw_sql(statement).execute(&mut connection).await.unwrap();
}

#[tokio::test]
async fn sqlite_keeps_the_promises_of_a_catalog() {
    let dir = tempfile::tempdir().unwrap();
    let (one, two) = (open(dir.path(), true).await.unwrap(), open(dir.path(), true).await.unwrap());
    promises::hold(Arc::new(one), Arc::new(two), &format!("file:{}/w", dir.path().display())).await;
    let (one, two) = (open(dir.path(), true).await.unwrap(), open(dir.path(), true).await.unwrap());
    promises::hold_fences(&one, &two).await;
}

#[tokio::test]
async fn a_missing_database_is_named_and_not_made_unasked() {
    let dir = tempfile::tempdir().unwrap();
    let error = open(dir.path(), false).await.err().unwrap();
    assert!(matches!(&error, Error::Setup(why) if why.contains("catalog `lake`") && why.contains("/deep/catalog.db")), "{error}");
    assert!(!dir.path().join("deep").exists());
}

#[tokio::test]
async fn racing_creators_all_find_the_tables_made() {
    let dir = tempfile::tempdir().unwrap();
    open(dir.path(), true).await.unwrap();
    let openers: Vec<_> = (0..8)
        .map(|_| {
            let folder = dir.path().to_owned();
            tokio::spawn(async move { open(&folder, true).await.unwrap().list().await.unwrap() })
        })
        .collect();
    for opener in openers {
        assert_eq!(opener.await.unwrap(), []);
    }
}

#[tokio::test]
async fn engines_see_the_namespace_and_the_type() {
    let dir = tempfile::tempdir().unwrap();
    let catalog = open(dir.path(), true).await.unwrap();
    let created = catalog.create(&name("lake"), metadata(&format!("file:{}/t", dir.path().display()), &[])).await.unwrap();
    let mut connection = SqliteConnection::connect(&format!("sqlite://{}/deep/catalog.db", dir.path().display())).await.unwrap();
    let namespace: (String, String, String, String) =
        sqlx::query_as("SELECT * FROM iceberg_namespace_properties").fetch_one(&mut connection).await.unwrap();
    assert_eq!(namespace, ("lake".into(), "db.inner".into(), "exists".into(), "true".into()));
    let row: (String, String, String, String, Option<String>, String) =
        sqlx::query_as("SELECT * FROM iceberg_tables").fetch_one(&mut connection).await.unwrap();
    assert_eq!(row, ("lake".into(), "db.inner".into(), "t".into(), created.metadata_location.clone(), None, "TABLE".into()));

    let answer = catalog.commit(&created, same_table(&created), set("k", "v"), &Recorder::default()).await.unwrap();
    let previous: (String, String) = sqlx::query_as("SELECT metadata_location, previous_metadata_location FROM iceberg_tables")
        .fetch_one(&mut connection)
        .await
        .unwrap();
    assert_eq!((Answer::Landed(previous.0), previous.1), (answer, created.metadata_location));
}

#[tokio::test]
async fn views_and_other_catalogs_are_passed_over_and_an_untyped_row_is_a_table() {
    let dir = tempfile::tempdir().unwrap();
    let catalog = open(dir.path(), true).await.unwrap();
    let created = catalog.create(&name("lake"), metadata(&format!("file:{}/t", dir.path().display()), &[])).await.unwrap();
    let rows = "UPDATE iceberg_tables SET iceberg_type = NULL; \
        INSERT INTO iceberg_tables VALUES ('lake', 'db', 'v', 'file:/v', NULL, 'VIEW'), ('other', 'db', 'o', 'file:/o', NULL, 'TABLE'), \
        ('lake', 'db', 'unborn', NULL, NULL, 'TABLE');";
    sql(dir.path(), rows).await;
    let names: Vec<_> = catalog.list().await.unwrap().into_iter().map(|p| p.name.to_string()).collect();
    assert_eq!(names, ["lake.db.inner.t"]);
    let view = afterwrite::model::ident::TableName::new("lake", "db", "v");
    assert!(catalog.load(&view).await.unwrap().is_none());
    let answer = catalog.commit(&created, same_table(&created), set("k", "v"), &Recorder::default()).await.unwrap();
    assert!(matches!(answer, Answer::Landed(_)), "{answer:?}");
}

#[tokio::test]
async fn a_catalog_from_before_views_works_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    open(dir.path(), true).await.unwrap().list().await.unwrap();
    sql(dir.path(), "ALTER TABLE iceberg_tables DROP COLUMN iceberg_type").await;
    let (one, two) = (open(dir.path(), false).await.unwrap(), open(dir.path(), false).await.unwrap());
    promises::hold(Arc::new(one), Arc::new(two), &format!("file:{}/w", dir.path().display())).await;
}

#[tokio::test]
async fn a_refused_update_is_rejected_and_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let catalog = open(dir.path(), true).await.unwrap();
    let base = catalog.create(&name("lake"), metadata(&format!("file:{}/t", dir.path().display()), &[])).await.unwrap();
    sql(dir.path(), "CREATE TRIGGER no BEFORE UPDATE ON iceberg_tables BEGIN SELECT RAISE(ABORT, 'not today'); END").await;
    let answer = catalog.commit(&base, same_table(&base), set("k", "v"), &Recorder::default()).await.unwrap();
    assert!(matches!(&answer, Answer::Rejected(why) if why.contains("not today")), "{answer:?}");
    assert_eq!(catalog.load(&base.name).await.unwrap().unwrap().metadata_location, base.metadata_location);
}

#[tokio::test]
async fn a_dropped_table_is_not_brought_back() {
    let dir = tempfile::tempdir().unwrap();
    let catalog = open(dir.path(), true).await.unwrap();
    let base = catalog.create(&name("lake"), metadata(&format!("file:{}/t", dir.path().display()), &[])).await.unwrap();
    sql(dir.path(), "DELETE FROM iceberg_tables").await;
    assert_eq!(catalog.commit(&base, same_table(&base), set("k", "v"), &Recorder::default()).await.unwrap(), Answer::Moved);
    assert!(catalog.load(&base.name).await.unwrap().is_none());
}

#[tokio::test]
async fn a_look_at_a_table_that_stands_still_reads_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let catalog = open(dir.path(), true).await.unwrap();
    let created = catalog.create(&name("lake"), metadata(&format!("file:{}/t", dir.path().display()), &[])).await.unwrap();
    let at = created.metadata_location.as_str();
    assert!(matches!(catalog.glance_since(&created.name, "main", None).await.unwrap(), Glanced::At(_)));
    assert!(matches!(catalog.glance_since(&created.name, "main", Some("elsewhere")).await.unwrap(), Glanced::At(_)));
    std::fs::remove_file(at.trim_start_matches("file:")).unwrap();
    assert!(matches!(catalog.glance_since(&created.name, "main", Some(at)).await.unwrap(), Glanced::Same));
    assert!(catalog.glance_since(&created.name, "main", None).await.is_err());
}
