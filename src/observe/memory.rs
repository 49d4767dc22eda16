//! Which snapshots were heard of lately, in bounded memory.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

/// Remembers keys for a time, at most so many; the oldest go first.
#[derive(Debug)]
pub(super) struct Memory<K> {
    heard: HashMap<K, i64>,
    order: VecDeque<(K, i64)>,
    most: usize,
    keep_ms: i64,
}

impl<K: Clone + Eq + Hash> Memory<K> {
    pub(super) fn new(most: usize, keep_ms: i64) -> Self {
        Self { heard: HashMap::new(), order: VecDeque::new(), most, keep_ms }
    }

    /// Whether the key was remembered and its time is not over.
    pub(super) fn knows(&self, key: &K, now_ms: i64) -> bool {
        self.heard.get(key).is_some_and(|at| now_ms.saturating_sub(*at) < self.keep_ms)
    }

    pub(super) fn remember(&mut self, key: K, now_ms: i64) {
        self.order.push_back((key.clone(), now_ms));
        self.heard.insert(key, now_ms);
        while self.order.len() > self.most || self.order.front().is_some_and(|(_, at)| now_ms.saturating_sub(*at) >= self.keep_ms) {
            let Some((oldest, at)) = self.order.pop_front() else { break };
            if self.heard.get(&oldest) == Some(&at) {
                self.heard.remove(&oldest);
            }
        }
    }

    pub(super) fn forget(&mut self, key: &K) {
        self.heard.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_are_forgotten_first() {
        let mut memory = Memory::new(2, 1000);
        for key in ["a", "b", "c"] {
            memory.remember(key, 0);
        }
        assert_eq!(["a", "b", "c"].map(|k| memory.knows(&k, 1)), [false, true, true]);
    }

    #[test]
    fn a_key_is_known_until_its_time_is_over() {
        let mut memory = Memory::new(9, 1000);
        memory.remember("a", 0);
        assert_eq!([memory.knows(&"a", 999), memory.knows(&"a", 1000)], [true, false]);
    }

    #[test]
    fn forgetting_and_remembering_over_and_over_stays_bounded() {
        let mut memory = Memory::new(3, 1000);
        for _ in 0..100 {
            memory.remember("a", 0);
            memory.forget(&"a");
        }
        assert_eq!((memory.order.len(), memory.heard.len()), (3, 0));
    }
}
