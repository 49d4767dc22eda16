//! Figures of afterwrite. Each name is measured in a process of its own, so that
//! none finds the memory or the caches of another.

#![allow(clippy::disallowed_methods, reason = "the time that is measured is the machine's")]

mod carry;
mod choose;
mod figure;
#[allow(dead_code, unused_imports)]
#[path = "../../fixture/mod.rs"]
mod fixture;
mod fleet;
mod folder;
mod hook;
mod lake;
mod manifest;
mod memory;
mod metadata;
mod observe;
mod partitions;
mod process;
mod proxy;
mod ranking;
mod restart;

use std::process::Command;

use clap::Parser;
use figure::{Bench, Figure};

/// Every benchmark, in the order in which all are run.
const ALL: [Bench; 12] = [
    observe::BENCH,
    manifest::BENCH,
    restart::BENCH,
    partitions::BENCH,
    hook::BENCH,
    metadata::BENCH,
    proxy::BENCH,
    carry::BENCH,
    memory::BENCH,
    ranking::BENCH,
    choose::BENCH,
    fleet::BENCH,
];

/// Measures afterwrite: prints one line a figure.
#[derive(Parser)]
#[command(name = "afterwrite-bench", version)]
struct Args {
    /// Which benchmarks, by their name or by that of a figure; all when none is named.
    names: Vec<String>,
    /// Small data: only shows that the benchmarks work.
    #[arg(long)]
    quick: bool,
    /// One JSON object a line.
    #[arg(long)]
    json: bool,
    /// Lists the benchmarks and what they show.
    #[arg(long)]
    list: bool,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    if args.list {
        ALL.iter().for_each(|bench| println!("{}\t{}\t{}", bench.name, bench.also.join(" "), bench.about));
        return Ok(());
    }
    let known = |name: &String| ALL.iter().find(|bench| bench.name == name || bench.also.contains(&name.as_str()));
    if let Some(unknown) = args.names.iter().find(|name| known(name).is_none()) {
        anyhow::bail!("no benchmark is called `{unknown}`: --list shows them");
    }
    match args.names.as_slice() {
        [name] => {
            let bench = known(name).expect("checked above");
            for figure in (bench.run)(args.quick)? {
                print(&figure, args.json);
            }
            Ok(())
        }
        [] => each(ALL.iter().map(|bench| bench.name), &args),
        names => each(names.iter().map(String::as_str), &args),
    }
}

/// Every benchmark in a process of its own; all are tried.
fn each<'a>(names: impl Iterator<Item = &'a str>, args: &Args) -> anyhow::Result<()> {
    let mut failed = Vec::new();
    for name in names {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(name).args(args.quick.then_some("--quick")).args(args.json.then_some("--json"));
        if !command.status()?.success() {
            failed.push(name);
        }
    }
    anyhow::ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
    Ok(())
}

fn print(figure: &Figure, json: bool) {
    match json {
        true => println!("{}", figure.json()),
        false => println!("{:<36} {:>16} {}", figure.name, figure::human(figure.value), figure.unit),
    }
}
