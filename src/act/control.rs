//! How an attempt is watched and stopped.

use std::future::Future;
use std::pin::pin;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures::future::{Either, select};

use super::Act;
use super::attempt::AttemptState;
use super::job::describe;
use crate::lake::{Control, Error, Result};
use crate::model::killpoint::KillPoint;
use crate::model::outcome::Conflict;
use crate::model::plan::{AttemptId, JobId};

/// What happens at a kill point: nothing, unless it is asked for.
#[derive(Clone, Default)]
pub struct KillSwitch(Option<Arc<dyn Fn(KillPoint) + Send + Sync>>);

impl KillSwitch {
    /// The variable whose value names the point at which the process ends.
    pub const VARIABLE: &'static str = "AFTERWRITE_KILL_AT";

    /// From the variable's value: ends the process as `kill -9` does when the point
    /// of that name is passed.
    pub fn from_variable(value: Option<&str>) -> std::result::Result<Self, String> {
        let Some(value) = value.filter(|v| !v.is_empty()) else {
            return Ok(Self::default());
        };
        let at = KillPoint::from_str(value).map_err(|e| format!("{}: {e}", Self::VARIABLE))?;
        Ok(Self::calling(move |point| {
            if point == at {
                let _dead = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
                std::process::abort();
            }
        }))
    }

    /// Calls a function at every point.
    pub fn calling(f: impl Fn(KillPoint) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(f)))
    }

    /// A point was passed.
    pub fn reached(&self, point: KillPoint) {
        if let Some(f) = &self.0 {
            f(point);
        }
    }
}

/// How far a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Rows read so far.
    pub rows: u64,
    /// Bytes read so far.
    pub bytes: u64,
    /// Whether the outputs are written and proven: what is left, the commit, takes
    /// neither cores nor memory.
    pub proven: bool,
}

/// Is told of progress.
pub type Watcher = Arc<dyn Fn(Progress) + Send + Sync>;

/// What can stop a job: somebody who cancels it, or its bound in time.
pub(super) struct Stop {
    pub(super) job: JobId,
    /// When it began, by [`Clock::elapsed_ms`](crate::lake::clock::Clock::elapsed_ms).
    pub(super) began_ms: i64,
    pub(super) bound_ms: i64,
    cancelled: AtomicBool,
    /// Why what it makes can no longer land.
    overtaken: OnceLock<Conflict>,
    /// Rows whose deletes the last try to commit carried over.
    pub(super) carried: AtomicU64,
    rows_read: AtomicU64,
    pub(super) bytes_read: AtomicU64,
    /// The files named so far, with their attempts.
    pub(super) named: Mutex<Vec<(AttemptId, String)>>,
    /// Whether work was dropped and may still write.
    pub(super) hung: AtomicBool,
    watcher: Option<Watcher>,
}

impl Stop {
    pub(super) fn new(job: JobId, began_ms: i64, bound_ms: i64, watcher: Option<Watcher>) -> Self {
        Self {
            job,
            began_ms,
            bound_ms,
            cancelled: AtomicBool::new(false),
            overtaken: OnceLock::new(),
            carried: AtomicU64::new(0),
            rows_read: AtomicU64::new(0),
            bytes_read: AtomicU64::new(0),
            named: Mutex::default(),
            hung: AtomicBool::new(false),
            watcher,
        }
    }

    /// Tells the watcher that the outputs are proven.
    pub(super) fn proven(&self) {
        if let Some(watcher) = &self.watcher {
            let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
            watcher(Progress { rows: read(&self.rows_read), bytes: read(&self.bytes_read), proven: true });
        }
    }

    pub(super) fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    /// Stops the job because a writer was faster: what it makes can no longer land.
    pub(super) fn overtake(&self, by: Conflict) {
        let _first = self.overtaken.set(by);
    }

    pub(super) fn overtaken(&self) -> Option<&Conflict> {
        self.overtaken.get()
    }

    /// Errs when the job must stop now, by the clock by which it began.
    pub(super) fn check(&self, elapsed_ms: i64) -> Result<()> {
        if self.is_cancelled() {
            return Err(Error::Stopped("cancelled by hand".into()));
        }
        if let Some(by) = self.overtaken() {
            return Err(Error::Stopped(describe(by)));
        }
        if elapsed_ms.saturating_sub(self.began_ms) > self.bound_ms {
            return Err(Error::Stopped(format!("the job's bound of {} s is reached", self.bound_ms / 1000)));
        }
        Ok(())
    }
}

/// The control of one attempt.
///
/// Journals each path before its file is begun, and the question to the catalog
/// before it is put. Once that question is journaled nothing stops the attempt:
/// whatever happens then is a matter of what the table shows.
pub(super) struct Watch<'a> {
    act: &'a Act,
    stop: &'a Stop,
    attempt: &'a AttemptId,
    outputs: bool,
    asked: AtomicBool,
}

impl<'a> Watch<'a> {
    /// Watches an attempt that makes `outputs`, or one that commits.
    pub(super) fn new(act: &'a Act, stop: &'a Stop, attempt: &'a AttemptId, outputs: bool) -> Self {
        Self { act, stop, attempt, outputs, asked: AtomicBool::new(false) }
    }

    /// Whether the catalog may have been asked.
    pub(super) fn asked(&self) -> bool {
        self.asked.load(Ordering::SeqCst)
    }
}

#[async_trait]
impl Control for Watch<'_> {
    async fn will_write(&self, path: &str) -> Result<()> {
        self.act.journal.name_file(self.attempt, path).await?;
        self.stop.named.lock().unwrap_or_else(PoisonError::into_inner).push((self.attempt.clone(), path.into()));
        if self.outputs {
            self.reached(KillPoint::OutputNamed);
        }
        Ok(())
    }

    async fn will_commit(&self, asserted: &str) -> Result<()> {
        if self.outputs {
            return Err(Error::Setup(format!("attempt {} makes outputs and must not commit", self.attempt.0)));
        }
        self.check()?;
        self.act.journal.step(&self.act.holder.id, self.attempt, &AttemptState::Committing { asserted: asserted.into() }).await?;
        self.asked.store(true, Ordering::SeqCst);
        Ok(())
    }

    fn check(&self) -> Result<()> {
        if self.asked() {
            return Ok(());
        }
        self.stop.check(self.act.clock.elapsed_ms())
    }

    fn progress(&self, rows: u64, bytes: u64) {
        let rows = self.stop.rows_read.fetch_add(rows, Ordering::Relaxed).saturating_add(rows);
        let bytes = self.stop.bytes_read.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        if let Some(watcher) = &self.stop.watcher {
            watcher(Progress { rows, bytes, proven: false });
        }
    }

    fn carries(&self, rows: u64) {
        self.stop.carried.store(rows, Ordering::Relaxed);
    }

    fn reached(&self, point: KillPoint) {
        self.act.kill.reached(point);
    }
}

impl Act {
    /// Does `work` while watching the journal for a wish to stop it, and giving
    /// signs of life. Work that does not stop when it must is dropped after a
    /// grace, which is an error; it may write still.
    pub(super) async fn watched<T>(&self, stop: &Stop, work: impl Future<Output = Result<T>> + Send) -> Result<T> {
        let done = self.attended(stop, work, self.settings.grace_looks).await;
        stop.hung.fetch_or(done.is_none(), Ordering::Relaxed);
        done.unwrap_or_else(|| Err(did_not_answer()))
    }

    /// As [`Act::watched`], of work that only reads: dropped, it leaves nothing behind.
    pub(super) async fn read<T>(&self, stop: &Stop, work: impl Future<Output = Result<T>> + Send) -> Result<T> {
        self.attended(stop, work, self.settings.grace_looks).await.unwrap_or_else(|| Err(did_not_answer()))
    }

    /// The same, dropped as soon as it must stop.
    pub(super) async fn read_until_stopped<T>(&self, stop: &Stop, work: impl Future<Output = Result<T>> + Send) -> Result<T> {
        let stopped = || stop.check(self.clock.elapsed_ms()).err().unwrap_or_else(did_not_answer);
        self.attended(stop, work, 1).await.unwrap_or_else(|| Err(stopped()))
    }

    /// Does `work`, which has no bound of its own, for at most a time, and gives signs
    /// of life meanwhile. What does not answer within it is dropped.
    pub(super) async fn within<T>(&self, time: Duration, work: impl Future<Output = Result<T>> + Send) -> Result<T> {
        let until = self.after(time);
        let wait = async {
            while self.clock.elapsed_ms() < until {
                self.clock.sleep(self.settings.look_every).await;
                if let Err(error) = self.beat().await {
                    tracing::warn!(%error, "no sign of life could be given");
                }
            }
        };
        match select(pin!(work), pin!(wait)).await {
            Either::Left((done, _)) => done,
            Either::Right(_) => Err(Error::unreachable("catalog or store", anyhow::anyhow!("no answer within {} s", time.as_secs()))),
        }
    }

    /// `None` when the work had to stop and did not, for so many looks.
    async fn attended<T>(&self, stop: &Stop, work: impl Future<Output = Result<T>> + Send, grace: u32) -> Option<Result<T>> {
        let look = async {
            let mut overdue = 0;
            while overdue < grace {
                self.clock.sleep(self.settings.look_every).await;
                if self.is_asked_to_stop(&stop.job).await {
                    stop.cancel();
                }
                if let Err(error) = self.beat().await {
                    tracing::warn!(job = stop.job.0, %error, "no sign of life could be given");
                }
                overdue = if stop.check(self.clock.elapsed_ms()).is_err() { overdue + 1 } else { 0 };
            }
        };
        match select(pin!(work), pin!(look)).await {
            Either::Left((done, _)) => Some(done),
            Either::Right(_) => None,
        }
    }
}

fn did_not_answer() -> Error {
    Error::Stopped("the job had to stop and did not answer".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stop() -> Stop {
        Stop::new(JobId("j".into()), 1_000, 5_000, None)
    }

    #[test]
    fn a_job_is_stopped_past_its_bound_and_not_before() {
        assert!(stop().check(6_000).is_ok());
        assert_eq!(stop().check(6_001).unwrap_err().to_string(), "stopped: the job's bound of 5 s is reached");
    }

    #[test]
    fn a_cancelled_job_is_stopped() {
        let stop = stop();
        stop.cancel();
        assert_eq!(stop.check(1_000).unwrap_err().to_string(), "stopped: cancelled by hand");
    }

    #[test]
    fn a_job_that_was_overtaken_is_stopped_for_the_first_reason() {
        let stop = stop();
        stop.overtake(Conflict::InputGone { files: vec!["f".into()] });
        stop.overtake(Conflict::TableGone);
        assert_eq!(stop.check(1_000).unwrap_err().to_string(), "stopped: f is no longer live as planned");
        assert_eq!(stop.overtaken(), Some(&Conflict::InputGone { files: vec!["f".into()] }));
    }

    #[test]
    fn an_unknown_kill_point_is_named() {
        let error = KillSwitch::from_variable(Some("nowhere")).err().unwrap();
        assert_eq!(error, "AFTERWRITE_KILL_AT: no kill point is called `nowhere`");
        assert!(KillSwitch::from_variable(None).is_ok());
        assert!(KillSwitch::from_variable(Some("")).is_ok());
    }
}
