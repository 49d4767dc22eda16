//! The catalog port: who holds the pointer to a table's current metadata.

pub mod memory;
pub(super) mod metadata_file;
pub mod rest;
pub mod sql;
mod stage;

use std::sync::Arc;

use async_trait::async_trait;
use iceberg::io::FileIO;
use iceberg::spec::TableMetadata;
use iceberg::{TableRequirement, TableUpdate};

use super::table::glance::Glance;
use crate::lake::{Control, Glanced, Pointer, Result};
use crate::model::ident::TableName;

/// A table as its catalog handed it out.
#[derive(Clone)]
pub struct Loaded {
    /// The name it was asked for.
    pub name: TableName,
    /// The catalog's pointer.
    pub metadata_location: String,
    /// The metadata it points at.
    pub metadata: Arc<TableMetadata>,
    /// Access to its files.
    pub io: FileIO,
    /// What the catalog's swap asserts beside the pointer, so that
    /// [`Catalog::fence`] can shut out requests that were lost.
    pub fence: Option<String>,
}

/// The catalog's answer to one commit request.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Applied; the new metadata location.
    Landed(String),
    /// Proven not applied: a requirement does not hold any more.
    Moved,
    /// Proven not applied, and a retry would not help.
    Rejected(String),
    /// It may have been applied, or still be.
    Unknown(String),
}

/// A catalog of Iceberg tables. One attempt per commit request: no
/// implementation retries a commit, nor lets its transport do so.
#[async_trait]
pub trait Catalog: Send + Sync {
    /// The configured name.
    fn name(&self) -> &str;

    /// Every Iceberg table with its pointer.
    async fn list(&self) -> Result<Vec<Pointer>>;

    /// Loads a table fresh. `None` when no table has the name.
    async fn load(&self, name: &TableName) -> Result<Option<Loaded>>;

    /// Whether [`Catalog::load`] reads the metadata file from its store, as one request:
    /// a catalog that answers with the metadata does not.
    fn reads_metadata(&self) -> bool {
        false
    }

    /// Loads what a look at the table needs, fresh; `None` when no table has the name.
    async fn glance(&self, name: &TableName, reference: &str) -> Result<Option<Glance>> {
        match self.glance_since(name, reference, None).await? {
            Glanced::At(glance) => Ok(Some(glance)),
            Glanced::Gone | Glanced::Same => Ok(None),
        }
    }

    /// As [`Catalog::glance`], unless the table still stands at the metadata location
    /// `known`: then nothing of it is read. By default from everything that
    /// [`Catalog::load`] brings.
    async fn glance_since(&self, name: &TableName, reference: &str, known: Option<&str>) -> Result<Glanced<Glance>> {
        Ok(match self.load(name).await? {
            None => Glanced::Gone,
            Some(loaded) if known == Some(&loaded.metadata_location) => Glanced::Same,
            Some(loaded) => Glanced::At(Glance::of(&loaded, reference).under(self.may_compact())),
        })
    }

    /// Asks once that `updates` be applied to `base` under `requirements`.
    /// `control` is told of every file begun and, last before the catalog is
    /// asked, of the asserted metadata location.
    ///
    /// # Errors
    /// An error is proof that the commit was not applied and never will be; what
    /// may have been applied is [`Answer::Unknown`].
    async fn commit(
        &self,
        base: &Loaded,
        requirements: Vec<TableRequirement>,
        updates: Vec<TableUpdate>,
        control: &dyn Control,
    ) -> Result<Answer>;

    /// Whether a commit lands only while the pointer is the asserted one, so that
    /// a pointer that moved shuts it out. A catalog that compares the heads of
    /// branches does not.
    fn asserts_pointer(&self) -> bool {
        false
    }

    /// Why the service behind it may compact its tables by itself, where neither the
    /// protocol nor their metadata shows whether it does; `None` where none would.
    fn may_compact(&self) -> Option<&str> {
        None
    }

    /// Shuts out every commit request that asserted this, as [`Control::will_commit`]
    /// was told, and was sent before: `true` when the table stands there and none of
    /// them can land any more; `false` when it stands elsewhere, or the catalog has no
    /// means.
    ///
    /// # Errors
    /// When the catalog did not say that it is done: nothing is proven.
    async fn fence(&self, _name: &TableName, _asserted: &str) -> Result<bool> {
        Ok(false)
    }

    /// Creates a table (and its namespace, where it is missing) from complete metadata.
    async fn create(&self, name: &TableName, metadata: TableMetadata) -> Result<Loaded>;
}
