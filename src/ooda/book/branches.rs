//! Which branches of tables are there, and what goes with one that is not.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Book, Branch, Page, Scope};
use crate::model::ident::TableName;
use crate::orient::Key;

impl Book {
    /// Which branches of a table are looked after and not there, with the reasons, and which
    /// are looked after at all: what is known of others is forgotten. Gives back of which.
    pub fn set_branches(&mut self, name: &TableName, looked_after: &[String], absent: BTreeMap<Arc<str>, String>) -> Vec<Key> {
        let is_left = |branch: &str| absent.contains_key(branch) || !looked_after.iter().any(|of| of == branch);
        let left: Vec<Arc<str>> = self.pages.of(name).map(|page| Arc::clone(&page.reference)).filter(|b| is_left(b)).collect();
        self.troubles.retain(|of, _| of.table != *name || !is_left(&of.name));
        match absent.is_empty() {
            true => drop(self.absent.remove(name)),
            false => drop(self.absent.insert(name.clone(), absent)),
        }
        left.iter().filter_map(|branch| self.remove_branch(name, branch)).map(|page| page.key()).collect()
    }

    /// Why a branch that is looked after is not there.
    pub fn absent(&self, name: &TableName, branch: &str) -> Option<&str> {
        self.absent.get(name)?.get(branch).map(String::as_str)
    }

    /// Takes the page of a branch away, with what goes by it.
    pub(super) fn remove_branch(&mut self, name: &TableName, branch: &str) -> Option<Page> {
        let before = self.objects(name);
        let page = self.pages.remove(name, branch)?;
        self.count_objects(page.tenant.as_ref(), before, self.objects(name));
        self.reviews.retain(|scope| scope.name != *name || *scope.branch != *branch);
        self.kept_out.remove(&Branch::new(name, branch));
        for (partition, at_ms) in page.due() {
            self.due.remove(&(at_ms, Scope { name: name.clone(), branch: Arc::clone(&page.reference), partition }));
        }
        Some(page)
    }
}
