//! What the proxy hears besides finished commits: commits under way, loads,
//! scans. The loop may ask which snapshot a rewrite of ours is racing, and yield
//! early; how often a table is read weighs its workload.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use uuid::Uuid;

use super::clients::{ClientId, Clients};
use super::commit::Touched;
use crate::model::ident::TableName;
use crate::telemetry;

/// A client's commit to one ref of one table, from when the proxy read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Writing {
    /// The proxy's number for the request.
    pub request: u64,
    /// Who sent it.
    pub client: ClientId,
    /// The table.
    pub table: TableName,
    /// Its uuid, as the commit asserts it.
    pub uuid: Option<Uuid>,
    /// The ref that is moved; `None` for a staged snapshot.
    pub reference: Option<String>,
    /// The snapshot on which the commit builds.
    pub parent: Option<i64>,
    /// The snapshots that it adds, oldest first.
    pub adds: Vec<i64>,
    /// The partitions that its summaries name: where to look, no more.
    pub touched: Vec<Touched>,
    /// It only adds rows.
    pub appends: bool,
    /// When the proxy read it, in milliseconds since the epoch.
    pub since_ms: i64,
}

/// How a commit under way ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It is in the table.
    Landed,
    /// It is not, and can come no more.
    NotLanded,
    /// It cannot be told.
    Unknown,
}

/// A scan that a client reported or had planned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scan {
    /// Data files it reads, when told.
    pub files: u64,
    /// Their bytes, when told.
    pub bytes: u64,
}

/// Scans of one table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scans {
    /// How many.
    pub count: u64,
    /// Data files read by those that told.
    pub files: u64,
    /// Bytes read by those that told.
    pub bytes: u64,
    /// When the last one was heard of, in milliseconds since the epoch.
    pub last_ms: i64,
}

/// A commit that a rewrite of ours races.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Race {
    /// Its newest snapshot.
    pub snapshot: i64,
    /// The snapshot on which it builds.
    pub parent: Option<i64>,
    /// It is in the table already.
    pub landed: bool,
    /// When it was first heard of, in milliseconds since the epoch.
    pub since_ms: i64,
    /// The partitions that its summaries name: where to look, no more. Empty when
    /// they name none, which says nothing.
    pub touched: Vec<Touched>,
    /// It says that it only adds rows.
    pub appends: bool,
}

impl Race {
    /// Whether a rewrite may have lost an input to it, by what it says of itself: it does
    /// more than append and, where it names partitions, takes files away in one.
    pub fn may_take_away(&self) -> bool {
        !self.appends && (self.touched.is_empty() || self.touched.iter().any(|touched| touched.files_removed > 0))
    }
}

/// Takes what the proxy hears. Called in a request's path: never waits.
pub trait Heeds: Send + Sync {
    /// A client's commit was read and is about to be sent to the catalog.
    fn begun(&self, writing: &Writing);
    /// It is over.
    fn ended(&self, writing: &Writing, end: End, now_ms: i64);
    /// A client loads the table: it may be about to write.
    fn loaded(&self, table: &TableName, client: ClientId, now_ms: i64);
    /// A client scans the table.
    fn scanned(&self, table: &TableName, scan: Scan, now_ms: i64);
}

/// Keeps what the proxies hear, within bounds: the tables heard of least
/// recently are let go.
pub struct Ledger {
    most_tables: usize,
    pages: Mutex<BTreeMap<TableName, Page>>,
}

/// A commit under way is waited for no longer than this: by then it is known, or never is.
const COMMIT_MS: i64 = 60_000;
/// Commits under way that are kept of one table.
const MOST_WRITINGS: usize = 256;
/// Refs whose last commit is kept of one table.
const MOST_REFS: usize = 32;

#[derive(Default)]
struct Page {
    heard_ms: i64,
    writings: Vec<Writing>,
    /// By ref: the last commit that landed, and the last that may have taken files away.
    landed: BTreeMap<String, (Race, Option<Race>)>,
    loaded_ms: Option<i64>,
    clients: Clients,
    scans: Scans,
    /// Scans an hour, as of the last one.
    read_rate: f64,
}

impl Page {
    fn settle(&mut self, now_ms: i64) {
        (0..self.clients.settle(now_ms)).for_each(|_| telemetry::writer_harmed());
    }

    /// Until when a commit under way that takes files or rows away is waited for.
    fn commits_until_ms(&self, now_ms: i64) -> Option<i64> {
        let until = |w: &Writing| w.since_ms.saturating_add(COMMIT_MS);
        self.writings.iter().filter(|w| !w.appends).map(until).max().filter(|until| *until > now_ms)
    }

    fn read_rate(&self, now_ms: i64) -> f64 {
        let hours = now_ms.saturating_sub(self.scans.last_ms).max(0) as f64 / 3_600_000.0;
        self.read_rate * (-hours).exp2()
    }
}

impl Default for Ledger {
    fn default() -> Self {
        Self::new(10_000)
    }
}

impl Ledger {
    /// A ledger of at most `most_tables` tables.
    pub fn new(most_tables: usize) -> Self {
        Self { most_tables: most_tables.max(1), pages: Mutex::default() }
    }

    /// The commits that a rewrite races which was planned on `base`, a snapshot of
    /// this ref: those under way, the last that landed, and the last of those that may
    /// have taken files away; none that made `base`.
    pub fn races(&self, table: &TableName, reference: &str, base: i64) -> Vec<Race> {
        let pages = self.pages();
        let Some(page) = pages.get(table) else { return Vec::new() };
        let landed = page.landed.get(reference).into_iter().flat_map(|(last, taking)| {
            let taking = taking.as_ref().filter(|taking| taking.snapshot != last.snapshot);
            taking.into_iter().chain([last]).filter(|race| race.snapshot != base).cloned()
        });
        let under_way = page.writings.iter().filter(|w| w.reference.as_deref() == Some(reference)).filter_map(|w| race(w, false));
        landed.chain(under_way).collect()
    }

    /// When a client last loaded the table.
    pub fn last_load_ms(&self, table: &TableName) -> Option<i64> {
        self.pages().get(table).and_then(|page| page.loaded_ms)
    }

    /// Until when a client of the table may be at a statement that will commit, by the
    /// loads and commits that came by: an estimate; `None` when none may. One whose commit
    /// is under way is, whatever is known of it.
    pub fn busy_until_ms(&self, table: &TableName, now_ms: i64) -> Option<i64> {
        self.pages().get(table).and_then(|page| page.clients.busy_until_ms(now_ms).max(page.commits_until_ms(now_ms)))
    }

    /// A rewrite of ours has landed in the table.
    pub fn replaced(&self, table: &TableName, now_ms: i64) {
        if let Some(page) = self.pages().get_mut(table)
            && page.clients.replaced(now_ms)
        {
            tracing::info!(%table, "a rewrite landed while a client may be writing");
        }
    }

    /// Statements of the table's clients that our rewrites may have made fail: an
    /// estimate. See [`Clients`].
    pub fn harmed(&self, table: &TableName) -> u64 {
        self.pages().get(table).map_or(0, |page| page.clients.harmed())
    }

    /// Finds out about clients that were writing when a rewrite of ours landed.
    pub fn settle(&self, now_ms: i64) {
        self.pages().values_mut().filter(|page| page.clients.suspects_any()).for_each(|page| page.settle(now_ms));
    }

    /// The scans of a table.
    pub fn scans(&self, table: &TableName) -> Scans {
        self.pages().get(table).map(|page| page.scans).unwrap_or_default()
    }

    /// Scans of a table an hour: `ln 2 · Σ 2^(−age / 1 h)`; `None` when none was heard
    /// of. A clock that went back counts as standing still.
    pub fn read_rate(&self, table: &TableName, now_ms: i64) -> Option<f64> {
        self.pages().get(table).filter(|page| page.scans.count > 0).map(|page| page.read_rate(now_ms))
    }

    fn pages(&self) -> MutexGuard<'_, BTreeMap<TableName, Page>> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with(&self, table: &TableName, now_ms: i64, change: impl FnOnce(&mut Page)) {
        let mut pages = self.pages();
        if !pages.contains_key(table) && pages.len() >= self.most_tables {
            let stalest = pages.iter().filter(|(_, p)| p.writings.is_empty()).min_by_key(|(_, p)| p.heard_ms).map(|(name, _)| name.clone());
            match stalest {
                Some(name) => drop(pages.remove(&name)),
                None => return,
            }
        }
        let page = pages.entry(table.clone()).or_default();
        page.heard_ms = page.heard_ms.max(now_ms);
        change(page);
    }
}

fn race(writing: &Writing, landed: bool) -> Option<Race> {
    let snapshot = *writing.adds.last()?;
    let (touched, appends) = (writing.touched.clone(), writing.appends);
    Some(Race { snapshot, parent: writing.parent, landed, since_ms: writing.since_ms, touched, appends })
}

impl Heeds for Ledger {
    fn begun(&self, writing: &Writing) {
        self.with(&writing.table, writing.since_ms, |page| {
            if page.writings.len() < MOST_WRITINGS {
                page.writings.push(writing.clone());
            }
        });
    }

    fn ended(&self, writing: &Writing, end: End, now_ms: i64) {
        self.with(&writing.table, now_ms, |page| {
            page.writings.retain(|w| (w.request, &w.reference) != (writing.request, &writing.reference));
            if end == End::Landed {
                page.clients.commits(writing.client, writing.appends, now_ms);
            }
            if let (End::Landed, Some(reference), Some(race)) = (end, &writing.reference, race(writing, true))
                && (page.landed.len() < MOST_REFS || page.landed.contains_key(reference))
            {
                let taking = page.landed.remove(reference).and_then(|(_, taking)| taking);
                let taking = Some(race.clone()).filter(Race::may_take_away).or(taking);
                page.landed.insert(reference.clone(), (race, taking));
            }
        });
    }

    fn loaded(&self, table: &TableName, client: ClientId, now_ms: i64) {
        self.with(table, now_ms, |page| {
            page.loaded_ms = page.loaded_ms.max(Some(now_ms));
            page.settle(now_ms);
            page.clients.loads(client, now_ms);
        });
    }

    fn scanned(&self, table: &TableName, scan: Scan, now_ms: i64) {
        self.with(table, now_ms, |page| {
            page.read_rate = page.read_rate(now_ms) + std::f64::consts::LN_2;
            page.scans.count = page.scans.count.saturating_add(1);
            page.scans.files = page.scans.files.saturating_add(scan.files);
            page.scans.bytes = page.scans.bytes.saturating_add(scan.bytes);
            page.scans.last_ms = page.scans.last_ms.max(now_ms);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(table: &str) -> TableName {
        TableName::new("lake", "db", table)
    }

    fn writing(request: u64, reference: Option<&str>, parent: i64, adds: &[i64]) -> Writing {
        let reference = reference.map(str::to_owned);
        Writing {
            request,
            client: ClientId::numbered(request),
            table: name("t"),
            uuid: None,
            reference,
            parent: Some(parent),
            adds: adds.to_vec(),
            touched: vec![],
            appends: false,
            since_ms: 5,
        }
    }

    fn seen(ledger: &Ledger, base: i64) -> Vec<(i64, bool)> {
        ledger.races(&name("t"), "main", base).iter().map(|r| (r.snapshot, r.landed)).collect()
    }

    #[test]
    fn a_rewrite_races_commits_under_way_and_the_last_that_landed() {
        let ledger = Ledger::default();
        let (one, two) = (writing(1, Some("main"), 10, &[11, 12]), writing(2, Some("main"), 10, &[13]));
        ledger.begun(&one);
        ledger.begun(&two);
        ledger.begun(&writing(3, Some("audit"), 10, &[14]));
        ledger.begun(&writing(4, None, 10, &[15]));
        assert_eq!(seen(&ledger, 10), [(12, false), (13, false)]);
        ledger.ended(&one, End::Landed, 6);
        ledger.ended(&two, End::NotLanded, 7);
        assert_eq!(seen(&ledger, 10), [(12, true)]);
        assert_eq!(seen(&ledger, 12), []);
    }

    #[test]
    fn a_commit_that_took_files_away_is_raced_although_others_have_landed_since() {
        let ledger = Ledger::default();
        let land = |writing: Writing| {
            ledger.begun(&writing);
            ledger.ended(&writing, End::Landed, 6);
        };
        land(writing(1, Some("main"), 10, &[11]));
        land(Writing { appends: true, ..writing(2, Some("main"), 11, &[12]) });
        land(Writing { appends: true, ..writing(3, Some("main"), 12, &[13]) });
        assert_eq!(seen(&ledger, 10), [(11, true), (13, true)]);
        assert_eq!((seen(&ledger, 11), seen(&ledger, 13)), (vec![(13, true)], vec![(11, true)]));
        let takes = |ledger: &Ledger| ledger.races(&name("t"), "main", 10).iter().map(Race::may_take_away).collect::<Vec<_>>();
        assert_eq!(takes(&ledger), [true, false]);
        // one that names its partitions and takes nothing away in any
        let touched = |files_removed| vec![Touched { path: "p=1".into(), files_added: 1, files_removed }];
        land(Writing { touched: touched(0), ..writing(4, Some("main"), 13, &[14]) });
        assert_eq!((seen(&ledger, 10), takes(&ledger)), (vec![(11, true), (14, true)], vec![true, false]));
        land(Writing { touched: touched(2), ..writing(5, Some("main"), 14, &[15]) });
        assert_eq!((seen(&ledger, 10), takes(&ledger)), (vec![(15, true)], vec![true]));
    }

    #[test]
    fn loads_and_scans_are_counted_by_table() {
        let ledger = Ledger::default();
        ledger.loaded(&name("t"), ClientId::numbered(1), 7);
        ledger.loaded(&name("t"), ClientId::numbered(1), 6);
        ledger.scanned(&name("t"), Scan { files: 2, bytes: 30 }, 8);
        ledger.scanned(&name("t"), Scan::default(), 9);
        assert_eq!(ledger.last_load_ms(&name("t")), Some(7));
        assert_eq!(ledger.last_load_ms(&name("u")), None);
        assert_eq!(ledger.scans(&name("t")), Scans { count: 2, files: 2, bytes: 30, last_ms: 9 });
        let hour = 3_600_000;
        let rate = ledger.read_rate(&name("t"), 9).unwrap();
        assert_eq!((rate * 1e6).round(), (2e6 * std::f64::consts::LN_2).round());
        assert_eq!((ledger.read_rate(&name("t"), 9 + hour), ledger.read_rate(&name("u"), 9)), (Some(rate / 2.0), None));
    }

    #[test]
    fn a_client_is_waited_for_until_its_commit_lands() {
        let ledger = Ledger::default();
        let mut one = writing(1, Some("main"), 10, &[11]);
        ledger.loaded(&name("t"), one.client, 5);
        assert_eq!((ledger.busy_until_ms(&name("t"), 6), ledger.busy_until_ms(&name("u"), 6)), (Some(30_005), None));
        ledger.begun(&one);
        ledger.ended(&one, End::NotLanded, 7);
        assert!(ledger.busy_until_ms(&name("t"), 8).is_some());
        one.request = 2;
        ledger.begun(&one);
        ledger.ended(&one, End::Landed, 9);
        assert_eq!((ledger.busy_until_ms(&name("t"), 10), ledger.busy_until_ms(&name("t"), 2_000)), (Some(1_509), None));
        ledger.loaded(&name("t"), one.client, 20);
        ledger.replaced(&name("t"), 21);
        ledger.settle(22);
        assert_eq!(ledger.harmed(&name("t")), 0);
        ledger.settle(100_000);
        assert_eq!(ledger.harmed(&name("t")), 1);
    }

    #[test]
    fn a_commit_under_way_is_waited_for_although_nothing_is_known_of_its_client() {
        let ledger = Ledger::default();
        let appends = Writing { appends: true, ..writing(1, Some("main"), 10, &[11]) };
        ledger.begun(&appends);
        assert_eq!(ledger.busy_until_ms(&name("t"), 6), None);
        let takes_away = writing(2, Some("main"), 10, &[12]);
        ledger.begun(&takes_away);
        assert_eq!((ledger.busy_until_ms(&name("t"), 6), ledger.busy_until_ms(&name("t"), 60_005)), (Some(60_005), None));
        ledger.ended(&takes_away, End::NotLanded, 7);
        assert_eq!(ledger.busy_until_ms(&name("t"), 8), None);
    }

    #[test]
    fn the_stalest_table_makes_room_and_never_one_with_a_commit_under_way() {
        let ledger = Ledger::new(2);
        ledger.begun(&writing(1, Some("main"), 1, &[2]));
        ledger.loaded(&name("u"), ClientId::numbered(1), 20);
        ledger.loaded(&name("v"), ClientId::numbered(1), 30);
        assert_eq!([name("u"), name("v")].map(|n| ledger.last_load_ms(&n)), [None, Some(30)]);
        assert_eq!(seen(&ledger, 1), [(2, false)]);
    }
}
