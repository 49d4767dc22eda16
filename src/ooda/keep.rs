//! What partitions remember, kept in the journal over a restart.

use std::sync::Arc;

use crate::act::journal::Blob;
use crate::act::{Journal, Numbers};
use crate::decide::ScopeMemory;
use crate::decide::budget::Budget;
use crate::decide::learn::{Fleet, Learned, OfTable, Subject};
use crate::model::estimate::{Estimate, QUANTITIES};
use crate::model::ident::{MAIN, TableIdent, TableName, beside_main};
use crate::model::partition::PartitionKey;
use crate::model::plan::Plan;
use crate::orient::{Absorbed, How};
use crate::telemetry;

use super::Loop;
use super::book::{Begun, KeptTold};

/// The journal's kind of it.
const MEMORY: &str = "scope-memory";
/// The journal's kind of what jobs have shown of our estimates, and the key of what
/// all of them have.
const ESTIMATES: &str = "estimates";
const FLEET: &str = "fleet";
/// The journal's kind of what others told of a table.
const TOLD: &str = "told";
/// The version of their encodings.
const VERSION: u32 = 2;
/// That of what partitions remember.
const MEMORY_VERSION: u32 = 2;

type Memories = Vec<(PartitionKey, ScopeMemory)>;

impl Loop {
    /// The budget as jobs of this journal have left it, those of processes that are
    /// gone and of commands too.
    pub(super) async fn read_spent(&self) {
        let now_ms = self.now();
        let budgets = &self.parts.settings.budgets;
        let since_ms = now_ms.saturating_sub(Budget::remembers_ms(&budgets.overall));
        let budget = match self.parts.act.journal().spent(since_ms).await {
            Ok(spent) => {
                self.know_by_hand(&spent, now_ms);
                let spendings: Vec<_> = spent.iter().map(|spent| self.spending(spent)).collect();
                for done in spendings.iter().filter(|s| s.used.commits > 0) {
                    self.rewrote(done.tenant.as_ref(), done.used.bytes, done.at_ms);
                }
                Budget::after(budgets, since_ms, &spendings, now_ms)
            }
            Err(error) => {
                tracing::warn!(%error, "what was spent before cannot be read: the budgets begin empty");
                self.know_by_hand(&[], now_ms);
                Budget::after(budgets, now_ms, &[], now_ms)
            }
        };
        *self.budget() = budget;
    }

    /// Keeps what the partitions of a table remember.
    pub(super) async fn keep_memory(&self, begun: &Begun) {
        let key = memory_key(begun.table, &begun.scope.branch);
        // in turn, so that what was remembered last is what is kept
        let _turn = self.saving.lock().await;
        let mut memories: Option<Memories> = None;
        self.with_page(begun, |page| memories = page.restored.then(|| page.memories()));
        let Some(memories) = memories else { return };
        let kept = match postcard::to_stdvec(&memories) {
            Ok(bytes) => {
                let blob = Blob { version: MEMORY_VERSION, bytes };
                self.parts.act.journal().put_blob(MEMORY, &key, &blob).await.map_err(|e| e.to_string())
            }
            Err(error) => Err(error.to_string()),
        };
        if let Err(error) = kept {
            tracing::warn!(table = %begun.scope.name, %error, "what the partitions remember is not kept over a restart");
        }
    }

    /// What the partitions of a branch remembered before a restart. When the
    /// journal does not answer, the next look asks again.
    pub(super) async fn restore(&self, name: &TableName, ident: TableIdent, branch: &str, absorbed: &Absorbed) {
        if self.book().page_mut(name, branch, ident).is_none_or(|page| page.restored) {
            return;
        }
        let memories = match remembered(self.parts.act.journal().as_ref(), &memory_key(ident, branch)).await {
            Ok(memories) => memories,
            Err(error) => {
                tracing::warn!(table = %name, %error, "what the partitions remembered cannot be read");
                return;
            }
        };
        let own = self.kept_value::<OfTable>(ESTIMATES, &ident.to_string()).await;
        let own = own.unwrap_or_else(|error| {
            tracing::warn!(table = %name, error, "what the table's jobs have shown of the estimates cannot be read: it is learned anew");
            None
        });
        let told = self.kept_value::<KeptTold>(TOLD, &ident.to_string()).await.unwrap_or_else(|error| {
            tracing::warn!(table = %name, error, "what others told of the table cannot be read: it holds once it is told again");
            None
        });
        let now_ms = self.now();
        let mut book = self.book();
        if let Some(own) = own {
            book.learned.restore(ident, own);
        }
        if let Some(told) = told {
            book.restore_told(name, told, now_ms);
        }
        let Some(page) = book.page_mut(name, branch, ident) else { return };
        page.restored = true;
        let first = !page.judged;
        let layout = &absorbed.state.layout;
        let global = layout.global_deletes().files > 0;
        for (scope, memory) in memories {
            if layout.partition(&scope).is_none() || page.memory(&scope) != ScopeMemory::default() {
                continue;
            }
            // deletes that came meanwhile may apply where none did
            let same = first && !absorbed.touched.contains(&scope) && !(global && absorbed.how != How::Unchanged);
            page.remember(&scope, if same { memory } else { memory.after_new_delete() });
        }
    }

    /// What jobs before have shown of our estimates, over all tables.
    pub(super) async fn read_learned(&self) {
        match self.kept_value::<Fleet>(ESTIMATES, FLEET).await {
            Ok(Some(fleet)) => self.book().learned = Learned::of_fleet(fleet),
            Ok(None) => {}
            Err(error) => tracing::warn!(error, "what jobs have shown of the estimates cannot be read: it is learned anew"),
        }
    }

    /// A job has ended: what it did beside what was expected of it.
    pub(super) async fn compare(&self, plan: &Plan, engine: &Arc<str>, estimate: &Estimate, numbers: &Numbers) {
        let _turn = self.saving.lock().await;
        let (fleet, own) = {
            let learned = &mut self.book().learned;
            learned.learn(Subject { table: plan.table, engine, bytes: plan.input_bytes() }, estimate, &numbers.figures());
            (learned.fleet().clone(), learned.table(plan.table).cloned().unwrap_or_default())
        };
        for (quantity, name) in QUANTITIES.into_iter().enumerate() {
            if let Some(error) = fleet.error(quantity) {
                telemetry::estimate_error(name, error);
            }
        }
        let kept = async {
            self.keep_value(ESTIMATES, FLEET, &fleet).await?;
            self.keep_value(ESTIMATES, &plan.table.to_string(), &own).await
        };
        if let Err(error) = kept.await {
            tracing::warn!(table = %plan.name, error, "what a job has shown of the estimates is not kept over a restart");
        }
    }

    /// Keeps what others told of tables since it was kept last.
    ///
    /// # Errors
    /// When the journal does not take it; what is left is kept the next time.
    pub async fn keep_told(&self) -> Result<(), String> {
        let _turn = self.saving.lock().await;
        let changed = self.book().take_told();
        let mut failed = Ok(());
        for (name, ident, told) in changed {
            let key = ident.to_string();
            let kept = match told.is_empty() {
                true => self.parts.act.journal().drop_blob(TOLD, &key).await.map_err(|e| e.to_string()),
                false => self.keep_value(TOLD, &key, &told).await,
            };
            if kept.is_err() {
                self.book().told_is_not_kept(name);
                failed = kept;
            }
        }
        failed
    }

    async fn keep_value<T: serde::Serialize>(&self, kind: &str, key: &str, value: &T) -> Result<(), String> {
        let blob = Blob { version: VERSION, bytes: postcard::to_stdvec(value).map_err(|e| e.to_string())? };
        self.parts.act.journal().put_blob(kind, key, &blob).await.map_err(|e| e.to_string())
    }

    /// `None` for one that is not there, and for one of another version.
    async fn kept_value<T: serde::de::DeserializeOwned>(&self, kind: &str, key: &str) -> Result<Option<T>, String> {
        let blob = self.parts.act.journal().blob(kind, key).await.map_err(|e| e.to_string())?;
        let known = blob.filter(|blob| blob.version == VERSION);
        known.map(|blob| postcard::from_bytes(&blob.bytes).map_err(|e| e.to_string())).transpose()
    }

    /// A table is gone.
    pub(super) async fn forget_memory(&self, ident: TableIdent) {
        self.book().learned.forget(ident);
        if let Err(error) = self.parts.act.journal().drop_blob(ESTIMATES, &ident.to_string()).await {
            tracing::warn!(table = %ident, %error, "what a dropped table's jobs have shown stays");
        }
        if let Err(error) = self.parts.act.journal().drop_blob(TOLD, &ident.to_string()).await {
            tracing::warn!(table = %ident, %error, "what others told of a dropped table stays");
        }
        self.forget_branch_memory(ident, MAIN).await;
    }

    /// A branch is gone.
    pub(super) async fn forget_branch_memory(&self, ident: TableIdent, branch: &str) {
        if let Err(error) = self.parts.act.journal().drop_blob(MEMORY, &memory_key(ident, branch)).await {
            tracing::warn!(table = %ident, branch, %error, "what a dropped table's partitions remembered stays");
        }
    }
}

/// The journal's key of what the partitions of a branch remember.
fn memory_key(ident: TableIdent, branch: &str) -> String {
    beside_main(branch).map_or_else(|| ident.to_string(), |branch| format!("{ident}@{branch}"))
}

async fn remembered(journal: &dyn Journal, key: &str) -> Result<Memories, String> {
    match journal.blob(MEMORY, key).await {
        Ok(Some(blob)) if blob.version == MEMORY_VERSION => postcard::from_bytes(&blob.bytes).map_err(|e| e.to_string()).or_else(|error| {
            tracing::warn!(table = key, error, "what the partitions remembered is damaged and forgotten");
            Ok(Memories::new())
        }),
        Ok(_) => Ok(Memories::new()),
        Err(error) => Err(error.to_string()),
    }
}
