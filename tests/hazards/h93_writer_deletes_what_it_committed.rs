//! H93: a client that takes an error after an applied commit for a failure deletes
//! the files that the table now names. Between the catalog's success and the
//! client's receipt the proxy looks before it speaks.

use std::time::Duration;

use afterwrite::observe::proxy::ledger::Race;
use serde_json::json;
use tokio::time::Instant;

use crate::proxy::upstream::{Fault, Reply, UUID, append, of_table};
use crate::proxy::{Answer, Stage};

const T: &str = "/v1/namespaces/db/tables/t";
const U: &str = "/v1/namespaces/db/tables/u";
const TRANSACTION: &str = "/v1/transactions/commit";

/// A stage whose tables `t` and `u` stand at snapshot 1.
async fn stage(deadline_ms: i64) -> Stage {
    let stage = Stage::new(deadline_ms).await;
    stage.world.table(T, &[1]);
    stage.world.table(U, &[1]);
    stage
}

#[track_caller]
fn is_fresh(answer: &Answer, snapshots: usize) {
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(answer.json()["metadata"]["snapshots"].as_array().unwrap().len(), snapshots);
    assert_eq!(answer.json()["metadata"]["table-uuid"], UUID);
    assert_eq!(answer.header("content-type").as_deref(), Some("application/json"));
    assert!(answer.json()["metadata-location"].is_string() && !answer.text().contains("vended"), "{}", answer.text());
}

const APPLIED: [Fault; 9] = [
    Fault::After(500),
    Fault::After(501),
    Fault::After(502),
    Fault::After(503),
    Fault::After(504),
    Fault::After(429),
    Fault::AfterDrop,
    Fault::AfterTruncated,
    Fault::Replayed,
];

#[tokio::test]
async fn h93_a_commit_that_was_applied_is_told_as_success_whatever_the_answer() {
    for fault in APPLIED {
        let stage = stage(5_000).await;
        stage.world.fault(fault.clone());
        let answer = stage.commit(T, &append(Some(1), &[2, 3]).to_string()).await.unwrap_or_else(|| panic!("{fault:?}: dropped"));
        is_fresh(&answer, 3);
        assert_eq!((stage.world.count("POST"), stage.heard()), (1, vec![("lake.db.t@main".into(), vec![2, 3])]), "{fault:?}");
        let looks = stage.world.hits().into_iter().filter(|h| h.line() == format!("GET {T} HTTP/1.1")).collect::<Vec<_>>();
        assert_eq!(looks.len(), 1, "{fault:?}");
        let head = looks[0].head.to_lowercase();
        assert!(head.contains("authorization: bearer s3cret") && !head.contains("idempotency-key"), "{head}");
    }
}

#[tokio::test]
async fn h93_a_transaction_of_two_tables_is_told_as_success_when_both_have_it() {
    for fault in [Fault::After(503), Fault::AfterDrop, Fault::Replayed] {
        let stage = stage(5_000).await;
        stage.world.fault(fault.clone());
        let body = json!({"table-changes": [of_table("t", append(Some(1), &[2])), of_table("u", append(Some(1), &[3, 4]))]});
        let answer = stage.commit(TRANSACTION, &body.to_string()).await.unwrap();
        assert_eq!((answer.status, answer.body.len()), (204, 0), "{fault:?}");
        assert_eq!(stage.heard(), [("lake.db.t@main".to_owned(), vec![2]), ("lake.db.u@main".to_owned(), vec![3, 4])]);
        assert_eq!(stage.world.count("POST"), 1);
    }
}

#[tokio::test]
async fn h93_a_commit_applied_after_its_answer_is_waited_for() {
    let stage = stage(30_000).await;
    stage.world.fault(Fault::Late(504, 5_000));
    let began = Instant::now();
    let answer = stage.commit(T, &append(Some(1), &[2]).to_string()).await.unwrap();
    is_fresh(&answer, 2);
    let took = began.elapsed();
    assert!(took >= Duration::from_secs(5) && took < Duration::from_secs(9), "{took:?}");
}

#[tokio::test]
async fn h93_a_created_table_with_its_first_snapshot_is_told_as_success() {
    for fault in [Fault::After(500), Fault::AfterDrop, Fault::Replayed] {
        let stage = stage(5_000).await;
        stage.world.fault(fault);
        let mut body = append(None, &[9]);
        body["requirements"] = json!([{"type": "assert-create"}]);
        body["updates"].as_array_mut().unwrap().insert(0, json!({"action": "assign-uuid", "uuid": UUID}));
        let answer = stage.commit("/v1/namespaces/db/tables/new", &body.to_string()).await.unwrap();
        is_fresh(&answer, 1);
    }
}

#[tokio::test]
async fn h93_a_staged_snapshot_is_told_as_success_and_moves_no_ref() {
    let stage = stage(5_000).await;
    stage.world.fault(Fault::After(502));
    let mut body = append(Some(1), &[2]);
    body["requirements"] = json!([{"type": "assert-table-uuid", "uuid": UUID}]);
    body["updates"].as_array_mut().unwrap().pop();
    is_fresh(&stage.commit(T, &body.to_string()).await.unwrap(), 2);
    assert_eq!(stage.heard(), []);
}

/// Every kind of commit that adds snapshots, each met by every fault after it was applied.
#[tokio::test]
async fn h93_no_kind_of_commit_is_told_as_failed_by_any_fault_after_it_was_applied() {
    let create = || {
        let mut body = append(None, &[2]);
        body["requirements"] = json!([{"type": "assert-create"}]);
        body["updates"].as_array_mut().unwrap().insert(0, json!({"action": "assign-uuid", "uuid": UUID}));
        body
    };
    let staged = || {
        let mut body = append(Some(1), &[2]);
        body["requirements"] = json!([{"type": "assert-table-uuid", "uuid": UUID}]);
        body["updates"].as_array_mut().unwrap().pop();
        body
    };
    let two = json!({"table-changes": [of_table("t", append(Some(1), &[2])), of_table("u", append(Some(1), &[3, 4]))]});
    let one_of_two =
        json!({"table-changes": [of_table("t", append(Some(1), &[2])), of_table("u", json!({"requirements": [], "updates": []}))]});
    let kinds = [
        ("append", T, append(Some(1), &[2]), vec![(T, 2)]),
        ("two snapshots", T, append(Some(1), &[2, 3]), vec![(T, 2), (T, 3)]),
        ("staged", T, staged(), vec![(T, 2)]),
        ("created", "/v1/namespaces/db/tables/new", create(), vec![("/v1/namespaces/db/tables/new", 2)]),
        ("two tables", TRANSACTION, two, vec![(T, 2), (U, 3), (U, 4)]),
        ("two tables, a snapshot for one", TRANSACTION, one_of_two, vec![(T, 2)]),
    ];
    let faults = [Fault::After(408), Fault::After(409), Fault::Late(504, 150), Fault::Late(409, 150), Fault::Late(429, 150)];
    for (kind, target, body, expected) in &kinds {
        for fault in APPLIED.into_iter().chain(faults.clone()) {
            let stage = stage(20_000).await;
            stage.world.fault(fault.clone());
            let answer = stage.commit(target, &body.to_string()).await.unwrap_or_else(|| panic!("{kind}, {fault:?}: dropped"));
            let success = if *target == TRANSACTION { 204 } else { 200 };
            assert_eq!((answer.status, stage.world.count("POST")), (success, 1), "{kind}, {fault:?}: {}", answer.text());
            assert!(!answer.text().contains("vended"), "{kind}, {fault:?}");
            assert!(
                expected.iter().all(|(table, snapshot)| stage.world.has(table, *snapshot)),
                "{kind}, {fault:?}: told before it was there"
            );
        }
    }
}

#[tokio::test]
async fn h93_failure_is_told_at_once_when_the_ref_has_left_the_parent() {
    let stage = stage(30_000).await;
    stage.world.fault(Fault::Beaten);
    let began = Instant::now();
    let answer = stage.commit(T, &append(Some(1), &[2]).to_string()).await.unwrap();
    assert_eq!((answer.status, answer.text().contains("injected")), (409, true), "upstream's own answer");
    assert!(began.elapsed() < Duration::from_secs(5));
    assert_eq!(stage.heard(), []);
}

#[tokio::test]
async fn h93_absent_is_not_failed_and_upstreams_answer_is_told_at_the_deadline() {
    for status in [500, 503, 429, 409] {
        let stage = stage(1_200).await;
        stage.world.fault(Fault::Before(status));
        let began = Instant::now();
        let answer = stage.commit(T, &append(Some(1), &[2]).to_string()).await.unwrap();
        assert_eq!((answer.status, answer.text().contains("injected")), (status, true));
        assert!(began.elapsed() >= Duration::from_millis(1_200), "{status}");
        assert_eq!(stage.heard(), [("lake.db.t@main".to_owned(), vec![2])], "it may yet land: a hint");
    }
}

#[tokio::test]
async fn h93_without_any_answer_the_client_is_told_that_it_is_unknown() {
    let stage = stage(500).await;
    stage.world.fault(Fault::BeforeDrop);
    let answer = stage.commit(T, &append(Some(1), &[2]).to_string()).await.unwrap();
    assert_eq!((answer.status, answer.json()["error"]["type"].as_str()), (502, Some("CommitStateUnknownException")));
    assert_eq!((answer.json()["error"]["code"].as_u64(), stage.world.count("POST")), (Some(502), 1));
}

#[tokio::test]
async fn h93_a_transaction_that_a_catalog_tore_is_never_told_as_refused() {
    let stage = stage(5_000).await;
    stage.world.fault(Fault::Torn);
    let body = json!({"table-changes": [of_table("t", append(Some(1), &[2])), of_table("u", append(Some(1), &[3]))]});
    let answer = stage.commit(TRANSACTION, &body.to_string()).await.unwrap();
    assert_eq!((answer.status, answer.json()["error"]["type"].as_str()), (502, Some("CommitStateUnknownException")));
}

#[tokio::test]
async fn h93_a_request_that_adds_no_snapshot_passes_through() {
    let stage = stage(30_000).await;
    let body = json!({"requirements": [{"type": "assert-table-uuid", "uuid": UUID}], "updates": [{"action": "set-properties", "updates": {"a": "b"}}]});
    for fault in [Fault::After(500), Fault::Replayed, Fault::Before(409)] {
        stage.world.fault(fault);
        let answer = stage.commit(T, &body.to_string()).await.unwrap();
        assert!(matches!(answer.status, 200 | 409 | 500), "{answer:?}");
    }
    stage.world.fault(Fault::AfterDrop);
    assert_eq!(stage.commit(T, &body.to_string()).await, None, "a dropped connection is passed on as one");
    assert_eq!(stage.world.count("GET"), 0);
}

#[tokio::test]
async fn h93_a_look_that_is_refused_proves_nothing() {
    let stage = stage(600).await;
    stage.world.fault(Fault::After(500));
    stage.world.fault(Fault::AfterDrop);
    stage.world.script(T, vec![Reply::json(500, &json!({"error": {"message": "injected"}})), Reply::json(401, &json!({}))]);
    let answer = stage.commit(T, &append(Some(1), &[2]).to_string()).await.unwrap();
    assert_eq!((answer.status, answer.text().contains("injected")), (500, true));
}

#[tokio::test]
async fn h93_healing_can_be_switched_off() {
    let stage = Stage::with(|options| options.heal = false).await;
    stage.world.table(T, &[1]);
    stage.world.fault(Fault::After(500));
    assert_eq!(stage.commit(T, &append(Some(1), &[2]).to_string()).await.unwrap().status, 500);
    stage.world.fault(Fault::AfterDrop);
    assert_eq!(stage.commit(T, &append(Some(2), &[3]).to_string()).await, None);
    assert_eq!((stage.world.count("GET"), stage.world.count("POST")), (0, 2));
    assert_eq!(stage.heard(), [("lake.db.t@main".to_owned(), vec![2, 3])]);
}

#[tokio::test]
async fn h93_a_drain_lets_a_commit_and_its_healing_end() {
    let stage = stage(10_000).await;
    stage.world.fault(Fault::Late(504, 1_500));
    let mut client = stage.client().await;
    let body = append(Some(1), &[2]).to_string();
    let asking = tokio::spawn(async move { client.ask("POST", T, &[], body.as_bytes()).await });
    crate::proxy::until("the commit's arrival", || stage.world.count("POST") == 1).await;
    let addr = stage.proxy.addr();
    let world = stage.world.clone();
    assert!(stage.proxy.drain(Duration::from_secs(5)).await, "all ended within the patience");
    assert!(world.has(T, 2));
    is_fresh(&asking.await.unwrap().unwrap(), 2);
    assert!(tokio::net::TcpStream::connect(addr).await.is_err(), "no new connection is taken");
}

#[tokio::test]
async fn h93_a_client_that_leaves_does_not_stop_its_commit() {
    let stage = stage(5_000).await;
    stage.world.fault(Fault::Slow(300));
    let mut client = stage.client().await;
    let body = append(Some(1), &[2]).to_string();
    let head = format!("POST {T} HTTP/1.1\r\nHost: p\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    tokio::io::AsyncWriteExt::write_all(&mut client.0, head.as_bytes()).await.unwrap();
    crate::proxy::until("the commit's arrival", || stage.world.count("POST") == 1).await;
    let name = afterwrite::model::ident::TableName::new("lake", "db", "t");
    let race = |r: &Race| (r.snapshot, r.parent, r.landed);
    assert_eq!(stage.ledger.races(&name, "main", 1).iter().map(race).collect::<Vec<_>>(), [(2, Some(1), false)], "under way");
    client.0.set_zero_linger().unwrap();
    drop(client);
    crate::proxy::until("the end of the commit", || !stage.ledger.races(&name, "main", 1).iter().any(|r| !r.landed)).await;
    assert_eq!(stage.ledger.races(&name, "main", 1).iter().map(race).collect::<Vec<_>>(), [(2, Some(1), true)]);
    assert_eq!(stage.heard(), [("lake.db.t@main".to_owned(), vec![2])]);
}

#[tokio::test]
async fn h93_a_lost_answer_of_a_commit_that_somebody_was_faster_than_is_unknown_to_the_client() {
    let stage = stage(30_000).await;
    stage.world.fault(Fault::BeatenDrop);
    let answer = stage.commit(T, &append(Some(1), &[2]).to_string()).await.unwrap();
    // upstream said nothing that could be told, and a refusal of our own is never made up
    assert_eq!((answer.status, answer.json()["error"]["type"].as_str()), (502, Some("CommitStateUnknownException")));
    assert_eq!((stage.world.count("POST"), stage.heard()), (1, vec![]));
}
