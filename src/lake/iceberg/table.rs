//! One Iceberg table, loaded at one moment.

mod form;
pub mod glance;

use std::collections::BTreeMap;
use std::sync::Arc;

use iceberg::spec::{self, FormatVersion, PartitionSpec, Snapshot, TableMetadata, Transform};

use super::catalog::{Catalog, Loaded};
use super::manifest::{PartitionTypes, Unresolved};
use super::read::schema::arrow_schema;
use super::scope::named::Known;
use super::store::counted::{Meter, counted};
use crate::lake::Error;
use crate::model::ident::{MAIN, TableIdent, TableName};
use crate::model::plan::{ATTEMPT_KEY, INSTANCE_KEY};
use crate::model::refusal::{Refusal, Refused};
use crate::model::table::{Operation, SnapshotInfo, SpecInfo, TableView, engine};

/// A loaded table with the catalog it came from.
#[derive(Clone)]
pub struct IcebergTable {
    /// Metadata and file access.
    pub loaded: Loaded,
    /// The metadata, reduced.
    pub view: TableView,
    /// Where its commits go.
    pub catalog: Arc<dyn Catalog>,
    /// Counts what is asked of object stores through its file access.
    pub meter: Arc<Meter>,
    /// What its position deletes name, as far as they were read before.
    pub named: Arc<Known>,
}

impl IcebergTable {
    /// A table as loaded, seen from one branch.
    pub fn new(loaded: Loaded, reference: &str, catalog: Arc<dyn Catalog>) -> Self {
        let view = view_under(&loaded, reference, catalog.may_compact());
        let (io, meter) = counted(&loaded.io);
        if catalog.reads_metadata() {
            meter.was_read(&loaded.metadata_location);
        }
        Self { view, loaded: Loaded { io, ..loaded }, catalog, meter, named: Arc::default() }
    }

    /// The same load, seen from another branch.
    pub fn seen_from(&self, branch: &str) -> Self {
        Self { view: view_under(&self.loaded, branch, self.catalog.may_compact()), ..self.clone() }
    }

    /// The table as its catalog hands it out now; `None` when none has the name.
    ///
    /// # Errors
    /// Those of the catalog.
    pub async fn again(&self) -> crate::lake::Result<Option<Loaded>> {
        let loaded = self.catalog.load(&self.loaded.name).await?;
        if let Some(loaded) = loaded.as_ref().filter(|_| self.catalog.reads_metadata()) {
            self.meter.was_read(&loaded.metadata_location);
        }
        Ok(loaded)
    }

    /// The types of a spec's partition tuples.
    ///
    /// # Errors
    /// An `unresolved-spec` refusal: that spec's partitions are left alone, the
    /// table's others are not.
    pub fn partition_types(&self, spec_id: i32) -> Result<PartitionTypes, Refused> {
        let refuse = |why: Unresolved| Refused::new(Refusal::UnresolvedSpec, format!("{}: {why}", self.loaded.metadata_location));
        PartitionTypes::resolve(&self.loaded.metadata, spec_id).map_err(refuse)
    }
}

/// The view of a loaded table, whose catalog's service may compact it.
fn view_under(loaded: &Loaded, reference: &str, service: Option<&str>) -> TableView {
    let mut view = view(&loaded.metadata, &loaded.name, &loaded.metadata_location, reference);
    let refused = managed(&view, service);
    view.refused.extend(refused);
    view
}

/// A table's metadata, reduced.
///
/// What the metadata alone makes us refuse is a format version newer than 3, an initial
/// default before version 3, encryption, a branch that is not there, and a name that is a tag's. Not
/// `gc.enabled=false`: it forbids to remove files, and a rewrite removes none but
/// its own that never landed. Nor a spec whose types are not to be resolved: only
/// that spec is left alone, by [`IcebergTable::partition_types`].
fn view(metadata: &TableMetadata, name: &TableName, metadata_location: &str, reference: &str) -> TableView {
    let head = metadata.snapshot_for_ref(reference).map(|snapshot| snapshot.snapshot_id());
    TableView {
        ident: TableIdent::iceberg(metadata.uuid()),
        name: name.clone(),
        metadata_location: metadata_location.to_owned(),
        location: metadata.location().to_owned(),
        format_version: format_version(metadata),
        reference: reference.to_owned(),
        head,
        snapshots: metadata.snapshots().map(|s| (s.snapshot_id(), snapshot_info(s))).collect(),
        last_sequence_number: metadata.last_sequence_number(),
        specs: metadata.partition_specs_iter().map(|s| (s.spec_id(), Arc::new(spec_info(metadata, s)))).collect(),
        properties: metadata.properties().iter().map(|(k, v)| (k.clone(), v.clone())).collect::<BTreeMap<_, _>>(),
        created_ms: created_ms(metadata),
        refused: refusals(metadata, metadata_location, reference),
    }
}

fn format_version(metadata: &TableMetadata) -> u8 {
    match metadata.format_version() {
        FormatVersion::V1 => 1,
        FormatVersion::V2 => 2,
        FormatVersion::V3 => 3,
    }
}

fn snapshot_info(snapshot: &Snapshot) -> SnapshotInfo {
    let summary = snapshot.summary();
    SnapshotInfo {
        id: snapshot.snapshot_id(),
        parent: snapshot.parent_snapshot_id(),
        sequence_number: snapshot.sequence_number(),
        timestamp_ms: snapshot.timestamp_ms(),
        operation: match summary.operation {
            spec::Operation::Append => Operation::Append,
            spec::Operation::Overwrite => Operation::Overwrite,
            spec::Operation::Delete => Operation::Delete,
            spec::Operation::Replace => Operation::Replace,
        },
        attempt: summary.additional_properties.get(ATTEMPT_KEY).cloned(),
        instance: summary.additional_properties.get(INSTANCE_KEY).cloned(),
        engine: engine(|key| summary.additional_properties.get(key).map(String::as_str)),
    }
}

fn spec_info(metadata: &TableMetadata, spec: &PartitionSpec) -> SpecInfo {
    SpecInfo {
        id: spec.spec_id(),
        fields: spec.fields().iter().map(|field| field.name.clone()).collect(),
        forms: spec.fields().iter().map(|field| form::of(metadata, field)).collect(),
        unpartitioned: spec.fields().iter().all(|field| field.transform == Transform::Void),
    }
}

fn created_ms(metadata: &TableMetadata) -> i64 {
    let first = metadata.history().iter().map(|entry| entry.timestamp_ms()).min();
    first.unwrap_or_else(|| metadata.last_updated_ms())
}

fn refusals(metadata: &TableMetadata, at: &str, reference: &str) -> Vec<Refused> {
    let mut refused = Vec::new();
    let version = format_version(metadata);
    if version > NEWEST {
        refused.push(Refused::new(Refusal::FormatVersion, format!("{at}: format version {version}; 1 to {NEWEST} are handled")));
    }
    let defaults = metadata.schemas_iter().flat_map(|schema| schema.field_id_to_fields().values());
    if let Some(field) = defaults.filter(|field| field.initial_default.is_some()).find(|_| version < 3) {
        refused.push(Refused::new(
            Refusal::DefaultValue,
            format!("{at}: column {} has an initial default in format version {version}", field.name),
        ));
    }
    let keyed = metadata.snapshots().any(|snapshot| snapshot.encryption_key_id().is_some());
    if keyed || metadata.encryption_keys_iter().next().is_some() || metadata.properties().contains_key(ENCRYPTION_KEY) {
        refused.push(Refused::new(Refusal::Encrypted, format!("{at}: the metadata names encryption keys")));
    }
    let told_off = metadata.properties().get(MANAGED_KEY).is_some_and(|value| value == "off");
    if metadata.location().split('/').nth(2).is_some_and(|bucket| bucket.ends_with(TABLE_BUCKET)) && !told_off {
        let location = metadata.location();
        refused.push(Refused::new(Refusal::ManagedCompaction, format!("{location} lies in an S3 table bucket, which compacts its tables")));
    }
    match (reference == MAIN, metadata.snapshot_for_ref(reference)) {
        (true, _) => {}
        (false, None) => refused.push(Refused::new(Refusal::Branch, format!("{at}: there is no branch `{reference}`"))),
        (false, Some(_)) if is_tag(metadata, reference) => {
            refused.push(Refused::new(Refusal::Branch, format!("{at}: `{reference}` is a tag")));
        }
        (false, Some(_)) => {}
    }
    if let Err(Error::Refused(schema)) = arrow_schema(metadata.current_schema()) {
        refused.push(schema);
    }
    refused
}

/// The refusal of a table that the service behind its catalog may compact, unless its
/// owner says that the service leaves it alone.
fn managed(view: &TableView, service: Option<&str>) -> Option<Refused> {
    let told_off = view.properties.get(MANAGED_KEY).is_some_and(|value| value == "off");
    let is_known = view.refused.iter().any(|r| r.refusal == Refusal::ManagedCompaction);
    service.filter(|_| !told_off && !is_known).map(|why| Refused::new(Refusal::ManagedCompaction, why))
}

/// The crate keeps the kind of a reference to itself, but writes it.
fn is_tag(metadata: &TableMetadata, reference: &str) -> bool {
    let json = serde_json::to_value(metadata).unwrap_or_default();
    json.pointer("/refs").and_then(|refs| refs.get(reference)?.get("type")?.as_str()) == Some("tag")
}

/// The newest format version that is handled.
const NEWEST: u8 = 3;
/// How the buckets are called in which S3 Tables keeps its tables. It compacts them
/// unless told not to, by a setting that neither the protocol nor a property shows.
const TABLE_BUCKET: &str = "--table-s3";
/// The property of a table, or of a catalog of the settings, by which a user says that
/// the cloud was told.
pub(super) const MANAGED_KEY: &str = "afterwrite.managed-compaction";
/// The table property that turns encryption on.
const ENCRYPTION_KEY: &str = "encryption.key-id";

#[cfg(test)]
mod tests;
