//! The partitions of a table, each with what a request would do with it.

use std::sync::Arc;

use futures::stream::{self, StreamExt};

use crate::app::App;
use crate::cli::Exit;
use crate::cli::progress::Progress;
use crate::decide::plan::{Cause, Order, plans};
use crate::lake::{self, Table};
use crate::model::decision::Reason;
use crate::model::layout::Tally;
use crate::model::partition::PartitionKey;
use crate::model::plan::{Plan, ScopeFiles};
use crate::model::policy::Policy;
use crate::model::refusal::Refused;
use crate::orient::rebuild::recompute_watched;
use crate::orient::state::TableLayout;
use crate::serve::backend::names;

use super::Failure;

/// Partitions whose files are read together.
const TOGETHER: usize = 64;

/// One partition.
pub struct Scoped {
    /// Its spec.
    pub spec_id: i32,
    /// Its name.
    pub label: String,
    /// Its live data files; `None` when they were not read.
    pub holds: Option<Tally>,
    /// What a request would do with it.
    pub found: Found,
}

/// What a request would do with a partition.
pub enum Found {
    /// Carry these out.
    Plans(Vec<Plan>),
    /// Nothing.
    Nothing,
    /// Leave it alone, by name.
    Refused(Refused),
    /// It cannot be told.
    Failed(lake::Error),
}

impl Scoped {
    /// The whole table, refused.
    fn whole(refused: &Refused) -> Self {
        Self { spec_id: 0, label: "all".into(), holds: None, found: Found::Refused(refused.clone()) }
    }

    /// Its plans; none when there is nothing to carry out.
    pub fn plans(&self) -> &[Plan] {
        match &self.found {
            Found::Plans(plans) => plans,
            _ => &[],
        }
    }

    /// The same, to be kept.
    pub fn into_plans(self) -> Vec<Plan> {
        match self.found {
            Found::Plans(plans) => plans,
            _ => Vec::new(),
        }
    }

    /// Bytes that its plans read.
    pub fn bytes(&self) -> u64 {
        self.plans().iter().map(Plan::input_bytes).fold(0, u64::saturating_add)
    }
}

/// A table's layout from all its manifests, with a bar while they are read.
///
/// # Errors
/// When one cannot be read.
pub async fn layout(table: &dyn Table, policy: &Policy) -> lake::Result<TableLayout> {
    let progress = Progress::steps(&format!("reading manifests of {}", table.view().name), 1);
    let read = recompute_watched(table, policy.scale, &|done, total| progress.of(done, total)).await;
    progress.end();
    read
}

/// Every partition with live files, or the one that is asked for.
///
/// # Errors
/// When the table cannot be read, or has no such partition.
pub async fn scopes(app: &App, table: &dyn Table, policy: &Policy, filter: Option<&str>) -> Result<Vec<Scoped>, Failure> {
    let view = table.view();
    // a table that is refused as a whole is not read: what it holds may not be readable
    if let Some(refused) = view.refused.first() {
        return Ok(vec![Scoped::whole(refused)]);
    }
    let layout = match layout(table, policy).await {
        Err(lake::Error::Refused(refused)) => return Ok(vec![Scoped::whole(&refused)]),
        layout => layout?,
    };
    let wanted = |key: &PartitionKey| filter.is_none_or(|f| names(f, key, view.specs.get(&key.spec_id).map(Arc::as_ref)));
    let live = layout.partitions().iter().filter(|(key, partition)| partition.data.files > 0 && wanted(key));
    let keys: Vec<(PartitionKey, Tally)> = live.map(|(key, partition)| (key, partition.data)).collect();
    if let (Some(filter), true) = (filter, keys.is_empty()) {
        return Err(Failure::new(
            Exit::NotFound,
            format!("{} has no partition `{filter}` with live files; `inspect` lists them", view.name),
        ));
    }
    let progress = Progress::steps(&format!("planning partitions of {}", view.name), keys.len() as u64);
    let mut scoped = Vec::new();
    for keys in keys.chunks(TOGETHER) {
        for ((key, holds), found) in keys.iter().zip(read(app, table, policy, keys).await) {
            scoped.push(Scoped { spec_id: key.spec_id, label: view.partition_name(key), holds: Some(*holds), found });
        }
        progress.at(scoped.len() as u64);
    }
    progress.end();
    Ok(scoped)
}

/// What a request would do with each of these partitions, in their order.
async fn read(app: &App, table: &dyn Table, policy: &Policy, keys: &[(PartitionKey, Tally)]) -> Vec<Found> {
    let view = table.view();
    let order = Order {
        table: view.ident,
        name: &view.name,
        reference: &view.reference,
        policy,
        limits: &app.settings.budget,
        cause: &Cause::Request,
    };
    let together: Vec<PartitionKey> = keys.iter().map(|(key, _)| key.clone()).collect();
    if let Ok(files) = table.scopes(&together).await {
        return files.iter().map(|files| found(&order, files)).collect();
    }
    // one damaged or refused partition must not hide the others
    let mut each = Vec::new();
    for key in &together {
        each.push(match table.scope(key).await {
            Ok(files) => found(&order, &files),
            Err(lake::Error::Refused(refused)) => Found::Refused(refused),
            Err(error) => Found::Failed(error),
        });
    }
    each
}

/// Plans whose files are looked into together.
const FORESEEN: usize = 4;

/// For each plan what `compact` would stop at, as far as that can be told without
/// rewriting anything; `None` where nothing is known to.
pub async fn foresee(table: &dyn Table, scopes: &[Scoped]) -> Vec<Vec<Option<lake::Error>>> {
    let plans: usize = scopes.iter().map(|scoped| scoped.plans().len()).sum();
    let progress = Progress::steps(&format!("looking into the files of {}", table.view().name), plans as u64);
    let mut each = Vec::with_capacity(plans);
    for plan in scopes.iter().flat_map(Scoped::plans) {
        each.push(table.foresee(plan));
    }
    let mut each = stream::iter(each).buffered(FORESEEN);
    let (mut all, mut done) = (Vec::with_capacity(scopes.len()), 0);
    for scoped in scopes {
        let mut stops = Vec::with_capacity(scoped.plans().len());
        while stops.len() < scoped.plans().len() {
            let Some(foreseen) = each.next().await else { break };
            stops.push(foreseen.err());
            done += 1;
            progress.at(done);
        }
        all.push(stops);
    }
    progress.end();
    all
}

fn found(order: &Order<'_>, files: &ScopeFiles) -> Found {
    match plans(order, files) {
        Ok(plans) => Found::Plans(plans),
        Err(Reason::Refused(refused)) => Found::Refused(refused),
        Err(_) => Found::Nothing,
    }
}
