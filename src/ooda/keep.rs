//! What partitions remember, kept in the journal over a restart.

use crate::act::Journal;
use crate::act::journal::Blob;
use crate::decide::ScopeMemory;
use crate::decide::budget::Budget;
use crate::model::ident::{TableIdent, TableName};
use crate::model::partition::PartitionKey;
use crate::orient::{Absorbed, How};

use super::Loop;
use super::book::Begun;

/// The journal's kind of it.
const MEMORY: &str = "scope-memory";
/// The version of its encoding.
const VERSION: u32 = 1;

type Memories = Vec<(PartitionKey, ScopeMemory)>;

impl Loop {
    /// The budget as jobs of this journal have left it, those of processes that are
    /// gone and of commands too.
    pub(super) async fn read_spent(&self) {
        let now_ms = self.now();
        let since_ms = now_ms.saturating_sub(Budget::remembers_ms(&self.limits));
        let budget = match self.parts.act.journal().spent(since_ms).await {
            Ok(spent) => Budget::after(&self.limits, since_ms, &spent, now_ms),
            Err(error) => {
                tracing::warn!(%error, "what was spent before cannot be read: the budget begins empty");
                Budget::after(&self.limits, now_ms, &[], now_ms)
            }
        };
        *self.budget() = budget;
    }

    /// Keeps what the partitions of a table remember.
    pub(super) async fn keep_memory(&self, begun: &Begun) {
        // in turn, so that what was remembered last is what is kept
        let _turn = self.saving.lock().await;
        let mut memories: Option<Memories> = None;
        self.with_page(begun, |page| memories = page.restored.then(|| page.memories()));
        let Some(memories) = memories else { return };
        let kept = match postcard::to_stdvec(&memories) {
            Ok(bytes) => {
                let blob = Blob { version: VERSION, bytes };
                self.parts.act.journal().put_blob(MEMORY, &begun.table.to_string(), &blob).await.map_err(|e| e.to_string())
            }
            Err(error) => Err(error.to_string()),
        };
        if let Err(error) = kept {
            tracing::warn!(table = %begun.scope.name, %error, "what the partitions remember is not kept over a restart");
        }
    }

    /// What the partitions of a table remembered before a restart. When the
    /// journal does not answer, the next look asks again.
    pub(super) async fn restore(&self, name: &TableName, ident: TableIdent, absorbed: &Absorbed) {
        if self.book().page_mut(name, ident).is_none_or(|page| page.restored) {
            return;
        }
        let memories = match remembered(self.parts.act.journal().as_ref(), ident).await {
            Ok(memories) => memories,
            Err(error) => {
                tracing::warn!(table = %name, %error, "what the partitions remembered cannot be read");
                return;
            }
        };
        let mut book = self.book();
        let Some(page) = book.page_mut(name, ident) else { return };
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

    /// A table is gone.
    pub(super) async fn forget_memory(&self, ident: TableIdent) {
        if let Err(error) = self.parts.act.journal().drop_blob(MEMORY, &ident.to_string()).await {
            tracing::warn!(table = %ident, %error, "what a dropped table's partitions remembered stays");
        }
    }
}

async fn remembered(journal: &dyn Journal, ident: TableIdent) -> Result<Memories, String> {
    match journal.blob(MEMORY, &ident.to_string()).await {
        Ok(Some(blob)) if blob.version == VERSION => postcard::from_bytes(&blob.bytes).map_err(|e| e.to_string()).or_else(|error| {
            tracing::warn!(table = %ident, error, "what the partitions remembered is damaged and forgotten");
            Ok(Memories::new())
        }),
        Ok(_) => Ok(Memories::new()),
        Err(error) => Err(error.to_string()),
    }
}
