//! States in bytes, for a restart to read no manifest again.
//!
//! `version (1 byte) · xxh3 of the rest (8 bytes, little endian) · postcard`.
//! Bytes of an unknown version, or damaged ones, are no state: it is rebuilt.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use super::cache::Key;
use super::history::{Heard, History};
use super::state::{Counts, Head, TableLayout, TableState};
use crate::lake::{Error, Result};
use crate::model::ident::TableIdent;
use crate::model::layout::PartitionLayout;
use crate::model::partition::PartitionKey;

/// The version of the encoding. Every change of a stored type needs another.
pub const VERSION: u8 = 1;

/// Where checkpoints are kept.
#[async_trait]
pub trait Checkpoints: Send + Sync {
    /// The bytes saved last.
    async fn load(&self, key: &Key) -> Result<Option<Vec<u8>>>;

    /// Keeps bytes in place of those before. A crash leaves the old or the new ones.
    async fn save(&self, key: &Key, bytes: Vec<u8>) -> Result<()>;

    /// Drops every branch of a table.
    async fn remove(&self, ident: &TableIdent) -> Result<()>;
}

#[derive(Serialize, Deserialize)]
struct Body<K, L, H, P> {
    head: Head,
    partitions: Vec<(K, L)>,
    table: Heard,
    heard: Vec<(K, H)>,
    counted: Vec<(P, Counts)>,
    last_sequence_number: i64,
}

/// A state in bytes.
pub fn encode(state: &TableState) -> Result<Vec<u8>> {
    let body = Body {
        head: state.layout.head_figures(),
        partitions: state.layout.partitions().iter().map(|(key, layout)| (key, layout.as_ref())).collect(),
        table: *state.history.table(),
        heard: state.history.partitions().iter().collect(),
        counted: state.counted.iter().map(|(path, counts)| (path, *counts)).collect(),
        last_sequence_number: state.last_sequence_number,
    };
    let mut bytes = vec![VERSION; 9];
    bytes = postcard::to_extend(&body, bytes).map_err(|e| Error::Journal(format!("a checkpoint cannot be encoded: {e}")))?;
    let (start, rest) = bytes.split_at_mut(9);
    if let Some(sum) = start.get_mut(1..) {
        sum.copy_from_slice(&xxh3_64(rest).to_le_bytes());
    }
    Ok(bytes)
}

/// The state in the bytes; `None` when they are of another version or damaged.
pub fn decode(bytes: &[u8]) -> Option<TableState> {
    let (version, rest) = bytes.split_first()?;
    let (sum, body) = rest.split_first_chunk::<8>()?;
    if *version != VERSION || u64::from_le_bytes(*sum) != xxh3_64(body) {
        return None;
    }
    let (body, rest) = postcard::take_from_bytes::<Body<PartitionKey, PartitionLayout, Heard, Arc<str>>>(body).ok()?;
    if !rest.is_empty() {
        return None;
    }
    let mut layout = TableLayout::of_head(body.head);
    for (key, partition) in body.partitions {
        layout.restore(key, partition).ok()?;
    }
    Some(TableState {
        layout,
        history: History::from_parts(body.table, body.heard),
        counted: body.counted.into_iter().collect(),
        last_sequence_number: body.last_sequence_number,
    })
}

/// Checkpoints in memory.
#[derive(Default)]
pub struct InMemory(Mutex<HashMap<Key, Vec<u8>>>);

impl InMemory {
    fn map(&self) -> std::sync::MutexGuard<'_, HashMap<Key, Vec<u8>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Checkpoints for InMemory {
    async fn load(&self, key: &Key) -> Result<Option<Vec<u8>>> {
        Ok(self.map().get(key).cloned())
    }

    async fn save(&self, key: &Key, bytes: Vec<u8>) -> Result<()> {
        self.map().insert(key.clone(), bytes);
        Ok(())
    }

    async fn remove(&self, ident: &TableIdent) -> Result<()> {
        self.map().retain(|key, _| key.ident != *ident);
        Ok(())
    }
}
