//! What the loop answers to the services.

use std::collections::HashMap;
use std::ops::Bound;
use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::broadcast;

use crate::act::journal::Ended;
use crate::lake;
use crate::model::event::{Door, Event, Heard};
use crate::model::ident::{MAIN, TableName, beside_main};
use crate::model::partition::PartitionKey;
use crate::model::refusal::Refused;
use crate::model::writers::Hold;
use crate::observe::{Entrance, ledger};
use crate::orient::{TableState, traits};
use crate::serve::backend::{
    Answer, Backend, Backlog, BacklogRow, Candidate, Error, Explained, Health, LastJob, Page as Asked, PartitionRow, Partitions,
    TableLayout, Taken, Tells, label, names,
};
use crate::telemetry;

use super::book::{Asked as Judged, Page, Scope, Trouble, Waiting};
use super::{Looked, Loop};

/// Ended jobs of a table, the newest, among which the last of each partition is looked
/// for: the journal keeps them behind their plans, which may be large.
const LAST_JOBS: u32 = 500;
/// Earlier decisions told of a partition that is asked for by name.
const EARLIER: usize = 4;
/// Partitions explained between two moments in which others may go on.
const TURN: usize = 256;

#[async_trait]
impl Backend for Loop {
    fn now_ms(&self) -> i64 {
        self.now()
    }

    fn catalogs(&self) -> Vec<String> {
        self.parts.format.catalogs()
    }

    fn hear(&self, event: Event) -> Answer {
        if let Err(note) = self.parts.inbox.branches().check(&event.table, event.reference.as_deref()) {
            return Answer { heard: Heard::Accepted, note };
        }
        let note = self.parts.roster.note(&event.table);
        // a look is at all branches
        let heard = self.parts.inbox.hear(Event { reference: None, ..event });
        Answer { heard, note }
    }

    async fn get_layout(&self, name: &TableName, reference: &str) -> Result<TableLayout, Error> {
        let state = self.state_for(name, reference).await?;
        let since = self.refused_since(name, reference);
        self.with_known(name, reference, |page, now_ms| TableLayout {
            table: name.clone(),
            uuid: page.facts.ident.uuid,
            reference: reference.to_owned(),
            snapshot_id: state.layout.head(),
            looked_at_ms: page.looked_at_ms,
            format_version: page.format_version,
            target_file_size: page.policy.scale.target,
            partitions: state.layout.partitions().len() as u64,
            traits: traits::table_traits(&state, &page.policy.cost, now_ms),
            refused: page.refusals().into_iter().chain(since.clone()).collect(),
            act: page.policy.act,
        })
    }

    async fn list_partitions(&self, name: &TableName, reference: &str, asked: Asked) -> Result<Partitions, Error> {
        let state = self.state_for(name, reference).await?;
        self.with_known(name, reference, |page, now_ms| {
            let from = asked.after.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
            let rest = state.layout.partitions().range(from);
            let mut keys: Vec<_> = rest.map(|(key, _)| key).take(asked.size.saturating_add(1)).collect();
            let more = keys.len() > asked.size;
            keys.truncate(asked.size);
            let row = |key| {
                let traits = traits::traits(&state, &key, &page.policy.cost, now_ms)?;
                Some(PartitionRow { label: label(&key, page.spec(&key)), partition: key, traits })
            };
            Partitions { snapshot_id: state.layout.head(), rows: keys.into_iter().filter_map(row).collect(), more }
        })
    }

    async fn list_candidates(&self, limit: usize) -> Result<Vec<Candidate>, Error> {
        let book = self.book();
        let row = |Waiting { scope, candidate, score, waits_for, on_front, chosen }| {
            let spec = book.page(&scope.name, &scope.branch).and_then(|p| p.spec(&scope.partition));
            Candidate {
                label: label(&scope.partition, spec),
                table: scope.name,
                branch: scope.branch,
                partition: scope.partition,
                score,
                gain: candidate.gain,
                gb_hours: candidate.gb_hours,
                waits_for,
                tenant: candidate.context.tenant.as_deref().unwrap_or_default().to_owned(),
                on_front,
                chosen,
                urgent: candidate.urgent,
            }
        };
        Ok(book.candidates().into_iter().take(limit).map(row).collect())
    }

    async fn backlog(&self) -> Result<Backlog, Error> {
        let rows = self.backlog_rows(self.now()).into_iter().map(|(share, row)| {
            let available = share.tenant.as_deref().and_then(|tenant| self.budget().available_to(tenant));
            BacklogRow {
                tenant: share.tenant.as_deref().unwrap_or_default().to_owned(),
                act: share.act,
                candidates: row.candidates,
                urgent: row.urgent,
                review: row.review,
                oldest_ms: row.oldest_ms,
                files: row.files,
                bytes: row.bytes,
                gb_hours: row.gb_hours,
                bytes_per_hour: row.bytes_per_hour,
                drain_seconds: row.drain_seconds,
                cost: row.cost,
                available_gb_hours: available,
            }
        });
        let prices = &self.parts.settings.prices;
        let currency = if prices.is_free() { String::new() } else { prices.currency.clone() };
        Ok(Backlog { rows: rows.collect(), available_gb_hours: self.budget().available(), currency })
    }

    async fn why(&self, name: &TableName, filter: Option<&str>) -> Result<Vec<Explained>, Error> {
        self.why_on(name, MAIN, filter).await
    }

    async fn why_on(&self, name: &TableName, branch: &str, filter: Option<&str>) -> Result<Vec<Explained>, Error> {
        let state = self.state_for(name, branch).await?;
        // what is known is of a head that can be read no more
        if let Some(refused) = self.refused_since(name, branch) {
            return Err(refused.into());
        }
        let keys: Vec<PartitionKey> = self.with_known(name, branch, |page, _| {
            let named = |key: &PartitionKey| filter.is_none_or(|f| names(f, key, page.spec(key)));
            state.layout.partitions().keys().filter(named).collect()
        })?;
        let earlier = if filter.is_some() { EARLIER } else { 0 };
        let (read_rate, clients) = (self.read_rate(name), self.clients_of(name, self.now()));
        let mut found = Vec::new();
        let prices = Some(&self.parts.settings.prices);
        // in turns, so that the answer about a large table holds nobody up
        for keys in keys.chunks(TURN) {
            let book = self.book();
            for key in keys {
                let scope = Scope { name: name.clone(), branch: branch.into(), partition: key.clone() };
                let judged = Judged { state: &state, read_rate, clients, prices, recorder: None, now_ms: self.now() };
                found.extend(book.decisions(&scope, judged, earlier));
            }
        }
        self.tell_last_jobs(&mut found).await;
        let refused = self.with_known(name, branch, |page, _| page.refusals().into_iter().next())?;
        match (filter, refused) {
            (_, Some(refused)) if found.is_empty() => Err(refused.into()),
            (Some(filter), None) if found.is_empty() => Err(Error::NotFound(format!("{name} has no partition `{filter}` with live files"))),
            _ => Ok(found),
        }
    }

    async fn is_followed(&self, name: &TableName) -> Result<(), Error> {
        let has_page = self.book().pages(name).next().is_some();
        if has_page { Ok(()) } else { self.with_known(name, MAIN, |_, _| ()) }
    }

    async fn tell(&self, name: &TableName, told: &[Tells], until_ms: i64) -> Result<Taken, Error> {
        self.take_told(name, told, until_ms).await
    }

    fn tell_capacity(&self, free_gb: f64, until_ms: i64) -> Result<f64, Error> {
        self.take_capacity(free_gb, until_ms)
    }

    fn doors(&self) -> Vec<ledger::Row> {
        let mut rows = self.parts.inbox.ledger().rows(self.now());
        for catalog in self.parts.roster.health() {
            let of = |row: &&mut ledger::Row| row.door == Door::Poll && row.source == catalog.catalog;
            let Some(row) = rows.iter_mut().find(of) else { continue };
            row.state = match catalog.listed_ms {
                Some(at_ms) => format!("listed {} tables {} s ago", catalog.tables, self.now().saturating_sub(at_ms).max(0) / 1000),
                None => "not listed yet".to_owned(),
            };
            row.problem = catalog.error;
        }
        rows
    }

    async fn hold(&self, name: &TableName, hold: Hold) -> Result<i64, Error> {
        self.hold_for(name, hold).await.map_err(|e| Error::Unavailable(e.to_string()))
    }

    async fn release(&self, name: &TableName, holder: Option<&str>) -> Result<usize, Error> {
        self.give_back(name, holder).await.map_err(|e| Error::Unavailable(e.to_string()))
    }

    fn watch(&self) -> broadcast::Receiver<Arc<Explained>> {
        self.decisions.subscribe()
    }

    fn health(&self) -> Health {
        let down = |c: crate::observe::roster::CatalogHealth| match (c.error, c.listed_ms) {
            (Some(error), _) => Some(format!("catalog {}: {error}", c.catalog)),
            (None, None) => Some(format!("catalog {} was not listed yet", c.catalog)),
            (None, Some(_)) => None,
        };
        let mut problems: Vec<String> = self.parts.roster.health().into_iter().filter_map(down).collect();
        // a source that is silent costs latency, and no call to this process
        let ready = problems.is_empty();
        let silent = self.parts.inbox.ledger().rows(self.now()).into_iter();
        let told = |row: ledger::Row| Some(format!("{} {}: {}", telemetry::door_name(row.door), row.source, row.problem?));
        problems.extend(silent.filter_map(told));
        let tables = self.book().len() as u64;
        let jobs = self.budget().running() as u64;
        Health {
            ready,
            problems,
            tables,
            pending: self.parts.inbox.depth().pending as u64,
            jobs,
            unknown_outcomes: self.unknown_outcomes() as u64,
        }
    }

    fn entrance(&self) -> Option<Arc<Entrance>> {
        Some(Arc::clone(&self.entrance))
    }
}

impl Loop {
    /// The state of a branch that is known, to answer by; it is taken in again where it
    /// was lost.
    pub(super) async fn state_for(&self, name: &TableName, reference: &str) -> Result<Arc<TableState>, Error> {
        let key = self.with_known(name, reference, |page, _| page.key())?;
        if let Some(state) = self.parts.orient.glimpse(&key).await {
            return Ok(state);
        }
        match self.look(name, reference, &[]).await {
            Ok(Looked { state: Some(state), .. }) => Ok(state),
            Ok(_) => Err(Error::NotFound(format!("{name} is gone from its catalog"))),
            Err(lake::Error::Refused(refused)) => Err(refused.into()),
            Err(error) => Err(Error::Unavailable(format!("{name} could not be looked at again: {error}"))),
        }
    }

    /// Adds to decisions on partitions of one table what became of the last rewrite of
    /// each. A journal that does not answer leaves them without.
    async fn tell_last_jobs(&self, found: &mut [Explained]) {
        let Some((table, branch)) = found.first().map(|e| (e.decision.table, beside_main(&e.branch).unwrap_or_default())) else { return };
        let ended = match self.parts.act.journal().ended(&table, LAST_JOBS).await {
            Ok(ended) => ended,
            Err(error) => {
                tracing::warn!(%table, %error, "the last jobs cannot be told");
                return;
            }
        };
        let mut newest: HashMap<&str, &Ended> = HashMap::new();
        for job in ended.iter().filter(|job| *job.numbers.branch == *branch) {
            newest.entry(&job.numbers.partition).or_insert(job);
        }
        for explained in found {
            explained.last_job = newest.get(explained.label.as_str()).map(|job| LastJob {
                job: job.id.0.clone(),
                state: job.state.code().to_owned(),
                path: job.numbers.path,
                path_reason: job.numbers.path_reason.clone(),
                ended_ms: job.changed_ms,
            });
        }
    }

    /// Why a branch is left alone since its last look, though one before went well.
    fn refused_since(&self, name: &TableName, branch: &str) -> Option<Refused> {
        match self.book().troubled(name, branch) {
            Some(Trouble::Refused(refused)) => Some(refused.clone()),
            _ => None,
        }
    }

    pub(super) fn with_known<T>(&self, name: &TableName, reference: &str, answer: impl FnOnce(&Page, i64) -> T) -> Result<T, Error> {
        self.parts.inbox.branches().check(name, Some(reference)).map_err(|why| Error::NotFound(format!("{name}: {why}")))?;
        let now_ms = self.now();
        let book = self.book();
        if let Some(why) = book.absent(name, reference) {
            return Err(Error::NotFound(format!("{name}: {why}; a branch of that name is looked after as soon as it is there")));
        }
        match (book.page(name, reference), book.troubled(name, reference)) {
            (Some(page), _) => Ok(answer(page, now_ms)),
            (None, Some(Trouble::Refused(refused))) => Err(refused.clone().into()),
            (None, Some(Trouble::Failed(why))) => Err(Error::Unavailable(format!("{name} could not be looked at yet: {why}"))),
            (None, None) => Err(Error::NotFound(format!(
                "{name} is not known: no catalog lists it, or it was not looked at yet; report it, or wait for the poller"
            ))),
        }
    }
}
