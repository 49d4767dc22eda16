//! `replay`: a recording's decisions made again, or another policy tried on it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::cli::args::Replay;
use crate::cli::show::Column;
use crate::cli::{Exit, show};
use crate::model::economy::Ranking;
use crate::model::ident::TableName;
use crate::model::policy::Policy;
use crate::replay::exact;
use crate::replay::play::{Setup, play};
use crate::replay::read;
use crate::replay::totals::Recorded;
use crate::replay::trace::{Trace, Tracer};
use crate::settings::{self, Settings};

use super::Failure;

/// Replays.
pub fn run(args: &Replay, json: bool) -> Result<Exit, Failure> {
    match &args.policy {
        None => again(&args.recording, json),
        Some(policy) => other(&args.recording, policy, json),
    }
}

/// The same policy: everything must come out as it was.
fn again(recording: &Path, json: bool) -> Result<Exit, Failure> {
    let (mut replay, mut recorded) = (exact::Replay::default(), Recorded::default());
    read::each(recording, |line| {
        replay.line(&line);
        recorded.line(&line);
    })?;
    let exact = replay.end();
    let columns = [Column { name: "recorded".to_owned(), totals: recorded.end() }];
    show::print(&show::exact(&exact, &columns, "", json))?;
    Ok(if exact.differing == 0 { Exit::Done } else { Exit::Failed })
}

/// Another policy: its decisions beside those recorded, and its totals beside what was
/// done and beside the recorded policy as the model plays it.
fn other(recording: &Path, file: &Path, json: bool) -> Result<Exit, Failure> {
    let policy = Other::read(file)?;
    let mut replay = exact::Replay::under(policy.under());
    let (mut tracer, mut recorded) = (Tracer::default(), Recorded::default());
    read::each(recording, |line| {
        replay.line(&line);
        tracer.line(&line);
        recorded.line(&line);
    })?;
    let trace = tracer.end();
    let now = Setup::of(&trace);
    let then = policy.setup(&trace);
    let column = |name: &str, totals| Column { name: name.to_owned(), totals };
    let columns = [
        column("recorded", recorded.end()),
        column("recorded, modelled", play(&trace, &now)),
        column("policy, modelled", play(&trace, &then)),
    ];
    show::print(&show::exact(&replay.end(), &columns, &trace.prices.currency, json))?;
    Ok(Exit::Done)
}

/// A policy file: what it does not set stays as it was recorded, and so does which
/// tables may be rewritten.
struct Other {
    settings: Settings,
    sections: BTreeSet<String>,
}

impl Other {
    fn read(file: &Path) -> Result<Self, Failure> {
        let text = std::fs::read_to_string(file);
        let text = text.map_err(|e| Failure::new(Exit::Settings, format!("cannot read {}: {e}", file.display())))?;
        Ok(Self { settings: Settings::read(&text, [])?, sections: Settings::sections(&text)? })
    }

    fn sets(&self, section: &str) -> bool {
        self.sections.contains(section)
    }

    fn policy(&self, name: &TableName, properties: &BTreeMap<String, String>, recorded: &Policy) -> Policy {
        let (policy, _) = settings::resolve_over(&self.settings, name, properties, recorded.clone());
        Policy { act: recorded.act, enabled: recorded.enabled, ..policy }
    }

    fn ranking(&self) -> Option<Ranking> {
        self.sets("ranking").then_some(self.settings.ranking)
    }

    fn under(&self) -> exact::Under<'_> {
        let alone = self.sets("budget") || self.sets("tenant");
        exact::Under {
            policy: Box::new(|table| self.policy(&table.name, &table.properties, &table.policy)),
            ranking: self.ranking(),
            budgets: alone.then(|| self.settings.budgets.clone()),
        }
    }

    fn setup(&self, trace: &Trace) -> Setup {
        let mut setup = Setup::of(trace);
        let (set, budgets) = (&self.settings.budgets, &mut setup.budgets);
        if self.sets("budget") {
            (budgets.overall, budgets.more, budgets.per_table) = (set.overall, set.more, set.per_table);
        }
        if self.sets("tenant") {
            budgets.tenants.clone_from(&set.tenants);
        }
        setup.ranking = self.ranking().unwrap_or(setup.ranking);
        if self.sets("prices") {
            setup.prices = self.settings.prices.clone();
        }
        for (policy, table) in setup.policies.iter_mut().zip(&trace.tables) {
            *policy = self.policy(&table.name, &table.properties, policy);
        }
        setup
    }
}
