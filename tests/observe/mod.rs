//! The doors and the inbox behind them.

mod decoders;
mod doors;
mod gauge;
mod inbox;
mod kafka;
mod laws;
mod poller;
mod receipts;
mod watermark;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use afterwrite::lake::clock::Clock;
use afterwrite::model::event::{Certainty, Door, Event};
use afterwrite::model::ident::TableName;
use afterwrite::observe::inbox::Limits;
use tokio::sync::Notify;

/// A clock that a test moves by hand.
#[derive(Default)]
pub struct HandClock {
    now_ms: AtomicI64,
    moved: Notify,
}

impl HandClock {
    pub fn at(now_ms: i64) -> Arc<Self> {
        Arc::new(Self { now_ms: AtomicI64::new(now_ms), moved: Notify::new() })
    }

    pub fn pass(&self, ms: i64) {
        self.now_ms.fetch_add(ms, Ordering::SeqCst);
        self.moved.notify_waiters();
    }
}

#[async_trait::async_trait]
impl Clock for HandClock {
    fn now_ms(&self) -> i64 {
        self.now_ms.load(Ordering::SeqCst)
    }

    async fn sleep(&self, time: Duration) {
        let until = self.now_ms() + i64::try_from(time.as_millis()).unwrap();
        loop {
            let moved = self.moved.notified();
            if self.now_ms() >= until {
                return;
            }
            moved.await;
        }
    }
}

pub fn name(table: &str) -> TableName {
    TableName::new("lake", "db", table)
}

pub fn event(table: &str, snapshots: &[i64], heard_ms: i64) -> Event {
    Event {
        door: Door::Grpc,
        table: name(table),
        uuid: None,
        reference: None,
        snapshots: snapshots.to_vec(),
        certainty: Certainty::Hint,
        files_added: 0,
        heard_ms,
    }
}

/// The values of a recorded topic.
pub fn recorded(topic: &str) -> Vec<Vec<u8>> {
    decoders::records(topic).into_iter().map(|(_, _, value)| value).collect()
}

/// Limits that are in nobody's way.
pub fn free() -> Limits {
    Limits { interval_ms: 0, looks_per_second: 0, ..Limits::default() }
}
