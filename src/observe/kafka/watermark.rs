//! How far one partition has been absorbed, without a gap. Pure.

use std::collections::VecDeque;

/// A record whose events are not all absorbed.
#[derive(Clone, Copy, Debug)]
struct Open {
    offset: i64,
    written_ms: Option<i64>,
    /// Events that still wait; 0 once it is absorbed and something before it is not.
    waits: usize,
}

/// The records of a partition between the first that is not absorbed and the last
/// that was taken.
///
/// What it promises, for any order of answers: an offset is told only when every
/// record taken before it is absorbed; what is told never falls; offsets that no
/// record has (control records, compacted ones) hold nothing up.
#[derive(Debug, Default)]
pub struct Watermark {
    open: VecDeque<Open>,
    /// Records of `open` that wait.
    waiting: usize,
    /// The offset behind the last record taken.
    behind: Option<i64>,
    /// The last offset told; at first that of the first record, from which on
    /// nothing is absorbed.
    told: Option<i64>,
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
        if waits > 0 || !self.open.is_empty() {
            self.open.push_back(Open { offset, written_ms, waits });
            self.waiting += usize::from(waits > 0);
        }
        true
    }

    /// One event of a record was absorbed. Offsets that do not wait are passed over.
    pub fn absorbed(&mut self, offset: i64) {
        let Ok(at) = self.open.binary_search_by_key(&offset, |open| open.offset) else { return };
        let Some(open) = self.open.get_mut(at).filter(|open| open.waits > 0) else { return };
        open.waits -= 1;
        self.waiting -= usize::from(open.waits == 0);
        while self.open.front().is_some_and(|open| open.waits == 0) {
            self.open.pop_front();
        }
    }

    /// The offset to go on from after a restart: that of the first record which is
    /// not absorbed, or the one behind the last.
    pub fn next(&self) -> Option<i64> {
        self.open.front().map(|open| open.offset).or(self.behind)
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

    /// When the oldest record that waits was written.
    pub fn oldest_ms(&self) -> Option<i64> {
        self.open.front().and_then(|open| open.written_ms)
    }
}
