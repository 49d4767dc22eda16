//! Waiting between tries: longer each time, and by chance, so that two who
//! collided do not collide again.

use std::time::Duration;

/// Growing waits.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    step: Duration,
    cap: Duration,
}

impl Backoff {
    /// Starts at `base`, doubles, and stays at `cap`.
    pub fn new(base: Duration, cap: Duration) -> Self {
        Self { step: base.min(cap), cap }
    }

    /// The next wait: between half the step and the step, by `chance`.
    pub fn next(&mut self, chance: u64) -> Duration {
        let step = u64::try_from(self.step.as_millis()).unwrap_or(u64::MAX);
        let half = step / 2;
        self.step = self.step.saturating_mul(2).min(self.cap);
        Duration::from_millis(half + chance % (step - half).saturating_add(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_cap() {
        let mut waits = Backoff::new(Duration::from_millis(100), Duration::from_millis(350));
        let longest: Vec<u128> = [50, 100, 175, 175].into_iter().map(|c| waits.next(c).as_millis()).collect();
        assert_eq!(longest, vec![100, 200, 350, 350]);
    }

    #[test]
    fn chance_spreads_over_the_upper_half() {
        let wait = |chance| Backoff::new(Duration::from_millis(100), Duration::from_secs(1)).next(chance).as_millis();
        assert_eq!((wait(0), wait(50), wait(51), wait(u64::MAX)), (50, 100, 50, 50 + u128::from(u64::MAX % 51)));
    }
}
