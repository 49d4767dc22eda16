//! What the loop answers to the services.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::broadcast;

use crate::model::event::{Event, Heard};
use crate::model::ident::{MAIN, TableName};
use crate::orient::traits;
use crate::serve::backend::{
    Answer, Backend, Candidate, Error, Explained, Health, Page as Asked, PartitionRow, Partitions, TableLayout, label, names,
};

use super::Loop;
use super::book::Page;

#[async_trait]
impl Backend for Loop {
    fn now_ms(&self) -> i64 {
        self.now()
    }

    fn catalogs(&self) -> Vec<String> {
        self.parts.format.catalogs()
    }

    fn hear(&self, event: Event) -> Answer {
        let reference = event.reference.as_deref().unwrap_or(MAIN);
        if reference != MAIN {
            return Answer { heard: Heard::Accepted, note: format!("branch `{reference}` is not looked after: only `{MAIN}` is") };
        }
        let known = self.book().page(&event.table).is_some();
        let heard = self.parts.inbox.hear(event);
        let note = if known { String::new() } else { "the table is not known yet: the catalog will be asked".to_owned() };
        Answer { heard, note }
    }

    async fn get_layout(&self, name: &TableName, reference: &str) -> Result<TableLayout, Error> {
        self.with_known(name, reference, |page, now_ms| TableLayout {
            table: name.clone(),
            uuid: page.facts.ident.uuid,
            reference: reference.to_owned(),
            snapshot_id: page.state.layout.head(),
            looked_at_ms: page.looked_at_ms,
            format_version: page.view.format_version,
            target_file_size: page.policy.scale.target,
            partitions: page.state.layout.partitions().len() as u64,
            traits: traits::table_traits(&page.state, &page.policy.cost, now_ms),
            refused: page.view.refused.iter().cloned().chain(page.disproved.clone()).collect(),
            act: page.policy.act,
        })
    }

    async fn list_partitions(&self, name: &TableName, reference: &str, asked: Asked) -> Result<Partitions, Error> {
        self.with_known(name, reference, |page, now_ms| {
            let keys = page.state.layout.partitions().keys().filter(|key| asked.after.as_ref().is_none_or(|after| *key > after));
            let mut keys: Vec<_> = keys.take(asked.size.saturating_add(1)).cloned().collect();
            let more = keys.len() > asked.size;
            keys.truncate(asked.size);
            let row = |key| {
                let traits = traits::traits(&page.state, &key, &page.policy.cost, now_ms)?;
                Some(PartitionRow { label: label(&key, page.spec(&key)), partition: key, traits })
            };
            Partitions { snapshot_id: page.state.layout.head(), rows: keys.into_iter().filter_map(row).collect(), more }
        })
    }

    async fn list_candidates(&self, limit: usize) -> Result<Vec<Candidate>, Error> {
        let book = self.book();
        let all = book.candidates();
        let row = |(scope, candidate, score, waits_for): (super::Scope, crate::decide::round::Candidate, f64, String)| {
            let spec = book.page(&scope.name).and_then(|p| p.spec(&scope.partition));
            Candidate {
                label: label(&scope.partition, spec),
                table: scope.name,
                partition: scope.partition,
                score,
                gain: candidate.gain,
                gb_hours: candidate.gb_hours,
                waits_for,
            }
        };
        Ok(all.into_iter().take(limit).map(row).collect())
    }

    async fn why(&self, name: &TableName, filter: Option<&str>) -> Result<Vec<Explained>, Error> {
        let found = self.with_known(name, MAIN, |page, _| {
            let explained = page.decisions().map(|d| Explained { label: label(&d.scope, page.spec(&d.scope)), decision: d.clone() });
            explained.filter(|e| filter.is_none_or(|f| names(f, &e.decision.scope, &e.label))).collect::<Vec<_>>()
        })?;
        match filter {
            Some(filter) if found.is_empty() => Err(Error::NotFound(format!("{name} has no partition `{filter}` with live files"))),
            _ => Ok(found),
        }
    }

    fn watch(&self) -> broadcast::Receiver<Arc<Explained>> {
        self.decisions.subscribe()
    }

    fn health(&self) -> Health {
        let problems = self.parts.roster.problems();
        Health {
            ready: problems.is_empty(),
            problems,
            tables: self.book().len() as u64,
            pending: self.parts.inbox.depth().pending as u64,
            jobs: self.budget().running() as u64,
            unknown_outcomes: self.open.load(std::sync::atomic::Ordering::Relaxed),
        }
    }
}

impl Loop {
    fn with_known<T>(&self, name: &TableName, reference: &str, answer: impl FnOnce(&Page, i64) -> T) -> Result<T, Error> {
        if reference != MAIN {
            return Err(Error::NotFound(format!("branch `{reference}` of {name} is not looked after: only `{MAIN}` is")));
        }
        let now_ms = self.now();
        let book = self.book();
        match book.page(name) {
            Some(page) => Ok(answer(page, now_ms)),
            None => Err(Error::NotFound(format!(
                "{name} is not known: no catalog lists it, or it was not looked at yet; report it, or wait for the poller"
            ))),
        }
    }
}
