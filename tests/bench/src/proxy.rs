//! What the catalog proxy adds to a call: loads and commits through it against the
//! same calls direct, by turns, each side on one connection, client, proxy and
//! catalog on the same cores.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use afterwrite::lake::clock::SystemClock;
use afterwrite::observe::proxy::{self, Ledger, Options, Ports};
use afterwrite::observe::{Inbox, inbox};
use anyhow::Context;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::figure::{Bench, Figure, quantile};

/// See the module.
pub const BENCH: Bench = Bench {
    name: "proxy_overhead_us",
    also: &[],
    about: "microseconds that the proxy adds to a table load and to a commit, each answered with 16 KiB of metadata, p50 and p99",
    run,
};

const TABLE: &str = "/v1/namespaces/db/tables/t";
const COMMIT: &str = r#"{"requirements":[{"type":"assert-table-uuid","uuid":"d335aecc-04db-4223-a213-c7ac5ffef216"},{"type":"assert-ref-snapshot-id","ref":"main","snapshot-id":1}],"updates":[{"action":"add-snapshot","snapshot":{"snapshot-id":2,"parent-snapshot-id":1,"sequence-number":2,"timestamp-ms":1,"manifest-list":"s3://b/m.avro","summary":{"operation":"append","added-data-files":"1"}}},{"action":"set-snapshot-ref","ref-name":"main","type":"branch","snapshot-id":2}]}"#;

fn run(quick: bool) -> anyhow::Result<Vec<Figure>> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?.block_on(measure(if quick { 200 } else { 20_000 }))
}

async fn measure(calls: usize) -> anyhow::Result<Vec<Figure>> {
    let catalog = serve().await?;
    let mut options = Options::new("lake", &format!("http://{catalog}"));
    options.listen = SocketAddr::from(([127, 0, 0, 1], 0));
    let clock = Arc::new(SystemClock);
    let inbox = Inbox::new(clock.clone(), inbox::Limits::default());
    let through = proxy::start(&options, Ports { inbox, heeds: Arc::new(Ledger::default()), clock }).await?;
    let mut figures = Vec::new();
    for (what, method, body) in [("load", "GET", ""), ("commit", "POST", COMMIT)] {
        let sides = ask([catalog, through.addr()], method, body, calls).await?;
        for (side, took) in ["direct", "proxy"].into_iter().zip(&sides) {
            for (name, share) in [("p50", 0.5), ("p99", 0.99)] {
                figures.push(Figure::new(format!("proxy {what} {side} {name}"), quantile(took, share), "µs"));
            }
        }
        for (name, share) in [("p50", 0.5), ("p99", 0.99)] {
            let added = quantile(&sides[1], share) - quantile(&sides[0], share);
            figures.push(Figure::new(format!("proxy {what} added {name}"), added, "µs"));
        }
    }
    through.drain(Duration::from_secs(1)).await;
    Ok(figures)
}

/// A catalog that answers every request with the same metadata.
async fn serve() -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let addr = listener.local_addr()?;
    let body = format!(r#"{{"metadata-location":"s3://b/1.json","metadata":{{"pad":"{}"}}}}"#, "x".repeat(16 << 10));
    let answer = format!("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let answer = answer.clone();
            tokio::spawn(async move {
                let _only_slower = stream.set_nodelay(true);
                while let Ok(()) = message(&mut stream).await {
                    if stream.write_all(answer.as_bytes()).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    Ok(addr)
}

/// Microseconds of each call to each side, a tenth more made before. What else the machine
/// does meets both.
async fn ask(sides: [SocketAddr; 2], method: &str, body: &str, calls: usize) -> anyhow::Result<[Vec<f64>; 2]> {
    let length = if body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
    let request = format!("{method} {TABLE} HTTP/1.1\r\nHost: catalog\r\nAuthorization: Bearer x\r\n{length}\r\n{body}");
    let mut streams = [TcpStream::connect(sides[0]).await?, TcpStream::connect(sides[1]).await?];
    let mut took = [Vec::with_capacity(calls), Vec::with_capacity(calls)];
    for stream in &streams {
        stream.set_nodelay(true)?;
    }
    for call in 0..calls + calls / 10 {
        for (stream, took) in streams.iter_mut().zip(&mut took) {
            let began = Instant::now();
            stream.write_all(request.as_bytes()).await?;
            message(stream).await?;
            if call >= calls / 10 {
                took.push(began.elapsed().as_secs_f64() * 1e6);
            }
        }
    }
    Ok(took)
}

/// Reads one message to its end.
async fn message(stream: &mut TcpStream) -> anyhow::Result<()> {
    let mut seen = Vec::new();
    let mut piece = [0; 32 << 10];
    loop {
        let n = stream.read(&mut piece).await?;
        anyhow::ensure!(n > 0, "the connection ended");
        seen.extend_from_slice(&piece[..n]);
        let Some(end) = seen.windows(4).position(|w| w == b"\r\n\r\n") else { continue };
        let head = std::str::from_utf8(&seen[..end])?.to_ascii_lowercase();
        let length: usize = match head.split("content-length:").nth(1) {
            None => 0,
            Some(rest) => rest.lines().next().context("no length")?.trim().parse()?,
        };
        if seen.len() >= end + 4 + length {
            return Ok(());
        }
    }
}
