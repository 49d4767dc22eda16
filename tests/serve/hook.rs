use afterwrite::lake::clock::{Clock, SystemClock};
use afterwrite::model::event::{Door, Heard};
use afterwrite::model::ident::TableName;
use afterwrite::observe::Roster;
use afterwrite::observe::inbox::{Inbox, Limits};
use afterwrite::proto::v1::ack::Status;
use afterwrite::proto::v1::{Ack, CommitEvent, SequencedEvent, SnapshotChange};
use afterwrite::serve::backend::Answer;
use tonic::Code;

use super::*;

fn ack(seq: u64, status: Status, reason: &str) -> Ack {
    Ack { seq, status: status.into(), reason: reason.into() }
}

#[tokio::test]
async fn a_commit_is_reported_with_nothing_but_a_table_name() {
    let fake = Fake::new();
    let running = running(&fake, &options()).await;
    let answer = hook(&running).await.report_commit(thin("lake.db.t")).await.unwrap().into_inner();
    assert_eq!(answer, ack(0, Status::Accepted, ""));
    let heard = fake.heard.lock().unwrap();
    assert_eq!((heard.len(), heard[0].door, heard[0].heard_ms), (1, Door::Grpc, 1234));
    assert_eq!(heard[0].table, TableName::new("lake", "db", "t"));
}

#[tokio::test]
async fn a_duplicate_and_a_table_not_yet_seen_are_answered_ok_and_say_so() {
    let fake = Fake::new();
    let running = running(&fake, &options()).await;
    let mut hook = hook(&running).await;
    *fake.answer.lock().unwrap() = Answer { heard: Heard::Duplicate, note: String::new() };
    assert_eq!(hook.report_commit(thin("lake.db.t")).await.unwrap().into_inner(), ack(0, Status::Duplicate, ""));
    *fake.answer.lock().unwrap() = Answer { heard: Heard::Accepted, note: "not listed".into() };
    assert_eq!(hook.report_commit(thin("lake.db.new")).await.unwrap().into_inner(), ack(0, Status::Accepted, "not listed"));
}

#[tokio::test]
async fn what_cannot_be_taken_is_answered_with_a_status_that_says_what_to_mend() {
    let fake = Fake::new();
    let running = running(&fake, &options()).await;
    let mut hook = hook(&running).await;
    let bad = hook.report_commit(thin("no-dots")).await.unwrap_err();
    let text = "table: `no-dots` is not a table name: write `catalog.namespace.table`, each part non-empty; a part with a dot in it goes between backticks";
    assert_eq!((bad.code(), bad.message()), (Code::InvalidArgument, text));
    let unknown = hook.report_commit(thin("sea.db.t")).await.unwrap_err();
    let text = "no catalog `sea` is configured; known catalogs: lake, pond";
    assert_eq!((unknown.code(), unknown.message()), (Code::NotFound, text));
    *fake.answer.lock().unwrap() = Answer { heard: Heard::Full, note: String::new() };
    let full = hook.report_commit(thin("lake.db.t")).await.unwrap_err();
    assert_eq!(full.code(), Code::Unavailable);
    assert_eq!(fake.heard.lock().unwrap().len(), 1, "nothing but the last event reached the loop");
}

#[tokio::test]
async fn a_stream_is_acknowledged_in_order_and_a_bad_event_does_not_end_it() {
    let fake = Fake::new();
    let running = running(&fake, &options()).await;
    let sequenced = |seq, table| SequencedEvent { seq, event: Some(thin(table)) };
    let mut bad_id = sequenced(4, "lake.db.t");
    bad_id.event.as_mut().unwrap().snapshots = vec![SnapshotChange { snapshot_id: "x".into(), ..SnapshotChange::default() }];
    let events = vec![
        sequenced(7, "lake.db.a"),
        sequenced(u64::MAX, "bad"),
        SequencedEvent { seq: 2, event: None },
        sequenced(3, "sea.db.t"),
        bad_id,
        sequenced(7, "lake.db.b"),
    ];
    let mut acks = hook(&running).await.report_commits(tokio_stream::iter(events)).await.unwrap().into_inner();
    let mut seen = Vec::new();
    while let Some(ack) = acks.message().await.unwrap() {
        seen.push((ack.seq, ack.status()));
    }
    let rejected = Status::Rejected;
    assert_eq!(seen, [(7, Status::Accepted), (u64::MAX, rejected), (2, rejected), (3, rejected), (4, rejected), (7, Status::Accepted)]);
    let tables: Vec<String> = fake.heard.lock().unwrap().iter().map(|e| e.table.table.clone()).collect();
    assert_eq!(tables, ["a", "b"]);
}

#[tokio::test]
async fn a_stream_is_answered_while_it_is_open() {
    let fake = Fake::new();
    let running = running(&fake, &options()).await;
    *fake.answer.lock().unwrap() = Answer { heard: Heard::Full, note: String::new() };
    let (sender, receiver) = tokio::sync::mpsc::channel(1);
    let events = tokio_stream::wrappers::ReceiverStream::new(receiver);
    let mut acks = hook(&running).await.report_commits(events).await.unwrap().into_inner();
    for seq in 1..=3 {
        sender.send(SequencedEvent { seq, event: Some(thin("lake.db.t")) }).await.unwrap();
        let ack = acks.message().await.unwrap().unwrap();
        assert_eq!((ack.seq, ack.status()), (seq, Status::RetryLater));
    }
}

#[tokio::test]
async fn an_event_about_a_branch_that_is_not_looked_after_is_answered_as_ignored_and_counted_as_dropped() {
    let fake = Fake::new();
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let inbox = Inbox::new(Arc::clone(&clock), Limits::default());
    let roster = Arc::new(Roster::new(["lake".to_owned()].into_iter()));
    let entrance = Arc::new(Entrance::new(inbox, roster, clock, vec!["lake".into()]));
    *fake.entrance.lock().unwrap() = Some(Arc::clone(&entrance));
    let running = running(&fake, &options()).await;
    let mut hook = hook(&running).await;
    let on = |branch: &str| CommitEvent { r#ref: branch.into(), ..thin("lake.db.t") };
    let why = "branch `audit` is not looked after: only `main` is";
    assert_eq!(hook.report_commit(on("audit")).await.unwrap().into_inner(), ack(0, Status::Ignored, why));
    let events =
        tokio_stream::iter([SequencedEvent { seq: 3, event: Some(on("audit")) }, SequencedEvent { seq: 4, event: Some(on("main")) }]);
    let mut acks = hook.report_commits(events).await.unwrap().into_inner();
    assert_eq!(acks.message().await.unwrap().unwrap(), ack(3, Status::Ignored, why));
    assert_eq!(acks.message().await.unwrap().unwrap(), ack(4, Status::Accepted, ""));
    assert_eq!(fake.heard.lock().unwrap().len(), 1);
    let row = entrance.ledger().rows(0).remove(0);
    assert_eq!((row.door, row.received, row.accepted, row.dropped, row.parked), (Door::Grpc, 2, 0, 2, 0));
    assert_eq!(row.examples[0].reason, why);
}
