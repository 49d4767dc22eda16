//! What position deletes name, kept between the plans of a process.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use super::targets;
use crate::lake::Result;
use crate::lake::iceberg::store::Store;
use crate::lake::iceberg::table::IcebergTable;
use crate::model::ident::TableIdent;

/// Bytes that are kept at the most.
const MOST_BYTES: usize = 16 << 20;
/// Bytes of an entry beside its texts.
const ENTRY: usize = 64;

/// The data files that a position delete names, as it spells them.
pub type Named = Arc<BTreeSet<Arc<str>>>;

/// What was read of position deletes before, of any table. A file does not change
/// under its path, so it holds; one that could not be read is read again. When it
/// is full, it begins anew.
#[derive(Default)]
pub struct Known(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    named: HashMap<(TableIdent, Arc<str>), Named>,
    bytes: usize,
}

impl Known {
    fn get(&self, table: TableIdent, delete: &Arc<str>) -> Option<Named> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).named.get(&(table, Arc::clone(delete))).cloned()
    }

    fn keep(&self, table: TableIdent, delete: &Arc<str>, named: &Named, most: usize) {
        let bytes = named.iter().chain([delete]).map(|path| path.len().saturating_add(ENTRY)).fold(0, usize::saturating_add);
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.bytes.saturating_add(bytes) > most {
            *kept = Kept::default();
        }
        if bytes <= most && kept.named.insert((table, Arc::clone(delete)), Arc::clone(named)).is_none() {
            kept.bytes = kept.bytes.saturating_add(bytes);
        }
    }
}

/// Reads what the position deletes of a table name.
pub struct Names<'a> {
    store: Store,
    table: TableIdent,
    known: &'a Known,
}

impl<'a> Names<'a> {
    /// Those of a table.
    pub fn of(table: &'a IcebergTable) -> Self {
        Self { store: Store::new(&table.loaded.io), table: table.view.ident, known: &table.named }
    }

    /// Reads a delete file.
    ///
    /// # Errors
    /// As [`targets::read`].
    pub async fn read(&self, delete: &Arc<str>) -> Result<Named> {
        let named = Arc::new(targets::read(&self.store, delete).await?);
        self.known.keep(self.table, delete, &named, MOST_BYTES);
        Ok(named)
    }

    /// The same, without a read where it was read before.
    ///
    /// # Errors
    /// As [`targets::read`].
    pub async fn look_up(&self, delete: &Arc<str>) -> Result<Named> {
        match self.known.get(self.table, delete) {
            Some(named) => Ok(named),
            None => self.read(delete).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn what_is_kept_is_of_one_table_and_within_a_bound() {
        let known = Known::default();
        let [one, other] = [1, 2].map(|n| TableIdent::iceberg(Uuid::from_u128(n)));
        let [first, second]: [Arc<str>; 2] = ["d1".into(), "d2".into()];
        let named: Named = Arc::new(["f".into()].into());
        // two entries of 2 + 64 and 1 + 64 bytes
        (0..2).for_each(|_| known.keep(one, &first, &named, 131));
        assert_eq!((known.get(one, &first), known.get(other, &first)), (Some(Arc::clone(&named)), None));
        known.keep(one, &second, &named, 131);
        assert_eq!((known.get(one, &first), known.get(one, &second)), (None, Some(Arc::clone(&named))));
        // larger than all that may be kept
        known.keep(one, &first, &named, 130);
        assert_eq!(known.get(one, &first), None);
    }
}
