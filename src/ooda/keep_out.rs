//! Keeping out of others' way: what is known of the clients of tables, and who holds
//! them.

use std::sync::{Arc, PoisonError, Weak};

use async_trait::async_trait;

use super::Loop;
use super::lease::{Lease, Leases};
use crate::act::journal::Error;
use crate::act::{Courtesy, Holds};
use crate::model::ident::{MAIN, TableName};
use crate::model::policy::Policy;
use crate::model::table::TableView;
use crate::model::writers::Hold;
use crate::observe::proxy;
use crate::observe::proxy::ledger::Race;

/// A rewrite whose commit is all that is left waits for clients no longer than this.
const COMMIT_WAITS_MS: i64 = 60_000;

/// What the proxies know of a table's clients; all of it is an estimate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clients {
    /// Until when one of them may be writing.
    pub busy_until_ms: Option<i64>,
    /// Statements of theirs that our rewrites may have made fail.
    pub harmed: u64,
}

impl Loop {
    /// Sets who tells of the tables' clients; once.
    pub fn set_clients(&self, clients: Arc<proxy::Ledger>) {
        self.entrance.set_heeds(Arc::clone(&clients) as Arc<dyn proxy::Heeds>);
        let _ = self.clients.set(clients);
    }

    /// Has the commits of this loop's jobs wait for whoever is expected, and not be made
    /// in tables that are held.
    pub(super) fn teach_courtesy(self: &Arc<Self>) {
        self.parts.act.set_courtesy(courtesy(Arc::downgrade(self)));
        self.parts.act.set_holds(Box::new(Held(Arc::downgrade(self))));
    }

    pub(super) fn clients_of(&self, table: &TableName, now_ms: i64) -> Clients {
        let Some(clients) = self.clients.get() else { return Clients::default() };
        Clients { busy_until_ms: clients.busy_until_ms(table, now_ms), harmed: clients.harmed(table) }
    }

    /// A rewrite of ours has landed.
    pub(super) fn replaced(&self, table: &TableName) {
        if let Some(clients) = self.clients.get() {
            clients.replaced(table, self.now());
        }
    }

    /// Has work judged again where a client may have begun to write since, or has ended.
    pub(super) fn mind_clients(&self, now_ms: i64) {
        let Some(clients) = self.clients.get() else { return };
        clients.settle(now_ms);
        let busy = |table: &TableName| clients.busy_until_ms(table, now_ms);
        self.book().mind_clients(busy, now_ms);
    }

    /// Looks after rewrites under way that a client's commit may have overtaken, which the
    /// proxies saw land, where the look at the table still waits for its turn: whatever
    /// else waits, no work goes on that has lost. Each commit is looked after once.
    pub(super) fn mind_races(self: &Arc<Self>) {
        let Some(clients) = self.clients.get() else { return };
        let under_way = self.parts.act.under_way();
        let mut raced = self.raced.lock().unwrap_or_else(PoisonError::into_inner);
        raced.retain(|(table, _)| under_way.iter().any(|(name, ..)| name == table));
        for (table, reference, base) in under_way {
            if !self.parts.inbox.is_marked(&table, MAIN) {
                continue;
            }
            let races = clients.races(&table, &reference, base);
            let overtakes = |race: &&Race| race.landed && race.may_take_away() && !raced.contains(&(table.clone(), race.snapshot));
            let Some(snapshot) = races.iter().find(overtakes).map(|race| race.snapshot) else { continue };
            raced.insert((table.clone(), snapshot));
            tracing::info!(%table, snapshot, "a client's commit has landed that may take files of rewrites under way");
            let of = Arc::clone(self);
            drop(self.jobs.spawn(async move { of.yield_to_writers(&table, &reference, None).await }));
        }
    }

    /// Takes a lease on a table. What is under way there stops, unless its commit is
    /// being asked for. Gives back until when it holds.
    pub(super) async fn hold_for(&self, table: &TableName, hold: Hold) -> Result<i64, Error> {
        let now_ms = self.now();
        let journal = self.parts.act.journal();
        Leases::take(journal.as_ref(), Lease { table: table.clone(), hold: hold.clone() }, now_ms).await?;
        self.read_leases().await?;
        self.changed.notify_one();
        let taken = self.book().leases().of(table, now_ms).filter(|lease| lease.hold.by == hold.by).map(|lease| lease.hold.until_ms).max();
        Ok(taken.unwrap_or(hold.until_ms))
    }

    /// Gives leases on a table back; how many there were.
    pub(super) async fn give_back(&self, table: &TableName, by: Option<&str>) -> Result<usize, Error> {
        let released = Leases::release(self.parts.act.journal().as_ref(), table, by, self.now()).await?;
        self.read_leases().await?;
        self.changed.notify_one();
        Ok(released.len())
    }

    /// Takes the leases as they stand in the journal; work on tables that are held since
    /// stops.
    pub(super) async fn read_leases(&self) -> Result<(), Error> {
        let leases = Leases::read(self.parts.act.journal().as_ref()).await?;
        let held = self.book().set_leases(leases, self.now());
        held.iter().for_each(|table| self.stop_held(table));
        Ok(())
    }

    /// Stops what is under way in a table whose policy holds it.
    pub(super) fn honour(&self, table: &TableName, policy: &Policy) {
        if policy.hold_until_ms.is_some_and(|until| until > self.now()) {
            self.stop_held(table);
        }
    }

    fn stop_held(&self, table: &TableName) {
        let stopped = self.parts.act.stop_rewrites(table);
        if stopped > 0 {
            tracing::info!(%table, stopped, "the table is held: rewrites under way are stopped");
        }
    }

    /// Whether a table is held now.
    pub(super) fn is_held(&self, table: &TableName, policy: &Policy) -> bool {
        let now_ms = self.now();
        policy.hold_until_ms.is_some_and(|until| until > now_ms) || self.book().leases().longest(table, now_ms).is_some()
    }
}

/// For whom a commit waits: for a client that may be writing, and a writer who is expected
/// in the partition, as long as the table's policy lets.
fn courtesy(of: Weak<Loop>) -> Box<Courtesy> {
    Box::new(move |plan, since_ms, now_ms| {
        let of = of.upgrade()?;
        let (most, expected) = {
            let book = of.book();
            let page = book.page(&plan.name, &plan.reference)?;
            (page.policy.keep_out_ms.min(COMMIT_WAITS_MS), page.busy_until_ms(&plan.scope, now_ms))
        };
        let until_ms = since_ms.saturating_add(most);
        let busy = of.clients_of(&plan.name, now_ms).busy_until_ms.max(expected);
        busy.filter(|_| now_ms < until_ms).map(|busy| busy.min(until_ms))
    })
}

/// The leases as the journal has them, and what settings and properties say of the table.
struct Held(Weak<Loop>);

#[async_trait]
impl Holds for Held {
    async fn holds(&self, table: &TableView) -> bool {
        let Some(of) = self.0.upgrade() else { return false };
        if let Err(error) = of.read_leases().await {
            tracing::warn!(%error, "leases on tables cannot be read: those known count");
        }
        let (policy, _, _) = of.resolve(&table.name, &table.properties);
        !policy.enabled || !policy.act || !policy.looks_after(&table.reference) || of.is_held(&table.name, &policy)
    }
}
