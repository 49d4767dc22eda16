//! SQL catalogs: SQLite and PostgreSQL, with the tables of Iceberg Java's
//! `JdbcCatalog` and PyIceberg's `SqlCatalog`, so that engines and this product
//! share one catalog.
//!
//! The pointer is a row of `iceberg_tables`; a commit is one conditional `UPDATE`
//! of it. The modules `postgres` and `sqlite` say what each answer proves.

mod database;
mod postgres;
mod sqlite;
mod uri;

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use iceberg::io::FileIO;
use iceberg::spec::TableMetadata;
use iceberg::{TableRequirement, TableUpdate};

use super::stage::{Staged, stage};
use super::{Answer, Catalog, Loaded, metadata_file};
use crate::lake::clock::Chance;
use crate::lake::iceberg::store::{self, Store};
use crate::lake::iceberg::table::glance::Glance;
use crate::lake::{Control, Error, Glanced, Pointer, Result};
use crate::model::ident::TableName;
use database::Database;

/// How to reach a SQL catalog.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The name by which engines know the catalog, and its rows carry.
    pub name: String,
    /// `sqlite:///absolute/path`, `sqlite:relative/path`, `postgres://…` or
    /// `postgresql://…`. The prefix `jdbc:` and a driver such as `+psycopg2` are
    /// passed over.
    pub uri: String,
    /// Where new tables lie by default.
    pub warehouse: Option<String>,
    /// The stores' properties, by their Iceberg names.
    pub properties: BTreeMap<String, String>,
    /// Whether a SQLite file that is not there is made.
    pub create_if_missing: bool,
}

/// A catalog in a SQL database.
pub struct SqlCatalog {
    name: String,
    warehouse: Option<String>,
    database: Database,
    io: FileIO,
    chance: Arc<dyn Chance>,
}

/// The row that a swap asserts, and what it becomes.
struct Swap<'a> {
    catalog: &'a str,
    name: &'a TableName,
    from: &'a str,
    /// What the row holds as its previous location.
    before: Option<&'a str>,
    to: &'a str,
}

impl SqlCatalog {
    /// Prepares access to a catalog. No server is contacted yet, so that a process
    /// can start before its catalog does; the catalog's tables are made, where they
    /// are missing, at the first use.
    ///
    /// # Errors
    /// [`Error::Setup`] for a URI that is not understood, and for a SQLite file that
    /// is not there and must not be made.
    pub async fn open(options: Options, chance: Arc<dyn Chance>) -> Result<Self> {
        let setup = |why: String| Error::Setup(format!("catalog `{}`: {why}", options.name));
        let target = uri::parse(&options.uri).map_err(setup)?;
        let database = Database::open(target, options.create_if_missing).map_err(setup)?;
        Ok(Self { io: store::file_io(&options.properties), name: options.name, warehouse: options.warehouse, database, chance })
    }

    /// Access to the files of its tables.
    pub fn io(&self) -> &FileIO {
        &self.io
    }

    /// Where a new table of this name lies, as engines choose it; `None` without a
    /// warehouse.
    pub fn default_location(&self, name: &TableName) -> Option<String> {
        let warehouse = self.warehouse.as_deref()?.trim_end_matches('/');
        Some(format!("{warehouse}/{}/{}", name.namespace.join("/"), name.table))
    }

    async fn read(&self, name: &TableName, location: String, fence: Option<String>) -> Result<Loaded> {
        let bytes = Store::new(&self.io).read(&location).await?;
        let metadata = Arc::new(metadata_file::decode(&bytes, &location)?);
        Ok(Loaded { name: name.clone(), metadata_location: location, metadata, io: self.io.clone(), fence })
    }

    fn failed(&self, what: &str, error: sqlx::Error) -> Error {
        database::explain(format!("catalog `{}`: {what}", self.name), error)
    }
}

#[async_trait]
impl Catalog for SqlCatalog {
    fn name(&self) -> &str {
        &self.name
    }

    async fn list(&self) -> Result<Vec<Pointer>> {
        let rows = self.database.list(&self.name).await.map_err(|e| self.failed("list tables", e))?;
        let pointer = |(namespace, table, location): (String, String, String)| Pointer {
            name: TableName::new(&self.name, &namespace, &table),
            metadata_location: location,
        };
        Ok(rows.into_iter().map(pointer).collect())
    }

    async fn load(&self, name: &TableName) -> Result<Option<Loaded>> {
        let found = self.database.pointer(&self.name, name).await.map_err(|e| self.failed(&format!("load {name}"), e))?;
        match found {
            Some((location, previous)) => self.read(name, location, previous).await.map(Some),
            None => Ok(None),
        }
    }

    fn reads_metadata(&self) -> bool {
        true
    }

    async fn glance_since(&self, name: &TableName, reference: &str, known: Option<&str>) -> Result<Glanced<Glance>> {
        let found = self.database.pointer(&self.name, name).await.map_err(|e| self.failed(&format!("load {name}"), e))?;
        match found {
            Some((location, _)) if known == Some(&location) => Ok(Glanced::Same),
            Some((location, _)) => Glance::read(&self.io, name, location, reference).await.map(Glanced::At),
            None => Ok(Glanced::Gone),
        }
    }

    fn asserts_pointer(&self) -> bool {
        true
    }

    /// Changes the row's previous location, which every swap asserts beside the
    /// pointer and no reader of a catalog uses. A swap that holds the row makes
    /// this wait, and is seen by it.
    async fn fence(&self, name: &TableName, asserted: &str) -> Result<bool> {
        let mark = format!("fenced-by-afterwrite:{:016x}{:016x}", self.chance.next(), self.chance.next());
        self.database.fence(&self.name, name, asserted, &mark).await.map_err(|e| self.failed(&format!("fence {name}"), e))
    }

    /// Writes the metadata file, then moves the pointer by one `UPDATE` that
    /// asserts the base's location.
    ///
    /// Invariants checked:
    /// * those of staging: requirements hold on the base, files are known and
    ///   durable before the swap;
    /// * the row still holds the base's location, and the previous one that it was
    ///   read with, in the statement that replaces them.
    ///
    /// A crash before the `UPDATE` leaves the metadata file; one after it is
    /// resolved by whoever loads the table and looks for the attempt.
    async fn commit(
        &self,
        base: &Loaded,
        requirements: Vec<TableRequirement>,
        updates: Vec<TableUpdate>,
        control: &dyn Control,
    ) -> Result<Answer> {
        self.database.ready().await.map_err(|e| self.failed("connect", e))?;
        let location = match stage(base, &requirements, updates, self.chance.as_ref(), control).await? {
            Staged::Ready(location) => location,
            Staged::Answered(answer) => return Ok(answer),
        };
        let swap =
            Swap { catalog: &self.name, name: &base.name, from: &base.metadata_location, before: base.fence.as_deref(), to: &location };
        match self.database.swap(&swap).await {
            Verdict::Applied => Ok(Answer::Landed(location)),
            Verdict::Moved => Ok(Answer::Moved),
            Verdict::Rejected(e) => Ok(Answer::Rejected(format!("catalog `{}`: {e}", self.name))),
            Verdict::Later(e) => Err(Error::unreachable(format!("catalog `{}`: commit {}", self.name, base.name), e)),
            Verdict::Unknown(reason) => Ok(Answer::Unknown(format!("catalog `{}`: {reason}", self.name))),
        }
    }

    async fn create(&self, name: &TableName, metadata: TableMetadata) -> Result<Loaded> {
        let setup = |why: String| Error::Setup(format!("create {name}: {why}"));
        if self.database.pointer(&self.name, name).await.map_err(|e| self.failed(&format!("look for {name}"), e))?.is_some() {
            return Err(setup("the table exists".into()));
        }
        let bytes = metadata_file::encode(&metadata).map_err(setup)?;
        let location = metadata_file::next_location(&metadata, None, self.chance.as_ref());
        Store::new(&self.io).write(&location, bytes.into()).await?;
        match self.database.insert(&self.name, name, &location).await {
            Ok(()) => self.read(name, location, None).await,
            Err(sqlx::Error::Database(e)) if e.is_unique_violation() => Err(setup("the table exists".into())),
            Err(e) => Err(self.failed(&format!("create {name}"), e)),
        }
    }
}

/// What is known of a swap that was tried once.
#[derive(Debug)]
enum Verdict {
    /// Applied.
    Applied,
    /// Proven not applied: the row does not hold the asserted location.
    Moved,
    /// Proven not applied, and it would be refused again.
    Rejected(String),
    /// Proven not applied; it may be tried anew on a fresh base.
    Later(anyhow::Error),
    /// It may have been applied, or still be.
    Unknown(String),
}
