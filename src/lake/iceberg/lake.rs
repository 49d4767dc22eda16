//! All Iceberg tables, over every configured catalog.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::catalog::Catalog;
use super::scope::named::Known;
use super::table::IcebergTable;
use crate::lake::{Error, Pointer, Result};
use crate::model::ident::TableName;

/// The configured catalogs, by name.
#[derive(Clone, Default)]
pub struct Lake {
    catalogs: BTreeMap<String, Arc<dyn Catalog>>,
    named: Arc<Known>,
}

impl Lake {
    /// Over these catalogs, each under its own name.
    pub fn new(catalogs: impl IntoIterator<Item = Arc<dyn Catalog>>) -> Self {
        let catalogs = catalogs.into_iter().map(|catalog| (catalog.name().to_owned(), catalog)).collect();
        Self { catalogs, named: Arc::default() }
    }

    /// A catalog by its configured name.
    ///
    /// # Errors
    /// [`Error::Setup`] that lists the known names.
    pub fn catalog(&self, name: &str) -> Result<&Arc<dyn Catalog>> {
        self.catalogs.get(name).ok_or_else(|| {
            let known: Vec<&str> = self.catalogs.keys().map(String::as_str).collect();
            let known = if known.is_empty() { "none is configured".into() } else { format!("known: {}", known.join(", ")) };
            Error::Setup(format!("no catalog is called `{name}`; {known}"))
        })
    }

    /// The names of the configured catalogs.
    pub fn names(&self) -> Vec<String> {
        self.catalogs.keys().cloned().collect()
    }

    /// Every table of a catalog with its pointer.
    ///
    /// # Errors
    /// Those of [`Lake::catalog`] and of the catalog.
    pub async fn pointers(&self, catalog: &str) -> Result<Vec<Pointer>> {
        self.catalog(catalog)?.list().await
    }

    /// Loads a table fresh from its catalog. `None` when no table has the name.
    ///
    /// # Errors
    /// Those of [`Lake::catalog`] and of the catalog.
    pub async fn table(&self, name: &TableName, reference: &str) -> Result<Option<IcebergTable>> {
        let catalog = self.catalog(&name.catalog)?;
        let loaded = catalog.load(name).await?;
        let named = &self.named;
        Ok(loaded.map(|loaded| IcebergTable { named: Arc::clone(named), ..IcebergTable::new(loaded, reference, catalog.clone()) }))
    }
}
