//! Time that only the simulation moves.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use afterwrite::lake::clock::Clock;

use super::hold;

/// Where every run begins, in milliseconds since the epoch: long ago, so that the
/// machine's time, which the Iceberg crate stamps, is told from it and never before.
pub const EPOCH_MS: i64 = 1_500_000_000_000;

/// Later than any run comes.
pub const MACHINE_MS: i64 = EPOCH_MS + 100_000_000_000;

pub struct SimClock(Mutex<State>);

struct State {
    now_ms: i64,
    elapsed_ms: i64,
    next: u64,
    sleepers: BTreeMap<(i64, u64), Waker>,
}

impl SimClock {
    pub fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::new(State { now_ms: EPOCH_MS, elapsed_ms: 0, next: 0, sleepers: BTreeMap::new() })))
    }

    /// The next moment at which somebody wants to be woken.
    pub fn next_ms(&self) -> Option<i64> {
        hold(&self.0).sleepers.keys().next().map(|(at, _)| *at)
    }

    /// Lets time pass until then.
    pub fn set(&self, now_ms: i64) {
        {
            let mut state = hold(&self.0);
            state.elapsed_ms += (now_ms - state.now_ms).max(0);
        }
        self.show(now_ms);
    }

    /// Sets the wall clock, forwards or back, while no time passes, and wakes whom it is
    /// time for, in order.
    pub fn show(&self, now_ms: i64) {
        let mut state = hold(&self.0);
        state.now_ms = now_ms;
        let later = state.sleepers.split_off(&(now_ms + 1, 0));
        for waker in std::mem::replace(&mut state.sleepers, later).into_values() {
            waker.wake();
        }
    }

    pub fn pass(&self, ms: i64) {
        self.set(self.now_ms() + ms);
    }
}

#[async_trait::async_trait]
impl Clock for SimClock {
    fn now_ms(&self) -> i64 {
        hold(&self.0).now_ms
    }

    fn elapsed_ms(&self) -> i64 {
        hold(&self.0).elapsed_ms
    }

    async fn sleep(&self, time: Duration) {
        let until = self.now_ms() + i64::try_from(time.as_millis()).unwrap();
        Sleep { clock: self, until, id: None }.await;
    }
}

struct Sleep<'a> {
    clock: &'a SimClock,
    until: i64,
    id: Option<u64>,
}

impl Future for Sleep<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = hold(&self.clock.0);
        if state.now_ms >= self.until {
            return Poll::Ready(());
        }
        let id = self.id.unwrap_or(state.next);
        state.next = state.next.max(id + 1);
        state.sleepers.insert((self.until, id), cx.waker().clone());
        drop(state);
        self.id = Some(id);
        Poll::Pending
    }
}

impl Drop for Sleep<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            hold(&self.clock.0).sleepers.remove(&(self.until, id));
        }
    }
}
