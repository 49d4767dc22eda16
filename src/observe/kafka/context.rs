//! What librdkafka calls back into: partitions that come and go, errors of
//! brokers, figures.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rdkafka::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext, Rebalance};
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::statistics::Statistics;
use rdkafka::{Offset, TopicPartitionList};

use super::watermark::Watermark;
use crate::observe::ledger::Source;
use crate::observe::receipt::Awaits;

/// One partition while it is ours. One that is taken away and comes back is
/// another one: what comes back for the first moves nothing.
#[derive(Default)]
pub(super) struct Tracker {
    watermark: Mutex<Watermark>,
}

impl Tracker {
    pub(super) fn watermark(&self) -> MutexGuard<'_, Watermark> {
        self.watermark.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Awaits for Tracker {
    fn absorbed(&self, offset: i64) {
        self.watermark().absorbed(offset);
    }

    fn joins(&self, later: i64, first: i64) -> bool {
        self.watermark().joins(later, first)
    }
}

#[derive(Default)]
struct State {
    trackers: HashMap<String, HashMap<i32, Arc<Tracker>>>,
    /// Records of a topic that were not read yet, by the brokers' word.
    unread: HashMap<String, u64>,
    /// Brokers that cannot be reached, or do not let us in.
    connection: Option<String>,
    /// Topics that cannot be read.
    reading: Option<String>,
}

/// Shared by the reader and the client's callbacks, which run in its thread.
pub(super) struct Context {
    name: String,
    sources: HashMap<String, Arc<Source>>,
    state: Mutex<State>,
}

impl Context {
    pub(super) fn new(name: &str, sources: HashMap<String, Arc<Source>>) -> Self {
        Self { name: name.to_owned(), sources, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a record, and gives back its partition. Offsets that go back (a topic
    /// made anew) begin the partition anew.
    pub(super) fn taken(&self, topic: &str, partition: i32, offset: i64, written_ms: Option<i64>, waits: usize) -> Arc<Tracker> {
        let mut state = self.state();
        if !state.trackers.contains_key(topic) {
            state.trackers.insert(topic.to_owned(), HashMap::new());
        }
        let fresh = || {
            let tracker = Arc::<Tracker>::default();
            tracker.watermark().taken(offset, written_ms, waits);
            tracker
        };
        let Some(partitions) = state.trackers.get_mut(topic) else { return fresh() };
        let tracker = partitions.entry(partition).or_default();
        if !tracker.watermark().taken(offset, written_ms, waits) {
            *tracker = fresh();
        }
        Arc::clone(tracker)
    }

    /// Stores every offset that has moved; the client commits it soon.
    pub(super) fn store(&self, consumer: &BaseConsumer<Self>) {
        let state = self.state();
        for (topic, partitions) in &state.trackers {
            for (partition, tracker) in partitions {
                store_one(consumer, topic, *partition, tracker);
            }
        }
    }

    /// Tells each source how much of it waits. Gives back the records of all of
    /// them that take memory until they are absorbed.
    pub(super) fn tell_lag(&self) -> usize {
        let state = self.state();
        let mut kept = 0_usize;
        for (topic, source) in &self.sources {
            let (mut waiting, mut oldest) = (0_usize, None::<i64>);
            for tracker in state.trackers.get(topic).into_iter().flat_map(HashMap::values) {
                let watermark = tracker.watermark();
                waiting = waiting.saturating_add(watermark.waiting());
                kept = kept.saturating_add(watermark.kept());
                oldest = [oldest, watermark.oldest_ms()].into_iter().flatten().min();
            }
            let unread = state.unread.get(topic).copied().unwrap_or(0);
            source.set_lag(unread.saturating_add(u64::try_from(waiting).unwrap_or(u64::MAX)), oldest);
        }
        kept
    }

    /// A poll failed.
    pub(super) fn cannot_read(&self, error: &KafkaError) {
        tracing::warn!(kafka = %self.name, %error, "a topic cannot be read");
        self.state().reading = Some(error.to_string());
        self.tell_problem();
    }

    /// A record was read.
    pub(super) fn can_read(&self) {
        let mut state = self.state();
        if state.connection.is_none() && state.reading.is_none() {
            return;
        }
        (state.connection, state.reading) = (None, None);
        drop(state);
        self.tell_problem();
    }

    fn tell_problem(&self) {
        let problem = {
            let state = self.state();
            state.connection.clone().or_else(|| state.reading.clone())
        };
        for source in self.sources.values() {
            source.set_problem(problem.clone());
        }
    }
}

fn store_one(consumer: &BaseConsumer<Context>, topic: &str, partition: i32, tracker: &Tracker) {
    let Some(next) = tracker.watermark().tell() else { return };
    // by a list: the call for one offset stores the one behind it
    let mut list = TopicPartitionList::new();
    let stored = list.add_partition_offset(topic, partition, Offset::Offset(next)).and_then(|()| consumer.store_offsets(&list));
    if let Err(error) = stored {
        // a partition that is being taken away: its next reader begins where we began
        tracing::debug!(topic, partition, next, %error, "an offset was not stored");
    }
}

impl ClientContext for Context {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        log(&self.name, level, facility, message);
    }

    fn stats(&self, statistics: Statistics) {
        let mut state = self.state();
        for (name, topic) in statistics.topics.iter().filter(|(name, _)| self.sources.contains_key(*name)) {
            let active = topic.partitions.values().filter(|p| p.fetch_state == "active");
            let unread = active.map(|p| (p.ls_offset.saturating_sub(p.next_offset)).max(0).saturating_add(p.fetchq_cnt.max(0)));
            let unread = unread.fold(0_i64, i64::saturating_add);
            state.unread.insert(name.clone(), u64::try_from(unread).unwrap_or(0));
        }
        let is_known = |name: &String| statistics.topics.get(name).is_some_and(|t| t.partitions.keys().any(|p| *p >= 0));
        let is_up = statistics.brokers.values().any(|b| b.state == "UP");
        if is_up {
            state.connection = None;
        }
        if is_up && self.sources.keys().all(is_known) {
            state.reading = None;
        }
        drop(state);
        self.tell_problem();
    }

    /// The client tries again for ever, even with a wrong password: only this tells.
    fn error(&self, error: KafkaError, reason: &str) {
        tracing::warn!(kafka = %self.name, %error, reason, "the brokers cannot be used");
        let problem = format!("{error}: {reason}");
        {
            let mut state = self.state();
            // that all are down follows from why each one is, which says more
            let follows = matches!(error.rdkafka_error_code(), Some(rdkafka::types::RDKafkaErrorCode::AllBrokersDown));
            if !(follows && state.connection.is_some()) {
                state.connection = Some(problem);
            }
        }
        self.tell_problem();
    }
}

impl ConsumerContext for Context {
    fn pre_rebalance(&self, consumer: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        let Rebalance::Revoke(partitions) = rebalance else { return };
        let lost = consumer.assignment_lost();
        let mut state = self.state();
        for element in partitions.elements() {
            let Some(of_topic) = state.trackers.get_mut(element.topic()) else { continue };
            let tracker = of_topic.remove(&element.partition());
            if let Some(tracker) = tracker.filter(|_| !lost) {
                store_one(consumer, element.topic(), element.partition(), &tracker);
            }
        }
    }

    fn post_rebalance(&self, _: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        match rebalance {
            Rebalance::Assign(partitions) => tracing::info!(kafka = %self.name, count = partitions.count(), "partitions came"),
            Rebalance::Revoke(partitions) => tracing::info!(kafka = %self.name, count = partitions.count(), "partitions went"),
            Rebalance::Error(error) => tracing::warn!(kafka = %self.name, %error, "rebalance failed"),
        }
    }

    fn commit_callback(&self, result: KafkaResult<()>, _: &TopicPartitionList) {
        if let Err(error) = result {
            tracing::warn!(kafka = %self.name, %error, "offsets were not committed; they are with the next ones");
        }
    }
}

/// A line of the client's log.
pub(super) fn log(name: &str, level: RDKafkaLogLevel, facility: &str, message: &str) {
    use RDKafkaLogLevel::{Alert, Critical, Debug, Emerg, Error, Info, Notice, Warning};
    match level {
        // what is an error here is told by the error callback
        Emerg | Alert | Critical | Error | Warning => tracing::warn!(kafka = name, facility, "{message}"),
        Notice | Info | Debug => tracing::debug!(kafka = name, facility, "{message}"),
    }
}
