use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use bytes::Bytes;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::basic::PageType;
use parquet::column::writer::ColumnCloseResult;
use parquet::file::metadata::{PageIndexPolicy, ParquetMetaDataOptions, ParquetMetaDataReader};
use parquet::file::properties::{WriterProperties, WriterPropertiesBuilder, WriterVersion};
use parquet::file::statistics::Statistics;
use parquet::file::writer::SerializedFileWriter;

use super::super::header::Header;
use super::*;

const WISH: Wish = Wish { codec: Compression::UNCOMPRESSED, page: 1 << 20, chunk: 8 << 20, small_rows: 0 };

fn properties() -> WriterPropertiesBuilder {
    WriterProperties::builder().set_compression(Compression::UNCOMPRESSED)
}

/// The only chunk of a file with one column.
fn part(values: ArrayRef, properties: WriterPropertiesBuilder) -> Part {
    let rows = values.len() as u64;
    let batch = RecordBatch::try_from_iter_with_nullable([("c", values, true)]).unwrap();
    let mut file = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut file, batch.schema(), Some(properties.build())).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    let file = Bytes::from(file);
    let footer = ParquetMetaDataReader::new()
        .with_page_index_policy(PageIndexPolicy::Optional)
        .with_metadata_options(Some(ParquetMetaDataOptions::new().with_encoding_stats_as_mask(false)))
        .parse_and_finish(&file)
        .unwrap();
    let meta = footer.row_group(0).column(0).clone();
    let (start, length) = meta.byte_range();
    let column_index = footer.column_index().map(|index| index[0][0].clone());
    let offset_index = footer.offset_index().map(|index| index[0][0].clone());
    Part { bytes: file.slice(start as usize..(start + length) as usize), meta, rows, dead: Arc::default(), column_index, offset_index }
}

fn find(part: &Part) -> Result<Pages, Fault> {
    Pages::find(part, |_| Err(Fault::unfit("asked")))
}

fn texts(values: &[Option<&str>]) -> Part {
    part(Arc::new(StringArray::from(values.to_vec())), properties())
}

/// The joined chunk as a file of its own, read.
fn read(joined: &Joined, rows: u64) -> ArrayRef {
    let mut file = Vec::new();
    let schema = joined.meta.column_descr().self_type_ptr();
    let root = parquet::schema::types::Type::group_type_builder("root").with_fields(vec![schema]).build().unwrap();
    let mut writer = SerializedFileWriter::new(&mut file, Arc::new(root), Arc::new(WriterProperties::default())).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let close = ColumnCloseResult {
        bytes_written: joined.bytes.len() as u64,
        rows_written: rows,
        metadata: joined.meta.clone(),
        bloom_filter: None,
        column_index: joined.column_index.clone(),
        offset_index: Some(joined.offset_index.clone()),
    };
    group.append_column(&joined.bytes, close).unwrap();
    group.close().unwrap();
    writer.close().unwrap();
    let reader = ParquetRecordBatchReaderBuilder::try_new(Bytes::from(file)).unwrap().with_batch_size(1 << 20).build().unwrap();
    let batches: Vec<RecordBatch> = reader.map(|batch| batch.unwrap()).collect();
    assert_eq!(batches.len(), 1);
    batches[0].column(0).clone()
}

fn joined(parts: &[Part]) -> (Joined, ArrayRef) {
    let joined = join(parts, &WISH).unwrap();
    let values = read(&joined, parts.iter().map(|part| part.rows).sum());
    (joined, values)
}

/// Pages by type and encoding.
fn pages(joined: &Joined) -> Vec<(PageType, Encoding, i32)> {
    joined.meta.page_encoding_stats().unwrap().iter().map(|s| (s.page_type, s.encoding, s.count)).collect()
}

#[test]
fn overlapping_dictionaries_become_one() {
    let parts = [texts(&[Some("a"), None, Some("b")]), texts(&[Some("c"), Some("b"), Some("b")]), texts(&[Some("b"), Some("d")])];
    let (joined, values) = joined(&parts);
    let expected = StringArray::from(vec![Some("a"), None, Some("b"), Some("c"), Some("b"), Some("b"), Some("b"), Some("d")]);
    assert_eq!(values.as_ref(), &expected as &dyn arrow_array::Array);
    assert_eq!(pages(&joined), [(PageType::DATA_PAGE, Encoding::RLE_DICTIONARY, 3), (PageType::DICTIONARY_PAGE, Encoding::PLAIN, 1)]);
    let statistics = joined.meta.statistics().unwrap();
    assert_eq!((statistics.min_bytes_opt(), statistics.max_bytes_opt()), (Some(b"a".as_slice()), Some(b"d".as_slice())));
    assert_eq!((statistics.null_count_opt(), statistics.min_is_exact()), (Some(1), true));
    let index = joined.column_index.unwrap();
    assert_eq!((index.num_pages(), index.null_counts()), (3, Some(&vec![1, 0, 0])));
}

#[test]
fn ids_behind_a_page_without_dictionary_become_values() {
    let plain = part(Arc::new(StringArray::from(vec!["x", "y"])), properties().set_dictionary_enabled(false));
    let parts = [texts(&[Some("a")]), plain, texts(&[Some("b"), None])];
    let (joined, values) = joined(&parts);
    assert_eq!(values.as_ref(), &StringArray::from(vec![Some("a"), Some("x"), Some("y"), Some("b"), None]) as &dyn arrow_array::Array);
    let expected = [
        (PageType::DATA_PAGE, Encoding::PLAIN, 2),
        (PageType::DATA_PAGE, Encoding::RLE_DICTIONARY, 1),
        (PageType::DICTIONARY_PAGE, Encoding::PLAIN, 1),
    ];
    assert_eq!(pages(&joined), expected);
    let whole =
        Part { bytes: joined.bytes.concat(), meta: joined.meta, rows: 5, dead: Arc::default(), column_index: None, offset_index: None };
    let order: Vec<Encoding> = find(&whole).unwrap().data.iter().map(|page| page.data().1).collect();
    assert_eq!(order, [Encoding::RLE_DICTIONARY, Encoding::PLAIN, Encoding::PLAIN]);
}

#[test]
fn dictionaries_too_large_together_give_way_to_values() {
    let long = |c: char| Some(c.to_string().repeat(400_000));
    let parts: Vec<Part> = ['a', 'b', 'c']
        .into_iter()
        .map(|c| part(Arc::new(StringArray::from(vec![long(c)])), properties().set_dictionary_page_size_limit(1 << 20)))
        .collect();
    let (joined, values) = joined(&parts);
    assert_eq!(values.as_ref(), &StringArray::from(vec![long('a'), long('b'), long('c')]) as &dyn arrow_array::Array);
    assert_eq!(pages(&joined), [(PageType::DATA_PAGE, Encoding::PLAIN, 3)]);
    assert_eq!(joined.meta.dictionary_page_offset(), None);
}

#[test]
fn ids_that_cost_more_than_values_give_way_to_them() {
    // Ascending numbers compress better than their ids do.
    let run = |from: i64| part(Arc::new(Int64Array::from_iter_values((from..from + 4000).map(|n| n / 2))), properties());
    let zstd = Wish { codec: Compression::ZSTD(parquet::basic::ZstdLevel::default()), ..WISH };
    let found = join(&[run(0), run(4000), run(8000)], &zstd).unwrap();
    assert_eq!(pages(&found), [(PageType::DATA_PAGE, Encoding::PLAIN, 3)]);
    let values = read(&found, 12_000);
    assert_eq!(values.as_ref(), &Int64Array::from_iter_values((0..12_000).map(|n| n / 2)) as &dyn arrow_array::Array);
}

/// The part with other ids in its only data page.
fn with_ids(part: &Part, ids: &[u8]) -> Part {
    let pages = find(part).unwrap();
    let page = &pages.data[0];
    let levels = Levels::of(part.meta.column_descr());
    let opened = body::open(&page.header, page.body(&part.bytes), levels, Compression::UNCOMPRESSED, &mut Inflater::default()).unwrap();
    let mut deflater = Deflater::new(Compression::UNCOMPRESSED).unwrap();
    let (header, body) = body::close(&page.header.kind, opened.levels(), ids, &mut deflater).unwrap();
    let mut bytes = part.bytes[..page.start].to_vec();
    header.write(&mut bytes).unwrap();
    bytes.extend(body);
    Part { bytes: bytes.into(), ..part.clone() }
}

#[test]
fn an_id_past_the_end_is_damage_even_where_the_merged_dictionary_reaches_it() {
    let good = [texts(&[Some("a"), Some("b"), Some("b")]), texts(&[Some("c"), Some("d")])];
    // Ids 1, 0, 2 of two bits: the third value is the other part's.
    let (same, mapped) = ([2, 3, 0b10_0001, 0], [2, 3, 0b10_01, 0]);
    let failure = join(&[with_ids(&good[0], &same), good[1].clone()], &WISH).unwrap_err();
    assert_eq!(failure, Fault::damaged("an id past the end of its dictionary of 2 values").of(0));
    let failure = join(&[good[0].clone(), with_ids(&good[1], &mapped)], &WISH).unwrap_err();
    assert_eq!(failure, Fault::damaged("an id past the end of its dictionary of 2 values").of(1));
    let whole = [2, 3, 0b01_0001, 0];
    let (_, values) = joined(&[with_ids(&good[0], &whole), good[1].clone()]);
    assert_eq!(values.as_ref(), &StringArray::from(vec!["b", "a", "b", "c", "d"]) as &dyn arrow_array::Array);
}

#[test]
fn a_checksum_that_does_not_hold_is_damage() {
    let good = texts(&[Some("a"), Some("b")]);
    let (header, length) = Header::read(&good.bytes).unwrap();
    let body = good.bytes.slice(length..length + header.compressed);
    let with = |crc: u32| {
        let mut bytes = Vec::new();
        Header { crc: Some(crc), ..header.clone() }.write(&mut bytes).unwrap();
        bytes.extend_from_slice(&body);
        bytes.extend_from_slice(&good.bytes[length + header.compressed..]);
        Part { bytes: bytes.into(), ..good.clone() }
    };
    let crc = crc32fast::hash(&body);
    assert!(join(&[with(crc)], &WISH).is_ok());
    let failure = join(&[good.clone(), with(crc ^ 1)], &WISH).unwrap_err();
    assert_eq!((failure.part, matches!(failure.fault, Fault::Damaged(_))), (Some(1), true));
}

#[test]
fn codecs_and_page_versions_may_differ() {
    let numbers = |from: i64| -> ArrayRef { Arc::new(Int64Array::from_iter((from..from + 3000).map(|n| (n % 7 != 0).then_some(n % 50)))) };
    let snappy = part(numbers(0), WriterProperties::builder().set_compression(Compression::SNAPPY).set_data_page_row_count_limit(500));
    let second = part(numbers(3000), properties().set_writer_version(WriterVersion::PARQUET_2_0).set_dictionary_enabled(false));
    let gzip = part(numbers(6000), WriterProperties::builder().set_compression(Compression::GZIP(Default::default())));
    let zstd = Wish { codec: Compression::ZSTD(Default::default()), ..WISH };
    let found = join(&[snappy, second, gzip], &zstd).unwrap();
    assert_eq!(read(&found, 9000).as_ref(), arrow_select::concat::concat(&[&numbers(0), &numbers(3000), &numbers(6000)]).unwrap().as_ref());
    assert!(super::super::codec::same(found.meta.compression(), zstd.codec));
}

#[test]
fn what_does_not_fit_is_said_and_a_part_alone_fits() {
    let wide = |c: char| part(Arc::new(StringArray::from(vec![c.to_string().repeat(600); 2000])), properties());
    let plain = part(Arc::new(StringArray::from(vec!["x"])), properties().set_dictionary_enabled(false));
    let failure = join(&[plain, wide('a')], &WISH).unwrap_err();
    assert!(matches!(failure.fault, Fault::Unfit(_)), "{failure:?}");
    assert_eq!(failure.part, Some(1));
    assert!(join(&[wide('a')], &WISH).is_ok());
    assert!(matches!(join(&[wide('a')], &Wish { chunk: 100, ..WISH }).unwrap_err().fault, Fault::Unfit(_)));
    assert!(matches!(join(&[], &WISH).unwrap_err().fault, Fault::Unfit(_)));
}

/// Pages under this many rows are put together.
const SMALL: Wish = Wish { small_rows: 4000, ..WISH };

fn without(part: &Part, dead: impl IntoIterator<Item = u32>) -> Part {
    Part { dead: dead.into_iter().collect(), ..part.clone() }
}

fn numbers(range: std::ops::Range<i64>) -> ArrayRef {
    Arc::new(Int64Array::from_iter(range.map(|n| (n % 7 != 0).then_some(n))))
}

fn ints(found: &Joined) -> (Option<i64>, Option<i64>, bool, Option<u64>) {
    let end = |bytes: Option<&[u8]>| bytes.map(|b| i64::from_le_bytes(b.try_into().unwrap()));
    let s = found.meta.statistics().unwrap();
    (end(s.min_bytes_opt()), end(s.max_bytes_opt()), s.min_is_exact() && s.max_is_exact(), s.null_count_opt())
}

#[test]
fn small_pages_become_one_with_the_ends_of_all() {
    for version in [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0] {
        for dictionary in [true, false] {
            let paged = || properties().set_writer_version(version).set_dictionary_enabled(dictionary).set_encoding(Encoding::PLAIN);
            let paged = || paged().set_data_page_row_count_limit(100).set_write_batch_size(50);
            let parts = [part(numbers(0..300), paged()), part(numbers(300..301), paged()), part(numbers(1000..1500), paged())];
            let found = join(&parts, &SMALL).unwrap();
            let expected = arrow_select::concat::concat(&[&numbers(0..300), &numbers(300..301), &numbers(1000..1500)]).unwrap();
            assert_eq!(read(&found, 801).as_ref(), expected.as_ref());
            let pages: i32 = pages(&found).iter().filter(|(kind, ..)| *kind != PageType::DICTIONARY_PAGE).map(|(.., count)| count).sum();
            assert_eq!((pages, found.rows, found.offset_index.page_locations().len()), (1, 801, 1));
            assert_eq!(ints(&found), (Some(1), Some(1499), true, Some(expected.null_count() as u64)));
            let Some(ColumnIndexMetaData::INT64(index)) = found.column_index else { panic!() };
            assert_eq!((index.min_value(0), index.max_value(0)), (Some(&1), Some(&1499)));
        }
    }
}

#[test]
fn a_page_is_put_together_no_further_than_writers_do() {
    let parts: Vec<Part> = (0..30).map(|n| part(numbers(n * 1000..(n + 1) * 1000), properties())).collect();
    let found = join(&parts, &SMALL).unwrap();
    let starts: Vec<i64> = found.offset_index.page_locations().iter().map(|p| p.first_row_index).collect();
    assert_eq!(starts, [0, 20_000]);
    assert_eq!(read(&found, 30_000).as_ref(), numbers(0..30_000).as_ref());
}

#[test]
fn rows_left_out_are_gone_and_the_ends_are_those_of_the_rest() {
    for dictionary in [true, false] {
        let paged = || properties().set_dictionary_enabled(dictionary).set_data_page_row_count_limit(100).set_write_batch_size(50);
        let whole = part(numbers(0..300), paged());
        // A page of which nothing stays, one that is cut, one that is whole.
        let found = join(&[without(&whole, (0..100).chain(150..200)), part(numbers(300..400), paged())], &WISH).unwrap();
        let expected = arrow_select::concat::concat(&[&numbers(100..150), &numbers(200..400)]).unwrap();
        assert_eq!(read(&found, 250).as_ref(), expected.as_ref());
        assert_eq!(ints(&found), (Some(100), Some(398), true, Some(expected.null_count() as u64)));
        let starts: Vec<i64> = found.offset_index.page_locations().iter().map(|p| p.first_row_index).collect();
        assert_eq!(starts, [0, 50, 150]);
        let Some(ColumnIndexMetaData::INT64(index)) = &found.column_index else { panic!() };
        assert_eq!((index.min_value(0), index.max_value(0), index.null_count(0)), (Some(&100), Some(&149), Some(7)));
        let page = &find(&whole).unwrap().data[2];
        let bytes = found.bytes.clone().concat();
        let copied = &find(&Part { bytes: bytes.clone(), meta: found.meta.clone(), rows: 250, ..whole.clone() }).unwrap().data[1];
        assert_eq!(copied.body(&bytes), page.body(&whole.bytes), "an untouched page is copied");
    }
}

#[test]
fn no_row_left_in_a_part_or_in_all() {
    let parts = [part(numbers(0..50), properties()), part(numbers(50..90), properties())];
    let found = join(&[without(&parts[0], 0..50), parts[1].clone()], &SMALL).unwrap();
    assert_eq!(read(&found, 40).as_ref(), numbers(50..90).as_ref());
    assert_eq!(ints(&found), (Some(50), Some(89), true, Some(5)));
    let failure = join(&[without(&parts[0], 0..50)], &SMALL).unwrap_err();
    assert_eq!(failure.fault, Fault::unfit("it has no data page"));
    let failure = join(&[without(&parts[0], 0..51)], &SMALL).unwrap_err();
    assert_eq!(failure, Fault::damaged("a row that is left out is past the end").of(0));
}

#[test]
fn pages_of_differences_are_copied_and_only_those_that_are_cut_are_decoded() {
    let delta = properties().set_dictionary_enabled(false).set_encoding(Encoding::DELTA_BINARY_PACKED);
    let paged = delta.set_data_page_row_count_limit(100).set_write_batch_size(100);
    let whole = part(Arc::new(Int64Array::from_iter_values(0..500)), paged);
    let copied = join(&[whole.clone(), whole.clone()], &SMALL).unwrap();
    assert_eq!(pages(&copied), [(PageType::DATA_PAGE, Encoding::DELTA_BINARY_PACKED, 10)]);
    // one page is cut, and two that lie side by side become one
    let cut = join(&[whole.clone(), without(&whole, [3, 299, 300])], &SMALL).unwrap();
    let expected = [(PageType::DATA_PAGE, Encoding::PLAIN, 2), (PageType::DATA_PAGE, Encoding::DELTA_BINARY_PACKED, 7)];
    assert_eq!(pages(&cut), expected);
    let values = (0..500).chain((0..500).filter(|n| ![3, 299, 300].contains(n)));
    assert_eq!(read(&cut, 997).as_ref(), &Int64Array::from_iter_values(values) as &dyn arrow_array::Array);
    assert_eq!(ints(&cut), (Some(0), Some(499), true, Some(0)));
    let tight = Wish { page: 400, ..SMALL };
    assert!(matches!(join(&[without(&whole, [3])], &tight).unwrap_err().fault, Fault::Unfit(_)));
}

#[test]
fn a_page_that_claims_more_values_than_memory_has_room_for_is_not_opened() {
    let good = texts(&[Some("a"), Some("b")]);
    let (mut header, length) = Header::read(&good.bytes[find(&good).unwrap().data[0].start..]).unwrap();
    let start = find(&good).unwrap().data[0].start;
    let Kind::Data(data) = header.kind else { panic!() };
    header.kind = Kind::Data(super::super::header::Data { values: 1 << 30, ..data });
    let mut bytes = good.bytes[..start].to_vec();
    header.write(&mut bytes).unwrap();
    bytes.extend_from_slice(&good.bytes[start + length..]);
    let meta = good.meta.clone().into_builder().set_num_values(1 << 30).build().unwrap();
    let bad = Part { bytes: bytes.into(), meta, rows: 1 << 30, offset_index: None, ..good.clone() };
    let failure = join(&[texts(&[Some("x")]), bad], &SMALL).unwrap_err();
    assert_eq!(failure, Fault::unfit("a page of 1073741824 values").of(1));
}

#[test]
fn ends_that_are_not_told_are_looked_for() {
    let untold = |part: &Part| Part { meta: statistics::without_ends(part.meta.clone()).unwrap(), column_index: None, ..part.clone() };
    let long = "z".repeat(200);
    for dictionary in [true, false] {
        for small in [WISH, SMALL] {
            let texts = |values: &[Option<&str>]| {
                part(Arc::new(StringArray::from(values.to_vec())), properties().set_dictionary_enabled(dictionary))
            };
            let parts = [texts(&[Some("m"), None, Some("\u{fc}")]), texts(&[Some("k"), Some(&long)]), texts(&[None])];
            assert!(parts.iter().all(|part| statistics::tells_ends(&part.meta)));
            let doubted = [untold(&parts[0]), untold(&parts[1]), untold(&parts[2])];
            assert!(!statistics::tells_ends(&doubted[0].meta) && statistics::tells_ends(&doubted[2].meta), "NULLs have no ends");
            let found = join_looking(&doubted, &small, true).unwrap();
            let Some(Statistics::ByteArray(ends)) = found.meta.statistics() else { panic!() };
            assert_eq!((ends.min_opt().map(|v| v.data()), ends.max_opt().map(|v| v.data())), (Some(&b"k"[..]), Some("\u{fc}".as_bytes())));
            assert_eq!((ends.null_count_opt(), ends.min_is_exact()), (Some(2), true));
            assert_eq!(read(&found, 6).null_count(), 2);
            // without looking, nothing is made up
            let blind = join(&doubted, &small).unwrap();
            let Some(Statistics::ByteArray(ends)) = blind.meta.statistics() else { panic!() };
            assert_eq!((ends.min_opt(), ends.max_opt(), ends.null_count_opt()), (None, None, Some(2)));
            assert!(blind.column_index.is_none());
        }
    }
}
