//! The budget that all jobs share.

use super::section::Section;
use super::units::number;
use crate::model::policy::BudgetLimits;

pub(super) fn from_section(mut section: Section<'_>) -> BudgetLimits {
    let default = BudgetLimits::default();
    let limits = BudgetLimits {
        gb_hours_per_hour: section.read("gb_hours_per_hour", |v| number(v, 0.001, 1e6)).unwrap_or(default.gb_hours_per_hour),
        carry_over_hours: section.read("carry_over_hours", |v| number(v, 0.0, 8760.0)).unwrap_or(default.carry_over_hours),
        concurrent_jobs: section.read("concurrent_jobs", |v| number(v, 1, 1024)).unwrap_or(default.concurrent_jobs),
    };
    section.finish();
    limits
}
