//! Learning from outcomes: how far estimates are off, by table and size class, and
//! what they are when corrected for it.
//!
//! A correction is a factor, the mean of the logarithms of actual over expected. That
//! of a table's size class is drawn towards the class' over all tables, that one
//! towards all jobs', and that one towards no correction, each as if three jobs had
//! shown it. Older jobs weigh ever less, so that it follows what changes.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};

use crate::model::estimate::{Estimate, Figures};
use crate::model::ident::TableIdent;
use crate::model::layout::SizeScale;
use crate::model::plan::Plan;
use crate::model::policy::Policy;

/// How many jobs the wider view counts as.
const PRIOR: f64 = 3.0;
/// What a job weighs after another one.
const KEPT: f64 = 0.95;
/// No job teaches a larger factor than this, nor a smaller one than its inverse.
const MOST: f64 = 1000.0;
/// Tables of which anything is kept; the others are told by the fleet.
const MOST_TABLES: usize = 100_000;

/// What jobs of one kind have shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Tally {
    /// Jobs, older ones counting less.
    jobs: [f64; 4],
    /// Sums of the logarithms of actual over expected.
    logs: [f64; 4],
    /// Sums of the relative errors of what was told as corrected.
    errors: [f64; 4],
}

impl Tally {
    fn add(&mut self, estimate: &Estimate, actual: &Figures) {
        let rows = (estimate.plain.row(), estimate.corrected.row(), actual.row());
        let slots = self.jobs.iter_mut().zip(&mut self.logs).zip(&mut self.errors);
        for (((jobs, logs), errors), ((plain, corrected), actual)) in slots.zip(rows.0.iter().zip(&rows.1).zip(&rows.2)) {
            let Some(log) = logarithm(*plain, *actual) else { continue };
            *jobs = *jobs * KEPT + 1.0;
            *logs = *logs * KEPT + log;
            *errors = *errors * KEPT + ((corrected - actual) / actual).abs().min(MOST);
        }
    }

    /// The logarithm of the factor, drawn towards a wider view.
    fn drawn(&self, quantity: usize, wider: f64) -> f64 {
        let (jobs, logs) = (at(&self.jobs, quantity), at(&self.logs, quantity));
        (logs + PRIOR * wider) / (jobs + PRIOR)
    }

    /// The mean relative error of each estimate, as it was told; `None` where no job has
    /// shown any.
    pub fn error(&self, quantity: usize) -> Option<f64> {
        let jobs = at(&self.jobs, quantity);
        (jobs > 0.0).then(|| at(&self.errors, quantity) / jobs)
    }
}

/// Of numbers above nothing alone.
fn logarithm(plain: f64, actual: f64) -> Option<f64> {
    let ratio = actual / plain;
    (plain > 0.0 && actual > 0.0 && ratio.is_finite()).then(|| ratio.clamp(1.0 / MOST, MOST).ln())
}

fn at(row: &[f64; 4], quantity: usize) -> f64 {
    row.get(quantity).copied().unwrap_or(0.0)
}

/// What all jobs have shown.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Fleet {
    all: Tally,
    classes: BTreeMap<u8, Tally>,
}

/// What a table's jobs have shown, by size class.
pub type OfTable = BTreeMap<u8, Tally>;

/// Everything learned.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Learned {
    fleet: Fleet,
    tables: HashMap<TableIdent, OfTable>,
}

/// The size class of a job: each is four times the one before.
pub fn class(bytes: u64) -> u8 {
    u8::try_from(bytes.max(1).ilog2() / 2).unwrap_or(u8::MAX)
}

/// What a plan is expected to do, by the formulas and the settings alone.
pub fn expected(policy: &Policy, plan: &Plan) -> Figures {
    let bytes = plan.input_bytes();
    let outputs = SizeScale { target: plan.target_file_size, ..policy.scale }.outputs(bytes);
    Figures {
        files: (plan.inputs.len() as u64).saturating_sub(outputs) as f64,
        bytes: bytes as f64,
        seconds: bytes as f64 / policy.cost.rewrite_bytes_per_hour.max(1.0) * 3600.0,
        gb_hours: policy.cost.gb_hours(bytes),
    }
}

impl Learned {
    /// What was learned before.
    pub fn of_fleet(fleet: Fleet) -> Self {
        Self { fleet, tables: HashMap::new() }
    }

    /// What a job over so many bytes of a table taught.
    pub fn learn(&mut self, table: TableIdent, bytes: u64, estimate: &Estimate, actual: &Figures) {
        let class = class(bytes);
        self.fleet.all.add(estimate, actual);
        self.fleet.classes.entry(class).or_default().add(estimate, actual);
        if self.tables.len() < MOST_TABLES || self.tables.contains_key(&table) {
            self.tables.entry(table).or_default().entry(class).or_default().add(estimate, actual);
        }
    }

    /// What a plain estimate is when it is corrected.
    pub fn correct(&self, table: TableIdent, bytes: u64, plain: &Figures) -> Figures {
        let (class, nothing) = (class(bytes), Tally::default());
        let of_class = self.fleet.classes.get(&class).unwrap_or(&nothing);
        let own = self.tables.get(&table).and_then(|t| t.get(&class)).unwrap_or(&nothing);
        let mut row = plain.row();
        for (quantity, value) in row.iter_mut().enumerate() {
            let wider = of_class.drawn(quantity, self.fleet.all.drawn(quantity, 0.0));
            *value *= own.drawn(quantity, wider).exp();
        }
        Figures::of_row(row)
    }

    /// An estimate of a plan.
    pub fn estimate(&self, policy: &Policy, plan: &Plan) -> Estimate {
        let plain = expected(policy, plan);
        Estimate { plain, corrected: self.correct(plan.table, plan.input_bytes(), &plain) }
    }

    /// The tally of a table's size class, or of all jobs of that size, whichever has
    /// shown anything.
    pub fn shown(&self, table: TableIdent, bytes: u64) -> Option<&Tally> {
        let class = class(bytes);
        self.tables.get(&table).and_then(|t| t.get(&class)).or_else(|| self.fleet.classes.get(&class))
    }

    /// What all jobs have shown.
    pub fn fleet(&self) -> &Fleet {
        &self.fleet
    }

    /// What a table's jobs have shown.
    pub fn table(&self, table: TableIdent) -> Option<&OfTable> {
        self.tables.get(&table)
    }

    /// What a table's jobs have shown before, unless something was learned since.
    pub fn restore(&mut self, table: TableIdent, before: OfTable) {
        if self.tables.len() < MOST_TABLES {
            self.tables.entry(table).or_insert(before);
        }
    }

    /// A table is gone.
    pub fn forget(&mut self, table: TableIdent) {
        self.tables.remove(&table);
    }
}

impl Fleet {
    /// See [`Tally::error`], over all jobs.
    pub fn error(&self, quantity: usize) -> Option<f64> {
        self.all.error(quantity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn table(n: u128) -> TableIdent {
        TableIdent::iceberg(uuid::Uuid::from_u128(n))
    }

    const PLAIN: Figures = Figures { files: 10.0, bytes: 1000.0, seconds: 2.0, gb_hours: 0.5 };

    fn biased(by: f64) -> Figures {
        Figures::of_row(PLAIN.row().map(|v| v * by))
    }

    /// A job that comes out other than expected by a factor; the relative error of what
    /// was told before.
    fn job(learned: &mut Learned, n: u128, bytes: u64, by: f64) -> f64 {
        let estimate = Estimate { plain: PLAIN, corrected: learned.correct(table(n), bytes, &PLAIN) };
        learned.learn(table(n), bytes, &estimate, &biased(by));
        (estimate.corrected.gb_hours / biased(by).gb_hours - 1.0).abs()
    }

    #[test]
    fn without_a_job_nothing_is_corrected() {
        let learned = Learned::default();
        assert_eq!(learned.correct(table(1), 5, &PLAIN), PLAIN);
        assert_eq!((learned.fleet().error(0), learned.shown(table(1), 5)), (None, None));
    }

    #[test]
    fn one_job_teaches_its_table_more_than_its_size_and_that_more_than_the_rest() {
        let mut learned = Learned::default();
        job(&mut learned, 1, 1 << 20, 4.0);
        let files = |n, bytes| learned.correct(table(n), bytes, &PLAIN).files / PLAIN.files;
        let (own, size, fleet) = (files(1, 1 << 20), files(2, 1 << 20), files(2, 1 << 30));
        assert!(own > size && size > fleet && fleet > 1.0 && own < 4.0, "{own} {size} {fleet}");
        assert_eq!(learned.fleet().error(3), Some(0.75));
    }

    #[test]
    fn a_table_is_told_by_its_own_jobs_where_they_differ_from_the_fleets() {
        let mut learned = Learned::default();
        for _ in 0..40 {
            job(&mut learned, 1, 1 << 20, 4.0);
            job(&mut learned, 2, 1 << 20, 0.5);
        }
        let own = [1, 2].map(|n| learned.correct(table(n), 1 << 20, &PLAIN).bytes / PLAIN.bytes);
        assert!((own[0] / 4.0 - 1.0).abs() < 0.2 && (own[1] / 0.5 - 1.0).abs() < 0.2, "{own:?}");
    }

    #[test]
    fn what_changes_is_followed() {
        let mut learned = Learned::default();
        for _ in 0..100 {
            let _ = job(&mut learned, 1, 9, 3.0);
        }
        for _ in 0..60 {
            let _ = job(&mut learned, 1, 9, 0.5);
        }
        assert!(job(&mut learned, 1, 9, 0.5) < 0.1);
    }

    #[test]
    fn what_is_nothing_teaches_nothing() {
        let mut learned = Learned::default();
        for actual in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            learned.learn(table(1), 9, &Estimate { plain: PLAIN, corrected: PLAIN }, &Figures::of_row([actual; 4]));
        }
        assert_eq!(learned.correct(table(1), 9, &PLAIN), PLAIN);
    }

    #[test]
    fn what_was_learned_is_there_again_and_goes_with_its_table() {
        let mut learned = Learned::default();
        job(&mut learned, 1, 9, 2.0);
        let fleet = postcard::from_bytes(&postcard::to_stdvec(learned.fleet()).unwrap()).unwrap();
        let own: OfTable = postcard::from_bytes(&postcard::to_stdvec(learned.table(table(1)).unwrap()).unwrap()).unwrap();
        let mut again = Learned::of_fleet(fleet);
        again.restore(table(1), own);
        assert_eq!(again, learned);
        again.forget(table(1));
        assert_eq!(again.table(table(1)), None);
    }

    #[test]
    fn classes_are_factors_of_four() {
        assert_eq!([0, 1, 3, 4, 15, 16, u64::MAX].map(class), [0, 0, 0, 1, 1, 2, 31]);
    }

    proptest! {
        #[test]
        fn after_twenty_jobs_an_estimate_that_is_always_off_alike_is_right_within_five_percent(by in 0.05f64..20.0, bytes in any::<u64>()) {
            let mut learned = Learned::default();
            for _ in 0..20 {
            let _ = job(&mut learned, 1, bytes, by);
        }
            prop_assert!(job(&mut learned, 1, bytes, by) <= 0.05);
        }
    }
}
