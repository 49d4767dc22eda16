//! What the pollers saw: every table of every catalog, with its pointer.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use tokio::sync::Notify;

use crate::lake::Pointer;
use crate::model::ident::TableName;
use crate::model::location::Location;

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
struct Listed {
    /// The pointer up to which the table was marked; `None` when it could not be.
    seen: Option<String>,
    /// Moves in a row that no door told of.
    missed: u32,
}

#[derive(Default)]
struct Catalog {
    tables: HashMap<TableName, Listed>,
    /// Whose metadata lies in a folder, or in the folder below it.
    places: HashMap<Location, BTreeSet<TableName>>,
    listed_ms: Option<i64>,
    failures: u32,
    error: Option<String>,
    /// Wakes its poller.
    wanted: Arc<Notify>,
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
    /// Those of them that were known, and of whose move no look knew: with the number
    /// of such moves in a row.
    pub missed: Vec<(TableName, u32)>,
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

    /// The tables that a location belongs to: an object of theirs, or a folder at or
    /// below their own. By where their metadata lay when they were last listed.
    pub fn at(&self, location: &str) -> BTreeSet<TableName> {
        let mut place = Location::parse(location.trim_end_matches('/'));
        let catalogs = self.lock();
        loop {
            let found: BTreeSet<TableName> = catalogs.values().filter_map(|c| c.places.get(&place)).flatten().cloned().collect();
            if !found.is_empty() || place.key.is_empty() {
                return found;
            }
            place = folder(place);
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

    /// Has a catalog listed soon: an event speaks of a table whose name is not known.
    pub fn list_soon(&self, catalog: &str) {
        if let Some(known) = self.lock().get(catalog) {
            known.wanted.notify_one();
        }
    }

    /// Wakes when somebody wants the catalog to be listed.
    pub(super) fn wanted(&self, catalog: &str) -> Arc<Notify> {
        Arc::clone(&self.lock().entry(catalog.to_owned()).or_default().wanted)
    }

    /// A look has read the table at this pointer: the poller need not mark it
    /// for that. A pointer older than the poller's costs one more look, no more.
    pub fn looked(&self, name: &TableName, metadata_location: &str) {
        if let Some(listed) = self.lock().get_mut(&name.catalog).and_then(|c| c.tables.get_mut(name))
            && listed.seen.as_deref() != Some(metadata_location)
        {
            *listed = Listed { seen: Some(metadata_location.to_owned()), missed: 0 };
        }
    }

    /// A door told of the table's last move after all.
    pub(super) fn told(&self, name: &TableName) {
        if let Some(listed) = self.lock().get_mut(&name.catalog).and_then(|c| c.tables.get_mut(name)) {
            listed.missed = 0;
        }
    }

    /// Compares a listing with the last one and takes its place. Moved tables
    /// stay news until `Roster::marked`.
    pub fn listed(&self, catalog: &str, pointers: Vec<Pointer>, now_ms: i64) -> News {
        let mut catalogs = self.lock();
        let known = catalogs.entry(catalog.to_owned()).or_default();
        let mut before = std::mem::take(&mut known.tables);
        let mut news = News { tables: pointers.len(), ..News::default() };
        let places = places(&pointers);
        for pointer in pointers {
            let mut listed = before.remove(&pointer.name).unwrap_or_default();
            let moved = listed.seen.as_ref() != Some(&pointer.metadata_location);
            if moved && listed.seen.is_some() {
                listed.missed = listed.missed.saturating_add(1);
                news.missed.push((pointer.name.clone(), listed.missed));
            }
            known.tables.insert(pointer.name.clone(), listed);
            if moved {
                news.moved.push(pointer);
            }
        }
        news.vanished = before.into_keys().collect();
        news.vanished.sort();
        known.places = places;
        known.listed_ms = Some(now_ms);
        known.failures = 0;
        known.error = None;
        news
    }

    /// The table is marked for a look at this pointer or a newer one.
    pub(super) fn marked(&self, pointer: Pointer) {
        if let Some(catalog) = self.lock().get_mut(&pointer.name.catalog) {
            catalog.tables.entry(pointer.name).or_default().seen = Some(pointer.metadata_location);
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

/// The folders of tables, by where their metadata files lie: the folder of such a
/// file and, when it is called `metadata`, the one above.
fn places(pointers: &[Pointer]) -> HashMap<Location, BTreeSet<TableName>> {
    let mut places: HashMap<Location, BTreeSet<TableName>> = HashMap::new();
    for pointer in pointers {
        let metadata = folder(Location::parse(&pointer.metadata_location));
        if metadata.key.ends_with("/metadata") {
            places.entry(folder(metadata.clone())).or_default().insert(pointer.name.clone());
        }
        places.entry(metadata).or_default().insert(pointer.name.clone());
    }
    places
}

/// The folder that holds a location.
fn folder(mut location: Location) -> Location {
    let cut = location.key.rfind('/').unwrap_or(0);
    location.key.truncate(cut);
    location
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pointer(table: &str, metadata_location: &str) -> Pointer {
        Pointer { name: TableName::new("lake", "db", table), metadata_location: metadata_location.into() }
    }

    #[test]
    fn a_location_belongs_to_the_nearest_table_above_it() {
        let roster = Roster::new(["lake".to_owned()]);
        let pointers = vec![
            pointer("a", "s3a://b/wh/a/metadata/1.metadata.json"),
            pointer("inner", "s3://b/wh/a/inner/metadata/1.metadata.json"),
            pointer("apart", "s3://b/meta/apart/1.metadata.json"),
        ];
        roster.listed("lake", pointers, 0);
        let at = |location: &str| roster.at(location).into_iter().map(|name| name.table).collect::<Vec<_>>();
        assert_eq!(at("s3://b/wh/a/metadata/2.metadata.json"), ["a"]);
        assert_eq!(at("s3://b/wh/a"), ["a"]);
        assert_eq!(at("s3n://b/wh/a/"), ["a"]);
        assert_eq!(at("s3://b/wh/a/inner/data/f.parquet"), ["inner"]);
        assert_eq!(at("s3://b/meta/apart/2.metadata.json"), ["apart"]);
        for unknown in ["s3://b/wh/ab/metadata/1.metadata.json", "s3://other/wh/a", "s3://b/wh", "s3://b", "", "/"] {
            assert!(at(unknown).is_empty(), "{unknown}");
        }
    }
}
