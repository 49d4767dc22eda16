//! `plan`: what `compact` would rewrite.

use crate::app::App;
use crate::cli::args;
use crate::cli::show::PlanRow;
use crate::cli::{Exit, show};

use super::scopes::{Found, scopes};
use super::{Failure, exit_of, load, policy, told};

/// Shows what `compact` would rewrite.
pub async fn run(app: &App, args: &args::Plan, json: bool) -> Result<Exit, Failure> {
    let table = load(app, &args.branch.table, &args.branch.reference).await?;
    let policy = policy(app, &args.branch.table, &table.view().properties);
    let mut rows = Vec::new();
    let mut exit = Exit::Done;
    for scoped in scopes(app, table.as_ref(), &policy, args.partition.as_deref()).await? {
        let blank = |verdict: &str, reason: &str, detail: String| PlanRow {
            table: table.view().name.to_string(),
            partition: scoped.label.clone(),
            spec_id: scoped.spec_id,
            snapshot_id: table.view().head.map(|id| id.to_string()),
            verdict: verdict.to_owned(),
            reason: reason.to_owned(),
            detail,
            ..PlanRow::default()
        };
        match &scoped.found {
            Found::Plans(plans) => rows.extend(plans.iter().map(|p| PlanRow::planned(p, &scoped.label, "rewrite"))),
            Found::Nothing => rows.push(blank("leave", "nothing-to-gain", String::new())),
            Found::Refused(refused) => {
                exit = exit.max(Exit::Refused);
                rows.push(blank("refused", refused.refusal.code(), refused.told()));
            }
            Found::Failed(error) => {
                exit = exit.max(exit_of(error));
                rows.push(blank("failed", "error", told(error)));
            }
        }
    }
    show::print(&show::plans(&rows, json))?;
    Ok(exit)
}
