//! How many commits a second the stream of the hook takes, until they are answered and
//! until the looks that they lead to are absorbed, and how soon it answers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use afterwrite::act::{self, Act, KillSwitch, MemoryJournal, Ports, Role};
use afterwrite::lake::clock::{Clock, SystemChance, SystemClock};
use afterwrite::observe::{Inbox, Roster, inbox};
use afterwrite::ooda::{Loop, Parts};
use afterwrite::orient::Orient;
use afterwrite::orient::checkpoint::InMemory;
use afterwrite::proto::v1::commit_hook_client::CommitHookClient;
use afterwrite::proto::v1::{Ack, CommitEvent, FileCounts, SequencedEvent, SnapshotChange};
use afterwrite::serve::{self, Options};
use afterwrite::settings::Settings;
use afterwrite::telemetry;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;

use crate::figure::{Bench, Figure, median, quantile};
use crate::lake::Place;

/// See the module.
pub const BENCH: Bench = Bench {
    name: "hook_calls_per_s",
    also: &["hook_absorbed_per_s", "hook_p50_ms", "hook_p99_ms"],
    about: "commits reported through one stream a second with the whole loop behind it, the client on the same cores: until answered, until absorbed; latency at half of that",
    run,
};

/// Tables that are spoken of.
const TABLES: u64 = 200;
/// Events that may wait for their answer.
const WINDOW: usize = 4_096;

fn run(quick: bool) -> anyhow::Result<Vec<Figure>> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?.block_on(measure(quick))
}

async fn measure(quick: bool) -> anyhow::Result<Vec<Figure>> {
    let place = Place::in_memory();
    for n in 0..if quick { 10 } else { TABLES } {
        place.table(&format!("t{n}"), 100).await?;
    }
    let (ooda, inbox, running) = serve(&place).await?;
    let looking = tokio::spawn({
        let ooda = Arc::clone(&ooda);
        async move { ooda.run().await }
    });
    let channel = Channel::from_shared(format!("http://{}", running.grpc_addr()))?.connect().await?;
    let (events, rounds) = if quick { (20_000, 1) } else { (400_000, 5) };
    let (mut rates, mut absorbed) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        let began = Instant::now();
        rates.push(flood(&channel, round * events, events).await?);
        // the snapshots are invented: they are looked for again, which no event waits for
        while inbox.ledger().rows(0).iter().any(|source| source.lag != Some(0)) {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        absorbed.push(events as f64 / began.elapsed().as_secs_f64());
    }
    let rate = median(&rates);
    let waits = paced(&channel, rounds * events, rate / 2.0, if quick { 0.5 } else { 5.0 }).await?;
    looking.abort();
    running.drain(Duration::from_secs(1)).await;
    Ok(vec![
        Figure::new("hook_calls_per_s", rate, "1/s"),
        Figure::new("hook_absorbed_per_s", median(&absorbed), "1/s"),
        Figure::new("hook_p50_ms", quantile(&waits, 0.5), "ms"),
        Figure::new("hook_p99_ms", quantile(&waits, 0.99), "ms"),
    ])
}

/// The services over the loop, as `serve` has them.
async fn serve(place: &Place) -> anyhow::Result<(Arc<Loop>, Inbox, serve::Running)> {
    let (clock, chance): (Arc<dyn Clock>, _) = (Arc::new(SystemClock), Arc::new(SystemChance));
    let format = Arc::clone(&place.lake);
    let ports = Ports { format: Arc::clone(&format), journal: Arc::new(MemoryJournal::default()), clock: Arc::clone(&clock), chance };
    let act = Act::start(ports, Role::Serve, act::Settings::default(), KillSwitch::default()).await?;
    let inbox = Inbox::new(Arc::clone(&clock), inbox::Limits::default());
    let ooda = Loop::new(Parts {
        inbox: inbox.clone(),
        roster: Arc::new(Roster::new(format.catalogs())),
        format,
        orient: Arc::new(Orient::new(1 << 30, Arc::new(InMemory::default()))),
        act,
        clock,
        settings: Arc::new(Settings::read("", [])?),
    });
    let free = ([127, 0, 0, 1], 0).into();
    let options = Options { grpc: free, http: None, ..Options::default() };
    let running = serve::start(Arc::clone(&ooda) as Arc<dyn serve::Backend>, &options, telemetry::install()?).await?;
    Ok((ooda, inbox, running))
}

/// One commit as an engine's hook reports it.
fn event(n: u64) -> SequencedEvent {
    let added = FileCounts { data_files: 1 + n % 8, delete_files: 0, records: 10_000, bytes: 1 << 20 };
    let snapshot = SnapshotChange {
        snapshot_id: (7_000_000_000_000_000_000 + n as i64).to_string(),
        parent_id: (7_000_000_000_000_000_000 + n as i64 - TABLES as i64).to_string(),
        added: Some(added),
        ..SnapshotChange::default()
    };
    let event = CommitEvent {
        table: format!("lake.db.t{}", n % TABLES),
        snapshots: vec![snapshot],
        sender: "bench".into(),
        ..CommitEvent::default()
    };
    SequencedEvent { seq: n, event: Some(event) }
}

/// Events sent as fast as they are taken: how many were answered a second.
async fn flood(channel: &Channel, from: u64, count: u64) -> anyhow::Result<f64> {
    let (send, receive) = mpsc::channel(WINDOW);
    let sender = tokio::spawn(async move {
        for n in from..from + count {
            if send.send(event(n)).await.is_err() {
                return;
            }
        }
    });
    let began = Instant::now();
    let mut acks = CommitHookClient::new(channel.clone()).report_commits(ReceiverStream::new(receive)).await?.into_inner();
    let mut next = from;
    while let Some(ack) = acks.message().await? {
        check(&ack, next)?;
        next += 1;
    }
    sender.await?;
    anyhow::ensure!(next == from + count, "{} of {count} events were answered", next - from);
    Ok(count as f64 / began.elapsed().as_secs_f64())
}

/// Events sent at a steady rate: how long each waited for its answer, in
/// milliseconds from the moment at which it was due.
async fn paced(channel: &Channel, from: u64, rate: f64, seconds: f64) -> anyhow::Result<Vec<f64>> {
    let (send, receive) = mpsc::channel(WINDOW);
    let count = (rate * seconds) as u64;
    let began = Instant::now() + Duration::from_millis(50);
    let due = move |n: u64| began + Duration::from_secs_f64(n as f64 / rate);
    let sender = tokio::spawn(async move {
        for n in 0..count {
            // the timer's grain is a millisecond: what is due within it goes at once
            let wait = due(n).saturating_duration_since(Instant::now());
            if wait > Duration::from_millis(1) {
                tokio::time::sleep(wait).await;
            }
            if send.send(event(from + n)).await.is_err() {
                return;
            }
        }
    });
    let mut acks = CommitHookClient::new(channel.clone()).report_commits(ReceiverStream::new(receive)).await?.into_inner();
    let mut waits = Vec::with_capacity(count as usize);
    while let Some(ack) = acks.message().await? {
        check(&ack, from + waits.len() as u64)?;
        waits.push(Instant::now().saturating_duration_since(due(waits.len() as u64)).as_secs_f64() * 1000.0);
    }
    sender.await?;
    anyhow::ensure!(waits.len() as u64 == count, "{} of {count} events were answered", waits.len());
    Ok(waits)
}

fn check(ack: &Ack, seq: u64) -> anyhow::Result<()> {
    anyhow::ensure!(ack.seq == seq, "event {seq} was answered as {}", ack.seq);
    anyhow::ensure!(ack.status() == afterwrite::proto::v1::ack::Status::Accepted, "event {seq}: {ack:?}");
    Ok(())
}
