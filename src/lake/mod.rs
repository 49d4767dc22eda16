//! Ports to the lake, and their adapters: tables in a format, clock, chance.

pub mod asserted;
pub mod clock;
pub mod error;
pub mod iceberg;

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;

pub use error::Error;

use crate::model::file::{Entry, ManifestRef};
use crate::model::ident::TableName;
use crate::model::killpoint::KillPoint;
use crate::model::outcome::{Outcome, Resolution};
use crate::model::partition::PartitionKey;
use crate::model::plan::{AttemptId, Path, Plan, ScopeFiles};
use crate::model::requests::Requests;
use crate::model::table::TableView;

/// The result of a call into the lake.
pub type Result<T> = std::result::Result<T, Error>;

/// A catalog's row: which metadata a name points at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pointer {
    /// The name.
    pub name: TableName,
    /// The current metadata location.
    pub metadata_location: String,
}

/// All tables of one table format, over every configured catalog.
#[async_trait]
pub trait Format: Send + Sync {
    /// The names of the configured catalogs.
    fn catalogs(&self) -> Vec<String>;

    /// Every table of a catalog with its pointer, in one cheap request.
    async fn list(&self, catalog: &str) -> Result<Vec<Pointer>>;

    /// Loads a table fresh from its catalog. `None` when no table has the name.
    async fn load(&self, name: &TableName, reference: &str) -> Result<Option<Arc<dyn Table>>>;

    /// Loads a table fresh for a look: its view, manifest lists and manifests can
    /// be read, everything else is an error. Formats do it cheaper than
    /// [`Format::load`] where they can.
    async fn glance(&self, name: &TableName, reference: &str) -> Result<Option<Arc<dyn Table>>> {
        self.load(name, reference).await
    }

    /// As [`Format::glance`], unless the table still stands at the metadata location
    /// `known`: then nothing of it is read, where the format can tell so.
    async fn glance_since(&self, name: &TableName, reference: &str, _known: Option<&str>) -> Result<Glanced<Arc<dyn Table>>> {
        Ok(self.glance(name, reference).await?.map_or(Glanced::Gone, Glanced::At))
    }
}

/// What a look at a table found.
pub enum Glanced<T> {
    /// No table of the name.
    Gone,
    /// The table as it was known.
    Same,
    /// The table as it is.
    At(T),
}

impl<T> Glanced<T> {
    /// The same of something else.
    pub fn map<U>(self, to: impl FnOnce(T) -> U) -> Glanced<U> {
        match self {
            Self::Gone => Glanced::Gone,
            Self::Same => Glanced::Same,
            Self::At(table) => Glanced::At(to(table)),
        }
    }
}

/// One table, loaded at one moment; nothing in it changes afterwards.
#[async_trait]
pub trait Table: Send + Sync {
    /// Its metadata, reduced.
    fn view(&self) -> &TableView;

    /// The same load, seen from another branch; one that is not there, and a name that is a
    /// tag's, is a refusal in the view. `None` where the format has no branches.
    fn on(&self, _branch: &str) -> Option<Arc<dyn Table>> {
        None
    }

    /// The manifest list of a snapshot.
    async fn manifests(&self, snapshot_id: i64) -> Result<Vec<ManifestRef>>;

    /// A manifest's entries, projected, all statuses. Snapshot ids are inherited.
    async fn entries(&self, manifest: &ManifestRef) -> Result<Vec<Entry>>;

    /// The exact files of a partition at the head, with the deletes that apply
    /// to each by the specification's scope rules.
    async fn scope(&self, scope: &PartitionKey) -> Result<ScopeFiles>;

    /// As [`Table::scope`] for several partitions, in their order; manifests that
    /// they share are read once where the format can.
    async fn scopes(&self, scopes: &[PartitionKey]) -> Result<Vec<ScopeFiles>> {
        let mut files = Vec::with_capacity(scopes.len());
        for scope in scopes {
            files.push(self.scope(scope).await?);
        }
        Ok(files)
    }

    /// Errs as a rewrite of the plan and its commit would, as far as that can be told
    /// without reading a row or writing a file: from the metadata, the store's free
    /// space, the footers of the inputs and deletes, their stated sizes, and the
    /// manifests that the commit would change. What it does not find may still be
    /// found by the rewrite.
    async fn foresee(&self, _plan: &Plan) -> Result<()> {
        Ok(())
    }

    /// Writes the outputs of a plan. Inputs are never touched. Every path is
    /// told to `control` before its file is begun.
    async fn rewrite(&self, plan: &Plan, attempt: &AttemptId, control: &dyn Control) -> Result<Written>;

    /// Proves from the rows read back that the outputs hold the rows of the
    /// inputs less the deleted ones. Independent of the code that wrote them.
    async fn verify(&self, plan: &Plan, written: &Written) -> Result<Proof>;

    /// One attempt to replace the inputs by the outputs, on this state of the
    /// table as base. Validates first that every input is live and unchanged and
    /// that the deletes that apply to the inputs are exactly the plan's. Deletes that
    /// came since may be made deletes of the outputs in the same commit, where the
    /// format can do so with proof; `control` is told of how many rows.
    ///
    /// A crash before the catalog is asked leaves files that `control` was told
    /// of; a crash after it is resolved by [`Table::find_attempt`] on a fresh load.
    async fn commit(&self, plan: &Plan, written: &Written, commit: &Commit<'_>) -> Result<Outcome>;

    /// As [`Table::commit`] for several rewrites of different partitions, in one snapshot
    /// that carries the ids of all; an answer for each, in their order.
    ///
    /// Each is validated by itself, and falls out by itself: with a conflict, or an
    /// error. Those that are left share one question to the catalog, of which each of
    /// their controls is told before it is put, and its outcome. An error before that is
    /// [`Error::Unreachable`] to each of them, since it may be due to another.
    async fn commit_joined(&self, members: &[Member<'_>], commit: &Commit<'_>) -> Vec<Result<Outcome>> {
        let mut told = Vec::with_capacity(members.len());
        for member in members {
            told.push(match told.is_empty() {
                true => {
                    self.commit(member.plan, member.written, &Commit { attempt: member.attempt, control: member.control, ..*commit }).await
                }
                false => Err(Error::unreachable("a commit with others", anyhow::anyhow!("the format does not join commits"))),
            });
        }
        told
    }

    /// The metadata locations before the current one that the table still knows,
    /// oldest first; empty where the format does not tell.
    fn history(&self) -> Vec<String> {
        Vec::new()
    }

    /// Looks for an attempt in this state of the table. `asserted` is what the
    /// attempt's commit depended on, as [`Control::will_commit`] was told.
    fn find_attempt(&self, attempt: &AttemptId, asserted: &str) -> Resolution;

    /// As [`Table::find_attempt`], and where this state of the table leaves it open, by
    /// what its earlier states still show.
    ///
    /// # Errors
    /// When they cannot be read now: nothing is known.
    async fn trace_attempt(&self, attempt: &AttemptId, asserted: &str) -> Result<Resolution> {
        Ok(self.find_attempt(attempt, asserted))
    }

    /// Shuts out every commit request that asserted this metadata location and was
    /// sent before: `true` when the table stands there and none of them can land
    /// any more, which proves that none has. `false` where there is no means.
    ///
    /// # Errors
    /// When it is not known to be done: nothing is proven.
    async fn fence(&self, _asserted: &str) -> Result<bool> {
        Ok(false)
    }

    /// What this table asked of object stores since it was loaded, by whatever was done
    /// with it.
    fn requests(&self) -> Requests {
        Requests::default()
    }

    /// Rolls the branch back from our replace snapshot, while it is the head, to
    /// its parent.
    async fn undo(&self, snapshot_id: i64, commit: &Commit<'_>) -> Result<Outcome>;

    /// Sets and removes properties of the table, and changes nothing else of it.
    ///
    /// # Errors
    /// When it was not asked for, and, where the format has no properties, always.
    async fn mark(&self, _set: &BTreeMap<String, String>, _remove: &[String], _control: &dyn Control) -> Result<Marked> {
        Err(Error::Setup("the format keeps no properties of tables".into()))
    }

    /// Removes files of an attempt that is proven not to have landed. Missing
    /// files are no error. Refuses a path outside the table's location.
    async fn remove_outputs(&self, proof: &NotLanded, paths: &[String]) -> Result<()>;
}

/// What became of [`Table::mark`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Marked {
    /// The properties are as asked.
    Landed,
    /// Proven not done: the table moved.
    Moved,
    /// Proven not done, for a reason that a retry does not mend.
    Rejected {
        /// The reason.
        reason: String,
    },
    /// It may be done, now or later.
    Unknown {
        /// What was seen.
        reason: String,
    },
}

/// Proof that an attempt's files are in no table: only a proven failure makes
/// one, and nothing else lets a file be removed.
#[derive(Debug)]
pub struct NotLanded {
    attempt: AttemptId,
}

impl NotLanded {
    /// From a commit that was answered with a proven failure; `None` otherwise.
    pub fn from_outcome(attempt: &AttemptId, outcome: &Outcome) -> Option<Self> {
        matches!(outcome, Outcome::Conflict(_) | Outcome::Rejected { .. }).then(|| Self { attempt: attempt.clone() })
    }

    /// From a look at the table that proves it; `None` otherwise.
    pub fn from_resolution(attempt: &AttemptId, resolution: &Resolution) -> Option<Self> {
        (*resolution == Resolution::NotLanded).then(|| Self { attempt: attempt.clone() })
    }

    /// From a journal that shows that the catalog was never asked.
    pub fn never_asked(attempt: &AttemptId) -> Self {
        Self { attempt: attempt.clone() }
    }

    /// The attempt.
    pub fn attempt(&self) -> &AttemptId {
        &self.attempt
    }
}

/// Who commits, and how it is watched.
pub struct Commit<'a> {
    /// The attempt's id, written into the snapshot summary.
    pub attempt: &'a AttemptId,
    /// This process' lasting id, written into the snapshot summary.
    pub instance: &'a str,
    /// The attempt's control.
    pub control: &'a dyn Control,
    /// Wall clock in milliseconds since the epoch, for the snapshot's time.
    pub now_ms: i64,
    /// A random number for ids and file names.
    pub nonce: u64,
}

/// A rewrite whose snapshot others share.
#[derive(Clone, Copy)]
pub struct Member<'a> {
    /// What it replaces.
    pub plan: &'a Plan,
    /// By what.
    pub written: &'a Written,
    /// Its attempt's id.
    pub attempt: &'a AttemptId,
    /// Its attempt's control.
    pub control: &'a dyn Control,
}

/// How an attempt is watched and stopped.
#[async_trait]
pub trait Control: Send + Sync {
    /// A file is about to be begun: journaled before this returns.
    async fn will_write(&self, path: &str) -> Result<()>;

    /// The catalog is about to be asked for a commit that depends on this: the text
    /// of an [`asserted::Asserted`], for most catalogs the metadata location that is
    /// to be swapped. Journaled before this returns.
    async fn will_commit(&self, asserted: &str) -> Result<()>;

    /// Errs when the job must stop: cancelled, or its bound is reached. Asked
    /// at least once a row batch or row group.
    fn check(&self) -> Result<()>;

    /// Rows and bytes read since the last call, for progress.
    fn progress(&self, rows: u64, bytes: u64);

    /// The commit under way carries over so many deleted rows: see [`Table::commit`].
    fn carries(&self, _rows: u64) {}

    /// A named place was passed.
    fn reached(&self, point: KillPoint);
}

/// One file that a rewrite made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// Path as the metadata will spell it.
    pub path: String,
    /// Size in bytes.
    pub bytes: u64,
    /// Rows.
    pub records: u64,
}

/// What a rewrite made.
pub struct Written {
    /// The path taken.
    pub path: Path,
    /// Why that path: the finding that decided it.
    pub path_reason: String,
    /// The outputs, in row order; empty when every row was deleted.
    pub outputs: Vec<Output>,
    /// Rows read, deleted ones included.
    pub rows_in: u64,
    /// Rows deleted by the plan's deletes.
    pub rows_deleted: u64,
    /// Bytes read from the store.
    pub bytes_read: u64,
    /// The format's own detail, from `rewrite` to `verify` and `commit`.
    pub detail: Arc<dyn Any + Send + Sync>,
}

/// What the proof found equal.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Proof {
    /// Rows of the inputs that live.
    pub rows: u64,
    /// Columns whose null counts were compared with the inputs' manifests.
    pub null_counts: usize,
    /// Columns whose ordered hashes were compared.
    pub columns: usize,
    /// Ordered hash over all columns, in hexadecimal.
    pub hash: String,
}
