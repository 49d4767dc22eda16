//! Answers as tables for people and as JSON lines for programs. Pure: data in,
//! text out. Ids are strings in JSON, so that no reader rounds them.

mod backlog;
mod costs;
mod decisions;
mod doors;
mod jobs;
mod layout;
mod replay;
mod traits;
mod work;

use std::io::{self, Write};

use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;

pub use backlog::backlog;
pub use costs::{CostRow, costs};
pub use decisions::{decisions, decisions_json, watched};
pub use doors::doors;
pub use jobs::{JobRow, jobs};
pub use layout::{inspect, inspect_json};
pub use replay::{Column, exact, totals};
pub use traits::{traits, traits_of};
pub use work::{CompactJob, CompactRow, PlanRow, compacts, plans};

use super::human;

/// A table with these headings; columns named in `numbers` are set to the right.
fn table(headings: &[&str], numbers: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_preset(presets::UTF8_HORIZONTAL_ONLY).set_header(headings.iter().copied());
    for row in rows {
        table.add_row(row.iter().map(|cell| human::safe(cell)));
    }
    for (at, heading) in headings.iter().enumerate() {
        if let Some(column) = table.column_mut(at).filter(|_| numbers.contains(heading)) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.trim_fmt()
}

/// One JSON object a line.
pub fn json_lines<T: Serialize>(rows: &[T]) -> String {
    let lines: Vec<String> = rows.iter().filter_map(|row| serde_json::to_string(row).ok()).collect();
    lines.join("\n")
}

/// Prints a text and a line end to standard output; nothing for no text, so that
/// no rows are no lines. A reader that has gone
/// (`| head`) is no error.
///
/// # Errors
/// When standard output cannot be written for another reason.
pub fn print(text: &str) -> io::Result<()> {
    if text.is_empty() {
        return Ok(());
    }
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.write_all(b"\n")).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        done => done,
    }
}

/// As [`print()`]: whether anybody reads on.
pub fn say(text: &str) -> bool {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.write_all(b"\n")).and_then(|()| out.flush()).is_ok()
}

#[cfg(test)]
mod tests;
