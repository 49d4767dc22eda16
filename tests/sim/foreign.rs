//! The catalog as foreign writers reach it, where nothing goes wrong.

use std::sync::Arc;

use afterwrite::lake::clock::Clock;
use afterwrite::lake::iceberg::catalog::{Answer, Catalog, Loaded};
use afterwrite::lake::{Control, Error, Pointer, Result};
use afterwrite::model::ident::TableName;
use async_trait::async_trait;
use iceberg::io::FileIO;
use iceberg::spec::TableMetadata;
use iceberg::{TableRequirement, TableUpdate};

use super::catalog::Backend;

/// The catalog as foreign writers reach it.
pub struct Foreign {
    pub backend: Arc<Backend>,
    pub io: FileIO,
}

#[async_trait]
impl Catalog for Foreign {
    fn name(&self) -> &str {
        "lake"
    }

    async fn list(&self) -> Result<Vec<Pointer>> {
        Ok(self.backend.list())
    }

    async fn load(&self, name: &TableName) -> Result<Option<Loaded>> {
        Ok(self.backend.loaded(name, &self.io))
    }

    async fn commit(&self, base: &Loaded, _: Vec<TableRequirement>, updates: Vec<TableUpdate>, _: &dyn Control) -> Result<Answer> {
        let metadata = self.backend.built(&base.metadata, &base.metadata_location, updates).map_err(Error::Setup)?;
        let location = self.backend.next_location(&metadata, Some(&base.metadata_location));
        self.backend.objects.put(&location, serde_json::to_vec(&metadata).unwrap().into());
        self.backend.remember(&location, metadata);
        self.backend.point(&base.name, &location);
        Ok(Answer::Landed(location))
    }

    async fn create(&self, name: &TableName, metadata: TableMetadata) -> Result<Loaded> {
        let mut value = serde_json::to_value(&metadata).unwrap();
        let id = u128::from(self.backend.random()) << 64 | u128::from(self.backend.random());
        value["table-uuid"] = uuid::Builder::from_random_bytes(id.to_be_bytes()).into_uuid().to_string().into();
        value["last-updated-ms"] = self.backend.clock.now_ms().into();
        let metadata: TableMetadata = serde_json::from_value(value).unwrap();
        let location = self.backend.next_location(&metadata, None);
        self.backend.objects.put(&location, serde_json::to_vec(&metadata).unwrap().into());
        self.backend.point(name, &location);
        Ok(self.backend.loaded(name, &self.io).unwrap())
    }
}
