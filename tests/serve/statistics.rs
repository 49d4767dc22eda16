//! What other systems tell, and `why`, over gRPC and over HTTP.

use afterwrite::cli::show;
use afterwrite::model::outside::Stat;
use afterwrite::proto::v1::statistics_client::StatisticsClient;
use afterwrite::serve::{Token, decision_message};
use serde_json::{Value as Json, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tonic::Code;

use super::*;

async fn call(running: &Running, request: &str, headers: &str, body: &str) -> (u16, Json) {
    let mut stream = TcpStream::connect(running.http_addr().unwrap()).await.unwrap();
    let head = format!(
        "{request} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {}\r\n{headers}\r\n{body}",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    let status = text.split(' ').nth(1).unwrap().parse().unwrap();
    (status, serde_json::from_str(text.split_once("\r\n\r\n").unwrap().1).unwrap_or(Json::Null))
}

async fn client(running: &Running) -> StatisticsClient<Channel> {
    StatisticsClient::new(channel(running).await)
}

fn scope(partition: &str, read_rate: f64) -> v1::ScopeStatistics {
    v1::ScopeStatistics { partition: partition.into(), read_rate: Some(read_rate), ..v1::ScopeStatistics::default() }
}

#[tokio::test]
async fn numbers_are_told_the_same_over_grpc_and_http() {
    let fake = Fake::new();
    let running = running(&fake, &options()).await;
    let scopes = vec![v1::ScopeStatistics { quota_used: Some(0.5), ..scope("", 3.0) }, scope("a=1", 4.0)];
    let told = v1::TellStatisticsRequest { table: "lake.db.t".into(), path: None, scopes, ttl_seconds: 60 };
    let answer = client(&running).await.tell_statistics(told).await.unwrap().into_inner();
    assert_eq!((answer.taken, answer.unknown), (2, vec!["gone".to_owned()]));
    let body = json!({
        "table": "lake.db.t", "ttl_seconds": 60,
        "scopes": [{ "quota_used": 0.5, "read_rate": 3.0 }, { "partition": "a=1", "read_rate": 4 }],
    });
    let answer = call(&running, "POST /v1/statistics", "", &body.to_string()).await;
    assert_eq!(answer, (200, json!({ "taken": 2, "unknown": ["gone"] })));
    let told = fake.told.lock().unwrap().clone();
    let expected = [
        (Tells { partition: String::new(), stats: vec![(Stat::QuotaUsed, 0.5), (Stat::ReadRate, 3.0)] }, 61_234),
        (Tells { partition: "a=1".into(), stats: vec![(Stat::ReadRate, 4.0)] }, 61_234),
    ];
    assert_eq!((&told[..2], &told[2..]), (&expected[..], &expected[..]));
}

#[tokio::test]
async fn what_cannot_be_taken_is_refused_whole_and_says_why() {
    let fake = Fake::new();
    let running = running(&fake, &options()).await;
    let mut client = client(&running).await;
    let ask = |table: &str, scope: v1::ScopeStatistics, ttl_seconds| v1::TellStatisticsRequest {
        table: table.into(),
        path: None,
        scopes: vec![self::scope("", 1.0), scope],
        ttl_seconds,
    };
    for (table, scope, ttl, code, why) in [
        ("lake.db.t", scope("", -1.0), 0, Code::InvalidArgument, "read_rate: -1 is no amount"),
        ("lake.db.t", scope("", f64::NAN), 0, Code::InvalidArgument, "read_rate: NaN"),
        ("lake.db.t", v1::ScopeStatistics::default(), 0, Code::InvalidArgument, "no number is told"),
        ("lake.db.t", scope("", 1.0), u64::MAX, Code::InvalidArgument, "ttl_seconds"),
        ("lake.db.x", scope("", 1.0), 0, Code::NotFound, "no table"),
        ("sea.db.t", scope("", 1.0), 0, Code::NotFound, "no catalog `sea`"),
        ("t", scope("", 1.0), 0, Code::InvalidArgument, ""),
    ] {
        let status = client.tell_statistics(ask(table, scope, ttl)).await.unwrap_err();
        assert_eq!(status.code(), code, "{table} {}", status.message());
        assert!(status.message().contains(why), "{}", status.message());
    }
    assert_eq!(fake.told.lock().unwrap().len(), 0);
    for (body, status, why) in [
        ("{}", 400, "missing field `table`"),
        (r#"{"table":"lake.db.t","scopes":[{"reads":1}]}"#, 400, "unknown field `reads`"),
        (r#"{"table":"lake.db.t","scopes":[{}]}"#, 400, "no number is told"),
        (r#"{"table":"lake.db.x","scopes":[{"read_rate":1}]}"#, 404, "no table"),
        ("no json", 400, ""),
    ] {
        let (found, said) = call(&running, "POST /v1/statistics", "", body).await;
        assert_eq!(found, status, "{body}: {said}");
        assert!(said["error"].as_str().unwrap().contains(why), "{said}");
    }
}

#[tokio::test]
async fn what_a_cluster_has_free_is_told_over_both_where_it_is_asked_for() {
    let running = running(&Fake::new(), &options()).await;
    let mut client = client(&running).await;
    let free = |free_gb, ttl_seconds| v1::TellCapacityRequest { free_gb, ttl_seconds };
    assert_eq!(client.tell_capacity(free(8.0, 0)).await.unwrap().into_inner().gb_hours_per_hour, 4.0);
    assert_eq!(client.tell_capacity(free(8.0, 1000)).await.unwrap_err().code(), Code::FailedPrecondition);
    assert_eq!(client.tell_capacity(free(-1.0, 0)).await.unwrap_err().code(), Code::InvalidArgument);
    assert_eq!(call(&running, "POST /v1/capacity", "", r#"{"free_gb":8}"#).await, (200, json!({ "gb_hours_per_hour": 4.0 })));
    assert_eq!(call(&running, "POST /v1/capacity", "", r#"{"free_gb":8,"ttl_seconds":1000}"#).await.0, 409);
}

#[tokio::test]
async fn why_is_answered_over_http_as_the_command_line_tells_it() {
    let running = running(&Fake::new(), &options()).await;
    let (status, all) = call(&running, "GET /v1/why?table=lake.db.t", "", "").await;
    assert_eq!((status, all["decisions"].as_array().unwrap().len()), (200, 3));
    let (_, one) = call(&running, "GET /v1/why?table=lake.db.t&partition=2", "", "").await;
    let told: Json = serde_json::from_str(&show::decisions_json(&[decision_message(&explained(2))])).unwrap();
    assert_eq!(one["decisions"], json!([told]));
    for (path, expected) in
        [("?table=lake.db.x", 404), ("?table=lake.db.v3", 409), ("?table=lake.db.down", 503), ("?table=t", 400), ("", 400)]
    {
        let (status, said) = call(&running, &format!("GET /v1/why{path}"), "", "").await;
        assert_eq!(status, expected, "{path}: {said}");
        assert!(!said["error"].as_str().unwrap().is_empty());
    }
}

#[tokio::test]
async fn the_token_is_asked_of_all_of_it() {
    let options = Options { token: Token::new("s3cret"), ..options() };
    let running = running(&Fake::new(), &options).await;
    for request in ["GET /v1/why?table=lake.db.t", "POST /v1/capacity", "POST /v1/statistics"] {
        assert_eq!(call(&running, request, "", "{}").await.0, 401, "{request}");
    }
    assert_eq!(call(&running, "GET /v1/why?table=lake.db.t", "Authorization: Bearer s3cret\r\n", "").await.0, 200);
    let status = client(&running).await.tell_capacity(v1::TellCapacityRequest::default()).await.unwrap_err();
    assert_eq!(status.code(), Code::Unauthenticated);
}
