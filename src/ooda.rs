//! The loop: hear, look, judge, start, learn.
//!
//! * [`Loop::look`] takes a table in as it stands and judges the partitions that
//!   changed;
//! * [`Loop::round`] ranks what waits and starts what the budget allows;
//! * [`work`](mod@work) carries one partition's work out and remembers what came of it.
//!
//! Events only bring a look forward: whatever is lost, the poller finds.

mod answer;
mod book;
mod work;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, broadcast};
use tokio_util::task::TaskTracker;

use crate::act::Act;
use crate::decide::budget::Budget;
use crate::decide::{self, Case};
use crate::lake::clock::Clock;
use crate::lake::{Error, Format, Table};
use crate::model::decision::{Check, Decision, Reason, Verdict};
use crate::model::ident::TableName;
use crate::model::partition::PartitionKey;
use crate::model::policy::BudgetLimits;
use crate::observe::{Inbox, Look, Roster};
use crate::orient::{Absorbed, How, Orient, traits};
use crate::serve::backend::{Explained, label};
use crate::settings::{self, Settings};
use crate::telemetry::{self, Looked};

use book::Book;
pub use book::Scope;

/// Looks made side by side.
const LOOKERS: usize = 4;
/// Decisions that a watcher may lag behind.
const WATCH_BUFFER: usize = 1024;
/// The longest time between two rounds.
const ROUND: Duration = Duration::from_secs(1);

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

/// The loop and what it remembers. One a process.
pub struct Loop {
    parts: Parts,
    limits: BudgetLimits,
    budget: Mutex<Budget>,
    book: Mutex<Book>,
    decisions: broadcast::Sender<Arc<Explained>>,
    changed: Notify,
    jobs: TaskTracker,
    /// Commits whose outcome is not known yet.
    open: AtomicU64,
}

impl Loop {
    /// A loop at rest.
    pub fn new(parts: Parts) -> Arc<Self> {
        let limits = parts.settings.budget;
        let budget = Mutex::new(Budget::new(&limits, parts.clock.now_ms()));
        let (decisions, _) = broadcast::channel(WATCH_BUFFER);
        Arc::new(Self {
            parts,
            limits,
            budget,
            book: Mutex::default(),
            decisions,
            changed: Notify::new(),
            jobs: TaskTracker::new(),
            open: AtomicU64::new(0),
        })
    }

    /// Runs until the inbox is closed; then waits for the jobs under way.
    pub async fn run(self: &Arc<Self>) {
        let lookers: Vec<_> = (0..LOOKERS).map(|_| tokio::spawn(Arc::clone(self).look_on())).collect();
        let rounds = tokio::spawn(Arc::clone(self).round_on());
        for looker in lookers {
            let _ = looker.await;
        }
        rounds.abort();
        self.jobs.close();
        self.jobs.wait().await;
    }

    async fn look_on(self: Arc<Self>) {
        while let Some(look) = self.parts.inbox.next().await {
            let began_ms = self.now();
            let looked = self.look(&look.name, &look.reference, &look.hints).await;
            let seconds = (self.now() - began_ms).max(0) as f64 / 1000.0;
            match looked {
                Ok((result, unseen)) => {
                    telemetry::looked(result, seconds);
                    match unseen.is_empty() {
                        true => self.parts.inbox.done(look),
                        false => self.parts.inbox.unseen(look, &unseen),
                    }
                }
                Err(error) => self.fail(look, &error, seconds),
            }
        }
    }

    fn fail(&self, look: Look, error: &Error, seconds: f64) {
        let refused = matches!(error, Error::Refused(_));
        telemetry::looked(if refused { Looked::Refused } else { Looked::Failed }, seconds);
        tracing::warn!(table = %look.name, %error, "look failed");
        self.book().trouble(&look.name, error);
        // a table that cannot be read as it stands is looked at again when a commit changes it
        match refused {
            true => self.parts.inbox.done(look),
            false => self.parts.inbox.failed(look),
        }
    }

    /// Takes a table in as it stands now and judges what changed. Gives back what
    /// the look led to, and those of `hints` that the table does not have.
    pub async fn look(self: &Arc<Self>, name: &TableName, reference: &str, hints: &[i64]) -> Result<(Looked, Vec<i64>), Error> {
        let Some(table) = self.parts.format.load(name, reference).await? else {
            self.forget(name).await;
            return Ok((Looked::Gone, Vec::new()));
        };
        let view = table.view();
        self.parts.roster.looked(name, &view.metadata_location);
        let (policy, warnings) = settings::resolve(&self.parts.settings, name, &view.properties);
        let absorbed = self.parts.orient.absorb(table.as_ref(), policy.scale, self.now()).await?;
        self.note(table.as_ref(), &absorbed).await;
        let scopes = self.book().take_in(view, policy, warnings, &absorbed, self.now());
        self.restore(name, view.ident).await;
        self.judge(name, scopes);
        self.changed.notify_one();
        let unseen = hints.iter().copied().filter(|id| !view.snapshots.contains_key(id)).collect();
        Ok((looked(&absorbed.how), unseen))
    }

    async fn note(&self, table: &dyn Table, absorbed: &Absorbed) {
        telemetry::manifests_read(absorbed.manifests_read);
        if absorbed.how == How::Rebuilt(crate::orient::lineage::Reason::Drift) {
            telemetry::drifted();
        }
        if let Err(error) = self.parts.act.forget_expired(table.view()).await {
            tracing::warn!(%error, "replaced files cannot be counted");
        }
    }

    async fn forget(&self, name: &TableName) {
        let gone = self.book().remove(name);
        if let Some(ident) = gone {
            if let Err(error) = self.parts.orient.forget(&ident).await {
                tracing::warn!(table = %name, %error, "the state of a dropped table stays");
            }
        }
    }

    /// Judges partitions of a table as they are known, and keeps every decision.
    fn judge(&self, name: &TableName, scopes: BTreeSet<PartitionKey>) {
        let now_ms = self.now();
        for scope in scopes {
            let Some(explained) = self.judge_one(name, &scope, now_ms) else { continue };
            telemetry::decided(&explained.decision.verdict);
            let _ = self.decisions.send(Arc::new(explained));
        }
    }

    fn judge_one(&self, name: &TableName, scope: &PartitionKey, now_ms: i64) -> Option<Explained> {
        let mut book = self.book();
        let paused = book.pauses().clone();
        let page = book.page_mut(name)?;
        let Some(traits) = traits::traits(&page.state, scope, &page.policy.cost, now_ms) else {
            page.close(scope);
            return None;
        };
        let memory = page.memory(scope);
        let refusals = page.refusals(scope);
        let mut decision = decide::judge(&Case {
            now_ms,
            table: &page.facts,
            policy: &page.policy,
            refusals: &refusals,
            paused: paused.holds(&page.facts.ident),
            in_flight: page.in_flight(scope),
            scope,
            traits: &traits,
            memory: &memory,
        });
        decision.checks.extend(page.warnings.iter().map(warned));
        let label = label(scope, page.spec(scope));
        page.keep(decision.clone(), &self.limits);
        if let Some(at_ms) = eligible_again(&decision) {
            book.judge_again(at_ms, name.clone(), scope.clone());
        }
        Some(Explained { label, decision })
    }

    async fn round_on(self: Arc<Self>) {
        loop {
            tokio::select! {
                () = self.changed.notified() => {}
                () = self.parts.clock.sleep(ROUND) => {}
            }
            self.round().await;
        }
    }

    /// Judges again what time has made eligible, then starts what the budget
    /// holds, best first. At most one round runs at a time.
    pub async fn round(self: &Arc<Self>) {
        let now_ms = self.now();
        match self.parts.act.journal().pauses().await {
            Ok(pauses) => self.book().set_pauses(pauses),
            Err(error) => tracing::warn!(%error, "pauses cannot be read"),
        }
        let due = self.book().due(now_ms);
        for (name, scopes) in due {
            self.judge(&name, scopes);
        }
        self.start(now_ms);
    }

    fn start(self: &Arc<Self>, now_ms: i64) {
        let pending = self.book().pending();
        telemetry::candidates(pending.len(), pending.iter().map(|c| c.gain).sum());
        let round = {
            let mut budget = self.budget();
            let round = decide::round::start(decide::round::rank(pending), &mut budget, now_ms);
            telemetry::budget(budget.available(), budget.reserved());
            telemetry::jobs_running(budget.running());
            round
        };
        self.book().set_waits(&round);
        for (ranked, reservation) in round.started {
            let started = self.book().begin(&ranked.candidate);
            match started {
                Some(order) => drop(self.jobs.spawn(Arc::clone(self).carry_out(order, reservation))),
                None => self.budget().settle(reservation, 0.0, now_ms),
            }
        }
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
        depth.pending == 0 && depth.looking == 0 && self.budget().running() == 0 && self.book().pending().is_empty()
    }

    fn now(&self) -> i64 {
        self.parts.clock.now_ms()
    }

    fn book(&self) -> std::sync::MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn budget(&self) -> std::sync::MutexGuard<'_, Budget> {
        self.budget.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A table property that could not be used, among the checks.
fn warned(warning: &settings::Warning) -> Check {
    Check { name: format!("property.{}", warning.property), value: 0.0, threshold: 0.0, passed: false, note: warning.message.clone() }
}

fn looked(how: &How) -> Looked {
    match how {
        How::Unchanged | How::Stale => Looked::Unchanged,
        How::Incremental { .. } | How::Undone { .. } => Looked::Absorbed,
        How::Rebuilt(_) => Looked::Rebuilt,
    }
}

/// When a decision that only time holds up is due again.
fn eligible_again(decision: &Decision) -> Option<i64> {
    match &decision.verdict {
        Verdict::Not { reason: Reason::TooNew { until_ms } | Reason::CoolingDown { until_ms } | Reason::QuietWindow { until_ms } } => {
            Some(*until_ms)
        }
        _ => None,
    }
}
