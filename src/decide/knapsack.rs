//! The subset that gains most within the budgets, by trying all of them.

use super::budget::{Ask, Budget, Reservation};

/// The most candidates of which every subset is tried: `2^16` at the worst.
pub const MOST: usize = 16;

/// What tells whether one more fits beside those that were put in.
pub trait Room {
    /// Puts an item in; `false` when it does not fit.
    fn put(&mut self, item: usize) -> bool;
    /// Takes the item that was put in last out again.
    fn take_back(&mut self);
}

/// Which items together gain most, of all that fit; of several such choices the one
/// that prefers items given first. `None` above [`MOST`] items.
pub fn best(gains: &[u64], room: &mut impl Room) -> Option<Vec<bool>> {
    if gains.len() > MOST {
        return None;
    }
    // what is still to be had from an item on
    let mut left = vec![0_u64; gains.len() + 1];
    for (at, gain) in gains.iter().enumerate().rev() {
        let after = left.get(at + 1).copied().unwrap_or(0);
        if let Some(slot) = left.get_mut(at) {
            *slot = after.saturating_add(*gain);
        }
    }
    let mut search = Search { gains, left: &left, taken: vec![false; gains.len()], sum: 0, best: None };
    search.from(0, room);
    Some(search.best.map_or_else(|| vec![false; gains.len()], |(_, chosen)| chosen))
}

struct Search<'a> {
    gains: &'a [u64],
    left: &'a [u64],
    taken: Vec<bool>,
    sum: u64,
    best: Option<(u64, Vec<bool>)>,
}

impl Search<'_> {
    /// Tries all choices among the items from one on. As deep as there are items.
    fn from(&mut self, at: usize, room: &mut impl Room) {
        let reach = self.sum.saturating_add(self.left.get(at).copied().unwrap_or(0));
        if self.best.as_ref().is_some_and(|(most, _)| reach <= *most) {
            return;
        }
        let Some(gain) = self.gains.get(at).copied() else {
            self.best = Some((self.sum, self.taken.clone()));
            return;
        };
        if gain > 0 && room.put(at) {
            let before = self.sum;
            self.sum = self.sum.saturating_add(gain);
            self.mark(at, true);
            self.from(at + 1, room);
            self.mark(at, false);
            self.sum = before;
            room.take_back();
        }
        self.from(at + 1, room);
    }

    fn mark(&mut self, at: usize, taken: bool) {
        if let Some(slot) = self.taken.get_mut(at) {
            *slot = taken;
        }
    }
}

/// The room that the budgets leave. What was put in is given back when it is dropped.
pub struct Trial<'a> {
    budget: &'a mut Budget,
    asks: &'a [Ask<'a>],
    now_ms: i64,
    held: Vec<Reservation>,
}

impl<'a> Trial<'a> {
    /// For these jobs.
    pub fn of(budget: &'a mut Budget, asks: &'a [Ask<'a>], now_ms: i64) -> Self {
        Self { budget, asks, now_ms, held: Vec::new() }
    }
}

impl Room for Trial<'_> {
    fn put(&mut self, item: usize) -> bool {
        let Some(ask) = self.asks.get(item) else { return false };
        match self.budget.reserve_for(ask, self.now_ms) {
            Ok(reservation) => {
                self.held.push(reservation);
                true
            }
            Err(_) => false,
        }
    }

    fn take_back(&mut self) {
        if let Some(reservation) = self.held.pop() {
            self.budget.settle(reservation, 0.0, self.now_ms);
        }
    }
}

impl Drop for Trial<'_> {
    fn drop(&mut self) {
        while !self.held.is_empty() {
            self.take_back();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// One budget, and so many items at a time.
    struct Sack<'a> {
        weights: &'a [u64],
        left: u64,
        slots: usize,
        held: Vec<u64>,
    }

    impl Room for Sack<'_> {
        fn put(&mut self, item: usize) -> bool {
            let weight = self.weights[item];
            let fits = weight <= self.left && self.held.len() < self.slots;
            if fits {
                self.left -= weight;
                self.held.push(weight);
            }
            fits
        }

        fn take_back(&mut self) {
            self.left += self.held.pop().unwrap();
        }
    }

    fn choose(items: &[(u64, u64)], budget: u64, slots: usize) -> Option<Vec<bool>> {
        let (gains, weights): (Vec<u64>, Vec<u64>) = items.iter().copied().unzip();
        best(&gains, &mut Sack { weights: &weights, left: budget, slots, held: vec![] })
    }

    fn sums(items: &[(u64, u64)], chosen: &[bool]) -> (u64, u64, usize) {
        let of = items.iter().zip(chosen).filter(|(_, c)| **c).map(|(i, _)| *i);
        of.fold((0, 0, 0), |(gain, weight, n), (g, w)| (gain + g, weight + w, n + 1))
    }

    #[test]
    fn two_that_fit_beside_each_other_beat_the_best_one() {
        assert_eq!(choose(&[(10, 6), (7, 5), (6, 5)], 10, 9), Some(vec![false, true, true]));
        assert_eq!(choose(&[(10, 6), (7, 5), (6, 5)], 10, 1), Some(vec![true, false, false]));
    }

    #[test]
    fn of_equal_choices_the_first_given_is_taken_and_what_gains_nothing_is_not() {
        assert_eq!(choose(&[(5, 5), (5, 5), (0, 0)], 5, 9), Some(vec![true, false, false]));
        assert_eq!((choose(&[], 5, 9), choose(&[(1, 9)], 5, 9)), (Some(vec![]), Some(vec![false])));
    }

    #[test]
    fn more_than_can_be_tried_are_not() {
        assert_eq!(choose(&[(1, 1); MOST], 3, 99).map(|c| c.iter().filter(|c| **c).count()), Some(3));
        assert_eq!(choose(&[(1, 1); MOST + 1], 3, 99), None);
    }

    proptest! {
        #[test]
        fn no_other_choice_that_fits_gains_more(
            items in prop::collection::vec((0u64..30, 0u64..20), 0..10), budget in 0u64..60, slots in 0usize..6,
        ) {
            let chosen = choose(&items, budget, slots).unwrap();
            let (gain, weight, n) = sums(&items, &chosen);
            prop_assert!(weight <= budget && n <= slots);
            for other in 0u32..1 << items.len() {
                let other: Vec<bool> = (0..items.len()).map(|at| other >> at & 1 == 1).collect();
                let (most, weight, n) = sums(&items, &other);
                prop_assert!(most <= gain || weight > budget || n > slots, "{:?} gains {} of {}", other, gain, most);
            }
        }
    }
}
