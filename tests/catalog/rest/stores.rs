//! Credentials that the catalog hands out with a table.

use afterwrite::lake::iceberg::catalog::Catalog;
use iceberg::io::FileIO;
use serde_json::json;

use super::World;
use crate::fixture::row;

fn now_ms() -> i64 {
    use afterwrite::lake::clock::Clock as _;
    afterwrite::lake::clock::SystemClock.now_ms()
}

fn vended(ends_ms: i64) -> serde_json::Value {
    let config =
        json!({ "s3.access-key-id": "k", "s3.secret-access-key": "s3cr3t", "s3.session-token-expires-at-ms": ends_ms.to_string() });
    json!({ "storage-credentials": [{ "prefix": "s3://b/", "config": config }] })
}

async fn read(io: &FileIO, path: &str) -> Result<usize, String> {
    io.new_input(path).unwrap().read().await.map(|b| b.len()).map_err(|e| e.to_string())
}

#[tokio::test]
async fn credentials_are_renewed_by_loading_again_or_by_their_own_endpoint() {
    for endpoints in [json!(null), json!(["GET /v1/{prefix}/namespaces/{namespace}/tables/{table}/credentials"])] {
        let world = World::new().await;
        world.table.append([row(1, "a", 0)]).await;
        let own = endpoints.is_array();
        world.server.set_config(json!({ "endpoints": endpoints }));
        world.server.vend(vended(now_ms() + 400));
        let loaded = world.client.load(&world.table.name).await.unwrap().unwrap();
        assert!(!format!("{:?}", loaded.io).contains("s3cr3t"));
        let path = loaded.metadata_location.clone();
        assert!(read(&loaded.io, &path).await.unwrap() > 0);
        world.server.forget();
        world.server.vend(vended(now_ms() + 60_000));
        tokio::time::sleep(std::time::Duration::from_millis(450)).await;
        for _ in 0..3 {
            assert!(read(&loaded.io, &path).await.unwrap() > 0);
        }
        let asked = world.server.asked();
        assert_eq!(asked.len(), 1, "{asked:?}");
        assert_eq!(asked[0].target.ends_with("/credentials"), own);
    }
}

#[tokio::test]
async fn credentials_of_another_table_under_the_name_are_not_taken() {
    let world = World::new().await;
    world.server.vend(vended(now_ms() + 200));
    let loaded = world.client.load(&world.table.name).await.unwrap().unwrap();
    world.table.catalog.drop_table(&world.table.name);
    let location = format!("{}2", loaded.metadata.location());
    world.table.catalog.create(&world.table.name, crate::catalog::metadata(&location, &[])).await.unwrap();
    tokio::time::sleep(std::time::Duration::from_millis(250)).await;
    let error = read(&loaded.io, &loaded.metadata_location).await.unwrap_err();
    assert!(error.contains("is another table now"), "{error}");
}

#[tokio::test]
async fn own_keys_come_without_asking_for_others() {
    let world = World::with(&[("s3.access-key-id", "own"), ("s3.secret-access-key", "s")]).await;
    world.load().await;
    assert!(world.server.asked().iter().all(|a| !a.headers.contains_key("x-iceberg-access-delegation")));
}
