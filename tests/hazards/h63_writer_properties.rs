//! A rewrite honours the table's writer properties: each is read back from the
//! footer.

use std::sync::Arc;

use afterwrite::lake::Error;
use afterwrite::lake::iceberg::{rewrite, verify};
use afterwrite::model::plan::{AttemptId, Path};
use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use iceberg::spec::PrimitiveType;
use parquet::basic::{Compression, Encoding};
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData, ParquetMetaDataReader};
use parquet::file::properties::WriterProperties;

use crate::reading::{Free, Lake as Reading};
use crate::rewrite::support::{Lake, MEMORY, Read, codec, noise, primitive};

const ROWS: i64 = 30_000;

async fn written(properties: &[(&str, &str)]) -> Read {
    let lake = Lake::new(vec![("n", primitive(PrimitiveType::Long)), ("s", primitive(PrimitiveType::String))], properties);
    let text = noise(1, ROWS as usize * 40);
    let text: Vec<String> = text.chunks(40).map(|bytes| bytes.iter().map(|b| char::from(b' ' + b % 64)).collect()).collect();
    let columns: Vec<ArrayRef> =
        vec![Arc::new(Int64Array::from_iter_values((0..ROWS).map(|n| n % 9000))), Arc::new(StringArray::from(text))];
    let batch = lake.batch(columns);
    let batches = (0..ROWS as usize).step_by(5000).map(|from| batch.slice(from, 5000)).collect();
    let made = lake.encode("a", batches, 1 << 30, MEMORY).await.unwrap();
    let read = lake.read(&made[0].output.path).await;
    assert_eq!(read.rows, batch);
    read
}

fn chunks(read: &Read, column: usize) -> impl Iterator<Item = &ColumnChunkMetaData> {
    read.footer.row_groups().iter().map(move |group| group.column(column))
}

fn bytes(read: &Read, column: usize) -> i64 {
    chunks(read, column).map(ColumnChunkMetaData::compressed_size).sum()
}

/// Rows of the first pages of a column, the last page of each chunk left out.
fn page_rows(read: &Read, column: usize) -> Vec<i64> {
    let offsets = &read.footer.offset_index().unwrap()[0][column];
    offsets.page_locations().windows(2).map(|pair| pair[1].first_row_index - pair[0].first_row_index).collect()
}

#[tokio::test]
async fn h63_codecs_are_those_of_the_table() {
    let codecs = [
        ("uncompressed", "UNCOMPRESSED"),
        ("snappy", "SNAPPY"),
        ("gzip", "GZIP"),
        ("brotli", "BROTLI"),
        ("lz4", "ZSTD"),
        ("lz4_raw", "LZ4_RAW"),
        ("ZSTD", "ZSTD"),
    ];
    for (set, found) in codecs {
        let read = written(&[("write.parquet.compression-codec", set)]).await;
        assert!(chunks(&read, 1).all(|chunk| codec(chunk.compression()) == found), "{set}");
    }
    let default = written(&[]).await;
    assert!(chunks(&default, 0).all(|chunk| codec(chunk.compression()) == "ZSTD"));
}

#[tokio::test]
async fn h63_a_higher_level_compresses_more() {
    for codec in ["gzip", "zstd"] {
        let at = async |level| {
            bytes(&written(&[("write.parquet.compression-codec", codec), ("write.parquet.compression-level", level)]).await, 1)
        };
        let (low, high) = (at("1").await, at("9").await);
        assert!(high < low, "{codec}: level 9 gives {high} bytes, level 1 {low}");
    }
}

#[tokio::test]
async fn h63_row_groups_end_at_the_tables_size() {
    let whole = written(&[("write.parquet.compression-codec", "uncompressed")]).await;
    assert_eq!(whole.footer.num_row_groups(), 1);
    let properties = [("write.parquet.compression-codec", "uncompressed"), ("write.parquet.row-group-size-bytes", "262144")];
    let read = written(&properties).await;
    let sizes: Vec<i64> = read.footer.row_groups().iter().map(|group| group.compressed_size()).collect();
    assert!(sizes.len() >= 5 && sizes.iter().all(|size| *size <= 262_144 * 3 / 2), "{sizes:?}");
}

#[tokio::test]
async fn h63_pages_end_at_the_tables_limits() {
    assert_eq!(page_rows(&written(&[]).await, 0), [20_000]);
    let by_rows = page_rows(&written(&[("write.parquet.page-row-limit", "1000")]).await, 0);
    assert_eq!(by_rows, [1000; 29]);
    let properties = [("write.parquet.page-size-bytes", "65536"), ("write.parquet.dict-size-bytes", "1")];
    let by_bytes = page_rows(&written(&properties).await, 1);
    assert!(by_bytes.iter().skip(1).all(|rows| (1000..=2600).contains(rows)), "{by_bytes:?}");
}

#[tokio::test]
async fn h63_dictionaries_end_at_the_tables_size() {
    let plain_pages = |read: &Read| {
        let pages = chunks(read, 0).flat_map(|chunk| chunk.page_encoding_stats().unwrap());
        pages.filter(|page| page.page_type == parquet::basic::PageType::DATA_PAGE && page.encoding == Encoding::PLAIN).count()
    };
    assert_eq!(plain_pages(&written(&[]).await), 0);
    assert!(plain_pages(&written(&[("write.parquet.dict-size-bytes", "10000")]).await) > 0);
}

#[tokio::test]
async fn h63_bloom_filters_are_where_the_table_wants_them() {
    let on = ("write.parquet.bloom-filter-enabled.column.s", "true");
    let length = |read: &Read, column| chunks(read, column).map(|chunk| chunk.bloom_filter_length()).collect::<Vec<_>>();
    let read = written(&[on]).await;
    assert_eq!(length(&read, 0), [None]);
    let usual = length(&read, 1)[0].unwrap();
    let small = length(&written(&[on, ("write.parquet.bloom-filter-max-bytes", "4096")]).await, 1)[0].unwrap();
    assert!((4096..4200).contains(&small), "{small}");
    let loose = length(&written(&[on, ("write.parquet.bloom-filter-fpp.column.s", "0.5")]).await, 1)[0].unwrap();
    assert!(small < loose && loose < usual, "{small} {loose} {usual}");
}

#[tokio::test]
async fn h63_statistics_can_be_switched_off_for_a_column() {
    let read = written(&[("write.parquet.stats-enabled.column.s", "false")]).await;
    assert!(chunks(&read, 0).all(|chunk| chunk.statistics().is_some()));
    assert!(chunks(&read, 1).all(|chunk| chunk.statistics().is_none()));
}

/// A rewrite of two files of one healthy row group each, by the way that it chooses.
async fn chosen(properties: &[(&str, &str)]) -> (Path, ParquetMetaData) {
    let mut lake = Reading::id_v();
    lake.properties.extend(properties.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())));
    for file in 0..2i64 {
        let ids = Int64Array::from_iter_values((0..130_000).map(|n| n * 7919 + file));
        let rows = RecordBatch::try_new(lake.arrow(), vec![Arc::new(ids), Arc::new(StringArray::from(vec!["v"; 130_000]))]).unwrap();
        lake.append_batch(1, &rows, WriterProperties::builder().set_compression(Compression::SNAPPY).build());
    }
    let (table, plan) = (lake.table().await, lake.plan());
    let written = rewrite::run(&table, &plan, &AttemptId("a1".into()), &Free).await.unwrap();
    verify::run(&table, &plan, &written).await.unwrap();
    let [output] = written.outputs.as_slice() else { panic!("{:?}", written.outputs) };
    let file = std::fs::File::open(output.path.strip_prefix("file://").unwrap()).unwrap();
    (written.path, ParquetMetaDataReader::new().parse_and_finish(&file).unwrap())
}

#[tokio::test]
async fn h63_row_groups_are_copied_only_where_the_tables_properties_allow() {
    let statistics = |footer: &ParquetMetaData| footer.row_groups().iter().filter(|g| g.column(1).statistics().is_some()).count();
    let (path, footer) = chosen(&[]).await;
    assert_eq!((path, footer.num_row_groups(), statistics(&footer)), (Path::Splice, 2, 2));

    let (path, footer) = chosen(&[("write.parquet.row-group-size-bytes", "262144")]).await;
    let sizes: Vec<i64> = footer.row_groups().iter().map(|group| group.compressed_size()).collect();
    assert!(path == Path::ReEncode && sizes.len() > 2 && sizes.iter().all(|size| *size <= 262_144 * 3 / 2), "{path:?}: {sizes:?}");

    let (path, footer) = chosen(&[("write.parquet.stats-enabled.column.v", "false")]).await;
    assert_eq!((path, statistics(&footer)), (Path::ReEncode, 0));

    let (path, footer) = chosen(&[("write.parquet.compression-codec", "gzip")]).await;
    assert_eq!((path, codec(footer.row_group(0).column(0).compression())), (Path::RePack, "GZIP".into()));
}

#[tokio::test]
async fn h63_pages_compressed_anew_have_the_level_that_the_table_names() {
    let bytes = async |level: Option<&str>| {
        let level = level.map(|level| ("write.parquet.compression-level", level));
        let properties: Vec<_> = [("write.parquet.compression-codec", "zstd")].into_iter().chain(level).collect();
        let (path, footer) = chosen(&properties).await;
        assert_eq!((path, codec(footer.row_group(0).column(0).compression())), (Path::RePack, "ZSTD".into()));
        footer.row_group(0).compressed_size()
    };
    let (unset, first, third) = (bytes(None).await, bytes(Some("1")).await, bytes(Some("3")).await);
    assert!(unset == first && third != first, "{unset} {first} {third}");
}

#[tokio::test]
async fn h63_a_bad_value_is_named_before_anything_is_written() {
    let lake = Lake::new(vec![("n", primitive(PrimitiveType::Long))], &[("write.parquet.compression-codec", "zip")]);
    let error = lake.encode("a", Vec::new(), 1, MEMORY).await.err().unwrap();
    assert!(matches!(&error, Error::Setup(text) if text.contains("`write.parquet.compression-codec` is `zip`")), "{error}");
    assert_eq!(lake.watch.take().len(), 0);
}
