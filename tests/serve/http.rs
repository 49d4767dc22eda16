use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::*;

async fn get(running: &Running, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(running.http_addr().unwrap()).await.unwrap();
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").as_bytes()).await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    let status = text.split(' ').nth(1).unwrap().parse().unwrap();
    (status, text.split_once("\r\n\r\n").unwrap().1.to_owned())
}

#[tokio::test]
async fn a_sick_process_lives_but_is_not_ready() {
    let fake = Fake::new();
    let running = running(&fake, &options()).await;
    assert_eq!((get(&running, "/healthz").await.0, get(&running, "/readyz").await.0), (200, 200));
    *fake.health.lock().unwrap() = Health { problems: vec!["catalog lake: connection refused".into()], tables: 3, ..Health::default() };
    let body = r#"{"ready":false,"problems":["catalog lake: connection refused"],"tables":3,"pending":0,"jobs":0,"unknown_outcomes":0}"#;
    assert_eq!(get(&running, "/healthz").await, (200, body.to_owned()));
    assert_eq!(get(&running, "/readyz").await, (503, body.to_owned()));
    assert_eq!(get(&running, "/nowhere").await.0, 404);
}

#[tokio::test]
async fn metrics_are_rendered_for_prometheus() {
    let recorder = afterwrite::telemetry::recorder().unwrap();
    metrics::with_local_recorder(&recorder, || afterwrite::telemetry::kept_alive(42));
    let running = start(Fake::new(), &options(), recorder.handle()).await.unwrap();
    let (status, body) = get(&running, "/metrics").await;
    assert_eq!(status, 200);
    assert!(body.contains("afterwrite_replaced_bytes_kept_alive 42"), "{body}");
}

#[tokio::test]
async fn http_can_be_left_out() {
    let running = running(&Fake::new(), &Options { http: None, ..options() }).await;
    assert_eq!(running.http_addr(), None);
}
