//! A table as a look needs it.

use std::sync::Arc;

use async_trait::async_trait;
use iceberg::io::FileIO;
use iceberg::spec::TableMetadata;

use super::{managed, view};
use crate::lake::iceberg::catalog::{Loaded, metadata_file};
use crate::lake::iceberg::manifest;
use crate::lake::iceberg::store::Store;
use crate::lake::iceberg::store::counted::{Meter, counted};
use crate::lake::{Commit, Control, Error, NotLanded, Proof, Result, Table, Written};
use crate::model::file::{Entry, ManifestRef};
use crate::model::ident::TableName;
use crate::model::outcome::{Outcome, Resolution};
use crate::model::partition::PartitionKey;
use crate::model::plan::{AttemptId, Plan, ScopeFiles};
use crate::model::requests::Requests;
use crate::model::table::TableView;

/// A table's view, manifest lists and manifests. Its metadata is not whole, so
/// it is kept here and no commit can be based on it.
pub struct Glance {
    view: TableView,
    slim: Arc<TableMetadata>,
    io: FileIO,
    meter: Arc<Meter>,
    /// Why the service behind its catalog may compact it.
    service: Option<String>,
}

impl Glance {
    /// Reads the metadata file that a catalog points at.
    ///
    /// # Errors
    /// Those of the store, and refusals of what cannot be read.
    pub async fn read(io: &FileIO, name: &TableName, location: String, reference: &str) -> Result<Self> {
        let (io, meter) = counted(io);
        let bytes = Store::new(&io).read(&location).await?;
        let slim = metadata_file::decode_slim(&bytes, &location)?;
        Ok(Self { view: view(&slim, name, &location, reference), slim: Arc::new(slim), io, meter, service: None })
    }

    /// Of metadata that came with the catalog's answer, as
    /// `metadata_file::decode_slim` reads it.
    pub fn of_slim(slim: TableMetadata, io: &FileIO, name: &TableName, location: &str, reference: &str) -> Self {
        let (io, meter) = counted(io);
        Self { view: view(&slim, name, location, reference), slim: Arc::new(slim), io, meter, service: None }
    }

    /// The same under a catalog whose service may compact it, for this reason.
    pub fn under(mut self, service: Option<&str>) -> Self {
        let refused = managed(&self.view, service);
        self.view.refused.extend(refused);
        self.service = service.map(str::to_owned);
        self
    }

    /// Of a table that is loaded whole.
    pub fn of(loaded: &Loaded, reference: &str) -> Self {
        let slim = Arc::clone(&loaded.metadata);
        let (io, meter) = counted(&loaded.io);
        Self { view: view(&slim, &loaded.name, &loaded.metadata_location, reference), slim, io, meter, service: None }
    }
}

fn not_loaded<T>() -> Result<T> {
    Err(Error::Setup("the table was loaded for a look only".into()))
}

#[async_trait]
impl Table for Glance {
    fn view(&self) -> &TableView {
        &self.view
    }

    fn on(&self, branch: &str) -> Option<Arc<dyn Table>> {
        let (slim, io, meter) = (Arc::clone(&self.slim), self.io.clone(), Arc::clone(&self.meter));
        let view = view(&slim, &self.view.name, &self.view.metadata_location, branch);
        Some(Arc::new(Self { view, slim, io, meter, service: None }.under(self.service.as_deref())))
    }

    async fn manifests(&self, snapshot_id: i64) -> Result<Vec<ManifestRef>> {
        manifest::list_of(&self.slim, &self.io, &self.view.metadata_location, snapshot_id).await
    }

    async fn entries(&self, manifest: &ManifestRef) -> Result<Vec<Entry>> {
        manifest::entries_of(&self.slim, &self.io, manifest).await
    }

    async fn scope(&self, _: &PartitionKey) -> Result<ScopeFiles> {
        not_loaded()
    }

    async fn rewrite(&self, _: &Plan, _: &AttemptId, _: &dyn Control) -> Result<Written> {
        not_loaded()
    }

    async fn verify(&self, _: &Plan, _: &Written) -> Result<Proof> {
        not_loaded()
    }

    async fn commit(&self, _: &Plan, _: &Written, _: &Commit<'_>) -> Result<Outcome> {
        not_loaded()
    }

    fn requests(&self) -> Requests {
        self.meter.requests()
    }

    fn find_attempt(&self, _: &AttemptId, _: &str) -> Resolution {
        Resolution::Open { reason: "the table was loaded for a look only".into() }
    }

    async fn undo(&self, _: i64, _: &Commit<'_>) -> Result<Outcome> {
        not_loaded()
    }

    async fn remove_outputs(&self, _: &NotLanded, _: &[String]) -> Result<()> {
        not_loaded()
    }
}
