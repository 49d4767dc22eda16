//! Google Cloud Storage: uploads in one request and in parts, reads of ranges.

use std::sync::Arc;

use axum::body::Body;
use axum::http::{Method, Response, StatusCode};
use serde_json::json;

use super::{Asked, Objects, Server, World, decoded, said};

const JSON: &str = "/storage/v1/b/";
const UPLOAD: &str = "/upload/storage/v1/b/";

async fn answer(objects: Arc<Objects>, asked: Asked) -> Response<Body> {
    if asked.headers.get("authorization").is_none_or(|token| token != "Bearer sesame") {
        return said(StatusCode::UNAUTHORIZED, "who are you?");
    }
    let path = asked.uri.path();
    if let Some(rest) = path.strip_prefix(UPLOAD) {
        let bucket = rest.split_once("/o").unwrap().0;
        assert_eq!(asked.query("uploadType"), Some("media"));
        let name = format!("gs://{bucket}/{}", asked.query("name").unwrap());
        objects.put(&name, asked.body.clone()).await;
        return described(asked.body.len());
    }
    match path.strip_prefix(JSON) {
        Some(rest) => {
            let (bucket, object) = rest.split_once("/o/").unwrap();
            of_object(&objects, &asked, &format!("gs://{bucket}/{}", decoded(object))).await
        }
        None => {
            let (bucket, object) = path[1..].split_once('/').unwrap();
            in_parts(&objects, &asked, format!("gs://{bucket}/{}", decoded(object))).await
        }
    }
}

fn described(bytes: usize) -> Response<Body> {
    let told = json!({ "size": bytes.to_string(), "etag": "e", "updated": "2024-08-15T11:33:34.866Z", "generation": "1" });
    said(StatusCode::OK, told.to_string())
}

async fn of_object(objects: &Objects, asked: &Asked, path: &str) -> Response<Body> {
    match (asked.method.clone(), objects.get(path).await) {
        (Method::DELETE, _) => said(if objects.delete(path).await { StatusCode::NO_CONTENT } else { StatusCode::NOT_FOUND }, ""),
        (Method::GET, Some(object)) if asked.query("alt") == Some("media") => asked.part(&object),
        (Method::GET, Some(object)) => described(object.len()),
        (Method::GET, None) => said(StatusCode::NOT_FOUND, "{}"),
        (other, _) => panic!("{other} {path}"),
    }
}

/// Part after part: the client sends them in their order.
async fn in_parts(objects: &Objects, asked: &Asked, path: String) -> Response<Body> {
    match (asked.method.clone(), asked.query("uploadId")) {
        (Method::POST, None) => {
            objects.uploads.lock().unwrap().insert(path, Vec::new());
            said(StatusCode::OK, "<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>")
        }
        (Method::PUT, Some("u")) => {
            objects.uploads.lock().unwrap().get_mut(&path).unwrap().extend_from_slice(&asked.body);
            Response::builder().header("etag", "\"part\"").body(Body::empty()).unwrap()
        }
        (Method::POST, Some("u")) => {
            let whole = objects.uploads.lock().unwrap().remove(&path).unwrap();
            objects.put(&path, whole).await;
            said(StatusCode::OK, "<CompleteMultipartUploadResult><ETag>e</ETag></CompleteMultipartUploadResult>")
        }
        (method, upload) => panic!("{method} {path} {upload:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_on_google_cloud_storage_is_compacted_and_taken_back() {
    let world = World::at("gs://bucket/ware-house").await;
    let server = Server::start(&world.objects, answer).await;
    let properties = format!("gcs.service.path = \"http://{}\"\ngcs.oauth2.token = \"sesame\"", server.at);
    world.is_compacted("gs://bucket/ware-house", &properties, &[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_lets_nobody_in_is_told_and_nothing_is_committed() {
    let world = World::at("gs://bucket/ware-house").await;
    let server = Server::start(&world.objects, answer).await;
    let properties = format!("gcs.service.path = \"http://{}\"\ngcs.oauth2.token = \"wrong\"", server.at);
    let ended = world.run("gs://bucket/ware-house", &properties, &[], &["compact", "lake.ns.t"]).await.expect(6);
    assert!(ended.err.contains("gs://bucket/ware-house/ns/t/metadata/"), "{}", ended.err);
}
