//! A partition as a model: the sizes of its files, and what a job makes of them.

use std::collections::BTreeMap;

use super::trace::{Change, Deletes, Lot};
use crate::decide::ScopeMemory;
use crate::decide::plan::Cause;
use crate::decide::scope::is_better;
use crate::decide::select::{self, Estimate, TierSet};
use crate::model::file::Content;
use crate::model::layout::{PartitionLayout, SizeScale, TIERS, Tally, Tier};
use crate::model::policy::{Policy, Rule, Scoping};
use crate::model::traits::Traits;
use crate::orient::traits::of_layout;

const HOUR_MS: f64 = 3_600_000.0;

/// Files of one job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    /// What is taken.
    pub lots: Vec<Lot>,
    /// How many files that is,
    pub files: u64,
    /// and how many bytes.
    pub bytes: u64,
    /// Whether all deletes of the partition are applied on the way.
    pub applies: bool,
}

/// A partition.
#[derive(Clone, Debug)]
pub struct Part {
    /// How many files there are of each size,
    sizes: BTreeMap<u64, u64>,
    /// and were after the last rewrite.
    settled: BTreeMap<u64, u64>,
    layout: PartitionLayout,
    scale: SizeScale,
    deletes: Deletes,
    /// What work on it has taught.
    pub memory: ScopeMemory,
    /// When files were last taken away by writers, in milliseconds since the epoch.
    pub removed_ms: i64,
    last_write_ms: Option<i64>,
    rate: f64,
}

impl Part {
    /// One without files.
    pub fn new(scale: SizeScale) -> Self {
        Self {
            sizes: BTreeMap::new(),
            settled: BTreeMap::new(),
            layout: PartitionLayout::default(),
            scale,
            deletes: Deletes::default(),
            memory: ScopeMemory::default(),
            removed_ms: i64::MIN,
            last_write_ms: None,
            rate: 0.0,
        }
    }

    /// Live data files.
    pub fn files(&self) -> u64 {
        self.layout.data.files
    }

    /// Live data bytes.
    pub fn bytes(&self) -> u64 {
        self.layout.data.bytes
    }

    /// Live delete files.
    pub fn delete_files(&self) -> u64 {
        self.deletes.files
    }

    /// Writers changed it.
    pub fn change(&mut self, change: &Change, at_ms: i64) {
        change.removes.iter().for_each(|lot| self.remove_like(*lot));
        change.adds.iter().for_each(|lot| self.add(*lot));
        let records = &mut self.layout.data.records;
        *records = records.saturating_sub(change.records_out).saturating_add(change.records_in);
        let (came, went) = (&change.deletes_in, &change.deletes_out);
        let alter = |have: u64, more: u64, less: u64| have.saturating_sub(less).saturating_add(more);
        self.set_deletes(Deletes {
            files: alter(self.deletes.files, came.files, went.files),
            positions: alter(self.deletes.positions, came.positions, went.positions),
            keys: alter(self.deletes.keys, came.keys, went.keys),
        });
        if came.files > 0 {
            self.memory = self.memory.after_new_delete();
        }
        if !change.removes.is_empty() {
            self.removed_ms = at_ms;
        }
        if !change.is_base {
            self.rate = self.commit_rate(at_ms) + std::f64::consts::LN_2;
            self.last_write_ms = Some(at_ms);
        }
    }

    /// Its traits now.
    pub fn traits(&self, policy: &Policy, now_ms: i64) -> Traits {
        let traits = of_layout(&self.layout, Tally::default(), &self.scale);
        Traits {
            compute_cost: policy.cost.gb_hours(traits.small_bytes),
            commit_rate: self.commit_rate(now_ms),
            quiet_for_ms: self.last_write_ms.map(|last| now_ms.saturating_sub(last).max(0)),
            ..traits
        }
    }

    /// What a cause takes, in jobs of at most so many bytes.
    pub fn groups(&self, cause: &Cause, policy: &Policy, limit: u64) -> Vec<Group> {
        let all = self.groups_of(cause, policy, limit, &self.sizes);
        let is_merge = !matches!(cause, Cause::Rule(Rule::Deletes { .. }));
        let asked = matches!(policy.scope, Scoping::Snapshot | Scoping::Hybrid) && !self.settled.is_empty();
        if !(is_merge && asked) {
            return all;
        }
        let came = |(bytes, files): (&u64, &u64)| (*bytes, files.saturating_sub(self.settled.get(bytes).copied().unwrap_or(0)));
        let fresh = self.sizes.iter().map(came).filter(|(_, files)| *files > 0).collect();
        let fresh = self.groups_of(cause, policy, limit, &fresh);
        let sum = |groups: &[Group]| {
            let outputs = groups.iter().map(|group| self.outputs(group)).sum();
            Estimate { files: groups.iter().map(|g| g.files).sum(), bytes: groups.iter().map(|g| g.bytes).sum(), outputs, deletes: 0 }
        };
        let wins = policy.scope == Scoping::Snapshot || is_better(&policy.cost, &sum(&fresh), &sum(&all));
        if wins { fresh } else { all }
    }

    fn groups_of(&self, cause: &Cause, policy: &Policy, limit: u64, sizes: &BTreeMap<u64, u64>) -> Vec<Group> {
        let tiers = &self.tiers_of(sizes);
        let applies = matches!(cause, Cause::Rule(Rule::Deletes { .. }));
        let set = match cause {
            Cause::Rule(Rule::SmallFiles { .. }) => select::full_tiers(tiers, &self.scale, policy.tier_files, limit),
            _ => select::rising_tiers(tiers, &self.scale, limit),
        };
        let mut groups: Vec<Group> = Vec::new();
        for (bytes, files) in sizes.iter().filter(|(bytes, _)| applies || self.is_in(&set, **bytes)) {
            let mut left = *files;
            while left > 0 && *bytes <= limit {
                let room = |group: &Group| limit.saturating_sub(group.bytes).checked_div(*bytes).unwrap_or(left);
                let fits = groups.last().map_or(0, room).min(left);
                if fits == 0 {
                    groups.push(Group { applies, ..Group::default() });
                    continue;
                }
                if let Some(group) = groups.last_mut() {
                    group.lots.push(Lot { bytes: *bytes, files: fits });
                    group.files = group.files.saturating_add(fits);
                    group.bytes = group.bytes.saturating_add(bytes.saturating_mul(fits));
                }
                left -= fits;
            }
        }
        groups.retain(|group| self.is_worth(group));
        groups
    }

    /// A job has landed; how many files fewer there are, and how many deletes it applied.
    pub fn rewrite(&mut self, group: &Group) -> (u64, u64) {
        group.lots.iter().for_each(|lot| self.remove_like(*lot));
        let outputs = self.scale.outputs(group.bytes).min(group.files.max(1));
        let (Some(each), Some(more)) = (group.bytes.checked_div(outputs), group.bytes.checked_rem(outputs)) else { return (0, 0) };
        self.add(Lot { bytes: each + 1, files: more });
        self.add(Lot { bytes: each, files: outputs - more });
        let applied = if group.applies { self.deletes.files } else { 0 };
        if group.applies {
            let gone = self.deletes.positions.saturating_add(self.deletes.keys);
            self.layout.data.records = self.layout.data.records.saturating_sub(gone.min(self.layout.data.records / 2));
            self.set_deletes(Deletes::default());
        }
        (group.files.saturating_sub(outputs), applied)
    }

    /// What is here now is what the last rewrite left.
    pub fn settle(&mut self) {
        self.settled.clone_from(&self.sizes);
        self.memory.shown(&self.layout.small);
    }

    /// Whether a job over it drops files or applies deletes.
    pub fn is_worth(&self, group: &Group) -> bool {
        (group.applies && self.deletes.files > 0) || self.is_better(group)
    }

    /// Files that a job makes of a group.
    pub fn outputs(&self, group: &Group) -> u64 {
        self.scale.outputs(group.bytes).min(group.files.max(1))
    }

    fn tiers_of(&self, sizes: &BTreeMap<u64, u64>) -> [Tier; TIERS] {
        let mut tiers = [Tier::default(); TIERS];
        for (bytes, files) in sizes.iter().filter(|(bytes, _)| self.scale.is_small(**bytes)) {
            if let Some(tier) = tiers.get_mut(self.scale.tier(*bytes)) {
                tier.files = tier.files.saturating_add(u32::try_from(*files).unwrap_or(u32::MAX));
                tier.bytes = tier.bytes.saturating_add(bytes.saturating_mul(*files));
            }
        }
        tiers
    }

    fn is_in(&self, set: &TierSet, bytes: u64) -> bool {
        self.scale.is_small(bytes) && set.contains(self.scale.tier(bytes))
    }

    /// Whether files drop, and each rises.
    fn is_better(&self, group: &Group) -> bool {
        let merged = Estimate { files: group.files, bytes: group.bytes, outputs: self.scale.outputs(group.bytes), deletes: 0 };
        let largest = group.lots.iter().map(|lot| self.scale.tier(lot.bytes)).min().unwrap_or(0);
        merged.reduction() > 0 && select::rises(&self.scale, &merged, largest)
    }

    fn commit_rate(&self, now_ms: i64) -> f64 {
        let hours = self.last_write_ms.map_or(0.0, |last| now_ms.saturating_sub(last).max(0) as f64 / HOUR_MS);
        self.rate * (-hours).exp2()
    }

    fn set_deletes(&mut self, deletes: Deletes) {
        self.deletes = deletes;
        let by_keys = if deletes.positions == 0 && deletes.keys > 0 { deletes.files } else { 0 };
        self.layout.position_deletes = Tally { files: deletes.files - by_keys, bytes: 0, records: deletes.positions };
        self.layout.equality_deletes = Tally { files: by_keys, bytes: 0, records: deletes.keys };
    }

    fn add(&mut self, lot: Lot) {
        for _ in 0..lot.files {
            if self.layout.add(&self.scale, Content::Data, lot.bytes, 0).is_err() {
                return;
            }
            *self.sizes.entry(lot.bytes).or_default() += 1;
        }
    }

    /// Takes files of a size away. Where there are none of that size, they were put
    /// together with others: the next larger one shrinks by as much, and where there is
    /// none either, the largest goes.
    fn remove_like(&mut self, lot: Lot) {
        for _ in 0..lot.files {
            let larger = self.sizes.range(lot.bytes..).next().map(|(bytes, _)| *bytes);
            let Some(bytes) = larger.or_else(|| self.sizes.keys().next_back().copied()) else { return };
            self.take(bytes);
            if bytes > lot.bytes {
                self.add(Lot { bytes: bytes - lot.bytes, files: 1 });
            }
        }
    }

    fn take(&mut self, bytes: u64) {
        if self.layout.remove(&self.scale, Content::Data, bytes, 0).is_err() {
            return;
        }
        if let Some(count) = self.sizes.get_mut(&bytes) {
            *count -= 1;
            if *count == 0 {
                self.sizes.remove(&bytes);
            }
        }
    }
}
