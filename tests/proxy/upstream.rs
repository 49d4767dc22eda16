//! An upstream catalog scripted to the byte: tables of snapshots, and faults.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};

use super::{read_body, read_head};

/// What happens to the next commit.
#[derive(Clone, Debug)]
pub enum Fault {
    /// It is applied, and then answered with a status.
    After(u16),
    /// It is applied, and the connection closed.
    AfterDrop,
    /// It is applied, and the answer breaks off in its middle.
    AfterTruncated,
    /// It is sent twice by something on the way: the second answer is told.
    Replayed,
    /// It is not applied, and answered with a status.
    Before(u16),
    /// It is not applied, and the connection closed.
    BeforeDrop,
    /// It is answered with a status, and applied this many milliseconds later.
    Late(u16, u64),
    /// Somebody else's commit lands first.
    Beaten,
    /// The same, and the connection is closed.
    BeatenDrop,
    /// In a transaction only the first table is changed, and 409 told.
    Torn,
    /// It takes this many milliseconds.
    Slow(u64),
}

/// A scripted answer.
#[derive(Clone, Debug)]
pub struct Reply {
    pub bytes: Vec<u8>,
    pub close: bool,
    pub delay_ms: u64,
}

impl Reply {
    pub fn raw(text: &str) -> Self {
        Self { bytes: text.as_bytes().to_vec(), close: false, delay_ms: 0 }
    }

    pub fn close() -> Self {
        Self { bytes: Vec::new(), close: true, delay_ms: 0 }
    }

    pub fn json(status: u16, body: &Value) -> Self {
        let body = body.to_string();
        Self::raw(&format!("HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}", body.len()))
    }
}

/// A request as it arrived.
#[derive(Clone, Debug)]
pub struct Hit {
    pub head: String,
    pub body: Vec<u8>,
    pub connection: usize,
}

impl Hit {
    pub fn line(&self) -> &str {
        self.head.lines().next().unwrap()
    }
}

#[derive(Clone, Debug, Default)]
pub struct Table {
    pub uuid: String,
    pub main: Option<i64>,
    pub snapshots: Vec<(i64, Option<i64>)>,
}

#[derive(Default)]
pub struct State {
    /// Tables by their path.
    pub tables: BTreeMap<String, Table>,
    pub faults: VecDeque<Fault>,
    /// Answers for other paths, with the last one repeated.
    pub scripts: BTreeMap<String, VecDeque<Reply>>,
    pub hits: Vec<Hit>,
    connections: usize,
}

pub struct World {
    pub addr: SocketAddr,
    pub state: Mutex<State>,
}

pub const UUID: &str = "d335aecc-04db-4223-a213-c7ac5ffef216";

pub fn split_head(bytes: &[u8]) -> Option<(String, Vec<u8>)> {
    let end = bytes.windows(4).position(|w| w == b"\r\n\r\n")?;
    Some((String::from_utf8_lossy(&bytes[..end]).into_owned(), bytes[end + 4..].to_vec()))
}

impl World {
    pub async fn start() -> Arc<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let world = Arc::new(Self { addr: listener.local_addr().unwrap(), state: Mutex::default() });
        let mine = Arc::clone(&world);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let number = {
                    let mut state = mine.state.lock().unwrap();
                    state.connections += 1;
                    state.connections
                };
                tokio::spawn(Arc::clone(&mine).serve(stream, number));
            }
        });
        world
    }

    /// A table whose `main` stands at the last of a chain of snapshots.
    pub fn table(&self, path: &str, chain: &[i64]) {
        let mut table = Table { uuid: UUID.into(), ..Table::default() };
        for id in chain {
            table.snapshots.push((*id, table.main));
            table.main = Some(*id);
        }
        self.state.lock().unwrap().tables.insert(path.into(), table);
    }

    pub fn fault(&self, fault: Fault) {
        self.state.lock().unwrap().faults.push_back(fault);
    }

    pub fn script(&self, path: &str, replies: Vec<Reply>) {
        self.state.lock().unwrap().scripts.insert(path.into(), replies.into());
    }

    pub fn hits(&self) -> Vec<Hit> {
        self.state.lock().unwrap().hits.clone()
    }

    /// How many requests had this method.
    pub fn count(&self, method: &str) -> usize {
        self.hits().iter().filter(|h| h.line().starts_with(&format!("{method} "))).count()
    }

    pub fn has(&self, path: &str, snapshot: i64) -> bool {
        self.state.lock().unwrap().tables.get(path).is_some_and(|t| t.snapshots.iter().any(|(id, _)| *id == snapshot))
    }

    async fn serve(self: Arc<Self>, mut stream: TcpStream, connection: usize) {
        while let Some((head, rest)) = read_head(&mut stream).await {
            let has_body = head.to_lowercase().contains("content-length") || head.to_lowercase().contains("transfer-encoding");
            let (body, whole) = if has_body { read_body(&mut stream, &head, rest).await } else { (rest, true) };
            if !whole {
                return;
            }
            let hit = Hit { head, body, connection };
            self.state.lock().unwrap().hits.push(hit.clone());
            let reply = self.reply(&hit);
            tokio::time::sleep(Duration::from_millis(reply.delay_ms)).await;
            if stream.write_all(&reply.bytes).await.is_err() || reply.close {
                return;
            }
        }
    }

    fn reply(self: &Arc<Self>, hit: &Hit) -> Reply {
        let mut words = hit.line().split(' ');
        let (method, target) = (words.next().unwrap(), words.next().unwrap());
        let path = target.split('?').next().unwrap();
        {
            let mut state = self.state.lock().unwrap();
            if let Some(replies) = state.scripts.get_mut(path) {
                return if replies.len() > 1 { replies.pop_front().unwrap() } else { replies[0].clone() };
            }
        }
        match method {
            "POST" if path.ends_with("/transactions/commit") || path.contains("/tables/") => self.commit(path, hit),
            "GET" => self.load(path),
            _ => Reply::raw("HTTP/1.1 204 No Content\r\n\r\n"),
        }
    }

    fn load(&self, path: &str) -> Reply {
        match self.state.lock().unwrap().tables.get(path) {
            None => Reply::json(404, &json!({"error": {"code": 404}})),
            Some(table) => Reply::json(200, &loaded(table)),
        }
    }

    fn commit(self: &Arc<Self>, path: &str, hit: &Hit) -> Reply {
        let body: Value = serde_json::from_slice(&hit.body).unwrap();
        let fault = self.state.lock().unwrap().faults.pop_front();
        match fault {
            None => self.state.lock().unwrap().apply(path, &body, usize::MAX),
            Some(Fault::After(status)) => {
                self.state.lock().unwrap().apply(path, &body, usize::MAX);
                error(status)
            }
            Some(Fault::AfterDrop) => {
                self.state.lock().unwrap().apply(path, &body, usize::MAX);
                Reply::close()
            }
            Some(Fault::AfterTruncated) => {
                let mut reply = self.state.lock().unwrap().apply(path, &body, usize::MAX);
                let keep = reply.bytes.len() - 10;
                reply.bytes.truncate(keep);
                Reply { close: true, ..reply }
            }
            Some(Fault::Replayed) => {
                self.state.lock().unwrap().apply(path, &body, usize::MAX);
                self.state.lock().unwrap().apply(path, &body, usize::MAX)
            }
            Some(Fault::Before(status)) => error(status),
            Some(Fault::BeforeDrop) => Reply::close(),
            Some(Fault::Late(status, ms)) => {
                let (mine, path) = (Arc::clone(self), path.to_owned());
                tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_millis(ms)).await;
                    mine.state.lock().unwrap().apply(&path, &body, usize::MAX);
                });
                error(status)
            }
            Some(beaten @ (Fault::Beaten | Fault::BeatenDrop)) => {
                let mut state = self.state.lock().unwrap();
                for table in state.tables.values_mut() {
                    table.snapshots.push((777, table.main));
                    table.main = Some(777);
                }
                let reply = state.apply(path, &body, usize::MAX);
                if matches!(beaten, Fault::BeatenDrop) { Reply::close() } else { reply }
            }
            Some(Fault::Torn) => {
                let mut state = self.state.lock().unwrap();
                state.apply(path, &body, 1);
                if let Some(table) = state.tables.values_mut().next_back() {
                    table.snapshots.push((777, table.main));
                    table.main = Some(777);
                }
                error(409)
            }
            Some(Fault::Slow(delay_ms)) => Reply { delay_ms, ..self.state.lock().unwrap().apply(path, &body, usize::MAX) },
        }
    }
}

impl State {
    /// Changes at most `most` tables, all or none when they are all.
    fn apply(&mut self, path: &str, body: &Value, most: usize) -> Reply {
        let single = [body.clone()];
        let changes = body["table-changes"].as_array().map_or(&single[..], |c| c.as_slice());
        let at = |change: &Value| match &body["table-changes"] {
            Value::Null => path.to_owned(),
            _ => {
                let levels: Vec<&str> = change["identifier"]["namespace"].as_array().unwrap().iter().map(|l| l.as_str().unwrap()).collect();
                format!(
                    "/v1/namespaces/{}/tables/{}",
                    levels.join("%1F"),
                    change["identifier"]["name"].as_str().unwrap().replace(' ', "%20")
                )
            }
        };
        if changes.iter().any(|c| !self.holds(&at(c), c)) {
            return error(409);
        }
        if let Some(id) = changes.iter().find_map(|c| self.known(&at(c), c)) {
            let said = json!({"message": format!("Snapshot already exists for id: {id}"), "type": "ValidationException", "code": 400});
            return Reply::json(400, &json!({ "error": said }));
        }
        for change in changes.iter().take(most) {
            let table = self.tables.entry(at(change)).or_default();
            for update in change["updates"].as_array().unwrap() {
                match update["action"].as_str().unwrap() {
                    "assign-uuid" => table.uuid = update["uuid"].as_str().unwrap().into(),
                    "add-snapshot" => {
                        let snapshot = &update["snapshot"];
                        table.snapshots.push((snapshot["snapshot-id"].as_i64().unwrap(), snapshot["parent-snapshot-id"].as_i64()));
                    }
                    "set-snapshot-ref" => table.main = update["snapshot-id"].as_i64(),
                    _ => {}
                }
            }
        }
        match &body["table-changes"] {
            Value::Null => Reply::json(200, &loaded(&self.tables[path])),
            _ => Reply::raw("HTTP/1.1 204 No Content\r\n\r\n"),
        }
    }

    /// A snapshot that a change adds and the table has.
    fn known(&self, path: &str, change: &Value) -> Option<i64> {
        let table = self.tables.get(path)?;
        let adds = change["updates"].as_array().unwrap().iter().filter_map(|update| update["snapshot"]["snapshot-id"].as_i64());
        adds.into_iter().find(|id| table.snapshots.iter().any(|(known, _)| known == id))
    }

    fn holds(&self, path: &str, change: &Value) -> bool {
        let table = self.tables.get(path);
        change["requirements"].as_array().unwrap().iter().all(|r| match (r["type"].as_str().unwrap(), table) {
            ("assert-create", table) => table.is_none(),
            ("assert-table-uuid", Some(table)) => r["uuid"] == table.uuid.as_str(),
            ("assert-ref-snapshot-id", Some(table)) => r["snapshot-id"].as_i64() == table.main,
            (_, table) => table.is_some(),
        })
    }
}

fn error(status: u16) -> Reply {
    Reply::json(status, &json!({"error": {"message": "injected", "type": "Injected", "code": status}}))
}

fn loaded(table: &Table) -> Value {
    let snapshot = |(id, parent): &(i64, Option<i64>)| match parent {
        None => json!({"snapshot-id": id, "manifest-list": "m"}),
        Some(parent) => json!({"snapshot-id": id, "parent-snapshot-id": parent, "manifest-list": "m"}),
    };
    let mut metadata = json!({"table-uuid": table.uuid, "snapshots": table.snapshots.iter().map(snapshot).collect::<Vec<_>>()});
    if let Some(main) = table.main {
        metadata["current-snapshot-id"] = json!(main);
        metadata["refs"] = json!({"main": {"snapshot-id": main, "type": "branch"}});
    }
    json!({"metadata-location": format!("s3://b/{}.json", table.snapshots.len()), "metadata": metadata,
        "config": {"s3.secret-access-key": "vended"}, "storage-credentials": [{"prefix": "s3://b", "config": {"s3.session-token": "vended"}}]})
}

/// The body of a commit to one table that appends snapshots to `main`.
pub fn append(parent: Option<i64>, ids: &[i64]) -> Value {
    let mut updates = Vec::new();
    let mut before = parent;
    for id in ids {
        let mut snapshot = json!({"snapshot-id": id, "manifest-list": "m", "summary": {"operation": "append", "added-data-files": "1"}});
        if let Some(before) = before {
            snapshot["parent-snapshot-id"] = json!(before);
        }
        updates.push(json!({"action": "add-snapshot", "snapshot": snapshot}));
        before = Some(*id);
    }
    updates.push(json!({"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": before}));
    json!({"requirements": [{"type": "assert-table-uuid", "uuid": UUID}, {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": parent}], "updates": updates})
}

/// One change of a transaction.
pub fn of_table(name: &str, mut change: Value) -> Value {
    change["identifier"] = json!({"namespace": ["db"], "name": name});
    change
}
