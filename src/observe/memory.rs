//! Which snapshots were heard of lately, in bounded memory.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

/// Remembers keys, each with what is known of it, for a time, at most so many; the
/// oldest go first.
#[derive(Debug)]
pub(super) struct Memory<K, V> {
    heard: HashMap<K, (i64, V)>,
    order: VecDeque<(K, i64)>,
    most: usize,
    keep_ms: i64,
}

impl<K: Clone + Eq + Hash, V> Memory<K, V> {
    pub(super) fn new(most: usize, keep_ms: i64) -> Self {
        Self { heard: HashMap::new(), order: VecDeque::new(), most, keep_ms }
    }

    /// What is known of a key that was remembered and whose time is not over.
    pub(super) fn knows(&self, key: &K, now_ms: i64) -> Option<&V> {
        self.heard.get(key).filter(|(at, _)| now_ms.saturating_sub(*at) < self.keep_ms).map(|(_, value)| value)
    }

    pub(super) fn remember(&mut self, key: K, value: V, now_ms: i64) {
        self.order.push_back((key.clone(), now_ms));
        self.heard.insert(key, (now_ms, value));
        while self.order.len() > self.most || self.order.front().is_some_and(|(_, at)| now_ms.saturating_sub(*at) >= self.keep_ms) {
            let Some((oldest, at)) = self.order.pop_front() else { break };
            if self.heard.get(&oldest).is_some_and(|(heard, _)| *heard == at) {
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
            memory.remember(key, (), 0);
        }
        assert_eq!(["a", "b", "c"].map(|k| memory.knows(&k, 1).is_some()), [false, true, true]);
    }

    #[test]
    fn a_key_is_known_until_its_time_is_over() {
        let mut memory = Memory::new(9, 1000);
        memory.remember("a", (), 0);
        assert_eq!([memory.knows(&"a", 999).is_some(), memory.knows(&"a", 1000).is_some()], [true, false]);
    }

    #[test]
    fn forgetting_and_remembering_over_and_over_stays_bounded() {
        let mut memory = Memory::new(3, 1000);
        for _ in 0..100 {
            memory.remember("a", (), 0);
            memory.forget(&"a");
        }
        assert_eq!((memory.order.len(), memory.heard.len()), (3, 0));
    }
}
