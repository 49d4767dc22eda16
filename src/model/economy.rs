//! What work may cost, to whom it is booked, and how it is ranked.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::policy::BudgetLimits;

/// What one holder of a budget may spend; `None` is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// GB-hours that may be spent in any hour.
    pub gb_hours_per_hour: Option<f64>,
    /// Bytes of files that may be replaced in any hour.
    pub bytes_per_hour: Option<u64>,
    /// Snapshots that may be made in any hour.
    pub commits_per_hour: Option<u64>,
    /// Jobs at one time.
    pub concurrent_jobs: Option<usize>,
}

impl Limits {
    /// Whether nothing is limited.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

/// Those whose tables share a budget and a quota.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tenant {
    /// Its name.
    pub name: Arc<str>,
    /// Patterns of its tables' names, as in the settings of tables.
    pub patterns: Vec<String>,
    /// What its tables may spend together.
    pub limits: Limits,
    /// Objects that its tables may have together.
    pub quota_objects: Option<u64>,
}

/// All budgets. Each job is booked to all that concern it, and passes none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Budgets {
    /// What all jobs share.
    pub overall: BudgetLimits,
    /// More that all jobs share: bytes and commits.
    pub more: Limits,
    /// What each table may spend.
    pub per_table: Limits,
    /// What the tables of each tenant may spend.
    pub tenants: Vec<Tenant>,
}

impl Budgets {
    /// Of all jobs together, and nothing else.
    pub fn of(overall: &BudgetLimits) -> Self {
        Self { overall: *overall, ..Self::default() }
    }

    /// The tenant of that name.
    pub fn tenant(&self, name: &str) -> Option<&Tenant> {
        self.tenants.iter().find(|t| *t.name == *name)
    }

    /// Hours of unused budget that any budget here can hold, one at the least.
    pub fn hours_held(&self) -> f64 {
        self.overall.carry_over_hours.max(1.0)
    }

    /// What a table's jobs must fit: the narrowest of the budgets that concern it.
    pub fn narrowest(&self, tenant: Option<&str>) -> BudgetLimits {
        let own = tenant.and_then(|name| self.tenant(name)).and_then(|t| t.limits.gb_hours_per_hour);
        let each = [own, self.per_table.gb_hours_per_hour].into_iter().flatten();
        BudgetLimits { gb_hours_per_hour: each.fold(self.overall.gb_hours_per_hour, f64::min), ..self.overall }
    }

    /// The most bytes that any budget can hold for one job of a table.
    pub fn most_bytes(&self, tenant: Option<&str>) -> u64 {
        let own = tenant.and_then(|name| self.tenant(name)).and_then(|t| t.limits.bytes_per_hour);
        let rates = [own, self.per_table.bytes_per_hour, self.more.bytes_per_hour].into_iter().flatten();
        rates.map(|rate| (rate as f64 * self.hours_held()) as u64).min().unwrap_or(u64::MAX)
    }
}

/// How candidates are compared and chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Ranking {
    /// How gains and costs are made comparable.
    pub norm: Norm,
    /// Which of the ranked are started.
    pub select: Select,
    /// How much the bytes rewritten for each byte that users wrote weigh against a
    /// candidate; 0 for not at all.
    pub write_amplification_weight: f64,
    /// Whether the weight of gain against cost follows the tenant's use of its quota.
    pub quota_weights: bool,
    /// Whether a gain counts as often as its table is read.
    pub read_weights: bool,
    /// Whether estimates are corrected by what jobs before have shown.
    pub corrected: bool,
}

/// How gains and costs are made comparable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Norm {
    /// By their place between the least and the most.
    #[default]
    MinMax,
    /// By how many are less: one extreme table does not flatten the rest.
    Rank,
}

/// Which of the ranked are started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Select {
    /// Best first; what does not fit is passed over.
    #[default]
    Greedy,
    /// Those that together gain most within the budget, where a round is small enough
    /// to try all; else as [`Select::Greedy`].
    Exact,
    /// Only so many of the best.
    TopK(usize),
}

/// Hours in a month of storage, as stores reckon it.
pub const HOURS_A_MONTH: f64 = 730.0;
/// Requests with which a scan opens a file: its footer, and its data.
const REQUESTS_TO_SCAN: f64 = 2.0;

/// What resources cost, in any currency.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Prices {
    /// A GB-hour.
    pub gb_hour: f64,
    /// A thousand requests to the store.
    pub thousand_requests: f64,
    /// A GB, 10⁹ bytes, stored for a month of [`HOURS_A_MONTH`].
    #[serde(default)]
    pub gb_month: f64,
    /// Scans of a table an hour, to tell what is saved where nobody reports scans; 0 for
    /// not known.
    #[serde(default)]
    pub scans_per_hour: f64,
    /// Its name, such as `USD`.
    pub currency: String,
}

impl Prices {
    /// Whether nothing costs anything.
    pub fn is_free(&self) -> bool {
        self.gb_hour == 0.0 && self.thousand_requests == 0.0 && self.gb_month == 0.0
    }

    /// What so much costs.
    pub fn of(&self, gb_hours: f64, requests: f64) -> f64 {
        gb_hours * self.gb_hour + requests / 1000.0 * self.thousand_requests
    }

    /// What storing so many bytes for so many hours costs.
    pub fn stored(&self, bytes: u64, hours: f64) -> f64 {
        bytes as f64 / 1e9 * hours / HOURS_A_MONTH * self.gb_month
    }

    /// What so many files fewer save in so many hours, at so many scans an hour.
    pub fn saved(&self, files: u64, scans_per_hour: f64, hours: f64) -> f64 {
        self.of(0.0, files as f64 * REQUESTS_TO_SCAN * scans_per_hour * hours)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budgets() -> Budgets {
        let limits = Limits { gb_hours_per_hour: Some(2.0), bytes_per_hour: Some(100), ..Limits::default() };
        let sales = Tenant { name: "sales".into(), patterns: vec![], limits, quota_objects: None };
        Budgets {
            overall: BudgetLimits { gb_hours_per_hour: 8.0, carry_over_hours: 3.0, concurrent_jobs: 2 },
            more: Limits { bytes_per_hour: Some(900), ..Limits::default() },
            per_table: Limits { gb_hours_per_hour: Some(5.0), ..Limits::default() },
            tenants: vec![sales],
        }
    }

    #[test]
    fn a_tables_jobs_must_fit_the_narrowest_of_its_budgets() {
        let budgets = budgets();
        let rates = [Some("sales"), Some("other"), None].map(|t| budgets.narrowest(t).gb_hours_per_hour);
        assert_eq!(rates, [2.0, 5.0, 5.0]);
        assert_eq!([Some("sales"), None].map(|t| budgets.most_bytes(t)), [300, 2700]);
        let plain = Budgets::of(&BudgetLimits::default());
        assert_eq!((plain.narrowest(None), plain.most_bytes(None)), (BudgetLimits::default(), u64::MAX));
    }

    #[test]
    fn money_is_by_gb_hour_and_by_request() {
        let prices = Prices { gb_hour: 0.05, thousand_requests: 0.4, currency: "USD".into(), ..Prices::default() };
        assert_eq!((prices.of(10.0, 5000.0), prices.is_free(), Prices::default().is_free()), (2.5, false, true));
    }
}
