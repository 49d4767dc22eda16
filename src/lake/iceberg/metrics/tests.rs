use std::sync::Arc;

use iceberg::spec::PrimitiveType;
use parquet::file::metadata::FileMetaData;
use parquet::file::statistics::Statistics;
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::SchemaDescriptor;

use super::*;

/// A footer of one text column with one chunk a row group.
fn footer(chunks: &[(i64, Option<Statistics>)]) -> ParquetMetaData {
    let schema = Arc::new(SchemaDescriptor::new(Arc::new(parse_message_type("message m { OPTIONAL BYTE_ARRAY s (UTF8) = 1; }").unwrap())));
    let groups = chunks.iter().enumerate().map(|(n, (values, statistics))| {
        let mut chunk = ColumnChunkMetaData::builder(schema.column(0))
            .set_num_values(*values)
            .set_total_compressed_size(10)
            .set_data_page_offset(100 * (n as i64 + 1) + 20)
            .set_dictionary_page_offset((n > 0).then_some(100 * (n as i64 + 1)));
        if let Some(statistics) = statistics {
            chunk = chunk.set_statistics(statistics.clone());
        }
        let group = RowGroupMetaData::builder(schema.clone()).set_num_rows(*values).set_column_metadata(vec![chunk.build().unwrap()]);
        group.build().unwrap()
    });
    let groups = groups.collect();
    ParquetMetaData::new(FileMetaData::new(2, 0, None, None, schema, None), groups)
}

fn text(low: Option<&str>, high: Option<&str>, nulls: Option<u64>) -> Option<Statistics> {
    Some(Statistics::byte_array(low.map(Into::into), high.map(Into::into), None, nulls, false))
}

fn describe(chunks: &[(i64, Option<Statistics>)]) -> DataFile {
    let leaves = [Leaf { id: 1, name: "s".into(), kind: PrimitiveType::String, repeated: false, depth: 0 }];
    let modes = HashMap::from([(1, Mode::Full)]);
    let facts = Facts { path: "p", bytes: 7, partition: Struct::empty(), spec_id: 0, nans: &HashMap::new() };
    data_file(&footer(chunks), &leaves, &modes, facts).unwrap()
}

#[test]
fn bounds_hold_over_all_row_groups() {
    let file = describe(&[(3, text(Some("b"), Some("c"), Some(1))), (2, text(Some("a"), Some("b"), Some(0)))]);
    assert_eq!((&file.lower_bounds()[&1], &file.upper_bounds()[&1]), (&Datum::string("a"), &Datum::string("c")));
    assert_eq!((file.value_counts()[&1], file.null_value_counts()[&1], file.column_sizes()[&1]), (5, 1, 20));
    assert_eq!((file.record_count(), file.file_size_in_bytes(), file.split_offsets()), (5, 7, Some([120, 200].as_slice())));
}

#[test]
fn a_row_group_that_tells_nothing_takes_the_bounds_away() {
    let known = || text(Some("b"), Some("c"), Some(0));
    let silent = describe(&[(3, known()), (2, None), (1, known())]);
    assert_eq!((silent.lower_bounds().len(), silent.upper_bounds().len(), silent.null_value_counts().len()), (0, 0, 0));
    let half = describe(&[(3, known()), (2, text(Some("a"), None, Some(1)))]);
    assert_eq!((half.lower_bounds().get(&1), half.upper_bounds().get(&1)), (Some(&Datum::string("a")), None));
    let uncounted = describe(&[(3, known()), (2, text(None, None, None))]);
    assert_eq!((uncounted.lower_bounds().len(), uncounted.null_value_counts().len()), (0, 0));
}

#[test]
fn a_row_group_of_nulls_or_of_nothing_leaves_the_bounds() {
    let file = describe(&[(3, text(Some("b"), Some("c"), Some(0))), (2, text(None, None, Some(2))), (0, None)]);
    assert_eq!((&file.lower_bounds()[&1], &file.upper_bounds()[&1]), (&Datum::string("b"), &Datum::string("c")));
    assert_eq!(file.null_value_counts()[&1], 2);
}
