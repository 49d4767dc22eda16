//! The demo's tables: names, keys, properties.

use std::collections::HashMap;

use arrow_array::RecordBatch;

use super::generate::Load;
use crate::model::ident::TableName;

/// The catalog's name, by which its rows are found.
pub const CATALOG: &str = "demo";
/// The namespace of the tables that the sidecar keeps in shape.
pub const WITH: &str = "with_afterwrite";
/// The namespace of the tables that nobody does.
pub const WITHOUT: &str = "without_afterwrite";
/// Both, in the order in which they are compared.
pub const SIDES: [&str; 2] = [WITH, WITHOUT];

/// One table of TPC-H.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// Its name.
    pub name: &'static str,
    /// The column that holds the order's key.
    pub key: &'static str,
    /// The date column by whose month it is partitioned.
    pub month_of: Option<&'static str>,
    /// Its rows in a load.
    pub rows: fn(&Load) -> &RecordBatch,
    /// Target file size at scale 1, in bytes.
    target: f64,
}

/// The tables.
pub const TABLES: [Kind; 2] = [
    Kind { name: "orders", key: "o_orderkey", month_of: None, rows: |load| &load.orders, target: 20e6 },
    Kind { name: "lineitem", key: "l_orderkey", month_of: Some("l_shipdate"), rows: |load| &load.lineitem, target: 2.5e6 },
];

/// No target is below this.
const LEAST_TARGET: f64 = 65_536.0;

impl Kind {
    /// The table's properties. The target file size is scaled like the data, so
    /// that a few megabytes show what many gigabytes do with the usual target.
    pub fn properties(&self, side: &str, scale: f64) -> HashMap<String, String> {
        let target = (self.target * scale).max(LEAST_TARGET) as u64;
        let mut properties = vec![("write.target-file-size-bytes", target.to_string())];
        if side == WITH {
            properties.extend([
                ("afterwrite.enabled", "true".to_owned()),
                ("afterwrite.quiet-window", "0s".to_owned()),
                ("afterwrite.cooldown", "0s".to_owned()),
                ("afterwrite.tier-files", "4".to_owned()),
                ("afterwrite.queue-min-reduction", "2".to_owned()),
            ]);
        }
        properties.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
    }
}

/// A table's full name.
pub fn name(side: &str, table: &str) -> TableName {
    TableName::new(CATALOG, side, table)
}
