//! A defect in what listens costs nobody a request.

use std::net::SocketAddr;
use std::sync::Arc;

use afterwrite::lake::clock::SystemClock;
use afterwrite::model::ident::TableName;
use afterwrite::observe::Inbox;
use afterwrite::observe::inbox::Limits;
use afterwrite::observe::proxy::clients::ClientId;
use afterwrite::observe::proxy::ledger::{End, Scan, Writing};
use afterwrite::observe::proxy::{self, Heeds, Ledger, Options, Ports};

use super::Stage;
use super::upstream::{Reply, World, append};

const T: &str = "/v1/namespaces/db/tables/t";

/// Panics at whatever it hears.
struct Broken;

impl Heeds for Broken {
    fn begun(&self, _: &Writing) {
        panic!("a defect");
    }

    fn ended(&self, _: &Writing, _: End, _: i64) {
        panic!("a defect");
    }

    fn loaded(&self, _: &TableName, _: ClientId, _: i64) {
        panic!("a defect");
    }

    fn scanned(&self, _: &TableName, _: Scan, _: i64) {
        panic!("a defect");
    }
}

#[tokio::test]
async fn h93_a_defect_in_a_tap_costs_no_request_its_answer() {
    let world = World::start().await;
    world.table(T, &[1]);
    let mut options = Options::new("lake", &format!("http://{}", world.addr));
    options.listen = SocketAddr::from(([127, 0, 0, 1], 0));
    let inbox = Inbox::new(Arc::new(SystemClock), Limits { interval_ms: 0, ..Limits::default() });
    let proxy =
        proxy::start(&options, Ports { inbox: inbox.clone(), heeds: Arc::new(Broken), clock: Arc::new(SystemClock) }).await.unwrap();
    let stage = Stage { world, proxy, inbox, ledger: Arc::new(Ledger::default()) };
    stage.world.script(&format!("{T}/plan"), vec![Reply::json(200, &serde_json::json!({}))]);
    let scan = br#"{"report-type":"scan-report","metrics":{}}"#;
    assert_eq!(stage.ask("GET", T, &[], b"").await.unwrap().status, 200);
    assert_eq!(stage.ask("POST", &format!("{T}/plan"), &[], scan).await.unwrap().status, 200);
    assert_eq!(stage.commit(T, &append(Some(1), &[2]).to_string()).await.unwrap().status, 200);
    assert_eq!(stage.heard(), [("lake.db.t@main".to_owned(), vec![2])], "what does not depend on the defect is heard");
}
