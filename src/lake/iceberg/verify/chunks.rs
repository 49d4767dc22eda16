//! Copied row groups: every column chunk of the outputs against the inputs', byte
//! by byte.

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
    let mut inputs = Vec::with_capacity(plan.inputs.len());
    for input in &plan.inputs {
        inputs.push(ParquetFile::open(store, &input.path, input.bytes).await?);
    }
    let mut copies = Vec::with_capacity(outputs.len());
    for output in outputs {
        copies.push(ParquetFile::open(store, output.file_path(), output.file_size_in_bytes()).await.map_err(unproven)?);
    }
    let (from, to) = (groups(&inputs), groups(&copies));
    if from.len() != to.len() {
        return Err(failed("", format_args!("{} row groups of inputs, {} of outputs", from.len(), to.len())));
    }
    for ((input, i), (output, o)) in from.iter().zip(&to) {
        group(store, (input, *i), (output, *o)).await?;
    }
    Ok(to.first().map_or(0, |(file, _)| file.footer().file_metadata().schema_descr().num_columns()))
}

/// Every row group that holds rows, with its file, in order.
fn groups(files: &[ParquetFile]) -> Vec<(&ParquetFile, usize)> {
    let mut groups = Vec::new();
    for file in files {
        let filled = file.footer().row_groups().iter().enumerate().filter(|(_, g)| g.num_rows() != 0);
        groups.extend(filled.map(|(index, _)| (file, index)));
    }
    groups
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
