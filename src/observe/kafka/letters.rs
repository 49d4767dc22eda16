//! The dead-letter topic: records that could not be read, as they were, with the
//! reason and their place in headers.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{BaseRecord, DeliveryResult, ProducerContext, ThreadedProducer};
use rdkafka::{ClientConfig, ClientContext};

use super::context::log;
use crate::observe::receipt::Receipt;

/// A record that could not be read.
pub(super) struct Letter {
    pub key: Option<Vec<u8>>,
    pub value: Vec<u8>,
    /// `topic/partition@offset`.
    pub place: String,
    pub reason: String,
    /// Handed back when the letter is written: the offset may move then.
    pub receipt: Receipt,
    _weight: Weight,
}

/// The bytes of one letter among those of all that are not written yet.
struct Weight {
    all: Arc<AtomicUsize>,
    bytes: usize,
}

impl Weight {
    fn new(all: &Arc<AtomicUsize>, bytes: usize) -> Self {
        all.fetch_add(bytes, Ordering::Relaxed);
        Self { all: Arc::clone(all), bytes }
    }
}

impl Drop for Weight {
    fn drop(&mut self) {
        self.all.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// What a letter is made of.
pub(super) struct Parked {
    pub key: Option<Vec<u8>>,
    pub value: Vec<u8>,
    pub place: String,
    pub reason: String,
    pub receipt: Receipt,
}

/// Letters that were not written, to be tried again.
type Failed = Arc<Mutex<Vec<Letter>>>;

/// Writes letters.
pub(super) struct Letters {
    topic: String,
    producer: ThreadedProducer<Delivery>,
    failed: Failed,
    bytes: Arc<AtomicUsize>,
}

struct Delivery {
    topic: String,
    failed: Failed,
}

impl ClientContext for Delivery {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        log(&self.topic, level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::warn!(topic = %self.topic, %error, reason, "the dead-letter topic cannot be written");
    }
}

impl ProducerContext for Delivery {
    type DeliveryOpaque = Box<Letter>;

    fn delivery(&self, result: &DeliveryResult<'_>, letter: Box<Letter>) {
        match result {
            Ok(_) => letter.receipt.hand_back(),
            Err((error, _)) => settle(&self.failed, error, *letter),
        }
    }
}

/// A letter that no topic takes must not hold its partition up for ever.
fn settle(failed: &Failed, error: &KafkaError, letter: Letter) {
    if error.rdkafka_error_code() == Some(RDKafkaErrorCode::MessageSizeTooLarge) {
        tracing::error!(place = %letter.place, reason = %letter.reason, "a record is too large for the dead-letter topic; it stays where it is");
        letter.receipt.hand_back();
        return;
    }
    tracing::warn!(place = %letter.place, %error, "a dead letter was not written; tried again");
    failed.lock().unwrap_or_else(PoisonError::into_inner).push(letter);
}

impl Letters {
    pub(super) fn new(topic: &str, config: &ClientConfig) -> KafkaResult<Self> {
        let failed = Failed::default();
        let delivery = Delivery { topic: topic.to_owned(), failed: Arc::clone(&failed) };
        Ok(Self { topic: topic.to_owned(), producer: config.create_with_context(delivery)?, failed, bytes: Arc::default() })
    }

    /// Writes a letter, in the background.
    pub(super) fn post(&self, parked: Parked) {
        let Parked { key, value, place, reason, receipt } = parked;
        let bytes = value.len().saturating_add(key.as_ref().map_or(0, Vec::len));
        self.send(Letter { key, value, place, reason, receipt, _weight: Weight::new(&self.bytes, bytes) });
    }

    /// Bytes of the letters that are not written yet. The client holds each of them
    /// once more.
    pub(super) fn waiting_bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    fn send(&self, letter: Letter) {
        let headers = OwnedHeaders::new()
            .insert(Header { key: "afterwrite-reason", value: Some(&letter.reason) })
            .insert(Header { key: "afterwrite-place", value: Some(&letter.place) });
        let (key, value) = (letter.key.clone(), letter.value.clone());
        let mut record: BaseRecord<'_, [u8], [u8], Box<Letter>> =
            BaseRecord::with_opaque_to(&self.topic, Box::new(letter)).payload(value.as_slice()).headers(headers);
        if let Some(key) = &key {
            record = record.key(key);
        }
        if let Err((error, record)) = self.producer.send(record) {
            settle(&self.failed, &error, *record.delivery_opaque);
        }
    }

    /// Tries again what was not written.
    pub(super) fn send_again(&self) {
        let failed = std::mem::take(&mut *self.failed.lock().unwrap_or_else(PoisonError::into_inner));
        for letter in failed {
            self.send(letter);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_weigh_until_they_are_gone() {
        let all = Arc::<AtomicUsize>::default();
        let (first, second) = (Weight::new(&all, 7), Weight::new(&all, 5));
        assert_eq!(all.load(Ordering::Relaxed), 12);
        drop(first);
        assert_eq!(all.load(Ordering::Relaxed), 5);
        drop(second);
        assert_eq!(all.load(Ordering::Relaxed), 0);
    }
}
