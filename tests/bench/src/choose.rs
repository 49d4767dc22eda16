//! What is gained with a budget by each way to choose: greedily, exactly, and as
//! OpenHouse does, which adds a candidate and looks at the budget afterwards.

use std::collections::BTreeMap;
use std::path::Path;

use afterwrite::decide::budget::Budget;
use afterwrite::decide::round::{Candidate, Ranked, rank_by, start_by};
use afterwrite::model::economy::{Budgets, Norm, Ranking, Select};
use afterwrite::model::policy::BudgetLimits;
use afterwrite::replay::lines::{Line, key};
use afterwrite::replay::read;

use crate::figure::{Bench, Figure};
use crate::ranking;

/// See the module.
pub const BENCH: Bench = Bench {
    name: "choice_gain",
    also: &["choice_spent"],
    about: "files saved, and budget spent over what there was, by greedy, exact and OpenHouse's choice; on generated rounds, or on those of the recording that AFTERWRITE_BENCH_RECORDING names",
    run,
};

/// Candidates of a generated round: as many as all subsets are tried of.
const EACH: usize = 16;

fn run(quick: bool) -> anyhow::Result<Vec<Figure>> {
    let recording = std::env::var_os("AFTERWRITE_BENCH_RECORDING");
    let rounds = match &recording {
        Some(path) => recorded(Path::new(path))?,
        None => generated(if quick { 20 } else { 500 }),
    };
    anyhow::ensure!(!rounds.is_empty(), "no round has two candidates");
    let ranking = Ranking { norm: Norm::MinMax, ..Ranking::default() };
    let mut sums: BTreeMap<&str, (u64, f64)> = BTreeMap::new();
    let mut given = 0.0;
    for round in rounds {
        // a quarter of what all would need
        let budget = round.iter().map(|c| c.bound.gb_hours).sum::<f64>() / 4.0;
        given += budget;
        let ranked = rank_by(&ranking, round);
        let mut note = |name, (gain, spent): (u64, f64)| {
            let sum = sums.entry(name).or_default();
            *sum = (sum.0 + gain, sum.1 + spent);
        };
        note("greedy", ours(Select::Greedy, &ranked, budget));
        note("exact", ours(Select::Exact, &ranked, budget));
        note("openhouse", openhouse(&ranked, budget));
    }
    let names = [
        ("greedy", "choice_gain_greedy", "choice_spent_greedy"),
        ("exact", "choice_gain", "choice_spent"),
        ("openhouse", "choice_gain_openhouse", "choice_spent_openhouse"),
    ];
    let mut figures = Vec::new();
    for (name, gain, spent) in names {
        let (saved, used) = sums.get(name).copied().unwrap_or_default();
        figures.push(Figure::new(gain, saved as f64, "files"));
        figures.push(Figure::new(spent, used / given, "share"));
    }
    Ok(figures)
}

/// What is started within a budget, in files and in GB-hours.
fn ours(select: Select, ranked: &[Ranked], gb_hours: f64) -> (u64, f64) {
    let limits = BudgetLimits { gb_hours_per_hour: gb_hours, carry_over_hours: 1.0, concurrent_jobs: usize::MAX };
    let round = start_by(select, ranked.to_vec(), &mut Budget::new(&Budgets::of(&limits), 0), 0);
    sum(round.started.iter().map(|(ranked, _)| ranked))
}

/// Best first; the first that passes the budget is the last.
fn openhouse(ranked: &[Ranked], gb_hours: f64) -> (u64, f64) {
    let mut spent = 0.0;
    let within = |r: &&Ranked| {
        let goes_on = spent < gb_hours;
        spent += r.candidate.bound.gb_hours;
        goes_on
    };
    sum(ranked.iter().take_while(within))
}

fn sum<'r>(started: impl Iterator<Item = &'r Ranked>) -> (u64, f64) {
    started.fold((0, 0.0), |(gain, spent), r| (gain + r.candidate.gain, spent + r.candidate.bound.gb_hours))
}

fn generated(count: usize) -> Vec<Vec<Candidate>> {
    let all = ranking::candidates(count * EACH);
    all.chunks(EACH).map(|round| round.iter().map(|c| Candidate { urgent: false, ..c.clone() }).collect()).collect()
}

/// The candidates of every round of a recording that had several, the best sixteen of them.
fn recorded(path: &Path) -> anyhow::Result<Vec<Vec<Candidate>>> {
    let (mut pending, mut rounds) = (BTreeMap::new(), Vec::new());
    read::each(path, |line| match line {
        Line::Begins(_) => pending.clear(),
        Line::Round(made) => {
            made.gone.iter().for_each(|gone| drop(pending.remove(gone)));
            pending.extend(made.changed.iter().map(|c| (key(c), c.clone())));
            if pending.len() > 1 {
                let ranked = rank_by(&Ranking::default(), pending.values().cloned().collect());
                rounds.push(ranked.into_iter().take(EACH).map(|r| Candidate { urgent: false, ..r.candidate }).collect());
            }
        }
        _ => {}
    })?;
    Ok(rounds)
}
