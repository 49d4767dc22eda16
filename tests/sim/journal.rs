//! The journal behind the gate, and the account of the budget that is read from it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use afterwrite::act::journal::{Blob, Change, Error, Kept, Result, Step};
use afterwrite::act::process;
use afterwrite::act::{Attempt, AttemptState, Holder, Job, JobState, Journal, Kind, MemoryJournal, Pause, Pauses, Query};
use afterwrite::model::ident::TableIdent;
use afterwrite::model::plan::{AttemptId, JobId};
use async_trait::async_trait;

use super::gate::{Call, Gate};
use super::hold;

/// What was spent, and what the process holds, in GB-hours.
#[derive(Clone, Debug, Default)]
pub struct Account {
    pub running: BTreeMap<JobId, f64>,
    pub spent: f64,
    /// The most that was held or spent at the start of a job, and when.
    pub starts: Vec<(i64, f64, usize)>,
    /// Jobs that people ran beside.
    pub by_hand: BTreeSet<JobId>,
    /// Snapshots that the other jobs made, by table.
    pub commits: BTreeMap<usize, u64>,
    /// A job may have ended without a word in the journal.
    pub blind: bool,
}

impl Account {
    /// Another process: what the one before held is gone, whatever it came to.
    pub fn begin_anew(&mut self) {
        self.running.clear();
        self.blind = false;
    }
}

pub struct SimJournal {
    pub inner: Arc<MemoryJournal>,
    gate: Arc<Gate>,
    pub account: Arc<Mutex<Account>>,
    /// Of a command beside the process that serves: its jobs are no matter of the budget.
    by_hand: bool,
}

/// Where the processes of either kind run: not on one machine, so that one is known to
/// be dead when it has been silent for long.
const MACHINES: [&str; 2] = ["that of serve", "that of commands"];

impl SimJournal {
    pub fn new(inner: Arc<MemoryJournal>, gate: Arc<Gate>, account: Arc<Mutex<Account>>, by_hand: bool) -> Self {
        Self { inner, gate, account, by_hand }
    }

    async fn pass(&self, what: &str) -> Result<()> {
        match self.gate.pass(Call::Journal, what).await {
            true => {
                hold(&self.account).blind |= !self.by_hand;
                Err(Error::Unavailable { path: "simulated".into(), why: format!("{what}: disk I/O error") })
            }
            false => Ok(()),
        }
    }

    fn book(&self, what: Booked<'_>) {
        let mut account = hold(&self.account);
        match what {
            Booked::Begun(job) => {
                account.running.insert(job.id.clone(), job.numbers.gb_hours_bound);
                let used = account.spent + account.running.values().sum::<f64>();
                let count = account.running.len();
                account.starts.push((job.requested_ms, used, count));
            }
            Booked::Ended(job, gb_hours) => {
                if account.running.remove(job).is_some() {
                    account.spent += gb_hours;
                }
            }
        }
    }
}

enum Booked<'a> {
    Begun(&'a Job),
    Ended(&'a JobId, f64),
}

macro_rules! behind_the_gate {
    ($($name:ident($($arg:ident: $type:ty),*) -> $result:ty;)*) => {
        #[async_trait]
        impl Journal for SimJournal {
            async fn request(&self, job: &Job, dead: &[String]) -> Result<bool> {
                self.pass("request").await?;
                if !self.inner.request(job, dead).await? {
                    return Ok(false);
                }
                self.gate.note(|| format!("  job {} of {} files: {}", job.id.0, job.plan.inputs.len(), job.plan.reason));
                match (job.kind == Kind::Rewrite, self.by_hand) {
                    (true, false) => self.book(Booked::Begun(job)),
                    (true, true) => drop(hold(&self.account).by_hand.insert(job.id.clone())),
                    (false, _) => {}
                }
                Ok(true)
            }

            async fn claim(&self, holder: &Holder, dead: &[String]) -> Result<()> {
                self.pass("claim").await?;
                let host = MACHINES[usize::from(self.by_hand)].into();
                self.inner.claim(&Holder { host, ..holder.clone() }, dead).await
            }

            async fn holders(&self) -> Result<Vec<Holder>> {
                self.pass("holders").await?;
                let own = MACHINES[usize::from(self.by_hand)];
                let mut holders = self.inner.holders().await?;
                holders.iter_mut().filter(|h| h.host == own).for_each(|h| h.host = process::host());
                Ok(holders)
            }

            async fn change_blob(&self, kind: &str, key: &str, change: &Change<'_>) -> Result<Option<Blob>> {
                self.pass("change_blob").await?;
                self.inner.change_blob(kind, key, change).await
            }

            async fn advance(&self, step: Step<'_>) -> Result<()> {
                self.gate.note(|| format!("  job {} {}: {}", step.job.0, step.to.code(), step.note));
                // what cannot be told yet ends the job too; recovery closes it later
                let given_up = step.to == JobState::Resolving && step.numbers.is_some_and(|n| n.millis > 0);
                if step.to.is_final() {
                    self.gate.add("conflicts", step.numbers.map_or(0, |n| u64::from(n.conflicts)));
                }
                if step.to.is_final() || given_up {
                    self.book(Booked::Ended(step.job, step.numbers.map_or(0.0, |n| n.gb_hours)));
                }
                self.pass("advance").await?;
                self.inner.advance(step).await
            }

            $(async fn $name(&self, $($arg: $type),*) -> Result<$result> {
                self.pass(stringify!($name)).await?;
                self.inner.$name($($arg),*).await
            })*
        }
    };
}

behind_the_gate! {
    instance(fresh: &str) -> String;
    beat(holder: &str, now_ms: i64) -> bool;
    take_place(holder: &str, job: &JobId, dead: &[String]) -> bool;
    leave_place(holder: &str, job: &JobId) -> ();
    release(holder: &str) -> ();
    adopt(job: &JobId, from: &str, to: &str) -> ();
    job(id: &JobId) -> Option<Job>;
    jobs(query: Query) -> Vec<Job>;
    ask_cancel(id: &JobId) -> bool;
    is_cancelled(id: &JobId) -> bool;
    begin(holder: &str, attempt: &Attempt) -> ();
    step(holder: &str, attempt: &AttemptId, to: &AttemptState) -> ();
    attempts(job: &JobId) -> Vec<Attempt>;
    litter() -> Vec<Attempt>;
    name_file(attempt: &AttemptId, path: &str) -> ();
    files(attempt: &AttemptId) -> Vec<String>;
    move_files(from: &AttemptId, to: &AttemptId, paths: &[String]) -> ();
    forget_files(attempt: &AttemptId, paths: &[String]) -> ();
    pause(pause: &Pause) -> ();
    resume(table: Option<&TableIdent>) -> bool;
    pauses() -> Pauses;
    put_blob(kind: &str, key: &str, blob: &Blob) -> ();
    blob(kind: &str, key: &str) -> Option<Blob>;
    drop_blob(kind: &str, key: &str) -> ();
    log_blob(kind: &str, key: &str, at: u64, record: &[u8]) -> ();
    blob_log(kind: &str, key: &str) -> Vec<Vec<u8>>;
    kept() -> Vec<Kept>;
    forget_kept(job: &JobId) -> ();
    prune(before_ms: i64) -> u64;
}
