//! The demo: one streaming load of TPC-H tables played twice, into tables that the
//! sidecar keeps in shape and into tables that nobody does, and compared.

pub mod generate;
mod home;
mod live;
mod load;
mod measure;
mod recipes;
mod report;
mod rest;
mod tables;

use std::path::PathBuf;

use anyhow::Context;

use crate::app::{App, Sidecar};
use crate::cli::progress::Progress;
use crate::cli::{Exit, args, show};
use crate::serve::client::{Client, Target};
use crate::{serve, telemetry};

pub use home::Home;
pub use measure::Side;
pub use recipes::Recipes;
pub use report::{Compared, Report};
pub use tables::{SIDES, TABLES, WITH, WITHOUT};

use load::Writer;

/// What is played.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Where; a new folder among the system's temporary ones without it.
    pub dir: Option<PathBuf>,
    /// TPC-H scale factor.
    pub scale: f64,
    /// Commits of the load, into each table.
    pub commits: usize,
}

/// A scale at which work is worth measuring and a minute is enough.
const SCALE: f64 = 0.05;
const COMMITS: usize = 72;
/// Commits between two that also delete.
const DELETE_EVERY: usize = 10;
/// Of the orders of those commits, one in so many is deleted.
const DELETED: usize = 97;

impl Options {
    /// From the command line.
    ///
    /// # Errors
    /// When a number is out of range.
    pub fn of(args: &args::Demo) -> anyhow::Result<Self> {
        let scale = args.scale.unwrap_or(SCALE);
        anyhow::ensure!((0.001..=10.0).contains(&scale), "--scale {scale}: write a number from 0.001 to 10");
        let commits = args.commits.map_or(Ok(COMMITS), usize::try_from)?;
        anyhow::ensure!((1..=1000).contains(&commits), "--commits {commits}: write a number from 1 to 1000");
        Ok(Self { dir: args.dir.clone(), scale, commits })
    }
}

/// Plays the demo and prints what came of it. Exits with [`Exit::Failed`] when the
/// two sides do not hold the same rows.
///
/// # Errors
/// When the folder is in use, or a commit of the load fails.
pub async fn run(args: &args::Demo, json: bool) -> anyhow::Result<Exit> {
    let report = play(&Options::of(args)?).await?;
    show::print(&if json { report.json()? } else { report.text() })?;
    match report.unequal() {
        None => Ok(Exit::Done),
        Some(table) => {
            eprintln!("error: {table} does not hold the same rows with and without afterwrite: this is a defect, please report it");
            Ok(Exit::Failed)
        }
    }
}

/// Plays the demo. What happens meanwhile is told on standard error.
///
/// # Errors
/// As [`run`].
pub async fn play(options: &Options) -> anyhow::Result<Report> {
    let home = Home::prepare(options.dir.as_deref())?;
    eprintln!("the demo's tables lie in {}", home.folder());
    home.create_tables(options.scale).await?;
    let app = App::new(home.settings()?).await?;
    let metrics = telemetry::recorder()?.handle();
    let doors = serve::Options { grpc: ([127, 0, 0, 1], 0).into(), http: None, ..serve::Options::default() };
    let sidecar = app.serve(&doors, metrics).await.context("the sidecar does not start")?;
    let mut writers = stream(&app, &sidecar, options).await?;
    sidecar.stop().await;
    let rewritten = live::rewritten_bytes(&app).await?;
    let mut tables = Vec::new();
    for table in TABLES {
        let mut sides = Vec::new();
        for side in SIDES {
            let name = tables::name(side, table.name);
            let writer = writers.iter_mut().find(|w| w.name() == &name).with_context(|| format!("{name} was not written"))?;
            let spent = measure::Spent { conflicts: writer.conflicts(), rewritten_bytes: rewritten.get(&name).copied().unwrap_or(0) };
            sides.push(measure::measure(&app, &name, spent).await?);
        }
        if let Ok([with, without]) = <[Side; 2]>::try_from(sides) {
            tables.push(Compared { name: table.name.to_owned(), with, without });
        }
    }
    let pointers = app.lake.pointers(tables::CATALOG).await?;
    Ok(Report { tables, home, pointers })
}

/// Plays the load, and waits until the sidecar has nothing left to do.
async fn stream(app: &App, sidecar: &Sidecar, options: &Options) -> anyhow::Result<Vec<Writer>> {
    let scale = options.scale;
    let commits = options.commits;
    let loads = tokio::task::spawn_blocking(move || generate::loads(scale, commits)).await??;
    let server = format!("http://{}", sidecar.running().grpc_addr());
    let progress = Progress::steps("commits", loads.len() as u64);
    let live = live::Live::start(app, progress.clone()).await?;
    let mut writers = Vec::new();
    for side in SIDES {
        for table in TABLES {
            let hook = match side == WITH {
                true => Some(Client::connect(&Target { server: server.clone(), token: None, ca: None }).await?),
                false => None,
            };
            writers.push(Writer::new(app, tables::name(side, table.name), table, hook, progress.clone()));
        }
    }
    for (at, load) in loads.iter().enumerate() {
        let keys = match (at + 1) % DELETE_EVERY {
            0 => load::some_orders(loads.get(at + 1 - DELETE_EVERY..=at).unwrap_or_default(), DELETED),
            _ => Default::default(),
        };
        futures::future::try_join_all(writers.iter_mut().map(|writer| writer.play(load, &keys))).await?;
        progress.at(at as u64 + 1);
    }
    progress.say("waiting for the sidecar to come to rest");
    if !rest::wait(app, sidecar).await? {
        progress.line("the sidecar still has work to do; measured as it stands");
    }
    live.stop().await;
    progress.end();
    Ok(writers)
}
