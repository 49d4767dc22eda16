//! The real `serve`, killed: what it had looked at, it need not read again.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::fixture::process::{Place, Serving};
use crate::fixture::{Table, row};

const WATCHING: &str = "[poll]\nmin = \"50ms\"\nmax = \"200ms\"\n";

/// A counter of `/metrics`; 0 while it was never counted.
async fn counted(serving: &Serving, name: &str) -> u64 {
    let address = serving.http.trim_start_matches("http://").trim_end_matches(['/', ',']).to_owned();
    let address = address.split('/').next().unwrap();
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    assert!(text.starts_with("HTTP/1.1 200"), "{text}");
    text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok()).unwrap_or(0)
}

/// Waits until a counter has come so far.
async fn until(serving: &Serving, name: &str, least: u64) {
    for _ in 0..600 {
        if counted(serving, name).await >= least {
            return;
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    panic!("{name} did not reach {least}: {}", serving.said());
}

const READ: &str = "afterwrite_manifests_read_total";
const ABSORBED: &str = "afterwrite_looks_total{result=\"absorbed\"}";
const UNCHANGED: &str = "afterwrite_looks_total{result=\"unchanged\"}";

#[tokio::test]
async fn serve_that_was_killed_reads_no_manifest_that_it_had_read() {
    let place = Place::new(WATCHING);
    let table = Table::partitioned_by_p().in_sqlite(place.path()).create().await;
    table.append([row(1, "v", 0)]).await;
    let serving = place.serve().await;
    until(&serving, READ, 1).await;
    for n in 1..4 {
        table.append([row(n * 10, "v", n % 2)]).await;
        until(&serving, ABSORBED, n as u64).await;
    }
    assert_eq!(counted(&serving, READ).await, 4);
    serving.kill();

    let serving = place.serve().await;
    until(&serving, UNCHANGED, 1).await;
    assert_eq!(counted(&serving, READ).await, 0);
    table.append([row(100, "v", 0)]).await;
    until(&serving, ABSORBED, 1).await;
    assert_eq!(counted(&serving, READ).await, 1);
    serving.kill();
}
