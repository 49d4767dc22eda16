use std::time::Duration;

use afterwrite::proto::v1::watch_decisions_response::Item;
use afterwrite::proto::v1::{self, decision};
use afterwrite::serve::client::{Client, Target};
use tonic::Code;

use super::*;

fn ask(table: &str) -> v1::GetLayoutRequest {
    v1::GetLayoutRequest { table: table.into(), ..v1::GetLayoutRequest::default() }
}

#[tokio::test]
async fn a_layout_names_its_snapshot_exactly() {
    let fake = Fake::new();
    let running = running(&fake, &options()).await;
    let layout = layouts(&running).await.get_layout(ask("lake.db.t")).await.unwrap().into_inner();
    assert_eq!((layout.table.as_str(), layout.r#ref.as_str(), layout.snapshot_id.as_str()), ("lake.db.t", "main", "9007199254740993"));
    let traits = layout.traits.unwrap();
    assert_eq!((traits.data_files, traits.small_file_count, traits.quiet_for_ms, traits.known_since_ms), (5000, 4000, Some(0), None));
    assert_eq!(traits.small_tiers.len(), 12);
}

#[tokio::test]
async fn every_failure_has_its_own_status() {
    let fake = Fake::new();
    let running = running(&fake, &options()).await;
    let mut layouts = layouts(&running).await;
    let mut codes = Vec::new();
    for table in ["lake.db.x", "lake.db.v3", "lake.db.down", "sea.db.t", "t", ""] {
        codes.push(layouts.get_layout(ask(table)).await.unwrap_err().code());
    }
    assert_eq!(
        codes,
        [Code::NotFound, Code::FailedPrecondition, Code::Unavailable, Code::NotFound, Code::InvalidArgument, Code::InvalidArgument]
    );
}

#[tokio::test]
async fn pages_cover_every_partition_once() {
    let fake = Fake::new();
    let running = running(&fake, &options()).await;
    let mut layouts = layouts(&running).await;
    let mut ask = v1::ListPartitionsRequest { table: "lake.db.t".into(), ..v1::ListPartitionsRequest::default() };
    let (mut seen, mut sizes) = (Vec::new(), Vec::new());
    loop {
        let page = layouts.list_partitions(ask.clone()).await.unwrap().into_inner();
        sizes.push(page.partitions.len());
        seen.extend(page.partitions.into_iter().map(|p| p.partition.unwrap().label));
        if page.next_page_token.is_empty() {
            break;
        }
        ask.page_token = page.next_page_token;
    }
    assert_eq!(sizes, [100, 100, 50]);
    assert_eq!(seen, (0..250).map(|at| format!("field0={at}")).collect::<Vec<_>>());
    ask.page_token = "nonsense".into();
    assert_eq!(layouts.list_partitions(ask).await.unwrap_err().code(), Code::InvalidArgument);
}

#[tokio::test]
async fn candidates_are_limited() {
    let fake = Fake::new();
    let running = running(&fake, &options()).await;
    let found = layouts(&running).await.list_candidates(v1::ListCandidatesRequest { limit: 2 }).await.unwrap().into_inner();
    let rows: Vec<_> = found.candidates.iter().map(|c| (c.table.as_str(), c.gain, c.gb_hours)).collect();
    assert_eq!(rows, [("lake.db.t", 12, 0.25), ("lake.db.t", 12, 0.25)]);
    let beside: Vec<_> = found.candidates.iter().map(|c| (c.tenant.as_str(), c.on_front && c.chosen, c.urgent)).collect();
    assert_eq!(beside, [("sales", true, true); 2]);
}

#[tokio::test]
async fn the_backlog_is_told_with_every_number() {
    let fake = Fake::new();
    let running = running(&fake, &options()).await;
    let target = Target { server: format!("http://{}", running.grpc_addr()), token: None, ca: None };
    let told = Client::connect(&target).await.unwrap().backlog().await.unwrap();
    let row = v1::BacklogRow {
        tenant: "sales".into(),
        act: true,
        candidates: 3,
        urgent: 2,
        review: 1,
        oldest_ms: 4,
        files: 5,
        bytes: 6,
        gb_hours: 7.0,
        bytes_per_hour: 8.0,
        drain_seconds: Some(9.0),
        cost: 10.0,
        available_gb_hours: Some(11.0),
    };
    let expected = v1::GetBacklogResponse { rows: vec![row, v1::BacklogRow::default()], available_gb_hours: 12.0, currency: "USD".into() };
    assert_eq!(told, expected);
}

#[tokio::test]
async fn why_gives_every_number_and_the_reason() {
    let fake = Fake::new();
    let running = running(&fake, &options()).await;
    let target = Target { server: format!("http://{}", running.grpc_addr()), token: None, ca: None };
    let client = Client::connect(&target).await.unwrap();
    assert_eq!(client.why("lake.db.t", "").await.unwrap().len(), 3);
    let found = client.why("lake.db.t", "field0=1").await.unwrap();
    let [made] = found.as_slice() else { panic!("one partition was asked for: {found:?}") };
    assert_eq!((made.verdict(), made.reason.as_str(), made.gain, made.gb_hours), (decision::Verdict::Now, "small-files", 12, 0.5));
    assert_eq!((made.snapshot_id.as_str(), made.table_uuid.as_str()), ("9007199254740993", "00000000-0000-0000-0000-000000000007"));
    assert_eq!((made.checks[0].value, made.checks[0].threshold, made.checks[0].note.as_str()), (13.0, 8.0, "small files in tier 4"));
}

#[tokio::test]
async fn decisions_are_watched_as_they_are_made_of_one_table_or_all() {
    let fake = Fake::new();
    let running = running(&fake, &options()).await;
    let mut layouts = layouts(&running).await;
    let mut all = layouts.watch_decisions(v1::WatchDecisionsRequest::default()).await.unwrap().into_inner();
    let mut other = layouts.watch_decisions(v1::WatchDecisionsRequest { table: "lake.db.other".into() }).await.unwrap().into_inner();
    fake.decisions.send(Arc::new(explained(5))).unwrap();
    let Some(Item::Decision(made)) = all.message().await.unwrap().unwrap().item else { panic!("a decision was sent") };
    assert_eq!(made.partition.unwrap().label, "field0=5");
    let mut theirs = explained(6);
    theirs.decision.name = TableName::new("lake", "db", "other");
    fake.decisions.send(Arc::new(theirs)).unwrap();
    let Some(Item::Decision(made)) = other.message().await.unwrap().unwrap().item else { panic!("a decision was sent") };
    assert_eq!(made.partition.unwrap().label, "field0=6");
}

#[tokio::test]
async fn a_slow_watcher_is_told_how_many_it_missed_and_holds_nobody_up() {
    let fake = Fake::new();
    let running = running(&fake, &options()).await;
    let mut watched = layouts(&running).await.watch_decisions(v1::WatchDecisionsRequest::default()).await.unwrap().into_inner();
    // far more than the connection's window takes without the client reading
    let mut sent = 0_u64;
    for at in 0..20_000 {
        fake.decisions.send(Arc::new(explained(at))).unwrap();
        sent += 1;
        if at % 100 == 0 {
            tokio::time::sleep(Duration::from_micros(100)).await;
        }
    }
    let (mut decisions, mut missed) = (0_u64, 0_u64);
    while decisions + missed < sent {
        match tokio::time::timeout(LONG, watched.message()).await.unwrap().unwrap().unwrap().item {
            Some(Item::Decision(_)) => decisions += 1,
            Some(Item::Missed(count)) => missed += count,
            None => panic!("an empty item"),
        }
    }
    assert_eq!(decisions + missed, sent, "every decision is sent or counted as missed");
    assert!(missed > 0);
}

#[tokio::test]
async fn a_drain_lets_a_call_under_way_finish_ends_the_streams_and_takes_no_new_call() {
    let fake = Fake::new();
    let gate = Arc::new(tokio::sync::Notify::new());
    *fake.gate.lock().unwrap() = Some(gate.clone());
    let running = running(&fake, &options()).await;
    let mut client = layouts(&running).await;
    let mut watched = client.watch_decisions(v1::WatchDecisionsRequest::default()).await.unwrap().into_inner();
    let addr = running.grpc_addr();
    let call = tokio::spawn({
        let mut client = client.clone();
        async move { client.get_layout(ask("lake.db.t")).await }
    });
    fake.entered.notified().await;
    let drained = tokio::spawn(running.drain(LONG));
    assert_eq!(tokio::time::timeout(LONG, watched.message()).await.unwrap().unwrap(), None, "the stream ends");
    assert!(!drained.is_finished());
    assert!(Channel::from_shared(format!("http://{addr}")).unwrap().connect().await.is_err(), "nobody listens any more");
    gate.notify_one();
    assert_eq!(call.await.unwrap().unwrap().into_inner().partitions, 250);
    assert!(tokio::time::timeout(LONG, drained).await.unwrap().unwrap(), "everything finished");
}

#[tokio::test]
async fn a_drain_does_not_wait_for_ever() {
    let fake = Fake::new();
    *fake.gate.lock().unwrap() = Some(Arc::new(tokio::sync::Notify::new()));
    let running = running(&fake, &options()).await;
    let mut client = layouts(&running).await;
    let call = tokio::spawn(async move { client.get_layout(ask("lake.db.t")).await });
    fake.entered.notified().await;
    let drained = tokio::time::timeout(LONG, running.drain(Duration::from_millis(50))).await.unwrap();
    assert!(!drained);
    call.abort();
}

#[tokio::test]
async fn a_watch_that_would_never_show_anything_is_refused_at_once() {
    let fake = Fake::new();
    let running = running(&fake, &options()).await;
    let mut layouts = layouts(&running).await;
    let mut watch = async |table: &str| {
        let ask = v1::WatchDecisionsRequest { table: table.into() };
        layouts.watch_decisions(ask).await.map(drop).map_err(|status| (status.code(), status.message().to_owned()))
    };
    assert_eq!(watch("lake.db.gone").await, Err((Code::NotFound, "no table `lake.db.gone`".to_owned())));
    let refused = "refused (format-version): format version 3; compact it with an engine that writes this format";
    assert_eq!(watch("lake.db.v3").await, Err((Code::FailedPrecondition, refused.to_owned())));
    // what does not answer now may answer later
    assert_eq!(watch("lake.db.down").await, Ok(()));
}
