//! The inputs of a plan as Parquet files: footers, and what manifests add.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

use async_trait::async_trait;
use bytes::Bytes;
use futures::future::{BoxFuture, FutureExt};
use futures::stream::{self, StreamExt};
use iceberg::io::{FileIO, FileRead};
use parquet::arrow::async_reader::MetadataFetch;
use parquet::errors::ParquetError;
use parquet::file::metadata::{
    ColumnChunkMetaData, PageIndexPolicy, ParquetMetaData, ParquetMetaDataOptions, ParquetMetaDataReader, RowGroupMetaData,
};

use crate::lake::iceberg::read::file::Store;
use crate::lake::iceberg::read::manifests::{self, Kind};
use crate::lake::iceberg::table::IcebergTable;
use crate::lake::{Control, Error, Result};
use crate::model::plan::{LiveFile, Plan};

/// An input with its footer and page indexes.
pub struct Input {
    /// Path as the metadata spells it.
    pub path: String,
    /// The footer; page indexes too, where the file has them for all columns.
    pub footer: ParquetMetaData,
    /// Size in bytes.
    pub size: u64,
    reader: Box<dyn FileRead>,
}

/// Footers read at one time.
const AT_ONCE: usize = 8;
/// Bytes fetched from a file's end at first; most footers fit.
const FOOTER_GUESS: usize = 64 << 10;

/// A column with a chunk that begins or ends before the file does.
fn misplaced(footer: &ParquetMetaData) -> Option<String> {
    let placed = |chunk: &ColumnChunkMetaData| {
        chunk.compressed_size() >= 0 && chunk.data_page_offset() >= 0 && chunk.dictionary_page_offset().is_none_or(|at| at >= 0)
    };
    let chunks = footer.row_groups().iter().flat_map(RowGroupMetaData::columns);
    chunks.filter(|chunk| !placed(chunk)).map(|chunk| chunk.column_path().string()).next()
}

impl Input {
    /// Opens all inputs of a plan, in its order.
    pub async fn open_all(io: &FileIO, plan: &Plan, control: &dyn Control) -> Result<Vec<Self>> {
        Ok(Self::open_within(io, plan, control, usize::MAX).await?.unwrap_or_default())
    }

    /// Opens all inputs of a plan, in its order; `None` when their footers take
    /// more than `most` bytes of memory.
    pub async fn open_within(io: &FileIO, plan: &Plan, control: &dyn Control, most: usize) -> Result<Option<Vec<Self>>> {
        let mut opening = Vec::with_capacity(plan.inputs.len());
        for file in &plan.inputs {
            opening.push(async move {
                control.check()?;
                Self::open(io, file).await
            });
        }
        let (mut opened, mut bytes) = (Vec::with_capacity(opening.len()), 0usize);
        let mut opening = stream::iter(opening).buffered(AT_ONCE);
        while let Some(input) = opening.next().await {
            let input = input?;
            bytes = bytes.saturating_add(input.footer.memory_size());
            if bytes > most {
                return Ok(None);
            }
            opened.push(input);
        }
        Ok(Some(opened))
    }

    /// Opens one.
    pub async fn open(io: &FileIO, file: &LiveFile) -> Result<Self> {
        let failed = |e| Error::unreachable(format!("opening {}", file.path), e);
        let reader = io.new_input(&*file.path).map_err(failed)?.reader().await.map_err(failed)?;
        let footer = match parser().load_and_finish(Fetch(reader.as_ref()), file.bytes).await {
            Ok(footer) => footer,
            Err(ParquetError::External(cause)) => return Err(Error::unreachable(format!("reading {}", file.path), anyhow::anyhow!(cause))),
            Err(error) => return Err(Error::damaged(&file.path, error)),
        };
        if let Some(column) = misplaced(&footer) {
            return Err(Error::damaged(&file.path, format_args!("column {column} has no place in the file")));
        }
        let rows = footer.row_groups().iter().try_fold(0u64, |rows, group| rows.checked_add(u64::try_from(group.num_rows()).ok()?));
        if rows != Some(file.records) {
            return Err(Error::damaged(&file.path, format_args!("its footer does not state the {} rows of the manifest", file.records)));
        }
        Ok(Self { path: file.path.to_string(), footer, size: file.bytes, reader })
    }

    /// The same input, its rows encoded otherwise and held in memory.
    ///
    /// Errs refused `Damaged` when the bytes are no file.
    pub fn held(path: &str, bytes: Bytes) -> Result<Self> {
        let footer = parser().parse_and_finish(&bytes).map_err(|e| Error::damaged(path, e))?;
        Ok(Self { path: path.to_owned(), footer, size: bytes.len() as u64, reader: Box::new(Held(bytes)) })
    }

    /// The same file, spoken of by another path.
    pub fn named(self, path: &str) -> Self {
        Self { path: path.to_owned(), ..self }
    }

    /// The file's bytes in a range, all of them.
    pub async fn bytes(&self, range: Range<u64>) -> Result<Bytes> {
        if range.start > range.end || range.end > self.size {
            return Err(Error::damaged(&self.path, format_args!("bytes {range:?} of a file of {} bytes", self.size)));
        }
        let length = range.end.saturating_sub(range.start);
        let read = self.reader.read(range).await.map_err(|e| Error::unreachable(format!("reading {}", self.path), e))?;
        if read.len() as u64 == length { Ok(read) } else { Err(Error::damaged(&self.path, "it ends before its pages do")) }
    }
}

/// Reads footers, with all that they tell.
fn parser() -> ParquetMetaDataReader {
    ParquetMetaDataReader::new()
        .with_page_index_policy(PageIndexPolicy::Optional)
        .with_metadata_options(Some(ParquetMetaDataOptions::new().with_encoding_stats_as_mask(false)))
        .with_prefetch_hint(Some(FOOTER_GUESS))
}

/// A file in memory.
struct Held(Bytes);

#[async_trait]
impl FileRead for Held {
    async fn read(&self, range: Range<u64>) -> iceberg::Result<Bytes> {
        let place = |at: u64| usize::try_from(at).unwrap_or(usize::MAX).min(self.0.len());
        Ok(self.0.slice(place(range.start)..place(range.end)))
    }
}

struct Fetch<'a>(&'a dyn FileRead);

impl MetadataFetch for Fetch<'_> {
    fn fetch(&mut self, range: Range<u64>) -> BoxFuture<'_, parquet::errors::Result<Bytes>> {
        async move { self.0.read(range).await.map_err(|e| ParquetError::External(Box::new(e))) }.boxed()
    }
}

/// NaN counts of the inputs, by path and field id, from their manifest entries:
/// footers have none.
///
/// Errs when an input has no live entry in the planned snapshot.
pub async fn nan_counts(table: &IcebergTable, plan: &Plan) -> Result<HashMap<String, HashMap<i32, u64>>> {
    let paths: BTreeSet<&str> = plan.inputs.iter().map(|file| &*file.path).collect();
    let store = Store::new(&table.loaded.io);
    let kind = Kind::Data { spec_id: plan.scope.spec_id };
    let entries = manifests::find(table, &store, plan.snapshot_id, kind, &paths).await?;
    Ok(entries.into_iter().map(|(path, data)| (path, data.nan_value_counts().clone())).collect())
}
