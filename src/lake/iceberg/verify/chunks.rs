//! Copied row groups: every column chunk of the outputs against the inputs', byte
//! by byte.

use std::collections::VecDeque;

use iceberg::spec::DataFile;
use parquet::file::metadata::ColumnChunkMetaData;

use super::{failed, unproven};
use crate::lake::Result;
use crate::lake::iceberg::read::file::{ParquetFile, Store};
use crate::model::plan::Plan;

/// Bytes compared at once.
const PIECE: u64 = 4 << 20;

/// Compares the row groups of the inputs, in order, with those of the outputs;
/// returns the number of columns.
///
/// Errs [`Error::Proof`](crate::lake::Error::Proof) naming the first chunk that differs.
pub async fn same(store: &Store, plan: &Plan, outputs: &[DataFile]) -> Result<usize> {
    let inputs = plan.inputs.iter().map(|f| (&*f.path, f.bytes)).collect();
    let outputs = outputs.iter().map(|f| (f.file_path(), f.file_size_in_bytes())).collect();
    let (mut from, mut to) = (Groups::new(store, inputs), Groups::new(store, outputs));
    let mut columns = 0;
    loop {
        match (from.next().await?, to.next().await.map_err(unproven)?) {
            (None, None) => return Ok(columns),
            (Some((input, i)), Some((output, o))) => {
                group(store, (&input, i), (&output, o)).await?;
                columns = output.footer().file_metadata().schema_descr().num_columns();
            }
            (Some((input, i)), None) => return Err(failed(&input.path, format_args!("row group {i} is in no output"))),
            (None, Some((output, o))) => return Err(failed(&output.path, format_args!("row group {o} is of no input"))),
        }
    }
}

/// Walks the row groups that hold rows, of files in order, one footer at a time.
struct Groups<'a> {
    store: &'a Store,
    files: VecDeque<(&'a str, u64)>,
    current: Option<ParquetFile>,
    group: usize,
}

impl<'a> Groups<'a> {
    fn new(store: &'a Store, files: VecDeque<(&'a str, u64)>) -> Self {
        Self { store, files, current: None, group: 0 }
    }

    async fn next(&mut self) -> Result<Option<(ParquetFile, usize)>> {
        loop {
            let Some(file) = &self.current else {
                let Some((path, bytes)) = self.files.pop_front() else { return Ok(None) };
                self.current = Some(ParquetFile::open(self.store, path, bytes).await?);
                self.group = 0;
                continue;
            };
            let group = self.group;
            self.group += 1;
            match file.footer().row_groups().get(group) {
                Some(meta) if meta.num_rows() == 0 => {}
                Some(_) => return Ok(Some((file.clone(), group))),
                None => self.current = None,
            }
        }
    }
}

async fn group(store: &Store, (input, i): (&ParquetFile, usize), (output, o): (&ParquetFile, usize)) -> Result<()> {
    let (Some(from), Some(to)) = (input.footer().row_groups().get(i), output.footer().row_groups().get(o)) else {
        return Err(failed(&output.path, "a row group is not there"));
    };
    let place = format!("{} row group {o}", output.path);
    if from.num_rows() != to.num_rows() || from.num_columns() != to.num_columns() {
        return Err(failed(&place, format_args!("not the rows and columns of {} row group {i}", input.path)));
    }
    for (column, (a, b)) in from.columns().iter().zip(to.columns()).enumerate() {
        if facts(a) != facts(b) {
            return Err(failed(&place, format_args!("column {column} is described otherwise than in {} row group {i}", input.path)));
        }
        if !equal(store, (input, a), (output, b)).await? {
            return Err(failed(&place, format_args!("column {column} holds other bytes than {} row group {i}", input.path)));
        }
    }
    Ok(())
}

/// What a reader needs to decode a chunk, apart from where it lies.
fn facts(chunk: &ColumnChunkMetaData) -> impl PartialEq {
    let dictionary = chunk.dictionary_page_offset().map(|d| chunk.data_page_offset() - d);
    let lengths = (chunk.byte_range().1, chunk.num_values(), chunk.uncompressed_size());
    (chunk.column_type(), chunk.compression(), lengths, dictionary)
}

async fn equal(store: &Store, a: (&ParquetFile, &ColumnChunkMetaData), b: (&ParquetFile, &ColumnChunkMetaData)) -> Result<bool> {
    let ((a_start, length), (b_start, _)) = (a.1.byte_range(), b.1.byte_range());
    let mut done = 0;
    while done < length {
        let piece = PIECE.min(length - done);
        let left = store.range(&a.0.path, a_start + done..a_start + done + piece).await?;
        let right = store.range(&b.0.path, b_start + done..b_start + done + piece).await.map_err(unproven)?;
        if left != right {
            return Ok(false);
        }
        done += piece;
    }
    Ok(true)
}
