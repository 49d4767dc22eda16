//! Random numbers from a seed: the same seed, the same numbers.

use std::sync::Mutex;

use afterwrite::lake::clock::Chance;

use super::hold;

/// SplitMix64.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `n`; 0 for 0.
    pub fn below(&mut self, n: usize) -> usize {
        if n == 0 { 0 } else { (self.next() % n as u64) as usize }
    }

    /// Once in `n` times, on average; never for 0.
    pub fn one_in(&mut self, n: u64) -> bool {
        n > 0 && self.next().is_multiple_of(n)
    }

    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> Option<&'a T> {
        of.get(self.below(of.len()))
    }

    /// The place of one weight among several.
    pub fn weighted(&mut self, weights: &[u64]) -> usize {
        let mut at = self.next() % weights.iter().sum::<u64>().max(1);
        for (place, weight) in weights.iter().enumerate() {
            if at < *weight {
                return place;
            }
            at -= weight;
        }
        0
    }
}

/// The product's chance.
pub struct SimChance(Mutex<Dice>);

impl SimChance {
    pub fn new(seed: u64) -> Self {
        Self(Mutex::new(Dice::new(seed)))
    }
}

impl Chance for SimChance {
    fn next(&self) -> u64 {
        hold(&self.0).next()
    }
}
