//! What the book does to keep out of others' way.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::super::lease::Leases;
use super::scope::ScopePage;
use super::{Book, Branch, Page, Scope};
use crate::decide::keep_out;
use crate::model::decision::{Decision, Reason, Verdict};
use crate::model::ident::TableName;
use crate::model::partition::PartitionKey;
use crate::model::policy::Policy;

impl Book {
    /// The leases on tables.
    pub fn leases(&self) -> &Leases {
        &self.leases
    }

    /// Takes the leases as they stand; the partitions of the tables that they changed
    /// are due at once. Gives back the tables that are held since.
    pub fn set_leases(&mut self, leases: Leases, now_ms: i64) -> Vec<TableName> {
        if self.leases == leases {
            return Vec::new();
        }
        let changed: BTreeSet<TableName> = self.leases.differing(&leases).cloned().collect();
        let before = std::mem::replace(&mut self.leases, leases);
        for name in &changed {
            self.pages.of_mut(name).for_each(|page| page.unjudged = true);
        }
        let is_new = |name: &TableName| before.longest(name, now_ms).is_none() && self.leases.longest(name, now_ms).is_some();
        changed.into_iter().filter(is_new).collect()
    }

    /// Where clients have begun to write, work that waits is due at once; where none
    /// does any more, what was kept out of for them is.
    pub fn mind_clients(&mut self, busy_until_ms: impl Fn(&TableName) -> Option<i64>, now_ms: i64) {
        self.call_kept_out(&busy_until_ms, now_ms);
        self.call_busy(busy_until_ms, now_ms);
    }

    /// Notes whether a partition is kept out of for a client that loaded its table.
    pub(super) fn note_kept_out(&mut self, scope: &Scope, decision: &Decision) {
        let is_kept_out = matches!(decision.verdict, Verdict::Not { reason: Reason::KeptOut { .. } });
        match is_kept_out && decision.traits.writers.loaded_until_ms.is_some() {
            true => drop(self.kept_out.entry(Branch::new(&scope.name, &scope.branch)).or_default().insert(scope.partition.clone())),
            false => self.forget_kept_out(scope),
        }
    }

    /// A partition is not kept out of for a client any more.
    pub(super) fn forget_kept_out(&mut self, scope: &Scope) {
        let of = Branch::new(&scope.name, &scope.branch);
        let Some(partitions) = self.kept_out.get_mut(&of) else { return };
        partitions.remove(&scope.partition);
        if partitions.is_empty() {
            self.kept_out.remove(&of);
        }
    }

    /// What was kept out of for clients is due at once where none of them may be writing
    /// any more, as after a commit. Costs as much as keeping those partitions out did:
    /// each is called once for the judgement that noted it.
    fn call_kept_out(&mut self, busy_until_ms: impl Fn(&TableName) -> Option<i64>, now_ms: i64) {
        let free: Vec<Branch> = self.kept_out.keys().filter(|of| busy_until_ms(&of.table).is_none()).cloned().collect();
        for of in free {
            for partition in self.kept_out.remove(&of).unwrap_or_default() {
                self.call(&Scope { name: of.table.clone(), branch: Arc::clone(&of.name), partition }, now_ms);
            }
        }
    }

    /// Work that waits in tables whose clients may be writing is due at once, once for
    /// each time that they are found so.
    fn call_busy(&mut self, busy_until_ms: impl Fn(&TableName) -> Option<i64>, now_ms: i64) {
        let waiting: BTreeSet<(&TableName, &Arc<str>)> = self.waiting.iter().map(|scope| (&scope.name, &scope.branch)).collect();
        let busy = |(name, branch): (&TableName, &Arc<str>)| Some((Branch::new(name, branch), busy_until_ms(name)?));
        let busy: Vec<(Branch, i64)> = waiting.into_iter().filter_map(busy).collect();
        for (of, until_ms) in busy {
            let page = self.pages.get_mut(&of.table, &of.name);
            let Some(page) = page.filter(|page| page.clients_until_ms != until_ms && page.policy.keep_out_ms > 0) else {
                continue;
            };
            page.clients_until_ms = until_ms;
            let scopes: Vec<Scope> = self.waiting.iter().filter(|s| s.name == of.table && s.branch == of.name).cloned().collect();
            scopes.iter().for_each(|scope| self.call(scope, now_ms));
        }
    }
}

impl ScopePage {
    /// Notes what a decision means for keeping out: since when that is done, and when
    /// work that may begin now should begin no more.
    ///
    /// Where the policy's time is over, the partition is no longer kept out of until
    /// work on it has begun.
    pub fn mind_others(&mut self, decision: &Decision, policy: &Policy) {
        let (traits, now_ms) = (&decision.traits, decision.at_ms);
        let over = |since: i64| now_ms >= since.saturating_add(policy.keep_out_ms);
        let asks = matches!(decision.verdict, Verdict::Now { .. } | Verdict::Queued { .. });
        let for_a_writer = decision.checks.iter().any(|check| check.name == "keep-out" && !check.passed);
        self.kept_out_since_ms = match &decision.verdict {
            Verdict::Not { reason: Reason::KeptOut { .. } } if for_a_writer => Some(self.kept_out_since_ms.unwrap_or(now_ms)),
            _ if asks => self.kept_out_since_ms.filter(|since| over(*since)),
            _ => None,
        };
        self.closes_ms = keep_out::closes_ms(policy, traits, now_ms).filter(|_| asks && self.kept_out_since_ms.is_none());
        self.busy = keep_out::busy(&traits.writers.cadence, 0, policy.keep_out_ms);
    }
}

impl Page {
    /// Until when a writer is expected in a partition, by the rhythm of its commits.
    pub fn busy_until_ms(&self, key: &PartitionKey, now_ms: i64) -> Option<i64> {
        self.scope(key)?.busy.filter(|busy| busy.holds(now_ms)).map(|busy| busy.to_ms)
    }
}
