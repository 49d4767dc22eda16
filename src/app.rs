//! Puts the parts together: the only place that names every one of them.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use async_trait::async_trait;
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::act::journal::Blob;
use crate::act::{self, Act, Journal, KillSwitch, Role, SqliteJournal};
use crate::lake::clock::{Chance, Clock, SystemChance, SystemClock};
use crate::lake::iceberg::catalog::Catalog;
use crate::lake::iceberg::catalog::rest::{self, RestCatalog};
use crate::lake::iceberg::catalog::sql::{self, SqlCatalog};
use crate::lake::iceberg::lake::Lake;
use crate::lake::{self, Format};
use crate::model::economy::HOURS_A_MONTH;
use crate::model::event::Door;
use crate::model::ident::{MAIN, TableIdent};
use crate::observe::gauge::{self, Gauge, Reading};
use crate::observe::kafka::{self, KafkaDoor};
use crate::observe::poll::{self, Poller};
use crate::observe::proxy::{self, Heeds};
use crate::observe::{Inbox, Ledger, Roster, inbox};
use crate::ooda::{Loop, Parts};
use crate::orient::Orient;
use crate::orient::cache::Key;
use crate::orient::checkpoint::{Checkpoints, Saved, VERSION};
use crate::replay::recorder::Recorder;
use crate::serve::{self, Running};
use crate::settings::{self, Settings};
use crate::telemetry;

/// Between two signs of life in the journal.
const BEAT: Duration = Duration::from_secs(8);
/// Between two looks at work that a crash or a lost answer left open.
const RECOVER: Duration = Duration::from_secs(30);
/// Between two savings of states that could not be saved when they came about.
const FLUSH: Duration = Duration::from_secs(30);
/// Between two prunings of the journal.
const PRUNE: Duration = Duration::from_secs(3_600);
/// For so long jobs that have ended stay in the journal, in milliseconds.
const KEPT_MS: i64 = 90 * 24 * 3_600_000;
/// Between two readings of gauges.
const GAUGES: Duration = Duration::from_secs(2);
/// How long calls and jobs under way may take when the process ends.
const PATIENCE: Duration = Duration::from_secs(30);

/// The parts that every command needs.
pub struct App {
    /// What users ask for.
    pub settings: Arc<Settings>,
    /// Every table of every configured catalog.
    pub lake: Arc<Lake>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    chance: Arc<dyn Chance>,
}

impl App {
    /// Prepares access to the catalogs; none is contacted yet.
    ///
    /// # Errors
    /// When a catalog is configured in a way that cannot work.
    pub async fn new(settings: Settings) -> lake::Result<Self> {
        let (clock, chance): (Arc<dyn Clock>, Arc<dyn Chance>) = (Arc::new(SystemClock), Arc::new(SystemChance));
        let mut catalogs: Vec<Arc<dyn Catalog>> = Vec::new();
        for (name, catalog) in &settings.catalogs {
            catalogs.push(open(name, catalog, Arc::clone(&clock), Arc::clone(&chance)).await?);
        }
        Ok(Self { settings: Arc::new(settings), lake: Arc::new(Lake::new(catalogs)), clock, chance })
    }

    /// Opens the journal, and makes it where there is none.
    ///
    /// # Errors
    /// When the file cannot be opened, or is not a journal of this version.
    pub async fn journal(&self) -> act::journal::Result<Arc<SqliteJournal>> {
        Ok(Arc::new(SqliteJournal::open(&self.settings.journal.path).await?))
    }

    /// Enters this process in the journal.
    ///
    /// # Errors
    /// When the journal cannot be used, or this process would serve and another does.
    pub async fn act(&self, role: Role, journal: Arc<dyn Journal>) -> act::journal::Result<Arc<Act>> {
        let kill = KillSwitch::from_variable(std::env::var(KillSwitch::VARIABLE).ok().as_deref())
            .map_err(|why| act::journal::Error::Unavailable { path: KillSwitch::VARIABLE.into(), why })?;
        let format: Arc<dyn Format> = Arc::clone(&self.lake) as Arc<dyn Format>;
        if let Some(wanted) = &self.settings.instance {
            journal.instance(wanted).await?;
        }
        let ports = act::Ports { format, journal, clock: Arc::clone(&self.clock), chance: Arc::clone(&self.chance) };
        Act::start(ports, role, act::Settings { claims: self.settings.claims, ..act::Settings::default() }, kill).await
    }

    /// Closes what dead processes left open, before a command acts. Work of living
    /// ones is left alone.
    ///
    /// # Errors
    /// When the journal cannot be used.
    pub async fn recover(&self) -> act::journal::Result<act::Recovered> {
        let act = self.act(Role::Command, self.journal().await?).await?;
        let recovered = act.recover().await;
        act.leave().await?;
        recovered
    }

    /// Errs when the journal is that of another instance than the settings name.
    async fn settle_instance(&self, journal: &dyn Journal) -> anyhow::Result<()> {
        let Some(wanted) = &self.settings.instance else { return Ok(()) };
        let kept = journal.instance(wanted).await?;
        anyhow::ensure!(
            kept == *wanted,
            "instance: the journal is that of instance `{kept}`, not of `{wanted}`: leave the key out, or give another journal"
        );
        Ok(())
    }

    /// Starts the sidecar: closes what a crash left open, then listens and loops.
    ///
    /// # Errors
    /// When the journal or an address cannot be had.
    pub async fn serve(&self, options: &serve::Options, metrics: PrometheusHandle) -> anyhow::Result<Sidecar> {
        let recorder = self.recorder()?;
        let gauge = self.gauge()?;
        let journal: Arc<dyn Journal> = self.journal().await?;
        self.settle_instance(journal.as_ref()).await?;
        let act = self.act(Role::Serve, Arc::clone(&journal)).await?;
        let format: Arc<dyn Format> = Arc::clone(&self.lake) as Arc<dyn Format>;
        let give_up_ms = self.settings.poll.max_ms;
        let inbox =
            Inbox::new(Arc::clone(&self.clock), inbox::Limits { give_up_ms, interval_ms: LOOK_INTERVAL_MS, ..inbox::Limits::default() });
        let roster = Arc::new(Roster::new(format.catalogs()));
        let checkpoints = Arc::new(JournalCheckpoints(Arc::clone(&journal)));
        let orient = Arc::new(Orient::new(self.settings.cache.memory, checkpoints));
        let ooda = Loop::new(Parts {
            format: Arc::clone(&format),
            inbox: inbox.clone(),
            roster: Arc::clone(&roster),
            orient: Arc::clone(&orient),
            act: Arc::clone(&act),
            clock: Arc::clone(&self.clock),
            settings: Arc::clone(&self.settings),
        });
        if let Some(recorder) = recorder {
            ooda.set_recorder(recorder);
        }
        let heeded = Arc::new(proxy::Ledger::default());
        let read = Arc::clone(&heeded);
        ooda.set_reads(Box::new(move |table, now_ms| read.read_rate(table, now_ms)));
        ooda.set_clients(Arc::clone(&heeded));
        let recovered = act.recover().await?;
        tracing::info!(committed = recovered.committed.len(), ended = recovered.ended.len(), open = recovered.open.len(), "journal read");
        ooda.set_open(recovered.open.len());
        let started = serve::start(Arc::clone(&ooda) as Arc<dyn serve::Backend>, options, metrics).await;
        let running = match started {
            Ok(running) => running,
            Err(error) => {
                act.leave().await?;
                return Err(error.into());
            }
        };
        self.enter_doors(inbox.ledger(), &running);
        let proxies = match self.proxies(options.insecure, &inbox, &heeded).await {
            Ok(proxies) => proxies,
            Err(error) => {
                running.drain(PATIENCE).await;
                act.leave().await?;
                return Err(error.into());
            }
        };
        let doors = match self.open_kafka(&ooda, options.max_message_bytes) {
            Ok(doors) => doors,
            Err(error) => {
                running.drain(PATIENCE).await;
                act.leave().await?;
                return Err(error.into());
            }
        };
        let stop = CancellationToken::new();
        let mut sidecar = Sidecar {
            running,
            proxies,
            heeded,
            doors,
            ooda: Arc::clone(&ooda),
            inbox: inbox.clone(),
            orient,
            act,
            stop,
            tended: CancellationToken::new(),
            tasks: Vec::new(),
            main: None,
        };
        for catalog in format.catalogs() {
            let proxied = self.settings.catalogs.get(&catalog).is_some_and(|c| c.proxy.is_some());
            sidecar.poll(Poller {
                catalog,
                format: Arc::clone(&format),
                inbox: inbox.clone(),
                roster: Arc::clone(&roster),
                clock: Arc::clone(&self.clock),
                chance: Arc::clone(&self.chance),
                limits: poll::Limits { min_ms: self.settings.poll.min_ms, max_ms: self.settings.poll.max_ms, ..poll::Limits::default() },
                references: vec![MAIN.to_owned()],
                proxied,
            });
        }
        if let Some(gauge) = gauge {
            let (stop, ooda) = (sidecar.stop.clone(), Arc::clone(&ooda));
            let tell = move |read: Reading| match serve::Backend::tell_capacity(ooda.as_ref(), read.gb, read.until_ms) {
                Ok(_) => telemetry::capacity_free(read.gb),
                Err(error) => tracing::warn!(%error, "what is free was read and cannot be used"),
            };
            sidecar.tasks.push(tokio::spawn(gauge.run(stop, tell)));
        }
        sidecar.tend(Arc::clone(&self.clock));
        sidecar.main = Some(tokio::spawn(async move { ooda.run().await }));
        Ok(sidecar)
    }

    /// Opens the recording, where there is to be one.
    fn recorder(&self) -> anyhow::Result<Option<Recorder>> {
        let record = &self.settings.record;
        let open = |path: &PathBuf| {
            let opened = Recorder::open(path, record.most_bytes, self.settings.ranking, self.settings.prices.clone());
            opened.with_context(|| format!("record.path: {} cannot be written", path.display()))
        };
        record.path.as_ref().map(open).transpose()
    }

    /// Who reads what a cluster has free, where that is to be read.
    fn gauge(&self) -> anyhow::Result<Option<Gauge>> {
        let Some(from) = &self.settings.capacity.from else { return Ok(None) };
        let options = gauge::Options {
            url: from.url.clone(),
            metric: from.metric.clone(),
            labels: from.labels.clone(),
            unit_bytes: from.unit_bytes as f64,
            every: Duration::from_millis(u64::try_from(from.every_ms).unwrap_or(0)),
            max_age_ms: from.max_age_ms,
            token: from.token.clone(),
        };
        let opened = Gauge::open(options, Arc::clone(&self.clock));
        opened.map(Some).map_err(|why| anyhow::anyhow!("budget.free_from: {why}"))
    }

    /// Enters every door that is not entered where it is opened, so that one that
    /// hears nothing shows too.
    fn enter_doors(&self, ledger: &Ledger, running: &Running) {
        ledger.source(Door::Grpc, "").set_state(format!("listens on {}", running.grpc_addr()));
        if let Some(http) = running.http_addr() {
            ledger.source(Door::Http, "/v1/commits").set_state(format!("listens on http://{http}"));
        }
        for catalog in self.settings.catalogs.keys() {
            drop(ledger.source(Door::Poll, catalog));
        }
    }

    /// Starts the proxy of every catalog that has one; all or none.
    async fn proxies(&self, insecure: bool, inbox: &Inbox, heeded: &Arc<proxy::Ledger>) -> Result<Vec<proxy::Running>, proxy::Error> {
        let mut running: Vec<proxy::Running> = Vec::new();
        for (name, catalog) in &self.settings.catalogs {
            let Some(set) = &catalog.proxy else { continue };
            let options = proxy::Options {
                listen: set.listen,
                heal: set.heal,
                heal_deadline_ms: set.heal_deadline_ms,
                tls: set.tls_cert.clone().zip(set.tls_key.clone()),
                insecure: insecure || set.insecure,
                ..proxy::Options::new(name, &set.upstream)
            };
            let heeds = Arc::clone(heeded) as Arc<dyn Heeds>;
            let ports = proxy::Ports { inbox: inbox.clone(), heeds, clock: Arc::clone(&self.clock) };
            match proxy::start(&options, ports).await {
                Ok(proxy) => {
                    let state = format!("listens on {}, in front of {}", proxy.url(), proxy.upstream());
                    inbox.ledger().source(Door::Proxy, name).set_state(state);
                    running.push(proxy);
                }
                Err(error) => {
                    drain_all(running).await;
                    return Err(error);
                }
            }
        }
        Ok(running)
    }

    fn open_kafka(&self, ooda: &Loop, max_bytes: usize) -> Result<Vec<KafkaDoor>, kafka::Error> {
        let Some(entrance) = serve::Backend::entrance(ooda) else { return Ok(Vec::new()) };
        let open = |(name, of): (&String, &settings::Kafka)| {
            let topic = |t: &settings::KafkaTopic| kafka::Topic { topic: t.topic.clone(), wire: t.format, catalog: t.catalog.clone() };
            let options = kafka::Options {
                name: name.clone(),
                brokers: of.brokers.clone(),
                group: of.group.clone(),
                topics: of.topics.iter().map(topic).collect(),
                dead_letter: of.dead_letter.clone(),
                properties: of.properties.clone(),
                max_bytes,
            };
            KafkaDoor::open(options, Arc::clone(&entrance))
        };
        self.settings.kafka.iter().map(open).collect()
    }
}

/// Lets what is under way through the proxies end, all at one time.
async fn drain_all(proxies: Vec<proxy::Running>) {
    futures::future::join_all(proxies.into_iter().map(|proxy| async move {
        let catalog = proxy.catalog().to_owned();
        if !proxy.drain(PATIENCE).await {
            tracing::warn!(catalog, "requests through the proxy were still under way when it ended");
        }
    }))
    .await;
}

/// Least time between two looks at one table: what comes within it is one look.
const LOOK_INTERVAL_MS: i64 = 100;

async fn open(name: &str, catalog: &settings::Catalog, clock: Arc<dyn Clock>, chance: Arc<dyn Chance>) -> lake::Result<Arc<dyn Catalog>> {
    let (name, uri, properties) = (name.to_owned(), catalog.uri.clone(), catalog.properties.clone());
    let warehouse = Some(catalog.warehouse.clone()).filter(|w| !w.is_empty());
    Ok(match catalog.kind {
        settings::CatalogKind::Sql => {
            let options = sql::Options { name, uri, warehouse, properties, create_if_missing: false };
            Arc::new(SqlCatalog::open(options, chance).await?)
        }
        settings::CatalogKind::Rest => {
            let options = rest::Options { name, uri, warehouse, properties };
            Arc::new(RestCatalog::open(options, clock, chance)?)
        }
    })
}

/// A sidecar that runs.
pub struct Sidecar {
    running: Running,
    proxies: Vec<proxy::Running>,
    heeded: Arc<proxy::Ledger>,
    doors: Vec<KafkaDoor>,
    ooda: Arc<Loop>,
    inbox: Inbox,
    orient: Arc<Orient>,
    act: Arc<Act>,
    /// Ends the polling.
    stop: CancellationToken,
    /// Ends what is due again and again, once no job runs any more.
    tended: CancellationToken,
    tasks: Vec<JoinHandle<()>>,
    main: Option<JoinHandle<()>>,
}

impl Sidecar {
    /// Where it listens.
    pub fn running(&self) -> &Running {
        &self.running
    }

    /// The proxies, where they listen.
    pub fn proxies(&self) -> &[proxy::Running] {
        &self.proxies
    }

    /// What the proxies hear besides finished commits.
    pub fn heeded(&self) -> &Arc<proxy::Ledger> {
        &self.heeded
    }

    /// The loop.
    pub fn ooda(&self) -> &Arc<Loop> {
        &self.ooda
    }

    fn poll(&mut self, poller: Poller) {
        let stop = self.stop.clone();
        self.tasks.push(tokio::spawn(async move { poller.run(stop).await }));
    }

    /// Starts what is due again and again.
    fn tend(&mut self, clock: Arc<dyn Clock>) {
        let (act, orient, ooda, inbox) = (&self.act, &self.orient, &self.ooda, &self.inbox);
        let beating = Arc::clone(act);
        let beat = move || {
            let act = Arc::clone(&beating);
            async move { act.beat().await.map_err(|e| e.to_string()) }
        };
        let (recovering, told) = (Arc::clone(act), Arc::clone(ooda));
        let recover = move || {
            let (act, ooda) = (Arc::clone(&recovering), Arc::clone(&told));
            async move {
                let recovered = act.recover().await.map_err(|e| e.to_string())?;
                ooda.set_open(recovered.open.len());
                Ok(())
            }
        };
        let (saving, telling) = (Arc::clone(orient), Arc::clone(ooda));
        let flush = move || {
            let (orient, ooda) = (Arc::clone(&saving), Arc::clone(&telling));
            async move {
                let flushed = orient.flush().await.map_err(|e| e.to_string());
                ooda.keep_told().await.and(flushed)
            }
        };
        let (pruned, at) = (Arc::clone(act), Arc::clone(&clock));
        let prune = move || {
            let (act, before_ms) = (Arc::clone(&pruned), at.now_ms().saturating_sub(KEPT_MS));
            async move { act.journal().prune(before_ms).await.map(drop).map_err(|e| e.to_string()) }
        };
        let (act, orient, ooda, inbox, now) = (Arc::clone(act), Arc::clone(orient), Arc::clone(ooda), inbox.clone(), Arc::clone(&clock));
        let gauges = move || {
            let (act, orient, ooda, inbox, now) =
                (Arc::clone(&act), Arc::clone(&orient), Arc::clone(&ooda), inbox.clone(), Arc::clone(&now));
            async move { read_gauges(&act, &orient, &ooda, &inbox, now.now_ms()).await }
        };
        let (stop, tasks) = (&self.tended, &mut self.tasks);
        tasks.push(every(BEAT, "sign of life", stop.clone(), Arc::clone(&clock), beat));
        tasks.push(every(RECOVER, "recovery", stop.clone(), Arc::clone(&clock), recover));
        tasks.push(every(FLUSH, "checkpoint", stop.clone(), Arc::clone(&clock), flush));
        tasks.push(every(PRUNE, "pruning the journal", stop.clone(), Arc::clone(&clock), prune));
        tasks.push(every(GAUGES, "metrics", stop.clone(), clock, gauges));
    }

    /// Takes no new work, lets what is under way finish within a bound, and saves
    /// what is known. What does not finish is closed at the next start.
    pub async fn stop(self) {
        // offsets of what was absorbed are stored before anything else ends
        let doors = futures::future::join_all(self.doors.into_iter().map(KafkaDoor::close));
        if tokio::time::timeout(PATIENCE, doors).await.is_err() {
            tracing::warn!("a Kafka broker does not answer: the last offsets may not be committed, and records are read again");
        }
        self.inbox.close();
        self.stop.cancel();
        tokio::join!(self.running.drain(PATIENCE), drain_all(self.proxies));
        let drained = match self.main {
            Some(main) => tokio::time::timeout(PATIENCE, main).await.is_ok(),
            None => true,
        };
        // signs of life are given for as long as jobs may run: a silent process is taken for dead
        self.tended.cancel();
        for mut task in self.tasks {
            if tokio::time::timeout(BEAT, &mut task).await.is_err() {
                task.abort();
            }
        }
        if let Err(error) = self.orient.flush().await {
            tracing::warn!(%error, "states are not all saved: the next start reads their manifests again");
        }
        if !drained {
            tracing::warn!("jobs are left to recovery");
        } else if let Err(error) = self.act.leave().await {
            tracing::warn!(%error, "the journal shows this process for a while longer");
        }
    }
}

fn every<F>(
    time: Duration,
    what: &'static str,
    stop: CancellationToken,
    clock: Arc<dyn Clock>,
    work: impl Fn() -> F + Send + 'static,
) -> JoinHandle<()>
where
    F: Future<Output = Result<(), String>> + Send + 'static,
{
    tokio::spawn(async move {
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = clock.sleep(time) => {}
            }
            if let Err(error) = work().await {
                tracing::warn!(%error, "{what} failed; tried again");
            }
        }
    })
}

async fn read_gauges(act: &Act, orient: &Orient, ooda: &Loop, inbox: &Inbox, now_ms: i64) -> Result<(), String> {
    let depth = inbox.depth();
    let waited = depth.oldest_heard_ms.map_or(0, |heard| now_ms.saturating_sub(heard).max(0));
    telemetry::inbox_depth(depth.pending, depth.looking, waited as f64 / 1000.0);
    tell_sources(inbox.ledger(), now_ms);
    telemetry::cache_size(ooda.tables() as u64, orient.cached_bytes());
    telemetry::unknown_outcomes_open(ooda.unknown_outcomes());
    let kept = act.journal().kept().await.map_err(|e| e.to_string())?;
    let bytes = kept.iter().map(|k| k.bytes).fold(0, u64::saturating_add);
    telemetry::kept_alive(bytes);
    telemetry::cost_kept(ooda.prices().stored(bytes, HOURS_A_MONTH));
    Ok(())
}

fn tell_sources(ledger: &Ledger, now_ms: i64) {
    for row in ledger.rows(now_ms) {
        let figures = telemetry::SourceFigures {
            received: row.received,
            accepted: row.accepted,
            duplicate: row.duplicate,
            ignored: row.ignored,
            parked: row.parked,
            dropped: row.dropped,
            lag: row.lag,
            staleness_ms: row.staleness_ms,
        };
        telemetry::source(row.door, &row.source, &figures);
    }
}

/// Checkpoints in the journal's database.
pub struct JournalCheckpoints(pub Arc<dyn Journal>);

const CHECKPOINT: &str = "layout";

impl JournalCheckpoints {
    fn name(ident: &TableIdent, reference: &str) -> String {
        format!("{ident}@{reference}")
    }
}

#[async_trait]
impl Checkpoints for JournalCheckpoints {
    async fn load(&self, key: &Key) -> lake::Result<Option<Saved>> {
        let name = Self::name(&key.ident, &key.reference);
        let Some(base) = self.0.blob(CHECKPOINT, &name).await? else { return Ok(None) };
        Ok(Some(Saved { base: base.bytes, log: self.0.blob_log(CHECKPOINT, &name).await? }))
    }

    async fn save(&self, key: &Key, base: Vec<u8>) -> lake::Result<()> {
        let blob = Blob { version: u32::from(VERSION), bytes: base };
        Ok(self.0.put_blob(CHECKPOINT, &Self::name(&key.ident, &key.reference), &blob).await?)
    }

    async fn append(&self, key: &Key, at: u64, record: Vec<u8>) -> lake::Result<()> {
        Ok(self.0.log_blob(CHECKPOINT, &Self::name(&key.ident, &key.reference), at, &record).await?)
    }

    async fn remove(&self, ident: &TableIdent) -> lake::Result<()> {
        Ok(self.0.drop_blob(CHECKPOINT, &Self::name(ident, MAIN)).await?)
    }

    async fn remove_branch(&self, key: &Key) -> lake::Result<()> {
        Ok(self.0.drop_blob(CHECKPOINT, &Self::name(&key.ident, &key.reference)).await?)
    }
}
