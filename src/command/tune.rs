//! `tune`: the policy that does best on a recording, or on a table's own history.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;

use crate::app::App;
use crate::cli::args::Tune;
use crate::cli::show::Column;
use crate::cli::{Exit, human, show};
use crate::model::ident::{MAIN, TableName, beside_main};
use crate::model::policy::Policy;
use crate::replay::history;
use crate::replay::play::Setup;
use crate::replay::read;
use crate::replay::trace::{Trace, Traced, Tracer};
use crate::replay::tune::{Tuned, tune};
use crate::settings::{PolicySettings, Settings};

use super::{Failure, load, policy};

/// Tunes.
pub async fn run(settings: Settings, args: &Tune, json: bool) -> Result<Exit, Failure> {
    let (trace, source) = match (&args.recording, &args.table) {
        (Some(recording), _) => (of_recording(recording)?, format!("the recording {}", recording.display())),
        (None, Some(name)) => {
            let on = args.reference.as_ref().map(|branch| format!(" on {branch}")).unwrap_or_default();
            (of_table(settings, name, args.reference.as_deref().unwrap_or(MAIN)).await?, format!("the snapshots of {name}{on}"))
        }
        (None, None) => return Err(Failure::new(Exit::Usage, "give --recording FILE or --table TABLE")),
    };
    if trace.events.iter().all(|event| event.change.is_base) {
        return Err(Failure::new(Exit::Failed, format!("{source} hold no write: there is nothing to tune on")));
    }
    let mut now = Setup::of(&trace);
    // what is only advised is tuned as if it were carried out
    now.policies.iter_mut().for_each(|policy| policy.act = true);
    let tuned = tune(&trace, &now, args.objective, args.trials, args.seed);
    let file = file(&tuned, &trace, &source, args);
    match &args.out {
        Some(path) => {
            let written = std::fs::File::create_new(path).and_then(|mut to| to.write_all(file.as_bytes()));
            written.map_err(|e| Failure::new(Exit::Failed, format!("{}: {e}", path.display())))?;
            let column = |name: &str, totals: &_| Column { name: name.to_owned(), totals: Clone::clone(totals) };
            let columns = [column("now, modelled", &tuned.now), column("tuned, modelled", &tuned.best)];
            show::print(&show::totals(&columns, &trace.prices.currency, json))?;
        }
        None => show::print(file.trim_end())?,
    }
    Ok(Exit::Done)
}

fn of_recording(path: &Path) -> Result<Trace, Failure> {
    let mut tracer = Tracer::default();
    read::each(path, |line| tracer.line(&line))?;
    Ok(tracer.end())
}

async fn of_table(settings: Settings, name: &TableName, branch: &str) -> Result<Trace, Failure> {
    let app = App::new(settings).await?;
    let table = load(&app, name, branch).await?;
    let view = table.view();
    if view.head.is_none() && branch != MAIN {
        return Err(Failure::new(Exit::NotFound, format!("{name} has no branch `{branch}`")));
    }
    let traced = Traced {
        ident: view.ident,
        branch: beside_main(branch),
        name: name.clone(),
        tenant: app.settings.tenant_of(&name.to_string()).map(|t| t.name.clone()),
        properties: view.properties.clone(),
        policy: policy(&app, name, &view.properties),
        created_ms: view.created_ms,
    };
    let trace = history::trace(table.as_ref(), traced).await?;
    let settings = &app.settings;
    Ok(Trace { budgets: settings.budgets.clone(), ranking: settings.ranking, prices: settings.prices.clone(), ..trace })
}

/// The policy as a settings file, with what speaks for it.
fn file(tuned: &Tuned, trace: &Trace, source: &str, args: &Tune) -> String {
    let mut text = String::new();
    let tables: BTreeSet<_> = trace.tables.iter().map(|table| table.ident).collect();
    let mut say = |line: String| {
        let _ = writeln!(text, "{line}");
    };
    say(format!("# Tuned by afterwrite {} on {source},", env!("CARGO_PKG_VERSION")));
    say(format!(
        "# {} to {}, {} changes of {}.",
        human::moment(trace.from_ms),
        human::moment(trace.to_ms),
        trace.events.len(),
        human::some(tables.len() as u64, "table")
    ));
    say(format!("# Objective: {}, {}.", args.objective.name(), args.objective.words()));
    say(format!("# {} settings tried, seed {}. As a model plays them:", tuned.tried, args.seed));
    say("#".to_owned());
    let (now, best) = (&tuned.now, &tuned.best);
    let mut row = |name: &str, now: f64, best: f64| {
        let _ = writeln!(text, "# {name:<24} now {now:>14.4}   tuned {best:>14.4}");
    };
    row("mean live files", now.mean_files, best.mean_files);
    row("mean live delete files", now.mean_delete_files, best.mean_delete_files);
    row("GB-hours", now.gb_hours, best.gb_hours);
    row("bytes rewritten (MiB)", now.bytes as f64 / 1_048_576.0, best.bytes as f64 / 1_048_576.0);
    row("jobs", now.jobs as f64, best.jobs as f64);
    row("jobs lost to writers", now.lost as f64, best.lost as f64);
    text.push_str("\n[defaults]\n");
    let lines = set(tuned);
    if lines.is_empty() {
        text.push_str("# Nothing that was tried does better than the settings as they are.\n");
    }
    for (key, value) in lines {
        let _ = writeln!(text, "{key} = {value}");
    }
    text
}

/// The keys that are set otherwise than now, with their values.
fn set(tuned: &Tuned) -> Vec<(&'static str, String)> {
    let Some(policy) = tuned.policies.first() else { return Vec::new() };
    let of_rule = |name: &&str| name.contains('.');
    let names: Vec<&str> = tuned.set.iter().map(|name| if of_rule(name) { "rules" } else { name }).collect();
    shown(policy).into_iter().filter(|(key, _)| names.contains(key)).collect()
}

fn shown(policy: &Policy) -> Vec<(&'static str, String)> {
    PolicySettings::of(policy).shown()
}
