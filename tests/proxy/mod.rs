//! The catalog proxy between a client and an upstream that are scripted to the byte.

mod answers;
mod bodies;
mod defects;
mod ending;
mod events;
mod healing;
mod replay;
mod requests;
pub mod upstream;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use afterwrite::lake::clock::{Clock, SystemClock};
use afterwrite::observe::Inbox;
use afterwrite::observe::inbox::Limits;
use afterwrite::observe::proxy::{self, Ledger, Options, Ports, Running};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use upstream::{World, split_head};

/// A proxy before a scripted upstream.
pub struct Stage {
    pub world: Arc<World>,
    pub proxy: Running,
    pub inbox: Inbox,
    pub ledger: Arc<Ledger>,
}

impl Stage {
    /// A stage whose healing gives up after `deadline_ms`.
    pub async fn new(deadline_ms: i64) -> Self {
        Self::with(|options| options.heal_deadline_ms = deadline_ms).await
    }

    pub async fn with(change: impl FnOnce(&mut Options)) -> Self {
        Self::by(Arc::new(SystemClock), change).await
    }

    /// A stage whose proxy goes by this clock.
    pub async fn by(clock: Arc<dyn Clock>, change: impl FnOnce(&mut Options)) -> Self {
        let world = World::start().await;
        let mut options = Options::new("lake", &format!("http://{}", world.addr));
        options.listen = SocketAddr::from(([127, 0, 0, 1], 0));
        change(&mut options);
        let inbox = Inbox::new(Arc::new(SystemClock), Limits { interval_ms: 0, ..Limits::default() });
        let ledger = Arc::new(Ledger::default());
        let ports = Ports { inbox: inbox.clone(), heeds: ledger.clone(), clock };
        let proxy = proxy::start(&options, ports).await.unwrap();
        Self { world, proxy, inbox, ledger }
    }

    pub async fn client(&self) -> Client {
        Client(TcpStream::connect(self.proxy.addr()).await.unwrap())
    }

    /// One request on a connection of its own.
    pub async fn ask(&self, method: &str, target: &str, headers: &[&str], body: &[u8]) -> Option<Answer> {
        self.client().await.ask(method, target, headers, body).await
    }

    pub async fn commit(&self, target: &str, body: &str) -> Option<Answer> {
        self.ask("POST", target, &["Authorization: Bearer s3cret", "Idempotency-Key: k1"], body.as_bytes()).await
    }

    /// The tables marked for a look, with the snapshots that were named.
    pub fn heard(&self) -> Vec<(String, Vec<i64>)> {
        let mut heard = Vec::new();
        while let Some(look) = self.inbox.try_next() {
            heard.push((format!("{}@{}", look.name, look.reference), look.hints.clone()));
            self.inbox.done(look);
        }
        heard.sort();
        heard
    }
}

/// A client's connection.
pub struct Client(pub TcpStream);

/// What a client received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
    /// The body came to its end.
    pub whole: bool,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<String> {
        header(&self.head, name)
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

pub fn header(head: &str, name: &str) -> Option<String> {
    head.lines().skip(1).find_map(|line| {
        let (key, value) = line.split_once(':')?;
        key.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
    })
}

impl Client {
    pub async fn ask(&mut self, method: &str, target: &str, headers: &[&str], body: &[u8]) -> Option<Answer> {
        let mut head = format!("{method} {target} HTTP/1.1\r\nHost: proxy.example:99\r\n");
        for line in headers {
            head.push_str(line);
            head.push_str("\r\n");
        }
        if !body.is_empty() {
            head.push_str(&format!("Content-Length: {}\r\n", body.len()));
        }
        head.push_str("\r\n");
        self.0.write_all(head.as_bytes()).await.unwrap();
        self.0.write_all(body).await.unwrap();
        self.hear(method == "HEAD").await
    }

    /// Reads one answer; `None` when the connection closes before one.
    pub async fn hear(&mut self, no_body: bool) -> Option<Answer> {
        let (head, rest) = read_head(&mut self.0).await?;
        let status = head.split(' ').nth(1)?.parse().unwrap();
        let bodyless = no_body || matches!(status, 204 | 304);
        let (body, whole) = if bodyless { (rest, true) } else { read_body(&mut self.0, &head, rest).await };
        Some(Answer { status, head, body, whole })
    }
}

/// Reads until an empty line; `None` when the connection ends before it.
pub async fn read_head(stream: &mut TcpStream) -> Option<(String, Vec<u8>)> {
    let mut seen = Vec::new();
    loop {
        if let Some(split) = split_head(&seen) {
            return Some(split);
        }
        let mut piece = [0; 16384];
        match stream.read(&mut piece).await {
            Ok(0) | Err(_) => return None,
            Ok(n) => seen.extend_from_slice(&piece[..n]),
        }
    }
}

/// Reads the body that a head announces, and tells whether it came whole.
pub async fn read_body(stream: &mut TcpStream, head: &str, rest: Vec<u8>) -> (Vec<u8>, bool) {
    let mut seen = rest;
    let length: Option<usize> = header(head, "content-length").map(|l| l.parse().unwrap());
    let chunked = header(head, "transfer-encoding").is_some_and(|t| t.contains("chunked"));
    loop {
        if chunked {
            if let Some(body) = unchunk(&seen) {
                return (body, true);
            }
        } else if let Some(length) = length
            && seen.len() >= length
        {
            return (seen, true);
        }
        let mut piece = vec![0; 65536];
        match stream.read(&mut piece).await {
            Ok(0) | Err(_) => return (seen, !chunked && length.is_none()),
            Ok(n) => seen.extend_from_slice(&piece[..n]),
        }
    }
}

/// The body of a whole chunked message.
fn unchunk(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    let mut at = 0;
    loop {
        let line = bytes[at..].windows(2).position(|w| w == b"\r\n")?;
        let size = usize::from_str_radix(std::str::from_utf8(&bytes[at..at + line]).ok()?.split(';').next()?.trim(), 16).ok()?;
        at += line + 2;
        if size == 0 {
            return bytes[at..].starts_with(b"\r\n").then_some(body);
        }
        body.extend_from_slice(bytes.get(at..at + size)?);
        at += size + 2;
        bytes.get(at - 1)?;
    }
}

/// Waits until it is true.
pub async fn until(what: &str, mut check: impl FnMut() -> bool) {
    for _ in 0..500 {
        if check() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{what} did not come true");
}
