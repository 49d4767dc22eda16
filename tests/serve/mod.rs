//! The services over a real server, with a backend made by hand.

mod access;
mod door;
mod hold;
mod hook;
pub mod hostile;
mod http;
mod layout;
mod reflection;
mod remote;
mod statistics;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use afterwrite::model::decision::{Check, Decision, Verdict};
use afterwrite::model::event::{Event, Heard};
use afterwrite::model::ident::{TableIdent, TableName};
use afterwrite::model::partition::{PartitionKey, Value};
use afterwrite::model::refusal::{Refusal, Refused};
use afterwrite::model::traits::Traits;
use afterwrite::model::writers::Hold;
use afterwrite::observe::Entrance;
use afterwrite::proto::v1;
use afterwrite::proto::v1::commit_hook_client::CommitHookClient;
use afterwrite::proto::v1::layout_client::LayoutClient;
use afterwrite::serve::backend::{
    self, Answer, Backend, Backlog, BacklogRow, Candidate, Error, Explained, Health, Page, PartitionRow, Partitions, TableLayout, Taken,
    Tells,
};
use afterwrite::serve::{Options, Running, start};
use tokio::sync::{Notify, broadcast};
use tonic::transport::Channel;
use uuid::Uuid;

/// A loop made by hand: knows the catalog `lake` with the table `db.t` of 250
/// partitions.
pub struct Fake {
    pub heard: Mutex<Vec<Event>>,
    pub told: Mutex<Vec<(Tells, i64)>>,
    pub answer: Mutex<Answer>,
    pub health: Mutex<Health>,
    pub entrance: Mutex<Option<Arc<Entrance>>>,
    pub decisions: broadcast::Sender<Arc<Explained>>,
    /// Tables that are held.
    pub held: Mutex<Vec<(TableName, Hold)>>,
    /// When set, `get_layout` waits for it.
    pub gate: Mutex<Option<Arc<Notify>>>,
    pub entered: Notify,
}

pub const SNAPSHOT: i64 = 9_007_199_254_740_993;

pub fn uuid() -> Uuid {
    Uuid::from_u128(7)
}

pub fn key(at: i32) -> PartitionKey {
    PartitionKey { spec_id: 1, tuple: Arc::from([Some(Value::Int(at))]) }
}

pub fn explained(at: i32) -> Explained {
    let decision = Decision {
        table: TableIdent::iceberg(uuid()),
        name: TableName::new("lake", "db", "t"),
        scope: key(at),
        snapshot_id: SNAPSHOT,
        at_ms: 1000,
        verdict: Verdict::Now { rule: "small-files".into(), gb_hours: 0.5, gain: 12 },
        act: true,
        checks: vec![Check { name: "tier".into(), value: 13.0, threshold: 8.0, passed: true, note: "small files in tier 4".into() }],
        traits: Traits { data_files: 13, ..Traits::default() },
        eligible_ms: None,
    };
    Explained {
        branch: "main".into(),
        label: backend::label(&decision.scope, None),
        decision,
        decided_ms: 0,
        score: 0.0,
        waits_for: String::new(),
        last_job: None,
    }
}

impl Fake {
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            heard: Mutex::default(),
            told: Mutex::default(),
            answer: Mutex::new(Answer { heard: Heard::Accepted, note: String::new() }),
            health: Mutex::new(Health { ready: true, ..Health::default() }),
            entrance: Mutex::default(),
            decisions: broadcast::channel(4).0,
            held: Mutex::default(),
            gate: Mutex::default(),
            entered: Notify::new(),
        })
    }

    fn find(&self, name: &TableName) -> Result<(), Error> {
        match name.table.as_str() {
            "t" | "other" => Ok(()),
            "v3" => Err(Refused::new(Refusal::FormatVersion, "format version 3").into()),
            "down" => Err(Error::Unavailable("catalog lake: connection refused".into())),
            _ => Err(Error::NotFound(format!("no table `{name}`"))),
        }
    }
}

#[async_trait::async_trait]
impl Backend for Fake {
    fn now_ms(&self) -> i64 {
        1234
    }

    fn catalogs(&self) -> Vec<String> {
        vec!["lake".into(), "pond".into()]
    }

    fn hear(&self, event: Event) -> Answer {
        self.heard.lock().unwrap().push(event);
        self.answer.lock().unwrap().clone()
    }

    async fn get_layout(&self, name: &TableName, reference: &str) -> Result<TableLayout, Error> {
        self.find(name)?;
        let gate = self.gate.lock().unwrap().clone();
        if let Some(gate) = gate {
            self.entered.notify_one();
            gate.notified().await;
        }
        Ok(TableLayout {
            table: name.clone(),
            uuid: uuid(),
            reference: reference.into(),
            snapshot_id: Some(SNAPSHOT),
            looked_at_ms: 1000,
            format_version: 2,
            target_file_size: 512 << 20,
            partitions: 250,
            traits: Traits { data_files: 5000, small_file_count: 4000, quiet_for_ms: Some(0), ..Traits::default() },
            refused: vec![],
            act: true,
        })
    }

    async fn list_partitions(&self, name: &TableName, _: &str, page: Page) -> Result<Partitions, Error> {
        self.find(name)?;
        let all: Vec<_> = (0..250).map(key).filter(|k| page.after.as_ref().is_none_or(|after| k > after)).collect();
        let row = |k: &PartitionKey| PartitionRow { partition: k.clone(), label: backend::label(k, None), traits: Traits::default() };
        Ok(Partitions { snapshot_id: Some(SNAPSHOT), rows: all.iter().take(page.size).map(row).collect(), more: all.len() > page.size })
    }

    async fn list_candidates(&self, limit: usize) -> Result<Vec<Candidate>, Error> {
        let candidate = |at| Candidate {
            table: TableName::new("lake", "db", "t"),
            branch: "main".into(),
            partition: key(at),
            label: backend::label(&key(at), None),
            score: 0.5,
            gain: 12,
            gb_hours: 0.25,
            waits_for: String::new(),
            tenant: "sales".into(),
            on_front: true,
            chosen: true,
            urgent: true,
        };
        Ok((0..3).map(candidate).take(limit).collect())
    }

    async fn backlog(&self) -> Result<Backlog, Error> {
        let row = BacklogRow {
            tenant: "sales".into(),
            act: true,
            candidates: 3,
            urgent: 2,
            review: 1,
            oldest_ms: 4,
            files: 5,
            bytes: 6,
            gb_hours: 7.0,
            bytes_per_hour: 8.0,
            drain_seconds: Some(9.0),
            cost: 10.0,
            available_gb_hours: Some(11.0),
        };
        let nobodys = BacklogRow::default();
        Ok(Backlog { rows: vec![row, nobodys], available_gb_hours: 12.0, currency: "USD".into() })
    }

    async fn why(&self, name: &TableName, filter: Option<&str>) -> Result<Vec<Explained>, Error> {
        self.find(name)?;
        let all = (0..3).map(explained);
        Ok(all.filter(|e| filter.is_none_or(|f| backend::names(f, &e.decision.scope, None))).collect())
    }

    async fn tell(&self, name: &TableName, told: &[Tells], until_ms: i64) -> Result<Taken, Error> {
        self.find(name)?;
        self.told.lock().unwrap().extend(told.iter().cloned().map(|tells| (tells, until_ms)));
        Ok(Taken { taken: told.len() as u64, unknown: vec!["gone".into()] })
    }

    fn tell_capacity(&self, free_gb: f64, until_ms: i64) -> Result<f64, Error> {
        match until_ms {
            1_001_234 => Err(Error::Unasked("nobody asks".into())),
            _ => Ok(free_gb / 2.0),
        }
    }

    async fn hold(&self, name: &TableName, hold: Hold) -> Result<i64, Error> {
        let until_ms = hold.until_ms;
        self.held.lock().unwrap().push((name.clone(), hold));
        Ok(until_ms)
    }

    async fn release(&self, name: &TableName, holder: Option<&str>) -> Result<usize, Error> {
        let mut held = self.held.lock().unwrap();
        let before = held.len();
        held.retain(|(table, hold)| table != name || holder.is_some_and(|holder| holder != hold.by));
        Ok(before - held.len())
    }

    fn watch(&self) -> broadcast::Receiver<Arc<Explained>> {
        self.decisions.subscribe()
    }

    fn health(&self) -> Health {
        self.health.lock().unwrap().clone()
    }

    fn entrance(&self) -> Option<Arc<Entrance>> {
        self.entrance.lock().unwrap().clone()
    }
}

pub fn loopback() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

pub fn options() -> Options {
    Options { grpc: loopback(), http: Some(loopback()), ..Options::default() }
}

pub async fn running(fake: &Arc<Fake>, options: &Options) -> Running {
    let metrics = afterwrite::telemetry::recorder().unwrap().handle();
    start(fake.clone(), options, metrics).await.unwrap()
}

pub async fn channel(running: &Running) -> Channel {
    Channel::from_shared(format!("http://{}", running.grpc_addr())).unwrap().connect().await.unwrap()
}

pub async fn hook(running: &Running) -> CommitHookClient<Channel> {
    CommitHookClient::new(channel(running).await)
}

pub async fn layouts(running: &Running) -> LayoutClient<Channel> {
    LayoutClient::new(channel(running).await)
}

pub fn thin(table: &str) -> v1::CommitEvent {
    v1::CommitEvent { table: table.into(), ..v1::CommitEvent::default() }
}

/// Longer than any answer takes; a test that waits so long has failed.
pub const LONG: Duration = Duration::from_secs(10);
