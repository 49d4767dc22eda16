//! Plans: the exact files of a partition that a decision asks to rewrite.

use std::collections::BTreeMap;

use super::budget::{bound_for, largest_job};
use super::scope::is_better;
use super::select::{self, Estimate, TierSet};
use crate::model::decision::{Decision, Reason, Verdict};
use crate::model::file::FileKey;
use crate::model::ident::{TableIdent, TableName};
use crate::model::layout::{SizeScale, TIERS, Tier};
use crate::model::mode::Mode;
use crate::model::plan::{LiveDelete, LiveFile, Plan, ScopeFiles};
use crate::model::policy::{BudgetLimits, Policy, Rule, Scoping, Takes};
use crate::model::refusal::{Refusal, Refused};

/// What asks for a plan.
#[derive(Clone, Debug, PartialEq)]
pub enum Cause {
    /// A trigger.
    Rule(Rule),
    /// A place in the queue.
    Score,
    /// Somebody: every tier at once, and every file that deletes apply to.
    Request,
    /// The mode, when its time has come: as a request.
    Due(Mode),
}

impl Cause {
    /// The cause that a decision names; `None` when it asks for no work, or its
    /// rule is in the policy no more.
    pub fn of(decision: &Decision, policy: &Policy) -> Option<Self> {
        Self::of_verdict(&decision.verdict, policy)
    }

    /// The same, of a decision's verdict.
    pub fn of_verdict(verdict: &Verdict, policy: &Policy) -> Option<Self> {
        match verdict {
            Verdict::Now { rule, .. } if policy.pace.mode.asks() && policy.pace.mode.name() == rule => Some(Self::Due(policy.pace.mode)),
            Verdict::Now { rule, .. } | Verdict::Queued { rule: Some(rule), .. } => {
                policy.rules.iter().find(|r| r.name() == rule).cloned().map(Self::Rule)
            }
            Verdict::Queued { rule: None, .. } => Some(Self::Score),
            Verdict::Review { .. } | Verdict::Not { .. } => None,
        }
    }

    /// The reason that a plan carries.
    pub fn name(&self) -> &str {
        match self {
            Self::Rule(rule) => rule.name(),
            Self::Due(mode) => mode.name(),
            Self::Score => "score",
            Self::Request => "request",
        }
    }

    /// Whether all that gains anything is taken, also what does not rise by it.
    fn takes_all(&self) -> bool {
        matches!(self, Self::Request | Self::Due(_) | Self::Rule(Rule::Own { takes: Takes::All, .. }))
    }
}

/// What a plan is made for.
#[derive(Clone, Debug)]
pub struct Order<'a> {
    /// The table.
    pub table: TableIdent,
    /// Its name.
    pub name: &'a TableName,
    /// The branch.
    pub reference: &'a str,
    /// What its settings ask for.
    pub policy: &'a Policy,
    /// The budget that the jobs must fit.
    pub limits: &'a BudgetLimits,
    /// What asks for it.
    pub cause: &'a Cause,
}

/// Chooses the inputs exactly and cuts them into jobs: disjoint plans, oldest
/// inputs first, never none.
///
/// Every plan makes a difference that is known beforehand: it drops files, or
/// applies deletes. Errs with [`Reason::NothingToGain`] when there is no such
/// plan, and with a refusal when a chosen input may not be rewritten.
pub fn plans(order: &Order<'_>, scope: &ScopeFiles) -> Result<Vec<Plan>, Reason> {
    plans_since(order, scope, None)
}

/// The same where files with a later sequence number than this came since the last
/// rewrite: which of them and the others are taken is the policy's scope.
pub fn plans_since(order: &Order<'_>, scope: &ScopeFiles, since: Option<i64>) -> Result<Vec<Plan>, Reason> {
    let mut chosen = choose(order, scope, since);
    chosen.sort_by(|a, b| (a.data_sequence, &a.path).cmp(&(b.data_sequence, &b.path)));
    let limit = largest_job(order.policy, order.limits);
    let mut plans = Vec::new();
    for group in groups(&chosen, limit) {
        if makes_a_difference(order, &group) {
            plans.push(plan_of(order, scope, &group)?);
        }
    }
    if plans.is_empty() { Err(Reason::NothingToGain) } else { Ok(plans) }
}

/// The most delete files on one data file: what the `deletes` rule asks for and
/// counts do not tell.
pub fn max_deletes_on_file(scope: &ScopeFiles) -> u64 {
    scope.files.iter().map(|f| f.deletes.len() as u64).max().unwrap_or(0)
}

fn choose<'s>(order: &Order<'_>, scope: &'s ScopeFiles, since: Option<i64>) -> Vec<&'s LiveFile> {
    let policy = order.policy;
    let all = choose_of(order, scope, i64::MIN);
    let is_merge = matches!(order.cause, Cause::Rule(Rule::SmallFiles { .. } | Rule::Entropy { .. }) | Cause::Score);
    let asked = matches!(policy.scope, Scoping::Snapshot | Scoping::Hybrid);
    let Some(since) = since.filter(|_| is_merge && asked) else { return all };
    let fresh = choose_of(order, scope, since);
    let of = |files: &[&LiveFile]| estimate_of(&policy.scale, files);
    let wins = policy.scope == Scoping::Snapshot || is_better(&policy.cost, &of(&fresh), &of(&all));
    if wins { fresh } else { all }
}

/// Of the files whose sequence number is later than one.
fn choose_of<'s>(order: &Order<'_>, scope: &'s ScopeFiles, since: i64) -> Vec<&'s LiveFile> {
    let policy = order.policy;
    let limit = largest_job(policy, order.limits);
    let files = || scope.files.iter().filter(|f| f.data_sequence > since);
    let tiers = tiers_of(&policy.scale, files());
    let in_set = |set: TierSet| files().filter(|f| is_in(&policy.scale, &set, f)).collect();
    match order.cause {
        Cause::Request | Cause::Due(_) | Cause::Rule(Rule::Own { takes: Takes::All, .. }) => {
            scope.files.iter().filter(|f| policy.scale.is_small(f.bytes) || !f.deletes.is_empty()).collect()
        }
        Cause::Rule(Rule::SmallFiles { .. } | Rule::Own { takes: Takes::FullTiers, .. }) => {
            in_set(select::full_tiers(&tiers, &policy.scale, policy.tier_files, limit))
        }
        Cause::Rule(Rule::Entropy { .. } | Rule::Own { takes: Takes::Merge, .. }) | Cause::Score => {
            in_set(select::rising_tiers(&tiers, &policy.scale, limit))
        }
        Cause::Rule(Rule::Own { takes: Takes::Deletes, .. }) => with_neighbours(&policy.scale, scope, |f: &LiveFile| !f.deletes.is_empty()),
        Cause::Rule(Rule::Deletes { min_ratio, min_files_per_data_file }) => {
            let heavy = |f: &LiveFile| weighs(f, &scope.deletes, *min_ratio, *min_files_per_data_file);
            with_neighbours(&policy.scale, scope, heavy)
        }
    }
}

fn is_in(scale: &SizeScale, set: &TierSet, file: &LiveFile) -> bool {
    scale.is_small(file.bytes) && set.contains(scale.tier(file.bytes))
}

fn tiers_of<'f>(scale: &SizeScale, files: impl Iterator<Item = &'f LiveFile>) -> [Tier; TIERS] {
    let mut tiers = [Tier::default(); TIERS];
    for file in files.filter(|f| scale.is_small(f.bytes)) {
        if let Some(tier) = tiers.get_mut(scale.tier(file.bytes)) {
            tier.files = tier.files.saturating_add(1);
            tier.bytes = tier.bytes.saturating_add(file.bytes);
        }
    }
    tiers
}

/// Whether the deletes on a file are many, or may delete much of it.
fn weighs(file: &LiveFile, deletes: &BTreeMap<FileKey, LiveDelete>, min_ratio: f64, min_files: u64) -> bool {
    if file.deletes.is_empty() {
        return false;
    }
    let deleted: u64 = file.deletes.iter().filter_map(|key| deletes.get(key)).fold(0, |sum, d| sum.saturating_add(d.records));
    let share = deleted.min(file.records) as f64 / file.records.max(1) as f64;
    file.deletes.len() as u64 >= min_files || share >= min_ratio || file.records == 0
}

/// The heavy files, and the small ones that rise when they go along.
fn with_neighbours<'s>(scale: &SizeScale, scope: &'s ScopeFiles, heavy: impl Fn(&LiveFile) -> bool) -> Vec<&'s LiveFile> {
    let (mut chosen, others): (Vec<_>, Vec<_>) = scope.files.iter().partition(|f| heavy(f));
    if chosen.is_empty() {
        return chosen;
    }
    let alone = estimate_of(scale, &chosen);
    chosen.extend(others.into_iter().filter(|f| scale.is_small(f.bytes) && select::rises(scale, &alone, scale.tier(f.bytes))));
    chosen
}

/// Cuts files into groups of at most `limit` bytes, keeping their order. A file
/// above the limit fits no job.
fn groups<'f>(files: &[&'f LiveFile], limit: u64) -> Vec<Vec<&'f LiveFile>> {
    let mut groups: Vec<Vec<&LiveFile>> = Vec::new();
    let mut bytes = u64::MAX;
    for file in files.iter().filter(|f| f.bytes <= limit) {
        bytes = bytes.saturating_add(file.bytes);
        match groups.last_mut() {
            Some(group) if bytes <= limit => group.push(file),
            _ => {
                groups.push(vec![file]);
                bytes = file.bytes;
            }
        }
    }
    groups
}

/// A group is worth a job when deletes are applied, or files drop and each rises.
/// On request it is enough that files drop.
fn makes_a_difference(order: &Order<'_>, group: &[&LiveFile]) -> bool {
    if group.iter().any(|f| !f.deletes.is_empty()) {
        return true;
    }
    let scale = &order.policy.scale;
    let merged = estimate_of(scale, group);
    let largest = group.iter().map(|f| scale.tier(f.bytes)).min().unwrap_or(0);
    merged.reduction() > 0 && (order.cause.takes_all() || select::rises(scale, &merged, largest))
}

fn estimate_of(scale: &SizeScale, files: &[&LiveFile]) -> Estimate {
    let bytes = files.iter().fold(0u64, |sum, f| sum.saturating_add(f.bytes));
    Estimate { files: files.len() as u64, bytes, outputs: scale.outputs(bytes), deletes: 0 }
}

fn plan_of(order: &Order<'_>, scope: &ScopeFiles, group: &[&LiveFile]) -> Result<Plan, Reason> {
    let mut inputs: Vec<LiveFile> = group.iter().map(|f| (*f).clone()).collect();
    inputs.sort_by(|a, b| a.path.cmp(&b.path));
    let merged = estimate_of(&order.policy.scale, group);
    Ok(Plan {
        table: order.table,
        name: order.name.clone(),
        reference: order.reference.into(),
        snapshot_id: scope.snapshot_id,
        sequence_number: scope.sequence_number,
        scope: scope.scope.clone(),
        reason: order.cause.name().into(),
        deletes: join(&inputs, &scope.deletes)?,
        inputs,
        target_file_size: merged.bytes.div_ceil(merged.outputs.max(1)).max(1),
        bound: bound_for(order.policy, order.limits, merged.bytes),
    })
}

/// The deletes that apply to the inputs, ascending by key.
fn join(inputs: &[LiveFile], deletes: &BTreeMap<FileKey, LiveDelete>) -> Result<Vec<LiveDelete>, Reason> {
    let mut joined = BTreeMap::new();
    for input in inputs {
        for key in &input.deletes {
            let Some(delete) = deletes.get(key) else {
                let detail = format!("{} is said to apply to {} and is not among the partition's deletes", key.path, input.path);
                return Err(Reason::Refused(Refused::new(Refusal::Damaged, detail)));
            };
            joined.insert(key.clone(), delete.clone());
        }
    }
    Ok(joined.into_values().collect())
}

#[cfg(test)]
mod tests;
