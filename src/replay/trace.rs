//! What writers did to partitions, apart from what we did.
//!
//! A recording tells the sizes of a partition's files by tier. What changed between two
//! decisions, less what our jobs changed, is the writers' doing; files of one tier are
//! taken to be of one size.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::lines::{Begins, Closed, Job, Judged, Key, Line, Table};
use crate::model::economy::{Budgets, Prices, Ranking};
use crate::model::ident::{TableIdent, TableName};
use crate::model::layout::{SizeScale, TIERS, Tier};
use crate::model::partition::PartitionKey;
use crate::model::policy::Policy;
use crate::model::traits::Traits;

/// So many files of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lot {
    /// Bytes of each.
    pub bytes: u64,
    /// How many.
    pub files: u64,
}

/// Delete files and what they delete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deletes {
    /// Delete files and vectors.
    pub files: u64,
    /// Deleted positions.
    pub positions: u64,
    /// Deleted keys.
    pub keys: u64,
}

/// What one commit, or several, did to a partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Data files that came.
    pub adds: Vec<Lot>,
    /// Data files that went.
    pub removes: Vec<Lot>,
    /// Rows of the files that came.
    pub records_in: u64,
    /// Rows of the files that went.
    pub records_out: u64,
    /// Deletes that came.
    pub deletes_in: Deletes,
    /// Deletes that went.
    pub deletes_out: Deletes,
    /// It was there when the trace begins: no write.
    pub is_base: bool,
}

impl Change {
    /// Whether nothing changed.
    pub fn is_empty(&self) -> bool {
        *self == Self { is_base: self.is_base, ..Self::default() }
    }
}

/// A change at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// When, in milliseconds since the epoch.
    pub at_ms: i64,
    /// The table and branch, by their place in the trace.
    pub table: usize,
    /// The partition.
    pub scope: PartitionKey,
    /// What changed.
    pub change: Change,
}

/// A table of a trace, on one of its branches.
#[derive(Clone, Debug, PartialEq)]
pub struct Traced {
    /// Identity.
    pub ident: TableIdent,
    /// The branch; `None` for `main`.
    pub branch: Option<Arc<str>>,
    /// Its name.
    pub name: TableName,
    /// Whose it is.
    pub tenant: Option<Arc<str>>,
    /// Those of its properties that a policy may come from.
    pub properties: BTreeMap<String, String>,
    /// What its settings meant.
    pub policy: Policy,
    /// Its oldest known time.
    pub created_ms: i64,
}

/// What writers did.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    /// The tables, once for each branch.
    pub tables: Vec<Traced>,
    /// The changes, by time.
    pub events: Vec<Event>,
    /// When it begins, in milliseconds since the epoch,
    pub from_ms: i64,
    /// and when it ends.
    pub to_ms: i64,
    /// The budgets that were there,
    pub budgets: Budgets,
    /// how candidates were compared,
    pub ranking: Ranking,
    /// and what resources cost.
    pub prices: Prices,
}

/// Files by size tier, and the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sums([(u64, u64); TIERS + 1]);

impl Sums {
    fn of(traits: &Traits) -> Self {
        let mut sums = Self::of_tiers(&traits.small_tiers);
        sums.large(traits.data_files.saturating_sub(traits.small_file_count), traits.data_bytes.saturating_sub(traits.small_bytes));
        sums
    }

    fn of_tiers(tiers: &[Tier; TIERS]) -> Self {
        let mut sums = Self::default();
        for (slot, tier) in sums.0.iter_mut().zip(tiers) {
            *slot = (tier.files.into(), tier.bytes);
        }
        sums
    }

    fn large(&mut self, files: u64, bytes: u64) {
        if let Some(last) = self.0.last_mut() {
            *last = (last.0.saturating_add(files), last.1.saturating_add(bytes));
        }
    }

    /// Less what a job took, with what it made.
    fn after(mut self, job: &Job, scale: &SizeScale) -> Self {
        let mut taken = Self::of_tiers(&job.small);
        taken.large(job.large_files, job.large_bytes);
        for (slot, (files, bytes)) in self.0.iter_mut().zip(taken.0) {
            *slot = (slot.0.saturating_sub(files), slot.1.saturating_sub(bytes));
        }
        if let Some(each) = job.bytes_out.checked_div(job.files_out) {
            let place = if scale.is_small(each) { scale.tier(each) } else { TIERS };
            if let Some(slot) = self.0.get_mut(place) {
                *slot = (slot.0.saturating_add(job.files_out), slot.1.saturating_add(job.bytes_out));
            }
        }
        self
    }

    /// What writers added and removed on the way to another state.
    fn to(&self, now: &Self) -> (Vec<Lot>, Vec<Lot>) {
        let (mut adds, mut removes) = (Vec::new(), Vec::new());
        for (before, after) in self.0.iter().zip(&now.0) {
            let (came, went) = (after.0.saturating_sub(before.0), before.0.saturating_sub(after.0));
            if came > 0 {
                lots(came, after.1.saturating_sub(before.1), &mut adds);
            } else if went > 0 {
                lots(went, before.1.saturating_sub(after.1), &mut removes);
            } else if before.1 != after.1 && before.0 > 0 {
                // as many files of other sizes: one went, and one of another size came
                let each = before.1 / before.0;
                lots(1, each, &mut removes);
                lots(1, each.saturating_add(after.1).saturating_sub(before.1), &mut adds);
            }
        }
        (adds, removes)
    }
}

/// So many files of so many bytes together, as even as they can be.
fn lots(files: u64, bytes: u64, into: &mut Vec<Lot>) {
    let (Some(each), Some(more)) = (bytes.checked_div(files), bytes.checked_rem(files)) else { return };
    into.extend([Lot { bytes: each + 1, files: more }, Lot { bytes: each, files: files - more }].into_iter().filter(|lot| lot.files > 0));
}

/// A partition as it was judged last.
struct Seen {
    snapshot_id: i64,
    sums: Sums,
    records: u64,
    deletes: Deletes,
    /// Our jobs that landed since.
    jobs: Vec<Job>,
}

/// Makes a trace of a recording, line by line.
#[derive(Default)]
pub struct Tracer {
    trace: Trace,
    /// Where a table's branches are in the trace.
    places: HashMap<TableIdent, BTreeMap<Option<Arc<str>>, usize>>,
    seen: HashMap<Key, Seen>,
    begun: bool,
}

impl Tracer {
    /// The next line.
    pub fn line(&mut self, line: &Line) {
        match line {
            Line::Begins(begins) => self.begins(begins),
            Line::Table(table) => self.table(table),
            Line::Judged(judged) => self.judged(judged),
            Line::Job(job) => self.job(job),
            Line::Closed(closed) => self.closed(closed),
            Line::Round(made) => self.moment(made.at_ms),
            Line::Exchanged(_) | Line::Settled(_) => {}
        }
    }

    /// The trace.
    pub fn end(mut self) -> Trace {
        self.trace.events.sort_by(|a, b| (a.at_ms, a.table, &a.scope).cmp(&(b.at_ms, b.table, &b.scope)));
        self.trace
    }

    fn moment(&mut self, at_ms: i64) {
        let trace = &mut self.trace;
        (trace.from_ms, trace.to_ms) = match self.begun {
            true => (trace.from_ms.min(at_ms), trace.to_ms.max(at_ms)),
            false => (at_ms, at_ms),
        };
        self.begun = true;
    }

    fn begins(&mut self, begins: &Begins) {
        self.moment(begins.at_ms);
        self.trace.budgets = begins.budget.budgets().clone();
        self.trace.ranking = begins.ranking;
        self.trace.prices = begins.prices.clone();
    }

    fn table(&mut self, table: &Table) {
        let traced = Traced {
            ident: table.ident,
            branch: None,
            name: table.name.clone(),
            tenant: table.tenant.clone(),
            properties: table.properties.clone(),
            policy: table.policy.clone(),
            created_ms: 0,
        };
        let places = self.places.entry(table.ident).or_default();
        if places.is_empty() {
            places.insert(None, self.trace.tables.len());
            self.trace.tables.push(traced);
            return;
        }
        for at in places.values() {
            if let Some(known) = self.trace.tables.get_mut(*at) {
                *known = Traced { branch: known.branch.take(), created_ms: known.created_ms, ..traced.clone() };
            }
        }
    }

    /// Where a table's branch is in the trace; it has the table's settings.
    fn place(&mut self, table: &TableIdent, branch: Option<&Arc<str>>) -> Option<usize> {
        let places = self.places.get_mut(table)?;
        let branch = branch.cloned();
        if let Some(at) = places.get(&branch) {
            return Some(*at);
        }
        let like = self.trace.tables.get(*places.values().next()?)?;
        let of_branch = Traced { branch: branch.clone(), created_ms: 0, ..like.clone() };
        let at = self.trace.tables.len();
        places.insert(branch, at);
        self.trace.tables.push(of_branch);
        Some(at)
    }

    fn job(&mut self, job: &Job) {
        self.moment(job.at_ms);
        let seen = self.seen.get_mut(&Key::of(job.table, job.branch.as_ref(), &job.scope)).filter(|_| job.snapshot_id.is_some());
        seen.into_iter().for_each(|seen| seen.jobs.push(job.clone()));
    }

    fn judged(&mut self, judged: &Judged) {
        self.moment(judged.at_ms);
        // a look may show what a job made before the job has ended
        if judged.in_flight {
            return;
        }
        let Some(at) = self.place(&judged.table, judged.branch.as_ref()) else { return };
        let Some(table) = self.trace.tables.get_mut(at) else { return };
        table.created_ms = judged.created_ms;
        let scale = table.policy.scale;
        let (traits, key) = (&judged.traits, Key::of(judged.table, judged.branch.as_ref(), &judged.scope));
        let deletes =
            Deletes { files: traits.delete_file_count, positions: traits.position_delete_records, keys: traits.equality_delete_records };
        let now = Seen { snapshot_id: judged.snapshot_id, sums: Sums::of(traits), records: traits.records, deletes, jobs: Vec::new() };
        let change = match self.seen.get(&key) {
            Some(before) if before.snapshot_id == now.snapshot_id => return,
            Some(before) => before.to(&now, &scale),
            None => Change { is_base: true, ..Seen::none().to(&now, &scale) },
        };
        self.seen.insert(key, now);
        self.push(judged.at_ms, at, &judged.scope, change);
    }

    fn closed(&mut self, closed: &Closed) {
        self.moment(closed.at_ms);
        let Some(at) = self.place(&closed.table, closed.branch.as_ref()) else { return };
        let Some(before) = self.seen.remove(&Key::of(closed.table, closed.branch.as_ref(), &closed.scope)) else { return };
        let scale = self.trace.tables.get(at).map_or(Policy::default().scale, |table| table.policy.scale);
        self.push(closed.at_ms, at, &closed.scope, before.to(&Seen::none(), &scale));
    }

    fn push(&mut self, at_ms: i64, table: usize, scope: &PartitionKey, change: Change) {
        if !change.is_empty() {
            self.trace.events.push(Event { at_ms, table, scope: scope.clone(), change });
        }
    }
}

impl Seen {
    fn none() -> Self {
        Self { snapshot_id: 0, sums: Sums::default(), records: 0, deletes: Deletes::default(), jobs: Vec::new() }
    }

    /// What writers did on the way to another state, our own jobs left out.
    fn to(&self, now: &Self, scale: &SizeScale) -> Change {
        let expected = self.jobs.iter().fold(self.sums, |sums, job| sums.after(job, scale));
        let (adds, removes) = expected.to(&now.sums);
        let less = |a: u64, b: u64| a.saturating_sub(b);
        let deletes = |from: &Deletes, to: &Deletes| Deletes {
            files: less(to.files, from.files),
            positions: less(to.positions, from.positions),
            keys: less(to.keys, from.keys),
        };
        // deletes that went with a job of ours were applied by it, and with them their rows
        let ours = self.jobs.iter().any(|job| job.deletes > 0);
        Change {
            adds,
            removes,
            records_in: less(now.records, self.records),
            records_out: if ours { 0 } else { less(self.records, now.records) },
            deletes_in: deletes(&self.deletes, &now.deletes),
            deletes_out: if ours { Deletes::default() } else { deletes(&now.deletes, &self.deletes) },
            is_base: false,
        }
    }
}
