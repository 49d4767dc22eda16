//! Writes Parquet files as parquet-rs lays them out, for the tests that let real readers open what was made of them.
//!
//! Each line of standard input is a JSON object, [`Order`]: the rows come as an Arrow IPC file, and the layout is told
//! by name. The answer is a line that begins with `=` and holds JSON.

use std::fs::File;
use std::io::{BufRead, Write};
use std::path::PathBuf;

use anyhow::Context;
use arrow_ipc::reader::FileReader;
use parquet::arrow::{ArrowSchemaConverter, ArrowWriter};
use parquet::basic::Compression;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesBuilder, WriterVersion};
use serde::Deserialize;

/// One file to write.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Order {
    /// Arrow IPC file with the rows; field ids are in its schema's metadata.
    from: PathBuf,
    to: PathBuf,
    /// As parquet-rs spells it: `ZSTD(1)`.
    compression: String,
    /// 1 or 2: of the writer, and so of its pages.
    version: i32,
    page_rows: usize,
    /// Bytes; a page ends after the batch that passes them.
    page_size: usize,
    /// Rows that are encoded between two looks at the limits.
    batch: usize,
    /// Bytes of a dictionary, after which a column falls back.
    dictionary_size: usize,
    group_rows: usize,
    /// `none`, `chunk` or `page`: without the last one there is no column index.
    statistics: String,
    offset_index: bool,
    /// Bytes that are left of long bounds, if they are cut.
    truncate: Option<usize>,
    /// Names of the specification for the groups of lists and maps, not those of Arrow.
    coerce: bool,
    /// For every leaf, in the order of the schema.
    columns: Vec<Column>,
}

/// How one leaf is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Column {
    dictionary: bool,
    /// As parquet-rs spells it, for values outside a dictionary; its choice if there is none.
    encoding: Option<String>,
    bloom: bool,
}

fn main() -> anyhow::Result<()> {
    let mut out = std::io::stdout();
    writeln!(out, "={{}}")?;
    for line in std::io::stdin().lock().lines() {
        let answer = match write(&line?) {
            Ok(()) => serde_json::json!({}),
            Err(failed) => serde_json::json!({ "error": format!("{failed:#}") }),
        };
        writeln!(out, "={answer}")?;
    }
    Ok(())
}

fn write(line: &str) -> anyhow::Result<()> {
    let order: Order = serde_json::from_str(line).context("not an order")?;
    let rows = FileReader::try_new(File::open(&order.from)?, None)?;
    let schema = rows.schema();
    let leaves = ArrowSchemaConverter::new().with_coerce_types(order.coerce).convert(&schema)?;
    anyhow::ensure!(leaves.num_columns() == order.columns.len(), "{} leaves, but {} columns", leaves.num_columns(), order.columns.len());
    let mut builder = settings(&order)?;
    for (leaf, how) in leaves.columns().iter().zip(&order.columns) {
        builder = builder.set_column_dictionary_enabled(leaf.path().clone(), how.dictionary);
        builder = builder.set_column_bloom_filter_enabled(leaf.path().clone(), how.bloom);
        if let Some(encoding) = &how.encoding {
            builder = builder.set_column_encoding(leaf.path().clone(), encoding.parse()?);
        }
    }
    let mut writer = ArrowWriter::try_new(File::create_new(&order.to)?, schema, Some(builder.build()))?;
    for batch in rows {
        writer.write(&batch?)?;
    }
    writer.close()?;
    Ok(())
}

/// What holds for all columns.
fn settings(order: &Order) -> anyhow::Result<WriterPropertiesBuilder> {
    let compression: Compression = order.compression.parse()?;
    let statistics = match order.statistics.as_str() {
        "none" => EnabledStatistics::None,
        "chunk" => EnabledStatistics::Chunk,
        "page" => EnabledStatistics::Page,
        other => anyhow::bail!("no statistics are called `{other}`"),
    };
    Ok(WriterProperties::builder()
        .set_compression(compression)
        .set_writer_version(if order.version == 2 { WriterVersion::PARQUET_2_0 } else { WriterVersion::PARQUET_1_0 })
        .set_data_page_row_count_limit(order.page_rows)
        .set_data_page_size_limit(order.page_size)
        .set_write_batch_size(order.batch)
        .set_dictionary_page_size_limit(order.dictionary_size)
        .set_max_row_group_row_count(Some(order.group_rows))
        .set_statistics_enabled(statistics)
        .set_offset_index_disabled(!order.offset_index)
        .set_statistics_truncate_length(order.truncate)
        .set_column_index_truncate_length(order.truncate)
        .set_coerce_types(order.coerce)
        // a small filter: the files are small
        .set_bloom_filter_ndv(1000))
}
