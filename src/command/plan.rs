//! `plan`: what `compact` would rewrite.

use crate::app::App;
use crate::cli::args;
use crate::cli::show::PlanRow;
use crate::cli::{Exit, show};
use crate::lake::Error;
use crate::model::refusal::Refused;

use super::scopes::{Found, foresee, scopes};
use super::{Failure, exit_of, load, policy, told};

/// Shows what `compact` would rewrite, and what it would refuse to.
pub async fn run(app: &App, args: &args::Plan, json: bool) -> Result<Exit, Failure> {
    let table = load(app, &args.branch.table, &args.branch.reference).await?;
    let policy = policy(app, &args.branch.table, &table.view().properties);
    let scopes = scopes(app, table.as_ref(), &policy, args.partition.as_deref()).await?;
    let foreseen = foresee(table.as_ref(), &scopes).await;
    let (mut rows, mut exit) = (Vec::new(), Exit::Done);
    for (scoped, stops) in scopes.iter().zip(&foreseen) {
        let blank = PlanRow {
            table: table.view().name.to_string(),
            branch: table.view().reference.clone(),
            partition: scoped.label.clone(),
            spec_id: scoped.spec_id,
            snapshot_id: table.view().head.map(|id| id.to_string()),
            ..PlanRow::default()
        };
        match &scoped.found {
            Found::Plans(plans) => {
                for (plan, stop) in plans.iter().zip(stops) {
                    let (row, of_row) = planned(PlanRow::planned(plan, &scoped.label, "rewrite"), stop.as_ref());
                    exit = exit.max(of_row);
                    rows.push(row);
                }
            }
            Found::Nothing => rows.push(PlanRow { verdict: "leave".into(), reason: "nothing-to-gain".into(), ..blank }),
            Found::Refused(refused) => {
                exit = exit.max(Exit::Refused);
                rows.push(left(blank, refused));
            }
            Found::Failed(error) => {
                exit = exit.max(exit_of(error));
                rows.push(failed(blank, error));
            }
        }
    }
    show::print(&show::plans(&rows, json))?;
    Ok(exit)
}

/// A plan's row with what is known to stop it, and how a command exits for it.
fn planned(row: PlanRow, stop: Option<&Error>) -> (PlanRow, Exit) {
    match stop {
        None => (row, Exit::Done),
        Some(Error::Refused(refused)) => (left(row, refused), Exit::Refused),
        Some(error) => (failed(row, error), exit_of(error)),
    }
}

fn left(row: PlanRow, refused: &Refused) -> PlanRow {
    PlanRow { verdict: "refused".into(), reason: refused.refusal.code().into(), detail: refused.told(), ..row }
}

fn failed(row: PlanRow, error: &Error) -> PlanRow {
    PlanRow { verdict: "failed".into(), reason: "error".into(), detail: told(error), ..row }
}
