//! Local files without a detour: the store client reads and writes them through
//! buffers of its own, twice over. All else goes through the client, but for writes to
//! Google Cloud Storage ([`gcs`]).

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use iceberg::io::{FileMetadata, FileRead, FileWrite, InputFile, OutputFile, Storage, StorageConfig, StorageFactory};
use iceberg::{Error, ErrorKind, Result};
use iceberg_storage_opendal::OpenDalResolvingStorageFactory;
use serde::{Deserialize, Serialize};

use super::past::{self, Growing};
use super::{gcs, local};
use crate::parquet::rooms;

/// The file of a location that the client reads as the same file: others are left
/// to it, so that a name means one file for whatever is done with it.
fn own(location: &str) -> Option<PathBuf> {
    location.starts_with("file:/").then(|| local::path(location)).flatten()
}

/// Makes stores that open local files themselves.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Direct(OpenDalResolvingStorageFactory);

#[typetag::serde(name = "afterwrite-direct")]
impl StorageFactory for Direct {
    fn build(&self, config: &StorageConfig) -> Result<Arc<dyn Storage>> {
        Ok(Arc::new(Files { client: Some(self.0.build(config)?), properties: Properties(Arc::new(config.props().clone())) }))
    }
}

/// Files of every store.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Files {
    /// Connections are not for writing down: a copy that was has none.
    #[serde(skip)]
    client: Option<Arc<dyn Storage>>,
    #[serde(skip)]
    properties: Properties,
}

/// What a store is reached by, keys too: it is not shown.
#[derive(Clone, Default)]
struct Properties(Arc<HashMap<String, String>>);

impl std::fmt::Debug for Properties {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("…")
    }
}

impl Files {
    fn client(&self) -> Result<&Arc<dyn Storage>> {
        self.client.as_ref().ok_or_else(|| Error::new(ErrorKind::Unexpected, "connections are not kept in copies"))
    }
}

#[async_trait]
#[typetag::serde(name = "afterwrite-direct")]
impl Storage for Files {
    async fn exists(&self, path: &str) -> Result<bool> {
        self.client()?.exists(path).await
    }

    async fn metadata(&self, path: &str) -> Result<FileMetadata> {
        self.client()?.metadata(path).await
    }

    async fn read(&self, path: &str) -> Result<Bytes> {
        match own(path) {
            Some(path) => blocking(move || std::fs::read(path).map(Bytes::from)).await,
            None => self.client()?.read(path).await,
        }
    }

    async fn reader(&self, path: &str) -> Result<Box<dyn FileRead>> {
        match own(path) {
            Some(path) => Ok(Box::new(Reader { path })),
            None => self.client()?.reader(path).await,
        }
    }

    async fn write(&self, path: &str, bytes: Bytes) -> Result<()> {
        match gcs::object(path) {
            Some((bucket, name)) => gcs::write(&self.properties.0, bucket, name, bytes).await,
            None => self.client()?.write(path, bytes).await,
        }
    }

    async fn writer(&self, path: &str) -> Result<Box<dyn FileWrite>> {
        if let Some((bucket, name)) = gcs::object(path) {
            return gcs::writer(&self.properties.0, bucket, name).await;
        }
        let Some(path) = own(path) else { return self.client()?.writer(path).await };
        let create = move || {
            if let Some(folder) = path.parent() {
                std::fs::create_dir_all(folder)?;
            }
            Ok(Growing::new(File::create(&path)?, path))
        };
        let file = blocking(create).await?;
        Ok(Box::new(Writer { file: Some(file) }))
    }

    async fn delete(&self, path: &str) -> Result<()> {
        self.client()?.delete(path).await
    }

    async fn delete_prefix(&self, path: &str) -> Result<()> {
        self.client()?.delete_prefix(path).await
    }

    async fn delete_stream(&self, paths: BoxStream<'static, String>) -> Result<()> {
        self.client()?.delete_stream(paths).await
    }

    fn new_input(&self, path: &str) -> Result<InputFile> {
        Ok(InputFile::new(Arc::new(self.clone()), path.into()))
    }

    fn new_output(&self, path: &str) -> Result<OutputFile> {
        Ok(OutputFile::new(Arc::new(self.clone()), path.into()))
    }
}

/// A local file, opened for each read: readers of one file do not wait for each
/// other, and thousands of them hold no descriptors.
struct Reader {
    path: PathBuf,
}

#[async_trait]
impl FileRead for Reader {
    async fn read(&self, range: Range<u64>) -> Result<Bytes> {
        let path = self.path.clone();
        let read = move || {
            if let Some(bytes) = past::read(&path, &range) {
                return Ok(bytes);
            }
            let length = range.end.saturating_sub(range.start);
            let mut file = File::open(&path)?;
            file.seek(SeekFrom::Start(range.start))?;
            // what is asked for may be more than there is
            let there = file.metadata()?.len().saturating_sub(range.start).min(length);
            let mut bytes = rooms::take(usize::try_from(there).map_err(std::io::Error::other)?);
            file.take(length).read_to_end(&mut bytes)?;
            match u64::try_from(bytes.len()) {
                Ok(read) if read == length => Ok(rooms::share(bytes)),
                _ => Err(std::io::Error::new(std::io::ErrorKind::UnexpectedEof, format!("{} ends before {range:?} does", path.display()))),
            }
        };
        blocking(read).await
    }
}

/// A local file that grows under its name. Closed, it is not yet durable:
/// [`local::sync`] makes it so, together with its name.
struct Writer {
    /// `None` after it was closed, or a write did not end.
    file: Option<Growing>,
}

impl Writer {
    async fn with_file(&mut self, work: impl FnOnce(&mut Growing) -> std::io::Result<()> + Send + 'static) -> Result<()> {
        let mut file = self.file.take().ok_or_else(closed)?;
        let file = blocking(move || work(&mut file).map(|()| file)).await?;
        self.file = Some(file);
        Ok(())
    }
}

#[async_trait]
impl FileWrite for Writer {
    async fn write(&mut self, bytes: Bytes) -> Result<()> {
        self.with_file(move |file| file.write_all(&bytes)).await
    }

    async fn close(&mut self) -> Result<()> {
        self.file.take().map(drop).ok_or_else(closed)
    }
}

fn closed() -> Error {
    Error::new(ErrorKind::Unexpected, "the file is closed")
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> std::io::Result<T> + Send + 'static) -> Result<T> {
    let failed = |e: std::io::Error| Error::new(ErrorKind::Unexpected, e.to_string()).with_source(e);
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done.map_err(failed),
        Err(stopped) => Err(failed(std::io::Error::other(stopped))),
    }
}

#[cfg(test)]
mod tests {
    use iceberg::io::FileIOBuilder;

    use super::*;

    #[tokio::test]
    async fn a_local_file_is_written_and_read_in_parts() {
        let dir = tempfile::tempdir().unwrap();
        let path = format!("file:{}/a/b/f", dir.path().display());
        let io = FileIOBuilder::new(Arc::new(Direct::default())).build();
        let mut writer = io.new_output(&path).unwrap().writer().await.unwrap();
        writer.write(Bytes::from_static(b"0123")).await.unwrap();
        assert_eq!(std::fs::read(dir.path().join("a/b/f")).unwrap(), b"0123", "it grows under its name");
        writer.write(Bytes::from_static(b"456789")).await.unwrap();
        writer.close().await.unwrap();
        assert!(writer.close().await.is_err() && writer.write(Bytes::new()).await.is_err());
        let reader = io.new_input(&path).unwrap().reader().await.unwrap();
        assert_eq!(io.new_input(&path).unwrap().read().await.unwrap().as_ref(), b"0123456789");
        assert_eq!(reader.read(2..5).await.unwrap().as_ref(), b"234");
        assert!(reader.read(4..4).await.unwrap().is_empty());
        assert!(reader.read(8..11).await.is_err() && reader.read(20..u64::MAX).await.is_err());
        io.new_output(&path).unwrap().writer().await.unwrap().close().await.unwrap();
        assert!(std::fs::read(dir.path().join("a/b/f")).unwrap().is_empty(), "begun anew");
    }

    #[tokio::test]
    async fn other_stores_are_left_to_the_client() {
        let io = FileIOBuilder::new(Arc::new(Direct::default())).build();
        io.new_output("memory://t/f").unwrap().write(Bytes::from_static(b"abc")).await.unwrap();
        let reader = io.new_input("memory://t/f").unwrap().reader().await.unwrap();
        assert_eq!(reader.read(1..3).await.unwrap().as_ref(), b"bc");
    }
}
