//! Orient: from a table to the layout of its partitions, at a cost proportional
//! to what its new commits changed.
//!
//! The layout is a function of the head snapshot: whatever looks were lost,
//! doubled or late, it equals [`rebuild::recompute`] bit for bit.

pub mod cache;
pub mod checkpoint;
pub mod delta;
pub mod history;
mod lag;
pub mod lineage;
mod look;
pub mod pack;
pub mod partitions;
pub mod rebuild;
pub mod state;
pub mod traits;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub use cache::Key;
pub use checkpoint::Checkpoints;
pub use lineage::Reason;
pub use rebuild::recompute;
pub use state::{Mark, TableLayout, TableState};
pub use traits::{table_traits, traits};

use crate::lake::{Result, Table};
use crate::model::ident::TableIdent;
use crate::model::layout::SizeScale;
use crate::model::partition::PartitionKey;
use cache::{Cached, Locks, States};
use checkpoint::Tail;
use delta::Reads;
use lag::Lags;
use look::Look;

/// Keeps the state of every table that was looked at.
pub struct Orient {
    states: States,
    checkpoints: Arc<dyn Checkpoints>,
    locks: Locks,
    lags: Lags,
    drifts: AtomicU64,
}

/// How a look changed what is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// The head was known.
    Unchanged,
    /// The table was loaded before what is known of it: nothing changed.
    Stale,
    /// Snapshots were added.
    Incremental {
        /// How many.
        snapshots: usize,
    },
    /// The head had moved back, or to another line.
    Undone {
        /// Snapshots taken back.
        undone: usize,
        /// Snapshots added then.
        added: usize,
    },
    /// Everything was computed again.
    Rebuilt(Reason),
}

/// The result of a look.
#[derive(Clone, Debug)]
pub struct Absorbed {
    /// The state now.
    pub state: Arc<TableState>,
    /// The state before, if one was known.
    pub before: Option<Arc<TableState>>,
    /// How it came about.
    pub how: How,
    /// Partitions that may differ from before; all when rebuilt.
    pub touched: BTreeSet<PartitionKey>,
    /// Manifests whose entries were read.
    pub manifests_read: u64,
    /// Entries in them.
    pub entries_read: u64,
    /// Commits taken in that are not this product's rewrites.
    pub foreign_snapshots: usize,
    /// Commits taken in that are this product's rewrites, of any instance.
    pub own_snapshots: usize,
}

impl Orient {
    /// Holds at most `cache_bytes` of states in memory; the others in `checkpoints`.
    pub fn new(cache_bytes: u64, checkpoints: Arc<dyn Checkpoints>) -> Self {
        Self { states: States::new(cache_bytes), checkpoints, locks: Locks::default(), lags: Lags::default(), drifts: AtomicU64::new(0) }
    }

    /// Takes in a table as it was loaded. Looks at one table wait for each other.
    ///
    /// Reads the manifests that the snapshots since the known head added, and no
    /// other, unless the way there is lost or the sums do not bear it out; then
    /// all of the head's. A load that is older than what is known changes nothing,
    /// until nothing else has come for a while: then the table was set back, and is
    /// rebuilt.
    ///
    /// What the look brought is in the checkpoint before this returns, so that a
    /// restart reads none of it again; where it could not be saved, the next
    /// [`Orient::flush`] does.
    ///
    /// Errs when a manifest of the head cannot be read; what is known stays.
    /// A crash loses at most the look under way.
    pub async fn absorb(&self, table: &dyn Table, scale: SizeScale, now_ms: i64) -> Result<Absorbed> {
        let key = Key::of(table.view());
        let lock = self.locks.of(&key);
        let _turn = lock.lock().await;
        let known = self.known(&key).await;
        let state = known.as_ref().map(|k| &k.state);
        let look = Look { table, scale, now_ms };
        let mut absorbed = look.take(state).await?;
        match absorbed.how {
            How::Stale if self.lags.older(&key, now_ms) => {
                absorbed = look.set_back(state).await?;
                self.lags.believed(&key);
                tracing::warn!(table = %table.view().name, snapshot = ?table.view().head, "the catalog stays at an older state of the table: it was set back, and its layout is rebuilt");
            }
            How::Stale => {}
            _ => self.lags.present(&key),
        }
        let absorbed = Absorbed { before: state.cloned(), ..absorbed };
        if absorbed.how == How::Rebuilt(Reason::Drift) {
            self.drifts.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(table = %table.view().name, snapshot = ?table.view().head, "layout differed from the manifest list and was rebuilt");
        }
        self.keep(&key, known.as_ref(), &absorbed).await;
        Ok(absorbed)
    }

    /// What is known of a table, from memory or its checkpoint. Waits for a look
    /// under way.
    pub async fn state(&self, key: &Key) -> Option<Arc<TableState>> {
        let lock = self.locks.of(key);
        let _turn = lock.lock().await;
        Some(self.known(key).await?.state)
    }

    /// What is known of a table, from memory or its checkpoint, without waiting for a
    /// look under way: then it may be what was known before that.
    pub async fn glimpse(&self, key: &Key) -> Option<Arc<TableState>> {
        if let Some(cached) = self.states.get(key) {
            return Some(cached.state);
        }
        let lock = self.locks.of(key);
        // what a look is about to replace must not come after it into memory
        match lock.try_lock() {
            Ok(_turn) => Some(self.known(key).await?.state),
            Err(_) => Some(self.saved(key).await?.state),
        }
    }

    /// The catalog was seen to stand where the table is known to stand: no load since
    /// was older.
    pub fn stands(&self, key: &Key) {
        self.lags.present(key);
    }

    /// Forgets a table that was dropped, with all its branches.
    pub async fn forget(&self, ident: &TableIdent) -> Result<()> {
        self.states.forget(ident);
        self.lags.forget(ident);
        self.checkpoints.remove(ident).await
    }

    /// Forgets a branch that was dropped, or is not looked after any more.
    ///
    /// # Errors
    /// When its checkpoint cannot be removed.
    pub async fn forget_branch(&self, key: &Key) -> Result<()> {
        let lock = self.locks.of(key);
        let _turn = lock.lock().await;
        self.states.drop(key);
        self.lags.present(key);
        self.checkpoints.remove_branch(key).await
    }

    /// Saves every state that its checkpoint does not hold, because it could not
    /// be saved when it came about.
    ///
    /// # Errors
    /// The first failure; the others are saved all the same.
    pub async fn flush(&self) -> Result<()> {
        let mut failed = None;
        for key in self.states.keys() {
            let lock = self.locks.of(&key);
            let _turn = lock.lock().await;
            let Some(cached) = self.states.get(&key).filter(|c| c.saved.is_none()) else { continue };
            match self.save(&key, &cached.state).await {
                Ok(saved) => self.states.put(key, Cached { saved: Some(saved), ..cached }),
                Err(error) => {
                    tracing::warn!(table = %key.ident, %error, "checkpoint cannot be saved");
                    failed.get_or_insert(error);
                }
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// Rebuilds because the sums differed from the manifest list, so far.
    pub fn drifts(&self) -> u64 {
        self.drifts.load(Ordering::Relaxed)
    }

    /// Bytes of states held in memory, approximately.
    pub fn cached_bytes(&self) -> u64 {
        self.states.weight()
    }

    async fn known(&self, key: &Key) -> Option<Cached> {
        if let Some(cached) = self.states.get(key) {
            return Some(cached);
        }
        let cached = self.saved(key).await?;
        self.states.put(key.clone(), cached.clone());
        Some(cached)
    }

    /// What the checkpoint holds.
    async fn saved(&self, key: &Key) -> Option<Cached> {
        let saved = match self.checkpoints.load(key).await {
            Ok(saved) => saved?,
            Err(error) => {
                tracing::warn!(table = %key.ident, %error, "checkpoint cannot be loaded");
                return None;
            }
        };
        let (state, tail) = checkpoint::decode(&saved)?;
        let of_key = state.layout.ident() == key.ident && state.layout.reference() == &*key.reference;
        of_key.then(|| Cached { state: Arc::new(state), saved: Some(tail) })
    }

    /// Holds the new state and brings its checkpoint to it: by a record of what
    /// changed, or whole when everything did or the log has grown too long. A
    /// checkpoint that could not be written is left to [`Orient::flush`], so that
    /// a store that is full costs each look nothing.
    async fn keep(&self, key: &Key, known: Option<&Cached>, absorbed: &Absorbed) {
        let state = &absorbed.state;
        let saved = match known {
            Some(known) if Arc::ptr_eq(&known.state, state) => return,
            Some(Cached { saved: None, .. }) => Ok(None),
            Some(Cached { saved: Some(tail), state: before }) if !matches!(absorbed.how, How::Rebuilt(_)) => {
                self.append(key, before, state, tail).await.map(Some)
            }
            Some(_) | None => self.save(key, state).await.map(Some),
        };
        let saved = saved.unwrap_or_else(|error| {
            tracing::warn!(table = %key.ident, %error, "checkpoint cannot be saved; tried again later");
            None
        });
        self.states.put(key.clone(), Cached { state: state.clone(), saved });
    }

    async fn append(&self, key: &Key, before: &TableState, now: &TableState, tail: &Tail) -> Result<Tail> {
        let record = checkpoint::encode_change(before, now, tail)?;
        let Some(next) = tail.take(&record) else { return self.save(key, now).await };
        self.checkpoints.append(key, tail.records, record).await?;
        Ok(next)
    }

    async fn save(&self, key: &Key, state: &TableState) -> Result<Tail> {
        let base = checkpoint::encode(state)?;
        let tail = Tail::of(&base);
        self.checkpoints.save(key, base).await?;
        Ok(tail)
    }
}

impl Absorbed {
    fn nothing(state: Arc<TableState>, how: How) -> Self {
        Self {
            state,
            before: None,
            how,
            touched: BTreeSet::new(),
            manifests_read: 0,
            entries_read: 0,
            foreign_snapshots: 0,
            own_snapshots: 0,
        }
    }

    fn with(self, reads: &Reads) -> Self {
        Self { manifests_read: reads.manifests, entries_read: reads.entries, ..self }
    }
}
