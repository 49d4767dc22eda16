//! What is heard of requests that are no commits.

use afterwrite::model::ident::TableName;
use serde_json::json;

use super::Stage;
use super::upstream::{Reply, append};

const NO_CONTENT: &str = "HTTP/1.1 204 No Content\r\n\r\n";

fn t() -> TableName {
    TableName::new("lake", "db", "t")
}

#[tokio::test]
async fn created_registered_renamed_and_dropped_tables_are_looked_at() {
    let stage = Stage::new(500).await;
    let tables = "/v1/namespaces/db/tables";
    stage.world.script(tables, vec![Reply::json(200, &json!({}))]);
    stage.world.script("/v1/namespaces/db/register", vec![Reply::json(200, &json!({}))]);
    stage.world.script("/v1/tables/rename", vec![Reply::raw(NO_CONTENT)]);
    stage.ask("POST", tables, &[], br#"{"name":"made","schema":{}}"#).await.unwrap();
    stage.ask("POST", tables, &[], br#"{"name":"staged","stage-create":true}"#).await.unwrap();
    stage.ask("POST", "/v1/namespaces/db/register", &[], br#"{"name":"there","metadata-location":"m"}"#).await.unwrap();
    let rename = br#"{"source":{"namespace":["db"],"name":"old"},"destination":{"namespace":["db","x"],"name":"new"}}"#;
    stage.ask("POST", "/v1/tables/rename", &[], rename).await.unwrap();
    stage.ask("DELETE", "/v1/namespaces/db/tables/gone?purgeRequested=true", &[], b"").await.unwrap();
    let heard: Vec<String> = stage.heard().into_iter().map(|(name, _)| name).collect();
    assert_eq!(heard, ["lake.db.gone@main", "lake.db.made@main", "lake.db.old@main", "lake.db.there@main", "lake.db.x.new@main"]);
}

#[tokio::test]
async fn what_was_refused_is_not_heard() {
    let stage = Stage::new(500).await;
    stage.world.script("/v1/namespaces/db/tables", vec![Reply::json(409, &json!({}))]);
    stage.world.script("/v1/namespaces/db/tables/t", vec![Reply::json(403, &json!({}))]);
    stage.ask("POST", "/v1/namespaces/db/tables", &[], br#"{"name":"made"}"#).await.unwrap();
    stage.ask("DELETE", "/v1/namespaces/db/tables/t", &[], b"").await.unwrap();
    stage.commit("/v1/namespaces/db/tables/t", &append(Some(1), &[2]).to_string()).await.unwrap();
    assert_eq!(stage.heard(), []);
}

#[tokio::test]
async fn reports_are_hints_scans_are_counted_and_loads_remembered() {
    let stage = Stage::new(500).await;
    let metrics = "/v1/namespaces/db/tables/t/metrics";
    stage.world.script(metrics, vec![Reply::raw(NO_CONTENT)]);
    stage.world.script("/v1/namespaces/db/tables/t/plan", vec![Reply::json(200, &json!({}))]);
    let commit = br#"{"report-type":"commit-report","table-name":"other.x.y","snapshot-id":7,"metrics":{"added-data-files":{"value":2}}}"#;
    stage.ask("POST", metrics, &[], commit).await.unwrap();
    assert_eq!(stage.heard(), [("lake.db.t@main".to_owned(), vec![7])]);
    let scan = br#"{"report-type":"scan-report","snapshot-id":7,"metrics":{"result-data-files":{"value":3},"total-file-size-in-bytes":{"value":90}}}"#;
    stage.ask("POST", metrics, &[], scan).await.unwrap();
    stage.ask("POST", "/v1/namespaces/db/tables/t/plan", &[], b"{}").await.unwrap();
    let scans = stage.ledger.scans(&t());
    assert_eq!((scans.count, scans.files, scans.bytes), (2, 3, 90));
    assert_eq!(stage.heard(), []);
    assert_eq!(stage.ledger.last_load_ms(&t()), None);
    stage.ask("GET", "/v1/namespaces/db/tables/t", &[], b"").await.unwrap();
    assert!(stage.ledger.last_load_ms(&t()).is_some());
}

#[tokio::test]
async fn a_report_that_cannot_be_read_passes() {
    let stage = Stage::new(500).await;
    let metrics = "/v1/namespaces/db/tables/t/metrics";
    stage.world.script(metrics, vec![Reply::raw(NO_CONTENT)]);
    for body in ["", "{", "[1]", r#"{"report-type":7}"#] {
        assert_eq!(stage.ask("POST", metrics, &[], body.as_bytes()).await.unwrap().status, 204);
    }
    let large = vec![b' '; 3 << 20];
    assert_eq!(stage.ask("POST", metrics, &[], &large).await.unwrap().status, 204);
    assert_eq!(stage.heard(), []);
}

#[tokio::test]
async fn a_commit_to_a_branch_that_nobody_looks_after_is_no_event() {
    let stage = Stage::new(500).await;
    stage.world.script("/v1/namespaces/db/tables/t", vec![Reply::json(200, &json!({}))]);
    let mut body = append(Some(1), &[2]);
    for update in body["updates"].as_array_mut().unwrap() {
        if update["action"] == "set-snapshot-ref" {
            update["ref-name"] = json!("audit");
        }
    }
    stage.commit("/v1/namespaces/db/tables/t", &body.to_string()).await.unwrap();
    assert_eq!(stage.heard(), []);
    assert_eq!(stage.ledger.races(&t(), "audit", 1).len(), 1);
    let door = stage.inbox.ledger().rows(0).remove(0);
    assert_eq!((door.received, door.dropped, door.examples[0].reason.as_str()), (1, 1, "branch `audit` is not looked after"));
}
