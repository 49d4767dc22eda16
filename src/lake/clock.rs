//! Time and chance: one port each, so that a simulation can own them.

use std::sync::LazyLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;

/// Wall clock and waiting.
#[async_trait]
pub trait Clock: Send + Sync {
    /// Milliseconds since the epoch.
    fn now_ms(&self) -> i64;
    /// Milliseconds since some moment, on a clock that nobody sets: a difference of two is
    /// how long something took, which by the wall clock may be a day or less than nothing.
    fn elapsed_ms(&self) -> i64 {
        self.now_ms()
    }
    /// Waits.
    async fn sleep(&self, time: Duration);
}

/// Random numbers.
pub trait Chance: Send + Sync {
    /// A random number.
    fn next(&self) -> u64;
}

/// The machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

#[async_trait]
impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the machine's clock")]
    fn now_ms(&self) -> i64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    }

    #[expect(clippy::disallowed_methods, reason = "the one place that reads the machine's clock")]
    fn elapsed_ms(&self) -> i64 {
        static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);
        i64::try_from(BEGAN.elapsed().as_millis()).unwrap_or(i64::MAX)
    }

    async fn sleep(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }
}

/// The machine's randomness.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemChance;

impl Chance for SystemChance {
    #[expect(clippy::disallowed_methods, reason = "the one place that draws the machine's randomness")]
    fn next(&self) -> u64 {
        (uuid::Uuid::new_v4().as_u128() >> 64) as u64
    }
}
