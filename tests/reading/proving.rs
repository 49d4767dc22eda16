//! Rewrites made by hand, right and wrong, and what the proof says of them.

use std::fs::File;
use std::sync::Arc;

use afterwrite::lake::iceberg::columns::Columns;
use afterwrite::lake::iceberg::hash::ColumnHasher;
use afterwrite::lake::iceberg::read::ReadSummary;
use afterwrite::lake::iceberg::rewrite::Detail;
use afterwrite::lake::iceberg::verify;
use afterwrite::lake::{Error, Output, Proof, Result, Written};
use afterwrite::model::plan::Path;
use arrow_array::RecordBatch;
use arrow_select::concat::concat_batches;
use iceberg::spec::{DataContentType, DataFile, DataFileBuilder};
use parquet::bloom_filter::Sbbf;
use parquet::column::writer::ColumnCloseResult;
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::SerializedFileWriter;

use super::{Lake, NullCounts, describe, write};

/// A rewrite to be proven.
pub struct Rewrite {
    pub path: Path,
    pub outputs: Vec<DataFile>,
    pub read: Option<ReadSummary>,
    pub rows_in: u64,
    pub rows_deleted: u64,
}

/// A summary as a reader that gave these batches would have made it.
pub fn summary(batches: &[RecordBatch], rows_in: u64, rows_deleted: u64) -> ReadSummary {
    let mut hasher = ColumnHasher::new(&batches[0].schema());
    batches.iter().for_each(|b| hasher.update(b).unwrap());
    ReadSummary { rows_in, rows_deleted, columns: hasher.finish(), ..ReadSummary::default() }
}

/// Re-encodes what a reader gave into one output.
pub fn re_encode(lake: &mut Lake, batches: &[RecordBatch], read: ReadSummary) -> Rewrite {
    re_encode_with(lake, batches, read, |b| b)
}

/// The same, with the output's description changed.
pub fn re_encode_with(
    lake: &mut Lake,
    batches: &[RecordBatch],
    read: ReadSummary,
    change: impl FnOnce(&mut DataFileBuilder) -> &mut DataFileBuilder,
) -> Rewrite {
    let rows = concat_batches(&batches[0].schema(), batches).unwrap();
    let path = lake.path("out");
    write(&path, &rows, WriterProperties::builder().set_max_row_group_row_count(Some(3)).build());
    let file = change(&mut describe(&path, DataContentType::Data, &NullCounts::of(&rows))).build().unwrap();
    let (rows_in, rows_deleted) = (read.rows_in, read.rows_deleted);
    Rewrite { path: Path::ReEncode, outputs: vec![file], read: Some(read), rows_in, rows_deleted }
}

/// Copies the row groups of all inputs into one output.
pub fn splice(lake: &mut Lake) -> Rewrite {
    let plan = lake.plan();
    let path = lake.path("out");
    let open = |p: &str| File::open(p.trim_start_matches("file://")).unwrap();
    let first = SerializedFileReader::new(open(&plan.inputs[0].path)).unwrap();
    let schema = first.metadata().file_metadata().schema_descr().root_schema_ptr();
    let out = File::create(path.trim_start_matches("file://")).unwrap();
    let mut writer = SerializedFileWriter::new(out, schema, Arc::default()).unwrap();
    for input in &plan.inputs {
        let reader = SerializedFileReader::new(open(&input.path)).unwrap();
        for group in reader.metadata().row_groups() {
            let mut to = writer.next_row_group().unwrap();
            for column in group.columns() {
                let close = ColumnCloseResult {
                    bytes_written: column.byte_range().1,
                    rows_written: group.num_rows() as u64,
                    metadata: column.clone(),
                    bloom_filter: Sbbf::read_from_column_chunk(column, &open(&input.path)).unwrap(),
                    column_index: None,
                    offset_index: None,
                };
                to.append_column(&open(&input.path), close).unwrap();
            }
            to.close().unwrap();
        }
    }
    writer.close().unwrap();
    let rows = plan.inputs.iter().map(|f| f.records).sum();
    let file = describe(&path, DataContentType::Data, &NullCounts(Default::default(), rows)).build().unwrap();
    Rewrite { path: Path::Splice, outputs: vec![file], read: None, rows_in: rows, rows_deleted: 0 }
}

/// What the proof says.
pub async fn prove(lake: &Lake, rewrite: Rewrite) -> Result<Proof> {
    let outputs =
        rewrite.outputs.iter().map(|f| Output { path: f.file_path().into(), bytes: f.file_size_in_bytes(), records: f.record_count() });
    let written = Written {
        path: rewrite.path,
        path_reason: "by hand".into(),
        outputs: outputs.collect(),
        rows_in: rewrite.rows_in,
        rows_deleted: rewrite.rows_deleted,
        bytes_read: 0,
        detail: Arc::new(Detail { data_files: rewrite.outputs, read: rewrite.read, columns: Columns::default() }),
    };
    verify::run(&lake.table().await, &lake.plan(), &written).await
}

/// Why the proof failed.
pub async fn failure(lake: &Lake, rewrite: Rewrite) -> String {
    match prove(lake, rewrite).await {
        Err(Error::Proof(why)) => why,
        Err(other) => panic!("{other}"),
        Ok(proof) => panic!("proven: {proof:?}"),
    }
}
