//! The Kafka door against a mock cluster.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use afterwrite::lake::Pointer;
use afterwrite::lake::clock::{Clock, SystemClock};
use afterwrite::model::event::Door;
use afterwrite::model::ident::TableName;
use afterwrite::model::wire::Wire;
use afterwrite::observe::inbox::Limits;
use afterwrite::observe::kafka::{KafkaDoor, Options, Topic};
use afterwrite::observe::ledger::Row;
use afterwrite::observe::{Entrance, Inbox, Look, Roster, proxy};
use afterwrite::proto::v1::CommitEvent;
use prost::Message as _;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::{Header, Headers, Message, OwnedHeaders, OwnedMessage};
use rdkafka::mocking::MockCluster;
use rdkafka::producer::{BaseRecord, DefaultProducerContext, Producer, ThreadedProducer};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};

use serde_json::json;

use super::decoders::recording;
use super::free;

const LONG: Duration = Duration::from_secs(60);

struct Cluster {
    cluster: MockCluster<'static, DefaultProducerContext>,
    producer: ThreadedProducer<DefaultProducerContext>,
}

impl Cluster {
    fn new(topics: &[(&str, i32)]) -> Self {
        let cluster = MockCluster::new(1).unwrap();
        for (topic, partitions) in topics {
            cluster.create_topic(topic, *partitions, 1).unwrap();
        }
        let producer = ClientConfig::new().set("bootstrap.servers", cluster.bootstrap_servers()).create().unwrap();
        Self { cluster, producer }
    }

    fn write(&self, partition: i32, value: &str) {
        let record = BaseRecord::<(), str>::to("commits").partition(partition).payload(value);
        self.producer.send(record).map_err(|(error, _)| error).unwrap();
        self.producer.flush(LONG).unwrap();
    }

    fn write_to(&self, topic: &str, value: &[u8], headers: &[(&str, &str)]) {
        let header = |all: OwnedHeaders, (key, value): &(&str, &str)| all.insert(Header { key, value: Some(*value) });
        let headers = headers.iter().fold(OwnedHeaders::new(), header);
        let record = BaseRecord::<(), [u8]>::to(topic).payload(value).headers(headers);
        self.producer.send(record).map_err(|(error, _)| error).unwrap();
        self.producer.flush(LONG).unwrap();
    }

    fn options(&self) -> Options {
        Options {
            name: "test".into(),
            brokers: self.cluster.bootstrap_servers(),
            group: "g".into(),
            topics: vec![Topic { topic: "commits".into(), wire: Wire::Json, catalog: None }],
            dead_letter: None,
            properties: [
                ("auto.commit.interval.ms", "50"),
                ("statistics.interval.ms", "50"),
                ("heartbeat.interval.ms", "200"),
                // the mock keeps a member that has left for as long
                ("session.timeout.ms", "6000"),
            ]
            .map(|(k, v)| (k.into(), v.into()))
            .into(),
            max_bytes: 4096,
        }
    }

    /// The group's committed offsets; `None` for a partition without one.
    fn committed(&self, partitions: i32) -> Vec<Option<i64>> {
        let asker: BaseConsumer =
            ClientConfig::new().set("bootstrap.servers", self.cluster.bootstrap_servers()).set("group.id", "g").create().unwrap();
        let mut asked = TopicPartitionList::new();
        asked.add_partition_range("commits", 0, partitions - 1);
        let answer = asker.committed_offsets(asked, LONG).unwrap();
        let offset = |o| if let Offset::Offset(at) = o { Some(at) } else { None };
        answer.elements().iter().map(|e| offset(e.offset())).collect()
    }
}

/// One process: what a door gives to, and what is known of it.
struct Sidecar {
    inbox: Inbox,
    roster: Arc<Roster>,
    entrance: Arc<Entrance>,
}

impl Sidecar {
    fn new(limits: Limits) -> Self {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let inbox = Inbox::new(Arc::clone(&clock), limits);
        let roster = Arc::new(Roster::new(["lake".to_owned()]));
        let entrance = Arc::new(Entrance::new(inbox.clone(), Arc::clone(&roster), clock, vec!["lake".into()]));
        Self { inbox, roster, entrance }
    }

    fn open(&self, options: Options) -> KafkaDoor {
        KafkaDoor::open(options, Arc::clone(&self.entrance)).unwrap()
    }

    fn row(&self) -> Row {
        self.row_of("commits")
    }

    fn row_of(&self, topic: &str) -> Row {
        self.entrance.ledger().rows(self.entrance.now_ms()).into_iter().find(|r| r.door == Door::Kafka && r.source == topic).unwrap()
    }

    async fn look(&self) -> Look {
        tokio::time::timeout(LONG, self.inbox.next()).await.expect("a look").unwrap()
    }
}

/// A poll may come back without a record before its time is over.
fn next(consumer: &BaseConsumer) -> OwnedMessage {
    (0..600).find_map(|_| consumer.poll(Duration::from_millis(100))).expect("a record").unwrap().detach()
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let waited = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(LONG, waited).await.unwrap_or_else(|_| panic!("waited in vain for {what}"));
}

fn event(table: &str, snapshot: i64) -> String {
    format!(r#"{{"table":"lake.db.{table}","snapshots":[{{"snapshotId":"{snapshot}"}}]}}"#)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_offset_moves_when_the_look_is_absorbed_and_not_before() {
    let cluster = Cluster::new(&[("commits", 1)]);
    for snapshot in 0..3 {
        cluster.write(0, &event("t", snapshot));
    }
    let sidecar = Sidecar::new(free());
    let door = sidecar.open(cluster.options());
    until("three records", || sidecar.row().received == 3).await;
    let look = sidecar.look().await;
    until("their lag", || sidecar.row().lag == Some(3)).await;
    // several commit intervals pass
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(cluster.committed(1), [None]);
    assert!(sidecar.row().staleness_ms.unwrap() > 0);
    sidecar.inbox.done(look);
    while let Some(rest) = sidecar.inbox.try_next() {
        sidecar.inbox.done(rest);
    }
    until("the offset", || cluster.committed(1) == [Some(3)]).await;
    until("no lag", || (sidecar.row().lag, sidecar.row().staleness_ms) == (Some(0), Some(0))).await;
    door.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_not_absorbed_is_read_again_by_the_next_process() {
    let cluster = Cluster::new(&[("commits", 1)]);
    cluster.write(0, &event("a", 1));
    cluster.write(0, &event("b", 2));
    let first = Sidecar::new(free());
    let door = first.open(cluster.options());
    let (a, b) = (first.look().await, first.look().await);
    assert_eq!((a.name.table.as_str(), b.name.table.as_str()), ("a", "b"));
    // only the second is absorbed: the first is a gap
    first.inbox.done(b);
    door.close().await;
    drop(a);
    assert_eq!(cluster.committed(1), [None]);
    let second = Sidecar::new(free());
    let door = second.open(cluster.options());
    let tables: BTreeSet<String> = [second.look().await, second.look().await]
        .into_iter()
        .map(|look| {
            let table = look.name.table.clone();
            second.inbox.done(look);
            table
        })
        .collect();
    assert_eq!(tables, BTreeSet::from(["a".to_owned(), "b".to_owned()]));
    until("the offset", || cluster.committed(1) == [Some(2)]).await;
    door.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_cannot_be_read_is_parked_and_blocks_nothing() {
    let cluster = Cluster::new(&[("commits", 1), ("parked", 1)]);
    let large = format!(r#"{{"table":"lake.db.t","sender":"{}"}}"#, "x".repeat(5000));
    for value in ["not json", &event("t", 1), r#"{"table":"pond.db.t"}"#, &large, r#"{"table":"lake.db.t","ref":"audit"}"#] {
        cluster.write(0, value);
    }
    let sidecar = Sidecar::new(free());
    let door = sidecar.open(Options { dead_letter: Some("parked".into()), ..cluster.options() });
    sidecar.inbox.done(sidecar.look().await);
    until("the offset", || cluster.committed(1) == [Some(5)]).await;
    let row = sidecar.row();
    assert_eq!((row.received, row.accepted, row.parked, row.dropped), (5, 1, 2, 2));
    let places: Vec<&str> = row.examples.iter().map(|e| e.place.as_str()).collect();
    assert_eq!(places, ["commits/0@4", "commits/0@3", "commits/0@2", "commits/0@0"]);
    assert_eq!(row.examples[0].reason, "branch `audit` is not looked after: only `main` is");
    assert_eq!(row.examples[2].reason, "no catalog `pond` is configured; known catalogs: lake");
    let letters: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", cluster.cluster.bootstrap_servers())
        .set("group.id", "letters")
        .set("auto.offset.reset", "earliest")
        .create()
        .unwrap();
    letters.subscribe(&["parked"]).unwrap();
    let letter = next(&letters);
    assert_eq!(letter.payload(), Some(&b"not json"[..]));
    let header = |key: &str| letter.headers().unwrap().iter().find(|h| h.key == key).unwrap().value.unwrap().to_vec();
    assert_eq!(header("afterwrite-place"), b"commits/0@0");
    assert!(header("afterwrite-reason").starts_with(b"not a readable json event: "));
    let letter = next(&letters);
    assert_eq!(letter.payload().map(<[u8]>::len), Some(large.len()));
    door.close().await;
}

/// A record of each format about `db.t`, with its headers.
fn told(wire: Wire) -> (Vec<u8>, Vec<(&'static str, &'static str)>) {
    let mut headers = Vec::new();
    let value = match wire {
        Wire::Protobuf => return (CommitEvent { table: "lake.db.t".into(), ..CommitEvent::default() }.encode_to_vec(), headers),
        Wire::IcebergConnect => return (recording("kafka-connect-commit_to_table.bin"), headers),
        Wire::Json => json!({ "table": "lake.db.t" }),
        Wire::CloudEvents => {
            // binary mode: the attributes are headers, the body is the client's request
            headers.extend([("ce_type", "updateTable"), ("ce_tabular-type", "table"), ("ce_name", "t"), ("ce_namespace", "db")]);
            json!({ "requirements": [], "updates": [{ "action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": 2 }] })
        }
        Wire::IcebergReport => {
            json!({ "report-type": "commit-report", "table-name": "prod.db.t", "snapshot-id": 5, "operation": "append" })
        }
        Wire::S3 => {
            let object = json!({ "bucket": { "name": "b" }, "object": { "key": "wh%2Fdb/t/metadata/2.metadata.json" } });
            json!({ "EventName": "s3:ObjectCreated:Put", "Key": "b/wh", "Records": [{ "eventName": "s3:ObjectCreated:Put", "s3": object }] })
        }
        Wire::Hudi => json!({ "commitTime": "1", "basePath": "s3a://b/wh/db/t" }),
        Wire::Polaris => json!({ "event_type": "AFTER_UPDATE_TABLE", "namespace": ["db"], "table_name": "t" }),
        Wire::OpenLineage => json!({ "eventType": "COMPLETE", "outputs": [{ "namespace": "s3://b", "name": "wh/db/t" }] }),
        Wire::Trino => json!({
            "metadata": { "queryState": "FINISHED" }, "ioMetadata": { "output": { "catalogName": "prod", "schema": "db", "table": "t" } },
        }),
    };
    (value.to_string().into_bytes(), headers)
}

#[tokio::test(flavor = "multi_thread")]
async fn each_topic_is_read_in_its_own_format_with_the_headers_of_its_records() {
    let names = Wire::ALL.map(|wire| (wire.name(), 1));
    let cluster = Cluster::new(&names);
    let sidecar = Sidecar::new(free());
    let at = Pointer { name: TableName::new("lake", "db", "t"), metadata_location: "s3://b/wh/db/t/metadata/1.metadata.json".into() };
    sidecar.roster.listed("lake", vec![at], 0);
    let topics = Wire::ALL.map(|wire| Topic { topic: wire.name().into(), wire, catalog: Some("lake".into()) });
    let door = sidecar.open(Options { topics: topics.into(), max_bytes: 64 << 10, ..cluster.options() });
    for wire in Wire::ALL {
        let (value, headers) = told(wire);
        cluster.write_to(wire.name(), &value, &headers);
        let look = sidecar.look().await;
        let table = if wire == Wire::IcebergConnect { "orders" } else { "t" };
        assert_eq!(look.name, TableName::new("lake", "db", table), "{}", wire.name());
        sidecar.inbox.done(look);
        let row = sidecar.row_of(wire.name());
        assert_eq!((row.received, row.accepted, row.parked, row.dropped), (1, 1, 0, 0), "{}", wire.name());
    }
    // a report of a scan is about no commit, and weighs its table's workload
    let heeded = Arc::<proxy::Ledger>::default();
    sidecar.entrance.set_heeds(heeded.clone());
    let scan = json!({ "report-type": "scan-report", "table-name": "prod.db.t", "metrics": { "result-data-files": { "value": 3 } } });
    cluster.write_to("iceberg-report", scan.to_string().as_bytes(), &[]);
    until("the scan", || sidecar.row_of("iceberg-report").ignored == 1).await;
    until("its table", || heeded.scans(&TableName::new("lake", "db", "t")).files == 3).await;
    door.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_inbox_that_is_full_makes_reading_rest_and_loses_nothing() {
    let cluster = Cluster::new(&[("commits", 1)]);
    for n in 0..20 {
        cluster.write(0, &event(&format!("t{n}"), n));
    }
    let sidecar = Sidecar::new(Limits { max_tables: 2, ..free() });
    let door = sidecar.open(cluster.options());
    let mut tables = BTreeSet::new();
    while tables.len() < 20 {
        let look = sidecar.look().await;
        tables.insert(look.name.table.clone());
        sidecar.inbox.done(look);
    }
    until("the offset", || cluster.committed(1) == [Some(20)]).await;
    assert_eq!(sidecar.row().accepted, 20);
    door.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn brokers_that_do_not_answer_are_told_in_the_ledger() {
    let cluster = Cluster::new(&[("commits", 1)]);
    let sidecar = Sidecar::new(free());
    let door = sidecar.open(Options { brokers: "127.0.0.1:1".into(), ..cluster.options() });
    until("a problem", || sidecar.row().problem.is_some()).await;
    let problem = sidecar.row().problem.unwrap();
    assert!(problem.contains("127.0.0.1:1"), "{problem}");
    door.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_problem_that_has_passed_is_no_longer_told() {
    let cluster = Cluster::new(&[("commits", 1)]);
    let sidecar = Sidecar::new(free());
    let door = sidecar.open(cluster.options());
    cluster.write(0, &event("t", 1));
    until("a record", || sidecar.row().received == 1).await;
    cluster.cluster.broker_down(1).unwrap();
    until("a problem", || sidecar.row().problem.is_some()).await;
    cluster.cluster.broker_up(1).unwrap();
    until("no problem", || sidecar.row().problem.is_none()).await;
    cluster.write(0, &event("t", 2));
    until("the next record", || sidecar.row().received == 2).await;
    door.close().await;
}

#[test]
fn a_property_that_is_not_known_is_refused_without_its_value() {
    let cluster = Cluster::new(&[("commits", 1)]);
    let sidecar = Sidecar::new(free());
    let refused = |key: &str, value: &str| {
        let mut options = cluster.options();
        options.properties.insert(key.into(), value.into());
        KafkaDoor::open(options, Arc::clone(&sidecar.entrance)).err().unwrap().to_string()
    };
    assert_eq!(
        refused("sasl.passwort", "s3cret"),
        "kafka.test: properties.sasl.passwort: No such configuration property: \"sasl.passwort\""
    );
    let wrong = refused("session.timeout.ms", "s3cret");
    assert!(wrong.starts_with("kafka.test: properties.session.timeout.ms: ") && !wrong.contains("s3cret"), "{wrong}");
}
