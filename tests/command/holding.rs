//! `hold` and `release`: by hand, over HTTP, and by a table property.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{NAME, small};
use crate::fixture::process::{Place, Serving, over_rest, overtake};

const EAGER: &str =
    "[poll]\nmin = \"1h\"\nmax = \"1h\"\n[defaults]\nact = true\ncooldown = \"0s\"\ntier_files = 2\nqueue_min_reduction = 1\n";

async fn post(serving: &Serving, path: &str, body: &Value) -> (u16, Value) {
    let address = serving.http.trim_start_matches("http://");
    let body = body.to_string();
    let length = body.len();
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("POST {path} HTTP/1.1\r\nHost: {address}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    let status = text.split(' ').nth(1).unwrap().parse().unwrap();
    (status, serde_json::from_str(text.split_once("\r\n\r\n").unwrap().1).unwrap_or(Value::Null))
}

async fn until<T>(what: &str, mut found: impl AsyncFnMut() -> Option<T>) -> T {
    for _ in 0..600 {
        if let Some(found) = found().await {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{what} did not come about");
}

#[tokio::test]
async fn a_held_table_is_left_alone_by_hand_too_until_it_is_released() {
    let place = Place::new("");
    let table = small(&place).await;
    let held = place.run(&["hold", NAME, "--for", "2h", "--holder", "backfill", "--json"]).await.expect(0).lines();
    assert_eq!((&held[0]["table"], &held[0]["holder"]), (&json!(NAME), &json!("backfill")));
    let again = place.run(&["hold", NAME, "--for", "1h"]).await.expect(0).out;
    assert!(again.starts_with("lake.ns.t is left alone until ") && again.contains("`afterwrite release lake.ns.t`"), "{again}");
    let head = table.head().await;
    let refused = place.run(&["compact", NAME]).await.expect(3);
    assert!(
        refused.err.contains("is held by backfill until ") && refused.err.contains("`afterwrite release lake.ns.t`"),
        "{}",
        refused.err
    );
    assert_eq!(table.head().await, head);
    // what writes nothing is not held
    place.run(&["compact", NAME, "--dry-run"]).await.expect(0);
    let released = place.run(&["release", NAME, "--holder", "backfill", "--json"]).await.expect(0).lines();
    assert_eq!(released, [json!({ "table": NAME, "released": ["backfill"] })]);
    assert!(place.run(&["compact", NAME]).await.expect(3).err.contains("held by the command line"));
    assert_eq!(place.run(&["release", NAME]).await.expect(0).out, "lake.ns.t is given back by the command line\n");
    assert_eq!(place.run(&["release", NAME]).await.expect(0).out, "lake.ns.t was not held\n");
    place.run(&["compact", NAME]).await.expect(0);
    assert!(place.run(&["hold", "pond.ns.t", "--for", "1h"]).await.expect(7).err.contains("no catalog `pond` is configured; known: lake"));
    place.run(&["hold", NAME, "--for", "0s"]).await.expect(2);
}

#[tokio::test]
async fn a_property_holds_back_what_is_asked_for_by_hand() {
    let place = Place::new("");
    let table = small(&place).await;
    table.set_property("afterwrite.hold-until", "2100-01-01T00:00:00Z").await;
    let refused = place.run(&["compact", NAME]).await.expect(3);
    assert!(refused.err.contains("until 2100-01-01T00:00:00Z, by the setting hold_until or the table property"), "{}", refused.err);
    table.set_property("afterwrite.hold-until", "2001-01-01T00:00:00Z").await;
    place.run(&["compact", NAME]).await.expect(0);
}

/// The hold comes between the proof and the commit: the first try loses to it.
#[tokio::test]
async fn a_compact_that_is_ready_when_its_table_is_held_commits_nothing_and_says_for_whom() {
    if over_rest().is_some() {
        return;
    }
    let place = Place::new("");
    let table = small(&place).await;
    let before = table.load().await.view.metadata_location;
    table.set_property("afterwrite.hold-until", "2100-01-01T00:00:00Z").await;
    let (rows, head, after) = (table.rows().await, table.head().await, table.load().await.view.metadata_location);
    overtake(&place, &before, &after).await;
    let ended = place.run(&["compact", NAME, "--json"]).await.expect(3);
    assert_eq!(ended.each("result")[0], "cancelled", "{}", ended.out);
    assert!(ended.err.contains("until 2100-01-01T00:00:00Z, by the setting hold_until or the table property"), "{}", ended.err);
    assert_eq!((table.head().await, table.rows().await), (head, rows));
    place.assert_settled().await;
}

#[tokio::test]
async fn serve_keeps_out_of_a_table_that_is_held_over_http_and_says_for_whom() {
    let place = Place::new(EAGER);
    let table = small(&place).await;
    place.run(&["pause", NAME]).await.expect(0);
    let serving = place.serve().await;
    let (status, told) = post(&serving, "/v1/hold", &json!({ "table": NAME, "for": "2h", "holder": "flink maintenance" })).await;
    assert_eq!((status, &told["table"]), (200, &json!(NAME)));
    let until_ms: i64 = told["until_ms"].as_str().unwrap().parse().unwrap();
    place.run(&["resume", NAME]).await.expect(0);
    place.run(&["report", NAME, "--server", &serving.grpc]).await.expect(0);
    let why = async || place.run(&["why", NAME, "p=7", "--server", &serving.grpc, "--json"]).await;
    let made = until("the decision", async || {
        let made = Some(why().await).filter(|w| w.code == Some(0))?.lines().remove(0);
        (made["reason"] == "hold").then_some(made)
    })
    .await;
    assert_eq!(made["until_ms"], json!(until_ms));
    assert!(made["detail"].as_str().unwrap().contains("held by flink maintenance"), "{made}");
    assert_eq!(table.load().await.loaded.metadata.snapshots().count(), 5);
    for (path, body, code, say) in [
        ("/v1/hold", json!({ "table": NAME, "for": "soon" }), 400, "no duration"),
        ("/v1/hold", json!({ "table": "t", "for": "1h" }), 400, "not a table name"),
        ("/v1/hold", json!({ "table": "pond.ns.t", "for": "1h" }), 404, "no catalog `pond`"),
        ("/v1/hold", json!({ "table": NAME, "for": "1h", "colour": 1 }), 400, "write for example"),
        ("/v1/hold", json!({ "table": NAME, "for": "0s" }), 400, "for how long"),
    ] {
        let (status, told) = post(&serving, path, &body).await;
        assert!(status == code && told["error"].as_str().is_some_and(|e| e.contains(say)), "{body}: {status} {told}");
    }
    let (status, told) = post(&serving, "/v1/release", &json!({ "table": NAME, "holder": "flink maintenance" })).await;
    assert_eq!((status, told), (200, json!({ "table": NAME, "released": 1 })));
    until("the rewrite", async || (table.load().await.loaded.metadata.snapshots().count() > 5).then_some(())).await;
    assert_eq!(serving.terminate().await, Some(0));
}
