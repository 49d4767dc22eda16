//! What reaches the client of an answer.

use std::io::Write;

use super::Stage;
use super::upstream::Reply;

async fn passed(method: &str, raw: &[u8]) -> super::Answer {
    let stage = Stage::new(500).await;
    stage.world.script("/v1/x", vec![Reply { bytes: raw.to_vec(), close: false, delay_ms: 0 }]);
    stage.ask(method, "/v1/x", &[], b"").await.unwrap()
}

#[tokio::test]
async fn every_status_and_header_passes() {
    for status in [200, 201, 202, 301, 307, 400, 401, 403, 404, 406, 409, 419, 422, 429, 500, 501, 502, 503, 504] {
        let raw = format!(
            "HTTP/1.1 {status} Some Reason\r\nContent-Length: 2\r\nX-One: a\r\nX-One: b\r\nETag: W/\"1\"\r\nLocation: http://other/\r\nRetry-After: 7\r\nKeep-Alive: timeout=5\r\nConnection: keep-alive\r\n\r\n{{}}"
        );
        let answer = passed("GET", raw.as_bytes()).await;
        let mut lines: Vec<&str> = answer.head.lines().collect();
        assert_eq!(lines.remove(0), format!("HTTP/1.1 {status} Some Reason"));
        lines.sort_unstable();
        let expected = ["Content-Length: 2", "ETag: W/\"1\"", "Location: http://other/", "Retry-After: 7", "X-One: a", "X-One: b"];
        assert_eq!((lines.as_slice(), answer.text().as_str()), (&expected[..], "{}"), "{status}");
    }
}

#[tokio::test]
async fn answers_without_a_body_have_none() {
    assert_eq!(passed("GET", b"HTTP/1.1 204 No Content\r\nX-A: 1\r\n\r\n").await.head, "HTTP/1.1 204 No Content\r\nX-A: 1");
    let unchanged = passed("GET", b"HTTP/1.1 304 Not Modified\r\nETag: \"1\"\r\n\r\n").await;
    assert_eq!((unchanged.status, unchanged.header("etag").as_deref(), unchanged.body.len()), (304, Some("\"1\""), 0));
    let head = passed("HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 1234\r\n\r\n").await;
    assert_eq!((head.header("content-length").as_deref(), head.body.len()), (Some("1234"), 0));
}

#[tokio::test]
async fn an_interim_answer_is_not_taken_for_the_answer() {
    let raw = b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    let answer = passed("GET", raw).await;
    assert_eq!((answer.status, answer.text().as_str()), (200, "ok"));
}

#[tokio::test]
async fn a_chunked_answer_and_one_that_ends_with_its_connection_arrive_whole() {
    let chunked = passed("GET", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n").await;
    assert_eq!((chunked.text().as_str(), chunked.whole), ("abcde", true));
    let stage = Stage::new(500).await;
    stage.world.script("/v1/x", vec![Reply { close: true, ..Reply::raw("HTTP/1.1 200 OK\r\n\r\nabc") }]);
    let closed = stage.ask("GET", "/v1/x", &[], b"").await.unwrap();
    assert_eq!((closed.text().as_str(), closed.whole), ("abc", true));
}

#[tokio::test]
async fn a_compressed_answer_passes_byte_for_byte() {
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    gz.write_all(b"hello hello hello").unwrap();
    let packed = gz.finish().unwrap();
    let mut raw = format!("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {}\r\n\r\n", packed.len()).into_bytes();
    raw.extend_from_slice(&packed);
    let answer = passed("GET", &raw).await;
    assert_eq!((answer.body, answer.head.contains("Content-Encoding: gzip")), (packed, true));
}

#[tokio::test]
async fn a_read_that_upstream_drops_or_cuts_is_dropped_or_cut() {
    let stage = Stage::new(500).await;
    stage.world.script("/v1/x", vec![Reply::close()]);
    assert_eq!(stage.ask("GET", "/v1/x", &[], b"").await, None);
    stage.world.script("/v1/x", vec![Reply { close: true, ..Reply::raw("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc") }]);
    let cut = stage.ask("GET", "/v1/x", &[], b"").await.unwrap();
    assert_eq!((cut.text().as_str(), cut.whole), ("abc", false));
}
