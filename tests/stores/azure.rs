//! Azure Data Lake Storage: files are made, appended to and flushed.

use std::sync::Arc;

use axum::body::Body;
use axum::http::{Method, Response, StatusCode};

use super::{Asked, Objects, Server, World, decoded, said};

/// The client is led to the server as to a proxy: an account's host is part of every path.
const HOST: &str = "account.dfs.store.test";

async fn answer(objects: Arc<Objects>, asked: Asked) -> Response<Body> {
    assert_eq!(asked.uri.host(), Some(HOST), "{}", asked.uri);
    if asked.headers.get("authorization").is_none_or(|key| !key.to_str().unwrap().starts_with("SharedKey account:")) {
        return said(StatusCode::FORBIDDEN, "who are you?");
    }
    let (filesystem, file) = asked.uri.path()[1..].split_once('/').unwrap();
    let path = format!("abfs://{filesystem}@{HOST}/{}", decoded(file));
    match (asked.method.clone(), asked.query("action")) {
        (Method::PUT, None) => {
            assert_eq!(asked.query("resource"), Some("file"));
            objects.uploads.lock().unwrap().insert(path, Vec::new());
            said(StatusCode::CREATED, "")
        }
        (Method::PATCH, Some("append")) => {
            let mut uploads = objects.uploads.lock().unwrap();
            let file = uploads.get_mut(&path).unwrap();
            assert_eq!(asked.query("position"), Some(file.len().to_string().as_str()), "appended in order");
            file.extend_from_slice(&asked.body);
            said(StatusCode::ACCEPTED, "")
        }
        (Method::PATCH, Some("flush")) => {
            let whole = objects.uploads.lock().unwrap().remove(&path).unwrap();
            assert_eq!(asked.query("position"), Some(whole.len().to_string().as_str()), "all of it is flushed");
            objects.put(&path, whole).await;
            said(StatusCode::OK, "")
        }
        (Method::DELETE, None) => said(if objects.delete(&path).await { StatusCode::OK } else { StatusCode::NOT_FOUND }, ""),
        (method @ (Method::GET | Method::HEAD), None) => match objects.get(&path).await {
            Some(object) if method == Method::GET => asked.part(&object),
            Some(object) => {
                let told = Response::builder().header("content-length", object.len()).header("x-ms-resource-type", "file");
                told.header("last-modified", "Thu, 15 Aug 2024 11:33:34 GMT").body(Body::empty()).unwrap()
            }
            None => said(StatusCode::NOT_FOUND, ""),
        },
        (method, action) => panic!("{method} {path} {action:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_on_azure_data_lake_storage_is_compacted_and_taken_back() {
    let warehouse = format!("abfs://files@{HOST}/ware-house");
    let world = World::at(&warehouse).await;
    let server = Server::start(&world.objects, answer).await;
    let properties = "adls.account-name = \"account\"\nadls.account-key = \"c2VzYW1l\"";
    let proxy = format!("http://{}", server.at);
    world.is_compacted(&warehouse, properties, &[("HTTP_PROXY", proxy.as_str())]).await;
}
