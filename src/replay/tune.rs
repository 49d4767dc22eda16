//! The thresholds and weights that do best on a trace, for a stated objective.
//!
//! Half of the tries are drawn at random from a grid of sensible values; the other half
//! goes on from the best of them, one value at a time. The same trace, objective, seed
//! and number of tries give the same policy on every machine.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use super::play::{Setup, play};
use super::totals::Totals;
use super::trace::Trace;
use crate::model::policy::{Policy, Rule};

/// What is to be had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Objective {
    /// The fewest live files on the mean, for no more GB-hours than now.
    Files,
    /// The fewest GB-hours, for no more live files on the mean than now.
    GbHours,
    /// The least sum of both, each over what it is now.
    #[default]
    Balanced,
}

impl Objective {
    /// Its word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Files => "files",
            Self::GbHours => "gb-hours",
            Self::Balanced => "balanced",
        }
    }

    /// What it asks for, in words.
    pub fn words(self) -> &'static str {
        match self {
            Self::Files => "the fewest live files on the mean, for no more GB-hours than now",
            Self::GbHours => "the fewest GB-hours, for no more live files on the mean than now",
            Self::Balanced => "the least sum of mean live files over those now and GB-hours over those now",
        }
    }

    /// How bad sums are beside those of now: first whether they pass what they must not.
    fn price(self, of: &Totals, now: &Totals) -> (bool, f64) {
        // deletes weigh on a reader as files do
        let files = |t: &Totals| t.mean_files + t.mean_delete_files;
        let over = |a: f64, b: f64| if b > 0.0 { a / b } else { 1.0 + a };
        let (files, gb_hours) = (over(files(of), files(now)), over(of.gb_hours, now.gb_hours));
        match self {
            Self::Files => (gb_hours > 1.0, files),
            Self::GbHours => (files > 1.0, gb_hours),
            Self::Balanced => (false, files + gb_hours),
        }
    }
}

impl fmt::Display for Objective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Objective {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let all = [Self::Files, Self::GbHours, Self::Balanced];
        all.into_iter().find(|o| o.name() == text).ok_or_else(|| format!("`{text}` is no objective: write files, gb-hours or balanced"))
    }
}

/// Something that can be set, and the values tried.
struct Knob {
    name: &'static str,
    values: &'static [f64],
    set: fn(&mut Policy, f64),
}

const MINUTE: f64 = 60_000.0;

/// What is tuned. A value below nothing of `queue_min_reduction` queues nothing.
const KNOBS: [Knob; 9] = [
    Knob { name: "tier_files", values: &[4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0, 64.0], set: |p, v| p.tier_files = v as u32 },
    Knob {
        name: "small-files.min_reduction_ratio",
        values: &[0.0, 0.05, 0.1, 0.2, 0.3, 0.5],
        set: |p, v| {
            rule(p, |r| {
                if let Rule::SmallFiles { min_reduction_ratio } = r {
                    *min_reduction_ratio = v
                }
            });
        },
    },
    Knob {
        name: "entropy.min_entropy",
        values: &[0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0],
        set: |p, v| {
            rule(p, |r| {
                if let Rule::Entropy { min_entropy, .. } = r {
                    *min_entropy = v
                }
            });
        },
    },
    Knob {
        name: "entropy.min_small_files",
        values: &[4.0, 8.0, 16.0, 32.0, 64.0],
        set: |p, v| {
            rule(p, |r| {
                if let Rule::Entropy { min_small_files, .. } = r {
                    *min_small_files = v as u64
                }
            });
        },
    },
    Knob {
        name: "deletes.min_ratio",
        values: &[0.02, 0.05, 0.1, 0.2, 0.3, 0.5],
        set: |p, v| {
            rule(p, |r| {
                if let Rule::Deletes { min_ratio, .. } = r {
                    *min_ratio = v
                }
            });
        },
    },
    Knob {
        name: "queue_min_reduction",
        values: &[-1.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0],
        set: |p, v| {
            p.queue_min_reduction = (v >= 0.0).then_some(v as u64);
        },
    },
    Knob { name: "cooldown", values: &[0.0, 1.0, 5.0, 15.0, 60.0, 240.0], set: |p, v| p.cooldown_ms = (v * MINUTE) as i64 },
    Knob { name: "quiet_window", values: &[0.0, 0.5, 2.0, 5.0, 15.0], set: |p, v| p.quiet_window_ms = (v * MINUTE) as i64 },
    Knob { name: "gain_weight", values: &[0.3, 0.5, 0.7, 0.9], set: |p, v| p.gain_weight = v },
];

fn rule(policy: &mut Policy, change: impl Fn(&mut Rule)) {
    policy.rules.iter_mut().for_each(change);
}

/// Which value of each knob, or as it is.
type Choice = [Option<usize>; KNOBS.len()];

/// A policy with a choice made.
fn chosen(choice: &Choice, policy: &Policy) -> Policy {
    let mut policy = policy.clone();
    for (knob, at) in KNOBS.iter().zip(choice) {
        if let Some(value) = at.and_then(|at| knob.values.get(at)) {
            (knob.set)(&mut policy, *value);
        }
    }
    policy
}

/// What the search found.
#[derive(Clone, Debug)]
pub struct Tuned {
    /// The policy of each table, in the order of the trace.
    pub policies: Vec<Policy>,
    /// The names of what is set otherwise than now.
    pub set: Vec<&'static str>,
    /// The sums as the settings are now,
    pub now: Totals,
    /// and with what was found.
    pub best: Totals,
    /// How many were tried.
    pub tried: usize,
}

/// Searches, with so many tries beside the settings as they are.
pub fn tune(trace: &Trace, now: &Setup, objective: Objective, trials: usize, seed: u64) -> Tuned {
    let mut search = Search::new(trace, now, objective);
    let mut chance = Chance(seed);
    for _ in 0..trials.div_ceil(2) {
        let mut choice = search.best.0;
        for (slot, knob) in choice.iter_mut().zip(&KNOBS) {
            // a third stays as in the best so far, so that good values are joined
            *slot = match chance.below(3) {
                0 => Some(chance.below(knob.values.len())),
                1 => None,
                _ => *slot,
            };
        }
        search.try_out(choice);
    }
    search.climb(trials);
    search.end()
}

/// A choice, how bad it is, and its sums.
type Tried = (Choice, (bool, f64), Totals);

struct Search<'a> {
    trace: &'a Trace,
    now: &'a Setup,
    objective: Objective,
    at_now: Totals,
    best: Tried,
    seen: BTreeSet<Choice>,
}

impl<'a> Search<'a> {
    fn new(trace: &'a Trace, now: &'a Setup, objective: Objective) -> Self {
        let (as_is, at_now) = ([None; KNOBS.len()], play(trace, now));
        let best = (as_is, objective.price(&at_now, &at_now), at_now.clone());
        Self { trace, now, objective, at_now, best, seen: BTreeSet::from([as_is]) }
    }

    /// Whether it is better than the best so far; what was tried before is not.
    fn try_out(&mut self, choice: Choice) -> bool {
        if !self.seen.insert(choice) {
            return false;
        }
        let setup = Setup { policies: self.policies(&choice), ..self.now.clone() };
        let totals = play(self.trace, &setup);
        let price = self.objective.price(&totals, &self.at_now);
        let set = |choice: &Choice| choice.iter().flatten().count();
        // of equals the one that changes less
        let order = price.0.cmp(&self.best.1.0).then(price.1.total_cmp(&self.best.1.1)).then(set(&choice).cmp(&set(&self.best.0)));
        if order.is_lt() {
            self.best = (choice, price, totals);
        }
        order.is_lt()
    }

    /// Goes on from the best, one value at a time, until none is better.
    fn climb(&mut self, trials: usize) {
        let mut better = true;
        while std::mem::take(&mut better) {
            for (at, knob) in KNOBS.iter().enumerate() {
                for value in std::iter::once(None).chain((0..knob.values.len()).map(Some)) {
                    if self.seen.len() > trials {
                        return;
                    }
                    let mut choice = self.best.0;
                    if let Some(slot) = choice.get_mut(at) {
                        *slot = value;
                    }
                    better |= self.try_out(choice);
                }
            }
        }
    }

    fn policies(&self, choice: &Choice) -> Vec<Policy> {
        self.now.policies.iter().map(|policy| chosen(choice, policy)).collect()
    }

    fn end(self) -> Tuned {
        let policies = self.policies(&self.best.0);
        let set = KNOBS.iter().zip(&self.best.0).filter(|(_, at)| at.is_some()).map(|(knob, _)| knob.name).collect();
        Tuned { policies, set, now: self.at_now, best: self.best.2, tried: self.seen.len() }
    }
}

/// SplitMix64.
struct Chance(u64);

impl Chance {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % (most.max(1) as u64)).unwrap_or(0)
    }
}
