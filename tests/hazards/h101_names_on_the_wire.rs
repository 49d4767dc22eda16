//! H101: a space travels as `+` or `%20`, a namespace separator in three ways. The
//! target is forwarded byte for byte, and every table that it may mean is looked at.

use serde_json::json;

use crate::proxy::Stage;
use crate::proxy::upstream::{Reply, append};

/// Targets as four clients write them, and the tables that are looked at.
const SPELLED: [(&str, &[&str]); 8] = [
    ("/v1/namespaces/db/tables/t%20x", &["lake.db.t x@main"]),
    ("/v1/namespaces/db/tables/t+x", &["lake.db.t x@main", "lake.db.t+x@main"]),
    ("/v1/namespaces/db/tables/t%2Bx", &["lake.db.t+x@main"]),
    ("/v1/namespaces/db/tables/50%25%2F", &["lake.db.50%/@main"]),
    ("/v1/namespaces/db/tables/%C3%BC", &["lake.db.ü@main"]),
    ("/v1/namespaces/a%1Fb/tables/t", &["lake.a.b.t@main"]),
    ("/v1/main%7Cwh/namespaces/a%1fb/tables/t.u", &["lake.a.b.`t.u`@main"]),
    ("/v1/p/namespaces/db/tables/%FF", &[]),
];

#[tokio::test]
async fn h101_a_target_is_forwarded_byte_for_byte_and_its_table_found() {
    for (target, tables) in SPELLED {
        let stage = Stage::new(1_000).await;
        stage.world.script(target, vec![Reply::json(200, &json!({}))]);
        let answer = stage.commit(target, &append(Some(1), &[2]).to_string()).await.unwrap();
        assert_eq!(answer.status, 200);
        assert_eq!(stage.world.hits()[0].line(), format!("POST {target} HTTP/1.1"));
        let heard: Vec<String> = stage.heard().into_iter().map(|(name, _)| name).collect();
        assert_eq!(heard, tables, "{target}");
    }
}

#[tokio::test]
async fn h101_a_separator_named_in_the_config_answer_is_understood() {
    let stage = Stage::new(1_000).await;
    stage.world.script("/v1/config", vec![Reply::json(200, &json!({"defaults": {}, "overrides": {"namespace-separator": "%2E"}}))]);
    stage.ask("GET", "/v1/config", &[], b"").await.unwrap();
    for target in ["/v1/namespaces/a%2Eb/tables/t", "/v1/namespaces/a.b/tables/t"] {
        stage.world.script(target, vec![Reply::json(200, &json!({}))]);
        stage.commit(target, &append(Some(1), &[2]).to_string()).await.unwrap();
    }
    let heard: Vec<String> = stage.heard().into_iter().map(|(name, _)| name).collect();
    assert_eq!(heard, ["lake.a.b.t@main"]);
}

#[tokio::test]
async fn h101_a_table_of_a_transaction_is_looked_for_under_its_encoded_name() {
    let stage = Stage::new(2_000).await;
    stage.world.table("/v1/namespaces/db%1Fx/tables/t%20x", &[1]);
    stage.world.fault(crate::proxy::upstream::Fault::After(500));
    let mut change = append(Some(1), &[2]);
    change["identifier"] = json!({"namespace": ["db", "x"], "name": "t x"});
    let answer = stage.commit("/v1/transactions/commit", &json!({"table-changes": [change]}).to_string()).await.unwrap();
    assert_eq!(answer.status, 204);
}
