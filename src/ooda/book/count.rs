//! Candidates, counted and compared for those who ask.

use std::sync::Arc;

use super::{Book, Scope, Waiting};
use crate::decide::backlog::{Item, Share};
use crate::decide::learn::Subject;
use crate::decide::round::{Candidate, front};
use crate::model::estimate::Figures;

impl Book {
    /// How many candidates wait and the files that they would save: of those that
    /// are only advised, and of those that are carried out.
    pub fn depth(&self) -> [(u64, u64); 2] {
        let mut depth = [(0_u64, 0_u64); 2];
        for scope in &self.waiting {
            let Some(page) = self.of(scope) else { continue };
            let Some(candidate) = page.candidate(&scope.partition) else { continue };
            let [advised, acted] = &mut depth;
            let (count, files) = if page.policy.act { acted } else { advised };
            (*count, *files) = (count.saturating_add(1), files.saturating_add(candidate.gain));
        }
        depth
    }

    /// Every candidate, best first.
    pub fn candidates(&self) -> Vec<Waiting> {
        let row = |scope: &Scope| {
            let page = self.of(scope)?;
            let candidate = page.candidate(&scope.partition)?.clone();
            let (score, waits_for) = page.place(&scope.partition);
            let waits_for = if page.policy.act { waits_for } else { "act is off: this is advice".to_owned() };
            Some(Waiting { scope: scope.clone(), candidate, score, waits_for, on_front: false, chosen: false })
        };
        let mut all: Vec<Waiting> = self.waiting.iter().filter_map(row).collect();
        all.sort_by(|a, b| {
            b.candidate.urgent.cmp(&a.candidate.urgent).then(b.score.total_cmp(&a.score)).then_with(|| a.scope.cmp(&b.scope))
        });
        let on_front = front(all.iter().map(|waiting| &waiting.candidate));
        all.iter_mut().zip(on_front).for_each(|(waiting, on_front)| waiting.on_front = on_front);
        // by score alone: what a trigger asks for was not weighed
        let best = all
            .iter_mut()
            .filter(|waiting| waiting.on_front)
            .max_by(|a, b| a.score.total_cmp(&b.score).then_with(|| b.scope.cmp(&a.scope)));
        if let Some(best) = best {
            best.chosen = true;
        }
        all
    }

    /// Every candidate, and what waits for a person, as the backlog counts them.
    pub fn items(&self) -> Vec<Item> {
        let waiting = self.waiting.iter().map(|scope| (scope, false));
        let reviews = self.reviews.iter().map(|scope| (scope, true));
        waiting.chain(reviews).filter_map(|(scope, review)| self.item(scope, review)).collect()
    }

    fn item(&self, scope: &Scope, review: bool) -> Option<Item> {
        let page = self.of(scope)?;
        let share = Share { tenant: page.tenant.clone(), act: page.policy.act };
        let since_ms = page.stands_since(&scope.partition).unwrap_or(i64::MAX);
        if review {
            return Some(Item { share, review, urgent: false, since_ms, files: 0, bytes: 0, gb_hours: 0.0 });
        }
        let candidate = page.candidate(&scope.partition)?;
        let (files, bytes, gb_hours) = (candidate.gain, candidate.context.bytes, candidate.gb_hours);
        Some(Item { share, review, urgent: candidate.urgent, since_ms, files, bytes, gb_hours })
    }

    /// Puts what jobs have shown in place of what the formulas say.
    pub(super) fn correct(&self, candidate: &mut Candidate, engine: &Arc<str>) {
        let plain = Figures { files: candidate.gain as f64, gb_hours: candidate.gb_hours, ..Figures::default() };
        let of = Subject { table: candidate.table, engine, bytes: candidate.context.bytes };
        let corrected = self.learned.correct(of, &plain);
        (candidate.gain, candidate.gb_hours) = (corrected.files.round() as u64, corrected.gb_hours);
    }
}
