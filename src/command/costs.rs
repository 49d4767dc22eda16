//! `costs`: what rewrites cost and saved, a table and month, from the journal.

use std::collections::{BTreeMap, HashMap};

use crate::act::{JobState, Journal, Kind, Query};
use crate::app::App;
use crate::cli::args::Costs;
use crate::cli::{Exit, show};
use crate::decide::cost::{Done, months};
use crate::model::ident::TableIdent;

use super::Failure;

/// Shows every table's months, oldest first.
pub async fn run(app: &App, args: &Costs, json: bool) -> Result<Exit, Failure> {
    let journal = app.journal().await?;
    let jobs = journal.jobs(Query::Latest(u32::MAX)).await?;
    let mut names: HashMap<TableIdent, String> = HashMap::new();
    // newest first: a table goes by its last name
    for job in &jobs {
        names.entry(job.plan.table).or_insert_with(|| job.plan.name.to_string());
    }
    let asked = |name: &str| args.table.as_ref().is_none_or(|t| t.to_string() == name);
    let mut done = Vec::new();
    for job in jobs.iter().filter(|job| job.kind == Kind::Rewrite && job.state.is_final()) {
        let Some(table) = names.get(&job.plan.table).filter(|name| asked(name)) else { continue };
        let numbers = &job.numbers;
        let landed = job.state == JobState::Committed;
        done.push(Done {
            table: table.clone(),
            at_ms: job.changed_ms,
            gb_hours: numbers.gb_hours,
            requests: numbers.requests.all(),
            files: if landed { numbers.files_in.saturating_sub(numbers.files_out) } else { 0 },
        });
    }
    let mut kept: BTreeMap<String, u64> = BTreeMap::new();
    for bytes in journal.kept().await? {
        if let Some(name) = names.get(&bytes.table).filter(|name| asked(name)) {
            let sum = kept.entry(name.clone()).or_default();
            *sum = sum.saturating_add(bytes.bytes);
        }
    }
    let prices = &app.settings.prices;
    let rows = months(&done, &kept, prices, app.clock.now_ms());
    let rows: Vec<show::CostRow> = rows.iter().map(|((table, month), row)| show::CostRow::of(table, *month, row, prices)).collect();
    show::print(&show::costs(&rows, prices, json))?;
    Ok(Exit::Done)
}
