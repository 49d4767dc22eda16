//! One partition's work: exact plans, jobs within the budget, and what they teach.

use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::Arc;

use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};

use crate::act::{JobResult, Verdict as JobVerdict};
use crate::decide::ScopeMemory;
use crate::decide::budget::{Ask, Denied, Reservation, Used};
use crate::decide::maturity::Gained;
use crate::decide::plan::{Cause, Order, max_deletes_on_file, plans_since};
use crate::lake::{Error, Table};
use crate::model::decision::{Reason, Verdict};
use crate::model::event::{Certainty, Door, Event};
use crate::model::ident::{TableIdent, TableName};
use crate::model::plan::Plan;
use crate::model::policy::{BudgetLimits, Policy, Rule, Takes};
use crate::model::refusal::{Refusal, Refused};
use crate::telemetry::{self, JobEnd};

use super::Loop;
use super::book::{Await, Begun, Page};

/// Conflicts with writers in a row after which a partition is held.
const FREE_CONFLICTS: u32 = 2;

/// A partition on which work is under way; free again when dropped, whatever
/// ended the work.
pub(super) struct Place {
    of: Arc<Loop>,
    begun: Begun,
    ended: bool,
    worked: bool,
}

impl Place {
    pub(super) fn new(of: &Arc<Loop>, begun: Begun) -> Self {
        Self { of: Arc::clone(of), begun, ended: false, worked: false }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let (scope, now_ms) = (&self.begun.scope, self.of.now());
        if !self.ended {
            tracing::error!(table = %scope.name, scope = %scope.partition, "work on a partition was broken off: a defect, or the process ends");
            self.of.with_page(&self.begun, |page| page.hold(&scope.partition, 0, now_ms));
        }
        // the next round judges it
        self.of.book().free(scope, self.begun.table, now_ms);
        self.of.changed.notify_one();
        // what found nothing to do may be due again at once: it waits its second
        if self.worked {
            self.of.freed.notify_one();
        }
    }
}

/// A reservation; settled when dropped, at the worst that may have been spent.
pub(super) struct Held {
    of: Arc<Loop>,
    reservation: Option<Reservation>,
    at_worst: Used,
}

impl Held {
    /// Nothing yet.
    fn nothing(of: &Arc<Loop>) -> Self {
        Self { of: Arc::clone(of), reservation: None, at_worst: Used::default() }
    }

    /// What was set aside before it is known what it will be spent on.
    pub(super) fn new(of: &Arc<Loop>, reservation: Reservation) -> Self {
        Self { of: Arc::clone(of), reservation: Some(reservation), at_worst: Used::default() }
    }

    /// Gives back what is held and sets what is asked for aside instead, in one step: no
    /// other work comes in between.
    fn exchange(&mut self, ask: &Ask<'_>) -> Result<(), Denied> {
        let now_ms = self.of.now();
        let mut budget = self.of.budget();
        let back = self.reservation.take();
        let recorded = back.as_ref().map(Reservation::recorded);
        if let Some(reservation) = back {
            budget.settle(reservation, 0.0, now_ms);
        }
        let granted = budget.reserve_for(ask, now_ms);
        if let Some(recorder) = self.of.recorder.get() {
            recorder.exchanged(now_ms, recorded.as_ref(), ask, &granted);
        }
        drop(budget);
        self.reservation = Some(granted?);
        self.at_worst = Used { gb_hours: ask.bound.gb_hours, bytes: ask.bytes, commits: 1 };
        Ok(())
    }

    fn settle(&mut self, used: &Used) {
        if let Some(reservation) = self.reservation.take() {
            let now_ms = self.of.now();
            let mut budget = self.of.budget();
            if let Some(recorder) = self.of.recorder.get() {
                recorder.settled(now_ms, &reservation, used);
            }
            budget.settle_used(reservation, used, now_ms);
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let at_worst = self.at_worst;
        self.settle(&at_worst);
    }
}

/// What a fresh look at a partition's files shows.
pub(super) enum Found {
    /// What to rewrite, in which table, and under which policy.
    Plans(Vec<Plan>, Arc<dyn Table>, Box<Policy>),
    /// No work, for this reason.
    Nothing(Reason, Box<Policy>),
    /// The table is not the one that was judged, or is no longer to be worked on.
    Moved,
}

/// Carries out what a decision asked for, as far as the budget lasts; the rest
/// is judged again.
pub(super) async fn carry_out(mut place: Place, held: Held) {
    let of = Arc::clone(&place.of);
    let (begun, mut held) = (&place.begun, Some(held));
    match of.plan(begun).await {
        Ok(Found::Plans(plans, table, policy)) => {
            place.worked = true;
            let engine = table.view().engine();
            of.run_all(begun, &policy, plans, &engine, held.take()).await;
        }
        Ok(Found::Nothing(reason, policy)) => of.found_nothing(begun, &policy, reason),
        Ok(Found::Moved) => of.look_again(begun),
        Err(error) => of.could_not_plan(begun, &error),
    }
    drop(held);
    of.keep_memory(begun).await;
    place.ended = true;
}

impl Loop {
    /// The exact files, from a fresh load, under the policy of that load: a table
    /// that was switched off, or replaced, since it was judged is left alone.
    pub(super) async fn plan(&self, begun: &Begun) -> Result<Found, Error> {
        let (name, scope) = (&begun.scope.name, &begun.scope.partition);
        let Some(table) = self.parts.format.load(name, &begun.scope.branch).await? else { return Ok(Found::Moved) };
        let view = table.view();
        let (mut policy, _, tenant) = self.resolve(name, &view.properties);
        if view.ident != begun.table
            || !policy.enabled
            || !policy.looks_after(&begun.scope.branch)
            || (!begun.foresight && (!policy.act || self.is_held(name, &policy)))
        {
            return Ok(Found::Moved);
        }
        policy.max_job_bytes = policy.max_job_bytes.min(begun.max_bytes);
        if let Some(refused) = view.refused.first() {
            return Ok(Found::Nothing(Reason::Refused(refused.clone()), Box::new(policy)));
        }
        let Some(cause) = Cause::of_verdict(&begun.verdict, &policy) else { return Ok(Found::Moved) };
        let files = table.scope(scope).await?;
        let mut since = None;
        self.with_page(begun, |page| {
            let memory = ScopeMemory { max_deletes_on_file: Some(max_deletes_on_file(&files)), ..page.memory(scope) };
            since = memory.settled.as_ref().map(|settled| settled.sequence);
            page.remember(scope, memory);
        });
        let limits = self.parts.settings.budgets.narrowest(tenant.as_deref());
        let now = self.gb_hours_per_hour(self.now());
        // a look ahead is at what would be done if all were free
        let rate = if begun.foresight { limits.gb_hours_per_hour } else { limits.gb_hours_per_hour.min(now) };
        let limits = BudgetLimits { gb_hours_per_hour: rate, ..limits };
        let order = Order { table: view.ident, name, reference: &begun.scope.branch, policy: &policy, limits: &limits, cause: &cause };
        Ok(match plans_since(&order, &files, since) {
            Ok(plans) => Found::Plans(plans, table, Box::new(policy)),
            Err(reason) => Found::Nothing(reason, Box::new(policy)),
        })
    }

    /// Runs the plans of a partition, which share no file, side by side as far as the
    /// budgets hold them and others are not kept waiting. After one that does not land none
    /// is begun.
    async fn run_all(self: &Arc<Self>, begun: &Begun, policy: &Policy, plans: Vec<Plan>, engine: &Arc<str>, mut held: Option<Held>) {
        let (mut plans, mut running) = (plans.into_iter().peekable(), FuturesUnordered::new());
        let (mut goes_on, mut panic) = (true, None);
        loop {
            while goes_on && !self.is_stopping() && (running.is_empty() || self.has_room_beside()) {
                let Some(plan) = plans.peek() else { break };
                let ask = Ask { bound: &plan.bound, bytes: plan.input_bytes(), table: Some(begun.table), tenant: begun.tenant.as_ref() };
                let mut own = held.take().unwrap_or_else(|| Held::nothing(self));
                if let Err(denied) = own.exchange(&ask) {
                    if running.is_empty() {
                        self.denied(begun, denied);
                        goes_on = false;
                    }
                    break;
                }
                running.extend(plans.next().map(|plan| AssertUnwindSafe(self.run_one(begun, policy, plan, engine, own)).catch_unwind()));
            }
            match running.next().await {
                Some(Ok(landed)) => goes_on &= landed,
                // those beside it come to their end first
                Some(Err(payload)) => (goes_on, panic) = (false, Some(payload)),
                None => break,
            }
        }
        if let Some(payload) = panic {
            resume_unwind(payload);
        }
    }

    /// Whether a partition on which a job runs may take another place: when nobody waits
    /// for it, or one is left for whoever does.
    fn has_room_beside(&self) -> bool {
        let left = self.parts.settings.budget.concurrent_jobs.saturating_sub(self.budget().running());
        left > 1 || (left == 1 && self.book().pending(self.now()).is_empty())
    }

    fn denied(&self, begun: &Begun, denied: Denied) {
        let (scope, now_ms) = (&begun.scope.partition, self.now());
        self.with_page(begun, |page| {
            page.hold(scope, FREE_CONFLICTS, now_ms);
            page.set_place(scope, 0.0, Some(denied));
        });
    }

    /// Runs one plan within its own reservation. Gives back whether it landed.
    async fn run_one(&self, begun: &Begun, policy: &Policy, plan: Plan, engine: &Arc<str>, mut held: Held) -> bool {
        let plan = &plan;
        let estimate = self.book().learned.estimate(policy, plan, engine);
        let result = self.parts.act.run_estimated(plan, Some(estimate), None).await;
        held.settle(&used(&result));
        self.record_job(policy, plan, &result);
        telemetry::cost_spent(self.parts.settings.prices.of(result.numbers.gb_hours, result.numbers.requests.all() as f64));
        if result.verdict == JobVerdict::Committed {
            self.rewrote(begun.tenant.as_ref(), result.numbers.bytes_in, self.now());
            self.compare(plan, engine, &estimate, &result.numbers).await;
        }
        tell(&result);
        self.learn(begun, policy, plan, &result);
        result.verdict == JobVerdict::Committed
    }

    fn learn(&self, begun: &Begun, policy: &Policy, plan: &Plan, result: &JobResult) {
        let scope = &begun.scope.partition;
        let now_ms = self.now();
        match &result.verdict {
            JobVerdict::Committed => self.landed(begun, policy, plan, result),
            JobVerdict::Refused { refused } => self.with_page(begun, |page| page.refuse(scope, refused.clone(), now_ms)),
            JobVerdict::Disproved { error } => self.disproved(begun, error),
            JobVerdict::Replan { max_bytes, .. } => {
                self.with_page(begun, |page| {
                    page.hold(scope, FREE_CONFLICTS, now_ms);
                    if max_bytes.is_some() {
                        page.shrink(scope, *max_bytes);
                    }
                });
                self.look_again(begun);
            }
            // the look finds the claim
            JobVerdict::Claimed { .. } => {
                self.with_page(begun, |page| page.hold(scope, 0, now_ms));
                self.look_again(begun);
            }
            JobVerdict::Dropped { .. } => {
                self.with_page(begun, |page| {
                    page.hold(scope, FREE_CONFLICTS, now_ms);
                    page.set_dropped(scope, &result.verdict.note());
                });
                self.look_again(begun);
            }
            JobVerdict::Busy | JobVerdict::Paused | JobVerdict::Unresolved { .. } => {
                self.with_page(begun, |page| page.hold(scope, 0, now_ms));
            }
            JobVerdict::Failed { .. } | JobVerdict::Unreachable { .. } | JobVerdict::Stopped { .. } | JobVerdict::Cancelled => {
                self.failed(begun, policy, plan, result);
            }
        }
    }

    fn landed(&self, begun: &Begun, policy: &Policy, plan: &Plan, result: &JobResult) {
        let scope = &begun.scope.partition;
        let now_ms = self.now();
        let gained = Gained {
            at_ms: now_ms,
            files_in: result.numbers.files_in,
            files_out: result.numbers.files_out,
            deletes_applied: plan.inputs.iter().map(|f| f.deletes.len() as u64).sum(),
        };
        self.with_page(begun, |page| {
            page.remember(scope, page.memory(scope).after_rewrite(policy, &gained).settle(plan.sequence_number));
            page.shrink(scope, None);
            page.release(scope);
            page.await_look(scope, Await { snapshot_id: result.numbers.snapshot_id, since_ms: now_ms });
        });
        self.replaced(&begun.scope.name);
        // our own commit is looked at like any other
        self.hear_own(begun, result.numbers.snapshot_id);
    }

    /// What was read for nothing is tried ever more seldom, as work that gained
    /// nothing; what did not get that far is tried again soon.
    fn failed(&self, begun: &Begun, policy: &Policy, plan: &Plan, result: &JobResult) {
        let scope = &begun.scope.partition;
        tracing::warn!(table = %plan.name, %scope, verdict = %result.verdict.note(), "job did not land");
        let numbers = &result.numbers;
        let outside = matches!(result.verdict, JobVerdict::Failed { .. } | JobVerdict::Unreachable { .. });
        let cheap = outside && numbers.wasted_bytes == 0 && numbers.bytes_read == 0;
        let now_ms = self.now();
        self.with_page(begun, |page| {
            if cheap {
                page.hold(scope, 0, now_ms);
                return;
            }
            page.remember(scope, page.memory(scope).after_empty_plan(policy, now_ms, false));
            if matches!(result.verdict, JobVerdict::Stopped { .. }) {
                page.shrink(scope, Some((plan.input_bytes() / 2).max(1)));
            }
        });
    }

    fn disproved(&self, begun: &Begun, error: &str) {
        let name = &begun.scope.name;
        let scope = &begun.scope.partition;
        tracing::error!(table = %name, %scope, %error, "a proof failed: nothing was committed, and the table is left alone from here on");
        // every partition is judged again for it, and none is worked on before
        self.with_page(begun, |page| {
            page.disproved =
                Some(Refused::new(Refusal::Damaged, format!("a rewrite was disproved and not committed, please report it: {error}")));
            page.unjudged = true;
        });
    }

    pub(super) fn found_nothing(&self, begun: &Begun, policy: &Policy, reason: Reason) {
        let scope = &begun.scope.partition;
        let shrunken = begun.max_bytes != u64::MAX;
        let for_deletes = asks_for_deletes(&begun.verdict, policy) && !shrunken;
        let now_ms = self.now();
        self.with_page(begun, |page| match reason {
            Reason::Refused(refused) => page.refuse(scope, refused, now_ms),
            _ => {
                page.remember(scope, page.memory(scope).after_empty_plan(policy, now_ms, for_deletes));
                page.shrink(scope, None);
                page.release(scope);
            }
        });
    }

    fn could_not_plan(&self, begun: &Begun, error: &Error) {
        let scope = &begun.scope.partition;
        tracing::warn!(table = %begun.scope.name, %scope, %error, "the partition cannot be planned");
        let now_ms = self.now();
        self.with_page(begun, |page| match error {
            Error::Refused(refused) => page.refuse(scope, refused.clone(), now_ms),
            _ => page.hold(scope, 0, now_ms),
        });
        if matches!(error, Error::NotFound { .. }) {
            self.look_again(begun);
        }
    }

    /// The table is not as it was judged: it is looked at before anything is
    /// decided about the partition.
    fn look_again(&self, begun: &Begun) {
        let awaits = Await { snapshot_id: None, since_ms: self.now() };
        self.with_page(begun, |page| page.await_look(&begun.scope.partition, awaits));
        self.hear_own(begun, None);
    }

    pub(super) fn hear_own(&self, begun: &Begun, snapshot_id: Option<i64>) {
        self.ask_for_look(&begun.scope.name, begun.table, snapshot_id);
    }

    /// Brings a look at a table, which is at all its branches, forward.
    pub(super) fn ask_for_look(&self, name: &TableName, table: TableIdent, snapshot_id: Option<i64>) {
        let event = Event {
            door: Door::Own,
            table: name.clone(),
            uuid: Some(table.uuid),
            reference: None,
            snapshots: snapshot_id.into_iter().collect(),
            certainty: Certainty::CatalogConfirmed,
            files_added: 0,
            heard_ms: self.now(),
        };
        let heard = self.parts.inbox.hear(event);
        telemetry::event_heard(Door::Own, heard);
    }

    /// The page of the branch that work was begun on, if it is there still.
    pub(super) fn with_page(&self, begun: &Begun, change: impl FnOnce(&mut Page)) {
        if let Some(page) = self.book().page_mut(&begun.scope.name, &begun.scope.branch, begun.table) {
            change(page);
        }
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.load(std::sync::atomic::Ordering::SeqCst)
    }
}

/// What a job has used of the budgets. What was read of its files counts as replaced,
/// whatever came of it.
fn used(result: &JobResult) -> Used {
    let numbers = &result.numbers;
    let begun = numbers.bytes_read > 0 || numbers.wasted_bytes > 0 || numbers.bytes_out > 0;
    let commits = matches!(result.verdict, JobVerdict::Committed | JobVerdict::Unresolved { .. });
    // a snapshot that several share is one
    let made = commits && numbers.joined_to.is_none();
    Used { gb_hours: numbers.gb_hours, bytes: if begun || commits { numbers.bytes_in } else { 0 }, commits: u64::from(made) }
}

/// Whether an empty plan shows that no delete applies: it would have taken what they do.
fn asks_for_deletes(verdict: &Verdict, policy: &Policy) -> bool {
    match Cause::of_verdict(verdict, policy) {
        Some(Cause::Due(_)) => true,
        Some(Cause::Rule(rule)) => matches!(rule, Rule::Deletes { .. } | Rule::Own { takes: Takes::Deletes | Takes::All, .. }),
        Some(Cause::Score | Cause::Request) | None => false,
    }
}

fn tell(result: &JobResult) {
    let numbers = &result.numbers;
    let end = match &result.verdict {
        JobVerdict::Committed => JobEnd::Committed,
        JobVerdict::Cancelled | JobVerdict::Stopped { .. } => JobEnd::Cancelled,
        JobVerdict::Busy | JobVerdict::Paused | JobVerdict::Claimed { .. } | JobVerdict::Replan { .. } | JobVerdict::Dropped { .. } => {
            JobEnd::Yielded
        }
        JobVerdict::Refused { .. }
        | JobVerdict::Disproved { .. }
        | JobVerdict::Failed { .. }
        | JobVerdict::Unreachable { .. }
        | JobVerdict::Unresolved { .. } => JobEnd::Failed,
    };
    log(result);
    telemetry::job_ended(end, result.seconds());
    telemetry::budget_spent(numbers.gb_hours);
    telemetry::bytes_read(numbers.bytes_read);
    telemetry::store_requests("job", &numbers.requests);
    telemetry::deletes_carried(numbers.deletes_carried);
    telemetry::wasted(numbers.wasted_bytes);
    if let (JobVerdict::Committed, Some(_)) = (&result.verdict, &numbers.joined_to) {
        telemetry::commit_joined();
    }
    if let (JobVerdict::Committed, Some(path)) = (&result.verdict, numbers.path) {
        telemetry::rewritten(path, numbers.bytes_in, numbers.bytes_out, numbers.files_in, numbers.files_out);
    }
    if let JobVerdict::Replan { conflict, .. } | JobVerdict::Dropped { conflict } = &result.verdict {
        telemetry::conflicted(conflict);
    }
}

/// One line a job that was begun, for whoever asks the log what changed a table.
fn log(result: &JobResult) {
    let Some(job) = &result.job else { return };
    let numbers = &result.numbers;
    let (table, partition, snapshot) = (&result.table, &numbers.partition, numbers.snapshot_id);
    let (files_in, files_out) = (numbers.files_in, numbers.files_out);
    let (bytes_in, bytes_out, seconds) = (numbers.bytes_in, numbers.bytes_out, result.seconds());
    let outcome = result.verdict.note();
    match &result.verdict {
        JobVerdict::Refused { .. }
        | JobVerdict::Disproved { .. }
        | JobVerdict::Failed { .. }
        | JobVerdict::Unreachable { .. }
        | JobVerdict::Unresolved { .. } => {
            tracing::warn!(job = job.0, %table, partition, reason = result.reason, outcome, seconds, "a job failed");
        }
        _ => tracing::info!(
            job = job.0, %table, partition, reason = result.reason, outcome, files_in, files_out, bytes_in, bytes_out, seconds, snapshot,
            "a job ended"
        ),
    }
}
