//! What reaches upstream of a request.

use tokio::io::AsyncWriteExt;

use super::upstream::Reply;
use super::{Stage, read_head, until};

#[tokio::test]
async fn the_target_and_every_header_arrive_as_they_were_sent() {
    let stage = Stage::new(1_000).await;
    let target = "/v1/main%7Cwh/namespaces/a%1Fb//tables/x/../t+x%2f?snapshots=all&p=%zz&q=a+b&&";
    let headers = [
        "Authorization: Bearer s3cret",
        "X-Iceberg-Access-Delegation: vended-credentials",
        "If-None-Match: \"etag\"",
        "Accept-Encoding: gzip, br",
        "X-ODD-Case: 1",
        "x-twice: a",
        "x-twice: b",
        "Connection: keep-alive, X-Hop",
        "X-Hop: gone",
    ];
    stage.ask("GET", target, &headers, b"").await.unwrap();
    let hit = &stage.world.hits()[0];
    let mut lines: Vec<&str> = hit.head.lines().collect();
    assert_eq!(lines.remove(0), format!("GET {target} HTTP/1.1"));
    lines.sort_unstable();
    let authority = format!("Host: {}", stage.world.addr);
    let mut expected = headers[..7].to_vec();
    expected.extend([
        authority.as_str(),
        "x-forwarded-for: 127.0.0.1",
        "x-forwarded-host: proxy.example:99",
        "x-forwarded-port: 99",
        "x-forwarded-proto: http",
    ]);
    expected.sort_unstable();
    assert_eq!(lines, expected);
}

#[tokio::test]
async fn a_base_path_of_the_upstream_stands_before_every_target() {
    let stage = Stage::with(|options| options.upstream.push_str("/api/catalog/")).await;
    stage.ask("GET", "/v1/namespaces?parent=a%1Fb", &[], b"").await.unwrap();
    assert_eq!(stage.world.hits()[0].line(), "GET /api/catalog/v1/namespaces?parent=a%1Fb HTTP/1.1");
}

#[tokio::test]
async fn bodies_arrive_whole_with_a_length_or_in_chunks() {
    let stage = Stage::new(1_000).await;
    stage.world.script("/v1/x", vec![Reply::raw("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")]);
    let body = "x".repeat(300_000);
    stage.ask("POST", "/v1/x", &["Content-Type: text/plain"], body.as_bytes()).await.unwrap();
    let mut client = stage.client().await;
    let chunked = "POST /v1/x HTTP/1.1\r\nHost: p\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
    client.0.write_all(chunked.as_bytes()).await.unwrap();
    assert_eq!(client.hear(false).await.unwrap().status, 200);
    let hits = stage.world.hits();
    assert_eq!((hits[0].body.len(), hits[1].body.as_slice()), (300_000, &b"abcde"[..]));
    assert!(hits[0].head.contains("Content-Length: 300000"));
}

#[tokio::test]
async fn connections_are_kept_alive_on_both_sides() {
    let stage = Stage::new(1_000).await;
    let mut client = stage.client().await;
    for _ in 0..5 {
        assert_eq!(client.ask("GET", "/v1/namespaces/db/tables/none", &[], b"").await.unwrap().status, 404);
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let connections: std::collections::BTreeSet<usize> = stage.world.hits().iter().map(|h| h.connection).collect();
    assert_eq!(connections.len(), 1);
}

#[tokio::test]
async fn a_read_on_a_connection_that_upstream_closed_is_sent_again_and_a_write_never() {
    let stage = Stage::new(500).await;
    let ok = Reply::raw("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    stage.world.script("/v1/x", vec![ok.clone(), Reply::close(), ok.clone()]);
    let mut client = stage.client().await;
    let pause = || tokio::time::sleep(std::time::Duration::from_millis(30));
    assert_eq!(client.ask("GET", "/v1/x", &[], b"").await.unwrap().status, 200);
    pause().await;
    assert_eq!(client.ask("GET", "/v1/x", &[], b"").await.unwrap().status, 200, "closed in the moment of the request");
    assert_eq!(stage.world.count("GET"), 3);
    stage.world.script("/v1/x", vec![ok.clone(), Reply::close(), ok]);
    assert_eq!(client.ask("POST", "/v1/x", &[], b"a").await.unwrap().status, 200);
    pause().await;
    assert_eq!(client.ask("POST", "/v1/x", &[], b"b").await, None);
    assert_eq!(stage.world.count("POST"), 2);
}

#[tokio::test]
async fn an_upstream_that_was_not_reached_is_told_as_429() {
    let gone = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = gone.local_addr().unwrap();
    drop(gone);
    let stage = Stage::with(|options| options.upstream = format!("http://{addr}")).await;
    let body = super::upstream::append(Some(1), &[2]).to_string();
    for (method, target, body) in [
        ("GET", "/v1/config", ""),
        ("GET", "/v1/namespaces/db/tables/t", ""),
        ("POST", "/v1/namespaces/db/tables/t", body.as_str()),
        ("POST", "/v1/namespaces/db/tables/t/metrics", "{}"),
        ("DELETE", "/v1/namespaces/db/tables/t", ""),
    ] {
        let answer = stage.ask(method, target, &[], body.as_bytes()).await.unwrap();
        assert_eq!((answer.status, answer.header("retry-after").as_deref()), (429, Some("1")), "{method} {target}");
        assert_eq!(answer.json()["error"]["code"], 429);
    }
    assert_eq!(stage.heard().len(), 0);
}

#[tokio::test]
async fn a_client_that_leaves_in_the_middle_of_a_commit_sends_nothing() {
    let stage = Stage::new(500).await;
    let mut client = stage.client().await;
    client.0.write_all(b"POST /v1/namespaces/db/tables/t HTTP/1.1\r\nHost: p\r\nContent-Length: 100\r\n\r\n{\"upd").await.unwrap();
    drop(client);
    stage.ask("GET", "/v1/namespaces/db/tables/t", &[], b"").await.unwrap();
    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    assert_eq!(stage.world.count("POST"), 0);
}

#[tokio::test]
async fn a_write_that_streams_is_heard_to_its_end_after_its_client_left() {
    let stage = Stage::new(500).await;
    let slow = Reply { delay_ms: 200, ..Reply::raw("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n") };
    stage.world.script("/v1/namespaces", vec![slow]);
    let mut client = stage.client().await;
    client.0.write_all(b"POST /v1/namespaces HTTP/1.1\r\nHost: p\r\nContent-Length: 2\r\n\r\n{}").await.unwrap();
    until("the request", || stage.world.count("POST") == 1).await;
    client.0.set_zero_linger().unwrap();
    drop(client);
    assert!(stage.proxy.drain(std::time::Duration::from_secs(5)).await);
}

#[tokio::test]
async fn a_tunnel_is_refused() {
    let stage = Stage::new(500).await;
    let mut client = stage.client().await;
    client.0.write_all(b"CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\n\r\n").await.unwrap();
    let (head, _) = read_head(&mut client.0).await.unwrap();
    assert!(head.starts_with("HTTP/1.1 405"), "{head}");
}
