//! Bodies stream, and little of them is kept.

use std::time::Duration;

use afterwrite::observe::proxy::Limits;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::upstream::{Fault, append};
use super::{Stage, read_head};

const T: &str = "/v1/namespaces/db/tables/t";

#[tokio::test]
async fn an_answer_streams_while_upstream_still_writes_it() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let stage = Stage::with(|options| options.upstream = format!("http://{addr}")).await;
    let (go, gone) = tokio::sync::oneshot::channel::<()>();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        read_head(&mut stream).await.unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nabc").await.unwrap();
        gone.await.unwrap();
        stream.write_all(b"def").await.unwrap();
        tokio::time::sleep(Duration::from_secs(5)).await;
    });
    let mut client = stage.client().await;
    client.0.write_all(format!("GET {T} HTTP/1.1\r\nHost: p\r\n\r\n").as_bytes()).await.unwrap();
    let (head, mut body) = read_head(&mut client.0).await.unwrap();
    while body.len() < 3 {
        let mut piece = [0; 16];
        let n = client.0.read(&mut piece).await.unwrap();
        body.extend_from_slice(&piece[..n]);
    }
    assert_eq!(body, b"abc");
    go.send(()).unwrap();
    assert_eq!(super::read_body(&mut client.0, &head, body).await, (b"abcdef".to_vec(), true));
}

#[tokio::test]
async fn a_request_streams_while_the_client_still_writes_it() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let stage = Stage::with(|options| options.upstream = format!("http://{addr}")).await;
    let mut client = stage.client().await;
    client.0.write_all(b"POST /v1/x HTTP/1.1\r\nHost: p\r\nContent-Length: 6\r\n\r\nabc").await.unwrap();
    let (mut stream, _) = listener.accept().await.unwrap();
    let (_, mut seen) = read_head(&mut stream).await.unwrap();
    while seen.len() < 3 {
        let mut piece = [0; 16];
        let n = stream.read(&mut piece).await.unwrap();
        seen.extend_from_slice(&piece[..n]);
    }
    assert_eq!(seen, b"abc");
    client.0.write_all(b"def").await.unwrap();
    let mut rest = [0; 3];
    stream.read_exact(&mut rest).await.unwrap();
    assert_eq!(&rest, b"def");
    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await.unwrap();
    assert_eq!(client.hear(false).await.unwrap().status, 200);
}

#[tokio::test]
async fn a_commit_larger_than_the_limit_passes_untapped_and_unhealed() {
    let small = Limits { commit: 100, ..Limits::default() };
    let stage = Stage::with(|options| options.limits = small).await;
    stage.world.table(T, &[1]);
    stage.world.fault(Fault::After(500));
    let body = append(Some(1), &[2]).to_string();
    assert!(body.len() > 100);
    assert_eq!(stage.commit(T, &body).await.unwrap().status, 500);
    assert_eq!((stage.world.count("GET"), stage.world.hits()[0].body.as_slice()), (0, body.as_bytes()));
    // its path names the table, and what it did to it is not known
    assert_eq!(stage.heard(), [("lake.db.t@main".to_owned(), vec![])]);
    let door = stage.inbox.ledger().rows(0).remove(0);
    assert_eq!((door.received, door.accepted, door.parked), (2, 1, 1));
    assert_eq!(door.examples[0].reason, "passed through unread: large commit");
}

#[tokio::test]
async fn other_traffic_takes_no_room_from_commits() {
    let small = Limits { room: 64 << 10, ..Limits::default() };
    let stage = Stage::with(|options| options.limits = small).await;
    stage.world.table(T, &[1]);
    stage.world.script(
        "/v1/namespaces/db/tables/t/metrics",
        vec![super::upstream::Reply { delay_ms: 2_000, ..super::upstream::Reply::raw("HTTP/1.1 204 X\r\n\r\n") }],
    );
    let mut slow = stage.client().await;
    let report = vec![b' '; 60 << 10];
    let head = format!("POST {T}/metrics HTTP/1.1\r\nHost: p\r\nContent-Length: {}\r\n\r\n", report.len());
    slow.0.write_all(head.as_bytes()).await.unwrap();
    slow.0.write_all(&report).await.unwrap();
    super::until("the report is with the catalog", || stage.world.hits().len() == 1).await;
    let padded = format!("{}{}", append(Some(1), &[2]), " ".repeat(32 << 10));
    assert_eq!(stage.commit(T, &padded).await.unwrap().status, 200);
    assert_eq!(stage.heard(), [("lake.db.t@main".to_owned(), vec![2])]);
}

#[tokio::test]
async fn a_commits_answer_larger_than_the_limit_passes_whole() {
    let small = Limits { answer: 100, ..Limits::default() };
    let stage = Stage::with(|options| options.limits = small).await;
    stage.world.table(T, &[1]);
    let answer = stage.commit(T, &append(Some(1), &[2]).to_string()).await.unwrap();
    assert!(answer.whole && answer.body.len() > 100);
    assert_eq!(answer.json()["metadata"]["snapshots"].as_array().unwrap().len(), 2);
    assert_eq!(stage.heard(), [("lake.db.t@main".to_owned(), vec![2])]);
}

#[tokio::test]
async fn a_commit_that_cannot_be_read_passes() {
    let stage = Stage::new(500).await;
    let ok = super::upstream::Reply::raw("HTTP/1.1 500 X\r\nContent-Length: 2\r\n\r\nno");
    stage.world.script(T, vec![ok.clone()]);
    stage.world.script("/v1/transactions/commit", vec![ok]);
    for body in ["", "{", "[]", "{\"updates\":3}", "{\"table-changes\":[{\"updates\":[]}]}"] {
        for target in [T, "/v1/transactions/commit"] {
            let answer = stage.ask("POST", target, &[], body.as_bytes()).await.unwrap();
            assert_eq!((answer.status, answer.text().as_str()), (500, "no"), "{target} {body}");
        }
    }
    assert_eq!((stage.world.count("GET"), stage.world.count("POST")), (0, 10));
}

#[tokio::test]
async fn a_compressed_commit_is_read_and_passes_byte_for_byte() {
    let stage = Stage::new(2_000).await;
    stage.world.table(T, &[1, 2]);
    stage.world.script("/v1/p/namespaces/db/tables/t", vec![super::upstream::Reply::json(200, &serde_json::json!({}))]);
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut gz, append(Some(1), &[2]).to_string().as_bytes()).unwrap();
    let packed = gz.finish().unwrap();
    let target = "/v1/p/namespaces/db/tables/t";
    assert_eq!(stage.ask("POST", target, &["Content-Encoding: gzip"], &packed).await.unwrap().status, 200);
    assert_eq!(stage.world.hits()[0].body, packed);
    assert_eq!(stage.heard(), [("lake.db.t@main".to_owned(), vec![2])]);
}

#[tokio::test]
async fn a_large_answer_passes_whole_through_a_small_room() {
    let small = Limits { commit: 1 << 10, answer: 1 << 10, load: 1 << 10, note: 1 << 10, room: 1 << 12 };
    let stage = Stage::with(|options| options.limits = small).await;
    let body = vec![b'x'; 20 << 20];
    let mut raw = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len()).into_bytes();
    raw.extend_from_slice(&body);
    stage.world.script(T, vec![super::upstream::Reply { bytes: raw, close: false, delay_ms: 0 }]);
    let got = stage.ask("GET", T, &[], b"").await.unwrap();
    assert!(got.whole && got.body == body);
    let sent = stage.ask("POST", T, &[], &body).await.unwrap();
    assert!(sent.whole && stage.world.hits()[1].body == body);
}
