//! States in bytes, for a restart to read no manifest that was read before.
//!
//! A checkpoint is a whole state and a log of what changed since. Each begins
//! with `version (1 byte) · xxh3 of the rest (8 bytes, little endian)`. The rest
//! of a whole state is its figures (postcard) and its packed partitions; the rest
//! of a log's record is the checksum of what it follows, the figures, the keys
//! that are gone, and the partitions that are new or changed.
//!
//! Bytes of an unknown version, damaged ones, and a record that does not follow
//! what is before it make the whole no state: it is rebuilt.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use imbl::ordmap::DiffItem;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use super::cache::Key;
use super::history::Heard;
use super::pack::{Input, put_bytes, put_u64};
use super::state::{Counts, Head, TableLayout, TableState};
use crate::lake::{Error, Result};
use crate::model::ident::TableIdent;

/// The version of the encoding. Every change of a stored type needs another.
pub const VERSION: u8 = 3;

/// Version and checksum.
const SEAL: usize = 9;

/// What was saved of one state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Saved {
    /// A whole state.
    pub base: Vec<u8>,
    /// What changed since, oldest first.
    pub log: Vec<Vec<u8>>,
}

/// Where checkpoints are kept. A crash leaves a call done or not done.
#[async_trait]
pub trait Checkpoints: Send + Sync {
    /// What was saved last.
    async fn load(&self, key: &Key) -> Result<Option<Saved>>;

    /// Keeps a whole state in place of the one before and of its log.
    async fn save(&self, key: &Key, base: Vec<u8>) -> Result<()>;

    /// Adds a record to the log, behind `at` others.
    async fn append(&self, key: &Key, at: u64, record: Vec<u8>) -> Result<()>;

    /// Drops every branch of a table that is not told of by itself.
    async fn remove(&self, ident: &TableIdent) -> Result<()>;

    /// Drops one branch. What is left of it costs space and is never wrong: it is brought to
    /// the head of a branch that comes back under the name.
    async fn remove_branch(&self, _key: &Key) -> Result<()> {
        Ok(())
    }
}

/// How far a checkpoint has come: what its next record follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tail {
    base_bytes: u64,
    log_bytes: u64,
    /// Records in the log.
    pub records: u64,
    checksum: u64,
}

/// A log may weigh so much beside a base of any size.
const LOG_BYTES: u64 = 64 << 10;
/// Beyond that a log may weigh this fraction of its base.
const LOG_SHARE: u64 = 4;
/// The most records of a log.
const LOG_RECORDS: u64 = 1 << 16;

impl Tail {
    /// Behind a whole state.
    pub fn of(base: &[u8]) -> Self {
        Self { base_bytes: base.len() as u64, log_bytes: 0, records: 0, checksum: checksum(base) }
    }

    /// Behind one more record.
    fn after(self, record: &[u8]) -> Self {
        let log_bytes = self.log_bytes.saturating_add(record.len() as u64);
        Self { log_bytes, records: self.records.saturating_add(1), checksum: checksum(record), ..self }
    }

    /// Behind one more record; `None` when it is time for a new base: then the
    /// log outweighs a share of it, so that saving costs but a few times what the
    /// records do, and a restart replays no more than that share.
    pub fn take(self, record: &[u8]) -> Option<Self> {
        let next = self.after(record);
        let holds = next.log_bytes <= LOG_BYTES.saturating_add(self.base_bytes / LOG_SHARE) && next.records <= LOG_RECORDS;
        holds.then_some(next)
    }
}

/// All of a state but its partitions and the counts of manifests.
#[derive(Serialize, Deserialize)]
struct Figures {
    head: Head,
    heard: Heard,
    last_sequence_number: i64,
}

/// Counts of manifests that have any now.
type Counted<P> = Vec<(P, Counts)>;

/// A state in bytes.
///
/// # Errors
/// When it cannot be encoded.
pub fn encode(state: &TableState) -> Result<Vec<u8>> {
    let counted: Counted<&Arc<str>> = state.counted.iter().map(|(path, counts)| (path, *counts)).collect();
    let mut out = vec![VERSION; SEAL];
    put_postcard(&mut out, &(figures(state), counted))?;
    put_u64(&mut out, state.layout.partitions().len() as u64);
    for (key, row) in state.layout.partitions().packed() {
        put_bytes(&mut out, key);
        put_bytes(&mut out, row);
    }
    Ok(seal(out))
}

/// What changed between a state and a later one, as the record behind `tail`.
/// Costs what changed.
///
/// # Errors
/// When it cannot be encoded.
pub fn encode_change(before: &TableState, now: &TableState, tail: &Tail) -> Result<Vec<u8>> {
    let (mut uncounted, mut counted): (Vec<&Arc<str>>, Counted<&Arc<str>>) = (Vec::new(), Vec::new());
    for item in before.counted.diff(&now.counted) {
        match item {
            DiffItem::Add(path, counts) | DiffItem::Update { new: (path, counts), .. } => counted.push((path, *counts)),
            DiffItem::Remove(path, _) => uncounted.push(path),
        }
    }
    let (mut gone, mut put) = (Vec::new(), Vec::new());
    for (key, row) in before.layout.partitions().packed_diff(now.layout.partitions()) {
        match row {
            Some(row) => put.push((key, row)),
            None => gone.push(key),
        }
    }
    let mut out = vec![VERSION; SEAL];
    out.extend(tail.checksum.to_le_bytes());
    put_postcard(&mut out, &(figures(now), uncounted, counted))?;
    put_u64(&mut out, gone.len() as u64);
    gone.into_iter().for_each(|key| put_bytes(&mut out, key));
    put_u64(&mut out, put.len() as u64);
    for (key, row) in put {
        put_bytes(&mut out, key);
        put_bytes(&mut out, row);
    }
    Ok(seal(out))
}

/// The state that was saved, and where its log ends; `None` when any of it is of
/// another version, damaged, or does not follow what is before it.
pub fn decode(saved: &Saved) -> Option<(TableState, Tail)> {
    let mut input = Input(unseal(&saved.base)?);
    let (figures, counted): (Figures, Counted<Arc<str>>) = postcard_of(&mut input)?;
    let mut state = TableState {
        layout: TableLayout::of_head(figures.head),
        heard: figures.heard,
        counted: counted.into_iter().collect(),
        last_sequence_number: figures.last_sequence_number,
    };
    restore(&mut input, &mut state)?;
    let mut tail = Tail::of(&saved.base);
    for record in &saved.log {
        replay(record, &mut state, &tail)?;
        tail = tail.after(record);
    }
    Some((state, tail))
}

fn replay(record: &[u8], state: &mut TableState, tail: &Tail) -> Option<()> {
    let (follows, rest) = unseal(record)?.split_first_chunk::<8>()?;
    if u64::from_le_bytes(*follows) != tail.checksum {
        return None;
    }
    let mut input = Input(rest);
    let (figures, uncounted, counted): (Figures, Vec<Arc<str>>, Counted<Arc<str>>) = postcard_of(&mut input)?;
    for path in &uncounted {
        state.counted.remove(path);
    }
    state.counted.extend(counted);
    for _ in 0..input.u64()? {
        state.layout.restore(input.bytes()?, None)?;
    }
    restore(&mut input, state)?;
    state.layout.set_figures(figures.head);
    state.heard = figures.heard;
    state.last_sequence_number = figures.last_sequence_number;
    Some(())
}

/// Partitions that are new or changed, up to the end.
fn restore(input: &mut Input<'_>, state: &mut TableState) -> Option<()> {
    for _ in 0..input.u64()? {
        let key = input.bytes()?;
        state.layout.restore(key, Some(input.bytes()?))?;
    }
    input.0.is_empty().then_some(())
}

fn figures(state: &TableState) -> Figures {
    Figures { head: state.layout.head_figures(), heard: state.heard, last_sequence_number: state.last_sequence_number }
}

fn put_postcard<T: Serialize>(out: &mut Vec<u8>, value: &T) -> Result<()> {
    let bytes = std::mem::take(out);
    *out = postcard::to_extend(value, bytes).map_err(|e| Error::Journal(format!("a checkpoint cannot be encoded: {e}")))?;
    Ok(())
}

fn postcard_of<T: for<'de> Deserialize<'de>>(input: &mut Input<'_>) -> Option<T> {
    let (value, rest) = postcard::take_from_bytes(input.0).ok()?;
    input.0 = rest;
    Some(value)
}

fn seal(mut bytes: Vec<u8>) -> Vec<u8> {
    if let Some((start, rest)) = bytes.split_first_chunk_mut::<SEAL>() {
        let sum = xxh3_64(rest).to_le_bytes();
        start.iter_mut().skip(1).zip(sum).for_each(|(byte, value)| *byte = value);
    }
    bytes
}

fn unseal(bytes: &[u8]) -> Option<&[u8]> {
    let (start, rest) = bytes.split_first_chunk::<SEAL>()?;
    (start.first() == Some(&VERSION) && checksum(bytes) == xxh3_64(rest)).then_some(rest)
}

/// The checksum that sealed bytes claim.
fn checksum(sealed: &[u8]) -> u64 {
    let claimed = sealed.get(1..SEAL).and_then(|sum| <[u8; 8]>::try_from(sum).ok());
    claimed.map_or(0, u64::from_le_bytes)
}

/// Checkpoints in memory.
#[derive(Default)]
pub struct InMemory(Mutex<HashMap<Key, Saved>>);

impl InMemory {
    fn map(&self) -> std::sync::MutexGuard<'_, HashMap<Key, Saved>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Checkpoints for InMemory {
    async fn load(&self, key: &Key) -> Result<Option<Saved>> {
        Ok(self.map().get(key).cloned())
    }

    async fn save(&self, key: &Key, base: Vec<u8>) -> Result<()> {
        self.map().insert(key.clone(), Saved { base, log: Vec::new() });
        Ok(())
    }

    async fn append(&self, key: &Key, at: u64, record: Vec<u8>) -> Result<()> {
        let mut map = self.map();
        let saved = map.get_mut(key).filter(|saved| saved.log.len() as u64 == at);
        saved.ok_or_else(|| Error::Journal(format!("{}: no checkpoint of {at} records", key.ident)))?.log.push(record);
        Ok(())
    }

    async fn remove(&self, ident: &TableIdent) -> Result<()> {
        self.map().retain(|key, _| key.ident != *ident);
        Ok(())
    }

    async fn remove_branch(&self, key: &Key) -> Result<()> {
        self.map().remove(key);
        Ok(())
    }
}
