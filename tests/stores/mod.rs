//! Stores that are reached through the client library alone: each is played by a server
//! that knows the calls of its protocol, and keeps the objects in memory.

mod azure;
mod gcs;

use std::collections::{BTreeSet, HashMap};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use afterwrite::lake::clock::SystemChance;
use afterwrite::lake::iceberg::catalog::Catalog;
use afterwrite::lake::iceberg::catalog::memory::MemoryCatalog;
use afterwrite::lake::iceberg::catalog::sql::{self, SqlCatalog};
use afterwrite::model::ident::TableName;
use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::http::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use iceberg::io::FileIO;
use serde_json::json;
use sqlx::{Connection, Row, SqliteConnection};
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;

use crate::fixture::process::{Ended, bare, finish, over_rest};
use crate::fixture::rest::RestServer;
use crate::fixture::{Table, row};

/// What a store is asked.
pub struct Asked {
    method: Method,
    uri: Uri,
    query: HashMap<String, String>,
    headers: HeaderMap,
    body: Bytes,
}

impl Asked {
    async fn read(request: Request<Body>) -> Self {
        let (parts, body) = request.into_parts();
        let query = url::form_urlencoded::parse(parts.uri.query().unwrap_or_default().as_bytes()).into_owned().collect();
        Self { method: parts.method, uri: parts.uri, query, headers: parts.headers, body: to_bytes(body, usize::MAX).await.unwrap() }
    }

    fn query(&self, key: &str) -> Option<&str> {
        self.query.get(key).map(String::as_str)
    }

    /// The bytes of an object that are asked for.
    fn part(&self, object: &Bytes) -> Response<Body> {
        let Some(range) = self.headers.get("range") else { return said(StatusCode::OK, object.clone()) };
        let (from, to) = range.to_str().unwrap().strip_prefix("bytes=").unwrap().split_once('-').unwrap();
        let end = if to.is_empty() { object.len() } else { (to.parse::<usize>().unwrap() + 1).min(object.len()) };
        said(StatusCode::PARTIAL_CONTENT, object.slice(from.parse::<usize>().unwrap().min(end)..end))
    }
}

/// The objects by the paths that tables know them by, those that were written through a
/// server and are there still, and uploads under way.
pub struct Objects {
    io: FileIO,
    written: Mutex<BTreeSet<String>>,
    uploads: Mutex<HashMap<String, Vec<u8>>>,
}

impl Objects {
    async fn get(&self, path: &str) -> Option<Bytes> {
        self.io.new_input(path).unwrap().read().await.ok()
    }

    async fn put(&self, path: &str, bytes: impl Into<Bytes>) {
        self.written.lock().unwrap().insert(path.to_owned());
        self.io.new_output(path).unwrap().write(bytes.into()).await.unwrap();
    }

    /// Whether it was there.
    async fn delete(&self, path: &str) -> bool {
        self.written.lock().unwrap().remove(path);
        let there = self.get(path).await.is_some();
        self.io.delete(path).await.unwrap();
        there
    }
}

fn said(status: StatusCode, body: impl Into<Body>) -> Response<Body> {
    Response::builder().status(status).body(body.into()).unwrap()
}

/// Percent-decoding of a path, once.
fn decoded(path: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = path.as_bytes();
    while let [first, after @ ..] = rest {
        let escaped = (*first == b'%').then(|| u8::from_str_radix(std::str::from_utf8(&after[..2]).unwrap(), 16).unwrap());
        bytes.push(escaped.unwrap_or(*first));
        rest = if escaped.is_some() { &after[2..] } else { after };
    }
    String::from_utf8(bytes).unwrap()
}

/// Answers on a free port until it is dropped.
struct Server {
    at: SocketAddr,
    _task: AbortOnDropHandle<()>,
}

impl Server {
    async fn start<F>(objects: &Arc<Objects>, answer: impl Fn(Arc<Objects>, Asked) -> F + Clone + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Response<Body>> + Send + 'static,
    {
        let objects = Arc::clone(objects);
        let router = Router::new().fallback(move |request: Request<Body>| {
            let (objects, answer) = (Arc::clone(&objects), answer.clone());
            async move { answer(objects, Asked::read(request).await).await }
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        Self { at, _task: AbortOnDropHandle::new(tokio::spawn(async move { axum::serve(listener, router).await.unwrap() })) }
    }
}

/// A table of two partitions whose files lie in a store: one of small files with deletes,
/// one whose output is too large for a single request.
struct World {
    dir: tempfile::TempDir,
    memory: MemoryCatalog,
    objects: Arc<Objects>,
    table: Table,
    rows: Vec<String>,
    /// The REST catalog over the one in memory, when the binary is to go over one.
    rest: Option<RestServer>,
}

impl World {
    async fn at(location: &str) -> Self {
        let io = FileIO::new_with_memory();
        let (memory, name) = (MemoryCatalog::new("lake", io.clone()), TableName::new("lake", "ns", "t"));
        let port: Arc<dyn Catalog> = Arc::new(memory.clone());
        let table = Table::partitioned_by_p().create_with(Arc::clone(&port), name.clone(), format!("{location}/ns/t"), io.clone()).await;
        let mut small = Vec::new();
        for id in 0..4 {
            small.push(table.append([row(2 * id, "a", 1), row(2 * id + 1, "b", 1)]).await);
        }
        table.change().delete_positions(&[(&small[0], 1)]).commit().await;
        table.change().delete_equal(&["id"], [row(4, "", 1)]).commit().await;
        for half in 0..2 {
            table.append((0..80).map(|id| row(100 * (half + 1) + id, &noise(100 * half + id), 2))).await;
        }
        let dir = tempfile::tempdir().unwrap();
        let objects = Arc::new(Objects { io, written: Mutex::default(), uploads: Mutex::default() });
        let rest = if over_rest().is_some() { Some(RestServer::start(port).await) } else { None };
        let world = Self { rows: table.rows().await, dir, memory, objects, table, rest };
        if world.rest.is_none() {
            world.enter(&name).await;
        }
        world
    }

    fn uri(&self) -> String {
        format!("sqlite://{}/catalog.db", self.dir.path().display())
    }

    /// Enters the table as it stands into a catalog that the binary opens.
    async fn enter(&self, name: &TableName) {
        let options = sql::Options { name: "lake".into(), uri: self.uri(), create_if_missing: true, ..sql::Options::default() };
        // its tables are made when it is asked first
        assert_eq!(SqlCatalog::open(options, Arc::new(SystemChance)).await.unwrap().list().await.unwrap(), []);
        let at = self.table.load().await.loaded.metadata_location;
        let mut database = SqliteConnection::connect(&self.uri()).await.unwrap();
        let row = "INSERT INTO iceberg_tables (catalog_name, table_namespace, table_name, metadata_location, iceberg_type) VALUES (?1, ?2, ?3, ?4, 'TABLE')";
        sqlx::query(row).bind("lake").bind("ns").bind(&name.table).bind(at).execute(&mut database).await.unwrap();
        database.close().await.unwrap();
    }

    async fn run(&self, warehouse: &str, properties: &str, environment: &[(&str, &str)], arguments: &[&str]) -> Ended {
        let at = self.dir.path();
        let catalog = match &self.rest {
            Some(server) => format!("type = \"rest\"\nuri = \"{}\"", server.url),
            None => format!("type = \"sql\"\nuri = \"{}\"\nwarehouse = \"{warehouse}\"", self.uri()),
        };
        let text = format!(
            "[catalog.lake]\n{catalog}\n{properties}\n[journal]\npath = \"{}/journal.db\"\n[budget]\nconcurrent_jobs = 1\n",
            at.display()
        );
        std::fs::write(at.join("afterwrite.toml"), text).unwrap();
        let mut command = bare(at);
        command.args(["--config", "afterwrite.toml"]).args(arguments).envs(environment.iter().copied());
        finish(command).await
    }

    /// What the binary committed: the rows are the same, and each partition is one file.
    async fn assert_compacted(&self) {
        if self.rest.is_none() {
            let mut database = SqliteConnection::connect(&self.uri()).await.unwrap();
            let found = sqlx::query("SELECT metadata_location FROM iceberg_tables").fetch_one(&mut database).await.unwrap();
            self.memory.register(&self.table.name, found.get("metadata_location"));
        }
        assert_eq!(self.table.rows().await, self.rows);
        let live = crate::fixture::oracle::live(&self.table.load().await).await;
        let mut sizes: Vec<u64> = live.iter().map(|l| l.file.file_size_in_bytes()).collect();
        sizes.sort_unstable();
        assert!(sizes.len() == 2 && sizes[1] > 6 << 20, "{sizes:?}");
        assert!(live.iter().all(|l| l.file.file_path().contains("/data/p=")), "paths name their partition");
        let paths: BTreeSet<&str> = live.iter().map(|l| l.file.file_path()).collect();
        let written = self.objects.written.lock().unwrap().clone();
        let left: Vec<_> = written.iter().filter(|path| path.ends_with(".parquet") && !paths.contains(path.as_str())).collect();
        assert!(left.is_empty(), "files of nobody: {left:?}");
        assert!(self.objects.uploads.lock().unwrap().is_empty(), "every upload is ended");
    }

    /// Compacts the table by the binary, after a try that is killed with its outputs written,
    /// and takes the last commit back.
    async fn is_compacted(&self, warehouse: &str, properties: &str, environment: &[(&str, &str)]) {
        let run = async |arguments: &[&str]| self.run(warehouse, properties, environment, arguments).await;
        let killed = [environment, &[("AFTERWRITE_KILL_AT", "verified")]].concat();
        let ended = self.run(warehouse, properties, &killed, &["compact", "lake.ns.t"]).await;
        assert_eq!(ended.signal, Some(9), "{}{}", ended.out, ended.err);
        assert!(self.objects.written.lock().unwrap().iter().any(|path| path.ends_with(".parquet")));

        let ended = run(&["compact", "lake.ns.t", "--json"]).await.expect(0);

        assert_eq!(ended.each("result"), ["committed", "committed"], "{}{}", ended.out, ended.err);
        assert_eq!(ended.each("rows_deleted"), [json!(2), json!(0)]);
        self.assert_compacted().await;
        let again = run(&["compact", "lake.ns.t", "--json"]).await.expect(0);
        assert_eq!(again.each("result"), ["left", "left"]);
        let job = ended.each("job").pop().unwrap();
        run(&["undo", job.as_str().unwrap()]).await.expect(0);
    }
}

/// 64 KiB that hardly compress.
fn noise(seed: i64) -> String {
    let mut state = (seed.unsigned_abs() + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut text = String::new();
    while text.len() < 64 << 10 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        text.extend((0..10).map(|i| char::from(b'0' + (state >> (6 * i) & 63) as u8)));
    }
    text
}
