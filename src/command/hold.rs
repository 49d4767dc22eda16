//! `hold` and `release`: a table that is left alone for a while.

use crate::act::Journal;
use crate::app::App;
use crate::cli::args::{Hold, Release};
use crate::cli::{Exit, human, show};
use crate::model::policy::Policy;
use crate::model::table::TableView;
use crate::model::writers;
use crate::ooda::lease::{LONGEST_MS, Lease, Leases};

use super::Failure;

/// Has a table left alone for a while.
pub async fn hold(app: &App, args: &Hold, json: bool) -> Result<Exit, Failure> {
    if !app.settings.catalogs.contains_key(&args.table.catalog) {
        let known = app.settings.catalogs.keys().cloned().collect::<Vec<_>>().join(", ");
        return Err(Failure::new(Exit::NotFound, format!("no catalog `{}` is configured; known: {known}", args.table.catalog)));
    }
    let now_ms = app.clock.now_ms();
    let time = i64::try_from(args.time.as_millis()).unwrap_or(i64::MAX).min(LONGEST_MS);
    if time <= 0 {
        return Err(Failure::new(Exit::Usage, "a table is held for some time: write for example --for 2h"));
    }
    let hold = writers::Hold { by: args.holder.clone(), until_ms: now_ms.saturating_add(time) };
    let until_ms = hold.until_ms;
    Leases::take(app.journal().await?.as_ref(), Lease { table: args.table.clone(), hold }, now_ms).await?;
    let (table, until) = (args.table.to_string(), human::moment(until_ms));
    let text = match json {
        true => serde_json::json!({ "table": table, "holder": args.holder, "until_ms": until_ms.to_string() }).to_string(),
        false => format!("{table} is left alone until {until}, for {}; `afterwrite release {table}` ends it before", args.holder),
    };
    show::print(&human::safe(&text))?;
    Ok(Exit::Done)
}

/// Gives a table back.
pub async fn release(app: &App, args: &Release, json: bool) -> Result<Exit, Failure> {
    let journal = app.journal().await?;
    let released = Leases::release(journal.as_ref(), &args.table, args.holder.as_deref(), app.clock.now_ms()).await?;
    let holders: Vec<&str> = released.iter().map(|lease| lease.hold.by.as_str()).collect();
    let table = args.table.to_string();
    let text = match (json, holders.is_empty()) {
        (true, _) => serde_json::json!({ "table": table, "released": holders }).to_string(),
        (false, false) => format!("{table} is given back by {}", holders.join(", ")),
        (false, true) => format!("{table} was not held"),
    };
    show::print(&human::safe(&text))?;
    Ok(Exit::Done)
}

/// What is said to a rewrite by hand of a table that is held.
pub(super) async fn stands(journal: &dyn Journal, view: &TableView, policy: &Policy, now_ms: i64) -> Option<Failure> {
    let leases = match Leases::read(journal).await {
        Ok(leases) => leases,
        Err(error) => return Some(error.into()),
    };
    let name = &view.name;
    if let Some(hold) = leases.longest(name, now_ms) {
        let (by, until) = (human::safe(&hold.by), human::moment(hold.until_ms));
        let why = format!("{name} is held by {by} until {until}: nothing is rewritten; `afterwrite release {name}` ends that before");
        return Some(Failure::new(Exit::Refused, why));
    }
    let until_ms = policy.hold_until_ms.filter(|until| *until > now_ms)?;
    let why = format!(
        "{name} is held until {}, by the setting hold_until or the table property afterwrite.hold-until: nothing is rewritten",
        human::moment(until_ms)
    );
    Some(Failure::new(Exit::Refused, why))
}
