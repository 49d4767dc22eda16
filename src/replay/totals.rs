//! What a policy does over a trace, or did, in sums.

use std::collections::BTreeMap;

use serde::Serialize;

use super::lines::{Begins, Job, Judged, Key, Line};
use crate::model::decision::Verdict;
use crate::model::economy::{Budgets, Prices};

const HOUR_MS: f64 = 3_600_000.0;

/// Sums over a trace.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Totals {
    /// Decisions by verdict: `now`, `queued`, `review`, and the reasons of the others.
    pub decisions: BTreeMap<String, u64>,
    /// Hours from the first to the last moment.
    pub hours: f64,
    /// Jobs that landed.
    pub jobs: u64,
    /// Jobs that did not.
    pub lost: u64,
    /// ΔF: data files fewer by them.
    pub files_dropped: u64,
    /// Delete files applied by them.
    pub deletes_applied: u64,
    /// Bytes of the files that they replaced.
    pub bytes: u64,
    /// GB-hours that all jobs spent.
    pub gb_hours: f64,
    /// The same over what the budget gave in that time.
    pub budget_used: f64,
    /// Live data files, on the mean over time.
    pub mean_files: f64,
    /// Live data files at the end.
    pub files_at_end: u64,
    /// Live delete files, on the mean over time.
    pub mean_delete_files: f64,
    /// What the GB-hours, and the requests where they are known, cost.
    pub cost: f64,
}

impl Totals {
    /// A decision was made.
    pub fn decided(&mut self, verdict: &Verdict) {
        *self.decisions.entry(name_of(verdict).to_owned()).or_default() += 1;
    }

    /// A job ended.
    pub fn job(&mut self, landed: bool, dropped: u64, applied: u64, bytes: u64, gb_hours: f64) {
        self.gb_hours += gb_hours;
        if !landed {
            self.lost += 1;
            return;
        }
        self.jobs += 1;
        self.files_dropped = self.files_dropped.saturating_add(dropped);
        self.deletes_applied = self.deletes_applied.saturating_add(applied);
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// The time is over.
    pub fn end(&mut self, over_ms: i64, budgets: &Budgets, prices: &Prices, requests: u64) {
        self.hours = over_ms.max(0) as f64 / HOUR_MS;
        let given = budgets.overall.gb_hours_per_hour * self.hours;
        self.budget_used = if given > 0.0 { self.gb_hours / given } else { 0.0 };
        self.cost = prices.of(self.gb_hours, requests as f64);
    }
}

/// A verdict's name, or its reason's.
fn name_of(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Now { .. } => "now",
        Verdict::Queued { .. } => "queued",
        Verdict::Review { .. } => "review",
        Verdict::Not { reason } => reason.name(),
    }
}

/// A number over time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Level {
    value: u64,
    since_ms: Option<i64>,
    begun_ms: Option<i64>,
    sum: f64,
}

impl Level {
    /// It is another one from now on.
    pub fn set(&mut self, value: u64, now_ms: i64) {
        let since = self.since_ms.unwrap_or(now_ms);
        self.sum += self.value as f64 * now_ms.saturating_sub(since).max(0) as f64;
        self.begun_ms = self.begun_ms.or(Some(now_ms));
        (self.value, self.since_ms) = (value, Some(since.max(now_ms)));
    }

    /// What it is now.
    pub fn value(&self) -> u64 {
        self.value
    }

    /// Its mean until now.
    pub fn mean(&mut self, now_ms: i64) -> f64 {
        self.set(self.value, now_ms);
        let over = now_ms.saturating_sub(self.begun_ms.unwrap_or(now_ms));
        if over > 0 { self.sum / over as f64 } else { self.value as f64 }
    }
}

/// Sums up what a recording says was done, line by line.
#[derive(Default)]
pub struct Recorded {
    totals: Totals,
    files: Level,
    deletes: Level,
    /// Files and delete files of each partition.
    parts: BTreeMap<Key, (u64, u64)>,
    times: Option<(i64, i64)>,
    requests: u64,
    begins: Option<Box<Begins>>,
}

impl Recorded {
    /// The next line.
    pub fn line(&mut self, line: &Line) {
        let at_ms = match line {
            Line::Begins(begins) => {
                self.begins = Some(begins.clone());
                begins.at_ms
            }
            Line::Judged(judged) => {
                self.totals.decided(&judged.verdict);
                self.judged(judged);
                judged.at_ms
            }
            Line::Job(job) => {
                self.job(job);
                job.at_ms
            }
            Line::Closed(closed) => {
                self.stands(Key::of(closed.table, closed.branch.as_ref(), &closed.scope), None, closed.at_ms);
                closed.at_ms
            }
            Line::Round(made) => made.at_ms,
            Line::Table(_) | Line::Exchanged(_) | Line::Settled(_) => return,
        };
        let (from, to) = self.times.unwrap_or((at_ms, at_ms));
        self.times = Some((from.min(at_ms), to.max(at_ms)));
    }

    /// The sums.
    pub fn end(mut self) -> Totals {
        let (from, to) = self.times.unwrap_or_default();
        self.totals.files_at_end = self.files.value();
        (self.totals.mean_files, self.totals.mean_delete_files) = (self.files.mean(to), self.deletes.mean(to));
        if let Some(begins) = &self.begins {
            self.totals.end(to - from, begins.budget.budgets(), &begins.prices, self.requests);
        }
        self.totals
    }

    fn judged(&mut self, judged: &Judged) {
        let now = (judged.traits.data_files, judged.traits.delete_file_count);
        self.stands(Key::of(judged.table, judged.branch.as_ref(), &judged.scope), Some(now), judged.at_ms);
    }

    fn stands(&mut self, key: Key, now: Option<(u64, u64)>, at_ms: i64) {
        let before = match now {
            Some(now) => self.parts.insert(key, now),
            None => self.parts.remove(&key),
        };
        let ((files, deletes), (had_files, had_deletes)) = (now.unwrap_or_default(), before.unwrap_or_default());
        self.files.set(self.files.value().saturating_sub(had_files).saturating_add(files), at_ms);
        self.deletes.set(self.deletes.value().saturating_sub(had_deletes).saturating_add(deletes), at_ms);
    }

    fn job(&mut self, job: &Job) {
        let landed = job.snapshot_id.is_some();
        let dropped = job.files_in().saturating_sub(job.files_out);
        self.totals.job(landed, dropped, job.deletes, job.bytes_in(), job.gb_hours);
        self.requests = self.requests.saturating_add(job.requests);
    }
}
