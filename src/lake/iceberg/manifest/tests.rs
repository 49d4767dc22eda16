use std::collections::{BTreeMap, HashMap};
use std::sync::LazyLock;

use iceberg::TableCreation;
use iceberg::spec::{
    DataContentType, DataFile, DataFileBuilder, DataFileFormat, Datum, FormatVersion, Literal, Manifest, ManifestEntry, ManifestFile,
    ManifestListWriter, ManifestWriter, ManifestWriterBuilder, NestedField, PrimitiveLiteral, PrimitiveType, Schema, Struct, TableMetadata,
    TableMetadataBuilder, Transform, Type, UnboundPartitionSpec,
};
use proptest::prelude::*;

use super::*;
use crate::lake::iceberg::store::file_io;
use crate::model::file::{Content, EntryStatus, FileKey};
use crate::model::partition::{Tuple, Value};
use crate::model::refusal::Refusal;

const SNAPSHOT: i64 = 77;

/// Every type that can partition by identity, with a value; but not uuid, which
/// the crate's writer cannot put into a partition.
fn identity_values() -> Vec<(PrimitiveType, Value)> {
    use PrimitiveType as P;
    let text = |s: &str| Value::String(Arc::from(s));
    let bytes = |b: &[u8]| Value::Bytes(Arc::from(b));
    vec![
        (P::Boolean, Value::Bool(true)),
        (P::Int, Value::Int(-7)),
        (P::Long, Value::Long(i64::MIN)),
        (P::Float, Value::Float((-0.0f32).to_bits())),
        (P::Double, Value::Double(0x7ff8_0000_0000_0000)),
        (P::Decimal { precision: 9, scale: 2 }, Value::Decimal(-12_345)),
        (P::Decimal { precision: 38, scale: 5 }, Value::Decimal(10i128.pow(37))),
        (P::Date, Value::Int(19_000)),
        (P::Time, Value::Long(1)),
        (P::Timestamp, Value::Long(-1)),
        (P::Timestamptz, Value::Long(1_700_000_000_000_000)),
        (P::String, text("ü/%2F \0")),
        (P::Fixed(5), bytes(&[0xff, 0, 1, 2, 3])),
        (P::Binary, bytes(&[0x80])),
    ]
}

fn table(columns: &[PrimitiveType], transform: Transform, version: FormatVersion) -> TableMetadata {
    named(columns, transform, version, "p ")
}

/// A table whose partition fields have names that begin so.
fn named(columns: &[PrimitiveType], transform: Transform, version: FormatVersion, fields: &str) -> TableMetadata {
    let field = |(i, t): (usize, &PrimitiveType)| NestedField::optional(i as i32 + 1, format!("c{i}"), Type::Primitive(t.clone())).into();
    let schema = Schema::builder().with_fields(columns.iter().enumerate().map(field)).build().unwrap();
    let mut spec = UnboundPartitionSpec::builder();
    for i in 0..columns.len() {
        spec = spec.add_partition_field(i as i32 + 1, format!("{fields}{i}"), transform).unwrap();
    }
    let creation = TableCreation::builder()
        .name("t".into())
        .location("memory://t".into())
        .schema(schema)
        .partition_spec(spec.build())
        .format_version(version)
        .build();
    TableMetadataBuilder::from_table_creation(creation).unwrap().build().unwrap().metadata
}

fn file(path: &str, content: DataContentType) -> DataFileBuilder {
    let mut builder = DataFileBuilder::default();
    builder.content(content).file_path(path.into()).file_format(DataFileFormat::Parquet).record_count(10).file_size_in_bytes(1000);
    builder
}

type Build = fn(ManifestWriterBuilder) -> ManifestWriter;

/// Writes a manifest and gives its bytes and its row of a manifest list.
async fn write(metadata: &TableMetadata, build: Build, fill: impl FnOnce(&mut ManifestWriter)) -> (Vec<u8>, ManifestFile, ManifestRef) {
    let io = file_io(&BTreeMap::new());
    let spec = metadata.default_partition_spec().as_ref().clone();
    let output = io.new_output("memory://t/m.avro").unwrap();
    let mut writer = build(ManifestWriterBuilder::new(output, Some(SNAPSHOT), metadata.current_schema().clone(), spec));
    fill(&mut writer);
    let written = writer.write_manifest_file().await.unwrap();
    let bytes = io.new_input("memory://t/m.avro").unwrap().read().await.unwrap().to_vec();
    let manifest = ManifestRef {
        path: Arc::from(written.manifest_path.as_str()),
        bytes: written.manifest_length as u64,
        spec_id: written.partition_spec_id,
        deletes: written.content == iceberg::spec::ManifestContentType::Deletes,
        added_snapshot_id: SNAPSHOT,
        sequence_number: 5,
        live_files: None,
        live_records: None,
    };
    (bytes, written, manifest)
}

fn add(writer: &mut ManifestWriter, file: DataFile) {
    writer.add_file(file, -1).unwrap();
}

fn damaged<T: std::fmt::Debug>(result: Result<Vec<T>>) -> String {
    match result.unwrap_err() {
        Error::Refused(refused) if refused.refusal == Refusal::Damaged => refused.detail,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn every_partition_type_survives_in_every_version() {
    let (types, values): (Vec<_>, Vec<_>) = identity_values().into_iter().unzip();
    let full: Tuple = values.into_iter().map(Some).collect();
    let nulls: Tuple = full.iter().map(|_| None).collect();
    let builds: [(FormatVersion, Build); 3] = [
        (FormatVersion::V1, ManifestWriterBuilder::build_v1),
        (FormatVersion::V2, ManifestWriterBuilder::build_v2_data),
        (FormatVersion::V3, ManifestWriterBuilder::build_v3_data),
    ];
    for (version, build) in builds {
        let metadata = table(&types, Transform::Identity, version);
        let known = PartitionTypes::resolve(&metadata, 0).unwrap();
        let (bytes, _, manifest) = write(&metadata, build, |writer| {
            for (path, tuple) in [("a", &full), ("b", &nulls)] {
                add(writer, file(path, DataContentType::Data).partition(known.to_struct(tuple).unwrap()).build().unwrap());
            }
        })
        .await;
        let entries = entry::layout(&bytes, &manifest, &metadata).unwrap();
        let tuples: Vec<_> = entries.iter().map(|e| e.partition.tuple.clone()).collect();
        assert_eq!(tuples, [full.clone(), nulls.clone()], "{version:?}");
        assert_eq!((entries[0].records, entries[0].bytes, entries[0].snapshot_id), (10, 1000, SNAPSHOT));
        let by_avro = entry::layout(&bytes, &ManifestRef { spec_id: 0, ..manifest }, &table(&[], Transform::Identity, version));
        assert!(by_avro.is_ok(), "a spec that the table does not know this way is still read");
    }
}

#[tokio::test]
async fn transforms_type_their_results() {
    for (transform, source, value) in [
        (Transform::Bucket(16), PrimitiveType::String, Value::Int(3)),
        (Transform::Truncate(2), PrimitiveType::String, Value::String(Arc::from("ab"))),
        (Transform::Year, PrimitiveType::Date, Value::Int(53)),
        (Transform::Month, PrimitiveType::Timestamp, Value::Int(640)),
        (Transform::Day, PrimitiveType::Timestamptz, Value::Int(19_500)),
        (Transform::Hour, PrimitiveType::Timestamp, Value::Int(468_000)),
    ] {
        let metadata = table(&[source], transform, FormatVersion::V2);
        let tuple: Tuple = Arc::from([Some(value)]);
        let partition = PartitionTypes::resolve(&metadata, 0).unwrap().to_struct(&tuple).unwrap();
        let (bytes, _, manifest) = write(&metadata, ManifestWriterBuilder::build_v2_data, |writer| {
            add(writer, file("a", DataContentType::Data).partition(partition).build().unwrap());
        })
        .await;
        assert_eq!(entry::layout(&bytes, &manifest, &metadata).unwrap()[0].partition.tuple, tuple, "{transform}");
    }
}

#[tokio::test]
async fn a_promoted_column_keeps_old_files_in_their_partition() {
    let old = table(&[PrimitiveType::Int, PrimitiveType::Float], Transform::Identity, FormatVersion::V2);
    let now = table(&[PrimitiveType::Long, PrimitiveType::Double], Transform::Identity, FormatVersion::V2);
    let narrow: Tuple = Arc::from([Some(Value::Int(5)), Some(Value::Float(1.5f32.to_bits()))]);
    let partition = PartitionTypes::resolve(&old, 0).unwrap().to_struct(&narrow).unwrap();
    let (bytes, _, manifest) = write(&old, ManifestWriterBuilder::build_v2_data, |writer| {
        add(writer, file("a", DataContentType::Data).partition(partition).build().unwrap());
    })
    .await;
    let wide: Tuple = Arc::from([Some(Value::Long(5)), Some(Value::Double(1.5f64.to_bits()))]);
    assert_eq!(entry::layout(&bytes, &manifest, &now).unwrap()[0].partition.tuple, wide);
}

#[tokio::test]
async fn added_entries_inherit_and_survivors_keep_their_numbers() {
    let metadata = table(&[], Transform::Identity, FormatVersion::V2);
    let data = |path: &str| file(path, DataContentType::Data).build().unwrap();
    let (bytes, _, manifest) = write(&metadata, ManifestWriterBuilder::build_v2_data, |writer| {
        add(writer, data("inherits"));
        writer.add_file(data("own"), 3).unwrap();
        writer.add_existing_file(data("kept"), 11, 2, Some(1)).unwrap();
        writer.add_delete_file(data("gone"), 2, Some(1)).unwrap();
    })
    .await;
    let seen: Vec<_> = entry::scan(&bytes, &manifest, &metadata)
        .unwrap()
        .into_iter()
        .map(|e| (e.entry.key.path.to_string(), e.entry.status, e.entry.snapshot_id, e.sequence_number, e.file_sequence_number))
        .collect();
    use EntryStatus::{Added, Deleted, Existing};
    let expected = [
        ("inherits", Added, SNAPSHOT, 5, 5),
        ("own", Added, SNAPSHOT, 3, 5),
        ("kept", Existing, 11, 2, 1),
        ("gone", Deleted, SNAPSHOT, 2, 1),
    ];
    assert_eq!(seen, expected.map(|(path, a, b, c, d)| (path.to_owned(), a, b, c, d)));
}

#[tokio::test]
async fn every_entry_of_a_v1_manifest_has_sequence_number_zero() {
    let metadata = table(&[], Transform::Identity, FormatVersion::V1);
    let (bytes, _, manifest) =
        write(&metadata, ManifestWriterBuilder::build_v1, |writer| add(writer, file("a", DataContentType::Data).build().unwrap())).await;
    let entries = entry::scan(&bytes, &manifest, &metadata).unwrap();
    assert_eq!((entries[0].sequence_number, entries[0].file_sequence_number), (0, 0));
}

#[tokio::test]
async fn delete_files_come_with_what_the_join_needs() {
    let metadata = table(&[], Transform::Identity, FormatVersion::V3);
    let path_bound = |path: &str| [(DELETE_FILE_PATH, Datum::string(path)), (DELETE_FILE_PATH - 1, Datum::long(1))].into_iter().collect();
    let (bytes, _, manifest) = write(&metadata, ManifestWriterBuilder::build_v3_deletes, |writer| {
        let mut positions = file("p", DataContentType::PositionDeletes);
        positions.lower_bounds(path_bound("s3://b/a")).upper_bounds(path_bound("s3://b/z"));
        add(writer, positions.build().unwrap());
        let keys = file("e", DataContentType::EqualityDeletes).equality_ids(Some(vec![2, 1])).build().unwrap();
        add(writer, keys);
        for (offset, target) in [(4, "d1"), (90, "d2")] {
            let mut vector = file("v.parquet", DataContentType::PositionDeletes);
            vector.file_format(DataFileFormat::Puffin).content_offset(Some(offset)).content_size_in_bytes(Some(40));
            add(writer, vector.referenced_data_file(Some(target.into())).build().unwrap());
        }
    })
    .await;
    let entries = entry::scan(&bytes, &manifest, &metadata).unwrap();
    let [positions, keys, one, two] = entries.as_slice() else { panic!("{entries:?}") };
    assert_eq!(positions.entry.content, Content::PositionDeletes);
    assert_eq!((positions.path_lower.as_deref(), positions.path_upper.as_deref()), (Some(&b"s3://b/a"[..]), Some(&b"s3://b/z"[..])));
    assert_eq!((keys.entry.content, keys.equality_ids.as_slice()), (Content::EqualityDeletes, &[2, 1][..]));
    assert_eq!((&one.format, one.entry.content, one.entry.bytes), (&FileFormat::Puffin, Content::DeletionVector, 40));
    assert_eq!(one.entry.key, FileKey { path: Arc::from("v.parquet"), offset: Some(4) });
    assert_eq!((two.entry.key.offset, two.referenced_data_file.as_deref()), (Some(90), Some("d2")));
}

#[tokio::test]
async fn lists_sum_live_files_and_v1_may_leave_counts_out() {
    let metadata = table(&[], Transform::Identity, FormatVersion::V2);
    let (bytes, written, _) = write(&metadata, ManifestWriterBuilder::build_v2_data, |writer| {
        add(writer, file("a", DataContentType::Data).build().unwrap());
        writer.add_existing_file(file("b", DataContentType::Data).build().unwrap(), 11, 2, Some(2)).unwrap();
        writer.add_delete_file(file("c", DataContentType::Data).build().unwrap(), 2, Some(2)).unwrap();
    })
    .await;
    let v2 = list_of(written.clone(), 2).await;
    let expected = ManifestRef {
        path: Arc::from("memory://t/m.avro"),
        bytes: bytes.len() as u64,
        spec_id: 0,
        deletes: false,
        added_snapshot_id: SNAPSHOT,
        sequence_number: 5,
        live_files: Some(2),
        live_records: Some(20),
    };
    assert_eq!(list::read(&v2, "l", SNAPSHOT).unwrap().first(), Some(&expected));
    let bare = ManifestFile { added_files_count: None, existing_files_count: None, added_rows_count: None, ..written };
    let v1 = list_of(bare, 1).await;
    assert_eq!(
        list::read(&v1, "l", SNAPSHOT).unwrap(),
        [ManifestRef { sequence_number: 0, live_files: None, live_records: None, ..expected }]
    );
}

async fn list_of(manifest: ManifestFile, version: u8) -> Vec<u8> {
    let io = file_io(&BTreeMap::new());
    let output = io.new_output("memory://t/l.avro").unwrap().writer().await.unwrap();
    let mut writer = match version {
        1 => ManifestListWriter::v1(output, SNAPSHOT, None),
        _ => ManifestListWriter::v2(output, SNAPSHOT, None, 5),
    };
    writer.add_manifests(std::iter::once(manifest)).unwrap();
    writer.close().await.unwrap();
    io.new_input("memory://t/l.avro").unwrap().read().await.unwrap().to_vec()
}

#[tokio::test]
async fn what_does_not_fit_is_damage_that_names_the_manifest() {
    let metadata = table(&[PrimitiveType::Int], Transform::Identity, FormatVersion::V2);
    let partition = PartitionTypes::resolve(&metadata, 0).unwrap().to_struct(&Arc::from([Some(Value::Int(1))])).unwrap();
    let (bytes, _, manifest) = write(&metadata, ManifestWriterBuilder::build_v2_data, |writer| {
        add(writer, file("a", DataContentType::Data).partition(partition).build().unwrap());
    })
    .await;
    let read = |bytes: &[u8], manifest: &ManifestRef| damaged(entry::scan(bytes, manifest, &metadata));
    let short = bytes.get(..bytes.len() - 20).unwrap();
    assert!(read(short, &manifest).starts_with("memory://t/m.avro: the manifest list says"));
    assert!(read(short, &ManifestRef { bytes: 0, ..manifest.clone() }).starts_with("memory://t/m.avro: "));
    assert!(read(b"", &ManifestRef { bytes: 0, ..manifest.clone() }).contains("ends too early"));
    assert!(read(&bytes, &ManifestRef { deletes: true, ..manifest.clone() }).contains("that the list calls deletes"));
    assert!(read(&bytes, &ManifestRef { spec_id: 4, ..manifest.clone() }).contains("the manifest says 0"));
    let wrong_type = table(&[PrimitiveType::String], Transform::Identity, FormatVersion::V2);
    assert!(damaged(entry::scan(&bytes, &manifest, &wrong_type)).contains("partition field `p 0` is no String"));
}

/// Another writer's manifest: names of its own, a uuid partition, fields left out.
mod foreign {
    use serde::{Serialize, Serializer};

    #[derive(Serialize)]
    pub struct Entry {
        pub state: i32,
        pub snap: Option<i64>,
        pub file: File,
    }
    #[derive(Serialize)]
    pub struct File {
        pub part: Part,
        pub location: &'static str,
        pub kind: &'static str,
        pub rows: i64,
        pub size: i64,
    }
    #[derive(Serialize)]
    pub struct Part {
        pub u: Option<Fixed>,
    }
    pub struct Fixed(pub [u8; 16]);

    impl Serialize for Fixed {
        fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
            s.serialize_bytes(&self.0)
        }
    }

    pub const SCHEMA: &str = r#"{"type":"record","name":"e","fields":[
        {"name":"state","type":"int","field-id":0}, {"name":"snap","type":["null","long"],"field-id":1},
        {"name":"file","field-id":2,"type":{"type":"record","name":"f","fields":[
            {"name":"part","field-id":102,"type":{"type":"record","name":"r102","fields":[
                {"name":"u","field-id":1000,"type":["null",{"type":"fixed","name":"uuid_fixed","size":16,"logicalType":"uuid"}]}]}},
            {"name":"location","type":"string","field-id":100}, {"name":"kind","type":"string","field-id":101},
            {"name":"rows","type":"long","field-id":103}, {"name":"size","type":"long","field-id":104}]}}]}"#;
}

const UUID: u128 = 0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10;

fn foreign_manifests() -> Vec<Vec<u8>> {
    use serde_avro_fast::object_container_file_encoding::{Compression, CompressionLevel, write_all};
    let level = CompressionLevel::default();
    let schema: serde_avro_fast::Schema = foreign::SCHEMA.parse().unwrap();
    let entry = |state, u: Option<u128>| foreign::Entry {
        state,
        snap: None,
        file: foreign::File {
            part: foreign::Part { u: u.map(|u| foreign::Fixed(u.to_be_bytes())) },
            location: "x",
            kind: "PARQUET",
            rows: 3,
            size: 9,
        },
    };
    [Compression::Null, Compression::Deflate { level }, Compression::Snappy, Compression::Zstandard { level }]
        .into_iter()
        .map(|codec| write_all(&schema, codec, Vec::new(), [entry(1, Some(UUID)), entry(0, None)]).unwrap())
        .collect()
}

#[test]
fn fields_are_found_by_id_under_any_name_and_any_codec() {
    let metadata = table(&[PrimitiveType::Uuid], Transform::Identity, FormatVersion::V2);
    for bytes in foreign_manifests() {
        let manifest = ManifestRef { bytes: 0, sequence_number: 0, ..SAMPLES.1.clone() };
        let entries = entry::layout(&bytes, &manifest, &metadata).unwrap();
        let seen: Vec<_> =
            entries.iter().map(|e| (e.status, e.snapshot_id, e.bytes, e.partition.tuple.first().cloned().flatten())).collect();
        let expected = [(EntryStatus::Added, SNAPSHOT, 9, Some(Value::Uuid(UUID))), (EntryStatus::Existing, SNAPSHOT, 9, None)];
        assert_eq!(seen, expected);
    }
}

#[test]
fn decimals_are_twos_complement_of_any_width() {
    let value = |bytes: &[u8]| partition::unscaled(bytes);
    assert_eq!([&[0xff][..], &[0x00, 0x80], &[0x80; 16]].map(value), [Some(-1), Some(128), Some(i128::from_be_bytes([0x80; 16]))]);
    assert_eq!(value(&[[0xff; 4].as_slice(), &[0x80; 16]].concat()), Some(i128::from_be_bytes([0x80; 16])));
    assert_eq!(value(&[[0x01].as_slice(), &[0; 16]].concat()), None);
    assert_eq!(value(&[[0x00].as_slice(), &[0x80; 16]].concat()), None);
    assert_eq!(value(&[]), None);
}

/// A bound of a value.
fn bound(kind: PrimitiveType, value: &Literal) -> Datum {
    let Literal::Primitive(value) = value else { panic!("{value:?}") };
    let bytes = match value {
        PrimitiveLiteral::Boolean(v) => vec![u8::from(*v)],
        PrimitiveLiteral::Int(v) => v.to_le_bytes().to_vec(),
        PrimitiveLiteral::Long(v) => v.to_le_bytes().to_vec(),
        PrimitiveLiteral::Float(v) => v.to_le_bytes().to_vec(),
        PrimitiveLiteral::Double(v) => v.to_le_bytes().to_vec(),
        PrimitiveLiteral::String(v) => v.clone().into_bytes(),
        PrimitiveLiteral::Binary(v) => v.clone(),
        PrimitiveLiteral::Int128(v) => v.to_be_bytes().to_vec(),
        other => panic!("{other:?}"),
    };
    Datum::try_from_bytes(&bytes, kind).unwrap()
}

/// A file of which everything is told, with a bound of each column that has one.
fn told(path: &str, content: DataContentType, metadata: &TableMetadata, partition: Struct) -> DataFile {
    let counts = |from: u64| (1..15i32).map(|id| (id, from + u64::from(id.unsigned_abs()))).collect::<HashMap<i32, u64>>();
    let typed = metadata.current_schema().as_struct().fields().iter().zip(partition.iter());
    let mut bounds: HashMap<i32, Datum> = typed
        .filter_map(|(field, value)| {
            let kind = field.field_type.as_primitive_type()?.clone();
            Some((field.id, bound(kind, value?)))
        })
        .collect();
    bounds.insert(DELETE_FILE_PATH, Datum::string("file:/ü"));
    let mut told = file(path, content);
    told.partition(partition)
        .partition_spec_id(metadata.default_partition_spec_id())
        .column_sizes(counts(100))
        .value_counts(counts(10))
        .null_value_counts(counts(0))
        .nan_value_counts(HashMap::from([(4, 0), (5, 3)]))
        .lower_bounds(bounds.clone())
        .upper_bounds(bounds)
        .key_metadata(Some(vec![0, 255]))
        .split_offsets(Some(vec![4, 1 << 40]))
        .first_row_id((metadata.format_version() != FormatVersion::V1).then_some(7))
        .sort_order_id(3);
    if content == DataContentType::EqualityDeletes {
        told.equality_ids(Some(vec![2, 1]));
    }
    if content == DataContentType::PositionDeletes {
        told.referenced_data_file(Some("d".into())).content_offset(Some(4)).content_size_in_bytes(Some(40));
    }
    told.build().unwrap()
}

#[tokio::test]
async fn a_whole_manifest_is_what_the_crate_reads() {
    let (types, values): (Vec<_>, Vec<_>) = identity_values().into_iter().unzip();
    let full: Tuple = values.into_iter().map(Some).collect();
    let nulls: Tuple = full.iter().map(|_| None).collect();
    let (data, deletes) = ([DataContentType::Data; 2], [DataContentType::PositionDeletes, DataContentType::EqualityDeletes]);
    let builds: [(FormatVersion, Build, [DataContentType; 2]); 5] = [
        (FormatVersion::V1, ManifestWriterBuilder::build_v1, data),
        (FormatVersion::V2, ManifestWriterBuilder::build_v2_data, data),
        (FormatVersion::V2, ManifestWriterBuilder::build_v2_deletes, deletes),
        (FormatVersion::V3, ManifestWriterBuilder::build_v3_data, data),
        (FormatVersion::V3, ManifestWriterBuilder::build_v3_deletes, deletes),
    ];
    for (version, build, [one, two]) in builds {
        // names that are none in Avro the crate does not read
        let metadata = named(&types, Transform::Identity, version, "p");
        let known = PartitionTypes::resolve(&metadata, 0).unwrap();
        let of = |path: &str, content, tuple| told(path, content, &metadata, known.to_struct(tuple).unwrap());
        let (bytes, ..) = write(&metadata, build, |writer| {
            add(writer, of("a", one, &full));
            writer.add_file(of("own", two, &nulls), 3).unwrap();
            writer.add_existing_file(of("kept", one, &nulls), 11, 2, Some(1)).unwrap();
            writer.add_delete_file(file("gone", two).partition(known.to_struct(&full).unwrap()).build().unwrap(), 2, Some(1)).unwrap();
        })
        .await;
        let (entries, header) = Manifest::parse_avro(&bytes).unwrap().into_parts();
        let whole: Vec<ManifestEntry> = entries.into_iter().map(Arc::unwrap_or_clone).collect();
        assert!(whole.first().is_some_and(|entry| entry.data_file.lower_bounds().len() == types.len() + 1));
        assert_eq!(whole::parse(&bytes, |_| true).unwrap(), (header.clone(), whole.clone()), "{version:?}");
        let some: Vec<ManifestEntry> = whole.into_iter().filter(|entry| ["own", "gone"].contains(&entry.file_path())).collect();
        assert_eq!(whole::parse(&bytes, |path| ["own", "gone", "else"].contains(&path)).unwrap(), (header, some));
    }
}

/// A manifest and a list with everything in them, to be damaged.
static SAMPLES: LazyLock<(TableMetadata, ManifestRef, Vec<Vec<u8>>)> = LazyLock::new(samples);

fn samples() -> (TableMetadata, ManifestRef, Vec<Vec<u8>>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (types, values): (Vec<_>, Vec<_>) = identity_values().into_iter().unzip();
        let metadata = table(&types, Transform::Identity, FormatVersion::V2);
        let tuple: Tuple = values.into_iter().map(Some).collect();
        let partition = PartitionTypes::resolve(&metadata, 0).unwrap().to_struct(&tuple).unwrap();
        let (bytes, written, manifest) = write(&metadata, ManifestWriterBuilder::build_v2_data, |writer| {
            for path in ["a", "b", "c"] {
                add(writer, file(path, DataContentType::Data).partition(partition.clone()).build().unwrap());
            }
        })
        .await;
        let list = list_of(written, 2).await;
        (metadata, ManifestRef { bytes: 0, ..manifest }, [vec![bytes, list], foreign_manifests()].concat())
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]
    #[test]
    fn damaged_bytes_never_panic(flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8), cut in any::<prop::sample::Index>()) {
        let (metadata, manifest, files) = &*SAMPLES;
        for mut bytes in files.clone() {
            for (at, value) in &flips {
                let at = at.index(bytes.len());
                bytes[at] = *value;
            }
            let cut = &bytes[..cut.index(bytes.len() + 1)];
            for damaged in [&bytes[..], cut] {
                let _ = entry::scan(damaged, manifest, metadata);
                let _ = entry::layout(damaged, manifest, metadata);
                let _ = whole::parse(damaged, |_| true);
                let _ = list::read(damaged, "l", 1);
            }
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let (metadata, manifest, _) = &*SAMPLES;
        let headed = [b"Obj\x01", bytes.as_slice()].concat();
        prop_assert!(entry::scan(&headed, manifest, metadata).is_err());
        prop_assert!(list::read(&bytes, "l", 1).is_err());
    }
}
