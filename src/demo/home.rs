//! The demo's folder: catalog, warehouse and journal.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;

use super::generate;
use super::tables::{CATALOG, SIDES, TABLES, name};
use crate::lake::clock::{Chance, SystemChance};
use crate::lake::iceberg::append::{Definition, create};
use crate::lake::iceberg::catalog::Catalog;
use crate::lake::iceberg::catalog::sql::{Options, SqlCatalog};
use crate::model::ident::MAIN;
use crate::settings::{self, CatalogKind, Settings};

/// The folder, by its absolute path.
#[derive(Clone, Debug)]
pub struct Home {
    folder: String,
}

impl Home {
    /// Makes the folder; a new one among the system's temporary ones when none is named.
    ///
    /// # Errors
    /// When it holds anything, or cannot be made.
    pub fn prepare(dir: Option<&Path>) -> anyhow::Result<Self> {
        let folder = match dir {
            Some(dir) => dir.to_owned(),
            None => std::env::temp_dir().join(format!("afterwrite-demo-{:08x}", SystemChance.next() as u32)),
        };
        let shown = folder.display();
        std::fs::create_dir_all(&folder).with_context(|| format!("cannot make the folder {shown}"))?;
        let used = std::fs::read_dir(&folder).with_context(|| format!("cannot read the folder {shown}"))?.next().is_some();
        anyhow::ensure!(!used, "the folder {shown} is not empty: name another one with --dir");
        let absolute: PathBuf = folder.canonicalize().with_context(|| format!("cannot find the folder {shown}"))?;
        let folder = absolute.into_os_string().into_string().ok();
        Ok(Self { folder: folder.context("the path of the folder is not UTF-8: name another one with --dir")? })
    }

    /// The folder's absolute path.
    pub fn folder(&self) -> &str {
        &self.folder
    }

    /// The catalog's database.
    pub fn database(&self) -> String {
        format!("{}/catalog.db", self.folder)
    }

    /// The warehouse, as a URI.
    pub fn warehouse(&self) -> String {
        format!("file://{}/warehouse", self.folder)
    }

    /// The catalog's database, as a URI.
    pub fn uri(&self) -> String {
        format!("sqlite://{}", self.database())
    }

    /// The settings of the sidecar: everything else is said by the tables' properties.
    ///
    /// # Errors
    /// Never, as long as the defaults are valid.
    pub fn settings(&self) -> anyhow::Result<Settings> {
        let mut settings = Settings::read("", [])?;
        let catalog = settings::Catalog {
            kind: CatalogKind::Sql,
            uri: self.uri(),
            warehouse: self.warehouse(),
            properties: Default::default(),
            refs: vec![MAIN.to_owned()],
            proxy: None,
        };
        settings.catalogs.insert(CATALOG.to_owned(), catalog);
        settings.journal.path = format!("{}/journal.db", self.folder).into();
        Ok(settings)
    }

    /// Creates the catalog and its empty tables.
    ///
    /// # Errors
    /// When the catalog or the warehouse cannot be written.
    pub async fn create_tables(&self, scale: f64) -> anyhow::Result<()> {
        let options = Options {
            name: CATALOG.to_owned(),
            uri: self.uri(),
            warehouse: Some(self.warehouse()),
            properties: Default::default(),
            create_if_missing: true,
        };
        let catalog = SqlCatalog::open(options, Arc::new(SystemChance)).await?;
        let columns = generate::columns()?;
        for side in SIDES {
            for table in TABLES {
                let name = name(side, table.name);
                let definition = Definition {
                    location: catalog.default_location(&name).context("the catalog has no warehouse")?,
                    columns: (table.rows)(&columns).schema_ref(),
                    month_of: table.month_of,
                    properties: table.properties(side, scale),
                };
                create(&catalog as &dyn Catalog, &name, definition).await?;
            }
        }
        Ok(())
    }
}
