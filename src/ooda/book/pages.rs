//! The pages of tables: one for each branch that is looked after and there.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::Page;
use crate::model::ident::TableName;

/// A branch of a table by its name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Branch {
    /// The table.
    pub table: TableName,
    /// The branch.
    pub name: Arc<str>,
}

impl Branch {
    /// A branch of a table.
    pub fn new(table: &TableName, name: &str) -> Self {
        Self { table: table.clone(), name: name.into() }
    }
}

/// Every page.
#[derive(Default)]
pub struct Pages(HashMap<TableName, BTreeMap<Arc<str>, Page>>);

impl Pages {
    /// The page of a branch.
    pub fn get(&self, table: &TableName, branch: &str) -> Option<&Page> {
        self.0.get(table)?.get(branch)
    }

    /// See [`Pages::get`].
    pub fn get_mut(&mut self, table: &TableName, branch: &str) -> Option<&mut Page> {
        self.0.get_mut(table)?.get_mut(branch)
    }

    /// The pages of a table, by its branches.
    pub fn of(&self, table: &TableName) -> impl Iterator<Item = &Page> {
        self.0.get(table).into_iter().flat_map(BTreeMap::values)
    }

    /// See [`Pages::of`].
    pub fn of_mut(&mut self, table: &TableName) -> impl Iterator<Item = &mut Page> {
        self.0.get_mut(table).into_iter().flat_map(BTreeMap::values_mut)
    }

    /// Adds the page of a branch.
    pub fn insert(&mut self, table: TableName, page: Page) {
        self.0.entry(table).or_default().insert(Arc::clone(&page.reference), page);
    }

    /// Takes a page away.
    pub fn remove(&mut self, table: &TableName, branch: &str) -> Option<Page> {
        let pages = self.0.get_mut(table)?;
        let page = pages.remove(branch);
        if pages.is_empty() {
            self.0.remove(table);
        }
        page
    }

    /// Every page, with its table.
    pub fn iter(&self) -> impl Iterator<Item = (&TableName, &Page)> {
        self.0.iter().flat_map(|(table, pages)| pages.values().map(move |page| (table, page)))
    }

    /// Every page.
    pub fn values(&self) -> impl Iterator<Item = &Page> {
        self.0.values().flat_map(BTreeMap::values)
    }

    /// See [`Pages::values`].
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut Page> {
        self.0.values_mut().flat_map(BTreeMap::values_mut)
    }

    /// Tables that have a page.
    pub fn tables(&self) -> usize {
        self.0.len()
    }
}
