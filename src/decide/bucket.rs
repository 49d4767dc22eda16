//! A token bucket in integers, filled by time that is passed in.
//!
//! What it holds plus what is reserved never passes its cap, so that what is used
//! over any window is at most `rate × window + cap`, whenever it is booked.

use serde::{Deserialize, Serialize};

/// Milliseconds in an hour: a bucket counts in this fraction of its unit, so that
/// filling it by the millisecond loses nothing.
pub(super) const HOUR_MS: i128 = 3_600_000;

/// One kind of budget of one holder.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Bucket {
    rate: i128,
    cap: i128,
    /// What it can hold at the present rate; at most the cap.
    room: i128,
    level: i128,
    reserved: i128,
    filled_at_ms: i64,
}

impl Bucket {
    /// A full one: what comes in an hour, and what it can hold.
    pub fn full(rate: i128, cap: i128, now_ms: i64) -> Self {
        let cap = cap.saturating_mul(HOUR_MS);
        Self { rate, cap, room: cap, level: cap, reserved: 0, filled_at_ms: now_ms }
    }

    /// The same, with nothing in it.
    pub fn empty(self) -> Self {
        Self { level: 0, ..self }
    }

    /// Whether it could ever hold so much.
    pub fn can_hold(&self, amount: i128) -> bool {
        amount.saturating_mul(HOUR_MS) <= self.cap
    }

    /// Whether it holds so much.
    pub fn holds(&self, amount: i128) -> bool {
        amount.saturating_mul(HOUR_MS) <= self.level
    }

    /// Sets so much aside; it must hold it.
    pub fn reserve(&mut self, amount: i128) {
        let wanted = amount.saturating_mul(HOUR_MS);
        self.level = self.level.saturating_sub(wanted);
        self.reserved = self.reserved.saturating_add(wanted);
    }

    /// Books what was used of a reservation and takes the rest back. More than was
    /// reserved leaves a debt.
    pub fn settle(&mut self, reserved: i128, used: i128) {
        let (held, used) = (reserved.saturating_mul(HOUR_MS), used.saturating_mul(HOUR_MS));
        self.reserved = self.reserved.saturating_sub(held);
        self.level = self.level.saturating_add(held).saturating_sub(used);
    }

    /// Time that goes back fills nothing.
    pub fn fill(&mut self, now_ms: i64) {
        let elapsed = i128::from(now_ms) - i128::from(self.filled_at_ms);
        if elapsed > 0 {
            let room = self.room.saturating_sub(self.reserved).saturating_sub(self.level);
            self.level = self.level.saturating_add(self.rate.saturating_mul(elapsed).min(room).max(0));
            self.filled_at_ms = now_ms;
        }
    }

    /// From here on so much comes in an hour, and so much can be held, at most the cap.
    /// What is held beyond that is lost; what is set aside beyond it is a debt.
    pub fn change(&mut self, rate: i128, room: i128, now_ms: i64) {
        self.fill(now_ms);
        self.rate = rate.max(0);
        self.room = room.max(0).saturating_mul(HOUR_MS).min(self.cap);
        self.level = self.level.min(self.room.saturating_sub(self.reserved));
    }

    /// The most that it can hold at the present rate.
    pub fn room(&self, scale: f64) -> f64 {
        unit(self.room, scale)
    }

    /// Whether it is as one that was never drawn from.
    pub fn is_untouched(&self) -> bool {
        self.level >= self.room && self.reserved == 0
    }

    /// What it holds, in its unit times `scale`.
    pub fn level(&self, scale: f64) -> f64 {
        unit(self.level.max(0), scale)
    }

    /// What is set aside.
    pub fn reserved(&self, scale: f64) -> f64 {
        unit(self.reserved, scale)
    }

    /// The most that it can hold.
    pub fn cap(&self, scale: f64) -> f64 {
        unit(self.cap, scale)
    }
}

fn unit(level: i128, scale: f64) -> f64 {
    level as f64 / HOUR_MS as f64 / scale
}
