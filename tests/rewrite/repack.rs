//! Laws of re-packed files: whatever the inputs' pages, the rows are theirs,
//! footer and page index tell the truth, and no page is in an order that a
//! reader gets wrong.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use afterwrite::lake::Error;
use afterwrite::lake::iceberg::rewrite::repack::Packed;
use afterwrite::lake::iceberg::rewrite::schema::parquet_schema;
use afterwrite::model::plan::LiveFile;
use afterwrite::model::refusal::Refusal;
use arrow_array::cast::AsArray;
use arrow_array::{
    Array, ArrayRef, BooleanArray, Date32Array, Decimal128Array, FixedSizeBinaryArray, Float64Array, Int32Array, Int64Array,
    LargeBinaryArray, ListArray, MapArray, RecordBatch, StringArray, StructArray,
};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_schema::{DataType, FieldRef};
use bytes::Bytes;
use iceberg::spec::{ListType, MapType, NestedField, PrimitiveType, StructType, Type};
use parquet::arrow::arrow_reader::statistics::StatisticsConverter;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder, RowSelection, RowSelector};
use parquet::arrow::arrow_writer::{ArrowWriter, ArrowWriterOptions};
use parquet::basic::{Compression, Encoding};
use parquet::file::metadata::PageIndexPolicy;
use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataOptions, ParquetMetaDataReader};
use parquet::file::properties::{WriterProperties, WriterVersion};
use proptest::prelude::*;
use roaring::RoaringTreemap;

use super::support::{Lake, live, primitive};
use super::walker;

/// Every kind of column, flat ones first.
const FLAT: usize = 9;

pub fn every_kind(properties: &[(&str, &str)]) -> Lake {
    let list = |id, kind| Type::List(ListType::new(NestedField::list_element(id, kind, false).into()));
    let map = MapType::new(
        NestedField::map_key_element(103, primitive(PrimitiveType::String)).into(),
        NestedField::map_value_element(104, primitive(PrimitiveType::Double), false).into(),
    );
    let inner = StructType::new(vec![
        NestedField::optional(106, "a", primitive(PrimitiveType::Int)).into(),
        NestedField::optional(107, "l", list(108, primitive(PrimitiveType::String))).into(),
    ]);
    let fields = vec![
        ("n", primitive(PrimitiveType::Long)),
        ("i", primitive(PrimitiveType::Int)),
        ("s", primitive(PrimitiveType::String)),
        ("d", primitive(PrimitiveType::Double)),
        ("b", primitive(PrimitiveType::Boolean)),
        ("dec", primitive(PrimitiveType::Decimal { precision: 30, scale: 3 })),
        ("day", primitive(PrimitiveType::Date)),
        ("x", primitive(PrimitiveType::Binary)),
        ("u", primitive(PrimitiveType::Fixed(5))),
        ("list", list(101, primitive(PrimitiveType::Long))),
        ("map", Type::Map(map)),
        ("st", Type::Struct(inner)),
    ];
    Lake::new(fields, properties)
}

/// How the values of one file come about.
#[derive(Clone, Copy, Debug)]
struct Style {
    /// Distinct values.
    distinct: u64,
    /// The first of them.
    first: u64,
    /// One value in so many is NULL; all are at 1.
    nulls: u64,
    /// Values repeat in runs of about so many.
    run: u64,
    seed: u64,
}

impl Style {
    fn mix(self, column: u64, row: u64) -> u64 {
        let mut z = (row / self.run).wrapping_add(self.seed).wrapping_add(column << 40).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z ^ (z >> 29)
    }

    /// Numbers for a column, NULLs among them.
    fn numbers(self, column: u64, rows: u64) -> Vec<Option<i64>> {
        let null = |row: u64| self.nulls > 0 && self.mix(column + 50, row * self.run).is_multiple_of(self.nulls);
        (0..rows).map(|row| (!null(row)).then(|| (self.first + self.mix(column, row) % self.distinct) as i64)).collect()
    }

    fn lengths(self, column: u64, rows: u64) -> Vec<usize> {
        (0..rows).map(|row| [0, 1, 1, 3, 0, 2, 9][(self.mix(column, row) % 7) as usize]).collect()
    }
}

fn list_of(field: &FieldRef, lengths: &[usize], valid: Vec<bool>, items: ArrayRef) -> ArrayRef {
    let DataType::List(item) = field.data_type() else { panic!() };
    Arc::new(ListArray::new(item.clone(), OffsetBuffer::from_lengths(lengths.iter().copied()), items, Some(NullBuffer::from(valid))))
}

fn rows(lake: &Lake, style: Style, rows: u64) -> RecordBatch {
    let schema = lake.arrow();
    let text = |n: i64| if n % 11 == 0 { String::new() } else { format!("value-{}", n % 100_000).repeat((n % 3) as usize + 1) };
    let numbers = |column| style.numbers(column, rows);
    let valid = |column| -> Vec<bool> { numbers(column).iter().map(Option::is_some).collect() };
    let double = |n: i64| match n % 13 {
        0 => f64::NAN,
        1 => -0.0,
        2 => 0.0,
        _ => n as f64 / 7.0,
    };
    let fixed =
        FixedSizeBinaryArray::try_from_sparse_iter_with_size(numbers(8).iter().map(|n| n.map(|n| [n as u8, 3, 1, (n >> 8) as u8, 9])), 5);
    // Below NULL and empty lists there are no items.
    let lengths = |column: u64| -> Vec<usize> {
        style.lengths(column, rows).into_iter().zip(valid(column)).map(|(l, v)| if v { l } else { 0 }).collect()
    };
    let items = |column: u64| style.numbers(column + 20, lengths(column).iter().sum::<usize>() as u64);
    let list = list_of(&schema.fields()[9].clone(), &lengths(9), valid(9), Arc::new(Int64Array::from(items(9))));
    let DataType::Map(entries, _) = schema.field(10).data_type() else { panic!() };
    let DataType::Struct(pair) = entries.data_type() else { panic!() };
    let keys: StringArray = items(10).iter().map(|n| Some(text(n.unwrap_or(3)))).collect();
    let values: Float64Array = items(10).iter().map(|n| n.map(double)).collect();
    let pairs = StructArray::new(pair.clone(), vec![Arc::new(keys), Arc::new(values)], None);
    let map = MapArray::new(entries.clone(), OffsetBuffer::from_lengths(lengths(10)), pairs, Some(NullBuffer::from(valid(10))), false);
    let DataType::Struct(fields) = schema.field(11).data_type() else { panic!() };
    let texts: StringArray = items(11).iter().map(|n| n.map(text)).collect();
    let inner = list_of(&fields[1].clone(), &lengths(11), valid(11), Arc::new(texts));
    let a: Int32Array = numbers(12).iter().map(|n| n.map(|n| n as i32)).collect();
    let st = StructArray::new(fields.clone(), vec![Arc::new(a), inner], Some(NullBuffer::from(valid(11))));
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from(numbers(0))),
        Arc::new(numbers(1).iter().map(|n| n.map(|n| -(n as i32))).collect::<Int32Array>()),
        Arc::new(numbers(2).iter().map(|n| n.map(text)).collect::<StringArray>()),
        Arc::new(numbers(3).iter().map(|n| n.map(double)).collect::<Float64Array>()),
        Arc::new(numbers(4).iter().map(|n| n.map(|n| n % 3 == 0)).collect::<BooleanArray>()),
        Arc::new(
            Decimal128Array::from_iter(numbers(5).iter().map(|n| n.map(|n| i128::from(n - 50) << 30)))
                .with_precision_and_scale(30, 3)
                .unwrap(),
        ),
        Arc::new(numbers(6).iter().map(|n| n.map(|n| n as i32)).collect::<Date32Array>()),
        Arc::new(LargeBinaryArray::from_iter(numbers(7).iter().map(|n| n.map(|n| n.to_be_bytes())))),
        Arc::new(fixed.unwrap()),
        list,
        Arc::new(map),
        Arc::new(st),
    ];
    lake.batch(columns)
}

pub async fn write(lake: &Lake, name: &str, batch: &RecordBatch, properties: WriterProperties) -> LiveFile {
    let columns = parquet_schema(lake.metadata.current_schema()).unwrap();
    let options = ArrowWriterOptions::new().with_properties(properties).with_parquet_schema(columns).with_skip_arrow_metadata(true);
    let mut file = Vec::new();
    let mut writer = ArrowWriter::try_new_with_options(&mut file, batch.schema(), options).unwrap();
    writer.write(batch).unwrap();
    writer.close().unwrap();
    let (path, bytes) = (format!("memory://wh/db/t/data/{name}.parquet"), file.len() as u64);
    lake.io.new_output(&path).unwrap().write(Bytes::from(file)).await.unwrap();
    live(&path, bytes, batch.num_rows() as u64)
}

/// An output as bytes, footer and rows.
pub struct Output {
    pub file: Bytes,
    pub footer: ParquetMetaData,
    pub rows: RecordBatch,
    pub pages: Vec<Vec<Vec<walker::Page>>>,
}

/// Reads an output, its pages held against its footer.
pub async fn checked(lake: &Lake, path: &str) -> Output {
    let file = lake.io.new_input(path).unwrap().read().await.unwrap();
    let options = ParquetMetaDataOptions::new().with_encoding_stats_as_mask(false);
    let reader = ParquetMetaDataReader::new().with_page_index_policy(PageIndexPolicy::Optional).with_metadata_options(Some(options));
    let footer = reader.parse_and_finish(&file).unwrap();
    let pages = walker::check(&file, &footer);
    Output { rows: lake.read(path).await.rows, file, footer, pages }
}

/// No statistics of a row group or page leave out a value of a flat column.
fn statistics_hold(output: &Output, flat: usize) {
    let (schema, descr) = (output.rows.schema(), output.footer.file_metadata().schema_descr());
    let mut from = 0;
    for (position, group) in output.footer.row_groups().iter().enumerate() {
        let count = group.num_rows() as usize;
        for column in 0..flat {
            let values = output.rows.column(column).slice(from, count);
            let converter = StatisticsConverter::try_new(schema.field(column).name(), &schema, descr).unwrap();
            let ends = (converter.row_group_mins([group]).unwrap(), converter.row_group_maxes([group]).unwrap());
            covers(&values, &ends.0, &ends.1, 0);
            let nulls = converter.row_group_null_counts([group]).unwrap();
            assert_eq!(nulls.iter().next().flatten(), Some(values.null_count() as u64));
            let (Some(index), Some(offsets)) = (output.footer.column_index(), output.footer.offset_index()) else { continue };
            if matches!(index[position][column], parquet::file::page_index::column_index::ColumnIndexMetaData::NONE) {
                continue;
            }
            let starts: Vec<usize> =
                offsets[position][column].page_locations().iter().map(|p| p.first_row_index as usize).chain([count]).collect();
            let mins = converter.data_page_mins(index, offsets, [&position]).unwrap();
            let maxes = converter.data_page_maxes(index, offsets, [&position]).unwrap();
            let nulls = converter.data_page_null_counts(index, offsets, [&position]).unwrap();
            for (page, ends) in starts.windows(2).enumerate() {
                let values = values.slice(ends[0], ends[1] - ends[0]);
                covers(&values, &mins, &maxes, page);
                assert_eq!(nulls.value(page), values.null_count() as u64);
            }
        }
        from += count;
    }
}

fn covers(values: &ArrayRef, mins: &ArrayRef, maxes: &ArrayRef, place: usize) {
    let values = match values.data_type() {
        DataType::Float64 => {
            let values = values.as_primitive::<arrow_array::types::Float64Type>();
            // Zeros of both signs are one value to readers of statistics.
            Arc::new(values.iter().map(|v| v.filter(|v| !v.is_nan()).map(|v| v + 0.0)).collect::<Float64Array>()) as ArrayRef
        }
        _ => values.clone(),
    };
    let end = |ends: &ArrayRef| arrow_array::Scalar::new(arrow_cast::cast(&ends.slice(place, 1), values.data_type()).unwrap());
    let zeroed = |ends: &ArrayRef| match ends.data_type() {
        DataType::Float64 => {
            let ends = ends.as_primitive::<arrow_array::types::Float64Type>();
            Arc::new(ends.iter().map(|v| v.map(|v| v + 0.0)).collect::<Float64Array>()) as ArrayRef
        }
        _ => ends.clone(),
    };
    if mins.is_valid(place) {
        assert_eq!(arrow_ord::cmp::lt(&values, &end(&zeroed(mins))).unwrap().true_count(), 0, "{values:?} {mins:?}");
    }
    if maxes.is_valid(place) {
        assert_eq!(arrow_ord::cmp::gt(&values, &end(&zeroed(maxes))).unwrap().true_count(), 0, "{values:?} {maxes:?}");
    }
}

/// Every third run of rows, found through the page index.
fn selected(lake: &Lake, output: &Output) {
    let options = ArrowReaderOptions::new().with_schema(lake.arrow()).with_page_index_policy(PageIndexPolicy::Required);
    let metadata = ArrowReaderMetadata::load(&output.file, options).unwrap();
    let (mut selectors, mut kept, mut from, step) = (Vec::new(), Vec::new(), 0, output.rows.num_rows() / 11 + 1);
    while from < output.rows.num_rows() {
        let rows = step.min(output.rows.num_rows() - from);
        let keep = (from / step) % 3 == 1;
        selectors.push(if keep { RowSelector::select(rows) } else { RowSelector::skip(rows) });
        if keep {
            kept.push(output.rows.slice(from, rows));
        }
        from += rows;
    }
    let reader = ParquetRecordBatchReaderBuilder::new_with_metadata(output.file.clone(), metadata);
    let reader = reader.with_row_selection(RowSelection::from(selectors)).build().unwrap();
    let found: Vec<RecordBatch> = reader.map(|batch| batch.unwrap()).collect();
    assert_eq!(
        arrow_select::concat::concat_batches(&lake.arrow(), &found).unwrap(),
        arrow_select::concat::concat_batches(&lake.arrow(), &kept).unwrap()
    );
}

#[derive(Clone, Debug)]
struct File {
    rows: u64,
    /// About one row in so many is deleted, in runs; none at 0, all at 1.
    deletes: u64,
    style: Style,
    version: WriterVersion,
    codec: Compression,
    page_rows: usize,
    batch: usize,
    dictionary: bool,
    dictionary_bytes: usize,
    group_rows: usize,
    page_index: bool,
}

impl File {
    fn properties(&self) -> WriterProperties {
        let statistics = match self.page_index {
            true => parquet::file::properties::EnabledStatistics::Page,
            false => parquet::file::properties::EnabledStatistics::Chunk,
        };
        WriterProperties::builder()
            .set_writer_version(self.version)
            .set_compression(self.codec)
            .set_data_page_row_count_limit(self.page_rows)
            .set_write_batch_size(self.batch)
            .set_dictionary_enabled(self.dictionary)
            .set_dictionary_page_size_limit(self.dictionary_bytes)
            .set_max_row_group_row_count(Some(self.group_rows))
            .set_statistics_enabled(statistics)
            .build()
    }
}

fn codec() -> impl Strategy<Value = Compression> {
    prop_oneof![
        Just(Compression::ZSTD(Default::default())),
        Just(Compression::SNAPPY),
        Just(Compression::UNCOMPRESSED),
        Just(Compression::GZIP(Default::default())),
        Just(Compression::BROTLI(Default::default())),
        Just(Compression::LZ4_RAW),
    ]
}

fn file() -> impl Strategy<Value = File> {
    let distinct = prop_oneof![Just(1u64), 2u64..20, 100u64..3000, Just(1 << 40)];
    let nulls = prop_oneof![Just(0u64), Just(1), 2u64..20];
    let style = (distinct, prop_oneof![Just(0u64), 0u64..50, 1000u64..1003], nulls, prop_oneof![Just(1u64), 1u64..40], any::<u64>());
    let style = style.prop_map(|(distinct, first, nulls, run, seed)| Style { distinct, first, nulls, run, seed: seed >> 8 });
    let version = prop_oneof![Just(WriterVersion::PARQUET_1_0), Just(WriterVersion::PARQUET_2_0)];
    let pages = (prop_oneof![Just(20_000usize), 10usize..300], 5usize..200, any::<bool>(), prop_oneof![Just(1usize << 20), 40usize..4000]);
    let groups = (prop_oneof![Just(100_000usize), 50usize..500], prop::bool::weighted(0.9));
    let rows = prop_oneof![6 => 1u64..900, 1 => 4000u64..9000];
    let deletes = prop_oneof![3 => Just(0u64), 2 => 2u64..60, 1 => Just(1)];
    (rows, style, version, codec(), pages, groups, deletes).prop_map(
        |(rows, style, version, codec, (page_rows, batch, dictionary, dictionary_bytes), (group_rows, page_index), deletes)| File {
            rows,
            deletes,
            style,
            version,
            codec,
            page_rows,
            batch,
            dictionary,
            dictionary_bytes,
            group_rows,
            page_index,
        },
    )
}

impl File {
    fn deleted(&self) -> RoaringTreemap {
        let style = Style { run: self.style.run.min(self.rows), ..self.style };
        (0..self.rows).filter(|row| self.deletes > 0 && style.mix(70, *row).is_multiple_of(self.deletes)).collect()
    }
}

/// The rows of a batch that are not deleted.
fn live_rows(batch: &RecordBatch, deleted: &RoaringTreemap) -> RecordBatch {
    let live: BooleanArray = (0..batch.num_rows() as u64).map(|row| Some(!deleted.contains(row))).collect();
    arrow_select::filter::filter_record_batch(batch, &live).unwrap()
}

fn encodings(footer: &ParquetMetaData) -> BTreeSet<(usize, Encoding)> {
    let chunks = footer.row_groups().iter().flat_map(|group| group.columns().iter().enumerate());
    chunks.flat_map(|(column, chunk)| chunk.encodings().map(move |encoding| (column, encoding))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn a_repacked_file_holds_the_rows_and_tells_the_truth(
        files in prop::collection::vec(file(), 1..6),
        codec in prop_oneof![Just("zstd"), Just("snappy"), Just("uncompressed")],
        group_bytes in prop_oneof![Just("134217728"), Just("60000")],
        target in prop_oneof![Just(1u64 << 30), 20_000u64..100_000],
        with_deletes in any::<bool>(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let lake = every_kind(&[("write.parquet.compression-codec", codec), ("write.parquet.row-group-size-bytes", group_bytes)]);
            let (mut inputs, mut batches, mut deleted, mut known) = (Vec::new(), Vec::new(), Vec::new(), BTreeSet::new());
            for (number, file) in files.iter().enumerate() {
                let batch = rows(&lake, file.style, file.rows);
                let input = write(&lake, &format!("in{number}"), &batch, file.properties()).await;
                known.extend(encodings(&lake.read(&input.path).await.footer));
                inputs.push(input);
                deleted.push(if with_deletes { file.deleted() } else { RoaringTreemap::new() });
                batches.push(live_rows(&batch, &deleted[number]));
            }
            let made = match lake.repack_without("out", inputs, target, HashMap::new(), &deleted).await.unwrap() {
                Packed::Made(made) => made,
                Packed::Unfit(why) => panic!("{why}"),
            };
            let mut found = Vec::new();
            for made in &made {
                let output = checked(&lake, &made.output.path).await;
                let added = encodings(&output.footer);
                let added = added.difference(&known).filter(|(_, e)| !matches!(e, Encoding::PLAIN | Encoding::RLE_DICTIONARY | Encoding::RLE));
                assert_eq!(added.count(), 0);
                statistics_hold(&output, FLAT);
                selected(&lake, &output);
                assert_eq!(made.output.records, output.rows.num_rows() as u64);
                found.push(output.rows);
            }
            let concat = |batches: &[RecordBatch]| arrow_select::concat::concat_batches(&lake.arrow(), batches).unwrap();
            let expected = concat(&batches);
            assert_eq!(concat(&found), expected);
            if target == 1 << 30 && group_bytes == "134217728" {
                assert_eq!(made.len(), usize::from(expected.num_rows() > 0));
                for made in &made {
                    assert_eq!(checked(&lake, &made.output.path).await.footer.num_row_groups(), 1);
                    tight(&checked(&lake, &made.output.path).await, with_deletes);
                }
            }
        });
    }
}

/// Ends of whole numbers are values: engines answer `min` and `max` by them.
fn tight(output: &Output, with_deletes: bool) {
    let statistics = output.footer.row_group(0).column(0).statistics();
    let values = output.rows.column(0).as_primitive::<arrow_array::types::Int64Type>();
    let (min, max) = (values.iter().flatten().min(), values.iter().flatten().max());
    let bytes = |n: Option<i64>| n.map(|n| n.to_le_bytes().to_vec());
    let found = statistics.map(|s| (s.min_bytes_opt().map(<[u8]>::to_vec), s.max_bytes_opt().map(<[u8]>::to_vec)));
    assert!(found.is_some() || !with_deletes);
    if let Some((low, high)) = found.filter(|(low, _)| low.is_some() || min.is_none()) {
        assert_eq!((low, high), (bytes(min), bytes(max)));
    }
}

fn style(seed: u64) -> Style {
    Style { distinct: 30, first: 0, nulls: 9, run: 1, seed }
}

#[tokio::test]
async fn a_byte_flipped_in_an_input_is_refused_as_damage_or_harmless() {
    let lake = every_kind(&[]);
    let batch = rows(&lake, style(1), 300);
    let good = write(&lake, "good", &batch, WriterProperties::builder().set_compression(Compression::SNAPPY).build()).await;
    let file = lake.io.new_input(&*good.path).unwrap().read().await.unwrap();
    let (mut damaged, footer) = (0, lake.read(&good.path).await.footer);
    let end = footer.row_group(0).columns().iter().map(|chunk| chunk.byte_range()).map(|(start, length)| start + length).max().unwrap();
    for at in (4..end).step_by(37) {
        let mut broken = file.to_vec();
        broken[at as usize] ^= 0x41;
        let bad = live("memory://wh/db/t/data/bad.parquet", good.bytes, good.records);
        lake.io.new_output(&*bad.path).unwrap().write(Bytes::from(broken)).await.unwrap();
        let deleted: RoaringTreemap = if at % 2 == 0 { [5, 100, 101, 299].into_iter().collect() } else { RoaringTreemap::new() };
        let deleted = [RoaringTreemap::new(), deleted];
        match lake.repack_without("out", vec![good.clone(), bad], 1 << 30, HashMap::new(), &deleted).await {
            Ok(_) => {}
            Err(Error::Refused(refused)) => {
                assert_eq!(refused.refusal, Refusal::Damaged, "{refused:?}");
                damaged += 1;
            }
            Err(other) => panic!("{other}"),
        }
    }
    assert!(damaged > 5, "{damaged}");
}

#[tokio::test]
async fn an_input_without_a_page_index_leaves_no_column_index_and_a_true_offset_index() {
    let fields = vec![("n", primitive(PrimitiveType::Long)), ("s", primitive(PrimitiveType::String))];
    let lake = Lake::new(fields, &[]);
    let batch = |from: i64| {
        let texts = StringArray::from_iter((from..from + 900).map(|n| (n % 8 != 0).then(|| format!("t{}", n % 20))));
        lake.batch(vec![Arc::new(Int64Array::from_iter_values(from..from + 900)), Arc::new(texts)])
    };
    let with = WriterProperties::builder().set_data_page_row_count_limit(200).set_write_batch_size(100);
    let without = with.clone().set_offset_index_disabled(true).set_statistics_enabled(parquet::file::properties::EnabledStatistics::Chunk);
    let inputs = vec![write(&lake, "a", &batch(0), with.build()).await, write(&lake, "b", &batch(900), without.build()).await];
    assert!(lake.read(&inputs[1].path).await.footer.offset_index().is_none());
    let made = lake.repack("out", inputs, 1 << 30, HashMap::new()).await.unwrap();
    let output = checked(&lake, &made[0].output.path).await;
    assert_eq!(output.rows, arrow_select::concat::concat_batches(&lake.arrow(), &[batch(0), batch(900)]).unwrap());
    assert!(
        output
            .footer
            .row_group(0)
            .columns()
            .iter()
            .all(|chunk| chunk.column_index_offset().is_none() && chunk.offset_index_offset().is_some())
    );
    statistics_hold(&output, 2);
    selected(&lake, &output);
}

#[tokio::test]
async fn metrics_of_a_repack_hold_over_all_inputs() {
    let lake = every_kind(&[]);
    let mut inputs = Vec::new();
    for seed in 0..3u64 {
        let style = Style { distinct: 1, first: 100 * seed, nulls: 0, run: 1, seed };
        inputs.push(write(&lake, &format!("in{seed}"), &rows(&lake, style, 100), WriterProperties::builder().build()).await);
    }
    let made = lake.repack("out", inputs, 1 << 30, HashMap::new()).await.unwrap();
    let file = &made[0].data_file;
    assert_eq!((file.record_count(), file.value_counts()[&1], file.null_value_counts()[&1]), (300, 300, 0));
    assert_eq!((&file.lower_bounds()[&1], &file.upper_bounds()[&1]), (&iceberg::spec::Datum::long(0), &iceberg::spec::Datum::long(200)));
    assert_eq!(file.split_offsets().unwrap().len(), 1);
}
