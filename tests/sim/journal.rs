//! The journal behind the gate, and what it tells of the jobs that pass it.

use std::sync::{Arc, Mutex};

use afterwrite::act::journal::{Blob, Change, Error, Kept, Result, Step};
use afterwrite::act::process;
use afterwrite::act::{Attempt, AttemptState, Holder, Job, JobState, Journal, Kind, MemoryJournal, Pause, Pauses, Query};
use afterwrite::lake::clock::Clock;
use afterwrite::model::ident::TableIdent;
use afterwrite::model::plan::{AttemptId, JobId};
use async_trait::async_trait;

use afterwrite::ooda::lease::Leases;

use super::account::Account;
use super::clock::SimClock;
use super::gate::{Call, Gate};
use super::{hold, now};

pub struct SimJournal {
    pub inner: Arc<MemoryJournal>,
    gate: Arc<Gate>,
    pub account: Arc<Mutex<Account>>,
    clock: Arc<SimClock>,
    /// Of a command beside the process that serves: its jobs are no matter of the budget.
    by_hand: bool,
}

/// Where the processes of either kind run: not on one machine, so that one is known to
/// be dead when it has been silent for long.
const MACHINES: [&str; 2] = ["that of serve", "that of commands"];

impl SimJournal {
    pub fn new(inner: Arc<MemoryJournal>, gate: Arc<Gate>, account: Arc<Mutex<Account>>, clock: Arc<SimClock>, by_hand: bool) -> Self {
        Self { inner, gate, account, clock, by_hand }
    }

    async fn pass(&self, what: &str) -> Result<()> {
        match self.gate.pass(Call::Journal, what).await {
            true => {
                if !self.by_hand {
                    hold(&self.account).doubt();
                }
                Err(Error::Unavailable { path: "simulated".into(), why: format!("{what}: disk I/O error") })
            }
            false => Ok(()),
        }
    }

    /// A rewrite that serves the table begins a try to commit, or is about to ask the
    /// catalog: not while somebody has been holding it, as far as was read before. Others
    /// may read that it is held while a call waits: then it is stopped before it asks.
    fn expect_not_held(&self, attempt: &AttemptId, what: &str) {
        let job = attempt.0.rsplit_once('.').filter(|(_, number)| !self.by_hand && *number != "0");
        let Some((job, _)) = job else { return };
        let Some(job) = now(self.inner.job(&JobId(job.into()))).unwrap().filter(|job| job.kind == Kind::Rewrite) else { return };
        let account = hold(&self.account);
        if let Some(hold) = account.leases.as_ref().and_then(|held| held.longest(&job.plan.name, self.clock.now_ms())) {
            self.gate.wrong(format!("attempt {} {what} while {} holds {} until {}", attempt.0, hold.by, job.plan.name, hold.until_ms));
        }
    }
}

macro_rules! behind_the_gate {
    ($($name:ident($($arg:ident: $type:ty),*) -> $result:ty, [$($told:expr),*];)*) => {
        #[async_trait]
        impl Journal for SimJournal {
            async fn request(&self, job: &Job, dead: &[String]) -> Result<bool> {
                self.pass(&format!("request {}", job.id.0)).await?;
                if !self.inner.request(job, dead).await? {
                    return Ok(false);
                }
                self.gate.note(|| format!("  job {} of {} files: {}", job.id.0, job.plan.inputs.len(), job.plan.reason));
                if job.kind == Kind::Rewrite {
                    hold(&self.account).begun(job, self.by_hand);
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
                self.pass(&format!("change_blob {kind} {key}")).await?;
                self.inner.change_blob(kind, key, change).await
            }

            async fn advance(&self, step: Step<'_>) -> Result<()> {
                self.gate.note(|| format!("  job {} {}: {}", step.job.0, step.to.code(), step.note));
                // what cannot be told yet ends the job too; recovery closes it later
                let given_up = step.to == JobState::Resolving && step.numbers.is_some_and(|n| n.millis > 0);
                if let (true, Some(numbers)) = (step.to.is_final(), step.numbers) {
                    self.gate.add("conflicts", u64::from(numbers.conflicts));
                    self.gate.add("deletes carried over", numbers.deletes_carried);
                }
                if step.to.is_final() || given_up {
                    hold(&self.account).ended(step.job, step.numbers.map_or(0.0, |n| n.gb_hours));
                }
                let lost = || now(self.inner.attempts(step.job)).unwrap().iter().all(|attempt| attempt.state.is_lost());
                if matches!(step.to, JobState::Failed | JobState::Cancelled) && lost() {
                    hold(&self.account).made_nothing(step.job);
                }
                self.pass("advance").await?;
                self.inner.advance(step).await
            }

            async fn begin(&self, holder: &str, attempt: &Attempt) -> Result<()> {
                self.expect_not_held(&attempt.id, "begins");
                self.pass(&format!("begin {}", attempt.id.0)).await?;
                self.inner.begin(holder, attempt).await
            }

            async fn step(&self, holder: &str, attempt: &AttemptId, to: &AttemptState) -> Result<()> {
                if matches!(to, AttemptState::Committing { .. }) {
                    self.expect_not_held(attempt, "asks the catalog");
                }
                self.pass(&format!("step {:?} {to:?}", attempt.0)).await?;
                self.inner.step(holder, attempt, to).await
            }

            async fn blob(&self, kind: &str, key: &str) -> Result<Option<Blob>> {
                let passed = self.pass(&format!("blob {kind} {key}")).await;
                if kind == "leases" && !self.by_hand {
                    hold(&self.account).leases = passed.as_ref().ok().map(|()| now(Leases::read(self.inner.as_ref())).unwrap());
                }
                passed?;
                self.inner.blob(kind, key).await
            }

            $(async fn $name(&self, $($arg: $type),*) -> Result<$result> {
                self.pass(&[stringify!($name).to_owned(), $(format!("{:?}", $told)),*].join(" ")).await?;
                self.inner.$name($($arg),*).await
            })*
        }
    };
}

// what follows on the result is told of each call
behind_the_gate! {
    instance(fresh: &str) -> String, [fresh];
    beat(holder: &str, now_ms: i64) -> bool, [now_ms];
    take_place(holder: &str, job: &JobId, dead: &[String]) -> bool, [job.0];
    leave_place(holder: &str, job: &JobId) -> (), [job.0];
    release(holder: &str) -> (), [];
    adopt(job: &JobId, from: &str, to: &str) -> (), [job.0];
    job(id: &JobId) -> Option<Job>, [id.0];
    jobs(query: Query) -> Vec<Job>, [query];
    ask_cancel(id: &JobId) -> bool, [id.0];
    is_cancelled(id: &JobId) -> bool, [id.0];
    attempts(job: &JobId) -> Vec<Attempt>, [job.0];
    litter() -> Vec<Attempt>, [];
    name_file(attempt: &AttemptId, path: &str) -> (), [attempt.0, path];
    files(attempt: &AttemptId) -> Vec<String>, [attempt.0];
    move_files(from: &AttemptId, to: &AttemptId, paths: &[String]) -> (), [from.0, to.0, paths];
    forget_files(attempt: &AttemptId, paths: &[String]) -> (), [attempt.0, paths];
    pause(pause: &Pause) -> (), [pause];
    resume(table: Option<&TableIdent>) -> bool, [table];
    pauses() -> Pauses, [];
    put_blob(kind: &str, key: &str, blob: &Blob) -> (), [kind, key, crc32fast::hash(&blob.bytes)];
    drop_blob(kind: &str, key: &str) -> (), [kind, key];
    log_blob(kind: &str, key: &str, at: u64, record: &[u8]) -> (), [kind, key, at, crc32fast::hash(record)];
    blob_log(kind: &str, key: &str) -> Vec<Vec<u8>>, [kind, key];
    kept() -> Vec<Kept>, [];
    forget_kept(job: &JobId) -> (), [job.0];
    prune(before_ms: i64) -> u64, [before_ms];
}
