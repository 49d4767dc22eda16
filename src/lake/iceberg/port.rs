//! The Iceberg room behind the ports [`Format`] and [`Table`].

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;

use super::lake::Lake;
use super::table::IcebergTable;
use super::{commit, manifest, rewrite, scope, verify};
use crate::lake::{Commit, Control, Format, Glanced, Marked, Member, NotLanded, Pointer, Proof, Result, Table, Written};
use crate::model::file::{Entry, ManifestRef};
use crate::model::ident::TableName;
use crate::model::outcome::{Outcome, Resolution};
use crate::model::partition::PartitionKey;
use crate::model::plan::{AttemptId, Plan, ScopeFiles};
use crate::model::requests::Requests;
use crate::model::table::TableView;

#[async_trait]
impl Format for Lake {
    fn catalogs(&self) -> Vec<String> {
        self.names()
    }

    async fn list(&self, catalog: &str) -> Result<Vec<Pointer>> {
        self.pointers(catalog).await
    }

    async fn load(&self, name: &TableName, reference: &str) -> Result<Option<Arc<dyn Table>>> {
        Ok(self.table(name, reference).await?.map(|table| Arc::new(table) as Arc<dyn Table>))
    }

    async fn glance(&self, name: &TableName, reference: &str) -> Result<Option<Arc<dyn Table>>> {
        let found = self.catalog(&name.catalog)?.glance(name, reference).await?;
        Ok(found.map(|glance| Arc::new(glance) as Arc<dyn Table>))
    }

    async fn glance_since(&self, name: &TableName, reference: &str, known: Option<&str>) -> Result<Glanced<Arc<dyn Table>>> {
        let found = self.catalog(&name.catalog)?.glance_since(name, reference, known).await?;
        Ok(found.map(|glance| Arc::new(glance) as Arc<dyn Table>))
    }
}

#[async_trait]
impl Table for IcebergTable {
    fn view(&self) -> &TableView {
        &self.view
    }

    fn on(&self, branch: &str) -> Option<Arc<dyn Table>> {
        Some(Arc::new(self.seen_from(branch)))
    }

    async fn manifests(&self, snapshot_id: i64) -> Result<Vec<ManifestRef>> {
        manifest::list(self, snapshot_id).await
    }

    async fn entries(&self, manifest: &ManifestRef) -> Result<Vec<Entry>> {
        manifest::entries(self, manifest).await
    }

    async fn scope(&self, scope: &PartitionKey) -> Result<ScopeFiles> {
        scope::read(self, scope).await
    }

    async fn scopes(&self, scopes: &[PartitionKey]) -> Result<Vec<ScopeFiles>> {
        scope::read_many(self, scopes).await
    }

    async fn foresee(&self, plan: &Plan) -> Result<()> {
        rewrite::foresee::run(self, plan).await?;
        commit::foresee(self, plan).await
    }

    async fn rewrite(&self, plan: &Plan, attempt: &AttemptId, control: &dyn Control) -> Result<Written> {
        rewrite::run(self, plan, attempt, control).await
    }

    async fn verify(&self, plan: &Plan, written: &Written) -> Result<Proof> {
        verify::run(self, plan, written).await
    }

    async fn commit(&self, plan: &Plan, written: &Written, commit: &Commit<'_>) -> Result<Outcome> {
        commit::commit(self, plan, written, commit).await
    }

    async fn commit_joined(&self, members: &[Member<'_>], commit: &Commit<'_>) -> Vec<Result<Outcome>> {
        commit::commit_joined(self, members, commit).await
    }

    fn history(&self) -> Vec<String> {
        self.loaded.metadata.metadata_log().iter().map(|log| log.metadata_file.clone()).collect()
    }

    fn requests(&self) -> Requests {
        self.meter.requests()
    }

    fn find_attempt(&self, attempt: &AttemptId, asserted: &str) -> Resolution {
        commit::find_attempt(self, attempt, asserted)
    }

    async fn trace_attempt(&self, attempt: &AttemptId, asserted: &str) -> Result<Resolution> {
        commit::trace_attempt(self, attempt, asserted).await
    }

    async fn fence(&self, asserted: &str) -> Result<bool> {
        self.catalog.fence(&self.loaded.name, asserted).await
    }

    async fn undo(&self, snapshot_id: i64, commit: &Commit<'_>) -> Result<Outcome> {
        commit::undo(self, snapshot_id, commit).await
    }

    async fn mark(&self, set: &BTreeMap<String, String>, remove: &[String], control: &dyn Control) -> Result<Marked> {
        commit::mark(self, set, remove, control).await
    }

    async fn remove_outputs(&self, proof: &NotLanded, paths: &[String]) -> Result<()> {
        commit::remove_outputs(self, proof, paths).await
    }
}
