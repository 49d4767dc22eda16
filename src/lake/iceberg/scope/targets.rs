//! The data files that a position-delete file names, read from its rows.

use std::collections::BTreeSet;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef};
use arrow_schema::DataType;
use bytes::Bytes;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::basic::Type as Physical;

use crate::lake::iceberg::manifest::DELETE_FILE_PATH;
use crate::lake::iceberg::store::Store;
use crate::lake::{Error, Result};
use crate::model::location::Location;

/// Reads the distinct values of the `file_path` column. The file is held in
/// memory while it is read; its other columns are not decoded.
///
/// # Errors
/// Store errors; a `damaged` refusal when the file is not a Parquet file with a
/// `file_path` column of strings, or a path in it is NULL.
pub async fn read(store: &Store, path: &str) -> Result<BTreeSet<Location>> {
    let bytes = store.read(path).await?;
    distinct_paths(bytes).map_err(|why| Error::damaged(path, why))
}

fn distinct_paths(bytes: Bytes) -> std::result::Result<BTreeSet<Location>, String> {
    let builder = ParquetRecordBatchReaderBuilder::try_new(bytes).map_err(|e| e.to_string())?;
    let schema = builder.parquet_schema();
    let column = schema
        .columns()
        .iter()
        .position(|c| {
            let basic = c.self_type().get_basic_info();
            if basic.has_id() { basic.id() == DELETE_FILE_PATH } else { c.path().parts() == ["file_path"] }
        })
        .ok_or("a position-delete file without a file_path column")?;
    if schema.column(column).physical_type() != Physical::BYTE_ARRAY {
        return Err("its file_path column does not hold strings".into());
    }
    let mask = ProjectionMask::leaves(schema, [column]);
    let reader = builder.with_projection(mask).build().map_err(|e| e.to_string())?;
    let mut paths = BTreeSet::new();
    let mut last: Option<String> = None;
    for batch in reader {
        let batch = batch.map_err(|e| e.to_string())?;
        let column = batch.columns().first().ok_or("a projection without its column")?;
        each_text(column, |text| {
            if last.as_deref() != Some(text) {
                paths.insert(Location::parse(text));
                last = Some(text.to_owned());
            }
        })?;
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
    use std::sync::Arc;

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

    #[test]
    fn every_named_file_is_found_once_whatever_the_order() {
        let paths = distinct_paths(file("p", Some(DELETE_FILE_PATH), vec![Some("a"), Some("b"), Some("a")])).unwrap();
        assert_eq!(paths, BTreeSet::from([Location::parse("a"), Location::parse("b")]));
    }

    #[test]
    fn a_file_without_ids_is_read_by_name() {
        assert_eq!(distinct_paths(file("file_path", None, vec![Some("a")])).unwrap(), BTreeSet::from([Location::parse("a")]));
    }

    #[test]
    fn what_names_no_file_is_damaged() {
        assert_eq!(distinct_paths(file("file_path", None, vec![None])).unwrap_err(), "a NULL in its file_path column");
        assert_eq!(distinct_paths(file("path", None, vec![Some("a")])).unwrap_err(), "a position-delete file without a file_path column");
        assert!(distinct_paths(Bytes::from_static(b"not parquet")).is_err());
    }
}
