use std::sync::Arc;

use arrow_array::builder::{FixedSizeBinaryBuilder, Int32Builder, ListBuilder};
use arrow_array::{ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch, StringArray};
use arrow_select::concat::concat_batches;
use bytes::Bytes;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::column::writer::ColumnCloseResult;
use parquet::file::metadata::{PageIndexPolicy, ParquetMetaData, ParquetMetaDataOptions, ParquetMetaDataReader};
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterVersion};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::ColumnPath;
use proptest::prelude::*;

use super::*;
use crate::parquet::chunk::Part;
use crate::parquet::repack::{Wish, join};

mod planted;

const ASKED: Asked = Asked { page: 4 << 20, ends: true, nans: true };

/// A file in memory.
#[derive(Clone)]
struct File {
    bytes: Bytes,
    footer: Arc<ParquetMetaData>,
}

impl File {
    fn new(bytes: Vec<u8>) -> Self {
        Self::read(bytes).unwrap()
    }

    fn read(bytes: Vec<u8>) -> Option<Self> {
        let bytes = Bytes::from(bytes);
        let reader = ParquetMetaDataReader::new()
            .with_page_index_policy(PageIndexPolicy::Optional)
            .with_metadata_options(Some(ParquetMetaDataOptions::new().with_encoding_stats_as_mask(false)));
        Some(Self { footer: Arc::new(reader.parse_and_finish(&bytes).ok()?), bytes })
    }

    fn written(batch: &RecordBatch, properties: WriterProperties) -> Self {
        let mut file = Vec::new();
        let mut writer = ArrowWriter::try_new(&mut file, batch.schema(), Some(properties)).unwrap();
        // pages end where batches do
        for start in (0..batch.num_rows()).step_by(37) {
            writer.write(&batch.slice(start, 37.min(batch.num_rows() - start))).unwrap();
        }
        writer.close().unwrap();
        Self::new(file)
    }

    fn chunk(&self, column: usize, dead: &[u32]) -> Chunk {
        let (start, length) = self.footer.row_group(0).column(column).byte_range();
        let bytes = self.bytes.slice(start as usize..(start + length) as usize);
        Chunk { footer: Arc::clone(&self.footer), group: 0, column, bytes, dead: dead.into() }
    }

    fn part(&self, column: usize, dead: &[u32]) -> Part {
        let chunk = self.chunk(column, dead);
        let (column_index, offset_index) = (chunk.column_index().cloned(), chunk.offset_index().cloned());
        let (meta, rows) = (chunk.meta().unwrap().clone(), chunk.rows().unwrap());
        Part { bytes: chunk.bytes, meta, rows, dead: dead.into(), column_index, offset_index }
    }

    fn rows(&self) -> Option<RecordBatch> {
        let reader = ParquetRecordBatchReaderBuilder::try_new(self.bytes.clone()).ok()?.build().ok()?;
        let schema = reader_schema(&self.bytes);
        let batches = reader.collect::<Result<Vec<RecordBatch>, _>>().ok()?;
        concat_batches(&schema, &batches).ok()
    }

    fn columns(&self) -> usize {
        self.footer.row_group(0).num_columns()
    }

    /// The same with one byte changed.
    fn flipped(&self, at: usize, bit: u8) -> Self {
        let mut bytes = self.bytes.to_vec();
        bytes[at] ^= 1 << bit;
        Self { bytes: bytes.into(), footer: Arc::clone(&self.footer) }
    }

    /// Bytes of all pages.
    fn pages(&self) -> usize {
        let ranges = self.footer.row_group(0).columns().iter().map(|column| column.byte_range());
        ranges.map(|(start, length)| (start + length) as usize).max().unwrap()
    }
}

fn reader_schema(bytes: &Bytes) -> arrow_schema::SchemaRef {
    ParquetRecordBatchReaderBuilder::try_new(bytes.clone()).unwrap().schema().clone()
}

/// Rows of every kind of column; `seed` and `distinct` make the values.
fn rows(count: usize, seed: u64, distinct: u64, nulls: u64) -> RecordBatch {
    let value = |column: u64, row: usize| {
        let mixed = (seed ^ column << 32 ^ row as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (!(mixed >> 7).is_multiple_of(nulls)).then_some((mixed >> 20) % distinct)
    };
    let all = |column: u64| (0..count).map(move |row| value(column, row));
    let text = |v: u64| "é".repeat((v % 40) as usize) + &v.to_string();
    let (mut lists, mut fixed) = (ListBuilder::new(Int32Builder::new()), FixedSizeBinaryBuilder::new(3));
    for row in 0..count {
        match value(4, row) {
            None => lists.append_null(),
            Some(length) => {
                (0..length % 4).for_each(|item| lists.values().append_option(value(5 + item, row).map(|v| v as i32)));
                lists.append(true);
            }
        }
        fixed.append_value([value(9, row).unwrap_or(0) as u8, 1, 2]).unwrap();
    }
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(all(0).map(|v| v.map_or(-7, |v| v as i64 - 5))));
    let texts: ArrayRef = Arc::new(StringArray::from_iter(all(1).map(|v| v.map(text))));
    let floats = all(2).map(|v| v.map(|v| if v % 11 == 3 { f64::NAN } else { v as f64 - 3.0 }));
    let flags: ArrayRef = Arc::new(BooleanArray::from_iter(all(3).map(|v| v.map(|v| v % 3 == 0))));
    let columns = [
        ("n", numbers, false),
        ("s", texts, true),
        ("d", Arc::new(Float64Array::from_iter(floats)) as ArrayRef, true),
        ("b", flags, true),
        ("l", Arc::new(lists.finish()) as ArrayRef, true),
        ("f", Arc::new(fixed.finish()) as ArrayRef, false),
    ];
    RecordBatch::try_from_iter_with_nullable(columns).unwrap()
}

#[derive(Clone, Debug)]
struct Style {
    rows: usize,
    seed: u64,
    distinct: u64,
    nulls: u64,
    dictionary: bool,
    page: usize,
    second: bool,
    codec: Compression,
    statistics: EnabledStatistics,
    delta: bool,
    dead: Vec<u32>,
}

impl Style {
    fn properties(&self) -> WriterProperties {
        let mut builder = WriterProperties::builder()
            .set_dictionary_enabled(self.dictionary)
            .set_data_page_row_count_limit(self.page)
            .set_write_batch_size(self.page)
            .set_writer_version(if self.second { WriterVersion::PARQUET_2_0 } else { WriterVersion::PARQUET_1_0 })
            .set_compression(self.codec)
            .set_statistics_enabled(self.statistics);
        if self.delta {
            let n = ColumnPath::from("n");
            builder = builder.set_column_dictionary_enabled(n.clone(), false).set_column_encoding(n, Encoding::DELTA_BINARY_PACKED);
        }
        builder.build()
    }

    fn batch(&self) -> RecordBatch {
        rows(self.rows, self.seed, self.distinct, self.nulls)
    }

    fn live(&self) -> RecordBatch {
        let keep: BooleanArray = (0..self.rows as u32).map(|row| Some(!self.dead.contains(&row))).collect();
        arrow_select::filter::filter_record_batch(&self.batch(), &keep).unwrap()
    }
}

fn style() -> impl Strategy<Value = Style> {
    let shape = (1usize..160, any::<u64>(), prop_oneof![1u64..6, 50u64..1000], 1u64..9);
    let codec = prop::sample::select(vec![Compression::UNCOMPRESSED, Compression::SNAPPY, Compression::ZSTD(ZstdLevel::default())]);
    let told =
        prop::sample::select(vec![EnabledStatistics::Page, EnabledStatistics::Page, EnabledStatistics::Chunk, EnabledStatistics::None]);
    let pages = (any::<bool>(), 1usize..60, any::<bool>(), codec, told, prop::bool::weighted(0.2));
    let dead = prop_oneof![Just(Vec::new()), prop::collection::vec(0u32..160, 0..20)];
    (shape, pages, dead).prop_map(|((rows, seed, distinct, nulls), (dictionary, page, second, codec, statistics, delta), mut dead)| {
        dead.retain(|row| (*row as usize) < rows);
        dead.sort_unstable();
        dead.dedup();
        Style { rows, seed, distinct, nulls, dictionary, page, second, codec, statistics, delta, dead }
    })
}

/// Files joined as a rewrite joins them; `None` where pages do not fit.
fn joined(files: &[(File, Vec<u32>)], codec: Compression, small_rows: u64) -> Option<File> {
    let schema = files[0].0.footer.file_metadata().schema_descr().root_schema_ptr();
    let mut file = Vec::new();
    let mut writer = SerializedFileWriter::new(&mut file, schema, Arc::new(WriterProperties::default())).unwrap();
    let mut group = writer.next_row_group().unwrap();
    for column in 0..files[0].0.columns() {
        let parts: Vec<Part> = files.iter().map(|(file, dead)| file.part(column, dead)).collect();
        let done = join(&parts, &Wish { codec, page: 1 << 20, chunk: 8 << 20, small_rows }).ok()?;
        let close = ColumnCloseResult {
            bytes_written: done.bytes.len() as u64,
            rows_written: done.rows,
            metadata: done.meta.clone(),
            bloom_filter: None,
            column_index: done.column_index.clone(),
            offset_index: Some(done.offset_index.clone()),
        };
        group.append_column(&done.bytes, close).unwrap();
    }
    group.close().unwrap();
    writer.close().unwrap();
    Some(File::new(file))
}

fn compared(left: &[(File, Vec<u32>)], right: &File, column: usize) -> Result<Vec<Found>, Failure> {
    let left: Vec<Chunk> = left.iter().map(|(file, dead)| file.chunk(column, dead)).collect();
    compare(&left, &[right.chunk(column, &[])], &ASKED)
}

/// The first trouble of any column.
fn all(left: &[(File, Vec<u32>)], right: &File) -> Result<Vec<Found>, Failure> {
    (0..right.columns()).map(|column| compared(left, right, column).map(|mut found| found.remove(0))).collect()
}

fn hashes(rows: &RecordBatch) -> Vec<crate::lake::iceberg::read::ColumnHash> {
    let mut hasher = crate::lake::iceberg::hash::ColumnHasher::new(&rows.schema());
    hasher.update(rows).unwrap();
    hasher.finish()
}

fn inputs(styles: &[Style]) -> (Vec<(File, Vec<u32>)>, RecordBatch) {
    let files = styles.iter().map(|s| (File::written(&s.batch(), s.properties()), s.dead.clone())).collect();
    let live: Vec<RecordBatch> = styles.iter().map(Style::live).collect();
    (files, concat_batches(&live[0].schema(), &live).unwrap())
}

fn is_unfit(failure: &Failure) -> bool {
    matches!(failure.trouble, Trouble::Unfit(_))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn a_join_of_any_pages_is_found_equal(styles in prop::collection::vec(style(), 1..5), small in prop_oneof![Just(0u64), Just(50)]) {
        let (files, live) = inputs(&styles);
        let Some(right) = joined(&files, styles[0].codec, small) else { return Ok(()) };
        prop_assert_eq!(hashes(&right.rows().unwrap()), hashes(&live));
        for column in 0..right.columns() {
            match compared(&files, &right, column) {
                Ok(found) => {
                    prop_assert_eq!(found.len(), 1);
                    let hash = &hashes(&live)[column];
                    prop_assert_eq!((found[0].values, found[0].nulls), (hash.values, hash.nulls));
                }
                Err(failure) => prop_assert!(is_unfit(&failure), "column {}: {:?}", column, failure),
            }
        }
    }

    #[test]
    fn a_byte_flipped_in_a_join_is_seen_or_changes_no_row(
        styles in prop::collection::vec(style(), 1..4), at in any::<prop::sample::Index>(), bit in 0u8..8, small in prop_oneof![Just(0u64), Just(50)],
    ) {
        let (files, live) = inputs(&styles);
        let Some(right) = joined(&files, styles[0].codec, small) else { return Ok(()) };
        let flipped = right.flipped(4 + at.index(right.pages() - 4), bit);
        if all(&files, &flipped).is_ok() {
            let read = flipped.rows();
            prop_assert_eq!(read.as_ref().map(hashes), Some(hashes(&live)));
        }
    }

    #[test]
    fn pages_and_hashes_agree_on_rows_encoded_anew(styles in prop::collection::vec(style(), 1..4), to in style(), change in any::<prop::sample::Index>()) {
        let (files, live) = inputs(&styles);
        prop_assume!(live.num_rows() > 0);
        let right = File::written(&live, to.properties());
        match all(&files, &right) {
            Ok(_) => prop_assert_eq!(hashes(&right.rows().unwrap()), hashes(&live)),
            Err(failure) => prop_assert!(is_unfit(&failure), "{:?}", failure),
        }
        // one row taken from elsewhere, in place of another
        let place = change.index(live.num_rows());
        let other = rows(1, 99, 5000, 2);
        let pieces = [live.slice(0, place), other, live.slice(place + 1, live.num_rows() - place - 1)];
        let wrong = concat_batches(&live.schema(), &pieces).unwrap();
        let right = File::written(&wrong, to.properties());
        for (column, (a, b)) in hashes(&wrong).iter().zip(hashes(&live)).enumerate() {
            match compared(&files, &right, column) {
                Ok(_) => prop_assert_eq!(a, &b, "column {}", column),
                Err(failure) => prop_assert!(is_unfit(&failure) || *a != b, "column {}: {:?}", column, failure),
            }
        }
    }

    #[test]
    fn noise_in_place_of_pages_is_trouble_and_nothing_worse(styles in prop::collection::vec(style(), 1..2), noise in prop::collection::vec(any::<u8>(), 1..200)) {
        let (files, _) = inputs(&styles);
        for column in 0..files[0].0.columns() {
            let mut chunk = files[0].0.chunk(column, &[]);
            chunk.bytes = noise.clone().into();
            prop_assert!(compare(std::slice::from_ref(&chunk), &[files[0].0.chunk(column, &[])], &ASKED).is_err());
        }
    }
}

/// Plain numbers in pages of four, none compressed.
fn numbers(values: std::ops::Range<i64>) -> File {
    let batch =
        RecordBatch::try_from_iter_with_nullable([("n", Arc::new(Int64Array::from_iter_values(values)) as ArrayRef, false)]).unwrap();
    let properties = WriterProperties::builder().set_dictionary_enabled(false).set_data_page_row_count_limit(4).set_write_batch_size(4);
    File::written(&batch, properties.set_compression(Compression::UNCOMPRESSED).build())
}

#[test]
fn a_page_dropped_doubled_or_moved_is_seen() {
    let file = numbers(0..16);
    let whole = file.chunk(0, &[]);
    let found = compare(std::slice::from_ref(&whole), std::slice::from_ref(&whole), &ASKED).unwrap();
    assert_eq!((found[0].values, found[0].copied, found[0].opened), (16, 4, 0));
    let pages = walk::walk(&whole, 1 << 20).unwrap().data;
    let order = |order: &[usize]| {
        let bytes: Vec<u8> = order.iter().flat_map(|page| pages[*page].whole(&whole.bytes)).copied().collect();
        compare(std::slice::from_ref(&whole), &[Chunk { bytes: bytes.into(), ..whole.clone() }], &ASKED)
    };
    assert!(order(&[0, 1, 2, 3]).is_ok());
    for wrong in [&[0, 1, 2][..], &[0, 1, 1, 3], &[1, 0, 2, 3], &[0, 1, 2, 3, 3], &[0, 0, 1, 2, 3], &[3, 2, 1, 0], &[0]] {
        let failure = order(wrong).unwrap_err();
        assert!(matches!((failure.which, &failure.trouble), (Which::Right, Trouble::Wrong(_))), "{wrong:?}: {failure:?}");
    }
}

#[test]
fn pages_that_stand_elsewhere_are_opened_and_still_found_equal() {
    let (left, right) = ([numbers(0..6), numbers(6..16)], numbers(0..16));
    let left: Vec<Chunk> = left.iter().map(|file| file.chunk(0, &[])).collect();
    let found = compare(&left, &[right.chunk(0, &[])], &ASKED).unwrap();
    // the first page is the same on both sides, the others begin elsewhere but for none
    assert_eq!((found[0].copied, found[0].opened), (1, 3));
    assert_eq!(found[0].ends, Ends::Within(0i64.to_le_bytes().to_vec(), 15i64.to_le_bytes().to_vec()));
    let failure = compare(&left, &[numbers(0..15).chunk(0, &[])], &ASKED).unwrap_err();
    assert_eq!(failure.trouble, Trouble::Wrong("fewer values than there should be".into()));
    let failure = compare(&left, &[numbers(0..17).chunk(0, &[])], &ASKED).unwrap_err();
    assert_eq!(failure.trouble, Trouble::Wrong("more values than there should be".into()));
}

fn made(kind: crate::parquet::header::Kind, uncompressed: usize, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    crate::parquet::header::Header { kind, uncompressed, compressed: body.len(), crc: None }.write(&mut bytes).unwrap();
    bytes.extend_from_slice(body);
    bytes
}

#[test]
fn a_page_that_claims_two_gigabytes_is_refused_before_memory_is_taken() {
    use crate::parquet::header::{Data, Kind};
    let file = numbers(0..16);
    let data = Kind::Data(Data { values: 16, encoding: Encoding::PLAIN, definition: Encoding::RLE, repetition: Encoding::RLE });
    let bytes = made(data, i32::MAX as usize, b"little");
    let hostile = Chunk { bytes: bytes.into(), ..file.chunk(0, &[]) };
    let failure = compare(std::slice::from_ref(&hostile), &[file.chunk(0, &[])], &ASKED).unwrap_err();
    assert_eq!(failure.trouble, Trouble::TooLarge("a page claims 2147483647 bytes, 4194304 are allowed".into()));
    assert_eq!(failure.which, Which::Left);
    assert_eq!(compare(&[file.chunk(0, &[])], &[hostile], &ASKED).unwrap_err().which, Which::Right);
}

#[test]
fn a_dictionary_that_claims_a_billion_values_is_wrong() {
    use crate::parquet::header::{Data, Kind};
    let file = numbers(0..16);
    let data = Kind::Data(Data { values: 16, encoding: Encoding::RLE_DICTIONARY, definition: Encoding::RLE, repetition: Encoding::RLE });
    let mut bytes = made(Kind::Dictionary { values: 1 << 30, encoding: Encoding::PLAIN }, 16, &[1; 16]);
    bytes.extend(made(data, 3, &[1, 32, 0]));
    let hostile = Chunk { bytes: bytes.into(), ..file.chunk(0, &[]) };
    let failure = compare(&[hostile], &[file.chunk(0, &[])], &ASKED).unwrap_err();
    assert_eq!(
        (failure.which, failure.trouble),
        (Which::Left, Trouble::Wrong("a dictionary page holds fewer values than it states".into()))
    );
}

#[test]
fn runs_of_billions_of_nulls_take_no_memory_and_no_time() {
    use crate::parquet::header::{Data, Kind};
    let batch = rows(4, 1, 3, 1);
    let file = File::written(&batch, WriterProperties::builder().set_compression(Compression::UNCOMPRESSED).build());
    let meta =
        file.footer.row_group(0).column(1).clone().into_builder().set_num_values(i64::from(i32::MAX)).clear_statistics().build().unwrap();
    let group = file.footer.row_group(0).clone().into_builder();
    let columns = file.footer.row_group(0).columns().iter().enumerate().map(|(i, c)| if i == 1 { meta.clone() } else { c.clone() });
    let group = group.set_column_metadata(columns.collect()).set_num_rows(i64::from(i32::MAX)).build().unwrap();
    let footer = Arc::new(ParquetMetaData::new(file.footer.file_metadata().clone(), vec![group]));
    let data = Data { values: i32::MAX as u32, encoding: Encoding::PLAIN, definition: Encoding::RLE, repetition: Encoding::RLE };
    // a run of 2^31 - 1 levels of 0, in one run and in two
    let level = |head: &[u8]| [&(head.len() as u32 + 1).to_le_bytes()[..], head, &[0]].concat();
    let one = level(&[0xfe, 0xff, 0xff, 0xff, 0x0f]);
    let page = |body: &[u8]| Chunk {
        footer: Arc::clone(&footer),
        group: 0,
        column: 1,
        bytes: made(Kind::Data(data), body.len(), body).into(),
        dead: Arc::default(),
    };
    let two = [&(11u32).to_le_bytes()[..], &[0xfe, 0xff, 0xff, 0x0f, 0], &[0x80, 0x80, 0x80, 0x80, 0x10], &[0]].concat();
    let failure = compare(&[page(&one)], &[page(&two)], &ASKED).unwrap_err();
    // equal levels: what is wrong is the place that the footer states
    assert!(matches!(&failure.trouble, Trouble::Wrong(why) if !why.contains("levels")), "{failure:?}");
}

#[test]
fn indexes_and_statistics_that_do_not_hold_are_seen() {
    let (left, right) = (numbers(0..16), numbers(0..16));
    let told = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = right.bytes.to_vec();
        change(&mut bytes);
        let right = File::new(bytes);
        compare(&[left.chunk(0, &[])], &[right.chunk(0, &[])], &ASKED)
    };
    assert!(told(&|_| {}).is_ok());
    // every number of the indexes and of the footer, as it is written
    let (start, end) = (right.pages(), right.bytes.len() - 8);
    let (mut seen, mut passed) = (0, 0);
    for at in start..end {
        let mut bytes = right.bytes.to_vec();
        bytes[at] ^= 2;
        let Some(changed) = File::read(bytes) else { continue };
        if changed.footer.num_row_groups() == 0 || changed.footer.row_group(0).num_columns() == 0 {
            continue;
        }
        let stated = |file: &File| {
            let chunk = file.chunk(0, &[]);
            let offsets = chunk.offset_index().map(|index| index.page_locations().clone());
            (chunk.column_index().cloned(), offsets, index::bounds(chunk.meta().unwrap().statistics()))
        };
        if changed.footer.row_group(0).column(0).byte_range() != right.footer.row_group(0).column(0).byte_range() {
            continue;
        }
        let found = compare(&[left.chunk(0, &[])], &[changed.chunk(0, &[])], &ASKED);
        if stated(&changed) != stated(&right) {
            seen += usize::from(found.is_err());
            passed += usize::from(found.is_ok());
        }
    }
    // what passes are bounds made wider, and indexes taken away
    assert!(seen > 20 && passed < seen, "{seen} {passed}");
}

#[test]
fn a_page_below_a_list_with_as_many_nulls_as_rows_may_be_said_to_hold_only_nulls() {
    let style = Style {
        rows: 3,
        seed: 3944605054282361456,
        distinct: 197,
        nulls: 3,
        dictionary: false,
        page: 1,
        second: false,
        codec: Compression::UNCOMPRESSED,
        statistics: EnabledStatistics::Page,
        delta: false,
        dead: Vec::new(),
    };
    let (files, _) = inputs(&[style]);
    let right = joined(&files, Compression::UNCOMPRESSED, 0).unwrap();
    assert_eq!(all(&files, &right).unwrap().len(), right.columns());
}

#[test]
fn a_page_that_stays_as_it_is_may_be_bounded_closer_than_its_chunk_was() {
    // the first row goes, and with it the only page whose bounds are those of the chunk
    let style = Style {
        rows: 96,
        seed: 0,
        distinct: 1,
        nulls: 2,
        dictionary: false,
        page: 18,
        second: false,
        codec: Compression::UNCOMPRESSED,
        statistics: EnabledStatistics::Chunk,
        delta: false,
        dead: vec![0],
    };
    let (files, _) = inputs(&[style]);
    let right = joined(&files, Compression::UNCOMPRESSED, 0).unwrap();
    let found = compared(&files, &right, 0).unwrap();
    assert_eq!((found[0].values, found[0].copied), (95, 5));
}

#[test]
fn a_last_page_of_which_no_row_counts_is_not_missed_below_a_list_either() {
    let style = Style {
        rows: 40,
        seed: 3,
        distinct: 90,
        nulls: 3,
        dictionary: false,
        page: 10,
        second: false,
        codec: Compression::UNCOMPRESSED,
        statistics: EnabledStatistics::Page,
        delta: false,
        dead: (20..40).collect(),
    };
    let (files, live) = inputs(&[style]);
    let right = joined(&files, Compression::UNCOMPRESSED, 0).unwrap();
    for column in 0..right.columns() {
        let found = compared(&files, &right, column).unwrap();
        assert_eq!((found[0].values, found[0].nulls), (hashes(&live)[column].values, hashes(&live)[column].nulls), "column {column}");
    }
}

#[test]
fn a_page_that_is_stored_uncompressed_is_the_same_under_another_codec() {
    let properties = WriterProperties::builder()
        .set_writer_version(WriterVersion::PARQUET_2_0)
        .set_dictionary_enabled(false)
        .set_compression(Compression::SNAPPY)
        .set_statistics_enabled(EnabledStatistics::Page)
        .set_write_page_header_statistics(true)
        .build();
    // so few values that compressing them gains nothing
    let files = vec![(File::written(&rows(3, 1, 1000, 9), properties), Vec::new())];
    let right = joined(&files, Compression::ZSTD(ZstdLevel::default()), 0).unwrap();
    // those that compression would make larger
    let stored: Vec<usize> =
        (0..right.columns()).filter(|column| compared(&files, &right, *column).is_ok_and(|f| f[0].copied == 1)).collect();
    assert_eq!(stored, [3]);
}
