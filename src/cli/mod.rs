//! The command line: what may be asked, how answers look, what exit codes mean.
//!
//! Nothing here acts on a table; what a command does is joined elsewhere.

pub mod args;
pub mod exit;
pub mod human;
pub mod progress;
pub mod remote;
pub mod show;

pub use args::{Cli, Command};
pub use exit::Exit;

use clap::CommandFactory;
use clap_complete::Shell;

/// The script that completes commands in a shell.
pub fn completions(shell: Shell) -> Vec<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "afterwrite", &mut script);
    script
}

#[cfg(test)]
mod tests;
