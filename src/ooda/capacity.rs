//! What the cluster has free, as it was told, and the budget that follows from it.

use std::sync::PoisonError;

use crate::decide::budget::{LINGER_MS, gb_hours};
use crate::decide::round::Candidate;
use crate::serve::backend::Error;

use super::Loop;

/// A job that is cut to less time does nothing, in milliseconds.
const LEAST_MS: i64 = 60_000;

/// What is free, in GB, and until when that holds, in milliseconds since the epoch.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Capacity(Option<(f64, i64)>);

impl Loop {
    /// See [`crate::serve::Backend::tell_capacity`].
    pub(super) fn take_capacity(&self, free_gb: f64, until_ms: i64) -> Result<f64, Error> {
        if self.parts.settings.capacity.share.is_none() {
            let why = "the budget does not follow what is free: set budget.capacity_share to the share of it that jobs may hold";
            return Err(Error::Unasked(why.to_owned()));
        }
        self.capacity.lock().unwrap_or_else(PoisonError::into_inner).0 = Some((free_gb, until_ms));
        self.changed.notify_one();
        Ok(self.gb_hours_per_hour(self.now()))
    }

    /// What all jobs may spend an hour: what the settings allow or, where it follows what
    /// is free, a share of that, and nothing while that is not known.
    pub(super) fn gb_hours_per_hour(&self, now_ms: i64) -> f64 {
        let most = self.parts.settings.budgets.overall.gb_hours_per_hour;
        let Some(share) = self.parts.settings.capacity.share else { return most };
        let told = self.capacity.lock().unwrap_or_else(PoisonError::into_inner).0;
        told.filter(|(_, until_ms)| *until_ms > now_ms).map_or(0.0, |(free_gb, _)| (free_gb * share).min(most))
    }

    /// Has the budget follow what is free, where it does, and candidates set no more of it
    /// aside than it can hold: their plans are cut to it.
    pub(super) fn follow_capacity(&self, candidates: &mut [Candidate], now_ms: i64) {
        if self.parts.settings.capacity.share.is_none() {
            return;
        }
        let rate = self.gb_hours_per_hour(now_ms);
        let room = {
            let mut budget = self.budget();
            budget.derive(rate, now_ms);
            budget.room()
        };
        for candidate in candidates {
            let least = gb_hours(candidate.bound.memory, LINGER_MS.saturating_add(LEAST_MS));
            candidate.bound.gb_hours = candidate.bound.gb_hours.min(room.max(least));
        }
    }
}
