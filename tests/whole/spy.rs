//! The Iceberg room, watched: what is loaded and read, and what happens in
//! between.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use afterwrite::lake::iceberg::lake::Lake;
use afterwrite::lake::{Commit, Control, Error, Format, Glanced, Marked, Member, NotLanded, Pointer, Proof, Result, Table, Written};
use afterwrite::model::file::{Entry, ManifestRef};
use afterwrite::model::ident::TableName;
use afterwrite::model::outcome::{Outcome, Resolution};
use afterwrite::model::partition::PartitionKey;
use afterwrite::model::plan::{AttemptId, Plan, ScopeFiles};
use afterwrite::model::table::TableView;
use async_trait::async_trait;
use futures::future::BoxFuture;

/// What happens between a rewrite and its commit.
pub type Between = Arc<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>;

/// What goes wrong with the next call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// The rewrite panics.
    RewritePanics,
    /// The proof does not hold.
    NotProven,
    /// The look's load panics.
    LoadPanics,
    /// A file of the table is missing from the store.
    FileMissing,
}

#[derive(Default)]
pub struct Seen {
    /// Loads, by table.
    pub loads: Mutex<HashMap<TableName, usize>>,
    /// Looks that found their table where it was known to be.
    pub unmoved: AtomicUsize,
    /// Manifests whose entries were read for a layout.
    pub manifests: AtomicUsize,
    /// Rewrites begun.
    pub rewrites: AtomicUsize,
    /// Rewrites under way, and the most there were at one time.
    pub running: AtomicUsize,
    pub most_running: AtomicUsize,
    /// Looks into plans, those under way, and the most there were at one time.
    pub foreseen: AtomicUsize,
    pub foreseeing: AtomicUsize,
    pub most_foreseeing: AtomicUsize,
    /// Rewrites that shared the try of another.
    pub joined: AtomicUsize,
    /// Inputs of each rewrite, in the order begun.
    pub inputs: Mutex<Vec<usize>>,
    /// Tables in the order in which rewrites began.
    pub order: Mutex<Vec<(TableName, PartitionKey)>>,
    pub wrong: Mutex<VecDeque<Wrong>>,
    pub between: Mutex<Option<Between>>,
    /// Where the next change of a table's properties waits for another.
    pub meet: Mutex<Option<Arc<tokio::sync::Barrier>>>,
    /// What happens after each change of a table's properties.
    pub marked: Mutex<VecDeque<Between>>,
    /// Rewrites wait while set.
    pub gate: tokio::sync::Mutex<()>,
}

#[derive(Clone)]
pub struct Spy {
    pub lake: Lake,
    pub seen: Arc<Seen>,
}

struct Watched {
    table: Arc<dyn Table>,
    seen: Arc<Seen>,
}

impl Seen {
    pub fn takes(&self, wrong: Wrong) -> bool {
        let mut left = self.wrong.lock().unwrap();
        let hit = left.front() == Some(&wrong);
        if hit {
            left.pop_front();
        }
        hit
    }

    pub fn rewrites(&self) -> usize {
        self.rewrites.load(Ordering::SeqCst)
    }

    pub fn loads(&self) -> usize {
        self.loads.lock().unwrap().values().sum()
    }
}

#[async_trait]
impl Format for Spy {
    fn catalogs(&self) -> Vec<String> {
        self.lake.names()
    }

    async fn list(&self, catalog: &str) -> Result<Vec<Pointer>> {
        self.lake.pointers(catalog).await
    }

    async fn load(&self, name: &TableName, reference: &str) -> Result<Option<Arc<dyn Table>>> {
        *self.seen.loads.lock().unwrap().entry(name.clone()).or_default() += 1;
        assert!(!self.seen.takes(Wrong::LoadPanics), "the load was made to panic");
        let table = self.lake.load(name, reference).await?;
        Ok(table.map(|table| Arc::new(Watched { table, seen: Arc::clone(&self.seen) }) as Arc<dyn Table>))
    }

    async fn glance_since(&self, name: &TableName, reference: &str, known: Option<&str>) -> Result<Glanced<Arc<dyn Table>>> {
        let found = self.glance(name, reference).await?;
        Ok(match found {
            None => Glanced::Gone,
            Some(table) if known == Some(&table.view().metadata_location) => {
                self.seen.unmoved.fetch_add(1, Ordering::SeqCst);
                Glanced::Same
            }
            Some(table) => Glanced::At(table),
        })
    }
}

struct Running<'a>(&'a Seen);

impl<'a> Running<'a> {
    fn new(seen: &'a Seen) -> Self {
        let now = seen.running.fetch_add(1, Ordering::SeqCst) + 1;
        seen.most_running.fetch_max(now, Ordering::SeqCst);
        Self(seen)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::SeqCst);
    }
}

#[async_trait]
impl Table for Watched {
    fn view(&self) -> &TableView {
        self.table.view()
    }

    fn on(&self, branch: &str) -> Option<Arc<dyn Table>> {
        Some(Arc::new(Self { table: self.table.on(branch)?, seen: Arc::clone(&self.seen) }))
    }

    async fn manifests(&self, snapshot_id: i64) -> Result<Vec<ManifestRef>> {
        self.table.manifests(snapshot_id).await
    }

    async fn entries(&self, manifest: &ManifestRef) -> Result<Vec<Entry>> {
        self.seen.manifests.fetch_add(1, Ordering::SeqCst);
        self.table.entries(manifest).await
    }

    async fn scope(&self, scope: &PartitionKey) -> Result<ScopeFiles> {
        self.table.scope(scope).await
    }

    async fn foresee(&self, plan: &Plan) -> Result<()> {
        self.seen.foreseen.fetch_add(1, Ordering::SeqCst);
        let now = self.seen.foreseeing.fetch_add(1, Ordering::SeqCst) + 1;
        self.seen.most_foreseeing.fetch_max(now, Ordering::SeqCst);
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        let foreseen = self.table.foresee(plan).await;
        self.seen.foreseeing.fetch_sub(1, Ordering::SeqCst);
        foreseen
    }

    async fn rewrite(&self, plan: &Plan, attempt: &AttemptId, control: &dyn Control) -> Result<Written> {
        self.seen.rewrites.fetch_add(1, Ordering::SeqCst);
        self.seen.order.lock().unwrap().push((plan.name.clone(), plan.scope.clone()));
        self.seen.inputs.lock().unwrap().push(plan.inputs.len());
        let _running = Running::new(&self.seen);
        if self.seen.takes(Wrong::FileMissing) {
            return Err(Error::NotFound { path: plan.inputs[0].path.to_string() });
        }
        assert!(!self.seen.takes(Wrong::RewritePanics), "the rewrite was made to panic");
        drop(self.seen.gate.lock().await);
        let written = self.table.rewrite(plan, attempt, control).await;
        let between = self.seen.between.lock().unwrap().clone();
        if let Some(between) = between {
            between().await;
        }
        written
    }

    async fn verify(&self, plan: &Plan, written: &Written) -> Result<Proof> {
        if self.seen.takes(Wrong::NotProven) {
            return Err(Error::Proof("a hash differs".into()));
        }
        self.table.verify(plan, written).await
    }

    async fn commit(&self, plan: &Plan, written: &Written, commit: &Commit<'_>) -> Result<Outcome> {
        self.table.commit(plan, written, commit).await
    }

    async fn commit_joined(&self, members: &[Member<'_>], commit: &Commit<'_>) -> Vec<Result<Outcome>> {
        self.seen.joined.fetch_add(members.len() - 1, Ordering::SeqCst);
        self.table.commit_joined(members, commit).await
    }

    fn history(&self) -> Vec<String> {
        self.table.history()
    }

    async fn fence(&self, asserted: &str) -> Result<bool> {
        self.table.fence(asserted).await
    }

    fn find_attempt(&self, attempt: &AttemptId, asserted: &str) -> Resolution {
        self.table.find_attempt(attempt, asserted)
    }

    async fn trace_attempt(&self, attempt: &AttemptId, asserted: &str) -> Result<Resolution> {
        self.table.trace_attempt(attempt, asserted).await
    }

    async fn undo(&self, snapshot_id: i64, commit: &Commit<'_>) -> Result<Outcome> {
        self.table.undo(snapshot_id, commit).await
    }

    async fn mark(&self, set: &BTreeMap<String, String>, remove: &[String], control: &dyn Control) -> Result<Marked> {
        let meet = self.seen.meet.lock().unwrap().take();
        if let Some(meet) = meet {
            meet.wait().await;
        }
        let marked = self.table.mark(set, remove, control).await;
        let then = self.seen.marked.lock().unwrap().pop_front();
        if let Some(then) = then {
            then().await;
        }
        marked
    }

    async fn remove_outputs(&self, proof: &NotLanded, paths: &[String]) -> Result<()> {
        self.table.remove_outputs(proof, paths).await
    }
}
