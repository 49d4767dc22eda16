//! Partitions that `undo` took back: the loop keeps them as they are until a writer
//! changes them, so that it does not do again what somebody has just undone.

use serde::{Deserialize, Serialize};

use crate::act::Journal;
use crate::act::journal::{Blob, Error, Result};
use crate::model::ident::{MAIN, TableIdent};
use crate::model::layout::{PartitionLayout, Tally};
use crate::model::partition::PartitionKey;

/// The journal's kind of it, its only key, and the version of its encoding.
const KIND: &str = "undone";
const KEY: &str = "partitions";
const VERSION: u32 = 1;

/// A partition as an undo left it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    /// The table.
    pub table: TableIdent,
    /// Its name at the time.
    pub name: String,
    /// The branch.
    #[serde(default = "main", skip_serializing_if = "is_main")]
    pub branch: String,
    /// The partition.
    pub partition: PartitionKey,
    /// Its name.
    pub label: String,
    /// What it held then; `None` while the undo is under way, or when that could not
    /// be read: it is kept whatever it holds.
    pub left: Option<Left>,
}

fn main() -> String {
    MAIN.to_owned()
}

fn is_main(branch: &String) -> bool {
    branch == MAIN
}

/// What a partition holds, by its kinds of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Left {
    data: (u64, u64, u64),
    position_deletes: (u64, u64, u64),
    equality_deletes: (u64, u64, u64),
    deletion_vectors: (u64, u64, u64),
}

impl Left {
    /// Of a partition.
    pub fn of(layout: &PartitionLayout) -> Self {
        let sums = |t: &Tally| (t.files, t.bytes, t.records);
        Self {
            data: sums(&layout.data),
            position_deletes: sums(&layout.position_deletes),
            equality_deletes: sums(&layout.equality_deletes),
            deletion_vectors: sums(&layout.deletion_vectors),
        }
    }
}

impl Hold {
    /// Whether both are of the same partition of a branch.
    pub fn is_of(&self, other: &Self) -> bool {
        (self.table, &self.branch, &self.partition) == (other.table, &other.branch, &other.partition)
    }
}

/// All of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holds(Vec<Hold>);

impl Holds {
    /// As the journal has them.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn read(journal: &dyn Journal) -> Result<Self> {
        Self::parse(journal.blob(KIND, KEY).await?.as_ref())
    }

    fn parse(blob: Option<&Blob>) -> Result<Self> {
        let Some(blob) = blob.filter(|blob| blob.version == VERSION) else { return Ok(Self::default()) };
        serde_json::from_slice(&blob.bytes).map(Self).map_err(|e| Error::Unreadable { id: KIND.into(), why: e.to_string() })
    }

    fn blob(&self) -> Result<Option<Blob>> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let bytes = serde_json::to_vec(&self.0).map_err(|e| Error::Unreadable { id: KIND.into(), why: e.to_string() })?;
        Ok(Some(Blob { version: VERSION, bytes }))
    }

    /// Keeps a partition, in place of what was kept of it before; no other change
    /// that is made meanwhile is lost.
    ///
    /// # Errors
    /// When the journal cannot be used.
    pub async fn keep(journal: &dyn Journal, hold: Hold) -> Result<()> {
        let keep = |before: Option<&Blob>| {
            let mut all = Self::parse(before)?;
            all.0.retain(|h| !h.is_of(&hold));
            all.0.push(hold.clone());
            all.blob()
        };
        journal.change_blob(KIND, KEY, &keep).await.map(drop)
    }

    /// Lets the partitions of a table go, on all its branches, or this one alone; gives back
    /// whether there were any.
    ///
    /// # Errors
    /// When the journal cannot be used.
    pub async fn release(journal: &dyn Journal, table: TableIdent, only: Option<&Hold>) -> Result<bool> {
        let goes = |h: &Hold| h.table == table && only.is_none_or(|only| h.is_of(only));
        let release = |before: Option<&Blob>| {
            let mut all = Self::parse(before)?;
            all.0.retain(|h| !goes(h));
            all.blob()
        };
        let before = journal.change_blob(KIND, KEY, &release).await?;
        Ok(Self::parse(before.as_ref())?.0.iter().any(goes))
    }

    /// Every one.
    pub fn iter(&self) -> impl Iterator<Item = &Hold> {
        self.0.iter()
    }

    /// Whether a partition of a branch is kept that holds this now.
    pub fn keeps(&self, table: TableIdent, branch: &str, partition: &PartitionKey, now: Option<&PartitionLayout>) -> bool {
        let same = |left: Left| now.is_some_and(|now| Left::of(now) == left);
        let of = |h: &&Hold| h.table == table && h.branch == branch && h.partition == *partition;
        self.0.iter().find(of).is_some_and(|h| h.left.is_none_or(same))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::act::{MemoryJournal, SqliteJournal};

    fn hold(table: u128, spec_id: i32, left: Option<Left>) -> Hold {
        Hold {
            table: TableIdent::iceberg(uuid::Uuid::from_u128(table)),
            name: "lake.ns.t".into(),
            branch: MAIN.into(),
            partition: PartitionKey::unpartitioned(spec_id),
            label: "all".into(),
            left,
        }
    }

    fn layout(files: u64) -> PartitionLayout {
        PartitionLayout { data: Tally { files, bytes: 10 * files, records: files }, ..PartitionLayout::default() }
    }

    #[tokio::test]
    async fn a_partition_is_kept_until_it_changes_or_is_let_go() {
        let journal = MemoryJournal::default();
        let (one, other) = (hold(1, 0, Some(Left::of(&layout(3)))), hold(1, 7, None));
        Holds::keep(&journal, hold(1, 0, None)).await.unwrap();
        Holds::keep(&journal, one.clone()).await.unwrap();
        Holds::keep(&journal, other.clone()).await.unwrap();
        Holds::keep(&journal, hold(2, 0, None)).await.unwrap();
        let holds = Holds::read(&journal).await.unwrap();
        assert_eq!(holds.iter().count(), 3);
        let keeps = |hold: &Hold, now: Option<&PartitionLayout>| holds.keeps(hold.table, &hold.branch, &hold.partition, now);
        assert_eq!((keeps(&one, Some(&layout(3))), keeps(&one, Some(&layout(4))), keeps(&one, None)), (true, false, false));
        assert_eq!((keeps(&other, Some(&layout(4))), keeps(&hold(3, 0, None), None)), (true, false));

        // on another branch nothing is kept by it
        let elsewhere = Hold { branch: "audit".into(), ..one.clone() };
        assert!(!keeps(&elsewhere, Some(&layout(3))));
        assert!(!Holds::release(&journal, one.table, Some(&elsewhere)).await.unwrap());
        assert!(Holds::release(&journal, one.table, Some(&one)).await.unwrap());
        assert!(!Holds::release(&journal, one.table, Some(&one)).await.unwrap());
        assert!(Holds::release(&journal, one.table, None).await.unwrap());
        assert_eq!(Holds::read(&journal).await.unwrap(), Holds(vec![hold(2, 0, None)]));
        assert!(Holds::release(&journal, hold(2, 0, None).table, None).await.unwrap());
        assert_eq!(Holds::read(&journal).await.unwrap(), Holds::default());
    }

    /// Takes and gives back holds of a table's partitions; every other one stays.
    #[tokio::main(flavor = "current_thread")]
    async fn undo_and_resume(path: &std::path::Path, table: u128) {
        let journal = SqliteJournal::open(path).await.unwrap();
        for spec_id in 0..40 {
            let own = hold(table, spec_id, None);
            Holds::keep(&journal, own.clone()).await.unwrap();
            if spec_id % 2 == 1 {
                assert!(Holds::release(&journal, own.table, Some(&own)).await.unwrap());
            }
        }
    }

    #[test]
    fn of_several_undos_at_a_time_none_is_lost() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal.db");
        std::thread::scope(|scope| {
            for table in 1..=3 {
                let path = &path;
                scope.spawn(move || undo_and_resume(path, table));
            }
        });
        assert_eq!(kept(&path), 3 * 20);
    }

    #[tokio::main(flavor = "current_thread")]
    async fn kept(path: &std::path::Path) -> usize {
        let journal = SqliteJournal::open(path).await.unwrap();
        Holds::read(&journal).await.unwrap().iter().count()
    }
}
