//! `doors`.

use serde::Serialize;

use super::super::human;
use super::{json_lines, table};
use crate::proto::v1;

/// A source for programs. Moments and ages are in milliseconds.
#[derive(Serialize)]
struct Row<'a> {
    door: &'a str,
    source: &'a str,
    received: u64,
    accepted: u64,
    duplicate: u64,
    ignored: u64,
    parked: u64,
    dropped: u64,
    lag: Option<u64>,
    staleness_ms: Option<i64>,
    heard_ms: Option<i64>,
    state: Option<&'a str>,
    problem: Option<&'a str>,
    examples: Vec<Example<'a>>,
}

#[derive(Serialize)]
struct Example<'a> {
    at_ms: i64,
    place: &'a str,
    reason: &'a str,
}

/// Sources as a table, with what is wrong below it, or as JSON lines.
pub fn doors(doors: &[v1::Door], json: bool) -> String {
    if json {
        return json_lines(&doors.iter().map(row).collect::<Vec<_>>());
    }
    if doors.is_empty() {
        return "nothing was heard yet".to_owned();
    }
    let headings =
        ["door", "source", "received", "accepted", "duplicate", "ignored", "parked", "dropped", "lag", "staleness", "last heard", "state"];
    let numbers = ["received", "accepted", "duplicate", "ignored", "parked", "dropped", "lag", "staleness"];
    let mut text = table(&headings, &numbers, doors.iter().map(cells));
    for door in doors {
        let name = if door.source.is_empty() { door.door.clone() } else { format!("{} {}", door.door, door.source) };
        if !door.problem.is_empty() {
            text.push('\n');
            text.push_str(&human::safe(&format!("{name}: {}", door.problem)));
        }
        if let Some(last) = door.examples.first() {
            let place = if last.place.is_empty() { String::new() } else { format!(" {}", last.place) };
            text.push('\n');
            text.push_str(&human::safe(&format!("{name}: last without a look{place} at {}: {}", human::moment(last.at_ms), last.reason)));
        }
    }
    text
}

fn cells(door: &v1::Door) -> Vec<String> {
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let mut cells = vec![door.door.clone(), door.source.clone()];
    cells.extend([door.received, door.accepted, door.duplicate, door.ignored, door.parked, door.dropped].map(human::count));
    cells.push(or_dash(door.lag.map(human::count)));
    cells.push(or_dash(door.staleness_ms.map(|ms| format!("{:.1} s", ms as f64 / 1000.0))));
    cells.push(door.heard_ms.map_or_else(|| "never".to_owned(), human::moment));
    cells.push(or_dash(Some(door.state.clone()).filter(|s| !s.is_empty())));
    cells
}

fn row(door: &v1::Door) -> Row<'_> {
    Row {
        door: &door.door,
        source: &door.source,
        received: door.received,
        accepted: door.accepted,
        duplicate: door.duplicate,
        ignored: door.ignored,
        parked: door.parked,
        dropped: door.dropped,
        lag: door.lag,
        staleness_ms: door.staleness_ms,
        heard_ms: door.heard_ms,
        state: Some(door.state.as_str()).filter(|s| !s.is_empty()),
        problem: Some(door.problem.as_str()).filter(|p| !p.is_empty()),
        examples: door.examples.iter().map(|e| Example { at_ms: e.at_ms, place: &e.place, reason: &e.reason }).collect(),
    }
}
