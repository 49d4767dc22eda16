//! Every decision and every round of a recording, made again.

use std::collections::{BTreeMap, HashMap};

use super::lines::{Begins, Exchanged, Judged, Key, Line, RoundMade, Settled, Table, key, order, print};
use crate::decide::budget::{Ask, Budget};
use crate::decide::round::{Candidate, rank_by, start_by};
use crate::model::economy::{Budgets, Ranking};
use crate::model::ident::TableIdent;
use crate::model::policy::Policy;

/// Differences that are told; all are counted.
const TOLD: usize = 20;

/// What came of making decisions again.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Exact {
    /// Decisions made again.
    pub decisions: u64,
    /// Rounds made again.
    pub rounds: u64,
    /// Times that a job's own bound was asked for again.
    pub asks: u64,
    /// Of all these, those that came out otherwise.
    pub differing: u64,
    /// The first of them, in words.
    pub differences: Vec<String>,
}

/// Other settings than the recorded ones. What was found of a partition, and which
/// candidates there were, stays as recorded: each decision and each round is compared by
/// itself.
pub struct Under<'a> {
    /// What holds for a table.
    pub policy: Box<dyn Fn(&Table) -> Policy + 'a>,
    /// How candidates are compared and chosen.
    pub ranking: Option<Ranking>,
    /// The budgets, full at the start.
    pub budgets: Option<Budgets>,
}

/// Makes a recording's decisions again, line by line.
#[derive(Default)]
pub struct Replay<'a> {
    under: Option<Under<'a>>,
    tables: HashMap<TableIdent, Table>,
    ranking: Ranking,
    budget: Option<Budget>,
    pending: BTreeMap<Key, Candidate>,
    exact: Exact,
}

impl<'a> Replay<'a> {
    /// Under other settings.
    pub fn under(under: Under<'a>) -> Self {
        Self { under: Some(under), ..Self::default() }
    }

    /// The next line.
    pub fn line(&mut self, line: &Line) {
        match line {
            Line::Begins(begins) => self.begins(begins),
            Line::Table(table) => self.table(table),
            Line::Judged(judged) => self.judged(judged),
            Line::Round(made) => self.round(made),
            Line::Exchanged(exchanged) => self.exchanged(exchanged),
            Line::Settled(settled) => self.settled(settled),
            Line::Job(_) | Line::Closed(_) => {}
        }
    }

    /// What came of it.
    pub fn end(self) -> Exact {
        self.exact
    }

    fn begins(&mut self, begins: &Begins) {
        self.tables.clear();
        self.pending.clear();
        (self.ranking, self.budget) = (begins.ranking, Some(begins.budget.clone()));
        if let Some(under) = &self.under {
            self.ranking = under.ranking.unwrap_or(begins.ranking);
            self.budget = under.budgets.as_ref().map(|budgets| Budget::new(budgets, begins.at_ms)).or(self.budget.take());
        }
    }

    fn table(&mut self, table: &Table) {
        let policy = self.under.as_ref().map_or_else(|| table.policy.clone(), |under| (under.policy)(table));
        // its traits are sums by the recorded sizes
        let policy = Policy { scale: table.policy.scale, ..policy };
        self.tables.insert(table.ident, Table { policy, ..table.clone() });
    }

    fn differs(&mut self, what: impl FnOnce() -> String) {
        self.exact.differing = self.exact.differing.saturating_add(1);
        if self.exact.differences.len() < TOLD {
            self.exact.differences.push(what());
        }
    }

    fn judged(&mut self, judged: &Judged) {
        self.exact.decisions = self.exact.decisions.saturating_add(1);
        let Some(table) = self.tables.get(&judged.table) else {
            self.differs(|| format!("{} at {}: the recording does not say what its settings are", judged.table, judged.at_ms));
            return;
        };
        let decision = judged.again(&judged.facts(&table.name), &table.policy);
        let name = table.name.clone();
        if decision.verdict != judged.verdict {
            let (now, then) = (decision.verdict, &judged.verdict);
            self.differs(|| format!("{name} {} at {}: {now:?} where it was {then:?}", judged.scope, judged.at_ms));
        } else if print(&decision.checks) != judged.checks {
            self.differs(|| format!("{name} {} at {}: the same verdict by other numbers", judged.scope, judged.at_ms));
        }
    }

    fn round(&mut self, made: &RoundMade) {
        self.exact.rounds = self.exact.rounds.saturating_add(1);
        for gone in &made.gone {
            self.pending.remove(gone);
        }
        self.pending.extend(made.changed.iter().map(|c| (key(c), c.clone())));
        let Some(budget) = &mut self.budget else { return };
        let ranked = rank_by(&self.ranking, self.pending.values().cloned().collect());
        let in_order = order(&ranked);
        let again = RoundMade::of(made.at_ms, in_order, &start_by(self.ranking.select, ranked, budget, made.at_ms));
        let what = if again.order != made.order {
            "candidates rank otherwise"
        } else if again.started != made.started {
            "others are started"
        } else if again.waits != made.waits {
            "what is not started waits for something else"
        } else {
            return;
        };
        self.differs(|| format!("round at {}: {what}: {} started where it were {}", made.at_ms, again.started.len(), made.started.len()));
    }

    fn exchanged(&mut self, line: &Exchanged) {
        self.exact.asks = self.exact.asks.saturating_add(1);
        let Some(budget) = &mut self.budget else { return };
        if let Some(back) = &line.back {
            budget.settle(back.recorded(), 0.0, line.at_ms);
        }
        let ask = Ask { bound: &line.bound, bytes: line.bytes, table: line.table, tenant: line.tenant.as_ref() };
        let denied = budget.reserve_for(&ask, line.at_ms).err();
        if denied != line.denied {
            let told = |denied: &Option<_>| denied.as_ref().map_or_else(|| "granted".to_owned(), ToString::to_string);
            self.differs(|| format!("a job's bound at {}: {} where it was {}", line.at_ms, told(&denied), told(&line.denied)));
        }
    }

    fn settled(&mut self, line: &Settled) {
        if let Some(budget) = &mut self.budget {
            budget.settle_used(line.reservation.recorded(), &line.used, line.at_ms);
        }
    }
}
