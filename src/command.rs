//! What each command does, joined from the rooms.

mod compact;
mod costs;
mod hold;
mod inspect;
mod jobs;
mod plan;
mod replay;
mod scopes;
mod serve;
mod signals;
mod tune;
mod undo;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::act::{Recovered, journal};
use crate::app::App;
use crate::cli::{Cli, Command, Exit, completions, human, remote, show};
use crate::lake::{self, Table};
use crate::model::ident::TableName;
use crate::observe::kafka;
use crate::serve as server;
use crate::settings::{self, Settings};

/// Why a command failed: what to say, and how to exit.
#[derive(Debug)]
pub struct Failure {
    /// How to exit.
    pub exit: Exit,
    /// What to say.
    pub why: String,
}

impl Failure {
    fn new(exit: Exit, why: impl Into<String>) -> Self {
        Self { exit, why: why.into() }
    }
}

impl From<remote::Failure> for Failure {
    fn from(failure: remote::Failure) -> Self {
        Self { exit: failure.exit, why: failure.why }
    }
}

impl From<settings::Error> for Failure {
    fn from(error: settings::Error) -> Self {
        Self::new(Exit::Settings, error.to_string())
    }
}

impl From<lake::Error> for Failure {
    fn from(error: lake::Error) -> Self {
        Self::new(exit_of(&error), told(&error))
    }
}

impl From<journal::Error> for Failure {
    fn from(error: journal::Error) -> Self {
        let exit = match error {
            journal::Error::Absent(_) => Exit::NotFound,
            journal::Error::Newer { .. } | journal::Error::Foreign { .. } => Exit::Settings,
            _ => Exit::Failed,
        };
        Self::new(exit, error.to_string())
    }
}

impl From<server::Error> for Failure {
    fn from(error: server::Error) -> Self {
        let exit = match error {
            server::Error::Open(_) | server::Error::Pem { .. } | server::Error::Setup(_) => Exit::Settings,
            server::Error::Bind { .. } => Exit::Failed,
        };
        Self::new(exit, error.to_string())
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        let error = match error.downcast::<journal::Error>() {
            Ok(error) => return error.into(),
            Err(error) => error,
        };
        let error = match error.downcast::<kafka::Error>() {
            Ok(error) => return Self::new(Exit::Settings, error.to_string()),
            Err(error) => error,
        };
        match error.downcast::<server::Error>() {
            Ok(error) => error.into(),
            Err(error) => Self::new(Exit::Failed, format!("{error:#}")),
        }
    }
}

impl From<crate::replay::read::Error> for Failure {
    fn from(error: crate::replay::read::Error) -> Self {
        let exit = match &error {
            crate::replay::read::Error::File { source, .. } if source.kind() == std::io::ErrorKind::NotFound => Exit::NotFound,
            _ => Exit::Failed,
        };
        Self::new(exit, error.to_string())
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::new(Exit::Failed, error.to_string())
    }
}

fn exit_of(error: &lake::Error) -> Exit {
    match error {
        lake::Error::Refused(_) => Exit::Refused,
        lake::Error::NotFound { .. } => Exit::NotFound,
        lake::Error::Unreachable { .. } => Exit::Unreachable,
        lake::Error::Setup(_) => Exit::Settings,
        lake::Error::Proof(_) | lake::Error::Stopped(_) | lake::Error::Journal(_) => Exit::Failed,
    }
}

/// An error with its causes.
fn told(error: &lake::Error) -> String {
    match error {
        lake::Error::Unreachable { what, source } => format!("{what}: {source:#}"),
        lake::Error::Refused(refused) => format!("{refused}; {}", refused.refusal.advice()),
        other => other.to_string(),
    }
}

/// Runs a command to its end.
///
/// # Errors
/// With what to say on standard error and how to exit.
pub async fn run(cli: Cli) -> Result<Exit, Failure> {
    let json = cli.global.json;
    let settings = || Settings::load(cli.global.config.as_deref());
    match &cli.command {
        Command::Completions(args) => {
            show::print(&String::from_utf8_lossy(&completions(args.shell)))?;
            Ok(Exit::Done)
        }
        Command::Config(args) if args.example => {
            show::print(Settings::example())?;
            Ok(Exit::Done)
        }
        Command::Config(_) => {
            let settings = settings()?;
            show::print(&if json { settings.summary_json().to_string() } else { settings.summary() })?;
            Ok(Exit::Done)
        }
        Command::Serve(args) => serve::run(settings()?, args).await,
        Command::Demo(args) => {
            crate::demo::Options::of(args).map_err(|e| Failure::new(Exit::Usage, e.to_string()))?;
            Ok(crate::demo::run(args, json).await?)
        }
        Command::Report(args) => {
            show::print(&remote::report(args, json).await?)?;
            Ok(Exit::Done)
        }
        Command::Why(args) => {
            show::print(&remote::why(args, json).await?)?;
            Ok(Exit::Done)
        }
        Command::Doors(args) => {
            show::print(&remote::doors(args, json).await?)?;
            Ok(Exit::Done)
        }
        Command::Backlog(args) => {
            show::print(&remote::backlog(args, json).await?)?;
            Ok(Exit::Done)
        }
        Command::Replay(args) => replay::run(args, json),
        Command::Tune(args) => tune::run(settings()?, args, json).await,
        Command::Watch(args) => {
            let signals = signals::Signals::listen("")?;
            tokio::select! {
                watched = remote::watch(args, json, show::say) => watched.map(|()| Exit::Done).map_err(Into::into),
                exit = signals.asked() => Ok(exit),
            }
        }
        Command::Inspect(args) => inspect::run(&App::new(settings()?).await?, args, json).await,
        Command::Plan(args) => plan::run(&App::new(settings()?).await?, args, json).await,
        Command::Compact(args) => compact::run(&App::new(settings()?).await?, args, json).await,
        Command::Costs(args) => costs::run(&App::new(settings()?).await?, args, json).await,
        Command::Jobs(args) => jobs::list(&App::new(settings()?).await?, args, json).await,
        Command::Cancel(args) => jobs::cancel(&App::new(settings()?).await?, &args.job, json).await,
        Command::Undo(args) => undo::run(&App::new(settings()?).await?, &args.job, json).await,
        Command::Pause(args) => jobs::pause(&App::new(settings()?).await?, args.table.as_ref(), json).await,
        Command::Hold(args) => hold::hold(&App::new(settings()?).await?, args, json).await,
        Command::Release(args) => hold::release(&App::new(settings()?).await?, args, json).await,
        Command::Resume(args) => jobs::resume(&App::new(settings()?).await?, args.table.as_ref(), json).await,
    }
}

/// Closes what a crash left open, and says so. A commit that may have landed and cannot
/// be told yet can be when the table has moved on.
async fn recover(app: &App) -> Result<Recovered, Failure> {
    let recovered = app.recover().await?;
    let say = |count: usize, what: &str| {
        if count > 0 {
            eprintln!("recovered: {} {what}", human::some(count as u64, "job"));
        }
    };
    say(recovered.committed.len(), "of a dead process had landed");
    say(recovered.ended.len(), "of a dead process had not landed; its files are removed");
    say(recovered.open.len(), "of a dead process may have landed; nothing of it is removed until the table shows");
    Ok(recovered)
}

/// A table that must be there. A branch that is not looked after is refused, in its view.
async fn load(app: &App, name: &TableName, reference: &str) -> Result<Arc<dyn Table>, Failure> {
    let Some(mut table) = app.lake.table(name, reference).await? else {
        return Err(Failure::new(
            Exit::NotFound,
            format!("{name} does not exist in its catalog; `catalog.namespace.table` is spelled as engines spell it"),
        ));
    };
    let (policy, _) = settings::resolve(&app.settings, name, &table.view.properties);
    table.view.refused.extend(policy.refuses(reference));
    Ok(Arc::new(table))
}

/// The properties of a table resolved to its policy, warnings said on standard error.
fn policy(app: &App, name: &TableName, properties: &BTreeMap<String, String>) -> crate::model::policy::Policy {
    let (policy, warnings) = settings::resolve(&app.settings, name, properties);
    for warning in warnings {
        eprintln!("warning: table property {}: {}", warning.property, warning.message);
    }
    policy
}
