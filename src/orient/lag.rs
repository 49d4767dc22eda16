//! Loads that are older than what is known: of a replica that lags, or of a catalog
//! that was set back to an older state of the table, as from a backup.
//!
//! The two look the same. A replica comes up, and other loads come from elsewhere;
//! a catalog that was set back answers with the older state again and again.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::cache::Key;
use crate::model::ident::TableIdent;

/// For so long nothing but older loads must come before they are believed, in
/// milliseconds. Each time that they were, twice as long: a replica that lags this far
/// costs ever fewer rebuilds.
const LAG_MS: i64 = 60_000;
/// The longest such time.
const LONGEST_MS: i64 = 3_600_000;

#[derive(Clone, Copy, Debug, Default)]
struct Lag {
    /// Since when nothing but older loads came.
    since_ms: Option<i64>,
    /// How often they were believed.
    believed: u32,
}

/// Which tables' loads are older than what is known, and since when.
#[derive(Debug, Default)]
pub struct Lags(Mutex<HashMap<Key, Lag>>);

impl Lags {
    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Lag>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An older load came; whether it is to be believed.
    pub fn older(&self, key: &Key, now_ms: i64) -> bool {
        let mut lags = self.lock();
        let lag = lags.entry(key.clone()).or_default();
        let since_ms = *lag.since_ms.get_or_insert(now_ms);
        let wait = LAG_MS.saturating_mul(1_i64.checked_shl(lag.believed.min(20)).unwrap_or(i64::MAX)).min(LONGEST_MS);
        now_ms.saturating_sub(since_ms) >= wait
    }

    /// An older load was believed, and is what is known now.
    pub fn believed(&self, key: &Key) {
        let mut lags = self.lock();
        let lag = lags.entry(key.clone()).or_default();
        *lag = Lag { since_ms: None, believed: lag.believed.saturating_add(1) };
    }

    /// A load came that is no older.
    pub fn present(&self, key: &Key) {
        let mut lags = self.lock();
        if let Some(lag) = lags.get_mut(key) {
            lag.since_ms = None;
            if lag.believed == 0 {
                lags.remove(key);
            }
        }
    }

    /// The table is gone.
    pub fn forget(&self, ident: &TableIdent) {
        self.lock().retain(|key, _| key.ident != *ident);
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn key(n: u128) -> Key {
        Key::new(TableIdent::iceberg(Uuid::from_u128(n)), "main")
    }

    #[test]
    fn older_loads_are_believed_when_nothing_else_came_for_a_while() {
        let lags = Lags::default();
        assert!(!lags.older(&key(1), 1_000));
        assert!(!lags.older(&key(1), 60_999));
        assert!(lags.older(&key(1), 61_000));
        assert!(!lags.older(&key(2), 61_000));
    }

    #[test]
    fn one_load_that_is_no_older_begins_the_wait_anew() {
        let lags = Lags::default();
        lags.older(&key(1), 0);
        lags.present(&key(1));
        assert!(lags.lock().is_empty());
        assert!(!lags.older(&key(1), 60_000));
        assert!(lags.older(&key(1), 120_000));
    }

    #[test]
    fn each_time_takes_twice_as_long_up_to_an_hour() {
        let lags = Lags::default();
        let mut waits = Vec::new();
        for _ in 0..8 {
            lags.older(&key(1), 0);
            waits.push((0..=60).find(|minutes| lags.older(&key(1), minutes * 60_000)).unwrap());
            lags.believed(&key(1));
            lags.present(&key(1));
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60]);
        lags.forget(&key(1).ident);
        assert!(lags.lock().is_empty());
    }
}
