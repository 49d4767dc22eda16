//! Real re-packed outputs, and what the proof says when one of their bytes changes.

use std::collections::BTreeSet;

use afterwrite::lake::iceberg::rewrite;
use afterwrite::lake::iceberg::verify;
use afterwrite::lake::{Error, Written};
use afterwrite::model::plan::{AttemptId, Path, Plan};
use arrow_array::RecordBatch;
use arrow_schema::DataType;
use arrow_select::concat::concat_batches;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::file::properties::WriterProperties;

use super::value::{Value, batch, row};
use super::{Free, Lake, field};

/// Files whose dictionaries overlap, and one without: their join copies pages,
/// gives others new ids, and puts values in place of ids.
fn lake() -> Lake {
    let mut lake = Lake::id_v();
    lake.properties.insert("write.parquet.compression-codec".into(), "zstd".into());
    let text = |id: i64| if id % 7 == 5 { Value::Null } else { Value::Text(["ab", "c", "déf", ""][(id as usize / 3) % 4].into()) };
    for (from, dictionary) in [(0, true), (40, true), (80, false)] {
        let values: Vec<Vec<Value>> = (from..from + 40).map(|id| vec![Value::Int(id / 2), text(id)]).collect();
        let schema = std::sync::Arc::new(arrow_schema::Schema::new(vec![
            field("id", DataType::Int64, true, 1),
            field("v", DataType::Utf8, true, 2),
        ]));
        let properties = WriterProperties::builder()
            .set_dictionary_enabled(dictionary)
            .set_data_page_row_count_limit(10)
            .set_write_batch_size(10)
            .set_compression(parquet::basic::Compression::ZSTD(Default::default()));
        lake.append_batch(1, &batch(&schema, &values), properties.build());
    }
    lake
}

async fn rewritten(lake: &Lake, plan: &Plan) -> Written {
    let written = rewrite::run(&lake.table().await, plan, &AttemptId("job.0".into()), &Free).await.unwrap();
    assert_eq!(written.path, Path::RePack, "{}", written.path_reason);
    written
}

fn file(written: &Written) -> std::path::PathBuf {
    written.outputs[0].path.trim_start_matches("file://").into()
}

fn rows(path: &std::path::Path) -> Option<RecordBatch> {
    let builder = ParquetRecordBatchReaderBuilder::try_new(std::fs::File::open(path).ok()?).ok()?;
    let schema = builder.schema().clone();
    let batches = builder.build().ok()?.collect::<Result<Vec<_>, _>>().ok()?;
    concat_batches(&schema, &batches).ok()
}

/// Where the pages end and the indexes begin.
fn pages_end(path: &std::path::Path) -> usize {
    let builder = ParquetRecordBatchReaderBuilder::try_new(std::fs::File::open(path).unwrap()).unwrap();
    let ranges = builder.metadata().row_groups().iter().flat_map(|group| group.columns()).map(|column| column.byte_range());
    ranges.map(|(start, length)| (start + length) as usize).max().unwrap()
}

/// Proves with each of some bytes changed; those whose change was not seen.
async fn unseen(lake: &Lake, plan: &Plan, written: &Written, places: impl Iterator<Item = usize>) -> BTreeSet<usize> {
    let (table, path) = (lake.table().await, file(written));
    let whole = std::fs::read(&path).unwrap();
    verify::run(&table, plan, written).await.unwrap();
    let mut unseen = BTreeSet::new();
    for at in places {
        let mut changed = whole.clone();
        changed[at] ^= 1 << (at % 8);
        std::fs::write(&path, changed).unwrap();
        match verify::run(&table, plan, written).await {
            Ok(_) => drop(unseen.insert(at)),
            Err(Error::Proof(_)) => {}
            Err(other) => panic!("byte {at}: {other}"),
        }
    }
    std::fs::write(&path, whole).unwrap();
    unseen
}

#[tokio::test]
async fn every_changed_byte_of_the_pages_of_an_output_is_seen() {
    let lake = lake();
    let plan = lake.plan();
    let written = rewritten(&lake, &plan).await;
    let end = pages_end(&file(&written));
    let found = unseen(&lake, &plan, &written, 4..end).await;
    // pages of writers without checksums may carry bits that no reader reads
    assert_eq!(found, BTreeSet::new());
}

#[tokio::test]
async fn a_changed_byte_of_a_footer_is_seen_or_changes_no_row() {
    let lake = lake();
    let plan = lake.plan();
    let written = rewritten(&lake, &plan).await;
    let path = file(&written);
    let (before, whole) = (rows(&path), std::fs::read(&path).unwrap());
    let end = pages_end(&path);
    for at in unseen(&lake, &plan, &written, end..whole.len()).await {
        let mut changed = whole.clone();
        changed[at] ^= 1 << (at % 8);
        std::fs::write(&path, changed).unwrap();
        assert_eq!(rows(&path).map(|rows| rows.columns().to_vec()), before.as_ref().map(|rows| rows.columns().to_vec()), "byte {at}");
    }
}

#[tokio::test]
async fn outputs_without_deleted_rows_are_proven_and_their_pages_are_covered() {
    let mut lake = lake();
    let second = lake.data[1].file.file_path().to_owned();
    lake.delete_positions(2, &[(&second, 0), (&second, 13), (&second, 39)]);
    lake.delete_ids(2, &[Some(3), Some(41), Some(1000), None]);
    let plan = lake.plan();
    let written = rewritten(&lake, &plan).await;
    assert_eq!((written.rows_in, written.rows_deleted), (120, 3 + 2 + 2));
    let proof = verify::run(&lake.table().await, &plan, &written).await.unwrap();
    assert_eq!((proof.rows, proof.columns, proof.null_counts), (113, 2, 2));
    let end = pages_end(&file(&written));
    assert_eq!(unseen(&lake, &plan, &written, (4..end).step_by(3)).await, BTreeSet::new());
}

#[tokio::test]
async fn an_output_of_which_every_row_is_deleted_is_none_and_proven() {
    let mut lake = Lake::id_v();
    lake.append(1, &[row(1, "a"), row(2, "b")]);
    lake.delete_ids(2, &[Some(1), Some(2)]);
    let plan = lake.plan();
    let written = rewrite::run(&lake.table().await, &plan, &AttemptId("job.0".into()), &Free).await.unwrap();
    assert_eq!((written.outputs.len(), written.rows_deleted), (0, 2));
    assert_eq!(verify::run(&lake.table().await, &plan, &written).await.unwrap().rows, 0);
}
