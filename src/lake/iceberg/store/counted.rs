//! Files whose requests to object stores are counted.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use iceberg::io::{
    FileIO, FileIOBuilder, FileMetadata, FileRead, FileWrite, InputFile, OutputFile, Storage, StorageConfig, StorageFactory,
};
use iceberg::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

use super::local;
use crate::model::requests::Requests;

/// Counts requests.
#[derive(Debug, Default)]
pub struct Meter {
    get: AtomicU64,
    put: AtomicU64,
    head: AtomicU64,
    list: AtomicU64,
    delete: AtomicU64,
}

impl Meter {
    /// Counts one read of a whole file that went another way.
    pub fn was_read(&self, path: &str) {
        add(self, path, 1, |meter| &meter.get);
    }

    /// Those so far.
    pub fn requests(&self) -> Requests {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Requests { get: read(&self.get), put: read(&self.put), head: read(&self.head), list: read(&self.list), delete: read(&self.delete) }
    }
}

/// The same files, counted from zero by the meter that is handed out.
pub fn counted(io: &FileIO) -> (FileIO, Arc<Meter>) {
    let meter = Arc::new(Meter::default());
    let files = Counted { files: Some((io.clone(), Arc::clone(&meter))) };
    (FileIOBuilder::new(Arc::new(files)).build(), meter)
}

/// Factory and store in one: it is told apart by no property.
#[derive(Clone, Default, Serialize, Deserialize)]
struct Counted {
    /// Connections are not for writing down: a copy that was has none.
    #[serde(skip)]
    files: Option<(FileIO, Arc<Meter>)>,
}

impl fmt::Debug for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Counted")
    }
}

impl Counted {
    /// The files, where `counter` of the meter goes up by `by` if the path is of an
    /// object store.
    fn at(&self, path: &str, by: u64, counter: fn(&Meter) -> &AtomicU64) -> Result<&FileIO> {
        let (io, meter) = self.files.as_ref().ok_or_else(|| Error::new(ErrorKind::Unexpected, "connections are not kept in copies"))?;
        add(meter, path, by, counter);
        Ok(io)
    }

    fn meter(&self) -> Arc<Meter> {
        self.files.as_ref().map(|(_, meter)| Arc::clone(meter)).unwrap_or_default()
    }
}

fn add(meter: &Meter, path: &str, by: u64, counter: fn(&Meter) -> &AtomicU64) {
    if local::path(path).is_none() {
        counter(meter).fetch_add(by, Ordering::Relaxed);
    }
}

#[typetag::serde(name = "afterwrite-counted")]
impl StorageFactory for Counted {
    fn build(&self, _config: &StorageConfig) -> Result<Arc<dyn Storage>> {
        Ok(Arc::new(self.clone()))
    }
}

#[async_trait]
#[typetag::serde(name = "afterwrite-counted")]
impl Storage for Counted {
    async fn exists(&self, path: &str) -> Result<bool> {
        self.at(path, 1, |meter| &meter.head)?.exists(path).await
    }

    async fn metadata(&self, path: &str) -> Result<FileMetadata> {
        self.at(path, 1, |meter| &meter.head)?.new_input(path)?.metadata().await
    }

    async fn read(&self, path: &str) -> Result<Bytes> {
        self.at(path, 1, |meter| &meter.get)?.new_input(path)?.read().await
    }

    async fn reader(&self, path: &str) -> Result<Box<dyn FileRead>> {
        let file = self.at(path, 0, |meter| &meter.get)?.new_input(path)?.reader().await?;
        Ok(Box::new(Reader { file, path: path.to_owned(), meter: self.meter() }))
    }

    async fn write(&self, path: &str, bytes: Bytes) -> Result<()> {
        self.at(path, 1, |meter| &meter.put)?.new_output(path)?.write(bytes).await
    }

    async fn writer(&self, path: &str) -> Result<Box<dyn FileWrite>> {
        let file = self.at(path, 0, |meter| &meter.put)?.new_output(path)?.writer().await?;
        Ok(Box::new(Writer { file, path: path.to_owned(), meter: self.meter(), parts: 0 }))
    }

    async fn delete(&self, path: &str) -> Result<()> {
        self.at(path, 1, |meter| &meter.delete)?.delete(path).await
    }

    async fn delete_prefix(&self, path: &str) -> Result<()> {
        self.at(path, 1, |meter| &meter.list)?.delete_prefix(path).await
    }

    async fn delete_stream(&self, paths: BoxStream<'static, String>) -> Result<()> {
        self.at("", 1, |meter| &meter.delete)?.delete_stream(paths).await
    }

    fn new_input(&self, path: &str) -> Result<InputFile> {
        Ok(InputFile::new(Arc::new(self.clone()), path.into()))
    }

    fn new_output(&self, path: &str) -> Result<OutputFile> {
        Ok(OutputFile::new(Arc::new(self.clone()), path.into()))
    }
}

struct Reader {
    file: Box<dyn FileRead>,
    path: String,
    meter: Arc<Meter>,
}

#[async_trait]
impl FileRead for Reader {
    async fn read(&self, range: Range<u64>) -> Result<Bytes> {
        add(&self.meter, &self.path, 1, |meter| &meter.get);
        self.file.read(range).await
    }
}

/// An upload: one part goes in one request, more take one to begin and one to end.
struct Writer {
    file: Box<dyn FileWrite>,
    path: String,
    meter: Arc<Meter>,
    parts: u64,
}

#[async_trait]
impl FileWrite for Writer {
    async fn write(&mut self, bytes: Bytes) -> Result<()> {
        self.parts = self.parts.saturating_add(1);
        self.file.write(bytes).await
    }

    async fn close(&mut self) -> Result<()> {
        let sent = if self.parts > 1 { self.parts.saturating_add(2) } else { 1 };
        add(&self.meter, &self.path, sent, |meter| &meter.put);
        self.file.close().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn every_request_to_an_object_store_is_counted_by_kind() {
        let (io, meter) = counted(&FileIO::new_with_memory());
        let path = "memory://t/f";
        io.new_output(path).unwrap().write(Bytes::from_static(b"abc")).await.unwrap();
        let mut writer = io.new_output("memory://t/g").unwrap().writer().await.unwrap();
        writer.write(Bytes::from_static(b"abc")).await.unwrap();
        writer.write(Bytes::from_static(b"def")).await.unwrap();
        writer.close().await.unwrap();
        assert_eq!(meter.requests(), Requests { put: 1 + 4, ..Requests::default() });
        let reader = io.new_input(path).unwrap().reader().await.unwrap();
        assert_eq!(meter.requests().get, 0, "nothing is asked before a range is");
        assert_eq!((reader.read(0..1).await.unwrap().as_ref(), reader.read(1..3).await.unwrap().as_ref()), (&b"a"[..], &b"bc"[..]));
        io.new_input(path).unwrap().read().await.unwrap();
        assert!(io.exists(path).await.unwrap() && io.new_input(path).unwrap().metadata().await.unwrap().size == 3);
        io.delete(path).await.unwrap();
        assert_eq!(meter.requests(), Requests { get: 3, put: 5, head: 2, list: 0, delete: 1 });
        assert_eq!(meter.requests().all(), 11);
    }

    #[tokio::test]
    async fn files_on_local_disks_cost_no_request() {
        let dir = tempfile::tempdir().unwrap();
        let path = format!("file://{}/f", dir.path().display());
        let (io, meter) = counted(&FileIO::new_with_fs());
        io.new_output(&path).unwrap().write(Bytes::from_static(b"abc")).await.unwrap();
        io.new_input(&path).unwrap().read().await.unwrap();
        assert_eq!(meter.requests(), Requests::default());
    }
}
