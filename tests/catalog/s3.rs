//! Tables in an S3-compatible store.

use std::collections::BTreeMap;
use std::sync::Arc;

use afterwrite::lake::iceberg::catalog::memory::MemoryCatalog;
use afterwrite::lake::iceberg::store::{Store, file_io};
use afterwrite::lake::{Error, NotLanded};
use afterwrite::model::plan::AttemptId;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{promises, service, unique};

/// A bucket of its own, and the catalog properties that reach it.
async fn bucket() -> Option<(String, BTreeMap<String, String>)> {
    let endpoint = service("AFTERWRITE_TEST_S3", "s3")?;
    let bucket = unique("b").replace('_', "-");
    let host = endpoint.trim_start_matches("http://").trim_end_matches('/');
    let mut stream = TcpStream::connect(host).await.unwrap();
    let request = format!("PUT /{bucket} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let properties = [
        ("s3.endpoint", endpoint.as_str()),
        ("s3.region", "us-east-1"),
        ("s3.path-style-access", "true"),
        ("s3.access-key-id", "test"),
        ("s3.secret-access-key", "test"),
    ];
    Some((bucket, properties.map(|(k, v)| (k.to_owned(), v.to_owned())).into()))
}

#[tokio::test]
async fn a_catalog_keeps_its_promises_over_s3() {
    let Some((bucket, properties)) = bucket().await else { return };
    let catalog = MemoryCatalog::new("s3", file_io(&properties));
    promises::hold(Arc::new(catalog.clone()), Arc::new(catalog), &format!("s3://{bucket}/w")).await;
}

#[tokio::test]
async fn an_object_is_one_under_every_scheme_and_keys_keep_their_bytes() {
    let Some((bucket, properties)) = bucket().await else { return };
    let store = Store::new(&file_io(&properties));
    for key in ["plain", "a b/c=d%2Fe/ü+f", "%20", "x#y?z"] {
        store.write(&format!("s3://{bucket}/{key}"), key.to_owned().into()).await.unwrap();
    }
    for key in ["plain", "a b/c=d%2Fe/ü+f", "%20", "x#y?z"] {
        for scheme in ["s3", "s3a", "s3n"] {
            assert_eq!(store.read(&format!("{scheme}://{bucket}/{key}")).await.unwrap(), key, "{scheme} {key}");
        }
    }
    let missing = store.read(&format!("s3://{bucket}/missing")).await.unwrap_err();
    assert!(matches!(missing, Error::NotFound { .. }), "{missing:?}");
}

#[tokio::test]
async fn many_small_writes_make_one_whole_object() {
    let Some((bucket, properties)) = bucket().await else { return };
    let store = Store::new(&file_io(&properties));
    let path = format!("s3://{bucket}/big");
    let mut writer = store.create(&path).await.unwrap();
    for part in 0..180u32 {
        writer.write(vec![part as u8; 100_000].into()).await.unwrap();
    }
    assert!(!store.exists(&path).await.unwrap(), "nothing is there before the writer is closed");
    assert_eq!(writer.close().await.unwrap(), 18_000_000);
    let source = store.open(&path).await.unwrap();
    let ranges = source.read_all(&[17_999_999..18_000_000, 99_999..100_001]).await.unwrap();
    assert_eq!(ranges, [vec![179], vec![0, 1]]);
    store.delete(&NotLanded::never_asked(&AttemptId("a".into())), &path).await.unwrap();
    assert!(!store.exists(&path).await.unwrap());
}
