//! How far one partition has been absorbed, without a gap. Pure.

use std::collections::BTreeMap;

/// A record whose events are not all absorbed.
#[derive(Clone, Copy, Debug)]
struct Open {
    written_ms: Option<i64>,
    /// Events that still wait.
    waits: usize,
    /// Later records that are absorbed together with it.
    along: usize,
}

/// The records of a partition that were taken and are not absorbed.
///
/// What it promises, for any order of answers: an offset is told only when every
/// record taken before it is absorbed; what is told never falls; offsets that no
/// record has (control records, compacted ones) hold nothing up; memory is that of
/// the records that wait for looks of their own, however many were absorbed behind one
/// of them or wait along with it.
#[derive(Debug, Default)]
pub struct Watermark {
    open: BTreeMap<i64, Open>,
    /// The offset behind the last record taken.
    behind: Option<i64>,
    /// The last offset told; at first that of the first record, from which on
    /// nothing is absorbed.
    told: Option<i64>,
    waiting: usize,
}

impl Watermark {
    /// A record was taken; so many of its events wait. False, and nothing is noted,
    /// for one that was taken before.
    pub fn taken(&mut self, offset: i64, written_ms: Option<i64>, waits: usize) -> bool {
        if self.behind.is_some_and(|behind| offset < behind) {
            return false;
        }
        self.behind = Some(offset.saturating_add(1));
        self.told.get_or_insert(offset);
        if waits > 0 {
            self.open.insert(offset, Open { written_ms, waits, along: 0 });
            self.waiting = self.waiting.saturating_add(1);
        }
        true
    }

    /// One event of a record was absorbed. Offsets that do not wait are passed over.
    pub fn absorbed(&mut self, offset: i64) {
        let Some(open) = self.open.get_mut(&offset) else { return };
        open.waits -= 1;
        if open.waits == 0 {
            let along = open.along;
            self.open.remove(&offset);
            self.waiting = self.waiting.saturating_sub(along.saturating_add(1));
        }
    }

    /// One event of `later` will be absorbed at the same moment as one of `first`: it need
    /// not be told. False, and nothing is noted, where that cannot be.
    pub fn joins(&mut self, later: i64, first: i64) -> bool {
        if first >= later || !self.open.contains_key(&first) {
            return false;
        }
        let Some(open) = self.open.get_mut(&later) else { return false };
        open.waits -= 1;
        let along = if open.waits == 0 { open.along.saturating_add(1) } else { return true };
        self.open.remove(&later);
        if let Some(open) = self.open.get_mut(&first) {
            open.along = open.along.saturating_add(along);
        }
        true
    }

    /// The offset to go on from after a restart: that of the first record which is
    /// not absorbed, or the one behind the last.
    pub fn next(&self) -> Option<i64> {
        self.open.first_key_value().map(|(offset, _)| *offset).or(self.behind)
    }

    /// [`Watermark::next`], when it has moved since it was last told.
    pub fn tell(&mut self) -> Option<i64> {
        let next = self.next().filter(|next| self.told.is_some_and(|told| *next > told))?;
        self.told = Some(next);
        Some(next)
    }

    /// Records that wait.
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// Those of them that take memory.
    pub fn kept(&self) -> usize {
        self.open.len()
    }

    /// When the oldest record that waits was written.
    pub fn oldest_ms(&self) -> Option<i64> {
        self.open.first_key_value().and_then(|(_, open)| open.written_ms)
    }
}
