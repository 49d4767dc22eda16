//! What may be asked on the command line.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;

use super::exit;
use crate::model::ident::{MAIN, TableName};
use crate::replay::tune::Objective;
use crate::telemetry;

/// An optimize-after-write sidecar for lakehouse tables: hears each commit, keeps
/// the layout of the touched partitions healthy, proves the rows unchanged.
#[derive(Debug, Parser)]
#[command(name = "afterwrite", version, after_long_help = exit::HELP, max_term_width = 100)]
pub struct Cli {
    /// Options of every command.
    #[command(flatten)]
    pub global: Global,
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// Options of every command.
#[derive(Clone, Debug, Args)]
pub struct Global {
    /// Settings file (TOML). Without one, embedded defaults and the environment hold
    #[arg(long, global = true, value_name = "FILE", env = "AFTERWRITE_CONFIG")]
    pub config: Option<PathBuf>,
    /// Print JSON, one object a line, in place of tables
    #[arg(long, global = true)]
    pub json: bool,
    /// What is logged to standard error, such as `info,afterwrite=debug`
    #[arg(long, global = true, value_name = "FILTER", env = "AFTERWRITE_LOG")]
    pub log: Option<String>,
    /// How log lines look
    #[arg(long, global = true, value_name = "FORMAT", env = "AFTERWRITE_LOG_FORMAT", default_value = "text")]
    pub log_format: telemetry::Format,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the sidecar: hear of commits, keep layouts, decide, rewrite what the settings allow
    Serve(Serve),
    /// Play a streaming load on TPC-H tables, with and without the sidecar, and compare
    Demo(Demo),
    /// Show a table's layout by partition, computed from scratch
    Inspect(Inspect),
    /// Show the last decision on each partition, with every number and the reason
    Why(Why),
    /// Show what a compaction would rewrite
    Plan(Plan),
    /// Compact a table now, without a server
    Compact(Compact),
    /// Report a commit to a running sidecar by hand
    Report(Report),
    /// Follow the decisions of a running sidecar
    Watch(Watch),
    /// Show what a running sidecar hears: every source, its counts, lag and problems
    Doors(Doors),
    /// Show what waits in a running sidecar: how much, for how long, when it will be done
    Backlog(Backlog),
    /// Show what rewrites cost and saved, a table and month
    Costs(Costs),
    /// Make the decisions of a recording again, or try another policy on it
    Replay(Replay),
    /// Search the thresholds and weights that do best on a recording, or on a table's own history
    Tune(Tune),
    /// List jobs and what became of them
    Jobs(Jobs),
    /// Stop a job
    Cancel(Job),
    /// Roll a job's commit back, while its snapshot is still the table's head
    Undo(Job),
    /// Carry out no rewrites, of one table or of all
    Pause(Which),
    /// Take up rewrites again
    Resume(Which),
    /// Have a table left alone for a while: a backfill or another optimizer is at work there
    Hold(Hold),
    /// Give a table back that is held, before its time
    Release(Release),
    /// Print the script that completes commands in a shell
    Completions(Completions),
    /// Print the settings
    Config(Config),
}

/// Arguments of `serve`.
#[derive(Clone, Debug, Args)]
pub struct Serve {
    /// gRPC address [default: 127.0.0.1:7411]
    #[arg(long, value_name = "ADDRESS", env = "AFTERWRITE_LISTEN")]
    pub listen: Option<SocketAddr>,
    /// HTTP address of the HTTP door, /metrics, /healthz and /readyz [default: 127.0.0.1:7412]
    #[arg(long, value_name = "ADDRESS", env = "AFTERWRITE_HTTP")]
    pub http: Option<SocketAddr>,
    /// Listen beyond loopback even without TLS and a token
    #[arg(long)]
    pub insecure: bool,
    /// Certificate chain (PEM) of the gRPC address
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// Its private key (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// Token that callers must show
    #[arg(long, value_name = "TOKEN", env = "AFTERWRITE_TOKEN", hide_env_values = true)]
    pub token: Option<String>,
}

/// Arguments of `demo`.
#[derive(Clone, Debug, Args)]
pub struct Demo {
    /// Folder for the catalog and the warehouse; must be empty or not exist [default: a new one]
    #[arg(long, value_name = "FOLDER")]
    pub dir: Option<PathBuf>,
    /// TPC-H scale factor
    #[arg(long, value_name = "FACTOR")]
    pub scale: Option<f64>,
    /// Commits of the streaming load
    #[arg(long, value_name = "COUNT")]
    pub commits: Option<u32>,
}

/// A table and a branch of it.
#[derive(Clone, Debug, Args)]
pub struct Branch {
    /// The table, as `catalog.namespace.table`
    pub table: TableName,
    /// The branch
    #[arg(long = "branch", visible_alias = "ref", value_name = "BRANCH", default_value = MAIN)]
    pub reference: String,
}

/// Arguments of `inspect`.
#[derive(Clone, Debug, Args)]
pub struct Inspect {
    /// Which table.
    #[command(flatten)]
    pub branch: Branch,
    /// Also every trait of the table by its name, with unit, kind, scope and meaning
    #[arg(long)]
    pub traits: bool,
}

/// Arguments of `why`.
#[derive(Clone, Debug, Args)]
pub struct Why {
    /// Which table.
    #[command(flatten)]
    pub branch: Branch,
    /// A partition's label, such as `month=12/region=eu`, or its values, such as `12,eu`
    pub partition: Option<String>,
    /// Which sidecar.
    #[command(flatten)]
    pub server: Server,
}

/// Arguments of `plan`.
#[derive(Clone, Debug, Args)]
pub struct Plan {
    /// Which table.
    #[command(flatten)]
    pub branch: Branch,
    /// Only this partition, by its label or its values
    #[arg(long, value_name = "PARTITION")]
    pub partition: Option<String>,
}

/// Arguments of `compact`.
#[derive(Clone, Debug, Args)]
pub struct Compact {
    /// Which table.
    #[command(flatten)]
    pub branch: Branch,
    /// Only this partition, by its label or its values
    #[arg(long, value_name = "PARTITION")]
    pub partition: Option<String>,
    /// Decide and plan, write nothing
    #[arg(long)]
    pub dry_run: bool,
}

/// Arguments of `report`.
#[derive(Clone, Debug, Args)]
pub struct Report {
    /// The table, as `catalog.namespace.table`
    pub table: TableName,
    /// A snapshot of the commit; may be given several times, oldest first
    #[arg(long = "snapshot", value_name = "ID", allow_negative_numbers = true)]
    pub snapshots: Vec<i64>,
    /// The branch [default: main]
    #[arg(long = "branch", visible_alias = "ref", value_name = "BRANCH")]
    pub reference: Option<String>,
    /// Which sidecar.
    #[command(flatten)]
    pub server: Server,
}

/// Arguments of `watch`.
#[derive(Clone, Debug, Args)]
pub struct Watch {
    /// Only this table, as `catalog.namespace.table`
    pub table: Option<TableName>,
    /// Which sidecar.
    #[command(flatten)]
    pub server: Server,
}

/// Arguments of `doors`.
#[derive(Clone, Debug, Args)]
pub struct Doors {
    /// Which sidecar.
    #[command(flatten)]
    pub server: Server,
}

/// Arguments of `backlog`.
#[derive(Clone, Debug, Args)]
pub struct Backlog {
    /// Also so many candidates, best first, those on the Pareto front of gain against cost marked
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    pub candidates: u32,
    /// Which sidecar.
    #[command(flatten)]
    pub server: Server,
}

/// Arguments of `costs`.
#[derive(Clone, Debug, Args)]
pub struct Costs {
    /// Only this table, as `catalog.namespace.table`
    #[arg(long, value_name = "TABLE")]
    pub table: Option<TableName>,
}

/// Arguments of `replay`.
#[derive(Clone, Debug, Args)]
pub struct Replay {
    /// The recording: the file that `record.path` names in the settings
    pub recording: PathBuf,
    /// Settings to try in place of the recorded ones; what they do not set stays as it was
    #[arg(long, value_name = "FILE")]
    pub policy: Option<PathBuf>,
}

/// Arguments of `tune`.
#[derive(Clone, Debug, Args)]
pub struct Tune {
    /// A recording
    #[arg(long, value_name = "FILE", required_unless_present = "table", conflicts_with = "table")]
    pub recording: Option<PathBuf>,
    /// A table with its snapshots, as `catalog.namespace.table`
    #[arg(long, value_name = "TABLE")]
    pub table: Option<TableName>,
    /// The table's branch [default: main]
    #[arg(long = "branch", visible_alias = "ref", value_name = "BRANCH", conflicts_with = "recording")]
    pub reference: Option<String>,
    /// What is to be had: `files` for no more GB-hours than now, `gb-hours` for no more files than
    /// now, or the least sum of both
    #[arg(long, value_name = "files|gb-hours|balanced", default_value = "balanced")]
    pub objective: Objective,
    /// How many settings are tried
    #[arg(long, value_name = "COUNT", default_value_t = 200)]
    pub trials: usize,
    /// The same seed finds the same
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub seed: u64,
    /// Where the policy is written; must not exist. Printed without one
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// A running sidecar.
#[derive(Clone, Debug, Args)]
pub struct Server {
    /// The sidecar's address
    #[arg(long, value_name = "URL", env = "AFTERWRITE_SERVER", default_value = "http://127.0.0.1:7411")]
    pub server: String,
    /// The token to show
    #[arg(long, value_name = "TOKEN", env = "AFTERWRITE_TOKEN", hide_env_values = true)]
    pub token: Option<String>,
    /// Certificates to trust (PEM), in place of the system's
    #[arg(long, value_name = "FILE", env = "AFTERWRITE_CA")]
    pub ca: Option<PathBuf>,
}

/// Arguments of `jobs`.
#[derive(Clone, Debug, Args)]
pub struct Jobs {
    /// Only jobs of this table, as `catalog.namespace.table`
    #[arg(long, value_name = "TABLE")]
    pub table: Option<TableName>,
    /// Only jobs on this branch
    #[arg(long, value_name = "BRANCH")]
    pub branch: Option<String>,
    /// At most this many, newest first
    #[arg(long, value_name = "COUNT", default_value_t = 50)]
    pub limit: usize,
}

/// A job.
#[derive(Clone, Debug, Args)]
pub struct Job {
    /// The job's id, as `jobs` prints it
    pub job: String,
}

/// One table or all.
#[derive(Clone, Debug, Args)]
pub struct Which {
    /// The table, as `catalog.namespace.table`; all without one
    pub table: Option<TableName>,
}

/// Arguments of `hold`.
#[derive(Clone, Debug, Args)]
pub struct Hold {
    /// The table, as `catalog.namespace.table`
    pub table: TableName,
    /// For how long, such as 30m or 2h; at most seven days
    #[arg(long = "for", value_name = "TIME", value_parser = humantime::parse_duration)]
    pub time: std::time::Duration,
    /// Who holds it; a second hold of the same holder is in place of the first
    #[arg(long, value_name = "NAME", default_value = "the command line")]
    pub holder: String,
}

/// Arguments of `release`.
#[derive(Clone, Debug, Args)]
pub struct Release {
    /// The table, as `catalog.namespace.table`
    pub table: TableName,
    /// Whose hold; everybody's without one
    #[arg(long, value_name = "NAME")]
    pub holder: Option<String>,
}

/// Arguments of `completions`.
#[derive(Clone, Debug, Args)]
pub struct Completions {
    /// The shell
    pub shell: Shell,
}

/// Arguments of `config`.
#[derive(Clone, Debug, Args)]
pub struct Config {
    /// Print a commented example of every setting, in place of those in effect
    #[arg(long)]
    pub example: bool,
}
