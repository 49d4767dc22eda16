//! How much of a table one piece of work takes: a partition, the whole table, or only what
//! came since the last rewrite.
//!
//! Work is always carried out a partition at a time, and a partition is a candidate once:
//! what is taken of it is one of two sets, of which one holds the other. So no two pieces
//! of work that overlap ever run.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::maturity::ScopeMemory;
use super::round::{Candidate, Unit};
use super::select::Estimate;
use crate::model::ident::TableIdent;
use crate::model::layout::{TIERS, Tier};
use crate::model::policy::{CostModel, Policy, Scoping};
use crate::model::traits::Traits;

/// Small files that came since the last rewrite, by size tier; `None` where that is not
/// known, or not asked for.
pub fn fresh(policy: &Policy, memory: &ScopeMemory, traits: &Traits) -> Option<[Tier; TIERS]> {
    if !matches!(policy.scope, Scoping::Snapshot | Scoping::Hybrid) {
        return None;
    }
    let settled = memory.settled.as_ref()?.tiers.as_ref()?;
    let mut fresh = traits.small_tiers;
    for (tier, before) in fresh.iter_mut().zip(settled) {
        *tier = Tier { files: tier.files.saturating_sub(before.files), bytes: tier.bytes.saturating_sub(before.bytes) };
    }
    Some(fresh)
}

/// What work takes of a partition: what came since its last rewrite, or all of it.
pub fn estimate(policy: &Policy, memory: &ScopeMemory, traits: &Traits, of: impl Fn(&[Tier; TIERS]) -> Estimate) -> Estimate {
    let all = of(&traits.small_tiers);
    match fresh(policy, memory, traits).map(|fresh| of(&fresh)) {
        None => all,
        Some(fresh) if policy.scope == Scoping::Snapshot => fresh,
        Some(fresh) => {
            if is_better(&policy.cost, &fresh, &all) {
                fresh
            } else {
                all
            }
        }
    }
}

/// Whether one set gains more for its cost than another; when they are alike, the other one.
pub fn is_better(cost: &CostModel, one: &Estimate, other: &Estimate) -> bool {
    let worth = |e: &Estimate| per_cost(e.gain(), cost.gb_hours(e.bytes));
    worth(one) > worth(other)
}

/// Files saved for each GB-hour.
fn per_cost(gain: u64, gb_hours: f64) -> f64 {
    gain as f64 / gb_hours.max(f64::MIN_POSITIVE)
}

/// A table, and its branch where that is another than `main`.
type Place = (TableIdent, Option<Arc<str>>);

/// Has the candidates of tables that are worked on as a whole compared as one, each branch by itself: by what all
/// of them gain and cost together, with the start of one job. `of` tells a table's scope
/// and cost. In hybrid scope that is done where it gains more for its cost than the best
/// of its partitions by itself.
pub fn join(candidates: &mut [Candidate], of: impl Fn(&TableIdent) -> Option<(Scoping, CostModel)>) {
    let mut tables: BTreeMap<Place, (Unit, f64, u32)> = BTreeMap::new();
    // sums of such numbers depend on their order
    let mut in_order: Vec<&Candidate> = candidates.iter().collect();
    in_order.sort_unstable_by_key(|c| (c.table, &c.context.branch, &c.scope));
    for candidate in in_order {
        let (unit, best, count) = tables.entry((candidate.table, candidate.context.branch.clone())).or_insert((Unit::default(), 0.0, 0));
        unit.gain = unit.gain.saturating_add(candidate.gain);
        unit.gb_hours += candidate.gb_hours;
        *best = best.max(per_cost(candidate.gain, candidate.gb_hours));
        *count += 1;
    }
    let whole: BTreeMap<Place, Unit> = tables
        .into_iter()
        .filter_map(|(place, (unit, best, count))| {
            let (scope, cost) = of(&place.0)?;
            // all but the first start of a job are saved
            let together = Unit { gb_hours: unit.gb_hours - cost.startup_gbhr * f64::from(count.saturating_sub(1)), ..unit };
            let wins = scope == Scoping::Table || (scope == Scoping::Hybrid && per_cost(together.gain, together.gb_hours) > best);
            (count > 1 && wins).then_some((place, together))
        })
        .collect();
    for candidate in candidates {
        candidate.context.unit = whole.get(&(candidate.table, candidate.context.branch.clone())).copied();
    }
}
