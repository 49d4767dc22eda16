//! Command line.

use std::os::unix::process::CommandExt;
use std::process::{Command as Process, ExitCode};

use afterwrite::cli::{Cli, Command};
use afterwrite::{command, serve, telemetry};
use clap::Parser;

/// Gives back to the system what many threads have freed: a memory limit is for
/// the process, not only for what is in use.
#[global_allocator]
static MEMORY: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// How the allocator is told after how many milliseconds to give memory back.
const GIVE_BACK: &str = "MIMALLOC_PURGE_DELAY";

/// The allocator hears only the environment, and only before `main`: the program
/// begins anew with the setting. Where that fails it goes on with more memory.
fn settle_memory() {
    if std::env::var_os(GIVE_BACK).is_none()
        && let Ok(program) = std::env::current_exe()
    {
        let mut again = Process::new(program);
        if let Some(name) = std::env::args_os().next() {
            again.arg0(name);
        }
        let _ = again.args(std::env::args_os().skip(1)).env(GIVE_BACK, "0").exec();
    }
}

fn main() -> ExitCode {
    settle_memory();
    serve::settle_provider();
    let cli = Cli::parse();
    let quiet = if matches!(cli.command, Command::Serve(_)) { "info" } else { "warn" };
    if let Err(error) = telemetry::init_log(cli.global.log_format, cli.global.log.as_deref().unwrap_or(quiet)) {
        eprintln!("error: {error:#}");
        return ExitCode::from(64);
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: the runtime cannot start: {error}");
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(command::run(cli)) {
        Ok(exit) => exit.into(),
        Err(failure) => {
            eprintln!("error: {}", failure.why);
            failure.exit.into()
        }
    }
}
