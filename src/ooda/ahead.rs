//! What waits is looked into, so that what would be refused is known before anybody
//! asks for it: of tables that are only advised too.
//!
//! A candidate's plans are made, and the files of the first are looked into as far as
//! that takes no reading of rows: [`AT_ONCE`] candidates side by side, [`A_ROUND`] of them a round in
//! turn, and no round of them beside another. Each is looked into once, until its partition or
//! the rule that asks for it changes, or new position deletes come to another partition; and then not before [`REST`] times what it took
//! last have passed, so that a partition that is written to all the time costs a bounded
//! share of one looker.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures::stream::{self, StreamExt};

use super::book::Begun;
use super::work::Found;
use super::{Loop, REST};
use crate::decide::ScopeMemory;
use crate::lake::Error;
use crate::model::decision::Reason;
use crate::model::policy::Policy;
use crate::model::refusal::Refused;
use crate::telemetry::verdict_names;

/// Candidates looked into side by side.
const AT_ONCE: usize = 4;
/// Candidates looked into in one round.
const A_ROUND: usize = 32;
/// What could not be looked into is tried again after this time.
const AGAIN_MS: i64 = 60_000;

/// What a look into a candidate shows.
enum Shown {
    /// Nothing stands in the way.
    Free,
    /// Its plan is empty.
    Nothing(Reason, Box<Policy>),
    /// It would be refused.
    Refused(Refused),
    /// It is not as it was judged.
    Moved,
    /// It cannot be told now.
    Untold,
}

/// A candidate that is being looked into; open to the next look when dropped.
struct Ahead<'a> {
    of: &'a Loop,
    number: u64,
    begun: Begun,
    began_ms: i64,
    rule: Option<String>,
}

impl Drop for Ahead<'_> {
    fn drop(&mut self) {
        let now_ms = self.of.now();
        let pause = match self.rule {
            Some(_) => now_ms.saturating_sub(self.began_ms).max(0).saturating_mul(REST.into()),
            None => AGAIN_MS,
        };
        self.of.with_page(&self.begun, |page| {
            if let Some(scope) = page.end_foresight(&self.begun.scope.partition, self.number) {
                scope.foreseen(self.rule.take(), now_ms, pause);
            }
        });
    }
}

/// Candidates are being looked into until this is dropped.
struct Turn(Arc<Loop>);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.ahead.store(false, Ordering::SeqCst);
        self.0.changed.notify_one();
    }
}

impl Loop {
    /// Begins to look into candidates that nobody has looked into yet, beside the
    /// rounds that follow.
    pub(super) fn look_ahead(self: &Arc<Self>, now_ms: i64) {
        if self.is_stopping() || self.ahead.swap(true, Ordering::SeqCst) {
            return;
        }
        let begun = self.book().begin_foresights(A_ROUND, now_ms);
        if begun.is_empty() {
            self.ahead.store(false, Ordering::SeqCst);
            return;
        }
        let turn = Turn(Arc::clone(self));
        drop(self.jobs.spawn(async move {
            let of = &turn.0;
            stream::iter(begun).for_each_concurrent(AT_ONCE, |(number, begun)| of.look_into(number, begun)).await;
        }));
    }

    async fn look_into(&self, number: u64, begun: Begun) {
        let mut ahead = Ahead { of: self, number, begun, began_ms: self.now(), rule: None };
        if self.is_stopping() {
            return;
        }
        let begun = &ahead.begun;
        let before = self.remembered(begun);
        let shown = self.foresee(begun).await;
        let stands = || {
            let mut stands = false;
            self.with_page(begun, |page| stands = page.end_foresight(&begun.scope.partition, number).is_some());
            stands
        };
        // what changed meanwhile is looked into as it is now
        if !stands() {
            return;
        }
        match shown {
            Shown::Free => self.with_page(begun, |page| page.unburden(&begun.scope.partition)),
            Shown::Nothing(reason, policy) => {
                self.found_nothing(begun, &policy, reason);
                self.keep_memory(begun).await;
            }
            Shown::Refused(refused) => {
                let now_ms = self.now();
                self.with_page(begun, |page| page.refuse(&begun.scope.partition, refused, now_ms));
                self.book().learned(&begun.scope, begun.table, now_ms);
            }
            Shown::Moved => self.hear_own(begun, None),
            Shown::Untold => return,
        }
        if self.remembered(begun) != before {
            self.book().learned(&begun.scope, begun.table, self.now());
        }
        ahead.rule = Some(verdict_names(&ahead.begun.verdict).1);
    }

    /// What is remembered of a candidate's partition, as far as decisions go by it: no
    /// deletes on any file are as good as none known.
    fn remembered(&self, begun: &Begun) -> ScopeMemory {
        let mut memory = ScopeMemory::default();
        self.with_page(begun, |page| memory = page.memory(&begun.scope.partition));
        ScopeMemory { max_deletes_on_file: memory.max_deletes_on_file.filter(|most| *most > 0), ..memory }
    }

    /// What stands in the way of a candidate. Nothing is written.
    async fn foresee(&self, begun: &Begun) -> Shown {
        let seen = async {
            Ok(match self.plan(begun).await? {
                Found::Plans(plans, table, _) => {
                    // what the first plan gains is gained whatever becomes of the others
                    if let Some(plan) = plans.first() {
                        table.foresee(plan).await?;
                    }
                    Shown::Free
                }
                Found::Nothing(Reason::Refused(refused), _) => Shown::Refused(refused),
                Found::Nothing(reason, policy) => Shown::Nothing(reason, policy),
                Found::Moved => Shown::Moved,
            })
        };
        match seen.await {
            Ok(shown) => shown,
            Err(Error::Refused(refused)) => Shown::Refused(refused),
            Err(error) => {
                tracing::warn!(table = %begun.scope.name, scope = %begun.scope.partition, %error, "a candidate cannot be looked into");
                if matches!(error, Error::NotFound { .. }) {
                    self.hear_own(begun, None);
                }
                Shown::Untold
            }
        }
    }
}
