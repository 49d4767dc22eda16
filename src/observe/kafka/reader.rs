//! The thread that reads: record by record, never waiting for a look.

use std::collections::{HashMap, VecDeque};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use rdkafka::Message;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::message::{BorrowedMessage, Headers};
use tokio_util::sync::CancellationToken;

use super::Topic;
use super::context::{Context, Tracker};
use super::letters::{Letters, Parked};
use crate::model::event::{Door, Event, Heard};
use crate::model::wire::Wire;
use crate::observe::decode::{self, Draft, Record};
use crate::observe::entrance::Entrance;
use crate::observe::ledger::Source;
use crate::observe::receipt::Receipt;
use crate::telemetry;

/// Between two storings of offsets.
const TICK_MS: i64 = 100;
/// Records that may be kept until their looks are absorbed; reading rests beyond, until
/// half of them are. Of one table and partition no more than one is kept, however many
/// wait for the same look.
const MOST_WAITING: usize = 200_000;
/// Bytes of dead letters that may wait to be written; reading rests beyond.
const MOST_LETTERS: usize = 32 << 20;
/// Before dead letters that were not written are tried again.
const LETTERS_MS: i64 = 1_000;

/// A topic and its figures.
struct Read {
    topic: Topic,
    source: Arc<Source>,
}

/// An event that found the inbox full.
struct Held {
    source: Arc<Source>,
    event: Event,
    receipt: Receipt,
}

pub(super) struct Reader {
    topics: HashMap<String, Read>,
    entrance: Arc<Entrance>,
    letters: Option<Letters>,
    max_bytes: usize,
    held: VecDeque<Held>,
    rests: bool,
}

impl Reader {
    pub(super) fn new(
        topics: &[Topic],
        mut sources: HashMap<String, Arc<Source>>,
        entrance: Arc<Entrance>,
        letters: Option<Letters>,
        max_bytes: usize,
    ) -> Self {
        let read = |topic: &Topic| Some((topic.topic.clone(), Read { topic: topic.clone(), source: sources.remove(&topic.topic)? }));
        Self { topics: topics.iter().filter_map(read).collect(), entrance, letters, max_bytes, held: VecDeque::new(), rests: false }
    }

    /// Reads until stopped.
    ///
    /// A crash here at any point leaves the last committed offsets, from which on
    /// everything is read again.
    pub(super) fn run(mut self, consumer: BaseConsumer<Context>, stop: &CancellationToken) {
        let (mut ticked, mut wrote) = (0, 0);
        while !stop.is_cancelled() {
            let now_ms = self.entrance.now_ms();
            if now_ms.saturating_sub(ticked) >= TICK_MS || now_ms < ticked || (self.is_heavy() && !self.rests) {
                ticked = now_ms;
                self.tick(&consumer);
            }
            if let Some(letters) = self.letters.as_ref().filter(|_| now_ms.saturating_sub(wrote) >= LETTERS_MS || now_ms < wrote) {
                wrote = now_ms;
                letters.send_again();
            }
            match consumer.poll(Duration::from_millis(if self.rests { 20 } else { 100 })) {
                None => {}
                Some(Ok(message)) => self.take(consumer.context(), &message, now_ms),
                Some(Err(error)) => consumer.context().cannot_read(&error),
            }
        }
        consumer.context().store(&consumer);
        // without an offset stored there is nothing to commit, which is no error here
        let _ = consumer.commit_consumer_state(CommitMode::Sync);
    }

    fn tick(&mut self, consumer: &BaseConsumer<Context>) {
        while let Some(held) = self.held.pop_front() {
            if self.entrance.hear(&held.source, held.event.clone(), Some(&held.receipt)) == Heard::Full {
                self.held.push_front(held);
                break;
            }
        }
        consumer.context().store(consumer);
        let kept = consumer.context().tell_lag();
        let most = if self.rests { MOST_WAITING / 2 } else { MOST_WAITING };
        let rest = kept > most || !self.held.is_empty() || self.is_heavy();
        if !rest && !self.rests {
            return;
        }
        // partitions that came meanwhile rest too
        let assigned = consumer.assignment();
        let done = assigned.and_then(|all| if rest { consumer.pause(&all) } else { consumer.resume(&all) });
        match done {
            Ok(()) => self.rests = rest,
            Err(error) => tracing::warn!(%error, rest, "reading can be neither rested nor taken up"),
        }
    }

    fn is_heavy(&self) -> bool {
        self.letters.as_ref().is_some_and(|letters| letters.waiting_bytes() > MOST_LETTERS)
    }

    fn take(&mut self, context: &Context, message: &BorrowedMessage<'_>, now_ms: i64) {
        context.can_read();
        let Some(read) = self.topics.get(message.topic()) else { return };
        read.source.received(now_ms);
        let (partition, offset) = (message.partition(), message.offset());
        let place = || format!("{}/{partition}@{offset}", message.topic());
        let taken = |waits| context.taken(message.topic(), partition, offset, message.timestamp().to_millis(), waits);
        let drafts = match self.drafts(&read.topic, message) {
            Ok(drafts) => drafts,
            Err(reason) => {
                telemetry::event_rejected(Door::Kafka);
                read.source.parked(self.entrance.example(place(), reason.clone()));
                self.park(message, place(), reason, taken);
                return;
            }
        };
        if drafts.is_empty() {
            read.source.ignored();
            if let (Wire::IcebergReport, Some(value)) = (read.topic.wire, message.payload()) {
                self.entrance.scanned(decode::reported_table(value), read.topic.catalog.as_deref(), value);
            }
        }
        let mut events = Vec::with_capacity(drafts.len());
        for draft in drafts {
            match self.entrance.resolve(draft, Door::Kafka, read.topic.catalog.as_deref()) {
                Ok(found) => events.extend(found),
                Err(unheard) => read.source.dropped(self.entrance.example(place(), unheard.to_string())),
            }
        }
        let tracker = taken(events.len());
        for event in events {
            let receipt = receipt(&tracker, offset);
            if self.entrance.hear(&read.source, event.clone(), Some(&receipt)) == Heard::Full {
                self.held.push_back(Held { source: Arc::clone(&read.source), event, receipt });
            }
        }
    }

    fn drafts(&self, topic: &Topic, message: &BorrowedMessage<'_>) -> Result<Vec<Draft>, String> {
        // a tombstone
        let Some(value) = message.payload() else { return Ok(Vec::new()) };
        if value.len() > self.max_bytes {
            return Err(format!("the record holds {} bytes; at most {} are read", value.len(), self.max_bytes));
        }
        let mut headers = Vec::new();
        for header in message.headers().into_iter().flat_map(|h| h.iter()) {
            headers.push((header.key, header.value.unwrap_or_default()));
        }
        let record = Record { value, headers: &headers };
        // a defect that one record brings out must not stop the others
        let decoded = std::panic::catch_unwind(AssertUnwindSafe(|| decode::decode(topic.wire, &record)));
        match decoded {
            Ok(drafts) => drafts.map_err(|e| e.to_string()),
            Err(_) => Err("reading it panicked: a defect, please report it with the record".into()),
        }
    }

    fn park(&self, message: &BorrowedMessage<'_>, place: String, reason: String, taken: impl Fn(usize) -> Arc<Tracker>) {
        let Some(letters) = &self.letters else {
            taken(0);
            return;
        };
        let receipt = receipt(&taken(1), message.offset());
        let value = message.payload().unwrap_or_default().to_vec();
        letters.post(Parked { key: message.key().map(Into::into), value, place, reason, receipt });
    }
}

fn receipt(tracker: &Arc<Tracker>, offset: i64) -> Receipt {
    let tracker: Arc<Tracker> = Arc::clone(tracker);
    Receipt::new(tracker, offset)
}
