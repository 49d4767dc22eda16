//! Files that break the format's rules, and rewrites that copy what must not be
//! copied: seen, never passed on.

use std::fs;
use std::sync::Arc;

use afterwrite::lake::Error;
use afterwrite::lake::iceberg::rewrite;
use afterwrite::model::plan::{AttemptId, Path};
use afterwrite::model::refusal::Refusal;
use afterwrite::parquet::chunk::Part;
use afterwrite::parquet::fault::Fault;
use afterwrite::parquet::header::{Data, Header, Kind};
use afterwrite::parquet::repack::{Joined, Wish, join};
use arrow_array::Array;
use arrow_array::cast::AsArray;
use arrow_array::types::Int32Type;
use arrow_schema::DataType;
use bytes::Bytes;
use iceberg::spec::{DataContentType, DataFile};
use parquet::arrow::ArrowSchemaConverter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::basic::{Compression, Encoding};
use parquet::column::writer::ColumnCloseResult;
use parquet::file::metadata::{
    ColumnChunkMetaData, ColumnChunkMetaDataBuilder, FileMetaData, OffsetIndexBuilder, ParquetMetaData, ParquetMetaDataBuilder,
    ParquetMetaDataReader, ParquetMetaDataWriter,
};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::SchemaDescriptor;

use crate::fixture::Watch;
use crate::reading::proving::{failure, prove, splice};
use crate::reading::value::{Value, batch, row};
use crate::reading::{Lake, NullCounts, Placed, describe, field};

const WISH: Wish = Wish { codec: Compression::UNCOMPRESSED, page: 1 << 20, chunk: 8 << 20, small_rows: 0 };

/// A page of a repeated column: for each value, whether it begins a row.
fn page(values: &[(bool, i32)]) -> Vec<u8> {
    // one bit-packed run of eight levels of one bit
    let levels = |bits: u8| [&2u32.to_le_bytes()[..], &[3, bits]].concat();
    let repeats = values.iter().enumerate().fold(0, |bits, (at, (begins, _))| bits | u8::from(!begins) << at);
    let mut body = [levels(repeats), levels(0xff)].concat();
    values.iter().for_each(|(_, value)| body.extend(value.to_le_bytes()));
    let data = Data { values: values.len() as u32, encoding: Encoding::PLAIN, definition: Encoding::RLE, repetition: Encoding::RLE };
    let mut page = Vec::new();
    Header { kind: Kind::Data(data), uncompressed: body.len(), compressed: body.len(), crc: None }.write(&mut page).unwrap();
    [page, body].concat()
}

/// A chunk of these pages, each of which begins one row by its offset index.
fn chunk(pages: &[&[(bool, i32)]], dead: &[u32]) -> Part {
    let (mut bytes, mut index) = (Vec::new(), OffsetIndexBuilder::new());
    for values in pages {
        let page = page(values);
        index.append_offset_and_size(bytes.len() as i64, page.len() as i32);
        index.append_row_count(1);
        bytes.extend(page);
    }
    let root = parse_message_type("message m { REPEATED INT32 n; }").unwrap();
    let meta = ColumnChunkMetaData::builder(SchemaDescriptor::new(Arc::new(root)).column(0))
        .set_compression(Compression::UNCOMPRESSED)
        .set_encodings(vec![Encoding::PLAIN, Encoding::RLE])
        .set_num_values(pages.iter().map(|page| page.len() as i64).sum())
        .set_total_compressed_size(bytes.len() as i64)
        .set_total_uncompressed_size(bytes.len() as i64)
        .build()
        .unwrap();
    let dead = dead.iter().copied().collect();
    Part { bytes: bytes.into(), meta, rows: pages.len() as u64, dead, column_index: None, offset_index: Some(index.build()) }
}

/// The rows of a joined chunk by the parquet crate's reader.
fn rows(joined: &Joined) -> Vec<Vec<i32>> {
    let mut file = Vec::new();
    let root = parse_message_type("message m { REPEATED INT32 n; }").unwrap();
    let mut writer = SerializedFileWriter::new(&mut file, Arc::new(root), Arc::default()).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let close = ColumnCloseResult {
        bytes_written: joined.bytes.len() as u64,
        rows_written: joined.rows,
        metadata: joined.meta.clone(),
        bloom_filter: None,
        column_index: None,
        offset_index: Some(joined.offset_index.clone()),
    };
    group.append_column(&joined.bytes, close).unwrap();
    group.close().unwrap();
    writer.close().unwrap();
    let reader = ParquetRecordBatchReaderBuilder::try_new(Bytes::from(file)).unwrap().build().unwrap();
    let lists = reader.flat_map(|batch| {
        let batch = batch.unwrap();
        let column = batch.column(0).as_list::<i32>().clone();
        (0..column.len()).map(move |at| column.value(at).as_primitive::<Int32Type>().values().to_vec()).collect::<Vec<_>>()
    });
    lists.collect()
}

#[test]
fn a_page_of_whole_rows_may_be_left_out() {
    let joined = join(&[chunk(&[&[(true, 1), (false, 2)], &[(true, 3), (false, 4)]], &[1])], &WISH).unwrap();
    assert_eq!((joined.rows, rows(&joined)), (1, vec![vec![1, 2]]));
}

#[test]
fn a_page_that_begins_inside_a_row_is_not_left_out_with_the_row_that_begins_in_it() {
    // given [1, 2, 3] and [4], the 3 on the page where the second row begins, which is deleted
    let pages: [&[(bool, i32)]; 2] = [&[(true, 1), (false, 2)], &[(false, 3), (true, 4)]];
    let failure = join(&[chunk(&[&[(true, 9)]], &[]), chunk(&pages, &[1])], &WISH).unwrap_err();
    assert_eq!(failure, Fault::unfit("a page begins inside a row, and rows are deleted").of(1));
}

#[tokio::test]
async fn row_groups_to_which_deletes_apply_are_never_proven_to_be_copied() {
    let given = || {
        let mut lake = Lake::id_v();
        let path = lake.append(1, &[row(1, "a"), row(2, "b")]);
        (lake, path)
    };
    let (mut clean, _) = given();
    let rewrite = splice(&mut clean);
    assert_eq!((rewrite.path, prove(&clean, rewrite).await.unwrap().rows), (Path::Splice, 2));
    // given deletes that the copy does not apply: rows, NULLs and bytes are those of the input
    let ((mut by_key, _), (mut by_position, path)) = (given(), given());
    by_key.delete_ids(2, &[Some(1)]);
    by_position.delete_positions(2, &[(&path, 0)]);
    for mut lake in [by_key, by_position] {
        let rewrite = splice(&mut lake);
        let why = failure(&lake, rewrite).await;
        assert!(why.ends_with("its row groups are copied, and deletes apply to it"), "{why}");
    }
}

#[tokio::test]
async fn bytes_that_are_copied_under_other_columns_are_not_proven() {
    let fields = serde_json::json!([
        {"id": 1, "name": "a", "required": false, "type": "long"},
        {"id": 2, "name": "b", "required": false, "type": "long"},
    ]);
    let mut lake = Lake::new(fields);
    // given an input whose first column has the id of the second
    let swapped = [field("a", DataType::Int64, true, 2), field("b", DataType::Int64, true, 1)];
    let rows = [vec![Value::Int(1), Value::Int(10)], vec![Value::Int(2), Value::Int(20)]];
    let swapped = batch(&Arc::new(arrow_schema::Schema::new(swapped.to_vec())), &rows);
    lake.append_batch(1, &swapped, WriterProperties::builder().build());
    // and an output of the same bytes with the table's ids
    let mut rewrite = splice(&mut lake);
    rewrite.outputs[0] = under_the_columns_of(&lake.arrow(), &rewrite.outputs[0]);
    let why = failure(&lake, rewrite).await;
    assert!(why.contains("its columns are not those of"), "{why}");
}

/// The file with the same pages and a footer that gives them these columns.
fn under_the_columns_of(columns: &arrow_schema::SchemaRef, file: &DataFile) -> DataFile {
    let columns = ArrowSchemaConverter::new().convert(columns).unwrap();
    tampered(file.file_path(), |footer| {
        let old = footer.file_metadata();
        let created_by = old.created_by().map(str::to_owned);
        let new = FileMetaData::new(old.version(), old.num_rows(), created_by, None, Arc::new(columns), old.column_orders().cloned());
        ParquetMetaDataBuilder::new(new).set_row_groups(footer.row_groups().to_vec()).build()
    });
    let rows = file.record_count();
    describe(file.file_path(), DataContentType::Data, &NullCounts(Default::default(), rows)).build().unwrap()
}

/// Writes a file's footer anew, after its pages and without page indexes.
pub fn tampered(path: &str, change: impl FnOnce(ParquetMetaData) -> ParquetMetaData) {
    let local = path.trim_start_matches("file://");
    let bytes = fs::read(local).unwrap();
    let footer = ParquetMetaDataReader::new().parse_and_finish(&Bytes::from(bytes.clone())).unwrap();
    let ends = footer.row_groups().iter().flat_map(|g| g.columns()).map(|c| c.byte_range().0 + c.byte_range().1);
    let mut out = bytes[..ends.max().unwrap() as usize].to_vec();
    let bare = |chunk: &ColumnChunkMetaData| {
        let chunk = chunk.clone().into_builder().set_column_index_offset(None).set_column_index_length(None);
        chunk.set_offset_index_offset(None).set_offset_index_length(None).build().unwrap()
    };
    let groups = footer.row_groups().iter().map(|group| {
        let chunks = group.columns().iter().map(bare).collect();
        group.clone().into_builder().set_column_metadata(chunks).build().unwrap()
    });
    let groups = groups.collect();
    let footer = footer.into_builder().set_row_groups(groups).build();
    ParquetMetaDataWriter::new(&mut out, &change(footer)).finish().unwrap();
    fs::write(local, out).unwrap();
}

/// A table of one file whose second column's chunk is changed in the footer.
fn misplaced(change: impl Fn(ColumnChunkMetaDataBuilder) -> ColumnChunkMetaDataBuilder) -> Lake {
    let mut lake = Lake::id_v();
    let path = lake.append(1, &[row(1, "a"), row(2, "b")]);
    tampered(&path, |footer| {
        let group = footer.row_group(0).clone();
        let columns = vec![group.column(0).clone(), change(group.column(1).clone().into_builder()).build().unwrap()];
        let group = group.into_builder().set_column_metadata(columns).build().unwrap();
        footer.into_builder().set_row_groups(vec![group]).build()
    });
    let rows = batch(&lake.arrow(), &[row(1, "a"), row(2, "b")]);
    let file = describe(&path, DataContentType::Data, &NullCounts::of(&rows)).build().unwrap();
    lake.data = vec![Placed { file, sequence: 1 }];
    lake
}

#[tokio::test]
async fn a_chunk_without_a_place_is_damage_to_the_reader_and_to_the_rewrite() {
    assert_eq!(misplaced(|chunk| chunk).values().await, [row(1, "a"), row(2, "b")]);
    let changes: [fn(ColumnChunkMetaDataBuilder) -> ColumnChunkMetaDataBuilder; 3] = [
        |chunk| chunk.set_data_page_offset(-4).set_dictionary_page_offset(None),
        |chunk| chunk.set_dictionary_page_offset(Some(-4)),
        |chunk| chunk.set_total_compressed_size(-1),
    ];
    for change in changes {
        let lake = misplaced(change);
        let (refusal, detail) = lake.refusal().await;
        assert!(refusal == Refusal::Damaged && detail.ends_with("a column chunk has no place in the file"), "{detail}");
        let (table, plan) = (lake.table().await, lake.plan());
        match rewrite::run(&table, &plan, &AttemptId("a1.0".into()), &Watch::default()).await {
            Err(Error::Refused(refused)) => {
                assert!(refused.refusal == Refusal::Damaged && refused.detail.ends_with("column v has no place in the file"), "{refused}");
            }
            Err(other) => panic!("{other}"),
            Ok(written) => panic!("{:?}", written.outputs),
        }
    }
}
