//! The loop: hear, look, judge, start, learn.
//!
//! * [`Loop::look`] takes a table in as it stands, with all its branches that are looked
//!   after, and judges the partitions that changed;
//! * [`Loop::round`] ranks what waits and starts what the budget allows;
//! * `by_hand` books what commands beside the process spend;
//! * `ahead` looks into what only waits, so that its refusals are known;
//! * `work` carries one partition's work out and remembers what came of it.
//!
//! Events only bring a look forward: whatever is lost, the poller finds.

mod ahead;
mod answer;
mod backlog;
mod book;
mod by_hand;
mod capacity;
pub mod hold;
mod keep;
mod keep_out;
pub mod lease;
mod look;
mod outside;
mod record;
mod work;

use std::collections::{BTreeMap, BTreeSet};
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use tokio::sync::{Notify, broadcast};
use tokio_util::task::TaskTracker;

use crate::act::Act;
use crate::decide;
use crate::decide::budget::Budget;
use crate::lake::clock::Clock;
use crate::lake::{Error, Format};
use crate::model::economy::Select;
use crate::model::event::{Certainty, Door, Event};
use crate::model::ident::{TableIdent, TableName};
use crate::model::policy::Policy;
use crate::observe::{Entrance, Inbox, Look, Roster, proxy};
use crate::orient::{Orient, TableState};
use crate::replay::lines;
use crate::replay::recorder::{Recorder, by_key};
use crate::serve::backend::Explained;
use crate::settings::{self, Settings, Warning};
use crate::telemetry;

use backlog::Pace;
pub use book::Scope;
use book::{Asked, Book, Due};
use capacity::Capacity;
use hold::Holds;

/// Looks made side by side.
const LOOKERS: usize = 4;
/// Decisions that a watcher may lag behind.
const WATCH_BUFFER: usize = 1024;
/// The shortest time from the beginning of one round to that of the next, unless a place
/// has become free. After as much without a reason for one, one is made.
const ROUND: Duration = Duration::from_secs(1);
/// After a round the next one waits for so many times as long as it took, so
/// that ranking a long queue leaves most of the time to the work.
const REST: u32 = 4;
/// The shortest rest.
const BREATH: Duration = Duration::from_millis(50);

/// The parts that the loop joins.
pub struct Parts {
    /// Every table.
    pub format: Arc<dyn Format>,
    /// What is heard.
    pub inbox: Inbox,
    /// What catalogs list.
    pub roster: Arc<Roster>,
    /// What is known of layouts.
    pub orient: Arc<Orient>,
    /// Who carries work out.
    pub act: Arc<Act>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// What users ask for.
    pub settings: Arc<Settings>,
}

/// What came of a look.
pub struct Looked {
    /// How it ended, as the figures tell it.
    pub how: telemetry::Looked,
    /// Snapshots that were heard of and that the table does not have.
    pub unseen: Vec<i64>,
    /// The load was older than what is known: it shows nothing of what is heard since.
    older: bool,
    /// Why another branch than `main` could not be looked at.
    failed: Option<Error>,
    /// The state now of the branch that is asked for; `None` when it is gone.
    state: Option<Arc<TableState>>,
}

/// Who tells how often a table is read, in scans an hour, at a moment; `None` where
/// nothing is known of it.
pub type Reads = dyn Fn(&TableName, i64) -> Option<f64> + Send + Sync;

/// The loop and what it remembers. One a process.
pub struct Loop {
    parts: Parts,
    entrance: Arc<Entrance>,
    budget: Mutex<Budget>,
    by_hand: Mutex<by_hand::Known>,
    /// What is rewritten in an hour, by tenant.
    pace: Mutex<Pace>,
    reads: OnceLock<Box<Reads>>,
    capacity: Mutex<Capacity>,
    clients: OnceLock<Arc<proxy::Ledger>>,
    /// Clients' commits for which rewrites under way were looked after already.
    raced: Mutex<BTreeSet<(TableName, i64)>>,
    recorder: OnceLock<Recorder>,
    book: Mutex<Book>,
    decisions: broadcast::Sender<Arc<Explained>>,
    changed: Notify,
    /// A job has ended.
    freed: Notify,
    jobs: TaskTracker,
    /// What partitions remember is written in turn, so that the last word stays.
    saving: tokio::sync::Mutex<()>,
    /// Whether candidates are being looked into.
    ahead: AtomicBool,
    /// Commits whose outcome is not known yet.
    open: AtomicU64,
    stopping: AtomicBool,
}

impl Loop {
    /// A loop at rest.
    pub fn new(parts: Parts) -> Arc<Self> {
        let budget = Mutex::new(Budget::new(&parts.settings.budgets, parts.clock.now_ms()));
        let by_hand = Mutex::new(by_hand::Known::since(parts.clock.now_ms()));
        let book = Mutex::new(Book::new(&parts.settings.budgets, parts.settings.ranking.corrected));
        let (decisions, _) = broadcast::channel(WATCH_BUFFER);
        let doors = (parts.inbox.clone(), Arc::clone(&parts.roster), Arc::clone(&parts.clock));
        let entrance = Arc::new(Entrance::new(doors.0, doors.1, doors.2, parts.format.catalogs()));
        let own = Arc::new(Self {
            parts,
            entrance,
            budget,
            by_hand,
            pace: Mutex::default(),
            reads: OnceLock::new(),
            capacity: Mutex::default(),
            clients: OnceLock::new(),
            raced: Mutex::default(),
            recorder: OnceLock::new(),
            book,
            decisions,
            changed: Notify::new(),
            freed: Notify::new(),
            jobs: TaskTracker::new(),
            saving: tokio::sync::Mutex::default(),
            ahead: AtomicBool::new(false),
            open: AtomicU64::new(0),
            stopping: AtomicBool::new(false),
        });
        own.teach_courtesy();
        let settings = Arc::clone(&own.parts.settings);
        own.parts.inbox.branches().set(Box::new(move |name| settings::resolve(&settings, name, &BTreeMap::new()).0.branches));
        own
    }

    /// Runs until the inbox is closed; then waits for the jobs under way. No job
    /// begins any more from then on.
    pub async fn run(self: &Arc<Self>) {
        // what is paused is known before anything is judged
        self.read_pauses().await;
        self.read_spent().await;
        self.read_learned().await;
        self.begin_recording();
        let lookers: Vec<_> = (0..LOOKERS).map(|_| tokio::spawn(Arc::clone(self).look_on())).collect();
        let rounds = tokio::spawn(Arc::clone(self).round_on());
        for looker in lookers {
            let _ = looker.await;
        }
        self.stopping.store(true, Ordering::SeqCst);
        rounds.abort();
        let _ = rounds.await;
        self.jobs.close();
        self.jobs.wait().await;
        if let Err(error) = self.keep_told().await {
            tracing::warn!(error, "what others told is not kept over the restart");
        }
    }

    async fn look_on(self: Arc<Self>) {
        while let Some(look) = self.parts.inbox.next().await {
            let began_ms = self.now();
            // a defect that one table brings out must not stop the looks at the others
            let looked = AssertUnwindSafe(self.look(&look.name, &look.reference, &look.hints)).catch_unwind().await;
            let seconds = (self.now() - began_ms).max(0) as f64 / 1000.0;
            match looked {
                // made again until a load comes that is no older, or the older one is believed
                Ok(Ok(Looked { how, older: true, .. })) => {
                    telemetry::looked(how, seconds);
                    self.parts.inbox.failed(look);
                }
                Ok(Ok(Looked { failed: Some(error), .. })) => self.fail(look, &error, seconds),
                Ok(Ok(Looked { how, unseen, .. })) => {
                    telemetry::looked(how, seconds);
                    let passed_on = self.look_elsewhere(&look);
                    let unseen: Vec<i64> = unseen.into_iter().filter(|snapshot| !passed_on.contains(snapshot)).collect();
                    match unseen.is_empty() {
                        true => self.parts.inbox.done(look),
                        false => self.parts.inbox.unseen(look, &unseen),
                    }
                }
                Ok(Err(error)) => {
                    self.book().trouble(&look.name, &look.reference, &error);
                    self.fail(look, &error, seconds);
                }
                Err(_) => {
                    telemetry::looked(telemetry::Looked::Failed, seconds);
                    tracing::error!(table = %look.name, "a look panicked: a defect; it is made again");
                    self.parts.inbox.failed(look);
                }
            }
        }
    }

    /// Events may speak of a table that no more stands under the name, or not yet: it
    /// is looked at under the name by which it is known, or its catalog is listed.
    /// Gives back the snapshots that are looked for under another name from here on.
    fn look_elsewhere(&self, look: &Look) -> Vec<i64> {
        let mut passed_on = Vec::new();
        let found = self.book().pages(&look.name).next().map(|page| page.facts.ident.uuid);
        for uuid in look.uuids.iter().copied().filter(|uuid| found != Some(*uuid)) {
            let known = self.book().name_of(&TableIdent::iceberg(uuid)).filter(|name| **name != look.name).cloned();
            match known {
                Some(table) => {
                    let snapshots = look.hints_of(uuid);
                    passed_on.extend(&snapshots);
                    let event = Event {
                        door: Door::Own,
                        table,
                        uuid: Some(uuid),
                        reference: Some(look.reference.clone()),
                        snapshots,
                        certainty: Certainty::Hint,
                        files_added: look.priority,
                        heard_ms: self.now(),
                    };
                    telemetry::event_heard(Door::Own, self.parts.inbox.hear(event));
                }
                None if look.is_first => self.parts.roster.list_soon(&look.name.catalog),
                None => {}
            }
        }
        passed_on
    }

    fn fail(&self, look: Look, error: &Error, seconds: f64) {
        let refused = matches!(error, Error::Refused(_));
        let how = if refused { telemetry::Looked::Refused } else { telemetry::Looked::Failed };
        telemetry::looked(how, seconds);
        tracing::warn!(table = %look.name, %error, "look failed");
        // a table that cannot be read as it stands is looked at again when a commit changes it
        match refused {
            true => self.parts.inbox.done(look),
            false => self.parts.inbox.failed(look),
        }
    }

    /// Judges partitions of a branch by its state, and keeps every decision.
    fn judge_due(&self, name: &TableName, branch: &str, due: Due, state: &TableState) {
        let all = if due.all { self.book().take_all(name, branch, state) } else { None };
        let (read_rate, clients) = (self.read_rate(name), self.clients_of(name, self.now()));
        let branch: Arc<str> = branch.into();
        for partition in all.unwrap_or(due.scopes) {
            let scope = Scope { name: name.clone(), branch: Arc::clone(&branch), partition };
            let prices = Some(&self.parts.settings.prices);
            let asked = Asked { state, read_rate, clients, prices, recorder: self.recorder.get(), now_ms: self.now() };
            let judged = self.book().judge(scope, asked, &self.parts.settings.budgets);
            let Some(explained) = judged else { continue };
            telemetry::decided(&explained.decision.verdict);
            let _ = self.decisions.send(explained);
        }
    }

    async fn round_on(self: Arc<Self>) {
        loop {
            tokio::select! {
                // a round that is due twice over is made once
                biased;
                () = self.changed.notified() => {}
                () = self.parts.clock.sleep(ROUND) => {}
            }
            let began_ms = self.now();
            if AssertUnwindSafe(self.round()).catch_unwind().await.is_err() {
                tracing::error!("a round panicked: a defect; the next one is tried");
            }
            let took = Duration::from_millis(u64::try_from(self.now() - began_ms).unwrap_or(0));
            self.rest(took).await;
        }
    }

    /// Rests after a round that took so long. A place that becomes free is not left empty
    /// for a second: it ends the rest, unless the best `k` of a round are all that may start.
    async fn rest(&self, took: Duration) {
        let freed = async {
            match self.parts.settings.ranking.select {
                Select::Greedy | Select::Exact => {
                    self.parts.clock.sleep(least_rest(took)).await;
                    self.freed.notified().await;
                }
                Select::TopK(_) => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = self.parts.clock.sleep(rest(took)) => {}
            () = freed => {}
        }
    }

    /// Judges again what time has made eligible, then starts what the budget
    /// holds, best first, and looks into what waits. At most one round runs at a time.
    pub async fn round(self: &Arc<Self>) {
        self.read_pauses().await;
        self.book_by_hand().await;
        let now_ms = self.now();
        self.mind_clients(now_ms);
        self.mind_races();
        let due = {
            let mut book = self.book();
            book.pass(now_ms);
            book.due(now_ms)
        };
        for (of, due) in due {
            let known = self.book().page(&of.table, &of.name).map(|page| (page.key(), page.mark));
            let Some((key, mark)) = known else { continue };
            match self.parts.orient.glimpse(&key).await.filter(|state| state.layout.mark() == mark) {
                Some(state) => self.judge_due(&of.table, &of.name, due, &state),
                // it is judged once a look has brought the state back
                None => self.ask_for_look(&of.table, key.ident, None),
            }
        }
        self.start(now_ms);
        self.look_ahead(now_ms);
    }

    /// Takes the journal's pauses, and what `undo` keeps.
    async fn read_pauses(&self) {
        let journal = self.parts.act.journal();
        let read = async { Ok::<_, crate::act::journal::Error>((journal.pauses().await?, Holds::read(journal.as_ref()).await?)) };
        match read.await {
            Ok((pauses, holds)) => self.book().set_pauses(pauses, holds, self.now()),
            Err(error) => tracing::warn!(%error, "pauses cannot be read"),
        }
        if let Err(error) = self.read_leases().await {
            tracing::warn!(%error, "leases on tables cannot be read");
        }
    }

    fn start(self: &Arc<Self>, now_ms: i64) {
        if self.stopping.load(Ordering::SeqCst) {
            return;
        }
        let mut pending = self.book().pending(now_ms);
        self.follow_capacity(&mut pending, now_ms);
        let depth = self.book().depth();
        for (act, (count, files)) in [false, true].into_iter().zip(depth) {
            telemetry::candidates(act, count, files);
        }
        let ranking = &self.parts.settings.ranking;
        let recording = self.recorder.get().map(|_| by_key(&pending));
        let ranked = decide::round::rank_by(ranking, pending);
        let order = recording.as_ref().map(|_| lines::order(&ranked));
        let round = {
            let mut budget = self.budget();
            let round = decide::round::start_by(ranking.select, ranked, &mut budget, now_ms);
            if let (Some(recorder), Some(all), Some(order)) = (self.recorder.get(), &recording, order) {
                recorder.round(now_ms, order, all, &round, &budget);
            }
            telemetry::budget(budget.available(), budget.reserved());
            telemetry::jobs_running(budget.running());
            round
        };
        self.book().set_waits(&round);
        self.tell_backlog(now_ms);
        for (ranked, reservation) in round.started {
            let held = work::Held::new(self, reservation);
            let begun = self.book().begin(&ranked.candidate);
            if let Some(begun) = begun {
                drop(self.jobs.spawn(work::carry_out(work::Place::new(self, begun), held)));
            }
        }
    }

    /// What the settings and a table's properties mean for it, within the budgets that
    /// concern it, and its tenant.
    fn resolve(&self, name: &TableName, properties: &BTreeMap<String, String>) -> (Policy, Vec<Warning>, Option<Arc<str>>) {
        let settings = &self.parts.settings;
        let (mut policy, warnings) = settings::resolve(settings, name, properties);
        let tenant = settings.tenant_of(&name.to_string()).map(|t| Arc::clone(&t.name));
        policy.max_job_bytes = policy.max_job_bytes.min(settings.budgets.most_bytes(tenant.as_deref()));
        (policy, warnings, tenant)
    }

    /// Sets who tells how often tables are read; once.
    pub fn set_reads(&self, reads: Box<Reads>) {
        let _ = self.reads.set(reads);
    }

    fn read_rate(&self, name: &TableName) -> Option<f64> {
        self.reads.get().and_then(|reads| reads(name, self.now()))
    }

    /// Commits whose outcome recovery could not tell yet.
    pub fn set_open(&self, count: usize) {
        self.open.store(count as u64, Ordering::Relaxed);
    }

    /// See [`Loop::set_open`].
    pub fn unknown_outcomes(&self) -> usize {
        usize::try_from(self.open.load(Ordering::Relaxed)).unwrap_or(usize::MAX)
    }

    /// Tables known.
    pub fn tables(&self) -> usize {
        self.book().len()
    }

    /// Whether nothing is waiting that could be done now: no look, no job, no
    /// candidate that may be carried out.
    pub fn is_at_rest(&self) -> bool {
        let depth = self.parts.inbox.depth();
        let now_ms = self.now();
        let waits = {
            let mut book = self.book();
            !book.pending(now_ms).is_empty() || !book.due(now_ms).is_empty() || book.asks_for_foresight(now_ms)
        };
        depth.pending == 0 && depth.looking == 0 && self.jobs.is_empty() && !waits
    }

    fn now(&self) -> i64 {
        self.parts.clock.now_ms()
    }

    /// The book's lock and the budget's are never held together, nor while waiting.
    fn book(&self) -> std::sync::MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn budget(&self) -> std::sync::MutexGuard<'_, Budget> {
        self.budget.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The pause after a round that took so long: until a whole [`ROUND`] since it began,
/// and [`least_rest`].
fn rest(took: Duration) -> Duration {
    ROUND.saturating_sub(took).max(least_rest(took))
}

/// So many times as long as a round took, and long enough that work which ends at once
/// keeps nobody busy.
fn least_rest(took: Duration) -> Duration {
    (took.min(ROUND) * REST).max(BREATH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn while_no_place_becomes_free_a_round_never_begins_within_a_second_of_the_one_before() {
        let rests = [0, 1, 199, 200, 400, 1_000, 60_000].map(|took| rest(Duration::from_millis(took)).as_millis());
        assert_eq!(rests, [1_000, 999, 801, 800, 1_600, 4_000, 4_000]);
    }
}
