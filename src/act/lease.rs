//! Leases on files and one committer a table, within this process; the journal
//! holds them between the processes that share it.
//!
//! They spare wasted work; safety lies in the validation of every commit.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::OwnedMutexGuard;

use crate::model::ident::TableIdent;
use crate::model::plan::Plan;

/// Who works on which files, and who commits where.
#[derive(Clone, Default)]
pub struct Leases {
    held: Arc<Mutex<Held>>,
}

/// A table and a branch of it: each replaces files in its own history, so two branches may
/// replace the same ones at a time.
type Place = (TableIdent, String);

#[derive(Default)]
struct Held {
    files: HashMap<Place, HashSet<Arc<str>>>,
    committers: HashMap<TableIdent, Arc<tokio::sync::Mutex<()>>>,
}

/// The right to rewrite a set of files; given back when dropped.
pub struct Lease {
    of: Leases,
    place: Place,
    files: Vec<Arc<str>>,
}

impl Leases {
    /// Takes all inputs of a plan, or none: `None` when one of them is held.
    pub fn take(&self, plan: &Plan) -> Option<Lease> {
        let files: Vec<Arc<str>> = plan.inputs.iter().map(|f| Arc::clone(&f.path)).collect();
        let mut held = self.lock();
        let place = (plan.table, plan.reference.clone());
        let taken = held.files.entry(place.clone()).or_default();
        if files.iter().any(|f| taken.contains(f)) {
            return None;
        }
        taken.extend(files.iter().cloned());
        drop(held);
        Some(Lease { of: self.clone(), place, files })
    }

    /// Waits for the table's one place to commit, in order of asking.
    pub async fn committer(&self, table: TableIdent) -> OwnedMutexGuard<()> {
        let place = {
            let mut held = self.lock();
            held.committers.retain(|_, place| Arc::strong_count(place) > 1);
            Arc::clone(held.committers.entry(table).or_default())
        };
        place.lock_owned().await
    }

    /// Whether any file of the table is held.
    pub fn is_held(&self, table: &TableIdent) -> bool {
        self.lock().files.keys().any(|(of, _)| of == table)
    }

    /// Files held, over all tables.
    pub fn len(&self) -> usize {
        self.lock().files.values().map(HashSet::len).sum()
    }

    /// Whether nothing is held.
    pub fn is_empty(&self) -> bool {
        self.lock().files.is_empty()
    }

    /// A panic elsewhere leaves the sets whole: each change is one call.
    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut held = self.of.lock();
        if let Some(taken) = held.files.get_mut(&self.place) {
            for file in &self.files {
                taken.remove(file);
            }
            if taken.is_empty() {
                held.files.remove(&self.place);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::act::journal::tests::plan;

    #[test]
    fn no_file_is_in_two_jobs() {
        let leases = Leases::default();
        let first = leases.take(&plan(1, &["a", "b"])).unwrap();
        assert!(leases.take(&plan(1, &["b", "c"])).is_none());
        let _disjoint = leases.take(&plan(1, &["c"])).unwrap();
        let _other_table = leases.take(&plan(2, &["a"])).unwrap();
        assert_eq!(leases.len(), 4);
        drop(first);
        assert_eq!(leases.len(), 2);
    }

    #[test]
    fn a_refused_lease_holds_nothing() {
        let leases = Leases::default();
        let first = leases.take(&plan(1, &["a"])).unwrap();
        assert!(leases.take(&plan(1, &["a", "b"])).is_none());
        drop(first);
        assert!(leases.is_empty());
    }

    #[tokio::test]
    async fn one_committer_a_table_in_order_of_asking() {
        let leases = Leases::default();
        let table = plan(1, &["a"]).table;
        let order = Arc::new(Mutex::new(Vec::new()));
        let first = leases.committer(table).await;
        let mut tasks = Vec::new();
        for n in 0..4 {
            let (leases, order) = (leases.clone(), Arc::clone(&order));
            tasks.push(tokio::spawn(async move {
                let _place = leases.committer(table).await;
                order.lock().unwrap().push(n);
            }));
            tokio::task::yield_now().await;
        }
        assert_eq!(*order.lock().unwrap(), Vec::<i32>::new());
        drop(first);
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(*order.lock().unwrap(), vec![0, 1, 2, 3]);
    }
}
