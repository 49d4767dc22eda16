//! The data files that a position-delete file names, read from its rows.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef};
use arrow_schema::DataType;
use bytes::Bytes;
use futures::StreamExt;
use futures::future::{BoxFuture, FutureExt};
use parquet::arrow::arrow_reader::ArrowReaderOptions;
use parquet::arrow::async_reader::AsyncFileReader;
use parquet::arrow::{ParquetRecordBatchStreamBuilder, ProjectionMask};
use parquet::basic::Type as Physical;
use parquet::errors::ParquetError;
use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader};

use crate::lake::iceberg::manifest::DELETE_FILE_PATH;
use crate::lake::iceberg::store::{Source, Store};
use crate::lake::{Error, Result};

/// Bytes fetched from a file's end at first; most footers fit.
const FOOTER_GUESS: usize = 64 << 10;

/// Reads the distinct values of the `file_path` column, one row group after the
/// other. The file's other columns are not fetched.
///
/// # Errors
/// Store errors; a `damaged` refusal when the file is not a Parquet file with a
/// `file_path` column of strings, or a path in it is NULL.
pub async fn read(store: &Store, path: &str) -> Result<BTreeSet<Arc<str>>> {
    let (size, source) = (store.size(path).await?, store.open(path).await?);
    match distinct_paths(File { source, size }).await {
        Ok(paths) => Ok(paths),
        Err(ParquetError::External(cause)) => match cause.downcast::<Error>() {
            Ok(of_store) => Err(*of_store),
            Err(other) => Err(Error::damaged(path, other)),
        },
        Err(ParquetError::General(why)) => Err(Error::damaged(path, why)),
        Err(error) => Err(Error::damaged(path, error)),
    }
}

/// A file of the store as the `parquet` crate reads it.
struct File {
    source: Source,
    size: u64,
}

impl AsyncFileReader for File {
    fn get_bytes(&mut self, range: Range<u64>) -> BoxFuture<'_, parquet::errors::Result<Bytes>> {
        async move { self.source.read(range).await.map_err(|e| ParquetError::External(Box::new(e))) }.boxed()
    }

    fn get_metadata<'a>(&'a mut self, _: Option<&'a ArrowReaderOptions>) -> BoxFuture<'a, parquet::errors::Result<Arc<ParquetMetaData>>> {
        async move {
            let size = self.size;
            let footer = ParquetMetaDataReader::new().with_prefetch_hint(Some(FOOTER_GUESS)).load_and_finish(self, size).await?;
            Ok(Arc::new(footer))
        }
        .boxed()
    }
}

async fn distinct_paths(file: impl AsyncFileReader + Unpin + 'static) -> parquet::errors::Result<BTreeSet<Arc<str>>> {
    let refuse = |why: &str| ParquetError::General(why.to_owned());
    let builder = ParquetRecordBatchStreamBuilder::new(file).await?;
    let schema = builder.parquet_schema();
    let column = schema
        .columns()
        .iter()
        .position(|c| {
            let basic = c.self_type().get_basic_info();
            if basic.has_id() { basic.id() == DELETE_FILE_PATH } else { c.path().parts() == ["file_path"] }
        })
        .ok_or_else(|| refuse("a position-delete file without a file_path column"))?;
    if schema.column(column).physical_type() != Physical::BYTE_ARRAY {
        return Err(refuse("its file_path column does not hold strings"));
    }
    let mask = ProjectionMask::leaves(schema, [column]);
    let mut reader = builder.with_projection(mask).build()?;
    let mut paths = BTreeSet::new();
    let mut last: Option<String> = None;
    while let Some(batch) = reader.next().await {
        let batch = batch?;
        let column = batch.columns().first().ok_or_else(|| refuse("a projection without its column"))?;
        each_text(column, |text| {
            if last.as_deref() != Some(text) {
                paths.insert(Arc::from(text));
                last = Some(text.to_owned());
            }
        })
        .map_err(ParquetError::General)?;
    }
    Ok(paths)
}

/// Calls `f` with every value. Errs on NULL, which names no file.
fn each_text(column: &ArrayRef, mut f: impl FnMut(&str)) -> std::result::Result<(), String> {
    if column.null_count() > 0 {
        return Err("a NULL in its file_path column".into());
    }
    let text = match column.data_type() {
        DataType::Utf8 => column.clone(),
        other => arrow_cast::cast(column, &DataType::Utf8).map_err(|e| format!("its file_path column is {other}: {e}"))?,
    };
    let text = text.as_string_opt::<i32>().ok_or("its file_path column does not hold strings")?;
    text.iter().flatten().for_each(&mut f);
    Ok(())
}

#[cfg(test)]
mod tests {
    use arrow_array::{RecordBatch, StringArray};
    use arrow_schema::{Field, Schema};
    use parquet::arrow::ArrowWriter;

    use super::*;

    fn file(name: &str, id: Option<i32>, values: Vec<Option<&str>>) -> Bytes {
        let metadata = id.map(|id| [("PARQUET:field_id".to_owned(), id.to_string())].into()).unwrap_or_default();
        let field = Field::new(name, DataType::Utf8, true).with_metadata(metadata);
        let schema = Arc::new(Schema::new(vec![field]));
        let batch = RecordBatch::try_new(schema.clone(), vec![Arc::new(StringArray::from(values))]).unwrap();
        let mut out = Vec::new();
        let mut writer = ArrowWriter::try_new(&mut out, schema, None).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
        out.into()
    }

    async fn found(file: Bytes) -> std::result::Result<BTreeSet<Arc<str>>, String> {
        distinct_paths(std::io::Cursor::new(file)).await.map_err(|error| match error {
            ParquetError::General(why) => why,
            other => other.to_string(),
        })
    }

    #[tokio::test]
    async fn every_named_file_is_found_once_whatever_the_order() {
        let paths = found(file("p", Some(DELETE_FILE_PATH), vec![Some("a"), Some("b"), Some("a")])).await.unwrap();
        assert_eq!(paths, BTreeSet::from(["a".into(), "b".into()]));
    }

    #[tokio::test]
    async fn a_file_without_ids_is_read_by_name() {
        assert_eq!(found(file("file_path", None, vec![Some("a")])).await.unwrap(), BTreeSet::from(["a".into()]));
    }

    #[tokio::test]
    async fn what_names_no_file_is_damaged() {
        assert_eq!(found(file("file_path", None, vec![None])).await.unwrap_err(), "a NULL in its file_path column");
        assert_eq!(found(file("path", None, vec![Some("a")])).await.unwrap_err(), "a position-delete file without a file_path column");
        assert!(found(Bytes::from_static(b"not parquet")).await.is_err());
    }

    #[tokio::test]
    async fn only_the_paths_are_fetched_and_a_missing_file_is_not_found() {
        let dir = tempfile::tempdir().unwrap();
        let path = format!("file:{}/d", dir.path().display());
        let schema = Arc::new(Schema::new(vec![Field::new("file_path", DataType::Utf8, false), Field::new("pos", DataType::Int64, false)]));
        let positions = arrow_array::Int64Array::from_iter_values((0..500_000).map(|n| n * 7919 % 1_000_003));
        let paths = StringArray::from_iter_values((0..500_000).map(|_| "f"));
        let batch = RecordBatch::try_new(schema.clone(), vec![Arc::new(paths), Arc::new(positions)]).unwrap();
        let mut writer = ArrowWriter::try_new(std::fs::File::create(dir.path().join("d")).unwrap(), schema, None).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
        let store = Store::new(&crate::lake::iceberg::store::file_io(&Default::default()));
        assert_eq!(read(&store, &path).await.unwrap(), BTreeSet::from(["f".into()]));
        assert!(store.spent().bytes_read < 200_000, "{:?}", store.spent());
        assert!(matches!(read(&store, "file:/nowhere").await, Err(Error::NotFound { .. })));
    }
}
