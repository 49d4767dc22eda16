//! A table's files behind credentials that end: renewed while a long job runs.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use iceberg::io::{
    FileIO, FileIOBuilder, FileMetadata, FileRead, FileWrite, InputFile, OutputFile, Storage, StorageConfig, StorageFactory,
};
use iceberg::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;

use super::vend::Grants;
use crate::lake::clock::Clock;
use crate::lake::iceberg::store;

/// How long before their end credentials are renewed, in milliseconds; at most a
/// quarter of what was left when they were had.
const EARLY_MS: i64 = 5 * 60_000;

/// Where credentials are had anew.
#[async_trait]
pub trait Vendor: Send + Sync {
    /// Fresh credentials for the same table.
    async fn grants(&self) -> crate::lake::Result<Grants>;
}

/// Access to a table's files by what its catalog handed out.
pub fn file_io(grants: Grants, vendor: Arc<dyn Vendor>, clock: Arc<dyn Clock>) -> FileIO {
    let held = Held::new(grants, clock.as_ref());
    let vault = Vault { held: Mutex::new(held), vendor, clock };
    FileIOBuilder::new(Arc::new(Vended { vault: Some(Arc::new(vault)) })).build()
}

/// Credentials, and the stores that were opened with them.
struct Vault {
    held: Mutex<Held>,
    vendor: Arc<dyn Vendor>,
    clock: Arc<dyn Clock>,
}

struct Held {
    grants: Grants,
    stores: HashMap<usize, FileIO>,
    renew_ms: i64,
    /// How often they were renewed.
    age: u64,
}

impl Held {
    fn new(grants: Grants, clock: &dyn Clock) -> Self {
        let now = clock.now_ms();
        let left = |ends: i64| ends.saturating_sub(EARLY_MS.min(ends.saturating_sub(now).max(0) / 4));
        Self { renew_ms: grants.ends_ms.map_or(i64::MAX, left), grants, stores: HashMap::new(), age: 0 }
    }
}

impl Vault {
    /// The store that reaches a path now, and how often credentials were renewed.
    /// Credentials that cannot be renewed serve until they end.
    async fn store(&self, path: &str) -> Result<(u64, FileIO)> {
        let mut held = self.held.lock().await;
        if self.clock.now_ms() >= held.renew_ms {
            match self.vendor.grants().await {
                Ok(grants) => *held = Held { age: held.age.wrapping_add(1), ..Held::new(grants, self.clock.as_ref()) },
                Err(why) if held.grants.ends_ms.is_some_and(|ends| self.clock.now_ms() < ends) => {
                    tracing::warn!(%why, "storage credentials could not be renewed; tried again");
                }
                Err(why) => return Err(Error::new(ErrorKind::Unexpected, format!("storage credentials have ended: {why}"))),
            }
        }
        let (at, properties) = held.grants.reach(path);
        if let Some(io) = held.stores.get(&at) {
            return Ok((held.age, io.clone()));
        }
        let io = store::file_io(properties);
        held.stores.insert(at, io.clone());
        Ok((held.age, io))
    }
}

/// Factory and store in one: it is told apart by no property.
#[derive(Clone, Default, Serialize, Deserialize)]
struct Vended {
    /// Credentials are not for writing down: a copy that was has none.
    #[serde(skip)]
    vault: Option<Arc<Vault>>,
}

impl fmt::Debug for Vended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Vended")
    }
}

impl Vended {
    async fn at(&self, path: &str) -> Result<FileIO> {
        Ok(self.open(path).await?.1)
    }

    async fn open(&self, path: &str) -> Result<(u64, FileIO)> {
        match &self.vault {
            Some(vault) => vault.store(path).await,
            None => Err(Error::new(ErrorKind::Unexpected, "storage credentials are not kept in copies")),
        }
    }
}

#[typetag::serde(name = "afterwrite-vended")]
impl StorageFactory for Vended {
    fn build(&self, _config: &StorageConfig) -> Result<Arc<dyn Storage>> {
        Ok(Arc::new(self.clone()))
    }
}

#[async_trait]
#[typetag::serde(name = "afterwrite-vended")]
impl Storage for Vended {
    async fn exists(&self, path: &str) -> Result<bool> {
        self.at(path).await?.exists(path).await
    }

    async fn metadata(&self, path: &str) -> Result<FileMetadata> {
        self.at(path).await?.new_input(path)?.metadata().await
    }

    async fn read(&self, path: &str) -> Result<Bytes> {
        self.at(path).await?.new_input(path)?.read().await
    }

    async fn reader(&self, path: &str) -> Result<Box<dyn FileRead>> {
        let (age, io) = self.open(path).await?;
        let opened = Mutex::new((age, Arc::from(io.new_input(path)?.reader().await?)));
        Ok(Box::new(Reader { files: self.clone(), path: path.into(), opened }))
    }

    async fn write(&self, path: &str, bytes: Bytes) -> Result<()> {
        self.at(path).await?.new_output(path)?.write(bytes).await
    }

    async fn writer(&self, path: &str) -> Result<Box<dyn FileWrite>> {
        self.at(path).await?.new_output(path)?.writer().await
    }

    async fn delete(&self, path: &str) -> Result<()> {
        self.at(path).await?.delete(path).await
    }

    async fn delete_prefix(&self, path: &str) -> Result<()> {
        Err(Error::new(ErrorKind::FeatureUnsupported, format!("{path}: files are removed one by one")))
    }

    async fn delete_stream(&self, mut paths: BoxStream<'static, String>) -> Result<()> {
        while let Some(path) = paths.next().await {
            self.delete(&path).await?;
        }
        Ok(())
    }

    fn new_input(&self, path: &str) -> Result<InputFile> {
        Ok(InputFile::new(Arc::new(self.clone()), path.into()))
    }

    fn new_output(&self, path: &str) -> Result<OutputFile> {
        Ok(OutputFile::new(Arc::new(self.clone()), path.into()))
    }
}

/// A file that is opened anew when its credentials were.
struct Reader {
    files: Vended,
    path: String,
    opened: Mutex<(u64, Arc<dyn FileRead>)>,
}

#[async_trait]
impl FileRead for Reader {
    async fn read(&self, range: Range<u64>) -> Result<Bytes> {
        let (age, io) = self.files.open(&self.path).await?;
        let reader = {
            let mut opened = self.opened.lock().await;
            if opened.0 != age {
                *opened = (age, Arc::from(io.new_input(&self.path)?.reader().await?));
            }
            Arc::clone(&opened.1)
        };
        reader.read(range).await
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::atomic::{AtomicI64, Ordering};
    use std::time::Duration;

    use super::*;

    struct Hands(AtomicI64);

    #[async_trait]
    impl Clock for Hands {
        fn now_ms(&self) -> i64 {
            self.0.load(Ordering::SeqCst)
        }
        async fn sleep(&self, _: Duration) {}
    }

    fn grants(ends_ms: i64) -> Grants {
        let config = BTreeMap::from([
            ("s3.access-key-id".to_owned(), "k".to_owned()),
            ("s3.session-token-expires-at-ms".to_owned(), ends_ms.to_string()),
        ]);
        Grants::of(&BTreeMap::new(), &config, &[]).unwrap().unwrap()
    }

    /// Gives credentials that last for 1000 ms, as often as it may.
    struct Counter {
        left: AtomicI64,
        clock: Arc<Hands>,
    }

    #[async_trait]
    impl Vendor for Counter {
        async fn grants(&self) -> crate::lake::Result<Grants> {
            match self.left.fetch_sub(1, Ordering::SeqCst) {
                left if left > 0 => Ok(grants(self.clock.now_ms() + 1000)),
                _ => Err(crate::lake::Error::Setup("no more".into())),
            }
        }
    }

    #[tokio::test]
    async fn credentials_are_renewed_before_they_end_and_an_open_file_follows() {
        let dir = tempfile::tempdir().unwrap();
        let path = format!("file:{}/f", dir.path().display());
        std::fs::write(dir.path().join("f"), b"0123456789").unwrap();
        let clock = Arc::new(Hands(AtomicI64::new(0)));
        let vendor = Arc::new(Counter { left: AtomicI64::new(1), clock: Arc::clone(&clock) });
        let io = file_io(grants(1000), Arc::clone(&vendor) as Arc<dyn Vendor>, Arc::clone(&clock) as Arc<dyn Clock>);
        let reader = io.new_input(&path).unwrap().reader().await.unwrap();

        clock.0.store(749, Ordering::SeqCst);
        assert_eq!(reader.read(0..2).await.unwrap().as_ref(), b"01");
        assert_eq!(vendor.left.load(Ordering::SeqCst), 1, "a quarter of their life before their end, not sooner");
        clock.0.store(750, Ordering::SeqCst);
        assert_eq!(reader.read(2..4).await.unwrap().as_ref(), b"23");
        assert_eq!(vendor.left.load(Ordering::SeqCst), 0);
        // cannot be renewed, and serve until they end
        clock.0.store(1700, Ordering::SeqCst);
        assert_eq!(reader.read(4..6).await.unwrap().as_ref(), b"45");
        clock.0.store(1750, Ordering::SeqCst);
        let error = reader.read(6..8).await.unwrap_err().to_string();
        assert!(error.contains("storage credentials have ended"), "{error}");
    }

    #[tokio::test]
    async fn files_are_written_and_removed_through_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = format!("file:{}/g", dir.path().display());
        let clock = Arc::new(Hands(AtomicI64::new(0)));
        let vendor = Arc::new(Counter { left: AtomicI64::new(0), clock: Arc::clone(&clock) });
        let io = file_io(grants(1000), vendor, clock);
        io.new_output(&path).unwrap().write(Bytes::from("x")).await.unwrap();
        assert_eq!((io.exists(&path).await.unwrap(), io.new_input(&path).unwrap().metadata().await.unwrap().size), (true, 1));
        io.delete(&path).await.unwrap();
        assert!(!io.exists(&path).await.unwrap());
        assert!(!format!("{io:?}").contains("access-key"));
    }
}
