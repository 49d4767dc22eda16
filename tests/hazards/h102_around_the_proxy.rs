//! H102: a config answer that sends clients around the proxy.

use serde_json::json;

use crate::proxy::Stage;
use crate::proxy::upstream::Reply;

#[tokio::test]
async fn h102_a_uri_in_the_config_answer_names_the_proxy_and_tokens_are_left_alone() {
    let stage = Stage::new(1_000).await;
    let origin = format!("http://{}", stage.world.addr);
    let config = json!({"defaults": {"uri": format!("{origin}/a"), "clients": "4"}, "endpoints": ["GET /v1/{prefix}/namespaces"],
        "overrides": {"uri": origin, "prefix": "p", "oauth2-server-uri": format!("{origin}/tokens")}});
    stage.world.script("/v1/config", vec![Reply::json(200, &config)]);
    let answer = stage.ask("GET", "/v1/config?warehouse=w%20x", &["Accept-Encoding: gzip"], b"").await.unwrap();
    let mut expected = config;
    expected["defaults"]["uri"] = json!("http://proxy.example:99/a");
    expected["overrides"]["uri"] = json!("http://proxy.example:99");
    assert_eq!(answer.json(), expected);
    assert!(answer.whole);
    assert_eq!(stage.world.hits()[0].line(), "GET /v1/config?warehouse=w%20x HTTP/1.1");
}

#[tokio::test]
async fn h102_a_config_answer_that_needs_no_change_is_passed_byte_for_byte() {
    let stage = Stage::new(1_000).await;
    for body in [r#"{ "overrides" : {"uri":"https://elsewhere/x"}, "defaults":{} }"#, r#"{"a":1}"#, "not json"] {
        let raw = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nETag: \"7\"\r\n\r\n{body}", body.len());
        stage.world.script("/v1/config", vec![Reply::raw(&raw)]);
        let answer = stage.ask("GET", "/v1/config", &[], b"").await.unwrap();
        assert_eq!((answer.text().as_str(), answer.header("etag").as_deref()), (body, Some("\"7\"")));
    }
}
