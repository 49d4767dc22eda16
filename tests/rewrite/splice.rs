use std::collections::HashMap;
use std::sync::Arc;

use afterwrite::lake::Error;
use afterwrite::lake::iceberg::rewrite::input::Input;
use afterwrite::model::refusal::Refusal;
use arrow_array::{Float64Array, Int64Array, RecordBatch, StringArray};
use iceberg::spec::{Datum, PrimitiveType};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use proptest::prelude::*;

use super::support::{Lake, MEMORY, Read, codec, live, plan, primitive};

fn table(properties: &[(&str, &str)]) -> Lake {
    let fields =
        vec![("n", primitive(PrimitiveType::Long)), ("s", primitive(PrimitiveType::String)), ("f", primitive(PrimitiveType::Double))];
    Lake::new(fields, properties)
}

fn rows(lake: &Lake, range: std::ops::Range<i64>) -> RecordBatch {
    let text = StringArray::from_iter(range.clone().map(|n| (n % 5 != 0).then(|| format!("v{}", n % 7))));
    let floats = Float64Array::from_iter(range.clone().map(|n| Some(if n % 3 == 0 { f64::NAN } else { n as f64 })));
    lake.batch(vec![Arc::new(Int64Array::from_iter_values(range)), Arc::new(text), Arc::new(floats)])
}

fn concat(lake: &Lake, batches: &[RecordBatch]) -> RecordBatch {
    arrow_select::concat::concat_batches(&lake.arrow(), batches).unwrap()
}

#[tokio::test]
async fn a_spliced_file_keeps_pages_indexes_and_bloom_filters() {
    let lake = table(&[("write.parquet.bloom-filter-enabled.column.s", "true")]);
    let batches = [rows(&lake, 0..1000), rows(&lake, 1000..1500)];
    let files = [lake.file("a", batches[0].clone()).await, lake.file("b", batches[1].clone()).await];
    let before = [lake.read(&files[0].path).await, lake.read(&files[1].path).await];
    let made = lake.splice("out", files.to_vec(), 1 << 30, HashMap::new()).await.unwrap();
    assert_eq!(made.len(), 1);
    let after = lake.read(&made[0].output.path).await;
    assert_eq!(after.rows, concat(&lake, &batches));
    let chunks = |read: &Read| -> Vec<_> {
        let groups = read.footer.row_groups().iter().zip(read.footer.column_index().unwrap()).zip(read.footer.offset_index().unwrap());
        groups
            .flat_map(|((group, columns), offsets)| {
                let bloom = |c: &parquet::file::metadata::ColumnChunkMetaData| c.bloom_filter_length();
                group.columns().iter().zip(columns).zip(offsets).map(move |((chunk, column), offset)| {
                    let start = chunk.byte_range().0 as i64;
                    let pages: Vec<i64> = offset.page_locations().iter().map(|page| page.offset - start).collect();
                    let stats = (chunk.statistics().cloned(), chunk.page_encoding_stats().cloned());
                    (stats, bloom(chunk), chunk.compression(), chunk.num_values(), column.clone(), pages)
                })
            })
            .collect()
    };
    let parts: Vec<_> = before.iter().flat_map(chunks).collect();
    assert!(parts[1].1.is_some(), "the input has a bloom filter");
    assert_eq!(chunks(&after), parts);
}

#[tokio::test]
async fn metrics_of_a_splice_hold_over_all_inputs() {
    let lake = table(&[]);
    let files = vec![lake.file("a", rows(&lake, 0..10)).await, lake.file("b", rows(&lake, 90..100)).await];
    let nans: HashMap<String, HashMap<i32, u64>> = files.iter().map(|f| (f.path.to_string(), HashMap::from([(3, 4)]))).collect();
    let made = lake.splice("out", files.clone(), 1 << 30, nans.clone()).await.unwrap();
    let file = &made[0].data_file;
    assert_eq!((file.record_count(), file.value_counts()[&1], file.null_value_counts()[&2]), (20, 20, 4));
    assert_eq!((&file.lower_bounds()[&1], &file.upper_bounds()[&1]), (&Datum::long(0), &Datum::long(99)));
    assert_eq!((&file.lower_bounds()[&3], &file.upper_bounds()[&3]), (&Datum::double(1.0), &Datum::double(98.0)));
    assert_eq!(file.nan_value_counts(), &HashMap::from([(3, 8)]));
    assert_eq!(file.split_offsets().unwrap().len(), 2);
    assert_eq!(file.sort_order_id(), None);
    let untold = HashMap::from([nans.into_iter().next().unwrap()]);
    let made = lake.splice("out2", files, 1 << 30, untold).await.unwrap();
    assert_eq!(made[0].data_file.nan_value_counts(), &HashMap::new());
}

#[tokio::test]
async fn codecs_may_differ_between_inputs() {
    let zstd = table(&[]);
    let mut lake = table(&[("write.parquet.compression-codec", "snappy")]);
    lake.io = zstd.io.clone();
    let batches = [rows(&lake, 0..100), rows(&lake, 100..200)];
    let files = vec![zstd.file("a", batches[0].clone()).await, lake.file("b", batches[1].clone()).await];
    let made = lake.splice("out", files, 1 << 30, HashMap::new()).await.unwrap();
    let read = lake.read(&made[0].output.path).await;
    assert_eq!(read.rows, concat(&lake, &batches));
    let codecs: Vec<String> = read.footer.row_groups().iter().map(|g| codec(g.column(0).compression())).collect();
    assert_eq!(codecs, ["ZSTD", "SNAPPY"]);
}

#[tokio::test]
async fn page_indexes_may_be_in_some_inputs_only() {
    let lake = table(&[]);
    let batches = [rows(&lake, 0..100), rows(&lake, 100..200)];
    let bare = WriterProperties::builder().set_offset_index_disabled(true).set_statistics_enabled(EnabledStatistics::Chunk).build();
    let files = vec![lake.file("a", batches[0].clone()).await, super::repack::write(&lake, "b", &batches[1], bare).await];
    let made = lake.splice("out", files, 1 << 30, HashMap::new()).await.unwrap();
    assert_eq!(lake.read(&made[0].output.path).await.rows, concat(&lake, &batches));
}

#[tokio::test]
async fn a_file_that_is_not_what_its_manifest_says_is_refused() {
    let lake = table(&[]);
    let good = lake.file("a", rows(&lake, 0..10)).await;
    let short = live(&good.path, good.bytes - 1, 10);
    let Err(Error::Refused(refused)) = lake.splice("out", vec![short], 1 << 30, HashMap::new()).await else { panic!("not refused") };
    assert_eq!(refused.refusal, Refusal::Damaged);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn a_splice_reads_as_its_inputs_end_to_end(sizes in prop::collection::vec(1i64..400, 1..12), target in 2_000u64..60_000) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let lake = table(&[("write.parquet.row-group-size-bytes", "2000")]);
            let (mut files, mut batches, mut next) = (Vec::new(), Vec::new(), 0);
            for (number, size) in sizes.into_iter().enumerate() {
                batches.push(rows(&lake, next..next + size));
                next += size;
                files.push(lake.file(&format!("in{number}"), batches[number].clone()).await);
            }
            let made = lake.splice("out", files, target, HashMap::new()).await.unwrap();
            let mut read = Vec::new();
            for made in &made {
                read.push(lake.read(&made.output.path).await.rows);
            }
            assert_eq!(concat(&lake, &read), concat(&lake, &batches));
            assert_eq!(made.iter().map(|m| m.output.records).sum::<u64>(), next as u64);
        });
    }
}

#[tokio::test]
async fn footers_that_do_not_fit_into_memory_are_not_held() {
    let lake = table(&[]);
    let files = vec![lake.file("a", rows(&lake, 0..10)).await, lake.file("b", rows(&lake, 10..20)).await];
    let plan = plan(files, 1 << 30, MEMORY);
    let open = async |most| Input::open_within(&lake.io, &plan, &lake.watch, most).await.unwrap();
    assert!(open(1000).await.is_none());
    assert_eq!(open(1 << 20).await.map(|inputs| inputs.len()), Some(2));
}
