//! Command line.

use std::process::ExitCode;

use afterwrite::cli::{Cli, Command};
use afterwrite::{command, serve, telemetry};
use clap::Parser;

/// Gives back to the system what many threads have freed: a memory limit is for
/// the process, not only for what is in use.
#[global_allocator]
static MEMORY: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
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
