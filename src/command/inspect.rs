//! `inspect`: a table's layout, computed from scratch.

use crate::app::App;
use crate::cli::args::Inspect;
use crate::cli::{Exit, show};
use crate::lake::Table;
use crate::model::policy::Policy;
use crate::orient::history::Heard;
use crate::orient::state::TableState;
use crate::orient::traits;
use crate::serve::backend::{PartitionRow, TableLayout};

use super::{Failure, load, policy, scopes};

/// Shows every partition.
pub async fn run(app: &App, args: &Inspect, json: bool) -> Result<Exit, Failure> {
    let table = load(app, &args.branch.table, &args.branch.reference).await?;
    let view = table.view();
    let policy = policy(app, &args.branch.table, &view.properties);
    let now_ms = app.clock.now_ms();
    let state = state(table.as_ref(), &policy, now_ms).await?;
    let layout = TableLayout {
        table: view.name.clone(),
        uuid: view.ident.uuid,
        reference: view.reference.clone(),
        snapshot_id: view.head,
        looked_at_ms: now_ms,
        format_version: view.format_version,
        target_file_size: policy.scale.target,
        partitions: state.layout.partitions().len() as u64,
        traits: traits::table_traits(&state, &policy.cost, now_ms),
        refused: view.refused.clone(),
        act: policy.act,
    };
    let row = |key: &crate::model::partition::PartitionKey| {
        let traits = traits::traits(&state, key, &policy.cost, now_ms)?;
        Some(PartitionRow { partition: key.clone(), label: view.partition_name(key), traits })
    };
    let rows: Vec<PartitionRow> = state.layout.partitions().keys().filter_map(|key| row(&key)).collect();
    let text = match (json, args.traits) {
        (true, _) => show::inspect_json(&layout, &rows),
        (false, false) => show::inspect(&layout, &rows),
        (false, true) => format!("{}\n\n{}", show::inspect(&layout, &rows), show::traits(&layout.traits)),
    };
    show::print(&text)?;
    Ok(if view.refused.is_empty() { Exit::Done } else { Exit::Refused })
}

/// The state of a table that was never heard of before.
pub async fn state(table: &dyn Table, policy: &Policy, now_ms: i64) -> Result<TableState, Failure> {
    let layout = scopes::layout(table, policy).await?;
    let last_sequence_number = table.view().last_sequence_number;
    Ok(TableState { layout, heard: Heard::nothing(now_ms), counted: imbl::OrdMap::new(), last_sequence_number })
}
