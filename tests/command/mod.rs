//! The binary as its users call it: what it prints, and how it exits.

mod branches;
mod ending;
mod holding;
mod json;
mod live;
mod refusals;
mod replaying;
mod serving;
mod settings;
mod tables;

use serde_json::Value;

use crate::fixture::process::Place;
use crate::fixture::{Table, row};

const NAME: &str = "lake.ns.t";

/// The names in a JSON object, in their order.
fn keys(object: &Value) -> Vec<&str> {
    object.as_object().unwrap().keys().map(String::as_str).collect()
}

/// A table with partitions 7 (three files, one with deletes) and 8 (one file).
async fn small(place: &Place) -> Table {
    let table = Table::partitioned_by_p().in_sqlite(place.path()).create().await;
    let first = table.append([row(1, "a", 7), row(2, "b", 7)]).await;
    table.append([row(3, "c", 7)]).await;
    table.append([row(4, "d", 7)]).await;
    table.append([row(5, "e", 8)]).await;
    table.change().delete_positions(&[(&first, 0)]).commit().await;
    table
}
