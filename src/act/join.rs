//! Rewrites of several partitions of one table whose commits fall together share a
//! snapshot: whoever gets the table's place to commit takes along all that wait for it.
//!
//! Each keeps its own attempt, so that each is journaled, resolved and recovered as one
//! that commits alone. Nobody waits for others to come.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::channel::oneshot;
use futures::future::{Either, select};
use tokio::sync::OwnedMutexGuard;

use super::attempt::{self, Attempt, AttemptState, Loss};
use super::commit::{Effort, Tried};
use super::control::{Stop, Watch};
use super::job::{JobState, Verdict};
use super::{Act, Work, journal_failed};
use crate::lake::{Commit, Error, Member, Result, Table, Written};
use crate::model::ident::TableIdent;
use crate::model::outcome::Outcome;
use crate::model::plan::{AttemptId, JobId, Plan};

/// Rewrites in one snapshot at most: it bounds the time in which a writer can win.
const MOST: usize = 32;

/// A rewrite that waits to be committed.
pub(super) struct Offer {
    plan: Arc<Plan>,
    written: Arc<Written>,
    stop: Arc<Stop>,
    /// Of its next attempt.
    number: u32,
    answer: oneshot::Sender<Answer>,
}

/// What became of a rewrite that another's try took along.
pub(super) struct Answer {
    pub(super) asked: Asked,
    /// The base of the try.
    table: Arc<dyn Table>,
    told: Result<Outcome>,
}

/// How far a try came that several rewrites may share.
pub(super) struct Asked {
    /// Whether the catalog may have been asked for this one.
    pub(super) asked: bool,
    /// The first of those for which it was.
    pub(super) first: Option<JobId>,
}

/// The offers of all tables.
#[derive(Clone, Default)]
pub(super) struct Offers(Arc<Mutex<HashMap<TableIdent, Vec<Offer>>>>);

impl Offers {
    fn lock(&self) -> MutexGuard<'_, HashMap<TableIdent, Vec<Offer>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn make(&self, table: TableIdent, offer: Offer) {
        self.lock().entry(table).or_default().push(offer);
    }

    /// Takes a job's offer back, if nobody took it.
    fn withdraw(&self, table: TableIdent, job: &JobId) {
        let mut all = self.lock();
        if let Some(offers) = all.get_mut(&table) {
            offers.retain(|offer| offer.stop.job != *job);
            if offers.is_empty() {
                all.remove(&table);
            }
        }
    }

    /// Takes the offers that a plan's commit can take along: of the same table and branch,
    /// of partitions of their own.
    fn take(&self, with: &Plan) -> Vec<Offer> {
        let mut all = self.lock();
        let mut taken: Vec<Offer> = Vec::new();
        let Some(offers) = all.remove(&with.table) else { return taken };
        let mut left = Vec::new();
        for offer in offers {
            let same = offer.plan.name == with.name && offer.plan.reference == with.reference;
            let scope = &offer.plan.scope;
            let new = *scope != with.scope && taken.iter().all(|other| other.plan.scope != *scope);
            if same && new && taken.len() + 1 < MOST { &mut taken } else { &mut left }.push(offer);
        }
        if !left.is_empty() {
            all.insert(with.table, left);
        }
        taken
    }
}

/// A job's wait for its turn; leaves the offers when dropped.
pub(super) struct Ticket {
    of: Offers,
    table: TableIdent,
    job: JobId,
    answer: oneshot::Receiver<Answer>,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.of.withdraw(self.table, &self.job);
    }
}

/// Whose turn it is.
pub(super) enum Turn {
    /// The job's own: it has the table's place to commit.
    Own(OwnedMutexGuard<()>),
    /// Another took it along; `None` when that other went away without a word.
    Taken(Option<Answer>),
}

impl Ticket {
    /// Waits for either.
    async fn turn(&mut self, place: impl Future<Output = OwnedMutexGuard<()>>) -> Turn {
        match select(pin!(place), &mut self.answer).await {
            Either::Right((answer, _)) => Turn::Taken(answer.ok()),
            // whoever took the offer has answered, or gone away, before the place was free
            Either::Left((place, answer)) => match answer.try_recv() {
                Ok(None) => Turn::Own(place),
                Ok(Some(answer)) => Turn::Taken(Some(answer)),
                Err(oneshot::Canceled) => Turn::Taken(None),
            },
        }
    }
}

/// A rewrite that is taken along, whose attempt is journaled.
pub(super) struct Taken {
    offer: Offer,
    attempt: AttemptId,
}

/// What one that was taken along is to be told.
pub(super) struct Told {
    offer: Offer,
    asked: bool,
    told: Result<Outcome>,
}

impl Act {
    /// Waits for a job's turn to commit, and lets others take it along meanwhile.
    pub(super) async fn turn(&self, work: &Work, effort: &Effort<'_>) -> Turn {
        let table = work.job.plan.table;
        let place = self.leases.committer(table);
        let (Effort::Rewrite { written }, Some(plan), false) = (effort, self.active.plan(&work.job.id), work.alone) else {
            return Turn::Own(place.await);
        };
        let (answer, told) = oneshot::channel();
        let number = work.numbers.tries.saturating_add(1);
        let mut ticket = Ticket { of: self.offers.clone(), table, job: work.job.id.clone(), answer: told };
        self.offers.make(table, Offer { plan, written: Arc::clone(written), stop: Arc::clone(&work.stop), number, answer });
        ticket.turn(place).await
    }

    /// Those that a try takes along. The attempt of each is journaled; who must stop, or
    /// cannot be journaled, is left to end by itself.
    pub(super) async fn take_along(&self, work: &Work, effort: &Effort<'_>) -> Vec<Taken> {
        let mut taken = Vec::new();
        if work.alone || !matches!(effort, Effort::Rewrite { .. }) {
            return taken;
        }
        for offer in self.offers.take(&work.job.plan) {
            let job = offer.stop.job.clone();
            if self.is_asked_to_stop(&job).await {
                offer.stop.cancel();
                continue;
            }
            let attempt = Attempt { id: attempt::id(&job, offer.number), job, number: offer.number, state: AttemptState::Writing };
            match self.journal.begin(&self.holder.id, &attempt).await {
                Ok(()) => taken.push(Taken { offer, attempt: attempt.id }),
                Err(error) => tracing::warn!(job = attempt.job.0, %error, "a rewrite is not taken along by another's commit"),
            }
        }
        taken
    }

    /// One try for a rewrite and those that it takes along. Gives back what became of it,
    /// and what is to be told to the others.
    pub(super) async fn commit_with(
        &self,
        work: &Work,
        table: &Arc<dyn Table>,
        written: &Written,
        commit: &Commit<'_>,
        taken: Vec<Taken>,
    ) -> (Result<Outcome>, Vec<Told>) {
        let watches: Vec<Watch<'_>> = taken.iter().map(|t| Watch::new(self, &t.offer.stop, &t.attempt, false)).collect();
        let mut members = vec![Member { plan: &work.job.plan, written, attempt: commit.attempt, control: commit.control }];
        for (Taken { offer, attempt }, watch) in taken.iter().zip(&watches) {
            members.push(Member { plan: &offer.plan, written: &offer.written, attempt, control: watch });
        }
        let told = self.watched(&work.stop, async { Ok(table.commit_joined(&members, commit).await) }).await;
        let (own, rest) = match told {
            Ok(told) => {
                let mut told = told.into_iter();
                (told.next().unwrap_or_else(|| Err(broken_off())), told.collect())
            }
            Err(error) => (Err(error), Vec::new()),
        };
        let asked: Vec<bool> = watches.iter().map(Watch::asked).collect();
        let mut rest = rest.into_iter();
        let others = taken.into_iter().zip(asked).map(|(taken, asked)| Told {
            offer: taken.offer,
            asked,
            told: rest.next().unwrap_or_else(|| Err(broken_off())),
        });
        (own, others.collect())
    }

    /// Tells those that were taken along. `first` is the job that took them, if the catalog
    /// was asked for it; gives back the first for which it was.
    pub(super) fn tell(&self, table: &Arc<dyn Table>, others: Vec<Told>, first: Option<JobId>) -> Option<JobId> {
        let first = first.or_else(|| others.iter().find(|other| other.asked).map(|other| other.offer.stop.job.clone()));
        for Told { offer, asked, told } in others {
            let answer = Answer { asked: Asked { asked, first: first.clone() }, table: Arc::clone(table), told };
            // whoever does not listen any more is found by recovery
            let _gone = offer.answer.send(answer);
        }
        first
    }

    /// Goes on after another's try took this job along.
    ///
    /// # Errors
    /// As a try of its own.
    pub(super) async fn taken_along(&self, work: &mut Work, answer: Option<Answer>) -> std::result::Result<Tried, Verdict> {
        let number = work.numbers.tries.saturating_add(1);
        let id = attempt::id(&work.job.id, number);
        work.shared = true;
        let Some(Answer { asked, table, told }) = answer else { return self.left_behind(work, id, number).await };
        work.numbers.tries = number;
        work.attempt = Some(id.clone());
        self.conclude(work, table.as_ref(), &id, asked, told).await
    }

    /// Goes on after whoever took this job along went away without a word: the journal
    /// shows how far that came.
    async fn left_behind(&self, work: &mut Work, id: AttemptId, number: u32) -> std::result::Result<Tried, Verdict> {
        let reason = "the commit that it was to be part of was broken off";
        work.numbers.joined_to = None;
        let attempts = self.journal.attempts(&work.job.id).await.map_err(journal_failed)?;
        if let Some(attempt) = attempts.into_iter().find(|attempt| attempt.id == id) {
            work.numbers.tries = number;
            work.attempt = Some(id.clone());
            if matches!(attempt.state, AttemptState::Committing { .. }) {
                self.advance(work, JobState::Resolving, &format!("may have landed: {reason}")).await?;
                return Ok(Tried::Unknown { reason: reason.into() });
            }
            if let Some(table) = work.table.clone() {
                self.lose(work, table.as_ref(), &id, Loss::NeverAsked).await?;
            }
        }
        Ok(Tried::NotAsked(Error::unreachable("a commit with others", anyhow::anyhow!(reason))))
    }
}

fn broken_off() -> Error {
    Error::unreachable("a commit with others", anyhow::anyhow!("it was broken off"))
}
