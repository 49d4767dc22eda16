//! Catalogs and stores, against real ones.

mod memory;
mod postgres;
mod promises;
mod pyiceberg;
mod rest;
mod s3;
mod sqlite;

use std::sync::{Arc, Mutex};

use afterwrite::lake::clock::{Chance, SystemChance};
use afterwrite::lake::iceberg::catalog::Loaded;
use afterwrite::lake::{Control, Result};
use afterwrite::model::ident::TableName;
use afterwrite::model::killpoint::KillPoint;
use async_trait::async_trait;
use iceberg::spec::{
    NestedField, Operation, PrimitiveType, Schema, Snapshot, SnapshotReference, SnapshotRetention, Summary, TableMetadata,
    TableMetadataBuilder, Type,
};
use iceberg::{TableCreation, TableRequirement, TableUpdate};

/// A control that writes down what it is told.
#[derive(Default)]
struct Recorder(Mutex<Vec<String>>);

impl Recorder {
    fn told(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    fn note(&self, line: String) {
        self.0.lock().unwrap().push(line);
    }
}

#[async_trait]
impl Control for Recorder {
    async fn will_write(&self, path: &str) -> Result<()> {
        self.note(format!("write {path}"));
        Ok(())
    }

    async fn will_commit(&self, asserted: &str) -> Result<()> {
        self.note(format!("commit {asserted}"));
        Ok(())
    }

    fn check(&self) -> Result<()> {
        Ok(())
    }

    fn progress(&self, _rows: u64, _bytes: u64) {}

    fn reached(&self, point: KillPoint) {
        self.note(format!("reached {point}"));
    }
}

/// A service that a test needs: its address, or a skip. Where the service is
/// required, a missing address is a failure.
fn service(variable: &str, name: &str) -> Option<String> {
    if let Ok(address) = std::env::var(variable) {
        return Some(address);
    }
    let required = std::env::var("AFTERWRITE_TEST_REQUIRE").unwrap_or_default();
    assert!(!required.split(',').any(|r| r == name), "{name} is required, but {variable} is not set");
    eprintln!("skipped: {variable} is not set");
    None
}

fn unique(prefix: &str) -> String {
    format!("{prefix}_{:016x}", SystemChance.next())
}

fn chance() -> Arc<dyn Chance> {
    Arc::new(SystemChance)
}

fn name(catalog: &str) -> TableName {
    TableName::new(catalog, "db.inner", "t")
}

fn metadata(location: &str, properties: &[(&str, &str)]) -> TableMetadata {
    let id = NestedField::required(1, "id", Type::Primitive(PrimitiveType::Int)).into();
    let creation = TableCreation::builder()
        .name("t".into())
        .location(location.into())
        .schema(Schema::builder().with_fields([id]).build().unwrap())
        .properties(properties.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())))
        .build();
    TableMetadataBuilder::from_table_creation(creation).unwrap().build().unwrap().metadata
}

fn same_table(base: &Loaded) -> Vec<TableRequirement> {
    vec![TableRequirement::UuidMatch { uuid: base.metadata.uuid() }]
}

/// An empty snapshot on the head of main, which must not have moved.
fn next_snapshot(base: &Loaded, id: i64) -> (Vec<TableRequirement>, Vec<TableUpdate>) {
    let head = base.metadata.snapshot_for_ref("main").map(|s| s.snapshot_id());
    let snapshot = Snapshot::builder()
        .with_snapshot_id(id)
        .with_parent_snapshot_id(head)
        .with_sequence_number(base.metadata.last_sequence_number() + 1)
        .with_timestamp_ms(base.metadata.last_updated_ms())
        .with_manifest_list(format!("{}/metadata/none-{id}.avro", base.metadata.location()))
        .with_summary(Summary { operation: Operation::Append, additional_properties: Default::default() })
        .build();
    let reference = SnapshotReference::new(id, SnapshotRetention::branch(None, None, None));
    let mut requirements = same_table(base);
    requirements.push(TableRequirement::RefSnapshotIdMatch { r#ref: "main".into(), snapshot_id: head });
    (requirements, vec![TableUpdate::AddSnapshot { snapshot }, TableUpdate::SetSnapshotRef { ref_name: "main".into(), reference }])
}

fn set(key: &str, value: &str) -> Vec<TableUpdate> {
    vec![TableUpdate::SetProperties { updates: [(key.to_owned(), value.to_owned())].into() }]
}
