//! The Kafka door: topics of any of the known formats, each read by a thread that
//! does nothing else.
//!
//! What it promises:
//! * a partition's offset moves past a record only when a look that began after
//!   the record was read has been absorbed, and never past a gap: a crash at any
//!   point reads again what was not absorbed;
//! * records of aborted and open transactions are not seen;
//! * a record that cannot be read is parked with its reason, in the dead-letter
//!   topic before the offset moves when there is one, and blocks nothing;
//! * a partition that is taken away leaves its contiguous offset behind, and what
//!   was under way for it moves no offset any more;
//! * memory is bounded: reading rests while too much waits.

mod context;
mod letters;
mod reader;
pub mod watermark;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use tokio_util::sync::CancellationToken;

use super::entrance::Entrance;
use super::ledger::Source;
use crate::model::event::Door;
use crate::model::wire::Wire;
use context::Context;
use letters::Letters;
use reader::Reader;

/// What a topic holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topic {
    /// Its name.
    pub topic: String,
    /// How its records are to be read.
    pub wire: Wire,
    /// Our name of the catalog that its events speak of.
    pub catalog: Option<String>,
}

/// What to read, and as whom.
#[derive(Clone)]
pub struct Options {
    /// The name of this part of the settings.
    pub name: String,
    /// `host:port`, several separated by commas.
    pub brokers: String,
    /// The consumer group.
    pub group: String,
    /// What to read.
    pub topics: Vec<Topic>,
    /// Where records that cannot be read are written to.
    pub dead_letter: Option<String>,
    /// Properties by librdkafka's names; secrets are among them.
    pub properties: BTreeMap<String, String>,
    /// Longest record that is read, in bytes.
    pub max_bytes: usize,
}

/// Why the door cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("kafka.{name}: {why}")]
pub struct Error {
    name: String,
    why: String,
}

/// A thread that reads. [`KafkaDoor::close`] ends it.
pub struct KafkaDoor {
    stop: CancellationToken,
    thread: std::thread::JoinHandle<()>,
}

impl KafkaDoor {
    /// Begins to read. Brokers that do not answer are tried for ever; that they do
    /// not is told in the ledger.
    ///
    /// # Errors
    /// When a property is not known to the client, or does not fit the others.
    pub fn open(options: Options, entrance: Arc<Entrance>) -> Result<Self, Error> {
        let name = options.name.clone();
        let error = |why: String| Error { name: name.clone(), why };
        let sources: HashMap<String, Arc<Source>> =
            options.topics.iter().map(|t| (t.topic.clone(), entrance.ledger().source(Door::Kafka, &t.topic))).collect();
        for source in sources.values() {
            source.set_state(format!("reads from {} as group {}", options.brokers, options.group));
        }
        let context = Context::new(&options.name, sources.clone());
        let consumer: BaseConsumer<Context> = consumer_config(&options).create_with_context(context).map_err(|e| error(told(&e)))?;
        let letters = match &options.dead_letter {
            Some(topic) => Some(Letters::new(topic, &producer_config(&options)).map_err(|e| error(told(&e)))?),
            None => None,
        };
        let names: Vec<&str> = options.topics.iter().map(|t| t.topic.as_str()).collect();
        consumer.subscribe(&names).map_err(|e| error(told(&e)))?;
        let reader = Reader::new(&options.topics, sources, entrance, letters, options.max_bytes);
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let thread = std::thread::Builder::new().name(format!("kafka-{}", options.name));
        let thread = thread.spawn(move || reader.run(consumer, &stopped)).map_err(|e| error(e.to_string()))?;
        Ok(Self { stop, thread })
    }

    /// Stores what was absorbed, leaves the group and ends the thread.
    pub async fn close(self) {
        self.stop.cancel();
        let thread = self.thread;
        if !matches!(tokio::task::spawn_blocking(move || thread.join()).await, Ok(Ok(()))) {
            tracing::error!("a Kafka thread panicked: a defect");
        }
    }
}

fn base_config(options: &Options) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", &options.brokers).set("client.id", "afterwrite");
    config
}

fn consumer_config(options: &Options) -> ClientConfig {
    let mut config = base_config(options);
    config
        .set("auto.offset.reset", "earliest")
        .set("partition.assignment.strategy", "cooperative-sticky")
        .set("auto.commit.interval.ms", "1000")
        .set("statistics.interval.ms", "1000");
    for (key, value) in &options.properties {
        config.set(key, value);
    }
    config
        .set("group.id", &options.group)
        .set("isolation.level", "read_committed")
        .set("enable.auto.offset.store", "false")
        // commits what was stored, every interval and when a partition is given up
        .set("enable.auto.commit", "true")
        .set("enable.partition.eof", "false");
    config
}

/// Properties that a producer would only warn of.
const CONSUMERS_ONLY: [&str; 8] = [
    "auto.offset.reset",
    "partition.assignment.strategy",
    "auto.commit.interval.ms",
    "session.timeout.ms",
    "heartbeat.interval.ms",
    "max.poll.interval.ms",
    "group.instance.id",
    "group.protocol",
];

fn producer_config(options: &Options) -> ClientConfig {
    let mut config = base_config(options);
    config.set("enable.idempotence", "true");
    let shared = options.properties.iter().filter(|(key, _)| !CONSUMERS_ONLY.contains(&key.as_str()) && !key.starts_with("fetch."));
    for (key, value) in shared {
        config.set(key, value);
    }
    config
}

/// A configuration's error without its value, which may be a secret.
fn told(error: &KafkaError) -> String {
    match error {
        KafkaError::ClientConfig(_, what, key, value) if value.len() > 3 => format!("properties.{key}: {}", what.replace(value, "…")),
        KafkaError::ClientConfig(_, what, key, _) => format!("properties.{key}: {what}"),
        KafkaError::ClientCreation(what) => what.clone(),
        other => other.to_string(),
    }
}
