//! States in memory, within a bound of bytes. What is evicted is never wrong,
//! only slower to come by: it is read from its checkpoint, or computed again.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use moka::policy::EvictionPolicy;
use moka::sync::Cache;
use tokio::sync::Mutex as AsyncMutex;

use super::checkpoint::Tail;
use super::state::TableState;
use crate::model::ident::TableIdent;
use crate::model::table::TableView;

/// What a state is kept under: it survives a rename of the table.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// The table.
    pub ident: TableIdent,
    /// The branch.
    pub reference: Arc<str>,
}

impl Key {
    /// A table and a branch.
    pub fn new(ident: TableIdent, reference: &str) -> Self {
        Self { ident, reference: reference.into() }
    }

    /// The key of the state that a view belongs to.
    pub fn of(view: &TableView) -> Self {
        Self::new(view.ident, &view.reference)
    }
}

/// A state, and where its checkpoint ends.
#[derive(Clone, Debug)]
pub struct Cached {
    /// The state.
    pub state: Arc<TableState>,
    /// The end of the checkpoint that holds the state; `None` when none does.
    pub saved: Option<Tail>,
}

/// States by key; the least recently used go first.
pub struct States {
    cache: Cache<Key, Cached>,
}

impl States {
    /// A cache of at most `bytes` bytes.
    pub fn new(bytes: u64) -> Self {
        let weigh = |_: &Key, cached: &Cached| u32::try_from(cached.state.weight()).unwrap_or(u32::MAX);
        Self { cache: Cache::builder().max_capacity(bytes).weigher(weigh).eviction_policy(EvictionPolicy::lru()).build() }
    }

    /// The state, if it is still held.
    pub fn get(&self, key: &Key) -> Option<Cached> {
        self.cache.get(key)
    }

    /// Holds a state in place of the one before.
    pub fn put(&self, key: Key, cached: Cached) {
        self.cache.insert(key, cached);
    }

    /// Drops one state.
    pub fn drop(&self, key: &Key) {
        self.cache.invalidate(key);
    }

    /// Drops every branch of a table.
    pub fn forget(&self, ident: &TableIdent) {
        for key in self.keys() {
            if key.ident == *ident {
                self.cache.invalidate(&key);
            }
        }
    }

    /// What is held, in order.
    pub fn keys(&self) -> BTreeSet<Key> {
        self.cache.iter().map(|(key, _)| (*key).clone()).collect()
    }

    /// Bytes held, as far as the cache has counted them.
    pub fn weight(&self) -> u64 {
        self.cache.run_pending_tasks();
        self.cache.weighted_size()
    }
}

/// One lock a key, for as long as somebody uses it.
#[derive(Default)]
pub struct Locks(Mutex<HashMap<Key, Weak<AsyncMutex<()>>>>);

impl Locks {
    /// The key's lock.
    pub fn of(&self, key: &Key) -> Arc<AsyncMutex<()>> {
        let mut locks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lock) = locks.get(key).and_then(Weak::upgrade) {
            return lock;
        }
        locks.retain(|_, lock| lock.strong_count() > 0);
        let lock = Arc::new(AsyncMutex::new(()));
        locks.insert(key.clone(), Arc::downgrade(&lock));
        lock
    }
}
