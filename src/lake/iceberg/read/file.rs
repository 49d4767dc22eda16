//! One Parquet file in the store: ranged reads, its footer, its row groups.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow_schema::{DataType, Field, FieldRef, Fields, Schema, SchemaRef, TimeUnit};
use bytes::Bytes;
use futures::future::{BoxFuture, FutureExt};
use futures::stream::{self, StreamExt, TryStreamExt};
use iceberg::io::{FileIO, FileRead};
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions, RowSelection};
use parquet::arrow::async_reader::{AsyncFileReader, ParquetRecordBatchStream};
use parquet::arrow::{ParquetRecordBatchStreamBuilder, ProjectionMask};
use parquet::basic::Type as Physical;
use parquet::errors::ParquetError;
use parquet::file::metadata::{
    ColumnChunkMetaData, PageIndexPolicy, ParquetMetaData, ParquetMetaDataOptions, ParquetMetaDataReader, RowGroupMetaData,
};
use tokio::runtime::Handle;

use super::window::{Piece, Window, Windows};
use crate::lake::iceberg::store as files;
use crate::lake::{Error, Result};
use crate::model::refusal::{Refusal, Refused};

/// Bytes read from a file's end at once: most footers fit.
const FOOTER_GUESS: usize = 64 << 10;
/// Ranges nearer than this are fetched by one request.
const GAP: u64 = 256 << 10;
/// Longest range fetched by one request.
const REQUEST: u64 = 16 << 20;
/// Requests in flight for one row group.
const IN_FLIGHT: usize = 4;

/// File access that counts the bytes it fetched.
#[derive(Clone)]
pub struct Store {
    io: FileIO,
    fetched: Arc<AtomicU64>,
}

impl Store {
    /// Access through `io`, nothing fetched yet.
    pub fn new(io: &FileIO) -> Self {
        Self { io: io.clone(), fetched: Arc::default() }
    }

    /// Bytes fetched so far.
    pub fn fetched(&self) -> u64 {
        self.fetched.load(Ordering::Relaxed)
    }

    /// A whole file.
    ///
    /// Errs `NotFound` or `Unreachable`.
    pub async fn whole(&self, path: &str) -> Result<Bytes> {
        let read = async { self.io.new_input(path)?.read().await };
        match read.await {
            Ok(bytes) => {
                self.count(bytes.len());
                Ok(bytes)
            }
            Err(error) => Err(self.classify(path, error).await),
        }
    }

    /// One range of a file.
    ///
    /// Errs `NotFound`, `Unreachable`, or refused `Damaged` when the file is shorter.
    pub async fn range(&self, path: &str, range: Range<u64>) -> Result<Bytes> {
        let bytes = files::Store::new(&self.io).open(path).await?.read(range).await?;
        self.count(bytes.len());
        Ok(bytes)
    }

    /// Where it reads.
    pub fn io(&self) -> &FileIO {
        &self.io
    }

    /// Size in bytes, as the store tells it.
    ///
    /// Errs `NotFound` or `Unreachable`.
    pub async fn size(&self, path: &str) -> Result<u64> {
        let read = async { self.io.new_input(path)?.metadata().await };
        match read.await {
            Ok(metadata) => Ok(metadata.size),
            Err(error) => Err(self.classify(path, error).await),
        }
    }

    fn count(&self, bytes: usize) {
        self.fetched.fetch_add(u64::try_from(bytes).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    async fn reader(&self, path: &str, size: u64) -> Result<FileReader> {
        let open = async { self.io.new_input(path)?.reader().await };
        match open.await {
            Ok(file) => Ok(FileReader { file: Arc::from(file), size, store: self.clone() }),
            Err(error) => Err(self.classify(path, error).await),
        }
    }

    /// The crate reports a missing file as it reports any other failure, so the
    /// store is asked again.
    async fn classify(&self, path: &str, error: iceberg::Error) -> Error {
        let exists = async { self.io.exists(path).await };
        match exists.await {
            Ok(false) => Error::NotFound { path: path.into() },
            _ => Error::unreachable(format!("read {path}"), error),
        }
    }

    /// Tells a store that failed from a file that cannot be decoded.
    pub(super) async fn parquet_error(&self, path: &str, error: ParquetError) -> Error {
        match error {
            ParquetError::External(cause) => match cause.downcast::<iceberg::Error>() {
                Ok(cause) => self.classify(path, *cause).await,
                Err(cause) => Error::damaged(path, cause),
            },
            other => Error::damaged(path, other),
        }
    }
}

/// A Parquet file with its footer read.
#[derive(Clone)]
pub struct ParquetFile {
    /// Its path.
    pub path: Arc<str>,
    store: Store,
    reader: FileReader,
    footer: ArrowReaderMetadata,
}

impl ParquetFile {
    /// Reads the footer. `size` is the size in bytes that the metadata states.
    ///
    /// The Arrow schema is inferred from the Parquet types alone (a writer's
    /// embedded hint is ignored): no dictionaries, no views; INT96 reads as
    /// microseconds, as every Iceberg reader reads it.
    ///
    /// Errs `NotFound`, `Unreachable`, or refused `Damaged`.
    pub async fn open(store: &Store, path: &str, size: u64) -> Result<Self> {
        Self::open_with(store, path, size, false).await
    }

    /// As [`ParquetFile::open`], with the page indexes and the counts of encodings
    /// that the file has.
    pub async fn open_indexed(store: &Store, path: &str, size: u64) -> Result<Self> {
        Self::open_with(store, path, size, true).await
    }

    async fn open_with(store: &Store, path: &str, size: u64, indexed: bool) -> Result<Self> {
        let mut reader = store.reader(path, size).await?;
        let footer = match reader.footer(indexed).await {
            Ok(footer) => footer,
            Err(error) => return Err(store.parquet_error(path, error).await),
        };
        let placed = |c: &ColumnChunkMetaData| {
            c.compressed_size() >= 0 && c.data_page_offset() >= 0 && c.dictionary_page_offset().is_none_or(|at| at >= 0)
        };
        if !footer.row_groups().iter().flat_map(RowGroupMetaData::columns).all(placed) {
            return Err(Error::damaged(path, "a column chunk has no place in the file"));
        }
        let footer = describe(footer).map_err(|error| Error::damaged(path, error))?;
        Ok(Self { path: path.into(), store: store.clone(), reader, footer })
    }

    /// The Arrow schema of all columns, with field ids where the file has them.
    pub fn schema(&self) -> &SchemaRef {
        self.footer.schema()
    }

    /// The footer as Arrow's readers take it.
    pub fn arrow(&self) -> &ArrowReaderMetadata {
        &self.footer
    }

    /// The bytes of some ranges: near ones are fetched by one request.
    ///
    /// Errs `NotFound`, `Unreachable`, or refused `Damaged` when the file is shorter.
    pub async fn fetch(&self, ranges: &[Range<u64>]) -> Result<Vec<Piece>> {
        match self.reader.pieces(ranges).await {
            Ok(pieces) => Ok(pieces),
            Err(error) => Err(self.error(error).await),
        }
    }

    /// The bytes of one range.
    ///
    /// Errs as [`ParquetFile::fetch`].
    pub async fn bytes(&self, range: Range<u64>) -> Result<Bytes> {
        match self.reader.fetch(range).await {
            Ok(bytes) => Ok(bytes),
            Err(error) => Err(self.error(error).await),
        }
    }

    /// Its bytes for a reader on a blocking thread; `ahead` are fetched already, others on
    /// `runtime`.
    pub fn window(&self, ahead: Arc<Vec<Piece>>, windows: Windows, runtime: &Handle) -> Window {
        Window::new(self.reader.clone(), ahead, windows, runtime)
    }

    /// Its bytes in the store.
    pub fn size(&self) -> u64 {
        self.reader.size()
    }

    /// The footer.
    pub fn footer(&self) -> &Arc<ParquetMetaData> {
        self.footer.metadata()
    }

    /// Rows of all row groups.
    ///
    /// Errs refused `Damaged` on a negative count.
    pub fn rows(&self) -> Result<u64> {
        let mut rows = 0u64;
        for group in self.footer().row_groups() {
            let more = u64::try_from(group.num_rows()).ok();
            rows = more
                .and_then(|n| rows.checked_add(n))
                .ok_or_else(|| Error::damaged(&self.path, "a row group with an impossible row count"))?;
        }
        Ok(rows)
    }

    /// A stream over one row group's rows, in order, of the given leaf columns.
    ///
    /// Errs `Unreachable`, or refused `Damaged`.
    pub async fn stream(&self, group: usize, leaves: &[usize], batch_rows: usize) -> Result<ParquetRecordBatchStream<FileReader>> {
        let reader = self.reader.clone();
        let mask = ProjectionMask::leaves(self.footer.parquet_schema(), leaves.iter().copied());
        ParquetRecordBatchStreamBuilder::new_with_metadata(reader, self.footer.clone())
            .with_row_groups(vec![group])
            .with_projection(mask)
            .with_batch_size(batch_rows)
            .build()
            .map_err(|error| Error::damaged(&self.path, error))
    }

    /// As [`ParquetFile::stream`], of the selected rows alone.
    ///
    /// Errs as [`ParquetFile::stream`].
    pub fn picked(
        &self,
        group: usize,
        leaves: &[usize],
        batch_rows: usize,
        rows: RowSelection,
    ) -> Result<ParquetRecordBatchStream<FileReader>> {
        let mask = ProjectionMask::leaves(self.footer.parquet_schema(), leaves.iter().copied());
        ParquetRecordBatchStreamBuilder::new_with_metadata(self.reader.clone(), self.footer.clone())
            .with_row_groups(vec![group])
            .with_projection(mask)
            .with_batch_size(batch_rows)
            .with_row_selection(rows)
            .build()
            .map_err(|error| Error::damaged(&self.path, error))
    }

    /// An error of this file's stream, told apart.
    pub async fn error(&self, error: ParquetError) -> Error {
        self.store.parquet_error(&self.path, error).await
    }

    /// A refusal about this file.
    pub fn refuse(&self, refusal: Refusal, why: impl std::fmt::Display) -> Error {
        Refused::new(refusal, format!("{}: {why}", self.path)).into()
    }
}

fn describe(footer: Arc<ParquetMetaData>) -> parquet::errors::Result<ArrowReaderMetadata> {
    let options = || ArrowReaderOptions::new().with_skip_arrow_metadata(true);
    let plain = ArrowReaderMetadata::try_new(footer.clone(), options())?;
    let columns = footer.file_metadata().schema_descr().columns();
    if columns.iter().all(|c| c.physical_type() != Physical::INT96) {
        return Ok(plain);
    }
    let mut leaf = 0;
    let is_int96 = |leaf: usize| columns.get(leaf).is_some_and(|c| c.physical_type() == Physical::INT96);
    let fields: Vec<FieldRef> = plain.schema().fields().iter().map(|f| int96_as_micros(f, &mut leaf, &is_int96)).collect();
    ArrowReaderMetadata::try_new(footer, options().with_schema(Arc::new(Schema::new(fields))))
}

fn int96_as_micros(field: &FieldRef, leaf: &mut usize, is_int96: &dyn Fn(usize) -> bool) -> FieldRef {
    let data_type = match field.data_type() {
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(|f| int96_as_micros(f, leaf, is_int96)).collect::<Fields>()),
        DataType::List(element) => DataType::List(int96_as_micros(element, leaf, is_int96)),
        DataType::Map(entries, sorted) => DataType::Map(int96_as_micros(entries, leaf, is_int96), *sorted),
        other => {
            let index = *leaf;
            *leaf += 1;
            if is_int96(index) { DataType::Timestamp(TimeUnit::Microsecond, None) } else { other.clone() }
        }
    };
    Arc::new(Field::new(field.name(), data_type, field.is_nullable()).with_metadata(field.metadata().clone()))
}

/// The store as the `parquet` crate reads it: near ranges are fetched by one
/// request, and all bytes are counted.
#[derive(Clone)]
pub struct FileReader {
    file: Arc<dyn FileRead>,
    size: u64,
    store: Store,
}

impl FileReader {
    /// Bytes in the file.
    pub fn size(&self) -> u64 {
        self.size
    }

    async fn footer(&mut self, indexed: bool) -> parquet::errors::Result<Arc<ParquetMetaData>> {
        let mut parser = ParquetMetaDataReader::new().with_prefetch_hint(Some(FOOTER_GUESS));
        if indexed {
            let whole = ParquetMetaDataOptions::new().with_encoding_stats_as_mask(false);
            parser = parser.with_page_index_policy(PageIndexPolicy::Optional).with_metadata_options(Some(whole));
        }
        let size = self.size;
        Ok(Arc::new(parser.load_and_finish(self, size).await?))
    }

    async fn pieces(&self, ranges: &[Range<u64>]) -> parquet::errors::Result<Vec<Piece>> {
        let fetch = |range: Range<u64>| async move { self.fetch(range.clone()).await.map(|bytes| (range.start, bytes)) };
        stream::iter(coalesce(ranges).into_iter().map(fetch)).buffered(IN_FLIGHT).try_collect().await
    }

    /// The bytes of one range.
    pub(super) async fn fetch(&self, range: Range<u64>) -> parquet::errors::Result<Bytes> {
        if range.end > self.size || range.start > range.end {
            return Err(ParquetError::EOF(format!("bytes {range:?} of a file of {} bytes", self.size)));
        }
        let bytes = self.file.read(range.clone()).await.map_err(|e| ParquetError::External(Box::new(e)))?;
        if u64::try_from(bytes.len()).ok() != Some(range.end - range.start) {
            return Err(ParquetError::EOF(format!("asked for bytes {range:?}, got {}", bytes.len())));
        }
        self.store.count(bytes.len());
        Ok(bytes)
    }
}

impl AsyncFileReader for FileReader {
    fn get_bytes(&mut self, range: Range<u64>) -> BoxFuture<'_, parquet::errors::Result<Bytes>> {
        self.fetch(range).boxed()
    }

    fn get_byte_ranges(&mut self, ranges: Vec<Range<u64>>) -> BoxFuture<'_, parquet::errors::Result<Vec<Bytes>>> {
        async move {
            let fetched = self.pieces(&ranges).await?;
            ranges.iter().map(|range| cut(&fetched, range)).collect()
        }
        .boxed()
    }

    fn get_metadata<'a>(&'a mut self, _: Option<&'a ArrowReaderOptions>) -> BoxFuture<'a, parquet::errors::Result<Arc<ParquetMetaData>>> {
        self.footer(false).boxed()
    }
}

/// The requests for some ranges: near ones joined, up to a length.
fn coalesce(ranges: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut sorted = ranges.to_vec();
    sorted.sort_by_key(|r| r.start);
    let mut requests: Vec<Range<u64>> = Vec::new();
    for range in sorted {
        match requests.last_mut() {
            Some(last) if range.end <= last.end => {}
            Some(last) if range.start < last.end || (range.start - last.end <= GAP && range.end - last.start <= REQUEST) => {
                last.end = range.end
            }
            _ => requests.push(range),
        }
    }
    requests
}

fn cut(fetched: &[(u64, Bytes)], range: &Range<u64>) -> parquet::errors::Result<Bytes> {
    let after = fetched.partition_point(|(start, _)| *start <= range.start);
    let (start, bytes) =
        after.checked_sub(1).and_then(|i| fetched.get(i)).ok_or_else(|| ParquetError::General("a range was not fetched".into()))?;
    let from = usize::try_from(range.start - start)?;
    let to = usize::try_from(range.end - start)?;
    if to > bytes.len() || from > to {
        return Err(ParquetError::General("a range was fetched short".into()));
    }
    Ok(bytes.slice(from..to))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_ranges_are_one_request_and_far_ones_two() {
        assert_eq!(coalesce(&[10..20, 0..10, 25..30, 10_000_000..10_000_001]), [0..30, 10_000_000..10_000_001]);
        assert_eq!(coalesce(&[0..100, 10..20, 500_000..500_001]), [0..100, 500_000..500_001]);
    }

    #[test]
    fn a_joined_request_gives_back_each_range() {
        let fetched = vec![(0, Bytes::from_static(b"abcdef")), (100, Bytes::from_static(b"xyz"))];
        assert_eq!(cut(&fetched, &(2..4)).unwrap().as_ref(), b"cd");
        assert_eq!(cut(&fetched, &(100..103)).unwrap().as_ref(), b"xyz");
        assert!(cut(&fetched, &(4..9)).is_err());
    }
}
