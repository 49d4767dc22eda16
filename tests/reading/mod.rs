//! A table made by hand, file by file, for tests of the reader and the proof:
//! real Parquet, real manifests, and a plan joined by the naive rule.

mod laws;
mod migrated;
mod pages;
pub mod proving;
mod repacked;
pub mod value;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use afterwrite::lake::iceberg::catalog::{Answer, Catalog, Loaded};
use afterwrite::lake::iceberg::read::schema::arrow_schema;
use afterwrite::lake::iceberg::read::{self, ReadSummary};
use afterwrite::lake::iceberg::table::IcebergTable;
use afterwrite::lake::{Control, Error, Pointer, Result};
use afterwrite::model::file::{Content, FileKey};
use afterwrite::model::ident::{TableIdent, TableName};
use afterwrite::model::killpoint::KillPoint;
use afterwrite::model::partition::PartitionKey;
use afterwrite::model::plan::{Bound, LiveDelete, LiveFile, Plan};
use afterwrite::model::refusal::Refusal;
use afterwrite::model::table::TableView;
use arrow_array::RecordBatch;
use arrow_schema::{DataType, Field, Fields, Schema as ArrowSchema, SchemaRef};
use async_trait::async_trait;
use iceberg::io::FileIO;
use iceberg::spec::{
    DataContentType, DataFile, DataFileBuilder, DataFileFormat, Datum, FormatVersion, ManifestListWriter, ManifestWriterBuilder, Schema,
    TableMetadata,
};
use iceberg::{TableRequirement, TableUpdate};
use parquet::arrow::{ArrowWriter, PARQUET_FIELD_ID_META_KEY};
use parquet::file::properties::WriterProperties;
use serde_json::json;
use value::{Value, batch, rows};

pub const SNAPSHOT: i64 = 77;
pub const MIB: u64 = 1 << 20;

/// Lets everything pass and watches nothing.
pub struct Free;

#[async_trait]
impl Control for Free {
    async fn will_write(&self, _: &str) -> Result<()> {
        Ok(())
    }
    async fn will_commit(&self, _: &str) -> Result<()> {
        Ok(())
    }
    fn check(&self) -> Result<()> {
        Ok(())
    }
    fn progress(&self, _: u64, _: u64) {}
    fn reached(&self, _: KillPoint) {}
}

struct NoCatalog;

#[async_trait]
impl Catalog for NoCatalog {
    fn name(&self) -> &str {
        "none"
    }
    async fn list(&self) -> Result<Vec<Pointer>> {
        Ok(Vec::new())
    }
    async fn load(&self, _: &TableName) -> Result<Option<Loaded>> {
        Ok(None)
    }
    async fn commit(&self, _: &Loaded, _: Vec<TableRequirement>, _: Vec<TableUpdate>, _: &dyn Control) -> Result<Answer> {
        Ok(Answer::Moved)
    }
    async fn create(&self, _: &TableName, _: TableMetadata) -> Result<Loaded> {
        Err(Error::Setup("no catalog".into()))
    }
}

/// A file of the table with its data sequence number.
#[derive(Clone)]
pub struct Placed {
    pub file: DataFile,
    pub sequence: i64,
}

/// The table in the making.
pub struct Lake {
    dir: tempfile::TempDir,
    pub schemas: Vec<serde_json::Value>,
    pub specs: serde_json::Value,
    pub properties: BTreeMap<String, String>,
    pub scope: PartitionKey,
    pub data: Vec<Placed>,
    pub deletes: Vec<Placed>,
    pub memory: u64,
    files: usize,
}

impl Lake {
    /// A table whose current schema has these fields (Iceberg's JSON).
    pub fn new(fields: serde_json::Value) -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
            schemas: vec![json!({"type": "struct", "schema-id": 0, "fields": fields})],
            specs: json!([{"spec-id": 0, "fields": []}]),
            properties: BTreeMap::new(),
            scope: PartitionKey::unpartitioned(0),
            data: Vec::new(),
            deletes: Vec::new(),
            memory: 256 * MIB,
            files: 0,
        }
    }

    /// The usual table: `id long, v string`.
    pub fn id_v() -> Self {
        Self::new(json!([
            {"id": 1, "name": "id", "required": false, "type": "long"},
            {"id": 2, "name": "v", "required": false, "type": "string"},
        ]))
    }

    /// Adds a schema that is current from now on.
    pub fn evolve(&mut self, fields: serde_json::Value) {
        let id = self.schemas.len();
        self.schemas.push(json!({"type": "struct", "schema-id": id, "fields": fields}));
    }

    pub fn current(&self) -> Schema {
        serde_json::from_value(self.schemas.last().unwrap().clone()).unwrap()
    }

    pub fn arrow(&self) -> SchemaRef {
        arrow_schema(&self.current()).unwrap()
    }

    pub fn path(&mut self, kind: &str) -> String {
        self.files += 1;
        format!("file://{}/{kind}-{:03}.parquet", self.dir.path().display(), self.files)
    }

    pub fn io(&self) -> FileIO {
        FileIO::new_with_fs()
    }

    /// Appends a data file with rows in the current schema.
    pub fn append(&mut self, sequence: i64, values: &[Vec<Value>]) -> String {
        let rows = batch(&self.arrow(), values);
        self.append_batch(sequence, &rows, WriterProperties::builder().build())
    }

    /// Appends a data file with these rows, whatever their schema.
    pub fn append_batch(&mut self, sequence: i64, rows: &RecordBatch, properties: WriterProperties) -> String {
        let path = self.path("data");
        write(&path, rows, properties);
        let file = describe(&path, DataContentType::Data, &NullCounts::of(rows)).partition_spec_id(self.scope.spec_id).build().unwrap();
        self.data.push(Placed { file, sequence });
        path
    }

    /// Commits a position-delete file.
    pub fn delete_positions(&mut self, sequence: i64, positions: &[(&str, i64)]) -> String {
        self.delete_positions_with(sequence, positions, |file| file)
    }

    /// Commits a position-delete file whose manifest entry is changed first.
    pub fn delete_positions_with(
        &mut self,
        sequence: i64,
        positions: &[(&str, i64)],
        change: impl FnOnce(&mut DataFileBuilder) -> &mut DataFileBuilder,
    ) -> String {
        let schema = Arc::new(ArrowSchema::new(vec![
            field("file_path", DataType::Utf8, false, 2_147_483_546),
            field("pos", DataType::Int64, false, 2_147_483_545),
        ]));
        let values: Vec<Vec<Value>> = positions.iter().map(|(p, n)| vec![Value::Text((*p).into()), Value::Int(*n)]).collect();
        let path = self.path("pos");
        let rows = batch(&schema, &values);
        write(&path, &rows, WriterProperties::builder().build());
        let mut builder = describe(&path, DataContentType::PositionDeletes, &NullCounts::of(&rows));
        let file = change(&mut builder).build().unwrap();
        self.deletes.push(Placed { file, sequence });
        path
    }

    /// Commits an equality-delete file of these columns (by the Arrow fields).
    pub fn delete_keys(&mut self, sequence: i64, columns: Vec<Field>, keys: &[Vec<Value>]) -> String {
        let ids: Vec<i32> = columns.iter().map(|f| f.metadata()[PARQUET_FIELD_ID_META_KEY].parse().unwrap()).collect();
        self.delete_nested(sequence, columns, &ids, keys)
    }

    /// Commits an equality-delete file whose keys are these leaves of its columns.
    pub fn delete_nested(&mut self, sequence: i64, columns: Vec<Field>, ids: &[i32], keys: &[Vec<Value>]) -> String {
        let schema = Arc::new(ArrowSchema::new(columns));
        let path = self.path("eq");
        let rows = batch(&schema, keys);
        write(&path, &rows, WriterProperties::builder().build());
        let mut builder = describe(&path, DataContentType::EqualityDeletes, &NullCounts::of(&rows));
        let file = builder.equality_ids(Some(ids.to_vec())).build().unwrap();
        self.deletes.push(Placed { file, sequence });
        path
    }

    /// Commits an equality delete of `id` values of the usual table.
    pub fn delete_ids(&mut self, sequence: i64, ids: &[Option<i64>]) -> String {
        let keys: Vec<Vec<Value>> = ids.iter().map(|id| vec![id.map_or(Value::Null, Value::Int)]).collect();
        self.delete_keys(sequence, vec![field("id", DataType::Int64, true, 1)], &keys)
    }

    /// Writes the manifests and the metadata.
    pub async fn table(&self) -> IcebergTable {
        let io = self.io();
        let root = format!("file://{}", self.dir.path().display());
        let highest = self.data.iter().chain(&self.deletes).map(|p| p.sequence).max().unwrap_or(1);
        let specs = self.specs.as_array().unwrap();
        let list = format!("{root}/snap.avro");
        let draft = self.metadata(&root, &list, highest);
        let mut manifests = Vec::new();
        for (name, files) in [("data", &self.data), ("deletes", &self.deletes)] {
            if files.is_empty() {
                continue;
            }
            let output = io.new_output(format!("{root}/{name}.avro")).unwrap();
            let spec = draft.partition_spec_by_id(self.scope.spec_id).unwrap().as_ref().clone();
            let builder = ManifestWriterBuilder::new(output, Some(SNAPSHOT), draft.current_schema().clone(), spec);
            let mut writer = if name == "data" { builder.build_v2_data() } else { builder.build_v2_deletes() };
            for placed in files {
                writer.add_existing_file(placed.file.clone(), SNAPSHOT, placed.sequence, Some(placed.sequence)).unwrap();
            }
            manifests.push(writer.write_manifest_file().await.unwrap());
        }
        let output = io.new_output(&list).unwrap().writer().await.unwrap();
        let mut writer = ManifestListWriter::v2(output, SNAPSHOT, None, highest);
        writer.add_manifests(manifests.into_iter()).unwrap();
        writer.close().await.unwrap();
        assert!(!specs.is_empty());
        let metadata = Arc::new(draft);
        assert_eq!(metadata.format_version(), FormatVersion::V2);
        let loaded =
            Loaded { name: name(), metadata_location: format!("{root}/v1.metadata.json"), metadata: metadata.clone(), io, fence: None };
        IcebergTable { view: view(&metadata, &root), loaded, catalog: Arc::new(NoCatalog), meter: Arc::default(), named: Arc::default() }
    }

    fn metadata(&self, root: &str, list: &str, sequence: i64) -> TableMetadata {
        serde_json::from_value(json!({
            "format-version": 2,
            "table-uuid": "9c12d441-03fe-4693-9a96-a0705ddf69c1",
            "location": root,
            "last-sequence-number": sequence,
            "last-updated-ms": 1_700_000_000_000_i64,
            "last-column-id": 1000,
            "current-schema-id": self.schemas.len() - 1,
            "schemas": self.schemas,
            "default-spec-id": self.scope.spec_id,
            "partition-specs": self.specs,
            "last-partition-id": 1010,
            "default-sort-order-id": 0,
            "sort-orders": [{"order-id": 0, "fields": []}],
            "properties": self.properties,
            "current-snapshot-id": SNAPSHOT,
            "snapshots": [{
                "snapshot-id": SNAPSHOT,
                "sequence-number": sequence,
                "timestamp-ms": 1_700_000_000_000_i64,
                "manifest-list": list,
                "summary": {"operation": "append"},
                "schema-id": self.schemas.len() - 1,
            }],
            "refs": {"main": {"snapshot-id": SNAPSHOT, "type": "branch"}},
        }))
        .unwrap()
    }

    /// A plan over all files, deletes joined by sequence alone: the table is of
    /// one partition.
    pub fn plan(&self) -> Plan {
        let mut deletes: Vec<LiveDelete> = self.deletes.iter().map(live_delete).collect();
        deletes.sort_by(|a, b| a.key.cmp(&b.key));
        let mut inputs: Vec<LiveFile> = self.data.iter().map(|placed| live_file(placed, &deletes)).collect();
        inputs.sort_by(|a, b| a.path.cmp(&b.path));
        let applied: Vec<&FileKey> = inputs.iter().flat_map(|f| &f.deletes).collect();
        let deletes = deletes.iter().filter(|d| applied.contains(&&d.key)).cloned().collect();
        Plan {
            table: TableIdent::iceberg("9c12d441-03fe-4693-9a96-a0705ddf69c1".parse().unwrap()),
            name: name(),
            reference: "main".into(),
            snapshot_id: SNAPSHOT,
            sequence_number: 9,
            scope: self.scope.clone(),
            reason: "request".into(),
            inputs,
            deletes,
            target_file_size: 512 * MIB,
            bound: Bound { gb_hours: 1.0, millis: 60_000, memory: self.memory },
        }
    }

    /// Reads the table's live rows.
    pub async fn read(&self) -> Result<(Vec<RecordBatch>, ReadSummary)> {
        let table = self.table().await;
        read_plan(&table, &self.plan()).await
    }

    /// Reads the table's live rows as values.
    pub async fn values(&self) -> Vec<Vec<Value>> {
        let (batches, _) = self.read().await.unwrap();
        batches.iter().flat_map(rows).collect()
    }

    /// The refusal with which reading ends.
    pub async fn refusal(&self) -> (Refusal, String) {
        match self.read().await {
            Err(Error::Refused(refused)) => (refused.refusal, refused.detail),
            Err(other) => panic!("{other}"),
            Ok((batches, _)) => panic!("read {batches:?}"),
        }
    }
}

/// Reads a plan's live rows.
pub async fn read_plan(table: &IcebergTable, plan: &Plan) -> Result<(Vec<RecordBatch>, ReadSummary)> {
    let mut source = read::open(table, plan, &Free).await?;
    let schema = source.schema();
    let mut batches = Vec::new();
    while let Some(rows) = source.next().await? {
        assert_eq!(rows.schema(), schema);
        assert!(rows.num_rows() > 0);
        batches.push(rows);
    }
    Ok((batches, source.finish()))
}

/// NULLs by field id of the top-level columns.
pub struct NullCounts(pub HashMap<i32, u64>, pub u64);

impl NullCounts {
    pub fn of(rows: &RecordBatch) -> Self {
        let schema = rows.schema();
        let ids = schema.fields().iter().map(|f| f.metadata().get(PARQUET_FIELD_ID_META_KEY).and_then(|id| id.parse::<i32>().ok()));
        let nested = schema.fields().iter().map(|f| f.data_type().is_nested());
        let counts = ids.zip(nested).zip(rows.columns()).filter(|((id, nested), _)| id.is_some() && !nested);
        let counts = counts.map(|((id, _), c)| (id.unwrap(), c.logical_null_count() as u64)).collect();
        Self(counts, rows.num_rows() as u64)
    }
}

/// A description of a file as it lies in the store.
pub fn describe(path: &str, content: DataContentType, counts: &NullCounts) -> DataFileBuilder {
    let bytes = std::fs::metadata(path.trim_start_matches("file://")).unwrap().len();
    let mut builder = DataFileBuilder::default();
    builder
        .content(content)
        .file_path(path.to_owned())
        .file_format(DataFileFormat::Parquet)
        .record_count(counts.1)
        .file_size_in_bytes(bytes)
        .null_value_counts(counts.0.clone())
        .partition_spec_id(0);
    builder
}

/// Writes rows as a Parquet file.
pub fn write(path: &str, rows: &RecordBatch, properties: WriterProperties) {
    let file = std::fs::File::create(path.trim_start_matches("file://")).unwrap();
    let mut writer = ArrowWriter::try_new(file, rows.schema(), Some(properties)).unwrap();
    writer.write(rows).unwrap();
    writer.close().unwrap();
}

/// An Arrow field with a field id.
pub fn field(name: &str, data_type: DataType, nullable: bool, id: i32) -> Field {
    Field::new(name, data_type, nullable).with_metadata(HashMap::from([(PARQUET_FIELD_ID_META_KEY.to_owned(), id.to_string())]))
}

/// The fields of a struct.
pub fn fields(list: Vec<Field>) -> Fields {
    list.into()
}

/// Path bounds of a position-delete file's manifest entry.
pub fn path_bounds(lower: &str, upper: &str) -> (HashMap<i32, Datum>, HashMap<i32, Datum>) {
    (HashMap::from([(2_147_483_546, Datum::string(lower))]), HashMap::from([(2_147_483_546, Datum::string(upper))]))
}

fn name() -> TableName {
    TableName::new("lake", "db", "t")
}

fn live_delete(placed: &Placed) -> LiveDelete {
    let content = match placed.file.content_type() {
        DataContentType::EqualityDeletes => Content::EqualityDeletes,
        _ => Content::PositionDeletes,
    };
    LiveDelete {
        key: FileKey { path: placed.file.file_path().into(), offset: None },
        content,
        bytes: placed.file.file_size_in_bytes(),
        records: placed.file.record_count(),
        data_sequence: placed.sequence,
    }
}

fn live_file(placed: &Placed, deletes: &[LiveDelete]) -> LiveFile {
    let reaches = |d: &&LiveDelete| match d.content {
        Content::EqualityDeletes => d.data_sequence > placed.sequence,
        _ => d.data_sequence >= placed.sequence,
    };
    LiveFile {
        path: placed.file.file_path().into(),
        bytes: placed.file.file_size_in_bytes(),
        records: placed.file.record_count(),
        data_sequence: placed.sequence,
        sort_order_id: None,
        first_row_id: None,
        deletes: deletes.iter().filter(reaches).map(|d| d.key.clone()).collect(),
    }
}

fn view(metadata: &TableMetadata, root: &str) -> TableView {
    TableView {
        ident: TableIdent::iceberg(metadata.uuid()),
        name: name(),
        metadata_location: format!("{root}/v1.metadata.json"),
        location: root.into(),
        format_version: 2,
        reference: "main".into(),
        head: Some(SNAPSHOT),
        snapshots: BTreeMap::new(),
        last_sequence_number: metadata.last_sequence_number(),
        specs: BTreeMap::new(),
        properties: BTreeMap::new(),
        created_ms: 0,
        refused: Vec::new(),
    }
}
