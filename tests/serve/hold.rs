//! `HoldTable` and `ReleaseTable`.

use tonic::Code;

use super::*;

fn hold(table: &str, seconds: u64) -> v1::HoldTableRequest {
    v1::HoldTableRequest { table: table.into(), path: None, holder: " backfill ".into(), seconds }
}

#[tokio::test]
async fn a_table_is_held_for_somebody_and_given_back() {
    let fake = Fake::new();
    let running = running(&fake, &options()).await;
    let mut hook = CommitHookClient::new(channel(&running).await);
    let held = hook.hold_table(hold("lake.db.t", 60)).await.unwrap().into_inner();
    assert_eq!(held.until_ms, 61_234);
    let expected = (TableName::new("lake", "db", "t"), Hold { by: "backfill".into(), until_ms: 61_234 });
    assert_eq!(*fake.held.lock().unwrap(), [expected]);
    let of = |holder: &str| v1::ReleaseTableRequest { table: "lake.db.t".into(), path: None, holder: holder.into() };
    for (holder, released) in [("another", 0), ("", 1), ("", 0)] {
        assert_eq!(hook.release_table(of(holder)).await.unwrap().into_inner().released, released, "{holder}");
    }
}

#[tokio::test]
async fn what_cannot_be_held_is_told() {
    let running = running(&Fake::new(), &options()).await;
    let mut hook = CommitHookClient::new(channel(&running).await);
    for (ask, code) in
        [(hold("t", 60), Code::InvalidArgument), (hold("sea.db.t", 60), Code::NotFound), (hold("lake.db.t", 0), Code::InvalidArgument)]
    {
        assert_eq!(hook.hold_table(ask).await.unwrap_err().code(), code);
    }
}
