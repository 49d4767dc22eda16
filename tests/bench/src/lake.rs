//! Tables of metadata alone, written with the reference crate's writers: manifests,
//! lists and metadata files as an engine leaves them, and no data file.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use afterwrite::lake::Format;
use afterwrite::lake::iceberg::catalog::Catalog;
use afterwrite::lake::iceberg::catalog::memory::MemoryCatalog;
use afterwrite::lake::iceberg::lake::Lake;
use afterwrite::lake::iceberg::store::file_io;
use afterwrite::model::ident::TableName;
use iceberg::io::FileIO;
use iceberg::spec::{
    DataContentType, DataFile, DataFileBuilder, DataFileFormat, Datum, Literal, ManifestFile, ManifestListWriter, ManifestWriterBuilder,
    NestedField, PartitionSpec, PrimitiveType, Schema, SchemaRef, Struct, Transform, Type,
};
use serde_json::{Value, json};

/// Entries of one manifest, at most.
pub const ENTRIES: usize = 8_000;
/// Snapshots that a table keeps.
pub const SNAPSHOTS: usize = 100;
/// Files of one partition.
const PER_PARTITION: usize = 100;
/// Columns with statistics.
const COLUMNS: i32 = 12;

/// A table that grows by commits which nobody wrote data for.
pub struct Grown {
    /// Its name.
    pub name: TableName,
    io: FileIO,
    catalog: MemoryCatalog,
    location: String,
    schema: SchemaRef,
    spec: PartitionSpec,
    uuid: uuid::Uuid,
    manifests: Vec<ManifestFile>,
    snapshots: Vec<Value>,
    sequence: i64,
    files: usize,
}

/// Tables in one folder, behind one catalog.
pub struct Place {
    catalog: MemoryCatalog,
    location: String,
    /// What a look loads them from.
    pub lake: Arc<dyn Format>,
}

impl Place {
    /// In a folder of the local disk.
    pub fn on_disk(folder: &Path) -> Self {
        Self::at(format!("file://{}", folder.display()))
    }

    /// In memory.
    pub fn in_memory() -> Self {
        Self::at("memory://bench".into())
    }

    fn at(location: String) -> Self {
        let catalog = MemoryCatalog::new("lake", file_io(&BTreeMap::new()));
        let port: Arc<dyn Catalog> = Arc::new(catalog.clone());
        Self { catalog, location, lake: Arc::new(Lake::new([port])) }
    }

    /// A table of `files` files, committed in as many snapshots as are kept.
    pub async fn table(&self, name: &str, files: usize) -> anyhow::Result<Grown> {
        let columns = (1..=COLUMNS).map(|id| NestedField::optional(id, format!("c{id}"), Type::Primitive(PrimitiveType::Long)).into());
        let schema: SchemaRef = Arc::new(Schema::builder().with_fields(columns).build()?);
        let spec = PartitionSpec::builder(schema.clone()).with_spec_id(0).add_partition_field("c1", "p", Transform::Identity)?.build()?;
        let mut table = Grown {
            name: TableName::new("lake", "db", name),
            io: self.catalog.io().clone(),
            catalog: self.catalog.clone(),
            location: format!("{}/{name}", self.location),
            schema,
            spec,
            uuid: uuid::Uuid::new_v4(),
            manifests: Vec::new(),
            snapshots: Vec::new(),
            sequence: 0,
            files: 0,
        };
        let each = files.div_ceil(SNAPSHOTS);
        while table.files < files {
            let last = files - table.files <= each;
            table.commit(each.min(files - table.files), last).await?;
        }
        Ok(table)
    }
}

impl Grown {
    /// Appends so many files. Where it is not `seen`, no reader comes before the
    /// next commit, and the list and the metadata file are left out.
    pub async fn commit(&mut self, count: usize, seen: bool) -> anyhow::Result<()> {
        self.sequence += 1;
        let id = self.sequence + 1_000_000;
        let mut left = count;
        while left > 0 {
            let entries = left.min(ENTRIES);
            let mut manifest = self.manifest(id, entries).await?;
            // as a later list has it
            (manifest.sequence_number, manifest.min_sequence_number) = (self.sequence, self.sequence);
            self.manifests.push(manifest);
            left -= entries;
        }
        let list = format!("{}/metadata/snap-{id}.avro", self.location);
        let parent = (self.sequence > 1).then_some(id - 1);
        // what an engine writes about a commit
        let told: Vec<String> = (0..16).map(|n| format!("some-figure-of-the-engine-{n}")).collect();
        let mut summary: serde_json::Map<String, Value> = told.into_iter().map(|key| (key, json!("123456789"))).collect();
        summary.insert("operation".into(), json!("append"));
        self.snapshots.push(json!({
            "snapshot-id": id, "parent-snapshot-id": parent, "sequence-number": self.sequence, "timestamp-ms": 1_750_000_000_000_i64 + id,
            "manifest-list": list, "summary": summary, "schema-id": 0
        }));
        if self.snapshots.len() > SNAPSHOTS {
            self.snapshots.remove(0);
        }
        if seen { self.publish(id, parent, &list).await } else { Ok(()) }
    }

    async fn publish(&mut self, id: i64, parent: Option<i64>, list: &str) -> anyhow::Result<()> {
        let mut writer = ManifestListWriter::v2(self.io.new_output(list)?.writer().await?, id, parent, self.sequence);
        writer.add_manifests(self.manifests.iter().cloned())?;
        writer.close().await?;
        let path = format!("{}/metadata/v{}.metadata.json", self.location, self.sequence);
        self.io.new_output(&path)?.write(serde_json::to_vec(&self.metadata(id)?)?.into()).await?;
        self.catalog.register(&self.name, &path);
        Ok(())
    }

    fn metadata(&self, head: i64) -> anyhow::Result<Value> {
        let log: Vec<Value> =
            self.snapshots.iter().map(|s| json!({"snapshot-id": s["snapshot-id"], "timestamp-ms": s["timestamp-ms"]})).collect();
        Ok(json!({
            "format-version": 2, "table-uuid": self.uuid, "location": self.location, "last-sequence-number": self.sequence,
            "last-updated-ms": 1_750_000_000_000_i64 + head, "last-column-id": COLUMNS, "current-schema-id": 0,
            "schemas": [serde_json::to_value(self.schema.as_ref())?], "default-spec-id": 0,
            "partition-specs": [serde_json::to_value(&self.spec)?], "last-partition-id": 1000, "default-sort-order-id": 0,
            "sort-orders": [{"order-id": 0, "fields": []}], "properties": {}, "current-snapshot-id": head,
            "refs": {"main": {"snapshot-id": head, "type": "branch"}}, "snapshots": self.snapshots, "snapshot-log": log, "metadata-log": []
        }))
    }

    async fn manifest(&mut self, id: i64, entries: usize) -> anyhow::Result<ManifestFile> {
        let path = format!("{}/metadata/{id}-m{}.avro", self.location, self.manifests.len());
        let output = self.io.new_output(&path)?;
        let mut writer = ManifestWriterBuilder::new(output, Some(id), self.schema.clone(), self.spec.clone()).build_v2_data();
        for _ in 0..entries {
            writer.add_file(self.file()?, -1)?;
        }
        Ok(writer.write_manifest_file().await?)
    }

    /// The next file: what a writer says of a small one, with all statistics.
    fn file(&mut self) -> anyhow::Result<DataFile> {
        let n = self.files;
        self.files += 1;
        let partition = (n / PER_PARTITION) as i64;
        let each = |value: u64| (1..=COLUMNS).map(move |column| (column, value)).collect();
        let bounds = |value: i64| (1..=COLUMNS).map(move |column| (column, Datum::long(value))).collect();
        let mut builder = DataFileBuilder::default();
        builder
            .content(DataContentType::Data)
            .file_path(format!("{}/data/p={partition}/{n:012}-0b5e3b4a-9a3d-4d0e-8c4f-000000000000.parquet", self.location))
            .file_format(DataFileFormat::Parquet)
            .partition_spec_id(0)
            .partition(Struct::from_iter([Some(Literal::long(partition))]))
            .record_count(1_000 + n as u64 % 97)
            .file_size_in_bytes(1_000_000 + n as u64 % 1_009)
            .column_sizes(each(80_000))
            .value_counts(each(1_000))
            .null_value_counts(each(0))
            .lower_bounds(bounds(n as i64))
            .upper_bounds(bounds(n as i64 + 1_000));
        Ok(builder.build()?)
    }
}
