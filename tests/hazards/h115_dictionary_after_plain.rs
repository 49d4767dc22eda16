//! A page of dictionary ids after a page without is legal, and a common reader
//! takes the wrong values for it: no output has one.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::{Int64Array, RecordBatch, StringArray};
use iceberg::spec::PrimitiveType;
use parquet::basic::{Encoding, PageType};
use parquet::file::properties::WriterProperties;

use crate::rewrite::repack::{checked, write};
use crate::rewrite::support::{Lake, primitive};
use crate::rewrite::walker::{by_dictionary, pages, range};

fn table() -> Lake {
    Lake::new(vec![("n", primitive(PrimitiveType::Long)), ("s", primitive(PrimitiveType::String))], &[])
}

/// Rows with so many distinct values.
fn rows(lake: &Lake, distinct: i64) -> RecordBatch {
    let numbers = Int64Array::from_iter_values((0..4000).map(|n| n * 7919 % distinct));
    let texts = StringArray::from_iter((0..4000).map(|n| (n % 10 != 0).then(|| format!("text {}", n * 7919 % distinct))));
    lake.batch(vec![Arc::new(numbers), Arc::new(texts)])
}

/// Pages of 500 rows; a dictionary of more than 8 KiB is given up midway.
fn falling_back() -> WriterProperties {
    let builder = WriterProperties::builder().set_data_page_row_count_limit(500).set_write_batch_size(500);
    builder.set_dictionary_page_size_limit(8 << 10).build()
}

#[tokio::test]
async fn h115_dictionaries_that_fall_back_midway_leave_none_after_a_plain_page() {
    let lake = table();
    let (mut inputs, mut batches) = (Vec::new(), Vec::new());
    for (number, distinct) in [20, 4000, 20, 4000, 50].into_iter().enumerate() {
        batches.push(rows(&lake, distinct));
        inputs.push(write(&lake, &format!("in{number}"), &batches[number], falling_back()).await);
    }
    let mixed = lake.read(&inputs[1].path).await.footer;
    let stats = mixed.row_group(0).column(1).page_encoding_stats().unwrap();
    let data = |dictionary: bool| stats.iter().any(|s| s.page_type == PageType::DATA_PAGE && by_dictionary(s.encoding) == dictionary);
    assert!(data(true) && data(false), "the input falls back midway: {stats:?}");

    let made = lake.repack("out", inputs, 1 << 30, HashMap::new()).await.unwrap();
    // The walk refuses a page of ids after one without.
    let output = checked(&lake, &made[0].output.path).await;
    assert_eq!(output.rows, arrow_select::concat::concat_batches(&lake.arrow(), &batches).unwrap());
    assert_eq!(output.pages.len(), 1);
    for column in &output.pages[0] {
        let ids = column.iter().filter(|page| by_dictionary(page.encoding)).count();
        assert!(ids >= 1, "the pages in front keep their ids: {ids}");
        assert_eq!(column.last().map(|page| page.encoding), Some(Encoding::PLAIN));
    }
}

#[tokio::test]
async fn h115_the_walk_refuses_what_the_reader_gets_wrong() {
    let lake = table();
    let with = write(&lake, "with", &rows(&lake, 20), WriterProperties::builder().build()).await;
    let without = write(&lake, "without", &rows(&lake, 20), WriterProperties::builder().set_dictionary_enabled(false).build()).await;
    let mut chunks = Vec::new();
    for file in [&with, &without] {
        let bytes = lake.io.new_input(&*file.path).unwrap().read().await.unwrap();
        chunks.push(bytes.slice(range(lake.read(&file.path).await.footer.row_group(0).column(0))));
    }
    let found = pages(&chunks[0]).unwrap();
    assert_eq!(found.iter().map(|page| page.encoding).collect::<Vec<_>>(), [Encoding::PLAIN, Encoding::RLE_DICTIONARY]);
    let split = found[0].end;
    let good = [&chunks[0], &chunks[1]].map(|chunk| chunk.to_vec()).concat();
    assert_eq!(pages(&good).unwrap().len(), 3);
    let bad = [&chunks[0][..split], &chunks[1], &chunks[0][split..]].concat();
    assert_eq!(pages(&bad), Err("a page of ids after one without".into()));
}

#[tokio::test]
async fn h115_outputs_are_signed_so_that_readers_believe_their_statistics() {
    let lake = table();
    let inputs = vec![write(&lake, "a", &rows(&lake, 20), falling_back()).await];
    let made = lake.repack("out", inputs, 1 << 30, HashMap::new()).await.unwrap();
    let signed = checked(&lake, &made[0].output.path).await.footer.file_metadata().created_by().unwrap().to_owned();
    assert_eq!(signed, concat!("afterwrite version ", env!("CARGO_PKG_VERSION"), " (build release)"));
}
