//! `backlog`.

use serde::Serialize;

use super::super::human;
use super::{json_lines, table};
use crate::model::ident::MAIN;
use crate::proto::v1;

#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
enum Line<'a> {
    Backlog(Row<'a>),
    Candidate(Candidate<'a>),
}

/// What waits of a tenant, for programs.
#[derive(Serialize)]
struct Row<'a> {
    tenant: Option<&'a str>,
    act: bool,
    candidates: u64,
    urgent: u64,
    review: u64,
    oldest_ms: i64,
    files: u64,
    bytes: u64,
    gb_hours: f64,
    bytes_per_hour: f64,
    drain_seconds: Option<f64>,
    cost: Option<f64>,
    currency: Option<&'a str>,
    available_gb_hours: Option<f64>,
}

#[derive(Serialize)]
struct Candidate<'a> {
    table: &'a str,
    branch: &'a str,
    partition: &'a str,
    tenant: Option<&'a str>,
    urgent: bool,
    score: f64,
    gain: u64,
    gb_hours: f64,
    on_front: bool,
    chosen: bool,
    waits_for: &'a str,
}

fn some(text: &str) -> Option<&str> {
    Some(text).filter(|t| !t.is_empty())
}

/// The backlog by tenant, then the best candidates, as tables or as JSON lines. Rows of
/// which nothing waits are left out of the table, but for what is carried out.
pub fn backlog(backlog: &v1::GetBacklogResponse, candidates: &[v1::Candidate], json: bool) -> String {
    if json {
        let rows = backlog.rows.iter().map(|r| Line::Backlog(row(r, some(&backlog.currency))));
        return json_lines(&rows.chain(candidates.iter().map(|c| Line::Candidate(candidate(c)))).collect::<Vec<_>>());
    }
    let headings = [
        "tenant",
        "what",
        "candidates",
        "urgent",
        "for review",
        "oldest",
        "files fewer",
        "bytes",
        "estimate",
        "drains in",
        "cost",
        "budget",
    ];
    let shown = backlog.rows.iter().filter(|r| r.candidates > 0 || r.review > 0 || r.act && !r.tenant.is_empty());
    let mut text = format!("the budget holds {}", human::gb_hours(backlog.available_gb_hours));
    let rows: Vec<Vec<String>> = shown.map(|r| cells(r, &backlog.currency)).collect();
    if rows.is_empty() {
        return format!("{text}\nnothing waits");
    }
    text.push('\n');
    text.push_str(&table(&headings, headings.get(2..).unwrap_or_default(), rows));
    if !candidates.is_empty() {
        text.push('\n');
        text.push_str(&ranked(candidates));
    }
    text
}

fn ranked(candidates: &[v1::Candidate]) -> String {
    let row = |c: &v1::Candidate| {
        let label = c.partition.as_ref().map_or("all", |p| p.label.as_str());
        vec![
            human::on(&c.table, &c.r#ref),
            label.to_owned(),
            if c.urgent { "trigger".to_owned() } else { format!("{:.3}", c.score) },
            human::count(c.gain),
            human::gb_hours(c.gb_hours),
            match (c.chosen, c.on_front) {
                (true, _) => "chosen",
                (false, true) => "front",
                (false, false) => "",
            }
            .to_owned(),
            c.waits_for.clone(),
        ]
    };
    let headings = ["table", "partition", "score", "files fewer", "estimate", "pareto", "waits for"];
    table(&headings, &["score", "files fewer", "estimate"], candidates.iter().map(row))
}

fn cells(row: &v1::BacklogRow, currency: &str) -> Vec<String> {
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    vec![
        or_dash(some(&row.tenant).map(str::to_owned)),
        if row.act { "carried out" } else { "only advised" }.to_owned(),
        human::count(row.candidates),
        human::count(row.urgent),
        human::count(row.review),
        or_dash((row.candidates > 0).then(|| human::seconds(row.oldest_ms as f64 / 1000.0))),
        human::count(row.files),
        human::bytes(row.bytes),
        human::gb_hours(row.gb_hours),
        row.drain_seconds.map_or_else(|| "not told".to_owned(), human::seconds),
        or_dash(some(currency).map(|currency| format!("{:.2} {currency}", row.cost))),
        or_dash(row.available_gb_hours.map(human::gb_hours)),
    ]
}

fn row<'a>(row: &'a v1::BacklogRow, currency: Option<&'a str>) -> Row<'a> {
    Row {
        tenant: some(&row.tenant),
        act: row.act,
        candidates: row.candidates,
        urgent: row.urgent,
        review: row.review,
        oldest_ms: row.oldest_ms,
        files: row.files,
        bytes: row.bytes,
        gb_hours: row.gb_hours,
        bytes_per_hour: row.bytes_per_hour,
        drain_seconds: row.drain_seconds,
        cost: currency.map(|_| row.cost),
        currency,
        available_gb_hours: row.available_gb_hours,
    }
}

fn candidate(c: &v1::Candidate) -> Candidate<'_> {
    Candidate {
        table: &c.table,
        branch: if c.r#ref.is_empty() { MAIN } else { &c.r#ref },
        partition: c.partition.as_ref().map_or("all", |p| p.label.as_str()),
        tenant: some(&c.tenant),
        urgent: c.urgent,
        score: c.score,
        gain: c.gain,
        gb_hours: c.gb_hours,
        on_front: c.on_front,
        chosen: c.chosen,
        waits_for: &c.waits_for,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told() -> (v1::GetBacklogResponse, v1::Candidate) {
        let row = v1::BacklogRow {
            tenant: "sales".into(),
            act: true,
            candidates: 1200,
            urgent: 3,
            review: 1,
            oldest_ms: 65_000,
            files: 5000,
            bytes: 1 << 30,
            gb_hours: 0.25,
            bytes_per_hour: 1.0,
            drain_seconds: Some(7200.0),
            cost: 1.5,
            available_gb_hours: Some(0.5),
        };
        let nobodys = v1::BacklogRow { tenant: String::new(), act: true, ..v1::BacklogRow::default() };
        let candidate =
            v1::Candidate { table: "lake.db.t".into(), score: 0.25, gain: 7, gb_hours: 0.5, on_front: true, ..v1::Candidate::default() };
        (v1::GetBacklogResponse { rows: vec![row, nobodys], available_gb_hours: 2.0, currency: "EUR".into() }, candidate)
    }

    fn cells(line: &str) -> Vec<&str> {
        line.split("  ").map(str::trim).filter(|c| !c.is_empty()).collect()
    }

    #[test]
    fn a_backlog_tells_how_much_waits_for_how_long_and_when_it_is_done() {
        let (told, candidate) = told();
        let chosen = v1::Candidate { chosen: true, ..candidate.clone() };
        let text = backlog(&told, &[candidate, chosen], false);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "the budget holds 2.00 GB-h");
        let row = [
            "sales",
            "carried out",
            "1 200",
            "3",
            "1",
            "1 min 05 s",
            "5 000",
            "1.0 GiB",
            "0.25 GB-h",
            "2 h 00 min",
            "1.50 EUR",
            "0.50 GB-h",
        ];
        assert!(lines.iter().any(|line| cells(line) == row), "{text}");
        assert!(lines.iter().any(|line| cells(line) == ["lake.db.t", "all", "0.250", "7", "0.50 GB-h", "front"]), "{text}");
        assert!(lines.iter().any(|line| cells(line) == ["lake.db.t", "all", "0.250", "7", "0.50 GB-h", "chosen"]), "{text}");
        let empty = v1::GetBacklogResponse { rows: vec![], ..told };
        assert_eq!(backlog(&empty, &[], false), "the budget holds 2.00 GB-h\nnothing waits");
    }

    #[test]
    fn for_programs_it_is_one_object_a_share_then_one_a_candidate() {
        let (told, candidate) = told();
        let lines: Vec<serde_json::Value> =
            backlog(&told, &[candidate], true).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 3);
        assert_eq!((&lines[0]["kind"], &lines[0]["cost"], &lines[0]["drain_seconds"]), (&"backlog".into(), &1.5.into(), &7200.0.into()));
        assert_eq!((&lines[1]["tenant"], &lines[1]["drain_seconds"]), (&serde_json::Value::Null, &serde_json::Value::Null));
        assert_eq!((&lines[2]["kind"], &lines[2]["on_front"]), (&"candidate".into(), &true.into()));
    }
}
