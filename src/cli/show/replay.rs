//! `replay` and `tune`.

use std::collections::BTreeSet;

use serde::Serialize;

use super::super::human;
use super::{json_lines, table};
use crate::replay::exact::Exact;
use crate::replay::totals::Totals;

/// Sums with their heading.
#[derive(Clone, Debug, Serialize)]
pub struct Column {
    /// Of what.
    pub name: String,
    /// The sums.
    #[serde(flatten)]
    pub totals: Totals,
}

/// Whether decisions came out as they were, with what was done.
pub fn exact(exact: &Exact, columns: &[Column], currency: &str, json: bool) -> String {
    if json {
        #[derive(Serialize)]
        struct Line<'a> {
            kind: &'static str,
            #[serde(flatten)]
            exact: &'a Exact,
        }
        return format!("{}\n{}", json_lines(&[Line { kind: "exact", exact }]), totals(columns, currency, true));
    }
    let made = format!(
        "{}, {} and {} made again: {}",
        human::some(exact.decisions, "decision"),
        human::some(exact.rounds, "round"),
        human::some(exact.asks, "budget question"),
        match exact.differing {
            0 => "all came out as recorded".to_owned(),
            some => format!("{some} came out otherwise"),
        }
    );
    let differences = exact.differences.iter().map(|line| format!("\n  {}", human::safe(line)));
    let told: String = std::iter::once(made).chain(differences).collect();
    format!("{told}\n{}", totals(columns, currency, false))
}

/// Sums beside each other, as a table or as JSON lines. Without a currency no money is told.
pub fn totals(columns: &[Column], currency: &str, json: bool) -> String {
    if json {
        #[derive(Serialize)]
        struct Line<'a> {
            kind: &'static str,
            #[serde(flatten)]
            column: &'a Column,
        }
        return json_lines(&columns.iter().map(|column| Line { kind: "totals", column }).collect::<Vec<_>>());
    }
    let names: Vec<&str> = columns.iter().map(|c| c.name.as_str()).collect();
    let headings: Vec<&str> = std::iter::once("").chain(names.iter().copied()).collect();
    type Cell = fn(&Totals) -> String;
    let mut kinds: Vec<(&str, Cell)> = vec![
        ("hours", |t| human::number(t.hours)),
        ("jobs", |t| human::count(t.jobs)),
        ("jobs lost", |t| human::count(t.lost)),
        ("files fewer (ΔF)", |t| human::count(t.files_dropped)),
        ("deletes applied", |t| human::count(t.deletes_applied)),
        ("bytes rewritten", |t| human::bytes(t.bytes)),
        ("GB-hours", |t| human::gb_hours(t.gb_hours)),
        ("of the budget", |t| format!("{:.1} %", t.budget_used * 100.0)),
        ("mean live files", |t| format!("{:.1}", t.mean_files)),
        ("live files at the end", |t| human::count(t.files_at_end)),
        ("mean live delete files", |t| format!("{:.1}", t.mean_delete_files)),
    ];
    if !currency.is_empty() && columns.iter().any(|c| c.totals.cost > 0.0) {
        kinds.push(("cost", |t| format!("{:.2}", t.cost)));
    }
    let mut rows: Vec<Vec<String>> = kinds
        .iter()
        .map(|(name, cell)| std::iter::once((*name).to_owned()).chain(columns.iter().map(|c| cell(&c.totals))).collect())
        .collect();
    let verdicts: BTreeSet<&String> = columns.iter().flat_map(|c| c.totals.decisions.keys()).collect();
    rows.extend(verdicts.into_iter().map(|verdict| {
        let count = |c: &Column| human::count(c.totals.decisions.get(verdict).copied().unwrap_or(0));
        std::iter::once(format!("decided {verdict}")).chain(columns.iter().map(count)).collect()
    }));
    table(&headings, &names, rows)
}
