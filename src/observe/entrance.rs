//! Where the doors meet: a draft becomes an event about one of our tables, or is
//! dropped with the reason.

use std::sync::{Arc, OnceLock};

use super::decode::{Draft, Foreign, Where};
use super::inbox::Inbox;
use super::ledger::{Example, Ledger, Source};
use super::proxy::Heeds;
use super::proxy::events::{Report, report};
use super::receipt::Receipt;
use super::roster::Roster;
use crate::lake::clock::Clock;
use crate::model::event::{Door, Event, Heard};
use crate::model::ident::TableName;
use crate::telemetry;

/// Resolves drafts and hears them.
pub struct Entrance {
    inbox: Inbox,
    roster: Arc<Roster>,
    clock: Arc<dyn Clock>,
    catalogs: Vec<String>,
    heeds: OnceLock<Arc<dyn Heeds>>,
}

impl Entrance {
    /// An entrance to an inbox. `catalogs` are the configured ones.
    pub fn new(inbox: Inbox, roster: Arc<Roster>, clock: Arc<dyn Clock>, catalogs: Vec<String>) -> Self {
        Self { inbox, roster, clock, catalogs, heeds: OnceLock::new() }
    }

    /// Sets who is told of scans; once.
    pub fn set_heeds(&self, heeds: Arc<dyn Heeds>) {
        let _ = self.heeds.set(heeds);
    }

    /// A metrics report about no commit of these tables: one about a scan is told on.
    pub fn scanned(&self, tables: impl IntoIterator<Item = Foreign>, catalog: Option<&str>, body: &[u8]) {
        let (Some(heeds), Some(Report::Scan(scan))) = (self.heeds.get(), report(body)) else { return };
        let names = tables.into_iter().filter_map(|table| self.name(table, catalog).ok());
        names.for_each(|name| heeds.scanned(&name, scan, self.now_ms()));
    }

    /// Wall clock, in milliseconds since the epoch.
    pub fn now_ms(&self) -> i64 {
        self.clock.now_ms()
    }

    /// What each source has sent.
    pub fn ledger(&self) -> &Arc<Ledger> {
        self.inbox.ledger()
    }

    /// Marks the event's table; see [`Inbox::hear_for`].
    pub fn hear(&self, source: &Arc<Source>, event: Event, receipt: Option<&Receipt>) -> Heard {
        let door = event.door;
        let heard = self.inbox.hear_for(event, source, receipt);
        telemetry::event_heard(door, heard);
        heard
    }

    /// The events of a draft: one for each table that it may be about. `catalog` is
    /// our name of the catalog whose tables the source speaks of, when it is set.
    /// One of a branch that is looked after marks the table.
    ///
    /// # Errors
    /// Why it is about no table or branch that is looked after.
    pub fn resolve(&self, draft: Draft, door: Door, catalog: Option<&str>) -> Result<Vec<Event>, Unheard> {
        let Draft { table, uuid, reference, snapshots, certainty, files_added } = draft;
        let mut names = match table {
            Where::Named(name) => vec![self.known(name)?],
            Where::Foreign(name) => vec![self.name(name, catalog)?],
            Where::At { location, or } => self.at(&location, or, catalog)?,
        };
        let mut left_alone = None;
        names.retain(|name| self.check_branch(name, reference.as_deref()).map_err(|why| left_alone.get_or_insert(why)).is_ok());
        if let (true, Some(why)) = (names.is_empty(), left_alone) {
            return Err(Unheard::Branch(why));
        }
        let heard_ms = self.now_ms();
        let event = |table| Event { door, table, uuid, reference: None, snapshots: snapshots.clone(), certainty, files_added, heard_ms };
        Ok(names.into_iter().map(event).collect())
    }

    /// Whether events about a branch of a table are heard; see [`Branches::check`].
    ///
    /// # Errors
    /// Why not, in words.
    ///
    /// [`Branches::check`]: super::Branches::check
    pub fn check_branch(&self, table: &TableName, branch: Option<&str>) -> Result<(), String> {
        self.inbox.branches().check(table, branch)
    }

    /// A name that speaks of our catalogs.
    fn known(&self, name: TableName) -> Result<TableName, String> {
        match self.has(&name.catalog) {
            true => Ok(name),
            false => Err(format!("no catalog `{}` is configured; known catalogs: {}", clip(&name.catalog), self.listed())),
        }
    }

    /// Another system's name of a table: in the catalog that is set for the source;
    /// else in ours of the same name; else in the only one.
    fn name(&self, foreign: Foreign, catalog: Option<&str>) -> Result<TableName, String> {
        let said = foreign.catalog.as_deref();
        let ours = match (catalog, self.catalogs.as_slice()) {
            (Some(set), _) => set,
            (None, [only]) => only,
            (None, _) => said.filter(|name| self.has(name)).ok_or_else(|| {
                let said = said.map(|name| format!(" (the event says `{}`)", clip(name))).unwrap_or_default();
                format!("which catalog's table it is, is not said{said}: set `catalog`; known catalogs: {}", self.listed())
            })?,
        };
        self.known(TableName { catalog: ours.to_owned(), namespace: foreign.namespace, table: foreign.table })
    }

    fn at(&self, location: &str, or: Option<Foreign>, catalog: Option<&str>) -> Result<Vec<TableName>, String> {
        let found = self.roster.at(location).into_iter().filter(|name| catalog.is_none_or(|set| set == name.catalog));
        let found: Vec<TableName> = found.collect();
        match or {
            _ if !found.is_empty() => Ok(found),
            Some(foreign) => Ok(vec![self.name(foreign, catalog)?]),
            None => Err(format!("no known table lies at `{}`", clip(location))),
        }
    }

    fn has(&self, catalog: &str) -> bool {
        self.catalogs.iter().any(|known| known == catalog)
    }

    fn listed(&self) -> String {
        if self.catalogs.is_empty() { "none".to_owned() } else { self.catalogs.join(", ") }
    }

    /// What a sender should know about a name; see [`Roster::note`].
    pub fn note(&self, name: &TableName) -> String {
        self.roster.note(name)
    }

    /// An example of now.
    pub fn example(&self, place: String, reason: String) -> Example {
        Example { at_ms: self.now_ms(), place, reason }
    }
}

/// Why an event marks nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unheard {
    /// Its branch is not looked after: there is nothing to mend.
    #[error("{0}")]
    Branch(String),
    /// No table is known that it could be about.
    #[error("{0}")]
    Table(String),
}

impl From<String> for Unheard {
    fn from(why: String) -> Self {
        Self::Table(why)
    }
}

/// The beginning of a text, for a reason.
fn clip(text: &str) -> String {
    text.chars().take(128).collect()
}
