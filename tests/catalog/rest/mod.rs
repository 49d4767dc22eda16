//! The REST catalog client: against a server in this process that answers wrongly
//! when told to, and against Iceberg's own handlers.

mod commits;
mod java;
mod reads;
mod stores;

use std::collections::BTreeMap;
use std::sync::Arc;

use afterwrite::lake::clock::{SystemChance, SystemClock};
use afterwrite::lake::iceberg::catalog::rest::{Options, RestCatalog};
use afterwrite::lake::iceberg::table::IcebergTable;

use crate::fixture::Table;
use crate::fixture::rest::RestServer;

/// A client of the catalog at this address.
pub fn client(uri: &str, properties: &[(&str, &str)]) -> RestCatalog {
    let properties: BTreeMap<String, String> = properties.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    let options = Options { name: "lake".into(), uri: uri.into(), properties, ..Options::default() };
    RestCatalog::open(options, Arc::new(SystemClock), Arc::new(SystemChance)).unwrap()
}

/// A table behind a server and a client of it.
struct World {
    table: Table,
    server: RestServer,
    client: Arc<RestCatalog>,
}

impl World {
    async fn new() -> Self {
        Self::with(&[]).await
    }

    /// With a short patience and these properties.
    async fn with(properties: &[(&str, &str)]) -> Self {
        Self::of(Table::plain().on_disk().create().await, properties).await
    }

    async fn of(table: Table, properties: &[(&str, &str)]) -> Self {
        let server = RestServer::start(Arc::clone(&table.port)).await;
        let properties = [&[("rest.client.socket-timeout-ms", "2000")], properties].concat();
        let client = Arc::new(client(&server.url, &properties));
        Self { table, server, client }
    }

    /// The table as the client loads it.
    async fn load(&self) -> IcebergTable {
        use afterwrite::lake::iceberg::catalog::Catalog as _;
        let loaded = self.client.load(&self.table.name).await.unwrap().unwrap();
        IcebergTable::new(loaded, "main", Arc::clone(&self.client) as _)
    }
}
