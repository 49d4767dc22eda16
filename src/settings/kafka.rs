//! Kafka topics to hear of commits from.

use std::collections::BTreeMap;
use std::fmt;

use figment::value::{Dict, Value};

use super::catalog::Catalog;
use super::section::Section;
use super::units;
use crate::model::wire::Wire;

/// What a topic holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topic {
    /// Its name.
    pub topic: String,
    /// How its records are to be read.
    pub format: Wire,
    /// The catalog that its events speak of, when they do not name one of ours.
    pub catalog: Option<String>,
}

/// A Kafka cluster and its topics.
#[derive(Clone, PartialEq, Eq)]
pub struct Kafka {
    /// `host:port`, separated by commas.
    pub brokers: String,
    /// The consumer group.
    pub group: String,
    /// What to read.
    pub topics: Vec<Topic>,
    /// The topic for records that cannot be read.
    pub dead_letter: Option<String>,
    /// Properties by librdkafka's names.
    pub properties: BTreeMap<String, String>,
}

/// Without the properties, for secrets are among them.
impl fmt::Debug for Kafka {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Kafka");
        shown.field("brokers", &self.brokers).field("group", &self.group).field("topics", &self.topics);
        shown.field("dead_letter", &self.dead_letter).finish_non_exhaustive()
    }
}

/// Properties that the reader sets, with what to do instead.
const OWN: [(&str, &str); 6] = [
    ("bootstrap.servers", "set `brokers`"),
    ("group.id", "set `group`"),
    ("enable.auto.commit", "offsets move when events are absorbed, and not otherwise"),
    ("enable.auto.offset.store", "offsets move when events are absorbed, and not otherwise"),
    ("isolation.level", "only committed records are read"),
    ("enable.partition.eof", "leave it out"),
];

pub(super) fn all(mut section: Section<'_>, catalogs: &BTreeMap<String, Catalog>) -> BTreeMap<String, Kafka> {
    let mut found = BTreeMap::new();
    for (name, value) in section.rest() {
        if let Some(kafka) = one(section.nested(&name, value), catalogs) {
            found.insert(name, kafka);
        }
    }
    found
}

fn one(mut section: Section<'_>, catalogs: &BTreeMap<String, Catalog>) -> Option<Kafka> {
    let brokers = match section.take("brokers") {
        None => {
            section.mistake("brokers", "is missing: write for example \"broker:9092\"");
            None
        }
        Some(value) => match brokers(&value) {
            Ok(brokers) => Some(brokers),
            Err(message) => {
                section.mistake("brokers", message);
                None
            }
        },
    };
    let group = section.read("group", units::word).unwrap_or_else(|| "afterwrite".into());
    let topics = topics(&mut section, catalogs);
    let dead_letter = section.read("dead_letter", units::word);
    if let Some(topic) = dead_letter.as_ref().filter(|dead| topics.iter().any(|t| t.topic == **dead)) {
        section.mistake("dead_letter", format!("`{topic}` is read here too: its records would come round again and again"));
    }
    let properties = properties(&mut section);
    section.finish();
    Some(Kafka { brokers: brokers?, group, topics, dead_letter, properties })
}

fn brokers(value: &Value) -> units::Read<String> {
    let brokers = units::words(value)?;
    for broker in &brokers {
        let port = broker.rsplit_once(':').map(|(_, port)| port.parse::<u16>());
        if !matches!(port, Some(Ok(1..))) {
            return Err(format!("`{broker}` is not host:port; write for example broker:9092"));
        }
    }
    Ok(brokers.join(","))
}

fn topics(section: &mut Section<'_>, catalogs: &BTreeMap<String, Catalog>) -> Vec<Topic> {
    let listed = match section.take("topics") {
        Some(Value::Array(_, values)) if !values.is_empty() => values,
        _ => {
            section.mistake("topics", "expected a list: write for example [{ topic = \"commits\", format = \"json\" }]");
            return Vec::new();
        }
    };
    let mut topics: Vec<Topic> = Vec::new();
    for (place, value) in listed.into_iter().enumerate() {
        let path = format!("topics[{place}]");
        let Some(topic) = topic(section.nested(&path, value), catalogs) else { continue };
        if topics.iter().any(|t| t.topic == topic.topic) {
            section.mistake(&path, format!("`{}` is read already", topic.topic));
        }
        topics.push(topic);
    }
    topics
}

fn topic(mut section: Section<'_>, catalogs: &BTreeMap<String, Catalog>) -> Option<Topic> {
    let name = needed(&mut section, "topic", |value| {
        let name = units::word(value)?;
        let pattern = name.starts_with('^');
        if pattern { Err(format!("`{name}` is a pattern: name each topic")) } else { Ok(name) }
    });
    let format = needed(&mut section, "format", |value| units::word(value)?.parse::<Wire>().map_err(|e| e.to_string()));
    let catalog = section.read("catalog", |value| {
        let name = units::word(value)?;
        let known = || catalogs.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
        if catalogs.contains_key(&name) { Ok(name) } else { Err(format!("no catalog `{name}` is configured; known: {}", known())) }
    });
    section.finish();
    Some(Topic { topic: name?, format: format?, catalog })
}

fn needed<T>(section: &mut Section<'_>, key: &'static str, how: impl FnOnce(&Value) -> units::Read<T>) -> Option<T> {
    match section.take(key) {
        None => {
            section.mistake(key, "is missing");
            None
        }
        Some(value) => match how(&value) {
            Ok(read) => Some(read),
            Err(message) => {
                section.mistake(key, message);
                None
            }
        },
    }
}

/// `sasl.password = …` without quotes is a table in TOML; here both are one name.
fn properties(section: &mut Section<'_>) -> BTreeMap<String, String> {
    let mut properties = BTreeMap::new();
    let mut below = section.section("properties");
    let rest = below.rest();
    flatten(&mut below, "", rest, &mut properties);
    for (key, instead) in OWN {
        if properties.contains_key(key) {
            below.mistake(key, format!("is not yours to set: {instead}"));
        }
    }
    properties
}

fn flatten(section: &mut Section<'_>, prefix: &str, values: Dict, properties: &mut BTreeMap<String, String>) {
    for (key, value) in values {
        let name = if prefix.is_empty() { key } else { format!("{prefix}.{key}") };
        match value {
            Value::Dict(_, below) => flatten(section, &name, below, properties),
            value => match units::text(&value) {
                Ok(text) => drop(properties.insert(name, text)),
                Err(message) => section.mistake(&name, message),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Settings;
    use super::*;

    const LAKE: &str = "[catalog.lake]\ntype = \"sql\"\nuri = \"sqlite:///c.db\"\nwarehouse = \"file:///w\"\n";

    fn read(toml: &str) -> Result<Kafka, Vec<(String, String)>> {
        let settings = Settings::read(&format!("{LAKE}[kafka.events]\n{toml}"), []);
        let mut settings = settings.map_err(|e| e.0.into_iter().map(|m| (m.key, m.message)).collect::<Vec<_>>())?;
        Ok(settings.kafka.remove("events").unwrap())
    }

    #[test]
    fn a_cluster_is_read_with_its_topics_and_properties() {
        let kafka = read(
            r#"
            brokers = ["a:9092", "b:9093"]
            topics = [{ topic = "commits", format = "json" }, { topic = "control", format = "iceberg-connect", catalog = "lake" }]
            dead-letter = "parked"
            properties.security.protocol = "SASL_SSL"
            properties."sasl.password" = "s3cret"
            "#,
        )
        .unwrap();
        assert_eq!(
            (kafka.brokers.as_str(), kafka.group.as_str(), kafka.dead_letter.as_deref()),
            ("a:9092,b:9093", "afterwrite", Some("parked"))
        );
        let topic = |name: &str, format, catalog: Option<&str>| Topic { topic: name.into(), format, catalog: catalog.map(Into::into) };
        assert_eq!(kafka.topics, [topic("commits", Wire::Json, None), topic("control", Wire::IcebergConnect, Some("lake"))]);
        let properties = [("sasl.password", "s3cret"), ("security.protocol", "SASL_SSL")];
        assert_eq!(kafka.properties, properties.map(|(k, v)| (k.into(), v.into())).into());
        assert!(!format!("{kafka:?}").contains("s3cret"));
    }

    #[test]
    fn every_mistake_is_told_at_once_and_says_what_to_write() {
        let told = read(
            r#"
            brokers = "broker"
            topics = [{ topic = "a", format = "jsn" }, { topic = "a", format = "json", catalog = "sea" }, { format = "s3" }, { topic = "a", format = "s3" }]
            dead_letter = "a"
            colour = "red"
            properties.group.id = "mine"
            "#,
        )
        .unwrap_err();
        let expected = [
            ("kafka.events.brokers", "`broker` is not host:port; write for example broker:9092"),
            (
                "kafka.events.topics[0].format",
                "unknown format `jsn`: write one of protobuf, json, cloudevents, iceberg-connect, iceberg-report, s3, hudi, polaris, openlineage, trino",
            ),
            ("kafka.events.topics[1].catalog", "no catalog `sea` is configured; known: lake"),
            ("kafka.events.topics[2].topic", "is missing"),
            ("kafka.events.topics[3]", "`a` is read already"),
            ("kafka.events.dead_letter", "`a` is read here too: its records would come round again and again"),
            ("kafka.events.properties.group.id", "is not yours to set: set `group`"),
            ("kafka.events.colour", "unknown key; known here: brokers, group, topics, dead_letter, properties"),
        ];
        assert_eq!(told, expected.map(|(key, message)| (key.to_owned(), message.to_owned())));
    }

    #[test]
    fn a_cluster_without_topics_hears_nothing_and_is_refused() {
        let told = read("").unwrap_err();
        let keys: Vec<&str> = told.iter().map(|(key, _)| key.as_str()).collect();
        assert_eq!(keys, ["kafka.events.brokers", "kafka.events.topics"]);
        assert!(read("brokers = \"a:1\"\ntopics = [{ topic = \"^all\", format = \"json\" }]").unwrap_err()[0].1.contains("is a pattern"));
    }
}
