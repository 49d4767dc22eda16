//! `costs`.

use serde::Serialize;

use super::super::human;
use super::{json_lines, table};
use crate::decide::cost::{Month, Row};
use crate::model::economy::Prices;

/// A table's month; money is `None` without prices.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CostRow {
    /// `catalog.namespace.table`.
    pub table: String,
    /// `2026-01`.
    pub month: String,
    /// Jobs that ended.
    pub jobs: u64,
    /// GB-hours spent.
    pub gb_hours: f64,
    /// Requests to object stores.
    pub requests: u64,
    /// What both cost.
    pub spent: Option<f64>,
    /// What scans saved.
    pub saved: Option<f64>,
    /// Bytes of replaced files that are kept alive now.
    pub kept_bytes: u64,
    /// What they cost a month.
    pub kept_a_month: Option<f64>,
    /// Of the money.
    pub currency: Option<String>,
}

impl CostRow {
    /// A row of the sums.
    pub fn of(table: &str, month: Month, row: &Row, prices: &Prices) -> Self {
        let money = |value: f64| (!prices.is_free()).then_some(value);
        Self {
            table: table.to_owned(),
            month: month.to_string(),
            jobs: row.jobs,
            gb_hours: row.gb_hours,
            requests: row.requests,
            spent: money(row.spent),
            saved: row.saved.and_then(money),
            kept_bytes: row.kept_bytes,
            kept_a_month: money(row.kept_a_month),
            currency: (!prices.is_free()).then(|| prices.currency.clone()),
        }
    }
}

/// Months of tables, as a table or as JSON lines.
pub fn costs(rows: &[CostRow], prices: &Prices, json: bool) -> String {
    if json {
        return json_lines(rows);
    }
    if rows.is_empty() {
        return "no jobs".to_owned();
    }
    let money = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.2}"));
    let row = |r: &CostRow| {
        vec![
            r.table.clone(),
            r.month.clone(),
            human::count(r.jobs),
            human::gb_hours(r.gb_hours),
            human::count(r.requests),
            money(r.spent),
            money(r.saved),
            human::bytes(r.kept_bytes),
            money(r.kept_a_month),
        ]
    };
    let headings = ["table", "month", "jobs", "compute", "requests", "spent", "saved", "kept alive", "kept a month"];
    let text = table(&headings, headings.get(2..).unwrap_or_default(), rows.iter().map(row));
    let note = match (prices.is_free(), prices.scans_per_hour > 0.0) {
        (true, _) => "no [prices] are set: nothing is told in money".to_owned(),
        (false, true) => {
            format!("in {}; saved: requests of {} scans of each table an hour", prices.currency, human::number(prices.scans_per_hour))
        }
        (false, false) => format!("in {}; what is saved is told with prices.scans_per_hour", prices.currency),
    };
    format!("{text}\n{note}")
}
