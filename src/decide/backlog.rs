//! The backlog: what waits, for how long, and when it will be done.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::model::economy::Prices;

const HOUR_MS: f64 = 3_600_000.0;
/// Requests to the store that replacing a file is reckoned at: its footer and its data
/// are read, and a share of an output is written.
pub const REQUESTS_A_FILE: f64 = 3.0;

/// What is done in an hour, half of it an hour old at the most.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Meter {
    rate: f64,
    at_ms: i64,
}

impl Meter {
    /// So much was done.
    pub fn add(&mut self, amount: f64, now_ms: i64) {
        self.rate = self.per_hour(now_ms) + std::f64::consts::LN_2 * amount;
        self.at_ms = self.at_ms.max(now_ms);
    }

    /// An hour's worth now: `ln 2 · Σ amount · 2^(−age / 1 h)`, to which steady work
    /// converges. A clock that went back stands still.
    pub fn per_hour(&self, now_ms: i64) -> f64 {
        let hours = now_ms.saturating_sub(self.at_ms).max(0) as f64 / HOUR_MS;
        self.rate * (-hours).exp2()
    }
}

/// Whose part of the backlog.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Share {
    /// The tenant; `None` for the tables of none.
    pub tenant: Option<Arc<str>>,
    /// Whether it is carried out, or only advised.
    pub act: bool,
}

/// A candidate, as the backlog counts it.
#[derive(Clone, Debug, PartialEq)]
pub struct Item {
    /// Whose it is.
    pub share: Share,
    /// Whether it waits for a person.
    pub review: bool,
    /// Whether a trigger fired.
    pub urgent: bool,
    /// Since when it waits, in milliseconds since the epoch.
    pub since_ms: i64,
    /// Files fewer.
    pub files: u64,
    /// Bytes to be rewritten.
    pub bytes: u64,
    /// Estimated GB-hours.
    pub gb_hours: f64,
}

/// What waits of one share.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Row {
    /// Candidates.
    pub candidates: u64,
    /// Those of them that a trigger asks for.
    pub urgent: u64,
    /// Those beside them that wait for a person, who decides about all the rest of their numbers.
    pub review: u64,
    /// How long the oldest candidate has waited, in milliseconds.
    pub oldest_ms: i64,
    /// Files fewer, when all is done.
    pub files: u64,
    /// Bytes to be rewritten.
    pub bytes: u64,
    /// Estimated GB-hours.
    pub gb_hours: f64,
    /// Bytes rewritten in an hour of late.
    pub bytes_per_hour: f64,
    /// How long that takes for what waits, in seconds; `None` when nothing is being done.
    pub drain_seconds: Option<f64>,
    /// What it costs, in money.
    pub cost: f64,
}

/// Sums candidates by share. Every share in `known` has a row.
pub fn sum(
    items: impl IntoIterator<Item = Item>,
    known: impl IntoIterator<Item = Share>,
    rate: impl Fn(&Share) -> f64,
    prices: &Prices,
    now_ms: i64,
) -> BTreeMap<Share, Row> {
    let mut rows: BTreeMap<Share, Row> = known.into_iter().map(|share| (share, Row::default())).collect();
    for item in items {
        let row = rows.entry(item.share).or_default();
        if item.review {
            row.review = row.review.saturating_add(1);
            continue;
        }
        row.candidates = row.candidates.saturating_add(1);
        row.urgent = row.urgent.saturating_add(u64::from(item.urgent));
        row.oldest_ms = row.oldest_ms.max(now_ms.saturating_sub(item.since_ms));
        row.files = row.files.saturating_add(item.files);
        row.bytes = row.bytes.saturating_add(item.bytes);
        row.gb_hours += item.gb_hours;
    }
    for (share, row) in &mut rows {
        row.cost = prices.of(row.gb_hours, row.files as f64 * REQUESTS_A_FILE);
        row.bytes_per_hour = if share.act { rate(share) } else { 0.0 };
        row.drain_seconds = drain(row.bytes, row.bytes_per_hour);
    }
    rows
}

/// Less than a byte an hour is nothing.
fn drain(bytes: u64, per_hour: f64) -> Option<f64> {
    match bytes {
        0 => Some(0.0),
        _ if per_hour < 1.0 => None,
        _ => Some(bytes as f64 / per_hour * 3600.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3_600_000;

    fn share(tenant: Option<&str>, act: bool) -> Share {
        Share { tenant: tenant.map(Arc::from), act }
    }

    fn item(tenant: Option<&str>, act: bool, since_ms: i64, bytes: u64) -> Item {
        Item { share: share(tenant, act), review: false, urgent: bytes > 5, since_ms, files: 10, bytes, gb_hours: 0.5 }
    }

    #[test]
    fn a_steady_pace_is_told_as_it_is_and_half_of_it_is_forgotten_in_an_hour() {
        let mut meter = Meter::default();
        for minute in 0..6000 {
            meter.add(10.0, minute * 60_000);
        }
        let now = 5999 * 60_000;
        assert!((meter.per_hour(now) - 600.0).abs() < 6.0, "{}", meter.per_hour(now));
        assert_eq!(meter.per_hour(now + HOUR), meter.per_hour(now) / 2.0);
        assert_eq!((meter.per_hour(0), Meter::default().per_hour(now)), (meter.per_hour(now), 0.0));
    }

    #[test]
    fn a_backlog_is_summed_by_tenant_and_by_whether_it_is_carried_out() {
        let review = Item { review: true, ..item(Some("a"), true, 0, 99) };
        let items = [
            item(Some("a"), true, 700, 4),
            item(Some("a"), true, 400, 6),
            item(Some("a"), false, 1000, 1),
            item(None, true, 2000, 1),
            review,
        ];
        let prices = Prices { gb_hour: 2.0, thousand_requests: 100.0, currency: "EUR".into(), ..Prices::default() };
        let rate = |share: &Share| if share.tenant.is_some() { 20.0 } else { 0.0 };
        let rows = sum(items, [share(Some("b"), true)], rate, &prices, 1000);
        let row = &rows[&share(Some("a"), true)];
        assert_eq!((row.candidates, row.urgent, row.review, row.oldest_ms, row.files, row.bytes), (2, 1, 1, 600, 20, 10));
        assert_eq!((row.gb_hours, row.cost, row.bytes_per_hour, row.drain_seconds), (1.0, 8.0, 20.0, Some(1800.0)));
        let drains = |tenant, act| rows[&share(tenant, act)].drain_seconds;
        assert_eq!((drains(Some("a"), false), drains(None, true), drains(Some("b"), true)), (None, None, Some(0.0)));
        // what seems to wait since later than now has waited for no time
        assert_eq!(rows[&share(None, true)].oldest_ms, 0);
    }
}
