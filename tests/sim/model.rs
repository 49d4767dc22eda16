//! What the rows of a table must be: plain rows, changed by what writers do to them,
//! without files. A rewrite changes none.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use afterwrite::model::partition::PartitionKey;

use crate::fixture::Cell;

/// A row. `u` is its own and lasts as long as it does.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    pub u: i64,
    pub cells: BTreeMap<i32, Cell>,
    pub scope: PartitionKey,
}

impl Row {
    pub fn cell(&self, id: i32) -> &Cell {
        self.cells.get(&id).unwrap_or(&Cell::Null)
    }

    /// Its cells by the columns of a schema.
    pub fn line(&self, ids: &[i32]) -> String {
        ids.iter().map(|id| text(self.cell(*id))).collect::<Vec<_>>().join("|")
    }
}

pub fn text(cell: &Cell) -> String {
    match cell {
        Cell::Null => "NULL".into(),
        Cell::Int(v) => v.to_string(),
        Cell::Text(v) => v.clone(),
    }
}

/// The rows of one snapshot; shared by all that have the same.
#[derive(Clone, Debug, Default)]
pub struct Model(Arc<Vec<Arc<Row>>>);

impl Model {
    pub fn rows(&self) -> &[Arc<Row>] {
        &self.0
    }

    /// Whether both have the same rows.
    pub fn is_same(&self, other: &Self) -> bool {
        let own = |rows: &Self| rows.0.iter().map(|row| row.u).collect::<BTreeSet<_>>();
        Arc::ptr_eq(&self.0, &other.0) || (self.0.len() == other.0.len() && own(self) == own(other))
    }

    #[must_use]
    pub fn with(&self, rows: impl IntoIterator<Item = Row>) -> Self {
        Self(Arc::new(self.0.iter().cloned().chain(rows.into_iter().map(Arc::new)).collect()))
    }

    #[must_use]
    pub fn without(&self, gone: impl Fn(&Row) -> bool) -> Self {
        Self(Arc::new(self.0.iter().filter(|row| !gone(row)).cloned().collect()))
    }

    /// An equality delete: rows that were there before it, with these values in
    /// these columns, in this partition or, from an unpartitioned spec, anywhere.
    #[must_use]
    pub fn equal(&self, columns: &[i32], keys: &[Row], scope: &PartitionKey, global: bool) -> Self {
        let hit = |row: &Row| keys.iter().any(|key| columns.iter().all(|id| row.cell(*id) == key.cell(*id)));
        self.without(|row| (global || row.scope == *scope) && hit(row))
    }
}
