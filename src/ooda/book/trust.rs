//! Checks beside those that decide: how far estimates can be trusted, and what could
//! not be used.

use std::sync::Arc;

use crate::decide::backlog::REQUESTS_A_FILE;
use crate::decide::learn::{Learned, Subject};
use crate::model::decision::{Check, Decision, Verdict};
use crate::model::economy::{HOURS_A_MONTH, Prices};
use crate::model::estimate::{Figures, QUANTITIES};
use crate::model::policy::CostModel;
use crate::settings::Warning;

/// An estimate that is off by more is not met.
const TRUSTED: f64 = 0.05;

/// How far the estimates of a verdict can be trusted, where jobs have shown it.
pub fn trusted(cost: &CostModel, decision: &Decision, engine: &Arc<str>, learned: &Learned) -> Vec<Check> {
    let (gain, gb_hours) = match &decision.verdict {
        Verdict::Now { gain, gb_hours, .. } | Verdict::Queued { gain, gb_hours, .. } | Verdict::Review { gain, gb_hours } => {
            (*gain, *gb_hours)
        }
        Verdict::Not { .. } => return Vec::new(),
    };
    let of = Subject { table: decision.table, engine, bytes: cost.bytes(gb_hours) };
    let Some(tally) = learned.shown(of) else { return Vec::new() };
    let plain = Figures { files: gain as f64, gb_hours, ..Figures::default() };
    let corrected = learned.correct(of, &plain);
    let check = |quantity: usize, value: f64, what: &str| {
        let error = tally.error(quantity)?;
        let note = format!("{what}, by what jobs of this engine and size have shown; the threshold is their mean relative error");
        let name = format!("estimate.{}", QUANTITIES.get(quantity)?);
        Some(Check { name, value, threshold: error, passed: error <= TRUSTED, note })
    };
    [check(0, corrected.files, "files fewer"), check(3, corrected.gb_hours, "GB-hours")].into_iter().flatten().collect()
}

/// What a verdict's work is estimated to cost in money, beside what its files fewer save
/// in a month, where there are prices. `read_rate` are scans of the table an hour.
pub fn priced(prices: &Prices, decision: &Decision, read_rate: Option<f64>) -> Option<Check> {
    let (gain, gb_hours) = match &decision.verdict {
        Verdict::Now { gain, gb_hours, .. } | Verdict::Queued { gain, gb_hours, .. } | Verdict::Review { gain, gb_hours } => {
            (*gain, *gb_hours)
        }
        Verdict::Not { .. } => return None,
    };
    let rate = read_rate.unwrap_or(prices.scans_per_hour);
    let (cost, saved) = (prices.of(gb_hours, gain as f64 * REQUESTS_A_FILE), prices.saved(gain, rate, HOURS_A_MONTH));
    let note = format!(
        "{} that it is estimated to cost; the threshold is what its files fewer save in a month of {rate} scans an hour",
        prices.currency
    );
    (!prices.is_free()).then(|| Check { name: "cost.estimate".into(), value: cost, threshold: saved, passed: saved >= cost, note })
}

/// A table property that could not be used, among the checks.
pub fn warned(warning: &Warning) -> Check {
    Check { name: format!("property.{}", warning.property), value: 0.0, threshold: 0.0, passed: false, note: warning.message.clone() }
}
