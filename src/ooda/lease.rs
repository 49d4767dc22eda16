//! Leases on tables: whoever is at something of its own there (a backfill, another
//! optimizer, maintenance inside a sink) has it left alone for a while.

use serde::{Deserialize, Serialize};

use crate::act::Journal;
use crate::act::journal::{Blob, Error, Result};
use crate::model::ident::TableName;
use crate::model::writers::Hold;

/// The journal's kind of it, its only key, and the version of its encoding.
const KIND: &str = "leases";
const KEY: &str = "tables";
const VERSION: u32 = 1;
/// Leases kept.
const MOST: usize = 10_000;

/// The longest time of a lease, in milliseconds: one that nobody renews must end.
pub const LONGEST_MS: i64 = 7 * 24 * 3_600_000;

/// A table that is held.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// The table, by the name that was given.
    pub table: TableName,
    /// Who holds it, and until when.
    pub hold: Hold,
}

/// All of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Leases(Vec<Lease>);

impl Leases {
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
        let bytes = serde_json::to_vec(&self.0).map_err(|e| Error::Unreadable { id: KIND.into(), why: e.to_string() })?;
        Ok(Some(Blob { version: VERSION, bytes }))
    }

    /// Takes or renews a lease: the holder's one of the table, in place of its former.
    /// Those that are over go. No other change that is made meanwhile is lost.
    ///
    /// # Errors
    /// When the journal cannot be used, or holds too many leases.
    pub async fn take(journal: &dyn Journal, lease: Lease, now_ms: i64) -> Result<()> {
        let until_ms = lease.hold.until_ms.min(now_ms.saturating_add(LONGEST_MS));
        let lease = Lease { hold: Hold { until_ms, ..lease.hold }, ..lease };
        let take = |before: Option<&Blob>| {
            let mut all = Self::parse(before)?;
            all.0.retain(|l| l.hold.until_ms > now_ms && (&l.table, &l.hold.by) != (&lease.table, &lease.hold.by));
            if all.0.len() >= MOST {
                return Err(Error::Unreadable { id: KIND.into(), why: format!("{MOST} tables are held already; release some") });
            }
            all.0.push(lease.clone());
            all.blob()
        };
        journal.change_blob(KIND, KEY, &take).await.map(drop)
    }

    /// Gives leases on a table back: those of one holder, or all. Returns those that
    /// were not over.
    ///
    /// # Errors
    /// When the journal cannot be used.
    pub async fn release(journal: &dyn Journal, table: &TableName, by: Option<&str>, now_ms: i64) -> Result<Vec<Lease>> {
        let goes = |l: &Lease| l.table == *table && by.is_none_or(|by| by == l.hold.by);
        let release = |before: Option<&Blob>| {
            let mut all = Self::parse(before)?;
            all.0.retain(|l| l.hold.until_ms > now_ms && !goes(l));
            all.blob()
        };
        let before = journal.change_blob(KIND, KEY, &release).await?;
        Ok(Self::parse(before.as_ref())?.0.into_iter().filter(|l| goes(l) && l.hold.until_ms > now_ms).collect())
    }

    /// The lease on a table that lasts longest.
    pub fn longest(&self, table: &TableName, now_ms: i64) -> Option<&Hold> {
        self.of(table, now_ms).map(|lease| &lease.hold).max_by_key(|hold| hold.until_ms)
    }

    /// Every lease on a table that is not over.
    pub fn of(&self, table: &TableName, now_ms: i64) -> impl Iterator<Item = &Lease> {
        self.0.iter().filter(move |l| l.table == *table && l.hold.until_ms > now_ms)
    }

    /// The tables whose leases differ.
    pub fn differing<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = &'a TableName> {
        let only = |these: &'a Self, those: &'a Self| these.0.iter().filter(|l| !those.0.contains(l)).map(|l| &l.table);
        only(self, other).chain(only(other, self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::act::MemoryJournal;

    fn lease(table: &str, by: &str, until_ms: i64) -> Lease {
        Lease { table: TableName::new("lake", "db", table), hold: Hold { by: by.into(), until_ms } }
    }

    #[tokio::test]
    async fn a_table_is_held_until_the_last_lease_is_over_or_given_back() {
        let journal = MemoryJournal::default();
        for held in [lease("t", "backfill", 100), lease("t", "optimizer", 300), lease("u", "backfill", 200)] {
            Leases::take(&journal, held, 0).await.unwrap();
        }
        let leases = Leases::read(&journal).await.unwrap();
        let t = TableName::new("lake", "db", "t");
        let longest = |leases: &Leases, now_ms: i64| leases.longest(&t, now_ms).map(|hold| (hold.by.clone(), hold.until_ms));
        assert_eq!(longest(&leases, 99), Some(("optimizer".into(), 300)));
        assert_eq!((longest(&leases, 300), leases.of(&t, 0).count(), leases.of(&t, 100).count()), (None, 2, 1));

        assert_eq!(Leases::release(&journal, &t, Some("nobody"), 0).await.unwrap(), []);
        assert_eq!(Leases::release(&journal, &t, Some("optimizer"), 0).await.unwrap(), [lease("t", "optimizer", 300)]);
        let now = Leases::read(&journal).await.unwrap();
        assert_eq!(longest(&now, 0), Some(("backfill".into(), 100)));
        assert_eq!(now.differing(&leases).collect::<Vec<_>>(), [&t]);
        assert_eq!(Leases::release(&journal, &t, None, 150).await.unwrap(), []);
        assert_eq!(Leases::read(&journal).await.unwrap().0, [lease("u", "backfill", 200)]);
    }

    #[tokio::test]
    async fn a_lease_is_renewed_in_place_and_never_lasts_for_ever() {
        let journal = MemoryJournal::default();
        Leases::take(&journal, lease("t", "backfill", 100), 0).await.unwrap();
        Leases::take(&journal, lease("t", "backfill", i64::MAX), 50).await.unwrap();
        assert_eq!(Leases::read(&journal).await.unwrap().0, [lease("t", "backfill", 50 + LONGEST_MS)]);
    }
}
