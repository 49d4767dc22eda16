//! A `serve` at work, as seen from outside.

use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tonic::Code;
use tonic::transport::Endpoint;

use super::{NAME, small};
use crate::fixture::process::{Place, Serving, local};
use crate::fixture::row;
use crate::serve::hostile::send_raw;

/// Never polls again, so that what is seen came from an event.
const DEAF: &str = "[poll]\nmin = \"1h\"\nmax = \"1h\"\n[defaults]\ncooldown = \"0s\"\ntier_files = 2\nqueue_min_reduction = 1\n";

async fn metrics(serving: &Serving) -> String {
    let address = serving.http.trim_start_matches("http://");
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").as_bytes()).await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    text
}

async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    for _ in 0..600 {
        if is_so().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{what} did not come about");
}

#[tokio::test]
async fn what_is_only_advised_is_counted_in_the_metrics() {
    let place = Place::new(DEAF);
    let table = small(&place).await;
    let serving = place.serve().await;
    let has = async |line: &str| metrics(&serving).await.lines().any(|l| l == line);
    until("the advice on p=7", async || has("afterwrite_candidates{act=\"false\"} 1").await).await;
    assert!(has("afterwrite_candidate_files{act=\"false\"} 2").await, "{}", metrics(&serving).await);
    assert!(has("afterwrite_candidates{act=\"true\"} 0").await, "{}", metrics(&serving).await);
    assert_eq!(table.load().await.loaded.metadata.snapshots().count(), 5);
    assert_eq!(serving.terminate().await, Some(0));
}

/// What a command does beside `serve`, on the same journal.
#[tokio::test]
async fn bytes_that_old_snapshots_keep_alive_and_what_a_command_spent_are_in_the_metrics() {
    let place = Place::new(DEAF);
    small(&place).await;
    let serving = place.serve().await;
    let value = async |name: &str| {
        let text = metrics(&serving).await;
        text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok()).unwrap_or(0)
    };
    assert_eq!(value("afterwrite_budget_spent_gb_hour_millionths_total ").await, 0);
    let rows = place.run(&["compact", NAME, "--json"]).await.expect(0);
    let committed = rows.lines().into_iter().filter(|row| row["result"] == "committed");
    let replaced: u64 = committed.map(|row| row["bytes_in"].as_u64().unwrap()).sum();
    assert!(replaced > 0, "{}", rows.out);
    until("the bytes kept alive", async || value("afterwrite_replaced_bytes_kept_alive ").await == replaced).await;
    until("the command's cost", async || value("afterwrite_budget_spent_gb_hour_millionths_total ").await > 0).await;
    assert_eq!(serving.terminate().await, Some(0));
}

/// Garbage, messages of 10 MB and tables that do not exist, again and again, beside
/// the commits of a table that is compacted.
#[tokio::test]
async fn hostile_messages_disturb_no_table_under_work() {
    let place = Place::new(&format!("{DEAF}act = true\n"));
    let table = small(&place).await;
    // a writer of the fixtures does not try again: ours begins when all is there
    place.run(&["pause", NAME]).await.expect(0);
    let serving = place.serve().await;
    let channel = Endpoint::from_shared(serving.grpc.clone()).unwrap().connect().await.unwrap();
    let large = {
        let name = "x".repeat(10 << 20);
        let mut message = vec![0x0a, 0x80, 0x80, 0x80, 0x05];
        message.extend(name.as_bytes());
        Bytes::from(message)
    };
    for n in 0..6 {
        table.append([row(100 + n, "new", 9)]).await;
    }
    place.run(&["resume", NAME]).await.expect(0);
    let hostile = async || {
        for garbage in [&b"\xff\xff\xff\xff"[..], b"\x0a\x7f", b"\x0a\x02\xff\xfe"] {
            let refused = send_raw(channel.clone(), Bytes::from_static(garbage)).await.unwrap_err();
            assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
        }
        assert_eq!(send_raw(channel.clone(), large.clone()).await.unwrap_err().code(), Code::ResourceExhausted);
        let gone = place.run(&["report", "lake.ns.gone", "--server", &serving.grpc]).await;
        assert!(matches!(gone.code, Some(0 | 7)), "{gone:?}");
    };
    hostile().await;
    place.run(&["report", NAME, "--server", &serving.grpc]).await.expect(0);
    until("the rewrite of p=9", async || {
        hostile().await;
        let shown = place.run(&["inspect", NAME, "--json"]).await.expect(0).lines();
        shown[3]["traits"]["data_files"] == 1
    })
    .await;
    let mut expected: Vec<String> = (100..106).map(|id| format!("{id}|new|9")).collect();
    expected.extend(["2|b|7", "3|c|7", "4|d|7", "5|e|8"].map(str::to_owned));
    assert_eq!(table.rows().await, expected);
    assert_eq!(serving.terminate().await, Some(0));
    place.assert_settled().await;
}

#[tokio::test]
async fn a_table_that_is_damaged_after_it_was_known_is_told_as_refused() {
    let place = Place::new(DEAF);
    let table = small(&place).await;
    let serving = place.serve().await;
    let why = async || place.run(&["why", NAME, "--server", &serving.grpc]).await;
    until("the first decisions", async || why().await.code == Some(0)).await;
    table.append([row(50, "new", 9)]).await;
    let metadata = table.load().await.loaded.metadata;
    let manifests = local(metadata.current_snapshot().unwrap().manifest_list());
    let whole = std::fs::read(&manifests).unwrap();
    std::fs::write(&manifests, &whole[..whole.len() / 2]).unwrap();
    place.run(&["report", NAME, "--server", &serving.grpc]).await.expect(0);
    until("the refusal", async || why().await.code == Some(3)).await;
    let told = why().await;
    assert!(told.err.contains("refused (damaged): "), "{}", told.err);
    // and the decisions are back with the file
    std::fs::write(&manifests, &whole).unwrap();
    table.append([row(51, "new", 9)]).await;
    place.run(&["report", NAME, "--server", &serving.grpc]).await.expect(0);
    until("the decisions", async || why().await.code == Some(0)).await;
    assert_eq!(serving.terminate().await, Some(0));
}
