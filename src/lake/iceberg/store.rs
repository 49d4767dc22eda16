//! Files of tables: one set of calls over every kind of store, by the paths that
//! metadata spells.

pub mod counted;
mod direct;
mod gcs;
pub mod local;
mod past;
mod ranges;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use iceberg::io::{FileIO, FileIOBuilder, FileRead, FileWrite};

use self::direct::Direct;
use crate::lake::{Error, NotLanded, Result};
use crate::model::location::Location;

/// Access to every store that a catalog's tables lie in, from the catalog's
/// properties by their Iceberg names (`s3.endpoint`, `s3.region` or
/// `client.region`, `s3.path-style-access`, `s3.access-key-id`,
/// `s3.secret-access-key`, `s3.session-token`, `gcs.*`, `adls.*`). The scheme of
/// each path chooses the store: `file`, `s3`, `s3a`, `s3n`, `gs`, `abfs`, `abfss`,
/// `wasb`, `wasbs`, `memory`. No store is contacted before its first file.
pub fn file_io(properties: &BTreeMap<String, String>) -> FileIO {
    FileIOBuilder::new(Arc::new(Direct::default())).with_props(properties).build()
}

/// The files that a [`FileIO`] reaches, with a count of what was asked of it.
///
/// A path is used exactly as metadata spells it. One that the store client would
/// change on its way (an empty segment in an object's key, white space at its
/// end) is refused, because it would name another object.
#[derive(Clone)]
pub struct Store {
    io: FileIO,
    meter: Arc<Meter>,
}

/// Requests and bytes, so far.
#[derive(Debug, Default)]
struct Meter {
    requests: AtomicU64,
    read: AtomicU64,
    written: AtomicU64,
}

/// What was asked of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// Calls; one call may take several requests on the wire.
    pub requests: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Bytes written.
    pub bytes_written: u64,
}

impl Store {
    /// The files behind `io`, counted from zero.
    pub fn new(io: &FileIO) -> Self {
        Self { io: io.clone(), meter: Arc::default() }
    }

    /// What was asked of this store and its clones.
    pub fn spent(&self) -> Spent {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Spent { requests: get(&self.meter.requests), bytes_read: get(&self.meter.read), bytes_written: get(&self.meter.written) }
    }

    /// A whole file.
    ///
    /// # Errors
    /// [`Error::NotFound`] when there is none, [`Error::Unreachable`] when the store
    /// does not answer.
    pub async fn read(&self, path: &str) -> Result<Bytes> {
        let at = address(path)?;
        self.count(0, 0);
        let read = async { self.io.new_input(&at)?.read().await };
        let bytes = match read.await {
            Ok(bytes) => bytes,
            Err(e) => return Err(self.explain("read", path, e).await),
        };
        self.add_read(bytes.len());
        Ok(bytes)
    }

    /// A file for many reads of ranges.
    ///
    /// # Errors
    /// As [`Store::read`]; some stores tell a missing file only at the first read.
    pub async fn open(&self, path: &str) -> Result<Source> {
        let at = address(path)?;
        let open = async { self.io.new_input(&at)?.reader().await };
        match open.await {
            Ok(reader) => Ok(Source { store: self.clone(), path: path.into(), reader }),
            Err(e) => Err(self.explain("open", path, e).await),
        }
    }

    /// A file's size in bytes.
    ///
    /// # Errors
    /// As [`Store::read`].
    pub async fn size(&self, path: &str) -> Result<u64> {
        let at = address(path)?;
        self.count(0, 0);
        let stat = async { self.io.new_input(&at)?.metadata().await };
        match stat.await {
            Ok(metadata) => Ok(metadata.size),
            Err(e) => Err(self.explain("stat", path, e).await),
        }
    }

    /// Whether a file is there.
    ///
    /// # Errors
    /// [`Error::Unreachable`] when the store does not answer.
    pub async fn exists(&self, path: &str) -> Result<bool> {
        let at = address(path)?;
        self.count(0, 0);
        self.io.exists(&at).await.map_err(|e| Error::unreachable(format!("look for {path}"), e))
    }

    /// Writes a whole file. It is durable when this returns: a local file and its
    /// folders are synced.
    ///
    /// # Errors
    /// [`Error::Unreachable`]; part of the file may then be there.
    pub async fn write(&self, path: &str, bytes: Bytes) -> Result<()> {
        let mut writer = self.create(path).await?;
        writer.write(bytes).await?;
        writer.close().await.map(drop)
    }

    /// Begins a file. An object of a remote store appears whole, when the writer is
    /// closed; a local one grows under its name.
    ///
    /// # Errors
    /// [`Error::Unreachable`] when the store does not answer.
    pub async fn create(&self, path: &str) -> Result<Writer> {
        let at = address(path)?;
        self.count(0, 0);
        let create = async { self.io.new_output(&at)?.writer().await };
        let inner = create.await.map_err(|e| Error::unreachable(format!("create {path}"), e))?;
        Ok(Writer { store: self.clone(), path: path.into(), inner, bytes: 0 })
    }

    /// Removes one file, and nothing beside it. A missing file is no error.
    ///
    /// The only deleting call of the product: it takes the proof that the file is
    /// in no table.
    ///
    /// # Errors
    /// [`Error::Unreachable`]; the file may then be there still.
    pub async fn delete(&self, _proof: &NotLanded, path: &str) -> Result<()> {
        let at = address(path)?;
        self.count(0, 0);
        self.io.delete(&at).await.map_err(|e| Error::unreachable(format!("delete {path}"), e))
    }

    /// Bytes free for new files under a location; `None` where the store cannot tell.
    ///
    /// # Errors
    /// [`Error::Unreachable`] when a local file system does not answer.
    pub async fn free_space(&self, location: &str) -> Result<Option<u64>> {
        match local::path(location) {
            Some(path) => local::free_space(path).await.map(Some).map_err(|e| Error::unreachable(format!("free space of {location}"), e)),
            None => Ok(None),
        }
    }

    fn count(&self, read: u64, written: u64) {
        self.meter.requests.fetch_add(1, Ordering::Relaxed);
        self.meter.read.fetch_add(read, Ordering::Relaxed);
        self.meter.written.fetch_add(written, Ordering::Relaxed);
    }

    fn add_read(&self, bytes: usize) {
        self.meter.read.fetch_add(u64::try_from(bytes).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// A failed read, named by what the caller must do. Stores differ in how they
    /// report a missing file, so the store is asked whether it is there.
    async fn explain(&self, what: &str, path: &str, error: iceberg::Error) -> Error {
        match self.exists(path).await {
            Ok(false) => Error::NotFound { path: path.into() },
            _ => Error::unreachable(format!("{what} {path}"), error),
        }
    }
}

/// An opened file.
pub struct Source {
    store: Store,
    path: String,
    reader: Box<dyn FileRead>,
}

impl Source {
    /// The path it was opened by.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// One range.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Unreachable`], or a `damaged` refusal when the
    /// file ends before the range does.
    pub async fn read(&self, range: Range<u64>) -> Result<Bytes> {
        let want = range.end.saturating_sub(range.start);
        if want == 0 {
            return Ok(Bytes::new());
        }
        self.store.count(0, 0);
        let bytes = match self.reader.read(range.clone()).await {
            Ok(bytes) => bytes,
            Err(e) => return Err(self.explain(&range, e).await),
        };
        self.store.add_read(bytes.len());
        if u64::try_from(bytes.len()) != Ok(want) {
            return Err(Error::damaged(&self.path, format!("bytes {range:?} asked for, {} given", bytes.len())));
        }
        Ok(bytes)
    }

    /// Several ranges, in the order asked for. Ranges that nearly touch are fetched
    /// as one.
    ///
    /// # Errors
    /// As [`Source::read`].
    pub async fn read_all(&self, wanted: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let fetches = ranges::coalesce(wanted);
        let mut fetched = Vec::with_capacity(fetches.len());
        for fetch in fetches {
            fetched.push((fetch.start, self.read(fetch).await?));
        }
        let cut = |range: &Range<u64>| ranges::cut(&fetched, range);
        wanted.iter().map(cut).collect::<Option<_>>().ok_or_else(|| Error::damaged(&self.path, format!("ranges {wanted:?} are no ranges")))
    }

    /// A range past the end is damage, and not a store that does not answer.
    async fn explain(&self, range: &Range<u64>, error: iceberg::Error) -> Error {
        match self.store.size(&self.path).await {
            Ok(size) if size < range.end => Error::damaged(&self.path, format!("bytes {range:?} asked for, the file holds {size}")),
            Ok(_) => Error::unreachable(format!("read bytes {range:?} of {}", self.path), error),
            Err(e) => e,
        }
    }
}

/// A file being written. Dropped before [`Writer::close`], it leaves nothing in a
/// remote store but perhaps an unfinished upload, and part of a file in a local one.
pub struct Writer {
    store: Store,
    path: String,
    inner: Box<dyn FileWrite>,
    bytes: u64,
}

impl Writer {
    /// The next bytes.
    ///
    /// # Errors
    /// [`Error::Unreachable`].
    pub async fn write(&mut self, bytes: Bytes) -> Result<()> {
        let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        self.store.count(0, length);
        self.inner.write(bytes).await.map_err(|e| Error::unreachable(format!("write {}", self.path), e))?;
        self.bytes = self.bytes.saturating_add(length);
        Ok(())
    }

    /// Ends the file and gives its size. It is durable when this returns: a local
    /// file and its folders are synced, so that no swap can point at a file which a
    /// power cut takes away.
    ///
    /// # Errors
    /// [`Error::Unreachable`].
    pub async fn close(mut self) -> Result<u64> {
        self.store.count(0, 0);
        self.inner.close().await.map_err(|e| Error::unreachable(format!("close {}", self.path), e))?;
        if let Some(path) = local::path(&self.path) {
            local::sync(path).await.map_err(|e| Error::unreachable(format!("sync {}", self.path), e))?;
        }
        Ok(self.bytes)
    }
}

/// How the store client is told of a path: as it is spelled, but with a scheme.
///
/// # Errors
/// A refusal when the client would reach another object than the one named.
fn address(path: &str) -> Result<Cow<'_, str>> {
    let location = Location::parse(path);
    let refuse = |why: &str| Err(Error::damaged(path, why));
    if path.trim() != path {
        return refuse("the path begins or ends with white space, which the store client drops");
    }
    if location.class == "file" {
        return match (location.authority.is_empty(), path.starts_with('/'), path.contains(':')) {
            (false, _, _) => refuse("the file URI names a host; write file:///path"),
            (true, true, _) => Ok(Cow::Owned(format!("file:{path}"))),
            (true, false, true) => Ok(Cow::Borrowed(path)),
            (true, false, false) => refuse("the path is relative and has no scheme"),
        };
    }
    let key = path.split_once("://").and_then(|(_, rest)| rest.split_once('/')).map_or("", |(_, key)| key);
    if location.class != "memory" && (key.starts_with('/') || key.contains("//")) {
        return refuse("the key has an empty segment, which the store client drops");
    }
    Ok(Cow::Borrowed(path))
}
