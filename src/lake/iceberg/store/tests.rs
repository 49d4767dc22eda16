use std::collections::BTreeMap;

use super::*;
use crate::model::plan::AttemptId;
use crate::model::refusal::Refusal;

fn store() -> Store {
    Store::new(&file_io(&BTreeMap::new()))
}

#[tokio::test]
async fn a_file_is_one_under_every_spelling() {
    let dir = tempfile::tempdir().unwrap();
    let plain = format!("{}/a/b c+%20.bin", dir.path().display());
    let store = store();
    store.write(&format!("file:{plain}"), Bytes::from_static(b"seven b")).await.unwrap();
    for spelling in [plain.clone(), format!("file:{plain}"), format!("file://{plain}")] {
        assert_eq!(store.read(&spelling).await.unwrap(), "seven b", "{spelling}");
        assert_eq!(store.size(&spelling).await.unwrap(), 7, "{spelling}");
    }
    assert!(std::fs::exists(&plain).unwrap(), "the name keeps its bytes");
}

#[tokio::test]
async fn a_missing_file_is_not_found_by_its_own_spelling() {
    for path in ["file:/nowhere/at/all", "/nowhere/at/all", "memory://nowhere"] {
        for error in [store().read(path).await.unwrap_err(), store().size(path).await.unwrap_err()] {
            assert!(matches!(&error, Error::NotFound { path: named } if named == path), "{error:?}");
        }
    }
}

#[tokio::test]
async fn a_path_that_the_client_would_change_is_refused() {
    for path in ["s3://b/a//b", "s3://b//a", "gs://b/a ", "file://host/a", "a/b"] {
        let error = store().read(path).await.unwrap_err();
        assert!(matches!(&error, Error::Refused(r) if r.refusal == Refusal::Damaged && r.detail.starts_with(path)), "{path}: {error:?}");
    }
}

#[tokio::test]
async fn ranges_come_in_the_order_asked_for_and_are_counted() {
    let store = store();
    store.write("memory://t/f", Bytes::from((0..=255u8).collect::<Vec<_>>())).await.unwrap();
    let source = store.open("memory://t/f").await.unwrap();
    let before = store.spent();
    let got = source.read_all(&[100..103, 0..2, 5..5]).await.unwrap();
    assert_eq!(got.iter().map(|b| b.to_vec()).collect::<Vec<_>>(), [vec![100, 101, 102], vec![0, 1], vec![]]);
    let after = store.spent();
    assert_eq!((after.requests - before.requests, after.bytes_read - before.bytes_read), (1, 103));
    assert_eq!(after.bytes_written, 256);
}

#[tokio::test]
async fn a_range_past_the_end_is_damage() {
    let dir = tempfile::tempdir().unwrap();
    let path = format!("file:{}/f", dir.path().display());
    let store = store();
    store.write(&path, Bytes::from_static(b"1234")).await.unwrap();
    let source = store.open(&path).await.unwrap();
    for range in [2..5, 7..9] {
        let error = source.read(range).await.unwrap_err();
        assert!(matches!(&error, Error::Refused(r) if r.refusal == Refusal::Damaged), "{error:?}");
    }
}

#[tokio::test]
async fn deleting_removes_the_one_file_and_a_missing_one_is_no_error() {
    let dir = tempfile::tempdir().unwrap();
    let (file, beside) = (dir.path().join("f.parquet"), dir.path().join(".f.parquet.crc"));
    std::fs::write(&file, "x").unwrap();
    std::fs::write(&beside, "x").unwrap();
    let proof = NotLanded::never_asked(&AttemptId("a".into()));
    let path = format!("file:{}", file.display());
    store().delete(&proof, &path).await.unwrap();
    store().delete(&proof, &path).await.unwrap();
    assert_eq!((file.exists(), beside.exists()), (false, true));
}

#[tokio::test]
async fn only_a_local_store_tells_its_free_space() {
    let dir = tempfile::tempdir().unwrap();
    let free = store().free_space(&format!("file:{}/not/yet", dir.path().display())).await.unwrap();
    assert!(free.is_some_and(|bytes| bytes > 0));
    assert_eq!(store().free_space("s3://b/k").await.unwrap(), None);
}
