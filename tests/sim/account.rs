//! What the jobs of the processes that serve hold and have spent of the budgets, never
//! more than they have: what is not known counts as nothing.

use std::collections::{BTreeMap, BTreeSet};

use afterwrite::act::Job;
use afterwrite::model::economy::Limits;
use afterwrite::model::ident::TableName;
use afterwrite::model::plan::JobId;
use afterwrite::ooda::lease::Leases;
use afterwrite::settings::Settings;

/// A job that runs, as far as the journal has told.
#[derive(Clone, Debug)]
struct Running {
    table: TableName,
    /// The snapshot that it was planned on.
    snapshot_id: i64,
    /// What is set aside for it.
    gb_hours: f64,
}

/// What jobs of one table hold or have spent.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum {
    pub gb_hours: f64,
    /// Of files that were to be replaced, or are.
    pub bytes: u64,
    pub jobs: usize,
}

/// A snapshot of jobs, and the bytes that each of them replaced.
#[derive(Debug)]
struct Made {
    table: TableName,
    bytes: BTreeMap<JobId, u64>,
}

/// The sums by table at the start of a job.
#[derive(Debug)]
pub struct Start {
    at_ms: i64,
    sums: BTreeMap<TableName, Sum>,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Account {
    running: BTreeMap<JobId, Running>,
    /// Those that may have ended without a word in the journal.
    doubted: BTreeMap<JobId, Running>,
    /// GB-hours of jobs that ended, by table.
    spent: BTreeMap<TableName, f64>,
    /// Bytes that each job set out to replace, by table.
    bytes: BTreeMap<JobId, (TableName, u64)>,
    /// Snapshots that the jobs made.
    made: Vec<Made>,
    starts: Vec<Start>,
    /// Jobs that people ran beside.
    by_hand: BTreeSet<JobId>,
    /// The leases on tables as the process read them last; `None` when it could not.
    pub leases: Option<Leases>,
}

impl Account {
    /// Another process: what the one before held is gone, whatever it came to.
    pub fn begin_anew(&mut self) {
        self.running.clear();
        self.doubted.clear();
        self.leases = None;
    }

    /// The journal failed: a job that runs may end without its knowing.
    pub fn doubt(&mut self) {
        self.doubted.append(&mut self.running);
    }

    pub fn begun(&mut self, job: &Job, by_hand: bool) {
        if by_hand {
            self.by_hand.insert(job.id.clone());
            return;
        }
        let table = job.plan.name.clone();
        self.bytes.insert(job.id.clone(), (table.clone(), job.plan.input_bytes()));
        let running = Running { table, snapshot_id: job.plan.snapshot_id, gb_hours: job.numbers.gb_hours_bound };
        self.running.insert(job.id.clone(), running);
        self.starts.push(Start { at_ms: job.requested_ms, sums: self.sums() });
    }

    pub fn ended(&mut self, job: &JobId, gb_hours: f64) {
        if let Some(running) = self.running.remove(job).or_else(|| self.doubted.remove(job)) {
            *self.spent.entry(running.table).or_default() += gb_hours;
        }
    }

    /// Jobs have made a snapshot together.
    pub fn landed(&mut self, jobs: &[JobId]) {
        let own = jobs.iter().filter(|job| !self.by_hand.contains(job));
        let replaced: Vec<_> = own.filter_map(|job| Some((job.clone(), self.bytes.remove(job)?))).collect();
        if let Some((_, (table, _))) = replaced.first() {
            let table = table.clone();
            self.made.push(Made { table, bytes: replaced.into_iter().map(|(job, (_, bytes))| (job, bytes)).collect() });
        }
    }

    /// Every try of a job was told as lost. So is that of one whose process died with the
    /// answer, when somebody had rolled its snapshot back and expired it before anyone looked.
    pub fn made_nothing(&mut self, job: &JobId) {
        self.made.iter_mut().for_each(|made| made.bytes.retain(|of, _| of != job));
    }

    /// The snapshots that jobs of a table made.
    fn commits(&self, table: &TableName) -> u64 {
        self.made.iter().filter(|made| made.table == *table && !made.bytes.is_empty()).count() as u64
    }

    /// Whether a job of a table may still run that was planned on one of these snapshots.
    pub fn began_on(&self, table: &TableName, snapshots: &[i64]) -> bool {
        let all = self.running.values().chain(self.doubted.values());
        all.into_iter().any(|job| job.table == *table && snapshots.contains(&job.snapshot_id))
    }

    pub fn is_idle(&self) -> bool {
        self.running.is_empty() && self.doubted.is_empty()
    }

    fn sums(&self) -> BTreeMap<TableName, Sum> {
        let mut sums: BTreeMap<TableName, Sum> = BTreeMap::new();
        for (table, gb_hours) in &self.spent {
            sums.entry(table.clone()).or_default().gb_hours += gb_hours;
        }
        for made in &self.made {
            sums.entry(made.table.clone()).or_default().bytes += made.bytes.values().sum::<u64>();
        }
        for (job, running) in &self.running {
            let sum = sums.entry(running.table.clone()).or_default();
            sum.gb_hours += running.gb_hours;
            sum.bytes += self.bytes.get(job).map_or(0, |(_, bytes)| *bytes);
            sum.jobs += 1;
        }
        sums
    }

    /// Whether what is held and was ever spent, over all restarts, is more than some budget
    /// gave until then. `hours` tells how many had passed at a moment.
    pub fn check(&mut self, settings: &Settings, hours: impl Fn(i64) -> f64, now_ms: i64) -> Result<(), String> {
        let sums = self.sums();
        let mut starts = std::mem::take(&mut self.starts);
        starts.push(Start { at_ms: now_ms, sums });
        for Start { at_ms, sums } in &starts {
            let hours = hours(*at_ms);
            for (whose, limits, tables) in holders(settings, sums.keys()) {
                let of: Vec<&Sum> = tables.iter().filter_map(|table| sums.get(table)).collect();
                let gb_hours: f64 = of.iter().map(|sum| sum.gb_hours).sum();
                let bytes: u64 = of.iter().map(|sum| sum.bytes).sum();
                let jobs: usize = of.iter().map(|sum| sum.jobs).sum();
                let commits: u64 = tables.iter().map(|table| self.commits(table)).sum();
                let gave = hours + settings.budgets.hours_held();
                let within = [
                    limits.gb_hours_per_hour.is_none_or(|rate| gb_hours <= rate * gave + 1e-6),
                    limits.bytes_per_hour.is_none_or(|rate| bytes as f64 <= rate as f64 * gave + 1.0),
                    limits.concurrent_jobs.is_none_or(|most| jobs <= most),
                    // those of now are not those of then
                    *at_ms != now_ms || limits.commits_per_hour.is_none_or(|rate| commits as f64 <= rate as f64 * gave),
                ];
                if within.contains(&false) {
                    let used = format!("{gb_hours} GB-hours, {bytes} bytes, {commits} commits, {jobs} jobs at one time");
                    return Err(format!("the budget of {whose} is passed after {hours} hours: {used}; {limits:?}; {within:?}"));
                }
            }
        }
        Ok(())
    }
}

/// Every holder of a budget with its limits and its tables.
fn holders<'a>(settings: &Settings, tables: impl Iterator<Item = &'a TableName>) -> Vec<(String, Limits, Vec<TableName>)> {
    let (all, overall): (Vec<TableName>, _) = (tables.cloned().collect(), &settings.budgets.overall);
    let shared = Limits {
        gb_hours_per_hour: Some(overall.gb_hours_per_hour),
        concurrent_jobs: Some(overall.concurrent_jobs),
        ..settings.budgets.more
    };
    let mut holders = vec![("all".to_owned(), shared, all.clone())];
    for tenant in &settings.budgets.tenants {
        let own = |name: &&TableName| settings.tenant_of(&name.to_string()).is_some_and(|of| of.name == tenant.name);
        holders.push((format!("tenant {}", tenant.name), tenant.limits, all.iter().filter(own).cloned().collect()));
    }
    holders.extend(all.into_iter().map(|table| (table.to_string(), settings.budgets.per_table, vec![table])));
    holders
}
