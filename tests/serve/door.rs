//! The HTTP door, over a real server.

use std::io::Write as _;

use afterwrite::lake::Pointer;
use afterwrite::lake::clock::SystemClock;
use afterwrite::model::event::Door;
use afterwrite::observe::inbox::Limits;
use afterwrite::observe::{Entrance, Inbox, Roster, proxy};
use afterwrite::serve::Token;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::*;

struct World {
    running: Running,
    inbox: Inbox,
    heeded: Arc<proxy::Ledger>,
}

/// A server whose door leads to an inbox; the table `lake.db.t` is known at
/// `s3://wh/t`.
async fn world(options: Options, limits: Limits, catalogs: &[&str]) -> World {
    let inbox = Inbox::new(Arc::new(SystemClock), limits);
    let roster = Arc::new(Roster::new(catalogs.iter().map(|&c| c.to_owned())));
    let pointer = Pointer { name: TableName::new("lake", "db", "t"), metadata_location: "s3://wh/t/metadata/1.metadata.json".into() };
    roster.listed("lake", vec![pointer], 0);
    let catalogs = catalogs.iter().map(|&c| c.to_owned()).collect();
    let fake = Fake::new();
    let entrance = Entrance::new(inbox.clone(), roster, Arc::new(SystemClock), catalogs);
    let heeded = Arc::<proxy::Ledger>::default();
    entrance.set_heeds(heeded.clone());
    *fake.entrance.lock().unwrap() = Some(Arc::new(entrance));
    World { running: running(&fake, &options).await, inbox, heeded }
}

async fn open() -> World {
    world(options(), Limits { interval_ms: 0, ..Limits::default() }, &["lake", "pond"]).await
}

impl World {
    async fn post(&self, path: &str, headers: &str, body: &[u8]) -> (u16, String) {
        let mut stream = TcpStream::connect(self.running.http_addr().unwrap()).await.unwrap();
        let head = format!("POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n{headers}\r\n", body.len());
        stream.write_all(head.as_bytes()).await.unwrap();
        // a body that is refused may not be read to its end
        let _ = stream.write_all(body).await;
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        let text = String::from_utf8(answer).unwrap();
        (text.split(' ').nth(1).unwrap().parse().unwrap(), text.split_once("\r\n\r\n").unwrap().1.to_owned())
    }

    async fn say(&self, path: &str, body: &str) -> (u16, String) {
        self.post(path, "", body.as_bytes()).await
    }

    /// The tables marked since the last time, as catalog.namespace.table and snapshots.
    fn looks(&self) -> Vec<(String, Vec<i64>)> {
        let mut looks = Vec::new();
        while let Some(look) = self.inbox.try_next() {
            looks.push((look.name.to_string(), look.hints.clone()));
            self.inbox.done(look);
        }
        looks
    }

    /// received, accepted, duplicate, ignored, parked, dropped
    fn counts(&self, path: &str) -> [u64; 6] {
        let row = self.inbox.ledger().rows(0).into_iter().find(|r| r.door == Door::Http && r.source == path).unwrap();
        [row.received, row.accepted, row.duplicate, row.ignored, row.parked, row.dropped]
    }
}

#[tokio::test]
async fn our_own_event_is_answered_as_by_the_grpc_hook() {
    let world = open().await;
    let event = r#"{"table":"lake.db.t","snapshots":[{"snapshotId":"9007199254740993"}]}"#;
    assert_eq!(world.say("/v1/commits", event).await, (200, r#"{"reason":"","status":"accepted"}"#.into()));
    assert_eq!(world.say("/v1/commits", event).await.1, r#"{"reason":"","status":"duplicate"}"#);
    let unknown = world.say("/v1/commits", r#"{"table":"sea.db.t"}"#).await;
    assert_eq!(unknown, (404, r#"{"reason":"no catalog `sea` is configured; known catalogs: lake, pond","status":"rejected"}"#.into()));
    let audit = world.say("/v1/commits", r#"{"table":"lake.db.t","ref":"audit"}"#).await;
    assert_eq!(audit, (200, r#"{"reason":"branch `audit` is not looked after: only `main` is","status":"ignored"}"#.into()));
    let (status, why) = world.say("/v1/commits", r#"{"table":"t"}"#).await;
    assert_eq!((status, why.contains("`t` is not a table name")), (400, true));
    assert_eq!(world.say("/v1/commits", "x").await.0, 400);
    assert_eq!(world.looks(), [("lake.db.t".to_owned(), vec![9_007_199_254_740_993])]);
    assert_eq!(world.counts("/v1/commits"), [6, 1, 1, 0, 2, 2]);
}

#[tokio::test]
async fn a_list_is_answered_event_by_event() {
    let world = open().await;
    let (status, answers) = world.say("/v1/commits", r#" [{"table":"lake.db.t"},{"table":"x"},{"table":"pond.a.b.c"}]"#).await;
    let answers: Vec<serde_json::Value> = serde_json::from_str(&answers).unwrap();
    let statuses: Vec<&str> = answers.iter().map(|a| a["status"].as_str().unwrap()).collect();
    assert_eq!((status, statuses), (200, vec!["accepted", "rejected", "accepted"]));
    assert_eq!(world.say("/v1/commits", "[]").await, (200, "[]".into()));
}

#[tokio::test]
async fn others_callbacks_are_taken_at_their_own_paths_with_the_answer_that_they_expect() {
    let world = open().await;
    let report = r#"{"report-type":"commit-report","table-name":"prod.db.x","snapshot-id":7,"operation":"append","metrics":{}}"#;
    assert_eq!(world.say("/iceberg/v1/p/namespaces/db/tables/t/metrics?catalog=lake", report).await, (204, String::new()));
    assert_eq!(world.say("/iceberg/pond/v1/namespaces/a%1Fb/tables/t/metrics", report).await.0, 204);
    let notification = r#"{"notification-type":"UPDATE","payload":{"metadata-location":"http://127.0.0.1:1/x"}}"#;
    assert_eq!(world.say("/iceberg/lake/v1/namespaces/db/tables/u/notifications", notification).await.0, 200);
    let run = r#"{"eventType":"COMPLETE","outputs":[{"namespace":"s3://wh","name":"t","facets":{"version":{"datasetVersion":"8"}}}]}"#;
    assert_eq!(world.say("/api/v1/lineage", run).await.0, 201);
    let hudi = r#"{"commitTime":"1","basePath":"s3a://wh/t"}"#;
    assert_eq!(world.say("/hudi/callback", hudi).await.0, 200);
    let put =
        r#"{"Records":[{"eventName":"s3:ObjectCreated:Put","s3":{"bucket":{"name":"wh"},"object":{"key":"t/metadata/2.metadata.json"}}}]}"#;
    assert_eq!(world.say("/minio/webhook", put).await, (200, r#"{"accepted":1,"dropped":[],"duplicate":0}"#.into()));
    assert_eq!(world.say("/s3/events", put).await.0, 200);
    let trino = r#"{"metadata":{"queryState":"FINISHED"},"ioMetadata":{"output":{"catalogName":"pond","schema":"db","table":"v"}}}"#;
    assert_eq!(world.say("/trino/events", trino).await.0, 200);
    let polaris = r#"{"event_type":"AFTER_UPDATE_TABLE","catalog_name":"prod","namespace":["db"],"table_name":"w"}"#;
    assert_eq!(world.say("/polaris/events?catalog=lake", polaris).await.0, 200);
    let cloud = b"{\"updates\":[]}";
    let headers = "ce-type: updateTable\r\nce-name: z\r\nce-namespace: db\r\n";
    assert_eq!(world.post("/cloudevents?catalog=pond", headers, cloud).await.0, 200);
    let mut looks = world.looks();
    looks.sort();
    let plain = |name: &str| (name.to_owned(), vec![]);
    assert_eq!(
        looks,
        [
            ("lake.db.t".to_owned(), vec![7, 8]),
            plain("lake.db.u"),
            plain("lake.db.w"),
            ("pond.a.b.t".to_owned(), vec![7]),
            plain("pond.db.v"),
            plain("pond.db.z")
        ]
    );
}

#[tokio::test]
async fn a_report_of_a_scan_is_no_commit_and_weighs_its_tables_workload() {
    let world = open().await;
    let scan = r#"{"report-type":"scan-report","table-name":"prod.db.x","snapshot-id":7,"filter":true,"schema-id":0,"metrics":{"result-data-files":{"unit":"count","value":3},"total-file-size-in-bytes":{"unit":"bytes","value":70}}}"#;
    for _ in 0..2 {
        assert_eq!(world.say("/iceberg/lake/v1/namespaces/db/tables/t/metrics", scan).await, (204, String::new()));
    }
    assert_eq!(world.say("/iceberg/v1/namespaces/db/tables/t/metrics?catalog=sea", scan).await.0, 204);
    let commit = r#"{"report-type":"commit-report","table-name":"prod.db.x","snapshot-id":7,"operation":"append","metrics":{}}"#;
    assert_eq!(world.say("/iceberg/lake/v1/namespaces/db/tables/t/metrics", commit).await.0, 204);
    let scans = world.heeded.scans(&TableName::new("lake", "db", "t"));
    assert_eq!((scans.count, scans.files, scans.bytes), (2, 6, 140));
    assert_eq!(world.heeded.scans(&TableName::new("sea", "db", "t")).count, 0);
    assert_eq!(world.counts("/iceberg/metrics"), [4, 1, 0, 3, 0, 0]);
    assert_eq!(world.looks(), [("lake.db.t".to_owned(), vec![7])]);
}

#[tokio::test]
async fn what_is_about_nothing_of_ours_is_answered_as_a_success_and_counted() {
    let world = open().await;
    let hudi = r#"{"commitTime":"1","basePath":"s3://other/t"}"#;
    let (status, answer) = world.say("/hudi/callback", hudi).await;
    assert_eq!((status, answer), (200, r#"{"accepted":0,"dropped":["no known table lies at `s3://other/t`"],"duplicate":0}"#.into()));
    let polaris = r#"{"event_type":"AFTER_UPDATE_TABLE","catalog_name":"prod","namespace":["db"],"table_name":"w"}"#;
    let (status, answer) = world.say("/polaris/events", polaris).await;
    assert!(
        status == 200 && answer.contains("which catalog's table it is, is not said (the event says `prod`): set `catalog`"),
        "{answer}"
    );
    assert_eq!(world.say("/api/v1/lineage", r#"{"eventType":"START"}"#).await.0, 201);
    assert_eq!(world.say("/trino/events", "{}").await.0, 400);
    assert_eq!(world.counts("/hudi/callback"), [1, 0, 0, 0, 0, 1]);
    assert_eq!(world.counts("/polaris/events"), [1, 0, 0, 0, 0, 1]);
    assert_eq!(world.counts("/api/v1/lineage"), [1, 0, 0, 1, 0, 0]);
    assert_eq!(world.counts("/trino/events"), [1, 0, 0, 0, 1, 0]);
    assert_eq!(world.looks(), []);
}

#[tokio::test]
async fn bodies_are_bounded_and_may_be_gzipped() {
    let world = world(Options { max_message_bytes: 1000, ..options() }, Limits::default(), &["lake"]).await;
    let run = r#"{"eventType":"COMPLETE","outputs":[{"namespace":"s3://wh","name":"t"}]}"#;
    let gzip = |plain: &[u8]| {
        let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        packer.write_all(plain).unwrap();
        packer.finish().unwrap()
    };
    let packed = "Content-Encoding: gzip\r\n";
    assert_eq!(world.post("/api/v1/lineage", packed, &gzip(run.as_bytes())).await.0, 201);
    assert_eq!(world.looks().len(), 1);
    assert_eq!(world.post("/api/v1/lineage", packed, &gzip(&[b' '; 5000])).await.0, 400);
    assert_eq!(world.post("/api/v1/lineage", "", &[b' '; 5000]).await.0, 413);
    assert_eq!(world.counts("/api/v1/lineage"), [3, 1, 0, 0, 2, 0]);
}

#[tokio::test]
async fn a_full_inbox_asks_the_sender_to_try_later() {
    let world = world(options(), Limits { max_tables: 1, ..Limits::default() }, &["lake"]).await;
    assert_eq!(world.say("/v1/commits", r#"{"table":"lake.db.a"}"#).await.0, 200);
    let (status, answer) = world.say("/v1/commits", r#"{"table":"lake.db.b"}"#).await;
    assert!(status == 503 && answer.contains("retry-later"), "{answer}");
    assert_eq!(world.say("/hudi/callback", r#"{"commitTime":"1","basePath":"s3://wh/t"}"#).await.0, 503);
}

#[tokio::test]
async fn the_door_asks_for_the_token_and_metrics_do_not() {
    let token = Token::new("s3cret");
    let world = world(Options { token, ..options() }, Limits::default(), &["lake"]).await;
    let event = br#"{"table":"lake.db.t"}"#;
    for headers in ["", "Authorization: Bearer wrong\r\n", "Authorization: s3cret\r\n"] {
        let (status, answer) = world.post("/v1/commits", headers, event).await;
        assert!(status == 401 && answer.starts_with("{\"error\":\""), "{answer}");
    }
    assert_eq!(world.looks(), []);
    assert_eq!(world.post("/v1/commits", "Authorization: Bearer s3cret\r\n", event).await.0, 200);
    assert_eq!(world.looks().len(), 1);
    assert_eq!(world.post("/metrics", "", b"").await.0, 405);
}

#[tokio::test]
async fn every_source_is_listed_over_grpc() {
    let world = open().await;
    world.say("/v1/commits", r#"{"table":"lake.db.t"}"#).await;
    world.say("/hudi/callback", "x").await;
    let mut client = layouts(&world.running).await;
    let doors = client.list_doors(v1::ListDoorsRequest {}).await.unwrap().into_inner().doors;
    let row = |d: &v1::Door| (d.door.clone(), d.source.clone(), d.received, d.accepted, d.parked, d.lag, d.examples.len());
    assert_eq!(
        doors.iter().map(row).collect::<Vec<_>>(),
        [("http".into(), "/hudi/callback".into(), 1, 0, 1, Some(0), 1), ("http".into(), "/v1/commits".into(), 1, 1, 0, Some(1), 0)]
    );
    assert!(doors[1].staleness_ms.is_some_and(|ms| ms < 60_000), "{:?}", doors[1].staleness_ms);
    assert!(doors[0].examples[0].reason.starts_with("not a readable hudi event: "));
    let mut hook = hook(&world.running).await;
    assert!(hook.report_commit(thin("")).await.is_err());
    assert!(hook.report_commit(thin("sea.db.t")).await.is_err());
    let doors = client.list_doors(v1::ListDoorsRequest {}).await.unwrap().into_inner().doors;
    assert_eq!((doors[0].door.as_str(), doors[0].received, doors[0].parked, doors[0].dropped), ("grpc", 2, 1, 1));
}

#[tokio::test]
async fn fields_that_are_not_known_are_named_in_the_answer() {
    let world = open().await;
    let (status, answer) = world
        .post(
            "/v1/commits",
            "",
            br#"{ "table": "lake.db.t", "tabel_uuid": "x", "snapshots": [{ "snapshotId": 5, "operation": "append" }] }"#,
        )
        .await;
    let expected = serde_json::json!({ "status": "accepted", "reason": "", "ignored": ["tabel_uuid", "snapshots.operation"] });
    assert_eq!((status, serde_json::from_str::<serde_json::Value>(&answer).unwrap()), (200, expected));
    let (_, answer) = world.post("/v1/commits", "", br#"{ "table": "lake.db.t" }"#).await;
    assert_eq!(answer, r#"{"reason":"","status":"accepted"}"#);
}
