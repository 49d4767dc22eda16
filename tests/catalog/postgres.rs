//! SQL catalogs in PostgreSQL, and the connection lost at each step.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use afterwrite::lake::Error;
use afterwrite::lake::iceberg::catalog::sql::{Options, SqlCatalog};
use afterwrite::lake::iceberg::catalog::{Answer, Catalog, Loaded};
use sqlx::{Connection, PgConnection};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::{Recorder, chance, metadata, name, promises, same_table, service, set, unique};

fn address() -> Option<String> {
    service("AFTERWRITE_TEST_POSTGRES", "postgres")
}

async fn open(uri: &str, catalog: &str) -> SqlCatalog {
    SqlCatalog::open(Options { name: catalog.into(), uri: uri.into(), ..Options::default() }, chance()).await.unwrap()
}

/// A catalog of its own with one table.
async fn with_table(uri: &str, folder: &Path) -> (SqlCatalog, Loaded) {
    let catalog = open(uri, &unique("pg")).await;
    let base = catalog.create(&name(catalog.name()), metadata(&format!("file:{}/t", folder.display()), &[])).await.unwrap();
    (catalog, base)
}

async fn commit(catalog: &SqlCatalog, base: &Loaded) -> Result<Answer, Error> {
    catalog.commit(base, same_table(base), set("k", "v"), &Recorder::default()).await
}

async fn pointer(uri: &str, base: &Loaded) -> String {
    open(uri, &base.name.catalog).await.load(&base.name).await.unwrap().unwrap().metadata_location
}

/// Runs `body` of a trigger function when a commit of this catalog is committed.
async fn at_commit(uri: &str, base: &Loaded, body: &str) {
    let catalog = &base.name.catalog;
    let sql = format!(
        "CREATE FUNCTION {catalog}_f() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {body}; RETURN NULL; END $$; \
         CREATE CONSTRAINT TRIGGER {catalog}_t AFTER UPDATE ON iceberg_tables DEFERRABLE INITIALLY DEFERRED \
         FOR EACH ROW WHEN (NEW.catalog_name = '{catalog}') EXECUTE FUNCTION {catalog}_f()"
    );
    sqlx::raw_sql(&sql).execute(&mut PgConnection::connect(uri).await.unwrap()).await.unwrap();
}

/// Ends the server process that runs a statement like this on this catalog's behalf.
async fn terminate(uri: &str, statement: &str) {
    let mut connection = PgConnection::connect(uri).await.unwrap();
    for _ in 0..200 {
        let sql = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
            WHERE application_name = 'afterwrite' AND state = 'active' AND query LIKE $1 AND wait_event IS NOT NULL";
        let ended: i64 = sqlx::query_scalar(sql).bind(statement).fetch_one(&mut connection).await.unwrap();
        if ended > 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("no statement like {statement} was seen");
}

/// A wire to the server that is cut as soon as `COMMIT` has gone through.
async fn cut_at_commit(uri: &str) -> String {
    let url: url::Url = uri.parse().unwrap();
    let server = format!("{}:{}", url.host_str().unwrap(), url.port().unwrap_or(5432));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut through = url.clone();
    through.set_port(Some(listener.local_addr().unwrap().port())).unwrap();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            tokio::spawn(forward(client, TcpStream::connect(server.clone()).await.unwrap()));
        }
    });
    through.to_string()
}

async fn forward(client: TcpStream, server: TcpStream) {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let back = tokio::spawn(async move { tokio::io::copy(&mut from_server, &mut to_client).await });
    let mut buffer = vec![0; 1 << 16];
    while let Ok(n) = from_client.read(&mut buffer).await {
        let asked = buffer[..n].windows(7).any(|w| w == b"COMMIT\0");
        if asked {
            back.abort();
        }
        if n == 0 || to_server.write_all(&buffer[..n]).await.is_err() {
            return;
        }
        if asked {
            tokio::time::sleep(Duration::from_millis(300)).await;
            return;
        }
    }
}

#[tokio::test]
async fn postgres_keeps_the_promises_of_a_catalog() {
    let (Some(uri), dir) = (address(), tempfile::tempdir().unwrap()) else { return };
    let catalog = unique("pg");
    let (one, two) = (open(&uri, &catalog).await, open(&uri, &catalog).await);
    promises::hold(Arc::new(one), Arc::new(two), &format!("file:{}/w", dir.path().display())).await;
    promises::hold_fences(&open(&uri, &catalog).await, &open(&uri, &catalog).await).await;
}

#[tokio::test]
async fn a_connection_lost_in_commit_is_unknown_though_it_was_applied() {
    let (Some(uri), dir) = (address(), tempfile::tempdir().unwrap()) else { return };
    let (direct, base) = with_table(&uri, dir.path()).await;
    let through = open(&cut_at_commit(&uri).await, direct.name()).await;
    let answer = commit(&through, &base).await.unwrap();
    assert!(matches!(answer, Answer::Unknown(_)), "{answer:?}");
    assert_ne!(pointer(&uri, &base).await, base.metadata_location, "the server committed");
}

#[tokio::test]
async fn a_server_process_ended_in_commit_is_unknown_though_it_was_not_applied() {
    let (Some(uri), dir) = (address(), tempfile::tempdir().unwrap()) else { return };
    let (catalog, base) = with_table(&uri, dir.path()).await;
    at_commit(&uri, &base, "PERFORM pg_sleep(10)").await;
    let (answer, ()) = tokio::join!(commit(&catalog, &base), terminate(&uri, "COMMIT%"));
    assert!(matches!(answer, Ok(Answer::Unknown(_))), "{answer:?}");
    assert_eq!(pointer(&uri, &base).await, base.metadata_location);
}

#[tokio::test]
async fn an_error_answer_to_commit_is_proof() {
    let (Some(uri), dir) = (address(), tempfile::tempdir().unwrap()) else { return };
    let (catalog, base) = with_table(&uri, dir.path()).await;
    at_commit(&uri, &base, "RAISE EXCEPTION 'not today'").await;
    let answer = commit(&catalog, &base).await;
    assert!(matches!(&answer, Ok(Answer::Rejected(why)) if why.contains("not today")), "{answer:?}");
    assert_eq!(pointer(&uri, &base).await, base.metadata_location);
}

#[tokio::test]
async fn a_connection_lost_in_update_is_proof_because_commit_was_never_sent() {
    let (Some(uri), dir) = (address(), tempfile::tempdir().unwrap()) else { return };
    let (catalog, base) = with_table(&uri, dir.path()).await;
    let mut holder = PgConnection::connect(&uri).await.unwrap();
    let mut lock = holder.begin().await.unwrap();
    sqlx::query("SELECT 1 FROM iceberg_tables WHERE catalog_name = $1 FOR UPDATE").bind(catalog.name()).execute(&mut *lock).await.unwrap();
    let (answer, ()) = tokio::join!(commit(&catalog, &base), terminate(&uri, "UPDATE iceberg_tables%"));
    lock.rollback().await.unwrap();
    assert!(matches!(answer, Err(Error::Unreachable { .. })), "{answer:?}");
    assert_eq!(pointer(&uri, &base).await, base.metadata_location);
    assert!(matches!(commit(&catalog, &base).await, Ok(Answer::Landed(_))), "the catalog is usable again");
}

#[tokio::test]
async fn a_server_that_is_not_there_is_unreachable_and_nothing_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let catalog = open("postgres://nobody@127.0.0.1:9/none", "gone").await;
    let memory = afterwrite::lake::iceberg::catalog::memory::MemoryCatalog::new("gone", catalog.io().clone());
    let base = memory.create(&name("gone"), metadata(&format!("file:{}/t", dir.path().display()), &[])).await.unwrap();
    let recorder = Recorder::default();
    let answer = catalog.commit(&base, same_table(&base), set("k", "v"), &recorder).await;
    assert!(matches!(answer, Err(Error::Unreachable { .. })), "{answer:?}");
    assert_eq!(recorder.told(), Vec::<String>::new());
}
