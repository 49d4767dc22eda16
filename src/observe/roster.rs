//! What the pollers saw: every table of every catalog, with its pointer.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::Serialize;

use crate::lake::Pointer;
use crate::model::ident::TableName;

/// Whether a table is known by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// Its catalog listed it last time.
    Listed,
    /// Its catalog did not list it last time; it may be newer than that.
    NotListed,
    /// Its catalog was never listed.
    NotYet,
    /// No catalog of that name is configured.
    NoCatalog,
}

/// How a catalog is doing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CatalogHealth {
    /// Its name.
    pub catalog: String,
    /// Tables it listed last.
    pub tables: usize,
    /// When it was last listed, in milliseconds since the epoch.
    pub listed_ms: Option<i64>,
    /// Failures in a row since then.
    pub failures: u32,
    /// The last failure, while there are any.
    pub error: Option<String>,
}

#[derive(Default)]
struct Catalog {
    /// The pointer up to which a table was marked; `None` when it could not be.
    tables: HashMap<TableName, Option<String>>,
    listed_ms: Option<i64>,
    failures: u32,
    error: Option<String>,
}

/// The tables of the configured catalogs, as last listed. Shared by the pollers
/// and by whoever asks whether a name is known.
pub struct Roster {
    catalogs: Mutex<BTreeMap<String, Catalog>>,
}

/// What is new in a listing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct News {
    /// Tables listed.
    pub tables: usize,
    /// Tables with another pointer than before, or that were not there.
    pub moved: Vec<Pointer>,
    /// Tables that are no longer listed.
    pub vanished: Vec<TableName>,
}

impl Roster {
    /// No table known yet.
    pub fn new(catalogs: impl IntoIterator<Item = String>) -> Self {
        Self { catalogs: Mutex::new(catalogs.into_iter().map(|name| (name, Catalog::default())).collect()) }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Catalog>> {
        self.catalogs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a table is known by name.
    pub fn known(&self, name: &TableName) -> Known {
        match self.lock().get(&name.catalog) {
            None => Known::NoCatalog,
            Some(Catalog { listed_ms: None, .. }) => Known::NotYet,
            Some(catalog) if catalog.tables.contains_key(name) => Known::Listed,
            Some(_) => Known::NotListed,
        }
    }

    /// What a sender should know about the name it sent; empty when there is
    /// nothing. A table that is not listed is looked for all the same: it may be
    /// newer than the listing.
    pub fn note(&self, name: &TableName) -> String {
        match self.known(name) {
            Known::Listed | Known::NotYet | Known::NoCatalog => String::new(),
            Known::NotListed => format!(
                "catalog `{}` did not list `{name}` when it was last polled; it will be looked for, since it may be new",
                name.catalog
            ),
        }
    }

    /// How each catalog is doing, by name.
    pub fn health(&self) -> Vec<CatalogHealth> {
        let row = |(name, c): (&String, &Catalog)| CatalogHealth {
            catalog: name.clone(),
            tables: c.tables.len(),
            listed_ms: c.listed_ms,
            failures: c.failures,
            error: c.error.clone(),
        };
        self.lock().iter().map(row).collect()
    }

    /// A look has read the table at this pointer: the poller need not mark it
    /// for that. A pointer older than the poller's costs one more look, no more.
    pub fn looked(&self, name: &TableName, metadata_location: &str) {
        if let Some(seen) = self.lock().get_mut(&name.catalog).and_then(|c| c.tables.get_mut(name)) {
            *seen = Some(metadata_location.to_owned());
        }
    }

    /// Compares a listing with the last one and takes its place. Moved tables
    /// stay news until [`Roster::marked`].
    pub(super) fn listed(&self, catalog: &str, pointers: Vec<Pointer>, now_ms: i64) -> News {
        let mut catalogs = self.lock();
        let known = catalogs.entry(catalog.to_owned()).or_default();
        let mut before = std::mem::take(&mut known.tables);
        let mut news = News { tables: pointers.len(), ..News::default() };
        for pointer in pointers {
            let seen = before.remove(&pointer.name).flatten();
            let moved = seen.as_ref() != Some(&pointer.metadata_location);
            known.tables.insert(pointer.name.clone(), seen);
            if moved {
                news.moved.push(pointer);
            }
        }
        news.vanished = before.into_keys().collect();
        news.vanished.sort();
        known.listed_ms = Some(now_ms);
        known.failures = 0;
        known.error = None;
        news
    }

    /// The table is marked for a look at this pointer or a newer one.
    pub(super) fn marked(&self, pointer: Pointer) {
        if let Some(catalog) = self.lock().get_mut(&pointer.name.catalog) {
            catalog.tables.insert(pointer.name, Some(pointer.metadata_location));
        }
    }

    /// The table is gone but could not be marked: it stays known, so that it
    /// vanishes again with the next listing.
    pub(super) fn unmarked(&self, name: TableName) {
        if let Some(catalog) = self.lock().get_mut(&name.catalog) {
            catalog.tables.entry(name).or_default();
        }
    }

    /// The catalog could not be listed. Returns the failures in a row.
    pub(super) fn failed(&self, catalog: &str, error: String) -> u32 {
        let mut catalogs = self.lock();
        let known = catalogs.entry(catalog.to_owned()).or_default();
        known.failures = known.failures.saturating_add(1);
        known.error = Some(error);
        known.failures
    }
}
