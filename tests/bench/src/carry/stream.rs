//! A writer that changes one row in each of its commits.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use afterwrite::lake::iceberg::table::IcebergTable;
use anyhow::Context;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use iceberg::spec::DataContentType;

use super::mixed;
use crate::fixture::oracle::{self, Live};
use crate::fixture::{File, Table, files, lineage, row};

/// How rows are changed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A position delete.
    Positions,
    /// An equality delete of a key, and its row anew, as Flink upserts.
    Upserts,
    /// A deletion vector in place of the one that the file has, as format 3 asks for.
    Vectors,
}

impl Kind {
    pub const ALL: [Self; 3] = [Self::Positions, Self::Upserts, Self::Vectors];

    /// What tells its figures from the others'.
    pub fn suffix(self) -> &'static str {
        match self {
            Self::Positions => "",
            Self::Upserts => "_upserts",
            Self::Vectors => "_vectors",
        }
    }
}

/// Field id of the key.
const ID: i32 = 1;
/// How the text of a row begins that was written anew: no text of the load does.
const NEW: &str = "new";

pub struct Stream {
    table: Table,
    kind: Kind,
    /// Keys of the load: all below.
    rows: i64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    changed: BTreeSet<i64>,
    appended: HashSet<String>,
    /// Keys by data file, in file order: files never change.
    keys: HashMap<String, Arc<Vec<i64>>>,
}

impl Stream {
    pub fn new(table: Table, kind: Kind, rows: i64) -> Self {
        Self { table, kind, rows, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Before anything is compacted. Vectors are of format 3, whose first commit gives the
    /// rows their ids.
    pub async fn begin(&self) -> anyhow::Result<()> {
        if self.kind == Kind::Vectors {
            self.table.upgrade().await;
            self.commit().await?;
        }
        Ok(())
    }

    /// Whether a file is one that this writer appended.
    pub fn appended(&self, path: &str) -> bool {
        self.state().appended.contains(path)
    }

    pub fn is_new(text: &str) -> bool {
        text.starts_with(NEW)
    }

    /// Every key that must be there, and whether its row was written anew, in order.
    pub fn expected(&self) -> Vec<(i64, bool)> {
        let (state, anew) = (self.state(), self.kind == Kind::Upserts);
        (0..self.rows).map(|key| (key, state.changed.contains(&key))).filter(|(_, changed)| anew || !changed).collect()
    }

    /// Changes a row that was not changed yet, in one commit.
    pub async fn commit(&self) -> anyhow::Result<()> {
        let key = {
            let mut state = self.state();
            let next = i64::try_from(state.changed.len())?;
            let mut tried = (next..).map(|n| (mixed(n) % self.rows.unsigned_abs()) as i64);
            let key = tried.find(|key| !state.changed.contains(key)).context("a row to change")?;
            state.changed.insert(key);
            key
        };
        if self.kind == Kind::Upserts {
            let change = self.table.change().delete_equal(&["id"], [row(key, "", 0)]).append([row(key, NEW, 0)]);
            let made = change.commit().await;
            self.state().appended.extend(made.data.into_iter().map(|file| file.path));
            return Ok(());
        }
        let table = self.table.load().await;
        let live = oracle::live(&table).await;
        let (file, at) = self.find(&table, &live, key).await?;
        if self.kind == Kind::Positions {
            self.table.change().delete_positions(&[(&file, at)]).commit().await;
            return Ok(());
        }
        let (mut gone, mut change) = (BTreeSet::from([u64::try_from(at)?]), self.table.change());
        if let Some(old) = live.iter().find(|live| live.file.referenced_data_file().as_deref() == Some(&file.path)) {
            gone.extend(lineage::positions(&table.loaded.io, &old.file).await);
            change = change.remove(&[&described(old)]);
        }
        let gone: Vec<u64> = gone.into_iter().collect();
        for vector in self.table.vectors(&[(&file, &gone)]).await {
            change = change.add_delete(vector);
        }
        change.commit().await;
        Ok(())
    }

    /// The live data file that holds a key which is not deleted, and where in it.
    async fn find(&self, table: &IcebergTable, live: &[Live], key: i64) -> anyhow::Result<(File, i64)> {
        for data in live.iter().filter(|live| live.file.content_type() == DataContentType::Data) {
            if let Some(at) = self.keys(table, data.file.file_path()).await.iter().position(|found| *found == key) {
                return Ok((described(data), i64::try_from(at)?));
            }
        }
        anyhow::bail!("no live file holds {key}")
    }

    async fn keys(&self, table: &IcebergTable, path: &str) -> Arc<Vec<i64>> {
        if let Some(known) = self.state().keys.get(path) {
            return Arc::clone(known);
        }
        let columns = oracle::read(table, path).await.into_iter().filter_map(|batch| oracle::column(&batch, ID));
        let keys: Vec<i64> = columns.flat_map(|ids| ids.as_primitive::<Int64Type>().values().to_vec()).collect();
        let keys = Arc::new(keys);
        self.state().keys.insert(path.into(), Arc::clone(&keys));
        keys
    }
}

fn described(live: &Live) -> File {
    files::file(live.file.file_path().into(), live.file.clone(), live.spec_id)
}
