use std::sync::Arc;

use parquet::basic::{Compression, Encoding};
use parquet::file::metadata::{ColumnChunkMetaDataBuilder, FileMetaData, RowGroupMetaData};
use parquet::schema::parser::parse_message_type;

use super::*;
use crate::model::ident::{TableIdent, TableName};
use crate::model::partition::PartitionKey;
use crate::model::plan::{Bound, LiveFile};

const MIB: u64 = 1 << 20;

fn plan(files: &[(u64, u64)]) -> Plan {
    let input = |(n, (records, bytes)): (usize, &(u64, u64))| LiveFile {
        path: format!("f{n}").into(),
        bytes: *bytes,
        records: *records,
        data_sequence: 1,
        sort_order_id: None,
        first_row_id: None,
        deletes: Vec::new(),
    };
    Plan {
        table: TableIdent::iceberg(uuid::Uuid::nil()),
        name: TableName::new("c", "db", "t"),
        reference: "main".into(),
        snapshot_id: 1,
        sequence_number: 1,
        scope: PartitionKey::unpartitioned(0),
        reason: "request".into(),
        inputs: files.iter().enumerate().map(input).collect(),
        deletes: Vec::new(),
        target_file_size: 512 * MIB,
        bound: Bound { gb_hours: 1.0, millis: 1, memory: 512 * MIB },
    }
}

fn columns(text: &str) -> SchemaDescriptor {
    SchemaDescriptor::new(Arc::new(parse_message_type(text).unwrap()))
}

const TABLE: &str = "message table { OPTIONAL INT64 n = 1; }";

struct Footer {
    schema: &'static str,
    created_by: Option<&'static str>,
    ordered: bool,
    rows: i64,
    chunk: fn(ColumnChunkMetaDataBuilder) -> ColumnChunkMetaDataBuilder,
}

impl Default for Footer {
    fn default() -> Self {
        Self { schema: TABLE, created_by: Some("parquet-mr version 1.15.2 (build x)"), ordered: true, rows: 120_000, chunk: |c| c }
    }
}

impl Footer {
    fn build(&self) -> ParquetMetaData {
        let schema = Arc::new(columns(self.schema));
        let chunks = schema.columns().iter().map(|column| {
            let chunk = ColumnChunkMetaData::builder(column.clone())
                .set_compression(Compression::SNAPPY)
                .set_encodings(vec![Encoding::PLAIN])
                .set_num_values(self.rows)
                .set_total_compressed_size(1000)
                .set_data_page_offset(4);
            (self.chunk)(chunk).build().unwrap()
        });
        let group = RowGroupMetaData::builder(schema.clone()).set_num_rows(self.rows).set_column_metadata(chunks.collect());
        let orders = schema.columns().iter().map(|c| ColumnOrder::TYPE_DEFINED_ORDER(c.sort_order())).collect();
        let file = FileMetaData::new(2, self.rows, self.created_by.map(Into::into), None, schema, self.ordered.then_some(orders));
        ParquetMetaData::new(file, vec![group.build().unwrap()])
    }
}

fn choice(footers: &[Footer]) -> Choice {
    let built: Vec<_> = footers.iter().map(Footer::build).collect();
    let inputs: Vec<_> = built.iter().zip(["f0", "f1", "f2"]).map(|(footer, path)| (path, footer)).collect();
    by_footers(&plan(&[(1, 1)]), &columns(TABLE), &Asked::default(), &inputs)
}

#[test]
fn healthy_row_groups_of_one_schema_are_spliced() {
    let chosen = choice(&[Footer::default(), Footer::default()]);
    assert_eq!(chosen.path, Path::Splice);
    assert_eq!(chosen.reason, "2 row groups of 120000 rows and 1000 bytes on average, one schema, no deletes");
}

#[test]
fn anything_else_is_encoded_anew_with_its_reason() {
    let cases: Vec<(Footer, &str)> = vec![
        (Footer { created_by: None, ..Footer::default() }, "f0: its writer did not name itself"),
        (
            Footer { created_by: Some("parquet-mr version 1.8.1"), ..Footer::default() },
            "f0: `parquet-mr version 1.8.1` is known to write wrong statistics",
        ),
        (Footer { schema: "message m { OPTIONAL INT32 n = 1; }", ..Footer::default() }, "f0: column n has another type than the table"),
        (
            Footer { schema: "message m { OPTIONAL INT64 n = 1; OPTIONAL INT64 m = 2; }", ..Footer::default() },
            "f0: the file has 2 fields, the table 1",
        ),
        (
            Footer { chunk: |c| c.set_encodings(vec![Encoding::RLE_DICTIONARY]), ..Footer::default() },
            "f0: column \"n\": it does not tell where its dictionary is",
        ),
        (
            Footer { chunk: |c| c.set_dictionary_page_offset(Some(4)), ..Footer::default() },
            "f0: column \"n\": its dictionary is not in front of its pages",
        ),
        (
            Footer { chunk: |c| c.set_total_compressed_size(129 << 20), ..Footer::default() },
            "f0: column \"n\": 135266304 bytes of it would have to be held in memory",
        ),
        (
            Footer { chunk: |c| c.set_file_path("other.parquet".into()), ..Footer::default() },
            "f0: column \"n\": its pages lie in another file",
        ),
    ];
    for (footer, reason) in cases {
        assert_eq!(choice(&[footer]), Choice::whole(Path::ReEncode, reason.into()));
    }
}

#[test]
fn inputs_that_spell_one_schema_differently_are_encoded_by_themselves() {
    let bare = "message m { OPTIONAL INT64 n = 1; }";
    assert_eq!(choice(&[Footer::default(), Footer { schema: bare, ..Footer::default() }]).path, Path::Splice);
    let marked = "message m { OPTIONAL INT64 n (INTEGER(64,true)) = 1; }";
    let chosen = choice(&[Footer::default(), Footer { schema: marked, ..Footer::default() }]);
    let why = "f1: its schema is spelled differently from most inputs'";
    let reason = format!("{why}; one schema, no deletes; 1 of 2 files are decoded first: {why}");
    assert_eq!(chosen, Choice { path: Path::RePack, reason, odd: vec![1], anew: vec![] });
    // most of them, not the first
    let spelled = |schema| Footer { schema, ..Footer::default() };
    assert_eq!(choice(&[spelled(TABLE), spelled(marked), spelled(marked)]).odd, [0]);
}

#[test]
fn small_row_groups_are_joined_page_by_page() {
    let small = |rows, chunk| Footer { rows, chunk, ..Footer::default() };
    let said = "1 of 1 row groups of 119999 rows and 1000 bytes on average, hold fewer than 120000 rows and 67108864 bytes";
    let chosen = choice(&[small(119_999, |c| c)]);
    assert_eq!(chosen, Choice::whole(Path::RePack, format!("{said}; one schema, no deletes")));
    assert_eq!(choice(&[small(1000, |c| c)]).path, Path::RePack);
    let framed = choice(&[small(119_999, |c| c.set_compression(Compression::LZ4))]);
    assert_eq!(framed, Choice::whole(Path::ReEncode, format!("{said}; f0: column \"n\": its codec is LZ4")));
    let large = choice(&[small(119_999, |c| c.set_total_compressed_size(90 << 20))]);
    assert_eq!(large.path, Path::Splice, "{}", large.reason);
}

#[test]
fn a_small_row_group_among_healthy_ones_is_not_left_as_it_is() {
    let sized = |rows| Footer { rows, ..Footer::default() };
    let chosen = choice(&[sized(1_000_000), sized(1000), sized(1_000_000)]);
    let said = "1 of 3 row groups of 667000 rows and 1000 bytes on average, hold fewer than 120000 rows and 67108864 bytes";
    assert_eq!(chosen, Choice::whole(Path::RePack, format!("{said}; one schema, no deletes")));
    assert_eq!(choice(&[sized(1_000_000), sized(0), sized(120_000)]).path, Path::Splice, "no rows scan as well as any");
}

#[test]
fn an_odd_file_is_decoded_alone() {
    let promoted = || Footer { schema: "message m { OPTIONAL INT32 n = 1; }", rows: 5000, ..Footer::default() };
    let small = || Footer { rows: 5000, ..Footer::default() };
    let chosen = choice(&[small(), promoted(), small()]);
    assert_eq!((chosen.path, chosen.odd.as_slice()), (Path::RePack, &[1][..]), "{}", chosen.reason);
    assert!(chosen.reason.ends_with("; 1 of 3 files are decoded first: f1: column n has another type than the table"), "{}", chosen.reason);
    // it may be more than one, and of more than one kind
    let nameless = Footer { created_by: None, rows: 5000, ..Footer::default() };
    let framed = Footer { rows: 5000, chunk: |c| c.set_compression(Compression::LZ4), ..Footer::default() };
    assert_eq!(choice(&[nameless, small(), framed]).odd, [0, 2]);
    // healthy ones are not left as they are beside one that cannot be
    let chosen = choice(&[Footer::default(), promoted()]);
    assert_eq!((chosen.path, chosen.odd), (Path::RePack, vec![1]));
}

#[test]
fn odd_files_that_do_not_fit_take_the_others_along() {
    let promoted = Footer { schema: "message m { OPTIONAL INT32 n = 1; }", rows: 5000, ..Footer::default() }.build();
    let small = Footer { rows: 5000, ..Footer::default() }.build();
    let chosen = |bytes| {
        let inputs = [("f0", &small), ("f1", &promoted)];
        by_footers(&plan(&[(1, 1), (1, bytes)]), &columns(TABLE), &Asked::default(), &inputs)
    };
    assert_eq!(chosen(64 * MIB).odd, [1]);
    assert_eq!(chosen(64 * MIB + 1).path, Path::ReEncode);
    // columns of other levels than the table's have no place for the table's rows
    let required = "message m { REQUIRED INT64 n = 1; }";
    let chosen = choice(&[
        Footer { schema: required, rows: 5000, ..Footer::default() },
        Footer { schema: "message m { OPTIONAL INT32 n = 1; }", rows: 5000, ..Footer::default() },
    ]);
    assert_eq!(chosen.path, Path::ReEncode, "{}", chosen.reason);
}

#[test]
fn rows_that_keep_their_lineage_are_not_joined_with_odd_files() {
    let chosen = |footers: &[Footer], asked: Asked| {
        let built: Vec<_> = footers.iter().map(Footer::build).collect();
        let inputs: Vec<_> = built.iter().zip(["f0", "f1"]).map(|(footer, path)| (path, footer)).collect();
        by_footers(&plan(&[(1, 1), (1, 1)]), &columns(TABLE), &asked, &inputs)
    };
    let small = || Footer { rows: 5000, ..Footer::default() };
    let promoted = || Footer { schema: "message m { OPTIONAL INT32 n = 1; }", rows: 5000, ..Footer::default() };
    let framed = || Footer { rows: 5000, chunk: |c| c.set_compression(Compression::LZ4), ..Footer::default() };
    for (odd, why) in [(promoted(), "f1: column n has another type than the table"), (framed(), "f1: column \"n\": its codec is LZ4")] {
        let both = [small(), odd];
        assert_eq!((chosen(&both, Asked::default()).path, chosen(&both, Asked::default()).odd), (Path::RePack, vec![1]));
        let kept = chosen(&both, Asked::default().with_lineage(true));
        assert_eq!((kept.path, kept.odd, kept.anew), (Path::ReEncode, vec![], vec![]));
        assert!(kept.reason.ends_with(why), "{}", kept.reason);
    }
    // columns of lineage make a file neither odd nor large enough to be copied whole
    let traced = "message m { OPTIONAL INT64 n = 1; OPTIONAL INT64 _row_id = 2147483540; \
                  OPTIONAL INT64 _last_updated_sequence_number = 2147483539; }";
    let traced = || [small(), Footer { schema: traced, rows: 5000, ..Footer::default() }];
    let kept = chosen(&traced(), Asked::default().with_lineage(true));
    assert_eq!((kept.path, kept.odd), (Path::RePack, vec![]), "{}", kept.reason);
    assert_eq!(chosen(&traced(), Asked::default()).odd, [1]);
    // of the columns that are encoded anew, those of lineage are none: nothing is left to be joined here
    let asked = Asked { blooms: vec![1], bloom_bytes: MIB, ..Asked::default() };
    assert_eq!(chosen(&traced(), asked.with_lineage(true)).path, Path::ReEncode);
}

#[test]
fn only_the_columns_that_want_bloom_filters_are_encoded_anew() {
    let table = "message table { OPTIONAL INT64 n = 1; OPTIONAL INT64 m = 2; }";
    let footer = Footer { schema: table, rows: 5000, ..Footer::default() }.build();
    let chosen = |bloom_bytes| {
        let asked = Asked { blooms: vec![2], bloom_bytes, ..Asked::default() };
        by_footers(&plan(&[(1, 1)]), &columns(table), &asked, &[("f0", &footer)])
    };
    let some = chosen(MIB);
    assert_eq!((some.path, some.anew.as_slice()), (Path::RePack, &[1][..]));
    assert!(some.reason.ends_with("; 1 columns are encoded anew: the table wants bloom filters"), "{}", some.reason);
    assert_eq!(chosen(33 * MIB).path, Path::ReEncode, "they are held until they are written");
}

#[test]
fn row_groups_that_do_not_fit_into_memory_are_encoded_anew() {
    let group = |count: usize, bytes: i64| {
        let of = |n: usize| format!("OPTIONAL INT64 n{n} = {n};");
        let schema = Arc::new(columns(&format!("message table {{ {} }}", (1..=count).map(of).collect::<String>())));
        let footer = Footer { rows: 5000, ..Footer::default() }.build();
        let chunks = schema.columns().iter().map(|column| {
            let chunk = ColumnChunkMetaData::builder(column.clone()).set_encodings(vec![Encoding::PLAIN]).set_data_page_offset(4);
            chunk.set_num_values(5000).set_total_uncompressed_size(bytes).build().unwrap()
        });
        let group = RowGroupMetaData::builder(schema.clone()).set_num_rows(5000).set_column_metadata(chunks.collect()).build().unwrap();
        let orders = schema.columns().iter().map(|c| ColumnOrder::TYPE_DEFINED_ORDER(c.sort_order())).collect();
        let file = FileMetaData::new(2, 5000, footer.file_metadata().created_by().map(Into::into), None, schema.clone(), Some(orders));
        let footer = ParquetMetaData::new(file, vec![group]);
        by_footers(&plan(&[(1, 1)]), &schema, &Asked::default(), &[("f0", &footer)])
    };
    // whole, or column by column
    let most = (512 << 20) / 10;
    assert_eq!(group(1, most).path, Path::RePack);
    let reason = group(1, most + 1).reason;
    assert!(reason.ends_with("; f0: 53687092 bytes of a row group would have to be held in memory"), "{reason}");
    let most = (512 << 20) / 16;
    assert_eq!(group(10, most).path, Path::RePack);
    let reason = group(10, most + 1).reason;
    assert!(reason.ends_with("; f0: 335544330 bytes of a row group would have to be held in memory"), "{reason}");
}

#[test]
fn what_joining_pages_would_lose_is_encoded_anew() {
    let footer = Footer { rows: 5000, ..Footer::default() }.build();
    let chosen = |blooms| by_footers(&plan(&[(1, 1)]), &columns(TABLE), &Asked { blooms, ..Asked::default() }, &[("f0", &footer)]);
    assert_eq!(chosen(vec![]).path, Path::RePack);
    assert!(chosen(vec![1]).reason.ends_with("; the table wants bloom filters"), "{}", chosen(vec![1]).reason);
}

#[test]
fn deletes_take_pages_that_can_be_cut() {
    let chosen = |rows, chunk, deleted: usize| {
        let built: Vec<_> = (0..2).map(|_| Footer { rows, chunk, ..Footer::default() }.build()).collect();
        let mut plan = plan(&[(1, 1), (1, 1)]);
        for file in plan.inputs.iter_mut().take(deleted) {
            file.deletes.push(crate::model::file::FileKey { path: "d".into(), offset: None });
        }
        by_footers(&plan, &columns(TABLE), &Asked::default(), &[("f0", &built[0]), ("f1", &built[1])])
    };
    let reason = "deletes apply to 1 of 2 files; one schema, pages that can be cut".to_owned();
    assert_eq!(chosen(5000, |c| c, 1), Choice::whole(Path::RePack, reason.clone()));
    // Healthy row groups too.
    assert_eq!(chosen(500_000, |c| c, 1), Choice::whole(Path::RePack, reason));
    let delta: fn(ColumnChunkMetaDataBuilder) -> _ = |c| c.set_encodings(vec![Encoding::RLE, Encoding::DELTA_BINARY_PACKED]);
    assert_eq!(chosen(5000, delta, 0).path, Path::RePack);
    assert_eq!(chosen(5000, delta, 1).path, Path::RePack, "they are decoded to be cut");
    let strange: fn(ColumnChunkMetaDataBuilder) -> _ = |c| c.set_encodings(vec![Encoding::RLE, Encoding::DELTA_LENGTH_BYTE_ARRAY]);
    assert_eq!(chosen(5000, strange, 0).path, Path::RePack);
    // alone where it is one file's, all where it is all files'
    assert_eq!(chosen(5000, strange, 1).odd, [0]);
    let why = "f0: column \"n\": rows are deleted from it, and its pages are encoded as DELTA_LENGTH_BYTE_ARRAY";
    assert_eq!(chosen(5000, strange, 2), Choice::whole(Path::ReEncode, format!("deletes apply to 2 of 2 files; {why}")));
}

#[test]
fn healthy_row_groups_stay_only_where_they_are_as_the_table_asks() {
    let chosen = |footer: Footer, codec, blooms: &[i32]| {
        let (asked, footer) = (Asked { codec, blooms: blooms.to_vec(), ..Asked::default() }, footer.build());
        by_footers(&plan(&[(1, 1)]), &columns(TABLE), &asked, &[("f0", &footer)])
    };
    let zstd = Compression::ZSTD(Default::default());
    assert_eq!(chosen(Footer::default(), Some(Compression::SNAPPY), &[]).path, Path::Splice);
    let reason = "f0: column \"n\": its codec is SNAPPY, the table's ZSTD; one schema, no deletes".to_owned();
    assert_eq!(chosen(Footer::default(), Some(zstd), &[]), Choice::whole(Path::RePack, reason));
    assert_eq!(chosen(Footer::default(), None, &[2]).path, Path::Splice, "another column's");
    let reason = "f0: column \"n\": it has no bloom filter; the table wants bloom filters".to_owned();
    assert_eq!(chosen(Footer::default(), None, &[1]), Choice::whole(Path::ReEncode, reason));
    let filtered = Footer { chunk: |c| c.set_bloom_filter_offset(Some(900)), ..Footer::default() };
    assert_eq!(chosen(filtered, None, &[1]).path, Path::Splice);
    let reason = "f0: it does not define the order of its columns; one schema, no deletes".to_owned();
    assert_eq!(chosen(Footer { ordered: false, ..Footer::default() }, None, &[]), Choice::whole(Path::RePack, reason));
}

#[test]
fn what_the_table_does_not_want_is_encoded_anew() {
    use parquet::file::statistics::Statistics;
    let chosen = |rows, asked: Asked| {
        let chunk: fn(ColumnChunkMetaDataBuilder) -> _ = |c| c.set_statistics(Statistics::int64(Some(1), Some(2), None, Some(0), false));
        let footer = Footer { rows, chunk, ..Footer::default() }.build();
        by_footers(&plan(&[(1, 1)]), &columns(TABLE), &asked, &[("f0", &footer)])
    };
    let end_at = |bytes| Asked { row_group: Some(bytes), ..Asked::default() };
    let without = |id| Asked { no_statistics: vec![id], ..Asked::default() };
    assert_eq!((chosen(120_000, end_at(667)).path, chosen(5000, end_at(667)).path), (Path::Splice, Path::RePack));
    assert_eq!((chosen(120_000, without(2)).path, chosen(5000, without(2)).path), (Path::Splice, Path::RePack));
    for rows in [120_000, 5000] {
        let (size, statistics) = (chosen(rows, end_at(666)), chosen(rows, without(1)));
        assert_eq!((size.path, statistics.path), (Path::ReEncode, Path::ReEncode));
        assert!(size.reason.ends_with("f0: a row group has 1000 bytes, the table's end at 666"), "{}", size.reason);
        let why = "f0: column \"n\": it has statistics, which the table does not want";
        assert!(statistics.reason.ends_with(why), "{}", statistics.reason);
    }
}
