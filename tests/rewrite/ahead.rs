//! Requests to an object store: neighbours in one, and several under way.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use afterwrite::lake::iceberg::store::counted::counted;
use afterwrite::model::plan::LiveFile;
use arrow_array::{ArrayRef, Int64Array, LargeBinaryArray};
use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use iceberg::Result;
use iceberg::io::{
    FileIO, FileIOBuilder, FileMetadata, FileRead, FileWrite, InputFile, OutputFile, Storage, StorageConfig, StorageFactory,
};
use iceberg::spec::PrimitiveType;
use serde::{Deserialize, Serialize};

use super::support::{Lake, noise, primitive};

/// Reads under way, and the most there were.
#[derive(Debug, Default)]
struct Seen {
    now: AtomicUsize,
    most: AtomicUsize,
}

/// A store that answers only after all that wait have asked.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Slow {
    #[serde(skip)]
    files: Option<FileIO>,
    #[serde(skip)]
    seen: Arc<Seen>,
}

impl Slow {
    fn io(&self) -> &FileIO {
        self.files.as_ref().unwrap()
    }
}

#[typetag::serde(name = "test-slow")]
impl StorageFactory for Slow {
    fn build(&self, _: &StorageConfig) -> Result<Arc<dyn Storage>> {
        Ok(Arc::new(self.clone()))
    }
}

#[async_trait]
#[typetag::serde(name = "test-slow")]
impl Storage for Slow {
    async fn exists(&self, path: &str) -> Result<bool> {
        self.io().exists(path).await
    }
    async fn metadata(&self, path: &str) -> Result<FileMetadata> {
        self.io().new_input(path)?.metadata().await
    }
    async fn read(&self, path: &str) -> Result<Bytes> {
        self.io().new_input(path)?.read().await
    }
    async fn reader(&self, path: &str) -> Result<Box<dyn FileRead>> {
        Ok(Box::new(Reader(self.io().new_input(path)?.reader().await?, Arc::clone(&self.seen))))
    }
    async fn write(&self, path: &str, bytes: Bytes) -> Result<()> {
        self.io().new_output(path)?.write(bytes).await
    }
    async fn writer(&self, path: &str) -> Result<Box<dyn FileWrite>> {
        self.io().new_output(path)?.writer().await
    }
    async fn delete(&self, path: &str) -> Result<()> {
        self.io().delete(path).await
    }
    async fn delete_prefix(&self, path: &str) -> Result<()> {
        self.io().delete_prefix(path).await
    }
    async fn delete_stream(&self, paths: BoxStream<'static, String>) -> Result<()> {
        self.io().delete_stream(paths).await
    }
    fn new_input(&self, path: &str) -> Result<InputFile> {
        Ok(InputFile::new(Arc::new(self.clone()), path.into()))
    }
    fn new_output(&self, path: &str) -> Result<OutputFile> {
        Ok(OutputFile::new(Arc::new(self.clone()), path.into()))
    }
}

struct Reader(Box<dyn FileRead>, Arc<Seen>);

#[async_trait]
impl FileRead for Reader {
    async fn read(&self, range: Range<u64>) -> Result<Bytes> {
        let now = self.1.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.1.most.fetch_max(now, Ordering::SeqCst);
        tokio::task::yield_now().await;
        let read = self.0.read(range).await;
        self.1.now.fetch_sub(1, Ordering::SeqCst);
        read
    }
}

/// Ten files of one row group.
async fn files(lake: &Lake) -> Vec<LiveFile> {
    let mut files = Vec::new();
    for file in 0..10i64 {
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(file * 100..(file + 1) * 100));
        files.push(lake.file(&format!("f{file}"), lake.batch(vec![numbers])).await);
    }
    files
}

#[tokio::test]
async fn requests_for_row_groups_that_are_copied_run_ahead_on_an_object_store() {
    let mut lake = Lake::new(vec![("n", primitive(PrimitiveType::Long))], &[]);
    let slow = Slow { files: Some(lake.io.clone()), ..Slow::default() };
    let files = files(&lake).await;
    lake.io = FileIOBuilder::new(Arc::new(slow.clone())).build();
    let made = lake.splice("a1", files, u64::MAX, HashMap::new()).await.unwrap();
    assert_eq!((made.len(), made[0].output.records), (1, 1000));
    assert_eq!(slow.seen.most.load(Ordering::SeqCst), 8);
}

#[tokio::test]
async fn a_row_group_that_is_copied_is_one_request_and_a_large_one_few() {
    let mut lake = Lake::new(vec![("n", primitive(PrimitiveType::Long))], &[]);
    let files = files(&lake).await;
    let (io, meter) = counted(&lake.io);
    lake.io = io;
    lake.splice("a1", files, u64::MAX, HashMap::new()).await.unwrap();
    // a footer and a row group of each
    assert_eq!((meter.requests().get, meter.requests().put), (2 * 10, 1));

    let kinds = ["a", "b", "c"].map(|name| (name, primitive(PrimitiveType::Binary)));
    let mut lake = Lake::new(kinds.to_vec(), &[]);
    let column = |seed: u64| -> ArrayRef { Arc::new(LargeBinaryArray::from_iter_values((0..4).map(|n| noise(seed * 10 + n, 900 << 10)))) };
    let file = lake.file("large", lake.batch(vec![column(1), column(2), column(3)])).await;
    assert!(file.bytes > 10 << 20, "{}", file.bytes);
    let (io, meter) = counted(&lake.io);
    lake.io = io;
    lake.splice("a1", vec![file], u64::MAX, HashMap::new()).await.unwrap();
    // two columns together, for three are more than a request brings
    assert_eq!(meter.requests().get, 1 + 2);
}
