//! Properties of a table, changed by themselves.

use std::collections::{BTreeMap, HashMap};

use iceberg::{TableRequirement, TableUpdate};

use super::asked::Asked;
use crate::lake::iceberg::catalog::Answer;
use crate::lake::iceberg::table::IcebergTable;
use crate::lake::{Control, Marked, Result};

/// Sets and removes properties in one commit that adds no snapshot.
///
/// Invariant checked: the table is the one that was loaded. Where the catalog swaps a
/// pointer it also stands as it was loaded; where it compares heads, another commit may
/// come in between, and what is written meanwhile under other keys stays.
///
/// Crash: the swap is atomic; what it leaves before is a metadata file that `control`
/// was told of.
///
/// # Errors
/// Only when the catalog was not asked.
pub async fn mark(table: &IcebergTable, set: &BTreeMap<String, String>, remove: &[String], control: &dyn Control) -> Result<Marked> {
    let mut updates = Vec::new();
    if !remove.is_empty() {
        updates.push(TableUpdate::RemoveProperties { removals: remove.to_vec() });
    }
    if !set.is_empty() {
        let updated: HashMap<String, String> = set.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
        updates.push(TableUpdate::SetProperties { updates: updated });
    }
    let requirements = vec![TableRequirement::UuidMatch { uuid: table.loaded.metadata.uuid() }];
    let control = Asked::new(control);
    let answer = table.catalog.commit(&table.loaded, requirements, updates, &control).await;
    Ok(match control.answer(answer)? {
        Answer::Landed(_) => Marked::Landed,
        Answer::Moved => Marked::Moved,
        Answer::Rejected(reason) => Marked::Rejected { reason },
        Answer::Unknown(reason) => Marked::Unknown { reason },
    })
}
