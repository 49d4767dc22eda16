//! What waits and how fast it is done, as the loop tells it.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};

use crate::act::Spent;
use crate::decide::backlog::{Meter, Row, Share, sum};
use crate::decide::budget::{Spending, Used};
use crate::telemetry;

use super::Loop;

/// What is rewritten in an hour, by tenant.
#[derive(Default)]
pub(super) struct Pace(BTreeMap<Option<Arc<str>>, Meter>);

impl Loop {
    /// What waits, by tenant and by whether it is carried out.
    pub(super) fn backlog_rows(&self, now_ms: i64) -> BTreeMap<Share, Row> {
        let items = self.book().items();
        let settings = &self.parts.settings;
        let tenants = settings.budgets.tenants.iter().map(|t| Some(Arc::clone(&t.name))).chain([None]);
        let known = tenants.flat_map(|tenant| [false, true].map(|act| Share { tenant: tenant.clone(), act }));
        let pace = self.pace.lock().unwrap_or_else(PoisonError::into_inner);
        let rate = |share: &Share| pace.0.get(&share.tenant).map_or(0.0, |meter| meter.per_hour(now_ms));
        sum(items, known, rate, &settings.prices, now_ms)
    }

    /// Publishes the backlog.
    pub(super) fn tell_backlog(&self, now_ms: i64) {
        for (share, row) in self.backlog_rows(now_ms) {
            telemetry::backlog(share.tenant.as_deref().unwrap_or_default(), share.act, &figures(&row));
        }
    }

    /// So many bytes of a tenant's were rewritten.
    pub(super) fn rewrote(&self, tenant: Option<&Arc<str>>, bytes: u64, at_ms: i64) {
        let mut pace = self.pace.lock().unwrap_or_else(PoisonError::into_inner);
        pace.0.entry(tenant.cloned()).or_default().add(bytes as f64, at_ms);
    }

    /// What a job of the journal has spent, as the budgets book it.
    pub(super) fn spending(&self, spent: &Spent) -> Spending {
        Spending {
            at_ms: spent.at_ms,
            table: spent.table,
            tenant: self.parts.settings.tenant_of(&spent.name).map(|t| Arc::clone(&t.name)),
            used: Used { gb_hours: spent.gb_hours, bytes: spent.bytes, commits: u64::from(spent.commits) },
        }
    }
}

fn figures(row: &Row) -> telemetry::BacklogFigures {
    telemetry::BacklogFigures {
        candidates: row.candidates,
        review: row.review,
        oldest_seconds: row.oldest_ms as f64 / 1000.0,
        bytes: row.bytes,
        gb_hours: row.gb_hours,
        drain_seconds: row.drain_seconds,
        cost: row.cost,
    }
}
